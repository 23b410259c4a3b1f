"""The papers' files: they load, what they name is there, and their variants can be built."""

from dataclasses import replace

import pytest
from mempiler.data.catalog import BENCHMARKS
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.runs.papers.paper import LOGO, PAPERS, read_paper
from mempiler.runs.planning import start_program
from mempiler.runs.setup import Setup
from mempiler.systems.catalog import SYSTEMS


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_paper_names_is_there(name):
    paper = read_paper(name)
    tables = [table for found in paper.printed.values() for table in found]
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    shown = {key for each in (*paper.sections, *paper.not_drawn) for key in each.printed}
    assert shown == paper.printed.keys()
    for section in paper.sections:
        assert section.own in section.variants
        assert {end for duel in section.duels for end in (duel.one, duel.other)} <= paper.variants.keys()
    starts = {variant.tuned.start for variant in paper.variants.values() if variant.tuned}
    assert starts <= {"", *paper.variants}


@pytest.mark.parametrize("name", PAPERS)
def test_every_variant_of_every_section_can_be_built(name):
    paper = read_paper(name)
    assert paper.name == name
    for section in paper.sections:
        assert section.benchmark in BENCHMARKS
        options = {**section.options, **paper.unjudged.get(section.benchmark, {})}
        benchmark = (setup := Setup(benchmark=section.benchmark, options=options)).load()
        for label in section.variants:
            variant = paper.variants[label]
            if variant.program.startswith("system:"):
                assert variant.program.removeprefix("system:") in SYSTEMS
            else:
                start_program(variant.program, replace(setup, config=variant.settings), benchmark)
            if variant.tuned is not None:
                assert variant.tuned.optimizer in (LOGO, *OPTIMIZERS)


@pytest.mark.parametrize(
    ("name", "section", "label", "column", "cells"),
    [
        ("rgmem", "table2", "RGMem", "all", (78.92, 86.17)),
        ("rgmem", "table4", "w/o RG", "context tokens", ("8,479",)),
        ("h2memory", "table2-restate", "w/o M_T", "B-1", (24.04,)),
        ("h2memory", "table3", "against RecurSum", "req. win", ("421 / 29 / 376",)),
        ("pramem", "fig4", "round 40", "Overall F1", (30.7,)),
        ("pgr", "memoryquest", "PGR, tree, base", "recall", (0.677,)),
        ("pgr", "memoryquest", "PGR, tree", "recall", (0.723, 0.723, 0.723, 0.722)),
        ("pgr", "implexconv", "Mem0 (no graph)", "recall", (0.05,)),
    ],
)
def test_the_papers_cells_stand_beside_the_right_ones_of_ours(name, section, label, column, cells):
    paper = read_paper(name)
    (found,) = (each for each in paper.sections if each.name == section)
    (wanted,) = (each for each in found.columns if each.name == column)
    assert paper.beside(found, label, wanted) == cells
