"""Training on TRL, which shards the weights, makes the optimizer and lets vLLM sample.

Of reinforcement learning itself nothing is TRL's: groups, advantages, loss and loop are those of
`trainer`. Of GRPOTrainer are used

    its settings        of TRL and accelerate, of FSDP and DeepSpeed
    its optimizer
    its head            which computes log-probabilities in tiles
    its vLLM            where completions are sampled, and where the weights are sent

Only public names of TRL, transformers and accelerate are used; a test lists them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import MissingDependencyError, UserError
from ...text import one_line
from . import processes
from .batching import chunks, memory_ran_out
from .loading import quiet
from .model import LocalModel
from .rows import Row, TokenLogprobs, size_of_batch, token_mask
from .sampling import Sampler
from .settings import Reinforcement, Training
from .update import LocalWeights, PartLoss, Weights, checkpointing_layers, recompute
from .vllm_sampler import make_sampler

if TYPE_CHECKING:
    from torch.optim import Optimizer

BLANK_ROW = Row(prompt=(0, 0), completion=())
"""A row without completion, which adds nothing to a loss: the processes need equally many rows."""
IGNORED_LABEL = -100
"""What transformers and TRL take for a label that is not scored."""


class TRLTrainer:
    """TRL's GRPOTrainer over a local model.

    Args:
        model: The model that is trained.
        settings: The settings of the training; `settings.trl` goes to TRL.

    Raises:
        UserError: TRL does not take a setting, or sharded weights have no vLLM that samples.
        MissingDependencyError: TRL is not installed.
    """

    def __init__(self, model: LocalModel, settings: Reinforcement) -> None:
        self.model = model
        self.settings = settings
        self.trl = make_grpo_trainer(model, settings)
        self.is_sharded = bool(self.trl.is_fsdp_enabled or self.trl.is_deepspeed_enabled)
        self.model.sharded = self.is_sharded
        self._weights: Weights | None = None

        if self.is_sharded and not self.uses_vllm:
            raise UserError(
                "weights that are sharded cannot sample by themselves; set use_vllm = true in trl"
            )

    @property
    def uses_vllm(self) -> bool:
        """Whether vLLM samples, instead of the model in this process."""
        return bool(self.trl.args.use_vllm)

    def sampler(self) -> Sampler:
        """Return what samples by vLLM.

        Raises:
            UserError: vLLM runs in this process, and would spread its model over several.
        """
        return make_sampler(self.trl.vllm_generation, self.model)

    def begin_weights(self) -> Weights:
        """Return the model's weights for a new training: their optimizer has no history."""
        if self._weights is None:
            self._weights = self._make_weights()
        else:
            # TRL and accelerate cannot make a second optimizer. So the first is used again, and
            # forgets what it knows of earlier steps: the moments of AdamW.
            self._weights.optimizer.state.clear()
        return self._weights

    def _make_weights(self) -> Weights:
        if self.is_sharded:
            return ShardedWeights(self.trl, self.model, self.settings)
        return TRLWeights(self.trl, self.model, self.settings)

    def publish_weights(self) -> None:
        """Send the weights to vLLM if it samples."""
        if self.uses_vllm:
            self.trl.vllm_generation.sync_weights()


class TRLWeights(LocalWeights):
    """Weights that are whole in this process, with TRL's optimizer and head.

    Args:
        trl: TRL's GRPOTrainer.
        model: The model that is trained.
        settings: The settings of the training.
    """

    def __init__(self, trl: Any, model: LocalModel, settings: Reinforcement) -> None:
        super().__init__(model, settings, settings.temperature)
        self.trl = trl
        # Only now, when the weights are float32. It takes the place of our own AdamW.
        self.optimizer = trl.create_optimizer()

    def token_logprobs(self, rows: Sequence[Row]) -> TokenLogprobs:
        """Score completions in one forward pass that gradients flow through."""
        return trl_token_logprobs(
            self.model.model, rows, self.model.pad, self.trl.accelerator.device
        )


