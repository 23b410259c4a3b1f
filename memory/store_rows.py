"""What all methods of a store share: SQL with the values of one user, the lock of that user, rows that are damaged.

Statements are written out where they run. SQLAlchemy's expressions, made anew for every call, cost ten times as much
as the database takes; those that are made once stand far from what they do.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, TextClause, bindparam, text

from ..errors import ConflictError, StoreError
from .stored import Owner

R = TypeVar("R")

OWN = 'tenant = :tenant AND "user" = :user'
"""The condition for rows of the user of a statement."""
BATCH = 500
"""Values of one list; SQLite takes some 30,000."""
_SERVER_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


def run(
    db: Connection,
    statement: str,
    owner: Owner | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    /,
    **values: Any,
) -> CursorResult[Any]:
    """Runs SQL.

    Args:
        db: A transaction.
        statement: `:name` stands for a value, after `IN` for all of a list; `:now` for the time in seconds since 1970:
            PostgreSQL's own, so that the clocks of its clients do not matter.
        owner: Whose rows: the values of `OWN`.
        rows: More values by name; the statement runs once for each.
        values: By name.
    """
    if owner is not None:
        values |= vars(owner)
    if ":now" in statement:
        if db.dialect.name == "postgresql":
            statement = statement.replace(":now", _SERVER_NOW)
        else:
            values["now"] = time.time()
    lists = tuple(name for name, value in values.items() if isinstance(value, list | tuple))
    return db.execute(_text(statement, lists), values if rows is None else [{**values, **row} for row in rows])


@lru_cache(256)
def _text(statement: str, lists: tuple[str, ...]) -> TextClause:
    made: list[Any] = [bindparam(name, expanding=True) for name in lists]
    return text(statement).bindparams(*made)


def batches(values: Sequence[R]) -> Iterator[list[R]]:
    """The values of a list in parts that a database takes."""
    return (list(values[n : n + BATCH]) for n in range(0, len(values), BATCH))


def lock(db: Connection, owner: Owner) -> bool:
    """Locks a user's row until the transaction ends; whether there is one.

    Positions are given out under that lock, so they follow the order of commits, and two writers of one user come one
    after the other.
    """
    statement = f"UPDATE mempiler_users SET next_position = next_position WHERE {OWN}"
    return run(db, statement, owner).rowcount > 0


def make(db: Connection, owner: Owner) -> int:
    """Locks a user's row, and makes it if there is none; the next position.

    One that makes it at the same time is waited for.
    """
    statement = """INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until)
        VALUES (:tenant, :user, 1, :new, '', 0)
        ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position
        RETURNING next_position"""
    return run(db, statement, owner, new=uuid.uuid4().hex).scalar_one()


def changed(db: Connection, owner: Owner) -> None:
    """Gives a user's memory a new version and takes it from whoever writes it."""
    free = f"UPDATE mempiler_users SET version = :version, worker = '', claimed_until = 0 WHERE {OWN}"
    run(db, free, owner, version=uuid.uuid4().hex)


def forgotten_as(owner: Owner) -> str:
    """By what a user who was forgotten is known."""
    return hashlib.sha256(f"{owner.tenant}\0{owner.user}".encode()).hexdigest()


def any_session_of(owner: Owner) -> Owner:
    """Stands for any session of a user, where one was forgotten."""
    return Owner.stored(f"{owner.user}\0", owner.tenant)


def forgotten_since(db: Connection, since: int, *owners: Owner) -> bool:
    """Whether one of them was forgotten after that number of the store."""
    named = "SELECT number FROM mempiler_forgotten WHERE name IN :names AND number > :since"
    return run(db, named, names=[forgotten_as(owner) for owner in owners], since=since).first() is not None


def refuse(db: Connection, owner: Owner, since: int) -> None:
    """Refuses what began before its user was forgotten.

    Args:
        db: A transaction that writes.
        owner: Whose, locked.
        since: What `Store.forgets` was when it began.

    Raises:
        ConflictError: The user was forgotten since.
    """
    if forgotten_since(db, since, owner):
        raise refusal(owner)


def refusal(owner: Owner) -> ConflictError:
    """What a write is refused with that began before its user was forgotten."""
    return ConflictError(f"user {owner.user!r} was forgotten while this was under way; nothing of it was stored")


def each(
    table: str, owner: Owner, key: str, rows: Iterable[Any], read: Callable[[Any], R], skipped: list[str] | None = None
) -> list[R]:
    """Reads rows of a user, one by one.

    Args:
        table: Where they are from.
        owner: Whose they are.
        key: The column that tells them apart.
        rows: As the database gave them.
        read: Reads one.
        skipped: Damaged rows are left out, and named here.

    Raises:
        StoreError: A row is damaged, and `skipped` is None. The message says which, and not what it holds.
    """
    found: list[R] = []
    for row in rows:
        try:
            found.append(read(row))
        except (ValueError, TypeError, LookupError):
            skip(f"mempiler_{table}: user {owner.user!r}, {key} {getattr(row, key)!r}", skipped)
    return found


def skip(row: str, skipped: list[str] | None) -> None:
    """Adds the name of a damaged row to those that are skipped; None is a StoreError."""
    if skipped is None:
        check = "`mempiler memories list --damaged` lists such rows, `memories export --skip-damaged` leaves them out"
        raise StoreError(f"{row}: the row is damaged; {check}") from None
    skipped.append(row)
