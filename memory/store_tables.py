"""The tables of a memory store.

version     which tables there are; Alembic's (`memory.migrations`)
meta        how often anybody was forgotten
users       one row per tenant and user: next position, version of the memory, who is writing it until when, and
            whose memory is to be written anew, whoever wrote it
items       raw sessions, logs, ... in the order in which they came: queued, remembered or failed
turns       the ids of their turns, unique within a user
open_turns  turns of sessions that have not ended
metadata    what callers said of sessions, open or not, a JSON object of plain values each
memories    one memory per user, made from the items up to a position, by a program
changes     the JSON of that memory: number 0 is its text, the others what has changed in it since, one a commit
vectors     what an embedder made of texts of the user, by a digest of embedder and text
amendments  what users changed in single entries of their memories, in order
forgotten   who was forgotten of late, by a digest of the name: a write that began before is refused
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA = "3"
"""Version of the tables: the last revision of `memory.migrations`."""

tables = MetaData()


def _owner() -> tuple[Column[Any], Column[Any]]:
    return Column("tenant", String, primary_key=True), Column("user", String, primary_key=True)


def _filled(**kinds: type[Any]) -> Generator[Column[Any]]:
    """Columns by name that are never NULL."""
    return (Column(name, kind, nullable=False) for name, kind in kinds.items())


version = Table("mempiler_version", tables, Column("version_num", String(32), primary_key=True))
meta = Table("mempiler_meta", tables, Column("name", String, primary_key=True), Column("value", String))
users = Table(
    "mempiler_users",
    tables,
    *_owner(),
    *_filled(next_position=Integer, version=String, worker=String, claimed_until=Float),
    Column("rebuild_by", String),
    Column("rebuild_begun", Integer),
    Column("rebuild_since", Float),
)
items = Table(
    "mempiler_items",
    tables,
    *_owner(),
    Column("position", Integer, primary_key=True),
    *_filled(id=String, digest=String, json=Text, state=String, attempts=Integer, error=Text, added=Float),
    Index("mempiler_items_id", "tenant", "user", "id", unique=True),
    Index("mempiler_items_state", "state", "tenant", "user"),
)
turns = Table(
    "mempiler_turns",
    tables,
    *_owner(),
    Column("turn", String, primary_key=True),
    *_filled(position=Integer),
)
open_turns = Table(
    "mempiler_open_turns",
    tables,
    *_owner(),
    Column("session", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    *_filled(json=Text, added=Float),
)
metadata = Table(
    "mempiler_metadata",
    tables,
    *_owner(),
    Column("session", String, primary_key=True),
    *_filled(json=Text),
)
memories = Table(
    "mempiler_memories",
    tables,
    *_owner(),
    *_filled(base=String, position=Integer, settled_position=Integer, speakers=Text),
    *_filled(writer=String, program=String, embedder=String, schema=Integer, updated=Float),
)
changes = Table(
    "mempiler_changes",
    tables,
    *_owner(),
    Column("number", Integer, primary_key=True),
    *_filled(memory=Text),
    Column("settled", Text),
)
vectors = Table(
    "mempiler_vectors",
    tables,
    *_owner(),
    Column("key", LargeBinary, primary_key=True),
    *_filled(vector=LargeBinary),
)
amendments = Table(
    "mempiler_amendments",
    tables,
    *_owner(),
    Column("number", Integer, primary_key=True),
    *_filled(what=String, entry=String, kind=String, text=Text, sources=Text, at=Float, by=String, undoes=Integer),
    Column("new", Text),
)
forgotten = Table(
    "mempiler_forgotten",
    tables,
    Column("name", String, primary_key=True),
    *_filled(number=Integer, at=Float, erased=Integer),
)
OWNED = (items, turns, open_turns, metadata, memories, changes, vectors, amendments, users)
"""Every table with rows of a user."""
