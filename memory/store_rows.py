"""What the store's methods do to the rows of one user, inside a transaction that the store has opened.

Every function that writes expects the user's row to be locked (`lock`), or does that (`queue`, `append`): positions are
given out under that lock, so they follow the order of commits, and two writers of one user come one after the other.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Select,
    String,
    Table,
    Update,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from ..errors import ConflictError, UserError
from ..records import Item, Turn
from . import erasing, store_metadata
from . import store_tables as t
from .store_reads import BATCH
from .store_tables import given, key_of, mine, of, whose
from .stored import Added, Contents, Document, Owner, check_key, name_of

I = TypeVar("I", bound=Item)  # noqa: E741


def checked(item: I) -> I:
    """An item as it can be stored: its id in Unicode's form NFC.

    Raises:
        UserError: No turns, or an id or a text that is no plain text.
    """
    id = name_of("session", item.id) if item.id else ""
    if not item.turns:
        raise UserError(f"session {item.id!r} has no turns; there is nothing to remember")
    check_turns(item.turns)
    return item if id == item.id else item.model_copy(update={"id": id})


def check_turns(turns: Sequence[Turn]) -> None:
    """Refuses turns whose id or speaker would not stay on its line of a prompt.

    Raises:
        UserError: One is no line of plain text.
    """
    for turn in turns:
        if turn.id:
            check_key("turn", turn.id)
        check_key("speaker", turn.speaker)


def digest_of(item: Item, metadata: Mapping[str, Any] = MappingProxyType({})) -> str:
    """sha256 of an item's JSON, and of what the caller says of it."""
    said = json.dumps(metadata, sort_keys=True) if metadata else ""
    return hashlib.sha256((json_of(item) + said).encode()).hexdigest()


def json_of(record: Item | Turn) -> str:
    """JSON of a record.

    Raises:
        UserError: A text holds half a character.
    """
    try:
        return record.model_dump_json()
    except ValueError:
        raise UserError(f"{record.id!r}: a text holds half a character (a lone surrogate); use valid Unicode") from None


