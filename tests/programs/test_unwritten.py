"""What cannot be written stays: it is searched as it was said, tried in halves, and written once the model is well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dspy
import pytest
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
