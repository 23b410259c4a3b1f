"""What is the same in every prompt of a signature is rendered once, and reads as DSPy renders it."""

from datetime import UTC, date, datetime
from typing import Any, Literal

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as some
from mempiler.programs.adapter import ADAPTERS
from mempiler.programs.correcting import CorrectingAdapter, JsonAdapter
from pydantic import BaseModel

KINDS = [(CorrectingAdapter, dspy.ChatAdapter), (JsonAdapter, dspy.JSONAdapter)]


class Fact(BaseModel):
    text: str
    said: date | None = None
    more: dict[str, Any] = {}


class Ask(dspy.Signature):
    """Ask.

    Twice.
    """

    text: str = dspy.InputField()
    facts: list[Fact] = dspy.InputField()
    loose: Any = dspy.InputField()
    kind: Literal["a", "b"] = dspy.OutputField()
    found: list[Fact] = dspy.OutputField(desc="what was found")


VALUES: list[Any] = [
    "plain",
    "  spaces \n and lines ",
    ["a", "b"],
    [],
    [Fact(text="é", said=date(2024, 5, 1))],
    {"when": datetime(2024, 5, 1, 12, tzinfo=UTC)},
    {1: {"x"}},
    3,
    None,
    float("nan"),
    [b"\xff", object],
]


def asked(adapter: dspy.Adapter, **inputs: Any) -> list[dict[str, Any]]:
    demo = {**inputs, "kind": "a", "found": []}
    return adapter.format(Ask, [demo], inputs)


@pytest.mark.parametrize(("ours", "theirs"), KINDS, ids=["chat", "json"])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_prompts_are_those_of_dspy(ours: Any, theirs: Any, value: Any) -> None:
    text = value if value in ("plain", ["a", "b"], 3) else "x"  # DSPy writes no list of other things as a text
    inputs = {"text": text, "facts": [Fact(text="x")], "loose": value}
    adapter = ours()
    # The second time from what was rendered the first time.
    assert asked(adapter, **inputs) == asked(adapter, **inputs) == asked(theirs(), **inputs)


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text('ab é\n"\\', max_size=5),
    lambda part: some.lists(part, max_size=3) | some.dictionaries(some.text("ab", max_size=3), part, max_size=3),
    max_leaves=6,
)


@given(some.text(max_size=9), _JSON)
def test_any_value_reads_as_dspy_writes_it(text: str, loose: Any) -> None:
    inputs = {"text": text, "facts": [], "loose": loose}
    assert asked(CorrectingAdapter(), **inputs) == asked(dspy.ChatAdapter(), **inputs)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "compact"])
def test_schemas_are_rendered_once_and_anew_when_words_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    plain = dspy.ChatAdapter.format_task_description

    def counted(self: Any, signature: Any) -> str:
        rendered.append(signature.instructions)
        return plain(self, signature)

    monkeypatch.setattr(dspy.ChatAdapter, "format_task_description", counted)
    lm = dspy.utils.DummyLM([{"kind": "a", "found": "[]"}] * 9)
    adapter, own = ADAPTERS[name](), Ask.with_instructions("First.")
    predict = dspy.Predict(own)

    def ask() -> None:
        with dspy.context(lm=lm, adapter=adapter):
            try:
                predict(text="x", facts=[], loose=1)
            except Exception:  # the dummy does not answer in every layout
                return

    for _ in range(3):
        ask()
    assert rendered == ["First."]
    own.instructions = "Second."
    ask()
    assert rendered == ["First.", "Second."]
