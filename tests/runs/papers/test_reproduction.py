"""Reproductions: each variant is an ordinary run, our table stands beside the paper's.

A paper is described by its variants (programs with settings) and its sections. A section is a table
of ours: it has a row for each of its variants, and cells beside which stand the numbers that the
paper prints. The row of a variant has the variant's name as its label.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.meter import Meter
from mempiler.engines.usage import Usage
from mempiler.runs.compare import load_run
from mempiler.runs.papers.cells import VariantResult
from mempiler.runs.papers.paper import Column, Paper, PrintedTable, Variant
from mempiler.runs.papers.reproduction import Reproduction, SectionResult, reproduce
from mempiler.runs.papers.sections import plan_paper
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row

from ...run_inputs import run_config, run_inputs
from ..evaluations import evaluation
from ..evaluations import row as plain_row
from .small_paper import TURNS, one_section_paper, small_paper

EVALUATE = run_config(benchmark="", test=6, threads=2)
"""A run on six test questions with the offline engine. The papers name their benchmarks."""
COMPILE = run_config(benchmark="", train=8, dev=4, test=4, threads=1)
"""A run with four test questions, which also compiles."""

TURN_RAG = {"program": "turn-rag"}
LABELED = {"optimizer": "labeled", "settings": {"max_labeled_demos": 2}}
BOOTSTRAPPED = {"optimizer": "bootstrap", "start": "demos", "settings": {"max_tries": 2}}
COMPILED_VARIANTS = {
    "three turns": TURN_RAG,
    "demos": {**TURN_RAG, "settings": {"k": 2}, "tuned": LABELED},
    "more demos": {**TURN_RAG, "tuned": BOOTSTRAPPED},
}
"""One that is not compiled, one that is, and one that is compiled from the second one's program."""


def rows_by_label(reproduction: Reproduction) -> dict[str, Any]:
    """Return the rows of all sections, as `--json` prints them, by their labels."""
    rows = {}
    sections: Any = reproduction.summary()["sections"]
    for section in sections:
        for row in section["rows"]:
            rows[row["label"]] = row
    return rows


def settings_of_parts(reproduction: Reproduction, folder_name: str = "*") -> list[dict[str, Any]]:
    """Return the recorded settings of the runs within a reproduction.

    The folder of a run has a name such as "bootstrap-turn-rag-..."; `folder_name` is a pattern.
    """
    records = reproduction.run.glob(f"parts/{folder_name}/run.json")
    return [json.loads(path.read_text())["settings"] for path in records]


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    """A reproduction of the small paper by the offline engine.

    Its first section compares the variants "three turns" and "nothing", which is the baseline. The
    second one has the variants "k = 1" and "k = 3". "three turns" has the same program and settings
    as "k = 3". The paper prints a number for "three turns", 38.1, and none for the others. All are
    asked six questions, of which four count in the score.
    """
    return reproduce(small_paper(), EVALUATE)


@pytest.fixture
def rows_of_small_paper(reproduction: Reproduction) -> dict[str, Any]:
    """The rows of that reproduction, by label."""
    return rows_by_label(reproduction)


def test_equal_variants_of_two_sections_are_one_run(rows_of_small_paper: dict[str, Any]) -> None:
    """The variants "three turns" and "k = 3" have the same program with the same settings."""
    runs_by_label = {label: row["runs"] for label, row in rows_of_small_paper.items()}

    assert list(runs_by_label) == ["three turns", "nothing", "k = 1", "k = 3"]
    assert runs_by_label["three turns"] == runs_by_label["k = 3"]
    different_runs = {tuple(runs) for runs in runs_by_label.values()}
    assert len(different_runs) == 3


def test_a_variant_is_an_ordinary_run(rows_of_small_paper: dict[str, Any]) -> None:
    row = rows_of_small_paper["k = 1"]
    (run_folder,) = row["runs"]

    evaluated = load_run(run_folder).evaluation

    # Six questions were asked. Two of them cannot be answered, and count in no score of LoCoMo.
    assert len(evaluated.rows) == 6
    assert row["n"] == 4
    # Scores are between 0 and 1, and the cells of the table are in percent.
    assert row["cells"]["all"]["value"] == pytest.approx(100 * evaluated.score)


