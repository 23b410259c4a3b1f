"""The papers' cells: what a file may hold, and that a wrong one is told in one line."""

import json

import pytest
from mempiler.errors import DataError, UnknownNameError
from mempiler.runs.recipes.papers import printed, read
from mempiler.runs.recipes.tables import PaperTable

TABLE = {"title": "Nobody, Table 1", "model": "no model", "columns": ["method", "score"], "rows": [["x", 0.50]]}


def file(**changes):
    return json.dumps({"table1": [TABLE | changes]}).encode()


def test_a_file_gives_its_tables_by_part():
    expected = PaperTable("Nobody, Table 1", "no model", ("method", "score"), (("x", 0.5),))
    assert read("nobody.json", file()) == {"table1": (expected,)}


def test_a_cell_is_a_number_a_text_or_nothing():
    rows = [["x", None], ["y", 3], ["3", "1 / 2"]]
    assert read("nobody.json", file(rows=rows))["table1"][0].rows == (("x", None), ("y", 3.0), ("3", "1 / 2"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (file(rows=[["x", 0.5], ["y"]]), "nobody.json: Nobody, Table 1: row 2 has 1 cells, and there are 2 columns"),
        (file(rows=[["x", 0.5, 0.6]]), "nobody.json: Nobody, Table 1: row 1 has 3 cells, and there are 2 columns"),
        (file(rows=[[]]), "nobody.json: Nobody, Table 1: row 1 has 0 cells, and there are 2 columns"),
        (file(rows=[["x", [0.5]]]), "nobody.json: table1.0.rows.0.1"),
        (file(columns="score"), "nobody.json: table1.0.columns: "),
        (b'{"table1": [{}]}', "nobody.json: table1.0.title: Field required"),
        (b"{", "nobody.json: Invalid JSON"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(content, message):
    with pytest.raises(DataError) as raised:
        read("nobody.json", content)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_the_name_of_an_unknown_part_gets_the_closest_one():
    with pytest.raises(UnknownNameError, match=r"unknown part of pramem.json 'tabel1'; did you mean 'table1'\?"):
        printed("pramem", "tabel1")
