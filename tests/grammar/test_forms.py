"""Sentences of the worlds: what is said is read again, alone and among others."""

import dataclasses
import string
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.grammar import memory_r2, pgr
from mempiler.grammar.form import Form, Forms

WORDS = st.text(string.ascii_lowercase, min_size=1, max_size=8)
SPECIAL = {
    (pgr.Trivia, "how"): st.sampled_from(["from", "with", "for", "by"]),
    (pgr.Remark, "looks"): st.lists(WORDS, min_size=1).map(lambda words: ", ".join(f"{w} on monday" for w in words)),
    (pgr.Alias, "name"): st.lists(WORDS.filter(lambda word: word not in ("is", "to")), min_size=1).map(" ".join),
    (pgr.HowWas, "month"): st.just("March 2025"),
}
"""Fields that are no single word."""
ROOMS = {
    "pgr, facts": pgr.FACTS,
    "pgr, steps": pgr.STEPS,
    "pgr, summary": pgr.SUMMARY,
    "pgr, questions": pgr.QUESTIONS,
    "memory-r2, facts": memory_r2.FACTS,
    "memory-r2, turns": memory_r2.TURNS,
    "memory-r2, questions": memory_r2.QUESTIONS,
}


def values(forms: Forms) -> st.SearchStrategy[Any]:
    """Values of any kind that the forms say."""
    return st.one_of([_of(kind) for kind in forms.kinds])


def _of(kind: type[Any]) -> st.SearchStrategy[Any]:
    fields = {}
    for field in dataclasses.fields(kind):
        number = st.integers(0, 999) if field.type == "int" else WORDS
        fields[field.name] = SPECIAL.get((kind, field.name), number)
    return st.builds(kind, **fields)


@pytest.mark.parametrize("room", ROOMS)
@given(data=st.data())
def test_what_is_said_is_read_again(room: str, data: st.DataObject) -> None:
    said = data.draw(st.lists(values(ROOMS[room]), max_size=4))
    assert ROOMS[room].read(" ".join(map(ROOMS[room].say, said))) == tuple(said)
    lines = "\n".join(f"[f{n}] (8 May 2025) [Event] {ROOMS[room].say(each)}" for n, each in enumerate(said))
    assert ROOMS[room].read(lines) == tuple(said)


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    for forms in ROOMS.values():
        assert len(forms.read(text)) <= len(text)


def test_a_field_that_stands_twice_is_one_word() -> None:
    forms = Forms(Form(pgr.Act, "The {thing} of the {thing}."))
    assert forms.read("The cat of the cat.") == (pgr.Act("cat"),)
    assert forms.read("The cat of the dog.") == ()


def test_a_line_of_a_dialogue_has_its_id_date_and_speaker() -> None:
    (line,) = memory_r2.lines("prospection\n[D8:5] (24 March 2025, Monday 18:00) Eva: I looked at the piano.\n")
    assert line == memory_r2.Line("D8:5", datetime(2025, 3, 24, 18), "Eva", "I looked at the piano.")


def test_dates_of_lines_are_those_of_their_facts() -> None:
    text = "[f1] (8 May 2025, Thursday) [Event] The stove is rusty.\nprospection: The tent is torn."
    assert pgr.dated(text) == [
        ("May 2025", "8 May 2025", pgr.State("stove", "rusty")),
        ("", "", pgr.State("tent", "torn")),
    ]
