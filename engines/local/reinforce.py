"""Reinforcement of a local model by groups of completions with rewards, on DSPy's protocol.

    step(groups): advantages within each group -> old and reference log-probabilities -> epochs of clipped updates

A group is what DSPy sends: {"batch_id", "group": [{"messages", "completion": {"role", "content"}, "reward"}, ...]}.
Three keys more are read where they are given:

- an item's `prompt_ids`, `completion_ids` and `logprobs` (of `sampling.Sample`): what was sampled is trained, and the
  ratio is exact. Without them, texts are encoded, and their old log-probabilities are those before the step's first
  update.
- a group's `weight`, which multiplies its advantages after they are normalised.

Groups whose rewards are all equal say nothing and are left out (with `beta` too: their rows are not trained). Rows
with the same prompt and completion stand in the same batch where it has room, and are computed once. A checkpoint holds
weights, the optimizer's moments and the count of steps; the order of rows is drawn from the seed and that count, so a
resumed job gives the same weights as an unbroken one.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.clients.provider import ReinforceJob
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError, one_line
from .loss import advantages, denominator, divergence, grpo_loss, ratios
from .model import LocalModel
from .parts import chunks
from .settings import Reinforcement
from .update import Update

if TYPE_CHECKING:
    from torch import Tensor


MISMATCH = 0.1
"""Mean distance of log-probabilities that rounding in bfloat16 stays well below."""


@dataclass(frozen=True)
class Step:
    """What one step was like."""

    loss: float = 0.0
    """Mean over the updates of the step."""
    reward: float = 0.0
    """Mean of all rewards that were sent."""
    clipped: float = 0.0
    """Share of tokens whose ratio lay outside the clip range, in the last epoch."""
    divergence: float = 0.0
    """Mean k3 estimate from the reference before the step; 0 without a reference."""
    rows: int = 0
    """Completions trained."""
    tokens: int = 0
    mismatch: float = 0.0
    """Mean distance, over the tokens of the first batch, of the log-probabilities that came with the completions from
    the model's own before the step: about 0 unless something else sampled them. Above `MISMATCH` rollouts are not
    those of these weights."""
    left_out: int = 0
    """Groups left out because their rewards were all equal."""

    @property
    def warning(self) -> str:
        """What is wrong with the step; empty if nothing is."""
        if self.mismatch <= MISMATCH:
            return ""
        return (
            f"rollouts are not those of the weights that learn: log-probabilities are {self.mismatch:.2f} apart on "
            f"average, a ratio of {math.exp(min(self.mismatch, 50.0)):.2f}"
        )


@dataclass(frozen=True)
class _Row:
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    advantage: float
    old: tuple[float, ...] | None = None
    reference: tuple[float, ...] | None = None


class LocalReinforceJob(ReinforceJob):
    """A training job that updates, in place, the model that its LM samples.

    Args:
        lm: An LM over a local engine.
        train_kwargs: See `settings.Reinforcement`.
    """

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm, train_kwargs)
        self.settings = Reinforcement.parse(train_kwargs)
        self.model: LocalModel = lm.engine.model
        self.steps = 0
        self.last = Step()
        """What the last step was like."""
        self._update: Update | None = None
        self._status = "pending"

    def initialize(self) -> None:
        """Freezes the reference, where the KL term needs one, and makes the optimizer."""
        self._update = Update(self.model, self.settings)
        if self.settings.beta > 0:
            self.model.freeze_reference()
        self._status = "running"

    @property
    def _running(self) -> Update:
        if self._update is None:
            raise UserError("the job does not run; call initialize() first, and terminate() last")
        return self._update

    def get_status(self) -> dict[str, Any]:
        """What DSPy's GRPO polls; the ids it may send groups under."""
        first = self.steps * self.settings.groups_per_step
        pending = list(range(first, first + self.settings.groups_per_step))
        return {"status": self._status, "pending_batch_ids": pending, "last_checkpoint": self.last_checkpoint}

    def step(
        self, train_data: Sequence[Mapping[str, Any]], train_data_format: TrainDataFormat | str | None = None
    ) -> Step:
        """Trains on groups of completions, see the module, and says what the step was like; also `last`.

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
            self.last = self._train(self._scored(rows), update, mean, left_out)
        self.steps += 1
        return self.last

    def save_checkpoint(self, checkpoint_name: str) -> None:
        """Writes weights, optimizer and counters to `output_dir`/`checkpoint_name`.pt, in one piece.

        Raises:
            UserError: There is no `output_dir`, or the job does not run.
        """
        import torch

        update = self._running
        if self.settings.output_dir is None:
            raise UserError("a checkpoint needs a folder; set output_dir in train_kwargs")
        path = Path(self.settings.output_dir) / f"{checkpoint_name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save({"weights": self.model.state(), "optimizer": update.state(), "steps": self.steps}, partial)
        partial.replace(path)
        self.checkpoints[checkpoint_name] = str(path)
        self.last_checkpoint = checkpoint_name

    def load_checkpoint(self, path: str | Path) -> None:
        """Continues from a checkpoint; the reference of a job that trains all weights stays as initialised.

        Raises:
            UserError: The file is no checkpoint of such a model, or the job does not run.
        """
        import torch

        update = self._running
        try:
            # Only tensors and plain values are read: no code of the file is run.
            state = torch.load(path, map_location="cpu", weights_only=True)
            weights, optimizer, steps = state["weights"], state["optimizer"], int(state["steps"])
        except Exception as error:  # torch raises errors of pickle, which is not imported here
            raise UserError(f"{path}: is no checkpoint of a local job: {one_line(error, 120)}") from error
        self.model.load_state(weights)
        update.load_state(optimizer)
        self.steps = steps

    def terminate(self) -> None:
        """Releases the optimizer; the trained weights stay in the model, and are written to `output_dir`/model."""
        if self._update is not None and self.settings.output_dir is not None:
            self.model.save(Path(self.settings.output_dir) / "model")
        self._update, self._status = None, "terminated"

    def _rows(self, groups: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[_Row], int]:
        """All rewards, the completions to train, and how many groups were left out."""
        rewards: list[float] = []
        rows: list[_Row] = []
        left_out = 0
        for group in groups:
            try:
                items = list(group["group"])
                values = [float(item["reward"]) for item in items]
                weight = float(group.get("weight", 1.0))
                settings = self.settings
                shares = advantages(values, settings.scale_rewards, settings.eps, settings.leave_one_out)
                found = [self._row(item, weight * share) for item, share in zip(items, shares, strict=True)]
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(f"not a group of completions with rewards: {type(error).__name__} {error}") from error
            rewards += values
            if any(row.advantage for row in found):
                rows += [row for row in found if row.completion]
            else:
                left_out += 1
        return rewards, rows, left_out

    def _row(self, item: Mapping[str, Any], advantage: float) -> _Row:
        prompt = tuple(item.get("prompt_ids") or self.model.encode(item["messages"]))
        completion, old = item.get("completion_ids"), item.get("logprobs")
        if completion is None:
            return _Row(prompt, tuple(self.model.encode_completion(item["completion"]["content"])), advantage)
        if old is not None and len(old) != len(completion):
            raise ValueError(f"{len(old)} log-probabilities for {len(completion)} tokens")
        return _Row(prompt, tuple(completion), advantage, None if old is None else tuple(old))

    def _scored(self, rows: Sequence[_Row]) -> list[_Row]:
        """The rows that fit the context, with the log-probabilities they lack, as before the step."""
        heat, size = self.settings.temperature, self.settings.micro_batch_size
        fitting = [row for row in rows if len(row.prompt) + len(row.completion) <= self.model.context]

        def scored(rows: Sequence[_Row], reference: bool = False) -> list[tuple[float, ...]]:
            prompts, completions = [row.prompt for row in rows], [row.completion for row in rows]
            return [tuple(found) for found in self.model.logprobs(prompts, completions, heat, reference, size)]

        now = iter(scored([row for row in fitting if row.old is None]))
        done = [row if row.old is not None else replace(row, old=next(now)) for row in fitting]
        if self.settings.beta > 0:
            frozen = scored(done, reference=True)
            done = [replace(row, reference=found) for row, found in zip(done, frozen, strict=True)]
        return done

    def _train(self, rows: list[_Row], update: Update, reward: float, left_out: int) -> Step:
        if not rows:
            return Step(reward=reward, left_out=left_out)
        settings = self.settings
        losses: list[float] = []
        notes: dict[int, tuple[int, float]] = {}
        mismatch: float | None = None
        for epoch in range(settings.epochs):
            order = _alike(rows)
            random.Random(f"{settings.seed}-{self.steps}-{epoch}").shuffle(order)
            for batch in chunks([row for same in order for row in same], settings.batch_size):
                parts = _alike(batch)
                lengths = [len(same[0].prompt) + len(same[0].completion) for same in parts]
                _, mask = _padded([row.old or () for row in batch], "cpu")
                total = denominator(mask, settings.loss_type)
                losses.append(update.step(parts, lengths, functools.partial(self._loss, total=total, notes=notes)))
                if mismatch is None:
                    mismatch = sum(gap for _, gap in notes.values()) / sum(len(row.completion) for row in batch)
        tokens = sum(len(row.completion) for row in rows)
        clipped = sum(outside for outside, _ in notes.values()) / tokens
        gap = self._gap(rows) / tokens if settings.beta > 0 else 0.0
        return Step(sum(losses) / len(losses), reward, clipped, gap, len(rows), tokens, mismatch or 0.0, left_out)

    def _loss(self, parts: Sequence[Sequence[_Row]], total: float, notes: dict[int, tuple[int, float]]) -> Tensor:
        """What rows add to the loss of their batch.

        Args:
            parts: Rows that are alike together.
            total: The denominator of the batch.
            notes: Takes of each row, by its identity, the clipped tokens and the distance from the old
                log-probabilities: a part is computed again where memory ran out.
        """
        import torch

        settings, device = self.settings, self.model.device
        prompts, completions = [same[0].prompt for same in parts], [same[0].completion for same in parts]
        found = self.model.token_logprobs(prompts, completions, settings.temperature)
        rows = [row for same in parts for row in same]
        of = torch.tensor([n for n, same in enumerate(parts) for _ in same], device=device)
        now, mask = (values[of] for values in found)
        old, _ = _padded([row.old or () for row in rows], device)
        gains = torch.tensor([row.advantage for row in rows], device=device)
        frozen = _padded([row.reference or () for row in rows], device)[0] if settings.beta > 0 else None
        rho = ratios(now.detach(), old, mask, settings.ratio, settings.log_ratio_clip)
        outside = ((rho < 1 - settings.clip_low) | (rho > 1 + settings.clip_high)) & (mask > 0)
        gaps = ((now.detach() - old).abs() * mask).sum(-1).tolist()
        notes |= zip(map(id, rows), zip(outside.sum(-1).tolist(), gaps, strict=True), strict=True)
        same = {"clip_low", "clip_high", "beta", "ratio", "dual_clip", "log_ratio_clip", "divergence_clip"}
        more = settings.model_dump(include=same)
        return grpo_loss(now, old, gains, mask, frozen, kind=settings.loss_type, total=total, **more)

    def _gap(self, rows: Sequence[_Row]) -> float:
        """The sum of the k3 estimates from the reference, before the step."""
        old, mask = _padded([row.old or () for row in rows], "cpu")
        frozen, _ = _padded([row.reference or () for row in rows], "cpu")
        return float((divergence(old, frozen) * mask).sum())


def _alike(rows: Sequence[_Row]) -> list[list[_Row]]:
    """The rows, those with the same prompt and completion together."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[_Row]] = {}
    for row in rows:
        found.setdefault((row.prompt, row.completion), []).append(row)
    return list(found.values())


def _padded(rows: Sequence[Sequence[float]], device: Any) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one tensor, and the mask of what is there."""
    import torch

    width = max(map(len, rows))
    values = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float32, device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return values, (torch.arange(width, device=device) < lengths).float()
