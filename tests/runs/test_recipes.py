"""Recipes: variants of a paper run on the same questions, its cells printed apart from ours."""

import json

import pytest
from recollect.cli import app
from recollect.errors import UnknownNameError
from recollect.runs.recipes.catalog import RECIPES, recipe
from recollect.runs.recipes.recipe import Duel, PaperTable, Recipe, Variant, run_recipe
from recollect.runs.setup import Setup

TINY = Recipe(
    summary="two baselines",
    benchmark="locomo",
    variants=(Variant("three turns", "turn-rag", {"k": 3}), Variant("nothing", "no-memory")),
    paper=(PaperTable("Nobody, Table 1", "no model", ("method", "score"), (("x", 0.5),)),),
    duels=(Duel("turns over nothing", "three turns", "nothing"),),
)
SETUP = Setup(benchmark="locomo", test=6, threads=2)


class PrefersFirstAnswer:
    """A judge that prefers whichever response is longer."""

    hash = "none"

    def __call__(self, example, first, second):
        from recollect.data.preference import Preferred

        side = "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"
        return Preferred(side)


def test_every_variant_is_scored_on_the_same_questions():
    made = run_recipe(TINY, SETUP)
    assert [row.label for row in made.rows] == ["three turns", "nothing"]
    assert len({tuple(row.id for row in entry.evaluation.rows) for entry in made.rows}) == 1
    assert made.win_rates == {}


def test_win_rates_come_from_the_judge():
    made = run_recipe(TINY, SETUP, PrefersFirstAnswer())
    ours, theirs = ({row.id: len(row.answer) for row in entry.evaluation.rows} for entry in made.rows)
    wins = [1.0 if ours[id] > theirs[id] else 0.5 if ours[id] == theirs[id] else 0.0 for id in ours]
    assert made.win_rates == {"turns over nothing": sum(wins) / len(wins)}


def test_paper_and_ours_are_kept_apart():
    summary = run_recipe(TINY, SETUP).summary()
    assert summary["paper"][0]["rows"] == (("x", 0.5),)
    assert all("score" in row and row["comparable"] is False for row in summary["ours"])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_variants_and_duels_that_exist(name):
    found = recipe(name)
    labels = {variant.label for variant in found.variants}
    assert {side for duel in found.duels for side in (duel.one, duel.other)} <= labels
    assert all(len(row) == len(table.columns) for table in found.paper for row in table.rows)


def test_an_unknown_recipe_is_refused():
    with pytest.raises(UnknownNameError, match="unknown recipe"):
        recipe("nobody")


def test_the_command_prints_both(capsys):
    app.main(["reproduce", "pgr", "--test", "4", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in found["ours"]] == [variant.label for variant in RECIPES["pgr"].variants]
    assert found["paper"][0]["rows"][-1][:2] == ["PGR-TOT", 0.723]
    assert found["win_rates"] == {}
