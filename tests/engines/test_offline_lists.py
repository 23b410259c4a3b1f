"""Lists: one item per unit of the source, references, and what demos teach about both."""

from __future__ import annotations

from typing import Any, Literal

import dspy
import pydantic
import pytest

from tests.engines.offline_prediction import predict


class Fact(pydantic.BaseModel):
    fact: str
    speaker: str
    turn_id: str


class Entry(pydantic.BaseModel):
    id: str
    text: str
    speaker: str


class Operation(pydantic.BaseModel):
    op: Literal["INSERT", "UPDATE", "DELETE"]
    memory_id: str | None = None
    content: str
    speaker: str


class Extract(dspy.Signature):
    """Extract facts."""

    lines: str = dspy.InputField()
    facts: list[Fact] = dspy.OutputField()


class Manage(dspy.Signature):
    """Manage memories."""

    facts: list[Fact] = dspy.InputField()
    memories: list[Entry] = dspy.InputField()
    operations: list[Operation] = dspy.OutputField()


LINES = (
    "[D1:1] (8 May 2023, Monday 13:56) Ann: I moved to Rome last week.\n"
    "[D1:2] (8 May 2023, Monday 13:56) Bob: My dog Rex likes long walks. He is old."
)
FACTS = [
    Fact(fact="Ann moved to Rome in May", speaker="Ann", turn_id="D1:1"),
    Fact(fact="Bob bought a drum", speaker="Bob", turn_id="D1:2"),
]
MEMORIES = [
    Entry(id="m7", text="Ann moved to Rome", speaker="Ann"),
    Entry(id="m8", text="Bob cooks on Sundays", speaker="Bob"),
]


@pytest.mark.parametrize("adapter", [None, dspy.JSONAdapter()], ids=["chat", "json"])
def test_lines_become_one_fact_each_with_speaker_and_id(adapter: Any) -> None:
    facts = predict(Extract, adapter=adapter, lines=LINES).facts
    assert [(fact.fact, fact.speaker, fact.turn_id) for fact in facts] == [
        ("I moved to Rome last week.", "Ann", "D1:1"),
        ("My dog Rex likes long walks. He is old.", "Bob", "D1:2"),
    ]


def test_facts_become_insertions_and_the_referenced_list_is_no_source() -> None:
    operations = predict(Manage, facts=FACTS, memories=MEMORIES).operations
    assert [(o.op, o.content, o.speaker, o.memory_id) for o in operations] == [
        ("INSERT", "Ann moved to Rome in May", "Ann", "m7"),
        ("INSERT", "Bob bought a drum", "Bob", None),
    ]


def test_options_of_an_item_follow_the_most_alike_item_of_the_demos() -> None:
    sold = Fact(fact="Eve moved to Lima", speaker="Eve", turn_id="D2:1")
    cooked = Fact(fact="Joe bought a boat", speaker="Joe", turn_id="D2:2")
    made = [
        Operation(op="UPDATE", memory_id="m1", content=sold.fact, speaker="Eve"),
        Operation(op="DELETE", content=cooked.fact, speaker="Joe"),
    ]
    demo = {"facts": [sold, cooked], "memories": [Entry(id="m1", text="Eve moved", speaker="Eve")], "operations": made}
    operations = predict(Manage, [demo], facts=FACTS, memories=MEMORIES).operations
    assert [(o.op, o.memory_id) for o in operations] == [("UPDATE", "m7"), ("DELETE", None)]


@pytest.mark.parametrize(
    ("signature", "inputs", "expected"),
    [
        ("lines -> facts: list[str]", {"lines": LINES}, ["Ann: I moved to Rome last week.", None]),
        ("text -> facts: list[str]", {"text": "Ann moved. Bob stayed."}, ["Ann moved.", "Bob stayed."]),
        ("question -> queries: list[str]", {"question": "Where is Ann?"}, ["Where is Ann?"]),
        ("facts: list[str] -> kept: list[str]", {"facts": ["a b", "c d"]}, ["a b", "c d"]),
        ("facts: list[str] -> kept: list[str]", {"facts": []}, []),
        ("turns, question -> turn_ids: list[str]", {"turns": LINES, "question": "Who has a dog?"}, ["D1:2"]),
        ("turns, question -> turn_id", {"turns": LINES, "question": "Who has a dog?"}, "D1:2"),
    ],
)
def test_lists_of_text_and_ids(signature: str, inputs: dict[str, Any], expected: Any) -> None:
    value = next(iter(predict(signature, **inputs).values()))
    if isinstance(expected, list) and None in expected:
        value = [value[0], None]
    assert value == expected
