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
from collections.abc import Iterator
from datetime import UTC, date, datetime
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '{"a": "\\ud800"}', r"holds \ud800, half of a surrogate pair", id="half a pair"
        ),
        pytest.param('{"\\udfff": 1}', "half of a surrogate pair", id="half a pair in a key"),
        pytest.param('["\\ude00\\ud83d"]', "half of a surrogate pair", id="pair in wrong order"),
        pytest.param("[" * 100_000 + "]" * 100_000, "levels deep; make it flatter", id="deep list"),
        pytest.param('{"a":' * 500 + "1" + "}" * 500, "levels deep", id="deep object"),
        pytest.param("9" * 5000, "has 5000 digits; write a smaller one", id="long number"),
        pytest.param("-" + "9" * 500, "has 501 digits", id="long negative number"),
        pytest.param("NaN", "NaN is no JSON number; write null", id="NaN"),
        pytest.param("[-Infinity]", "-Infinity is no JSON number", id="infinity"),
        pytest.param("1e400", "1e400 is too large", id="large number"),
        pytest.param('{"answer": "a", "answer": "b"}', "the key 'answer' twice", id="key twice"),
        pytest.param('{"a": tru}', "not valid JSON at line 1, column 7", id="no JSON"),
        pytest.param('"a\x00b"', "not valid JSON", id="control character"),
    ],
)
def test_json_that_cannot_be_represented_is_refused_in_one_line(text: str, message: str) -> None:
    """Python reads many of these texts, but the values could not be stored, sent or compared."""
    with pytest.raises(DataError, match=f"^file.json: line 3: .*{re.escape(message)}"):
        parse_json(text, "file.json: line 3")


def test_json_of_the_greatest_depth_is_read() -> None:
    deepest_list = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert parse_json(deepest_list, "here")


def test_the_documentation_states_the_greatest_depth_of_json() -> None:
    page = Path(__file__).parents[2] / "docs/concepts.md"

    assert f"nesting beyond {MAX_DEPTH} levels" in page.read_text()


def test_json_behind_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """Some editors put such a mark before a text."""
    file = tmp_path / "file.json"
    file.write_bytes(b"\xef\xbb\xbf[1]")

    assert read_json(file) == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]".encode("utf-16"), "it is UTF-16; save it unpacked, as UTF-8"),
        (b"\x1f\x8b\x08\x00", "it is compressed; save it unpacked"),
        (b"[\xff]", "byte 1 is wrong; save it unpacked, as UTF-8"),
        (b"", "the file is empty"),
    ],
)
def test_the_error_for_a_file_that_is_not_utf8_says_what_the_file_is_instead(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)

    with pytest.raises(DataError, match=message):
        read_json(file)


@pytest.mark.parametrize("time", [1700000000, 1e10, -1, True, "1700000000"])
def test_a_message_whose_time_is_a_number_is_refused(time: Any) -> None:
    """Nobody knows whether the number means seconds or milliseconds."""
    message = {"role": "user", "content": "x", "time": time}

    with pytest.raises(DataError, match="time"):
        History.from_messages([message])


@pytest.mark.parametrize(
    "time",
    [
        "2024-02-30",
        "1000000-01-01",
        pytest.param("0001-01-01T00:00+14:00", id="before the year 1 in UTC"),
        "1e400",
    ],
)
def test_a_message_whose_time_is_not_in_the_calendar_is_refused(time: str) -> None:
    """Python's calendar has the years 1 to 9999."""
    message = {"role": "user", "content": "x", "time": time}

    with pytest.raises(DataError, match="time"):
        History.from_messages([message])


@pytest.mark.parametrize(
    "time", ["2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00"]
)
def test_the_time_of_a_message_is_an_iso_date(time: str) -> None:
    message = {"role": "user", "content": "x", "time": time}

    history = History.from_messages([message])

    session_time = history.items[0].time
    assert session_time is not None
    assert session_time.date() == date(2024, 5, 1)


