"""Mem-PAL's recipe: the paper's cells agree with its text, rows differ in what they say, and analyses count."""

import inspect
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace

import pytest
from mempiler.engines.guard import Guard, Limits
from mempiler.engines.meter import Meter
from mempiler.errors import UnknownNameError, UserError
from mempiler.programs.catalog import method_class
from mempiler.runs.folder import RunFolder
from mempiler.runs.recipes.h2memory import H2MEMORY, margins
from mempiler.runs.recipes.papers import printed
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.section import Section, Variant
from mempiler.runs.setup import Runtime, Setup

SETUP = Setup(benchmark="", test=2, threads=2)


def section(name):
    return next(each for each in H2MEMORY.sections if each.name == name)


def only(name, *labels):
    """A recipe of one section with some of its rows."""
    found = section(name)
    kept = tuple(each for each in found.variants if each.label in labels)
    return replace(H2MEMORY, sections=(replace(found, variants=kept),))


def outcomes(cell):
    return [int(number) for number in cell.split("/")]


@pytest.mark.parametrize(("table", "topics"), [("table3", 826), ("table11", 80)])
def test_the_papers_outcomes_add_up_to_its_topics(table, topics):
    assert {sum(outcomes(cell)) for row in printed("h2memory", table)[0].rows for cell in row[1:]} == {topics}


def test_the_papers_cells_of_table_4_are_thirtieths():
    assert all(abs(row[1] * 0.3 - round(row[1] * 0.3)) < 0.01 for row in printed("h2memory", "table4")[0].rows)


def test_the_best_of_the_papers_selections_is_its_own_method():
    """Table 2's text: the approach has its clearest advantage in the selection score."""
    assert max(printed("h2memory", "table2-select")[0].rows, key=lambda row: row[1])[0] == "H2Memory (ours)"


def test_every_setting_is_one_of_its_method():
    for variant in (variant for each in H2MEMORY.sections for variant in each.variants):
        assert variant.config.keys() <= inspect.signature(method_class(variant.method).__init__).parameters.keys()


def test_every_ablation_turns_one_part_off():
    off = [each.config for each in section("table2-restate").variants if each.label.startswith("w/o")]
    assert off == [{f"use_{part}": False} for part in ("situations", "background", "topics", "principles")]


def test_table_1_counts_the_data_and_asks_no_model():
    made = run_recipe(H2MEMORY, SETUP, only=("table1",)).sections[0]
    rows = {row[0]: row[1:] for row in made.tables[0].rows}
    assert made.made == ()
    assert rows["sessions"] == ("4.0", "2.0")
    assert "wiring check" in made.heading


def test_table_10_shows_three_seeds_where_a_method_draws_and_shares_the_first_with_table_2():
    sections = tuple(
        replace(section(name), variants=(Variant("H2Memory", "h2memory"), Variant("RAG", "turn-rag")))
        for name in ("table2-select", "table10-select")
    )
    once, thrice = run_recipe(replace(H2MEMORY, sections=sections), SETUP).sections
    assert [len(made.evaluations) for made in once.made] == [1, 1]
    assert [len(made.evaluations) for made in thrice.made] == [3, 1]
    assert [made.evaluation.run_id for made in once.made] == [made.evaluation.run_id for made in thrice.made]


def test_offline_the_engine_judges_the_dialogues_of_table_3():
    made = run_recipe(only("table3", "against Vanilla (w/o log)", "against RecurSum"), SETUP).sections[0]
    assert "judge offline" in made.heading
    counts = [made.evaluation.aggregate for made in made.made]
    assert all(
        sum(found[f"{dimension} {x}"] for x in ("WIN", "TIE", "LOSE")) == 2
        for found in counts
        for dimension in ("requirement", "preference")
    )
    assert made.made[0].evaluation.run_id != made.made[1].evaluation.run_id


