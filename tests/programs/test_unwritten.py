"""What cannot be written stays: searched as it was said, tried in halves, written once the model is well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler import History, Session, Store, Turn
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.memory.stored import Owner
from mempiler.programs.catalog import build

WRITERS = ("memory-r2", "pgr", "fact-store", "rgmem", "h2memory", "condition-mem", "recursive-summary")


class Moody(OfflineEngine):
    """The offline engine, which refuses to write while it is unwell."""

    def __init__(self) -> None:
        super().__init__()
        self.well = False

    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        refusal = type(response.message).assistant("I cannot help with that.")
        return response if self.well else replace(response, message=refusal)


def talk() -> list[Session]:
    said = (
        ("I moved to Lisbon with my dog Rex.", "How do you like it so far?", "The hills hurt my knee."),
        ("The dentist was fine after all.", "And the knee?", "I run again, in the light shoes."),
    )
    turns = {
        f"D{s}": tuple(Turn(id=f"D{s}:{n}", speaker="Ada", text=text) for n, text in enumerate(texts, 1))
        for s, texts in enumerate(said, 1)
    }
    return [Session(id=id, turns=found) for id, found in turns.items()]


@pytest.fixture
def moody() -> Callable[[], MeteredLM]:
    return lambda: MeteredLM("moody/test", Meter(), engine=Moody(), cache=False, temperature=0.0)


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_left_is_found_and_written_once_the_model_is_well(name: str, moody: Any, store: Store) -> None:
    lm = moody()
    memory = build(name).memory(store, "ada", lm=lm)
    for session in talk():
        memory.add(session)
    assert [(each.item.id, each.state) for each in store.items(Owner("ada"))] == [("D1", "partial"), ("D2", "partial")]
    assert "D1:1" in memory.recall("Where is Rex the dog?").sources
    lm.engine.well = True
    memory.retry()
    assert [each.state for each in store.items(Owner("ada"))] == ["remembered", "remembered"]
    assert memory.read().unwritten == ()
    status = memory.status()
    assert status is not None
    assert (status.partial, status.failed, status.queued) == (0, 0, 0)


def test_an_endless_loop_of_tries_costs_two_rounds_and_no_more(moody: Any) -> None:
    lm = moody()
    history = History(id="ada", items=tuple(talk()))
    with dspy.context(lm=lm):
        memory = build("condition-mem").remember(history).memory
    # Each session as it came and in two halves, each asked twice.
    assert sum(lm.meter.read().calls.values()) == 2 * 3 * 2
    assert {each.tries for each in memory.unwritten} == {2}


SAID = History.parse([[{"role": "user", "name": "Ada", "content": f"I like {thing}."} for thing in ("jazz", "tea")]])


def facts(*texts: str) -> dict[str, Any]:
    return {"facts": [{"speaker": "Ada", "turn_id": "D1:1", "fact": text} for text in texts]}


REFUSALS = [
    ContextLengthError("too long"),
    # As llama.cpp, vLLM and an OpenAI-compatible gateway word it, without a code for it.
    InvalidRequestError("request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it"),
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
