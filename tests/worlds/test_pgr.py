"""The world of PGR: what it says can be checked, and every mechanism of the method is needed in it."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.worlds.pgr import OWN, SUPPLIES, PGRWorld
from mempiler.engines.embedders import embedder
from mempiler.errors import DataError, UnknownNameError
from mempiler.grammar.pgr import ERRANDS, FACTS, QUESTIONS, STEPS, Act, Closed, First, Means, Wanted
from mempiler.programs.thresholds import COSINES

USERS = 5
FULL = ("pgr", {})
CHAIN = ("pgr", {"strategy": "chain"})
BASE = ("pgr", {"iterations": 0})
QUERY_ONLY = ("fact-store", {})


def pgr(**settings: Any) -> tuple[str, dict[str, Any]]:
    return "pgr", settings


CLAIMS = {
    "imagined steps (Figure 3)": ("prospect", FULL, QUERY_ONLY),
    "a tree, where branches matter (Table 3)": ("branch", FULL, CHAIN),
    "a tree, where all options but one are closed": ("left", BASE, pgr(strategy="chain", iterations=0)),
    "a chain, where order matters": ("order", CHAIN, FULL),
    "a round of refinement, tree (Table 4)": ("hop1", FULL, BASE),
    "a round of refinement, chain (Table 4)": ("hop1", CHAIN, pgr(strategy="chain", iterations=0)),
    "a second round": ("hop2", FULL, pgr(iterations=1)),
    "a third round": ("hop3", FULL, pgr(iterations=2)),
    "going on while rounds find little": ("hop3", pgr(min_new=1), pgr(min_new=20)),
    "the summary, tree (Table 5)": ("left", FULL, pgr(summary=False)),
    "the summary, chain (Table 5)": ("order", CHAIN, pgr(strategy="chain", summary=False)),
    "augmentation, appended (Eq. 2)": ("alias", BASE, pgr(iterations=0, augment="none")),
    "augmentation, rewritten (Eq. 2)": (
        "alias",
        pgr(iterations=0, augment="rewrite"),
        pgr(iterations=0, augment="none"),
    ),
    "facts close enough to augment with": ("alias", BASE, pgr(iterations=0, augment_score=1.1)),
    "several facts a probe": ("hop2", FULL, pgr(k=1)),
    "a threshold that lets facts through": ("prospect", FULL, pgr(min_score=0.8)),
    "consolidation": ("merge", FULL, pgr(merge_after=10_000)),
    "a cosine that joins what is alike": ("merge", FULL, pgr(merge_score=0.95)),
    "a window of a week": ("window", FULL, pgr(window_days=365)),
    "known facts shown to an update": ("count", FULL, pgr(related=1)),
    "prospection over another memory (section 3.1)": ("prospect", ("pgr+turn-rag", {}), ("turn-rag", {})),
}
"""What is needed: the questions that need it, with and without it."""


@pytest.fixture(scope="module")
def world() -> PGRWorld:
    return PGRWorld.load(users=USERS)


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_mechanism_is_for_fails_without_it(claim: str, trial: Callable[..., Any]) -> None:
    category, whole, without = CLAIMS[claim]
    found = trial("world.pgr", USERS).fall(category, whole, without)
    assert found.interval.low > 0, f"{claim}: {found}"


@pytest.mark.parametrize("category", ["direct", "window", "count"])
def test_a_question_that_names_its_thing_needs_no_prospection(category: str, trial: Callable[..., Any]) -> None:
    there = trial("world.pgr", USERS)
    assert there.score(QUERY_ONLY, category) == there.score(FULL, category) == 1.0


def test_how_many_sessions_an_update_takes_changes_no_answer(trial: Callable[..., Any]) -> None:
    """The paper leaves it open."""
    there = trial("world.pgr", USERS)
    for category in ("count", "merge", "window"):
        assert there.score(FULL, category) == there.score(pgr(every=1), category) == 1.0


def test_every_round_reaches_one_link_further(trial: Callable[..., Any]) -> None:
    there = trial("world.pgr", USERS)
    for links in (1, 2, 3):
        scores = [there.score(pgr(iterations=rounds, min_new=1), f"hop{links}") for rounds in range(4)]
        assert scores[links:] == [1.0] * (4 - links)
        assert all(score < 0.7 for score in scores[:links])


def test_an_oracle_that_errs_loses_answers_but_not_all(trial: Callable[..., Any]) -> None:
    there = trial("world.pgr", USERS)
    assert there.score(FULL, "prospect", "oracle:1") == 0.0
    assert 0.0 < there.score(FULL, "direct", "oracle:0.3") < 1.0


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