def test_without_a_judge_a_real_model_leaves_the_judged_sections_out():
    kept = replace(section("table2-select"), variants=(Variant("nothing", "no-memory"),))
    recipe = replace(H2MEMORY, sections=(kept, section("table3")))
    # The address is never called: the limit strikes first.
    setup = replace(SETUP, lm="openai/nobody", api_base="http://127.0.0.1:9", limits=Limits(max_calls=0))
    with pytest.raises(UserError, match="table3 is scored by a judge"):
        run_recipe(recipe, setup, only=("table3",))
    made = run_recipe(recipe, setup)
    assert [done.section.name for done in made.sections] == ["table2-select"]
    assert any("section table3" in note for note in made.notes)


def row(failure=None, **parts):
    return SimpleNamespace(parts=parts, failure=failure)


def test_table_11_calls_small_differences_ties():
    rows = [
        row(requ_own=8.0, requ_rival=7.0, pref_own=6.0, pref_rival=6.5),
        row(requ_own=5.0, requ_rival=7.5, pref_own=9.0, pref_rival=1.0),
        row(),  # equal dialogues are not judged
        row(failure="format"),
    ]
    material = SimpleNamespace(
        made={"against x": SimpleNamespace(evaluation=SimpleNamespace(rows=rows))}, setup=SimpleNamespace(seed=0)
    )
    table = next(iter(margins(material)))  # type: ignore[arg-type]
    assert table.rows == (
        ("0", "1 / 1 / 1", "1 / 1 / 1"),
        ("0.5", "1 / 1 / 1", "1 / 2 / 0"),
        ("1", "0 / 2 / 1", "1 / 2 / 0"),
        ("2", "0 / 2 / 1", "1 / 2 / 0"),
    )
    assert "3 of 3 judged topics" in table.note


NOTHING = (Variant("nothing", "no-memory"),)
PARTS = Recipe(
    "parts",
    "",
    (
        Section("t-restate", "", "palbench.restate", NOTHING),
        Section("t-select", "", "palbench.select", NOTHING),
        Section("other", "", "longmemeval.preference", NOTHING),
    ),
    offline_options={"longmemeval.preference": {"metric": "f1"}},
)


def test_the_name_of_a_suite_gives_its_file_to_every_part(tmp_path):
    file = tmp_path / "input.json"
    file.write_text(
        (resources.files("mempiler.data.samples") / "palset" / "input_en.json").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    made = run_recipe(PARTS, SETUP, data={"palbench": str(file)})
    assert [done.made[0].evaluation.comparable for done in made.sections] == [False] * 3
    assert [
        run_recipe(PARTS, replace(SETUP, data=str(file)), only=("t",)).sections[n].section.name for n in (0, 1)
    ] == [
        "t-restate",
        "t-select",
    ]
    with pytest.raises(UserError, match="--data palbench=FILE --data longmemeval=FILE"):
        run_recipe(PARTS, replace(SETUP, data=str(file)))
    with pytest.raises(UnknownNameError, match="benchmark of these sections"):
        run_recipe(PARTS, SETUP, data={"palbench": str(file)}, only=("other",))


def test_the_name_of_a_suite_chooses_its_sections():
    chosen = PARTS.chosen(benchmark="palbench")
    assert [each.benchmark for each in chosen] == ["palbench.restate", "palbench.select"]


def test_an_option_goes_to_the_benchmarks_that_have_it():
    made = run_recipe(PARTS, replace(SETUP, options={"language": "zh"}))
    assert [{row.category for row in done.made[0].evaluation.rows} for done in made.sections] == [
        {"zh"},
        {"zh"},
        {"single-session-preference"},
    ]
    with pytest.raises(UserError, match="tongue"):
        run_recipe(PARTS, replace(SETUP, options={"tongue": "zh"}))


def test_baselines_keep_logs_apart_on_pal_bench_rivals_among_them():
    setup = replace(SETUP, benchmark="palbench.dialogue", options={"against": "turn-rag"})
    runtime = Runtime(setup, Meter(), Guard(), RunFolder.create("rival", {}))
    benchmark = setup.load()
    assert runtime.program("logs+turn-rag", benchmark).method.config["inner_k"] == 3
    assert runtime.program("logs+recursive-summary", benchmark).method.config["earlier"] == "summary"
    assert runtime.program("logs+turn-rag", benchmark, {"inner_k": 5}).method.config["inner_k"] == 5
