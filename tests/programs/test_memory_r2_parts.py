"""Memory-R2: parts of sessions, the memories that prompts show, and edits of facts.

Memory-R2 cuts a session into parts. A first prompt, whose output is "facts", extracts the facts of
a part. A second one, the manager, is shown them beside the memories that are near to them. Its
output is "operations", which insert, update or delete memories.

The script `fact_replies` makes one fact of every turn and inserts it. `result.prompt_fields(output,
field)` lists the values of an input field in all prompts with this output.
"""

import re
from datetime import datetime
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.signatures.memory_r2 import (
    Fact,
)
from mempiler.signatures.memory_r2_examples import management_examples

from .conftest import prompt_field


def memory_r2(**settings: Any) -> Any:
    """Return the method Memory-R2."""
    return build("memory-r2", embedder=embedder(), **settings)


def turn_ids_in(dialogue: str) -> list[str]:
    """Return the ids of the turns in a dialogue: D2:1 of "[D2:1] (3 March 2024) Ann: ..."."""
    return re.findall(r"^\[(D\d+:\d+)\]", dialogue, re.MULTILINE)


# Parts of a session


@pytest.mark.parametrize(
    ("turn_count", "settings", "turns_of_parts"),
    [
        pytest.param(8, {}, [2, 2, 2, 2], id="four equal parts"),
        # A part has a quarter of the turns, rounded up, as in the released code.
        pytest.param(7, {}, [2, 2, 2, 1], id="a shorter last part"),
        pytest.param(5, {}, [2, 2, 1], id="three parts, since two turns in each are enough"),
        pytest.param(9, {"chunk_turns": 4}, [4, 4, 1], id="parts of four turns"),
    ],
)
def test_a_session_is_cut_into_parts(
    write_memory: Any,
    fact_replies: Any,
    make_history: Any,
    turn_count: int,
    settings: dict[str, int],
    turns_of_parts: list[int],
) -> None:
    """Facts are extracted from one part of a session at a time, so that prompts stay short.

    A session is cut into four parts at most, unless `chunk_turns` sets how many turns a part has.
    """
    history = make_history(sessions=1, turns=turn_count)

    result = write_memory(memory_r2(**settings), history, fact_replies)

    dialogues = result.prompt_fields("facts", "dialogue")
    lengths = [len(turn_ids_in(dialogue)) for dialogue in dialogues]
    # Parts are read concurrently, so their order says nothing.
    assert sorted(lengths, reverse=True) == turns_of_parts


def test_a_part_is_shown_with_the_earlier_turns_of_its_session(
    write_memory: Any, fact_replies: Any, make_history: Any
) -> None:
    """A part may say "he" or "there"; the earlier turns tell the model what is meant.

    Here every part of a session is a single turn.
    """
    history = make_history(sessions=2, turns=3)

    result = write_memory(memory_r2(chunk_turns=1), history, fact_replies)

    dialogues = result.prompt_fields("facts", "dialogue")
    earlier_turns = result.prompt_fields("facts", "earlier")
    earlier_ids: dict[str, list[str]] = {}
    for dialogue, earlier in zip(dialogues, earlier_turns, strict=True):
        [turn_id] = turn_ids_in(dialogue)
        earlier_ids[turn_id] = turn_ids_in(earlier)
    assert earlier_ids == {
        "D1:1": [],
        "D1:2": ["D1:1"],
        "D1:3": ["D1:1", "D1:2"],
        "D2:1": [],
        "D2:2": ["D2:1"],
        "D2:3": ["D2:1", "D2:2"],
    }


def test_the_manager_is_shown_the_facts_of_the_earlier_parts_of_the_session(
    write_memory: Any, fact_replies: Any, make_history: Any
) -> None:
    """The manager is the prompt that decides how the new facts of a part change the memory.

    Here every part is a single turn, of which the scripted model makes one fact.
    """
    history = make_history(sessions=2, turns=3)

    result = write_memory(memory_r2(chunk_turns=1), history, fact_replies)

    earlier_facts = result.prompt_fields("operations", "earlier_facts")
    earlier_ids = [re.findall(r"D\d:\d", facts) for facts in earlier_facts]
    assert earlier_ids == [
        [],
        ["D1:1"],
        ["D1:1", "D1:2"],
        [],
        ["D2:1"],
        ["D2:1", "D2:2"],
    ]