def test_a_reproduction_is_saved_as_it_is_printed(reproduction: Reproduction) -> None:
    saved = json.loads((reproduction.run / "reproduced.json").read_text())
    # Tuples become lists in JSON.
    printed = json.loads(json.dumps(reproduction.summary()))

    assert saved == printed


def test_a_cell_has_an_interval_and_the_number_of_the_paper(
    rows_of_small_paper: dict[str, Any],
) -> None:
    """The paper prints 38.1 for the variant "three turns", and nothing for "nothing"."""
    cell = rows_of_small_paper["three turns"]["cells"]["all"]
    cell_of_baseline = rows_of_small_paper["nothing"]["cells"]["all"]

    # Of six questions four count in the score.
    assert cell["n"] == 4
    low, high = cell["interval"]
    assert low <= cell["value"] <= high
    assert cell["printed"] == (38.1,)
    assert cell_of_baseline["printed"] == ()


def test_a_row_has_its_difference_to_the_row_of_the_baseline(
    rows_of_small_paper: dict[str, Any],
) -> None:
    """The baseline is the variant "nothing". Four questions count, and a verdict needs twenty."""
    row = rows_of_small_paper["three turns"]
    baseline = rows_of_small_paper["nothing"]

    difference = row["difference"]
    assert difference["to"] == "nothing"
    assert difference["n"] == 4
    assert difference["verdict"] == "too few to tell"
    expected_mean = row["cells"]["all"]["value"] - baseline["cells"]["all"]["value"]
    assert difference["mean"] == pytest.approx(expected_mean)
    low, high = difference["interval"]
    assert low <= difference["mean"] <= high
    assert baseline["difference"] is None


def test_a_row_says_how_many_calls_it_took_and_how_many_it_lost(
    rows_of_small_paper: dict[str, Any],
) -> None:
    """The offline engine was asked six questions, and answered all of them."""
    row = rows_of_small_paper["three turns"]

    assert row["takes"]["calls"] == 6
    assert row["failures"] == 0
    assert row["lost"] == 0.0


def test_the_settings_of_a_variant_replace_the_presets_of_its_program() -> None:
    """A paper may have presets of a program, which hold for all variants that use it."""
    variants = {
        "preset": {"program": "turn-rag"},
        "three turns": {"program": "turn-rag", "settings": {"k": 3}},
    }
    paper = one_section_paper(variants, baseline="preset", presets={"turn-rag": {"k": 2}})

    reproduction = reproduce(paper, EVALUATE)

    rows = rows_by_label(reproduction)
    assert rows["preset"]["settings"] == {"k": 2}
    assert rows["three turns"]["settings"] == {"k": 3}


def test_the_heading_of_a_section_names_another_model_that_answers() -> None:
    """Here one model writes the memories, and another one answers ("needs": "answers")."""
    section_with_other_answer_model = {**TURNS, "needs": "answers", "comparisons": []}
    paper = small_paper(sections=[section_with_other_answer_model])

    reproduction = reproduce(paper, EVALUATE)

    (section,) = reproduction.sections
    assert section.heading.endswith("; answers by offline")


def paper_with_compiled_variants() -> Paper:
    """Return a paper whose only section has the rows "three turns", "demos" and "more demos"."""
    return one_section_paper(COMPILED_VARIANTS, baseline="three turns")


@pytest.fixture(scope="module")
def compiled_reproduction() -> Reproduction:
    """A reproduction of the paper with compiled variants, on four test questions."""
    return reproduce(paper_with_compiled_variants(), COMPILE)


