"""Reinforcement of a local model by groups of completions with rewards, on DSPy's protocol.

A group is {"group": [{"prompt_ids", "completion_ids", "logprobs", "reward", "faults"}, ...], "weight",
"fault_weights"}, of what was sampled (see `sampling.Sample`). Its weight, 1 if there is none, multiplies its
advantages. Faults, by kind 0 or 1, count where the group has a weight for their kind (`loss.subtract_faults`). The
order of rows is drawn from the seed and the count of steps, so a job that is resumed from a checkpoint gives the same
weights as an unbroken one.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.clients.provider import ReinforceJob
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError
from ...text import one_line
from . import processes
from .batching import chunks
from .loss import BatchSize, advantages, divergence, grpo_loss, subtract_faults
from .model import LocalModel
from .settings import Reinforcement
from .update import Row, Update

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """What one step was like."""

    loss: float = 0.0
    """Mean over the updates of the step."""
    reward: float = 0.0
    """Mean of all rewards that were sent."""
    divergence: float = 0.0
    """Mean k3 estimate from the reference before the step; 0 without a reference."""
    rows: int = 0
    """Completions trained."""
    tokens: int = 0
    left_out: int = 0
    """Groups left out because their members were all equal, in rewards and faults."""
    skipped: int = 0
    """Updates left out because their gradient was not finite."""


class LocalReinforceJob(ReinforceJob):
    """A training job that updates, in place, the model that its LM samples; of several processes, in each alike.

    Args:
        lm: An LM over a local engine.
        train_kwargs: See `settings.Reinforcement`.
    """

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm, train_kwargs)
        self.settings = Reinforcement.parse(train_kwargs)
        self.model: LocalModel = lm.engine.model
        processes.connect()
        processes.broadcast((self.model.origin, train_kwargs))
        self.steps = 0
        self._update: Update | None = None

    @processes.on_all_ranks
    def initialize(self) -> None:
        """Begins anew: a new optimizer, and the weights of now as reference, where the KL term needs one."""
        self._update = self._new_update()
        if self.settings.beta > 0:
            self.model.freeze_reference()
        self._changed()

    def _new_update(self) -> Update:
        return Update(self.model, self.settings)

    def _changed(self) -> None:
        """Tells whoever else samples of the weights."""

    @property
    def _running(self) -> Update:
        if self._update is None:
            raise UserError("the job does not run; call initialize() first, and terminate() last")
        return self._update

    @processes.on_all_ranks
    def step(
        self, train_data: Sequence[Mapping[str, Any]], train_data_format: TrainDataFormat | str | None = None
    ) -> Step:
        """Trains on groups of completions, see the module, and says what the step was like.

        Raises:
            DataError: A group is not of that form.
            UserError: The job does not run.
        """
        update = self._running
        if train_data_format not in (None, TrainDataFormat.GRPO_CHAT, TrainDataFormat.GRPO_CHAT.value):
            raise DataError(f"training data is {train_data_format!r}; reinforcement takes grpo_chat")
        with self.model.lock:
            rewards, rows, left_out = self._rows(train_data)
            mean = sum(rewards) / len(rewards) if rewards else 0.0
            fitting = [row for row in rows if row.size <= self.model.context]
            done = self._train(self._compared(fitting), update, mean, left_out)
        self.steps += 1
        self._changed()
        return done

    @processes.on_all_ranks
    def save_checkpoint(self, checkpoint_name: str) -> None:
        """Writes weights, optimizer and counters to `output_dir`/`checkpoint_name`.pt, in one piece.

        Raises:
            UserError: There is no `output_dir`, or the job does not run.
        """
        update = self._running
        if self.settings.output_dir is None:
            raise UserError("a checkpoint needs a folder; set output_dir in train_kwargs")
        path = Path(self.settings.output_dir) / f"{checkpoint_name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        self._save(partial, update)
        if processes.rank() == 0:
            partial.replace(path)
        self.checkpoints[checkpoint_name] = str(path)
        self.last_checkpoint = checkpoint_name

    def _save(self, path: Path, update: Update) -> None:
        import torch

        if processes.rank() == 0:
            state = {"weights": self.model.state(), "optimizer": update.optimizer.state_dict(), "steps": self.steps}
            torch.save(state, path)

    @processes.on_all_ranks
    def load_checkpoint(self, path: str | Path) -> None:
        """Continues from a checkpoint; the reference stays the one of `initialize`.

        Raises:
            UserError: The file is no checkpoint of such a model, or the job does not run.
        """
        update = self._running
        try:
            self._load(path, update)
        except UserError:
            raise
        except Exception as error:  # torch raises errors of pickle, which is not imported here
            raise UserError(f"{path}: is no checkpoint of a local job: {one_line(error, 120)}") from error
        self._changed()

    def _load(self, path: str | Path, update: Update) -> None:
        import torch

        # Only tensors and plain values are read: no code of the file is run.
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights, optimizer, steps = state["weights"], state["optimizer"], int(state["steps"])
        self.model.load_state(weights)
        update.optimizer.load_state_dict(optimizer)
        self.steps = steps

    @processes.on_all_ranks
    def terminate(self) -> None:
        """Releases the optimizer; the trained weights stay in the model, and are written to `output_dir`/model."""
        if self._update is not None and self.settings.output_dir is not None:
            self._write(Path(self.settings.output_dir) / "model")
        self._update = None
        processes.leave()

    def _write(self, folder: Path) -> None:
        if processes.rank() == 0:
            self.model.save(folder)

    def _rows(self, groups: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[Row], int]:
        """All rewards, the completions to train, and how many groups were left out."""
        rewards: list[float] = []
        rows: list[Row] = []
        left_out = 0
        for group in groups:
            try:
                items = list(group["group"])
                values = [float(item["reward"]) for item in items]
                weight = float(group.get("weight", 1.0))
                shares = self._advantages(items, values, group.get("fault_weights", {}))
                found = [_row(item, weight * share) for item, share in zip(items, shares, strict=True)]
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(f"not a group of completions with rewards: {type(error).__name__} {error}") from error
            rewards += values
            if any(row.advantage for row in found):
                rows += [row for row in found if row.completion]
            else:
                left_out += 1
        return rewards, rows, left_out

    def _advantages(
        self, items: Sequence[Mapping[str, Any]], rewards: Sequence[float], fault_weights: Mapping[str, float]
    ) -> list[float]:
        faults = {kind: [float(item["faults"][kind]) for item in items] for kind in fault_weights}
        return subtract_faults(advantages(rewards, self.settings), faults, fault_weights, self.settings)

    def _compared(self, rows: list[Row]) -> list[Row]:
        """Return the rows with the log-probabilities that they are compared with, where these are computed here."""
        if self.settings.old_logprobs == "recomputed":
            old = processes.distributed_map(rows, functools.partial(self._logprobs, by_reference=False))
            rows = [replace(row, old=values) for row, values in zip(rows, old, strict=True)]
        if self.settings.beta > 0:
            frozen = processes.distributed_map(rows, functools.partial(self._logprobs, by_reference=True))
            rows = [replace(row, reference=values) for row, values in zip(rows, frozen, strict=True)]
        return rows

    def _logprobs(self, rows: Sequence[Row], by_reference: bool) -> list[list[float]]:
        """Return the log-probabilities of completions under the weights of now, or under the frozen reference."""
        prompts, completions = [row.prompt for row in rows], [row.completion for row in rows]
        temperature, size = self.settings.temperature, self.settings.micro_batch_size
        return self.model.logprobs(prompts, completions, temperature, by_reference, size)

    def _train(self, rows: list[Row], update: Update, reward: float, left_out: int) -> Step:
        if not rows:
            return Step(reward=reward, left_out=left_out)
        settings, skipped = self.settings, update.skipped
        losses: list[float] = []
        for epoch in range(settings.epochs):
            order = list(rows)
            random.Random(f"{settings.seed}-{self.steps}-{epoch}").shuffle(order)
            for batch in chunks(order, settings.batch_size):
                size = BatchSize(len(batch), sum(len(row.completion) for row in batch))
                losses.append(update.step(batch, functools.partial(self._loss, size=size)))
        tokens = sum(len(row.completion) for row in rows)
        gap = 0.0
        if settings.beta > 0:  # before the step
            old, mask = _padded([row.old for row in rows], "cpu")
            frozen, _ = _padded([row.reference for row in rows], "cpu")
            gap = float((divergence(old, frozen) * mask).sum()) / tokens
        return Step(sum(losses) / len(losses), reward, gap, len(rows), tokens, left_out, update.skipped - skipped)

    def _scores(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Log-probabilities of completions, which gradients flow through, and their mask."""
        prompts, completions = [row.prompt for row in rows], [row.completion for row in rows]
        return self.model.token_logprobs(prompts, completions, self.settings.temperature)

    def _loss(self, rows: Sequence[Row], size: BatchSize) -> Tensor:
        """What the rows of one forward pass add to the loss of their batch, which is of that size."""
        import torch

        settings, device = self.settings, self.model.device
        now, mask = self._scores(rows)
        old, _ = _padded([row.old for row in rows], device)
        gains = torch.tensor([row.advantage for row in rows], device=device)
        frozen = _padded([row.reference for row in rows], device)[0] if settings.beta > 0 else None
        return grpo_loss(now, old, gains, mask, frozen, settings, size)


def _row(item: Mapping[str, Any], advantage: float) -> Row:
    prompt, completion, old = (tuple(item[name]) for name in ("prompt_ids", "completion_ids", "logprobs"))
    if len(old) != len(completion):
        raise ValueError(f"{len(old)} log-probabilities for {len(completion)} tokens")
    return Row(prompt, completion, advantage, old)


def _padded(rows: Sequence[Sequence[float]], device: Any) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one tensor, and the mask of what is there."""
    import torch

    width = max(map(len, rows))
    values = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float32, device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return values, (torch.arange(width, device=device) < lengths).float()
