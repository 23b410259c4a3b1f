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
        """Return what the store holds of a user at this moment, read in one transaction.

        Args:
            owner: The user.
            is_known: Tells of a version whether the caller has its memory, so that it is not read.
            parsed: `Snapshot.parsed` of the last snapshot. Items that still wait stay the same
                objects.
            known_log: How far the caller has the memory. If the store has the changes since, it
                reads these alone.

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
        """Return the items of rows, and set aside those that are damaged.

        Raises:
            StoreError: A damaged item is in the memory already, so that setting it aside would
                not help.
        """
        pending_items: list[StoredItem] = []
        for row in rows:
            try:
                pending_items.append(parser.item(row))
            except StoreError as error:
                if row.state in ("remembered", "partial"):
                    raise
                if row.state != "failed":
                    self._set_aside(parser.owner, row, error)
        return pending_items

    def _set_aside(self, owner: Owner, row: Row[Any], error: StoreError) -> None:
        """Keep a damaged item as failed, so that the other items of the user are written."""
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
    """Parses the rows of a user's items and open sessions, each only once.

    Args:
        owner: The user.
        earlier: What was parsed for the last snapshot.
    """

    def __init__(self, owner: Owner, earlier: ParsedRows) -> None:
        self.owner = owner
        self._earlier = earlier
        self.parsed = ParsedRows()
        """What was parsed for this snapshot."""

    def item(self, row: Row[Any]) -> StoredItem:
        known_item = self._earlier.items.get(row.json)
        stored_item = read_row("items", self.owner, row, lambda row: parse_item(row, known_item))
        self.parsed.items[row.json] = stored_item.item
        return stored_item

    def session(self, session_id: str, rows: Sequence[Row[Any]]) -> Session:
        """Return the session of an id, whose turns are in rows, the first turn first."""
        key = (session_id, *(row.json for row in rows))
        session = self._earlier.sessions.get(key)
        turns = [self._turn(row) for row in rows]
        if session is None:
            session = Session(id=session_id, time=turns[0].time, turns=tuple(turns))
        self.parsed.sessions[key] = session
        return session

    def _turn(self, row: Row[Any]) -> Turn:
        turn = self._earlier.turns.get(row.json)
        if turn is None:
            turn = read_row("open_turns", self.owner, row, parse_turn, "session")
        self.parsed.turns[row.json] = turn
        return turn


def _open_sessions(rows: Sequence[Row[Any]], parser: _RowParser) -> list[Session]:
    """Return the open sessions of rows of turns, in the order of their first turns."""
    rows_by_session: dict[str, list[Row[Any]]] = {}
    for row in rows:
        rows_by_session.setdefault(row.session, []).append(row)
    return [
        parser.session(session_id, session_rows)
        for session_id, session_rows in rows_by_session.items()
    ]
