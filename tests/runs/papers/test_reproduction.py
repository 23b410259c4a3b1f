"""A reproduction: each variant an ordinary run of its own, our table beside the paper's, and a killed one goes on."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.meter import Meter
from mempiler.engines.usage import Usage
from mempiler.runs.compare import load_run
from mempiler.runs.papers.cells import VariantResult
from mempiler.runs.papers.paper import Column, PaperOnlyRow, PrintedTable, Variant
from mempiler.runs.papers.reproduction import Reproduction, SectionResult, reproduce
from mempiler.runs.papers.sections import plan_paper

from ..evaluations import evaluation
from ..evaluations import row as a_row
from .conftest import TURNS
from ...run_inputs import run_config, run_inputs

SETUP = run_config(benchmark="", test=6, threads=2)
SPLIT = run_config(benchmark="", train=8, dev=4, test=4, threads=1)
PLAIN = {"program": "turn-rag"}
LABELED = {"optimizer": "labeled", "settings": {"max_labeled_demos": 2}}
TUNED = {
    "three turns": PLAIN,
    "demos": {**PLAIN, "settings": {"k": 2}, "tuned": LABELED},
    "more demos": {
        **PLAIN,
        "tuned": {"optimizer": "bootstrap", "start": "demos", "settings": {"max_tries": 2}},
    },
}


def rows_of(made):
    return {row["label"]: row for section in made.summary()["sections"] for row in section["rows"]}


def test_a_variant_is_a_run_of_its_own_and_equal_ones_are_one(make_paper):
    made = reproduce(make_paper(), SETUP)
    rows = rows_of(made)
    assert list(rows) == ["three turns", "nothing", "k = 1", "k = 3"]
    assert rows["three turns"]["runs"] == rows["k = 3"]["runs"]
    assert len({run for row in rows.values() for run in row["runs"]}) == 3
    alone = load_run(rows["k = 1"]["runs"][0]).evaluation
    assert rows["k = 1"]["cells"]["all"]["value"] == pytest.approx(100 * alone.score)
    assert rows["k = 1"]["n"] == alone.n
    assert len(alone.rows) == 6
    assert json.loads((made.run / "reproduced.json").read_text()) == json.loads(
        json.dumps(made.summary())
    )
    # A row has the paper's cell, an interval and a difference.
    ours, own = rows["three turns"], rows["nothing"]
    cell = ours["cells"]["all"]
    assert cell["n"] == ours["n"]
    assert cell["printed"] == (38.1,)
    assert own["cells"]["all"]["printed"] == ()
    assert cell["interval"][0] <= cell["value"] <= cell["interval"][1]
    found = ours["difference"]
    assert found["to"] == "nothing"
    assert found["n"] == ours["n"]
    assert own["difference"] is None
    assert found["verdict"] == "too few to tell"
    assert found["mean"] == pytest.approx(cell["value"] - own["cells"]["all"]["value"])
    assert found["interval"][0] <= found["mean"] <= found["interval"][1]
    assert ours["takes"]["calls"] == 6
    assert ours["failures"] == 0
    assert ours["lost"] == 0.0


def test_a_section_names_the_other_model_that_answers_and_presets_are_beneath_the_variants(
    make_paper,
):
    variants = {"preset": PLAIN, "three turns": {**PLAIN, "settings": {"k": 3}}}
    section = {
        **TURNS,
        "variants": list(variants),
        "baseline": "preset",
        "needs": "answers",
        "comparisons": [],
    }
    paper = make_paper(variants=variants, sections=[section], presets={"turn-rag": {"k": 2}})
    made = reproduce(paper, SETUP)
    assert {label: row["settings"] for label, row in rows_of(made).items()} == {
        "preset": {"k": 2},
        "three turns": {"k": 3},
    }
    assert made.sections[0].heading.endswith("; answers by offline")


@pytest.mark.slow
def test_a_compiled_row_is_compiled_and_then_asked_what_nothing_learned_from(make_paper):
    """The second begins from the program that the first one kept."""
    made = reproduce(make_paper(TUNED, "three turns"), SPLIT)
    assert {row.label: len(row.evaluation.rows) for row in made.sections[0].rows} == dict.fromkeys(
        TUNED, 4
    )
    assert not made.failed
    found = {
        json.loads(path.read_text())["settings"]["command"]
        for path in made.run.glob("parts/*/run.json")
    }
    assert found == {"evaluate", "compile"}
    begun = [
        json.loads(path.read_text())["settings"]
        for path in made.run.glob("parts/bootstrap-*/run.json")
    ]
    assert [each["begun"].partition("-turn-rag")[0] for each in begun] == ["labeled"]
    (kept,) = made.run.glob("parts/labeled-*/program/manifest.json")
    assert json.loads(kept.read_text())["config"]["k"] == 2


@pytest.mark.slow
def test_a_program_compiled_on_another_benchmark_is_asked_all_questions_of_this_one(make_paper):
    """Two sections that learn alike share what was learned."""
    here = {**PLAIN, "tuned": LABELED}
    variants = {
        "three turns": PLAIN,
        "demos": here,
        "abroad": {**PLAIN, "tuned": {**LABELED, "on": "locomo"}},
    }
    (section,) = make_paper({"demos": here}, "demos").sections
    abroad = {
        "name": "msc",
        "benchmark": "msc",
        "variants": ("three turns", "abroad"),
        "baseline": "abroad",
    }
    paper = make_paper(variants=variants, sections=[section, section.model_copy(update=abroad)])
    config = run_config(benchmark="", train=8, dev=4, threads=1)
    plan, _ = plan_paper(paper, config)
    made = reproduce(paper, config)
    assert not made.failed
    ran = [json.loads(path.read_text())["settings"] for path in made.run.glob("parts/*/run.json")]
    assert [(each["benchmark"], each["train"]) for each in ran if each["command"] == "compile"] == [
        ("locomo", 8)
    ]
    (rows,) = (
        [len(row.evaluation.rows) for row in each.rows]
        for each in made.sections
        if each.section.name == "msc"
    )
    assert rows == [len(run_inputs(benchmark="msc").benchmark.examples)] * 2
    assert plan.calls.high >= sum(
        row.evaluation.usage.calls for each in made.sections for row in each.rows
    )


@pytest.mark.parametrize("calls", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_a_compile_that_a_limit_broke_off_goes_on_and_pays_nothing_twice(make_paper, calls):
    paper = make_paper(TUNED, "three turns")
    meters = [Meter() for _ in range(3)]
    whole = reproduce(paper, SPLIT, meter=meters[0])
    broken = reproduce(paper, SPLIT.with_options(max_calls=calls), meter=meters[1])
    resumed = reproduce(paper, SPLIT.with_options(resume=str(broken.run)), meter=meters[2])
    assert len(broken.sections[0].rows) < 3
    assert resumed.stopped is None
    paid = [sum(meter.read().calls.values()) for meter in meters]
    assert paid[1] + paid[2] == paid[0]
    cells = [
        {label: row["cells"] for label, row in rows_of(each).items()} for each in (whole, resumed)
    ]
    assert cells[0] == cells[1]


def test_a_variant_that_fails_or_is_not_installed_is_named_and_the_others_are_run(
    make_paper, cli, monkeypatch, tmp_path
):
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path))
    turns = {
        "three turns": {**PLAIN, "settings": {"colour": 3}},
        "the other": {"program": "system:mem0"},
    }
    printed = {
        "title": "Table 1",
        "model": "m",
        "columns": ["method", "Avg."],
        "rows": [["Mem9", 61.2]],
    }
    paper = make_paper(
        {**turns, "nothing": {"program": "no-memory"}},
        not_reproduced=[{"what": "Figure 7", "why": "a picture"}],
        printed={"table1": [{**printed, "source": "page 5"}]},
    )
    secret = PaperOnlyRow(label="Mem9", why="it is a secret")
    (section,) = paper.sections
    paper = paper.model_copy(
        update={"sections": (section.model_copy(update={"not_run": (secret,)}),)}
    )
    monkeypatch.setattr("mempiler.runs.papers.paper.read_paper", lambda name: paper)
    code, out, _ = cli("reproduce", "tiny", "--test", "4")
    shown = " ".join(out.split())
    assert code == 1
    assert "failed: three turns: " in shown
    assert "colour" in shown
    assert " nothing 4 " in shown
    assert "not reproduced: Figure 7: a picture" in shown
    assert "As the paper prints it: Table 1; m; read in page 5" in shown
    assert " Mem9 - paper 61.2 - not run " in shown
    assert "not run: Mem9: it is a secret" in shown
    assert (
        "the other is left out: system:mem0 is not installed; run: mempiler fetch system:mem0"
        in shown
    )


def test_seeds_repeat_what_draws_and_nothing_else(make_paper, tmp_path, monkeypatch):
    (tmp_path / "drawing.py").write_text(
        "from mempiler.programs.baselines.turn_rag import TurnRAG, TurnRAGSettings\n"
        "class DrawingSettings(TurnRAGSettings):\n"
        "    seed: int = 0\n"
        "class Drawing(TurnRAG):\n"
        "    Settings = DrawingSettings\n"
        "    def __init__(self, settings=None, embedder=None):\n"
        "        super().__init__(settings or DrawingSettings(), embedder)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    drawing, nothing = {"program": "drawing:Drawing"}, {"program": "no-memory"}
    turns = {
        "three turns": drawing,
        "fixed": {**drawing, "settings": {"seed": 7}},
        "nothing": nothing,
    }
    made = reproduce(make_paper(turns, seeds=3), SETUP)
    told = [
        (len(row["runs"]), row["cells"]["all"]["spread"] is not None)
        for row in rows_of(made).values()
    ]
    assert told == [(3, True), (1, False), (1, False)]
    assert made.notes == (
        "what neither samples nor draws by a seed is run once, however many seeds there are",
    )


def row(n, score, group, **values):
    plain = {"gold": "1", "answer": str(score), "parts": {}, "category": "x"}
    return a_row(str(n), score, group=group, **{**plain, **values})


def scored(scores, groups=6, **values):
    return evaluation((row(n, each, f"u{n % groups}") for n, each in enumerate(scores)), **values)


def best(rows):
    return {"best": max(row.score for row in rows)} if rows else {}


ROWS = [
    row(0, 1.0, "u0", parts={"f1": 0.5}, context_tokens=10, calls=1, recall_counts={"first": 4}),
    row(1, 0.0, "u1", parts={"f1": 0.1}, context_tokens=30, calls=3, category="y"),
    row(2, 1.0, "u2", in_headline=False, category="y", calls=2),
]


@pytest.mark.parametrize(
    ("of", "key", "value", "n"),
    [
        ("seconds", "", 30.0, 3),
        ("memory_words", "", 120.0, 3),
        ("refused", "", 25.0, 3),
        ("score", "", 0.5, 2),
        ("category", "y", 0.5, 2),
        ("part", "f1", 0.3, 2),
        ("tokens", "", 20.0, 2),
        ("count", "first", 4 / 3, 3),
        ("calls", "", 2.0, 3),
        ("metric", "best", 1.0, 3),
        ("minutes", "", 0.5, 3),
        ("category", "z", None, 0),
        ("metric", "other", None, 0),
    ],
)
def test_a_column_reads_its_part_of_an_evaluation(of, key, value, n):
    written = {"construction": Usage(seconds=60.0), "histories": 2}
    written |= {"memory_words": 120.0, "operations": {"inserted": 3, "refused": 1}}
    found = VariantResult("x", (evaluation(ROWS, aggregate={"best": 1.0}, **written),))
    cell = found.cell(Column(name="c", of=of, key=key))
    assert cell.value == pytest.approx(value)
    assert cell.n == n


def test_a_part_may_be_of_one_category():
    found = VariantResult("x", (evaluation(ROWS),))
    cells = [
        found.cell(Column(name="c", of="part", key="f1", category=category))
        for category in ("x", "y")
    ]
    assert [(cell.value, cell.n) for cell in cells] == [(0.5, 1), (0.1, 1)]


@pytest.mark.parametrize(("groups", "unit"), [(6, "group"), (2, "question")])
def test_a_metric_of_all_answers_is_computed_anew_for_every_draw(groups, unit):
    """The best of twelve scores, of which one is 1: a draw without it has 0.5 at best."""
    found = VariantResult(
        "x", (scored([0.5] * 11 + [1.0], groups, aggregate={"best": 1.0}),), aggregate=best
    )
    cell = found.cell(Column(name="best", of="metric", key="best"))
    assert cell.value == 1.0
    assert cell.n == 12
    assert cell.interval == (0.5, 1.0)
    assert cell.unit == unit


def test_seeds_are_a_mean_with_a_spread():
    cell = VariantResult("x", (scored([0.0] * 6), scored([1.0] * 6))).cell(
        Column(name="all"), (38.1, "40")
    )
    assert cell.value == 0.5
    assert cell.interval == (0.5, 0.5)
    assert cell.printed == (38.1, "40")
    assert cell.spread == pytest.approx(0.7071, abs=1e-4)


def test_shares_stand_in_points_beside_the_papers_cells_and_other_numbers_as_they_are(make_paper):
    columns = (
        Column(name="all", printed=("F1",)),
        Column(name="points", of="metric", key="BLEU-1", digits=2, unit="points"),
        Column(name="tokens", of="tokens", digits=0),
    )
    table = PrintedTable(
        title="T", model="m", columns=("method", "F1"), rows=(("x", 0.072), ("y", "0.5 > 0.4"))
    )
    paper = make_paper()
    section = paper.sections[0].model_copy(update={"columns": columns, "printed": ("t",)})
    paper = paper.model_copy(
        update={"printed": {"t": (table,)}, "variants": dict.fromkeys("xy", Variant(program="p"))}
    )
    measured = evaluation(ROWS, aggregate={"BLEU-1": 12.3})
    rows = [VariantResult(label, (measured,)) for label in "xy"]
    found = SectionResult(paper, section, "", tuple(rows), {}, {})
    share, points, tokens = found.cells(rows[0])
    assert share.value == 50.0
    assert share.digits == 1
    assert share.printed == (7.2,)
    assert points.value == 12.3
    assert points.digits == 2
    assert tokens.value == 20.0
    assert found.cells(rows[1])[0].printed == ("50 > 40",)


def test_a_difference_is_paired_on_shared_questions():
    own, other = (
        VariantResult("x", (scored(scores),)) for scores in ([1.0] * 24, [0.0] * 21 + [1.0])
    )
    found = other.difference(own)
    assert found.n == 22
    assert found.mean == pytest.approx(-21 / 22)
    assert found.wins == 0
    assert found.losses == 21
    assert found.ties == 1
    assert found.verdict == "worse"


def test_a_variant_that_lost_too_many_calls_is_broken(make_paper):
    paper, whole = make_paper(), VariantResult("nothing", (scored([1.0]),))
    lost = VariantResult(
        "three turns", (scored([1.0], call_outcomes={"task.answer": {"ok": 1, "lost": 1}}),)
    )
    found = SectionResult(paper, paper.sections[0], "", (whole, lost), {}, {})
    assert found.broken == ("three turns",)
    assert Reproduction(paper, (found,), Path(), "", (), None).failed


def told(found: dict[str, Any]) -> list[Any]:
    """The rows of all sections, but for what a clock tells and the folders, whose names hold the server's address."""
    rows = [row for section in found["sections"] for row in section["rows"]]
    for row in rows:
        row["takes"] = {name: value for name, value in row["takes"].items() if name != "seconds"}
    return [
        {name: value for name, value in row.items() if name not in ("runs", "search_ms")}
        for row in rows
    ]


