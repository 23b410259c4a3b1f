"""Recipes on their worlds: under the oracle an ablation shows, and nothing of the paper's own tables is printed."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from mempiler.cli import app, main
from mempiler.errors import UnknownNameError, UserError
from mempiler.runs.recipes.catalog import RECIPES
from mempiler.runs.recipes.forecast import plan_recipe
from mempiler.runs.recipes.recipe import Recipe, Reproduced, run_recipe
from mempiler.runs.recipes.workbench import draws
from mempiler.runs.recipes.world import World
from mempiler.runs.report import INSTRUMENT
from mempiler.runs.setup import Setup

ORACLE = Setup(benchmark="", lm="oracle", threads=1, options={"users": 3})
SHOWN = {
    "pgr": ("ablations", "PGR, tree", "PGR, tree, no summary", "left"),
    "rgmem": ("table3", "RGMem", "w/o L0", "recall_user_shared_facts"),
    "h2memory": ("table2-restate", "H2Memory", "w/o M_B", "background"),
    "pramem": ("table2", "PraMem", "w/o reflective proposal", "lucky"),
}
"""By recipe: a section, its own variant, one without a mechanism, and the questions that need it."""


def pair(name: str) -> Recipe:
    """A recipe with one section of two variants."""
    found, (wanted, own, without, _) = RECIPES[name], SHOWN[name]
    section = next(each for each in found.sections if each.name == wanted)
    kept = tuple(variant for variant in section.variants if variant.label in (own, without))
    return replace(found, sections=(replace(section, variants=kept),), world=claiming(found))


def claiming(found: Recipe, *names: str) -> World:
    """A recipe's world with some of its claims, and nothing further."""
    assert found.world
    claims = tuple(found.world.claims.named(name) for name in names)
    return replace(found.world, claims=replace(found.world.claims, claims=claims), further=())


def ladder() -> Recipe:
    """Memory-R2's recipe, which trains nothing on its world."""
    return replace(RECIPES["memory-r2"], world=claiming(RECIPES["memory-r2"], "1 part"))


def category_of(made: Reproduced, label: str, name: str) -> float:
    rows = [row for each in made.rows if each.label == label for row in each.evaluation.rows if row.category == name]
    return sum(row.score for row in rows) / len(rows)


@pytest.mark.parametrize("name", SHOWN)
def test_an_ablation_is_below_the_papers_own_variant_in_its_world(name: str) -> None:
    section, own, without, needing = SHOWN[name]
    made = run_recipe(pair(name), ORACLE)
    (done,) = made.sections
    assert (done.section.name, done.section.paper, done.win_rates) == (section, (), {})
    assert f"on {done.heading}".startswith(f"on world.{name}, LM oracle")
    assert done.heading.endswith(f"({INSTRUMENT})")
    assert category_of(made, own, needing) > category_of(made, without, needing)
    assert any(note.startswith(f"on world.{name} the paper's tables, duels and analyses") for note in made.notes)
    (changed,) = [table for table in done.tables if "by category" in table.title]
    found = {row[1]: row for row in changed.rows}
    assert {row[0] for row in changed.rows} == {without}
    assert found[needing][3].interval[1] < 0
    assert found[needing][2] == str(found[needing][3].n)


def test_what_was_predicted_stands_beside_what_was_found() -> None:
    world = claiming(RECIPES["memory-r2"], "1 part", "silent: manage")
    wrong = replace(world.claims.claims[0], name="not so", lowers=("stated",), settings={"parts": 8})
    world = replace(world, claims=replace(world.claims, claims=(*world.claims.claims, wrong)))
    made = run_recipe(replace(RECIPES["memory-r2"], world=world), replace(ORACLE, options={"users": 5}))
    (done,) = made.sections
    assert [each.label for each in done.made] == ["memory-r2: abstain = True", "1 part", "not so"]
    table = next(table for table in done.tables if table.title == "predicted against found")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    told = {(row["switch"], row["questions"]): (row["predicted"], row["found"]) for row in rows}
    assert told == {
        ("1 part", "corrected"): ("lower", "as predicted"),
        ("1 part", "8 others"): ("same", "as predicted"),
        ("not so", "stated"): ("lower", "not"),
        ("not so", "8 others"): ("same", "as predicted"),
    }
    (first, *_) = rows
    assert (first["compared with"], first["n"]) == ("memory-r2: abstain = True", "5")
    assert first["difference"].interval[1] < 0
    assert "hybrid: ours" in table.note


