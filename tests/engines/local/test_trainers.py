"""Both trainers, in one process and in two, take the same steps; rollouts of TRL's by a stand-in for vLLM."""

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import torch
from dspy.utils.exceptions import LMError
from mempiler.engines.local import processes, trl_trainer, update, vllm_sampler
from mempiler.engines.local import trainer as job_trainer
from mempiler.engines.local.engine import local_lm, run_follower
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.rows import TokenLogprobs, pad_rows, token_mask
from mempiler.engines.local.sampling import SampleRequest
from mempiler.engines.local.trl_settings import EFFECTIVE, OWN_NAMES
from mempiler.engines.local.update import LocalWeights
from mempiler.errors import UserError

from tests.conformance.conftest import vectors
from tests.engines.local.groups import policy_rows, samples_heard, text_group

pytest.importorskip("trl", reason="the `local` extra is not installed: pip install '.[local]'")
TRAINERS = ("local", "trl", "sharded")
TEXTS = ("w7", "w8 w9", "w3 w4 w5", "w6", "w1 w1 w1", "w2 w3", "w4")
REWARDS = (1.0, 0.0, 0.3, 0.7, 0.5, 0.1, 0.2)
CASES = [
    {"ratio": "token", "beta": 0.0, "old_logprobs": "recomputed"},
    {"ratio": "turn", "beta": 0.02, "max_grad_norm": 0.0},
]
VECTORS = [case for case in vectors("memory_r2") if case["id"].startswith("policy-loss-")]
LOSSES = {case["id"]: case["expected"]["loss"] for case in VECTORS}


