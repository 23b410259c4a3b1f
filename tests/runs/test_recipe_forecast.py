"""Plans of recipes: what a run then takes lies in them, by section, and nothing is made or asked before."""

import json

import pytest
from mempiler.cli import app
from mempiler.engines.meter import Meter
from mempiler.runs.recipes.adaptation import Adaptation
from mempiler.runs.recipes.forecast import plan_recipe
from mempiler.runs.recipes.pgr import PGR
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.section import Duel, Section, Sweep, Variant
from mempiler.runs.setup import Setup

SETUP = Setup(benchmark="", test=8, threads=2)
WRITERS = Section(
    "writers",
    "",
    "locomo",
    (
        Variant("summary", "recursive-summary"),
        Variant("facts", "fact-store"),
        Variant("three facts", "fact-store", {"k": 3}),
    ),
)
AGAIN = Section("again", "", "locomo", (Variant("facts", "fact-store"),), sweeps=(Sweep("k", (1, 2), "turn-rag"),))
RECIPE = Recipe("tiny", "", (WRITERS, AGAIN))


def test_what_a_run_takes_lies_in_its_plan():
    """Two of three variants write the same facts: they are written once, in the plan as in the run."""
    plan, meter = plan_recipe(RECIPE, SETUP), Meter()
    run_recipe(RECIPE, SETUP, meter=meter)
    used = meter.read()
    assert plan.total.calls.low <= sum(used.calls.values()) <= plan.total.calls.high
    assert plan.total.tokens.low <= used.input_tokens + used.output_tokens <= plan.total.tokens.high
    assert plan.total.calls.high / plan.total.calls.low <= 1.5


def test_what_an_earlier_section_has_is_not_planned_again():
    plan = plan_recipe(RECIPE, SETUP)
    assert [(each.section, each.evaluations) for each in plan.sections] == [("writers", 3), ("again", 2)]
    assert plan.sections[1].plan.calls.high == 2 * plan.sections[1].questions == 16


def test_seeds_multiply_what_draws_alone():
    once, thrice = (plan_recipe(RECIPE, SETUP, seeds=seeds) for seeds in (1, 3))
    assert once.summary() == {**thrice.summary(), "notes": list(once.notes)}
    named = Setup(benchmark="", test=8, lm="openai/gpt-4.1-mini")
    asked = [plan_recipe(RECIPE, named, seeds=seeds).total for seeds in (1, 3)]
    assert asked[1].calls.high == pytest.approx(3 * asked[0].calls.high, rel=0.01)
    assert asked[0].usd is not None
    assert 0 < asked[0].usd.low < asked[0].usd.high


def test_settings_are_planned_with():
    narrow, wide = (plan_recipe(RECIPE, SETUP, adaptation=Adaptation({"fact_store.k": k})) for k in (1, 40))
    assert wide.sections[0].plan.tokens.high > narrow.sections[0].plan.tokens.high


def test_a_judge_is_planned_apart():
    duel = Section("duel", "", "locomo", WRITERS.variants[:2], duels=(Duel("x", "summary", "facts"),))
    judged = Setup(benchmark="", test=4, judge_lm="openai/gpt-4.1")
    (planned,) = plan_recipe(Recipe("duel", "", (duel,)), judged).sections
    # Both orders of four pairs; token F1 asks no judge.
    assert (planned.judging.calls.low, planned.judging.calls.high) == (0, 8)
    assert planned.judging.usd is not None
    assert planned.judging.usd.high > 0


def test_the_command_prints_a_plan_and_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    words = ["reproduce", "pgr", "--plan", "--test", "3", "--lm", "openai/gpt-4.1-mini"]
    app.main([*words, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"recipe", "sections", "total", "notes"}
    assert [each["section"] for each in found["sections"]] == [each.name for each in PGR.sections]
    app.main(words, standalone_mode=False)
    assert "ablations" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
