"""Stored memories as a running program sees them: parsed once, checked against who wrote them.

A memory's version names its content, so a parsed memory is kept under it; an unchanged memory of ten thousand facts
costs one indexed query per question, and neither parsing nor indexing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from ..errors import ProgramError
from ..memory.deltas import delta
from ..memory.memory import Memory
from ..memory.store import Store
from ..memory.stored import DOCUMENT, Change, Document, Log, Owner, Snapshot, Stamp
from ..records import Session
from .identity import digest
from .leavings import notice
from .method import Writer
from .program import MemoryProgram

SHORT = 65_536
"""Characters of changes that a short memory may have before its text is written anew."""


@dataclass(frozen=True)
class View:
    """A user's memory at one moment."""

    snapshot: Snapshot
    document: Document | None
    memory: Memory
    """What further items are written into."""
    settled: Memory
    """What questions are answered from."""

    @property
    def known(self) -> bool:
        """Whether anything is stored of the user."""
        return bool(self.snapshot.version)

    def saying(self, session: Session) -> View:
        """The same with an open session as it is by now."""
        opened = tuple(other for other in self.snapshot.open if other.id != session.id)
        return replace(self, snapshot=replace(self.snapshot, open=(*opened, session)))


def view(program: MemoryProgram, store: Store, owner: Owner) -> View:
    """Reads a user's memory, from the store only where it changed since this process read it.

    Raises:
        ProgramError: Another program, embedder or version wrote it; the message has the command that repairs it.
    """
    kept: dict[str, Any] = {}

    def known(version: str) -> bool:
        kept["view"] = program.live.peek(("view", store.url, owner, version))
        return kept["view"] is not None

    snapshot = store.read(owner, known)
    notice(program, store, snapshot.forgets)
    if snapshot.stamp is not None:
        check(snapshot.stamp, stamp_of(program), owner, store.url)
    if snapshot.stamp is not None and kept["view"] is not None:
        document, memory, settled = kept["view"]
    else:
        document = snapshot.document
        memory, settled = _parsed(program.method.writer, document, owner, store.url)
        keep(program, store, owner, snapshot.version, (document, memory, settled))
    return View(snapshot, document, memory, settled)


def keep(program: MemoryProgram, store: Store, owner: Owner, version: str, parsed: tuple[Any, Any, Any]) -> None:
    """Keeps a parsed memory (document, memory, settled memory) under its version; older versions go."""
    if version and parsed[0] is not None:
        drop(program, store, owner)
        # Its texts are as large as the memory, and not looked at again.
        document = replace(parsed[0], memory="", settled=None, change=None)
        program.live.put(("view", store.url, owner, version), (document, *parsed[1:]))


def drop(program: MemoryProgram, store: Store, owner: Owner) -> None:
    """Removes a user's parsed memories, and with them their indexes, from this process."""
    program.live.drop(lambda key: isinstance(key, tuple) and key[:3] == ("view", store.url, owner))


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
            log = Log(log.text, changes, log.count + 1)
            return replace(document, memory="", settled=None, change=change, log=log)
    text, other = memory.model_dump_json(), None if settled is None else settled.model_dump_json()
    return replace(document, memory=text, settled=other, change=None, log=Log(len(text) + len(other or "")))


def _json(changes: Any) -> str:
    return to_json(changes).decode()


def stamp_of(program: MemoryProgram) -> Stamp:
    """Who the program is, as the writer of a memory.

    The memory depends on the writer with its settings, prompts and embedder, the adapter and the shape of the memory;
    prompts that only read may change without a rebuild. The model that writes is not part of it: changing the model is
    the operator's choice, and `rebuild --force` writes everything anew.
    """
    writer, identities = program.method.writer, program.identities
    embedder = getattr(writer, "embedder", None)
    writes = [identities.of_writer(writer), program.adapter if writer.predictors_below() else ""]
    return Stamp(digest(writes), identities.of_program(program), embedder.name if embedder else "")


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
        raise ProgramError(
            f"the memory of user {owner.user!r} does not fit its program: {error.errors()[0]['msg']}; "
            f"run: mempiler rebuild PROGRAM --store {url} --user {owner.user!r} --force"
        ) from error
