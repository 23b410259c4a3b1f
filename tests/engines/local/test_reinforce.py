"""Reinforcement by DSPy's protocol: rewards, groups, settings, checkpoints, and what is refused.

A job trains a model. Each of its steps takes groups; a group has several completions of one prompt,
each with its reward. Completions with a better reward than the others of their group become
likelier. The fixture `model` has a few thousand random weights, and knows the words w0 to w19.
`text_group` makes a group of given texts, as if the model had written them.
"""

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.errors import DataError, UserError

from tests.engines.local.groups import MESSAGES, sampled_group, text_group

NEEDS_TRL = pytest.mark.skipif(
    find_spec("trl") is None,
    reason="the `local` extra is not installed: pip install '.[local]'",
)
"""TRL is a library of Hugging Face that trains language models."""


def probability(model: Any, word: str) -> float:
    """Return the probability that the model answers the prompt with a word."""
    prompt_ids = model.encode(MESSAGES)
    word_ids = model.encode_completion(word)[:1]  # without the end
    ((logprob,),) = model.logprobs([prompt_ids], [word_ids])
    return math.exp(logprob)


def make_job(model: Any, **settings: Any) -> Any:
    """Return a training job on a model.

    Args:
        model: A local model.
        **settings: Settings of the training; they change the usual ones of these tests.
    """
    lm = local_lm(model, temperature=1.0, max_tokens=1)
    return lm.reinforce({"learning_rate": 1e-2, "num_generations": 2, **settings})


# Rewards.


def reward_for_w7(sample: Any) -> float:
    return 1.0 if sample.text == "w7" else 0.0


def test_a_rewarded_answer_becomes_likelier(model: Any) -> None:
    """Of 64 answers that the model gives in each step, those that are "w7" get a reward."""
    lm = local_lm(model, temperature=1.0, max_tokens=1)
    job = lm.reinforce({"learning_rate": 1e-2, "batch_size": 64})
    assert probability(model, "w7") < 0.5

    for _ in range(12):
        job.step([sampled_group(lm, count=64, reward=reward_for_w7)])

    assert probability(model, "w7") > 0.8


def test_every_step_that_trains_makes_a_new_version(model: Any) -> None:
    """A group with equal rewards trains nothing."""
    job = make_job(model)

    job.step([text_group(model, "w7", "w8", rewards=[1.0, 0.0])])
    job.step([text_group(model, "w7", "w8", rewards=[0.5, 0.5])])
    job.step([text_group(model, "w7", "w8", rewards=[1.0, 0.0])])

    assert model.version == 2


def test_the_first_step_on_samples_of_the_model_itself_has_a_loss_of_0(model: Any) -> None:
    """All ratios are 1, so the loss is minus the mean advantage, which is 0 within a group."""
    lm = local_lm(model, temperature=1.0, max_tokens=1)
    job = lm.reinforce({"learning_rate": 1e-2, "batch_size": 64})

    step = job.step([sampled_group(lm, count=64, reward=reward_for_w7)])

    assert step.rows == 64
    assert step.tokens == 64  # one for each completion
    assert step.loss == pytest.approx(0, abs=1e-5)


def test_a_group_of_equal_rewards_trains_nothing(model: Any) -> None:
    """No completion is better than the others, so none should become likelier."""
    fingerprint = model.fingerprint
    group = text_group(model, "w7", "w8", rewards=[0.5, 0.5])

    step = make_job(model, beta=0.1).step([group])

    assert step.rows == 0
    assert step.left_out == 1  # group
    assert step.reward == 0.5  # the mean
    assert model.fingerprint == fingerprint


def test_a_step_without_groups_trains_nothing(model: Any) -> None:
    assert make_job(model).step([]).rows == 0


def test_an_empty_completion_is_not_trained_on(model: Any) -> None:
    group = text_group(model, "w7", "w8", rewards=[1.0, 0.0])
    _, second_member = group["group"]
    second_member["completion_ids"] = []
    second_member["logprobs"] = []

    step = make_job(model).step([group])

    assert step.rows == 1


def test_a_fault_with_a_weight_makes_its_completion_less_likely_though_rewards_are_equal(
    make_model: Callable[..., Any],
) -> None:
    """A fault is a defect that the reward does not see, such as an answer that cannot be read."""
    model = make_model()
    probability_before = probability(model, "w7")
    group = text_group(model, "w7", "w8", rewards=[0.5, 0.5], fault_weights={"unreadable": 0.5})
    member_with_w7, member_with_w8 = group["group"]
    member_with_w7["faults"] = {"unreadable": 1.0}
    member_with_w8["faults"] = {"unreadable": 0.0}

    step = make_job(model).step([group])

    assert step.left_out == 0  # the group is trained on
    assert probability(model, "w7") < probability_before