def test_the_facts_of_a_session_are_embedded_in_one_request(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """An embedding model turns a fact into a vector, to find the memories that are near to it.

    It may be a server, where each request takes its time.
    """
    texts_of_requests: list[list[str]] = []

    def record_and_embed(texts: Any) -> Any:
        texts_of_requests.append(list(texts))
        return embedder().embed(texts)

    recording_embedder = TextEmbedder("recording", record_and_embed, embedder().dimension)
    program = build("memory-r2", embedder=recording_embedder)
    with dspy.context(lm=scripted(fact_replies)):
        program.remember(make_history(sessions=1, turns=8))

    # The scripted model makes a fact of each of the eight turns.
    [texts] = texts_of_requests
    assert len(texts) == 8


# Memories that are shown


def memory_of(*facts: tuple[str, str]) -> FactMemory:
    """Return a memory with the facts m1, m2, ..., each from a speaker and a text."""
    inserts = [Edit("INSERT", speaker=speaker, content=content) for speaker, content in facts]
    return FactMemory().apply(inserts)


@pytest.mark.parametrize(
    ("same_speaker", "shown_ids"),
    [
        (True, ["m1"]),
        (False, ["m1", "m2"]),
    ],
)
def test_a_new_fact_may_change_memories_of_its_speaker_alone_unless_set_otherwise(
    same_speaker: bool, shown_ids: list[str]
) -> None:
    """A model that learns of Ann's dog is not shown the memory of Bob's, and cannot change it."""
    memory = memory_of(
        ("Ann", "has a small dog named Rex"),
        ("Bob", "has a small dog named Rex"),
    )
    fact_of_ann = Fact(speaker="Ann", turn_id="D1:1", fact="has a small dog")
    writer = memory_r2(same_speaker=same_speaker).method.writer

    [related_ids] = writer.relate(memory, [fact_of_ann])

    assert sorted(related_ids) == shown_ids


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        pytest.param({}, 4, id="by default all that are near"),
        pytest.param({"related": 3}, 3, id="three for each new fact"),
        pytest.param({"related_total": 2}, 2, id="two for all new facts together"),
        pytest.param({"min_score": 0.999}, 0, id="only memories that say the very same"),
    ],
)
def test_settings_limit_how_many_memories_are_shown_beside_a_new_fact(
    settings: dict[str, Any], count: int
) -> None:
    """The prompt that changes the memory is shown those that say nearly the same as a new fact."""
    # All four say nearly the same as the new fact.
    memory = memory_of(
        ("Ann", "has a small dog named Rex"),
        ("Ann", "has a small dog named Pip"),
        ("Ann", "has a small dog named Bo"),
        ("Ann", "has a small dog named Al"),
    )
    fact = Fact(speaker="Ann", turn_id="D1:1", fact="has a small dog")

    (related_ids,) = memory_r2(**settings).method.writer.relate(memory, [fact])

    assert len(related_ids) == count


# One agent alone


def insert_every_turn_and_delete_the_first_at_turn_3(
    kind: str, text: str, n: int
) -> dict[str, Any]:
    """Answer as a single agent: insert a fact of every turn, and at D1:3 delete the fact of D1:1.

    The memory m1 is the fact of D1:1.
    """
    [turn_id] = turn_ids_in(prompt_field(text, "dialogue"))
    insert = {
        "op": "INSERT",
        "speaker": "Ann",
        "content": f"fact of {turn_id}",
        "turn_id": turn_id,
    }
    delete = {"op": "DELETE", "memory_id": "m1"}
    return {"operations": [insert, delete] if turn_id == "D1:3" else [insert]}


def single_agent() -> Any:
    """Return Memory-R2 with one prompt, which reads a turn at a time and sees all memories."""
    return memory_r2(single_agent=True, chunk_turns=1, min_score=-1.0, same_speaker=False)


def test_a_single_agent_edits_the_memory_from_the_turns(
    write_memory: Any, make_history: Any
) -> None:
    """A single agent is one prompt that reads turns and changes the memory at once.

    The paper compares this with two prompts, of which the first extracts facts. Here the agent
    reads one turn at a time.
    """
    history = make_history(sessions=1, turns=3)

    result = write_memory(single_agent(), history, insert_every_turn_and_delete_the_first_at_turn_3)

    # There was a prompt for each turn, and none that extracts facts.
    assert result.calls == {"operations": 3}
    assert [fact.content for fact in result.memory.facts] == ["fact of D1:2", "fact of D1:3"]
    [removed_fact] = result.memory.removed
    assert removed_fact.content == "fact of D1:1"


# Edits of the memory

