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
    """The recall that the paper prints, its trace, is repeated by a scripted model and index.

    PGR has a model imagine a tree of steps towards an answer, and searches for each step. Then the
    model refines the tree in rounds. A round that finds fewer than 5 new facts is the last. At the
    end the model sums up what the steps have found.
    """
    lm = scripted(trace_reply)
    context = recall(lm, ScriptedIndex())

    assert lm.engine.calls == {"tree": 1, "updated_tree": 2, "prospection_summary": 1}
    assert context.notes == {"prospection": SUMMARY}
    facts_of_first_tree = 15
    new_facts_of_rounds = [5, 2]
    assert context.counts["first"] == facts_of_first_tree
    assert context.counts["new"] == sum(new_facts_of_rounds)
    assert context.counts["facts"] == facts_of_first_tree + sum(new_facts_of_rounds)
    assert context.counts["rounds"] == len(new_facts_of_rounds)
    # These are the new facts of the second round.
    assert [hit.id for hit in context.hits][-2:] == ["bad-weather", "co-op-thursday"]


def test_the_trace_searches_for_all_steps_of_a_round_at_once(scripted: Any) -> None:
    """One search for all nine steps of a tree costs one request to an embedding model.

    There are a first tree and two refinements of it.
    """
    steps_of_a_tree = len(STEPS)
    index = ScriptedIndex()
    recall(scripted(trace_reply), index)

    _augmentation, first_tree, first_refinement, second_refinement = index.calls
    # The search for the steps of the first tree is also for the query itself.
    assert first_tree.queries[0] == QUERY
    assert len(first_tree.queries[1:]) == steps_of_a_tree
    assert len(first_refinement.queries) == steps_of_a_tree
    assert len(second_refinement.queries) == steps_of_a_tree


def test_a_refinement_sees_the_facts_that_were_found_before(scripted: Any) -> None:
    """A refinement imagines the steps anew with the facts that are known by then.

    Of the trace's facts, the first tree finds "gpu-maintenance", the first refinement "gpu-heat".
    """
    lm = scripted(trace_reply)
    recall(lm, ScriptedIndex())

    prompts = [text for kind, text in lm.engine.prompts if kind == "updated_tree"]
    first_facts, second_facts = [prompt_field(prompt, "personal_context") for prompt in prompts]
    assert "gpu-maintenance" in first_facts
    assert "gpu-heat" not in first_facts
    assert "gpu-maintenance" in second_facts
    assert "gpu-heat" in second_facts


# Parts of PGR that can be switched off: the paper measures what each is worth (Tables 4 and 5).


def test_with_no_rounds_the_first_tree_is_not_refined(scripted: Any) -> None:
    """The setting `iterations` limits the rounds in which a model imagines the steps anew."""
    lm = scripted(trace_reply)
    context = recall(lm, ScriptedIndex(), iterations=0)

    assert lm.engine.calls == {"tree": 1, "prospection_summary": 1}
    # The 15 facts of the first tree
    assert context.counts["facts"] == 15


def test_without_a_summary_the_model_is_asked_for_none(scripted: Any) -> None:
    """By default a model sums up what the imagined steps have found."""
    lm = scripted(trace_reply)
    context = recall(lm, ScriptedIndex(), summary=False)

    assert "prospection_summary" not in lm.engine.calls
    assert context.notes == {}


@pytest.mark.parametrize(("min_new", "rounds"), [(5, 2), (6, 1)])
def test_a_round_with_fewer_new_facts_than_are_set_is_the_last(
    scripted: Any, min_new: int, rounds: int
) -> None:
    """In the trace of the paper the first round finds 5 new facts, and the second round 2."""
    context = recall(scripted(trace_reply), ScriptedIndex(), min_new=min_new)

    assert context.counts["rounds"] == rounds


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


def recall_once(lm: Any, index: OneFactIndex, augment: str) -> None:
    """Recall facts for the query by a first tree alone, without refinements and a summary."""
    recall(lm, index, augment=augment, iterations=0, summary=False)


def prompt_of_first_tree(lm: Any) -> str:
    """Return the prompt that asked a scripted model to imagine the first tree of steps."""
    (prompt,) = [text for kind, text in lm.engine.prompts if kind == "tree"]
    return prompt


def test_known_facts_can_have_the_query_rewritten(scripted: Any) -> None:
    """A model rewrites the query by facts that are very near to it: "Clearer query".

    Then it imagines steps towards an answer for the new query.
    """
    lm = scripted(rewriting_reply)
    recall_once(lm, OneFactIndex(), augment="rewrite")

    assert lm.engine.calls["augmented_query"] == 1
    assert prompt_field(prompt_of_first_tree(lm), "question") == "Clearer query"


