"""What is recalled from a memory: ranked hits with their sources, and failures as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import Field

from ..text import one_line
from .frozen import FrozenDict, FrozenMapping, Record
from .turns import format_time

ABSTRACT_KINDS = frozenset({"summary", "inference", "trait", "background", "principle"})
"""Kinds of hits that rest on so many turns that finding one proves nothing about any of them."""


class Hit(Record):
    """One thing found in a memory."""

    id: str
    """Id of the memory entry."""
    text: str
    kind: str = "entry"
    """What it is: turn, log, record, session, fact, conclusion, situation, topic, summary, principle, ..."""
    score: float = 0.0
    sources: tuple[str, ...] = ()
    """Ids of the turns the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    label: str = ""
    """What prompts show in brackets before the text, e.g. the type of a fact."""
    block: str = ""
    """The heading under which prompts show it, together with the hits beside it that have the same one."""
    fallback: bool = False
    """Whether it is shown only because nothing was found. Such a hit counts in no figure of recall; prompts show it as
    any other one, without a score."""

    @property
    def is_evidence(self) -> bool:
        """Whether it speaks of particular turns: recall of evidence counts nothing else."""
        return self.kind not in ABSTRACT_KINDS

    def line(self) -> str:
        """Render the hit on one line, as `Turn.line` does: `[id] (date) text`, a label in brackets before the text."""
        return one_line(f"[{self.id}] {self.dated_text}")

    @property
    def dated_text(self) -> str:
        """The line without the id: `(date) [label] text`."""
        when = f"({format_time(self.time)}) " if self.time else ""
        label = f"[{self.label}] " if self.label else ""
        return one_line(f"{when}{label}{self.text}")


class Context(Record):
    """What a memory recalls for one query: ranked hits, and notes such as a summary."""

    hits: tuple[Hit, ...] = ()
    notes: FrozenMapping[str, str] = Field(default_factory=FrozenDict)
    counts: FrozenMapping[str, int] = Field(default_factory=FrozenDict)
    """What the recall took, e.g. {"calls": 4, "facts": 22}; no prompt shows it."""
    is_reported: bool = True
    """False where a program that is not ours answered without saying what it recalled: no hits then mean nothing."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Source turn ids in rank order, each once."""
        return _sources_of(self.hits)

    @property
    def evidence(self) -> tuple[str, ...]:
        """As `sources`, of the hits that count as evidence."""
        return _sources_of(hit for hit in self.hits if hit.is_evidence)

    def without_fallback(self) -> Context:
        """The context without the hits that are shown only because nothing was found, for figures of recall."""
        if not any(hit.fallback for hit in self.hits):
            return self
        return self.model_copy(update={"hits": tuple(hit for hit in self.hits if not hit.fallback)})

    def with_kinds(self, *kinds: str) -> tuple[Hit, ...]:
        """Return the hits of some kinds, in rank order."""
        return tuple(hit for hit in self.hits if hit.kind in kinds)

    def text(self) -> str:
        """Render the hits, one per line under the headings of their blocks, and then the notes."""
        lines: list[str] = []
        block = ""
        for hit in self.hits:
            if hit.block != block:
                block = hit.block
                lines.append(f"{one_line(block)}:")
            lines.append(hit.line())

        for name, note in self.notes.items():
            if note:
                # Further lines of a note are set in, so that none looks like a hit.
                lines.append("\n  ".join(f"{name}: {note}".splitlines()))
        return "\n".join(lines)


def _sources_of(hits: Iterable[Hit]) -> tuple[str, ...]:
    """Return the ids of the turns that hits rest on, each once, in their order."""
    ids = (source for hit in hits for source in hit.sources)
    return tuple(dict.fromkeys(ids))


def in_blocks(hits: Iterable[Hit], headings: Mapping[str, str]) -> tuple[Hit, ...]:
    """Put hits under the headings of their kinds.

    Args:
        hits: The hits; within a block they keep their order.
        headings: The heading of each kind, in the order of the blocks. Kinds may share one.
    """
    blocks = list(dict.fromkeys(headings.values()))
    hits_with_heading = [hit.model_copy(update={"block": headings[hit.kind]}) for hit in hits]
    return tuple(sorted(hits_with_heading, key=lambda hit: blocks.index(hit.block)))


class SearchResult(NamedTuple):
    """What a search found; scores of the two parts cannot be compared."""

    entries: tuple[Hit, ...]
    """Of the memory, best first."""
    pending: tuple[Hit, ...]
    """Turns that are not in the memory yet, best first."""


FailureKind = Literal["parse", "cut", "refused", "too-long", "endpoint", "error"]


class Failure(Record):
    """Something that failed for one item or one question, kept and counted instead of raised."""

    kind: FailureKind
    where: str
    message: str
