"""Reinforcement on DSPy's protocol: rewarded tokens become likelier, raw samples are exact, checkpoints go on."""

import math

import pytest
import torch
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.errors import DataError, UserError

from tests.engines.local.groups import ASKED, sampled_group, text_group


def chance(model, text):
    ids = model.encode_completion(text)[:1]
    return math.exp(model.logprobs([model.encode(ASKED)], [ids])[0][0])


def job_of(model, **settings):
    return local_lm(model, temperature=1.0, max_tokens=1).reinforce(
        {"learning_rate": 1e-2, "num_generations": 2, **settings}
    )


def test_a_rewarded_answer_becomes_likelier(model):
    lm = local_lm(model, temperature=1.0, max_tokens=1)
    job = lm.reinforce({"learning_rate": 1e-2, "batch_size": 64})
    before = chance(model, "w7")
    first = job.step([sampled_group(lm, 64, lambda sample: float(sample.text == "w7"))])
    # With a ratio of 1 the loss is minus the mean advantage over tokens, one token each: of a whole group it is 0.
    assert first.rows == 64
    assert first.tokens == 64
    assert first.loss == pytest.approx(0, abs=1e-5)
    history = [
        job.step([sampled_group(lm, 64, lambda sample: float(sample.text == "w7"))])
        for _ in range(11)
    ]
    assert chance(model, "w7") > max(0.8, before)
    assert history[-1].reward > first.reward
    assert model.version == 1 + sum(step.rows > 0 for step in history)


def test_a_group_of_equal_rewards_and_empty_completions_train_nothing(model):
    before = model.fingerprint
    step = job_of(model, beta=0.1).step([text_group(model, "w7", "w8", rewards=[0.5, 0.5])])
    assert step.rows == 0
    assert step.left_out == 1
    assert step.reward == 0.5
    assert model.fingerprint == before
    assert job_of(model).step([]).rows == 0
    group = text_group(model, "w7", "w8", rewards=[1.0, 0.0])
    group["group"][1] |= {"completion_ids": [], "logprobs": []}
    assert job_of(model).step([group]).rows == 1


def test_a_fault_with_a_weight_makes_its_completion_less_likely_where_rewards_are_equal(make_model):
    def trained(weights):
        model = make_model()
        group = text_group(model, "w7", "w8", rewards=[0.5, 0.5], fault_weights=weights)
        for item, unreadable in zip(group["group"], (1.0, 0.0), strict=True):
            item["faults"] = {"unreadable": unreadable}
        return job_of(model).step([group]).left_out, chance(model, "w7")

    start = chance(make_model(), "w7")
    left_out, unchanged = trained({})
    assert left_out == 1
    assert unchanged == start
    left_out, after = trained({"unreadable": 0.5})
    assert left_out == 0
    assert after < start


@pytest.mark.parametrize("kind", ["dapo", "grpo"])
def test_micro_batches_give_the_gradient_of_the_batch(make_model, kind):
    models = [make_model(), make_model()]
    for model, size in zip(models, (8, 1), strict=True):
        group = text_group(model, "w7", "w8 w9", "w3 w4 w5", "w6", rewards=[1.0, 0.0, 0.3, 0.7])
        job_of(model, micro_batch_size=size, loss_type=kind, beta=0.1, learning_rate=1e-3).step(
            [group]
        )
    for name, weights in models[0].state().items():
        assert torch.allclose(weights, models[1].state()[name], atol=2e-5), name


def test_batches_and_epochs_are_updates_of_their_own(model):
    group = text_group(model, "w7", "w8", "w9", "w10", rewards=[1.0, 0.0, 0.3, 0.7])
    job_of(model, batch_size=2, epochs=3, learning_rate=0.1).step([group])
    assert model.version == 6


@pytest.mark.parametrize("changed", [{"ratio": "token"}, {"leave_one_out": True}])
def test_settings_change_the_loss(make_model, changed):
    # As if another model had sampled: both completions have become likelier by a factor of e^2 and e.
    model = make_model()
    group = text_group(model, "w7", "w8", rewards=[1.0, 0.0])
    for item in group["group"]:
        item["logprobs"][0] -= 4.0
    # No ratio is below 1.
    usual, low, other = (
        job_of(make_model(), **each).step([group]).loss for each in ({}, {"clip_low": 0.9}, changed)
    )
    assert usual == low != pytest.approx(other)


