"""Run the steps of a generated data set: ask, check the answer by code, ask again with complaints.

    runner = Runner(attempts=3, threads=8)

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftTurn]]:
        return accept_if_valid(answer.turns, dialogue_problems(answer.turns, facts))

    turns = runner.ask(Step("dialogue", WriteDialogue), "user0/q1", inputs, check)

A data set is a sequence of such steps, and all chance in it is drawn by seed. So a run whose
model's answers are kept is resumed by running it again, and a run with more attempts tries again
what was given up. The report holds every refused attempt.

Limits: an answer is checked for form, dates and mentions, not for being good.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import dspy

from ...reading.failures import concerns_prompt
from ...records.atomic_file import atomic_write
from ...text import one_line
from ..judge import ask_all

ItemT = TypeVar("ItemT")
ValueT = TypeVar("ValueT")

Outcome = Literal["retried", "given up", "left out", "kept"]
"""What became of something that was refused.

"retried": it was asked for again. "given up": no attempt is left. "left out": a part of an answer
is missing from the data. "kept": an error stays in the data.
"""


@dataclass(frozen=True)
class Step:
    """One kind of call."""

    name: str
    """How reports call it."""
    signature: type[dspy.Signature]
    """What it asks."""

    @property
    def prompt(self) -> type[dspy.Signature]:
        """The signature with a last input `complaints`: the problems of the attempt before."""
        complaints = dspy.InputField(
            desc="what was wrong with your last attempt and must be corrected; empty on the first "
            "attempt"
        )
        return self.signature.append("complaints", complaints, str)


@dataclass(frozen=True)
class CheckResult(Generic[ValueT]):
    """The result of checking an answer."""

    value: ValueT | None
    """What is kept of the answer; None refuses all of it."""
    problems: Sequence[str] = ()
    """What is wrong, in words for the model.

    A value with problems is a part of the answer: the problems tell why the rest was left out.
    """


Check = Callable[[dspy.Prediction], CheckResult[ValueT]]
"""Keeps an answer, keeps a part of it, or refuses it; deterministic."""


def accept_if_valid(value: ValueT, problems: Sequence[str]) -> CheckResult[ValueT]:
    """Keep a value that has no problems, and refuse any other."""
    if problems:
        return CheckResult(None, problems)
    return CheckResult(value)


@dataclass(frozen=True)
class Rejection:
    """Something that was refused."""

    step: str
    id: str
    problems: tuple[str, ...]
    outcome: Outcome


@dataclass
class Report:
    """What a run did, step by step."""

    calls: Counter[str] = field(default_factory=Counter[str])
    """Calls by step, refused answers and those of an earlier run included."""
    accepted: Counter[str] = field(default_factory=Counter[str])
    """Answers that passed, by step."""
    rejections: list[Rejection] = field(default_factory=list[Rejection])

    def count(self, step: str, outcome: Outcome) -> int:
        """Return how many rejections of a step had an outcome."""
        matching = [
            rejection
            for rejection in self.rejections
            if rejection.step == step and rejection.outcome == outcome
        ]
        return len(matching)


class Runner:
    """Run steps under the caller's `dspy.context`; safe under threads.

    Args:
        attempts: How often a step is asked before it is given up.
        threads: Calls in flight in `map`.
    """

    def __init__(self, attempts: int = 3, threads: int = 8) -> None:
        self.report = Report()
        self._attempts = attempts
        self._threads = threads
        self._lock = threading.Lock()
        self._interrupted = threading.Event()
        """Set when the user interrupts `map`; nothing is asked from then on."""

    def ask(
        self,
        step: Step,
        item_id: str,
        inputs: Mapping[str, Any],
        check: Check[ValueT],
        last_check: Check[ValueT] | None = None,
    ) -> ValueT | None:
        """Ask until an answer passes; each new attempt is told what was wrong with the last one.

        Args:
            step: What to ask.
            item_id: What it is for, in reports.
            inputs: The inputs of the signature, without `complaints`.
            check: Decides what of an answer is kept.
            last_check: Replaces `check` for the last attempt, to be milder where no other attempt
                would follow.

        Returns:
            What was kept; None if no attempt passed.

        Raises:
            LMError: The model failed.
            KeyboardInterrupt: The user interrupted `map`.
        """
        complaints: Sequence[str] = ()
        for attempt in range(1, self._attempts + 1):
            if self._interrupted.is_set():
                # `map` waits for the running jobs, and each of them could ask many times more.
                raise KeyboardInterrupt
            is_last = attempt == self._attempts
            attempt_check = last_check if is_last and last_check is not None else check
            shown_complaints = _with_attempt_number(complaints, attempt)
            with self._lock:
                self.report.calls[step.name] += 1
            result = self._attempt(step, inputs, shown_complaints, attempt_check)

            if result.value is not None:
                with self._lock:
                    self.report.accepted[step.name] += 1
                if result.problems:
                    # A part of the answer was kept; the problems are those of the rest.
                    self.reject(step.name, item_id, result.problems, "left out")
                return result.value

            complaints = result.problems
            self.reject(step.name, item_id, complaints, "given up" if is_last else "retried")
        return None

    def reject(
        self,
        step: str,
        item_id: str,
        problems: Sequence[str],
        outcome: Outcome = "left out",
    ) -> None:
        """Add something that was refused to the report.

        `ask` reports refused answers itself. The makers of data sets call this for what they leave
        out by other rules, e.g. a request that is too easy for a search.

        Args:
            step: The step that refused it.
            item_id: What was refused.
            problems: Why, one reason each.
            outcome: What became of it.
        """
        rejection = Rejection(step, item_id, tuple(problems), outcome)
        with self._lock:
            self.report.rejections.append(rejection)

    def map(self, job: Callable[[ItemT], ValueT], items: Sequence[ItemT]) -> list[ValueT]:
        """Do a job for every item on the runner's threads; the results are in order.

        Not to be nested. See `ask_all` for what happens when a job fails. If the user interrupts
        it, only the calls in flight are waited for, and the runner asks nothing more.
        """
        return ask_all(job, items, self._threads, self._interrupted)

    def _attempt(
        self,
        step: Step,
        inputs: Mapping[str, Any],
        complaints: Sequence[str],
        check: Check[ValueT],
    ) -> CheckResult[ValueT]:
        """Ask once and check the answer.

        An attempt is refused, too, if the model's answer cannot be read, is cut short or is missing
        because the model refused the prompt. Failures that would meet every prompt are raised.
        """
        predictor = dspy.Predict(step.prompt)
        complaint_lines = [f"- {complaint}" for complaint in complaints]
        try:
            answer = predictor(**inputs, complaints="\n".join(complaint_lines))
            return check(answer)
        except Exception as error:
            # An error that other prompts would not meet costs this attempt alone.
            if not concerns_prompt(error):
                raise
            reason = one_line(error, 300)
            return CheckResult(None, [f"no answer that can be read: {reason}"])


def _with_attempt_number(complaints: Sequence[str], attempt: int) -> Sequence[str]:
    """Return complaints to which the number of the attempt is added, from the third one on.

    If two attempts failed for the same reasons, their complaints are equal. The next prompt would
    repeat the last one, and a cache would give the last answer again.
    """
    if attempt <= 2:
        # The first prompt has no complaints, so the second one cannot repeat it.
        return complaints
    return [*complaints, f"this is attempt {attempt}"]


def write_json(path: Path, content: object) -> Path:
    """Write JSON to a file, whole or not at all, and return its path.

    The folder is created if it is not there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
    return path
