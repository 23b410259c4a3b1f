"""RGMem's graphs: one for each person who talks, or one that people share.

A graph is filled from conclusions about a person, such as "Ann runs". A path of it leads to an
event, such as "Running", and summaries of events and topics are written from the conclusions.

In the scripted sessions Ann runs and Bob sleeps. Prompts have the outputs "fact" (a fact of a
session with its conclusions), "entity_paths" (the paths of one person), and "fact_summary",
"general_facts" and "macro_law" (summaries of an event, a topic and a broader topic).
"""

import re
from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler import History, Query, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.rgmem.memory import USER, GraphMemory, people_of
from mempiler.programs.rgmem.retrieval import named_people


def two_sessions_of(*speakers: str) -> History:
    """Return a history of two sessions, in each of which the speakers say a word in turn."""
    sessions: list[Session] = []
    for day in (1, 2):
        turns = tuple(
            Turn(id=f"D{day}:{number}", speaker=speaker, text=f"Word of {speaker}")
            for number, speaker in enumerate(speakers, 1)
        )
        sessions.append(Session(id=f"D{day}", time=datetime(2024, 5, day), turns=turns))
    return History(id="talk", items=tuple(sessions))


def first_two_turn_ids(prompt: str) -> list[str]:
    """Return the ids of the first two turns of the session in a prompt."""
    match = re.search(r"\[D(\d):1\]", prompt)
    assert match is not None
    day = match.group(1)
    return [f"D{day}:1", f"D{day}:2"]


def ann_runs_and_bob_sleeps(kind: str, text: str, n: int) -> dict[str, Any]:
    """Answer that Ann runs and Bob sleeps; an event is that of the user whom the prompt names."""
    if kind == "fact":
        first_turn, second_turn = first_two_turn_ids(text)
        about_ann = {
            "text": "Ann runs",
            "relevance": "high",
            "speaker": "ann",
            "turn_ids": [first_turn],
        }
        # The turn says that it is about Bob, since the speaker is unknown.
        about_bob = {"text": "Bob sleeps", "speaker": "nobody", "turn_ids": [second_turn]}
        return {"fact": "They talked.", "conclusions": [about_ann, about_bob]}
    if kind == "entity_paths":
        event = "Running" if "Ann runs" in text else "Sleep"
        path = {"base": "Health and Wellness", "concepts": [], "events": [event]}
        return {"entity_paths": [path]}
    if kind == "edge_labels":
        return {"edge_labels": [{"segment_id": "s1", "label": "label"}]}
    if kind == "fact_summary":
        return {"fact_summary": f"inference {n}", "inferred_traits": ""}
    if kind == "general_facts":
        return {"general_facts": f"facts {n}", "specific_facts": ""}
    if kind == "macro_law":
        return {"macro_law": f"law {n}", "core_traits": "", "restrictions": ""}
    if kind == "keywords":
        keyword = {"name": "Health and Wellness", "retrieve": ["summary", "inference"]}
        return {"keywords": [keyword]}
    return {kind: "x"}


def rgmem(**settings: Any) -> Any:
    """Return RGMem, which writes every summary at once."""
    return build("rgmem", embedder=embedder(), theta_inf=1, theta_sum=1, **settings)


def events_by_person(memory: GraphMemory) -> list[tuple[str, str]]:
    """Return the events of a memory, each with the person in whose graph it is."""
    events = [(node.person, node.name) for node in memory.nodes.values() if node.tier == "instance"]
    return sorted(events)


# Writing


def test_each_person_has_a_graph_from_the_conclusions_about_them(write_memory: Any) -> None:
    """A conclusion is what a session shows of a person: "Ann runs" and "Bob sleeps".

    From these, the events Running and Sleep come into the graphs of Ann and of Bob.
    """
    result = write_memory(rgmem(), two_sessions_of("Ann", "Bob"), ann_runs_and_bob_sleeps)

    # The graph of the user is there from the beginning, and stays empty.
    assert result.memory.roots.keys() == {USER, "Ann", "Bob"}
    assert events_by_person(result.memory) == [("Ann", "Running"), ("Bob", "Sleep")]


