"""Reproductions: each variant is an ordinary run, our table stands beside the paper's.

A paper is described by its variants (programs with settings) and its sections. A section is a table
of ours: it has a row for each of its variants, and cells beside which stand the numbers that the
paper prints. The row of a variant has the variant's name as its label.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
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

    Its first section has the variants "three turns" and "nothing", the baseline. The second section
    has "k = 1" and "k = 3". "three turns" has the same program and settings as "k = 3". The paper
    prints a number for "three turns", 38.1, and none for the others. All are asked six questions,
    of which four count in the score.
    """
    return reproduce(small_paper(), EVALUATE)


@pytest.fixture
def small_paper_rows(reproduction: Reproduction) -> dict[str, Any]:
    """The rows of the reproduction of the small paper, by label."""
    return rows_by_label(reproduction)


def test_equal_variants_of_two_sections_share_a_run(small_paper_rows: dict[str, Any]) -> None:
    """The variants "three turns" and "k = 3" have the same program with the same settings.

    The others differ from them and from each other, so the four variants are three runs.
    """
    runs_by_label = {label: tuple(row["runs"]) for label, row in small_paper_rows.items()}

    assert list(runs_by_label) == ["three turns", "nothing", "k = 1", "k = 3"]
    assert runs_by_label["three turns"] == runs_by_label["k = 3"]
    assert len(set(runs_by_label.values())) == 3


def test_the_run_of_a_variant_can_be_loaded_like_any_other(
    small_paper_rows: dict[str, Any],
) -> None:
    """Scores are between 0 and 1, and the cells of a table are in percent."""
    row = small_paper_rows["k = 1"]
    (run_folder,) = row["runs"]

    evaluated = load_run(run_folder).evaluation

    assert len(evaluated.rows) == 6
    assert row["cells"]["all"]["value"] == pytest.approx(100 * evaluated.score)


def test_a_reproduction_is_saved_as_it_is_printed(reproduction: Reproduction) -> None:
    saved = json.loads((reproduction.run / "reproduced.json").read_text())
    # Tuples become lists in JSON.
    printed = json.loads(json.dumps(reproduction.summary()))

    assert saved == printed


def test_a_cell_has_an_interval_and_its_number_of_questions(
    small_paper_rows: dict[str, Any],
) -> None:
    cell = small_paper_rows["three turns"]["cells"]["all"]

    low, high = cell["interval"]
    assert low <= cell["value"] <= high
    assert cell["n"] == 4


def test_a_cell_has_the_number_that_the_paper_prints(small_paper_rows: dict[str, Any]) -> None:
    """The paper prints 38.1 for the variant "three turns", and no number for "nothing"."""
    assert small_paper_rows["three turns"]["cells"]["all"]["printed"] == (38.1,)
    assert small_paper_rows["nothing"]["cells"]["all"]["printed"] == ()


def test_a_row_has_its_difference_to_the_row_of_the_baseline(
    small_paper_rows: dict[str, Any],
) -> None:
    """The baseline is the variant "nothing"."""
    row = small_paper_rows["three turns"]
    baseline = small_paper_rows["nothing"]

    difference = row["difference"]
    assert difference["to"] == "nothing"
    mean = row["cells"]["all"]["value"] - baseline["cells"]["all"]["value"]
    assert difference["mean"] == pytest.approx(mean)
    low, high = difference["interval"]
    assert low <= difference["mean"] <= high
    assert baseline["difference"] is None


def test_a_row_says_how_many_calls_it_took_and_which_share_of_them_was_lost(
    small_paper_rows: dict[str, Any],
) -> None:
    """The offline engine was asked six questions, and answered all of them."""
    row = small_paper_rows["three turns"]

    assert row["takes"]["calls"] == 6
    assert row["failures"] == 0
    assert row["lost"] == 0.0


def test_the_settings_of_a_variant_replace_the_presets_of_its_program() -> None:
    """A preset of the paper holds for all variants with the program: here, k = 2 for Turn RAG."""
    variants = {
        "as preset": {"program": "turn-rag"},
        "three turns": {"program": "turn-rag", "settings": {"k": 3}},
    }
    paper = one_section_paper(variants, baseline="as preset", presets={"turn-rag": {"k": 2}})

    rows = rows_by_label(reproduce(paper, EVALUATE))

    assert rows["as preset"]["settings"] == {"k": 2}
    assert rows["three turns"]["settings"] == {"k": 3}