def test_times_with_and_without_a_zone_can_be_sorted() -> None:
    """Python does not compare a time with a zone with one without; `comparable` makes it possible.

    A missing time comes first.
    """
    with_zone = datetime(2024, 1, 1, tzinfo=UTC)
    without_zone = datetime(2023, 1, 1)

    times = sorted([with_zone, None, without_zone], key=comparable)

    assert times == [None, without_zone, with_zone]


def test_the_earliest_time_of_the_calendar_can_be_compared() -> None:
    """To convert it to UTC may give a time before the year 1, which Python does not have."""
    assert comparable(datetime.min).year == 1


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "user"}, "has no content"),
        ({"role": "user", "content": ["x"]}, "expected text or a list of parts"),
        ({"role": "user", "content": [{"text": 5}]}, "expected text or a list of parts"),
        ({"role": "user", "content": "\ud800"}, "message 1 of session 1: a text holds half"),
        ({"role": "user", "content": "x", "name": 5}, "speaker: Input should be a valid string"),
    ],
)
def test_a_message_of_another_kind_is_refused(message: Any, error: str) -> None:
    with pytest.raises(DataError, match=error):
        History.from_messages([message])


def test_the_number_of_a_refused_message_counts_messages_without_text_too() -> None:
    """The first message only calls a tool. It makes no turn, but users count it in their file.

    The second message has no content, and the error calls it message 2.
    """
    calls_a_tool = {"role": "assistant", "tool_calls": [{"id": "c1"}]}
    without_content = {"role": "user"}

    with pytest.raises(DataError, match="message 2 of session 1 has no content"):
        History.from_messages([calls_a_tool, without_content])


def test_a_history_that_uses_a_turn_id_twice_is_refused() -> None:
    turn = {"id": "D1:1", "speaker": "Ann", "text": "x"}
    first_session = {"kind": "session", "id": "D1", "turns": [turn]}
    second_session = {"kind": "session", "id": "D2", "turns": [turn]}

    with pytest.raises(DataError, match="a turn id twice"):
        History.parse({"items": [first_session, second_session]})


def test_the_text_of_an_error_is_one_line() -> None:
    error = UserError("first\nsecond")

    assert str(error) == "first second"


def test_the_text_of_an_error_has_no_half_of_a_surrogate_pair() -> None:
    """Such a character cannot be printed as UTF-8."""
    error = UserError("a \ud800")

    assert str(error) == "a \\ud800"


def test_the_text_of_an_error_is_cut() -> None:
    error = UserError("x" * 10_000)

    assert str(error).startswith("xxx")
    assert len(str(error)) < 2000


@pytest.mark.parametrize(
    ("date", "when", "dated_text"),
    [
        (
            datetime(2023, 5, 8, 13, 56),
            "8 May 2023, Monday 13:56",
            "Where? (asked on 8 May 2023, Monday 13:56)",
        ),
        ("8 May 2023", "8 May 2023", "Where? (asked on 8 May 2023)"),
        (None, "", "Where?"),
        ("", "", "Where?"),
    ],
)
def test_a_query_says_in_words_when_it_is_asked(
    date: datetime | str | None, when: str, dated_text: str
) -> None:
    """A date may be a time, or words, which stay as they are."""
    query = Query(text="Where?", date=date)

    assert query.when == when
    assert query.dated_text == dated_text


@pytest.mark.parametrize(
    ("date", "searched_with_date", "search_text"),
    [
        ("8 May 2023", False, "Where?"),
        ("8 May 2023", True, "Where? (asked on 8 May 2023)"),
        (None, True, "Where?"),
    ],
)
def test_a_memory_is_searched_with_the_date_of_a_question_only_if_that_is_wanted(
    date: str | None, searched_with_date: bool, search_text: str
) -> None:
    """Some benchmarks search with the date, as their papers do."""
    query = Query(text="Where?", date=date, searched_with_date=searched_with_date)

    assert query.search_text == search_text


SPOKEN_BEFORE = "user: I want to get fitter\n\nassistant: Mind the knee?"


def test_a_memory_is_searched_with_the_words_of_a_question_alone() -> None:
    """The options to choose from, and what was said before, would find other things."""
    query = Query(text="Where?", options=("Lisbon", "Oslo"), dialogue=SPOKEN_BEFORE)

    assert query.search_text == "Where?"


