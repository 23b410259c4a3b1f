"""A JSON list read entry by entry: the same as parsing it whole, wherever pieces end, and clear about faults."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.rows import stream_list
from mempiler.errors import DataError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(entries=st.lists(VALUES, max_size=5), piece=st.integers(1, 40), indent=st.sampled_from([None, 2]))
def test_any_list_in_any_pieces_is_what_it_is_whole(tmp_path_factory, entries, piece, indent) -> None:
    path = tmp_path_factory.mktemp("list") / "list.json"
    path.write_text(json.dumps(entries, indent=indent, ensure_ascii=piece % 2 == 0) + "\n", encoding="utf-8-sig")
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
def test_what_is_no_list_is_told_in_one_line_after_the_entries_before(tmp_path, content, entries, message) -> None:
    (tmp_path / "list.json").write_bytes(content)
    read: list[Any] = []
    with pytest.raises(DataError, match=re.escape(message)):
        read.extend(stream_list(tmp_path / "list.json", 12))
    assert len(read) == entries