def test_the_heading_of_a_section_names_the_model_that_answers_if_it_is_another_one() -> None:
    """In a section that needs "answers", one model writes the memories, and another one answers."""
    section = {**TURNS, "needs": "answers", "comparisons": []}

    reproduction = reproduce(small_paper(sections=[section]), EVALUATE)

    (result,) = reproduction.sections
    assert result.heading.endswith("; answers by offline")


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
    """There are four. A compiled program has learned from the other questions.

    The rows of a section need the same questions, so "three turns", which was not compiled, is
    asked only these as well.
    """
    assert not compiled_reproduction.failed
    (section,) = compiled_reproduction.sections

    question_counts = {row.label: len(row.evaluation.rows) for row in section.rows}
    assert question_counts == {"three turns": 4, "demos": 4, "more demos": 4}


@pytest.mark.slow
def test_a_compile_starts_from_the_program_of_another_variant(
    compiled_reproduction: Reproduction,
) -> None:
    """The variant "more demos" is compiled by the optimizer `bootstrap`.

    It starts from the program of "demos", which was compiled by `labeled`.
    """
    (settings,) = settings_of_parts(compiled_reproduction, "bootstrap-*")

    assert settings["begun"].startswith("labeled-turn-rag")


@pytest.mark.slow
def test_a_variant_is_compiled_with_its_settings(compiled_reproduction: Reproduction) -> None:
    """The variant "demos" has k = 2, and is compiled by the optimizer `labeled`."""
    (manifest_file,) = compiled_reproduction.run.glob("parts/labeled-*/program/manifest.json")

    assert json.loads(manifest_file.read_text())["config"]["k"] == 2


def paper_that_transfers_demos() -> Paper:
    """Return a paper with a section on LoCoMo and one on MSC, another benchmark.

    The program "demos of LoCoMo" in the second section learns from LoCoMo, like "demos" in the
    first one.
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
    return small_paper(
        variants={"three turns": TURN_RAG, "demos": demos, "demos of LoCoMo": demos_of_locomo},
        sections=[on_locomo, on_msc],
    )


TRANSFER = run_config(benchmark="", train=8, dev=4, threads=1)
"""A run with eight questions to learn from, and all others as test questions."""


@pytest.fixture(scope="module")
def transfer_reproduction() -> Reproduction:
    """A reproduction of the paper whose program learns from LoCoMo and is asked about MSC."""
    reproduction = reproduce(paper_that_transfers_demos(), TRANSFER)
    assert not reproduction.failed
    return reproduction


@pytest.mark.slow
def test_a_program_compiled_on_another_benchmark_is_asked_all_questions_of_this_one(
    transfer_reproduction: Reproduction,
) -> None:
    """It has learned nothing from them."""
    _, msc = transfer_reproduction.sections

    all_questions = len(run_inputs(benchmark="msc").benchmark.examples)
    assert [len(row.evaluation.rows) for row in msc.rows] == [all_questions, all_questions]


@pytest.mark.slow
def test_two_sections_that_learn_the_same_share_a_compile(
    transfer_reproduction: Reproduction,
) -> None:
    compiles = []
    for settings in settings_of_parts(transfer_reproduction):
        if settings["command"] == "compile":
            compiles.append(settings)

    (compiled,) = compiles
    assert compiled["benchmark"] == "locomo"


@pytest.mark.slow
def test_a_plan_counts_the_compile_on_another_benchmark(
    transfer_reproduction: Reproduction,
) -> None:
    plan, _ = plan_paper(paper_that_transfers_demos(), TRANSFER)

    calls_of_all_rows = 0.0
    for section in transfer_reproduction.sections:
        calls_of_all_rows += sum(row.evaluation.usage.calls for row in section.rows)
    assert calls_of_all_rows <= plan.calls.high


def paid_calls(meter: Meter) -> int:
    """Return how many calls of all roles a meter counted."""
    return sum(meter.read().calls.values())


def cells_by_label(reproduction: Reproduction) -> dict[str, Any]:
    """Return the cells of all rows, by the labels of the rows."""
    return {label: row["cells"] for label, row in rows_by_label(reproduction).items()}


@pytest.mark.parametrize("max_calls", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_a_reproduction_that_a_limit_stopped_is_resumed_and_pays_nothing_twice(
    max_calls: int,
) -> None:
    """It ends like a reproduction that was not stopped, after as many calls."""
    paper = paper_with_compiled_variants()
    complete_meter = Meter()
    stopped_meter = Meter()
    resumed_meter = Meter()
    complete = reproduce(paper, COMPILE, meter=complete_meter)

    with_limit = COMPILE.with_options(max_calls=max_calls)
    stopped = reproduce(paper, with_limit, meter=stopped_meter)
    from_stopped_run = COMPILE.with_options(resume=str(stopped.run))
    resumed = reproduce(paper, from_stopped_run, meter=resumed_meter)

    assert len(stopped.sections[0].rows) < len(complete.sections[0].rows)
    assert resumed.stopped is None
    assert paid_calls(stopped_meter) + paid_calls(resumed_meter) == paid_calls(complete_meter)
    assert cells_by_label(resumed) == cells_by_label(complete)


@pytest.fixture
def printed_reproduction(
    publish: Any, cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """What the terminal shows of a paper with three variants, asked four questions each.

    "three turns" fails, since it has a setting `colour`, which its program lacks. "the other" is
    the system mem0, which is not installed. "nothing" works. The paper also prints 61.2 for Mem9,
    which is not run, and Figure 7.

    Runs of spaces, by which columns are aligned, are one space.
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
    """The variant "three turns" has a setting `colour`, which its program lacks.

    "nothing" is asked four questions.
    """
    assert "failed: three turns: " in printed_reproduction
    assert "colour" in printed_reproduction
    assert " nothing 4 " in printed_reproduction


