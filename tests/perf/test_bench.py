"""perf/bench.py: rows, their cells, and the page of costs.

The script measures what Mempiler's own code costs, and writes docs/costs.md. A row of a table is
one measurement: what is done (the work), and at which size (at). Its cells are ours, the measured
value; the aim; whether the aim holds; and peers, the values of other libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "costs.md"
NO_MEM0 = "/nowhere/python"
"""A path at which there is no Python with the library mem0. To list the rows, none is needed."""


class RowName(NamedTuple):
    """What a row of a table measures."""

    work: str
    """What is done."""
    at: str
    """At which size."""


def rows_of_page() -> set[RowName]:
    """Return the rows of all tables of docs/costs.md."""
    rows: set[RowName] = set()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            # Some rows are indented below another: a single space after the bar is no part of it.
            work, at, *_ = line.removeprefix("| ").split(" | ")
            rows.add(RowName(work, at))
    heads = {RowName("work", "at"), RowName("---", "---:")}
    return rows - heads


def test_the_page_of_costs_has_exactly_the_rows_that_the_script_declares(script: Any) -> None:
    """Whoever adds a row to perf/bench.py has to write docs/costs.md anew."""
    bench = script("bench")
    declared: set[RowName] = set()
    for part in bench.PARTS:
        for row in bench.rows_of(part, NO_MEM0):
            declared.add(RowName(row.work, row.at))

    assert rows_of_page() == declared


def test_the_page_of_costs_has_the_texts_of_the_script(script: Any) -> None:
    """A head, and an introduction to each part, after which stands how busy the machine was."""
    bench = script("bench")
    page = PAGE.read_text(encoding="utf-8")

    assert page.startswith(bench.PAGE_HEAD)
    for part in bench.PARTS:
        assert f"\n\n{bench.PART_INTRODUCTIONS[part]}\n\nLoad " in page


@pytest.mark.parametrize(
    ("only", "is_selected"),
    [
        pytest.param(None, True, id="all rows"),
        pytest.param("search", True, id="the part of the row"),
        pytest.param("memory", False, id="another part"),
        pytest.param("sparse.*, 1,000", True, id="a pattern that fits"),
        pytest.param("dense", False, id="a pattern that does not fit"),
    ],
)
def test_rows_are_selected_by_part_or_by_pattern(
    script: Any, only: str | None, is_selected: bool
) -> None:
    """The option --only takes the name of a part, or a pattern for the work and size of rows."""
    bench = script("bench")
    row = bench.Row("sparse query", "1,000", measure=lambda: None)

    assert bench.is_selected(row, "search", only=only) is is_selected


@pytest.mark.parametrize(
    ("aim", "larger_is_better", "shown_aim", "holds"),
    [
        pytest.param(0.6, False, "<=0.6", "yes", id="at most 0.6"),
        pytest.param(0.4, False, "<=0.4", "NO", id="at most 0.4"),
        pytest.param(0.6, True, ">=0.6", "NO", id="at least 0.6"),
    ],
)
def test_a_row_says_whether_its_aim_holds(
    script: Any, aim: float, larger_is_better: bool, shown_aim: str, holds: str
) -> None:
    """The measured value is 0.5 ms."""
    table = script("measures.table")
    row = table.Row(
        "work",
        "at",
        lambda: table.Result(0.5),
        table.Aim(aim, larger_is_better=larger_is_better),
    )

    cells = row.measured_cells()

    assert cells.ours == "0.5"
    assert cells.unit == "ms"
    assert cells.aim == shown_aim
    assert cells.holds == holds


@pytest.mark.parametrize(
    ("aim", "remarks"),
    [
        pytest.param(0.6, "next ask 0.2", id="the aim holds"),
        pytest.param(0.4, "next ask 0.2; faiss", id="the aim does not hold"),
    ],
)
def test_a_row_names_the_bottleneck_only_if_its_aim_does_not_hold(
    script: Any, aim: float, remarks: str
) -> None:
    """The measured value is 0.5 ms, of which the library faiss takes most."""
    table = script("measures.table")
    result = table.Result(0.5, remark="next ask 0.2", bottleneck="faiss")

    cells = table.Row("work", "at", lambda: result, table.Aim(aim)).measured_cells()

    assert cells.remarks == remarks


def test_the_aim_of_a_row_may_be_a_share_of_what_another_library_takes(script: Any) -> None:
    """The library `slow` takes 2 ms, and the aim is a tenth of that."""
    table = script("measures.table")
    result = table.Result(0.5, [table.Peer("slow", 2.0)])
    aim = table.Aim(0.1, times_peer="slow")

    cells = table.Row("work", "at", lambda: result, aim).measured_cells()

    assert cells.aim == "<=0.2"
    assert cells.holds == "NO"


def test_a_row_names_what_other_libraries_take(script: Any) -> None:
    """Ours, 0.5 ms, is a quarter of what `slow` takes. The library mem0 is not installed."""
    table = script("measures.table")
    result = table.Result(0.5, [table.Peer("slow", 2.0), table.Peer("mem0", None)])

    cells = table.Row("work", "at", lambda: result, None).measured_cells()

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
def test_the_page_of_costs_has_the_number_of_calls_that_a_memory_takes(script: Any) -> None:
    """It depends on no machine, so the page must have the number that is counted here."""
    bench = script("bench")
    row_of_memory_r2 = bench.rows_of("calls", NO_MEM0)[0]

    cells = row_of_memory_r2.measured_cells()

    assert cells.work == "memory-r2, all questions of a conversation"
    assert f"| {cells.work} | {cells.at} | {cells.ours} |" in PAGE.read_text(encoding="utf-8")