def job_of(model: Any, trainer: str = "trl", **settings: Any) -> Any:
    sizes: dict[str, Any] = {
        "learning_rate": 1e-2,
        "batch_size": 5,
        "micro_batch_size": 2,
        "epochs": 2,
    }
    if trainer == "sharded":
        wrapped = {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
        trainer, sizes["trl"] = "trl", {"fsdp": True, "fsdp_config": wrapped}
    return local_lm(model, temperature=1.0).reinforce({"trainer": trainer, **sizes, **settings})


def _shard_types(job: Any) -> set[str]:
    return {type(parameter.data).__name__ for parameter in job._weights.wrapped.parameters()}


def results(folder: Path, trainer: str) -> dict[str, Any]:
    """By case the losses and weights of two steps on seven records, the run put back to a checkpoint in between."""
    found: dict[str, Any] = {}
    for n, case in enumerate(CASES):
        model = LocalModel.load(folder, lora={"r": 2} if n else None)
        group, out = text_group(model, *TEXTS, rewards=REWARDS), tempfile.mkdtemp(dir=folder)
        job = job_of(model, trainer, output_dir=out, **case)
        losses = [job.step([group]).loss]
        assert trainer != "sharded" or _shard_types(job) == {"DTensor"}
        job.save_checkpoint("first")
        job.step([group])
        job.load_checkpoint(job.checkpoints["first"])
        losses.append(job.step([group]).loss)
        job.terminate()
        written = LocalModel.load(f"{out}/model").state()
        found |= {f"{n} {name}": weights for name, weights in written.items()}
        found[f"{n} losses"] = torch.tensor(losses)
    return found


def released(folder: Path, trainer: str) -> dict[str, float]:
    """The losses of a job whose model says what a vector says."""
    found = {}
    for number, case in enumerate(VECTORS):
        rows, settings = policy_rows(case["input"])
        items = [
            {"prompt_ids": (number, n), "completion_ids": old, "logprobs": old, "reward": gain}
            for n, (old, _, gain) in enumerate(rows)
        ]
        job = job_of(LocalModel.load(folder), trainer, **settings, epochs=1, micro_batch_size=1)
        found[case["id"]] = job.step([{"group": items}]).loss
        job.terminate()
    return found


def as_told(patch: pytest.MonkeyPatch) -> None:
    """Has models say what vectors say; advantages are theirs, too."""
    rows = [
        (n, row)
        for n, case in enumerate(VECTORS)
        for row in enumerate(policy_rows(case["input"])[0])
    ]
    told = {(n, place): row for n, (place, row) in rows}

    def token_logprobs(weights: Any, rows: Any) -> TokenLogprobs:
        said = [told[row.prompt][1] if row.completion else [] for row in rows]
        return TokenLogprobs(pad_rows(said, "cpu").requires_grad_(), token_mask(said, "cpu"))

    patch.setattr(job_trainer, "advantages", lambda rewards, settings: rewards)
    for kind in (LocalWeights, trl_trainer.TRLWeights, trl_trainer.ShardedWeights):
        patch.setattr(kind, "token_logprobs", token_logprobs)


def with_vllm(patch: pytest.MonkeyPatch, generation: Any) -> None:
    """Gives jobs a vLLM."""
    made = trl_trainer.make_grpo_trainer

    def trainer(*given: Any) -> Any:
        found = made(*given)
        found.args.use_vllm, found.vllm_generation = True, generation
        return found

    patch.setattr(trl_trainer, "make_grpo_trainer", trainer)


def shard_on_a_cpu(patch: pytest.MonkeyPatch) -> None:
    """Has accelerate keep weights in shards where there is no accelerator, too."""
    from accelerate import state

    made = state.AcceleratorState.__init__

    def init(self: Any, *given: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        made(self, *given, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.distributed_type, self.fsdp_plugin = state.DistributedType.FSDP, fsdp_plugin
            state.PartialState().distributed_type = state.DistributedType.FSDP

    patch.setattr(state.AcceleratorState, "__init__", init)


def main(folder: Path) -> None:
    """What each of two processes does; they end at once, as torch's threads may abort a Python that winds down."""
    found = {}
    for trainer in TRAINERS:
        for made, times in ((released, len(VECTORS)), (results, len(CASES))):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(processes, "leave", lambda: None)
                if made is released:
                    as_told(patch)
                if trainer == "sharded":
                    idle = SimpleNamespace(
                        mode="server", vllm_client=None, sync_weights=lambda: None
                    )
                    with_vllm(patch, idle)
                    shard_on_a_cpu(patch)
                if processes.rank():
                    assert [run_follower() for _ in range(times)] == [True] * times
                else:
                    found[f"{trainer} {made.__name__}"] = made(folder, trainer)
    processes.leave()
    if processes.rank() == 0:
        torch.save(found, folder / "found")


@pytest.fixture
def folder(make_model: Any, tmp_path: Path) -> Path:
    return make_model().save(tmp_path / "start")


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_both_trainers_take_the_same_steps(folder: Path) -> None:
    one, other, again = (results(folder, trainer) for trainer in ("local", "trl", "trl"))
    assert apart(one, other) < 1e-5
    assert apart(other, again) == 0.0


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_the_loss_of_a_job_is_the_released_one(
    folder: Path, trainer: str, monkeypatch: Any
) -> None:
    as_told(monkeypatch)
    assert released(folder, trainer) == pytest.approx(LOSSES, abs=1e-5)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(folder: Path) -> None:
    (folder / "run.py").write_text(
        f"import os, sys, pathlib\nsys.path.insert(0, {str(Path(__file__).parents[3])!r})\nfrom tests.engines.local "
        f"import test_trainers\ntest_trainers.main(pathlib.Path({str(folder)!r}))\nos._exit(0)\n"
    )
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(folder / "run.py"),
    ]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    found, one = torch.load(folder / "found", weights_only=False), results(folder, "local")
    for trainer in TRAINERS:
        assert apart(one, found[f"{trainer} results"]) < 1e-5, trainer
        assert found[f"{trainer} released"] == pytest.approx(LOSSES, abs=1e-5), trainer


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_largest_gradient_norm_of_0_clips_nothing(make_model: Any, trainer: str) -> None:
    def trained(norm: float) -> Any:
        model = make_model()
        # Adam's first step does not depend on the length of the gradient; the later ones do.
        job = job_of(model, trainer, max_grad_norm=norm)
        for _ in range(2):
            job.step([text_group(model, *TEXTS, rewards=REWARDS)])
        return model.state()

    start, unclipped, clipped, endless = (
        make_model().state(),
        trained(0.0),
        trained(1e-3),
        trained(1e9),
    )
    assert apart(start, unclipped) > 1e-3
    assert apart(endless, unclipped) == 0.0
    assert apart(clipped, unclipped) > 1e-6


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_gradients_without_end_and_memory_that_ends(
    make_model: Any, trainer: str, monkeypatch: Any
) -> None:
    """A gradient that is no number is left out and counted; memory that runs out halves the passes."""
    model, add_gradients, sizes = make_model(), LocalWeights._add_part_gradients, list[int]()
    group, before = text_group(model, *TEXTS, rewards=REWARDS), model.fingerprint
    job = job_of(model, trainer, epochs=1, batch_size=7, micro_batch_size=4)

    def failing(weights: Any, rows: Any, loss: Any, size: Any) -> float:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return add_gradients(weights, rows, lambda part, size: loss(part, size) * torch.inf, size)

    monkeypatch.setattr(LocalWeights, "_add_part_gradients", failing)
    done = job.step([group])
    assert done.rows == 7
    assert done.skipped == 1
    assert sizes == [4, 2, 2, 2, 1]
    assert model.fingerprint == before


@pytest.mark.parametrize(
    ("trainer", "settings", "told"),
    [
        (
            "trl",
            {"learning_rate": 1.0},
            "learning_rate is not TRL's to decide; set --train-set learning_rate=VALUE",
        ),
        ("trl", {"epsilon": 0.1}, "epsilon is not TRL's to decide; set --train-set clip_low=VALUE"),
        ("trl", {"no_such_setting": 1}, "unknown or ineffective setting of trl 'no_such_setting'"),
        ("trl", {"optim": "no such"}, "no such"),
        ("local", {"use_vllm": True}, "settings of trl are for trainer = trl"),
        ("trl", {"fsdp_config": {"version": 2}}, "fsdp_config has no effect without fsdp"),
        ("trl", {"bf16": True}, "bf16 has no effect on weights that are not sharded"),
        ("trl", {"vllm_mode": "server"}, "vllm_mode has no effect without vLLM"),
        (
            "trl",
            {"use_vllm": True, "vllm_server_port": 1},
            "vllm_server_port has no effect on vLLM in this process",
        ),
        (
            "trl",
            {"use_vllm": True, "vllm_mode": "server", "vllm_max_model_length": 1},
            "vllm_max_model_length has no effect on a vLLM server",
        ),
    ],
)
def test_settings_that_do_not_fit_are_one_line(
    model: Any, trainer: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=told) as error:
        job_of(model, trainer, trl=settings)
    assert "\n" not in str(error.value)


WITHOUT_EFFECT = (
    "loss_type",
    "epsilon",
    "epsilon_high",
    "delta",
    "num_iterations",
    "scale_rewards",
    "importance_sampling_level",
    "max_completion_length",
    "top_p",
    "repetition_penalty",
    "lr_scheduler_type",
    "warmup_steps",
    "disable_dropout",
    "mask_truncated_completions",
    "vllm_importance_sampling_correction",
)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_settings_of_trl_that_would_change_nothing_are_refused(model: Any, name: str) -> None:
    from trl import GRPOConfig  # pyright: ignore[reportPrivateImportUsage]

    default = GRPOConfig.__dataclass_fields__[name].default
    with pytest.raises(UserError, match=name):
        job_of(model, "trl", trl={name: default})


def test_settings_of_the_optimizer_reach_it(model: Any) -> None:
    job = job_of(
        model, "trl", trl={"optim": "adamw_torch", "adam_beta1": 0.5, "adam_epsilon": 0.25}
    )
    (group, *_) = job.trl_trainer.trl.create_optimizer().param_groups
    assert group["betas"][0] == 0.5
    assert group["eps"] == 0.25


def test_settings_that_are_taken_are_settings_of_trl() -> None:
    from trl import GRPOConfig  # pyright: ignore[reportPrivateImportUsage]

    names = GRPOConfig.__dataclass_fields__.keys()
    assert not {*EFFECTIVE, *OWN_NAMES} - names


PUBLIC = """
accelerator args create_optimizer is_deepspeed_enabled is_fsdp_enabled model vllm_generation accumulate backward
clip_grad_norm_ device get_state_dict gradient_accumulation_steps load_state prepare save_state step wait_for_everyone
generate base_url llm mode tensor_parallel_size vllm_client
"""


def test_nothing_is_sent_and_no_private_name_of_trl_is_used(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    job_of(model)
    assert constants.HF_HUB_DISABLE_TELEMETRY is True
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    used = {
        node.attr
        for module in (trl_trainer, update, vllm_sampler)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value).split(".")[-1] in ("trl", "accelerator", "generation", "client")
    }
    assert used == set(PUBLIC.split())


class Generation:
    """TRL's `VLLMGeneration`: a model here answers its client, or is its engine; pushes need a GPU, and are counted."""

    tensor_parallel_size = 1

    def __init__(self, mode: str, model: Any, patch: pytest.MonkeyPatch) -> None:
        from trl.generation import vllm_client

        self.mode, self.model, self.llm, self.pushed = mode, model, self, 0
        self.asked = list[dict[str, Any]]()
        patch.setattr(vllm_client, "is_vllm_available", lambda *given, **named: True)
        patch.setattr(
            requests.Session, "send", lambda session, request, **how: self.answer(request)
        )
        self.vllm_client = vllm_client.VLLMClient(base_url="http://vllm")

    def sync_weights(self) -> None:
        self.pushed += 1

    def drawn(self, prompt: Any, asked: dict[str, Any]) -> Any:
        self.asked.append(asked)
        request = SampleRequest(prompt, asked["temperature"], asked["max_tokens"], asked["seed"])
        return self.model.sample([request])[0]

    def generate(self, prompts: Any, params: Any, use_tqdm: bool) -> list[Any]:
        found = [
            self.drawn(each["prompt_token_ids"], how)
            for each, how in zip(prompts, params, strict=True)
        ]
        values = [
            [
                {0: None, token_id: SimpleNamespace(logprob=v)}
                for token_id, v in zip(one.completion_ids, one.logprobs, strict=True)
            ]
            for one in found
        ]
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=one.completion_ids, logprobs=each)])
            for one, each in zip(found, values, strict=True)
        ]

    def answer(self, request: Any) -> requests.Response:
        found = requests.Response()
        found.status_code, said = 200, {"data": [{"id": "tiny"}]}
        if request.method == "POST":
            asked = json.loads(request.body)
            drawn = self.drawn(asked["prompt"][0], asked)
            tokens, values = (
                [f"token_id:{token}" for token in drawn.completion_ids],
                [*drawn.logprobs],
            )
            told = {"tokens": tokens, "token_logprobs": values}
            told["top_logprobs"] = [
                {token: value} for token, value in zip(tokens, values, strict=True)
            ]
            ids = {"prompt_token_ids": asked["prompt"][0], "token_ids": drawn.completion_ids}
            said = {"choices": [{**ids, "logprobs": told}]}
        found._content = json.dumps(said).encode()
        return found


@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_rollouts_come_from_vllm_and_weights_go_there(
    make_model: Any, mode: str, monkeypatch: Any
) -> None:
    generation, model = Generation(mode, make_model(), monkeypatch), make_model()
    with_vllm(monkeypatch, generation)
    lm = local_lm(model, temperature=1.0, max_tokens=6)
    with samples_heard() as here:
        lm.copy(rollout_id=3)("w1 w2")
    job = lm.reinforce({"trainer": "trl"})
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict))
    with samples_heard() as there:
        lm.copy(rollout_id=3)("w1 w2")
    assert there == here
    (asked,) = generation.asked
    assert asked["top_k"] == 0
    assert asked["stop_token_ids"] == [1]
    assert asked["logprobs"] == 0
    job.step([text_group(model, *TEXTS, rewards=REWARDS)])
    assert generation.pushed == 2
    generation.model = None
    with pytest.raises(LMError, match="vLLM does not sample" if mode == "server" else None):
        lm.copy(rollout_id=4)("w1 w2")
