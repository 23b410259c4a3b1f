"""Proof that the engine is general: renamed fields and rewritten instructions leave its outputs as they were.

`generality` (in conftest.py) makes the renamed twin of a signature and compares; here it is given signatures that no
part of the suite has. `test_offline_suite.py` gives it the suite's own.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import dspy
import pydantic
import pytest

make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""


class Entry(pydantic.BaseModel):
    id: str
    text: str
    speaker: str


class Operation(pydantic.BaseModel):
    op: Literal["INSERT", "UPDATE"]
    memory_id: str | None = None
    content: str
    speaker: str


class Step(pydantic.BaseModel):
    goal: str
    weight: float = pydantic.Field(ge=0, le=1)
    keywords: list[str]


class Plan(pydantic.BaseModel):
    title: str
    steps: list[Step]


class Manage(dspy.Signature):
    """Decide what happens to the memories; the newest fact wins."""

    memories: list[Entry] = dspy.InputField(desc="what is known")
    facts: list[Entry] = dspy.InputField(desc="new facts")
    operations: list[Operation] = dspy.OutputField(desc="one per fact")


class MakePlan(dspy.Signature):
    """Plan the search for an answer."""

    summary: str = dspy.InputField()
    question: str = dspy.InputField()
    plan: Plan = dspy.OutputField()


class Rate(dspy.Signature):
    """Rate the memories."""

    memories: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    verdict: Literal["good", "bad"] = dspy.OutputField()
    score: int = dspy.OutputField()
    sure: bool = dspy.OutputField()
    seen: date = dspy.OutputField()


SIGNATURES: list[Any] = [
    make_signature("context, question -> answer", "Answer from the context."),
    make_signature("context, question -> reasoning, answer", "Think first."),
    make_signature("lines -> facts: list[str]", "List the facts."),
    make_signature("profile, lines -> new_profile", "Update the profile."),
    make_signature("turns: list[str], question -> turn_ids: list[str]", "Choose turns."),
    Manage,
    MakePlan,
    Rate,
]


@pytest.mark.parametrize("adapter", [None, dspy.JSONAdapter()], ids=["chat", "json"])
@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: f"{signature.__name__} {signature.signature}")
def test_names_and_wording_do_not_matter(generality: Any, signature: Any, adapter: Any) -> None:
    generality.check(signature, adapter=adapter)


DEMOS = [
    {"question": "When did Joe leave Rome?", "answer": "3 March 2022"},
    {"question": "When is the fair?", "answer": "12 July 2021"},
    {"question": "What did Eve eat?", "answer": "fish soup"},
]


def test_names_do_not_matter_where_demos_teach(generality: Any) -> None:
    generality.check(SIGNATURES[0], DEMOS)


def test_demos_do_change_the_outputs_that_are_compared(generality: Any) -> None:
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    inputs = generality.samples(SIGNATURES[0])
    assert generality.outputs(SIGNATURES[0], inputs, [], adapter) == ["I joined a pottery class yesterday."]
    assert generality.outputs(SIGNATURES[0], inputs, DEMOS, adapter) == ["7 May 2023"]


def test_wording_that_the_engine_obeys_is_seen(generality: Any) -> None:
    """A cue in the instructions is gone in the twin, so that the comparison must fail."""
    with pytest.raises(AssertionError):
        generality.check(make_signature("context, question -> answer", "Answer in at most two words."))
