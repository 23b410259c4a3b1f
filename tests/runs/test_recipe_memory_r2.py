"""Memory-R2's ladder, climbed by a model that has seen some demonstrations, and its verdicts on made-up scores."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.engines.guard import Limits
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.policy import PolicyScore
from mempiler.runs.recipes.catalog import recipe
from mempiler.runs.recipes.forecast import plan_recipe
from mempiler.runs.recipes.memory_r2 import FULL, MEMORY_R2, SMALL
from mempiler.runs.recipes.recipe import run_recipe
from mempiler.runs.recipes.reinforced import course
from mempiler.runs.recipes.rungs import Step, sampled_difference
from mempiler.runs.setup import Setup

REASON = "the `local` extra is not installed: pip install '.[local]'"
CHANGES = {
    "few_shot.questions": 2,
    "few_shot.max_tries": 1,
    "gepa.questions": 3,
    "gepa.max_metric_calls": 3,
    "sft.questions": 2,
    "sft.lora": 2,
    "sft.epochs": 1,
    "logo_grpo.questions": 2,
    "logo_grpo.lora": 2,
    "logo_grpo.horizons": [1],
    "logo_grpo.steps": 1,
    "logo_grpo.rollouts": 2,
    "logo_grpo.local_n": 2,
    "logo_grpo.histories": 1,
}


def policy(*scores: float) -> PolicyScore:
    ids = tuple(f"q{n}" for n in range(len(scores)))
    return PolicyScore(ids, ids, scores, len(scores), 0, 0, 0)


def step(greedy: list[float], sampled: list[float], before: list[float] | None = None) -> Step:
    rows = [SimpleNamespace(score=score, group=f"u{n}") for n, score in enumerate(greedy)]
    gain = None if before is None else sampled_difference(policy(*before), policy(*greedy))
    still = None if before is None else sampled_difference(policy(*sampled), policy(*sampled))
    found: Any = SimpleNamespace(counted=rows, score=sum(greedy) / len(greedy), n=len(greedy))
    return Step("x", "gepa", "start", found, policy(*sampled), (0.0, 0.0), 1, None, True, gain, still)


def test_a_gain_is_after_minus_before() -> None:
    found = sampled_difference(policy(1.0, 1.0, 0.0, 1.0), policy(0.0, 0.0, 0.0, 1.0))
    assert (found.mean, found.wins, found.losses) == (-0.5, 0, 2)


def test_a_greedy_score_far_below_the_sampled_one_is_a_near_tie() -> None:
    assert step([0.0] * 12, [0.0, 1.0] * 6).near_tie
    assert not step([0.0, 1.0] * 6, [0.0, 1.0] * 6).near_tie


def test_a_gain_of_greedy_answers_alone_is_told() -> None:
    assert step([1.0] * 12, [0.0, 1.0] * 6, before=[0.0] * 12).greedy_alone
    assert not step([1.0] * 12, [0.0, 1.0] * 6, before=[1.0] * 12).greedy_alone


def test_settings_of_rungs_are_changed_by_name() -> None:
    rungs = {rung.key: rung for rung in SMALL.told({"sft.epochs": 2, "few_shot.questions": 3}).rungs}
    assert rungs["sft"].settings == {**SMALL.rungs[2].settings, "epochs": 2}
    assert rungs["few-shot"].questions == 3
    assert rungs["gepa"] == SMALL.rungs[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sgd.epochs": 1}, "the rungs are few-shot, gepa, sft, logo-grpo"),
        ({"epochs": 1}, "is not RUNG.NAME"),
        ({"sft.questions": 0}, "give 1 or more"),
        ({"sft.questions": True}, "give 1 or more"),
    ],
)
def test_wrong_rungs_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        FULL.told(changes)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"speed": 1}, "no setting 'speed'"),
        ({"weights": "separate"}, "no setting 'weights'"),
        ({"rollouts": 1}, "num_rollouts = 1"),
        ({"horizons": [8, 4]}, "growing numbers"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"rollouts": "many"}, "of the wrong kind"),
        ({"horizons": 8}, "of the wrong kind"),
    ],
)
def test_wrong_settings_of_a_training_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        course("local:x", settings)


def test_steps_take_the_place_of_a_budget() -> None:
    assert course("local:tiny", {"steps": 3}).settings.curriculum.tokens is None
    assert course("local:tiny", {"budget": 900}).settings.curriculum.tokens == 900


def test_the_paper_has_no_cells_here() -> None:
    assert all(not section.paper for section in recipe("memory-r2").sections)
    assert MEMORY_R2.suited(Setup(benchmark="")).lm == "local:tiny"
    assert MEMORY_R2.suited(Setup(benchmark="", lm="local:x")).lm == "local:x"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("memory-r2", "--lm", "hosted_vllm/x"), "cannot be trained in this process"),
        (("memory-r2", "--lm", "local:x", "--seeds", "2"), "climbed once in a run"),
        (("memory-r2", "--lm", "local:x", "--rung-set", "sgd.epochs=1"), "is not RUNG.NAME"),
        (("pgr", "--rung-set", "sft.epochs=1"), "pgr has no rungs"),
        (("memory-r2", "--lm", "local:x", "--on", "msc"), "msc"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *words])
    assert ended.value.code == 2
    *before, line = capsys.readouterr().err.splitlines()
    assert says in line
    assert not any("Traceback" in other for other in before)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned the form of every answer from two sessions of some users."""
    pytest.importorskip("torch", reason=REASON)
    pytest.importorskip("transformers", reason=REASON)
    pytest.importorskip("peft", reason=REASON)
    from mempiler.data.synthesis.memory_env import vocabulary
    from mempiler.engines.embedders import embedder
    from mempiler.engines.local import sft
    from mempiler.engines.local.model import LocalModel
    from mempiler.engines.local.tiny import create
    from mempiler.optimizers.demonstrations import demonstrate
    from mempiler.programs.compact_adapter import CompactAdapter
    from mempiler.programs.memory_r2.method import MemoryR2

    folder = tmp_path_factory.mktemp("ladder") / "start"
    method = MemoryR2(embedder(), **MemoryR2.preset("memory-env"))
    shown = demonstrate(method, CompactAdapter(), 12, sessions=2, seed=1, errors={}, missed=0.0, misheard=0.0)
    create(folder, shown, vocabulary(), seed=0)
    model = LocalModel.load(folder, device="cpu", threads=1)
    sft.fit(model, shown, steps=30, learning_rate=3e-3, batch=12, seed=0)
    return model.save(folder)


