"""JSON lists and CSV files are read row by row, in bounded memory, and faults name their place."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.csv_rows import csv_rows
from mempiler.data.dataset import raise_on_fatal
from mempiler.data.field_types import Text
from mempiler.data.json_list import stream_list
from mempiler.data.rows import Row
from mempiler.errors import DataError

JSON_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)


def lists_and_objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for small lists and objects of these values."""
    lists = st.lists(values, max_size=3)
    objects = st.dictionaries(st.text(max_size=4), values, max_size=3)
    return lists | objects


JSON_VALUES = st.recursive(JSON_SCALARS, lists_and_objects, max_leaves=8)


@given(
    entries=st.lists(JSON_VALUES, max_size=5),
    piece=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ensure_ascii=st.booleans(),
)
def test_a_list_read_in_pieces_of_any_size_has_all_its_entries(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[Any],
    piece: int,
    indent: int | None,
    ensure_ascii: bool,
) -> None:
    """A file is read `piece` characters at a time, so an entry may be cut anywhere."""
    path = tmp_path_factory.mktemp("list") / "list.json"
    text = json.dumps(entries, indent=indent, ensure_ascii=ensure_ascii)
    path.write_text(f"{text}\n", encoding="utf-8-sig")

    assert list(stream_list(path, piece)) == entries


@pytest.mark.parametrize(
    ("content", "entry_count", "problem"),
    [
        (b"", 0, "the file is empty"),
        (b'{"a": 1}', 0, "expected a JSON list"),
        (b"[1, 2", 1, "cut short"),
        (b"[1 2]", 0, "entry 1: expected ',' or ']' after it"),
        (b"[1] 2", 1, "something follows the list"),
        (b"[\xff\xfe]", 0, "UTF-8"),
        (b"[" + b"[" * 200_000, 0, "entry 1: nested too deeply"),
        (b'[{"a": 1}, {"b": ' + b"x" * 100, 1, "entry 2: not valid JSON"),
        (b'[{"a": 1}, {"b": NaN}]', 1, "entry 2: NaN is no JSON number"),
    ],
)
def test_a_broken_list_is_refused_after_the_entries_before_the_fault(
    tmp_path: Path, content: bytes, entry_count: int, problem: str
) -> None:
    """The file is read twelve characters at a time, so entries come out before the fault is met."""
    path = tmp_path / "list.json"
    path.write_bytes(content)

    entries: list[Any] = []
    with pytest.raises(DataError, match=re.escape(problem)):
        entries.extend(stream_list(path, piece=12))

    assert len(entries) == entry_count


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        pytest.param(f'"{"b" * 200}"', "Unterminated string", id="too long"),
        pytest.param(f'{{"b": 1,}}, "{"b" * 200}"', "property name", id="broken before a long one"),
    ],
)
def test_an_entry_is_not_read_beyond_the_length_that_is_allowed(
    tmp_path: Path, entry: str, fault: str
) -> None:
    """Without a limit, a missing quote would let the reader take the rest of a large file.

    The limit is 100 characters here. The first entry has 98, with its quotes.
    """
    path = tmp_path / "list.json"
    path.write_text(f'["{"a" * 96}", {entry}]')

    entries: list[Any] = []
    problem = (
        f"entry 2: not valid JSON .*{fault}.*, and it has more than 100 characters;"
        " is a closing quote missing"
    )
    with pytest.raises(DataError, match=problem):
        entries.extend(stream_list(path, piece=12, longest=100))

    assert entries == ["a" * 96]


LOAD_AND_MEASURE = """
import resource, sys
from mempiler.data.catalog import benchmark
from mempiler.errors import DataError
try:
    benchmark(sys.argv[1], sys.argv[2])
except DataError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""A program that loads a benchmark, and prints the error and the most memory it took, in KiB."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "beginning", "problem"),
    [
        ("jsonl", '{"question": "', "line 1 has more than 134,217,728 characters"),
        ("personamem", "persona_id,", "line 1 has more than 134,217,728 characters"),
        ("longmemeval", '[{"question_id": "', "and it has more than 134,217,728 characters"),
        ("locomo", '[{"sample_id": "', "has more than 536,870,912 characters"),
    ],
)
def test_a_small_file_that_unpacks_to_gigabytes_takes_a_bounded_amount_of_memory(
    tmp_path: Path, name: str, beginning: str, problem: str
) -> None:
    """The file unpacks to the beginning of a row, and then 3 GiB of one letter.

    A process of its own loads it and prints the error, and the most memory that it took.
    """
    # The parts of a gzip file follow one another.
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(beginning.encode()) + gzip.compress(b"a" * 2**26) * 48)

    process = subprocess.run(
        [sys.executable, "-c", LOAD_AND_MEASURE, name, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    error, kilobytes = process.stdout.splitlines()
    assert problem in error
    assert int(kilobytes) < 1_500_000


class QuestionRow(Row):
    """A row of two columns."""

    question: Text
    answer: Text


def read_questions(path: Path) -> list[QuestionRow]:
    """Return the rows of a CSV file; the first fault is raised."""
    return [row for _, _, row in csv_rows(path, QuestionRow, raise_on_fatal(path))]


@pytest.mark.parametrize(
    ("content", "questions"),
    [
        ("question,answer\nWho?,Ada\n", ["Who?"]),
        pytest.param(
            ",question,answer\n0,Who?,Ada\n1,Where?,Lisbon\n",
            ["Who?", "Where?"],
            id="an unnamed column of row numbers",
        ),
    ],
)
def test_csv_rows_are_read_by_their_header(
    tmp_path: Path, content: str, questions: list[str]
) -> None:
    path = tmp_path / "questions.csv"
    path.write_text(content)
    assert [row.question for row in read_questions(path)] == questions


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "question,answer,answer\nWho?,Ada,Bob\n",
            "has 2 columns 'answer'; remove all but one",
        ),
        ("question,answer\nWho?\n", "line 2 has 1 cells, the header 2"),
        ("question,answer\nWho?,Ada,Bob\n", "line 2 has 3 cells, the header 2"),
    ],
)
def test_csv_rows_that_do_not_fit_their_header_are_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "questions.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_questions(path)
