"""Whole trainings of a policy with one weight: stages, validation, collapse, and resuming.

The policy is the model that is trained to write memories. A training has stages; the horizon of a
stage is how many sessions of a history it writes. In each step, the policy writes histories, and
the trainer changes its weight by the rewards. A validation scores the policy on a person that it is
not trained on, and saves a checkpoint of the weight.

A policy may learn to write nothing readable: its format collapses.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider
from mempiler.engines.local.trainer import StepResult
from mempiler.errors import DataError, UserError
from mempiler.optimizers.logo_grpo.journal import Progress
from mempiler.optimizers.logo_grpo.policy import Decoding, score_policy
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings

from ...scripted_engine import chat_fields
from .conftest import OneWeightTrainer, PolicyCall, World, diligent


def short_training(
    horizons: tuple[int, ...] = (2, 3), steps: int | tuple[int, ...] = 2, **changes: Any
) -> TrainingSettings:
    """Return the settings of a short training.

    Args:
        horizons: How many sessions each stage writes.
        steps: The number of steps of every stage, or those of each.
        **changes: Other settings.
    """
    settings: dict[str, Any] = {
        "num_rollouts": 3,
        "local_n": 3,
        "local_fraction": 1.0,
        "curriculum": Curriculum(horizons, steps=steps),
        "validate_every": 1,
        "threads": 4,
        **changes,
    }
    return TrainingSettings(**settings)


def is_step(row: Any) -> bool:
    """Return whether a row is of a training step; the others are of validations."""
    return "horizon" in row


def horizons_of_steps(world: World) -> dict[int, int]:
    """Return how many sessions each step trained on, by the number of the step."""
    return {row["step"]: row["horizon"] for row in world.rows if is_step(row)}


def validation_scores(world: World) -> dict[int, float]:
    """Return the validation scores by the number of the step; step 0 is the start."""
    return {row["step"]: row["validation"] for row in world.rows if "validation" in row}


def validation_calls(world: World) -> list[PolicyCall]:
    """Return the calls of the policy about the person "held", whom only validations know."""
    return [call for call in world.engine.calls if "held" in call.text]


@pytest.mark.slow
def test_each_stage_trains_at_its_horizon_and_validates_after_every_step(make_world) -> None:
    """Stage one writes two sessions and stage two three. Each has two steps.

    Step 0 is the start, which is validated, too.
    """
    world = make_world()
    settings = short_training(horizons=(2, 3), steps=2, validate_every=1)

    teleprompter = world.run_training(settings, valset=world.dev)

    assert horizons_of_steps(world) == {1: 2, 2: 2, 3: 3, 4: 3}
    assert list(validation_scores(world)) == [0, 1, 2, 3, 4]
    assert teleprompter.progress.done
    assert world.trainer.has_ended


def test_a_validation_writes_whole_histories_although_the_stage_trains_on_one_session(
    make_world,
) -> None:
    """A history has three sessions, D1 to D3."""
    world = make_world(sessions=3)

    world.run_training(short_training(horizons=(1,), steps=1), valset=world.dev)

    prompts = [call.text for call in validation_calls(world) if call.kind == "facts"]
    for turn_id in ("D1:1", "D2:1", "D3:1"):
        assert any(turn_id in prompt for prompt in prompts)


@pytest.fixture
def score_of_validation(make_world) -> Callable[..., float]:
    """A function that scores a policy on a person as a validation does, outside of a training."""
    world = make_world()
    metric = world.teleprompter(short_training()).metric

    def score(*, temperature: float, samples: int) -> float:
        decoding = Decoding("validate", temperature, samples)
        return score_policy(world.program, world.dev, metric, world.lm, decoding).score

    return score


def test_the_score_of_a_validation_is_the_mean_of_sampled_memories(
    make_world, score_of_validation
) -> None:
    """A validation writes three memories with temperature 1, the samples.

    It also writes one with temperature 0 (greedy), whose score is only noted.
    """
    world = make_world()
    settings = short_training(horizons=(3,), steps=1, samples=3)

    world.run_training(settings, valset=world.dev)

    first_validation = next(row for row in world.rows if "validation" in row)
    assert first_validation["validation"] == score_of_validation(temperature=1.0, samples=3)
    assert first_validation["validation_greedy"] == score_of_validation(temperature=0.0, samples=1)
    # It does make a difference how many samples there are.
    assert score_of_validation(temperature=1.0, samples=1) != first_validation["validation"]


def return_nothing(call: PolicyCall) -> str:
    """Extract and insert nothing."""
    return chat_fields(**{call.kind: []})


def test_a_training_whose_rewards_are_all_equal_says_that_nothing_was_learned(make_world) -> None:
    """The policy stores nothing, whatever it is asked, so no completion is better than another."""
    world = make_world(return_nothing)
    settings = short_training(horizons=(2,), steps=2, objective="local")

    progress = world.run_training(settings).progress

    (note,) = progress.notes
    reason = "in every group all members were rewarded alike"
    assert note.startswith(f"nothing was learned: {reason}")
    assert world.engine.weight == 0


def test_a_training_without_a_group_to_compare_says_that_nothing_was_learned(make_world) -> None:
    """The objective "local" compares reruns of a session, and it is left to chance which are rerun.

    Here the chance is almost 0.
    """
    world = make_world()
    settings = short_training(horizons=(2,), steps=2, objective="local", local_fraction=1e-9)

    progress = world.run_training(settings).progress

    (note,) = progress.notes
    reason = "there was no group to compare; raise local_fraction or steps"
    assert note.startswith(f"nothing was learned: {reason}")
    assert world.engine.weight == 0


class CountingTrainer(OneWeightTrainer):
    """A trainer whose weight counts its updates."""

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        self.engine.weight += 1
        return StepResult()


class IdleTrainer(OneWeightTrainer):
    """A trainer that changes nothing."""

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        return StepResult()


def train_by_step_number(
    world: World, settings: TrainingSettings, validates: bool = True
) -> Progress:
    """Train with an idle trainer; after each step the weight is the number of the step.

    A trainer that counts its updates would not do: it is not called if no group of a step varies.
    """

    def set_weight(row: Any) -> None:
        world.rows.append(row)
        if is_step(row):
            world.engine.weight = row["step"]

    valset = world.dev if validates else None
    return world.run_training(settings, valset=valset, on_row=set_weight).progress


def world_with_best_step(make_world: Any, best_step: int) -> World:
    """Return a world whose policy is best with the weight after one step; step 0 is the start.

    It stores 90 % of the facts then, and 10 % with any other weight.
    """

    def policy(call: PolicyCall) -> str:
        return diligent(call, share=0.9 if call.weight == best_step else 0.1)

    return make_world(policy, trainer_class=IdleTrainer)


@pytest.mark.parametrize("best_step", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stage_begins_with_the_best_checkpoint_of_the_stage_before(
    make_world, best_step: int
) -> None:
    """Stage one of the training has the steps 1 and 2. The start and both steps are validated.

    Stage two is trained relative to the weights that it begins with, the reference.
    """
    world = world_with_best_step(make_world, best_step)

    train_by_step_number(world, short_training(horizons=(2, 3), steps=2, samples=3))

    assert world.trainer.restored_checkpoints[0] == f"step-{best_step}"
    assert world.trainer.reference_weights == [0, best_step]


def test_the_best_checkpoint_of_the_last_stage_is_kept_although_an_earlier_one_scored_higher(
    make_world,
) -> None:
    """Stage one has the steps 1 and 2, and stage two 3 and 4. The policy is best after step 1.

    Stage two begins with the weights of step 1, and in the end chooses between steps 3 and 4.
    """
    world = world_with_best_step(make_world, best_step=1)

    progress = train_by_step_number(world, short_training(horizons=(2, 3), steps=2, samples=3))

    scores = validation_scores(world)
    assert scores[1] == max(scores.values())
    best = progress.best
    assert best is not None
    assert best.step in (3, 4)
    assert world.trainer.restored_checkpoints == ["step-1", f"step-{best.step}"]
    assert world.engine.weight == best.step
    assert progress.notes[-1] == (
        "the best checkpoint of the last stage was kept, "
        f"with a validation score of {best.score:.3f}; "
        f"an earlier stage had one of {scores[1]:.3f}"
    )


def test_the_start_is_kept_if_no_step_of_the_only_stage_is_better(make_world) -> None:
    """The policy is best before the first step, which is called step 0."""
    world = world_with_best_step(make_world, best_step=0)
    settings = short_training(horizons=(3,), steps=2, samples=3)

    progress = train_by_step_number(world, settings)

    assert progress.best is not None
    assert progress.best.step == 0
    assert world.engine.weight == 0
    assert "the start: its weights were kept" in progress.notes[-1]


def collapse_after_two_updates(call: PolicyCall) -> str:
    """Work diligently at first; from the weight 2 on, write mostly what cannot be read.

    With a `CountingTrainer` the weight is the number of updates.
    """
    if call.weight >= 2 and call.kind == "operations" and call.rng.random() < 0.8:
        return "unreadable"
    return diligent(call)


@pytest.mark.slow
def test_a_format_collapse_ends_the_training_and_restores_the_best_weights(make_world) -> None:
    """After two updates, most answers of the policy cannot be read. There would be 20 steps."""
    world = make_world(collapse_after_two_updates, trainer_class=CountingTrainer)
    settings = short_training(horizons=(3,), steps=20, window=2)

    progress = world.run_training(settings, valset=world.dev).progress

    assert "format collapse" in str(progress.stopped)
    assert progress.step < 6
    best = progress.best
    assert best is not None
    assert best.step < 3
    assert world.trainer.restored_checkpoints[-1] == f"step-{best.step}"
    assert world.engine.weight == best.step


def collapse_after_step_3(call: PolicyCall) -> str:
    """Work diligently before step 3, and return nothing readable after it."""
    return "unreadable" if call.weight >= 3 else diligent(call)


def test_a_stage_that_collapses_before_its_first_validation_returns_to_its_start(
    make_world,
) -> None:
    """Stage one has the steps 1 and 2. After step 3 the model writes nothing readable.

    Step 4 notices it, and the first validation would be after step 5.
    """
    world = make_world(collapse_after_step_3, trainer_class=IdleTrainer)
    settings = short_training(horizons=(2, 3), steps=(2, 9), window=1, validate_every=5)

    progress = train_by_step_number(world, settings)

    assert "format collapse" in str(progress.stopped)
    assert progress.best is None
    assert progress.step == 4
    assert progress.stage_start is not None
    assert world.trainer.restored_checkpoints[-1] == Path(progress.stage_start).stem
    assert world.engine.weight < 3


def test_a_training_without_validation_that_collapses_returns_to_its_last_checkpoint(
    make_world,
) -> None:
    """After step 3 the model writes nothing readable, which step 4 notices.

    Every second step is saved.
    """
    world = make_world(collapse_after_step_3, trainer_class=IdleTrainer)
    settings = short_training(horizons=(3,), steps=9, window=1, validate_every=2)

    progress = train_by_step_number(world, settings, validates=False)

    assert "format collapse" in str(progress.stopped)
    assert progress.step == 4
    assert world.trainer.restored_checkpoints[-1] == "step-2"
    assert world.engine.weight == 2


class KilledError(Exception):
    """Stands for the end of the process."""


def train_in_folder(world: World, folder: Path, killed_after: int | None = None) -> Progress:
    """Train four steps in a folder, with a checkpoint after step 2 and after step 4.

    Raises:
        KilledError: Step `killed_after` is done.
    """

    def on_row(row: Any) -> None:
        if is_step(row) and row["step"] == killed_after:
            raise KilledError

    settings = short_training(horizons=(2, 3), steps=2, validate_every=2)
    return world.run_training(settings, folder=folder, on_row=on_row).progress


def without_times(rows: Any) -> list[dict[str, Any]]:
    """Return the rows of a training without how long they took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_killed_training_that_is_resumed_ends_with_the_same_weights_as_an_uninterrupted_one(
    make_world, tmp_path: Path
) -> None:
    """The training is killed after step 3, and its last checkpoint is of step 2."""
    uninterrupted_world = make_world()
    uninterrupted = train_in_folder(uninterrupted_world, tmp_path / "uninterrupted")

    with pytest.raises(KilledError):
        train_in_folder(make_world(), tmp_path / "killed", killed_after=3)
    resumed_world = make_world()
    resumed = train_in_folder(resumed_world, tmp_path / "killed")

    assert uninterrupted_world.engine.weight != 0
    assert resumed_world.engine.weight == uninterrupted_world.engine.weight
    assert without_times(resumed.rows) == without_times(uninterrupted.rows)
    assert resumed.tokens == uninterrupted.tokens


