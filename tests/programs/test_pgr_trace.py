"""PGR's recall: the worked trace of the paper (appendix A.3) with a scripted model and index.

A model imagines a tree of steps towards an answer, and every step is a query for the memory. Then
the model refines the tree by the facts that were found, round by round.

The paper prints the steps and the facts of one such recall, its trace: someone asks whether to
pre-order a game, and the memory knows of a planned trip and a fixed budget. The script answers with
these steps, and the index finds these facts. Prompts have the outputs "tree" (the first steps),
"updated_tree" (a refinement) and "prospection_summary".

After the trace there are malformed trees, refused prompts, and how the rounds end.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import dspy
import pytest
from dspy.lm15 import AuthError, ContextLengthError, InvalidRequestError
from mempiler.errors import UserError
from mempiler.programs.pgr.prospection import Prospection, ProspectionSettings
from mempiler.programs.recording import recording
from mempiler.records import Hit

from .conftest import prompt_field

# The trace of the paper

AUGMENT_SCORE = 0.6
"""How near a fact has to be to the query to augment it, by default and in the paper."""

QUERY = "I want to pre-order a new game that just got announced. Does it make sense to do it now?"
SUMMARY = "Wishlist rather than pre-order: trip money is locked."


class Step(NamedTuple):
    """A step of the imagined tree."""

    action: str
    parent: str | None


STEPS = {
    "A1": Step("Check release date and pre-order availability", None),
    "A2": Step("Look up trailers", "A1"),
    "A3": Step("Check pre-order bonuses", "A1"),
    "A4": Step("Read early reviews", "A2"),
    "A5": Step("Compare with similar games", "A2"),
    "A6": Step("Check price and payment", "A3"),
    "A7": Step("Match the game with own taste", "A4"),
    "A8": Step("Weigh the risk of bugs at launch", "A6"),
    "A9": Step("Pre-order or wait", "A7"),
}

FACTS_OF_QUERY = ["finish-one-game", "two-rules", "trip-money", "fun-money-march"]
"""Ids of the facts that the index finds for the query itself."""

FACTS_OF_STEPS = [
    # The first tree: with the facts of the query, 15 different ones
    {
        "A1": ["trip-money"],
        "A2": ["keyboard-rpg", "cinema"],
        "A4": ["interview-notes"],
        "A5": ["keyboard-rpg", "rdr2-first"],
        "A6": ["fun-money-march", "weekly-check", "fifty-euro-bill", "charger"],
        "A7": ["session-cap", "evenings"],
        "A8": ["gpu-maintenance"],
        "A9": ["two-rules", "available-note"],
    },
    # The first round of refinement: five new ones
    {
        "A2": ["keyboard-rpg", "eye-strain"],
        "A6": ["weekly-check-again", "fifty-euro-bill-again", "trip-fund-reminder"],
        "A8": ["gpu-maintenance", "gpu-heat"],
        "A9": ["finish-one-game"],
    },
    # The second round: two new ones
    {
        "A1": ["bad-weather", "trip-money"],
        "A7": ["co-op-thursday", "session-cap"],
        "A8": ["gpu-heat"],
    },
]
"""Ids of the facts that the index finds for the steps, by round."""


def imagined_tree(round_number: int) -> list[dict[str, Any]]:
    """Return the tree of a round as a model writes it; its steps name the round."""
    nodes: list[dict[str, Any]] = []
    for step_id, step in STEPS.items():
        nodes.append(
            {
                "action_id": step_id,
                "action": step.action,
                "constraints": f"round {round_number}",
                "parent": step.parent,
                "children": [
                    child_id for child_id, child in STEPS.items() if child.parent == step_id
                ],
            }
        )
    return nodes


def trace_reply(kind: str, text: str, n: int) -> dict[str, Any]:
    """Answer with the tree of the round, or with the summary."""
    if kind == "tree":
        return {"tree": imagined_tree(0)}
    if kind == "updated_tree":
        return {"updated_tree": imagined_tree(n)}
    return {kind: SUMMARY}


class SearchCall(NamedTuple):
    """The arguments of one call of an index."""

    queries: list[str]
    k: int
    min_score: float


class ScriptedIndex:
    """An index that finds the facts of the trace, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[SearchCall] = []

    def __call__(self, queries: Sequence[str], k: int, min_score: float) -> list[list[Hit]]:
        self.calls.append(SearchCall(list(queries), k, min_score))
        if min_score == AUGMENT_SCORE:
            # No fact is near enough to augment the query.
            return [[] for _ in queries]

        results: list[list[Hit]] = []
        for query in queries:
            hits = [
                Hit(id=fact_id, text=f"about {fact_id}", score=0.9 - rank / 10, sources=(fact_id,))
                for rank, fact_id in enumerate(self._fact_ids(query))
            ]
            results.append(hits)
        return results

    def _fact_ids(self, query: str) -> list[str]:
        """Return the ids of the facts for the query, or for a step: "Look up trailers: round 1"."""
        if query == QUERY:
            return FACTS_OF_QUERY
        action, _, constraints = query.partition(": ")
        round_number = int(constraints.removeprefix("round "))
        (step_id,) = [step_id for step_id, step in STEPS.items() if step.action == action]
        return FACTS_OF_STEPS[round_number].get(step_id, [])


