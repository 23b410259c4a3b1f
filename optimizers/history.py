"""Records the candidates that an optimizer tried, with their scores.

Optimizers score candidates through `dspy.Evaluate`, which calls DSPy's callbacks. SIMBA does not,
so its own logs are read when it is done (`add_simba_scores`).

The best candidate that was scored in full is kept as a program. It is the result if the budget
ends, or the optimizer breaks, before it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..errors import MempilerError
from ..programs.program import MemoryProgram
from ..text import one_line
from .frontier import FrontierPoint
from .prompt_rules import PromptRules
from .proposals import ATTEMPTS, Proposals

_MAX_ERROR_CHARACTERS = 200


@dataclass(frozen=True)
class Candidate:
    """One scored candidate."""

    number: int
    score: float
    """Mean score, 0 to 1."""
    n: int
    """Questions it was scored on."""
    calls: int
    """LM calls of the run up to then."""
    cost: float
    """US dollars that the run cost up to then."""


@dataclass(frozen=True)
class _RunningEvaluation:
    """An evaluation that has begun."""

    program: Any
    failed_calls: int
    """Failed calls of the run before it began."""


@dataclass(frozen=True)
class _BestCandidate:
    """The program that is the result if the optimizer does not return one."""

    question_count: int
    """Questions it was scored on."""
    score: float
    program: MemoryProgram


class CandidateHistory(BaseCallback):
    """Collects candidates while an optimizer runs; safe under threads.

    Args:
        meter: Counts the run's calls.
        attempts: How often one request is made before its proposal is given up.
        on_progress: Called after every question that the optimizer asks, with the number of
            questions so far and the most that it may ask.
    """

    def __init__(
        self,
        meter: Meter,
        attempts: int = ATTEMPTS,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.candidates: list[Candidate] = []
        self.proposals = Proposals(attempts)
        self.failure: str | None = None
        """The error that ended the optimizer early, in one line; None for a limit or no error."""
        self.rules: PromptRules | None = None
        """What the prompts of candidates must not be; None if there are no rules."""
        self.refusal: str | None = None
        """The rule that the compiled program breaks, in one sentence; None if none."""
        self.frontier: list[FrontierPoint] = []
        """The candidates of GEPA by score and tokens; empty for other optimizers."""
        self.notes: list[str] = []
        """What else a user should know about the result, a line each."""
        self.trained_lm: MeteredLM | None = None
        """The LM with trained weights that the compiled program needs; None if there is none."""
        self.max_questions = 0
        """How many questions the optimizer asks at most; 0 if that is not known."""

        self._meter = meter
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._asked_questions = 0
        self._running: dict[str, _RunningEvaluation] = {}
        self._best: _BestCandidate | None = None

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count a question that is asked, and report the progress."""
        if not isinstance(instance, MemoryProgram):
            return
        with self._lock:
            self._asked_questions += 1
            question_count = min(self._asked_questions, self.max_questions)
        if self._on_progress is not None and self.max_questions:
            self._on_progress(question_count, self.max_questions)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember which program is scored; one that breaks a rule answers nothing."""
        program = inputs.get("program")
        if self.rules is not None and isinstance(program, MemoryProgram):
            program.refusal = self.rules.refuse_program(program)
        failed_calls = self._meter.read().failed
        with self._lock:
            self._running[call_id] = _RunningEvaluation(program, failed_calls)

    def on_evaluate_end(
        self, call_id: str, outputs: Any | None, exception: BaseException | None = None
    ) -> None:
        """Add the candidate, and keep its program if it is the best so far.

        An evaluation with failed calls is no fair comparison, so its program is not kept.
        """
        with self._lock:
            running = self._running.pop(call_id, None)
        if outputs is None or exception is not None or not outputs.results:
            return
        program = None if running is None else running.program
        if isinstance(program, MemoryProgram) and program.refusal is not None:
            # It answered nothing, so it has no score.
            return

        question_count = len(outputs.results)
        # `dspy.Evaluate` returns percent.
        score = outputs.score / 100
        self.add(score, question_count)

        if running is None or not isinstance(program, MemoryProgram):
            return
        all_answered = all(_is_answer(prediction) for _, prediction, _ in outputs.results)
        has_failures = self._meter.read().failed != running.failed_calls
        if not all_answered or has_failures:
            return
        with self._lock:
            best = self._best
            # A candidate that was scored on more questions is better, whatever the scores: a high
            # score on a minibatch says little.
            if best is None or (question_count, score) > (best.question_count, best.score):
                self._best = _BestCandidate(question_count, score, program.deepcopy())

    def set_failure(self, error: Exception) -> None:
        """Remember the error that ended the optimizer early.

        Errors of ours, such as a limit that was reached, are reported elsewhere.
        """
        if not isinstance(error, MempilerError):
            self.failure = _line_of_error(error)

    def note(self, line: str) -> None:
        """Add a note, unless it is there already."""
        with self._lock:
            if line not in self.notes:
                self.notes.append(line)

    def set_rules(self, rules: PromptRules) -> None:
        """Set what proposals, and the prompts of candidates, must not be."""
        self.rules = rules
        self.proposals.rules = rules

    def add_frontier(self, points: Sequence[FrontierPoint]) -> None:
        """Add the candidates of one run of GEPA; their numbers go on from those before."""
        offset = len(self.frontier)
        for point in points:
            parents = tuple(offset + parent for parent in point.parents)
            self.frontier.append(replace(point, number=offset + point.number, parents=parents))

    def count_calls(self) -> int:
        """Return all calls so far, with those that failed or were answered from an earlier run."""
        usage = self._meter.read()
        return sum(usage.calls.values()) + usage.cached + usage.failed

    def add(self, score: float, n: int) -> None:
        """Add a candidate with a mean score of 0 to 1 on `n` questions."""
        usage = self._meter.read()
        calls = sum(usage.calls.values())
        with self._lock:
            number = len(self.candidates) + 1
            self.candidates.append(Candidate(number, float(score), n, calls, usage.cost))

    def add_simba_scores(self, compiled: Any, n: int) -> None:
        """Add the candidates that SIMBA scored, from the logs of the program that it returned.

        SIMBA does not score with `dspy.Evaluate`, so `on_evaluate_end` does not see its candidates.
        Nothing is added for the program of another optimizer.

        Args:
            compiled: The program that an optimizer returned.
            n: The number of questions on which SIMBA scores each candidate.
        """
        trial_logs = getattr(compiled, "trial_logs", {})
        for log in trial_logs.values():
            # MIPROv2 also attaches `trial_logs`, but without a "train_score".
            if isinstance(log, dict) and "train_score" in log:
                self.add(log["train_score"], n)

    def best(self) -> MemoryProgram | None:
        """Return the best of the candidates that were scored on the most questions."""
        return None if self._best is None else self._best.program


def _line_of_error(error: BaseException) -> str:
    """Return an error in one line; an empty one is replaced by the error before it."""
    if isinstance(error, AdapterParseError):
        return "a proposal could not be read"
    if not str(error) and error.__context__ is not None:
        return _line_of_error(error.__context__)
    type_name = type(error).__name__
    message = one_line(error, _MAX_ERROR_CHARACTERS)
    return f"{type_name}: {message}" if message else type_name


def _is_answer(prediction: Any) -> bool:
    """Return whether a program answered."""
    if isinstance(prediction, tuple):
        # GEPA's evaluations have predictions in tuples with their traces.
        prediction = prediction[0]
    return bool(hasattr(prediction, "keys") and prediction.keys())
