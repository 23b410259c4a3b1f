"""The journal of a training: what a killed training resumes from, stored beside its checkpoints.

The journal is written right after a checkpoint, in one piece, so it never names weights that are
not there. Steps after it are done again. With one thread they are the same steps; with several, the
batches of an engine, and so its rounding, depend on timing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...records import read_json
from ...records.atomic_file import atomic_write

FILE = "train.json"

NO_VARIANCE = (
    "nothing was learned: in every group all members were rewarded alike; begin with a model that "
    "is right now and then, or raise num_rollouts, local_n or the temperature"
)
NO_GROUP = "nothing was learned: there was no group to compare; raise local_fraction or steps"
START_WAS_BEST = (
    "no checkpoint had a better sampled validation score than the start: its weights were kept"
)

Row = Mapping[str, float]
"""The numbers of one step, or of one validation, by name."""


@dataclass(frozen=True)
class Best:
    """The best checkpoint of a stage."""

    step: int
    score: float
    """The validation score with sampled answers, a mean over the samples."""
    checkpoint: str


@dataclass(frozen=True)
class Progress:
    """The state of a training between two steps."""

    step: int = 0
    """Steps done."""
    stage: int = 0
    """The stage, counted from 0."""
    stage_steps: int = 0
    """Steps done in this stage."""
    tokens: int = 0
    """Tokens generated for training."""
    checkpoint: str | None = None
    """Where the training resumes: a path, or a name where the trainer keeps it."""
    saved_step: int = -1
    """The step of the last checkpoint that was saved."""
    stage_start: str | None = None
    """The checkpoint that the stage began from."""
    best: Best | None = None
    """The best checkpoint of the stage; None before its first validation."""
    rows: tuple[Row, ...] = ()
    """The numbers of each step and each validation, in order."""
    stopped: str | None = None
    """Why the training ended early."""
    done: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    """What decides the training, as JSON."""

    def with_row(self, row: Row) -> Progress:
        """Return the state with one more row."""
        return replace(self, rows=(*self.rows, row))

    def checkpoints(self) -> set[str]:
        """Return the checkpoints that the state names."""
        checkpoints: set[str] = set()
        if self.checkpoint is not None:
            checkpoints.add(self.checkpoint)
        if self.stage_start is not None:
            checkpoints.add(self.stage_start)
        if self.best is not None:
            checkpoints.add(self.best.checkpoint)
        return checkpoints

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result has to know besides the scores, a line each."""
        notes: list[str] = []
        if self.stopped:
            notes.append(self.stopped)

        note = self._why_nothing_was_learned()
        if note is None:
            note = self._note_about_best()
        if note is not None:
            notes.append(note)
        return tuple(notes)

    def _note_about_best(self) -> str | None:
        """Return what is surprising about the checkpoint that is kept; None if nothing is."""
        if self.best is None:
            return None
        if self.best.step == 0 and self.step > 0:
            return START_WAS_BEST

        # Stages do not compete: the best checkpoint of the last stage is kept, even if one of an
        # earlier stage scored higher.
        highest_score = self._highest_validation()
        if highest_score > self.best.score:
            return (
                "the best checkpoint of the last stage was kept, with a validation score of "
                f"{self.best.score:.3f}; an earlier stage had one of {highest_score:.3f}"
            )
        return None

    def _why_nothing_was_learned(self) -> str | None:
        """Return why no step had a group to learn from.

        None if a step had one, or if there was no step yet.
        """
        # The other rows are those of validations.
        step_rows = [row for row in self.rows if "groups_global" in row]
        groups_to_learn_from = 0.0
        groups_without_variance = 0.0
        for row in step_rows:
            groups_to_learn_from += row["groups_global"] + row["groups_local"]
            groups_without_variance += row["no_variance_global"] + row["no_variance_local"]

        if not step_rows or groups_to_learn_from > 0:
            return None
        return NO_VARIANCE if groups_without_variance > 0 else NO_GROUP

    def _highest_validation(self) -> float:
        return max(row["validation"] for row in self.rows if "validation" in row)


class Journal:
    """The journal of one training.

    Args:
        folder: Where it is kept; None keeps nothing.
        settings: What decides the training; a journal of other settings is refused.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        # As JSON, because they are compared with what a file holds.
        self._settings: dict[str, Any] = json.loads(json.dumps(settings, default=str))

    def read(self) -> Progress:
        """Return what was written last; a fresh start if there is no journal.

        Raises:
            UserError: It is the journal of a training with other settings, or by another version.
            DataError: The file cannot be read (`read_json`).
        """
        if self._folder is None or not (self._folder / FILE).is_file():
            return Progress(settings=self._settings)

        state = read_json(self._folder / FILE)
        self._check_settings(state.get("settings", {}))
        try:
            best = Best(**state["best"]) if state.get("best") else None
            return Progress(**{**state, "best": best, "rows": tuple(state["rows"])})
        except (KeyError, TypeError) as error:
            # Another version wrote other fields than these classes have.
            raise UserError(
                f"{self._folder}: was trained by another version; use another folder"
            ) from error

    def _check_settings(self, stored: Mapping[str, Any]) -> None:
        """Refuse the journal of a training with other settings."""
        for name in sorted({*stored, *self._settings}):
            before = stored.get(name)
            now = self._settings.get(name)
            if before != now:
                raise UserError(
                    f"{self._folder}: was trained with {name} = {before!r}, not {now!r}; "
                    "go on with the same settings, or use another folder"
                )

    def write(self, progress: Progress) -> None:
        """Replace the journal in one piece."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._folder / FILE) as file:
            json.dump(asdict(progress), file, ensure_ascii=False)
