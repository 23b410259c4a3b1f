"""Our trainer and TRL's take the same steps, in one process and in two; TRL's takes vLLM.

TRL is a library of Hugging Face that trains language models; vLLM is a fast sampler that needs a
GPU, for which `fake_vllm.py` has stand-ins. A job of the trainer "trl" has TRL hold the weights and
make the optimizer, while groups and loss are ours. The other process of two repeats each step.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dspy.utils.exceptions import LMError
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.trl_settings import EFFECTIVE, OWN_NAMES
from mempiler.errors import UserError

from tests.engines.local.fake_vllm import FakeEngine, FakeGeneration, SamplingModel, vllm_server
from tests.engines.local.groups import record_samples, run_out_of_memory_above, text_group
from tests.engines.local.torchrun import run_in_two_processes
from tests.engines.local.training_runs import (
    RELEASED_LOSSES,
    RESULTS_FILE,
    TRAINERS,
    TRAINING_CASES,
    largest_difference,
    make_job,
    train_on_released_cases,
    train_on_texts,
    use_logprobs_of_released_cases,
    use_vllm,
)

pytest.importorskip("trl", reason="the `local` extra is not installed: pip install '.[local]'")


@pytest.fixture
def model_folder(make_model: Callable[..., Any], tmp_path: Path) -> Path:
    """The folder of a saved model."""
    return make_model().save(tmp_path / "start")


# Steps.


@pytest.mark.parametrize("case", TRAINING_CASES.values(), ids=TRAINING_CASES.keys())
def test_both_trainers_take_the_same_steps(model_folder: Path, case: Any) -> None:
    """A training takes two steps on seven short texts, of all weights or of an adapter.

    Its second step begins from a checkpoint that was saved after the first one. `trl` is a trainer
    of Hugging Face, and `local` is ours.
    """
    result_of_ours = train_on_texts(model_folder, "local", case)
    result_of_trls = train_on_texts(model_folder, "trl", case)
    assert result_of_trls.losses == pytest.approx(result_of_ours.losses, abs=1e-5)
    assert largest_difference(result_of_trls.weights, result_of_ours.weights) < 1e-5


@pytest.mark.parametrize("case", TRAINING_CASES.values(), ids=TRAINING_CASES.keys())
def test_trls_trainer_takes_exactly_the_same_steps_each_time(model_folder: Path, case: Any) -> None:
    """A training takes two steps on seven short texts, of all weights or of an adapter."""
    first_training = train_on_texts(model_folder, "trl", case)
    second_training = train_on_texts(model_folder, "trl", case)
    assert second_training.losses == first_training.losses
    assert largest_difference(second_training.weights, first_training.weights) == 0.0


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_job_has_the_losses_that_the_released_code_of_memory_r2_gives(
    model_folder: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory-R2 is a published method. Its code was run on some cases, and the losses were kept.

    A case has log-probabilities and advantages of tokens. The model of the job gives these here, so
    the losses must be those that were kept.
    """
    use_logprobs_of_released_cases(monkeypatch)

    losses = train_on_released_cases(model_folder, trainer)

    assert losses == pytest.approx(RELEASED_LOSSES, abs=1e-5)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(model_folder: Path) -> None:
    """The two processes run `main` of `training_runs.py`, which writes its results to a file."""
    run_in_two_processes("tests.engines.local.training_runs", model_folder, timeout=800)
    results = torch.load(model_folder / RESULTS_FILE, weights_only=False)

    for trainer in TRAINERS:
        losses = results.losses_of_released_cases[trainer]
        assert losses == pytest.approx(RELEASED_LOSSES, abs=1e-5), trainer

    for name, case in TRAINING_CASES.items():
        training_in_one = train_on_texts(model_folder, "local", case)
        for trainer in TRAINERS:
            training_in_two = results.trainings[trainer, name]
            losses_in_one = pytest.approx(training_in_one.losses, abs=1e-5)
            assert training_in_two.losses == losses_in_one, trainer
            difference = largest_difference(training_in_two.weights, training_in_one.weights)
            assert difference < 1e-5, trainer


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_largest_gradient_norm_of_0_clips_nothing(
    make_model: Callable[..., Any], trainer: str
) -> None:
    """A gradient that is longer than `max_grad_norm` is made shorter; 0 switches this off."""

    def train(max_grad_norm: float) -> dict[str, torch.Tensor]:
        """Return the weights of a model after two steps."""
        model = make_model()
        # Adam's first step does not depend on the length of the gradient; the later ones do.
        job = make_job(model, trainer, max_grad_norm=max_grad_norm)
        for _ in range(2):
            job.step([text_group(model, "w7", "w8 w9", "w6", rewards=[1.0, 0.0, 0.7])])
        return model.state()

    untrained_weights = make_model().state()
    weights = train(max_grad_norm=0.0)
    weights_with_endless_norm = train(max_grad_norm=1e9)
    clipped_weights = train(max_grad_norm=1e-3)

    assert largest_difference(weights, untrained_weights) > 1e-3
    assert largest_difference(weights, weights_with_endless_norm) == 0.0
    assert largest_difference(weights, clipped_weights) > 1e-6


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_memory_that_runs_out_halves_the_rows_of_a_pass(
    make_model: Callable[..., Any], trainer: str
) -> None:
    """A pass may have four of the seven rows (`micro_batch_size`), but memory suffices for two."""
    model = make_model()
    seven_texts = ["w7", "w8", "w9", "w10", "w11", "w12", "w13"]
    group = text_group(model, *seven_texts, rewards=[1.0, 0.0, 0.3, 0.7, 0.5, 0.1, 0.2])
    job = make_job(model, trainer, epochs=1, batch_size=7, micro_batch_size=4)
    row_counts = run_out_of_memory_above(model, max_rows=2, in_training_only=True)

    step = job.step([group])

    assert step.rows == 7
    # The first pass of four rows fails; after that the seven rows go in passes of two.
    assert row_counts == [4, 2, 2, 2, 1]


