"""The row of a user: the lock that writers of the user take, and the version of the memory.

Whoever adds or deletes something of a user first calls `lock_user` or `lock_or_create_user`. Both
update the user's row, which locks it until the transaction ends. So two writers of one user come
one after the other. Writers of other users are not held up in PostgreSQL; an SQLite file has one
writer at a time.
"""

from __future__ import annotations

from uuid import uuid4

from .database import Transaction
from .owner import Owner


def lock_user(transaction: Transaction, owner: Owner) -> int | None:
    """Lock the row of a user until the transaction ends.

    Returns:
        The position of the user's next item; None for an unknown user, where nothing is locked.
    """
    next_position: int | None = transaction.execute("lock_user", owner).scalar()
    return next_position


def lock_or_create_user(transaction: Transaction, owner: Owner) -> int:
    """Lock the row of a user until the transaction ends; an unknown user gets a row.

    Positions follow the order in which items are committed, because they are read under this lock.

    Returns:
        The position of the user's next item.
    """
    version = new_version()
    next_position: int = transaction.execute(
        "lock_or_create_user", owner, version=version
    ).scalar_one()
    return next_position


def void_claim(transaction: Transaction, owner: Owner) -> None:
    """Give a user's memory a new version, and take the user from the worker that holds the claim.

    What that worker commits afterwards is refused, because its claim names the old version.
    """
    transaction.execute("void_claim", owner, version=new_version())


def new_version() -> str:
    """Return a name for a version of a memory that no other version has."""
    return uuid4().hex
