"""How often each entry of a memory was recalled: what people look at to see what a memory holds in vain.

    note_recalled ──> counts of this process ── every so often, and at the end ──> the table of recalls

A question only counts in the process, which takes microseconds; the store is written to by whoever has the time: a
service's watcher, the hundredth question, `close`. So the counts are a lower bound: a process that is killed, or leaves
its store open, takes its last ones with it. They go with the user, with each session that is forgotten, and with the
memory where it is written anew, since its entries have other ids then (what a process had not written by then is
counted for entries of these ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice

from sqlalchemy import Connection, select

from ..errors import StoreError
from . import erasing
from . import store_tables as t
from .store_rows import insert_into, lock
from .store_tables import key_of, of
from .store_transactions import Transactions
from .stored import Owner

MOST = 50
"""Entries that are counted of one question, best first."""
EVERY = 100
"""Questions after which counts are written by the one that asks."""


class Recalling(Transactions):
    """What a `Store` does to count recalls."""

    def note_recalled(self, owner: Owner, ids: Iterable[str], since: int) -> None:
        """Counts the entries that a question recalled; what keeps that from being written is passed over.

        Args:
            owner: Whose memory.
            ids: Of the entries, best first.
            since: What `forgets` was when the question was asked.
        """
        found, noted = set(islice(ids, MOST)), self._noted
        if not found:
            return
        with noted.lock:
            noted.counts.setdefault((owner, since), Counter()).update(found)
            noted.questions += 1
            due = noted.questions >= EVERY
        if due:
            with suppress(StoreError):
                self.keep_recalled()

    def keep_recalled(self) -> None:
        """Writes what was counted since the last time; what is of users who were forgotten meanwhile is dropped."""
        with self._noted.lock:
            counts, self._noted.counts, self._noted.questions = self._noted.counts, {}, 0
        if counts:
            self._commit(lambda db: _write(db, counts))

    def close(self) -> None:
        """Writes what was counted, and closes all connections."""
        with suppress(StoreError):
            self.keep_recalled()
        super().close()


def read(db: Connection, owner: Owner) -> dict[str, int]:
    """How often each entry of a user's memory was recalled; entries that never were are not in it."""
    c = t.recalls.c
    return {entry: int(count) for entry, count in db.execute(select(c.entry, c.count).where(*of(t.recalls, owner)))}


def _write(db: Connection, counts: Mapping[tuple[Owner, int], Counter[str]]) -> None:
    new = insert_into(db)(t.recalls)
    more = {"count": t.recalls.c.count + new.excluded.count}
    new = new.on_conflict_do_update(index_elements=["tenant", "user", "entry"], set_=more)
    for (owner, since), found in sorted(counts.items()):
        known = lock(db, owner, make=False)
        if known and not erasing.forgotten_since(db, since, owner, erasing.a_session_of(owner)):
            db.execute(new, [{**key_of(owner), "entry": id, "count": count} for id, count in sorted(found.items())])
