"""How rows of a training are compared, on made-up scores."""

from pathlib import Path
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.optimizers.logo_grpo.policy import Counts, PolicyScore
from mempiler.runs.rows import Row
from mempiler.runs.trained import Trained, TrainedRow, differences, measured, over_seeds

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


def test_curves_are_validation_scores_by_tokens() -> None:
    found = outcome().summary()
    assert found["curves"] == {"grpo.0": {"validation": [(0.0, 0.4), (50.0, 0.6)], "validation_greedy": []}}
    assert "evaluation" not in found["rows"][0]


def test_the_page_tells_rows_differences_seeds_and_remarks() -> None:
    page = outcome(quick=True).page({"program": "memory-r2"}, "digest")
    facts = dict(page.facts)
    assert page.notes[0].startswith("A quick look")
    assert facts["logo-grpo.0"].endswith("a remark about it")
    assert facts["logo-grpo.0 - grpo.0"].startswith("greedy +0.300 [+0.0")
    assert facts["grpo, 2 seeds"].startswith("greedy 0.600 (0.500 to 0.700), sampled")
    assert "greedy - grpo +0.200" in facts["logo-grpo, 2 seeds"]
