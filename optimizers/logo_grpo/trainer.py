"""The trainer behind DSPy's protocol: `lm.reinforce` gives a job, the groups of a step go in, its model changes.

A job takes all groups of a step at once, writes its checkpoints into a folder, and can be put back to one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import MempilerError, UserError
from ...text import one_line
from .groups import Group
from .settings import TrainingSettings


class Trainer:
    """A reinforcement-learning job.

    Args:
        lm: The language model to train.
        train_kwargs: What its provider is told; `num_generations` is added.
        settings: Group sizes and weights.
        folder: Where checkpoints and, at the end, the model are kept; a temporary one if None.

    Raises:
        UserError: The provider of the model cannot train, or not with these settings.
    """

    def __init__(
        self, lm: Any, train_kwargs: Mapping[str, Any], settings: TrainingSettings, folder: Path | None = None
    ) -> None:
        job = getattr(getattr(lm, "provider", None), "ReinforceJob", None)
        if not hasattr(job, "load_checkpoint"):
            raise UserError(f"{lm.model} cannot be trained here; use --lm local:NAME")
        self.kwargs = {"temperature": settings.temperature, **train_kwargs, "num_generations": settings.num_rollouts}
        if self.kwargs["temperature"] != settings.temperature:
            raise UserError(
                f"train_kwargs temperature = {self.kwargs['temperature']}, but rollouts are sampled at "
                f"{settings.temperature}; make them equal"
            )
        self._own: tempfile.TemporaryDirectory[str] | None = None
        if folder is None and "output_dir" not in self.kwargs:
            self._own = tempfile.TemporaryDirectory(prefix="mempiler-train-")
        self.kwargs = {"output_dir": str(folder or (self._own and self._own.name)), **self.kwargs}
        self.job = lm.reinforce(self.kwargs)

    def train(self, groups: Sequence[Group]) -> dict[str, float]:
        """Trains on the groups of one step, and says of it what the job says in numbers."""
        if not groups:
            return {}
        data = [group.data(number) for number, group in enumerate(groups)]
        said = self.job.step(data, TrainDataFormat.GRPO_CHAT)
        return {name: float(value) for name, value in asdict(said).items()}

    def save(self, name: str) -> str:
        """Saves a checkpoint, and returns its path; a UserError where it cannot be written."""
        with self._writing():
            self.job.save_checkpoint(name)
        return str(self.job.checkpoints[name])

    def begin_stage(self, checkpoint: str) -> None:
        """Puts the job back to a checkpoint, and makes the optimizer and the KL term's reference anew from there."""
        self.job.load_checkpoint(checkpoint)
        self.job.initialize()

    def drop(self, checkpoint: str) -> None:
        """Removes a checkpoint: a file, or a folder of sharded weights."""
        path = Path(checkpoint)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the job, which writes its model into the folder."""
        with self._writing():
            self.job.terminate()
        if self._own is not None:
            self._own.cleanup()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Reports a full disk in one line; torch and safetensors have their own errors for it."""
        try:
            yield
        except MempilerError:
            raise
        except Exception as error:
            where = self.kwargs.get("output_dir")
            raise UserError(f"{where}: cannot be written: {one_line(error, 120)}") from error