def recall(
    lm: Any,
    index: Callable[[Sequence[str], int, float], list[list[Hit]]],
    query: str = QUERY,
    **settings: Any,
) -> Any:
    """Return the context that prospection recalls for a query."""
    prospection = Prospection(ProspectionSettings(**settings))
    with dspy.context(lm=lm):
        return prospection.recall(index, query, datetime(2026, 3, 5))


def test_the_trace_finds_15_facts_then_5_then_2_and_stops(scripted: Any) -> None:
    """PGR has a model imagine a tree of steps towards an answer, and searches for each step.

    Rounds of refinement imagine the steps anew; one with fewer than 5 new facts is the last. The
    paper prints such a recall, its trace, which the script and the index repeat: the first tree
    finds 15 facts, and the two rounds 5 and 2 that are new.
    """
    context = recall(scripted(trace_reply), ScriptedIndex())

    assert context.counts["first"] == 15
    assert context.counts["facts"] == 15 + 5 + 2
    assert context.counts["new"] == 5 + 2
    assert context.counts["rounds"] == 2
    # These are the new facts of the second round.
    assert [hit.id for hit in context.hits][-2:] == ["bad-weather", "co-op-thursday"]


def test_the_trace_takes_a_call_for_each_tree_and_one_for_the_summary(scripted: Any) -> None:
    """Here are two rounds of refinement. The summary says what the steps have shown."""
    lm = scripted(trace_reply)
    context = recall(lm, ScriptedIndex())

    assert lm.engine.calls == {"tree": 1, "updated_tree": 2, "prospection_summary": 1}
    assert context.counts["calls"] == 1 + 2 + 1
    assert context.notes == {"prospection": SUMMARY}


def test_the_trace_searches_for_all_steps_of_a_round_at_once(scripted: Any) -> None:
    """One search for all nine steps of a tree costs one request to an embedding model.

    There are a first tree and two refinements of it.
    """
    index = ScriptedIndex()
    context = recall(scripted(trace_reply), index)

    _augmentation, first_tree, first_refinement, second_refinement = index.calls
    # The first search is also for the query itself.
    assert first_tree.queries[0] == QUERY
    assert len(first_tree.queries) == 1 + 9
    assert len(first_refinement.queries) == 9
    assert len(second_refinement.queries) == 9
    # All queries are counted as probes.
    assert context.counts["probes"] == 1 + 3 * 9


def test_only_facts_very_near_to_the_query_are_searched_before_the_first_tree(
    scripted: Any,
) -> None:
    """They augment the query. The later searches, for the steps, have a lower threshold."""
    index = ScriptedIndex()
    recall(scripted(trace_reply), index)

    augmentation, *searches_for_steps = index.calls
    assert augmentation == SearchCall([QUERY], k=5, min_score=0.6)
    assert [(call.k, call.min_score) for call in searches_for_steps] == [(5, 0.3)] * 3


def test_a_refinement_sees_the_facts_that_were_found_before(scripted: Any) -> None:
    """A refinement imagines the steps anew with what is known by then.

    The first tree finds 15 facts, and the first refinement 5 that are new.
    """
    lm = scripted(trace_reply)
    recall(lm, ScriptedIndex())

    # The text of every fact begins with "about".
    prompts = [text for kind, text in lm.engine.prompts if kind == "updated_tree"]
    fact_counts = [prompt_field(prompt, "personal_context").count("about ") for prompt in prompts]
    assert fact_counts == [15, 15 + 5]


