"""How Memory-R2 cuts a session, what a part sees, one agent alone, and facts that are edited by operations."""

from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Query, build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.signatures.memory_r2 import (
    EditMemory,
    ExtractFactsInContext,
    Fact,
    ManageMemoryInContext,
)
from mempiler.signatures.memory_r2_examples import management_examples

from .conftest import section


def made(**config: Any) -> Any:
    return build("memory-r2", embedder=embedder(), **config)


@pytest.mark.parametrize(
    ("turns", "config", "sizes"),
    [
        (8, {}, [2, 2, 2, 2]),
        (17, {}, [5, 5, 5, 2]),
        (5, {}, [2, 2, 1]),  # the released code rounds up as well, so the fourth part is missing
        (9, {"chunk_turns": 4}, [4, 4, 1]),
    ],
)
def test_a_session_is_cut_into_parts(written, fact_replies, make_history, turns, config, sizes):
    found = written(made(**config), make_history(1, turns=turns), fact_replies).shown(
        "facts", "dialogue"
    )
    assert sorted((part.count("] (") for part in found), reverse=True) == sizes


def test_a_part_is_shown_with_the_earlier_ones_as_context(written, fact_replies, make_history):
    found = written(made(), make_history(2, turns=4), fact_replies)
    parts = zip(found.shown("facts", "dialogue"), found.shown("facts", "earlier"), strict=True)
    by_turn = {dialogue.split("]")[0].strip("["): earlier for dialogue, earlier in parts}
    assert by_turn["D1:1"] == by_turn["D2:1"] == ""
    assert [id in by_turn["D2:3"] for id in ("D2:1", "D2:2", "D2:3", "D1:1")] == [
        True,
        True,
        False,
        False,
    ]
    assert [text.count("turn_id") for text in found.shown("operations", "earlier_facts")] == [
        0,
        1,
        2,
        3,
    ] * 2


def test_the_facts_of_a_session_are_embedded_in_one_request(scripted, fact_replies, make_history):
    requests: list[list[str]] = []

    def compute(texts: Any) -> Any:
        requests.append(list(texts))
        return embedder().embed(texts)

    with dspy.context(lm=scripted(fact_replies)):
        program = build("memory-r2", embedder=TextEmbedder("counted", compute, 384))
        facts = program.remember(make_history(1, turns=8)).memory.facts
    assert len(facts) > 2
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("own", "found"), [(True, [["m1"], ["m2"]]), (False, [["m1", "m2"], ["m1", "m2"]])]
)
def test_related_memories_are_of_the_facts_speaker(own, found):
    edits = [
        Edit("INSERT", speaker=who, content="has a small dog named Rex") for who in ("Ann", "Bob")
    ]
    writer = made(same_speaker=own).method.writer
    facts = [Fact(speaker=who, turn_id="D1:1", fact="has a small dog") for who in ("Ann", "Bob")]
    assert [sorted(ids) for ids in writer.relate(FactMemory().apply(edits), facts)] == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [({}, 4), ({"related": 3}, 3), ({"related_total": 2}, 2), ({"min_score": 0.999}, 0)],
)
def test_so_many_memories_are_related_as_are_near_enough_and_allowed(settings, found):
    edits = [
        Edit("INSERT", speaker="Ann", content=f"has a small dog named {name}")
        for name in ("Rex", "Pip", "Bo", "Al")
    ]
    writer = made(**settings).method.writer
    (ids,) = writer.relate(
        FactMemory().apply(edits), [Fact(speaker="Ann", turn_id="D1:1", fact="has a small dog")]
    )
    assert len(ids) == found


