"""Reading all that is needed of a user to answer a question, at one moment.

A snapshot is read for every question, so it costs little: a memory whose version the caller knows
is not read again, and items that still wait are not parsed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row

from ...errors import StoreError
from ...records import Session, Turn
from .database import Database, read_row
from .document_rows import NO_LOG, read_document, read_head
from .documents import ChangeLog
from .items import parse_item
from .owner import Owner
from .records import ParsedRows, Snapshot, StoredItem
from .turns import parse_turn

_log = logging.getLogger("mempiler")


class Snapshots:
    """Reads what a store holds of a user."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(
        self,
        owner: Owner,
        is_known: Callable[[str], bool] = lambda version: False,
        parsed: ParsedRows | None = None,
        known_log: ChangeLog = NO_LOG,
    ) -> Snapshot:
        """Return the memory of a user, and the items that are not in it yet, as they are now.

        All of it is read in one transaction. What the caller knows from an earlier call is not
        read or parsed again, because a snapshot is read for every question.

        Args:
            owner: The user.
            is_known: Returns whether the caller has the memory of a version already. Then the
                snapshot comes without the memory.
            parsed: `Snapshot.parsed` of the last snapshot. Items that were in it already come as
                the same objects.
            known_log: The version of the memory that the caller has, as a text and a number of
                changes. If possible, only later changes are read.

        Raises:
            StoreError: The store cannot be reached, or a row of the memory is damaged. An item
                whose row is damaged is set aside as `failed` instead.
        """
        with self._database.read_transaction() as transaction:
            head = read_head(transaction, owner)
            pending_rows = transaction.execute(
                "select_pending_rows", owner, finalized_position=head.finalized_position
            ).all()
            document = None
            if not is_known(head.version):
                document = read_document(transaction, owner, head, known_log)

        # The rows are items, without a session, and turns of sessions that have not ended.
        item_rows = [row for row in pending_rows if not row.session]
        turn_rows = [row for row in pending_rows if row.session]
        parser = _RowParser(owner, parsed or ParsedRows())
        return Snapshot(
            owner=owner,
            version=head.version,
            stamp=head.stamp,
            document=document,
            pending_items=tuple(self._pending_items(item_rows, parser)),
            open_sessions=tuple(_open_sessions(turn_rows, parser)),
            forget_count=head.forget_count,
            last_amendment=head.last_amendment,
            parsed=parser.parsed,
        )

    def _pending_items(self, rows: Sequence[Row[Any]], parser: _RowParser) -> list[StoredItem]:
        """Return the items of rows; set damaged ones aside as `failed` and leave them out.

        Raises:
            StoreError: A damaged item is in the memory already, so that setting it aside would
                not help.
        """
        pending_items: list[StoredItem] = []
        for row in rows:
            try:
                pending_items.append(parser.item(row))
            except StoreError as error:
                is_in_memory = row.state in ("remembered", "partial")
                if is_in_memory:
                    raise
                is_set_aside = row.state == "failed"
                if not is_set_aside:
                    self._set_aside(parser.owner, row, error)
        return pending_items

    def _set_aside(self, owner: Owner, row: Row[Any], error: StoreError) -> None:
        """Mark a damaged item as `failed`, so that workers write the other items of the user."""
        _log.warning("%s: it is set aside", error)
        if not self._database.writable:
            return
        with self._database.write_transaction() as transaction:
            transaction.execute(
                "set_item_aside",
                owner,
                position=row.position,
                state=row.state,
                digest=row.digest,
            )


class _RowParser:
    """Parses the rows of a user's items and open sessions.

    What was parsed for the last snapshot is not parsed again, but taken from there.

    Args:
        owner: The user.
        earlier: What was parsed for the last snapshot.
    """

    def __init__(self, owner: Owner, earlier: ParsedRows) -> None:
        self.owner = owner
        self._earlier = earlier
        self.parsed = ParsedRows()
        """What this snapshot holds, for the next one."""

    def item(self, row: Row[Any]) -> StoredItem:
        """Return the item of a row, with its state; its JSON is parsed only if it is new."""
        # The JSON itself is the key: the same JSON is the same item.
        known_item = self._earlier.items.get(row.json)
        stored_item = read_row("items", self.owner, row, lambda row: parse_item(row, known_item))
        self.parsed.items[row.json] = stored_item.item
        return stored_item

    def session(self, session_id: str, rows: Sequence[Row[Any]]) -> Session:
        """Return an open session with the turns of these rows, which are in order.

        A session that has not changed since the last snapshot is the same object.
        """
        key = (session_id, *(row.json for row in rows))
        session = self._earlier.sessions.get(key)
        turns = [self._turn(row) for row in rows]
        if session is None:
            session = Session(id=session_id, time=turns[0].time, turns=tuple(turns))
        self.parsed.sessions[key] = session
        return session

    def _turn(self, row: Row[Any]) -> Turn:
        """Return the turn of a row; its JSON is parsed only if it is new."""
        turn = self._earlier.turns.get(row.json)
        if turn is None:
            turn = read_row("open_turns", self.owner, row, parse_turn, "session")
        self.parsed.turns[row.json] = turn
        return turn


def _open_sessions(rows: Sequence[Row[Any]], parser: _RowParser) -> list[Session]:
    """Group rows of turns into their open sessions; the session that began first comes first."""
    rows_by_session: dict[str, list[Row[Any]]] = {}
    for row in rows:
        rows_by_session.setdefault(row.session, []).append(row)
    return [
        parser.session(session_id, session_rows)
        for session_id, session_rows in rows_by_session.items()
    ]
