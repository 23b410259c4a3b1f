"""The row of a question: its score, and a bounded trace of what was recalled and asked (`QuestionTrace`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..programs.call_recorder import Completion, PredictorCall
from ..records import Context, Failure, Hit

RECALL_AT = (5, 20)
SHOWN = "shown"
"""Evidence recall of what the task saw, the policy of the method included."""
CORRECT_THRESHOLD = 0.5
"""The score from which on an answer is counted as right."""
REASONS = {
    "right": "right",
    "missed": "wrong: no gold evidence recalled",
    "part": "wrong: part of the gold evidence recalled",
    "read": "wrong: all gold evidence recalled, answer incorrect",
    "prompted": "wrong: all gold evidence stood in the prompts, answer incorrect",
    "unknown": "wrong; the program does not report which evidence it recalled",
    "wrong": "wrong; the question has no evidence labels",
    "failed": "failed: no answer",
}
"""What became of a question, in words."""
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


class Entry(BaseModel, frozen=True):
    """One recalled entry."""

    line: str
    """As prompts show it."""
    kind: str
    sources: tuple[str, ...]
    """Ids of the turns that it finds; none of a summary, or of a fallback."""
    fallback: bool = False
    """Whether it was shown only because nothing was found."""


class LMCall(BaseModel, frozen=True):
    """One call of a predictor."""

    predictor: str
    outcome: str
    """How it ended: ok, repaired, retried, lost."""
    messages: tuple[tuple[str, str], ...]
    """The prompt, as role and text; of the last attempt where it was asked again."""
    answer: str
    error: str | None = None
    at: float = 0.0
    """Seconds from the beginning of the question to that of the call."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class Timings(BaseModel, frozen=True):
    """When the steps of a question were through, in seconds since it began; None for a step that it has not."""

    began: float
    """Seconds since the epoch."""
    remembered: float | None = None
    recalled: float | None = None
    answered: float | None = None


@dataclass
class Clock:
    """Takes the moments of one question, from now on."""

    began: float = field(default_factory=time.time)
    started: float = field(default_factory=time.perf_counter)
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, step: str, at: float | None = None) -> None:
        """Says that a step is through, now or at a time of `time.perf_counter`."""
        self.marks[step] = (time.perf_counter() if at is None else at) - self.started


class QuestionTrace(BaseModel, frozen=True):
    """How one answer came about: what was recalled and asked, and the evidence."""

    entries: tuple[Entry, ...] = ()
    evidence: dict[str, str] = {}
    """The gold evidence: turns by id, as prompts show them."""
    in_prompts: tuple[str, ...] | None = None
    """Ids of the gold evidence that stood in the inputs of the program's calls, where the program does not report which
    evidence it recalled; None where it does."""
    calls: tuple[LMCall, ...] = ()
    feedback: str = ""
    """What the metric said of the answer."""
    left_out: int = 0
    """Entries and calls beyond those that are kept."""
    moments: Timings | None = None
    """None in a run of before this was kept."""

    def is_gold(self, entry: Entry) -> bool:
        """Whether an entry rests on gold evidence."""
        return not self.evidence.keys().isdisjoint(entry.sources)

    @property
    def found(self) -> list[str]:
        """Ids of the gold evidence that was recalled."""
        recalled = {source for each in self.entries for source in each.sources}
        return [turn for turn in self.evidence if turn in recalled]

    @property
    def is_recall_known(self) -> bool:
        """Whether the program reports which of the evidence it recalled."""
        return self.in_prompts is None

    @property
    def was_prompted(self) -> bool:
        """Whether all gold evidence stood in a prompt, or was recalled, of a program that does not report all of it."""
        shown = {*self.found, *(self.in_prompts or ())}
        return bool(self.evidence) and self.evidence.keys() <= shown


