"""The world of Memory-R2: what it says can be checked, and every mechanism of the method is needed in it."""

import pytest
from mempiler.data.worlds.memory_r2 import ROUNDS, SESSIONS, MemoryR2World
from mempiler.grammar.memory_r2 import NOT_MENTIONED, TURNS, Forget, IGotThem, IHave, ItIs
from mempiler.programs.catalog import preset
from mempiler.runs.recipes.claims.claim import Arm
from mempiler.runs.recipes.claims.memory_r2 import ON

USERS = 5
CATEGORIES = ("stated", "changed", "many", "unsaid", "corrected", "half", "retracted", "counted", "them")


CLAIMS = (
    *("single agent", "1 part", "2 parts", "parts of 8 turns", "without the earlier parts", "4 memories beside a fact"),
    *("memories of both speakers", "no memory beside a fact", "1 memory beside a fact", "min_score .6"),
    *("5 memories read", "a reader that does not abstain", "turns instead of a memory"),
)


@pytest.fixture(scope="module")
def bench(benches):
    return benches("memory-r2", USERS)


@pytest.fixture(scope="module")
def world() -> MemoryR2World:
    return MemoryR2World.load(users=USERS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mechanism_matters_to_its_questions_and_to_no_others(unborne, name):
    assert unborne(name) == []


def test_the_whole_method_answers_everything(bench):
    assert bench.means(ON) == dict.fromkeys(CATEGORIES, 1.0)


def test_abstaining_is_on_in_this_world_without_being_asked_for(world: MemoryR2World) -> None:
    assert preset("memory-r2", world.name, world.unsaid) == {"abstain": True}


def test_a_count_is_a_number(bench):
    rows = [row for row in bench.scored(Arm("memory-r2", ON)).rows if row.category == "counted"]
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