def test_a_variant_that_is_not_installed_is_left_out(printed_reproduction: str) -> None:
    """The variant "the other" is the memory system mem0, which is not installed here."""
    reason = "system:mem0 is not installed; run: mempiler fetch system:mem0"

    assert f"the other is left out: {reason}" in printed_reproduction


def test_what_is_not_run_is_named_with_the_number_that_the_paper_prints(
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
    """The user's method `Drawing` has a setting `seed`, so it may draw random numbers.

    Others would give the same result every time. The spread is that of several runs.
    """
    (tmp_path / "drawing.py").write_text(DRAWING_METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    variants = {
        "drawing": {"program": "drawing:Drawing"},
        "seed is set": {"program": "drawing:Drawing", "settings": {"seed": 7}},
        "nothing": {"program": "no-memory"},
    }
    paper = one_section_paper(variants, baseline="nothing", seeds=3)

    rows = rows_by_label(reproduce(paper, EVALUATE))

    run_counts = {label: len(row["runs"]) for label, row in rows.items()}
    assert run_counts == {"drawing": 3, "seed is set": 1, "nothing": 1}
    assert rows["drawing"]["cells"]["all"]["spread"] is not None
    assert rows["seed is set"]["cells"]["all"]["spread"] is None


def test_a_note_says_that_what_draws_nothing_is_run_once() -> None:
    variants = {"nothing": {"program": "no-memory"}}

    reproduction = reproduce(one_section_paper(variants, baseline="nothing", seeds=3), EVALUATE)

    (note,) = reproduction.notes
    assert note.startswith("what neither samples nor draws by a seed is run once")


def scored(scores: Sequence[float], user_count: int = 6, **fields: Any) -> Evaluation:
    """Return an evaluation of questions with these scores, which are about the users by turns."""
    rows = []
    for number, score in enumerate(scores):
        rows.append(plain_row(f"q{number}", score, group=f"user{number % user_count}"))
    return evaluation(rows, **fields)


def cell_of(measured: Evaluation, **column: Any) -> Any:
    """Return the cell of a variant with this evaluation, in a column."""
    return VariantResult("a variant", (measured,)).cell(Column(name="a column", **column))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("seconds", 60 / 2, id="seconds to write a memory"),
        pytest.param("minutes", 1 / 2, id="minutes to write a memory"),
        pytest.param("memory_words", 120, id="words of a memory"),
        pytest.param("refused", 25, id="percentage of refused operations"),
    ],
)
def test_a_column_may_be_about_the_memories(column: str, value: float) -> None:
    """Two memories were written in 60 seconds. Of four operations on them, one was refused."""
    measured = evaluation(
        [plain_row("q0")],
        construction=Usage(seconds=60.0),
        histories=2,
        memory_words=120.0,
        operations={"inserted": 3, "refused": 1},
    )

    assert cell_of(measured, of=column).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("column", "mean"),
    [
        pytest.param({"of": "score"}, 0.5, id="score"),
        pytest.param({"of": "part", "key": "f1"}, 0.3, id="part of the score"),
        pytest.param({"of": "tokens"}, 20, id="tokens of the context"),
        pytest.param({"of": "count", "key": "first"}, 2, id="entries that the first search found"),
        pytest.param({"of": "calls"}, 3, id="calls"),
    ],
)
def test_a_column_may_be_a_mean_over_the_questions(column: dict[str, str], mean: float) -> None:
    rows = [
        plain_row(
            "q0", 1.0, parts={"f1": 0.4}, context_tokens=10, calls=2, recall_counts={"first": 4}
        ),
        plain_row("q1", 0.0, parts={"f1": 0.2}, context_tokens=30, calls=4),
    ]

    cell = cell_of(evaluation(rows), **column)

    assert cell.value == pytest.approx(mean)
    assert cell.n == 2