@pytest.mark.slow
def test_all_rows_beside_a_compiled_one_are_asked_the_test_questions_only(
    compiled_reproduction: Reproduction,
) -> None:
    """A compiled program has learned from the others, and rows need the same questions."""
    assert not compiled_reproduction.failed
    (section,) = compiled_reproduction.sections
    question_counts = {row.label: len(row.evaluation.rows) for row in section.rows}

    assert question_counts == {"three turns": 4, "demos": 4, "more demos": 4}
    commands = {settings["command"] for settings in settings_of_parts(compiled_reproduction)}
    assert commands == {"evaluate", "compile"}


@pytest.mark.slow
def test_a_compile_starts_from_the_program_of_another_variant(
    compiled_reproduction: Reproduction,
) -> None:
    """The variant "more demos" is compiled from the program of "demos", which has k = 2."""
    (settings_of_more_demos,) = settings_of_parts(compiled_reproduction, "bootstrap-*")
    assert settings_of_more_demos["begun"].startswith("labeled-turn-rag")

    (manifest_file,) = compiled_reproduction.run.glob("parts/labeled-*/program/manifest.json")
    manifest = json.loads(manifest_file.read_text())
    assert manifest["config"]["k"] == 2


@pytest.mark.slow
def test_a_program_compiled_on_another_benchmark_is_asked_all_questions_of_this_one() -> None:
    """The variant "demos of LoCoMo" has learned nothing from MSC.

    So it may be asked all of its questions.
    """
    demos = {**TURN_RAG, "tuned": LABELED}
    demos_of_locomo = {**TURN_RAG, "tuned": {**LABELED, "on": "locomo"}}
    on_locomo = {**TURNS, "variants": ["demos"], "baseline": "demos", "comparisons": []}
    on_msc = {
        **on_locomo,
        "name": "msc",
        "benchmark": "msc",
        "variants": ["three turns", "demos of LoCoMo"],
        "baseline": "demos of LoCoMo",
    }
    paper = small_paper(
        variants={"three turns": TURN_RAG, "demos": demos, "demos of LoCoMo": demos_of_locomo},
        sections=[on_locomo, on_msc],
    )
    config = run_config(benchmark="", train=8, dev=4, threads=1)

    plan, _ = plan_paper(paper, config)
    reproduction = reproduce(paper, config)

    assert not reproduction.failed
    # Both sections learn the same, so there is one compile.
    compiles = []
    for settings in settings_of_parts(reproduction):
        if settings["command"] == "compile":
            compiles.append(settings)
    (compiled,) = compiles
    assert compiled["benchmark"] == "locomo"
    assert compiled["train"] == 8

    _, msc_result = reproduction.sections
    all_questions = len(run_inputs(benchmark="msc").benchmark.examples)
    question_counts = [len(row.evaluation.rows) for row in msc_result.rows]
    assert question_counts == [all_questions, all_questions]

    # The plan counts this compile as well.
    calls = 0.0
    for section in reproduction.sections:
        calls += sum(row.evaluation.usage.calls for row in section.rows)
    assert calls <= plan.calls.high


def paid_calls(meter: Meter) -> int:
    """Return how many calls of all roles a meter counted."""
    return sum(meter.read().calls.values())


