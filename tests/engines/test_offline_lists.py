"""Lists: one item per unit of the source, references, and what demos teach about both."""

from __future__ import annotations

from typing import Any, Literal

import dspy
import pydantic
import pytest
from mempiler.engines.offline import OfflineEngine

make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""


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


def run(
    signature: Any, demos: list[dict[str, Any]] | None = None, adapter: Any = None, **inputs: Any
) -> dspy.Prediction:
    predict = dspy.Predict(signature)
    predict.demos = demos or []
    lm = dspy.LM("offline/extractive-1", engine=OfflineEngine(), temperature=0.0, cache=False)
    with dspy.context(lm=lm, adapter=adapter or dspy.ChatAdapter(use_json_adapter_fallback=False)):
        return predict(**inputs)


@pytest.mark.parametrize("adapter", [None, dspy.JSONAdapter()], ids=["chat", "json"])
def test_lines_become_one_fact_each_with_speaker_and_id(adapter: Any) -> None:
    facts = run(Extract, adapter=adapter, lines=LINES).facts
    assert [(fact.fact, fact.speaker, fact.turn_id) for fact in facts] == [
        ("I moved to Rome last week.", "Ann", "D1:1"),
        ("My dog Rex likes long walks. He is old.", "Bob", "D1:2"),
    ]


def test_facts_become_insertions_and_the_referenced_list_is_no_source() -> None:
    operations = run(Manage, facts=FACTS, memories=MEMORIES).operations
    assert [(o.op, o.content, o.speaker, o.memory_id) for o in operations] == [
        ("INSERT", "Ann moved to Rome in May", "Ann", "m7"),
        ("INSERT", "Bob bought a drum", "Bob", None),
    ]


def test_demos_teach_which_operation_a_near_duplicate_wants() -> None:
    old = Entry(id="m1", text="Eve sold a car", speaker="Eve")
    cases = [
        (Fact(fact="Eve sold a car in June", speaker="Eve", turn_id="D2:1"), "UPDATE", "m1"),
        (Fact(fact="Joe learns Spanish", speaker="Joe", turn_id="D2:2"), "INSERT", None),
    ]
    demos = [
        {
            "facts": [fact],
            "memories": [old],
            "operations": [Operation(op=op, memory_id=target, content=fact.fact, speaker=fact.speaker)],
        }
        for fact, op, target in cases
    ]
    operations = run(Manage, demos, facts=FACTS, memories=MEMORIES).operations
    assert [(o.op, o.memory_id) for o in operations] == [("UPDATE", "m7"), ("INSERT", None)]


def chat(pairs: list[tuple[str, bool]]) -> dict[str, Any]:
    lines = "\n".join(f"[D9:{n}] (1 May 2020) Eve: {text}" for n, (text, _) in enumerate(pairs))
    kept = [Fact(fact=text, speaker="Eve", turn_id=f"D9:{n}") for n, (text, keep) in enumerate(pairs) if keep]
    return {"lines": lines, "facts": kept}


@pytest.mark.parametrize(("greetings", "kept"), [(2, 2), (12, 1)])
def test_items_are_dropped_only_on_strong_evidence(greetings: int, kept: int) -> None:
    demo = chat([*((f"Hello hello dear friend {n}", False) for n in range(greetings)), ("Eve sold a car", True)])
    lines = "[D1:1] (8 May 2023) Ann: Hello dear friend\n[D1:2] (8 May 2023) Bob: Tom sold a car"
    assert len(run(Extract, [demo], lines=lines).facts) == kept


def test_a_demo_shows_which_part_of_a_unit_a_property_is() -> None:
    class Note(pydantic.BaseModel):
        who: str
        what: str

    signature = make_signature(
        {"lines": (str, dspy.InputField()), "notes": (list[Note], dspy.OutputField())}, "Take notes."
    )
    demo = {"lines": "[D1:1] (1 May 2020) Eve: I sold a car", "notes": [Note(who="Eve", what="I sold a car")]}
    notes = run(signature, [demo], lines=LINES).notes
    assert (notes[0].who, notes[0].what) == ("Ann", "I moved to Rome last week.")


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
    value = next(iter(run(signature, **inputs).values()))
    if isinstance(expected, list) and None in expected:
        value = [value[0], None]
    assert value == expected