def test_the_column_of_scores_leaves_out_questions_that_do_not_count() -> None:
    rows = [plain_row("q0", 1.0), plain_row("q1", 0.0, in_headline=False)]

    cell = cell_of(evaluation(rows), of="score")

    assert cell.value == 1.0
    assert cell.n == 1


def test_the_column_of_calls_has_all_questions() -> None:
    """Also those that do not count for the score: they were paid for."""
    rows = [plain_row("q0", calls=1), plain_row("q1", calls=3, in_headline=False)]

    cell = cell_of(evaluation(rows), of="calls")

    assert cell.value == 2
    assert cell.n == 2


def test_a_column_may_be_the_score_of_one_category() -> None:
    rows = [plain_row("q0", 1.0, category="x"), plain_row("q1", 0.0, category="y")]

    assert cell_of(evaluation(rows), of="category", key="x").value == 1.0
    assert cell_of(evaluation(rows), of="category", key="y").value == 0.0


def test_the_cell_of_a_category_without_questions_is_empty() -> None:
    cell = cell_of(evaluation([plain_row("q0", category="x")]), of="category", key="z")

    assert cell.value is None
    assert cell.n == 0


def test_a_column_may_be_a_metric_of_all_answers_together() -> None:
    measured = evaluation([plain_row("q0"), plain_row("q1")], aggregate={"BLEU-1": 12.3})

    cell = cell_of(measured, of="metric", key="BLEU-1")

    assert cell.value == 12.3
    assert cell.n == 2


def test_the_cell_of_a_metric_that_was_not_measured_is_empty() -> None:
    cell = cell_of(evaluation([plain_row("q0")]), of="metric", key="BLEU-1")

    assert cell.value is None
    assert cell.n == 0


def test_a_column_may_be_the_f1_of_one_category() -> None:
    rows = [
        plain_row("q0", category="x", parts={"f1": 0.5}),
        plain_row("q1", category="y", parts={"f1": 0.1}),
    ]

    cell = cell_of(evaluation(rows), of="part", key="f1", category="y")

    assert cell.value == 0.1
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
    """The bootstrap draws many samples of the twelve answers, and computes the metric of each.

    The metric is the best score. One answer scores 1, so that is the metric of samples with this
    answer. The metric of the other samples is 0.5. There are many samples of both kinds.
    """
    measured = scored([0.5] * 11 + [1.0], user_count=user_count, aggregate={"best": 1.0})
    result = VariantResult("a variant", (measured,), aggregate=best_score)

    cell = result.cell(Column(name="a column", of="metric", key="best"))

    assert cell.value == 1.0
    assert cell.interval == (0.5, 1.0)
    assert cell.unit == unit


def test_the_cell_of_several_seeds_has_their_mean_and_their_standard_deviation() -> None:
    """With the first seed all answers are wrong, and with the second one all are right.

    So every question has the mean score 0.5, and the interval over the questions has no width.
    """
    result = VariantResult("a variant", (scored([0.0] * 6), scored([1.0] * 6)))

    cell = result.cell(Column(name="all"))

    assert cell.value == 0.5
    assert cell.interval == (0.5, 0.5)
    assert cell.spread == pytest.approx(statistics.stdev([0, 1]))


def section_with_column(
    column: Column, measured: Evaluation, printed_number: float | str = 1
) -> SectionResult:
    """Return a section with one row and one column, for which the paper prints a number.

    The paper also prints the share 0.5 for others, which are no row of ours.
    """
    table = PrintedTable(
        title="T",
        model="m",
        columns=("method", "F1"),
        rows=(("turns", printed_number), ("others", 0.5)),
    )
    paper = small_paper()
    section = paper.sections[0].model_copy(update={"columns": (column,), "printed": ("t",)})
    variants = {"turns": Variant(program="p")}
    paper = paper.model_copy(update={"printed": {"t": (table,)}, "variants": variants})
    rows = (VariantResult("turns", (measured,)),)
    return SectionResult(paper, section, heading="", rows=rows, failed={}, win_rates={})


