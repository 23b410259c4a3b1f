"""`generality`: proof that the engine reads no names and no wording; used for the signatures of the suite.

A signature is compared with its twin. In the twin every name, nested property names included, is a meaningless one:
each word of a name is replaced by one made-up word throughout, with its plural, so that names which refer to one
another still do. The words for the parts of a line (`ROLES`) stay, since they are what the engine reads heads by.
Instructions and descriptions of the twin say nothing.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from copy import copy
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import dspy
import pydantic
import pytest

from tests.engines.offline_prediction import chat, make_signature, predict

ROLES = ("id", "ids", "speaker", "time", "date")
LINES = (
    (
        "[D1:1] (8 May 2023, Monday 13:56) Ann: I joined a pottery class yesterday.",
        "[D1:2] (8 May 2023, Monday 13:56) Bob: My dog Rex likes long walks. He is old.",
        "[D2:1] (25 May 2023, Thursday 13:14) Ann: We adopted 2 kittens from the shelter.",
    ),
    (
        "[D3:1] (2 June 2023, Friday 09:30) Bob: The choir sang in the old harbour last week.",
        "[D3:2] (2 June 2023, Friday 09:30) Ann: I painted 3 doors and sold my green bicycle.",
    ),
)
QUESTIONS = ("When did Ann join a pottery class?", "When did the choir sing in the harbour?")
PLACES = ("Rome", "Lima")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for each test: vectors are kept there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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


class Generality:
    """What the fixture gives: sample inputs, the engine's outputs, and the comparison with the twin."""

    def samples(self, signature: Any, variant: int = 0) -> dict[str, Any]:
        """Inputs made by type: dialogue lines for text, a question for the last of several texts."""
        fields = signature.input_fields.items()
        inputs = {name: _sample(info.annotation, name, f"input {n}", variant) for n, (name, info) in enumerate(fields)}
        texts = [name for name, info in fields if info.annotation is str and name.rpartition("_")[2] not in ROLES]
        return {**inputs, texts[-1]: QUESTIONS[variant]} if len(texts) > 1 else inputs

    def demo(self, signature: Any) -> dict[str, Any]:
        """Other sample inputs with the engine's own outputs for them."""
        inputs = self.samples(signature, variant=1)
        return {**inputs, **_predict(signature, inputs, [], chat())}

    def outputs(
        self, signature: Any, inputs: dict[str, Any], demos: Iterable[dict[str, Any]], adapter: Any
    ) -> list[Any]:
        """The engine's outputs without the names in them."""
        return [_values(value) for value in _predict(signature, inputs, list(demos), adapter).values()]

    def check(self, signature: Any, demos: Iterable[dict[str, Any]] = (), adapter: Any = None) -> None:
        """Asserts that a signature and its twin are filled alike."""
        names, inputs, demos, adapter = Names(), self.samples(signature), list(demos), adapter or chat()
        twin = _twin(signature, names)
        twin_demos = [_twin_values(twin, demo, names) for demo in demos]
        filled = self.outputs(signature, inputs, demos, adapter)
        assert self.outputs(twin, _twin_values(twin, inputs, names), twin_demos, adapter) == filled


@pytest.fixture
def generality() -> Generality:
    """Compares signatures with their renamed, rewritten twins."""
    return Generality()


def _predict(signature: Any, inputs: dict[str, Any], demos: list[dict[str, Any]], adapter: Any) -> dict[str, Any]:
    prediction = predict(signature, demos, adapter, **inputs)
    return {name: prediction[name] for name in signature.output_fields}


def _twin(signature: Any, names: Names) -> Any:
    done: dict[Any, Any] = {}
    fields: dict[str, Any] = {}
    for name, info in signature.fields.items():
        make = dspy.InputField if name in signature.input_fields else dspy.OutputField
        fields[names.of(name)] = (_twin_type(info.annotation, names, done), make(desc="a field"))
    return make_signature(fields, "Carry this out with care.")


def _twin_type(kind: Any, names: Names, done: dict[Any, Any]) -> Any:
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        if kind not in done:
            fields: dict[str, Any] = {}
            for name, info in kind.model_fields.items():
                blank = copy(info)
                blank.description = None
                fields[names.of(name)] = (_twin_type(info.annotation, names, done), blank)
            done[kind] = pydantic.create_model(kind.__name__, **fields)
        return done[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if not parts or origin is Literal:
        return kind
    parts = tuple(_twin_type(part, names, done) for part in parts)
    container: Any = origin
    return Union[parts] if origin in (Union, types.UnionType) else container[parts]  # noqa: UP007


def _twin_values(twin: Any, values: dict[str, Any], names: Names) -> dict[str, Any]:
    fields = {names.of(name): _renamed(value, names) for name, value in values.items()}
    return {
        name: pydantic.TypeAdapter(twin.fields[name].annotation).validate_python(value)
        for name, value in fields.items()
    }


def _renamed(value: Any, names: Names) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return {names.of(name): _renamed(getattr(value, name), names) for name in type(value).model_fields}
    return [_renamed(part, names) for part in value] if isinstance(value, list) else value


def _values(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return [_values(getattr(value, name)) for name in type(value).model_fields]
    return [_values(part) for part in value] if isinstance(value, list) else value


def _sample(kind: Any, name: str, path: str, variant: int, number: int = 0) -> Any:
    """A plain value of any annotation; `number` is 0 for a whole field, and counts the records inside one."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str:
        return _text(name, path, variant, number)
    if kind in (int, float, bool):
        return kind(3)
    if kind in (date, datetime):
        return kind(2023, 5, 8)
    if origin is Literal:
        return parts[0]
    if origin is list and parts[0] is str:
        return [f"m{number}"] if name.endswith("ids") else list(LINES[variant][:2])
    if origin is list:
        return [_sample(parts[0], name, f"{path} item {n}", variant, n) for n in (1, 2)]
    if origin is dict or kind is dict:
        return {}
    if origin in (Union, types.UnionType):
        return _sample(parts[0], name, path, variant, number)
    assert issubclass(kind, pydantic.BaseModel)
    fields = enumerate(kind.model_fields.items())
    return kind(
        **{key: _sample(info.annotation, key, f"{path} part {n}", variant, number or 1) for n, (key, info) in fields}
    )


def _text(name: str, path: str, variant: int, number: int) -> str:
    role = name.rpartition("_")[2]
    if role in ("date", "time"):
        return "8 May 2023, Monday"
    if number == 0:
        return "\n".join(LINES[variant])
    spoken = f"Ann moved to {PLACES[variant]}, as {path} says"
    return {"id": f"m{number}", "speaker": ("Ann", "Bob")[number % 2]}.get(role, spoken)