@pytest.mark.parametrize(
    ("dialogue", "search_text"),
    [
        ("", "user: Yes."),
        (SPOKEN_BEFORE, "user: I want to get fitter\nassistant: Mind the knee?\nuser: Yes."),
    ],
)
def test_for_a_turn_of_a_dialogue_a_memory_is_searched_with_the_whole_dialogue(
    dialogue: str, search_text: str
) -> None:
    """A turn such as "Yes." says nothing by itself, so what was said before is searched with."""
    query = Query(text="Yes.", dialogue=dialogue, modality="dialogue")

    assert query.search_text == search_text


def test_the_shown_turns_of_a_query_are_those_of_its_shown_items() -> None:
    """A prompt shows `shown_items` anyway, so a memory need not recall their turns.

    Items that are only new, which came after the memory was written, are not shown by that.
    """
    logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))
    session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="hi"),))

    query = Query(text="Where?", shown_items=(logs,), new_items=(session,))

    assert query.shown_turn_ids == {"L1:1"}


def test_an_unknown_field_of_a_query_is_refused() -> None:
    """The field is called `speakers`."""
    with pytest.raises(ValidationError, match="speaker"):
        Query(text="Where?", speaker="Ann")  # pyright: ignore[reportCallIssue]


def test_the_sources_of_a_context_are_those_of_all_its_hits_once_each() -> None:
    topic = Hit(id="t1", text="sleep", kind="topic", sources=("D1:1", "D1:2"))
    turn = Hit(id="D1:2", text="hi", kind="turn", sources=("D1:2",))

    assert Context(hits=(topic, turn)).sources == ("D1:1", "D1:2")


@pytest.mark.parametrize("kind", sorted(ABSTRACT_KINDS))
def test_the_evidence_of_a_context_is_what_its_hits_of_particular_turns_rest_on(kind: str) -> None:
    """A hit of an abstract kind, such as a principle, sums up many turns, so it is no evidence."""
    abstract_hit = Hit(id="p1", text="likes calm", kind=kind, sources=("D1:1", "D2:1"))
    turn = Hit(id="D1:2", text="hi", kind="turn", sources=("D1:2",))

    context = Context(hits=(abstract_hit, turn))

    assert not abstract_hit.is_evidence
    assert turn.is_evidence
    assert context.evidence == ("D1:2",)


@pytest.mark.parametrize(
    "kind",
    ["turn", "log", "record", "session", "fact", "conclusion", "situation", "topic"],
)
def test_a_hit_that_rests_on_particular_turns_is_evidence(kind: str) -> None:
    """The measure of recall counts the turns of such hits as found."""
    assert Hit(id="x", text="y", kind=kind).is_evidence


def test_hits_of_a_context_are_found_by_their_kinds() -> None:
    topic = Hit(id="t1", text="sleep", kind="topic")
    turn = Hit(id="D1:2", text="hi", kind="turn")
    log = Hit(id="L1:1", text="bought", kind="log")
    context = Context(hits=(topic, turn, log))

    assert context.with_kinds("log", "topic") == (topic, log)


@pytest.fixture
def function_in_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a function in a file of the current folder, which Python does not search."""
    file = tmp_path / "lies_here.py"
    file.write_text("def scored(example, prediction): ...", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # An empty path stands for the current folder.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield "lies_here:scored"
    sys.modules.pop("lies_here", None)


def test_a_function_that_a_user_names_is_looked_for_in_the_current_folder(
    function_in_current_folder: str,
) -> None:
    """The fixture writes a file with a function into the current folder: "lies_here:scored"."""
    function = import_object("metric", function_in_current_folder, "")

    assert callable(function)
    assert str(Path.cwd()) in sys.path


def test_the_current_folder_is_not_searched_for_a_part_of_the_product(
    function_in_current_folder: str,
) -> None:
    """A name may stand for a part of the product. A file of the folder must not take its place."""
    import_object("metric", function_in_current_folder, "mempiler.data.jsonl:FunctionScorer")

    assert str(Path.cwd()) not in sys.path


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
    assert pipe.is_fifo()
    os.close(reader)
