"""The candidates an optimizer tried, with their scores: what curves, budgets and rescues are made from.

Optimizers score candidates through `dspy.Evaluate`, whose calls a DSPy callback sees; SIMBA does not, so its own logs
are read when it is done. The best candidate that was scored in full is kept as a program, in case the budget ends
before the optimizer does.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

from dspy.utils.callback import BaseCallback

from ..engines.meter import Meter, MeteredLM
from ..programs.program import MemoryProgram


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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


class CandidateHistory(BaseCallback):
    """Collects candidates while an optimizer runs; thread-safe.

    Args:
        meter: Counts the run's calls.
    """

    def __init__(self, meter: Meter) -> None:
        self.candidates: list[Candidate] = []
        self.trained: MeteredLM | None = None
        """The LM with trained weights that the compiled program needs; None where no weights were trained."""
        self._meter = meter
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Any, int]] = {}
        self._best: tuple[int, float, MemoryProgram] | None = None

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
            self._keep(n, score, program)

    def add(self, score: float, n: int) -> None:
        """Adds a scored candidate."""
        usage = self._meter.read()
        with self._lock:
            number = len(self.candidates) + 1
            calls = sum(usage.calls.values())
            self.candidates.append(Candidate(number, float(score), n, calls, usage.cost))

    def best(self) -> MemoryProgram | None:
        """The best of the candidates that were scored on the most questions, none of which failed."""
        return self._best[2] if self._best else None

    def _keep(self, n: int, score: float, program: MemoryProgram) -> None:
        with self._lock:
            if self._best is None or (n, score) > self._best[:2]:
                self._best = (n, score, program.deepcopy())


def _answered(prediction: Any) -> bool:
    """Whether a program answered; GEPA's evaluations wrap predictions in tuples with their traces."""
    found = prediction[0] if isinstance(prediction, tuple) else prediction
    return bool(hasattr(found, "keys") and found.keys())