@pytest.mark.parametrize(
    ("settings", "calls", "facts", "has_summary"),
    [
        pytest.param(
            {"iterations": 0},
            {"tree": 1, "prospection_summary": 1},
            15,
            True,
            id="no-refinement",
        ),
        pytest.param(
            {"summary": False},
            {"tree": 1, "updated_tree": 2},
            15 + 5 + 2,
            False,
            id="no-summary",
        ),
        # The first refinement finds only 5 new facts.
        pytest.param(
            {"min_new": 6},
            {"tree": 1, "updated_tree": 1, "prospection_summary": 1},
            15 + 5,
            True,
            id="a-round-with-fewer-than-6-new-facts-is-the-last",
        ),
    ],
)
def test_refinements_and_the_summary_can_be_switched_off(
    scripted: Any,
    settings: dict[str, Any],
    calls: dict[str, int],
    facts: int,
    has_summary: bool,
) -> None:
    """The paper measures what each part of PGR is worth by leaving it out (Tables 4 and 5).

    By default the first tree of steps finds 15 facts, and two rounds of refinement 5 and 2 more.
    `iterations` limits the rounds, and a round with fewer than `min_new` new facts is the last.
    """
    lm = scripted(trace_reply)
    context = recall(lm, ScriptedIndex(), **settings)

    assert lm.engine.calls == calls
    assert context.counts["facts"] == facts
    assert bool(context.notes) is has_summary


# The query is augmented


