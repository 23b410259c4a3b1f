"""What the store's methods do to the rows of one user, inside a transaction that the store has opened.

Every function that writes expects the user's row to be locked (`lock`): positions are given out under that lock, so
they follow the order of commits, and two writers of one user come one after the other.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, func, insert, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ..errors import ConflictError, UserError
from ..records import Item, Turn
from . import store_tables as t
from .store_reads import BATCH
from .store_tables import key_of, of
from .stored import LONGEST_LEASE, Added, Contents, Document, Owner, check_key, name_of

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


def digest_of(item: Item) -> str:
    """sha256 of an item's JSON."""
    return hashlib.sha256(json_of(item).encode()).hexdigest()


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
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    new = dialect.insert(table).values({**key, **values})
    if values:
        new = new.on_conflict_do_update(index_elements=list(key), set_=dict(values))
    else:
        new = new.on_conflict_do_nothing()
    return db.execute(new.returning(literal(1))).first() is not None


def lock(db: Connection, owner: Owner, make: bool = True) -> bool:
    """Locks a user's row until the transaction ends; False if there was none.

    With `make` it is made then, and another transaction that makes it at the same time is waited for.
    """
    blank = {"next_position": 1, "version": _token(), "worker": "", "claimed_until": 0.0}
    if make and upsert(db, t.users, {**key_of(owner), **blank}, {}):
        return False
    return db.execute(select(t.users.c.version).where(*of(t.users, owner)).with_for_update()).first() is not None


def queue(db: Connection, owner: Owner, item: Item, digest: str) -> Added:
    """Appends an item to a user's queue.

    Raises:
        ConflictError: Another item has its id, or another turn that of one of its turns.
    """
    c, mine = t.items.c, of(t.items, owner)
    before = db.execute(select(c.position, c.digest).where(*mine, c.id == item.id)).first() if item.id else None
    if before is not None and before.digest == digest:
        return Added(item.id, before.position, new=False)
    if before is not None or (item.id and _is_open(db, owner, item.id)):
        raise ConflictError(
            f"session {item.id!r} of user {owner.user!r} is stored with other content; "
            "give the new one an id of its own, or forget the old one first"
        )
    position = db.execute(select(t.users.c.next_position).where(*of(t.users, owner))).scalar_one()
    item = _numbered(item, item.id or _free_id(db, owner, position))
    _take_turns(db, owner, [turn.id for turn in item.turns], position)
    row = {"position": position, "id": item.id, "digest": digest, "json": json_of(item), "state": "queued"}
    db.execute(insert(t.items).values(**key_of(owner), **row, attempts=0, error="", added=t.clock(db)))
    db.execute(update(t.users).where(*of(t.users, owner)).values(next_position=position + 1))
    return Added(item.id, position, new=True)


def append(db: Connection, owner: Owner, session: str, turns: Sequence[Turn], begin: bool = True) -> tuple[Turn, ...]:
    """Appends turns to an open session, or begins one.

    Raises:
        ConflictError: Another turn of the user has the id of one, or there is no such session and none is to begin.
    """
    mine = (*of(t.open_turns, owner), t.open_turns.c.session == session)
    last = db.execute(select(func.max(t.open_turns.c.number)).where(*mine)).scalar() or 0
    if not last and not begin:
        raise ConflictError(f"user {owner.user!r} has no open session {session!r}; it was forgotten")
    numbered = enumerate(turns, last + 1)
    new = tuple(turn if turn.id else turn.model_copy(update={"id": f"{session}:{n}"}) for n, turn in numbered)
    check_turns(new)
    _take_turns(db, owner, [turn.id for turn in new], 0)
    for n, turn in enumerate(new, last + 1):
        row = {"session": session, "number": n, "json": json_of(turn), "added": t.clock(db)}
        db.execute(insert(t.open_turns).values(**key_of(owner), **row))
    return new


def drop_open(db: Connection, owner: Owner, session: str) -> bool:
    """Deletes the turns of an open session; False if there are none."""
    c = t.open_turns.c
    found = db.execute(select(c.json).where(*of(t.open_turns, owner), c.session == session)).scalars()
    ids = [Turn.model_validate_json(row).id for row in found]
    for n in range(0, len(ids), BATCH):
        db.execute(delete(t.turns).where(*of(t.turns, owner), t.turns.c.turn.in_(ids[n : n + BATCH])))
    db.execute(delete(t.open_turns).where(*of(t.open_turns, owner), c.session == session))
    return bool(ids)


def drop_item(db: Connection, owner: Owner, id: str) -> bool:
    """Deletes an item, and the memory if it is in it; False if there is none of that id."""
    found = db.execute(select(t.items).where(*of(t.items, owner), t.items.c.id == id)).first()
    if found is None:
        return False
    for table in (t.items, t.turns):
        db.execute(delete(table).where(*of(table, owner), table.c.position == found.position))
    if found.state in ("remembered", "partial"):
        reset(db, owner)
    else:
        # A concurrent writer must find the version changed.
        db.execute(update(t.users).where(*of(t.users, owner)).values(version=_token()))
    return True


