"""The trainer behind DSPy's protocol: `lm.reinforce` gives a job, groups go in, its model changes.

    job.get_status()["pending_batch_ids"] ── one group each ──> job.step([{batch_id, group}], "grpo_chat")

There are two kinds. A local job takes all groups of a step at once, with token ids, log-probabilities and
weights, writes its checkpoints into a folder and can be put back to one (it has `load_checkpoint`). Any other
(Arbor) gets the protocol's bare form: `messages`, `completion` and `reward` alone, every group of exactly
`num_generations` members, one group per batch id that it asked for and never the same id twice. Weights become factors
of the rewards there, which holds only while it does not divide by their spread.

Limits: a bare job has no way back to a checkpoint; its best one is named, not loaded.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import EndpointError, MempilerError, UserError, one_line
from .groups import Group
from .settings import TrainingSettings

PATIENCE = 3600.0
"""Seconds without a batch id after which a trainer counts as failed."""


class Trainer:
    """A reinforcement-learning job.

    Args:
        lm: The language model to train.
        train_kwargs: What its provider is told; `num_generations` is added.
        settings: Group sizes and weights.
        folder: Where a local job keeps checkpoints and, at its end, the model; a temporary one if None.
        pause: Seconds between two looks at the status.

    Raises:
        UserError: The provider of the model cannot train, or not with these settings.
    """

    def __init__(
        self,
        lm: Any,
        train_kwargs: Mapping[str, Any],
        settings: TrainingSettings,
        folder: Path | None = None,
        pause: float = 1.0,
    ) -> None:
        provider = getattr(lm, "provider", None)
        if not getattr(provider, "reinforceable", False):
            raise UserError(
                f"{lm.model} cannot be trained here; use --lm local:NAME, or an LM whose provider can train it"
            )
        self.settings, self.portable, self._pause = settings, not is_extended(provider), pause
        self.kwargs = {"temperature": settings.temperature, **train_kwargs, "num_generations": settings.num_rollouts}
        if self.kwargs["temperature"] != settings.temperature:
            raise UserError(
                f"train_kwargs temperature = {self.kwargs['temperature']}, but rollouts are sampled at "
                f"{settings.temperature}; make them equal"
            )
        self._own: tempfile.TemporaryDirectory[str] | None = None
        if self.portable:
            settings.check_portable(self.kwargs)
        else:
            if folder is None and "output_dir" not in self.kwargs:
                self._own = tempfile.TemporaryDirectory(prefix="mempiler-train-")
            self.kwargs = {"output_dir": str(folder or (self._own and self._own.name)), **self.kwargs}
        self.job = lm.reinforce(self.kwargs)
        self.warning = ""
        """What a local job said of its last step that is wrong with it; empty if nothing is."""
        self._done: set[Any] = set()

    @property
    def can_restore(self) -> bool:
        """Whether the job can be put back to a checkpoint."""
        return not self.portable

    def train(self, groups: Sequence[Group]) -> dict[str, float]:
        """Trains on the groups of one step.

        Returns:
            What the job says of it in numbers; nothing for bare jobs.

        Raises:
            EndpointError: A bare job asks for nothing any more.
        """
        if not groups:
            return {}
        if not self.portable:
            data = [
                {
                    "batch_id": n,
                    "group": [member.data(False) for member in group.members],
                    "weight": group.weight,
                }
                for n, group in enumerate(groups)
            ]
            said = self.job.step(data, TrainDataFormat.GRPO_CHAT)
            found = asdict(said) if is_dataclass(said) and not isinstance(said, type) else said
            numbers = found.items() if isinstance(found, Mapping) else ()
            self.warning = str(said.get("warning", "") if isinstance(said, Mapping) else getattr(said, "warning", ""))
            return {name: float(value) for name, value in numbers if isinstance(value, int | float)}
        rest = [self._bare(group) for group in groups]
        while rest:
            ids = self._pending()[: len(rest)]
            data = [{"batch_id": id, "group": rest[n]} for n, id in enumerate(ids)]
            rest = rest[len(ids) :]
            self._done |= set(ids)
            self.job.step(data, TrainDataFormat.GRPO_CHAT)
        return {}

    def save(self, name: str) -> str:
        """Saves a checkpoint.

        Returns:
            What `restore` takes: its path for a local job, its name otherwise.

        Raises:
            UserError: A local job cannot write it.
        """
        with self._writing():
            self.job.save_checkpoint(name)
        return name if self.portable else str(self.job.checkpoints[name])

    def restore(self, checkpoint: str) -> None:
        """Puts the job back to a checkpoint; does nothing if that is not supported."""
        if self.can_restore:
            self.job.load_checkpoint(checkpoint)

    def drop(self, checkpoint: str) -> None:
        """Deletes an unused checkpoint of a local job."""
        if not self.portable:
            Path(checkpoint).unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the job; a local one writes its model into the folder."""
        with self._writing():
            self.job.terminate()
        if self._own is not None:
            self._own.cleanup()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Reports a full disk in one line; torch and safetensors have their own errors for it."""
        try:
            yield
        except Exception as error:
            if self.portable or isinstance(error, MempilerError):
                raise
            where = self.kwargs.get("output_dir")
            raise UserError(f"{where}: cannot be written: {one_line(error, 120)}") from error

    def _bare(self, group: Group) -> list[dict[str, Any]]:
        """A group in the protocol's bare form, with its weight in the rewards."""
        padded = group.padded(self.settings.num_rollouts)
        scaled = padded.scaled(group.weight) if group.weight != 1.0 else padded
        return [member.data(portable=True) for member in scaled.members]

    def _pending(self) -> list[Any]:
        """The batch ids that the job waits for, once there are some."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            pending = [id for id in self.job.get_status()["pending_batch_ids"] if id not in self._done]
            if pending:
                return pending
            time.sleep(self._pause)
        raise EndpointError(f"the trainer has asked for no batch for {PATIENCE:.0f} s; see its log")


def is_extended(provider: Any) -> bool:
    """Whether a provider's job takes more than the protocol's bare form: ids, log-probabilities, weights."""
    return hasattr(getattr(provider, "ReinforceJob", None), "load_checkpoint")
