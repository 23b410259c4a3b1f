"""Adding to a store: items and turns of a user, inside a transaction that the store has opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ..errors import ConflictError
from ..records import Item, Turn
from .amending import Amendment
from .entries import Added
from .incoming import check_turns, json_of
from .metadata import checked_metadata
from .store_reading import metadata_of
from .store_rows import OWN, batches, forgotten_as, insert, key_of, lock, refusal, run
from .stored import Owner

NEVER = 2**31 - 1
"""More than anybody can have been forgotten."""


def queue(
    owner: Owner, item: Item, digest: str, metadata: Mapping[str, Any], since: int | None, db: Connection
) -> Added:
    """Appends a checked item to a user's queue; the user is made if there is none."""
    there = _there(db, owner, item.id, since)
    if item.id and there.digest == digest:
        return Added(id=item.id, position=there.position, new=False)
    if item.id and there.taken:
        raise ConflictError(
            f"session {item.id!r} of user {owner.user!r} is stored with other content; "
            "give the new one an id of its own, or forget the old one first"
        )
    number = position = there.next
    while there.taken:
        number += 1
        there = _there(db, owner, f"D{number}", since)
    item = _numbered(item, item.id or f"D{number}")
    take_turns(db, owner, item.turns, position)
    put_item(db, owner, item, digest, position=position, state="queued", attempts=0, error="")
    if metadata:
        insert(db, "metadata", [{**key_of(owner), "session": item.id, "json": json.dumps(metadata)}])
    run(db, f"UPDATE mempiler_users SET next_position = :next WHERE {OWN}", owner, next=position + 1)
    return Added(id=item.id, position=position, new=True)


def append(
    owner: Owner,
    session: str,
    turns: Sequence[Turn],
    begin: bool,
    since: int,
    metadata: Mapping[str, Any],
    db: Connection,
) -> tuple[Turn, ...]:
    """Appends turns to an open session, or begins one, and adds to what callers said of it."""
    there = _there(db, owner, session, since, make=begin)
    if there.digest is not None:
        raise ConflictError(f"session {session!r} of user {owner.user!r} has ended; begin one with another id")
    if not there.last and not begin:
        raise ConflictError(f"user {owner.user!r} has no open session {session!r}; it was forgotten")
    numbered = list(enumerate(turns, there.last + 1))
    new = tuple(turn if turn.id else turn.model_copy(update={"id": f"{session}:{n}"}) for n, turn in numbered)
    check_turns(new)
    take_turns(db, owner, new, 0)
    for part in batches([(number, turn) for (number, _), turn in zip(numbered, new, strict=True)]):
        values = ", ".join(f"(:tenant, :user, :session, :number{n}, :json{n}, :now)" for n in range(len(part)))
        into = 'INSERT INTO mempiler_open_turns (tenant, "user", session, number, json, added)'
        named = {f"number{n}": number for n, (number, _) in enumerate(part)}
        named |= {f"json{n}": json_of(turn) for n, (_, turn) in enumerate(part)}
        run(db, f"{into} VALUES {values}", owner, session=session, **named)
    if new and metadata:
        before = metadata_of(db, owner, which="AND session = :session", session=session).get(session, {})
        said = json.dumps(checked_metadata({**before, **metadata}))
        replaced = 'ON CONFLICT (tenant, "user", session) DO UPDATE SET json = excluded.json'
        insert(db, "metadata", [{**key_of(owner), "session": session, "json": said}], replaced)
    return new


class _There(NamedTuple):
    """What is stored of a user under the id of a session."""

    next: int
    """The next position of the user."""
    position: int
    """Of the item of that id; 0 without one."""
    digest: str | None
    last: int
    """The number of the last turn of the open session of that id; 0 without one."""

    @property
    def taken(self) -> bool:
        """Whether there is a session of that id, open or not."""
        return self.digest is not None or self.last > 0


def _there(db: Connection, owner: Owner, id: str, since: int | None, make: bool = True) -> _There:
    """Locks a user, who is made with `make`, and looks for an id; "" stands for `D` and the next position.

    Raises:
        ConflictError: The user was forgotten since.
    """
    server = db.dialect.name == "postgresql"
    named = ":id" if id else f"(SELECT 'D' || next_position FROM mempiler_users WHERE {OWN})"
    statement = f"""SELECT
        (SELECT next_position FROM mempiler_users WHERE {OWN}) AS next,
        (SELECT position FROM mempiler_items WHERE {OWN} AND id = {named}) AS position,
        (SELECT digest FROM mempiler_items WHERE {OWN} AND id = {named}) AS digest,
        (SELECT max(number) FROM mempiler_open_turns WHERE {OWN} AND session = {named}) AS last,
        (SELECT max(number) FROM mempiler_forgotten WHERE name = :name AND number > :since) AS refused"""
    if server:
        lock(db, owner, make)
    about = {"name": forgotten_as(owner), "since": NEVER if since is None else since, **({"id": id} if id else {})}
    row = run(db, statement, owner, **about).one()
    if row.refused is not None:
        raise refusal(owner)
    # Who writes in SQLite holds the whole file.
    if row.next is None and make:
        lock(db, owner)
    return _There(row.next or 1, row.position or 0, row.digest, row.last or 0)


def put_item(db: Connection, owner: Owner, item: Item, digest: str, **about: Any) -> None:
    """Writes the row of an item; `about` has its other columns."""
    statement = """INSERT INTO mempiler_items
        (tenant, "user", position, id, digest, json, state, attempts, error, added)
        VALUES (:tenant, :user, :position, :id, :digest, :json, :state, :attempts, :error, :now)"""
    run(db, statement, owner, id=item.id, digest=digest, json=json_of(item), **about)


def put_amendments(db: Connection, owner: Owner, rows: Iterable[Amendment]) -> None:
    """Writes amendments as they are."""
    names = ("number", "what", "entry", "kind", "text", "new", "by", "undoes")
    for row in rows:
        about = {name: getattr(row, name) for name in names}
        at = row.at.replace(tzinfo=UTC).timestamp() if row.at else 0.0
        insert(db, "amendments", [{**key_of(owner), **about, "sources": json.dumps(row.sources), "at": at}])


def take_turns(db: Connection, owner: Owner, turns: Sequence[Turn], position: int) -> None:
    """Notes the ids of turns, which no other turn of the user may have."""
    ids, new = [turn.id for turn in turns], set[str]()
    for part in batches(ids):
        values = ", ".join(f"(:tenant, :user, :id{n}, :position)" for n in range(len(part)))
        statement = f"INSERT INTO mempiler_turns VALUES {values} ON CONFLICT DO NOTHING RETURNING turn"
        named = {f"id{n}": id for n, id in enumerate(part)}
        new.update(run(db, statement, owner, position=position, **named).scalars())
    if len(new) < len(ids):
        twice = next(id for n, id in enumerate(ids) if id not in new or id in ids[:n])
        raise ConflictError(
            f"user {owner.user!r} has another turn {twice!r}; "
            "give turns ids that no other turn of the user has, or none at all"
        )


def _numbered(item: Item, id: str) -> Item:
    turns = tuple(
        turn if turn.id else turn.model_copy(update={"id": f"{id}:{n}"}) for n, turn in enumerate(item.turns, 1)
    )
    fields = {name: getattr(item, name) for name in type(item).model_fields}
    return type(item).model_validate({**fields, "id": id, "turns": turns})
