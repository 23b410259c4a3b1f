"""Forgetting in a store: users, or one session of theirs, and the bytes of what was deleted."""

from __future__ import annotations

from sqlalchemy import delete

from ..errors import StoreError
from . import erasing
from . import store_amending as amending
from . import store_reads as reads
from . import store_rows as rows
from . import store_tables as t
from .store_tables import of
from .store_transactions import Transactions
from .stored import Forgotten, Owner, name_of


class Forgetting(Transactions):
    """What a `Store` does to forget."""

    def forget(self, owner: Owner) -> Forgotten:
        """Deletes everything of a user, and returns when its bytes are gone or with what holds them.

        Whatever was under way for the user, in any process, is refused from now on: a worker will find its claim void.
        """
        with self._write() as db:
            # Made even for an unknown user: the first write of a new one may be under way in another process.
            known = rows.lock(db, owner) or erasing.pending(db, owner)
            sessions, turns = reads.sizes(db, owner)
            for table in t.OWNED:
                db.execute(delete(table).where(*of(table, owner)))
            erasing.record(db, owner)
        return Forgotten(owner, known, sessions, turns, *self.erase())

    def forget_item(self, owner: Owner, id: str) -> Forgotten:
        """Deletes one item or open session of a user.

        If the memory holds something of it, the memory is deleted too, and all other items are queued anew.
        """
        id = name_of("session", id)
        with self._write() as db:
            rows.lock(db, owner, make=False)
            _, before = reads.sizes(db, owner)
            known = rows.drop_item(db, owner, id) | rows.drop_open(db, owner, id)
            left = before - reads.sizes(db, owner)[1]
            name = Owner.stored(f"{owner.user}\0{id}", owner.tenant)
            known |= erasing.pending(db, name)
            if known:
                # Which of them are of that session's texts, nobody knows.
                db.execute(delete(t.vectors).where(*of(t.vectors, owner)))
                amending.drop_unfounded(db, owner)
                erasing.record(db, name, erasing.a_session_of(owner))
        return Forgotten(owner, known, int(left > 0), left, *self.erase())

    def erase(self) -> tuple[bool | None, str]:
        """Removes the bytes of what was forgotten from an SQLite store, as far as nobody reads it at the moment.

        Returns:
            Whether they are gone, and what holds them; None where a database server decides that.
        """
        if self._engine.dialect.name != "sqlite":
            return None, erasing.SERVER
        try:
            with self._read() as db:
                pending, number = erasing.to_erase(db), erasing.forgets(db)
            if not pending:
                return True, ""
            with self._alone(), t.store_errors(self._engine):
                held = erasing.erase(self._engine)
            if held in ("", erasing.LARGE):
                with self._write() as db:
                    erasing.done(db, number)
        except StoreError as error:
            return False, str(error)
        return not held, held
