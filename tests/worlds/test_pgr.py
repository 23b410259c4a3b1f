"""The world of PGR: what it says can be checked, and every mechanism of the method is needed in it."""

from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.worlds.pgr import OWN, SUPPLIES, PGRWorld
from mempiler.engines.embedders import embedder
from mempiler.errors import DataError, UnknownNameError
from mempiler.grammar.pgr import ERRANDS, FACTS, QUESTIONS, STEPS, Act, Closed, First, Means, Wanted
from mempiler.programs.thresholds import COSINES

USERS = 5
CHAIN = {"strategy": "chain"}
CLAIMS = (
    *("chain for tree", "tree for chain", "chain for tree, base", "base: no refinement, chain"),
    *("1 round", "2 rounds", "a round must find 20", "no summary", "no summary, chain"),
    *("no augmentation, base", "no augmentation, where it rewrites", "nothing is close enough, base", "tau .8"),
    *("no consolidation", "nothing is alike (.95)", "a window of a year", "updates see 1 known fact"),
    "an update a session",
)


@pytest.fixture(scope="module")
def bench(benches):
    return benches("pgr", USERS)


@pytest.fixture(scope="module")
def world() -> PGRWorld:
    return PGRWorld.load(users=USERS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mechanism_matters_to_its_questions_and_to_no_others(unborne, name):
    assert unborne(name) == []


def test_a_question_that_names_its_thing_needs_no_prospection(bench):
    whole, alone = bench.means({}), bench.means(method="fact-store")
    assert {whole[name] for name in ("direct", "window", "count")} == {1.0}
    assert {alone[name] for name in ("direct", "window", "count")} == {1.0}


def test_every_round_reaches_one_link_further(bench):
    for links in (1, 2, 3):
        scores = [bench.means({"iterations": rounds, "min_new": 1})[f"hop{links}"] for rounds in range(4)]
        assert scores[links:] == [1.0] * (4 - links)
        assert all(score < 0.7 for score in scores[:links])


def test_an_oracle_that_errs_loses_answers_but_not_all(bench):
    assert set(bench.means(rate=1.0).values()) == {0.0}
    assert 0.0 < bench.means(rate=0.3)["direct"] < 1.0


def test_evidence_is_what_the_answer_rests_on(world: PGRWorld) -> None:
    for example in world.examples:
        said = " ".join(example.history.turns[id][0].text for id in example.evidence)
        assert FACTS.read(said)
        assert example.focus == example.evidence
        if example.category not in ("left", "count"):
            assert example.answer in said


def test_what_imagined_steps_reach_is_far_from_the_question_and_near_to_a_step(world: PGRWorld) -> None:
    near, vectors = COSINES["offline"]["near"], embedder()
    for example in world.examples:
        asked = QUESTIONS.read(example.question)[0]
        if not isinstance(asked, Wanted | First | Means) or example.category == "alias":
            continue
        texts = [example.history.turns[id][0].text for id in example.evidence]
        question, *facts = vectors.embed([example.question, *texts])
        assert max(float(question @ fact) for fact in facts) < 2 * near
        steps = vectors.embed([STEPS.say(Act(FACTS.read(text)[0].thing)) for text in texts])
        assert min(float(step @ fact) for step, fact in zip(steps, facts, strict=True)) > 2 * near


def test_no_thing_belongs_to_two_errands() -> None:
    things = [thing for slots in ERRANDS.values() for slot in slots for thing in slot]
    words = [*things, *SUPPLIES, *OWN, *(word for errand in ERRANDS for word in errand.split() if len(word) > 3)]
    assert len(words) == len(set(words))


def test_the_same_seed_gives_the_same_users_and_more_users_begin_with_them(world: PGRWorld) -> None:
    assert PGRWorld.load(users=str(USERS)).source == world.source
    assert PGRWorld.load(users=USERS + 2).histories[:USERS] == world.histories
    assert PGRWorld.load(users=USERS, seed=1).source.sha256 != world.source.sha256


def test_three_users_are_one_of_each_part() -> None:
    split = PGRWorld.load(users=3).split()
    assert [len({example.history.id for example in part}) for part in (split.train, split.dev, split.test)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"path": "file.json"}, DataError),
        ({"users": 0}, DataError),
        ({"users": "many"}, DataError),
        ({"seed": -1}, DataError),
        ({"fillers": -1}, DataError),
        ({"sessions": 3}, UnknownNameError),
    ],
)
def test_what_is_no_world_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        benchmark("world.pgr", **options)


def test_a_thing_that_is_out_of_the_question_is_in_no_state() -> None:
    assert FACTS.read(FACTS.say(Closed("stove"))) == (Closed("stove"),)
