"""The papers' files: they load, their variants can be built, and a wrong file is told in one line."""

import json

import pytest
from mempiler.data.catalog import BENCHMARKS
from mempiler.errors import DataError, UnknownNameError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.runs.papers.paper import PAPERS, parse, read_paper
from mempiler.runs.papers.reproduction import LOGO
from mempiler.runs.planning import start_program
from mempiler.runs.setup import Setup
from mempiler.systems.catalog import SYSTEMS

from .conftest import PLAIN, SIZES, TURNS


def changed(**changes):
    return json.dumps({**PLAIN, **changes}).encode()


def rows(*cells):
    return {"printed": {"table1": [{"title": "T", "model": "m", "columns": ["method", "Avg."], "rows": list(cells)}]}}


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
                start_program(variant.program, setup, benchmark, variant.settings)
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "tiny.json: Invalid JSON"),
        (changed(summary=None), "tiny.json: summary: "),
        (changed(colour="red"), "tiny.json: colour: Extra inputs"),
        (changed(**rows(["x", 0.5], ["y"])), "tiny.json: table1: row 2 has 1 cells, and there are 2 columns"),
        (changed(**rows(["x", [0.5]])), "tiny.json: printed.table1.0.rows.0.1"),
        (changed(printed={}), "tiny.json: there is no printed table 'table1'"),
        (changed(sections=[SIZES]), "tiny.json: table1 is shown nowhere"),
        (changed(sections=[TURNS, {**SIZES, "variants": ["k = 9", "k = 3"]}]), "tiny.json: sizes: no variant 'k = 9'"),
        (changed(sections=[TURNS, {**SIZES, "own": "nothing"}]), "tiny.json: sizes: its own variant 'nothing' is none"),
        (
            changed(variants={**PLAIN["variants"], "x": {"program": "a", "tuned": {"optimizer": "b", "start": "y"}}}),
            "tiny.json: x: begins from 'y', which is no variant",
        ),
    ],
)
def test_a_wrong_file_is_told_in_one_line(content, message):
    with pytest.raises(DataError) as raised:
        parse("tiny.json", content)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_an_unknown_paper_gets_the_closest_one():
    with pytest.raises(UnknownNameError, match=r"unknown paper 'pramen'; did you mean 'pramem'\?"):
        read_paper("pramen")