class ShardedWeights:
    """Weights of which each process has a shard, by FSDP or DeepSpeed.

    Every pass collects the weights from all processes. So all processes make equally many passes,
    over equally many rows; blank rows fill up.

    Args:
        trl: TRL's GRPOTrainer.
        model: The model that is trained.
        settings: The settings of the training.
    """

    def __init__(self, trl: Any, model: LocalModel, settings: Reinforcement) -> None:
        self.trl = trl
        self.model = model
        self.settings: Training = settings
        self.micro_batch = settings.micro_batch_size
        self.recomputed_layers = checkpointing_layers(model, settings)
        self.accelerator: Any = trl.accelerator

        model.parameters()  # turns them into float32, which the optimizer has to see
        optimizer = trl.create_optimizer()
        if trl.is_deepspeed_enabled:
            trl.args.hf_deepspeed_config.trainer_config_finalize(trl.args, trl.model, 1)
        wrapped, prepared_optimizer = self.accelerator.prepare(trl.model, optimizer)
        self.wrapped: Any = wrapped
        """The model as accelerate prepared it."""
        self.optimizer: Optimizer = prepared_optimizer

    def token_logprobs(self, rows: Sequence[Row]) -> TokenLogprobs:
        """Score completions in one forward pass that gradients flow through."""
        return trl_token_logprobs(self.wrapped, rows, self.model.pad, self.accelerator.device)

    def logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=False)

    def reference_logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=True)

    def _logprobs(self, rows: Sequence[Row], by_reference: bool) -> list[list[float]]:
        """Score a shard of the rows, and collect what the other processes score.

        Args:
            rows: The rows of all shards.
            by_reference: Whether the frozen reference scores, instead of the weights of now.
        """
        import torch

        # Equally many rows for each process, because every pass needs all processes.
        even_rows = fill_with_blanks(rows)
        shard = processes.local_shard(even_rows)
        shard_logprobs: list[list[float]] = []
        with torch.no_grad(), self.model.use_reference(reference=by_reference):
            for part in chunks(shard, self.settings.micro_batch_size):
                values = self.token_logprobs(part).values.tolist()
                for row, row_values in zip(part, values, strict=True):
                    shard_logprobs.append(row_values[: len(row.completion)])
            self._drop_collected_weights()
        logprobs = processes.gather_shards(shard_logprobs, len(even_rows))
        # The blank rows stand behind the others.
        return list(logprobs[: len(rows)])

    def _drop_collected_weights(self) -> None:
        """Make FSDP drop the whole weights that it collected for passes without gradients.

        They may be those of the reference, and the next pass would use them.
        """
        for module in self.wrapped.modules():
            if hasattr(module, "reshard"):
                module.reshard()

    def compute_gradients(self, batch: Sequence[Row], loss: PartLoss) -> float:
        """Compute the gradients of this process's shard; accelerate adds those of the others.

        Raises:
            UserError: Memory does not suffice for `micro_batch_size` rows.
        """
        import torch

        size = size_of_batch(batch)
        longest_first = sorted(batch, key=lambda row: -row.size)
        shard = processes.local_shard(fill_with_blanks(longest_first))
        parts = chunks(shard, self.micro_batch)

        # accelerate adds up the gradients of so many passes, counted anew for this batch.
        self.accelerator.gradient_accumulation_steps = len(parts)
        self.accelerator.step = 0

        # The losses of the parts add up to that of the batch. But gradients are averaged over
        # processes, and accelerate divides them by the number of passes, unless DeepSpeed adds them
        # up. The scale makes sums of these means.
        scale = processes.count()
        if not self.trl.is_deepspeed_enabled:
            scale *= len(parts)

        batch_loss = torch.zeros(1)
        try:
            for part in parts:
                with self.accelerator.accumulate(self.wrapped):
                    with recompute(self.recomputed_layers):
                        part_loss = loss(part, size)
                    self.accelerator.backward(part_loss * scale)
                    batch_loss += part_loss.detach().cpu()
        except Exception as error:
            if not memory_ran_out(error):
                raise
            # Smaller parts cannot be tried here: the other processes wait in the middle of a pass.
            raise UserError(self._out_of_memory_message()) from error

        processes.all_reduce_sum([batch_loss])
        return float(batch_loss)

    def _out_of_memory_message(self) -> str:
        message = f"memory ran out in training on {self.micro_batch} sharded completions"
        if self.micro_batch > 1:
            message += f"; train with micro_batch_size = {self.micro_batch // 2}"
        return message

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients to a norm of at most `max_norm`; return the norm before."""
        norm = self.accelerator.clip_grad_norm_(self.wrapped.parameters(), max_norm)
        # DeepSpeed clips in its own step, and may not know the norm yet.
        return 0.0 if norm is None else float(norm)

    def save_checkpoint(self, path: Path, steps: int) -> None:
        """Write a folder, to which every process adds its shards."""
        self.accelerator.save_state(str(path))
        if processes.rank() == 0:
            (path / "steps.json").write_text(json.dumps(steps))
        self.accelerator.wait_for_everyone()

    def load_checkpoint(self, path: Path) -> int:
        """Read a checkpoint into weights and optimizer; return the steps that led to it."""
        steps = json.loads((path / "steps.json").read_text())
        self.accelerator.load_state(str(path))
        self.model.updated()
        return steps

    def save_model(self, folder: Path) -> None:
        """Collect the shards of all processes, and write the model from the first one."""
        self.model.whole = self.accelerator.get_state_dict(self.wrapped)
        if processes.rank() == 0:
            self.model.save(folder)


def fill_with_blanks(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with so many blank ones behind that all processes get equally many."""
    missing = -len(rows) % processes.count()
    return [*rows, *[BLANK_ROW] * missing]