def test_facts_are_extracted_for_all_at_once_and_filed_for_each_person(write_memory: Any) -> None:
    """One prompt extracts a fact from each session, with conclusions about all who talk.

    Another prompt files the conclusions about one person in the graph of this person.
    """
    sessions = ["D1", "D2"]
    people = ["Ann", "Bob"]
    result = write_memory(rgmem(), two_sessions_of(*people), ann_runs_and_bob_sleeps)

    assert result.calls["fact"] == len(sessions)
    assert result.calls["entity_paths"] == len(sessions) * len(people)


def test_the_paths_of_a_person_are_made_from_the_conclusions_about_them(write_memory: Any) -> None:
    """A path says where in the graph of a person a conclusion is filed, e.g. "Ann runs"."""
    result = write_memory(rgmem(), two_sessions_of("Ann", "Bob"), ann_runs_and_bob_sleeps)

    users = result.prompt_fields("entity_paths", "user")
    fragments = result.prompt_fields("entity_paths", "fragment")
    assert set(users) == {"Ann", "Bob"}
    for user, fragment in zip(users, fragments, strict=True):
        assert ("Ann runs" in fragment) is (user == "Ann")
        assert ("Bob sleeps" in fragment) is (user == "Bob")


def test_prompts_name_the_person_whose_graph_they_are_about(write_memory: Any) -> None:
    """There is a prompt that labels the edges of a graph, and there are three for its summaries."""
    result = write_memory(rgmem(), two_sessions_of("Ann", "Bob"), ann_runs_and_bob_sleeps)

    for output in ("edge_labels", "fact_summary", "general_facts", "macro_law"):
        assert set(result.prompt_fields(output, "user")) == {"Ann", "Bob"}


def test_an_operator_is_shown_the_conclusions_about_its_own_person(write_memory: Any) -> None:
    """An operator is a prompt that writes a summary; "fact_summary" is the summary of an event."""
    result = write_memory(rgmem(), two_sessions_of("Ann", "Bob"), ann_runs_and_bob_sleeps)

    users = result.prompt_fields("fact_summary", "user")
    evidence_lists = result.prompt_fields("fact_summary", "new_evidence")
    assert set(users) == {"Ann", "Bob"}
    for user, evidence in zip(users, evidence_lists, strict=True):
        assert ("Ann runs" in evidence) is (user == "Ann")
        assert ("Bob sleeps" in evidence) is (user == "Bob")


def test_beside_an_assistant_the_user_has_the_only_graph(write_memory: Any) -> None:
    """An assistant is no person, so nothing is kept about it."""
    result = write_memory(rgmem(), two_sessions_of("user", "assistant"), ann_runs_and_bob_sleeps)

    assert result.memory.roots.keys() == {USER}
    assert set(result.prompt_fields("entity_paths", "user")) == {"user"}


