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


def _of_user(name: str, *columns: Column[Any] | Index) -> Table:
    """A table of what users have."""
    owner = (Column(key, String, primary_key=True) for key in ("tenant", "user"))
    return Table(f"mempiler_{name}", tables, *owner, *columns)


def _key(name: str, kind: Any = String) -> Column[Any]:
    return Column(name, kind, primary_key=True)


def _filled(**kinds: type[Any]) -> Generator[Column[Any]]:
    """Columns by name that are never NULL."""
    return (Column(name, kind, nullable=False) for name, kind in kinds.items())


version = Table("mempiler_version", tables, Column("version_num", String(32), primary_key=True))
meta = Table("mempiler_meta", tables, _key("name"), Column("value", String))
users = _of_user(
    "users",
    *_filled(next_position=Integer, version=String, worker=String, claimed_until=Float),
    Column("rebuild_by", String),
    Column("rebuild_begun", Integer),
    Column("rebuild_since", Float),
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
    *_filled(base=String, position=Integer, settled_position=Integer, speakers=Text),
    *_filled(writer=String, program=String, embedder=String, schema=Integer, updated=Float),
)
changes = _of_user("changes", _key("number", Integer), *_filled(memory=Text), Column("settled", Text))
vectors = _of_user("vectors", _key("key", LargeBinary), *_filled(vector=LargeBinary))
amendments = _of_user(
    "amendments",
    _key("number", Integer),
    *_filled(what=String, entry=String, kind=String, text=Text, sources=Text, at=Float, by=String, undoes=Integer),
    Column("new", Text),
)
forgotten = Table("mempiler_forgotten", tables, _key("name"), *_filled(number=Integer, at=Float, erased=Integer))
OWNED = (items, turns, open_turns, metadata, memories, changes, vectors, amendments, users)
"""Every table with rows of a user."""
