"""Files read row by row: a JSON list is the same as parsed whole, wherever pieces end, and memory is bounded."""

import gzip
import json
import re
import subprocess
import sys
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

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    entries=st.lists(VALUES, max_size=5),
    piece=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
)
def test_any_list_in_any_pieces_is_what_it_is_whole(
    tmp_path_factory, entries, piece, indent
) -> None:
    path = tmp_path_factory.mktemp("list") / "list.json"
    path.write_text(
        json.dumps(entries, indent=indent, ensure_ascii=piece % 2 == 0) + "\n", encoding="utf-8-sig"
    )
    assert list(stream_list(path, piece)) == entries


@pytest.mark.parametrize(
    ("content", "entries", "message"),
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
def test_a_file_that_stops_being_a_list_is_refused_after_the_entries_before(
    tmp_path, content, entries, message
) -> None:
    (tmp_path / "list.json").write_bytes(content)
    read: list[Any] = []
    with pytest.raises(DataError, match=re.escape(message)):
        read.extend(stream_list(tmp_path / "list.json", 12))
    assert len(read) == entries


@pytest.mark.parametrize(
    ("second", "fault"),
    [(f'"{"b" * 200}"', "Unterminated string"), (f'{{"b": 1,}}, "{"b" * 200}"', "property name")],
)
def test_an_entry_is_read_up_to_the_longest_one_that_is_allowed(
    tmp_path, second: str, fault: str
) -> None:
    path = tmp_path / "list.json"
    path.write_text(f'["{"a" * 96}", {second}]')
    entries: list[Any] = []
    message = f"entry 2: not valid JSON .*{fault}.*, and it has more than 100 characters; is a closing quote missing"
    with pytest.raises(DataError, match=message):
        entries.extend(stream_list(path, piece=12, longest=100))
    assert entries == ["a" * 96]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "beginning", "message"),
    [
        ("jsonl", '{"question": "', "line 1 has more than 134,217,728 characters"),
        ("personamem", "persona_id,", "line 1 has more than 134,217,728 characters"),
        ("longmemeval", '[{"question_id": "', "and it has more than 134,217,728 characters"),
        ("locomo", '[{"sample_id": "', "has more than 536,870,912 characters"),
    ],
)
def test_a_few_kilobytes_that_unpack_to_gigabytes_take_no_more_memory_than_is_allowed(
    tmp_path, name, beginning, message
) -> None:
    # Members of a gzip file follow one another: together they unpack to three gigabytes of one character.
    part = gzip.compress(b"a" * 2**26)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(beginning.encode()) + part * 48)

    script = """
import resource, sys
from mempiler.data.catalog import benchmark
from mempiler.errors import DataError
try:
    benchmark(sys.argv[1], sys.argv[2])
except DataError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    command = [sys.executable, "-c", script, name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    error, kilobytes = done.stdout.splitlines()
    assert message in error
    assert int(kilobytes) < 1_500_000


class Answered(Row):
    """A row of two columns."""

    question: Text
    answer: Text


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("question,answer\nWho?,Ada\n", 1),
        (",question,answer\n0,Who?,Ada\n1,Where?,Lisbon\n", 2),
        ("question,answer,answer\nWho?,Ada,Bob\n", "has 2 columns 'answer'; remove all but one"),
        ("question,answer\nWho?\n", "line 2 has 1 cells, the header 2"),
        ("question,answer\nWho?,Ada,Bob\n", "line 2 has 3 cells, the header 2"),
    ],
)
def test_csv_rows_have_the_columns_of_the_header(tmp_path, content: str, rows: int | str) -> None:
    path = tmp_path / "questions.csv"
    path.write_text(content)

    def read() -> list[Answered]:
        return [row for _, _, row in csv_rows(path, Answered, raise_on_fatal(path))]

    if isinstance(rows, int):
        assert len(read()) == rows
    else:
        with pytest.raises(DataError, match=re.escape(rows)):
            read()
