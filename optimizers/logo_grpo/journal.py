"""The progress of a training, stored beside its checkpoints: where a killed run resumes.

The journal is written right after a checkpoint, in one piece, so that it never names weights that are not there. Steps
after it are done again, as they were: with one thread; with several the batches of an engine, and rounding, depend on
timing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...records import read_json
from ...records.atomic_file import atomic_write

FILE = "train.json"

NO_VARIANCE = (
    "nothing was learned: in every group all members were rewarded alike; begin with a model that is right now and "
    "then, or raise num_rollouts, local_n or the temperature"
)
NO_GROUP = "nothing was learned: there was no group to compare; raise local_fraction or steps"


@dataclass(frozen=True)
class Best:
    """A validated checkpoint."""

    step: int
    score: float
    """Sampled, mean over the samples."""
    checkpoint: str


@dataclass(frozen=True)
class Progress:
    """State of a training between two steps."""

    step: int = 0
    """Steps done."""
    stage: int = 0
    stage_steps: int = 0
    tokens: int = 0
    """Tokens generated for training."""
    checkpoint: str | None = None
    """Where training resumes: a path, or a name where the trainer keeps it."""
    saved_step: int = -1
    """The step of the last checkpoint that was saved."""
    stage_start: str | None = None
    """The checkpoint that the stage began from."""
    best: Best | None = None
    """The best checkpoint of the stage; None before its first validation."""
    rows: tuple[dict[str, Any], ...] = ()
    """One per step and validation."""
    stopped: str | None = None
    """Why it ended early."""
    done: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def with_row(self, **row: Any) -> Progress:
        """With one more row."""
        return replace(self, rows=(*self.rows, row))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the result has to know besides the scores, a line each."""
        found = [self.stopped] if self.stopped else []
        trained = [row for row in self.rows if "groups_global" in row]
        if trained and not any(row["groups_global"] + row["groups_local"] for row in trained):
            found.append(NO_VARIANCE if any(map(_unvaried, trained)) else NO_GROUP)
        elif self.best is not None and self.best.step == 0 < self.step:
            found.append("no checkpoint had a better sampled validation score than the start: its weights were kept")
        elif self.best is not None and self._highest_validation > self.best.score:
            found.append(
                f"an earlier stage scored {self._highest_validation:.3f} on the validation questions, the best of the "
                f"last stage, which was kept, {self.best.score:.3f}"
            )
        return tuple(found)

    @property
    def _highest_validation(self) -> float:
        return max(row["validation"] for row in self.rows if "validation" in row)


def _unvaried(row: dict[str, Any]) -> float:
    return row["no_variance_global"] + row["no_variance_local"]


class Journal:
    """The journal of one training.

    Args:
        folder: Where it is kept; None keeps nothing.
        settings: What decides the training; a journal of other settings is refused.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = json.loads(json.dumps(settings, default=str))

    def read(self) -> Progress:
        """What was written last; a fresh start if there is none.

        Raises:
            UserError: It is the journal of a training with other settings.
            DataError: It cannot be read.
        """
        if self._folder is None or not (self._folder / FILE).is_file():
            return Progress(settings=self._settings)
        found = read_json(self._folder / FILE)
        before = found.get("settings", {})
        for name in sorted({*before, *self._settings}):
            if before.get(name) != self._settings.get(name):
                raise UserError(
                    f"{self._folder}: was trained with {name} = {before.get(name)!r}, not "
                    f"{self._settings.get(name)!r}; go on with the same settings, or use another folder"
                )
        best = Best(**found["best"]) if found.get("best") else None
        try:
            return Progress(**{**found, "best": best, "rows": tuple(found["rows"])})
        except TypeError as error:
            raise UserError(f"{self._folder}: was trained by another version; use another folder") from error

    def write(self, progress: Progress) -> None:
        """Replaces the journal at once."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._folder / FILE) as file:
                json.dump(asdict(progress), file, ensure_ascii=False)
