"""Stored memories as a running program sees them: parsed once, checked against who wrote them.

A memory's version names its content, so a parsed memory is kept under it; an unchanged memory of ten thousand facts
costs one indexed query per question, and neither parsing nor indexing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from ..errors import ProgramError, StoreError, UserError
from ..memory.amending import Amendment, Amendments, in_force
from ..memory.deltas import applied, delta
from ..memory.following import Line
from ..memory.memory import Memory
from ..memory.store import Store
from ..memory.stored import DOCUMENT, Change, Document, Log, Owner, Parsed, Snapshot, Stamp
from ..memory.user_vectors import UserVectors
from ..records import Item, Session, Turn
from .identity import digest
from .leavings import notice
from .method import Writer
from .program import MemoryProgram
from .recalling import leaving
from .searching import Within
from .waiting import Waiting

SHORT = 65_536
"""Characters of changes that a short memory may have before its text is written anew."""

SOURCES = 256
"""Most turns of a user that are kept because answers rested on them."""

PARTS = 8
"""Most parts of a user's memory that are kept as memories of their own."""


@dataclass(frozen=True)
class View:
    """A user's memory at one moment."""

    snapshot: Snapshot
    document: Document | None
    memory: Memory
    """What further items are written into."""
    settled: Memory
    """What questions are answered from."""
    waiting: Waiting
    """What is not in the settled memory."""
    amendments: Amendments | None = None
    """What was applied to the settled memory and to what waits; None where they are as they were written."""
    within: Within | None = None
    """What is looked at, of the settled memory and of what waits; everything if None."""

    def left(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """What is looked at of raw items, as amendments leave them."""
        for amend in (self.amendments, self.within):
            items = amend.items(items) if amend else items
        return tuple(items)

    @property
    def known(self) -> bool:
        """Whether anything is stored of the user."""
        return bool(self.snapshot.version)

    def saying(self, session: Session) -> View:
        """The same with an open session as it is by now."""
        opened = (*(other for other in self.snapshot.open if other.id != session.id), session)
        items = (*(stored.item for stored in self.snapshot.waiting), *opened)
        waiting = replace(self.waiting, items=self.left(items))
        return replace(self, snapshot=replace(self.snapshot, open=opened), waiting=waiting)


def view(program: MemoryProgram, store: Store, owner: Owner, stamp: Stamp | None = None) -> View:
    """Reads a user's memory, from the store only where it changed since this process read it.

    Args:
        program: Reads it.
        store: Keeps it.
        owner: Whose it is.
        stamp: `stamp_of` the program, where it is known.

    Raises:
        ProgramError: Another program, embedder or version wrote it; the message has the command that repairs it.
    """
    kept: _Kept | None = program.live.peek(_key(store, owner))
    last = _last(program, store, owner)
    since = kept[1].log if kept else Log()
    snapshot = store.read(owner, lambda version: kept is not None and kept[0] == version, last.parsed, since)
    notice(program, store, snapshot.forgets)
    if snapshot.stamp is not None:
        check(snapshot.stamp, stamp or _as_writer(program), owner, store.url)
    if snapshot.stamp is not None and kept is not None and kept[0] == snapshot.version:
        _, document, memory, settled = kept
    else:
        document = snapshot.document
        if kept is not None and document is not None and document.since is not None:
            memory, settled = _advanced(program.method.writer, *kept[2:], document.since, owner, store.url)
        else:
            memory, settled = _parsed(program.method.writer, document, owner, store.url)
        keep(program, store, owner, snapshot.version, (document, memory, settled))
    items = (*(stored.item for stored in snapshot.waiting), *snapshot.open)
    return View(snapshot, document, memory, settled, Waiting(items, last.line))


@dataclass(frozen=True)
class _Amended:
    """A settled memory as it was written, and as amendments leave it."""

    last: int
    rows: tuple[Amendment, ...]
    written: Memory
    amendments: Amendments
    left: Memory


def amended(program: MemoryProgram, store: Store, seen: View) -> View:
    """A user's memory as amendments leave it: what questions are answered from.

    Args:
        program: Reads it.
        store: Keeps the amendments.
        seen: The memory as it was written.
    """
    last, owner = seen.snapshot.amended, seen.snapshot.owner
    if not last:
        return seen
    key = (*_key(store, owner), "amended")
    kept: _Amended | None = program.live.peek(key)
    if kept is None or kept.last != last or kept.written is not seen.settled:
        rows = kept.rows if kept and kept.last == last else in_force(store.amendments(owner))
        amendments = Amendments(rows, program.method.reader.entries(seen.settled))
        left = leaving(program.method, seen.settled, amendments) if rows else seen.settled
        kept = _Amended(last, rows, seen.settled, amendments, left)
        program.live.forget(key)
        program.live.put(key, kept)
    if not kept.rows:
        return seen
    waiting = replace(seen.waiting, items=kept.amendments.items(seen.waiting.items))
    return replace(seen, settled=kept.left, waiting=waiting, amendments=kept.amendments)


def looked_at(program: MemoryProgram, store: Store, seen: View, within: Within) -> View:
    """What is looked at of a user's memory, as a memory of its own, with an index of its own.

    Args:
        program: Reads it.
        store: Keeps it.
        seen: The memory.
        within: What is looked at.

    Raises:
        UserError: The method cannot leave entries out.
    """
    if within.everything:
        return seen
    key = (*_key(store, seen.snapshot.owner), "within", hash(within) % PARTS)
    kept: tuple[Memory, Memory, Within] | None = program.live.peek(key)
    if kept is None or kept[0] is not seen.settled or kept[2] != within:
        left = leaving(program.method, seen.settled, within)
        if any(within(entry) is None for entry in program.method.reader.entries(left)):
            raise UserError(f"memories of {program.name} cannot be looked at in part; ask without where, since, until")
        # An index that went to and fro between the two would be slower than one for each.
        vars(left)["line"] = Line()
        kept = seen.settled, left, within
        program.live.forget(key)
        program.live.put(key, kept)
    waiting = Waiting(within.items(seen.waiting.items))
    return replace(seen, settled=kept[1], waiting=waiting, within=within)


_Kept = tuple[str, Document, Memory, Memory]
"""Version, document, memory and settled memory."""


def keep(program: MemoryProgram, store: Store, owner: Owner, version: str, parsed: tuple[Any, Any, Any]) -> None:
    """Keeps a parsed memory (document, memory, settled memory) under its version; older versions go."""
    if version and parsed[0] is not None:
        program.live.forget(_key(store, owner))
        # Its texts are as large as the memory, and not looked at again.
        document = replace(parsed[0], memory="", settled=None, change=None, since=None)
        program.live.put(_key(store, owner), (version, document, *parsed[1:]))


def drop(program: MemoryProgram, store: Store, owner: Owner) -> None:
    """Removes a user's parsed memory, and with it its indexes, from this process."""
    program.live.forget(_key(store, owner))
    for part in ("vectors", "amended"):
        program.live.forget((*_key(store, owner), part))


def shelf(program: MemoryProgram, store: Store, seen: View) -> UserVectors:
    """Where the vectors of a user's texts are kept."""
    owner = seen.snapshot.owner
    known = program.live.once((*_key(store, owner), "vectors"), dict[bytes, int])
    return UserVectors(store, owner, seen.snapshot.forgets, known)


def _key(store: Store, owner: Owner) -> tuple[Any, ...]:
    return "view", store.url, owner


@dataclass(frozen=True)
class _Last:
    """What is kept of what was said, from one view of a user to the next."""

    parsed: Parsed = field(default_factory=Parsed)
    line: Line = field(default_factory=Line)
    said: dict[str, Turn] = field(default_factory=dict[str, Turn])
    """Turns that answers rested on, by id."""


def _last(program: MemoryProgram, store: Store, owner: Owner) -> _Last:
    return program.live.once((*_key(store, owner), "last"), _Last)


def sources(program: MemoryProgram, store: Store, seen: View, ids: Collection[str]) -> dict[str, Turn]:
    """Turns of sessions by id, each with its time or that of its session; those that are not there are left out.

    Args:
        program: Keeps those that were asked for before.
        store: Has them all.
        seen: The memory that rests on them.
        ids: Of the turns.
    """
    owner = seen.snapshot.owner
    said = _last(program, store, owner).said
    found = {id: turn for id in ids if (turn := said.get(id)) is not None}
    if left := sorted(set(ids) - found.keys()):
        read = {id: turn.at(item.time) for id, (turn, item) in store.turns(owner, left).items()}
        if len(said) + len(read) > SOURCES:
            said.clear()
        said.update(read)
        found |= read
    return found


def told(document: Document, before: tuple[Memory, Memory] | None, memory: Memory, settled: Memory | None) -> Document:
    """A document with what changed since the version before, or with its whole text.

    The text is written anew once the changes are as long as it is: on the average an item costs what it brings.

    Args:
        document: What there is to know beside the text; its `log` is still that of the version before.
        before: The memory and the settled memory of the version before; None if there is none.
        memory: What further items are written into.
        settled: What questions are answered from; None where it never is another, or there is none yet.
    """
    log = document.log
    if before is not None:
        other = None if settled is None or settled is before[1] else _json(delta(memory, settled))
        change = Change(_json(delta(before[0], memory)), other)
        changes = log.changes + len(change.memory) + len(change.settled or "")
        if changes <= max(log.text, SHORT):
            log = replace(log, changes=changes, count=log.count + 1)
            return replace(document, memory="", settled=None, change=change, log=log)
    text, other = memory.model_dump_json(), None if settled is None else settled.model_dump_json()
    log = Log(uuid.uuid4().hex, len(text) + len(other or ""))
    return replace(document, memory=text, settled=other, change=None, log=log)


def _json(changes: Any) -> str:
    return to_json(changes).decode()


def stamp_of(program: MemoryProgram) -> Stamp:
    """Who the program is, as the writer of a memory.

    The memory depends on the writer with its settings, prompts and embedder, the adapter and the shape of the memory;
    prompts that only read may change without a rebuild. The model that writes is not part of it: changing the model is
    the operator's choice, and `rebuild --force` writes everything anew.
    """
    return replace(_as_writer(program), program=program.identities.of_program(program))


def _as_writer(program: MemoryProgram) -> Stamp:
    """The same without what only reads."""
    writer = program.method.writer
    embedder = getattr(writer, "embedder", None)
    writes = [program.identities.of_writer(writer), program.adapter if writer.predictors_below() else ""]
    return Stamp(digest(writes), "", embedder.name if embedder else "")


def check(found: Stamp, own: Stamp, owner: Owner, url: str) -> None:
    """Refuses a memory that this program would have written otherwise.

    Raises:
        ProgramError: Program, embedder or version differ.
    """
    if found.writes_like(own):
        return
    fix = f"run: mempiler rebuild PROGRAM --store {url} --user {owner.user!r}"
    fix += "" if owner.tenant == "default" else f" --tenant {owner.tenant!r}"
    who = f"the memory of user {owner.user!r} was written"
    if found.schema > own.schema:
        raise ProgramError(f"{who} by a newer Mempiler (document {found.schema}, this reads {DOCUMENT}); install that")
    if found.schema < own.schema:
        raise ProgramError(f"{who} by an older Mempiler (document {found.schema}, this reads {DOCUMENT}); {fix}")
    if found.embedder != own.embedder:
        raise ProgramError(f"{who} with the embedder {found.embedder!r}, not {own.embedder!r}; {fix}")
    raise ProgramError(f"{who} by another program ({found.writer[:8]}, not {own.writer[:8]}); {fix}")


def _advanced(
    writer: Writer, memory: Memory, settled: Memory, changes: Sequence[Change], owner: Owner, url: str
) -> tuple[Memory, Memory]:
    """The memory and the settled one after what another process has changed in them."""
    try:
        for change in changes:
            memory = applied(memory, json.loads(change.memory))
            settled = settled if change.settled is None else applied(memory, json.loads(change.settled))
    except (LookupError, TypeError, ValueError) as error:
        raise _misfit(owner, url, f"{type(error).__name__} in what was changed") from None
    return memory, settled if writer.settles else memory


def _parsed(writer: Writer, document: Document | None, owner: Owner, url: str) -> tuple[Memory, Memory]:
    if document is None:
        blank = writer.Memory()
        return blank, blank
    try:
        memory = writer.Memory.model_validate_json(document.memory)
        if not writer.settles:
            return memory, memory
        return memory, writer.Memory.model_validate_json(document.settled) if document.settled else writer.Memory()
    except ValidationError as error:
        raise _misfit(owner, url, error.errors()[0]["type"]) from None


def _misfit(owner: Owner, url: str, what: str) -> StoreError:
    return StoreError(
        f"the memory of user {owner.user!r} does not fit its program: {what}; "
        f"run: mempiler rebuild PROGRAM --store {url} --user {owner.user!r} --force"
    )
