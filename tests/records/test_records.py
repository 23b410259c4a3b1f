"""Records: JSON and moments from outside, queries in prompts, and hits that are evidence.

Records are the values that all parts of the product share. A history is what was said: sessions
with turns, and logs of devices. D1:2 is the second turn of session 1, L1:1 the first line of the
logs L1. A query is a question to a memory, with its date and other circumstances. A hit is an entry
that the memory recalled for it; its sources are the turns that it was made from. A context is all
hits.
"""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Context, DataError, History, Hit, Logs, Query, Session, Turn, UserError
from mempiler.records import ABSTRACT_KINDS, comparable, parse_json, read_json
from mempiler.records.atomic_file import atomic_write
from mempiler.records.import_object import import_object
from mempiler.records.json_input import MAX_DEPTH
from pydantic import ValidationError

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


@given(value=VALUES, only_ascii=st.booleans())
def test_json_of_the_standard_library_is_read(value: Any, only_ascii: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=only_ascii), "here") == value


REFUSED = [
    ('{"a": "\\ud800"}', r"holds \ud800, half of a surrogate pair; replace"),
    ('{"\\udfff": 1}', "half of a surrogate pair"),
    ('["\\ude00\\ud83d"]', "half of a surrogate pair"),
    ("[" * 100_000 + "]" * 100_000, "levels deep; make it flatter"),
    ('{"a":' * 500 + "1" + "}" * 500, "levels deep; make it flatter"),
    ("9" * 5000, "has 5000 digits; write a smaller one"),
    ("-" + "9" * 500, "has 501 digits"),
    ("NaN", "NaN is no JSON number; write null"),
    ("[-Infinity]", "-Infinity is no JSON number"),
    ("1e400", "1e400 is too large"),
    ('{"answer": "a", "answer": "b"}', "the key 'answer' twice"),
    ('{"a": tru}', "not valid JSON at line 1, column 7"),
    ('"a\x00b"', "not valid JSON"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=range(len(REFUSED)))
def test_json_that_cannot_be_represented_is_refused_in_one_line(text: str, words: str) -> None:
    """Python reads many of these texts, but the values could not be stored, sent or compared."""
    with pytest.raises(DataError, match=f"^file.json: line 3: .*{re.escape(words)}"):
        parse_json(text, "file.json: line 3")


def test_json_just_inside_the_limits_and_json_with_a_byte_order_mark_are_read(
    tmp_path: Path,
) -> None:
    """The two halves of a surrogate pair are one character: an emoji. One half alone is refused.

    A value may be nested `MAX_DEPTH` levels deep, as docs/concepts.md says. Some editors put a byte
    order mark before a text.
    """
    assert parse_json('"\\ud83d\\ude00"', "here") == "\U0001f600"
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "here")
    page = (Path(__file__).parents[2] / "docs/concepts.md").read_text()
    assert f"nesting beyond {MAX_DEPTH} levels" in page
    (tmp_path / "file.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "file.json") == [1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]".encode("utf-16"), "it is UTF-16; save it unpacked, as UTF-8"),
        (b"\x1f\x8b\x08\x00", "it is compressed; save it unpacked"),
        (b"[\xff]", "byte 1 is wrong; save it unpacked, as UTF-8"),
        (b"", "the file is empty"),
    ],
)
def test_the_error_for_a_file_that_is_not_utf8_says_what_the_file_is_instead(
    tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_json(tmp_path / "file.json")


@pytest.mark.parametrize(
    ("path", "words"), [(".", "is a folder"), ("/dev/zero", "or a device"), ("x" * 300, "too long")]
)
def test_only_regular_files_are_read(path: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_json(path)


@pytest.mark.parametrize(
    "time",
    [
        1e10,
        1700000000,
        -1,
        True,
        "1700000000",
        "1e400",
        "1000000-01-01",
        "2024-02-30",
        "0001-01-01T00:00+14:00",
    ],
)
def test_a_message_whose_time_is_no_date_of_the_calendar_is_refused(time: Any) -> None:
    """A number is refused because nobody knows whether it means seconds or milliseconds.

    Python's calendar has the years 1 to 9999, also after a time is converted to UTC.
    """
    with pytest.raises(DataError, match="time"):
        History.from_messages([{"role": "user", "content": "x", "time": time}])


def test_iso_dates_are_times_and_can_be_sorted() -> None:
    """Python cannot compare times with and without a zone; `comparable` gives each a zone.

    A missing time comes first.
    """
    for time in ("2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00"):
        assert (
            History.from_messages([{"role": "user", "content": "x", "time": time}]).items[0].time
            is not None
        )
    times = [datetime(2024, 1, 1, tzinfo=UTC), None, datetime.min, datetime(2023, 1, 1)]
    assert [comparable(time).year for time in sorted(times, key=comparable)] == [1, 1, 2023, 2024]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user"}, "has no content"),
        ({"role": "user", "content": ["x"]}, "expected text or a list of parts"),
        ({"role": "user", "content": [{"text": 5}]}, "expected text or a list of parts"),
        ({"role": "user", "content": "\ud800"}, "message 1 of session 1: a text holds half"),
        ({"role": "user", "content": "x", "name": 5}, "speaker: Input should be a valid string"),
    ],
)
def test_a_message_of_another_kind_is_refused(message: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        History.from_messages([message])


def test_the_number_of_a_refused_message_counts_messages_without_text_too() -> None:
    """The first message only calls a tool. It makes no turn, but users count it in their file."""
    calls_a_tool = {"role": "assistant", "tool_calls": [{"id": "c1"}]}
    with pytest.raises(DataError, match="message 2 of session 1 has no content"):
        History.from_messages([calls_a_tool, {"role": "user"}])


def test_a_history_that_uses_a_turn_id_twice_is_refused() -> None:
    """The history has the same session twice."""
    session = Session.model_validate(
        {"id": "D1", "turns": [{"id": "D1:1", "speaker": "Ann", "text": "x"}]}
    )
    with pytest.raises(DataError, match="a turn id twice"):
        History.parse({"items": [json.loads(session.model_dump_json())] * 2})


def test_the_text_of_an_error_is_one_line_of_bounded_length() -> None:
    error = str(UserError(f"a\nb \ud800 {'x' * 10_000}"))
    assert "\n" not in error
    assert error.startswith("a b \\ud800 xxx")
    assert len(error.encode()) < 2000


SPOKEN = "user: I want to get fitter\n\nassistant: Mind the knee?"


@pytest.mark.parametrize(
    ("date", "when"),
    [
        (datetime(2023, 5, 8, 13, 56), "8 May 2023, Monday 13:56"),
        ("8 May 2023", "8 May 2023"),
        (None, ""),
        ("", ""),
    ],
)
def test_the_text_of_a_query_tells_its_date_where_it_is_known(
    date: datetime | str | None, when: str
) -> None:
    """A date may be a time, or words, which stay as they are."""
    query = Query(text="Where?", date=date)
    assert query.when == when
    assert query.dated_text == (f"Where? (asked on {when})" if when else "Where?")


@pytest.mark.parametrize(
    ("query", "search_text"),
    [
        (Query(text="Where?", date="8 May 2023"), "Where?"),
        (
            Query(text="Where?", date="8 May 2023", searched_with_date=True),
            "Where? (asked on 8 May 2023)",
        ),
        (Query(text="Where?", searched_with_date=True), "Where?"),
        (Query(text="Where?", options=("Lisbon", "Oslo")), "Where?"),
        (Query(text="Where?", dialogue=SPOKEN), "Where?"),
        (Query(text="Yes.", modality="dialogue"), "user: Yes."),
        (
            Query(text="Yes.", dialogue=SPOKEN, modality="dialogue"),
            "user: I want to get fitter\nassistant: Mind the knee?\nuser: Yes.",
        ),
    ],
    ids=[
        "date",
        "date searched with",
        "no date to search with",
        "options",
        "question after a dialogue",
        "first turn",
        "later turn",
    ],
)
def test_the_search_text_of_a_query_is_what_was_said(query: Query, search_text: str) -> None:
    """A memory is searched with the search text. The options to choose from are no part of it.

    The date is a part only if the benchmark wants that (`searched_with_date`). What was said before
    is a part only if the query itself is a turn of that dialogue (`modality`).
    """
    assert query.search_text == search_text


def test_the_shown_turns_of_a_query_are_those_of_its_shown_items() -> None:
    """A prompt shows `shown_items` beside what is recalled. A memory need not recall their turns.

    `new_items` came after the memory was written; they are not shown by themselves.
    """
    logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))
    session = Session(
        id="D1", turns=tuple(Turn(id=f"D1:{n}", speaker="Ann", text="hi") for n in (1, 2))
    )
    assert Query(
        text="Where?", shown_items=(logs, session), new_items=(session,)
    ).shown_turn_ids == {
        "L1:1",
        "D1:1",
        "D1:2",
    }
    assert Query(text="Where?", new_items=(session,)).shown_turn_ids == frozenset()
    assert (
        Query(text="Where?", shown_items=(logs,)).model_dump()["shown_items"][0]["kind"] == "logs"
    )


