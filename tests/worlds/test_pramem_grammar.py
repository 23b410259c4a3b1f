"""Every sentence form of PraMem's world is read as what was said, alone and among other text."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.grammar import pramem as grammar

WORDS = ("jazz", "of", "this user", "does", "o'hara", "re-runs", "by", "in the", "what", "videos", "likes")
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
clips = st.builds(grammar.Clip, names, names, names, st.booleans())
claims = st.builds(
    grammar.Claim, st.sampled_from(get_args(grammar.Stance)), st.sampled_from(get_args(grammar.Aspect)), names
)
ids = st.integers(1, 999).map("r{}".format)


@given(clips)
def test_a_clip_is_read_as_it_was_said(clip):
    assert grammar.read_clip(f"8 May 2023; video; {grammar.say_clip(clip)}. {grammar.LIKES}") == clip


@given(st.lists(claims, max_size=4))
def test_claims_are_read_in_their_order(said):
    text = "\n".join(f"[{n}] video | add pattern | {grammar.say_claim(claim)}" for n, claim in enumerate(said))
    assert grammar.read_claims(text) == said


@given(st.lists(st.builds(grammar.Deed, ids, clips, st.booleans()), max_size=4))
def test_records_are_read_line_by_line(deeds):
    lines = [
        f"[{deed.id}] (8 May 2023, Monday) user: {grammar.say_clip(deed.clip)} => {grammar.say_did(deed.reacted)}"
        for deed in deeds
    ]
    assert grammar.read_deeds("\n".join(["[profile:1] profile: x", *lines])) == deeds


@given(claims, clips)
def test_a_stance_and_its_opposite_foretell_opposite_deeds(claim, clip):
    opposite = {"reacts": "passes", "with the crowd": "against the crowd"}
    for stance, other in opposite.items():
        foretold = [grammar.Claim(each, *claim.subject).foretells(clip) for each in (stance, other)]
        assert sorted(foretold) == [False, True]


@pytest.mark.parametrize(
    ("kinds", "say", "read"),
    [
        (grammar.Basis, grammar.say_basis, grammar.read_basis),
        (grammar.Turned, grammar.say_turned, grammar.read_turned),
    ],
)
def test_what_is_one_of_few_is_read_as_it_was_said(kinds, say, read):
    assert [read(f"so: {say(kind)} And more.") for kind in get_args(kinds)] == list(get_args(kinds))
    assert read("nothing of the kind") is None


@pytest.mark.parametrize(("text", "reacted"), [("liked; shared", True), ("no reaction.", False), ("unknown", None)])
def test_what_was_done_is_read(text, reacted):
    assert grammar.read_did(text) is reacted
