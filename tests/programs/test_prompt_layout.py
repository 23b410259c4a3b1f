"""What is the same for every question comes first in a prompt; what is shown of a demo that lacks outputs."""

from typing import Any

import dspy
import pytest
from mempiler.programs.adapter import ADAPTERS, JsonAdapter, adapter, output_schema
from mempiler.programs.catalog import build
from mempiler.programs.state import signature_of
from mempiler.programs.tasks.task import TASKS
from mempiler.signatures.pramem import PredictWithExperience

SIGNATURES = {name: signature_of(build("turn-rag", name).task.answer) for name in TASKS if name != "memory-lookup"} | {
    "memory-r2": signature_of(build("memory-r2").task.answer),
    "pramem": PredictWithExperience,
}
LATE = {"context", "patterns", "first_speaker_memories"}


def values(signature: Any, n: int) -> dict[str, Any]:
    """Values of all fields that differ by `n`; an action has to be one that exists."""
    kinds = {name: field.annotation for name, field in signature.fields.items()}
    texts = {name: [f"{name} {n}"] if kinds[name] == list[str] else f"{name} {n}" for name in kinds}
    return {**texts, **({"action": "solution proposal"} if "action" in kinds else {})}


def _adapter(name: str, signature: Any) -> dspy.Adapter:
    return JsonAdapter(output_schema(signature) or {}) if name == "schema" else adapter(name)


@pytest.mark.parametrize("task", SIGNATURES)
@pytest.mark.parametrize("name", [*ADAPTERS, "schema"])
def test_two_questions_differ_in_the_last_message_alone(name, task):
    signature: Any = SIGNATURES[task]
    chosen = _adapter(name, signature)
    if "analysis" in signature.fields:
        demos = [{**values(signature, n), "answer": ["S1", "S2"]} for n in (8, 9)]
    else:
        demos = [values(signature, n) for n in (8, 9)]
    one, two = (
        chosen.format(signature, demos, {key: values(signature, n)[key] for key in signature.input_fields})
        for n in (1, 2)
    )
    assert [message["role"] for message in one] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert one[:-1] == two[:-1]
    last = str(one[-1]["content"])
    recalled = min(last.index(f"{field} 1") for field in LATE & set(signature.input_fields))
    assert recalled < last.index("question 1")
    assert signature.instructions.split()[0] in str(one[0]["content"])


ASKED: Any = dspy.Signature("question -> patterns: list[str], reason: str, answer: str")
LACKS = "Not supplied for this particular example."
"""DSPy's sentence."""


@pytest.mark.parametrize("name", ["chat", "json", "schema"])
def test_lists_that_a_demo_lacks_are_empty_and_texts_are_said_to_be_missing(name: str) -> None:
    chosen = _adapter(name, ASKED)
    messages = chosen.format(ASKED, [dspy.Example(question="Who?", answer="Ann")], {"question": "Where?"})
    [shown] = [str(message["content"]) for message in messages if message["role"] == "assistant"]
    assert "[]" in shown
    assert shown.count(LACKS) == 1
    # A model that answers as the demo does is read.
    read = chosen.parse(ASKED, shown)
    assert (read["patterns"], read["answer"]) == ([], "Ann")


@pytest.mark.parametrize("name", ["auto", "chat", "json"])
def test_what_begins_a_prompt_is_rendered_once_and_anew_when_words_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    plain = dspy.ChatAdapter.format_task_description

    def counted(self: Any, signature: Any) -> str:
        rendered.append(signature.instructions)
        return plain(self, signature)

    monkeypatch.setattr(dspy.ChatAdapter, "format_task_description", counted)
    chosen, own = adapter(name), ASKED.with_instructions("First.")
    for words in ("First.", "First.", "Second."):
        own.instructions = words  # in place, as InferRules does
        chosen.format(own, [], {"question": "Where?"})
    assert rendered == ["First.", "Second."]