ANN_AND_BOB = FactMemory().apply(
    [
        Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D1:1",)),
        Edit("INSERT", speaker="Bob", content="Bob plays the cello", sources=("D1:2",)),
    ]
)
"""A memory of two facts, m1 and m2."""

TEXTS_OF_ANN_AND_BOB = ["Ann lives in Lisbon", "Bob plays the cello"]


def texts_of(memory: FactMemory) -> list[str]:
    return [fact.content for fact in memory.facts]


def test_an_insertion_of_a_known_fact_adds_its_turn_to_the_fact() -> None:
    """The same fact is not stored twice; here its wording differs by blanks alone."""
    first = Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D1:1",))
    again = Edit("INSERT", speaker="Ann", content="Ann lives in  Lisbon ", sources=("D2:1",))

    memory = FactMemory().apply([first, again])

    [fact] = memory.facts
    assert fact.content == "Ann lives in Lisbon"
    assert fact.sources == ("D1:1", "D2:1")
    assert memory.counts == {"inserted": 1, "merged": 1}


def test_a_deleted_fact_is_kept_among_the_removed_ones() -> None:
    memory = ANN_AND_BOB.apply([Edit("DELETE", memory_id="m2")], shown_ids=["m2"])

    assert texts_of(memory) == ["Ann lives in Lisbon"]
    assert [fact.content for fact in memory.removed] == ["Bob plays the cello"]
    assert memory.counts["deleted"] == 1


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(Edit("INSERT", speaker="Ann", content="  "), id="insertion without text"),
        pytest.param(Edit("UPDATE", memory_id="m1", content=""), id="update without text"),
        pytest.param(Edit("UPDATE", memory_id="m9", content="x"), id="update of an unknown fact"),
        pytest.param(Edit("UPDATE", memory_id="m2", content="x"), id="update of a hidden fact"),
        pytest.param(Edit("DELETE", memory_id="m2"), id="deletion of a hidden fact"),
    ],
)
def test_an_edit_that_cannot_be_carried_out_is_refused_and_counted(edit: Edit) -> None:
    """A model may change only facts that it was shown, and a fact must have a text.

    The memory has the facts m1 and m2. The model was shown m1, so that m2 was hidden from it; it
    names a fact m9 that does not exist.
    """
    memory = ANN_AND_BOB.apply([edit], shown_ids=["m1", "m9"])

    assert texts_of(memory) == TEXTS_OF_ANN_AND_BOB
    assert memory.counts["refused"] == 1


def test_an_updated_fact_keeps_all_its_turns_its_old_wording_and_its_date() -> None:
    """A user can see where a changed fact came from: its sources are turns of both sessions."""
    march = datetime(2024, 3, 1)
    april = datetime(2024, 4, 1)
    lisbon = Edit("INSERT", content="Ann lives in Lisbon", sources=("D1:1",))
    porto = Edit("UPDATE", memory_id="m1", content="Ann lives in Porto", sources=("D2:1",))

    memory = FactMemory().apply([lisbon], time=march)
    memory = memory.apply([porto], shown_ids=["m1"], time=april)

    [fact] = memory.facts
    assert fact.content == "Ann lives in Porto"
    assert fact.earlier == ("Ann lives in Lisbon",)
    assert fact.sources == ("D1:1", "D2:1")
    assert fact.time == march
    assert fact.updated == april
    assert memory.counts == {"inserted": 1, "updated": 1}


def test_a_memory_that_was_loaded_recognises_a_known_fact() -> None:
    """Facts are found by their wording in an index, which is not stored with the memory."""
    loaded_memory = FactMemory.model_validate_json(ANN_AND_BOB.model_dump_json())
    again = Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D2:1",))

    memory = loaded_memory.apply([again])

    assert texts_of(memory) == TEXTS_OF_ANN_AND_BOB
    assert memory.facts[0].sources == ("D1:1", "D2:1")


def test_a_memory_with_a_reworded_fact_recognises_the_new_wording_and_not_the_old_one() -> None:
    """Facts are found by their wording in an index, which a memory with other facts makes anew.

    A user has reworded "Ann lives in Lisbon". Then each of both wordings is said again.
    """
    fact_of_ann, fact_of_bob = ANN_AND_BOB.facts
    reworded_fact = fact_of_ann.replace(content="Ann lives in Porto")
    memory = ANN_AND_BOB.replace(facts=(reworded_fact, fact_of_bob))
    new_wording = Edit("INSERT", speaker="Ann", content="Ann lives in Porto", sources=("D2:1",))
    old_wording = Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D2:2",))

    memory = memory.apply([new_wording]).apply([old_wording])

    assert [(fact.content, fact.sources) for fact in memory.facts] == [
        ("Ann lives in Porto", ("D1:1", "D2:1")),
        ("Bob plays the cello", ("D1:2",)),
        ("Ann lives in Lisbon", ("D2:2",)),
    ]