@pytest.mark.parametrize("max_calls", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_a_reproduction_that_a_limit_stopped_is_resumed_and_pays_nothing_twice(
    max_calls: int,
) -> None:
    """`max_calls` ends the first run early. A meter counts the calls that were paid for."""
    paper = paper_with_compiled_variants()
    complete_meter = Meter()
    stopped_meter = Meter()
    resumed_meter = Meter()

    complete = reproduce(paper, COMPILE, meter=complete_meter)
    with_limit = COMPILE.with_options(max_calls=max_calls)
    stopped = reproduce(paper, with_limit, meter=stopped_meter)
    from_stopped_run = COMPILE.with_options(resume=str(stopped.run))
    resumed = reproduce(paper, from_stopped_run, meter=resumed_meter)

    # The limit left at least one of the three rows undone.
    assert len(stopped.sections[0].rows) < 3
    assert resumed.stopped is None
    assert paid_calls(stopped_meter) + paid_calls(resumed_meter) == paid_calls(complete_meter)
    complete_rows = rows_by_label(complete)
    resumed_rows = rows_by_label(resumed)
    assert list(resumed_rows) == list(complete_rows)
    for label, row in complete_rows.items():
        assert resumed_rows[label]["cells"] == row["cells"]


@pytest.fixture
def printed_reproduction(
    publish: Any, cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """What the terminal shows of a paper with three variants, asked four questions each.

    "three turns" fails, since it has a setting that there is not. "the other" is a system that is
    not installed. "nothing" works. Columns may be wider than their cells: runs of spaces are one
    space.
    """
    # No memory system is installed there.
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path))
    variants = {
        "three turns": {**TURN_RAG, "settings": {"colour": 3}},
        "the other": {"program": "system:mem0"},
        "nothing": {"program": "no-memory"},
    }
    section = {
        **TURNS,
        "variants": list(variants),
        "comparisons": [],
        "not_run": [{"label": "Mem9", "why": "it is a secret"}],
    }
    table = {
        "title": "Table 1",
        "model": "m",
        "columns": ["method", "Avg."],
        "rows": [["Mem9", 61.2]],
        "source": "page 5",
    }
    paper = small_paper(
        variants=variants,
        sections=[section],
        printed={"table1": [table]},
        not_reproduced=[{"what": "Figure 7", "why": "a picture"}],
    )
    publish(paper)

    exit_code, output, _ = cli("reproduce", "tiny", "--test", "4")

    assert exit_code == 1
    return " ".join(output.split())


def test_a_variant_that_fails_is_named_and_the_others_are_run(printed_reproduction: str) -> None:
    """The variant "three turns" has a setting `colour`, which its program lacks."""
    assert "failed: three turns: " in printed_reproduction
    assert "colour" in printed_reproduction
    # The row of "nothing", with its number of questions.
    assert " nothing 4 " in printed_reproduction


def test_a_variant_that_is_not_installed_is_left_out(printed_reproduction: str) -> None:
    """The variant "the other" is the memory system mem0, which is not installed here."""
    reason = "system:mem0 is not installed; run: mempiler fetch system:mem0"

    assert f"the other is left out: {reason}" in printed_reproduction


def test_what_is_not_run_is_named_with_the_numbers_that_the_paper_prints(
    printed_reproduction: str,
) -> None:
    """The paper prints 61.2 for Mem9, which cannot be run, and a figure that is a picture."""
    assert "As the paper prints it: Table 1; m; read in page 5" in printed_reproduction
    assert " Mem9 - paper 61.2 - not run " in printed_reproduction
    assert "not run: Mem9: it is a secret" in printed_reproduction
    assert "not reproduced: Figure 7: a picture" in printed_reproduction


DRAWING_METHOD = """
from mempiler.programs.baselines.turn_rag import TurnRAG, TurnRAGSettings


class DrawingSettings(TurnRAGSettings):
    seed: int = 0


class Drawing(TurnRAG):
    Settings = DrawingSettings

    def __init__(self, settings=None, embedder=None):
        super().__init__(settings or DrawingSettings(), embedder)
"""
"""A user's method that has a seed, so it may draw random numbers."""


