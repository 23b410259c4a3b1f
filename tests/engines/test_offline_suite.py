"""The engine knows no prompt of the suite by its names or wording: every signature of `mempiler.signatures` is filled
as its renamed, rewritten twin is, without demos and with one.

Inputs are made from the types of the fields, see `generality` in conftest.py. That a signature passes also says that
its own instructions hold no cue the engine obeys, so that demos alone shape its answers.
"""

from datetime import date
from typing import Any, Literal

import dspy
import pytest

from tests.engines.offline_prediction import make_signature
from tests.suite import suite

SUITE = suite()
ADAPTERS = {"chat": dspy.ChatAdapter(use_json_adapter_fallback=False), "json": dspy.JSONAdapter()}

each_signature = pytest.mark.parametrize("signature", SUITE, ids=lambda signature: signature.__name__)
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)


def test_the_walk_finds_signatures_of_every_room() -> None:
    names = {signature.__name__ for signature in SUITE}
    assert {"AnswerFromContext", "ExtractFacts", "ManageMemory", "AnswerFromMemories"} <= names


@each_adapter
@each_signature
def test_names_and_wording_of_the_suite_do_not_matter(generality: Any, signature: Any, adapter: Any) -> None:
    generality.check(signature, adapter=adapter)


@each_signature
def test_names_of_the_suite_do_not_matter_where_a_demo_teaches(generality: Any, signature: Any) -> None:
    generality.check(signature, [generality.demo(signature)])


@each_signature
def test_every_output_of_the_suite_says_something(generality: Any, signature: Any) -> None:
    """Twins that are both empty would be equal, and prove nothing."""
    outputs = generality.outputs(signature, generality.samples(signature), [], ADAPTERS["chat"])
    assert all(outputs)


class Rate(dspy.Signature):
    """Rate the memories."""

    memories: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    verdict: Literal["good", "bad"] = dspy.OutputField()
    score: int = dspy.OutputField()
    sure: bool = dspy.OutputField()
    seen: date = dspy.OutputField()


ANSWER = make_signature("context, question -> answer", "Answer from the context.")
DEMOS = [
    {"question": "When did Joe leave Rome?", "answer": "3 March 2022"},
    {"question": "When is the fair?", "answer": "12 July 2021"},
    {"question": "What did Eve eat?", "answer": "fish soup"},
]


@pytest.mark.parametrize(
    ("signature", "demos"),
    [
        (ANSWER, DEMOS),
        (make_signature("profile, lines -> new_profile", "Update the profile."), []),
        (make_signature("turns: list[str], question -> turn_ids: list[str]", "Choose turns."), []),
        (Rate, []),
    ],
    ids=["demos", "revision", "ids", "values"],
)
def test_names_of_other_signatures_do_not_matter(generality: Any, signature: Any, demos: list[dict[str, str]]) -> None:
    generality.check(signature, demos)


def test_demos_do_change_the_outputs_that_are_compared(generality: Any) -> None:
    inputs = generality.samples(ANSWER)
    assert generality.outputs(ANSWER, inputs, [], ADAPTERS["chat"]) == ["I joined a pottery class yesterday."]
    assert generality.outputs(ANSWER, inputs, DEMOS, ADAPTERS["chat"]) == ["7 May 2023"]


def test_wording_that_the_engine_obeys_is_seen(generality: Any) -> None:
    """A cue in the instructions is gone in the twin, so that the comparison must fail."""
    with pytest.raises(AssertionError):
        generality.check(make_signature("context, question -> answer", "Answer in at most two words."))
