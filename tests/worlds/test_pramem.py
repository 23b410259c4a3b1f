"""PraMem in its world: the right answers are there to be had, and every part of practice is needed for its questions.

Claims and what they predict are in `runs/recipes/claims/pramem.py`; here they are measured with few users.
"""

import pytest
from mempiler.data.catalog import benchmark
from mempiler.errors import DataError
from mempiler.grammar.pramem import read_clip, read_deeds
from mempiler.runs.recipes.claims.pramem import AT_NOON

USERS, CYCLES = 2, 6
CLAIMS = (
    *("w/o deep-thinking trial", "w/o reflective proposal", "w/o consensual adjustment", "w/o alerts"),
    *("w/o generality review", "distinct_records off", "predict_tokens 1: no records"),
    "true scene to be found (Eq. 7)",
)


@pytest.fixture(scope="module")
def bench(benches):
    return benches("pramem", USERS, cycles=CYCLES)


@pytest.fixture(scope="module")
def world():
    return benchmark("world.pramem", users=20)


def test_with_all_mechanisms_every_answer_is_right(bench):
    assert set(bench.means({}).values()) == {1.0}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mechanism_matters_to_its_questions_and_to_no_others(unborne, name):
    assert unborne(name) == []


def test_without_patterns_what_practice_and_profile_tell_of_the_user_is_lost(bench):
    without = {"habit": 0.0, "lucky": 0.0, "stated": 0.0, "outdated": 0.5}
    assert bench.means({"patterns": False}) == {name: without.get(name, 1.0) for name in bench.categories}


def test_without_the_groundedness_review_claims_that_records_do_not_bear_out_do_harm(bench):
    means = bench.means({"groundedness": False})
    assert sum(means[category] for category in AT_NOON) < 0.8 * len(AT_NOON)


def test_the_score_rises_with_the_rounds(bench):
    """Figure 4, left."""
    curve = [sum(bench.means(each).values()) for each in ({"rounds": 5}, {"rounds": 30}, {})]
    assert curve[0] < curve[1] < curve[2]


def test_needed_support_has_its_best_between_accidents_and_habits(bench):
    curve = [sum(bench.means({"needed": needed} if needed != 3 else {}).values()) for needed in (1, 3, 6)]
    assert curve[0] < curve[1] > curve[2]


def test_no_newest_record_before_a_question_is_of_its_category_unless_it_is_about_that(world):
    for example in world.examples:
        behavior = [item for item in example.history.items if item.kind == "behavior"]
        lines = [line for item in (*behavior, *example.recent.items) for line in item.lines()][-10:]
        newest = {deed.clip.category for deed in read_deeds("\n".join(lines))}
        assert (read_clip(example.question).category in newest) is (example.category == "recent")


def test_practice_never_asks_about_the_records_at_the_end(world):
    for history in world.histories:
        actions = [action for item in history.items if item.kind == "behavior" for action in item.actions]
        assert [action.questions == () for action in actions] == [False] * (len(actions) - 10) + [True] * 10


def test_questions_cover_every_category_and_both_answers(world):
    asked = {(example.category, example.answer) for example in world.examples}
    both = {"habit", "lucky", "contrary", "outdated", "accident", "author", "part", "crowd"}
    assert asked == {(category, answer) for category in both for answer in ("Yes", "No")} | {
        ("stated", "No"),
        ("recent", "Yes"),
    }


def test_evidence_is_what_the_history_tells_of_the_category(world):
    for example in world.examples:
        category = read_clip(example.question).category
        lines = [line for item in example.history.items for line in item.lines()]
        told = [deed.id for deed in read_deeds("\n".join(lines)) if deed.clip.category == category]
        assert [id for id in example.evidence if id in told] == told


@pytest.mark.parametrize("cycles", [3, 21])
def test_a_world_that_cannot_be_is_refused(cycles):
    with pytest.raises(DataError, match=f"cycles={cycles} is out of range; choose 4 to 20"):
        benchmark("world.pramem", users=1, cycles=cycles)
