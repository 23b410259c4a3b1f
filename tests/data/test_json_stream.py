"""Reading a JSON list entry by entry: the same as parsing it whole, wherever pieces end, and clear about faults."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.json_stream import stream_list
from mempiler.errors import DataError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "list.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@given(
    entries=st.lists(VALUES, max_size=5),
    piece=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii=st.booleans(),
)
def test_any_list_in_any_pieces_is_what_it_is_whole(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any], piece: int, indent: int | None, ascii: bool
) -> None:
    path = written(tmp_path_factory.mktemp("list"), json.dumps(entries, indent=indent, ensure_ascii=ascii) + "\n")
    assert list(stream_list(path, piece)) == entries


def test_a_byte_order_mark_and_an_empty_list(tmp_path: Path) -> None:
    assert list(stream_list(written(tmp_path, b"\xef\xbb\xbf [ ] \n"))) == []


def test_entries_are_given_before_the_rest_is_read(tmp_path: Path) -> None:
    entries = stream_list(written(tmp_path, '[{"a": 1}, {"b": ' + "x" * 100), piece=12)
    assert next(entries) == {"a": 1}
    with pytest.raises(DataError, match="entry 2"):
        next(entries)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'{"a": 1}', "expected a JSON list"),
        (b"[1, 2", "cut short"),
        (b"[1, ", "entry 2"),
        (b"[1 2]", "after entry 1: expected"),
        (b"[1] 2", "something follows the list"),
        (b"[\xff\xfe]", "UTF-8"),
        (b'["open', "cut short"),
        (b"[" + b"[" * 200_000, "entry 1"),
    ],
)
def test_what_is_no_list_is_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        list(stream_list(written(tmp_path, content), piece=1 << 20))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
