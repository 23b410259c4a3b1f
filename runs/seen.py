"""What a question's program saw: what was recalled, where the gold evidence stands, and the prompts with their answers.

    recording ──┐
    context ────┼── seen ──> Seen: entries, evidence, calls      bounded, whatever the texts are
    example ────┘

It is there for people to look at, so it is bounded: the middle of a long text is left out, and says how much that is.
Scores never rest on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..programs.recording import Call, Completion
from ..records import Context, Hit

MOST_ENTRIES = 50
"""Recalled entries that are kept, best first."""
MOST_EVIDENCE = 20
MOST_CALLS = 12
"""Calls that are kept: the last ones, of which one answered."""
ENTRY = 600
"""Longest text of an entry, in characters."""
PROMPT = 16_000
"""Longest text of one call's prompt."""
ANSWER = 4_000


class Entry(BaseModel):
    """One recalled entry."""

    model_config = ConfigDict(frozen=True)

    line: str
    """As prompts show it."""
    kind: str
    sources: tuple[str, ...]


class Asked(BaseModel):
    """One call of a predictor."""

    model_config = ConfigDict(frozen=True)

    predictor: str
    outcome: str
    """How it ended: ok, salvaged, asked again, lost."""
    messages: tuple[tuple[str, str], ...]
    """The prompt, as role and text; of the last attempt where it was asked again."""
    answer: str
    error: str | None = None
    at: float = 0.0
    """Seconds from the beginning of the question to that of the call."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class Moments(BaseModel):
    """When the steps of a question were through, in seconds since it began; None for a step that it has not."""

    model_config = ConfigDict(frozen=True)

    began: float
    """Seconds since the epoch."""
    remembered: float | None = None
    recalled: float | None = None
    answered: float | None = None


class Clock:
    """Takes the moments of one question, from now on."""

    def __init__(self) -> None:
        self._began, self.started = time.time(), time.perf_counter()
        self._marks: dict[str, float] = {}

    def mark(self, step: str, at: float | None = None) -> None:
        """Says that a step is through, now or at a time of `time.perf_counter`."""
        self._marks[step] = (time.perf_counter() if at is None else at) - self.started

    @property
    def moments(self) -> Moments:
        """What was marked."""
        return Moments(began=self._began, **self._marks)


class Seen(BaseModel):
    """What stood behind one answer."""

    model_config = ConfigDict(frozen=True)

    entries: tuple[Entry, ...] = ()
    evidence: dict[str, str] = {}
    """The gold evidence: turns by id, as prompts show them."""
    calls: tuple[Asked, ...] = ()
    feedback: str = ""
    """What the metric said of the answer."""
    left_out: int = 0
    """Entries and calls beyond those that are kept."""
    moments: Moments | None = None
    """None in a run of before this was kept."""

    def is_gold(self, entry: Entry) -> bool:
        """Whether an entry rests on gold evidence."""
        return not self.evidence.keys().isdisjoint(entry.sources)

    @property
    def found(self) -> list[str]:
        """Ids of the gold evidence that was recalled."""
        recalled = {source for each in self.entries for source in each.sources}
        return [turn for turn in self.evidence if turn in recalled]


def seen(
    example: Any, context: Context | None, calls: Sequence[Call], feedback: str, clock: Clock | None = None
) -> Seen:
    """What a program saw of a benchmark's example.

    Args:
        example: The question, with its history and the ids of its gold evidence.
        context: What was recalled; None where nothing could be.
        calls: What was asked, in program order.
        feedback: Of the metric.
        clock: Of the question; None where its moments are not known.
    """
    hits = context.hits if context else ()
    asked = [call for call in calls if call.completions or call.error]
    began = clock.started if clock else min((call.started for call in asked), default=0.0)
    return Seen(
        entries=tuple(map(_entry, hits[:MOST_ENTRIES])),
        evidence=_evidence(example),
        calls=tuple(_asked(call, began) for call in asked[-MOST_CALLS:]),
        feedback=shortened(feedback, ANSWER),
        left_out=max(0, len(hits) - MOST_ENTRIES) + max(0, len(asked) - MOST_CALLS),
        moments=clock.moments if clock else None,
    )


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end with the number of characters between; halves of characters are mended."""
    if len(text) > most:
        head, tail = most * 3 // 4, most // 4
        text = f"{text[:head]} [... {len(text) - head - tail:,} characters left out ...] {text[-tail:]}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _entry(hit: Hit) -> Entry:
    return Entry(line=shortened(hit.line(), ENTRY), kind=hit.kind, sources=hit.sources if hit.is_evidence else ())


def _evidence(example: Any) -> dict[str, str]:
    wanted = [str(id) for id in example.get("focus") or ()][:MOST_EVIDENCE]
    if not wanted:
        return {}
    turns = example.history.turns
    found = {id: turns[id][0].line(turns[id][1].time) for id in wanted if id in turns}
    return {id: shortened(found.get(id, ""), ENTRY) for id in wanted}


def _bounded(texts: Sequence[str]) -> list[str]:
    """The texts of a prompt, of which the last, the question's own, goes before instructions and demos."""
    own = [shortened(text, PROMPT * 3 // 4) for text in texts[-1:]]
    rest = texts[:-1]
    room = _room(list(map(len, rest)), PROMPT - sum(map(len, own)))
    return [*(shortened(text, room) for text in rest), *own]


def _room(lengths: Sequence[int], left: int) -> int:
    """The most characters a text may have, so that all of them fit: short ones leave theirs to the long."""
    for n, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - n)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)


def _asked(call: Call, began: float) -> Asked:
    last = call.completions[-1] if call.completions else Completion((), "")
    texts = _bounded([each["content"] for each in last.messages])
    return Asked(
        predictor=str(getattr(call.predictor, "label", "")),
        outcome=call.outcome,
        messages=tuple((each["role"], text) for each, text in zip(last.messages, texts, strict=True)),
        answer=shortened(last.text, ANSWER),
        error=None if call.error is None else shortened(call.error, ANSWER),
        at=round(call.started - began, 6),
        seconds=round(call.taken.seconds, 6),
        input_tokens=int(call.taken.input_tokens),
        output_tokens=int(call.taken.output_tokens),
    )
