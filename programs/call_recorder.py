"""What a recording holds: the calls of predictors, failures, and what was recalled.

`recording.recording` fills a `CallRecorder`; experiments and optimizers read it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import dspy

from ..engines.usage import Usage
from ..memory.search.timing import SearchTime
from ..records import Context, Failure, Hit
from .recalled import Recalled

Prompt = str | Sequence[Mapping[str, Any]] | None
"""What a model is asked: messages of role and content, or a text."""


@dataclass(frozen=True)
class Completion:
    """One raw completion of a language model."""

    messages: tuple[dict[str, str], ...]
    """The prompt as messages of role and content."""
    text: str
    sample: Any = None
    """The engine's record of it (token ids, log-probabilities), if the engine keeps one."""


@dataclass
class PredictorCall:
    """One call of a predictor."""

    predictor: Any
    inputs: dict[str, Any]
    prediction: dspy.Prediction | None = None
    """What was parsed; None if nothing could be."""
    completions: list[Completion] = field(default_factory=list[Completion])
    """Raw completions, if the recorder keeps them."""
    error: str | None = None
    """Why the last completion could not be read."""
    rejected_operations: int = 0
    """How many operations of the answer code refused, such as those on an unknown id."""
    fault_counts: Counter[str] = field(default_factory=Counter[str])
    """What was wrong with the answers, by kind: repairs, retries, and why the call failed."""
    retried: bool = False
    failed: bool = False
    order: tuple[int, ...] = ()
    """Place in program order."""
    started: float = field(default_factory=time.perf_counter)
    """When it began, on the clock of `time.perf_counter`."""
    usage: Usage = field(default_factory=Usage)
    """What all attempts together used."""

    @property
    def outcome(self) -> Literal["ok", "repaired", "retried", "lost"]:
        """How the answer was read: at once, after repairs, after asking again, or not at all."""
        if self.failed:
            return "lost"
        if self.retried:
            return "retried"
        if self.fault_counts:
            return "repaired"
        return "ok"

    def add_completions(
        self, prompt: Prompt, answers: Sequence[Any], samples: Sequence[Any] = ()
    ) -> None:
        """Keep the answers to a prompt as the model wrote them.

        Args:
            prompt: What the model was asked.
            answers: The answers as DSPy returns them: texts, or dictionaries with a "text".
            samples: Records that a local model keeps of the same answers, with their token ids;
                empty for other models.
        """
        messages = plain_messages(prompt)

        # A sample has the text of its answer too, so the answers themselves are not needed.
        if samples:
            for sample in samples:
                self.completions.append(Completion(messages, sample.text, sample))
            return

        for answer in answers:
            text = answer.get("text") if isinstance(answer, dict) else answer
            # A model that only calls a tool answers without a text.
            self.completions.append(Completion(messages, str(text or "")))


class RecordedRecall(NamedTuple):
    """What was recalled for a question, and when."""

    at: float
    """On the clock of `time.perf_counter`."""
    recalled: Recalled


class RankedHits(NamedTuple):
    """The hits of a plain search, at least as many as a recorder asked for."""

    reader: Any
    """The reader that searched."""
    hits: list[Hit]


class ShownContext(NamedTuple):
    """A context that was recalled, and what the prompt showed of it."""

    recalled: Context
    shown: Context
    """The same hits, with a date beside each relative date if that is set."""


@dataclass
class CallRecorder:
    """What one recording holds; several threads may add to it at the same time."""

    keep_completions: bool = False
    """Whether raw completions are kept, with the records of a local model."""
    ranking_depth: int = 0
    """How many hits of a plain search are wanted, beside those that are recalled."""
    calls: list[PredictorCall] = field(default_factory=list[PredictorCall])
    """The calls; in program order once the recording has ended."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """Failures that methods recorded instead of raising; sorted once the recording has ended."""
    recalled: list[RecordedRecall] = field(default_factory=list[RecordedRecall])
    """What was recalled, also where no answer came of it."""
    searches: list[SearchTime] = field(default_factory=list[SearchTime])
    """What the parts of each search took."""
    ranked: RankedHits | None = None
    """The last ranking of a plain search."""
    shown_context: ShownContext | None = None
    """The last context that a prompt showed."""

    def add_rejected(self, predictor: Any, count: int) -> None:
        """Record that code refused operations which a predictor's latest answer asked for.

        Args:
            predictor: The predictor.
            count: How many operations were refused, e.g. the update of an unknown fact.
        """
        for call in reversed(self.calls):
            if call.predictor is predictor:
                call.rejected_operations += count
                return

    def sort(self) -> None:
        """Put calls into program order, and failures into an order that timing does not change."""
        self.calls.sort(key=lambda call: call.order)
        self.failures.sort(key=lambda failure: (failure.where, failure.message))


def plain_messages(prompt: Prompt) -> tuple[dict[str, str], ...]:
    """Return a prompt as messages with a text each; images are left out.

    Args:
        prompt: A text, which becomes one message of the user; or messages, or None for no message.
    """
    if prompt is None:
        return ()
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)

    messages: list[dict[str, str]] = []
    for message in prompt:
        content = message.get("content")
        # A message with an image has its content as a list of parts.
        if isinstance(content, list):
            content = "".join(_text_of_part(part) for part in content)
        messages.append({"role": str(message["role"]), "content": str(content or "")})
    return tuple(messages)


def _text_of_part(part: Any) -> str:
    """Return the text of one part of a message; an image has none."""
    if isinstance(part, dict):
        return part.get("text", "")
    return str(part)
