"""RGMem's graphs: one for each person who talks, or one that people share."""

import re
from datetime import datetime

import dspy
import pytest
from mempiler import History, Query, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.rgmem.memory import USER, GraphMemory, people_of
from mempiler.programs.rgmem.retrieval import named_people

SHARED = "each counts as the user"
"""Of the sentence that a prompt has where several people share a profile."""


def talk(*speakers):
    """Two sessions, in which the speakers say a word each."""
    sessions = []
    for day in (1, 2):
        turns = [
            Turn(id=f"D{day}:{n}", speaker=who, text=f"Word of {who}")
            for n, who in enumerate(speakers, 1)
        ]
        sessions.append(Session(id=f"D{day}", time=datetime(2024, 5, day), turns=tuple(turns)))
    return History(id="talk", items=tuple(sessions))


def reply(kind, text, n):
    """Ann runs, her partner sleeps; each path is that of the user whom the prompt names."""
    if kind == "fact":
        day = re.search(r"\[D(\d):1\]", text).group(1)
        runs = {
            "text": "Ann runs",
            "relevance": "high",
            "speaker": "ann",
            "turn_ids": [f"D{day}:1"],
        }
        sleeps = {"text": "Bob sleeps", "speaker": "nobody", "turn_ids": [f"D{day}:2"]}
        return {"fact": f"They talked on day {day}.", "conclusions": [runs, sleeps]}
    if kind == "entity_paths":
        event = "Running" if "Ann runs" in text else "Sleep"
        return {
            "entity_paths": [{"base": "Health and Wellness", "concepts": [], "events": [event]}]
        }
    if kind == "edge_labels":
        return {"edge_labels": [{"segment_id": "s1", "label": "label"}]}
    if kind == "fact_summary":
        return {"fact_summary": f"inference {n}", "inferred_traits": ""}
    if kind == "general_facts":
        return {"general_facts": f"facts {n}", "specific_facts": ""}
    if kind == "macro_law":
        return {"macro_law": f"law {n}", "core_traits": "", "restrictions": ""}
    if kind == "keywords":
        return {"keywords": [{"name": "Health and Wellness", "retrieve": ["summary", "inference"]}]}
    return {kind: "x"}


def program(**settings):
    return build("rgmem", embedder=embedder(), theta_inf=1, theta_sum=1, **settings)


def events_by_person(memory):
    events = [(node.person, node.name) for node in memory.nodes.values() if node.tier == "instance"]
    return sorted(events)


def test_each_person_has_a_graph_from_the_conclusions_about_them(written):
    asked = written(program(), talk("Ann", "Bob"), reply)
    assert asked.memory.roots.keys() == {USER, "Ann", "Bob"}
    assert events_by_person(asked.memory) == [("Ann", "Running"), ("Bob", "Sleep")]
    assert asked.calls["fact"] == 2
    assert asked.calls["entity_paths"] == 4
    fragments = dict(
        zip(
            asked.shown("entity_paths", "user"),
            asked.shown("entity_paths", "fragment"),
            strict=True,
        )
    )
    assert "Ann runs" in fragments["Ann"]
    assert "Bob sleeps" not in fragments["Ann"]
    assert "Ann runs" not in fragments["Bob"]
    assert "Bob sleeps" in fragments["Bob"]
    users = {
        kind: set(asked.shown(kind, "user"))
        for kind in ("edge_labels", "fact_summary", "general_facts", "macro_law")
    }
    assert users == {kind: {"Ann", "Bob"} for kind in users}
    assert set(asked.shown("fact", "users")) == {"Ann, Bob"}
    assert not any(SHARED in text for _, text in asked.prompts)


def test_an_operator_is_shown_the_conclusions_about_its_own_person(written):
    asked = written(program(), talk("Ann", "Bob"), reply)
    for user, evidence in zip(
        asked.shown("fact_summary", "user"),
        asked.shown("fact_summary", "new_evidence"),
        strict=True,
    ):
        assert ("Ann runs" in evidence) == (user == "Ann")
        assert ("Bob sleeps" in evidence) == (user == "Bob")


