"""Other people's systems in a recipe: rows like any other where they are installed, else named and left out."""

import json
from dataclasses import replace

import pytest
from mempiler.cli import app
from mempiler.engines.guard import Limits
from mempiler.engines.meter import Meter
from mempiler.runs.recipes.adaptation import Adaptation
from mempiler.runs.recipes.catalog import RECIPES
from mempiler.runs.recipes.forecast import plan_recipe
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.section import Duel, Section, Variant
from mempiler.runs.setup import Setup
from mempiler.systems.catalog import shipped
from mempiler.systems.environment import STAMP

from tests.scripted_system import register

SECTION = Section(
    "turns",
    "",
    "locomo",
    (Variant("ours", "turn-rag"),),
    rivals=(Variant("theirs", "system:scripted", {"k": 3}), Variant("the other", "system:absent")),
    duels=(Duel("over theirs", "ours", "theirs"), Duel("over the other", "ours", "the other")),
)
RECIPE = Recipe("tiny", "", (SECTION,))
SETUP = Setup(benchmark="", test=6, threads=1)
LEFT_OUT = "the other is left out: system:absent is not installed; run: mempiler systems install absent"


@pytest.fixture(autouse=True)
def systems(tmp_path, monkeypatch):
    for name in ("scripted", "absent"):
        (tmp_path / name).mkdir()
        register(name, tmp_path / name, monkeypatch, installed=name == "scripted")
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "scripted" / "systems"))


def test_a_system_that_is_installed_has_a_row_with_everything_beside_it():
    found = run_recipe(RECIPE, SETUP)
    assert found.notes == (LEFT_OUT,)
    assert [made.label for made in found.rows] == ["ours", "theirs"]
    ours, theirs = (made.evaluation for made in found.rows)
    assert [row.id for row in theirs.rows] == [row.id for row in ours.rows]
    assert (theirs.program, theirs.failures, {row.hits for row in theirs.rows}) == ("system:scripted", 0, {3})
    tables = {table.title: [row[0] for row in table.rows] for table in found.sections[0].beside}
    assert tables == {"paired differences of the score to ours": ["theirs"], "what it takes": ["ours", "theirs"]}


def test_settings_limits_and_a_second_go_hold_for_systems():
    stopped = run_recipe(RECIPE, Setup(benchmark="", test=6, threads=1, limits=Limits(max_calls=8)))
    assert "max-calls" in str(stopped.stopped)
    again = run_recipe(RECIPE, Setup(benchmark="", test=6, threads=1, resume=str(stopped.run)))
    assert [(made.label, len(made.evaluation.rows)) for made in again.rows] == [("ours", 6), ("theirs", 6)]
    # Two of its six questions were answered, and kept, before the limit.
    assert [sum(made.evaluation.calls.values()) for made in again.rows] == [6, 4]
    wide = run_recipe(RECIPE, SETUP, adaptation=Adaptation({"timeout": 50.0, "system:scripted.k": 3, "turn_rag.k": 2}))
    assert {row.hits for row in wide.rows[0].evaluation.rows} == {2}
    names = ("timeout = 50.0", "system:scripted.k = 3", "turn_rag.k = 2")
    assert wide.notes[1:] == tuple(f"{name} in every variant that has it" for name in names)


def test_a_system_that_was_installed_meanwhile_gets_its_row_when_the_run_goes_on():
    stamp = shipped("scripted").environment.path / STAMP
    stamp.unlink()
    alone = run_recipe(RECIPE, SETUP)
    stamp.touch()
    meter = Meter()
    found = run_recipe(RECIPE, replace(SETUP, resume=str(alone.run)), meter=meter)
    assert [[made.label for made in each.rows] for each in (alone, found)] == [["ours"], ["ours", "theirs"]]
    assert sum(meter.read().calls.values()) == 6


def test_a_plan_says_that_a_system_is_not_counted():
    with_it = plan_recipe(RECIPE, SETUP)
    without = plan_recipe(Recipe("alone", "", (Section("turns", "", "locomo", SECTION.variants),)), SETUP)
    assert with_it.total.calls == without.total.calls
    assert with_it.notes == (LEFT_OUT, "not counted: what theirs (system:scripted) takes, which is not known before")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("offline", "writes with a language model, which the offline engine is not; name one with --lm"),
        ("openai/x", ""),
    ],
)
def test_a_system_that_writes_with_a_model_waits_for_one(model, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(RECIPES, "tiny", RECIPE)
    register("scripted", tmp_path / "scripted", monkeypatch, lm=True)
    app.main(["reproduce", "tiny", "--sections", "--lm", model, "--json"], standalone_mode=False)
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    assert [each["label"] for each in section["systems"]] == ["theirs", "the other"]
    assert section["systems"][0]["left_out"].removeprefix("system:scripted ") == reason
