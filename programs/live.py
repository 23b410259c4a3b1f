"""Stored memories as a running program sees them: parsed once, checked against who wrote them.

A memory's version names its content, so a parsed memory is kept under it; an unchanged memory of ten thousand facts
costs one indexed query per question, and neither parsing nor indexing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import ProgramError
from ..memory.store import Store
from ..memory.stored import DOCUMENT, Document, Owner, Snapshot, Stamp
from .keys import jsonable
from .method import Method
from .program import MemoryProgram
from .state import dump_predictor, program_digest, signature_of


@dataclass(frozen=True)
class View:
    """A user's memory at one moment."""

    snapshot: Snapshot
    document: Document | None
    memory: BaseModel
    """What further items are written into."""
    settled: BaseModel
    """What questions are answered from."""


def view(program: MemoryProgram, store: Store, owner: Owner) -> View:
    """Reads a user's memory, from the store only where it changed since this process read it.

    Raises:
        ProgramError: Another program, embedder or version wrote it; the message has the command that mends it.
    """
    kept: dict[str, Any] = {}

    def known(version: str) -> bool:
        kept["view"] = program.live.peek(("view", store.url, owner, version))
        return kept["view"] is not None

    snapshot = store.read(owner, known)
    if snapshot.stamp is not None:
        check(snapshot.stamp, stamp_of(program), owner, store.url)
    if snapshot.stamp is not None and kept["view"] is not None:
        document, memory, settled = kept["view"]
    else:
        document = snapshot.document
        memory, settled = _parsed(program.method.store, document, owner, store.url)
        keep(program, store, owner, snapshot.version, (document, memory, settled))
    return View(snapshot, document, memory, settled)


def keep(program: MemoryProgram, store: Store, owner: Owner, version: str, parsed: tuple[Any, Any, Any]) -> None:
    """Keeps a parsed memory (document, memory, settled memory) under its version; older versions go."""
    if version and parsed[0] is not None:
        drop(program, store, owner)
        program.live.put(("view", store.url, owner, version), parsed)


def drop(program: MemoryProgram, store: Store, owner: Owner) -> None:
    """Takes everything of a user out of this process: parsed memories and their indexes."""
    gone = program.live.drop(lambda key: isinstance(key, tuple) and key[:3] == ("view", store.url, owner))
    program.method.forget([memory for _, *memories in gone for memory in memories])


def stamp_of(program: MemoryProgram) -> Stamp:
    """Who the program is, as the writer of a memory.

    The memory depends on the writing method with its settings, the prompts of its writing predictors, the adapter and
    the shape of the memory; prompts that only read may change without a rebuild. The model that writes is not part of
    it: changing the model is the operator's choice, and `rebuild --force` writes everything anew.
    """
    predictors = program.all_predictors()
    states = [(name, signature_of(p), signature_of(p).instructions, list(p.demos)) for name, p in predictors.items()]
    config = json.dumps([program.method.config, program.method.store.config], default=str, sort_keys=True)
    seen = tuple((name, id(signature), words, tuple(map(id, demos))) for name, signature, words, demos in states)

    def make() -> tuple[Any, Stamp]:
        # The states are kept beside the stamp, so that their ids stay theirs.
        return states, _stamp(program)

    return program.live.once(("stamp", program.name, program.adapter, config, seen), make)[1]


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


def _stamp(program: MemoryProgram) -> Stamp:
    method = program.method.store
    names = program.writer_names()
    writing = {name: p for name, p in program.all_predictors().items() if name in names}
    about = [
        f"{type(method).__module__}:{type(method).__qualname__}",
        method.config,
        program.adapter if writing else "",
        {name.rpartition(".")[2]: dump_predictor(p).model_dump(mode="json") for name, p in sorted(writing.items())},
        method.Memory.model_json_schema(),
    ]
    text = json.dumps(about, sort_keys=True, default=jsonable)
    embedder = program.method.embedder
    return Stamp(
        writer=hashlib.sha256(text.encode()).hexdigest(),
        program=program_digest(program),
        embedder=embedder.name if embedder else "",
    )


def _parsed(method: Method, document: Document | None, owner: Owner, url: str) -> tuple[BaseModel, BaseModel]:
    if document is None:
        blank = method.Memory()
        return blank, blank
    try:
        memory = method.Memory.model_validate_json(document.memory)
        if type(method).settle is Method.settle:
            return memory, memory
        return memory, method.Memory.model_validate_json(document.settled) if document.settled else method.Memory()
    except ValidationError as error:
        raise ProgramError(
            f"the memory of user {owner.user!r} does not fit its program: {error.errors()[0]['msg']}; "
            f"run: mempiler rebuild PROGRAM --store {url} --user {owner.user!r} --force"
        ) from error
