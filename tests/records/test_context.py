"""Contexts: which hits speak of particular turns, and which rest on too many to be evidence."""

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


def test_what_speaks_of_turns_is_evidence_and_hits_are_found_by_kind() -> None:
    speaking = ("turn", "log", "record", "session", "fact", "conclusion", "situation", "topic")
    found = {kind for kind in (*speaking, *ABSTRACT) if Hit(id="x", text="y", kind=kind).is_evidence}
    assert found == set(speaking)
    assert [hit.id for hit in Context(hits=HITS).of("log", "topic")] == ["t1", "L1:1"]
    assert Context(hits=HITS).of("fact") == ()