@pytest.mark.slow
def test_a_killed_reproduction_goes_on_where_it_was(stub, mempiler_cli, forks, tmp_path):
    """RGMem and its ablations, which write three kinds of memories, killed when two of them are done."""
    words = ["reproduce", "rgmem", "--section", "table3", "--seeds", "1"]
    unbroken, broken, rest = stub(), stub(delay=0.01), stub()
    whole = mempiler_cli(unbroken, *words, test=2)
    forks.start(mempiler_cli.arguments(broken, *words, test=2), tmp_path / "home")
    run = Path(forks.kill(broken, 125))
    with contextlib.closing(sqlite3.connect(run / "run.sqlite")) as database:
        kept = int(database.execute("SELECT COUNT(*) FROM answers").fetchone()[0])
    parts = [json.loads(file.read_text())["status"] for file in run.glob("parts/*/run.json")]
    rest.model = broken.model
    resumed = mempiler_cli(rest, *words, "--resume", str(run), test=2)
    assert whole.code == 0
    assert resumed.code == 0
    assert parts.count("finished") == 2
    assert told(resumed.found) == told(whole.found)
    assert resumed.found["run"] == str(run)
    assert set(broken.texts) | set(rest.texts) == set(unbroken.texts)
    assert len(rest.texts) == len(unbroken.texts) - kept
