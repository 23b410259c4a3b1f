"""What a compile gave: the scores that decided, the test scores, the candidates, and where the program is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..optimizers.history import Candidate
from .results import Evaluation
from .statistics import Difference


@dataclass(frozen=True)
class Compiled:
    """What a compile gave."""

    start: Evaluation
    result: Evaluation
    """The kept program on the test questions; equal to `start` without a gain."""
    dev: tuple[Evaluation, Evaluation | None]
    """Start and compiled program on the dev questions, which decided; None if the budget did not suffice."""
    difference: Difference
    promoted: bool
    program: Path
    candidates: tuple[Candidate, ...]
    usage: dict[str, Any]
    """Calls by role, tokens and cost of the whole run, optimizer and all scoring included."""
    stopped: str | None
    """The limit that was reached, if any."""
    run: Path
    run_id: str
    model: str | None = None
    """The name of the model whose weights were trained, as --lm takes it; None where none were."""

    def gate(self) -> dict[str, Any]:
        """What the kept program scored on the dev questions: what programs are compared by when one is registered."""
        found = self.dev[1] if self.promoted and self.dev[1] is not None else self.dev[0]
        scored = {"score": found.score, "n": found.n, "stopped": found.stopped}
        return {"split": "dev", **scored, "lm": found.lm, "judge": found.judge}

    def summary(self) -> dict[str, Any]:
        """The object `compile --json` prints."""
        found = self.difference.interval
        return {
            "start": self.start.summary(),
            "result": self.result.summary(),
            "difference": {
                "mean": self.difference.mean if self.start.n else None,
                "interval": None if found is None else [found.low, found.high],
                "interval_unit": None if found is None else found.unit,
                "p_sign": self.difference.p_sign,
            },
            "dev": {"start": self.dev[0].score, "result": self.dev[1].score if self.dev[1] else None},
            "promoted": self.promoted,
            "program": str(self.program),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "usage": self.usage,
            "stopped": self.stopped,
            "run": str(self.run),
            "run_id": self.run_id,
            "model": self.model,
        }