def upsert(db: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Writes a row, new or not; without values a row that is there stays as it is, and False is returned."""
    new = insert_into(db)(table).values({**key, **values})
    if values:
        new = new.on_conflict_do_update(index_elements=list(key), set_=dict(values))
    else:
        new = new.on_conflict_do_nothing()
    return db.execute(new.returning(literal(1))).first() is not None


def insert_into(db: Connection) -> Any:
    """The dialect's own, which can pass over rows that are there."""
    return (postgresql if db.dialect.name == "postgresql" else sqlite).insert


_LOCK = select(t.users.c.version).where(*mine(t.users)).with_for_update()


def lock(db: Connection, owner: Owner, make: bool = True) -> bool:
    """Locks a user's row until the transaction ends; False if there was none.

    With `make` it is made then, and another transaction that makes it at the same time is waited for.
    """
    if db.execute(_LOCK, whose(owner)).first():
        return True
    blank = {"next_position": 1, "version": token(), "worker": "", "claimed_until": 0.0}
    if not make or upsert(db, t.users, {**key_of(owner), **blank}, {}):
        return False
    return db.execute(_LOCK, whose(owner)).first() is not None


def _known(id: Any) -> Any:
    """Whether there is a session of an id, open or not."""
    i, o = t.items.c, t.open_turns.c
    item = select(i.position).where(*mine(t.items), i.id == id)
    opened = select(o.number).where(*mine(t.open_turns), o.session == id).limit(1)
    return exists(item) | exists(opened)


_IS_KNOWN = select(_known(given("id")))


def _standing(server: bool) -> Select[*tuple[Any, ...]]:
    """One statement for all that decides whether something may be written for a user under an id."""
    i, o, f = t.items.c, t.open_turns.c, t.forgotten.c
    item = (*mine(t.items), i.id == given("id"))
    last = select(func.max(o.number)).where(*mine(t.open_turns), o.session == given("id"))
    refused = select(f.number).where(f.name == given("name"), f.number > given("since"))
    parts = {
        "next_position": select(t.users.c.next_position).where(*mine(t.users)),
        "position": select(i.position).where(*item),
        "digest": select(i.digest).where(*item),
        "last": last,
        "refused": refused,
    }
    user = select(literal("D") + cast(t.users.c.next_position, String)).where(*mine(t.users)).scalar_subquery()
    more = [_known(user).label("taken"), *([t.SERVER_CLOCK.label("now")] if server else [])]
    return select(*(part.scalar_subquery().label(name) for name, part in parts.items()), *more)


_NEVER = 2**31 - 1
"""More than anybody can have been forgotten."""
_STANDING = {server: _standing(server) for server in (False, True)}


@dataclass(frozen=True)
class _Standing:
    """What there is of a user, and under an id."""

    next_position: int
    position: int | None
    """Of the item of that id."""
    digest: str | None
    last: int | None
    """Number of the last turn of the open session of that id."""
    taken: bool
    """Whether there is a session named by the next position, `D1`, `D2`, ..."""
    now: float


def _stands(db: Connection, owner: Owner, id: str, since: int | None, make: bool = True) -> _Standing:
    """Where a user stands, who is locked, and made with `make`.

    Raises:
        ConflictError: The user was forgotten since.
    """
    server = db.dialect.name == "postgresql"
    about = whose(owner, id=id, name=erasing.name_of(owner), since=_NEVER if since is None else since)
    # Who writes in SQLite holds the whole file.
    row = None if server else db.execute(_STANDING[server], about).one()
    if row is None or (row.next_position is None and make):
        lock(db, owner, make)
        row = db.execute(_STANDING[server], about).one()
    if row.refused is not None:
        raise erasing.refusal(owner)
    now = row.now if server else time.time()
    return _Standing(row.next_position or 1, row.position, row.digest, row.last, bool(row.taken), now)


_ADVANCE = update(t.users).where(*mine(t.users)).values(next_position=given("next"))


def queue(
    db: Connection,
    owner: Owner,
    item: Item,
    digest: str,
    since: int | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> Added:
    """Appends an item to a user's queue; the user is made if there is none.

    Args:
        db: A transaction that writes.
        owner: Whose it is.
        item: A checked one; without an id it gets `D` and its position.
        digest: Identifies a repeated item.
        since: What `forgets` was when the caller began; None where that does not matter.
        metadata: What the caller says of it.

    Raises:
        ConflictError: Another item has its id, or another turn that of one of its turns; or the user was forgotten.
    """
    id, stands = item.id, _stands(db, owner, item.id, since)
    if id and stands.digest == digest:
        return Added(id, stands.position or 0, new=False)
    if id and (stands.position is not None or stands.last is not None):
        raise ConflictError(
            f"session {id!r} of user {owner.user!r} is stored with other content; "
            "give the new one an id of its own, or forget the old one first"
        )
    position = stands.next_position
    item = _numbered(item, id or _free_id(db, owner, stands))
    _take_turns(db, owner, [turn.id for turn in item.turns], position)
    row = {"position": position, "id": item.id, "digest": digest, "json": json_of(item), "state": "queued"}
    db.execute(insert(t.items), {**key_of(owner), **row, "attempts": 0, "error": "", "added": stands.now})
    if metadata:
        store_metadata.put(db, owner, {position: metadata})
    db.execute(_ADVANCE, whose(owner, next=position + 1))
    return Added(item.id, position, new=True)


def append(
    db: Connection,
    owner: Owner,
    session: str,
    turns: Sequence[Turn],
    begin: bool = True,
    since: int | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Turn, ...]:
    """Appends turns to an open session, or begins one, and adds to what callers said of it.

    Raises:
        UserError: There would be too many metadata.
        ConflictError: The session has ended, or is not there and is not to begin; another turn of the user has the id
            of one; or the user was forgotten.
    """
    stands = _stands(db, owner, session, since, make=begin)
    if stands.position is not None:
        raise ConflictError(f"session {session!r} of user {owner.user!r} has ended; begin one with another id")
    if not stands.last and not begin:
        raise ConflictError(f"user {owner.user!r} has no open session {session!r}; it was forgotten")
    numbered = list(enumerate(turns, (stands.last or 0) + 1))
    new = tuple(turn if turn.id else turn.model_copy(update={"id": f"{session}:{n}"}) for n, turn in numbered)
    check_turns(new)
    _take_turns(db, owner, [turn.id for turn in new], 0)
    about = {**key_of(owner), "session": session, "added": stands.now}
    if new:
        rows = [{**about, "number": n, "json": json_of(turn)} for (n, _), turn in zip(numbered, new, strict=True)]
        db.execute(insert(t.open_turns), rows)
    if new and metadata:
        store_metadata.add(db, owner, session, metadata)
    return new


def drop_open(db: Connection, owner: Owner, session: str) -> bool:
    """Deletes the turns of an open session, and what was said of it; False if there are none."""
    c = t.open_turns.c
    found = db.execute(select(c.json).where(*of(t.open_turns, owner), c.session == session)).scalars()
    ids = [Turn.model_validate_json(row).id for row in found]
    for n in range(0, len(ids), BATCH):
        db.execute(delete(t.turns).where(*of(t.turns, owner), t.turns.c.turn.in_(ids[n : n + BATCH])))
    db.execute(delete(t.open_turns).where(*of(t.open_turns, owner), c.session == session))
    store_metadata.drop(db, owner, session)
    return bool(ids)


def drop_item(db: Connection, owner: Owner, id: str) -> bool:
    """Deletes an item, and the memory if it is in it; False if there is none of that id."""
    found = db.execute(select(t.items).where(*of(t.items, owner), t.items.c.id == id)).first()
    if found is None:
        return False
    for table in (t.items, t.turns, t.metadata):
        db.execute(delete(table).where(*of(table, owner), table.c.position == found.position))
    if found.state in ("remembered", "partial"):
        reset(db, owner)
    else:
        # A concurrent writer must find the version changed.
        db.execute(update(t.users).where(*of(t.users, owner)).values(version=token()))
    return True


def reset(db: Connection, owner: Owner) -> None:
    """Deletes a user's memory and queues every item anew."""
    for table in (t.memories, t.texts, t.changes, t.vectors):
        db.execute(delete(table).where(*of(table, owner)))
    db.execute(update(t.items).where(*of(t.items, owner)).values(state="queued", attempts=0, error=""))
    changed = update(t.users).where(*of(t.users, owner))
    db.execute(changed.values(version=token(), worker="", claimed_until=0.0))


def _taken() -> Update:
    """Marks the items up to a position that were not in the memory, or not wholly."""
    c, inner = t.items.c, t.items.alias()
    # SQLite would look at all items of the user.
    found = select(inner.c.position).with_hint(inner, "INDEXED BY mempiler_items_state", "sqlite")
    found = found.where(*mine(inner), inner.c.state.in_(("queued", "partial")), inner.c.position <= given("last"))
    note = case((c.state == "queued", given("note")), else_=c.error)
    return update(t.items).where(*mine(t.items), c.position.in_(found)).values(state="remembered", error=note)


_TAKEN_IN = _taken()
_PARTIAL = update(t.items).where(
    *mine(t.items),
    t.items.c.state == "remembered",
    t.items.c.id.in_(given("ids")),
)


def taken_in(db: Connection, owner: Owner, document: Document, note: str) -> None:
    """Marks the items that are in a memory now."""
    db.execute(_TAKEN_IN, whose(owner, last=document.position, note=note))
    for n in range(0, len(document.partial), BATCH):
        db.execute(_PARTIAL.values(state="partial"), whose(owner, ids=document.partial[n : n + BATCH]))


def restore(db: Connection, contents: Contents) -> None:
    """Writes a new user as they were elsewhere.

    Raises:
        UserError: An item cannot be stored.
        ConflictError: Two turns have one id.
    """
    owner, now = contents.owner, t.clock(db)
    for stored, digest in zip(contents.items, contents.digests, strict=True):
        item = checked(stored.item)
        _take_turns(db, owner, [turn.id for turn in item.turns], stored.position)
        about = {"state": stored.state, "attempts": stored.attempts, "error": stored.error, "added": now}
        row = {"position": stored.position, "id": item.id, "digest": digest, "json": json_of(item)}
        db.execute(insert(t.items).values(**key_of(owner), **row, **about))
    last = max((stored.position for stored in contents.items), default=0)
    db.execute(update(t.users).where(*of(t.users, owner)).values(next_position=last + 1))
    store_metadata.put(db, owner, contents.metadata)
    if contents.document is not None:
        put_memory(db, owner, contents.document)
    for session in contents.open:
        said = contents.open_metadata.get(session.id, {})
        append(db, owner, name_of("session", session.id), session.turns, metadata=said)


def _changed(now: Any) -> Any:
    names = ("position", "settled_position", "speakers", "writer", "program", "embedder", "schema")
    new = {name: given(f"new_{name}") for name in names}
    return update(t.memories).where(*mine(t.memories)).values({**new, "updated": now})


_CHANGED_HERE, _CHANGED_ON_SERVER = _changed(given("now")), _changed(t.SERVER_CLOCK)


def put_memory(db: Connection, owner: Owner, document: Document) -> None:
    """Writes a user's memory: its whole text, or what changed in it since the last one."""
    change, about = document.change, _about(document)
    if change is not None:
        row = {"number": document.log.count, "memory": change.memory, "settled": change.settled}
        db.execute(insert(t.changes), {**key_of(owner), **row})
        new = whose(owner, **{f"new_{name}": value for name, value in about.items()})
        if db.dialect.name == "postgresql":
            db.execute(_CHANGED_ON_SERVER, new)
        else:
            db.execute(_CHANGED_HERE, {**new, "now": time.time()})
        return
    db.execute(delete(t.changes).where(*of(t.changes, owner)))
    base = document.log.base or token()
    upsert(db, t.texts, key_of(owner), {"base": base, "memory": document.memory, "settled": document.settled})
    upsert(db, t.memories, key_of(owner), {**about, "json": "", "settled": None, "updated": t.clock(db)})


def _about(document: Document) -> dict[str, Any]:
    """What there is to know of a memory beside its text."""
    return {
        "position": document.position,
        "settled_position": document.settled_position,
        "speakers": json.dumps(document.speakers),
        "writer": document.stamp.writer,
        "program": document.stamp.program,
        "embedder": document.stamp.embedder,
        "schema": document.stamp.schema,
    }


def _take_turns(db: Connection, owner: Owner, ids: Sequence[str], position: int) -> None:
    key, taken, new = key_of(owner), set[str](), _new_turn(db.dialect.name == "postgresql")
    for n in range(0, len(ids), BATCH):
        rows = [{**key, "turn": id, "position": position} for id in ids[n : n + BATCH]]
        taken.update(row.turn for row in db.execute(new, rows))
    if len(taken) < len(ids):
        twice = next(id for n, id in enumerate(ids) if id in ids[:n] or id not in taken)
        raise ConflictError(
            f"user {owner.user!r} has another turn {twice!r}; "
            "give turns ids that no other turn of the user has, or none at all"
        )


@cache
def _new_turn(server: bool) -> Any:
    """Passes over turns that are there, and returns the others."""
    new = (postgresql if server else sqlite).insert(t.turns)
    return new.on_conflict_do_nothing().returning(t.turns.c.turn)


def _numbered(item: Item, id: str) -> Item:
    turns = tuple(
        turn if turn.id else turn.model_copy(update={"id": f"{id}:{n}"}) for n, turn in enumerate(item.turns, 1)
    )
    fields = {name: getattr(item, name) for name in type(item).model_fields}
    return type(item).model_validate({**fields, "id": id, "turns": turns})


def _free_id(db: Connection, owner: Owner, stands: _Standing) -> str:
    position, taken = stands.next_position, stands.taken
    while taken:
        position += 1
        taken = db.execute(_IS_KNOWN, whose(owner, id=f"D{position}")).scalar()
    return f"D{position}"


def token() -> str:
    """A new version of a memory, or the name of its text."""
    return uuid.uuid4().hex
