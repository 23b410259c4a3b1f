"""RGMem's graph: how it takes in evidence, what is recalled of it, and its ablations.

Layer L0 is the evidence: of each session a fact with conclusions. Layer L1 is the graph: paths from
a base through concepts down to events, and summaries of these. For a question a model plans
keywords, and says for each which layers of the graph are read: summaries of concepts, inferences
(summaries of events), the history (labels of events, with dates) or conclusions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Query, build
from mempiler.engines.embedders import embedder
from mempiler.programs.rgmem.graph import GraphPath, add_units
from mempiler.programs.rgmem.memory import USER, Evidence, GraphMemory, Node, Theory
from mempiler.runs.evidence import evidence_hits

from .conftest import graph_paths


def shared_graph_program(**settings: Any) -> Any:
    """Return RGMem with one graph for all speakers; settings may change that."""
    return build("rgmem", embedder=embedder(), **{"merged_graph": True, **settings})


# Recall


class Recall(NamedTuple):
    """What nine sessions were written into, and what was recalled of them for one question."""

    memory: GraphMemory
    context: Any
    calls: Mapping[str, int]
    """How often the model was asked for each first output field."""


@pytest.fixture
def recall(scripted: Any, graph_replies: Any, make_history: Any) -> Callable[..., Recall]:
    """Write nine scripted sessions and recall from them: `recall(keywords, facts=2)`.

    The model is scripted to plan these keywords for the question "Who ran in week 3?"; the other
    arguments are settings. In session 3, and likewise in all others, the evidence is a fact, e3,
    "Ann and Bob spoke of week 3.", and its conclusions e3.1, "Ann ran in week 3", and e3.2, "Bob
    saw week 3". All are about sports, and the odd ones about health as well.
    """

    def recall(keywords: list[dict[str, Any]], **settings: Any) -> Recall:
        def reply(kind: str, text: str, n: int) -> Any:
            if kind == "keywords":
                return {"keywords": keywords}
            return graph_replies(kind, text, n)

        lm = scripted(reply)
        program = shared_graph_program(**settings)
        with dspy.context(lm=lm):
            memory = program.remember(make_history(sessions=9)).memory
            context = program.method.reader.recall(memory, Query(text="Who ran in week 3?"))
        return Recall(memory, context, lm.engine.calls)

    return recall


def test_as_many_facts_and_conclusions_are_recalled_as_are_set(
    recall: Callable[..., Recall],
) -> None:
    """The settings `facts` and `conclusions` keep the prompt of the answer short.

    A keyword that names no layer is only searched for in the evidence, which all has the word
    "week".
    """
    context = recall([{"name": "week"}], facts=2, conclusions=4).context

    assert context.counts["facts"] == 2
    assert context.counts["conclusions"] == 4
    assert context.counts["nodes"] == 0


def test_a_fact_names_all_turns_of_its_session_and_a_conclusion_the_turn_it_comes_from(
    recall: Callable[..., Recall],
) -> None:
    context = recall([{"name": "week"}], facts=2, conclusions=4).context

    # Session 3 has six turns. Its first conclusion, "Ann ran in week 3", comes from the first.
    sources = {hit.id: hit.sources for hit in context.hits}
    assert sources["e3"] == ("D3:1", "D3:2", "D3:3", "D3:4", "D3:5", "D3:6")
    assert sources["e3.1"] == ("D3:1",)

    # The question is about week 3, and both facts come before the conclusions.
    hit_ids = [hit.id for hit in context.hits]
    assert hit_ids[0] == "e3"
    assert "." not in hit_ids[1]
    assert len(hit_ids) > 2
    for conclusion_id in hit_ids[2:]:
        assert "." in conclusion_id


@pytest.mark.parametrize(
    ("layers", "summaries", "inferences", "labels"),
    [
        (["summary"], 1, 0, 0),
        (["inference"], 0, 1, 0),
        (["history"], 0, 0, 3),
        (["summary", "inference", "history"], 1, 1, 3),
        # A model that answers with a text in the plural is understood.
        ("SUMMARIES", 1, 0, 0),
    ],
)
def test_a_keyword_reads_the_layers_it_is_planned_for(
    recall: Callable[..., Recall], layers: Any, summaries: int, inferences: int, labels: int
) -> None:
    """Sports has a summary, and one event, Running, with an inference and labels of its edge.

    Of a history the three newest labels are recalled.
    """
    context = recall([{"name": "Sports", "retrieve": layers}]).context

    assert context.counts["nodes"] == summaries
    assert context.counts["inferences"] == inferences
    assert context.counts["history"] == labels


def test_conclusions_about_a_topic_come_newest_first(recall: Callable[..., Recall]) -> None:
    """The graph links conclusions to topics; with `conclusions=0` no other ones are searched for.

    Three are shown at most, and the newest are those of the sessions 9, 8 and 7.
    """
    keywords = [{"name": "Sports", "retrieve": ["conclusions"]}]

    context = recall(keywords, conclusions=0, facts=0).context

    assert [hit.id for hit in context.hits] == ["e9.1", "e8.1", "e7.1"]


def blocks_of(context_text: str) -> dict[str, list[str]]:
    """Return the lines of a context under each of its headings; hits begin with "["."""
    blocks: dict[str, list[str]] = {}
    heading = ""
    for line in context_text.split("\n"):
        if line.startswith("["):
            blocks[heading].append(line)
        else:
            heading = line
            blocks[heading] = []
    return blocks


def has_date(line: str) -> bool:
    """Return whether a line of a context has a date, as in "[e3] (3 March 2024, Sunday) ..."."""
    return re.match(r"\[\S+\] \(\d+ \w+ 2024, \w+\) ", line) is not None


@pytest.fixture
def recall_of_all_blocks(recall: Callable[..., Recall]) -> Recall:
    """A recall whose context has all blocks, with one fact and one conclusion found by words."""
    keywords = [
        {"name": "Interests and Entertainment", "retrieve": ["summary"]},
        {"name": "Sports", "retrieve": ["inference", "history"]},
    ]
    return recall(keywords, facts=1, conclusions=1)


def test_a_context_is_shown_in_blocks(recall_of_all_blocks: Recall) -> None:
    """The model that answers can tell what was said from what was inferred."""
    blocks = blocks_of(recall_of_all_blocks.context.text())

    assert list(blocks) == [
        "Evidence, with dates:",
        "Conclusions:",
        "Summaries by concept:",
        "Inferred traits and restrictions:",
    ]
    # After the one fact come the labels of edges to events.
    labels = blocks["Evidence, with dates:"][1:]
    assert any(" of week " in label for label in labels)


def test_evidence_is_shown_with_dates_and_what_is_inferred_without(
    recall_of_all_blocks: Recall,
) -> None:
    blocks = blocks_of(recall_of_all_blocks.context.text())

    for heading in ("Evidence, with dates:", "Conclusions:"):
        assert all(has_date(line) for line in blocks[heading])
    for heading in ("Summaries by concept:", "Inferred traits and restrictions:"):
        assert not any(has_date(line) for line in blocks[heading])


def test_traits_and_restrictions_are_shown_apart_from_the_summaries(
    recall_of_all_blocks: Recall,
) -> None:
    blocks = blocks_of(recall_of_all_blocks.context.text())
    summaries = blocks["Summaries by concept:"]
    traits = blocks["Inferred traits and restrictions:"]

    law = "Interests and Entertainment: law 3. keen."
    assert any(line.endswith(law) for line in summaries)
    restrictions = "Interests and Entertainment, restrictions: no heat."
    assert any(line.endswith(restrictions) for line in traits)
    assert any(line.endswith("Sports, Running, inferred: steady.") for line in traits)
    assert not any("steady" in line for line in summaries)
    assert not any("no heat" in line for line in summaries)


def test_traits_are_no_evidence(recall_of_all_blocks: Recall) -> None:
    """Traits are inferred by a model, so they must not count as turns that were recalled."""
    traits = [hit for hit in recall_of_all_blocks.context.hits if hit.kind == "trait"]

    assert traits
    assert not any(hit.is_evidence for hit in traits)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param("no", id="no-fields"),
        pytest.param({"keywords": []}, id="no-keywords"),
        pytest.param({"keywords": {"name": " ", "retrieve": None}}, id="a-blank-keyword"),
    ],
)
def test_without_a_plan_the_question_is_the_keyword(
    scripted: Any, graph_replies: Any, make_history: Any, plan: Any
) -> None:
    """If the answer of the planning prompt holds no keyword, a user still gets an answer."""

    def reply(kind: str, text: str, n: int) -> Any:
        return plan if kind == "keywords" else graph_replies(kind, text, n)

    with dspy.context(lm=scripted(reply)):
        program = shared_graph_program()
        context = program(history=make_history(sessions=2), question="Who ran in week 2?").context

    assert context.counts["conclusions"] > 0


def test_search_finds_summaries_without_a_model(
    scripted: Any, graph_replies: Any, make_history: Any
) -> None:
    """The script calls summaries of concepts "concept theory 1", of edges "relation theory 1"."""
    lm = scripted(graph_replies)
    program = shared_graph_program()
    queries = ["concept theory", "relation theory", ""]
    with dspy.context(lm=lm):
        memory = program.remember(make_history(sessions=9)).memory
        calls_of_writing = len(lm.engine.prompts)
        concept_hits, relation_hits, hits_of_nothing = program.method.reader.search(
            memory, queries, k=20
        )

    assert len(lm.engine.prompts) == calls_of_writing
    assert concept_hits[0].kind == "summary"
    assert memory.nodes[concept_hits[0].id].name in ("Sports", "Health and Wellness")
    assert relation_hits[0].kind == "inference"
    assert relation_hits[0].id in memory.relations
    assert hits_of_nothing == []


def test_the_measure_of_evidence_searches_facts_and_conclusions_only(
    scripted: Any, graph_replies: Any, make_history: Any
) -> None:
    """It measures how many of the turns that answer a question a search finds."""
    program = shared_graph_program()
    with dspy.context(lm=scripted(graph_replies)):
        memory = program.remember(make_history(sessions=9)).memory
        reader = program.method.reader
        # "concept theory" stands in summaries, and "week" in evidence.
        hits = [
            *evidence_hits(reader, memory, "concept theory week", k=20),
            *evidence_hits(reader, memory, "week", k=20),
        ]

    assert all(hit.id.startswith("e") for hit in hits)
    assert {hit.kind for hit in hits} == {"fact", "conclusion"}


# Ablations: the paper measures RGMem without one of its parts (Tables 3 and 4), which the settings
# `use_l0`, `use_l1` and `use_rg` switch off

EVERY_LAYER = [{"name": "Sports", "retrieve": ["summary", "inference", "conclusions", "history"]}]


def test_without_l0_no_evidence_is_recalled(recall: Callable[..., Recall]) -> None:
    """The memory is written as ever, and recall reads the graph alone."""
    full = recall(EVERY_LAYER)
    ablated = recall(EVERY_LAYER, use_l0=False)

    # The memory is the same.
    assert ablated.memory.evidence == full.memory.evidence
    assert ablated.memory.classes == full.memory.classes
    assert ablated.calls == full.calls
    full_scores = {node_id: node.score for node_id, node in full.memory.nodes.items()}
    ablated_scores = {node_id: node.score for node_id, node in ablated.memory.nodes.items()}
    assert ablated_scores == full_scores

    # Recall reads the graph alone.
    assert ablated.context.counts["facts"] == 0
    assert ablated.context.counts["conclusions"] == 0
    assert ablated.context.counts["nodes"] == full.context.counts["nodes"]
    assert ablated.context.counts["inferences"] == full.context.counts["inferences"]
    assert ablated.context.counts["history"] == full.context.counts["history"]
    assert ablated.context.counts["tokens"] < full.context.counts["tokens"]


def test_without_l1_there_is_evidence_but_no_graph(recall: Callable[..., Recall]) -> None:
    full = recall(EVERY_LAYER)
    ablated = recall(EVERY_LAYER, use_l1=False)

    # The memory has the evidence, and of the graph only the root and its eleven base concepts.
    assert ablated.memory.evidence == full.memory.evidence
    assert len(ablated.memory.nodes) == 1 + 11
    assert ablated.memory.relations == {}
    # The model extracts a fact from each session, and plans the keywords.
    assert ablated.calls == {"fact": 9, "keywords": 1}

    # Recall reads the evidence alone.
    assert ablated.context.counts["nodes"] == 0
    assert ablated.context.counts["inferences"] == 0
    assert ablated.context.counts["history"] == 0
    assert ablated.context.counts["facts"] == full.context.counts["facts"]
    full_ids = {hit.id for hit in full.context.hits}
    assert {hit.id for hit in ablated.context.hits} <= full_ids


def test_without_the_operators_every_session_rewrites_the_summaries(
    recall: Callable[..., Recall],
) -> None:
    """The operators (RG) rewrite a summary only when enough is new, and lower summaries first."""
    full = recall(EVERY_LAYER)
    ablated = recall(EVERY_LAYER, use_rg=False)

    # The graph is the same.
    assert ablated.memory.evidence == full.memory.evidence
    assert ablated.memory.classes == full.memory.classes
    assert ablated.memory.nodes.keys() == full.memory.nodes.keys()
    full_mentions = {edge.id: edge.mentions for edge in full.memory.relations.values()}
    ablated_mentions = {edge.id: edge.mentions for edge in ablated.memory.relations.values()}
    assert ablated_mentions == full_mentions

    # All nine sessions are about sports, and the five odd ones about health too.
    assert ablated.calls["concept_summary"] == 9 + 5
    assert "fact_summary" not in ablated.calls
    assert "general_facts" not in ablated.calls
    assert "macro_law" not in ablated.calls

    assert ablated.context.counts["nodes"] == 1
    assert ablated.context.counts["inferences"] == 0
    assert ablated.context.counts["facts"] == full.context.counts["facts"]


# Growth of the graph


def graph_after(
    steps: Sequence[Sequence[GraphPath]], vectors: Mapping[str, np.ndarray] | None = None
) -> GraphMemory:
    """Return a memory after steps, each of which brings one unit of evidence with its paths.

    Args:
        steps: The paths under which each unit is filed.
        vectors: The embeddings of names, if there is an embedding model.
    """
    memory = GraphMemory()
    for step, paths in enumerate(steps, 1):
        unit = Evidence(
            id=f"e{step}",
            step=step,
            fact="something happened",
            sources=(f"D{step}:1", f"D{step}:2"),
        )
        memory = add_units(memory, [(unit, paths)], vectors=vectors)
    return memory


def added_nodes(memory: GraphMemory) -> list[Node]:
    """Return the nodes that were not there from the beginning, oldest first."""
    first_nodes = GraphMemory().nodes
    return [node for node in memory.nodes.values() if node.id not in first_nodes]


def added_of_tier(memory: GraphMemory, tier: str) -> list[Node]:
    """Return the added nodes of a tier: "abstract" for concepts, "instance" for single events."""
    return [node for node in added_nodes(memory) if node.tier == tier]


def node_named(memory: GraphMemory, name: str) -> Node:
    """Return the only node with a name."""
    (node,) = [node for node in memory.nodes.values() if node.name == name]
    return node


RACE = GraphPath(
    base="Interests and Entertainment",
    concepts=("Sports",),
    events=("Running", "City Race"),
    labels=("ran", "ran it with Bob"),
)


def test_each_edge_between_two_names_of_a_path_counts_a_unit_of_evidence_once() -> None:
    """The count tells when the summary of an event is due.

    RACE leads from the concept Sports to the event Running, and from there to the event City Race.
    """
    # There are two units of evidence, of which the first has the same path twice.
    memory = graph_after([[RACE, RACE], [RACE]])

    counts: dict[tuple[str, str], int] = {}
    for edge in memory.relations.values():
        source = memory.nodes[edge.source]
        target = memory.nodes[edge.target]
        counts[source.name, target.name] = edge.count
    assert counts == {("Sports", "Running"): 2, ("Running", "City Race"): 2}


def test_only_the_lowest_concept_of_a_path_scores_a_unit_of_evidence() -> None:
    """The score tells when the summary of a concept is due."""
    # There are two units of evidence, of which the first has the same path twice.
    memory = graph_after([[RACE, RACE], [RACE]])

    sports = node_named(memory, "Sports")
    assert sports.score == 2
    assert sports.fresh == ("e1", "e2")
    assert sports.evidence == ("e1", "e2")

    base = node_named(memory, "Interests and Entertainment")
    assert base.score == 0
    assert base.evidence == ()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(GraphPath("Nowhere", events=("Steak",)), id="unknown-base"),
        pytest.param(GraphPath("Dining", concepts=(" ",), events=(" ",)), id="blank-names"),
    ],
)
def test_a_path_without_a_base_or_an_event_adds_no_node(path: GraphPath) -> None:
    """A model writes the paths. What cannot be filed in the graph is still kept as evidence."""
    memory = graph_after([[path]])

    assert memory.nodes == GraphMemory().nodes
    assert memory.evidence.keys() == {"e1"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            GraphPath("Dining", concepts=("Dining",), events=("Steak", "Steak")),
            id="names-that-come-twice",
        ),
        pytest.param(
            GraphPath("Dining", concepts=("user", "Dining"), events=("Steak",)),
            id="cycle-over-the-user",
        ),
    ],
)
def test_of_a_broken_path_the_sound_part_is_added(path: GraphPath) -> None:
    """The node "Dining" is there from the beginning, as the base."""
    memory = graph_after([[path]])

    assert [node.name for node in added_nodes(memory)] == ["Steak"]
    assert memory.evidence.keys() == {"e1"}


def graphs_with_two_names(
    first_name: str, second_name: str, cosine: float
) -> tuple[GraphMemory, GraphMemory]:
    """Return a graph with two names of events, and one with the same two names of concepts.

    Args:
        first_name: The name that comes first.
        second_name: The name that comes next.
        cosine: The cosine of their vectors.
    """
    sine = (1 - cosine**2) ** 0.5
    vectors = {first_name: np.array([1.0, 0.0]), second_name: np.array([cosine, sine])}
    names = (first_name, second_name)
    event_steps = [[GraphPath("Dining", events=(name,))] for name in names]
    concept_steps = [[GraphPath("Dining", concepts=(name,), events=("x",))] for name in names]
    return graph_after(event_steps, vectors), graph_after(concept_steps, vectors)


@pytest.mark.parametrize(
    ("second_name", "cosine", "aliases"),
    [
        pytest.param("museum VISIT.", 0.0, (), id="same-stems"),
        pytest.param("Gallery Tour", 0.9, ("Gallery Tour",), id="near-vectors"),
    ],
)
def test_names_that_mean_the_same_become_one_node(
    second_name: str, cosine: float, aliases: tuple[str, ...]
) -> None:
    """Names are the same if their words are, or if the cosine of their vectors is 0.85 or more."""
    event_graph, concept_graph = graphs_with_two_names("Museum Visits", second_name, cosine)

    (event,) = added_of_tier(event_graph, "instance")
    assert event.name == "Museum Visits"
    assert event.aliases == aliases
    (concept,) = added_of_tier(concept_graph, "abstract")
    assert concept.name == "Museum Visits"


@pytest.mark.parametrize(
    ("second_name", "cosine"),
    [
        pytest.param("to visit the museums", 0.0, id="other-words"),
        pytest.param("Gallery Tour", 0.84, id="vectors-not-near-enough"),
        pytest.param("Gallery Tour 2023", 0.99, id="near-vectors-but-another-number"),
    ],
)
def test_names_that_mean_different_things_become_two_nodes(second_name: str, cosine: float) -> None:
    """Events are not taken for one because their names are a little alike."""
    event_graph, concept_graph = graphs_with_two_names("Museum Visits", second_name, cosine)

    first_event, second_event = added_of_tier(event_graph, "instance")
    assert first_event.name == "Museum Visits"
    assert first_event.aliases == ()
    assert second_event.name == second_name
    assert second_event.aliases == ()
    concepts = added_of_tier(concept_graph, "abstract")
    assert [concept.name for concept in concepts] == ["Museum Visits", second_name]


GRAPHS = st.lists(graph_paths(), max_size=5).map(graph_after)
"""Graphs that grew by arbitrary paths, broken ones among them."""


def ids_above(memory: GraphMemory, node_id: str) -> set[str]:
    """Return the ids of all nodes above a node, however far."""
    above: set[str] = set()
    waiting = list(memory.parents(node_id))
    while waiting:
        parent_id = waiting.pop()
        if parent_id not in above:
            above.add(parent_id)
            waiting.extend(memory.parents(parent_id))
    return above


@given(memory=GRAPHS)
def test_no_graph_has_a_cycle(memory: GraphMemory) -> None:
    """A summary is made from those below it, which would never end in a cycle."""
    for node_id in memory.nodes:
        assert node_id not in ids_above(memory, node_id)


@given(memory=GRAPHS)
def test_every_concept_is_below_the_user_and_every_base_right_below(memory: GraphMemory) -> None:
    for node in memory.nodes.values():
        if node.tier == "abstract":
            assert USER in ids_above(memory, node.id)

    base_ids = memory.children(USER)
    assert len(base_ids) == 11
    for base_id in base_ids:
        assert memory.parents(base_id) == (USER,)


@given(memory=GRAPHS)
def test_no_unit_of_evidence_counts_twice(memory: GraphMemory) -> None:
    for edge in memory.relations.values():
        evidence_ids = {mention.evidence for mention in edge.mentions}
        assert len(edge.mentions) == len(evidence_ids)
        assert edge.count == len(evidence_ids)
    for node in memory.nodes.values():
        assert node.score == len(node.fresh)


@given(memory=GRAPHS)
def test_a_graph_is_the_same_after_a_round_trip_through_json(memory: GraphMemory) -> None:
    assert GraphMemory.model_validate_json(memory.model_dump_json()) == memory


def test_a_theory_made_from_lower_concepts_replaces_one_made_from_evidence() -> None:
    """A concept has a theory of its own evidence, and a parent one of the concepts below it."""
    own_theory = Theory(sigma="own")
    flow_theory = Theory(sigma="flow")
    node = Node(id="n1", name="Food", tier="abstract", own=own_theory)

    node_with_flow = node.model_copy(update={"flow": flow_theory})

    assert node.theory == own_theory
    assert node_with_flow.theory == flow_theory
