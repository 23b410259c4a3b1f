"""How Memory-R2 cuts a session, what a part sees, and its ablation with one agent."""

from typing import Any

import dspy
import pytest
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.programs.catalog import build
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.records import Query
from mempiler.signatures.memory_r2 import Fact


def prompts(lm: Any, history: Any, reply: Any = None, **config: Any) -> list[tuple[str, str]]:
    """First output and user message of every call that writes a history, in order."""
    asked: list[tuple[str, str]] = []

    def kept(kind: str, text: str, n: int) -> Any:
        asked.append((kind, text))
        return reply(kind, text, n)

    with dspy.context(lm=lm(kept)):
        build("memory-r2", embedder=embedder(), **config).remember(history)
    return asked


def section(text: str, name: str) -> str:
    return text.split(f"[[ ## {name} ## ]]")[1].partition("[[ ##")[0].partition("Respond with")[0]


@pytest.mark.parametrize(
    ("turns", "config", "sizes"),
    [
        (8, {}, [2, 2, 2, 2]),
        (17, {}, [5, 5, 5, 2]),
        (5, {}, [2, 2, 1]),  # the released code rounds up as well, so the fourth part is missing
        (9, {"chunk_turns": 4}, [4, 4, 1]),
    ],
)
def test_a_session_is_cut_into_parts(scripted, fact_replies, make_history, turns, config, sizes):
    asked = prompts(scripted, make_history(1, turns=turns), fact_replies, **config)
    found = [section(text, "dialogue").count("] (") for kind, text in asked if kind == "facts"]
    assert sorted(found, reverse=True) == sizes


def test_a_part_is_shown_with_the_earlier_ones_as_context(scripted, fact_replies, make_history):
    asked = prompts(scripted, make_history(2, turns=4), fact_replies)
    extracted = sorted(text for kind, text in asked if kind == "facts")
    by_turn = {section(text, "dialogue").split("]")[0].strip(" \n["): section(text, "earlier") for text in extracted}
    assert by_turn["D1:1"].strip() == by_turn["D2:1"].strip() == ""
    assert [id in by_turn["D2:3"] for id in ("D2:1", "D2:2", "D2:3", "D1:1")] == [True, True, False, False]
    managed = [text for kind, text in asked if kind == "operations"]
    assert [section(text, "earlier_facts").count("turn_id") for text in managed] == [0, 1, 2, 3] * 2


def test_the_facts_of_a_session_are_embedded_in_one_request(scripted, fact_replies, make_history):
    requests: list[list[str]] = []

    def compute(texts: Any) -> Any:
        requests.append(list(texts))
        return embedder().embed(texts)

    with dspy.context(lm=scripted(fact_replies)):
        program = build("memory-r2", embedder=TextEmbedder("counted", compute, 384))
        facts = program.remember(make_history(1, turns=8)).memory.facts
    assert (len(facts) > 2, len(requests)) == (True, 1)


@pytest.mark.parametrize(("own", "found"), [(True, [["m1"], ["m2"]]), (False, [["m1", "m2"], ["m1", "m2"]])])
def test_related_memories_are_of_the_facts_speaker(own, found):
    edits = [Edit("INSERT", speaker=who, content="has a small dog named Rex") for who in ("Ann", "Bob")]
    writer: Any = build("memory-r2", embedder=embedder(), same_speaker=own).method.writer
    facts = [Fact(speaker=who, turn_id="D1:1", fact="has a small dog") for who in ("Ann", "Bob")]
    assert [sorted(ids) for ids in writer.relate(FactMemory().apply(edits), facts)] == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [({}, 4), ({"related": 3}, 3), ({"related_total": 2}, 2), ({"min_score": 0.999}, 0)],
)
def test_so_many_memories_are_related_as_are_near_enough_and_allowed(settings, found):
    edits = [
        Edit("INSERT", speaker="Ann", content=f"has a small dog named {name}") for name in ("Rex", "Pip", "Bo", "Al")
    ]
    writer: Any = build("memory-r2", embedder=embedder(), **settings).method.writer
    (ids,) = writer.relate(FactMemory().apply(edits), [Fact(speaker="Ann", turn_id="D1:1", fact="has a small dog")])
    assert len(ids) == found


def test_the_reader_shows_the_memories_of_each_speaker_on_their_own_side(scripted):
    edits = [Edit("INSERT", speaker=who, content=f"{who} has a small dog") for who in ("Ann", "Bob")]
    program = build("memory-r2", embedder=embedder())
    asked: list[str] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        asked.append(text)
        return {kind: "x", "answer": "x"}

    with dspy.context(lm=scripted(reply)):
        program.answer(FactMemory().apply(edits), Query(text="Who has a small dog?", speakers=("Ann", "Bob")))
    sides = [section(asked[0], f"{side}_speaker_memories") for side in ("first", "second")]
    assert [[who in side for who in ("Ann has", "Bob has")] for side in sides] == [[True, False], [False, True]]


def test_a_single_agent_edits_the_memory_from_the_turns(scripted, make_history):
    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        turn = section(text, "dialogue").split("]")[0].strip(" \n[")
        found = {"op": "INSERT", "speaker": "Ann", "content": f"fact of {turn}", "turn_id": turn}
        known = {"op": "DELETE", "memory_id": "m1"}
        return {"operations": [found, *([known] if '"m1"' in section(text, "memories") and turn == "D2:4" else [])]}

    asked: list[str] = []
    program = build("memory-r2", embedder=embedder(), single_agent=True, min_score=-1.0, same_speaker=False)
    with dspy.context(lm=scripted(lambda kind, text, n: (asked.append(text), reply(kind, text, n))[1])):
        memory: Any = program.remember(make_history(2, turns=4)).memory
    assert len(asked) == 8
    assert "D2:1" in section(asked[5], "earlier")
    assert [fact.content for fact in memory.facts][-1] == "fact of D2:4"
    assert [fact.sources for fact in memory.removed] == [("D1:1",)]
    assert set(program.writer_names()) == {"method.writer.edit"}
