"""The rows of turns: the ids that a user's turns have taken, and the turns of open sessions.

The turns of an item are part of the item's JSON. Beside it, one row a turn says which item has the
turn of an id, so that no id is used twice, and turns can be looked up. The turns of a session that
is still open are stored one row a turn; their ids are taken too, with position 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from ...errors import ConflictError
from ...records import Session, Turn
from ..incoming_items import check_turns, record_json
from .database import Transaction, batches, read_row
from .owner import Owner

OPEN_POSITION = 0
"""The position that is stored for the turns of open sessions: items have positions from 1."""


def with_turn_ids(turns: Sequence[Turn], session_id: str, last_number: int = 0) -> tuple[Turn, ...]:
    """Return turns that all have an id: a turn without one gets an id such as `chat:3`.

    That is the id of the session, and the number of the turn in it.

    Args:
        turns: What was said.
        session_id: The session that the turns belong to.
        last_number: The number of the session's last turn before these.
    """
    numbered: list[Turn] = []
    for number, turn in enumerate(turns, last_number + 1):
        if turn.id:
            numbered.append(turn)
        else:
            numbered.append(turn.model_copy(update={"id": f"{session_id}:{number}"}))
    return tuple(numbered)


def reserve_turn_ids(
    transaction: Transaction, owner: Owner, turns: Sequence[Turn], position: int
) -> None:
    """Reserve the ids of turns, so that no other turn of the user can have them.

    The user's row must be locked.

    Args:
        transaction: The transaction that stores the turns.
        owner: The user who has the turns.
        turns: Turns that all have an id.
        position: The position of the turns' item; `OPEN_POSITION` for an open session.

    Raises:
        ConflictError: Another turn of the user, or another one of these, has one of the ids.
    """
    turn_ids = [turn.id for turn in turns]
    new_rows = transaction.execute(
        "reserve_turn_ids", owner, turn_ids=json.dumps(turn_ids), position=position
    )
    # The statement inserts, and returns, only ids that no other turn had.
    free_ids = set(new_rows.scalars())

    for turn_id in turn_ids:
        if turn_id not in free_ids:
            raise ConflictError(
                f"user {owner.user!r} has another turn {turn_id!r}; "
                "give turns ids that no other turn of the user has, or none at all"
            )
        # Two of these turns with the same id are refused as well.
        free_ids.remove(turn_id)


def read_open_sessions(transaction: Transaction, owner: Owner) -> list[Session]:
    """Return the open sessions of a user with their turns so far, in the order of their beginning.

    Raises:
        StoreError: A row is damaged.
    """
    turns_by_session: dict[str, list[Turn]] = {}
    for row in transaction.execute("select_open_turns", owner):
        turn = read_row("open_turns", owner, row, parse_turn, "session")
        turns_by_session.setdefault(row.session, []).append(turn)
    return [_open_session(session_id, turns) for session_id, turns in turns_by_session.items()]


def read_open_session(transaction: Transaction, owner: Owner, session_id: str) -> Session | None:
    """Return an open session with its turns so far; None if no open session has this id.

    Raises:
        StoreError: A row of the session is damaged.
    """
    turns = _read_turns_of_open_session(transaction, owner, session_id)
    if not turns:
        return None
    return _open_session(session_id, turns)


def insert_open_turns(
    transaction: Transaction,
    owner: Owner,
    session_id: str,
    turns: Sequence[Turn],
    last_number: int,
) -> tuple[Turn, ...]:
    """Store turns at the end of an open session. The user's row must be locked.

    Args:
        transaction: The transaction that stores the turns.
        owner: The user who has the session.
        session_id: The open session; it begins with its first turn.
        turns: What was said; a turn without an id gets one such as `chat:3`.
        last_number: The number of the session's last turn; 0 for a new session.

    Returns:
        The turns with their ids.

    Raises:
        ConflictError: Another turn of the user has the same id.
        UserError: An id or a text cannot be stored.
    """
    numbered_turns = with_turn_ids(turns, session_id, last_number)
    check_turns(numbered_turns)
    reserve_turn_ids(transaction, owner, numbered_turns, OPEN_POSITION)

    rows: list[dict[str, object]] = []
    for number, turn in enumerate(numbered_turns, last_number + 1):
        rows.append({"session": session_id, "number": number, "json": record_json(turn)})
    transaction.execute_many("insert_open_turn", owner, rows)
    return numbered_turns


def delete_open_session(transaction: Transaction, owner: Owner, session_id: str) -> bool:
    """Delete an open session: its turns, and the reservation of their ids.

    Returns:
        False if there is no such open session.

    Raises:
        StoreError: A row is damaged, so that the id of its turn is not known.
    """
    turns = _read_turns_of_open_session(transaction, owner, session_id)
    for batch in batches([turn.id for turn in turns]):
        transaction.execute("delete_turn_ids", owner, turn_ids=batch)
    transaction.execute("delete_open_turns_of_session", owner, session=session_id)
    return bool(turns)


def parse_turn(row: Row[Any]) -> Turn:
    """Return the turn that a row of an open session holds as JSON."""
    return Turn.model_validate_json(row.json)


def _read_turns_of_open_session(
    transaction: Transaction, owner: Owner, session_id: str
) -> list[Turn]:
    """Return the turns of one open session, in order.

    Raises:
        StoreError: A row is damaged.
    """
    rows = transaction.execute("select_turns_of_open_session", owner, session=session_id).all()
    return [read_row("open_turns", owner, row, parse_turn, "session") for row in rows]


def _open_session(session_id: str, turns: Sequence[Turn]) -> Session:
    """Return an open session as a record; it begins at the time of its first turn."""
    return Session(id=session_id, time=turns[0].time, turns=tuple(turns))
