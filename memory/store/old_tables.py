"""The tables of a memory store; opening one makes them, or brings those of an earlier version up to this one.

A user's row tells the version of the memory, and who is writing it until when; `memories` from which items, by whose
program, and `changes` its JSON: number 0 is the text, the others what has changed in it since, one a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Column, Connection, Float, Index, Integer, LargeBinary, String, Table, Text, text

from ...errors import StoreError

_LOCK = 0x7265636F
"""PostgreSQL's advisory lock."""
_ONE_BY_ONE = threading.Lock()
"""What a revision calls (`alembic.op`) is the process's, and not a thread's."""
SCHEMA = "1"
"""Version of the tables: the last revision of `memory.migrations`."""

tables = sql.MetaData()


def _of_user(name: str, *columns: Column[Any] | Index) -> Table:
    owner = (Column(key, String, primary_key=True) for key in ("tenant", "user"))
    return Table(f"mempiler_{name}", tables, *owner, *columns)


def _key(name: str, kind: Any = String) -> Column[Any]:
    return Column(name, kind, primary_key=True)


def _filled(**kinds: type[Any]) -> Generator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name, kind in kinds.items())


def _part(name: str, where: str, *columns: str) -> Index:
    """An index of the few rows that a condition holds for, as statements have it."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


version = Table("mempiler_version", tables, Column("version_num", String(32), primary_key=True))
meta = Table("mempiler_meta", tables, _key("name"), Column("value", String))
users = _of_user(
    "users",
    *_filled(next_position=Integer, version=String, worker=String, claimed_until=Float),
    _part("mempiler_users_claimed", "worker <> ''", "tenant"),
)
items = _of_user(
    "items",
    _key("position", Integer),
    *_filled(id=String, digest=String, json=Text, state=String, attempts=Integer, error=Text, added=Float),
    Index("mempiler_items_id", "tenant", "user", "id", unique=True),
    Index("mempiler_items_state", "state", "tenant", "user"),
)
turns = _of_user("turns", _key("turn"), *_filled(position=Integer))
open_turns = _of_user("open_turns", _key("session"), _key("number", Integer), *_filled(json=Text, added=Float))
metadata = _of_user("metadata", _key("session"), *_filled(json=Text))
memories = _of_user(
    "memories",
    *_filled(base=String, position=Integer, finalized_position=Integer, speakers=Text),
    *_filled(writer=String, program=String, embedder=String, schema=Integer, updated=Float),
    _part("mempiler_memories_unsettled", "finalized_position < position", "tenant", "user"),
)
changes = _of_user("changes", _key("number", Integer), *_filled(memory=Text), Column("finalized", Text))
vectors = _of_user("vectors", _key("key", LargeBinary), *_filled(vector=LargeBinary))
amendments = _of_user(
    "amendments",
    _key("number", Integer),
    *_filled(action=String, entry=String, kind=String, old_text=Text, sources=Text, at=Float, by=String, undoes=Integer),
    Column("new_text", Text),
)
forgotten = Table("mempiler_forgotten", tables, _key("name"), *_filled(number=Integer, at=Float, erased=Integer))
OWNED = (items, turns, open_turns, metadata, memories, changes, vectors, amendments, users)
"""Every table with rows of a user."""


def bring_up(db: Connection, url: str) -> None:
    """Sees to it that the tables are there, as this version has them; all of it is one transaction under a lock.

    Other processes wait, and find the tables as they should be; one that is killed has changed nothing.

    Raises:
        StoreError: A newer version made the tables of the store of this address.
    """
    if db.dialect.name == "postgresql":
        db.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = _version(db)
    if found is None:
        tables.create_all(db)
        db.execute(text("INSERT INTO mempiler_version VALUES (:version)"), {"version": SCHEMA})
    else:
        _refuse_newer(found, url)


def check_version(db: Connection, url: str) -> None:
    """Refuse a store that cannot be written and whose tables are not those of this version.

    Raises:
        StoreError: Another version made them, or there are none.
    """
    found = _version(db)
    if found is None:
        raise StoreError(f"store {url}: there are no memories in it, and it cannot be written; give another --store")
    _refuse_newer(found, url)


def _refuse_newer(found: str, url: str) -> None:
    """Refuse tables that a newer version made.

    Raises:
        StoreError: Their version is another one than ours.
    """
    if found != SCHEMA:
        raise StoreError(
            f"store {url}: its tables are of version {found}, this Mempiler reads {SCHEMA}; install the newer one "
            "that made them, or run its `mempiler memories export` and import that into a new store with this one"
        )


def _version(db: Connection) -> str | None:
    if sql.inspect(db).has_table(version.name):
        return db.execute(text("SELECT version_num FROM mempiler_version")).scalar()
    return None
