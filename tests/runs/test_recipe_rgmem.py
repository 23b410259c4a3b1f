"""RGMem's recipe: the paper's cells agree with one another, sweeps share the default, and the analyses compute."""

import inspect
import itertools
import shutil
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from mempiler.programs.catalog import method_class
from mempiler.runs.recipes.papers import printed
from mempiler.runs.recipes.recipe import Recipe, run_recipe
from mempiler.runs.recipes.rgmem import RGMEM, convergence, trade_off
from mempiler.runs.recipes.section import Section, Variant
from mempiler.runs.setup import Setup

TABLE_1, TABLE_2, TABLE_3, TABLE_4 = (printed("rgmem", f"table{n}") for n in (1, 2, 3, 4))
SIZES = {1: 282, 2: 321, 3: 96, 4: 841}


def number(cell) -> float:
    return float(str(cell).split("(")[0].replace(",", ""))


def row(table, name) -> list[float]:
    return [number(cell) for cell in next(cells for cells in table.rows if cells[0] == name)[1:]]


def test_cells_that_the_paper_prints_twice_are_equal():
    assert row(TABLE_3[0], "RGMem")[:-1] == row(TABLE_2[1], "RGMem")
    assert row(TABLE_4[0], "RGMem")[:-1] == row(TABLE_1[0], "RGMem")


@pytest.mark.parametrize("tables", [TABLE_1, TABLE_2, TABLE_3, TABLE_4])
def test_every_cell_is_a_number(tables):
    assert all(0 <= number(cell) <= 10_000 for table in tables for cells in table.rows for cell in cells[1:])


@pytest.mark.parametrize(
    ("table", "name", "orders"),
    [
        (0, "RAG", set()),
        (0, "LangMem", {(1, 3, 4, 2)}),
        (0, "Mem0", {(1, 3, 4, 2)}),
        (0, "Zep", {(1, 2, 3, 4)}),
        (0, "RGMem", set()),
        (0, "Full-Context", set()),
        (1, "RAG", {(1, 2, 3, 4), (2, 1, 3, 4)}),
        (1, "LangMem", {(1, 2, 3, 4)}),
        (1, "Mem0", {(1, 2, 3, 4)}),
        (1, "Zep", {(1, 2, 3, 4)}),
        (1, "RGMem", set()),
        (1, "Full-Context", {(1, 2, 3, 4)}),
    ],
)
def test_the_note_on_table_2_is_right(table, name, orders):
    """The orders of LoCoMo's categories in which a row's four cells give its printed average within .03."""
    *cells, average = row(TABLE_2[table], name)
    means = {
        order: sum(cell * SIZES[category] for cell, category in zip(cells, order, strict=True)) / sum(SIZES.values())
        for order in itertools.permutations(SIZES)
    }
    assert {order for order, mean in means.items() if abs(mean - average) < 0.03} == orders


def test_the_default_of_every_sweep_is_the_method_of_the_tables():
    """Settings that a sweep leaves out are the constructor's own, so that one evaluation serves tables and figures."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(method_class("rgmem").__init__).parameters.items()
    }
    assert (defaults["theta_inf"], defaults["theta_sum"], defaults["node_cosine"]) == (3, 6, 0.5)
    for section in RGMEM.sections:
        for sweep in section.sweeps:
            middle = [variant for variant in sweep.variants() if not variant.config]
            assert len(middle) == 1
            if sweep.setting in defaults:
                assert middle[0].label == f"{sweep.setting} = {defaults[sweep.setting]}"
    for variant in RGMEM.sections[2].variants:
        assert variant.config.keys() <= defaults.keys()


def test_a_sweep_of_the_threshold_takes_the_other_along():
    fig4a = next(section for section in RGMEM.sections if section.name == "fig4a")
    assert fig4a.all_variants()[-1].config == {"theta_inf": 5, "theta_sum": 10}


@pytest.fixture
def with_latest(tmp_path: Path) -> Path:
    """The sample with some questions of the skill that the released files lack."""
    samples = Path(str(resources.files("mempiler.data.samples")))
    text = (samples / "personamem_questions.csv").read_text(encoding="utf-8")
    changed = text.replace("track_full_preference_evolution", "acknowledge_latest_user_preferences")
    (tmp_path / "questions_32k.csv").write_text(changed, encoding="utf-8")
    shutil.copy(samples / "personamem_shared_contexts.jsonl", tmp_path / "shared_contexts_32k.jsonl")
    return tmp_path


def test_stability_against_plasticity_is_drawn_where_both_skills_are_asked(with_latest):
    section = Section("fig5", "", "personamem", (Variant("nothing", "no-memory"),), analyses=(trade_off,))
    recipe = Recipe("fig5", "", (section,))
    drawn, absent = (
        run_recipe(recipe, Setup(benchmark="", threads=2, test=None), data=data)
        for data in ({"personamem": str(with_latest)}, None)
    )
    assert [path.name for path in drawn.sections[0].pictures] == ["fig5-trade-off.png"]
    assert drawn.sections[0].tables[1].note == ""
    assert absent.sections[0].pictures == ()
    assert absent.sections[0].tables[1].rows[0][2] is None
    assert absent.sections[0].tables[1].note.startswith("Not drawn")


def test_figure_5_is_drawn_on_questions_that_ask_for_the_latest():
    """LongMemEval's sample has both kinds of questions."""
    section = next(section for section in RGMEM.sections if section.name == "fig5")
    cheap = tuple(each for each in section.variants if each.method in ("no-memory", "turn-rag"))
    recipe = replace(RGMEM, sections=(replace(section, variants=cheap),))
    done = run_recipe(recipe, Setup(benchmark="", threads=2)).sections[0]
    assert [path.name for path in done.pictures] == ["fig5-knowledge.png"]
    table = done.tables[1]
    assert table.columns == ("variant", "single-session-user", "knowledge-update")
    assert all(cell.n == 4 for row in table.rows for cell in row[1:])


def test_convergence_follows_the_profile_of_the_user_session_by_session():
    """Under the lowest thresholds the profile is rewritten after nearly every session."""
    eager = Variant("RGMem", "rgmem", {"theta_inf": 1, "theta_sum": 1})
    courses = []

    def look(material):
        history = max(material.histories(), key=len)
        courses.append([memory.course() for memory in material.memories("RGMem", history)])
        return ()

    section = Section("fig7", "", "personamem", (eager,), analyses=(convergence, look))
    found = run_recipe(Recipe("fig7", "", (section,)), Setup(benchmark="", test=8, threads=2))
    table = found.sections[0].tables[1]
    texts = ["" if not course else course[-1].theory.sigma for course in courses[0]]
    pairs = [(before, now) for before, now in itertools.pairwise(texts) if before]
    assert len(table.rows) == len(pairs)
    assert sum(int(str(line[3])) for line in table.rows) == sum(before != now for before, now in pairs)
    assert all(-1.0 <= float(str(line[2])) <= 1.0 + 1e-6 for line in table.rows)
    assert [path.name for path in found.sections[0].pictures] == ["fig7-convergence.png"]
