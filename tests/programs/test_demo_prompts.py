"""What a prompt shows of a demo that lacks outputs, as labelled ones do."""

from typing import Any

import dspy
import pytest
from mempiler.programs.adapter import adapter
from mempiler.programs.auto_adapter import SchemaAdapter, output_schema

ASKED: Any = dspy.Signature("question -> patterns: list[str], reason: str, answer: str")
LACKS = "Not supplied for this particular example."
"""DSPy's sentence."""


@pytest.mark.parametrize("name", ["chat", "json", "schema"])
def test_lists_that_a_demo_lacks_are_empty_and_texts_are_said_to_be_missing(name: str) -> None:
    chosen: dspy.Adapter = SchemaAdapter(output_schema(ASKED) or {}) if name == "schema" else adapter(name)
    messages = chosen.format(ASKED, [dspy.Example(question="Who?", answer="Ann")], {"question": "Where?"})
    [shown] = [str(message["content"]) for message in messages if message["role"] == "assistant"]
    assert "[]" in shown
    assert shown.count(LACKS) == 1
    # A model that answers as the demo does is read.
    read = chosen.parse(ASKED, shown)
    assert (read["patterns"], read["answer"]) == ([], "Ann")
