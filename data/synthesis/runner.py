"""Runs the steps of a generated data set: ask, check by code, ask again with the complaints.

A data set is a program of such steps, drawn by seed: a run whose model's answers are kept is resumed by running it
again, and more attempts then try again what was given up. The report holds every refused attempt.

Limits: an answer is checked for form, dates and mentions, not for being good. From the third attempt on its number is
among the complaints: the same complaints twice would be the same question, which a cache answers as before.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dspy

from ...reading.failures import concerns_prompt
from ...records.atomic_file import atomic_write
from ...text import one_line
from ..judge import ask_all

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One kind of call."""

    name: str
    """How reports call it."""
    signature: type[dspy.Signature]
    """What it asks."""

    @property
    def prompt(self) -> type[dspy.Signature]:
        """The signature with a last input `complaints`: what code found wrong with the last attempt."""
        field = dspy.InputField(
            desc="what was wrong with your last attempt and must be corrected; empty on the first attempt"
        )
        return self.signature.append("complaints", field, str)


@dataclass(frozen=True)
class CheckResult:
    """The result of checking an answer."""

    value: Any
    """What is kept; None refuses the answer."""
    problems: Sequence[str] = ()
    """What is wrong, in words for the model; beside a kept value, what was left out of it."""


Check = Callable[[dspy.Prediction], CheckResult]


def write_json(path: Path, content: Any) -> Path:
    """Writes JSON to a file, whole or not at all; its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
    return path


def accept_if_valid(output: str, problems: Callable[..., Sequence[str]], *about: Any) -> Check:
    """Keeps an output as it is where nothing is wrong with it, else nothing.

    Args:
        output: Its name.
        problems: Says of it what is wrong, in words for the model.
        *about: What that is told besides.
    """

    def check(answer: dspy.Prediction) -> CheckResult:
        found = problems(answer[output], *about)
        return CheckResult(None if found else answer[output], found)

    return check


@dataclass(frozen=True)
class Rejection:
    """Something that was refused."""

    step: str
    id: str
    problems: tuple[str, ...]
    outcome: str
    """"retried", "given up", "left out" for parts of a kept answer, or "kept" if an error stays in the data."""


@dataclass
class Report:
    """What a run did, step by step."""

    accepted: Counter[str] = field(default_factory=Counter)
    """Answers that passed, by step."""
    rejections: list[Rejection] = field(default_factory=list)

    def count(self, step: str, outcome: str) -> int:
        """How many rejections of a step ended so."""
        return sum(one.step == step and one.outcome == outcome for one in self.rejections)


class Runner:
    """Runs steps under the caller's `dspy.context`; safe under threads.

    Args:
        attempts: How often a step is asked before it is given up.
        threads: Calls in flight in `map`.
    """

    def __init__(self, attempts: int = 3, threads: int = 8) -> None:
        self.report = Report()
        self._attempts = attempts
        self._threads = threads
        self._lock = threading.Lock()

    def ask(
        self, step: Step, id: str, inputs: Mapping[str, Any], check: Check, last: Check | None = None
    ) -> Any | None:
        """Asks until an answer passes.

        Args:
            step: What to ask.
            id: What it is for, in reports.
            inputs: The signature's inputs, without `complaints`.
            check: Decides what of an answer is kept; deterministic.
            last: Says it of the last attempt's answer, where that is judged more mildly.

        Returns:
            What was kept; None when no attempt passed.

        Raises:
            LMError: The model failed.
        """
        complaints: Sequence[str] = ()
        for attempt in range(1, self._attempts + 1):
            told = [*complaints, f"this is attempt {attempt}"] if attempt > 2 else complaints
            checked = self._attempt(step, inputs, told, last if last and attempt == self._attempts else check)
            if checked.value is not None:
                with self._lock:
                    self.report.accepted[step.name] += 1
                if checked.problems:
                    self.reject(step.name, id, checked.problems, "left out")
                return checked.value
            complaints = checked.problems
            self.reject(step.name, id, complaints, "retried" if attempt < self._attempts else "given up")
        return None

    def reject(self, step: str, id: str, problems: Sequence[str], outcome: str = "left out") -> None:
        """Puts a rejection into the report; steps without a model (a threshold) call it themselves."""
        with self._lock:
            self.report.rejections.append(Rejection(step, id, tuple(problems), outcome))

    def map(self, job: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Runs a job for every item on the runner's threads, results in order; see `ask_all`."""
        return ask_all(job, items, self._threads)

    def _attempt(self, step: Step, inputs: Mapping[str, Any], complaints: Sequence[str], check: Check) -> CheckResult:
        predictor = dspy.Predict(step.prompt)
        try:
            return check(predictor(**inputs, complaints="\n".join(f"- {problem}" for problem in complaints)))
        except Exception as error:
            if not concerns_prompt(error):
                raise
            first = one_line(error, 300)
            return CheckResult(None, [f"no answer that can be read: {first}"])