def test_a_conclusion_without_a_speaker_is_in_the_graphs_of_all_who_talk(write_memory: Any) -> None:
    """The only conclusion, "Ann runs, Bob too", rests on turns of both, and names no speaker."""

    def reply_about_both(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind != "fact":
            return ann_runs_and_bob_sleeps(kind, text, n)
        conclusion = {"text": "Ann runs, Bob too", "turn_ids": first_two_turn_ids(text)}
        return {"fact": "", "conclusions": [conclusion]}

    memory = write_memory(rgmem(), two_sessions_of("Ann", "Bob"), reply_about_both).memory

    assert events_by_person(memory) == [("Ann", "Running"), ("Bob", "Running")]


def test_a_person_whose_name_ends_in_a_bracket_is_recognised(write_memory: Any) -> None:
    """Models put brackets around names, but the bracket of "Ann (mother)" belongs to the name."""

    def reply_about_mother(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind != "fact":
            return ann_runs_and_bob_sleeps(kind, text, n)
        conclusion = {
            "text": "Ann runs",
            "speaker": "Ann (mother)",
            "turn_ids": first_two_turn_ids(text),
        }
        return {"fact": "", "conclusions": [conclusion]}

    memory = write_memory(
        rgmem(), two_sessions_of("Ann (mother)", "Bob"), reply_about_mother
    ).memory

    assert events_by_person(memory) == [("Ann (mother)", "Running")]


@pytest.mark.parametrize(
    ("speakers", "is_shared"),
    [
        (("Ann", "Bob"), True),
        # Only one of them is a person.
        (("Ann", "assistant"), False),
    ],
)
def test_prompts_on_a_merged_graph_say_so_if_several_people_share_it(
    write_memory: Any, speakers: tuple[str, str], is_shared: bool
) -> None:
    """A merged graph is one for all who talk, so that there is only the root of the user.

    Where two people share it, each prompt has the words "each counts as the user".
    """
    result = write_memory(
        rgmem(merged_graph=True), two_sessions_of(*speakers), ann_runs_and_bob_sleeps
    )

    assert result.memory.roots.keys() == {USER}
    assert result.prompts
    for _, prompt in result.prompts:
        assert ("each counts as the user" in prompt) is is_shared


def test_people_are_the_speakers_that_are_no_machines() -> None:
    """Only people have graphs; a blank name is nobody."""
    speakers = ["system", "Ann", "tool", "Bob", "Ann", " "]
    turns = tuple(
        Turn(id=str(number), speaker=speaker, text="x") for number, speaker in enumerate(speakers)
    )

    assert people_of(Session(id="s", turns=turns)) == ("Ann", "Bob")


# Recall


def summaries_recalled(scripted: Any, question: str) -> list[str]:
    """Write two sessions of Ann and Bob, and return the summaries that are recalled of them."""
    program = rgmem()
    with dspy.context(lm=scripted(ann_runs_and_bob_sleeps)):
        memory = program.remember(two_sessions_of("Ann", "Bob")).memory
        context = program.method.reader.recall(memory, Query(text=question))
    return [hit.text for hit in context.hits if hit.kind in ("summary", "inference")]


def test_a_question_that_names_a_person_reads_that_graph_alone(scripted: Any) -> None:
    """Ann and Bob each have a graph, and a summary begins with the name of its person."""
    summaries = summaries_recalled(scripted, "What keeps Ann healthy?")

    assert summaries
    for summary in summaries:
        assert summary.startswith("Ann, Health and Wellness")


def test_a_question_without_a_name_reads_the_graphs_of_all_people(scripted: Any) -> None:
    """Ann and Bob each have a graph, and a summary begins with the name of its person."""
    summaries = summaries_recalled(scripted, "What keeps them healthy?")

    assert {summary.split(",")[0] for summary in summaries} == {"Ann", "Bob"}


def memory_with_graphs_of(people: list[str]) -> GraphMemory:
    """Return a memory with an empty graph for each person, whose root bears the name."""
    memory = GraphMemory()
    for number, person in enumerate(people, 1):
        root = memory.nodes[USER].replace(id=f"u{number}", person=person, name=person)
        memory = memory.replace(nodes={**memory.nodes, root.id: root})
    return memory


@pytest.mark.parametrize(
    ("question", "people", "named"),
    [
        ("Where did Ann go?", ["Ann Lee", "Joanna"], {"Ann Lee"}),
        ("What does Speaker 2 like?", ["Speaker 1", "Speaker 2"], {"Speaker 2"}),
        # Both begin with this word, so it names neither; then all graphs are read.
        ("What does the speaker like?", ["Speaker 1", "Speaker 2"], {"Speaker 1", "Speaker 2"}),
        ("Where will Ann go?", ["Ann", "Will"], {"Ann"}),
        ("小明喜欢什么?", ["小明", "小红"], {"小明"}),
        ("What does J. like?", ["J.", "Ann"], {"J."}),
    ],
)
def test_people_are_named_by_the_whole_name_or_by_a_first_name_that_only_one_has(
    question: str, people: list[str], named: set[str]
) -> None:
    """A question reads the graphs of the people that it names, so a name must not be mistaken."""
    memory = memory_with_graphs_of(people)

    assert named_people(memory, question) - {USER} == named
