"""A memory as a store keeps it: as text, as what changed since, and with who wrote it.

The text is written anew once the changes are as long as it is: on the average an item costs what it brings.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

from pydantic import ValidationError
from pydantic_core import to_json

from ..errors import ProgramError, StoreError
from ..memory.deltas import applied, delta
from ..memory.memory import Memory
from ..memory.stored import DOCUMENT, Change, Document, Log, Owner, Stamp
from ..programs.identity import digest
from ..programs.method import Writer
from ..programs.program import MemoryProgram

SHORT = 65_536
"""Characters of changes that a short memory may have before its text is written anew."""


def written(
    document: Document, before: tuple[Memory, Memory] | None, memory: Memory, settled: Memory | None
) -> Document:
    """A document with what changed since the version before, or with its whole text.

    Args:
        document: What there is to know beside the text; its `log` is still that of the version before.
        before: The memory and the settled memory of the version before; None if there is none.
        memory: What further items are written into.
        settled: What questions are answered from; None where it never is another, or there is none yet.
    """
    log = document.log
    if before is not None:
        other = None if settled is None or settled is before[1] else to_json(delta(memory, settled)).decode()
        change = Change(to_json(delta(before[0], memory)).decode(), other)
        changes = log.changes + len(change.memory) + len(change.settled or "")
        if changes <= max(log.text, SHORT):
            log = replace(log, changes=changes, count=log.count + 1)
            return replace(document, memory="", settled=None, change=change, log=log)
    text, other = memory.model_dump_json(), None if settled is None else settled.model_dump_json()
    log = Log(uuid.uuid4().hex, len(text) + len(other or ""))
    return replace(document, memory=text, settled=other, change=None, log=log)


def loaded(
    writer: Writer, document: Document | None, known: tuple[Memory, Memory] | None, owner: Owner, url: str
) -> tuple[Memory, Memory]:
    """The memory and the settled memory of a document: of its text, or of what another process has changed since.

    Args:
        writer: Whose memory it is.
        document: As it was read; blank memories if None.
        known: The two memories that its changes go on from.
        owner: Whose it is.
        url: Where it is.

    Raises:
        StoreError: The document is no memory of the writer's, or its changes are none of this memory.
    """
    if document is None:
        blank = writer.Memory()
        return blank, blank
    try:
        if known is None or document.since is None:
            memory = writer.Memory.model_validate_json(document.memory)
            settled = writer.Memory.model_validate_json(document.settled or "{}") if writer.settles else memory
        else:
            memory, settled = known
            for change in document.since:
                memory = applied(memory, json.loads(change.memory))
                settled = settled if change.settled is None else applied(memory, json.loads(change.settled))
    except (LookupError, TypeError, ValueError) as error:
        # What pydantic says beside the type may hold what was said.
        what = error.errors()[0]["type"] if isinstance(error, ValidationError) else type(error).__name__
        raise StoreError(
            f"the memory of user {owner.user!r} does not fit its program: {what}; "
            f"run: mempiler memories rebuild PROGRAM --store {url} --user {owner.user!r} --force"
        ) from None
    return memory, settled if writer.settles else memory


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
    fix = f"run: mempiler memories rebuild PROGRAM --store {url} --user {owner.user!r}"
    fix += "" if owner.tenant == "default" else f" --tenant {owner.tenant!r}"
    who = f"the memory of user {owner.user!r} was written"
    if found.schema > own.schema:
        raise ProgramError(f"{who} by a newer Mempiler (document {found.schema}, this reads {DOCUMENT}); install that")
    if found.schema < own.schema:
        raise ProgramError(f"{who} by an older Mempiler (document {found.schema}, this reads {DOCUMENT}); {fix}")
    if found.embedder != own.embedder:
        raise ProgramError(f"{who} with the embedder {found.embedder!r}, not {own.embedder!r}; {fix}")
    raise ProgramError(f"{who} by another program ({found.writer[:8]}, not {own.writer[:8]}); {fix}")