def climbed(start: Path, **more: Any) -> Any:
    options = {"users": 10, "sessions": 2}
    setup = Setup("", lm=f"local:{start}", adapter="compact", dev=2, test=3, threads=2, options=options)
    return run_recipe(MEMORY_R2, replace(setup, **more), changes=CHANGES)


@pytest.fixture(scope="module")
def made(start: Path) -> Any:
    return climbed(start)


def test_every_rung_is_scored_on_the_same_questions(made: Any) -> None:
    assert [row.label for row in made.rows] == ["start", "few-shot", "GEPA", "SFT", "LoGo-GRPO"]
    assert len({tuple(row.id for row in each.evaluation.rows) for each in made.rows}) == 1
    greedy, sampled, _ = made.sections[0].tables
    assert [row[0] for row in greedy.rows] == [row[0] for row in sampled.rows] == [row.label for row in made.rows]
    assert {row[4] for row in greedy.rows} == {row[1] for row in sampled.rows} == {"3"}


def test_a_rung_begins_from_the_last_one_that_was_kept(made: Any) -> None:
    rows = made.sections[0].tables[0].rows
    best = "start"
    for row in rows[1:]:
        assert row[1] == best
        best = row[0] if row[3] == "yes" else best


def test_every_rung_tells_what_it_took(made: Any) -> None:
    rows = {row[0]: row for row in made.sections[0].tables[2].rows}
    assert rows["start"][2] == "0"
    assert int(rows["LoGo-GRPO"][4]) > 0
    assert rows["LoGo-GRPO"][-1].startswith("1 steps")


def test_a_rung_of_weights_has_a_model_that_loads(made: Any) -> None:
    from mempiler.engines.local.model import LocalModel
    from mempiler.runs.artifact import load, read_manifest

    folder = made.run / "ladder" / "logo-grpo"
    assert load(folder / "program").name == "memory-r2"
    manifest = read_manifest(folder / "program")
    assert manifest.lms["task"] == f"local:{(folder / 'model').absolute()}"
    assert LocalModel.load(manifest.lms["task"].removeprefix("local:")).fingerprint


def test_the_report_is_marked_and_written(made: Any) -> None:
    found = json.loads((made.run / "reproduced.json").read_text(encoding="utf-8"))
    assert all("wiring check, not comparable" in table["heading"] for table in found["tables"])
    assert found["paper"] == []
    assert "tables are not at hand" in found["tables"][0]["note"]
    assert Path(found["pictures"][0]).read_bytes().startswith(b"\x89PNG")


def test_what_a_ladder_takes_lies_in_its_plan(start: Path, made: Any) -> None:
    options = {"users": 10, "sessions": 2}
    setup = Setup("", lm=f"local:{start}", adapter="compact", dev=2, test=3, threads=2, options=options)
    plan = plan_recipe(MEMORY_R2, setup, changes=CHANGES)
    used = [int(row[n].replace(",", "")) for row in made.sections[0].tables[2].rows for n in (2, 3, 6)]
    assert plan.total.calls.low <= sum(used) <= plan.total.calls.high
    assert set(plan.total.phases) == {"scoring", "few-shot", "GEPA", "SFT", "LoGo-GRPO"}
    assert "LoGo-GRPO: 1 steps" in plan.notes
    assert plan.total.usd is not None
    assert plan.total.usd.high == 0
    budget = plan_recipe(MEMORY_R2, setup, changes={"logo_grpo.budget": 9000, "logo_grpo.horizons": [1]})
    assert any(note.startswith("LoGo-GRPO: 10 steps, and at most 9,000 generated tokens") for note in budget.notes)


def tables_of(made: Any) -> list[Any]:
    """What was scored and gained; costs have seconds."""
    return [table.to_dict()["rows"] for table in made.sections[0].tables[:2]]


def test_a_ladder_that_a_limit_ended_is_climbed_on_with_the_same_rungs(start: Path, made: Any) -> None:
    ended = climbed(start, limits=Limits(max_calls=25))
    assert ended.stopped
    assert len(ended.rows) < 5
    resumed = climbed(start, resume=str(ended.run))
    assert (resumed.stopped, resumed.run) == (None, ended.run)
    assert tables_of(resumed) == tables_of(made)


def test_a_rung_that_was_scored_is_not_climbed_again(start: Path, made: Any) -> None:
    """As a kill leaves the run in the middle of the last rung."""
    (made.run / "ladder" / "logo-grpo" / "step.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in made.run.glob("ladder/*/step.json")}
    resumed = climbed(start, resume=str(made.run))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(before) == 4
    assert tables_of(resumed) == tables_of(made)