def test_the_reader_shows_the_memories_of_each_speaker_on_their_own_side(scripted):
    edits = [
        Edit("INSERT", speaker=who, content=f"{who} has a small dog") for who in ("Ann", "Bob")
    ]
    lm = scripted(lambda kind, text, n: {kind: "x", "answer": "x"})
    with dspy.context(lm=lm):
        made().answer(
            FactMemory().apply(edits), Query(text="Who has a small dog?", speakers=("Ann", "Bob"))
        )
    sides = [
        section(lm.engine.prompts[0][1], f"{side}_speaker_memories") for side in ("first", "second")
    ]
    assert [[who in side for who in ("Ann has", "Bob has")] for side in sides] == [
        [True, False],
        [False, True],
    ]


def test_a_single_agent_edits_the_memory_from_the_turns(written, make_history):
    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        turn = section(text, "dialogue").split("]")[0].strip("[")
        found = {"op": "INSERT", "speaker": "Ann", "content": f"fact of {turn}", "turn_id": turn}
        known = {"op": "DELETE", "memory_id": "m1"}
        return {
            "operations": [
                found,
                *([known] if '"m1"' in section(text, "memories") and turn == "D2:4" else []),
            ]
        }

    program = made(single_agent=True, min_score=-1.0, same_speaker=False)
    found = written(program, make_history(2, turns=4), reply)
    assert len(found.prompts) == 8
    assert "D2:1" in section(found.prompts[5][1], "earlier")
    assert [fact.content for fact in found.memory.facts][-1] == "fact of D2:4"
    assert [fact.sources for fact in found.memory.removed] == [("D1:1",)]
    assert set(program.writer_names()) == {"method.writer.edit"}


BASE = FactMemory().apply(
    [
        Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D1:1",)),
        Edit("INSERT", speaker="Bob", content="Bob plays the cello", sources=("D1:2",)),
    ]
)


