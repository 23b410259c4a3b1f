"""Tables at the widths of terminals and pipes: nothing of them is lost."""

import pytest
from mempiler.runs.console import as_text, table
from mempiler.runs.papers.paper import PAPERS, read_paper

WIDTHS = (60, 80, 100, 120)


def words(text):
    return [word for word in text.split() if "─" not in word]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("paper", PAPERS)
def test_a_papers_tables_keep_every_cell_and_the_names_of_rows_at_any_width(paper, width):
    for printed in (one for tables in read_paper(paper).printed.values() for one in tables):
        rows = [["-" if cell is None else str(cell) for cell in row] for row in printed.rows]
        text = as_text([table(printed.columns, rows)], width)
        assert max(map(len, text.splitlines())) <= width
        shown = words(text)
        for cell in (*printed.columns, *(cell for row in rows for cell in row)):
            # A long name is broken between its words.
            missing = [word for word in cell.split() if word not in shown and len(word) <= 30]
            assert not missing, (printed.title, missing)


def test_columns_that_do_not_fit_follow_below_with_the_names_again():
    heads = ["variant", "n", *(f"column{n}" for n in range(12))]
    rows = [
        [name, "21", *(f"{n}.123 [0.000, 1.000]" for n in range(12))]
        for name in ("no memory", "RGMem")
    ]
    lines = as_text([table(heads, rows)], 60).splitlines()
    blocks = sum("variant" in line for line in lines)
    assert blocks > 1
    assert sum(line.startswith(" no memory") for line in lines) == blocks
    assert sum(line.startswith(" RGMem") for line in lines) == blocks
    assert all(any(f"{n}.123" in line for line in lines) for n in range(12))


def test_a_table_that_fits_is_one_block_with_intervals_beside_the_numbers():
    text = as_text([table(["variant", "score"], [["no memory", "0.5 [0.1, 0.9]"]])], 80)
    assert "no memory  0.5 [0.1, 0.9]" in text


def test_wide_characters_count_as_two_columns():
    text = as_text([table(["名字", *"abcdefgh"], [["记忆" * 6, *["0.123456"] * 8]])], 60)
    assert text.count("记忆" * 6) == text.count("名字") > 1