@pytest.fixture
def one_step() -> TrainingSettings:
    """Settings of a training of a single step."""
    return short_training(horizons=(2,), steps=1, num_rollouts=3)


def test_a_finished_training_is_not_done_again(
    make_world, one_step: TrainingSettings, tmp_path: Path
) -> None:
    """Both trainings have the same folder. The first one leaves its weights and journal there."""
    first_world = make_world()
    first_world.run_training(one_step, valset=first_world.dev, folder=tmp_path)

    second_world = make_world()
    second_world.run_training(one_step, valset=second_world.dev, folder=tmp_path)

    assert len(first_world.engine.calls) > 0
    assert second_world.rows == []
    assert second_world.engine.calls == []
    assert second_world.engine.weight == first_world.engine.weight


@pytest.fixture
def trained_folder(make_world: Any, one_step: TrainingSettings, tmp_path: Path) -> Path:
    """The folder of a finished training with the settings `one_step`, i.e. three rollouts.

    Its journal, the file train.json, is what a training is resumed from.
    """
    world = make_world()
    world.run_training(one_step, valset=world.dev, folder=tmp_path)
    return tmp_path


def test_a_training_is_not_resumed_with_other_settings(make_world, trained_folder: Path) -> None:
    """The training in the folder had three rollouts in each step."""
    four_rollouts = short_training(horizons=(2,), steps=1, num_rollouts=4)

    with pytest.raises(UserError, match="num_rollouts = 3, not 4"):
        make_world().run_training(four_rollouts, folder=trained_folder)


