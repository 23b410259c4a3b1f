"""What a memory is asked, and what is recalled from it: ranked hits with their sources, and failures as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any, Literal, NamedTuple

from pydantic import Field, SerializeAsAny

from ..errors import one_line
from .frozen import FrozenDict, FrozenMapping, Record
from .items import Item, format_time
from .timestamps import read_time

ABSTRACT = frozenset({"summary", "inference", "trait", "background", "principle"})
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

    @property
    def is_evidence(self) -> bool:
        """Whether it speaks of particular turns: recall of evidence counts nothing else."""
        return self.kind not in ABSTRACT

    def line(self) -> str:
        """Renders the hit on one line, as `Turn.line` does: `[id] (date) text`, a label in brackets before the text."""
        return one_line(f"[{self.id}] {self.said}")

    @property
    def said(self) -> str:
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
        return tuple(dict.fromkeys(source for hit in self.hits for source in hit.sources))

    @property
    def evidence(self) -> tuple[str, ...]:
        """As `sources`, of the hits that count as evidence."""
        return tuple(dict.fromkeys(source for hit in self.hits if hit.is_evidence for source in hit.sources))

    def of(self, *kinds: str) -> tuple[Hit, ...]:
        """The hits of some kinds, in rank order."""
        return tuple(hit for hit in self.hits if hit.kind in kinds)

    def text(self) -> str:
        """The hits, one per line under the headings of their blocks, then the notes.

        Further lines of a note are set in, so that none looks like a hit.
        """
        lines: list[str] = []
        for before, hit in zip((None, *self.hits), self.hits, strict=False):
            if hit.block != (before.block if before else ""):
                lines.append(f"{one_line(hit.block)}:")
            lines.append(hit.line())
        notes = ["\n  ".join(f"{name}: {note}".splitlines()) for name, note in self.notes.items() if note]
        return "\n".join(lines + notes)


def in_blocks(hits: Iterable[Hit], headings: Mapping[str, str]) -> tuple[Hit, ...]:
    """Hits under the headings of their kinds, block by block in the order of these; within a block in their own."""
    order = list(dict.fromkeys(headings.values()))
    headed = [hit.model_copy(update={"block": headings[hit.kind]}) for hit in hits]
    return tuple(sorted(headed, key=lambda hit: order.index(hit.block)))


class Found(NamedTuple):
    """What a search found; scores of the two parts cannot be compared."""

    entries: tuple[Hit, ...]
    """Of the memory, best first."""
    waiting: tuple[Hit, ...]
    """Turns that are not in the memory yet, best first."""


FailureKind = Literal["parse", "cut", "refused", "too-long", "endpoint", "error"]


class Failure(Record):
    """Something that failed for one item or one question, kept and counted instead of raised."""

    kind: FailureKind
    where: str
    message: str


_WIDE = re.compile("[\u3000-\u9fff\uac00-\ud7af]+")


def estimate_tokens(text: str) -> int:
    """Length of a text in tokens without a tokenizer: four characters a token, 1.5 tokens a CJK character."""
    wide = 0 if text.isascii() else sum(map(len, _WIDE.findall(text)))
    return round((len(text) - wide) / 4 + wide * 1.5)


def fitting(lines: Iterable[str], max_tokens: int) -> int:
    """How many lines, from the first on, so many tokens hold, each with its end."""
    lengths = accumulate(estimate_tokens(line) + 1 for line in lines)
    return sum(1 for _ in takewhile(lambda length: length <= max_tokens, lengths))


Modality = Literal["question", "dialogue"]
"""A question by itself, or the last turn of a dialogue: of that, a method may make a better query."""
About = Literal["needs", "solutions"]
"""Which half of a memory bears on a query: what a user needs, or what to propose to them."""


class Query(Record):
    """What is asked."""

    text: str
    """The question, request or last turn."""
    options: tuple[str, ...] = ()
    """What may be answered; empty for a free answer."""
    date: datetime | str | None = None
    """When it is asked: a moment, or words as prompts show them."""
    speakers: tuple[str, ...] = ()
    """Names of those who speak in the history, in order of first appearance."""
    dialogue: str = ""
    """What was said before the text, a line per turn."""
    modality: Modality = "question"
    about: About | None = None
    shown: tuple[SerializeAsAny[Item], ...] = ()
    """Raw items that the task shows beside the recalled context: a method need not recall them."""
    since: tuple[SerializeAsAny[Item], ...] = ()
    """Items that came after the end of the memory."""
    more: FrozenMapping[str, Any] = Field(default_factory=FrozenDict)
    """Whatever else a benchmark knows about the question, for tasks of its own."""

    @property
    def when(self) -> str:
        """The date in words, "" where it is not known."""
        return format_time(self.date) if isinstance(self.date, datetime) else str(self.date or "")

    @property
    def moment(self) -> datetime | None:
        """The date as a moment, None where it tells none."""
        return self.date if isinstance(self.date, datetime) else read_time(self.date)

    @property
    def line(self) -> str:
        """The text as prompts show it: with the day it is asked on, since "last week" hangs on that."""
        return f"{self.text} (asked on {self.when})" if self.date else self.text

    @property
    def probe(self) -> str:
        """What a memory is searched with: the text, and what was said before it where it is the turn of a dialogue.

        Options are left out: the wrong ones would find what they claim.
        """
        if self.modality == "question":
            return self.text
        said = [line for line in self.dialogue.split("\n") if line]
        return "\n".join([*said, f"user: {self.text}"])

    @property
    def shown_ids(self) -> frozenset[str]:
        """Ids of the turns that the task shows as they are."""
        return frozenset(turn.id for item in self.shown for turn in item.turns)