class OneFactIndex:
    """An index that finds "Plays RPGs" for every query, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[SearchCall] = []

    def __call__(self, queries: Sequence[str], k: int, min_score: float) -> list[list[Hit]]:
        self.calls.append(SearchCall(list(queries), k, min_score))
        return [[Hit(id="rpg", text="Plays RPGs", score=0.7)] for _ in queries]


def rewriting_reply(kind: str, text: str, n: int) -> dict[str, Any]:
    """Answer as `trace_reply` does, and rewrite every query as "Clearer query"."""
    if kind == "augmented_query":
        return {kind: "Clearer query"}
    return trace_reply(kind, text, n)


@pytest.mark.parametrize(
    ("augment", "question", "known_facts", "calls"),
    [
        ("rewrite", "Clearer query", "", 1),
        ("append", QUERY, "Plays RPGs", 0),
        ("none", QUERY, "", 0),
    ],
)
def test_the_tree_is_imagined_for_the_augmented_query(
    scripted: Any, augment: str, question: str, known_facts: str, calls: int
) -> None:
    """Known facts either have the query rewritten by a call of the model, or stand beside it.

    Here the only known fact is "Plays RPGs", and the model rewrites every query as "Clearer query".
    """
    lm = scripted(rewriting_reply)
    recall(lm, OneFactIndex(), augment=augment, iterations=0, summary=False)

    (prompt,) = [text for kind, text in lm.engine.prompts if kind == "tree"]
    assert prompt_field(prompt, "question") == question
    assert prompt_field(prompt, "known_facts") == known_facts
    assert lm.engine.calls["augmented_query"] == calls


@pytest.mark.parametrize("augment", ["rewrite", "append", "none"])
def test_memories_are_searched_for_the_query_as_it_was_asked(scripted: Any, augment: str) -> None:
    """A query is augmented with known facts only for the model that imagines steps."""
    index = OneFactIndex()
    recall(scripted(rewriting_reply), index, augment=augment, iterations=0, summary=False)

    assert index.calls[-1].queries[0] == QUERY


@pytest.mark.parametrize("augment", ["rewrite", "append"])
def test_facts_that_augment_the_query_are_searched_first(scripted: Any, augment: str) -> None:
    """The model that imagines steps is shown these facts, or a query that they have rewritten."""
    index = OneFactIndex()
    recall(scripted(rewriting_reply), index, augment=augment, iterations=0, summary=False)

    augmentation, _search_for_steps = index.calls
    assert augmentation.queries == [QUERY]
    # Only facts that are very near to the query augment it.
    assert augmentation.min_score == 0.6


def test_without_augmentation_only_the_query_and_the_steps_are_searched_for(scripted: Any) -> None:
    """Known facts can augment the query, before steps towards an answer are imagined for it."""
    index = OneFactIndex()
    recall(scripted(rewriting_reply), index, augment="none", iterations=0, summary=False)

    (search,) = index.calls
    assert search.queries[0] == QUERY
    assert len(search.queries) == 1 + 9
    # The threshold of steps, which is lower than that of augmentation
    assert search.min_score == 0.3


# Malformed trees and refused prompts


def find_a_fact_for_every_query(
    queries: Sequence[str], k: int, min_score: float
) -> list[list[Hit]]:
    """An index that finds a fact for every query, with the query as its id."""
    return [[Hit(id=query, text="a fact", score=0.5)] for query in queries]


@pytest.mark.parametrize(
    ("first_answer", "repaired", "malformed"),
    [
        pytest.param(
            {"tree": [{"action_id": "A1", "action": "x", "parent": "A1"}]},
            1,
            0,
            id="its-own-parent",
        ),
        pytest.param("I would rather not.", 0, 1, id="no-tree"),
    ],
)
def test_a_malformed_tree_is_counted_and_the_query_still_finds_its_facts(
    scripted: Any, first_answer: Any, repaired: int, malformed: int
) -> None:
    """A model imagines a tree of steps towards an answer, each of which is searched for.

    A repaired tree was wrong in one step, a malformed answer holds no tree at all. The index finds
    a fact for every query, with the query as its id.
    """
    lm = scripted(lambda kind, text, n: first_answer)
    only_a_tree = {"iterations": 0, "augment": "none", "summary": False}

    context = recall(lm, find_a_fact_for_every_query, query="Should I buy it?", **only_a_tree)

    assert context.counts["repaired"] == repaired
    assert context.counts["malformed"] == malformed
    assert "Should I buy it?" in {hit.id for hit in context.hits}


def test_a_round_without_steps_is_the_last_and_the_facts_stay(scripted: Any) -> None:
    """The first tree has one step, and the answer that should refine it cannot be read.

    The index finds a fact for every query, with the query as its id.
    """

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "tree":
            return {"tree": [{"action_id": "A1", "action": "go"}]}
        return "no fields at all"

    context = recall(
        scripted(reply), find_a_fact_for_every_query, query="Should I buy it?", augment="none"
    )

    assert {hit.id for hit in context.hits} == {"Should I buy it?", "go"}
    assert context.counts["rounds"] == 0
    # The answers to the refinement and to the summary could not be read.
    assert context.counts["malformed"] == 2
    assert context.notes == {}


@pytest.mark.parametrize(
    ("error", "failure_kind"),
    [
        (InvalidRequestError("flagged by the content filter"), "refused"),
        (ContextLengthError("too long"), "too-long"),
    ],
)
@pytest.mark.parametrize(
    ("refused_output", "has_summary"),
    [("tree", True), ("updated_tree", True), ("prospection_summary", False)],
)
def test_a_recall_goes_on_without_a_prompt_that_the_model_refuses(
    scripted: Any, refused_output: str, has_summary: bool, error: Exception, failure_kind: str
) -> None:
    """Without a tree of steps, further rounds or a summary, the query still finds its facts.

    Two of these are called "finish-one-game" and "two-rules" in the index.
    """

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == refused_output:
            raise error
        return trace_reply(kind, text, n)

    with recording() as record:
        context = recall(scripted(reply), ScriptedIndex())

    fact_ids = {hit.id for hit in context.hits}
    assert "finish-one-game" in fact_ids
    assert "two-rules" in fact_ids
    assert bool(context.notes) is has_summary
    assert {failure.kind for failure in record.failures} == {failure_kind}
    assert context.counts["malformed"] == len(record.failures)


def test_an_endpoint_that_refuses_the_key_ends_the_recall(scripted: Any) -> None:
    """No other prompt would do better, so the user is told."""

    def reply(kind: str, text: str, n: int) -> Any:
        raise AuthError("wrong key")

    with pytest.raises(UserError, match="refuses the key"):
        recall(scripted(reply), ScriptedIndex())
