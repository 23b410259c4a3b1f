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


def cells_of(printed: PrintedTable) -> list[str]:
    """Return the texts of all cells of a printed table, its head included."""
    cells = list(printed.columns)
    for row in printed.rows:
        cells.extend(shown_row(row))
    return cells


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("paper_name", PAPERS)
def test_no_cell_of_a_papers_tables_is_lost_at_any_width_of_the_terminal(
    paper_name: str, width: int
) -> None:
    """A cell may be broken between its words, and a word of more than 30 letters within itself."""
    for printed in printed_tables(paper_name):
        rows = [shown_row(row) for row in printed.rows]

        text = as_text([table(printed.columns, rows)], width)

        assert max(len(line) for line in text.splitlines()) <= width
        shown_words = set(text.split())
        for cell in cells_of(printed):
            short_words = {word for word in cell.split() if len(word) <= 30}
            assert short_words <= shown_words, printed.title


def test_a_table_that_is_too_wide_continues_below_with_its_first_column_repeated() -> None:
    numbers = range(12)
    columns = ["variant", *(f"column{number}" for number in numbers)]
    cells = [f"{number}.123 [0.000, 1.000]" for number in numbers]
    wide_table = table(columns, [["no memory", *cells], ["RGMem", *cells]])

    text = as_text([wide_table], width=60)

    # Every block begins with the head "variant", and has the name of each row again.
    block_count = text.count("variant")
    assert block_count > 1
    assert text.count("no memory") == block_count
    assert text.count("RGMem") == block_count
    for number in numbers:
        assert f" {number}.123 " in text


def test_a_table_that_fits_shows_a_number_and_its_interval_on_one_line() -> None:
    scores = table(["variant", "score"], [["no memory", "0.5 [0.1, 0.9]"]])

    text = as_text([scores], width=80)

    assert "no memory  0.5 [0.1, 0.9]" in text


def test_a_chinese_character_counts_as_two_columns_of_the_terminal() -> None:
    """A terminal shows the twelve characters of the name in 24 columns.

    Eight numbers do not fit into 60 columns beside it, so the table continues below.
    """
    name = "记忆" * 6
    columns = ["名字", *"abcdefgh"]
    row = [name, *["0.123456"] * 8]

    text = as_text([table(columns, [row])], width=60)

    block_count = text.count("名字")
    assert block_count > 1
    assert text.count(name) == block_count
