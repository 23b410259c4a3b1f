"""Reinforcement learning of a local model, on DSPy's protocol for training jobs.

The caller samples groups of completions, rewards them, and calls `step`. A group is

    {
        "group": [
            {
                "prompt_ids": [...],       # as in `sampling.Sample`
                "completion_ids": [...],
                "logprobs": [...],
                "reward": 0.7,
                "faults": {"unreadable": 0.0, ...},     # only of kinds with a weight
            },
            ...
        ],
        "weight": 1.0,                             # optional; multiplies the group's advantages
        "fault_weights": {"unreadable": 0.5, ...}, # optional; see `loss.subtract_faults`
    }

The order of rows follows from the seed and the number of the step. So a job that goes on from a
checkpoint ends with the same weights as one that was never interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dspy.clients.provider import ReinforceJob
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError
from ...text import one_line
from . import processes
from .loss import BatchSize, advantages, divergence, grpo_loss, subtract_faults
from .model import LocalModel
from .rows import Row, completion_tokens, pad_rows, shuffled_batches, token_mask
from .settings import Reinforcement
from .trl_trainer import TRLTrainer
from .update import LocalWeights, Weights, take_step

if TYPE_CHECKING:
    from torch import Tensor

DATA_FORMATS = (None, TrainDataFormat.GRPO_CHAT, TrainDataFormat.GRPO_CHAT.value)
"""Formats of training data that `step` takes; None is the same as the others."""


class TrainingStart(NamedTuple):
    """What the leading process tells the others when it makes a job."""

    origin: tuple[Any, ...]
    """The arguments of `LocalModel.load`, in their order; see `LocalModel.origin`."""
    train_kwargs: dict[str, Any] | None
    """The settings of the training."""


@dataclass(frozen=True)
class StepResult:
    """The numbers of one step; a step takes one update for each batch of each epoch."""

    loss: float = 0.0
    """Mean over the updates of the step."""
    reward: float = 0.0
    """Mean over all completions, those of groups that were left out too."""
    divergence: float = 0.0
    """Mean over tokens of the KL estimate from the reference, before the step; 0 without beta."""
    rows: int = 0
    """Completions that were trained on."""
    tokens: int = 0
    """Tokens of these completions."""
    left_out: int = 0
    """Groups whose members were all equal, in rewards and faults: they teach nothing."""
    skipped: int = 0
    """Updates that were skipped because their gradient was not finite."""


@dataclass
class TrainingData:
    """What `step` reads of its groups."""

    rewards: list[float] = field(default_factory=list)
    """Of all completions."""
    rows: list[Row] = field(default_factory=list)
    """The completions to train on, without empty ones."""
    left_out: int = 0
    """Groups without any advantage."""


class LocalReinforceJob(ReinforceJob):
    """A training job that changes, in place, the model that its language model samples.

    With torchrun, every process has such a job; see `processes`.

    Args:
        lm: A language model over a local engine.
        train_kwargs: The settings; see `settings.Reinforcement`.

    Raises:
        UserError: A setting is unknown, does not fit, or has no effect.
        MissingDependencyError: The trainer is TRL's, which is not installed.
    """

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm, train_kwargs)
        self.settings = Reinforcement.parse(train_kwargs)
        self.model: LocalModel = lm.engine.model
        self.steps = 0
        """Steps that were trained: those before a checkpoint that was loaded count."""
        self._weights: Weights | None = None
        """None before `initialize` and after `terminate`."""

        # The other processes make a job over the same model, with the same settings.
        processes.connect()
        processes.broadcast(TrainingStart(self.model.origin, train_kwargs))

        self.trl_trainer: TRLTrainer | None = None
        if self.settings.trainer == "trl":
            self.trl_trainer = TRLTrainer(self.model, self.settings)
            if self.trl_trainer.uses_vllm and processes.rank() == 0:
                lm.engine.sampler = self.trl_trainer.sampler()

    @processes.on_all_ranks
    def initialize(self) -> None:
        """Begin the training: with a new optimizer, and with the weights of now as reference."""
        if self.trl_trainer is not None:
            self._weights = self.trl_trainer.begin_weights()
        else:
            self._weights = LocalWeights(self.model, self.settings, self.settings.temperature)
        # Without beta the loss has no KL term, which is all that the reference is for.
        if self.settings.beta > 0:
            self.model.freeze_reference()
        self._publish_weights()

    @processes.on_all_ranks
    def step(
        self,
        train_data: Sequence[Mapping[str, Any]],
        train_data_format: TrainDataFormat | str | None = None,
    ) -> StepResult:
        """Train on groups of completions with rewards.

        Args:
            train_data: The groups; see the module. Completions that are longer than the context
                of the model, with their prompts, are not trained on.
            train_data_format: GRPO_CHAT or None.

        Raises:
            DataError: A group does not have that form.
            UserError: The job does not run, or memory does not suffice for one completion.
        """
        weights = self._running_weights()
        if train_data_format not in DATA_FORMATS:
            raise DataError(
                f"training data is {train_data_format!r}; reinforcement takes grpo_chat"
            )
        settings = self.settings

        with self.model.lock:
            data = read_groups(train_data, settings)
            rows = [row for row in data.rows if row.size <= self.model.context]

            # The log-probabilities that the loss compares with, all before the first update.
            if settings.old_logprobs == "recomputed":
                rows = with_old_logprobs(rows, weights.logprobs(rows))
            if settings.beta > 0:
                rows = with_reference_logprobs(rows, weights.reference_logprobs(rows))

            losses: list[float] = []
            skipped = 0
            for epoch in range(settings.epochs):
                order_seed = f"{settings.seed}-{self.steps}-{epoch}"
                for batch in shuffled_batches(rows, settings.batch_size, order_seed):
                    update = take_step(weights, batch, self._loss, settings.learning_rate)
                    losses.append(update.loss)
                    skipped += update.is_skipped

        self.steps += 1
        self._publish_weights()
        return StepResult(
            loss=mean(losses),
            reward=mean(data.rewards),
            divergence=mean_divergence(rows) if settings.beta > 0 else 0.0,
            rows=len(rows),
            tokens=completion_tokens(rows),
            left_out=data.left_out,
            skipped=skipped,
        )

    def _loss(self, rows: Sequence[Row], size: BatchSize) -> Tensor:
        """Return the share of a batch's loss that some of its rows contribute.

        The loss of a whole batch is the sum over several such calls.

        Args:
            rows: B rows of the batch: tokens of at most T positions, advantage, old log
                probabilities.
            size: Rows and tokens of the whole batch, over which the loss is a mean.
        """
        import torch

        device = self.model.device
        logprobs, mask = self._running_weights().token_logprobs(rows)  # both (B, T)
        old_logprobs = pad_rows([row.old_logprobs for row in rows], device)  # (B, T)
        row_advantages = torch.tensor([row.advantage for row in rows], device=device)  # (B,)
        reference_logprobs = None
        if self.settings.beta > 0:
            reference_logprobs = pad_rows([row.reference_logprobs for row in rows], device)
        return grpo_loss(
            logprobs, old_logprobs, row_advantages, mask, reference_logprobs, self.settings, size
        )

    @processes.on_all_ranks
    def save_checkpoint(self, checkpoint_name: str) -> None:
        """Write weights, optimizer and the number of steps to `output_dir`/`checkpoint_name`.pt.

        Raises:
            UserError: There is no `output_dir`, or the job does not run.
        """
        weights = self._running_weights()
        if self.settings.output_dir is None:
            raise UserError("a checkpoint needs a folder; set output_dir in train_kwargs")
        path = Path(self.settings.output_dir) / f"{checkpoint_name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)

        # A process that is killed while it writes leaves no half of a checkpoint under its name.
        partial = path.with_suffix(".partial")
        weights.save_checkpoint(partial, self.steps)
        if processes.rank() == 0:
            if path.is_dir():  # of sharded weights; a folder cannot be replaced by renaming
                shutil.rmtree(path, ignore_errors=True)
            partial.replace(path)

        self.checkpoints[checkpoint_name] = str(path)
        self.last_checkpoint = checkpoint_name

    @processes.on_all_ranks
    def load_checkpoint(self, path: str | Path) -> None:
        """Read weights, optimizer and number of steps from a checkpoint, to go on from there.

        The reference of the KL term stays as it is.

        Raises:
            UserError: The file is not a checkpoint of such a model, or the job does not run.
        """
        weights = self._running_weights()
        try:
            self.steps = weights.load_checkpoint(Path(path))
        except UserError:
            # It is a checkpoint, but of another model.
            raise
        except Exception as error:  # torch raises errors of many kinds for a file that is none
            reason = one_line(error, 120)
            raise UserError(f"{path}: is no checkpoint of a local job: {reason}") from error
        self._publish_weights()

    @processes.on_all_ranks
    def terminate(self) -> None:
        """End the job: write the model to `output_dir`/model, and release the optimizer."""
        if self._weights is not None and self.settings.output_dir is not None:
            self._weights.save_model(Path(self.settings.output_dir) / "model")
        self._weights = None
        processes.leave()

    def _running_weights(self) -> Weights:
        """Return the weights that are trained; raise a UserError if no training runs."""
        if self._weights is None:
            raise UserError("the job does not run; call initialize() first, and terminate() last")
        return self._weights

    def _publish_weights(self) -> None:
        """Send the weights to vLLM if it samples; the local engine samples the model itself."""
        if self.trl_trainer is not None:
            self.trl_trainer.publish_weights()


def read_groups(groups: Sequence[Mapping[str, Any]], settings: Reinforcement) -> TrainingData:
    """Read groups of completions, and compute the advantages of their members.

    Groups whose members all have an advantage of 0 are left out: they teach nothing.

    Args:
        groups: Each {"group": [{"prompt_ids", "completion_ids", "logprobs", "reward"}, ...]}; the
            docstring of the module shows what is optional.
        settings: How rewards are normalised within a group.

    Raises:
        DataError: A group does not have that form.
        UserError: A reward is not a finite number.
    """
    data = TrainingData()
    for group in groups:
        try:
            members = list(group["group"])
            rewards = [float(member["reward"]) for member in members]
            group_advantages = _read_advantages(group, members, rewards, settings)
            rows: list[Row] = []
            for member, advantage in zip(members, group_advantages, strict=True):
                rows.append(_read_row(member, advantage))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__} {error}"
            raise DataError(f"not a group of completions with rewards: {reason}") from error

        data.rewards.extend(rewards)
        has_advantages = any(row.advantage != 0 for row in rows)
        if has_advantages:
            data.rows.extend(row for row in rows if row.completion)
        else:
            data.left_out += 1
    return data


def _read_advantages(
    group: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
    rewards: Sequence[float],
    settings: Reinforcement,
) -> list[float]:
    """Return the advantages of a group's members, less their faults, times the group's weight."""
    fault_weights = group.get("fault_weights", {})
    faults: dict[str, list[float]] = {}
    for kind in fault_weights:
        faults[kind] = [float(member["faults"][kind]) for member in members]

    reward_advantages = advantages(rewards, settings)
    group_advantages = subtract_faults(reward_advantages, faults, fault_weights, settings)
    group_weight = float(group.get("weight", 1.0))
    return [group_weight * advantage for advantage in group_advantages]


def _read_row(member: Mapping[str, Any], advantage: float) -> Row:
    """Return a member of a group as a row to train on.

    Raises:
        ValueError: It does not have one log-probability for each token.
        KeyError, TypeError: A field is missing or of another type.
    """
    row = Row(
        prompt=tuple(member["prompt_ids"]),
        completion=tuple(member["completion_ids"]),
        advantage=advantage,
        old_logprobs=tuple(member["logprobs"]),
    )
    if len(row.old_logprobs) != len(row.completion):
        raise ValueError(
            f"{len(row.old_logprobs)} log-probabilities for {len(row.completion)} tokens"
        )
    return row


def with_old_logprobs(rows: Sequence[Row], logprobs: Sequence[Sequence[float]]) -> list[Row]:
    """Return the rows with other log-probabilities under the old policy."""
    return [replace(row, old_logprobs=values) for row, values in zip(rows, logprobs, strict=True)]


def with_reference_logprobs(rows: Sequence[Row], logprobs: Sequence[Sequence[float]]) -> list[Row]:
    """Return the rows with log-probabilities under the frozen reference."""
    return [
        replace(row, reference_logprobs=values) for row, values in zip(rows, logprobs, strict=True)
    ]


def mean_divergence(rows: Sequence[Row]) -> float:
    """Return the mean over tokens of the KL estimate of the old policy from the reference."""
    if not rows:
        return 0.0
    old_logprobs = pad_rows([row.old_logprobs for row in rows], "cpu")  # (B, T)
    reference_logprobs = pad_rows([row.reference_logprobs for row in rows], "cpu")  # (B, T)
    mask = token_mask([row.completion for row in rows], "cpu")  # (B, T)
    total = float((divergence(old_logprobs, reference_logprobs) * mask).sum())
    return total / completion_tokens(rows)


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values; 0 if there are none."""
    return sum(values) / len(values) if values else 0.0
