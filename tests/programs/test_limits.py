"""Prompts and texts that are too long: prompts are asked in halves, texts are no answers."""

from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import History
from mempiler.programs.catalog import build

SAID = History.parse([[{"role": "user", "name": "Ada", "content": f"I like {thing}."} for thing in ("jazz", "tea")]])


def facts(*texts: str) -> dict[str, Any]:
    return {"facts": [{"speaker": "Ada", "turn_id": "D1:1", "fact": text} for text in texts]}


def insert(text: str) -> dict[str, Any]:
    """Inserts every new fact of a prompt."""
    return {
        "operations": [
            {"op": "INSERT", "speaker": "Ada", "content": thing, "turn_id": "D1:1"}
            for thing in ("Likes jazz", "Likes tea")
            if f'"{thing}"' in text
        ]
    }


REFUSALS = [
    ContextLengthError("too long"),
    # As llama.cpp, vLLM and an OpenAI-compatible gateway word it, without a code for it.
    InvalidRequestError("request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it"),
    InvalidRequestError("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
    InvalidRequestError("the prompt does not fit the context window"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal)[:20])
def test_a_prompt_that_is_too_long_is_asked_in_halves(scripted: Any, refusal: Exception) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "operations" and "Likes jazz" in text and "Likes tea" in text:
            raise refusal
        return facts("Likes jazz", "Likes tea") if kind == "facts" else insert(text)

    lm = scripted(reply)
    with dspy.context(lm=lm):
        node = build("memory-r2", parts=1).remember(SAID)
    assert [fact.content for fact in node.memory.facts] == ["Likes jazz", "Likes tea"]
    assert (lm.engine.calls["operations"], node.memory.unwritten) == (3, ())


def test_what_is_context_alone_is_not_cut(scripted: Any) -> None:
    asked: list[str] = []

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "facts":
            return facts("Likes jazz", "Likes tea") if "[D1:1]" in text.split("## earlier")[0] else facts("Likes rain")
        asked.append(text)
        if "Likes rain" in text and len(asked) < 3:
            raise REFUSALS[0]
        return {"operations": []}

    with dspy.context(lm=scripted(reply)):
        build("memory-r2", parts=2).remember(SAID)
    # The one new fact of the second part cannot be cut, and the two earlier ones are not.
    second = next(text for text in asked if "Likes rain" in text)
    assert "Likes jazz" in second
    assert not any(("Likes jazz" in text) != ("Likes tea" in text) for text in asked)


@pytest.mark.parametrize(("limit", "kept"), [(4000, ["Likes tea"]), (200_000, ["Likes tea", "x" * 200_000])])
def test_a_text_over_the_limit_is_dropped_and_counted(scripted: Any, limit: int, kept: list[str]) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "facts":
            return facts("Likes tea", "x" * 200_000)
        return {"operations": [{"op": "INSERT", "content": thing} for thing in kept]}

    lm, program = scripted(reply), build("memory-r2", parts=1, longest_text=limit)
    with dspy.context(lm=lm):
        memory = program.remember(SAID).memory
    assert [fact.content for fact in memory.facts] == kept
    assert lm.meter.read().faults["method.writer.extract", "element"] == (limit == 4000)
    assert program.method.config["longest_text" if limit != 4000 else "related"] in (limit, 5)
