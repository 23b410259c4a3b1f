"""What a training is made with, what it keeps of answers, and how its rows are compared, on made-up scores."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.local.settings import Reinforcement
from mempiler.optimizers.logo_grpo.policy import Counts, PolicyScore
from mempiler.optimizers.logo_grpo.reward import Asked
from mempiler.programs.catalog import build
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.runs.course import OBJECTIVES, Course
from mempiler.runs.rows import Row
from mempiler.runs.tiny import demonstrations
from mempiler.runs.trained import Trained, TrainedRow, answered_row, differences, measured, over_seeds

LOOKUP = benchmark("memory-env", users=10)
USERS = tuple(f"u{n // 2}" for n in range(20))


def row(name: str, seed: int | None, right: int, **more: Any) -> TrainedRow:
    """A row that answers the first questions of every ten right, greedy; sampled two fewer."""

    def policy(least: int) -> PolicyScore:
        scores = tuple(float(n % 10 < least) for n in range(20))
        return PolicyScore(tuple(f"q{n}" for n in range(20)), USERS, scores, Counts(20, 0, 0, 0))

    greedy = policy(right)
    known = {"category": "", "counts": True, "question": "", "gold": "", "answer": "", "parts": {}, "recall": {}}
    answered = zip(greedy.ids, greedy.groups, greedy.scores, strict=True)
    rows = {id: Row(id=id, group=user, score=score, sources=(), seconds=0.0, **known) for id, user, score in answered}
    found = measured(name, seed, "folder", greedy, policy(right - 2), rows, LOOKUP)
    return found.model_copy(update=more)


STEPS = (
    {"step": 0, "validation": 0.4},
    {"step": 1, "tokens": 50.0, "groups_global": 1.0},
    {"step": 1, "validation": 0.6},
)
ROWS = (
    row("start", None, 4),
    row("grpo", 0, 5, validation=0.5, steps=STEPS),
    row("logo-grpo", 0, 8, validation=0.7, remarks=("a remark about it",)),
    row("grpo", 1, 7, validation=0.6),
    row("logo-grpo", 1, 8, validation=0.9),
)


def test_rows_are_paired_with_the_start_and_with_the_grpo_of_their_seed() -> None:
    found = {(each["row"], each["against"]): each for each in differences(ROWS)}
    trained = ["grpo.0", "logo-grpo.0", "grpo.1", "logo-grpo.1"]
    assert set(found) == {(name, "start") for name in trained} | {("logo-grpo.0", "grpo.0"), ("logo-grpo.1", "grpo.1")}
    assert found["logo-grpo.0", "grpo.0"]["greedy"]["mean"] == pytest.approx(0.3)
    assert found["logo-grpo.1", "grpo.1"]["sampled"]["mean"] == pytest.approx(0.1)
    assert found["grpo.0", "start"]["greedy"]["interval_unit"] == "group"


def test_an_objective_has_its_spread_and_its_difference_over_all_seeds() -> None:
    grpo, logo = over_seeds(ROWS)
    assert (grpo["name"], grpo["seeds"]) == ("grpo", 2)
    assert grpo["greedy"] == {"mean": pytest.approx(0.6), "min": 0.5, "max": 0.7}
    assert "greedy_minus_grpo" not in grpo
    assert logo["greedy"] == {"mean": 0.8, "min": 0.8, "max": 0.8}
    gain = logo["greedy_minus_grpo"]
    assert gain["mean"] == pytest.approx(0.2)
    # The seeds differ, .3 and .1, so that other seeds are expected to.
    assert gain["interval"][0] <= 0.1 < 0.3 <= gain["interval"][1]
    (alone,) = over_seeds(ROWS[:1] + ROWS[2:3])
    assert "greedy_minus_grpo" not in alone


def outcome(**changes: Any) -> Trained:
    given: dict[str, Any] = {"rows": ROWS, "objective": "logo-grpo", "program": Path("p"), "run": Path("r")}
    return Trained(**{**given, "run_id": "id", "benchmark": "memory-env", **changes})


def test_the_page_tells_rows_differences_seeds_and_remarks() -> None:
    page = outcome(quick=True).page({"program": "memory-r2"}, "digest")
    facts = dict(page.facts)
    assert page.notes[0].startswith("A quick look")
    assert facts["logo-grpo.0"].endswith("a remark about it")
    assert facts["logo-grpo.0 - grpo.0"].startswith("greedy +0.300 [+0.0")
    assert facts["grpo, 2 seeds"].startswith("greedy 0.600 (0.500 to 0.700), sampled")
    assert "greedy - grpo +0.200" in facts["logo-grpo, 2 seeds"]


def test_objectives_of_a_comparison_differ_in_groups_and_reward_and_generate_as_much() -> None:
    course = Course.for_model("local:tiny").comparing()
    found = {name: course.shaped(name, 7) for name in course.names()}
    told = {
        name: (each.objective, each.session_reward, each.num_rollouts, each.local_n) for name, each in found.items()
    }
    assert told == {
        "grpo": ("grpo", "trajectory", 16, 12),
        "grpo-session": ("grpo", "session", 16, 12),
        "local": ("local", "trajectory", 2, 14),
        "logo-grpo": ("logo", "trajectory", 4, 12),
    }
    assert {each.seed for each in found.values()} == {7}


@pytest.mark.parametrize(("name", "kept"), [(name, reward) for name, (_, reward) in OBJECTIVES.items()])
def test_the_users_session_reward_is_that_of_the_asked_objective_alone(name: str, kept: str | None) -> None:
    asked = Course(objective=name, session_reward="cumulative")
    assert asked.shaped(name, 0).session_reward == "cumulative"
    other = next(each for each in OBJECTIVES if each != name)
    assert Course(objective=other, session_reward="cumulative").shaped(name, 0).session_reward == kept or kept is None


def test_settings_go_where_they_belong():
    tiny = Course.for_model("local:tiny")
    course = tiny.changed({"lora": 4, "num_rollouts": 2, "tokens": 900, "horizons": [1, 2], "beta": 0.5})
    assert (course.lora, course.settings.num_rollouts) == (4, 2)
    assert (course.settings.curriculum.tokens, course.settings.curriculum.horizons) == (900, (1, 2))
    assert course.train_kwargs == {**tiny.train_kwargs, "beta": 0.5}


def test_an_answer_that_could_not_be_read_is_a_failure() -> None:
    locomo, program = benchmark("locomo"), build("turn-rag")
    asked = Asked(locomo.examples[0], dspy.Prediction(answer=""), 0.0, (), ValueError("no fields"))
    row = answered_row(program, locomo, asked)
    assert (row.score, row.answer, row.right) == (0.0, "", False)
    assert row.failure is not None
    assert "no fields" in row.failure.message


def test_every_session_is_shown() -> None:
    method = MemoryR2(embedder(), MemoryR2Settings(**MemoryR2.preset("memory-env")))
    good, poor = demonstrations(method, 0, users=4, extractions=1.0)
    for shown in (good, poor):
        ids = {int(id) for messages, _ in shown for id in re.findall(r"D(\d+):", messages[-1]["content"])}
        assert ids == set(range(1, 9))


@pytest.mark.parametrize(
    ("lm", "batch", "decay", "tokens"), [("local:Qwen/Qwen2.5-7B", 1024, 0.01, 2048), ("local:tiny", 48, 0.0, 96)]
)
def test_a_training_has_the_released_batches_and_the_tiny_model_its_own(lm, batch, decay, tokens):
    course = Course.for_model(lm)
    given = Reinforcement.parse(course.train_kwargs)
    assert (given.batch_size, given.weight_decay, course.answer_tokens) == (batch, decay, tokens)
