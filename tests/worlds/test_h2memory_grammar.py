"""Every sentence form of H2Memory's world is read as what was said, alone and among other text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.grammar import h2memory as grammar

matters = st.sampled_from([matter for known in grammar.MATTERS.values() for matter in known])
things = st.sampled_from([thing for known in grammar.KINDS.values() for thing in known])
places, states = st.sampled_from(grammar.PLACES), st.sampled_from(grammar.STATES)
people, themes = st.sampled_from(grammar.PEOPLE), st.sampled_from(grammar.THEMES)
nobody = st.just("")


def _traits(aspect):
    ends = st.sampled_from(grammar.TRAITS[aspect][1])
    return st.lists(st.builds(grammar.Trait, st.just(aspect), ends), max_size=2).map(tuple)


traits = st.sampled_from(list(grammar.TRAITS)).flatmap(_traits)
needs = st.one_of(
    st.builds(grammar.Need, themes, matters, nobody, nobody, traits),
    st.builds(grammar.Need, themes, matters, places, nobody | states, traits),
)
affairs = st.builds(grammar.Affair, matters, places, nobody | states, nobody | people)
FORMS = {
    "trouble": (st.builds(grammar.Trouble, places, states), grammar.say_trouble, grammar.read_troubles),
    "delay": (st.builds(grammar.Delay, matters, places), grammar.say_delay, grammar.read_delays),
    "asking": (st.builds(grammar.Asking, people, matters), grammar.say_asking, grammar.read_askings),
    "affair": (affairs, grammar.say_affair, grammar.read_affairs),
    "need": (needs, grammar.say_need, grammar.read_needs),
    "proposal": (st.builds(grammar.Proposal, things), grammar.say_proposal, grammar.read_proposals),
    "verdict": (st.builds(grammar.Verdict, things, st.booleans()), grammar.say_verdict, grammar.read_verdicts),
    "preference": (st.builds(grammar.Preference, things, things), grammar.say_preference, grammar.read_preferences),
    "principle": (
        st.builds(grammar.Principle, st.sampled_from(list(grammar.KINDS))),
        grammar.say_principle,
        grammar.read_principles,
    ),
}
PARTS = {"affair": {"delay", "asking"}, "delay": {"affair"}}
"""What is read in a form beside itself: a delay is a situation of which no more is known."""


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_what_is_said_is_read(form, data):
    values, say, read = FORMS[form]
    said = data.draw(st.lists(values, max_size=3))
    text = " ".join(["[n1] (6 January 2024, Saturday 18:00) Something else.", *map(say, said)])
    assert read(text) == said
    others = set(FORMS) - {form} - PARTS.get(form, set())
    assert [name for name in others if FORMS[name][2](text)] == []


@given(known=traits)
def test_traits_are_read_wherever_they_stand(known):
    assert tuple(grammar.read_traits(f"work: the user {grammar.say_traits(known)}.")) == known


@pytest.mark.parametrize("ask", grammar.FORMS)
def test_a_question_is_read_as_what_it_asks(ask):
    subjects = (*grammar.THEMES[:1], "audit", "depot")[: grammar.FORMS[ask].count("{}")]
    question = grammar.Question(ask, subjects)
    assert grammar.read_question(f"{grammar.say_question(question)} (asked on 8 May 2024)") == question


def test_text_of_another_world_is_no_question():
    assert grammar.read_question("Where does Ann live?") is None


def test_no_two_themes_share_a_word_and_no_kind_shares_one_with_its_things():
    words = [word for theme in grammar.THEMES for word in theme.split() if word != "and"]
    assert len(words) == len(set(words))
    assert not set(grammar.KINDS) & {thing for things in grammar.KINDS.values() for thing in things}
