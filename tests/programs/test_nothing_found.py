"""A memory that finds nothing is asked for the little it has: the simplest story works with every method."""

from datetime import datetime
from pathlib import Path

import dspy
import pytest
from mempiler import Context, History, MemoryProgram, Session, Turn, build
from mempiler.engines.models import language_model
from mempiler.programs.method import FEW
from mempiler.programs.names import METHODS

KEEPING = sorted(
    {*METHODS, "pgr+turn-rag", "pgr+memory-r2", "logs+turn-rag", "logs+memory-bank"} - {"no-memory", "pramem"}
)
"""All methods that keep something of a dialogue: PraMem reads behaviour."""
STORY, QUESTION = "I moved to Lisbon last week with my dog Rex", "Where do I live?"
FISH = "The aquarium holds three striped guppies"


def history(*said: str) -> History:
    """One session per text, a day apart."""
    turns = [Turn(id=f"D{n}:1", speaker="Ada", text=text) for n, text in enumerate(said, 1)]
    items = (Session(id=f"D{n}", time=datetime(2024, 3, n), turns=(turn,)) for n, turn in enumerate(turns, 1))
    return History(id="ada", items=tuple(items))


def asked(program: MemoryProgram, question: str, *said: str) -> Context:
    with dspy.context(lm=language_model("offline")):
        return program(history=history(*said), question=question).context


def longer() -> list[str]:
    """Twelve sessions of which one is about fish."""
    things = ("kettle", "harbour", "violin", "orchard", "bicycle", "lantern", "glacier", "puppet", "saddle", "trumpet")
    return [STORY, *(f"Yesterday the {thing} was repaired" for thing in things), FISH]


@pytest.mark.parametrize("method", KEEPING)
def test_the_one_thing_that_was_said_is_recalled_in_other_words_and_nothing_beside_what_is_found(method: str) -> None:
    found = asked(build(method), QUESTION, STORY)
    assert "D1:1" in found.sources
    assert "Lisbon" in found.text()
    found = asked(build(method), "How many striped guppies does the aquarium hold?", *longer())
    assert "D12:1" in found.sources
    assert "fallback" not in found.counts


@pytest.mark.parametrize("method", ["turn-rag", "session-rag", "memory-r2", "rgmem"])
def test_where_nothing_is_found_it_is_the_newest_few_and_marked(method: str) -> None:
    found = asked(build(method), "Zebra?", *longer())
    assert {hit.score for hit in found.hits} == {0.0}
    assert found.counts["fallback"] == len(found.hits) <= FEW
    assert "D12:1" in found.sources
    assert "D1:1" not in found.sources


def test_pgr_falls_back_on_the_facts_nearest_to_the_query_below_tau() -> None:
    program = build("pgr", min_score=0.99, augment="none", iterations=1)
    found = asked(program, "striped guppies, how many?", *longer())
    assert found.counts["facts"] == 0
    assert (found.counts["fallback"], len(found.hits)) == (FEW, FEW)
    assert found.hits[0].sources == ("D12:1",)
    assert {hit.score for hit in found.hits} == {0.0}


def test_what_a_memory_bank_forgot_is_not_shown_for_want_of_a_hit() -> None:
    program = build("memory-bank")
    with dspy.context(lm=language_model("offline")):
        memory = program.remember(history(STORY)).memory
        query = program.task.query({"question": "Zebra?", "date": "1 March 2034"}, (), (), ("Ada",))
        assert program.answer(memory, query).context.hits == ()


def test_the_newest_turns_that_wait_come_before_those_of_the_memory(tmp_path: Path) -> None:
    memory = build("turn-rag").memory(tmp_path / "m.sqlite", "ada", lm=language_model("offline"))
    memory.add([{"role": "user", "name": "Ada", "content": "The kettle whistles."}])
    memory.add([{"role": "user", "name": "Ada", "content": STORY}], remember=False)
    assert memory.recall(QUESTION).sources == ("D1:1", "D2:1")
    assert [hit.score for hit in memory.recall(QUESTION).hits] == [0.0, 0.0]
    # A word of it is enough, and nothing is added then.
    assert memory.recall("Which kettle?").sources == ("D1:1",)
    assert memory.recall("Lisbon?").sources == ("D2:1",)