@pytest.mark.parametrize("part", ["journal", "best checkpoint"])
def test_a_training_of_another_version_is_not_resumed(
    make_world, one_step: TrainingSettings, trained_folder: Path, part: str
) -> None:
    """Another version of Mempiler may write a field that this one does not know."""
    journal_file = trained_folder / "train.json"
    journal = json.loads(journal_file.read_text())
    changed_part = journal if part == "journal" else journal["best"]
    changed_part["unknown_field"] = 3
    journal_file.write_text(json.dumps(journal))

    with pytest.raises(UserError, match="was trained by another version"):
        make_world().run_training(one_step, folder=trained_folder)


def test_a_training_with_a_damaged_journal_is_not_resumed(
    make_world, one_step: TrainingSettings, trained_folder: Path
) -> None:
    """The journal is the file from which a training is resumed."""
    (trained_folder / "train.json").write_text("{")

    with pytest.raises(DataError):
        make_world().run_training(one_step, folder=trained_folder)


def refuse_training(world: World, **compile_options: Any) -> str:
    """Return the message with which a training is refused before the policy is asked."""
    options = {"trainset": world.train, **compile_options}
    with dspy.context(lm=world.lm), pytest.raises(UserError) as error:
        world.teleprompter(short_training()).compile(world.program, **options)
    assert world.engine.calls == []
    return str(error.value)