def test_a_copy_with_other_facts_finds_duplicates_among_these():
    reworded = BASE.facts[0].replace(content="Ann lives in Porto")
    memory = BASE.replace(facts=(reworded, BASE.facts[1]))
    memory = memory.apply(
        [Edit("INSERT", speaker="Ann", content="Ann lives in Porto", sources=("D2:1",))]
    )
    memory = memory.apply(
        [Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D2:2",))]
    )
    contents = ["Ann lives in Porto", "Bob plays the cello", "Ann lives in Lisbon"]
    assert [fact.content for fact in memory.facts] == contents
    assert memory.counts["merged"] == 1
    assert memory.counts["inserted"] == 3
    assert memory.facts[0].sources == ("D1:1", "D2:1")


@pytest.mark.parametrize(
    ("edit", "shown", "outcome", "contents"),
    [
        (
            Edit("INSERT", speaker="Ann", content="Ann has a dog", sources=("D2:1",)),
            [],
            "inserted",
            3,
        ),
        (
            Edit("INSERT", speaker="Ann", content="Ann lives in  Lisbon ", sources=("D2:1",)),
            [],
            "merged",
            2,
        ),
        (Edit("INSERT", speaker="Ann", content="  "), [], "refused", 2),
        (Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",)), ["m1"], "updated", 2),
        (Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",)), [], "refused", 2),
        (Edit("UPDATE", "m9", "Ann", "x"), ["m9"], "refused", 2),
        (Edit("UPDATE", "m1", "Ann", ""), ["m1"], "refused", 2),
        (Edit("DELETE", "m2"), ["m2"], "deleted", 1),
        (Edit("DELETE", "m2"), ["m1"], "refused", 2),
        (Edit("NONE"), [], "unchanged", 2),
    ],
)
def test_each_operation_does_what_it_says_and_is_counted(edit, shown, outcome, contents):
    memory = BASE.apply([edit], shown)
    assert memory.counts[outcome] == BASE.counts.get(outcome, 0) + 1
    assert len(memory.facts) == contents


def test_an_update_keeps_both_provenances_the_old_wording_and_the_first_date():
    fact = BASE.apply([Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",))], ["m1"]).facts[
        0
    ]
    assert fact.sources == ("D1:1", "D2:1")
    assert fact.earlier == ("Ann lives in Lisbon",)
    assert fact.time == BASE.facts[0].time


edits = st.builds(
    Edit,
    op=st.sampled_from(["INSERT", "UPDATE", "DELETE", "NONE"]),
    memory_id=st.sampled_from([None, "m1", "m2", "m3", "m4", "zz"]),
    speaker=st.sampled_from(["Ann", "Bob"]),
    content=st.sampled_from(["", "a", " a ", "b", "Ann lives in Lisbon"]),
    sources=st.lists(st.sampled_from(["D1:1", "D2:1", "D3:1"]), max_size=2).map(tuple),
)


@given(
    st.lists(edits, max_size=12), st.lists(st.sampled_from(["m1", "m2", "m3", "m4"]), max_size=4)
)
def test_no_source_is_ever_lost_and_every_edit_is_counted(batch, shown):
    before = BASE.model_dump_json()
    memory = BASE.apply(batch, shown)
    kept = {source for fact in (*memory.facts, *memory.removed) for source in fact.sources}
    assert {"D1:1", "D1:2"} <= kept
    assert sum(memory.counts.values()) == sum(BASE.counts.values()) + len(batch)
    assert BASE.model_dump_json() == before
    assert len({fact.id for fact in memory.facts}) == len(memory.facts)


@pytest.mark.parametrize(
    ("config", "first_answers"),
    [
        ({}, {}),
        ({"examples": True}, {"extract_facts": 4, "manage": 5}),
        ({"examples": True, "earlier": False}, {"extract_facts": 4, "manage": 5}),
        ({"examples": True, "single_agent": True}, {"edit": 5}),
    ],
)
def test_prompts_begin_with_worked_examples_where_that_is_set(
    config: Any, first_answers: dict[str, int]
) -> None:
    writer = made(**config).method.writer
    demos = {
        name: predictor.demos
        for name, predictor in writer.predictors_below().items()
        if predictor.demos
    }
    answers = {"extract_facts": "facts", "manage": "operations", "edit": "operations"}
    assert {
        name: len(examples[0][answers[name]]) for name, examples in demos.items()
    } == first_answers
    for name, examples in demos.items():
        fields = getattr(writer, name).signature.fields
        assert all(set(example.keys()) == set(fields) for example in examples), name


def test_the_worked_example_of_the_manager_keeps_its_own_rules() -> None:
    example = management_examples()[0]
    memory = FactMemory().apply(
        [Edit("INSERT", None, old.speaker, old.content) for old in example.memories]
    )
    edits = [
        Edit(op.op, op.memory_id, op.speaker, op.content, (op.turn_id,))
        for op in example.operations
    ]
    memory = memory.apply(edits, [old.memory_id for old in example.memories])
    assert memory.counts.get("refused", 0) == 0
    assert [(fact.id, fact.content) for fact in memory.facts] == [
        ("m1", "Leo visited the pottery fair in Bruges with Ina on 7 May 2023."),
        ("m2", "Ina is Leo's younger sister."),
        ("m4", "Mia went to a guitar concert in Ghent in 2022."),
        ("m5", "Leo bought a blue teapot at the pottery fair in Bruges on 7 May 2023."),
        ("m6", "Mia intends to learn the guitar in summer 2023."),
        ("m7", "Mia has owned a guitar for ten years as of May 2023."),
    ]
    assert all(len(fact.content.split()) <= 20 for fact in memory.facts)


def test_earlier_turns_are_shown_before_the_turns_to_be_read() -> None:
    fields = {
        kind: list(kind.input_fields)
        for kind in (ExtractFactsInContext, ManageMemoryInContext, EditMemory)
    }
    assert fields == {
        ExtractFactsInContext: ["earlier", "dialogue"],
        ManageMemoryInContext: ["session_date", "memories", "earlier_facts", "new_facts"],
        EditMemory: ["session_date", "memories", "earlier", "dialogue"],
    }
