"""How H2Memory writes: situations, the chain of backgrounds, topics, refined needs; what runs at the same time."""

import threading

import pytest
from mempiler import History, Session, Turn
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.records import Behavior, Logs, Profile

from .conftest import pal, pal_script


def test_linked_logs_are_one_situation_and_the_others_one_each(lived):
    found = lived(sessions=2)
    memory = found.memory
    assert [(s.id, s.batch, s.sources) for s in memory.situations[:4]] == [
        ("s1", "L1", ("L1:1", "L1:2")),
        ("s2", "L1", ("L1:3",)),
        ("s3", "L1", ("L1:4",)),
        ("s4", "L2", ("L2:1", "L2:2")),
    ]
    assert [s.aspects for s in memory.situations[2:4]] == [("health",), ("work", "family")]
    assert memory.situations[0].links[0].model_dump() == {"later": "L1:2", "kind": "caused_by", "earlier": "L1:1"}
    assert found.calls["links"] == 2
    (shown,) = [text for text in found.texts("found_situation") if "L1:2" in text]
    assert "thing-1-2 <caused_by L1:1>" in shown


def test_backgrounds_are_updated_session_by_session(lived):
    found = lived(sessions=4)
    assert {aspect: one.text for aspect, one in found.memory.background.items()} == {
        "work": "known 2+4",
        "health": "known 1+3",
    }
    before = found.shown("updating_aspects", "background_before")
    assert before[:3] == [
        "work:\nhealth:\nfamily:\nleisure:",
        "work:\nhealth: known 1\nfamily:\nleisure:",
        "work: known 2\nhealth: known 1\nfamily:\nleisure:",
    ]
    spans = found.shown("updating_aspects", "span_before")
    assert spans == ["unknown", *(f"2024-01-03 to 2024-0{month}-03" for month in (1, 2, 3))]
    assert found.shown("updating_aspects", "span_since")[1] == "2024-02-03 to 2024-02-03"
    assert found.memory.background["health"].situations == ("s1", "s2", "s3", "s7", "s8", "s9")


@pytest.mark.parametrize(
    ("said", "background"),
    [
        ({"updating_aspects": [], "updating_content": []}, {}),
        ({"updating_aspects": ["work", "family"], "updating_content": [{"aspect": "WORK", "summary": "w"}]}, "w"),
        ({"updating_aspects": [], "updating_content": [{"aspect": "work", "summary": " w "}]}, "w"),
        ({"updating_aspects": ["work"], "updating_content": [{"aspect": "money", "summary": "x"}]}, {}),
        ("nonsense", {}),
    ],
    ids=["nothing", "one without a sentence", "a sentence alone", "unknown aspect", "malformed"],
)
def test_an_update_changes_the_aspects_it_has_sentences_for(lived, said, background):
    memory = lived({"updating_aspects": said}, sessions=1).memory
    found = {aspect: one.text for aspect, one in memory.background.items()}
    assert found == ({"work": background} if background else {})


def test_a_need_is_refined_with_its_own_session_and_the_background_of_that_time(lived):
    memory = lived(sessions=4).memory
    needs = {topic.id: (topic.stated, topic.need) for topic in memory.topics}
    assert needs["t1"] == (
        "sleeping soundly in month 1",
        "sleeping soundly in month 1 <health: known 1 / situation of L1:1 L1:2 situation of L1:4 situation of L1:3>",
    )
    # Session 3 is about health: what was learnt of work in session 2 does not bear on it, and 5 is not there yet.
    assert needs["t6"][1].startswith("cooking vegetables in month 3 <health: known 1+3 / situation of L3")
    assert all(f"L{n}:" in needs[id][1] for n, id in ((2, "t3"), (3, "t5"), (4, "t7")))


def test_logs_before_one_dialogue_belong_to_it_and_a_second_dialogue_has_none(lived):
    history = pal(2)
    first, dialogue, second, other = history.items
    memory = lived(history=History(id="x", items=(first, second, dialogue, other))).memory
    assert [topic.own for topic in memory.topics] == [("L1", "L2")] * 2 + [()] * 2
    assert [situation.batch for situation in memory.recent] == ["L1"] * 3 + ["L2"] * 3
    assert memory.topics[2].need == memory.topics[2].stated


def test_what_is_no_log_and_no_dialogue(lived):
    logs, dialogue = pal(1).items
    profile = Profile(id="p", turns=(Turn(id="p:1", speaker="profile", text="Ann, nurse"),))
    behavior = Behavior(id="b", turns=tuple(turn.model_copy() for turn in logs.turns))
    empty = (Logs(id="e1"), Session(id="e2", turns=(Turn(id="e2:1", speaker="user", text=" "),)))
    plain = lived(history=History(id="x", items=(logs, dialogue))).memory
    found = lived(history=History(id="y", items=(profile, logs, dialogue, *empty)))
    assert "nurse" not in str(found.prompts)
    assert (found.memory.situations, found.memory.topics) == (plain.situations, plain.topics)
    read = lived(history=History(id="z", items=(behavior, dialogue))).memory
    assert [one.text for one in read.situations] == [one.text for one in plain.situations]


def test_needs_are_refined_while_the_background_takes_in_the_next_logs(written):
    together = threading.Barrier(3)

    def reply(kind, text, n):
        # The first update has nothing to wait for; then one update goes with two needs. The last two needs wait alone.
        if (kind == "updating_aspects" and n > 1) or (kind == "detailed_need" and n <= 4):
            together.wait(timeout=20)
        return pal_script()(kind, text, n)

    memory = written(build("h2memory", embedder=embedder()), pal(3), reply).memory
    assert all("<" in topic.need for topic in memory.topics)
