"""The log of amendments: what users corrected in single entries of their memories.

    amendment = Amendment(number=3, action="delete", entry="f1", ...)
    store.amendments.append(ada, amendment)      # False if there is a number 3 already

How amendments are applied is the matter of `memory.edits`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from ...errors import UserError
from ..edits import Amendment
from .database import Database, Transaction, read_row
from .forget_log import (
    any_session_key,
    check_not_forgotten,
    is_forgotten_since,
    read_forget_count,
)
from .owner import Owner
from .times import from_timestamp, to_timestamp
from .user_rows import lock_user

MAX_AMENDMENTS = 10_000
"""The most amendments of a user."""

_AMENDMENT = TypeAdapter(Amendment)


class AmendmentLog:
    """Appends amendments of users, and lists them.

    Args:
        database: Where the amendments are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_all(self, owner: Owner) -> list[Amendment]:
        """Return all corrections that a user made to entries of the memory, oldest first.

        Corrections that were undone are included, and so are the undos themselves.

        Raises:
            StoreError: A row is damaged.
        """
        with self._database.read_without_transaction() as transaction:
            return read_amendments(transaction, owner)

    def append(
        self,
        owner: Owner,
        amendment: Amendment,
        forget_count: int | None = None,
        entry_forget_count: int | None = None,
    ) -> bool:
        """Store a user's correction of an entry, unless another one came first.

        The caller gives its amendment the number after the last one that it has seen, or 1. Nothing
        is stored if another number is the next one by now. Earlier numbers may be missing, because
        forgetting a session deletes amendments.

        Args:
            owner: The user.
            amendment: The correction.
            forget_count: `Forgetting.count()` when the caller began: the write is refused if the
                user was forgotten since. By default the count as it is now.
            entry_forget_count: `Forgetting.count()` when the caller read the entry. An amendment
                quotes the entry, so nothing is stored if a session of the user was forgotten
                since. By default `forget_count`.

        Returns:
            Whether it was stored. If not, the user is unknown, or another amendment or the
            forgetting of a session came first, and the caller should look at the entry again.

        Raises:
            ConflictError: The user was forgotten since the caller began.
            UserError: The user has too many amendments.
        """
        if amendment.number > MAX_AMENDMENTS:
            raise UserError(
                f"user {owner.user!r} has {MAX_AMENDMENTS} amendments, the most there can be; "
                "forget sessions instead"
            )
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        if entry_forget_count is None:
            entry_forget_count = forget_count

        with self._database.write_transaction() as transaction:
            is_known = lock_user(transaction, owner) is not None
            check_not_forgotten(transaction, owner, forget_count)
            if is_forgotten_since(transaction, [any_session_key(owner)], entry_forget_count):
                return False

            last_number: int = transaction.execute("select_last_amendment", owner).scalar() or 0
            if not is_known or amendment.number != last_number + 1:
                return False
            insert_amendments(transaction, owner, [amendment])
            return True


def read_amendments(transaction: Transaction, owner: Owner) -> list[Amendment]:
    """Return all amendments of a user, oldest first.

    Raises:
        StoreError: A row is damaged.
    """
    rows = transaction.execute("select_amendments", owner)
    return [read_row("amendments", owner, row, _parse_amendment, "number") for row in rows]


def insert_amendments(
    transaction: Transaction, owner: Owner, amendments: Sequence[Amendment]
) -> None:
    """Store amendments without a check of their numbers. The user's row must be locked."""
    rows: list[dict[str, object]] = []
    for amendment in amendments:
        row = dict(vars(amendment))
        row["sources"] = json.dumps(amendment.sources)
        row["at"] = to_timestamp(amendment.at)
        rows.append(row)
    transaction.execute_many("insert_amendment", owner, rows)


def delete_unfounded_amendments(transaction: Transaction, owner: Owner) -> None:
    """Delete amendments of entries that came from a turn which is not stored any more.

    Such an amendment quotes the text of the entry, and so what was said in the deleted turn.

    Raises:
        StoreError: A row is damaged.
    """
    amendments = read_amendments(transaction, owner)
    source_ids: set[str] = set()
    for amendment in amendments:
        source_ids.update(amendment.sources)

    rows = transaction.select_in_batches("select_turn_ids", owner, sorted(source_ids))
    stored_ids = {row.turn for row in rows}
    unfounded = [
        {"number": amendment.number}
        for amendment in amendments
        if not stored_ids.issuperset(amendment.sources)
    ]
    transaction.execute_many("delete_amendment", owner, unfounded)


def _parse_amendment(row: Row[Any]) -> Amendment:
    """Return the amendment of a row; a damaged row raises a `ValueError` or the like."""
    return _AMENDMENT.validate_python(
        {
            "number": row.number,
            "action": row.action,
            "entry": row.entry,
            "kind": row.kind,
            "old_text": row.old_text,
            "sources": json.loads(row.sources),
            "new_text": row.new_text,
            "at": from_timestamp(row.at),
            "by": row.by,
            "undoes": row.undoes,
        }
    )