def trl_token_logprobs(model: Any, rows: Sequence[Row], pad: int, device: Any) -> TokenLogprobs:
    """Score the completions of B rows in one forward pass, by the head that TRL gave the model.

    The head divides the logits by the temperature of TRL's settings.

    Args:
        model: The model, maybe as accelerate prepared it.
        rows: Prompts with their completions.
        pad: The id of the token that fills shorter rows.
        device: Where the model is.
    """
    import torch

    # Each row as token ids, and as labels, which are the same ids where a token is scored.
    width = max(row.size for row in rows)
    padded_rows: list[list[int]] = []
    labels_of_rows: list[list[int]] = []
    for row in rows:
        padding = width - row.size
        padded_rows.append([*row.prompt, *row.completion, *[pad] * padding])
        prompt_labels = [IGNORED_LABEL] * len(row.prompt)
        labels_of_rows.append([*prompt_labels, *row.completion, *[IGNORED_LABEL] * padding])
    ids = torch.tensor(padded_rows, device=device)  # (B, width)
    labels = torch.tensor(labels_of_rows, device=device)  # (B, width)

    output = model(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True)
    logprobs = output.log_probs.float()  # (B, width - 1): the first token of a row has none
    is_scored = labels[:, 1:] != IGNORED_LABEL  # (B, width - 1)
    completion_logprobs = logprobs[is_scored]  # (tokens of all completions,), row by row

    # Completions stand at different columns of their rows; here they all begin at column 0.
    mask = token_mask([row.completion for row in rows], device)  # (B, T)
    values = torch.zeros(mask.shape, device=device).masked_scatter(mask > 0, completion_logprobs)
    return TokenLogprobs(values, mask)


def make_grpo_trainer(model: LocalModel, settings: Reinforcement) -> Any:
    """Make TRL's GRPOTrainer, for its optimizer, sharding and vLLM; its own loop is never run.

    Raises:
        UserError: TRL does not take a setting.
        MissingDependencyError: TRL is not installed.
    """
    from huggingface_hub import constants

    # Nothing is sent anywhere: at construction TRL would report to the hub what is trained.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage]
    except ImportError as error:
        raise MissingDependencyError("trl", "local") from error
    from datasets import Dataset

    # GRPOTrainer demands a data set and a reward; both are unused.
    dataset: Any = Dataset.from_dict({"prompt": [""]})
    rewards: Any = [_no_reward]
    try:
        with quiet():
            config = GRPOConfig(**_config_arguments(model, settings))
            trainer = GRPOTrainer(
                model.model, rewards, config, dataset, processing_class=model.tokenizer
            )
    except (
        TypeError,
        ValueError,
        ImportError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise UserError(f"trl: {one_line(error, 200)}") from error
    # Without dropout, whatever TRL has set: see `update`.
    model.model.eval()
    return trainer


def _config_arguments(model: LocalModel, settings: Reinforcement) -> dict[str, Any]:
    """Return the arguments of GRPOConfig: ours, then the user's settings of TRL."""
    # The smallest group that TRL accepts: it makes no groups here.
    group_size = 2
    arguments = {
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "seed": settings.seed,
        "max_grad_norm": settings.max_grad_norm,
        "temperature": settings.temperature or 1.0,
        # The KL term is in our loss: TRL would load a second model for it.
        "beta": 0.0,
        "per_device_train_batch_size": settings.micro_batch_size,
        "num_generations": group_size,
        "generation_batch_size": group_size * settings.micro_batch_size * processes.count(),
        "bf16": model.half,
        "gradient_checkpointing": False,
        "use_cpu": model.device.type == "cpu",
        "report_to": "none",
        "save_strategy": "no",
        # Without a folder TRL makes one in the current folder. Nothing is written to this one.
        "output_dir": settings.output_dir or tempfile.gettempdir(),
    }
    return arguments | dict(settings.trl)


def _no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)