@pytest.mark.parametrize("name", RECIPES)
def test_every_category_of_the_world_is_a_column_of_every_section(name: str) -> None:
    found = RECIPES[name]
    assert found.world
    sections = found.chosen((), found.world.name)
    for section in sections:
        assert (section.benchmark, section.paper, section.duels, section.judged) == (found.world.name, (), (), False)
        labels = [variant.label for variant in section.all_variants()]
        assert len(labels) == len(set(labels)) > 1
        assert section.own in {"", *labels}
        assert all(not variant.options for variant in section.variants)
    data = replace(ORACLE, benchmark=found.world.name, options={"users": 1}).load()
    by_column = {example.category: 0 for example in data.examples}
    assert len(sections[0].columns) == len(by_column) + 1
    assert {each.name for each in sections} > {each.name for each in found.world.sections} or name == "memory-r2"


def test_a_section_that_shows_nothing_else_is_left_out_unless_it_is_asked_for() -> None:
    rgmem = RECIPES["rgmem"]
    shown = [section.name for section in rgmem.chosen((), "world.rgmem")]
    assert shown == ["table1", "table3", "fig3", "fig4a", "fig8", "mechanisms"]
    assert [section.name for section in rgmem.chosen(("table4",), "world.rgmem")] == ["table4"]
    with pytest.raises(UserError, match="no section of fig7 runs on world"):
        rgmem.chosen(("fig7",), "world.rgmem")
    with pytest.raises(UnknownNameError, match="benchmark of this recipe"):
        rgmem.chosen((), "world.pgr")
    with pytest.raises(UnknownNameError, match="section of rgmem"):
        rgmem.chosen(("mechanisms",))


def test_the_oracle_chooses_the_world_and_another_model_is_sent_there_by_name() -> None:
    climbing = ladder()
    there = replace(ORACLE, lm="offline", benchmark="world.memory-r2")
    assert climbing.suited(replace(ORACLE, lm="oracle:0.1")).benchmark == "world.memory-r2"
    assert climbing.suited(replace(ORACLE, benchmark="locomo")).benchmark == "locomo"
    assert climbing.suited(there) == there
    assert climbing.suited(replace(there, benchmark="")).lm == "local:tiny"
    made = run_recipe(climbing, replace(there, options={"users": 1}))
    assert "wiring check" in made.sections[0].heading
    assert len(made.rows[0].evaluation.rows) == 9


def test_the_oracle_is_asked_once_however_many_seeds() -> None:
    made = RECIPES["pgr"].chosen((), "world.pgr")[0].variants[0]
    assert not draws(made, ORACLE)
    assert draws(made, replace(ORACLE, lm="openai/gpt-4.1-mini"))


def test_on_its_world_a_recipe_with_a_ladder_is_resumed() -> None:
    setup = replace(ORACLE, options={"users": 1})
    first = run_recipe(ladder(), setup)
    again = run_recipe(ladder(), replace(setup, resume=str(first.run)))
    assert again.summary()["tables"] == first.summary()["tables"]


def test_the_plan_is_of_the_world() -> None:
    (planned,) = plan_recipe(ladder(), ORACLE).sections
    assert (planned.benchmark, planned.questions, planned.evaluations) == ("world.memory-r2", 27, 2)


def test_the_sections_of_the_world_are_listed(capsys: Any) -> None:
    app.main(["reproduce", "h2memory", "--lm", "oracle", "--sections", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)["sections"]
    assert [row["section"] for row in found] == ["table2-restate", "mechanisms"]
    assert {name for row in found for name in row["on"]} == {"world.h2memory"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pgr", "--option", "colour=3"], "colour"),
        (["memory-r2", "--rung-set", "sft.epochs=2"], "memory-r2 has no rungs on world.memory-r2"),
        (["rgmem", "--data", "locomo10.json"], "is generated and reads no file"),
    ],
)
def test_what_the_world_does_not_have_is_one_line(words: list[str], said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *words, "--lm", "oracle"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(("words", "embedder"), [([], "offline"), (["--embedder", "e5"], "e5")])
def test_the_oracles_embedder_is_the_offline_one_unless_named(
    words: list[str], embedder: str, monkeypatch: Any
) -> None:
    """Others rank what is near by its sense, and the distractors of a world are near by spelling."""
    seen: list[Setup] = []

    def run(_: Recipe, setup: Setup, *rest: Any) -> SimpleNamespace:
        seen.append(setup)
        return SimpleNamespace(summary=dict)

    monkeypatch.setattr("mempiler.engines.embedders.default_embedder", lambda: "minilm")
    monkeypatch.setattr("mempiler.runs.recipes.recipe.run_recipe", run)
    app.main(["reproduce", "pgr", "--lm", "oracle", *words, "--json"], standalone_mode=False)
    assert [setup.embedder for setup in seen] == [embedder]
