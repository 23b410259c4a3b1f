"""The worked trace of the paper (appendix A.3) with a scripted model and index; malformed trees; how the loop ends."""

from datetime import datetime

import dspy
import pytest
from dspy.lm15 import AuthError, ContextLengthError, InvalidRequestError
from hypothesis import given
from hypothesis import strategies as st
from mempiler.errors import UserError
from mempiler.programs.pgr.prospection import Prospection, ProspectionSettings
from mempiler.programs.pgr.tree import repair_tree
from mempiler.programs.recording import recording
from mempiler.records import Hit
from mempiler.signatures.pgr import TreeNode

QUERY = "I want to pre-order a new game that just got announced. Does it make sense to do it now?"
STEPS = {
    "A1": ("Check release date and pre-order availability", None),
    "A2": ("Look up trailers", "A1"),
    "A3": ("Check pre-order bonuses", "A1"),
    "A4": ("Read early reviews", "A2"),
    "A5": ("Compare with similar games", "A2"),
    "A6": ("Check price and payment", "A3"),
    "A7": ("Match the game with own taste", "A4"),
    "A8": ("Weigh the risk of bugs at launch", "A6"),
    "A9": ("Pre-order or wait", "A7"),
}
FOUND = [
    {
        QUERY: ["finish-one-game", "two-rules", "trip-money", "fun-money-march"],
        "A1": ["trip-money"],
        "A2": ["keyboard-rpg", "cinema"],
        "A4": ["interview-notes"],
        "A5": ["keyboard-rpg", "rdr2-first"],
        "A6": ["fun-money-march", "weekly-check", "fifty-euro-bill", "charger"],
        "A7": ["session-cap", "evenings"],
        "A8": ["gpu-maintenance"],
        "A9": ["two-rules", "available-note"],
    },
    {
        "A2": ["keyboard-rpg", "eye-strain"],
        "A6": ["weekly-check-again", "fifty-euro-bill-again", "trip-fund-reminder"],
        "A8": ["gpu-maintenance", "gpu-heat"],
        "A9": ["finish-one-game"],
    },
    {
        "A1": ["bad-weather", "trip-money"],
        "A7": ["co-op-thursday", "session-cap"],
        "A8": ["gpu-heat"],
    },
]
"""Facts by round and probe: 15 in phase 1, then 5 and 2 new ones."""


def tree(round):
    return [
        {
            "action_id": id,
            "action": action,
            "constraints": f"round {round}",
            "parent": parent,
            "children": [child for child, (_, above) in STEPS.items() if above == id],
        }
        for id, (action, parent) in STEPS.items()
    ]


def reply(kind, text, n):
    if kind in ("tree", "updated_tree"):
        return {kind: tree(n - 1 if kind == "tree" else n)}
    return {kind: "Wishlist rather than pre-order: trip money is locked."}


