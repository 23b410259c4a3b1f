"""The compact adapter: what it shows, what it reads back, and what it refuses."""

import time
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.signatures.answering import AnswerFromContext, RespondPersonally
from mempiler.signatures.memory_r2 import (
    ManageMemory,
    NewFact,
    Operation,
    StoredMemory,
)

MEMORIES = [
    StoredMemory(memory_id="m1", speaker="Ada", content="Ada pet dog"),
    StoredMemory(memory_id="m2", speaker="Ben", content="Ben city Oslo"),
]
FACTS = [
    NewFact(speaker="Ada", turn_id="D3:1", fact="Ada pet cat", related_memory_ids=["m1"]),
    NewFact(speaker="Ben", turn_id="D3:2", fact="Ben dish pie", related_memory_ids=[]),
]
text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)


def user(signature: type[dspy.Signature], **inputs: Any) -> str:
    return CompactAdapter().format(signature, [], inputs)[-1]["content"]


def back(signature: type[dspy.Signature], **outputs: Any) -> dict[str, Any]:
    shown = CompactAdapter().format_finetune_data(signature, [], {}, outputs)["messages"][-1]["content"]
    return CompactAdapter().parse(signature, shown)


def test_each_input_is_one_line_related_memories_are_written_out_and_an_answer_leaves_out_defaults() -> None:
    shown = user(AnswerFromContext, context="[D1:1] Ada: hi\n[D1:2] Ben: hello", question="Who?")
    assert shown == "context: [D1:1] Ada: hi | [D1:2] Ben: hello\nquestion: Who?"
    shown = user(ManageMemory, session_date="unknown", memories=MEMORIES, new_facts=FACTS)
    assert shown.splitlines() == [
        "session_date: unknown",
        "memories: m2 Ben Ben city Oslo",
        "new_facts: Ada D3:1 Ada pet cat (m1 Ada Ada pet dog) | Ben D3:2 Ben dish pie",
    ]
    ops = [Operation(op="DELETE", memory_id="m1", turn_id="D1:1")]
    shown = CompactAdapter().format_assistant_message_content(ManageMemory, {"operations": ops})
    assert shown == '[{"op": "DELETE", "memory_id": "m1", "turn_id": "D1:1"}]'


@settings(max_examples=50, deadline=None)
@given(text | st.sampled_from(["answer: yes", '"quoted"', "a\nanswer: b", "```json\n1\n```", "", "[1", "reasoning: x"]))
def test_texts_come_back(value: str) -> None:
    assert back(AnswerFromContext, answer=value) == {"answer": value}
    assert back(RespondPersonally, reasoning=value, answer=value) == {"reasoning": value, "answer": value}


HOSTILE = ["```json" + "\n" * 3_000 + "```x", "[" * 20_000, "9" * 5_000, "[" + "1," * 1_000_000 + "1]"]
MALFORMED = ['[{"op": "INSERT", "content": "Ada pet', '[{"op": "PAINT"}]', "INSERT", '[{"op": "NONE"}] and so on']


@pytest.mark.parametrize("completion", [*HOSTILE, *MALFORMED], ids=lambda text: text[:8])
def test_a_malformed_or_hostile_answer_is_refused_at_once_with_its_text(completion: str) -> None:
    started = time.process_time()
    with pytest.raises(AdapterParseError) as caught:
        CompactAdapter().parse(ManageMemory, completion)
    assert (caught.value.lm_response, time.process_time() - started < 2) == (completion, True)


@pytest.mark.parametrize(
    "completion", ['```json\n[{"op": "none"}]\n```', 'operations: [{"op": "NOOP"}]', '  [{"op": "NONE"}]\n']
)
def test_fences_names_and_spaces_around_an_answer_are_no_error(completion: str) -> None:
    assert CompactAdapter().parse(ManageMemory, completion)["operations"] == [Operation(op="NONE")]
