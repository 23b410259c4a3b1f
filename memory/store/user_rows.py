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
    """Lock the row of a user until the transaction ends, so that nobody else writes for this user.

    Returns:
        The position of the user's next item; None for an unknown user, where nothing is locked.
    """
    next_position: int | None = transaction.execute("lock_user", owner).scalar()
    return next_position


def lock_or_create_user(transaction: Transaction, owner: Owner) -> int:
    """Lock the row of a user until the transaction ends, so that nobody else writes for this user.

    A new user gets a row. Items get their positions under this lock, so that positions follow the
    order in which items are stored.

    Returns:
        The position of the user's next item.
    """
    version = new_version()
    next_position: int = transaction.execute(
        "lock_or_create_user", owner, version=version
    ).scalar_one()
    return next_position


def void_claim(transaction: Transaction, owner: Owner) -> None:
    """Take a user from the worker that is writing the user's memory, if there is one.

    The memory gets a new version. The worker's claim names the old one, so its commit is refused.
    """
    transaction.execute("void_claim", owner, version=new_version())


def new_version() -> str:
    """Return a new, unique name for a version of a memory."""
    return uuid4().hex
