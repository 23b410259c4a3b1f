"""Contexts: which hits speak of particular turns, and which rest on too many to be evidence."""

import pytest
from mempiler.records import ABSTRACT, Context, Hit

HITS = (
    Hit(id="p1", text="likes calm", kind="principle", sources=("D1:1", "D2:1")),
    Hit(id="t1", text="sleep", kind="topic", sources=("D1:1", "D1:2")),
    Hit(id="D1:2", text="hi", kind="turn", sources=("D1:2",)),
    Hit(id="L1:1", text="bought", kind="log", sources=("L1:1",)),
)


def test_what_is_abstract_is_no_evidence() -> None:
    context = Context(hits=HITS)
    assert context.sources == ("D1:1", "D2:1", "D1:2", "L1:1")
    assert context.evidence == ("D1:1", "D1:2", "L1:1")


@pytest.mark.parametrize("kind", sorted(ABSTRACT))
def test_every_abstract_kind_is_no_evidence(kind: str) -> None:
    assert not Hit(id="x", text="y", kind=kind).is_evidence


@pytest.mark.parametrize("kind", ["turn", "log", "record", "session", "fact", "conclusion", "situation", "topic"])
def test_what_speaks_of_turns_is_evidence(kind: str) -> None:
    assert Hit(id="x", text="y", kind=kind).is_evidence


def test_hits_are_found_by_kind_in_rank_order() -> None:
    assert [hit.id for hit in Context(hits=HITS).of("log", "topic")] == ["t1", "L1:1"]
    assert Context(hits=HITS).of("fact") == ()
