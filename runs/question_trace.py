"""How the answer to a question came about: what was recalled, the calls, and the gold evidence.

People read a `QuestionTrace` on the page of a run, and no score rests on it. So its texts and lists
are shortened to a bounded length.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import dspy
from pydantic import BaseModel

from ..programs.call_recorder import Completion, PredictorCall
from ..records import Context, Hit

MAX_ENTRIES = 50
"""Most recalled entries of a trace; the best ones are kept."""
MAX_EVIDENCE = 20
"""Most turns of gold evidence in a trace."""
MAX_CALLS = 12
"""Most calls of a trace; the last ones are kept, because the last one answered."""
MAX_ENTRY_LENGTH = 600
"""Most characters of an entry."""
MAX_PROMPT_LENGTH = 16_000
"""Most characters of the prompt of one call."""
MAX_ANSWER_LENGTH = 4_000
"""Most characters of an answer, and of other short texts."""


class Entry(BaseModel, frozen=True):
    """One recalled entry."""

    line: str
    """The entry as prompts show it."""
    kind: str
    sources: tuple[str, ...]
    """Ids of the turns that it finds; a summary or a fallback finds none."""
    fallback: bool = False
    """Whether it was shown only because the search found nothing."""


class LMCall(BaseModel, frozen=True):
    """One call of a predictor."""

    predictor: str
    outcome: str
    """How the call ended: ok, repaired, retried, lost."""
    messages: tuple[tuple[str, str], ...]
    """The prompt as pairs of role and text; the last one if there were several attempts."""
    answer: str
    error: str | None = None
    at: float = 0.0
    """Seconds from the beginning of the question to the beginning of the call."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class Timings(BaseModel, frozen=True):
    """When the steps of a question ended, in seconds since it began; None if a step did not end."""

    began: float
    """When the question began, in seconds since the epoch."""
    remembered: float | None = None
    recalled: float | None = None
    answered: float | None = None


Step = Literal["remembered", "recalled", "answered"]
"""A step of a question, named like its field of `Timings`."""


@dataclass
class Clock:
    """Measures the steps of one question, which begins when the clock is made."""

    began: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    started: float = field(default_factory=time.perf_counter)
    """The same moment on the clock of `time.perf_counter`."""
    marks: dict[Step, float] = field(default_factory=dict[Step, float])
    """When each step ended, in seconds since the beginning."""

    def mark(self, step: Step, at: float | None = None) -> None:
        """Record that a step has ended.

        Args:
            step: The step.
            at: When it ended, on the clock of `time.perf_counter`; now if None.
        """
        ended = time.perf_counter() if at is None else at
        self.marks[step] = ended - self.started

    def timings(self) -> Timings:
        """Return when the steps ended."""
        return Timings(began=self.began, **self.marks)


class QuestionTrace(BaseModel, frozen=True):
    """What was recalled and asked for one question, and its gold evidence."""

    entries: tuple[Entry, ...] = ()
    evidence: dict[str, str] = {}
    """The turns of the gold evidence by id, as prompts show them."""
    in_prompts: tuple[str, ...] | None = None
    """Ids of the gold evidence in the inputs of the program's calls.

    None if the program reports itself which evidence it recalled.
    """
    calls: tuple[LMCall, ...] = ()
    feedback: str = ""
    """What the metric said about the answer."""
    left_out: int = 0
    """How many entries and calls are not in the trace, because there were too many."""
    moments: Timings | None = None
    """When the steps ended; None in the file of a run that did not record it yet."""

    def is_gold(self, entry: Entry) -> bool:
        """Return whether an entry rests on gold evidence."""
        return not self.evidence.keys().isdisjoint(entry.sources)

    @property
    def recalled_evidence(self) -> list[str]:
        """Ids of the gold evidence that was recalled."""
        recalled_ids: set[str] = set()
        for entry in self.entries:
            recalled_ids.update(entry.sources)
        return [turn_id for turn_id in self.evidence if turn_id in recalled_ids]

    @property
    def is_recall_known(self) -> bool:
        """Whether the program reports which of the evidence it recalled."""
        return self.in_prompts is None

    @property
    def was_prompted(self) -> bool:
        """Whether all gold evidence was either recalled, as far as reported, or in a prompt."""
        shown_ids = {*self.recalled_evidence, *(self.in_prompts or ())}
        return bool(self.evidence) and self.evidence.keys() <= shown_ids


