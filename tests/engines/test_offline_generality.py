"""Proof that the engine is general: renamed fields and rewritten instructions leave its outputs as they were.

`renamed` gives every name of a signature, nested property names included, a meaningless one: each word of a name is
replaced by one made-up word throughout, with its plural, so that names which refer to one another still do. The words
for the parts of a line (`ROLES`) stay, since they are what the engine reads heads by.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from copy import copy
from datetime import date, datetime
from typing import Any, Literal, Union, get_args, get_origin

import dspy
import pydantic
import pytest
from recollect.engines.offline import OfflineEngine

make_signature: Any = dspy.Signature
"""Typed loosely: its metaclass takes arguments that type checkers do not see."""

ROLES = ("id", "ids", "speaker", "time", "date")
LINES = [
    "[D1:1] (8 May 2023, Monday 13:56) Ann: I joined a pottery class yesterday.",
    "[D1:2] (8 May 2023, Monday 13:56) Bob: My dog Rex likes long walks. He is old.",
    "[D2:1] (25 May 2023, Thursday 13:14) Ann: We adopted 2 kittens from the shelter.",
]


class Names:
    """A made-up word for every word of a name, kept for as long as the object lives."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def of(self, name: str) -> str:
        return "_".join(part if part in ROLES else self._word(part) for part in name.split("_"))

    def _word(self, word: str) -> str:
        single = word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s")
        made = self._words.setdefault(single, f"zq{chr(97 + len(self._words) % 26)}{len(self._words)}x")
        return made if single == word else f"{made}s"


def renamed_type(kind: Any, names: Names, done: dict[Any, Any]) -> Any:
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        if kind not in done:
            fields: dict[str, Any] = {}
            for name, info in kind.model_fields.items():
                fields[names.of(name)] = (renamed_type(info.annotation, names, done), copy(info))
            done[kind] = pydantic.create_model(kind.__name__, **fields)
        return done[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if not parts or origin is Literal:
        return kind
    parts = tuple(renamed_type(part, names, done) for part in parts)
    container: Any = origin
    return Union[parts] if origin in (Union, types.UnionType) else container[parts]  # noqa: UP007


def renamed_value(value: Any, names: Names) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return {names.of(name): renamed_value(getattr(value, name), names) for name in type(value).model_fields}
    return [renamed_value(part, names) for part in value] if isinstance(value, list) else value


def renamed(signature: Any, names: Names) -> Any:
    """The signature under other names, with instructions and descriptions that say nothing."""
    done: dict[Any, Any] = {}
    fields: dict[str, Any] = {}
    for name, info in signature.fields.items():
        make = dspy.InputField if name in signature.input_fields else dspy.OutputField
        fields[names.of(name)] = (renamed_type(info.annotation, names, done), make(desc="a field"))
    return make_signature(fields, "Carry this out with care.")


def sample(kind: Any, name: str, depth: int = 0) -> Any:
    """A plain value of any annotation: dialogue lines for text, a question for the last text field."""
    origin, parts = get_origin(kind), get_args(kind)
    plain = {
        str: "\n".join(LINES) if depth == 0 else f"Ann moved to Rome, as {name} says",
        int: 3,
        float: 0.5,
        bool: True,
    }
    if kind in plain:
        return plain[kind]
    if kind in (date, datetime):
        return kind(2023, 5, 8)
    if origin is Literal:
        return parts[0]
    if origin is list:
        return LINES[:2] if parts[0] is str else [sample(parts[0], name, depth + 1)]
    if origin is dict or kind is dict:
        return {}
    if origin in (Union, types.UnionType):
        return sample(parts[0], name, depth)
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return kind(
            **{
                key: sample(info.annotation, f"{name} part {n}", depth + 1)
                for n, (key, info) in enumerate(kind.model_fields.items())
            }
        )
    return "Ann moved to Rome."


def samples(signature: Any) -> dict[str, Any]:
    fields = signature.input_fields.items()
    inputs = {name: sample(info.annotation, f"input {n}") for n, (name, info) in enumerate(fields)}
    texts = [name for name, info in signature.input_fields.items() if info.annotation is str]
    return {**inputs, texts[-1]: "When did Ann join a pottery class?"} if len(texts) > 1 else inputs


def values(value: Any) -> Any:
    """A value without the names in it."""
    if isinstance(value, pydantic.BaseModel):
        return [values(getattr(value, name)) for name in type(value).model_fields]
    return [values(part) for part in value] if isinstance(value, list) else value


def outputs(signature: Any, inputs: dict[str, Any], demos: Iterable[dict[str, Any]], adapter: Any) -> list[Any]:
    predict = dspy.Predict(signature)
    predict.demos = list(demos)
    lm = dspy.LM("offline/extractive-1", engine=OfflineEngine(), temperature=0.0, cache=False)
    with dspy.context(lm=lm, adapter=adapter):
        prediction = predict(**inputs)
    return [values(prediction[name]) for name in signature.output_fields]


def assert_general(signature: Any, demos: Iterable[dict[str, Any]] = (), adapter: Any = None) -> None:
    """Asserts that a signature and its renamed, rewritten twin are filled alike."""
    names, inputs, demos = Names(), samples(signature), list(demos)
    adapter = adapter or dspy.ChatAdapter(use_json_adapter_fallback=False)
    twin_inputs = {names.of(name): renamed_value(value, names) for name, value in inputs.items()}
    twin_demos = [{names.of(name): renamed_value(value, names) for name, value in demo.items()} for demo in demos]
    filled = outputs(signature, inputs, demos, adapter)
    assert outputs(renamed(signature, names), twin_inputs, twin_demos, adapter) == filled


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
def test_names_and_wording_do_not_matter(signature: Any, adapter: Any) -> None:
    assert_general(signature, adapter=adapter)


DEMOS = [
    {"question": "When did Joe leave Rome?", "answer": "3 March 2022"},
    {"question": "When is the fair?", "answer": "12 July 2021"},
    {"question": "What did Eve eat?", "answer": "fish soup"},
]


def test_names_do_not_matter_where_demos_teach() -> None:
    assert_general(SIGNATURES[0], DEMOS)


def test_demos_do_change_the_outputs_that_are_compared() -> None:
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    inputs = samples(SIGNATURES[0])
    assert outputs(SIGNATURES[0], inputs, [], adapter) == ["I joined a pottery class yesterday."]
    assert outputs(SIGNATURES[0], inputs, DEMOS, adapter) == ["7 May 2023"]
