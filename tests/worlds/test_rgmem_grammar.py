"""Every sentence form of RGMem's world is read as what was said, alone and among other text."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.grammar import rgmem as grammar

THINGS = [
    f"{adjective} {noun}"
    for nouns in (
        *(nouns for _, nouns in grammar.SCATTERED.values()),
        *(tuple(known.values()) for _, known in grammar.DENSE.values()),
    )
    for noun in nouns
    for adjective in grammar.ADJECTIVES
]
CONCEPTS = [*grammar.DENSE, *grammar.SCATTERED, *{base for base, _ in grammar.SCATTERED.values()}]
things, concepts, leans = st.sampled_from(THINGS), st.sampled_from(CONCEPTS), st.booleans()
reasons, terms = st.sampled_from(["", *grammar.REASONS]), st.sampled_from(grammar.TERMS)
steps = st.lists(st.builds(grammar.Step, leans, reasons), min_size=1, max_size=4).map(tuple)
FORMS = {
    "signal": (
        st.builds(grammar.Signal, things, leans, reasons, st.integers(0, 2)),
        grammar.say_signal,
        grammar.read_signals,
    ),
    "proviso": (st.builds(grammar.Proviso, things, terms), grammar.say_proviso, grammar.read_provisos),
    "purchase": (
        st.builds(grammar.Purchase, st.sampled_from(grammar.GOODS)),
        grammar.say_purchase,
        grammar.read_purchases,
    ),
    "gift": (
        st.builds(grammar.Gift, st.sampled_from(grammar.NAMES), st.sampled_from(grammar.PRESENTS)),
        grammar.say_gift,
        grammar.read_gifts,
    ),
    "course": (st.builds(grammar.Course, concepts | things, steps), grammar.say_course, grammar.read_courses),
    "trait": (st.builds(grammar.Trait, concepts | things, leans), grammar.say_trait, grammar.read_traits),
    "law": (st.builds(grammar.Law, concepts, leans | st.none()), grammar.say_law, grammar.read_laws),
    "minded": (st.builds(grammar.Minded, concepts, terms), grammar.say_minded, grammar.read_minded),
    "odd": (st.builds(grammar.Odd, concepts, concepts), grammar.say_odd, grammar.read_odds),
}


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_what_is_said_is_read(form, data):
    values, say, read = FORMS[form]
    said = data.draw(st.lists(values, max_size=3))
    text = " ".join(["[n1] (6 January 2024, Saturday 18:00) Something else.", *map(say, said)])
    assert read(text) == said
    assert all(not other(text) for name, (_, _, other) in FORMS.items() if name != form)


@given(kind=st.sampled_from(get_args(grammar.Kind)), subjects=st.lists(concepts, min_size=1, max_size=3))
def test_a_question_is_read_as_what_it_asks(kind, subjects):
    question = grammar.Question(kind, tuple(subjects))
    assert grammar.read_question(f"{grammar.say_question(question)} (asked on 8 May 2024)") == question


def test_text_of_another_world_is_no_question():
    assert grammar.read_question("Where does Ann live?") is None


def test_every_thing_has_a_place_and_nothing_else():
    assert [place.events[-1] for place in map(grammar.place, THINGS) if place] == THINGS
    assert grammar.place("Ann") is None
