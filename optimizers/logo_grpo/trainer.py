"""The training job behind DSPy's protocol: groups go in, and the weights of the model change.

    job = lm.reinforce(train_kwargs)
    job.initialize()        new optimizer; the weights of now are the reference of the KL term
    job.step(groups)        advantages, loss, update
    job.terminate()         write the model

DSPy declares no checkpoints to go back to, which trainings need: see `TrainingJob`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import dspy
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import MempilerError, UserError
from ...text import one_line
from .groups import Group
from .settings import TrainingSettings

if TYPE_CHECKING:
    from ...engines.local.trainer import StepResult


class TrainingJob(Protocol):
    """What a provider's `ReinforceJob` has to offer; `engines.local.trainer` has the local one."""

    checkpoints: Mapping[str, object]
    """Where each saved checkpoint is, by its name."""

    def initialize(self) -> None:
        """Make a new optimizer, and take the weights of now as reference of the KL term."""
        ...

    def step(
        self, train_data: list[dict[str, Any]], train_data_format: TrainDataFormat
    ) -> StepResult:
        """Train on all groups of one step, and return its numbers."""
        ...

    def save_checkpoint(self, checkpoint_name: str) -> None:
        """Write weights and optimizer, and add the place to `checkpoints`."""
        ...

    def load_checkpoint(self, path: str) -> None:
        """Put weights and optimizer back to a checkpoint."""
        ...

    def terminate(self) -> None:
        """Write the model into the folder of the job, and end it."""
        ...


class Trainer:
    """A training job and its folder.

    Args:
        lm: The language model to train.
        train_kwargs: The settings of the job; `num_generations` is added.
        settings: The settings of the training.
        folder: Where checkpoints and, at the end, the model are kept; a temporary one if None.

    Raises:
        UserError: The provider of the model cannot train, or not with these settings.
    """

    def __init__(
        self,
        lm: dspy.LM,
        train_kwargs: Mapping[str, Any],
        settings: TrainingSettings,
        folder: Path | None = None,
    ) -> None:
        provider = getattr(lm, "provider", None)
        job_class = getattr(provider, "ReinforceJob", None)
        if not hasattr(job_class, "load_checkpoint"):
            raise UserError(f"{lm.model} cannot be trained here; use --lm local:NAME")

        # The job scores completions at the temperature at which they were sampled.
        temperature = train_kwargs.get("temperature", settings.temperature)
        if temperature != settings.temperature:
            raise UserError(
                f"train_kwargs temperature = {temperature}, but rollouts are sampled at "
                f"{settings.temperature}; make them equal"
            )

        self._temporary_folder: tempfile.TemporaryDirectory[str] | None = None
        if "output_dir" in train_kwargs:
            output_dir = train_kwargs["output_dir"]
        elif folder is not None:
            output_dir = str(folder)
        else:
            self._temporary_folder = tempfile.TemporaryDirectory(prefix="mempiler-train-")
            output_dir = self._temporary_folder.name
        self._output_dir = output_dir

        job_settings = {
            "output_dir": output_dir,
            "temperature": settings.temperature,
            **train_kwargs,
            "num_generations": settings.num_rollouts,
        }
        self._job = cast("TrainingJob", lm.reinforce(job_settings))

    def train(self, groups: Sequence[Group]) -> dict[str, float]:
        """Train on the groups of one step, and return the numbers that the job reports."""
        if not groups:
            return {}
        data = [group.to_training_data(number) for number, group in enumerate(groups)]
        result = self._job.step(data, TrainDataFormat.GRPO_CHAT)
        return {name: float(value) for name, value in asdict(result).items()}

    def save_checkpoint(self, name: str) -> str:
        """Save a checkpoint, and return its path.

        Raises:
            UserError: It cannot be written.
        """
        with self._writing():
            self._job.save_checkpoint(name)
        return str(self._job.checkpoints[name])

    def load_checkpoint(self, checkpoint: str) -> None:
        """Put weights and optimizer back to a checkpoint."""
        self._job.load_checkpoint(checkpoint)

    def begin_stage(self, checkpoint: str) -> None:
        """Go back to a checkpoint; make a new optimizer and a new reference from its weights."""
        self._job.load_checkpoint(checkpoint)
        self._job.initialize()

    def delete_checkpoint(self, checkpoint: str) -> None:
        """Delete a checkpoint: a file, or a folder of sharded weights."""
        path = Path(checkpoint)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def end(self) -> None:
        """End the job, which writes its model into the folder.

        Raises:
            UserError: The model cannot be written.
        """
        with self._writing():
            self._job.terminate()
        if self._temporary_folder is not None:
            self._temporary_folder.cleanup()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an error of the block, which writes files, into a UserError of one line."""
        try:
            yield
        except MempilerError:
            raise
        except Exception as error:
            # Any error, because torch and safetensors have errors of their own for a full disk.
            reason = one_line(error, 120)
            raise UserError(f"{self._output_dir}: cannot be written: {reason}") from error
