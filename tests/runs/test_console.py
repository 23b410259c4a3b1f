"""Tables at the widths of terminals and pipes: nothing of them is lost.

The widest tables are those of papers, whose numbers are shown beside the user's results.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mempiler.runs.console import as_text, table
from mempiler.runs.papers.paper import PAPERS, PrintedTable, read_paper

WIDTHS = (60, 80, 100, 120)


def printed_tables(paper_name: str) -> list[PrintedTable]:
    """Return all tables that a paper prints."""
    tables: list[PrintedTable] = []
    for group in read_paper(paper_name).printed.values():
        tables.extend(group)
    assert tables
    return tables


def shown_row(row: Sequence[object]) -> list[str]:
    """Return the texts of a row; an empty cell is shown as "-"."""
    return ["-" if cell is None else str(cell) for cell in row]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("paper_name", PAPERS)
def test_a_papers_tables_keep_every_cell_at_any_width(paper_name: str, width: int) -> None:
    for printed in printed_tables(paper_name):
        rows = [shown_row(row) for row in printed.rows]

        text = as_text([table(printed.columns, rows)], width)

        assert max(len(line) for line in text.splitlines()) <= width
        shown_words = set(text.split())
        cells = list(printed.columns)
        for row in rows:
            cells.extend(row)
        for cell in cells:
            # A cell may be broken between its words, and a very long word within itself.
            short_words = {word for word in cell.split() if len(word) <= 30}
            assert short_words <= shown_words, printed.title


def test_a_table_that_is_too_wide_continues_below_with_its_first_column_repeated() -> None:
    columns = ["variant", "n"]
    cells = ["21"]
    for number in range(12):
        columns.append(f"column{number}")
        cells.append(f"{number}.123 [0.000, 1.000]")
    rows = [["no memory", *cells], ["RGMem", *cells]]

    lines = as_text([table(columns, rows)], 60).splitlines()

    # Every block begins with the head "variant", and has the name of each row again.
    block_count = sum("variant" in line for line in lines)
    assert block_count > 1
    assert sum(line.startswith(" no memory") for line in lines) == block_count
    assert sum(line.startswith(" RGMem") for line in lines) == block_count
    text = "\n".join(lines)
    for number in range(12):
        assert f" {number}.123 " in text


def test_a_table_that_fits_shows_a_number_and_its_interval_on_one_line() -> None:
    scores = table(["variant", "score"], [["no memory", "0.5 [0.1, 0.9]"]])

    text = as_text([scores], width=80)

    assert "no memory  0.5 [0.1, 0.9]" in text


def test_a_chinese_character_counts_as_two_columns_of_the_terminal() -> None:
    name = "记忆" * 6
    columns = ["名字", *"abcdefgh"]
    rows = [[name, *["0.123456"] * 8]]

    text = as_text([table(columns, rows)], 60)

    # The columns do not fit beside a name of 24 columns, and follow in further blocks.
    assert text.count("名字") > 1
    assert text.count(name) == text.count("名字")
