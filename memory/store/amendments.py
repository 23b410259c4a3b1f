"""The log of amendments: what users corrected in single entries of their memories.

    amendment = Amendment(number=3, action="delete", entry="f1", ...)
    store.amendments.append(ada, amendment)      # False if there is a number 3 already

How amendments are applied is the matter of `memory.edits`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from ...errors import UserError
from ..edits import Amendment
from .database import Database, Transaction, read_row
from .forget_log import check_not_forgotten, read_forget_count
from .owner import Owner
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
        """Return all amendments of a user, oldest first; undone ones and undos included.

        Raises:
            StoreError: A row is damaged.
        """
        with self._database.single_read() as transaction:
            return read_amendments(transaction, owner)

    def append(self, owner: Owner, amendment: Amendment, forget_count: int | None = None) -> bool:
        """Store an amendment, if its number follows the number of the user's last one.

        Args:
            owner: The user who amends.
            amendment: What is amended; the caller has numbered it after the last one it has seen.
            forget_count: What `Forgetting.count` was when the caller began; by default what it is
                now.

        Returns:
            False if the number does not follow, and nothing was stored: another amendment came
            first, and the caller should look at the entry again. False for an unknown user too.

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

        with self._database.write_transaction() as transaction:
            is_known = lock_user(transaction, owner) is not None
            check_not_forgotten(transaction, owner, forget_count)

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
    """Store amendments under the numbers that they have. The user's row must be locked."""
    rows: list[dict[str, object]] = []
    for amendment in amendments:
        row = dict(vars(amendment))
        row["sources"] = json.dumps(amendment.sources)
        row["at"] = _to_timestamp(amendment.at)
        rows.append(row)
    transaction.execute_many("insert_amendment", owner, rows)


def delete_unfounded_amendments(transaction: Transaction, owner: Owner) -> None:
    """Delete the amendments of entries that rest on a turn which is not stored any more.

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
    return _AMENDMENT.validate_python(
        {
            "number": row.number,
            "action": row.action,
            "entry": row.entry,
            "kind": row.kind,
            "old_text": row.old_text,
            "sources": json.loads(row.sources),
            "new_text": row.new_text,
            "at": _from_timestamp(row.at),
            "by": row.by,
            "undoes": row.undoes,
        }
    )


def _to_timestamp(time: datetime | None) -> float:
    """Return a time of UTC in seconds since 1970; 0 stands for an unknown time."""
    if time is None:
        return 0.0
    return time.replace(tzinfo=UTC).timestamp()


def _from_timestamp(seconds: float) -> datetime | None:
    """Return the time of UTC, without a zone, that `_to_timestamp` has stored."""
    if seconds == 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