def test_only_a_variant_that_draws_random_numbers_is_run_once_for_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would give the same result every time. The spread is that of several runs."""
    (tmp_path / "drawing.py").write_text(DRAWING_METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    drawing = {"program": "drawing:Drawing"}
    variants = {
        "drawing": drawing,
        "seed is set": {**drawing, "settings": {"seed": 7}},
        "nothing": {"program": "no-memory"},
    }

    paper = one_section_paper(variants, baseline="nothing", seeds=3)

    reproduction = reproduce(paper, EVALUATE)

    rows = rows_by_label(reproduction)
    assert len(rows["drawing"]["runs"]) == 3
    assert rows["drawing"]["cells"]["all"]["spread"] is not None
    for label in ("seed is set", "nothing"):
        assert len(rows[label]["runs"]) == 1
        assert rows[label]["cells"]["all"]["spread"] is None
    (note,) = reproduction.notes
    assert note.startswith("what neither samples nor draws by a seed is run once")


def row(question_id: str, score: float, user: str, **fields: Any) -> Row:
    """Return the row of a question of category "x" to a user."""
    defaults = {"gold": "1", "answer": str(score), "parts": {}, "category": "x"}
    return plain_row(question_id, score, group=user, **{**defaults, **fields})


def scored(scores: Sequence[float], user_count: int = 6, **fields: Any) -> Evaluation:
    """Return an evaluation of questions with these scores, which are about the users by turns."""
    rows = []
    for number, score in enumerate(scores):
        rows.append(row(str(number), score, f"user{number % user_count}"))
    return evaluation(rows, **fields)


MEASURED_ROWS = [
    row(
        "0",
        1.0,
        "user0",
        parts={"f1": 0.5},
        context_tokens=10,
        calls=1,
        recall_counts={"first": 4},
    ),
    row("1", 0.0, "user1", parts={"f1": 0.1}, context_tokens=30, calls=3, category="y"),
    row("2", 1.0, "user2", in_headline=False, category="y", calls=2),
]
"""Three questions of the categories x, y and y, of which the last is not in the headline score."""


@pytest.mark.parametrize(
    ("column", "value", "question_count"),
    [
        # What the evaluation says of its memories: 60 s of writing for two histories, 120 words,
        # and one refused operation of four.
        pytest.param({"of": "seconds"}, 30.0, 3, id="seconds to write a memory"),
        pytest.param({"of": "minutes"}, 0.5, 3, id="minutes to write a memory"),
        pytest.param({"of": "memory_words"}, 120.0, 3, id="words of a memory"),
        pytest.param({"of": "refused"}, 25.0, 3, id="percentage of refused operations"),
        # Means over the questions. Those in the headline score have the scores 1 and 0.
        pytest.param({"of": "score"}, 0.5, 2, id="score"),
        pytest.param({"of": "category", "key": "y"}, 0.5, 2, id="score of category y"),
        pytest.param({"of": "part", "key": "f1"}, 0.3, 2, id="mean of f1 = 0.5 and 0.1"),
        pytest.param({"of": "tokens"}, 20.0, 2, id="mean of 10 and 30 context tokens"),
        pytest.param({"of": "count", "key": "first"}, 4 / 3, 3, id="4 found for one of three"),
        pytest.param({"of": "calls"}, 2.0, 3, id="mean of 1, 3 and 2 calls"),
        pytest.param({"of": "metric", "key": "best"}, 1.0, 3, id="metric of all answers"),
        # What the evaluation does not have.
        pytest.param({"of": "category", "key": "z"}, None, 0, id="no question of category z"),
        pytest.param({"of": "metric", "key": "other"}, None, 0, id="no such metric"),
    ],
)
def test_a_column_reads_its_part_of_an_evaluation(
    column: dict[str, Any], value: float | None, question_count: int
) -> None:
    measured = evaluation(
        MEASURED_ROWS,
        aggregate={"best": 1.0},
        construction=Usage(seconds=60.0),
        histories=2,
        memory_words=120.0,
        operations={"inserted": 3, "refused": 1},
    )

    cell = VariantResult("a variant", (measured,)).cell(Column(name="a column", **column))

    assert cell.value == pytest.approx(value)
    assert cell.n == question_count


@pytest.mark.parametrize(("category", "value"), [("x", 0.5), ("y", 0.1)])
def test_a_column_may_be_the_f1_of_one_category(category: str, value: float) -> None:
    rows = [
        row("0", 1.0, "user0", category="x", parts={"f1": 0.5}),
        row("1", 0.0, "user1", category="y", parts={"f1": 0.1}),
    ]
    result = VariantResult("a variant", (evaluation(rows),))

    cell = result.cell(Column(name="a column", of="part", key="f1", category=category))

    assert cell.value == value
    assert cell.n == 1


def best_score(rows: Sequence[Row]) -> dict[str, float]:
    """A metric of all answers together: the highest score."""
    if not rows:
        return {}
    return {"best": max(row.score for row in rows)}


@pytest.mark.parametrize(
    ("user_count", "unit"),
    [
        pytest.param(6, "group", id="six users, who are drawn"),
        pytest.param(2, "question", id="too few users, so questions are drawn"),
    ],
)
def test_a_metric_of_all_answers_has_an_interval_by_the_bootstrap(
    user_count: int, unit: str
) -> None:
    """The bootstrap draws many samples of the answers, and computes the metric of each sample.

    It draws users, with all of their answers, or single questions. The metric is the best score.
    """
    eleven_low_scores = [0.5] * 11
    one_high_score = [1.0]
    measured = scored(
        [*eleven_low_scores, *one_high_score], user_count=user_count, aggregate={"best": 1.0}
    )
    result = VariantResult("a variant", (measured,), aggregate=best_score)

    cell = result.cell(Column(name="a column", of="metric", key="best"))

    assert cell.value == 1.0
    assert cell.n == 12
    # A sample with the high score has a best score of 1, and one without it has 0.5. There are
    # many samples of both kinds.
    assert cell.interval == (0.5, 1.0)
    assert cell.unit == unit


def test_several_seeds_have_a_mean_and_a_spread() -> None:
    """A variant that draws random numbers may be run with several seeds, here with two.

    All six questions are answered wrongly in the first run, and rightly in the second.
    """
    first_seed = scored([0.0] * 6)
    second_seed = scored([1.0] * 6)
    result = VariantResult("a variant", (first_seed, second_seed))

    cell = result.cell(Column(name="all"))

    assert cell.value == 0.5
    # The mean of each question is 0.5, so they do not differ.
    assert cell.interval == (0.5, 0.5)
    # The standard deviation of 0 and 1, which is the root of 1/2.
    assert cell.spread == pytest.approx(0.7071, abs=1e-4)


def test_a_cell_keeps_the_numbers_and_texts_that_the_paper_prints() -> None:
    result = VariantResult("a variant", (scored([1.0]),))

    cell = result.cell(Column(name="all"), printed=(38.1, "40"))

    assert cell.printed == (38.1, "40")


@pytest.fixture
def section_of_all_units() -> SectionResult:
    """A section whose two rows have a share of 0.5, 12.3 points, and 20 tokens.

    The paper prints only shares.
    """
    columns = (
        Column(name="share", printed=("F1",)),
        Column(name="points", of="metric", key="BLEU-1", digits=2, unit="points"),
        Column(name="tokens", of="tokens", digits=0),
    )
    # The paper prints shares from 0 to 1, and one cell that is a text.
    table = PrintedTable(
        title="T",
        model="m",
        columns=("method", "F1"),
        rows=(("first", 0.072), ("second", "0.5 > 0.4")),
    )
    variant = Variant(program="p")
    paper = small_paper()
    section = paper.sections[0].model_copy(update={"columns": columns, "printed": ("t",)})
    paper = paper.model_copy(
        update={"printed": {"t": (table,)}, "variants": {"first": variant, "second": variant}}
    )
    measured = evaluation(MEASURED_ROWS, aggregate={"BLEU-1": 12.3})
    rows = (VariantResult("first", (measured,)), VariantResult("second", (measured,)))
    return SectionResult(paper, section, heading="", rows=rows, failed={}, win_rates={})


def test_shares_are_shown_in_points_and_other_numbers_as_they_are(
    section_of_all_units: SectionResult,
) -> None:
    """The rows have a share of 0.5, 12.3 points, and 20 tokens."""
    first_row, _ = section_of_all_units.rows

    share, points, tokens = section_of_all_units.cells(first_row)

    assert share.value == 50.0
    assert share.digits == 1
    assert points.value == 12.3
    assert points.digits == 2
    assert tokens.value == 20.0


def test_the_shares_of_a_paper_are_shown_in_points(section_of_all_units: SectionResult) -> None:
    """The paper prints the share 0.072 for the first row, and "0.5 > 0.4" for the second."""
    first_row, second_row = section_of_all_units.rows

    share_of_first_row = section_of_all_units.cells(first_row)[0]
    share_of_second_row = section_of_all_units.cells(second_row)[0]

    assert share_of_first_row.printed == (7.2,)
    assert share_of_second_row.printed == ("50 > 40",)


def test_two_variants_are_compared_on_the_questions_that_both_were_asked() -> None:
    """The baseline was asked 24 questions, and the variant only the first 22."""
    baseline = VariantResult("baseline", (scored([1.0] * 24),))
    variant = VariantResult("variant", (scored([0.0] * 21 + [1.0]),))

    difference = variant.difference(baseline)

    assert difference.n == 22
    assert difference.mean == pytest.approx(-21 / 22)
    assert difference.wins == 0
    assert difference.losses == 21
    assert difference.ties == 1
    assert difference.verdict == "worse"


def test_a_variant_that_lost_too_many_calls_is_broken() -> None:
    """A tenth of the calls may be lost; here it is half of them."""
    paper = small_paper()
    complete = VariantResult("nothing", (scored([1.0]),))
    half_lost = scored([1.0], call_outcomes={"task.answer": {"ok": 1, "lost": 1}})
    incomplete = VariantResult("three turns", (half_lost,))

    section = SectionResult(
        paper,
        paper.sections[0],
        heading="",
        rows=(complete, incomplete),
        failed={},
        win_rates={},
    )
    reproduction = Reproduction(
        paper, sections=(section,), run=Path(), run_id="", notes=(), stopped=None
    )

    assert section.broken == ("three turns",)
    assert reproduction.failed


def comparable_rows(output: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that `--json` printed, without times and folders, which no two runs share.

    The names of folders hold the server's address.
    """
    rows = []
    for section in output["sections"]:
        for row in section["rows"]:
            comparable = dict(row)
            del comparable["runs"]
            comparable.pop("search_ms", None)
            comparable["takes"] = dict(row["takes"])
            comparable["takes"].pop("seconds", None)
            rows.append(comparable)
    return rows