def test_an_assistant_has_no_graph_and_the_user_keeps_the_one_that_is_always_there(written):
    asked = written(program(), talk("user", "assistant"), reply)
    assert asked.memory.roots.keys() == {USER}
    assert set(asked.shown("entity_paths", "user")) == {"user"}
    assert not any(SHARED in text for _, text in asked.prompts)


def test_a_conclusion_about_nobody_in_particular_is_in_every_graph(written):
    def both(kind, text, n):
        if kind != "fact":
            return reply(kind, text, n)
        day = re.search(r"\[D(\d):1\]", text).group(1)
        return {
            "fact": "",
            "conclusions": [{"text": "Ann runs, Bob too", "turn_ids": [f"D{day}:1", f"D{day}:2"]}],
        }

    asked = written(program(), talk("Ann", "Bob"), both)
    assert events_by_person(asked.memory) == [("Ann", "Running"), ("Bob", "Running")]


@pytest.mark.parametrize(
    ("speakers", "shared"), [(("Ann", "Bob"), True), (("Ann", "assistant"), False)]
)
def test_where_people_share_a_graph_the_prompts_say_so_unless_there_is_only_one(
    written, speakers, shared
):
    asked = written(program(merged_graph=True), talk(*speakers), reply)
    assert asked.memory.roots.keys() == {USER}
    assert {event for _, event in events_by_person(asked.memory)} == {"Running"}
    writing = [text for kind, text in asked.prompts if kind != "keywords"]
    assert {SHARED in text for text in writing} == {shared}


def recalled(scripted, question):
    lm, made = scripted(reply), program()
    with dspy.context(lm=lm):
        memory = made.remember(talk("Ann", "Bob")).memory
        context = made.method.reader.recall(memory, Query(text=question))
    return [hit.text for hit in context.hits if hit.kind in ("summary", "inference")]


def test_a_question_that_names_a_person_reads_that_graph_alone(scripted):
    lines = recalled(scripted, "What keeps Ann healthy?")
    assert lines
    assert all(line.startswith("Ann, Health and Wellness") for line in lines)
    assert {line.split(",")[0] for line in recalled(scripted, "What keeps them healthy?")} == {
        "Ann",
        "Bob",
    }


def test_people_are_named_by_the_whole_name_or_by_a_first_name_that_only_one_has():
    def named(question, *people):
        memory = GraphMemory()
        for n, person in enumerate(people, 1):
            root = memory.nodes[USER].replace(id=f"u{n}", person=person, name=person)
            memory = memory.replace(nodes={**memory.nodes, root.id: root})
        return named_people(memory, question) - {USER}

    assert named("Where did Ann go?", "Ann Lee", "Joanna") == {"Ann Lee"}
    assert named("What does Speaker 2 like?", "Speaker 1", "Speaker 2") == {"Speaker 2"}
    assert named("What does the speaker like?", "Speaker 1", "Speaker 2") == {
        "Speaker 1",
        "Speaker 2",
    }
    assert named("Where will Ann go?", "Ann", "Will") == {"Ann"}
    assert named("小明喜欢什么?", "小明", "小红") == {"小明"}
    assert named("What does J. like?", "J.", "Ann") == {"J."}


def test_people_are_the_speakers_that_are_no_machines():
    turns = [
        Turn(id=str(n), speaker=who, text="x")
        for n, who in enumerate(("system", "Ann", "tool", "Bob", "Ann", " "))
    ]
    assert people_of(Session(id="s", turns=tuple(turns))) == ("Ann", "Bob")


def test_a_person_whose_name_ends_in_a_bracket_is_recognised(written):
    def by_name(kind, text, n):
        if kind != "fact":
            return reply(kind, text, n)
        day = re.search(r"\[D(\d):1\]", text).group(1)
        both = [f"D{day}:1", f"D{day}:2"]
        return {
            "fact": "",
            "conclusions": [{"text": "Ann runs", "speaker": "Ann (mother)", "turn_ids": both}],
        }

    asked = written(program(), talk("Ann (mother)", "Bob"), by_name)
    assert events_by_person(asked.memory) == [("Ann (mother)", "Running")]