def only_cell(section: SectionResult) -> Any:
    """Return the cell of a section with one row and one column."""
    (row,) = section.rows
    (cell,) = section.cells(row)
    return cell


def test_a_share_is_shown_in_percentage_points_with_one_digit() -> None:
    section = section_with_column(Column(name="share"), scored([0.5]))

    assert only_cell(section).value == 50.0
    assert only_cell(section).digits == 1


def test_a_number_in_points_is_shown_as_it_is() -> None:
    column = Column(name="points", of="metric", key="BLEU-1", digits=2, unit="points")
    section = section_with_column(column, scored([0.5], aggregate={"BLEU-1": 12.3}))

    assert only_cell(section).value == 12.3
    assert only_cell(section).digits == 2


@pytest.mark.parametrize(("printed_number", "shown"), [(0.072, 7.2), ("0.5 > 0.4", "50 > 40")])
def test_a_share_that_the_paper_prints_is_shown_in_percentage_points(
    printed_number: float | str, shown: float | str
) -> None:
    """Like ours, so that they can be compared. A paper may also print a text with shares."""
    column = Column(name="share", printed=("F1",))
    section = section_with_column(column, scored([0.5]), printed_number)

    assert only_cell(section).printed == (shown,)


def test_two_variants_are_compared_on_the_questions_that_both_were_asked() -> None:
    """The baseline was asked 24 questions, and the variant only the first 20."""
    baseline = VariantResult("baseline", (scored([1.0] * 24),))
    variant = VariantResult("variant", (scored([0.0] * 20),))

    difference = variant.difference(baseline)

    assert difference.n == 20
    assert difference.losses == 20
    assert difference.mean == -1
    assert difference.verdict == "worse"


def test_a_variant_that_lost_half_of_its_calls_is_broken() -> None:
    """A tenth may be lost. With a broken variant, the reproduction has failed."""
    half_lost = scored([1.0], call_outcomes={"task.answer": {"ok": 1, "lost": 1}})
    section = section_with_column(Column(name="all"), half_lost)
    reproduction = Reproduction(
        section.paper, sections=(section,), run=Path(), run_id="", notes=(), stopped=None
    )

    assert section.broken == ("turns",)
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


def finished_parts(run_folder: Path) -> int:
    """Return how many runs within a reproduction are finished."""
    part_files = run_folder.glob("parts/*/run.json")
    statuses = [json.loads(file.read_text())["status"] for file in part_files]
    return statuses.count("finished")


def stored_answers(run_folder: Path) -> int:
    """Return how many answers of models a run has stored."""
    with contextlib.closing(sqlite3.connect(run_folder / "run.sqlite")) as database:
        (count,) = database.execute("SELECT COUNT(*) FROM answers").fetchone()
    return count


@pytest.mark.slow
def test_a_killed_reproduction_is_resumed_and_asks_nothing_twice(
    stub: Callable[..., Any], mempiler_cli: Any, forks: Any, tmp_path: Path
) -> None:
    """It is killed after 125 answers, when two of its variants are finished.

    It ends like a reproduction that was not killed. What was stored is not asked again.
    """
    # RGMem and its ablations write three kinds of memories.
    command = ["reproduce", "rgmem", "--section", "table3", "--seeds", "1"]
    server_of_complete = stub()
    server_before_kill = stub(delay=0.01)
    server_after_kill = stub()
    server_after_kill.model = server_before_kill.model
    complete = mempiler_cli(server_of_complete, *command, test=2)
    assert complete.code == 0

    forks.start(mempiler_cli.arguments(server_before_kill, *command, test=2), tmp_path / "home")
    run_folder = Path(forks.kill(server_before_kill, answers=125))
    assert finished_parts(run_folder) == 2
    answers_before_resume = stored_answers(run_folder)
    resumed = mempiler_cli(server_after_kill, *command, "--resume", str(run_folder), test=2)
    assert resumed.code == 0

    assert comparable_rows(resumed.printed_json) == comparable_rows(complete.printed_json)
    prompts = set(server_before_kill.texts) | set(server_after_kill.texts)
    assert prompts == set(server_of_complete.texts)
    missing_answers = len(server_of_complete.texts) - answers_before_resume
    assert len(server_after_kill.texts) == missing_answers
