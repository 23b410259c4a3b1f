"""perf/bench.py: rows, their cells, and the page of costs.

The script measures what Mempiler's own code costs, and writes docs/costs.md. A row of a table is
one measurement: what is done (the work), and at which size (at). Its cells are ours, the measured
value; the aim; whether the aim holds; and peers, the values of other libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "costs.md"
NO_MEM0 = "/nowhere/python"
"""Stands for a Python that has the library mem0. To declare rows, none is needed."""


def rows_of_page() -> set[tuple[str, str]]:
    """Return work and size of all rows of the page."""
    rows: set[tuple[str, str]] = set()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            # Some rows are indented below another: a single space after the bar is no part of it.
            work, at = line.removeprefix("| ").split(" | ")[:2]
            rows.add((work, at))
    return rows - {("work", "at"), ("---", "---:")}


def test_the_page_has_exactly_the_rows_that_the_script_declares(script: Any) -> None:
    """Whoever adds a row to the script has to write the page anew."""
    bench = script("bench")
    declared: set[tuple[str, str]] = set()
    for part in bench.PARTS:
        for row in bench.rows_of(part, NO_MEM0):
            declared.add((row.work, row.at))

    assert declared == rows_of_page()


def test_the_page_begins_as_the_script_writes_it(script: Any) -> None:
    bench = script("bench")
    page = PAGE.read_text(encoding="utf-8")

    assert page.startswith(bench.PAGE_HEAD)
    for part in bench.PARTS:
        assert f"\n\n{bench.PART_INTRODUCTIONS[part]}\n\nLoad " in page


@pytest.mark.parametrize(
    ("part", "only", "is_selected"),
    [
        pytest.param("search", None, True, id="all rows"),
        pytest.param("search", "search", True, id="the part of the row"),
        pytest.param("memory", "search", False, id="another part"),
        pytest.param("search", "sparse.*, 1,000", True, id="a pattern that fits"),
        pytest.param("search", "dense", False, id="a pattern that does not fit"),
    ],
)
def test_rows_are_selected_by_part_or_by_pattern(
    script: Any, part: str, only: str | None, is_selected: bool
) -> None:
    """The option --only takes the name of a part, or a pattern for the work and size of rows."""
    bench = script("bench")
    row = bench.Row("sparse query", "1,000", measure=lambda: None)

    assert bench.is_selected(row, part, only=only) is is_selected


@pytest.mark.parametrize(
    ("aim", "larger_is_better", "shown_aim", "holds", "remarks"),
    [
        (0.6, False, "<=0.6", "yes", "next ask 0.2"),
        (0.4, False, "<=0.4", "NO", "next ask 0.2; faiss"),
        (0.6, True, ">=0.6", "NO", "next ask 0.2; faiss"),
    ],
)
def test_a_row_says_whether_its_aim_holds(
    script: Any, aim: float, larger_is_better: bool, shown_aim: str, holds: str, remarks: str
) -> None:
    """The measured value is 0.5 ms.

    What bounds it, here faiss, is named only if the aim is not reached.
    """
    table = script("measures.table")
    result = table.Result(0.5, remark="next ask 0.2", bottleneck="faiss")
    row = table.Row("work", "at", lambda: result, table.Aim(aim, larger_is_better=larger_is_better))

    cells = row.measured_cells()

    assert cells.ours == "0.5"
    assert cells.unit == "ms"
    assert cells.aim == shown_aim
    assert cells.holds == holds
    assert cells.remarks == remarks


def test_a_row_without_an_aim_says_nothing_of_it(script: Any) -> None:
    table = script("measures.table")
    row = table.Row("work", "at", lambda: table.Result(0.5, bottleneck="faiss"), None)

    cells = row.measured_cells()

    assert cells.aim == ""
    assert cells.holds == ""
    assert cells.remarks == ""


def test_a_row_is_compared_with_its_peers(script: Any) -> None:
    """The aim is a tenth of what the peer `slow` takes: 0.1 x 2 = 0.2.

    Ours, 0.5, is a quarter of 2. The peer mem0 is not installed.
    """
    table = script("measures.table")
    peers = [table.Peer("slow", 2.0), table.Peer("mem0", None)]
    aim = table.Aim(0.1, times_peer="slow")
    row = table.Row("work", "at", lambda: table.Result(0.5, peers), aim)

    cells = row.measured_cells()

    assert cells.aim == "<=0.2"
    assert cells.holds == "NO"
    assert cells.remarks == "slow 2 (0.25x); mem0 not here"


def test_the_page_of_a_part_is_an_introduction_and_a_table(script: Any) -> None:
    """The load says how busy the machine was before the part was measured."""
    bench = script("bench")
    cells = bench.Cells("sparse query", "1,000", "0.09", "<=0.2", "ms", "yes", "rank-bm25 0.4")
    report = bench.PartReport("search", 0.62, [cells])

    section = bench.page_section(report)

    assert section.splitlines() == [
        "## Search",
        "",
        bench.PART_INTRODUCTIONS["search"],
        "",
        "Load 0.6.",
        "",
        "| work | at | ours | aim | unit | holds | peers; what bounds it |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
        "| sparse query | 1,000 | 0.09 | <=0.2 | ms | yes | rank-bm25 0.4 |",
    ]


@pytest.mark.slow
def test_the_page_has_as_many_calls_as_are_counted(script: Any) -> None:
    """The number of model calls depends on no machine, so the page must have the same number."""
    bench = script("bench")
    count_row = bench.rows_of("calls", NO_MEM0)[0]
    cells = count_row.measured_cells()

    assert cells.work == "memory-r2, all questions of a conversation"
    assert f"| {cells.work} | {cells.at} | {cells.ours} |" in PAGE.read_text(encoding="utf-8")