def test_a_fault_without_a_weight_changes_nothing(model: Any) -> None:
    probability_before = probability(model, "w7")
    group = text_group(model, "w7", "w8", rewards=[0.5, 0.5], fault_weights={})
    member_with_w7, member_with_w8 = group["group"]
    member_with_w7["faults"] = {"unreadable": 1.0}
    member_with_w8["faults"] = {"unreadable": 0.0}

    step = make_job(model).step([group])

    # With equal rewards, and no fault that counts, the group teaches nothing.
    assert step.left_out == 1
    assert probability(model, "w7") == probability_before


# Batches.


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_micro_batches_give_the_gradient_of_the_batch(
    make_model: Callable[..., Any], loss_type: str
) -> None:
    """A batch that is too large for the memory is computed in parts, the micro-batches."""

    def train(micro_batch_size: int) -> dict[str, torch.Tensor]:
        """Return the weights after a step."""
        model = make_model()
        texts = ("w7", "w8 w9", "w3 w4 w5", "w6")
        group = text_group(model, *texts, rewards=[1.0, 0.0, 0.3, 0.7])
        job = make_job(
            model,
            micro_batch_size=micro_batch_size,
            loss_type=loss_type,
            beta=0.1,
            learning_rate=1e-3,
        )
        job.step([group])
        return model.state()

    weights_of_whole_batch = train(micro_batch_size=8)
    weights_of_single_rows = train(micro_batch_size=1)
    for name, weights in weights_of_whole_batch.items():
        assert torch.allclose(weights, weights_of_single_rows[name], atol=2e-5), name


def test_every_batch_of_every_epoch_is_an_update(model: Any) -> None:
    group = text_group(model, "w7", "w8", "w9", "w10", rewards=[1.0, 0.0, 0.3, 0.7])

    make_job(model, batch_size=2, epochs=3, learning_rate=0.1).step([group])

    # Four completions are two batches, and there are three epochs. An update makes a new version.
    assert model.version == 6


# Settings.


def loss_of_one_step(make_model: Callable[..., Any], **settings: Any) -> float:
    """Return the loss of completions that have become likelier since they were sampled.

    So the ratios of their tokens, of new and old probability, are above 1.
    """
    model = make_model()
    group = text_group(model, "w7", "w8", rewards=[1.0, 0.0])
    for member in group["group"]:
        # As if another model had sampled the first token, for which it was unlikely.
        member["logprobs"][0] -= 4.0
    return make_job(make_model(), **settings).step([group]).loss


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"ratio": "token"}, id="ratios of tokens, not of turns"),
        pytest.param({"leave_one_out": True}, id="rewards less the mean of the others"),
    ],
)
def test_settings_change_the_loss(make_model: Callable[..., Any], settings: dict[str, Any]) -> None:
    usual_loss = loss_of_one_step(make_model)
    other_loss = loss_of_one_step(make_model, **settings)

    assert other_loss != pytest.approx(usual_loss)