@pytest.mark.parametrize("trainer", ["local", "trl"])
def test_a_step_along_a_gradient_that_is_not_finite_is_skipped_and_counted(
    make_model: Callable[..., Any], trainer: str
) -> None:
    """Such a step would leave no finite weight."""
    model = make_model()
    group = text_group(model, "w7", "w8 w9", "w6", rewards=[1.0, 0.0, 0.7])
    fingerprint = model.fingerprint
    job = make_job(model, trainer, epochs=1, batch_size=3)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient * torch.inf)

    step = job.step([group])

    assert step.rows == 3
    assert step.skipped == 1
    assert model.fingerprint == fingerprint


# Settings of TRL.


@pytest.mark.parametrize(
    ("trainer", "settings", "message"),
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
def test_a_setting_of_trl_that_does_not_fit_is_refused_in_one_line(
    model: Any, trainer: str, settings: dict[str, Any], message: str
) -> None:
    """The settings in `trl` go to TRL, except those that the job decides by settings of its own."""
    with pytest.raises(UserError, match=message) as error:
        make_job(model, trainer, trl=settings)
    assert "\n" not in str(error.value)


# Settings of TRL's own loss and sampling, in the place of which we have ours.
SETTINGS_WITHOUT_EFFECT = (
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


@pytest.mark.parametrize("name", SETTINGS_WITHOUT_EFFECT)
def test_a_setting_of_trl_that_would_change_nothing_is_refused_even_with_its_default(
    model: Any, name: str
) -> None:
    from trl import GRPOConfig  # pyright: ignore[reportPrivateImportUsage]

    default = GRPOConfig.__dataclass_fields__[name].default
    with pytest.raises(UserError, match=name):
        make_job(model, "trl", trl={name: default})


def test_settings_of_the_optimizer_reach_it(model: Any) -> None:
    settings = {"optim": "adamw_torch", "adam_beta1": 0.5, "adam_epsilon": 0.25}
    job = make_job(model, "trl", trl=settings)

    optimizer = job.trl_trainer.trl.create_optimizer()

    parameter_group = optimizer.param_groups[0]
    assert parameter_group["betas"][0] == 0.5
    assert parameter_group["eps"] == 0.25


def test_all_settings_that_we_take_are_settings_of_trl() -> None:
    from trl import GRPOConfig  # pyright: ignore[reportPrivateImportUsage]

    names_we_take = {*EFFECTIVE, *OWN_NAMES}
    names_of_trl = set(GRPOConfig.__dataclass_fields__)
    assert names_we_take - names_of_trl == set()


def test_a_job_of_trl_switches_the_telemetry_of_the_hub_off(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)

    make_job(model)

    assert constants.HF_HUB_DISABLE_TELEMETRY is True
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


# vLLM.


@pytest.fixture
def sampling_model(make_model: Callable[..., Any]) -> SamplingModel:
    """What samples in the place of vLLM, with the weights of `model`."""
    return SamplingModel(make_model())


@pytest.fixture(params=["server", "colocate"])
def fake_vllm(
    request: pytest.FixtureRequest, sampling_model: SamplingModel, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """TRL's access to the stand-in of vLLM: to a server, and to an engine in this process."""
    if request.param == "colocate":
        fake_module = SimpleNamespace(SamplingParams=dict)
        monkeypatch.setitem(sys.modules, "vllm", fake_module)
        yield FakeGeneration("colocate", llm=FakeEngine(sampling_model))
        return

    from trl.generation import vllm_client

    # TRL's client of a server does not need the package vllm, but refuses to work without it.
    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda: True)
    with vllm_server(sampling_model) as address:
        client = vllm_client.VLLMClient(base_url=address)
        yield FakeGeneration("server", vllm_client=client)
        client.session.close()


def sample_once(lm: Any, rollout_id: int) -> Any:
    """Return what a model samples for a prompt."""
    with record_samples() as samples:
        lm.copy(rollout_id=rollout_id)("w1 w2")
    (sample,) = samples
    return sample


@pytest.mark.parametrize("rollout_id", [3, 4])
def test_vllm_samples_what_the_model_here_would_sample(
    model: Any,
    fake_vllm: FakeGeneration,
    sampling_model: SamplingModel,
    rollout_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed of a call decides what is sampled. The stand-in of vLLM has the same weights."""
    use_vllm(monkeypatch, fake_vllm)
    lm = local_lm(model, temperature=1.0, max_tokens=6)
    sample_of_this_process = sample_once(lm, rollout_id)
    assert sampling_model.requests == []

    lm.reinforce({"trainer": "trl"})  # from now on vLLM samples
    sample_of_vllm = sample_once(lm, rollout_id)

    assert sample_of_vllm == sample_of_this_process
    (settings,) = sampling_model.requests
    assert settings["top_k"] == 0  # from all tokens
    assert settings["stop_token_ids"] == [1]  # "<eos>"
    assert settings["logprobs"] == 0  # of the sampled token, and none besides


def test_vllm_gets_the_weights_at_the_start_and_after_every_step(
    model: Any, fake_vllm: FakeGeneration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM has a copy of the weights, and must sample with those that were trained last."""
    use_vllm(monkeypatch, fake_vllm)
    job = local_lm(model, temperature=1.0).reinforce({"trainer": "trl"})
    assert fake_vllm.synchronizations == 1

    job.step([text_group(model, "w7", "w8", rewards=[1.0, 0.0])])
    assert fake_vllm.synchronizations == 2


def test_a_failure_of_vllm_is_an_error_of_the_model(
    model: Any,
    fake_vllm: FakeGeneration,
    sampling_model: SamplingModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_vllm(monkeypatch, fake_vllm)
    lm = local_lm(model, temperature=1.0, max_tokens=6)
    lm.reinforce({"trainer": "trl"})
    sampling_model.is_broken = True

    expected_message = "vLLM does not sample" if fake_vllm.mode == "server" else "vLLM is broken"
    with pytest.raises(LMError, match=expected_message):
        sample_once(lm, rollout_id=4)