def reset(db: Connection, owner: Owner) -> None:
    """Deletes a user's memory and queues every item anew."""
    for table in (t.memories, t.texts, t.changes):
        db.execute(delete(table).where(*of(table, owner)))
    db.execute(update(t.items).where(*of(t.items, owner)).values(state="queued", attempts=0, error=""))
    changed = update(t.users).where(*of(t.users, owner))
    db.execute(changed.values(version=_token(), worker="", claimed_until=0.0))


def taken_in(db: Connection, owner: Owner, document: Document, note: str) -> None:
    """Marks the items that are in a memory now."""
    c, mine = t.items.c, of(t.items, owner)
    taken = (*mine, c.position <= document.position, c.state == "queued")
    db.execute(update(t.items).where(*taken).values(state="remembered", error=note))
    left = c.id.in_(document.partial)
    db.execute(update(t.items).where(*mine, c.state == "partial", ~left).values(state="remembered"))
    if document.partial:
        written = c.state.in_(("remembered", "partial"))
        db.execute(update(t.items).where(*mine, written, left).values(state="partial"))


def advance(db: Connection, owner: Owner, version: str, lease: float) -> str | None:
    """Gives a user's memory a new version if it still has the old one; None otherwise."""
    new = _token()
    mine = update(t.users).where(*of(t.users, owner), t.users.c.version == version)
    return (
        new
        if db.execute(mine.values(version=new, claimed_until=t.clock(db) + min(lease, LONGEST_LEASE))).rowcount
        else None
    )


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
    if contents.document is not None:
        put_memory(db, owner, contents.document)
    for session in contents.open:
        append(db, owner, name_of("session", session.id), session.turns)


def put_memory(db: Connection, owner: Owner, document: Document) -> None:
    """Writes a user's memory: its whole text, or what changed in it since the last one."""
    change, about = document.change, _about(db, document)
    if change is None:
        db.execute(delete(t.changes).where(*of(t.changes, owner)))
        texts = {"memory": document.memory, "settled": document.settled}
        upsert(db, t.texts, key_of(owner), texts)
        about |= {"json": "", "settled": None}
    else:
        row = {"number": document.log.count, "memory": change.memory, "settled": change.settled}
        db.execute(insert(t.changes).values(**key_of(owner), **row))
    if change is None or not db.execute(update(t.memories).where(*of(t.memories, owner)).values(**about)).rowcount:
        upsert(db, t.memories, key_of(owner), about)


def _about(db: Connection, document: Document) -> dict[str, Any]:
    """What there is to know of a memory beside its text."""
    return {
        "position": document.position,
        "settled_position": document.settled_position,
        "speakers": json.dumps(document.speakers),
        "writer": document.stamp.writer,
        "program": document.stamp.program,
        "embedder": document.stamp.embedder,
        "schema": document.stamp.schema,
        "updated": t.clock(db),
    }


def _take_turns(db: Connection, owner: Owner, ids: Sequence[str], position: int) -> None:
    twice = next((id for n, id in enumerate(ids) if id in ids[:n]), None) if len(set(ids)) < len(ids) else None
    for n in range(0, len(ids), BATCH):
        known = select(t.turns.c.turn).where(*of(t.turns, owner), t.turns.c.turn.in_(ids[n : n + BATCH]))
        twice = twice or db.execute(known.limit(1)).scalar()
    if twice is not None:
        raise ConflictError(
            f"user {owner.user!r} has another turn {twice!r}; "
            "give turns ids that no other turn of the user has, or none at all"
        )
    if ids:
        db.execute(insert(t.turns), [{**key_of(owner), "turn": id, "position": position} for id in ids])


def _numbered(item: Item, id: str) -> Item:
    turns = tuple(
        turn if turn.id else turn.model_copy(update={"id": f"{id}:{n}"}) for n, turn in enumerate(item.turns, 1)
    )
    return type(item).model_validate({**item.model_dump(), "id": id, "turns": turns})


def _free_id(db: Connection, owner: Owner, position: int) -> str:
    known = select(t.items.c.id).where(*of(t.items, owner))
    while db.execute(known.where(t.items.c.id == f"D{position}")).first() or _is_open(db, owner, f"D{position}"):
        position += 1
    return f"D{position}"


def _is_open(db: Connection, owner: Owner, session: str) -> bool:
    c = t.open_turns.c
    return db.execute(select(c.number).where(*of(t.open_turns, owner), c.session == session)).first() is not None


def _token() -> str:
    return uuid.uuid4().hex