def weights_differ(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    """Tell whether some weights of a model differ by more than rounding does."""
    assert weights.keys() == others.keys()
    return any(not torch.allclose(weights[name], others[name], atol=1e-5) for name in weights)


def test_recomputed_log_probabilities_take_the_place_of_those_of_the_sampler(
    make_model: Callable[..., Any],
) -> None:
    """A step compares the present probability of each token with that at its sampling.

    A sampler such as vLLM reports the latter with small errors. "recomputed" has the trained model
    compute it instead.
    """

    def train(error_of_sampler: float, old_logprobs: str) -> dict[str, torch.Tensor]:
        """Return the weights after a step; the sampler reports log-probabilities with an error."""
        model = make_model()
        group = text_group(model, "w7", "w8 w9", rewards=[1.0, 0.0])
        for member in group["group"]:
            member["logprobs"] = [value - error_of_sampler for value in member["logprobs"]]
        make_job(model, epochs=2, old_logprobs=old_logprobs).step([group])
        return model.state()

    exact_weights = train(error_of_sampler=0.0, old_logprobs="sampled")
    weights_by_wrong_logprobs = train(error_of_sampler=0.3, old_logprobs="sampled")
    weights_by_recomputed_logprobs = train(error_of_sampler=0.3, old_logprobs="recomputed")

    assert weights_differ(weights_by_wrong_logprobs, exact_weights)
    assert not weights_differ(weights_by_recomputed_logprobs, exact_weights)


# Checkpoints, and jobs that begin anew.


def test_a_job_that_goes_on_from_a_checkpoint_ends_with_the_same_weights(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    """One job takes four steps; another one loads its state after two steps, and takes the rest."""
    settings = {"batch_size": 2, "beta": 0.02, "output_dir": str(tmp_path)}
    model = make_model()
    groups = [
        text_group(model, "w7", "w8 w9", "w4", rewards=[float(number), 1.0, 0.2])
        for number in range(4)
    ]
    job = make_job(model, **settings)
    job.step([groups[0]])
    job.step([groups[1]])
    job.save_checkpoint("half")
    job.step([groups[2]])
    job.step([groups[3]])

    resumed_model = make_model()
    resumed_job = make_job(resumed_model, **settings)
    resumed_job.load_checkpoint(job.checkpoints["half"])
    assert resumed_job.steps == 2
    resumed_job.step([groups[2]])
    resumed_job.step([groups[3]])

    assert resumed_model.fingerprint == model.fingerprint


def divergences_of_two_steps(job: Any) -> list[float]:
    """Take two steps, and return how far the model was from its reference before each of them.

    The reference is the model as it was at the start of the job.
    """
    job.steps = 0  # the order of rows depends on it
    divergences: list[float] = []
    for _ in range(2):
        group = text_group(job.model, "w7", "w8 w9", rewards=[1.0, 0.0])
        divergences.append(job.step([group]).divergence)
    return divergences


@pytest.mark.parametrize("trainer", ["local", pytest.param("trl", marks=NEEDS_TRL)])
@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_a_job_that_begins_anew_is_like_a_new_one_over_its_present_weights(
    model: Any, lora: dict[str, Any] | None, trainer: str, tmp_path: Path
) -> None:
    """`initialize` begins a job anew: with a new optimizer, and the present weights as reference.

    `beta` is above 0, so the loss keeps the model near to the reference, and each step reports the
    distance between them (the divergence).
    """
    settings = {"beta": 0.1, "output_dir": str(tmp_path), "trainer": trainer}
    job = make_job(LocalModel.load(model.save(tmp_path / "base"), lora=lora), **settings)
    _, divergence_after_first_step = divergences_of_two_steps(job)
    assert divergence_after_first_step > 0

    job.terminate()  # writes the model
    new_job = make_job(LocalModel.load(tmp_path / "model"), **settings)
    job.initialize()

    divergences = divergences_of_two_steps(job)
    assert divergences == divergences_of_two_steps(new_job)
    assert job.model.fingerprint == new_job.model.fingerprint
    # The reference is now the model as it was when the job began anew.
    divergence_at_the_start, divergence_after_first_step = divergences
    assert divergence_at_the_start == pytest.approx(0, abs=1e-6)
    assert divergence_after_first_step > 0


@pytest.mark.parametrize("file_name", ["weights_only.pt", "missing.pt"])
def test_a_file_that_is_no_checkpoint_is_refused(
    model: Any, tmp_path: Path, file_name: str
) -> None:
    torch.save({"weights": {}}, tmp_path / "weights_only.pt")
    with pytest.raises(UserError, match="is no checkpoint of a local job"):
        make_job(model).load_checkpoint(tmp_path / file_name)


def test_a_checkpoint_needs_a_folder(model: Any) -> None:
    """The setting `output_dir` names the folder; the job here has none."""
    with pytest.raises(UserError, match="output_dir"):
        make_job(model).save_checkpoint("x")


def test_a_job_that_was_terminated_takes_no_step(model: Any) -> None:
    job = make_job(model)
    job.terminate()
    with pytest.raises(UserError, match="does not run"):
        job.step([])


# Data that is refused.


@pytest.mark.parametrize(
    "changed_fields",
    [
        pytest.param({"prompt_ids": None}, id="no prompt"),
        pytest.param({"reward": "good"}, id="a reward that is no number"),
        pytest.param({"completion_ids": [5]}, id="more log-probabilities than tokens"),
    ],
)
def test_a_group_with_a_malformed_member_is_refused(
    model: Any, changed_fields: dict[str, Any]
) -> None:
    group = text_group(model, "w7", "w8 w9", rewards=[1.0, 0.0])
    _, second_member = group["group"]
    second_member.update(changed_fields)
    with pytest.raises(DataError, match="not a group of completions with rewards"):
        make_job(model).step([group])


def test_data_of_another_format_is_refused(model: Any) -> None:
    with pytest.raises(DataError, match="takes grpo_chat"):
        make_job(model).step([], "chat")
