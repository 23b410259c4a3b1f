"""Whole trainings of a policy with one weight: stages, validation, collapse, and resuming.

The policy is the model that is trained to write memories. A training has stages; the horizon of a
stage is how many sessions of a history it writes. In each step, the policy writes histories, and
the trainer changes its weight by the rewards. A validation scores the policy on a person that it is
not trained on, and saves a checkpoint of the weight.

A policy may learn to write nothing readable: its format collapses.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider
from mempiler.engines.local.trainer import StepResult
from mempiler.errors import DataError, UserError
from mempiler.optimizers.logo_grpo.journal import Progress
from mempiler.optimizers.logo_grpo.policy import Decoding, PolicyScore, score_policy
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


@pytest.mark.slow
def test_each_stage_trains_at_its_horizon_and_validates_after_every_step(make_world) -> None:
    """Step 0 is the start, which is validated, too."""
    world = make_world()
    settings = short_training(horizons=(2, 3), steps=2, validate_every=1)

    teleprompter = world.run_training(settings, valset=world.dev)

    assert horizons_of_steps(world) == {1: 2, 2: 2, 3: 3, 4: 3}
    assert list(validation_scores(world)) == [0, 1, 2, 3, 4]
    assert teleprompter.progress.done
    assert world.trainer.has_ended


@pytest.mark.slow
def test_a_validation_writes_histories_twice_sampled_and_once_greedily(make_world) -> None:
    """To sample is to ask with temperature 1, and greedily is with temperature 0.

    Only validations see the history of the person "held".
    """
    world = make_world()

    world.run_training(short_training(), valset=world.dev)

    calls_by_temperature = Counter(
        call.temperature for call in world.engine.calls if "held" in call.text
    )
    assert calls_by_temperature[0.0] > 0
    assert calls_by_temperature[1.0] == 2 * calls_by_temperature[0.0]


def test_a_validation_writes_whole_histories(make_world) -> None:
    """A history has three sessions, D1 to D3. The stage trains on one of them.

    Only validations see the history of the person "held".
    """
    world = make_world(sessions=3)

    world.run_training(short_training(horizons=(1,), steps=1), valset=world.dev)

    extractions = [call for call in world.engine.calls if call.kind == "facts"]
    texts = [call.text for call in extractions if "held" in call.text]
    for turn_id in ("D1:1", "D2:1", "D3:1"):
        assert any(turn_id in text for text in texts)


def test_the_checkpoint_is_chosen_by_the_mean_of_sampled_scores(make_world) -> None:
    """A validation writes three memories with temperature 1, the samples.

    It also writes one with temperature 0 (greedy), whose score is only noted.
    """
    world = make_world()
    settings = short_training(horizons=(3,), steps=1, samples=3)
    world.run_training(settings, valset=world.dev)
    validation_rows = [row for row in world.rows if "validation" in row]

    def score(temperature: float, samples: int) -> PolicyScore:
        metric = world.teleprompter(settings).metric
        decoding = Decoding("validate", temperature, samples)
        return score_policy(world.program, world.dev, metric, world.lm, decoding)

    three_samples = score(1.0, 3)
    one_sample = score(1.0, 1)
    greedy = score(0.0, 1)
    assert validation_rows[0]["validation"] == three_samples.score
    assert validation_rows[0]["validation_greedy"] == greedy.score
    # It does make a difference how many samples there are.
    assert one_sample.score != three_samples.score
    assert three_samples.counts.completions == 3 * one_sample.counts.completions


def return_nothing(call: PolicyCall) -> str:
    """Extract and insert nothing."""
    return chat_fields(**{call.kind: []})


@pytest.mark.parametrize(
    ("policy", "local_fraction", "reason"),
    [
        pytest.param(
            return_nothing,
            1.0,
            "in every group all members were rewarded alike",
            id="equal rewards",
        ),
        pytest.param(
            diligent,
            1e-9,
            "there was no group to compare; raise local_fraction or steps",
            id="no groups",
        ),
    ],
)
def test_a_training_that_learns_nothing_says_why(
    make_world, policy: Any, local_fraction: float, reason: str
) -> None:
    """Rewards are compared within a group. A session gets one with the chance `local_fraction`.

    With the objective "local", nothing else is learned from.
    """
    world = make_world(policy)
    settings = short_training(
        horizons=(2,), steps=2, objective="local", local_fraction=local_fraction
    )

    progress = world.run_training(settings).progress

    (note,) = progress.notes
    assert note.startswith(f"nothing was learned: {reason}")
    assert len(horizons_of_steps(world)) == 2
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
    """Return a world whose policy stores most facts after one step, and few after all others."""

    def policy(call: PolicyCall) -> str:
        return diligent(call, share=0.9 if call.weight == best_step else 0.1)

    return make_world(policy, trainer_class=IdleTrainer)


@pytest.mark.parametrize("best_step", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stage_begins_with_the_best_checkpoint_of_the_one_before(
    make_world, best_step: int
) -> None:
    """A validation before the first step, and after each step, finds the best one.

    Stage one has the steps 1 and 2, and returns to the best of 0, 1 and 2.
    """
    world = world_with_best_step(make_world, best_step)

    train_by_step_number(world, short_training(horizons=(2, 3), steps=2, samples=3))

    assert world.trainer.restored_checkpoints[0] == f"step-{best_step}"
    # Each stage has an optimizer and a reference of its own.
    assert world.trainer.reference_weights == [0, best_step]


def test_the_best_of_the_last_stage_is_kept_although_an_earlier_one_scored_higher(
    make_world,
) -> None:
    """Stage one has the steps 1 and 2, and stage two 3 and 4. The policy is best after step 1."""
    world = world_with_best_step(make_world, best_step=1)

    progress = train_by_step_number(world, short_training(horizons=(2, 3), steps=2, samples=3))

    scores = validation_scores(world)
    assert scores[1] == max(scores.values())
    # Stage two begins with step 1, and chooses between steps 3 and 4.
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


def test_the_start_is_kept_if_the_only_stage_is_no_better(make_world) -> None:
    """The policy is best before the first step, which is called step 0."""
    world = world_with_best_step(make_world, best_step=0)
    settings = short_training(horizons=(3,), steps=2, samples=3)

    progress = train_by_step_number(world, settings)

    assert progress.best is not None
    assert progress.best.step == 0
    assert world.engine.weight == 0
    assert "the start: its weights were kept" in progress.notes[-1]


def test_each_stage_has_its_own_number_of_steps(make_world) -> None:
    """Stage one has two steps, and stage two one. This last number holds for stage three, too."""
    world = make_world()
    settings = short_training(horizons=(1, 2, 3), steps=(2, 1))

    world.run_training(settings)

    assert horizons_of_steps(world) == {1: 1, 2: 1, 3: 2, 4: 3}


@pytest.mark.slow
def test_a_format_collapse_ends_the_training_and_restores_the_best_weights(make_world) -> None:
    """The weight counts the updates. From 2 on, most answers of the policy cannot be read."""

    def collapse_after_two_updates(call: PolicyCall) -> str:
        if call.weight >= 2 and call.kind == "operations" and call.rng.random() < 0.8:
            return "unreadable"
        return diligent(call)

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


def test_a_last_stage_that_collapses_before_its_first_validation_returns_to_its_start(
    make_world,
) -> None:
    """Stage two begins with step 3, after which nothing can be read. Step 4 notices it.

    The first validation would be after step 5.
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
    """After step 3 nothing can be read, and step 4 notices it. Every second step is saved."""
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
    """Train four steps, with a checkpoint every two steps.

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
    """It has a checkpoint of step 2, and none of step 3, which has to be done again."""
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


@pytest.mark.slow
def test_a_finished_training_is_not_done_again(make_world, tmp_path: Path) -> None:
    """Both trainings have the same folder. The first one leaves its weights and journal there."""
    first_world = make_world()
    first_world.run_training(short_training(), valset=first_world.dev, folder=tmp_path)

    second_world = make_world()
    second_world.run_training(short_training(), valset=second_world.dev, folder=tmp_path)

    assert second_world.rows == []
    assert second_world.engine.calls == []
    assert second_world.engine.weight == first_world.engine.weight


@pytest.fixture
def one_step() -> TrainingSettings:
    """Settings of a training of a single step."""
    return short_training(horizons=(2,), steps=1, num_rollouts=3)


@pytest.fixture
def trained_folder(make_world: Any, one_step: TrainingSettings, tmp_path: Path) -> Path:
    """The folder of a finished training with the settings `one_step`."""
    world = make_world()
    world.run_training(one_step, valset=world.dev, folder=tmp_path)
    return tmp_path


def test_a_journal_of_other_settings_is_refused(make_world, trained_folder: Path) -> None:
    """The journal is the file by which a training is resumed. This one is of three rollouts."""
    settings = short_training(horizons=(2,), steps=1, num_rollouts=4)

    with pytest.raises(UserError, match="num_rollouts = 3, not 4"):
        make_world().run_training(settings, folder=trained_folder)


@pytest.mark.parametrize("part", ["journal", "best checkpoint"])
def test_a_journal_of_another_version_is_refused(
    make_world, one_step: TrainingSettings, trained_folder: Path, part: str
) -> None:
    """Another version may write a field that this one does not know.

    The journal is the file by which a training is resumed.
    """
    journal_file = trained_folder / "train.json"
    journal = json.loads(journal_file.read_text())
    changed_part = journal if part == "journal" else journal["best"]
    changed_part["unknown_field"] = 3
    journal_file.write_text(json.dumps(journal))

    with pytest.raises(UserError, match="was trained by another version"):
        make_world().run_training(one_step, folder=trained_folder)


def test_a_damaged_journal_is_refused(
    make_world, one_step: TrainingSettings, trained_folder: Path
) -> None:
    """The journal is the file by which a training is resumed."""
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

    assert "cannot be trained here" in refuse_training(world)


def test_a_training_without_questions_is_refused(make_world) -> None:
    message = refuse_training(make_world(), trainset=[])

    assert message.startswith("there is no training history with a session")


def test_a_method_without_writing_prompts_is_refused(make_world) -> None:
    """Turn RAG stores turns as they are."""
    message = refuse_training(make_world(method="turn-rag"))

    assert "writes without a language model" in message


def test_a_teacher_is_refused(make_world) -> None:
    """DSPy lets some optimizers learn from another program, the teacher."""
    world = make_world()

    assert "takes no teacher" in refuse_training(world, teacher=world.program)


def test_a_program_with_two_models_is_refused(make_world) -> None:
    """One predictor gets a model of its own."""
    world = make_world()
    world.program.method.writer.extract_facts.lm = world.lm.copy()

    assert "several language models" in refuse_training(world)


def test_a_training_without_a_question_that_counts_is_refused(make_world) -> None:
    """`in_headline` says which questions count."""
    world = make_world()
    teleprompter = world.teleprompter(short_training(), in_headline=lambda example: False)

    with dspy.context(lm=world.lm), pytest.raises(UserError, match="counts for the score"):
        teleprompter.compile(world.program, trainset=world.train)

    assert world.engine.calls == []