def test_known_facts_can_stand_beside_the_query(scripted: Any) -> None:
    """The model that imagines steps is then shown facts that are very near to the query.

    The index knows only one fact, "Plays RPGs".
    """
    lm = scripted(rewriting_reply)
    recall_once(lm, OneFactIndex(), augment="append")

    assert lm.engine.calls["augmented_query"] == 0
    assert prompt_field(prompt_of_first_tree(lm), "question") == QUERY
    assert prompt_field(prompt_of_first_tree(lm), "known_facts") == "Plays RPGs"


@pytest.mark.parametrize("augment", ["rewrite", "append"])
def test_only_facts_very_near_to_the_query_augment_it(scripted: Any, augment: str) -> None:
    """A fact augments the query from a cosine of 0.6; for a step it is found from 0.3."""
    index = OneFactIndex()
    recall_once(scripted(rewriting_reply), index, augment)

    augmentation, search_for_steps = index.calls
    assert augmentation == SearchCall([QUERY], k=5, min_score=0.6)
    assert search_for_steps.min_score == 0.3
    # The memory is searched for the query as it was asked, even if it was rewritten.
    assert search_for_steps.queries[0] == QUERY


def test_without_augmentation_only_the_query_and_the_steps_are_searched_for(scripted: Any) -> None:
    """No facts are looked up before the model imagines steps, so that there is one search."""
    lm = scripted(rewriting_reply)
    index = OneFactIndex()
    recall_once(lm, index, augment="none")

    (search,) = index.calls
    assert search.queries[0] == QUERY
    assert len(search.queries[1:]) == len(STEPS)
    assert prompt_field(prompt_of_first_tree(lm), "known_facts") == ""


# Malformed trees and refused prompts


def find_a_fact_for_every_query(
    queries: Sequence[str], k: int, min_score: float
) -> list[list[Hit]]:
    """An index that finds a fact for every query, with the query as its id."""
    return [[Hit(id=query, text="a fact", score=0.5)] for query in queries]


def test_a_tree_with_a_wrong_step_is_repaired_and_counted(scripted: Any) -> None:
    """The only step names itself as its parent. It is searched for all the same.

    The index finds a fact for every query, with the query as its id.
    """
    own_parent = {"action_id": "A1", "action": "look at reviews", "parent": "A1"}
    lm = scripted(lambda kind, text, n: {"tree": [own_parent]})

    context = recall(
        lm,
        find_a_fact_for_every_query,
        "Should I buy it?",
        augment="none",
        iterations=0,
        summary=False,
    )

    assert context.counts["repaired"] == 1
    assert {hit.id for hit in context.hits} == {"Should I buy it?", "look at reviews"}


def test_a_refinement_that_cannot_be_read_is_the_last_and_the_facts_stay(scripted: Any) -> None:
    """The first tree has one step, and no other answer of the model can be read.

    The index finds a fact for every query, with the query as its id.
    """

    def answer_with_a_first_tree_alone(kind: str, text: str, n: int) -> Any:
        if kind == "tree":
            return {"tree": [{"action_id": "A1", "action": "go"}]}
        return "no fields at all"

    lm = scripted(answer_with_a_first_tree_alone)
    context = recall(lm, find_a_fact_for_every_query, "Should I buy it?", augment="none")

    assert {hit.id for hit in context.hits} == {"Should I buy it?", "go"}
    assert context.counts["rounds"] == 0
    # The answers to the refinement and to the summary could not be read.
    assert context.counts["malformed"] == 2


@pytest.mark.parametrize(
    ("error", "failure_kind"),
    [
        (InvalidRequestError("flagged by the content filter"), "refused"),
        (ContextLengthError("too long"), "too-long"),
    ],
)
@pytest.mark.parametrize("refused_output", ["tree", "updated_tree", "prospection_summary"])
def test_a_recall_goes_on_without_a_prompt_that_the_model_refuses(
    scripted: Any, refused_output: str, error: Exception, failure_kind: str
) -> None:
    """Without the first tree, a refined tree or the summary, the query still finds its facts.

    Two of the facts are called "finish-one-game" and "two-rules" in the index.
    """

    def refuse_one_prompt(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == refused_output:
            raise error
        return trace_reply(kind, text, n)

    with recording() as record:
        context = recall(scripted(refuse_one_prompt), ScriptedIndex())

    assert {"finish-one-game", "two-rules"} <= {hit.id for hit in context.hits}
    assert {failure.kind for failure in record.failures} == {failure_kind}
    assert context.counts["malformed"] == len(record.failures)


def test_an_endpoint_that_refuses_the_key_ends_the_recall(scripted: Any) -> None:
    """With a wrong key no other prompt would be answered either, so the user is told."""

    def refuse_the_key(kind: str, text: str, n: int) -> Any:
        raise AuthError("wrong key")

    with pytest.raises(UserError, match="refuses the key"):
        recall(scripted(refuse_the_key), ScriptedIndex())