def make_question_trace(
    example: dspy.Example,
    context: Context | None,
    calls: Sequence[PredictorCall],
    feedback: str,
    clock: Clock,
    in_prompts: Sequence[str] | None = None,
) -> QuestionTrace:
    """Return the trace of a question.

    Args:
        example: The question.
        context: What was recalled; None if recalling failed.
        calls: All calls, in program order.
        feedback: What the metric says about the answer.
        clock: The clock of the question.
        in_prompts: Ids of the gold evidence in the prompts; None if it was not looked for, because
            the program reports what it recalled.
    """
    hits = context.hits if context else ()
    evidence = _evidence_lines(example)
    # A call that never reached a model, and did not fail, has nothing to show.
    model_calls = [call for call in calls if call.completions or call.error]
    num_left_out = max(0, len(hits) - MAX_ENTRIES) + max(0, len(model_calls) - MAX_CALLS)

    prompted_ids: tuple[str, ...] | None = None
    if in_prompts is not None:
        prompted_ids = tuple(turn_id for turn_id in evidence if turn_id in in_prompts)

    # Of too many entries the first ones are kept, because these are the best. Of too many calls the
    # last ones are, because the last one answered.
    return QuestionTrace(
        entries=tuple(_entry(hit) for hit in hits[:MAX_ENTRIES]),
        evidence=evidence,
        in_prompts=prompted_ids,
        calls=tuple(_lm_call(call, clock.started) for call in model_calls[-MAX_CALLS:]),
        feedback=shorten(feedback, MAX_ANSWER_LENGTH),
        left_out=num_left_out,
        moments=clock.timings(),
    )


def _evidence_lines(example: dspy.Example) -> dict[str, str]:
    """Return the gold evidence of a question: turns by id, as prompts show them.

    A turn that is not in the history has an empty line.
    """
    evidence_ids = [str(turn_id) for turn_id in example.get("evidence_ids") or ()]
    if not evidence_ids:
        return {}

    turns = example.history.turns
    lines: dict[str, str] = {}
    for turn_id in evidence_ids[:MAX_EVIDENCE]:
        line = ""
        if turn_id in turns:
            turn, item = turns[turn_id]
            line = turn.line(item.time)
        lines[turn_id] = shorten(line, MAX_ENTRY_LENGTH)
    return lines


def _entry(hit: Hit) -> Entry:
    """Return a hit as an entry of a trace, with the turns that it is credited with.

    A summary is credited with none, because it rests on no particular turns, and neither is a
    fallback, which is shown only because the search found nothing.
    """
    counts_for_recall = hit.is_evidence and not hit.fallback
    return Entry(
        line=shorten(hit.line(), MAX_ENTRY_LENGTH),
        kind=hit.kind,
        sources=hit.sources if counts_for_recall else (),
        fallback=hit.fallback,
    )


def _lm_call(call: PredictorCall, question_started: float) -> LMCall:
    """Return a call as a trace keeps it: its last attempt, with shortened texts."""
    last_attempt = call.completions[-1] if call.completions else Completion((), "")
    return LMCall(
        predictor=str(getattr(call.predictor, "label", "")),
        outcome=call.outcome,
        messages=_shorten_prompt(last_attempt.messages),
        answer=shorten(last_attempt.text, MAX_ANSWER_LENGTH),
        error=None if call.error is None else shorten(call.error, MAX_ANSWER_LENGTH),
        at=round(call.started - question_started, 6),
        seconds=round(call.usage.seconds, 6),
        input_tokens=int(call.usage.input_tokens),
        output_tokens=int(call.usage.output_tokens),
    )


def _shorten_prompt(messages: Sequence[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return pairs of role and text, shortened to about `MAX_PROMPT_LENGTH` characters together."""
    if not messages:
        return ()

    # The last message holds the question itself, so it may take most of the length.
    *earlier_messages, last_message = messages
    last_text = shorten(last_message["content"], MAX_PROMPT_LENGTH * 3 // 4)
    # The others share what is left in equal parts.
    max_length = (MAX_PROMPT_LENGTH - len(last_text)) // max(1, len(earlier_messages))

    prompt: list[tuple[str, str]] = []
    for message in earlier_messages:
        prompt.append((message["role"], shorten(message["content"], max_length)))
    prompt.append((last_message["role"], last_text))
    return tuple(prompt)


def shorten(text: str, max_length: int) -> str:
    """Return a text, or its beginning and end if it has more than `max_length` characters.

    Between the two stands how many characters were left out. Characters that UTF-8 cannot encode
    become question marks.
    """
    if len(text) > max_length:
        head = max_length * 3 // 4
        tail = max_length // 4
        num_left_out = len(text) - head - tail
        text = f"{text[:head]} [... {num_left_out:,} characters left out ...] {text[-tail:]}"
    # Half of a surrogate pair could not be written to a file.
    return text.encode("utf-8", "replace").decode()
