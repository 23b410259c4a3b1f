"""Prompts and texts that are too long: turns are taken in by halves, texts are no answers."""

from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import History
from mempiler.programs.catalog import build

SAID = History.parse([[{"role": "user", "name": "Ada", "content": f"I like {thing}."} for thing in ("jazz", "tea")]])


def facts(*texts: str) -> dict[str, Any]:
    return {"facts": [{"speaker": "Ada", "turn_id": "D1:1", "fact": text} for text in texts]}


REFUSALS = [
    ContextLengthError("too long"),
    # As llama.cpp, vLLM and an OpenAI-compatible gateway word it, without a code for it.
    InvalidRequestError("request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it"),
    InvalidRequestError("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
    InvalidRequestError("the prompt does not fit the context window"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal)[:20])
def test_turns_whose_prompt_is_too_long_are_taken_in_by_halves(scripted: Any, refusal: Exception) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        asked = [f"Likes {thing}" for thing in ("jazz", "tea") if f"like {thing}" in text or f'"Likes {thing}"' in text]
        if kind == "facts" and len(asked) == 2:
            raise refusal
        if kind == "facts":
            return facts(*asked)
        return {"operations": [{"op": "INSERT", "speaker": "Ada", "content": asked[-1]}]}

    lm = scripted(reply)
    with dspy.context(lm=lm):
        node = build("memory-r2", parts=1).remember(SAID)
    assert [fact.content for fact in node.memory.facts] == ["Likes jazz", "Likes tea"]
    assert (lm.engine.calls, node.memory.unwritten) == ({"facts": 3, "operations": 2}, ())
    assert {failure.kind for part in node.chain() for failure in part.failures} == {"too-long"}


def test_a_text_over_the_limit_is_dropped_and_counted(scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "facts":
            return facts("Likes tea", "x" * 200_000)
        return {"operations": [{"op": "INSERT", "content": "Likes tea"}]}

    lm, program = scripted(reply), build("memory-r2", parts=1)
    with dspy.context(lm=lm):
        memory = program.remember(SAID).memory
    assert [fact.content for fact in memory.facts] == ["Likes tea"]
    assert lm.meter.read().faults["method.writer.extract", "element"] == 1
