"""Records the candidates that an optimizer tried, with their scores.

Optimizers score candidates through `dspy.Evaluate`, whose calls a DSPy callback sees; SIMBA does not, so its own logs
are read when it is done. The best candidate that was scored in full is kept as a program, in case the budget ends, or
the optimizer breaks, before it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..errors import MempilerError
from ..programs.program import MemoryProgram
from ..text import one_line
from .proposals import ATTEMPTS, Proposals


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


class CandidateHistory(BaseCallback):
    """Collects candidates while an optimizer runs; thread-safe.

    Args:
        meter: Counts the run's calls.
        attempts: How often a proposal is sampled before it is given up.
        told: Told after every question that is asked, of `most`.
    """

    def __init__(self, meter: Meter, attempts: int = ATTEMPTS, told: Callable[[int, int], None] | None = None) -> None:
        self.candidates: list[Candidate] = []
        self.proposals = Proposals(attempts)
        self.ended: str | None = None
        """What ended the optimizer before its time, in one line; None where nothing did, or a limit."""
        self.notes: list[str] = []
        """What else a user should know of the result, a line each."""
        self.trained: MeteredLM | None = None
        """The LM with trained weights that the compiled program needs; None where no weights were trained."""
        self._meter = meter
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Any, int]] = {}
        self._best: tuple[int, float, MemoryProgram] | None = None
        self._progress, self._asked = told, 0
        self.most = 0
        """How often the optimizer asks a question at most, as plans have it; 0 where that is not known."""

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Counts the questions that are asked."""
        if not isinstance(instance, MemoryProgram):
            return
        with self._lock:
            self._asked += 1
            asked = self._asked
        if self._progress is not None and self.most:
            self._progress(min(asked, self.most), self.most)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remembers which program an evaluation scores."""
        usage = self._meter.read()
        with self._lock:
            self._open[call_id] = (inputs.get("program"), usage.failed)

    def on_evaluate_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Adds the candidate; evaluations with failed calls do not count for a rescue."""
        with self._lock:
            program, failed = self._open.pop(call_id, (None, 0))
        if outputs is None or exception is not None or not outputs.results:
            return
        n, score = len(outputs.results), outputs.score / 100
        self.add(score, n)
        answered = all(_answered(prediction) for _, prediction, _ in outputs.results)
        whole = answered and self._meter.read().failed == failed
        if whole and isinstance(program, MemoryProgram):
            with self._lock:
                if self._best is None or (n, score) > self._best[:2]:
                    self._best = (n, score, program.deepcopy())

    def end(self, error: Exception) -> None:
        """Remembers what ended the optimizer before its time; errors of ours have a meaning of their own."""
        if not isinstance(error, MempilerError):
            self.ended = _in_one_line(error)

    def note(self, line: str) -> None:
        """Adds a note, once."""
        with self._lock:
            if line not in self.notes:
                self.notes.append(line)

    def spent(self) -> int:
        """Calls so far, those that failed or were answered from an earlier run included."""
        usage = self._meter.read()
        return sum(usage.calls.values()) + usage.cached + usage.failed

    def add(self, score: float, n: int) -> None:
        """Adds a scored candidate."""
        usage = self._meter.read()
        with self._lock:
            number = len(self.candidates) + 1
            calls = sum(usage.calls.values())
            self.candidates.append(Candidate(number, float(score), n, calls, usage.cost))

    def best(self) -> MemoryProgram | None:
        """The best of the candidates that were scored on the most questions, none of which failed."""
        return self._best[2] if self._best is not None else None


def _in_one_line(error: BaseException) -> str:
    """An error in one line; an assertion without words says what it came from."""
    if isinstance(error, AdapterParseError):
        return "a proposal could not be read"
    if not str(error) and error.__context__ is not None:
        return _in_one_line(error.__context__)
    words = one_line(error, 200)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _answered(prediction: Any) -> bool:
    """Whether a program answered; GEPA's evaluations wrap predictions in tuples with their traces."""
    found = prediction[0] if isinstance(prediction, tuple) else prediction
    return bool(hasattr(found, "keys") and found.keys())
