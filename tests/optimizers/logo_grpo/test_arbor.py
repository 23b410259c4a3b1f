"""The same compile() against a stand-in that enforces the rules of Arbor's requests; the real server is not run."""

from typing import Any

import pytest
from dspy.clients.provider import ReinforceJob
from dspy.clients.utils_finetune import TrainDataFormat
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.curriculum import Curriculum
from mempiler.optimizers.logo_grpo.settings import TrainingSettings


class ArborLike(ReinforceJob):
    """Asks for some batches at a time, takes each id once, and only groups of `num_generations` bare items."""

    def initialize(self) -> None:
        assert "num_generations" in self.train_kwargs
        self.waiting, self.next, self.polls = [0, 1], 2, 0
        self.rewards: list[list[float]] = []
        self.version = 0
        self.kept: list[str] = []

    def get_status(self) -> dict[str, Any]:
        self.polls += 1
        if self.polls % 3 == 0:
            return {"pending_batch_ids": []}
        return {"pending_batch_ids": list(self.waiting)}

    def step(self, train_data: Any, train_data_format: Any = None) -> None:
        assert train_data_format == TrainDataFormat.GRPO_CHAT
        for group in train_data:
            assert set(group) == {"batch_id", "group"}
            assert group["batch_id"] in self.waiting
            assert len(group["group"]) == self.train_kwargs["num_generations"]
            for item in group["group"]:
                assert set(item) == {"messages", "completion", "reward"}
                assert item["messages"]
                assert all(set(message) == {"role", "content"} for message in item["messages"])
                assert set(item["completion"]) == {"role", "content"}
                assert item["completion"]["role"] == "assistant"
                assert isinstance(item["reward"], float)
            self.rewards.append([item["reward"] for item in group["group"]])
            self.waiting.remove(group["batch_id"])
            self.waiting.append(self.next)
            self.next += 1
        self.version += 1
        # Arbor gives the model a new name with every update.
        self.lm.model = f"openai/arbor:model-{self.version}"

    def save_checkpoint(self, checkpoint_name: str) -> None:
        self.kept.append(checkpoint_name)

    def terminate(self) -> None: ...


def settings(**changes: Any) -> TrainingSettings:
    given: dict[str, Any] = {"num_rollouts": 4, "local_n": 4, "local_fraction": 1.0, "curriculum": Curriculum((3,), 2)}
    return TrainingSettings(**{**given, **changes})


def test_groups_of_equal_size_go_in_under_fresh_batch_ids(world: Any) -> None:
    made = world(job=ArborLike)
    trained = made.compile(settings(validate_every=1), valset=made.dev)
    assert len(made.job.rewards) > 10
    assert made.job.kept == ["step-0", "step-1", "step-2"]
    assert trained.progress.best.checkpoint in made.job.kept
    assert made.lm.model == f"openai/arbor:model-{made.job.version}"


def test_smaller_local_groups_are_padded_to_the_one_size(world: Any) -> None:
    made = world(job=ArborLike)
    made.compile(settings(local_n=3))
    assert {len(group) for group in made.job.rewards} == {4}


def test_larger_local_groups_are_refused_before_the_job_begins(world: Any) -> None:
    made = world(job=ArborLike)
    with pytest.raises(UserError, match="local_n = 5 is more than num_rollouts = 4"):
        made.compile(settings(local_n=5))
    assert made.provider.jobs == []


def test_weights_that_scaling_would_undo_are_refused(world: Any) -> None:
    made = world(job=ArborLike)
    with pytest.raises(UserError, match="scale_rewards=False"):
        made.compile(settings(local_weight=2.0))


def test_weights_become_factors_of_the_rewards_where_they_are_not_scaled(world: Any) -> None:
    found = []
    for weight in (1.0, 2.0):
        made = world(job=ArborLike)
        made.compile(
            settings(local_weight=weight, curriculum=Curriculum((3,), 1)), train_kwargs={"scale_rewards": False}
        )
        found.append(made.job.rewards)
    assert len(found[0]) == len(found[1])
    factors = {round(b / a, 6) for one, two in zip(*found, strict=True) for a, b in zip(one, two, strict=True) if a}
    assert factors == {1.0, 2.0}


def test_rollouts_at_another_temperature_than_the_trainers_are_refused(world: Any) -> None:
    made = world(job=ArborLike)
    with pytest.raises(UserError, match="make them equal"):
        made.compile(settings(), train_kwargs={"temperature": 0.8})


def test_a_trainer_that_asks_for_nothing_is_dead(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mempiler.errors import EndpointError
    from mempiler.optimizers.logo_grpo import trainer

    class Silent(ArborLike):
        def get_status(self) -> dict[str, Any]:
            return {"pending_batch_ids": []}

    monkeypatch.setattr(trainer, "PATIENCE", 0.01)
    made = world(job=Silent)
    with pytest.raises(EndpointError, match="asked for no batch"):
        made.compile(settings())