def test_a_model_that_cannot_be_trained_is_refused(make_world) -> None:
    """The provider of a model says whether it can be trained; DSPy's plain one cannot."""
    world = make_world()
    world.lm.provider = Provider()

    message = refuse_training(world)

    assert "cannot be trained here" in message


def test_a_training_without_questions_is_refused(make_world) -> None:
    """Without questions there are no answers to reward."""
    message = refuse_training(make_world(), trainset=[])

    assert message.startswith("there is no training history with a session")


def test_a_method_that_writes_without_a_model_cannot_be_trained(make_world) -> None:
    """Turn RAG stores turns as they are."""
    message = refuse_training(make_world(method="turn-rag"))

    assert "writes without a language model" in message


def test_a_training_takes_no_teacher(make_world) -> None:
    """DSPy lets some optimizers learn from another program, the teacher."""
    world = make_world()

    message = refuse_training(world, teacher=world.program)

    assert "takes no teacher" in message


def test_a_program_with_two_models_cannot_be_trained(make_world) -> None:
    """The prompt `extract_facts` gets a model of its own."""
    world = make_world()
    world.program.method.writer.extract_facts.lm = world.lm.copy()

    message = refuse_training(world)

    assert "several language models" in message


def test_a_training_in_which_no_question_counts_for_the_score_is_refused(make_world) -> None:
    world = make_world()
    teleprompter = world.teleprompter(short_training(), in_headline=lambda example: False)

    with dspy.context(lm=world.lm), pytest.raises(UserError, match="counts for the score"):
        teleprompter.compile(world.program, trainset=world.train)

    assert world.engine.calls == []
