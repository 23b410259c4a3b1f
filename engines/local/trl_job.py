"""Reinforcement on TRL: groups, advantages and loss are ours; processes, sharding, optimizer and rollouts are its.

GRPOTrainer reads settings (TRL's, accelerate's, of FSDP or DeepSpeed), makes the optimizer, gives the model a head in
tiles, has vLLM sample and pushes the weights there. Where all processes have all weights, steps are those of `update`;
where weights are sharded, all make equally many passes, filled up with rows that count nothing. Only public names of
TRL, transformers and accelerate are used; a test lists them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import MissingDependencyError, UserError
from ...text import one_line
from . import processes
from .batching import chunks
from .loading import quiet
from .model import LocalModel
from .reinforce import LocalReinforceJob
from .settings import Reinforcement
from .update import Row, Sharded, Update

if TYPE_CHECKING:
    from torch import Tensor

BLANK = Row((0, 0), ())
"""Counts nothing: it has no completion."""


class TRLJob(LocalReinforceJob):
    """A training job on TRL's GRPOTrainer.

    Args:
        lm: An LM over a local engine.
        train_kwargs: See `settings.Reinforcement`.

    Raises:
        UserError: A setting is unknown or has no effect, or sharded weights have no vLLM to sample them.
        MissingDependencyError: TRL is not installed.
    """

    def __init__(self, lm: Any, train_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(lm, train_kwargs)
        self.trl = _grpo_trainer(self.settings, self.model)
        self.accelerator: Any = self.trl.accelerator
        self.sharded = self.model.sharded = bool(self.trl.is_fsdp_enabled or self.trl.is_deepspeed_enabled)
        self.wrapped: Any = self.model.model
        """The model as accelerate prepared it."""
        if self.sharded and not self.trl.args.use_vllm:
            raise UserError("weights that are sharded cannot sample by themselves; set use_vllm = true in trl")
        if self.trl.args.use_vllm and processes.rank() == 0:
            from .vllm_sampler import sampler

            lm.engine.sampler = sampler(self.trl.vllm_generation, self.model)

    def _new_update(self) -> Update:
        if self._update is not None:
            # TRL and accelerate keep what they made; the moments of the weights begin anew.
            self._update.optimizer.state.clear()
            return self._update
        update = Sharded(self) if self.sharded else Update(self.model, self.settings)
        update.optimizer = self.trl.create_optimizer()
        if self.trl.is_deepspeed_enabled:
            self.trl.args.hf_deepspeed_config.trainer_config_finalize(self.trl.args, self.trl.model, 1)
        if self.sharded:
            self.wrapped, update.optimizer = self.accelerator.prepare(self.trl.model, update.optimizer)
        return update

    def _changed(self) -> None:
        if self.trl.args.use_vllm:
            self.trl.vllm_generation.sync_weights()

    def _save(self, path: Path, update: Update) -> None:
        if not self.sharded:
            super()._save(path, update)
            return
        self.accelerator.save_state(str(path))
        if processes.rank() == 0:
            (path / "steps.json").write_text(json.dumps(self.steps))
            shutil.rmtree(path.with_suffix(".pt"), ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _load(self, path: str | Path, update: Update) -> None:
        if not self.sharded:
            super()._load(path, update)
            return
        self.steps = json.loads((Path(path) / "steps.json").read_text())
        self.accelerator.load_state(str(path))
        self.model.updated()

    def _write(self, folder: Path) -> None:
        if self.sharded:
            self.model.whole = self.accelerator.get_state_dict(self.wrapped)
        super()._write(folder)

    def _scores(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Log-probabilities of completions by TRL's head, and their mask."""
        import torch

        width, device = max(row.size for row in rows), self.accelerator.device
        padded = [[*row.prompt, *row.completion, *[self.model.pad] * (width - row.size)] for row in rows]
        said = [[*[-100] * len(row.prompt), *row.completion, *[-100] * (width - row.size)] for row in rows]
        ids, labels = torch.tensor(padded, device=device), torch.tensor(said, device=device)
        found = self.wrapped(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True).log_probs.float()
        lengths = torch.tensor([[len(row.completion)] for row in rows], device=device)
        there = torch.arange(int(lengths.max()), device=device) < lengths
        scored = torch.zeros(there.shape, device=device).masked_scatter(there, found[labels[:, 1:] != -100])
        return scored, there.float()

    def _compared(self, rows: list[Row]) -> list[Row]:
        return super()._compared(self.filled(rows))[: len(rows)]

    def filled(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of sharded weights, as many for each process."""
        return [*rows, *[BLANK] * (-len(rows) % processes.count() if self.sharded else 0)]

    def _logprobs(self, rows: Sequence[Row], by_reference: bool) -> list[list[float]]:
        import torch

        if not self.sharded:
            return super()._logprobs(rows, by_reference)
        logprobs: list[list[float]] = []
        with torch.no_grad(), self.model.use_reference(reference=by_reference):
            for part in chunks(rows, self.settings.micro_batch_size):
                values = self._scores(part)[0].tolist()
                logprobs += [each[: len(row.completion)] for each, row in zip(values, part, strict=True)]
            # A pass without gradients leaves what FSDP collected for it, here maybe the reference's weights.
            for module in self.wrapped.modules():
                getattr(module, "reshard", lambda: None)()
        return logprobs


def _grpo_trainer(settings: Reinforcement, model: LocalModel) -> Any:
    from huggingface_hub import constants

    # Nothing is sent: TRL would say at construction what is trained on.
    os.environ["HF_HUB_DISABLE_TELEMETRY"], constants.HF_HUB_DISABLE_TELEMETRY = "1", True
    try:
        from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage]
    except ImportError as error:
        raise MissingDependencyError("trl", "local") from error
    from datasets import Dataset

    size, same = settings.micro_batch_size, ("learning_rate", "weight_decay", "seed", "max_grad_norm")
    own = {name: getattr(settings, name) for name in same} | {"temperature": settings.temperature or 1.0, "beta": 0.0}
    own |= {"per_device_train_batch_size": size, "num_generations": 2, "bf16": model.half, "report_to": "none"}
    own |= {"generation_batch_size": 2 * size * processes.count(), "gradient_checkpointing": False}
    own |= {"use_cpu": model.device.type == "cpu", "save_strategy": "no"}
    # Without a folder TRL makes one of its own in the current one; nothing is written there.
    own |= {"output_dir": settings.output_dir or tempfile.gettempdir()}
    try:
        # Both arguments are needed, and unused: rewards and rows are ours.
        rows: Any = Dataset.from_dict({"prompt": [""]})
        rewards: Any = [lambda completions, **_: [0.0] * len(completions)]
        with quiet():
            args = GRPOConfig(**{**own, **settings.trl})
            made = GRPOTrainer(model.model, rewards, args, rows, processing_class=model.tokenizer)
    except (TypeError, ValueError, ImportError, OSError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"trl: {one_line(error, 200)}") from error
    model.model.eval()
    return made
