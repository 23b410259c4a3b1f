"""What a memory recalls for a query: ranked hits with their sources, and failures as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import Field

from ..text import one_line
from .frozen import FrozenDict, FrozenMapping, Record
from .turns import format_time

ABSTRACT_KINDS = frozenset(
    {
        "background",
        "inference",
        "principle",
        "summary",
        "trait",
    }
)
"""Kinds of hits that rest on many turns: finding one says nothing about any single turn."""


class Hit(Record):
    """One thing found in a memory."""

    id: str
    """Id of the memory entry."""
    text: str
    kind: str = "entry"
    """What it is: turn, log, record, session, fact, conclusion, situation, topic, summary, ..."""
    score: float = 0.0
    sources: tuple[str, ...] = ()
    """Ids of the turns that the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    label: str = ""
    """What prompts show in brackets before the text, e.g. the type of a fact."""
    block: str = ""
    """The heading under which prompts show it, with adjacent hits that have the same one."""
    fallback: bool = False
    """Whether it is shown only because nothing was found.

    Such a hit counts in no figure of recall. Prompts show it like any other one, without a score.
    """

    @property
    def is_evidence(self) -> bool:
        """Whether it rests on particular turns. Recall of evidence counts only such hits."""
        return self.kind not in ABSTRACT_KINDS

    def line(self) -> str:
        """Render the hit on one line, like `Turn.line`: `[id] (date) [label] text`."""
        return one_line(f"[{self.id}] {self.dated_text}")

    @property
    def dated_text(self) -> str:
        """The line without the id: `(date) [label] text`."""
        parts: list[str] = []
        if self.time:
            parts.append(f"({format_time(self.time)})")
        if self.label:
            parts.append(f"[{self.label}]")
        parts.append(self.text)
        return one_line(" ".join(parts))


class Context(Record):
    """What a memory recalls for one query: ranked hits, and notes such as a summary."""

    hits: tuple[Hit, ...] = ()
    notes: FrozenMapping[str, str] = Field(default_factory=FrozenDict)
    counts: FrozenMapping[str, int] = Field(default_factory=FrozenDict)
    """What the recall took, e.g. {"calls": 4, "facts": 22}. No prompt shows it."""
    is_reported: bool = True
    """False if a foreign program answered and did not say what it recalled.

    Its context has no hits, and that means nothing.
    """

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the source turns in rank order, each once."""
        return _unique_sources(self.hits)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Ids of the source turns of hits that are evidence, in rank order, each once."""
        return _unique_sources(hit for hit in self.hits if hit.is_evidence)

    def without_fallback(self) -> Context:
        """Return the context for figures of recall: without the hits that are only a fallback."""
        hits = tuple(hit for hit in self.hits if not hit.fallback)
        if len(hits) == len(self.hits):
            return self
        return self.model_copy(update={"hits": hits})

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
                # Further lines of a note are indented, so that none looks like a hit.
                note_lines = f"{name}: {note}".splitlines()
                lines.append("\n  ".join(note_lines))
        return "\n".join(lines)


def _unique_sources(hits: Iterable[Hit]) -> tuple[str, ...]:
    """Return the ids of the turns that hits rest on, each once, in their order."""
    turn_ids = (turn_id for hit in hits for turn_id in hit.sources)
    return tuple(dict.fromkeys(turn_ids))


def in_blocks(hits: Iterable[Hit], headings: Mapping[str, str]) -> tuple[Hit, ...]:
    """Return hits with the headings of their kinds, block after block.

    Args:
        hits: The hits. Within a block they keep their order.
        headings: The heading of each kind, in the order of the blocks. Kinds may share one.
    """
    blocks = list(dict.fromkeys(headings.values()))
    hits_with_heading = [hit.model_copy(update={"block": headings[hit.kind]}) for hit in hits]
    return tuple(sorted(hits_with_heading, key=lambda hit: blocks.index(hit.block)))


class SearchResult(NamedTuple):
    """What a search found. Scores of the two parts cannot be compared."""

    entries: tuple[Hit, ...]
    """Entries of the memory, best first."""
    pending: tuple[Hit, ...]
    """Turns that are not in the memory yet, best first."""


FailureKind = Literal["parse", "cut", "refused", "too-long", "endpoint", "error"]


class Failure(Record):
    """Something that failed for one item or one question; it is counted instead of raised."""

    kind: FailureKind
    where: str
    message: str
