"""Queries, as prompts show them and memories are searched with them; and which hits of a context are evidence."""

from datetime import datetime

import pytest
from mempiler.records import ABSTRACT, Context, Hit, Logs, Query, Session, Turn
from pydantic import ValidationError

SPOKEN = "user: I want to get fitter\n\nassistant: Mind the knee?"


@pytest.mark.parametrize(
    ("date", "when"),
    [(datetime(2023, 5, 8, 13, 56), "8 May 2023, Monday 13:56"), ("8 May 2023", "8 May 2023"), (None, ""), ("", "")],
)
def test_a_line_tells_the_day_where_it_is_known(date: datetime | str | None, when: str) -> None:
    query = Query(text="Where?", date=date)
    assert (query.when, query.line) == (when, f"Where? (asked on {when})" if when else "Where?")


@pytest.mark.parametrize(
    ("query", "probe"),
    [
        (Query(text="Where?", date="8 May 2023"), "Where?"),
        (Query(text="Where?", options=("Lisbon", "Oslo")), "Where?"),
        (Query(text="Where?", dialogue=SPOKEN), "Where?"),
        (Query(text="Yes.", modality="dialogue"), "user: Yes."),
        (
            Query(text="Yes.", dialogue=SPOKEN, modality="dialogue"),
            "user: I want to get fitter\nassistant: Mind the knee?\nuser: Yes.",
        ),
    ],
    ids=["date", "options", "question after a dialogue", "first turn", "later turn"],
)
def test_a_memory_is_searched_with_what_was_said_alone(query: Query, probe: str) -> None:
    assert query.probe == probe


def test_the_turns_of_all_shown_items_are_shown() -> None:
    logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))
    session = Session(id="D1", turns=tuple(Turn(id=f"D1:{n}", speaker="Ann", text="hi") for n in (1, 2)))
    assert Query(text="Where?", shown=(logs, session), since=(session,)).shown_ids == {"L1:1", "D1:1", "D1:2"}
    assert Query(text="Where?", since=(session,)).shown_ids == frozenset()
    assert Query(text="Where?", shown=(logs,)).model_dump()["shown"][0]["kind"] == "logs"


def test_a_query_does_not_change_and_has_no_field_by_mistake() -> None:
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


def test_what_speaks_of_turns_is_evidence_and_hits_are_found_by_kind() -> None:
    context = Context(hits=HITS)
    assert (context.sources, context.evidence) == (("D1:1", "D2:1", "D1:2", "L1:1"), ("D1:1", "D1:2", "L1:1"))
    speaking = ("turn", "log", "record", "session", "fact", "conclusion", "situation", "topic")
    found = {kind for kind in (*speaking, *ABSTRACT) if Hit(id="x", text="y", kind=kind).is_evidence}
    assert found == set(speaking)
    assert [hit.id for hit in context.of("log", "topic")] == ["t1", "L1:1"]
