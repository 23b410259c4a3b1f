"""What a compile gave: the scores that decided, the test scores, the candidates, and where the program is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..optimizers.history import Candidate
from .promotion import Promotion
from .results import Evaluation
from .statistics import Difference


@dataclass(frozen=True)
class Troubles:
    """What an optimizer went through that the run outlived."""

    optimizer: str
    ended: str | None
    """What ended it before its time; None where nothing did, or a limit."""
    unreadable: int
    """Answers of the prompt LM that could not be read."""
    given_up: int
    """Proposals that could not be read after the last attempt."""

    rescued: bool
    """Whether a candidate had been scored by then, which goes on in place of a result."""
    notes: tuple[str, ...] = ()
    """What else there is to know of the demos, a line each."""

    def lines(self, run: str) -> list[str]:
        """What tables say of it, one line each.

        Args:
            run: The run that can be resumed.
        """
        found, again = [], f"--resume {run} tries again"
        if self.ended is not None:
            taken = "the best candidate so far" if self.rescued else "no candidate was scored yet, so the start"
            found.append(f"{self.optimizer} ended before its time ({self.ended}): {taken} goes on; {again}")
        if self.unreadable:
            rest = f", {self.given_up} proposals were given up; {again}" if self.given_up else ""
            found.append(f"{self.unreadable} answers of the prompt LM could not be read{rest}")
        return [*found, *self.notes]


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
    model: str | None
    """The name of the model whose weights were trained, as --lm takes it; None where none were."""
    decided: Promotion
    """What the dev questions say of the compiled program."""
    troubles: Troubles

    @property
    def refused(self) -> str | None:
        """Why the start was kept; None where the compiled program was."""
        return None if self.promoted else self.decided.refused

    def gate(self) -> dict[str, Any]:
        """What the kept program scored on the dev questions: what programs are compared by when one is registered.

        Scores are in the order of the split, groups are numbered: no id of a user leaves the run.
        """
        found = self.dev[1] if self.promoted and self.dev[1] is not None else self.dev[0]
        scored = {"score": found.score, "n": found.n, "min_n": self.difference.min_n, "stopped": found.stopped}
        groups = list(dict.fromkeys(row.group for row in found.counted))
        rows = {
            "scores": [row.score for row in found.counted],
            "groups": [groups.index(row.group) for row in found.counted],
        }
        return {"split": "dev", **scored, "lm": found.lm, "judge": found.judge, **rows}

    def summary(self) -> dict[str, Any]:
        """The object `compile --json` prints."""
        return {
            "start": self.start.summary(),
            "result": self.result.summary(),
            "difference": self.difference.to_dict(),
            "dev": {"start": self.dev[0].score, "result": self.dev[1].score if self.dev[1] else None},
            "dev_difference": None if self.decided.gain is None else self.decided.gain.to_dict(),
            "promoted": self.promoted,
            "refused": self.refused,
            "program": str(self.program),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "usage": self.usage,
            "stopped": self.stopped,
            "optimizer": asdict(self.troubles),
            "run": str(self.run),
            "run_id": self.run_id,
            "model": self.model,
        }
