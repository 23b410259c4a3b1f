"""Metadata of sessions: a few plain values by name, which callers give and searches choose by.

    store.items.add(ada, session, metadata={"channel": "phone", "year": 2025})
    conditions = validate_filter({"year": {"gte": 2024}})
    store.metadata.turns_where(ada, conditions)      # frozenset({"chat:1", "chat:2"})

Metadata are stored by the id of their session, so a session keeps them when it ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from ..metadata import MetadataRange, Scalar, meets
from .database import Database, Transaction, read_row
from .owner import Owner
from .records import SessionInfo
from .turns import read_open_sessions


class SessionMetadata:
    """Finds sessions by their metadata, and metadata by turns.

    Args:
        database: Where the metadata are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def turns_where(self, owner: Owner, conditions: Mapping[str, MetadataRange]) -> frozenset[str]:
        """Return the ids of all turns in sessions whose metadata meet all conditions.

        Sessions that have not ended count as well. A session without metadata is never chosen.
        """
        with self._database.read_transaction() as transaction:
            matching_ids: set[str] = set()
            for session_id, metadata in read_metadata(transaction, owner).items():
                if meets(metadata, conditions):
                    matching_ids.add(session_id)

            rows = transaction.select_in_batches(
                "select_turn_ids_of_items", owner, sorted(matching_ids)
            )
            turn_ids = {row.turn for row in rows}

            for session in read_open_sessions(transaction, owner):
                if session.id in matching_ids:
                    turn_ids.update(turn.id for turn in session.turns)
        return frozenset(turn_ids)

    def sessions_of_turns(self, owner: Owner, turn_ids: Sequence[str]) -> dict[str, SessionInfo]:
        """Return the id and metadata of each turn's session, by the id of the turn.

        Unknown turns are left out, and so are turns of open sessions without metadata.

        Raises:
            StoreError: A row is damaged.
        """
        sessions: dict[str, SessionInfo] = {}
        with self._database.read_transaction() as transaction:
            open_sessions = read_open_sessions(transaction, owner)
            open_ids = [session.id for session in open_sessions]
            metadata_by_session = read_metadata(transaction, owner, open_ids)
            for session in open_sessions:
                if session.id in metadata_by_session:
                    info = SessionInfo(session.id, metadata_by_session[session.id])
                    for turn in session.turns:
                        sessions[turn.id] = info

            rows = transaction.select_in_batches("select_sessions_of_turns", owner, turn_ids)

        for row in rows:
            metadata = read_row("metadata", owner, row, _parse_metadata, "session")
            sessions[row.turn] = SessionInfo(row.session, metadata)
        return sessions


def read_metadata(
    transaction: Transaction, owner: Owner, session_ids: Sequence[str] | None = None
) -> dict[str, dict[str, Scalar]]:
    """Return the metadata of sessions, by id; sessions without metadata are left out.

    Args:
        transaction: The transaction that reads.
        owner: The user who has the sessions.
        session_ids: The sessions; all of the user if None.

    Raises:
        StoreError: A row is damaged.
    """
    if session_ids is None:
        rows = transaction.execute("select_metadata", owner).all()
    else:
        rows = transaction.select_in_batches("select_metadata_of_sessions", owner, session_ids)

    metadata_by_session: dict[str, dict[str, Scalar]] = {}
    for row in rows:
        metadata = read_row("metadata", owner, row, _parse_metadata, "session")
        metadata_by_session[row.session] = metadata
    return metadata_by_session


def write_metadata(
    transaction: Transaction, owner: Owner, metadata_by_session: Mapping[str, Mapping[str, Scalar]]
) -> None:
    """Store the metadata of sessions; they replace what is stored for these sessions.

    Empty metadata replace nothing: what is stored for that session stays.
    """
    rows: list[dict[str, object]] = []
    for session_id, metadata in metadata_by_session.items():
        if metadata:
            rows.append({"session": session_id, "json": json.dumps(metadata)})
    transaction.execute_many("upsert_metadata", owner, rows)


def _parse_metadata(row: Row[Any]) -> dict[str, Scalar]:
    """Return the metadata in the column `json` of a row."""
    # `select_sessions_of_turns` also returns sessions without metadata, with NULL in this column.
    return dict(json.loads(row.json or "{}"))