def test_no_field_of_a_query_can_be_set_and_an_unknown_field_is_refused() -> None:
    """The second query has the field `speaker`, but its name is `speakers`."""
    query = Query(text="Where?")
    with pytest.raises(ValidationError, match="frozen"):
        query.text = "Who?"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError, match="speaker"):
        Query(text="Where?", speaker="Ann")  # pyright: ignore[reportCallIssue]


HITS = (
    Hit(id="p1", text="likes calm", kind="principle", sources=("D1:1", "D2:1")),
    Hit(id="t1", text="sleep", kind="topic", sources=("D1:1", "D1:2")),
    Hit(id="D1:2", text="hi", kind="turn", sources=("D1:2",)),
    Hit(id="L1:1", text="bought", kind="log", sources=("L1:1",)),
)


def test_hits_with_turns_are_evidence_and_hits_are_found_by_kind() -> None:
    """A hit is evidence if it rests on particular turns. A principle rests on many, so it is none.

    That is why D2:1, a source of the principle alone, is missing in `evidence`.
    """
    context = Context(hits=HITS)
    assert context.sources == ("D1:1", "D2:1", "D1:2", "L1:1")
    assert context.evidence == ("D1:1", "D1:2", "L1:1")
    speaking = ("turn", "log", "record", "session", "fact", "conclusion", "situation", "topic")
    found = {
        kind
        for kind in (*speaking, *ABSTRACT_KINDS)
        if Hit(id="x", text="y", kind=kind).is_evidence
    }
    assert found == set(speaking)
    assert [hit.id for hit in context.with_kinds("log", "topic")] == ["t1", "L1:1"]


@pytest.mark.parametrize(
    ("path", "found"),
    [("", True), ("mempiler.data.jsonl:FunctionScorer", False)],
    ids=["named by a user", "of the suite"],
)
def test_a_module_of_the_current_folder_is_imported_only_if_a_user_names_it(
    tmp_path, monkeypatch, path, found
) -> None:
    """A user may name a function as `module:function`. Then the current folder is searched, too.

    If the name stands for a part of the product (`path`), it is not: a file of the folder could
    take the place of a package.
    """
    (tmp_path / "lies_here.py").write_text("def scored(example, prediction): ...", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert callable(import_object("metric", "lies_here:scored", path))
    assert (str(tmp_path) in sys.path) is found
    sys.modules.pop("lies_here", None)


def test_a_pipe_that_is_written_to_stays_a_pipe(tmp_path: Path) -> None:
    """`atomic_write` writes a new file, and then puts it in the place of the old one.

    A pipe such as /dev/stdout must not be replaced by a file.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(pipe) as file:
        file.write("words")
    assert os.read(reader, 100) == b"words"
    assert pipe.is_fifo() is True
    os.close(reader)