EDITS = st.builds(
    Edit,
    op=st.sampled_from(["INSERT", "UPDATE", "DELETE", "NONE"]),
    memory_id=st.sampled_from([None, "m1", "m2", "m3", "m4", "zz"]),
    speaker=st.sampled_from(["Ann", "Bob"]),
    content=st.sampled_from(["", "a", " a ", "b", "Ann lives in Lisbon"]),
    sources=st.lists(st.sampled_from(["D1:1", "D2:1", "D3:1"]), max_size=2).map(tuple),
)


@given(
    edits=st.lists(EDITS, max_size=12),
    shown_ids=st.lists(st.sampled_from(["m1", "m2", "m3", "m4"]), max_size=4),
)
def test_no_source_is_ever_lost(edits: list[Edit], shown_ids: list[str]) -> None:
    """Whatever a model answers, the turns that facts came from stay known.

    The memory has two facts, from the turns D1:1 and D1:2. Random edits are applied, which may
    remove both facts. The sources of a fact are the turns that it came from.
    """
    memory = ANN_AND_BOB.apply(edits, shown_ids)

    sources: set[str] = set()
    for fact in [*memory.facts, *memory.removed]:
        sources.update(fact.sources)
    assert {"D1:1", "D1:2"} <= sources


@given(
    edits=st.lists(EDITS, max_size=12),
    shown_ids=st.lists(st.sampled_from(["m1", "m2", "m3", "m4"]), max_size=4),
)
def test_every_edit_is_counted_and_ids_stay_unique(edits: list[Edit], shown_ids: list[str]) -> None:
    """A memory counts how many edits had an outcome, such as "inserted" or "refused"."""
    edits_before = sum(ANN_AND_BOB.counts.values())

    memory = ANN_AND_BOB.apply(edits, shown_ids)

    assert sum(memory.counts.values()) == edits_before + len(edits)
    fact_ids = [fact.id for fact in memory.facts]
    assert len(set(fact_ids)) == len(fact_ids)


# Worked examples


@pytest.mark.parametrize(
    ("settings", "predictors"),
    [
        ({}, set()),
        ({"examples": True}, {"extract_facts", "manage"}),
        ({"examples": True, "single_agent": True}, {"edit"}),
    ],
)
def test_prompts_begin_with_worked_examples_where_that_is_set(
    settings: dict[str, bool], predictors: set[str]
) -> None:
    """Worked examples are inputs with good answers, called demos, which a prompt shows first."""
    writer = memory_r2(**settings).method.writer

    predictors_with_demos: set[str] = set()
    for name, predictor in writer.predictors_below().items():
        if predictor.demos:
            predictors_with_demos.add(name)
    assert predictors_with_demos == predictors


def memory_after_example_of_manager() -> FactMemory:
    """Carry out the operations of the manager's worked example on the memories that it shows."""
    example = management_examples()[0]
    facts_before = [(memory.speaker, memory.content) for memory in example.memories]
    edits = [
        Edit(
            operation.op,
            memory_id=operation.memory_id,
            speaker=operation.speaker,
            content=operation.content,
            sources=(operation.turn_id,),
        )
        for operation in example.operations
    ]
    shown_ids = [memory.memory_id for memory in example.memories]
    return memory_of(*facts_before).apply(edits, shown_ids)


def test_the_operations_of_the_worked_example_of_the_manager_can_be_carried_out() -> None:
    """The manager is the prompt that decides how new facts change the memory.

    A model imitates the example, whose operations update m1, delete m3, and insert m5, m6 and m7.
    """
    memory = memory_after_example_of_manager()

    assert memory.counts.get("refused", 0) == 0
    assert {fact.id: fact.content for fact in memory.facts} == {
        "m1": "Leo visited the pottery fair in Bruges with Ina on 7 May 2023.",
        "m2": "Ina is Leo's younger sister.",
        "m4": "Mia went to a guitar concert in Ghent in 2022.",
        "m5": "Leo bought a blue teapot at the pottery fair in Bruges on 7 May 2023.",
        "m6": "Mia intends to learn the guitar in summer 2023.",
        "m7": "Mia has owned a guitar for ten years as of May 2023.",
    }