class ScriptedIndex:
    """Finds what `FOUND` says for a probe, and remembers the calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, queries, k, min_score):
        self.calls.append((list(queries), k, min_score))
        if min_score == 0.6:
            return [[] for _ in queries]
        names = {f"{action}: ": id for id, (action, _) in STEPS.items()}
        found = []
        for query in queries:
            step = next((id for action, id in names.items() if query.startswith(action)), query)
            round = 0 if query == QUERY else int(query[-1])
            ids = enumerate(FOUND[round].get(step, []))
            found.append(
                [Hit(id=id, text=f"about {id}", score=0.9 - n / 10, sources=(id,)) for n, id in ids]
            )
        return found


def recalled(scripted, index, answer=reply, **settings):
    lm = scripted(answer)
    with dspy.context(lm=lm):
        context = Prospection(ProspectionSettings(**settings)).recall(
            index, QUERY, datetime(2026, 3, 5)
        )
    return context, lm.engine


def test_the_trace_finds_15_facts_then_5_then_2_and_stops(scripted):
    index = ScriptedIndex()
    context, engine = recalled(scripted, index)
    assert context.counts["first"] == 15
    assert context.counts["facts"] == 15 + 5 + 2
    assert context.counts["new"] == 5 + 2
    assert context.counts["rounds"] == 2
    assert [hit.id for hit in context.hits][-2:] == ["bad-weather", "co-op-thursday"]
    assert engine.calls == {"tree": 1, "updated_tree": 2, "prospection_summary": 1}
    assert context.counts["calls"] == 4
    sizes = [(len(queries), k, low) for queries, k, low in index.calls]
    assert sizes == [
        (1, 5, 0.6),
        (10, 5, 0.3),
        (9, 5, 0.3),
        (9, 5, 0.3),
    ]  # all probes of a round in one call
    assert index.calls[1][0][0] == QUERY
    assert context.counts["probes"] == 28
    assert context.notes == {"prospection": "Wishlist rather than pre-order: trip money is locked."}
    refined = [
        text.rsplit("personal_context", 1)[1]
        for kind, text in engine.prompts
        if kind == "updated_tree"
    ]
    assert [text.count("about ") for text in refined] == [15, 20]


@pytest.mark.parametrize(
    ("settings", "calls", "facts"),
    [
        ({"iterations": 0}, {"tree": 1, "prospection_summary": 1}, 15),
        ({"summary": False}, {"tree": 1, "updated_tree": 2}, 22),
        ({"min_new": 6}, {"tree": 1, "updated_tree": 1, "prospection_summary": 1}, 20),
    ],
)
def test_switches_of_tables_4_and_5(scripted, settings, calls, facts):
    context, engine = recalled(scripted, ScriptedIndex(), **settings)
    assert engine.calls == calls
    assert context.counts["facts"] == facts
    assert bool(context.notes) == settings.get("summary", True)


@pytest.mark.parametrize(
    ("augment", "imagined", "known", "calls"),
    [
        ("rewrite", "Clearer query", "", 1),
        ("append", QUERY, "Plays RPGs", 0),
        ("none", QUERY, "", 0),
    ],
)
def test_the_query_is_augmented_before_it_is_imagined_but_searched_as_it_was(
    scripted, augment, imagined, known, calls
):
    asked = []

    def search(queries, k, low):
        asked.append((list(queries), low))
        return [[Hit(id="rpg", text="Plays RPGs", score=0.7)] for _ in queries]

    def answer(kind, text, n):
        return {kind: "Clearer query"} if kind == "augmented_query" else reply(kind, text, n)

    _, engine = recalled(scripted, search, answer, augment=augment, iterations=0, summary=False)
    prompt = engine.prompts[-1][1].rsplit("[[ ## question ## ]]", 1)[1]
    assert prompt.split("\n\nRespond")[0].split("\n\n[[ ## known_facts ## ]]\n") == [
        f"\n{imagined}",
        known,
    ]
    assert engine.calls["augmented_query"] == calls
    assert asked[-1][0][0] == QUERY
    assert (asked[0] == ([QUERY], 0.6)) == (augment != "none")


ids = st.sampled_from(["", "A1", "A2", "A3", "A4", "A5"])
trees = st.lists(
    st.builds(
        TreeNode,
        action_id=ids,
        action=st.sampled_from(["", "look", "ask", "pay"]),
        parent=st.one_of(st.none(), ids),
        children=st.lists(ids, max_size=3),
    ),
    max_size=8,
)


@given(trees)
def test_whatever_comes_becomes_one_tree_of_all_steps(nodes):
    tree = repair_tree(nodes)
    assert repair_tree(tree) == tree
    assert [node.action for node in tree] == [node.action for node in nodes if node.action]
    parents = {node.action_id: node.parent for node in tree}
    assert len(parents) == len(tree)
    assert [parent for parent in parents.values() if parent is None] == [None] * bool(tree)
    for node in tree:
        at, steps = node.action_id, 0
        while parents[at] is not None:
            at, steps = parents[at], steps + 1
            assert steps <= len(tree)
        assert all(parents[child] == node.action_id for child in node.children)
    assert sum(len(node.children) for node in tree) == max(0, len(tree) - 1)


def everything(queries, k, min_score):
    return [[Hit(id=f"{query[:3]}", text="a fact", score=0.5)] for query in queries]


@pytest.mark.parametrize(
    ("first", "counts"),
    [
        (
            {"tree": [{"action_id": "A1", "action": "x", "parent": "A1"}]},
            {"repaired": 1, "malformed": 0},
        ),
        ("I would rather not.", {"repaired": 0, "malformed": 1}),
    ],
)
def test_malformed_trees_are_counted_and_the_query_still_finds_its_own(scripted, first, counts):
    def reply(kind, text, n):
        return first if kind == "tree" else {kind: [] if kind == "updated_tree" else "summary"}

    settings = ProspectionSettings(iterations=0, augment="none", summary=False)
    with dspy.context(lm=scripted(reply)):
        context = Prospection(settings).recall(everything, "query", "today")
    assert {name: context.counts[name] for name in counts} == counts
    assert "que" in {hit.id for hit in context.hits}


def test_a_round_without_steps_ends_the_loop_and_keeps_what_was_found(scripted):
    def reply(kind, text, n):
        return (
            {"tree": [{"action_id": "A1", "action": "go"}]}
            if kind == "tree"
            else "no fields at all"
        )

    with dspy.context(lm=scripted(reply)):
        context = Prospection(ProspectionSettings(augment="none")).recall(everything, "query")
    assert context.counts["rounds"] == 0
    assert context.counts["facts"] == 2
    assert context.notes == {}
    assert context.counts["malformed"] == 2


REFUSALS = {
    "refused": InvalidRequestError("flagged by the content filter"),
    "too-long": ContextLengthError("too long"),
}


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("step", ["tree", "updated_tree", "prospection_summary"])
def test_a_refused_prompt_costs_its_step_and_keeps_what_was_found(scripted, step, kind):
    def answer(field, text, n):
        if field == step:
            raise REFUSALS[kind]
        return reply(field, text, n)

    with recording() as record:
        context, _ = recalled(scripted, ScriptedIndex(), answer)
    assert {"finish-one-game", "two-rules"} <= {hit.id for hit in context.hits}
    assert bool(context.notes) == (step != "prospection_summary")
    assert {failure.kind for failure in record.failures} == {kind}
    assert context.counts["malformed"] == len(record.failures)


def test_an_endpoint_that_refuses_the_key_ends_the_recall(scripted):
    def answer(field, text, n):
        raise AuthError("wrong key")

    with pytest.raises(UserError, match="refuses the key"):
        recalled(scripted, ScriptedIndex(), answer)