class Row(BaseModel):
    """One question and what became of it."""

    # A score that is no number is refused where rows are added up, also where they come from a file.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    id: str
    group: str
    category: str
    in_headline: bool
    """Whether it is part of the headline score."""
    question: str
    gold: str
    answer: str
    score: float
    """0 where the question failed; failures are counted beside the score."""
    parts: dict[str, float]
    recall: dict[str, float]
    """Evidence recall by name, of what was shown and of the index by itself, e.g. {"shown": 0.5, "recall@5": 1.0}.

    Empty where the question names no evidence.
    """
    sources: tuple[str, ...]
    """Turns behind the recalled context, best first."""
    seconds: float
    hits: int = 0
    """Entries recalled."""
    context_tokens: int = 0
    """Length of the recalled context, as `records.estimate_tokens` counts."""
    prompt_tokens: int = 0
    """Prompt tokens of the calls that recalled and answered, as the endpoint counts them; writing memories is none."""
    recall_counts: dict[str, int] = {}
    """What the recall took, as the method counts it, e.g. {"calls": 4, "facts": 22}."""
    repeated_id: str = ""
    """An id that several entries of the context had, of a system of the user's; "" where all were different."""
    calls: int = 0
    """Calls that recalled and answered, wherever their answers came from."""
    output_tokens: int = 0
    """Generated by these calls."""
    cost: float | None = None
    """US dollars of these calls; None where a price is not known."""
    answering: float = 0.0
    """Seconds of recalling and answering, without waiting for the memory."""
    search: float | None = None
    """Milliseconds of the searches of a recall, without language models; None where nothing was searched."""
    search_cpu: float | None = None
    """Of them those of CPU, in the threads that searched."""
    failure: Failure | None = None
    trace: QuestionTrace | None = None
    """What people look at and no number rests on; the journal of a run keeps it, files of rows do not."""

    @property
    def right(self) -> bool:
        """Whether the answer is more right than wrong, where a count of right answers is asked for."""
        return self.failure is None and self.score >= CORRECT_THRESHOLD

    @property
    def hit(self) -> str:
        """How much of the gold evidence was recalled: all, part, none, or "" where nothing is known of it.

        Of a context of summaries alone, which shows no turn, the plain search of the memory tells.
        """
        if self.trace is not None and not self.trace.is_recall_known:
            return ""
        share = self.recall.get(SHOWN, self.recall.get(f"recall@{max(RECALL_AT)}"))
        if share is None:
            return ""
        return "all" if share >= 1 else "part" if share > 0 else "none"

    @property
    def reason(self) -> str:
        """What became of the question, as far as scores and evidence tell: a key of `REASONS`."""
        if self.failure is not None:
            return "failed"
        if self.right:
            return "right"
        if self.trace is not None and self.trace.evidence and not self.trace.is_recall_known:
            return "prompted" if self.trace.was_prompted else "unknown"
        return {"all": "read", "part": "part", "none": "missed", "": "wrong"}[self.hit]


def make_question_trace(
    example: Any,
    context: Context | None,
    calls: Sequence[PredictorCall],
    feedback: str,
    clock: Clock,
    in_prompts: Sequence[str] | None = None,
) -> QuestionTrace:
    """What a program saw of a benchmark's example.

    Args:
        example: The question.
        context: What was recalled; None where nothing could be.
        calls: What was asked, in program order.
        feedback: What the metric says of the answer.
        clock: Of the question.
        in_prompts: See `QuestionTrace.in_prompts`.
    """
    hits = context.hits if context else ()
    wanted = [str(id) for id in example.get("evidence_ids") or ()][:MOST_EVIDENCE]
    turns = example.history.turns if wanted else {}
    evidence = {id: turns[id][0].line(turns[id][1].time) if id in turns else "" for id in wanted}
    asked = [call for call in calls if call.completions or call.error]
    return QuestionTrace(
        entries=tuple(_entry(hit) for hit in hits[:MOST_ENTRIES]),
        evidence={id: shortened(line, ENTRY) for id, line in evidence.items()},
        in_prompts=None if in_prompts is None else tuple(id for id in evidence if id in in_prompts),
        calls=tuple(_asked(call, clock.started) for call in asked[-MOST_CALLS:]),
        feedback=shortened(feedback, ANSWER),
        left_out=max(0, len(hits) - MOST_ENTRIES) + max(0, len(asked) - MOST_CALLS),
        moments=Timings(began=clock.began, **clock.marks),
    )


def _entry(hit: Hit) -> Entry:
    finds_its_turns = hit.is_evidence and not hit.fallback
    return Entry(
        line=shortened(hit.line(), ENTRY),
        kind=hit.kind,
        sources=hit.sources if finds_its_turns else (),
        fallback=hit.fallback,
    )


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end with the number of characters between; halves of characters are mended."""
    if len(text) > most:
        head, tail = most * 3 // 4, most // 4
        text = f"{text[:head]} [... {len(text) - head - tail:,} characters left out ...] {text[-tail:]}"
    return text.encode("utf-8", "replace").decode()


def _asked(call: PredictorCall, began: float) -> LMCall:
    last = call.completions[-1] if call.completions else Completion((), "")
    # Of the texts of a prompt the last, the question's own, goes first; the others have room alike.
    own = [shortened(each["content"], PROMPT * 3 // 4) for each in last.messages[-1:]]
    room = (PROMPT - sum(map(len, own))) // max(1, len(last.messages) - 1)
    texts = [*(shortened(each["content"], room) for each in last.messages[:-1]), *own]
    return LMCall(
        predictor=str(getattr(call.predictor, "label", "")),
        outcome=call.outcome,
        messages=tuple((each["role"], text) for each, text in zip(last.messages, texts, strict=True)),
        answer=shortened(last.text, ANSWER),
        error=None if call.error is None else shortened(call.error, ANSWER),
        at=round(call.started - began, 6),
        seconds=round(call.usage.seconds, 6),
        input_tokens=int(call.usage.input_tokens),
        output_tokens=int(call.usage.output_tokens),
    )
