"""What is the same in every prompt of a signature is rendered once, and reads as DSPy renders it."""

from datetime import date
from typing import Any, Literal

import dspy
import pytest
from mempiler.programs.adapter import ADAPTERS
from pydantic import BaseModel


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