@pytest.mark.slow
def test_a_killed_reproduction_is_resumed_and_asks_nothing_twice(
    stub: Callable[..., Any], mempiler_cli: Any, forks: Any, tmp_path: Path
) -> None:
    # RGMem and its ablations write three kinds of memories.
    command = ["reproduce", "rgmem", "--section", "table3", "--seeds", "1"]
    server_of_complete = stub()
    server_of_killed = stub(delay=0.01)
    server_of_resumed = stub()
    server_of_resumed.model = server_of_killed.model

    # One reproduction is not interrupted.
    complete = mempiler_cli(server_of_complete, *command, test=2)
    assert complete.code == 0

    # Another one is killed after 125 answers, when two of its variants are finished ...
    forks.start(mempiler_cli.arguments(server_of_killed, *command, test=2), tmp_path / "home")
    run_folder = Path(forks.kill(server_of_killed, answers=125))
    part_files = run_folder.glob("parts/*/run.json")
    part_statuses = [json.loads(file.read_text())["status"] for file in part_files]
    assert part_statuses.count("finished") == 2
    with contextlib.closing(sqlite3.connect(run_folder / "run.sqlite")) as database:
        (stored_answers,) = database.execute("SELECT COUNT(*) FROM answers").fetchone()

    # ... and resumed.
    resumed = mempiler_cli(server_of_resumed, *command, "--resume", str(run_folder), test=2)
    assert resumed.code == 0

    # Both have the same result, from the same prompts.
    assert resumed.printed_json["run"] == str(run_folder)
    assert comparable_rows(resumed.printed_json) == comparable_rows(complete.printed_json)
    all_prompts = set(server_of_killed.texts) | set(server_of_resumed.texts)
    assert all_prompts == set(server_of_complete.texts)
    # What the killed one had stored was not asked for again.
    assert len(server_of_resumed.texts) == len(server_of_complete.texts) - stored_answers
