"""The whole training on a policy without weights: stages, validation, collapse, resuming, and what is refused."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.provider import Provider
from mempiler.engines.local.trainer import StepResult
from mempiler.errors import DataError, UserError
from mempiler.optimizers.logo_grpo.policy import Decoding, score_policy
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings

from tests.optimizers.logo_grpo.conftest import WeighedJob, diligent, fields


def short(**changes: Any) -> TrainingSettings:
    given: dict[str, Any] = {
        "num_rollouts": 3,
        "local_n": 3,
        "local_fraction": 1.0,
        "curriculum": Curriculum((2, 3), steps=2),
        "validate_every": 1,
        "threads": 4,
    }
    return TrainingSettings(**{**given, **changes})


def steps(rows: list[Any]) -> list[tuple[int, int]]:
    return [(row["step"], row["horizon"]) for row in rows if "horizon" in row]


@pytest.mark.slow
def test_stages_train_at_their_horizon_and_validation_sees_whole_histories(world: Any) -> None:
    made = world()
    trained = made.compile(short(), valset=made.dev)
    assert steps(made.rows) == [(1, 2), (2, 2), (3, 3), (4, 3)]
    assert [row["step"] for row in made.rows if "validation" in row] == [0, 1, 2, 3, 4]
    assert trained.progress.done
    assert made.job.ended
    heats = Counter(heat for kind, text, heat in made.engine.asked if "held" in text)
    # Two samples of each history, and greedy once.
    assert heats[1.0] == 2 * heats[0.0] > 0
    last = [text for kind, text, heat in made.engine.asked if kind == "facts" and "held" in text]
    assert {f"D{n}:1" for n in (1, 2, 3)} <= {
        turn_id for text in last for turn_id in ("D1:1", "D2:1", "D3:1") if turn_id in text
    }


def test_the_checkpoint_is_chosen_on_the_mean_of_sampled_scores(world: Any) -> None:
    made = world()
    made.compile(short(curriculum=Curriculum((3,), steps=1), samples=3), valset=made.dev)
    row = next(row for row in made.rows if "validation" in row)
    scored = [
        score_policy(
            made.program,
            made.dev,
            made.teleprompter(short()).metric,
            made.lm,
            Decoding("validate", heat, n),
        )
        for heat, n in ((1.0, 3), (1.0, 1), (0.0, 1))
    ]
    assert row["validation"] == scored[0].score
    assert row["validation_greedy"] == scored[2].score
    assert scored[0].score != scored[1].score
    assert scored[0].counts.completions == 3 * scored[1].counts.completions


@pytest.mark.parametrize(
    ("reply", "local_fraction", "reason"),
    [
        (
            lambda kind, text, rng: fields(**{kind: []}),
            1.0,
            "in every group all members were rewarded alike",
        ),
        (diligent, 1e-9, "there was no group to compare; raise local_fraction or steps"),
    ],
)
def test_a_training_that_learns_nothing_says_why(
    world: Any, reply: Any, local_fraction: float, reason: str
) -> None:
    made = world(reply)
    settings = short(
        objective="local", local_fraction=local_fraction, curriculum=Curriculum((2,), steps=2)
    )
    (note,) = made.compile(settings).progress.notes
    assert note.startswith(f"nothing was learned: {reason}")
    assert len(steps(made.rows)) == 2
    assert made.engine.weight == 0


class CountingJob(WeighedJob):
    """A trainer whose one weight counts its updates."""

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        self.engine.weight += 1
        return StepResult()


class IdleJob(WeighedJob):
    """A trainer that changes nothing."""

    def step(self, train_data: Any, train_data_format: Any = None) -> StepResult:
        return StepResult()


def compile_counting(made: Any, settings: TrainingSettings, validates: bool = True) -> Any:
    """Train with an idle trainer whose weight becomes the number of each step, whether or not its groups varied."""

    def count(row: Any) -> None:
        made.rows.append(row)
        if "horizon" in row:
            made.engine.weight = row["step"]

    return made.compile(settings, valset=made.dev if validates else None, on_row=count).progress


def best_at(world: Any, best: int) -> Any:
    """A world whose policy keeps most facts with the weight of step `best`, and few otherwise."""
    held: list[Any] = []

    def reply(kind: str, text: str, rng: random.Random) -> str:
        return diligent(kind, text, rng, 0.9 if held[0].weight == best else 0.1)

    made = world(reply, job=IdleJob)
    held.append(made.engine)
    return made


@pytest.mark.parametrize("best", [0, 1])
def test_the_next_stage_begins_from_the_best_checkpoint_of_the_one_before(
    world: Any, best: int
) -> None:
    made = best_at(world, best)
    compile_counting(made, short(samples=3))
    # After stage one, at step 2, back to its best; each stage has an optimizer and a reference of its own.
    assert made.job.restored[0] == f"step-{best}"
    assert made.job.begun == [0, best]


def test_the_best_of_the_last_stage_is_kept_though_an_earlier_one_scored_higher(world: Any) -> None:
    made = best_at(world, 1)
    progress = compile_counting(made, short(samples=3))
    scores = {row["step"]: row["validation"] for row in made.rows if "validation" in row}
    assert max(scores, key=lambda step: scores[step]) == 1
    # Stage two begins at step 1, and chooses between steps 3 and 4.
    assert progress.best.step in (3, 4)
    assert made.job.restored == ["step-1", f"step-{progress.best.step}"]
    assert made.engine.weight == progress.best.step
    assert progress.notes[-1] == (
        f"the best checkpoint of the last stage was kept, with a validation score of {progress.best.score:.3f}; "
        f"an earlier stage had one of {scores[1]:.3f}"
    )


def test_the_start_is_kept_where_the_only_stage_is_no_better(world: Any) -> None:
    made = best_at(world, 0)
    progress = compile_counting(made, short(samples=3, curriculum=Curriculum((3,), steps=2)))
    assert progress.best.step == 0
    assert made.engine.weight == 0
    assert "the start: its weights were kept" in progress.notes[-1]


def test_each_stage_has_steps_of_its_own(world: Any) -> None:
    made = world()
    made.compile(short(curriculum=Curriculum((1, 2, 3), steps=(2, 1)), validate_every=5))
    assert steps(made.rows) == [(1, 1), (2, 1), (3, 2), (4, 3)]


@pytest.mark.slow
def test_a_format_collapse_ends_the_training_and_the_best_weights_come_back(world: Any) -> None:
    held: list[Any] = []

    def reply(kind: str, text: str, rng: random.Random) -> str:
        broken = held[0].weight >= 2 and kind == "operations" and rng.random() < 0.8
        return "unreadable" if broken else diligent(kind, text, rng)

    made = world(reply, job=CountingJob)
    held.append(made.engine)
    trained = made.compile(short(curriculum=Curriculum((3,), steps=20), window=2), valset=made.dev)
    assert trained.progress.stopped
    assert "format collapse" in trained.progress.stopped
    assert trained.progress.step < 6
    assert made.job.restored[-1] == f"step-{trained.progress.best.step}"
    assert made.engine.weight == trained.progress.best.step < 3


def test_a_last_stage_that_collapses_before_its_first_validation_gives_back_its_start(
    world: Any,
) -> None:
    held: list[Any] = []

    def reply(kind: str, text: str, rng: random.Random) -> str:
        return "unreadable" if held[0].weight >= 3 else diligent(kind, text, rng)

    made = world(reply, job=IdleJob)
    held.append(made.engine)
    curriculum = Curriculum((2, 3), steps=(2, 9))
    progress = compile_counting(made, short(curriculum=curriculum, window=1, validate_every=5))
    assert "format collapse" in progress.stopped
    assert progress.best is None
    # Step 3 of stage two makes the policy unreadable, step 4 sees it.
    assert progress.step == 4
    assert made.job.restored[-1] == Path(progress.stage_start).stem
    assert made.engine.weight < 3


def test_a_training_without_validation_that_collapses_gives_back_its_last_checkpoint(
    world: Any,
) -> None:
    held: list[Any] = []

    def reply(kind: str, text: str, rng: random.Random) -> str:
        return "unreadable" if held[0].weight >= 3 else diligent(kind, text, rng)

    made = world(reply, job=IdleJob)
    held.append(made.engine)
    settings = short(curriculum=Curriculum((3,), steps=9), window=1, validate_every=2)
    progress = compile_counting(made, settings, validates=False)
    # Step 4 sees what step 3 has made unreadable; the last checkpoint is that of step 2.
    assert "format collapse" in progress.stopped
    assert progress.step == 4
    assert made.job.restored[-1] == "step-2"
    assert made.engine.weight == 2


class KilledError(Exception):
    """Stands for the end of the process."""


def train_until(made: Any, folder: Path, kill: int | None = None) -> Any:
    """Trains, and dies right after a step if one is named."""

    def on_row(row: Any) -> None:
        if "horizon" in row and row["step"] == kill:
            raise KilledError

    return made.compile(short(validate_every=2), folder=folder, on_row=on_row).progress


def test_a_killed_training_goes_on_to_the_very_weights_of_an_unbroken_one(
    world: Any, tmp_path: Path
) -> None:
    """With a checkpoint every two steps, killed right after one that has none."""
    unbroken, made = world(), world()
    whole = train_until(unbroken, tmp_path / "whole")
    with pytest.raises(KilledError):
        train_until(world(), tmp_path / "killed", 3)
    resumed = train_until(made, tmp_path / "killed")
    assert made.engine.weight == unbroken.engine.weight != 0
    assert _untimed(resumed.rows) == _untimed(whole.rows)
    assert resumed.tokens == whole.tokens


def _untimed(rows: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.slow
def test_a_finished_training_is_not_done_again_and_its_journal_is_of_its_settings(
    world: Any, tmp_path: Path
) -> None:
    made, again = world(), world()
    made.compile(short(), valset=made.dev, folder=tmp_path)
    again.compile(short(), valset=again.dev, folder=tmp_path)
    assert again.rows == []
    assert again.engine.asked == []
    assert again.engine.weight == made.engine.weight
    with pytest.raises(UserError, match="num_rollouts = 3, not 4"):
        made.compile(short(num_rollouts=4), folder=tmp_path)
    journal = json.loads((tmp_path / "train.json").read_text())
    best = {**journal["best"], "seconds": 3}
    for unknown_field in ({"stage_best": None}, {"best": best}):
        (tmp_path / "train.json").write_text(json.dumps({**journal, **unknown_field}))
        with pytest.raises(UserError, match="was trained by another version"):
            made.compile(short(), folder=tmp_path)
    (tmp_path / "train.json").write_text("{")
    with pytest.raises(DataError):
        made.compile(short(), folder=tmp_path)


@pytest.mark.parametrize(
    "case", ["no provider", "no history", "no writer", "teacher", "two models", "nothing counts"]
)
def test_a_program_that_cannot_be_trained_is_refused_in_one_line(world: Any, case: str) -> None:
    made = world(method="turn-rag") if case == "no writer" else world()
    lm: Any = made.lm
    if case == "no provider":
        lm.provider = Provider()
    if case == "two models":
        made.program.method.writer.extract_facts.lm = made.lm.copy()
    with dspy.context(lm=lm), pytest.raises(UserError):
        made.teleprompter(short(), in_headline=lambda example: case != "nothing counts").compile(
            made.program,
            trainset=[] if case == "no history" else made.train,
            teacher=made.program if case == "teacher" else None,
        )
    assert made.engine.asked == []
