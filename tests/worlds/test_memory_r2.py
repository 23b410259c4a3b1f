"""The world of Memory-R2: what it says can be checked, and every mechanism of the method is needed in it."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler.data.worlds.memory_r2 import ROUNDS, SESSIONS, MemoryR2World
from mempiler.grammar.memory_r2 import NOT_MENTIONED, TURNS, Forget, IGotThem, IHave, ItIs
from mempiler.programs.catalog import preset

USERS = 5
CATEGORIES = ("stated", "changed", "many", "unsaid", "corrected", "half", "retracted", "counted", "them")


def r2(**settings: Any) -> tuple[str, dict[str, Any]]:
    return "memory-r2", {"abstain": True, **settings}


FULL, BARE = r2(), ("memory-r2", {})
CLAIMS = {
    "parts of a session": ("corrected", FULL, r2(parts=1)),
    "four parts rather than two": ("corrected", FULL, r2(parts=2)),
    "parts by turns": ("corrected", r2(chunk_turns=2), r2(chunk_turns=8)),
    "the earlier parts shown, for it": ("half", FULL, r2(earlier=False)),
    "the earlier parts shown, for them": ("them", FULL, r2(earlier=False)),
    "facts before edits (two agents)": ("them", FULL, r2(single_agent=True)),
    "memories of the speaker alone": ("counted", FULL, r2(same_speaker=False)),
    "memories beside a fact, counted on": ("counted", FULL, r2(related_total=0)),
    "memories beside a fact, deleted": ("retracted", FULL, r2(related_total=0)),
    "memories beside a fact, corrected": ("corrected", FULL, r2(related_total=0)),
    "several of them": ("counted", FULL, r2(related=3)),
    "a cosine that lets them through": ("retracted", FULL, r2(min_score=0.6)),
    "many memories read": ("many", FULL, r2(read_top=5)),
    "a reader that abstains": ("unsaid", FULL, BARE),
    "a memory instead of turns": ("counted", FULL, ("turn-rag", {})),
}
"""What is needed: the questions that need it, with and without it."""


@pytest.fixture(scope="module")
def world() -> MemoryR2World:
    return MemoryR2World.load(users=USERS)


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_mechanism_is_for_fails_without_it(claim: str, trial: Callable[..., Any]) -> None:
    category, whole, without = CLAIMS[claim]
    found = trial("world.memory-r2", USERS).fall(category, whole, without)
    assert found.interval.low > 0, f"{claim}: {found}"


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_whole_method_answers_everything(category: str, trial: Callable[..., Any]) -> None:
    assert trial("world.memory-r2", USERS).score(FULL, category) == 1.0


@pytest.mark.parametrize("without", [r2(related_total=0), r2(earlier=False), r2(parts=1)], ids=str)
def test_what_needs_nothing_stands_without_anything(without: Any, trial: Callable[..., Any]) -> None:
    there = trial("world.memory-r2", USERS)
    assert [there.score(without, category) for category in ("stated", "changed", "unsaid")] == [1.0] * 3


def test_abstaining_is_on_in_this_world_without_being_asked_for(world: MemoryR2World) -> None:
    assert preset("memory-r2", world.name, world.unsaid) == {"abstain": True}


def test_a_count_rests_on_all_its_turns(trial: Callable[..., Any]) -> None:
    rows = trial("world.memory-r2", USERS).evaluated(FULL, "counted").rows
    assert rows
    assert all(row.score == 1.0 and row.answer.isdecimal() for row in rows)


def test_evidence_is_what_decides(world: MemoryR2World) -> None:
    first = {"half": ItIs, "retracted": Forget, "them": IGotThem}
    for example in world.examples:
        said = [TURNS.read(example.history.turns[id][0].text)[0] for id in example.evidence]
        assert (not said) == (example.category == "unsaid")
        assert isinstance(said[-1], first[example.category]) if example.category in first else True
        assert (example.answer == NOT_MENTIONED) == (example.category in ("unsaid", "retracted"))


def test_nobody_says_how_many_there_are_in_the_end(world: MemoryR2World) -> None:
    for example in world.examples:
        if example.category in ("counted", "them"):
            texts = [turn.text for item in example.history.items for turn in item.turns]
            counts = [each for text in texts for each in TURNS.read(text) if isinstance(each, IHave)]
            assert int(example.answer) not in [each.n for each in counts if each.thing in example.question]


def test_every_session_has_its_rounds(world: MemoryR2World) -> None:
    for history in world.histories:
        assert len(history) == SESSIONS
        for item in history:
            assert [turn.speaker for turn in item.turns] == list(history.speakers) * ROUNDS


def test_a_question_is_of_every_category(world: MemoryR2World) -> None:
    assert {example.category for example in world.examples} == set(CATEGORIES)
    assert len(world.examples) == USERS * len(CATEGORIES)
