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
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, CursorResult, TextClause, bindparam, text

from ..errors import ConflictError, StoreError
from .stored import Owner

R = TypeVar("R")

OWN = 'tenant = :tenant AND "user" = :user'
"""The condition for rows of the user of a statement."""
BATCH = 500
"""Values of one list; SQLite takes some 30,000."""
_SERVER_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


def run(db: Connection, statement: str, owner: Owner | None = None, /, **values: Any) -> CursorResult[Any]:
    """Runs SQL.

    Args:
        db: A transaction.
        statement: `:name` stands for a value, after `IN` for all of a list; `:now` for the time in seconds since 1970:
            PostgreSQL's own, so that the clocks of its clients do not matter.
        owner: Whose rows: the values of `OWN`.
        values: By name.
    """
    if owner is not None:
        values |= {"tenant": owner.tenant, "user": owner.user}
    if ":now" in statement:
        if db.dialect.name == "postgresql":
            statement = statement.replace(":now", _SERVER_NOW)
        else:
            values["now"] = time.time()
    lists = tuple(name for name, value in values.items() if isinstance(value, list | tuple))
    return db.execute(_text(statement, lists), values)


@lru_cache(256)
def _text(statement: str, lists: tuple[str, ...]) -> TextClause:
    made: list[Any] = [bindparam(name, expanding=True) for name in lists]
    return text(statement).bindparams(*made)


def insert(db: Connection, table: str, rows: Sequence[Mapping[str, Any]], end: str = "") -> None:
    """Adds rows of the same columns to a table; `end` may say what becomes of those that are there."""
    if rows:
        names = ", ".join(f'"{name}"' for name in rows[0])
        values = ", ".join(f":{name}" for name in rows[0])
        db.execute(_text(f"INSERT INTO mempiler_{table} ({names}) VALUES ({values}) {end}", ()), rows)


def key_of(owner: Owner) -> dict[str, str]:
    """The key columns of a user's rows."""
    return {"tenant": owner.tenant, "user": owner.user}


def batches(values: Sequence[R]) -> Iterator[list[R]]:
    """The values of a list in parts that a database takes."""
    return (list(values[n : n + BATCH]) for n in range(0, len(values), BATCH))


def token() -> str:
    """A new version of a memory, or the name of its text."""
    return uuid.uuid4().hex


class Locked(NamedTuple):
    """A user's row, as long as the transaction goes on."""

    known: bool
    """Whether it was there."""
    position: int
    """Of the next item."""


def lock(db: Connection, owner: Owner, make: bool = True) -> Locked:
    """Locks a user's row until the transaction ends, and makes it if there is none.

    Positions are given out under that lock, so they follow the order of commits, and two writers of one user come one
    after the other; one that makes the row at the same time is waited for.

    Args:
        db: A transaction that writes.
        owner: Who.
        make: Whether an unknown user is made.
    """
    new = token()
    if make:
        statement = (
            'INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until) '
            "VALUES (:tenant, :user, 1, :new, '', 0) "
            'ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position '
            "RETURNING next_position, version"
        )
    else:
        statement = (
            f"UPDATE mempiler_users SET next_position = next_position WHERE {OWN} RETURNING next_position, version"
        )
    row = run(db, statement, owner, new=new).first()
    return Locked(row is not None and row.version != new, row.next_position if row else 1)


def changed(db: Connection, owner: Owner) -> None:
    """Gives a user's memory a new version and takes it from whoever writes it."""
    free = f"UPDATE mempiler_users SET version = :version, worker = '', claimed_until = 0 WHERE {OWN}"
    run(db, free, owner, version=token())


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