def test_recomputed_log_probabilities_take_the_place_of_the_sampler_s(make_model):
    def trained(shift, old_logprobs):
        model = make_model()
        group = text_group(model, "w7", "w8 w9", rewards=[1.0, 0.0])
        for item in group["group"]:
            item["logprobs"] = [value - shift for value in item["logprobs"]]
        job_of(model, epochs=2, old_logprobs=old_logprobs).step([group])
        return model.state()

    def differ(one, other):
        return any(
            not torch.allclose(weights, other[name], atol=1e-5) for name, weights in one.items()
        )

    exact = trained(0.0, "sampled")
    assert differ(trained(0.3, "sampled"), exact)
    assert not differ(trained(0.3, "recomputed"), exact)


def test_a_job_resumed_from_its_checkpoint_gives_the_same_weights(make_model, tmp_path):
    settings = {"batch_size": 2, "beta": 0.02, "output_dir": str(tmp_path)}
    whole = make_model()
    groups = [
        text_group(whole, "w7", "w8 w9", "w4", rewards=[float(n), 1.0, 0.2]) for n in range(4)
    ]
    job = job_of(whole, **settings)
    for n, group in enumerate(groups):
        job.step([group])
        if n == 1:
            job.save_checkpoint("half")
    resumed = make_model()
    other = job_of(resumed, **settings)
    other.load_checkpoint(job.checkpoints["half"])
    assert other.steps == 2
    for group in groups[2:]:
        other.step([group])
    assert resumed.fingerprint == whole.fingerprint


@pytest.mark.parametrize("trainer", ["local", "trl"])
@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_a_job_that_begins_anew_is_as_one_over_the_weights_of_then(model, lora, trainer, tmp_path):
    def gaps(job):
        job.steps = 0
        return [
            job.step([text_group(job.model, "w7", "w8 w9", rewards=[1.0, 0.0])]).divergence
            for _ in range(2)
        ]

    if trainer == "trl":
        pytest.importorskip(
            "trl", reason="the `local` extra is not installed: pip install '.[local]'"
        )
    settings = {"beta": 0.1, "output_dir": str(tmp_path), "trainer": trainer}
    job = job_of(LocalModel.load(model.save(tmp_path / "base"), lora=lora), **settings)
    assert gaps(job)[1] > 0
    job.terminate()
    fresh = job_of(LocalModel.load(tmp_path / "model"), **settings)
    job.initialize()
    found = gaps(job)
    assert found == gaps(fresh)
    assert found[0] == pytest.approx(0, abs=1e-6)
    assert found[1] > 0
    assert job.model.fingerprint == fresh.model.fingerprint


def test_a_file_that_is_no_checkpoint_is_refused_and_a_job_that_ended_does_not_run(model, tmp_path):
    job = job_of(model)
    torch.save({"weights": {}}, tmp_path / "y.pt")
    for path in (tmp_path / "y.pt", tmp_path / "z.pt"):
        with pytest.raises(UserError, match="is no checkpoint of a local job"):
            job.load_checkpoint(path)
    with pytest.raises(UserError, match="output_dir"):
        job.save_checkpoint("x")
    job.terminate()
    with pytest.raises(UserError, match="does not run"):
        job.step([])


@pytest.mark.parametrize(
    "changed", [{"prompt_ids": None}, {"reward": "good"}, {"completion_ids": [5]}]
)
def test_a_malformed_group_is_refused(model, changed):
    group = text_group(model, "w7", "w8 w9", rewards=[1.0, 0.0])
    group["group"][1] |= changed
    for wrong in ({}, group):
        with pytest.raises(DataError, match="not a group of completions with rewards"):
            job_of(model).step([wrong])
    with pytest.raises(DataError, match="takes grpo_chat"):
        job_of(model).step([], "chat")
