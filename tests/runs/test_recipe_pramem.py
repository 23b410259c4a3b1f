"""PraMem's recipe, offline on a few questions and with little practice."""

from dataclasses import replace

import pytest
from mempiler.runs.recipes.catalog import recipe
from mempiler.runs.recipes.pramem import PRAMEM, confusion
from mempiler.runs.recipes.recipe import run_recipe
from mempiler.runs.setup import Setup


def small(section):
    """A section whose practice is short."""
    variants = tuple(
        replace(each, config={"rounds": 3, "proposals": 2, **each.config}) if each.method == "pramem" else each
        for each in section.variants
    )
    return replace(section, variants=variants)


@pytest.fixture(scope="module")
def made():
    names = ("fig12", "transfer", "table3")
    sections = tuple(small(section) for section in PRAMEM.sections if section.name in names)
    setup = Setup(benchmark="", test=4, threads=2, prompt_lm="offline")
    return run_recipe(replace(PRAMEM, sections=sections), setup)


def tables(made, section):
    done = next(done for done in made.sections if done.section.name == section)
    return {table.title: table for table in done.tables}


def test_the_memories_of_one_user_stand_side_by_side(made):
    table = next(table for table in tables(made, "fig12").values() if table.columns[0] == "entry")
    assert table.columns == ("entry", "PraMem", "Summary")
    assert table.rows[0][1].startswith("pattern: ")
    assert any(str(row[1]).startswith("alert: ") for row in table.rows)
    assert table.rows[0][2]


def test_another_model_reads_the_same_memories(made):
    table = tables(made, "transfer")["The same memories, another model"]
    assert [row[0] for row in table.rows] == ["Truncation", "RAG", "Summary", "PraMem"]
    assert "Memories made by offline, read by offline" in table.note
    # The other model is the offline engine too, so that its answers are the same.
    first = next(title for title in tables(made, "transfer") if title.startswith("Table 1"))
    ours = {row[0]: row[1:] for row in tables(made, "transfer")[first].rows}
    assert {row[0]: row[1:] for row in table.rows} == {label: ours[label] for label in ours if label != "questions"}


def test_the_cost_of_a_memory_is_told_per_user(made):
    rows = {row[0]: row for row in tables(made, "table3")["Table 3: cost"].rows}
    assert float(rows["RAG"][2]) == 0
    assert float(rows["Summary"][2]) > 0
    assert float(rows["PraMem"][2]) > 6


def test_every_method_gets_a_confusion_matrix():
    section = next(section for section in PRAMEM.sections if section.name == "fig3")
    few = replace(section, variants=tuple(each for each in section.variants if each.method == "truncation"))
    done = run_recipe(replace(PRAMEM, sections=(few,)), Setup(benchmark="", test=4, threads=2)).sections[0]
    assert section.analyses == (confusion,)
    assert [path.name for path in done.pictures] == ["fig3-truncation.png"]
    assert all(path.is_file() for path in done.pictures)


def test_the_recipe_has_every_table_and_figure():
    names = [section.name for section in recipe("pramem").sections]
    assert names == ["table1", "transfer", "fig3", "table2", "fig4", "fig5", "fig6", "table3", "fig12"]
    text = {row[0]: row[-2:] for row in PRAMEM.sections[0].paper[0].rows}
    assert text["PraMem"] == (84.7, 31.6)
