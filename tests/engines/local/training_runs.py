"""Trainings of which `test_trainers` compares the results: in one process, and in two.

There are two kinds. A training on texts takes real steps on a tiny model. A training on the
released cases of Memory-R2 has a model that gives the log-probabilities of these cases, so that its
loss must be the released one.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mempiler.engines.local import processes, trl_trainer
from mempiler.engines.local import trainer as job_trainer
from mempiler.engines.local.engine import local_lm, run_follower
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.rows import TokenLogprobs, pad_rows, token_mask
from mempiler.engines.local.update import LocalWeights

from tests.conformance.conftest import vectors
from tests.engines.local.groups import PolicyRow, policy_rows, text_group

TRAINERS = ("local", "trl", "sharded")
"""Our trainer, TRL's, and TRL's with weights in shards."""

TEXTS = ("w7", "w8 w9", "w3 w4 w5", "w6", "w1 w1 w1", "w2 w3", "w4")
REWARDS = (1.0, 0.0, 0.3, 0.7, 0.5, 0.1, 0.2)


def make_job(model: Any, trainer: str = "trl", **settings: Any) -> Any:
    """Return a training job on a model, with batches that do not fill up.

    Args:
        model: A local model.
        trainer: One of `TRAINERS`.
        **settings: Further settings of the training.
    """
    all_settings: dict[str, Any] = {
        "trainer": trainer,
        "learning_rate": 1e-2,
        "batch_size": 5,
        "micro_batch_size": 2,
        "epochs": 2,
    }
    if trainer == "sharded":
        all_settings["trainer"] = "trl"
        all_settings["trl"] = {
            "fsdp": True,
            "fsdp_config": {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
        }
    return local_lm(model, temperature=1.0).reinforce({**all_settings, **settings})


# Trainings on texts.


@dataclass(frozen=True)
class TrainingCase:
    """A training on texts."""

    settings: dict[str, Any]
    lora: dict[str, Any] | None = None
    """The adapter that is trained; None trains all weights."""


TRAINING_CASES = {
    "all weights": TrainingCase({"ratio": "token", "beta": 0.0, "old_logprobs": "recomputed"}),
    "an adapter": TrainingCase({"ratio": "turn", "beta": 0.02, "max_grad_norm": 0.0}, {"r": 2}),
}


@dataclass(frozen=True)
class TrainingResult:
    """What a training on texts gave."""

    losses: list[float]
    """Of its two steps."""
    weights: dict[str, torch.Tensor]
    """Of the model that it wrote."""


def train_on_texts(folder: Path, trainer: str, case: TrainingCase) -> TrainingResult:
    """Train a model for two steps, where the second one is taken from a checkpoint.

    Args:
        folder: Where the model is.
        trainer: One of `TRAINERS`.
        case: The settings.
    """
    model = LocalModel.load(folder, lora=case.lora)
    output_folder = Path(tempfile.mkdtemp(dir=folder))
    group = text_group(model, *TEXTS, rewards=REWARDS)
    job = make_job(model, trainer, output_dir=str(output_folder), **case.settings)

    first_step = job.step([group])
    if trainer == "sharded":
        assert_weights_are_sharded(job)

    # A further step, which the checkpoint takes back.
    job.save_checkpoint("first")
    job.step([group])
    job.load_checkpoint(job.checkpoints["first"])
    second_step = job.step([group])
    job.terminate()

    losses = [first_step.loss, second_step.loss]
    return TrainingResult(losses, LocalModel.load(output_folder / "model").state())


def assert_weights_are_sharded(job: Any) -> None:
    """Assert that a job has only a shard of each weight: a `DTensor` is a part of a tensor."""
    parameters = job.trl_trainer.trl.model.parameters()
    kinds = {type(parameter.data).__name__ for parameter in parameters}
    assert kinds == {"DTensor"}


def largest_difference(
    weights: dict[str, torch.Tensor], other_weights: dict[str, torch.Tensor]
) -> float:
    """Return how much two sets of weights differ at most in one number."""
    assert weights.keys() == other_weights.keys()
    differences = [weights[name] - other_weights[name] for name in weights]
    return max(float(difference.abs().max()) for difference in differences)


# Trainings on released cases.

RELEASED_CASES = [case for case in vectors("memory_r2") if case["id"].startswith("policy-loss-")]
RELEASED_LOSSES = {case["id"]: case["expected"]["loss"] for case in RELEASED_CASES}


def use_logprobs_of_released_cases(patch: pytest.MonkeyPatch) -> None:
    """Have models give the log-probabilities of released cases, and jobs take their advantages.

    The prompt (C, R) stands for the row R of the case C.
    """
    rows_by_prompt: dict[tuple[int, int], PolicyRow] = {}
    for case_number, case in enumerate(RELEASED_CASES):
        rows, _ = policy_rows(case["input"])
        for row_number, row in enumerate(rows):
            rows_by_prompt[case_number, row_number] = row

    def token_logprobs(weights: Any, rows: Any) -> TokenLogprobs:
        logprobs: list[list[float]] = []
        for row in rows:
            # A row without completion fills up a batch of sharded weights.
            logprobs.append(rows_by_prompt[row.prompt].new_logprobs if row.completion else [])
        values = pad_rows(logprobs, "cpu").requires_grad_()
        return TokenLogprobs(values, token_mask(logprobs, "cpu"))

    # What stands as reward in a group is the advantage.
    patch.setattr(job_trainer, "advantages", lambda rewards, settings: rewards)
    for weights_class in (LocalWeights, trl_trainer.TRLWeights, trl_trainer.ShardedWeights):
        patch.setattr(weights_class, "token_logprobs", token_logprobs)


def train_on_released_cases(folder: Path, trainer: str) -> dict[str, float]:
    """Return the losses of one step on each released case, by the id of the case."""
    losses: dict[str, float] = {}
    for case_number, case in enumerate(RELEASED_CASES):
        rows, settings = policy_rows(case["input"])
        members: list[dict[str, Any]] = []
        for row_number, row in enumerate(rows):
            member = {
                "prompt_ids": (case_number, row_number),
                "completion_ids": row.old_logprobs,  # any tokens; only their number matters
                "logprobs": row.old_logprobs,
                "reward": row.advantage,
            }
            members.append(member)

        model = LocalModel.load(folder)
        job = make_job(model, trainer, **settings, epochs=1, micro_batch_size=1)
        losses[case["id"]] = job.step([{"group": members}]).loss
        job.terminate()
    return losses


# Stand-ins for hardware.


def use_vllm(patch: pytest.MonkeyPatch, generation: Any) -> None:
    """Have TRL's trainers sample by vLLM, to which `generation` gives access.

    Their own setting `use_vllm` would start vLLM, which needs a GPU.
    """
    make_grpo_trainer = trl_trainer.make_grpo_trainer

    def make_trainer_with_vllm(*args: Any) -> Any:
        trainer = make_grpo_trainer(*args)
        trainer.args.use_vllm = True
        trainer.vllm_generation = generation
        return trainer

    patch.setattr(trl_trainer, "make_grpo_trainer", make_trainer_with_vllm)


def shard_weights_on_cpu(patch: pytest.MonkeyPatch) -> None:
    """Have accelerate keep weights in shards though there is no accelerator."""
    from accelerate import state

    initialize = state.AcceleratorState.__init__

    def initialize_with_shards(
        accelerator_state: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any
    ) -> None:
        initialize(accelerator_state, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            accelerator_state.distributed_type = state.DistributedType.FSDP
            accelerator_state.fsdp_plugin = fsdp_plugin
            state.PartialState().distributed_type = state.DistributedType.FSDP

    patch.setattr(state.AcceleratorState, "__init__", initialize_with_shards)


# Two processes.


@dataclass
class Results:
    """What the first process of two writes down, for each trainer."""

    losses_of_released_cases: dict[str, dict[str, float]] = field(default_factory=dict)
    """By trainer and case."""
    trainings: dict[tuple[str, str], TrainingResult] = field(default_factory=dict)
    """By trainer and name of the case."""


RESULTS_FILE = "results.pt"


def main(folder: Path) -> None:
    """Train in each of two processes: the first one leads and writes the results, one follows.

    Args:
        folder: Where the model is, and the results are written.
    """
    results = Results()
    leads = processes.rank() == 0
    for trainer in TRAINERS:
        with pytest.MonkeyPatch.context() as patch:
            prepare_process(patch, trainer)
            use_logprobs_of_released_cases(patch)
            if leads:
                losses = train_on_released_cases(folder, trainer)
                results.losses_of_released_cases[trainer] = losses
            else:
                follow_trainings(len(RELEASED_CASES))

        with pytest.MonkeyPatch.context() as patch:
            prepare_process(patch, trainer)
            if leads:
                for name, case in TRAINING_CASES.items():
                    results.trainings[trainer, name] = train_on_texts(folder, trainer, case)
            else:
                follow_trainings(len(TRAINING_CASES))
    processes.leave()

    if leads:
        torch.save(results, folder / RESULTS_FILE)


def prepare_process(patch: pytest.MonkeyPatch, trainer: str) -> None:
    """Keep the processes connected after a training, and give sharded weights what they need."""
    patch.setattr(processes, "leave", lambda: None)
    if trainer == "sharded":
        idle_vllm = SimpleNamespace(mode="server", vllm_client=None, sync_weights=lambda: None)
        use_vllm(patch, idle_vllm)
        shard_weights_on_cpu(patch)


def follow_trainings(count: int) -> None:
    for _ in range(count):
        assert run_follower()
