"""RGMem's graph: how it takes in evidence, what is recalled of it, and its ablations.

Layer L0 is the evidence: of each session a fact with conclusions. Layer L1 is the graph: paths from
a base through concepts down to events, and summaries of these. For a question a model plans
keywords, and says for each which layers of the graph are read: summaries of concepts, inferences
(summaries of events), the history (labels of events, with dates) or conclusions.
"""

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

from .conftest import random_graph_paths


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
def recall_from_nine_sessions(
    scripted: Any, rgmem_script: Any, make_history: Any
) -> Callable[..., Recall]:
    """Write nine scripted sessions and recall from them what keywords find, under some settings.

    The model is scripted to plan these keywords for the question "Who ran in week 3?"; the other
    arguments are settings. In session 3, and likewise in all others, the evidence is a fact, e3,
    "Ann and Bob spoke of week 3.", and its conclusions e3.1, "Ann ran in week 3", and e3.2, "Bob
    saw week 3". All are about sports, and the odd ones about health as well.
    """

    def recall(keywords: list[dict[str, Any]], **settings: Any) -> Recall:
        def reply(kind: str, text: str, n: int) -> Any:
            if kind == "keywords":
                return {"keywords": keywords}
            return rgmem_script(kind, text, n)

        lm = scripted(reply)
        program = shared_graph_program(**settings)
        with dspy.context(lm=lm):
            memory = program.remember(make_history(sessions=9)).memory
            context = program.method.reader.recall(memory, Query(text="Who ran in week 3?"))
        return Recall(memory, context, lm.engine.calls)

    return recall


def test_as_many_facts_and_conclusions_are_recalled_as_are_set(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The settings `facts` and `conclusions` keep the prompt of the answer short.

    For a question a model plans keywords. Here the keyword is "week", a word of all the facts and
    conclusions of nine sessions.
    """
    keywords = [{"name": "week"}]

    context = recall_from_nine_sessions(keywords, facts=2, conclusions=4).context

    assert context.counts["facts"] == 2
    assert context.counts["conclusions"] == 4


def test_a_fact_names_all_turns_of_its_session_and_a_conclusion_the_turn_it_comes_from(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The sources of what is recalled are the turns that it was made from.

    Session D3 has six turns. Its fact is e3, and e3.1 is a conclusion from its first turn.
    """
    keywords = [{"name": "week"}]

    context = recall_from_nine_sessions(keywords, facts=2, conclusions=4).context

    sources = {hit.id: hit.sources for hit in context.hits}
    assert sources["e3"] == ("D3:1", "D3:2", "D3:3", "D3:4", "D3:5", "D3:6")
    assert sources["e3.1"] == ("D3:1",)


@pytest.mark.parametrize(
    ("layers", "expected_counts"),
    [
        pytest.param(["summary"], {"nodes": 1}, id="summary"),
        # A model that answers with a text in the plural is understood.
        pytest.param("SUMMARIES", {"nodes": 1}, id="a text in the plural"),
        pytest.param(["inference"], {"inferences": 1}, id="inference"),
        pytest.param(["history"], {"history": 3}, id="history"),
        pytest.param(
            ["summary", "inference", "history"],
            {"nodes": 1, "inferences": 1, "history": 3},
            id="all three",
        ),
    ],
)
def test_a_keyword_reads_the_layers_it_is_planned_for(
    recall_from_nine_sessions: Callable[..., Recall],
    layers: Any,
    expected_counts: dict[str, int],
) -> None:
    """A model plans keywords, and says which layers of the graph are to be read for each.

    In the graph, the topic Sports is a node with a summary. Its event Running has an inference, and
    a label of every session: a history, of which the three newest labels are recalled.
    """
    keywords = [{"name": "Sports", "retrieve": layers}]

    context = recall_from_nine_sessions(keywords).context

    nothing_recalled = {"nodes": 0, "inferences": 0, "history": 0}
    counts = {layer: context.counts[layer] for layer in nothing_recalled}
    assert counts == nothing_recalled | expected_counts


def test_conclusions_about_a_topic_come_newest_first(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The graph links conclusions to topics, of which three are recalled at most.

    Each of nine sessions has a conclusion about Sports: that of session 9 is e9.1. With
    `conclusions=0` and `facts=0` nothing is searched for by words.
    """
    keywords = [{"name": "Sports", "retrieve": ["conclusions"]}]

    context = recall_from_nine_sessions(keywords, conclusions=0, facts=0).context

    assert [hit.id for hit in context.hits] == ["e9.1", "e8.1", "e7.1"]


def test_a_context_shows_dated_evidence_first_and_undated_inferences_last(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The model that answers can tell what was said, and when, from what was inferred.

    The script says "law" and "relation theory" in place of summaries. Of an event it infers the
    trait "steady", and of a topic the restriction "no heat": these stand apart from the summaries.
    """
    keywords = [
        {"name": "Interests and Entertainment", "retrieve": ["summary"]},
        {"name": "Sports", "retrieve": ["inference", "history"]},
    ]

    context = recall_from_nine_sessions(keywords, facts=1, conclusions=1).context

    assert context.text().splitlines() == [
        "Evidence, with dates:",
        "[e3] (3 March 2024, Sunday) Ann and Bob spoke of week 3.",
        # Labels, which say in a few words what was said of running
        "[r3.e9] (3 September 2024, Tuesday) s1 of week 9",
        "[r3.e8] (3 August 2024, Saturday) s1 of week 8",
        "[r3.e7] (3 July 2024, Wednesday) s1 of week 7",
        "Conclusions:",
        "[e3.1] (3 March 2024, Sunday) Ann ran in week 3",
        "Summaries by concept:",
        "[b6] Interests and Entertainment: law 3. keen.",
        "[r3] Sports, Running: relation theory 4.",
        "Inferred traits and restrictions:",
        "[b6.restrictions] Interests and Entertainment, restrictions: no heat.",
        "[r3.traits] Sports, Running, inferred: steady.",
    ]


def test_traits_are_no_evidence(recall_from_nine_sessions: Callable[..., Recall]) -> None:
    """Traits are inferred by a model, so they must not count as turns that were recalled."""
    keywords = [{"name": "Sports", "retrieve": ["inference"]}]

    context = recall_from_nine_sessions(keywords).context

    traits = [hit for hit in context.hits if hit.kind == "trait"]
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
    scripted: Any, rgmem_script: Any, make_history: Any, plan: Any
) -> None:
    """For each question a model plans keywords, which the memory is searched for.

    If its plan cannot be read, or holds no keyword, a user still gets an answer.
    """

    def reply(kind: str, text: str, n: int) -> Any:
        return plan if kind == "keywords" else rgmem_script(kind, text, n)

    program = shared_graph_program()
    with dspy.context(lm=scripted(reply)):
        context = program(history=make_history(sessions=2), question="Who ran in week 2?").context

    assert context.counts["conclusions"] > 0


def test_search_finds_summaries_without_a_model(
    scripted: Any, rgmem_script: Any, make_history: Any
) -> None:
    """A user can search a memory where no language model is at hand.

    The scripted model has called summaries of topics "concept theory 1" and so on, and inferences
    about events "relation theory 1" and so on.
    """
    program = shared_graph_program()
    with dspy.context(lm=scripted(rgmem_script)):
        memory = program.remember(make_history(sessions=9)).memory

    # Without a language model, a call of it would be an error.
    with dspy.context(lm=None):
        topic_hits, event_hits, hits_of_empty_query = program.method.reader.search(
            memory, ["concept theory", "relation theory", ""], k=20
        )

    assert topic_hits[0].kind == "summary"
    assert "concept theory" in topic_hits[0].text
    assert event_hits[0].kind == "inference"
    assert "relation theory" in event_hits[0].text
    assert hits_of_empty_query == []


def test_the_measure_of_evidence_searches_facts_and_conclusions_only(
    scripted: Any, rgmem_script: Any, make_history: Any
) -> None:
    """The measure says how many of the turns that answer a question a search finds.

    So it must not find summaries, which rest on many turns. The summaries of this memory hold the
    words "concept theory", and its facts and conclusions the word "week".
    """
    program = shared_graph_program()
    with dspy.context(lm=scripted(rgmem_script)):
        memory = program.remember(make_history(sessions=9)).memory
        hits = evidence_hits(program.method.reader, memory, "concept theory week", k=30)

    assert {hit.kind for hit in hits} == {"fact", "conclusion"}


# Ablations: the paper measures RGMem without one of its parts (Tables 3 and 4), which the settings
# `use_l0`, `use_l1` and `use_rg` switch off

EVERY_LAYER = [{"name": "Sports", "retrieve": ["summary", "inference", "conclusions", "history"]}]
"""A plan of one keyword, for which all layers of the graph are read."""


def test_without_l0_the_same_memory_is_written(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """L0, the layer of facts and conclusions, is only left out of what is recalled."""
    full = recall_from_nine_sessions(EVERY_LAYER)
    ablated = recall_from_nine_sessions(EVERY_LAYER, use_l0=False)

    assert ablated.memory.evidence == full.memory.evidence
    assert ablated.memory.nodes.keys() == full.memory.nodes.keys()
    assert ablated.calls == full.calls


def test_without_l0_the_graph_alone_is_recalled(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """L0 is the layer of facts and conclusions, and L1 the graph of topics and events."""
    counts = recall_from_nine_sessions(EVERY_LAYER, use_l0=False).context.counts

    assert counts["facts"] == 0
    assert counts["conclusions"] == 0
    # A summary, an inference and three labels are recalled of the topic Sports.
    assert counts["nodes"] == 1
    assert counts["inferences"] == 1
    assert counts["history"] == 3


def test_without_l1_there_is_evidence_but_no_graph(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """L0 is the layer of facts and conclusions, the evidence, and L1 the graph made from it."""
    full = recall_from_nine_sessions(EVERY_LAYER)
    ablated = recall_from_nine_sessions(EVERY_LAYER, use_l1=False)

    # The model extracts a fact from each of nine sessions, and plans the keywords.
    assert ablated.calls == {"fact": 9, "keywords": 1}
    assert ablated.memory.evidence == full.memory.evidence
    # The graph has only what every graph begins with.
    assert ablated.memory.nodes == GraphMemory().nodes
    assert ablated.memory.relations == {}


def test_without_the_operators_every_session_rewrites_the_summaries(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The operators (RG) are prompts that rewrite a summary when enough is new.

    Without them, each session rewrites the summaries of its topics. Here the nine sessions are all
    about sports, and the sessions 1, 3, 5, 7 and 9 about health too.
    """
    ablated = recall_from_nine_sessions(EVERY_LAYER, use_rg=False)

    sessions_about_sports = 9
    sessions_about_health = 5
    assert ablated.calls["concept_summary"] == sessions_about_sports + sessions_about_health
    outputs_of_operators = {"fact_summary", "general_facts", "macro_law"}
    assert outputs_of_operators.isdisjoint(ablated.calls)


def test_without_the_operators_the_same_graph_is_written(
    recall_from_nine_sessions: Callable[..., Recall],
) -> None:
    """The operators (RG) only write summaries of what is in the graph."""
    full = recall_from_nine_sessions(EVERY_LAYER)
    ablated = recall_from_nine_sessions(EVERY_LAYER, use_rg=False)

    assert ablated.memory.evidence == full.memory.evidence
    assert ablated.memory.classes == full.memory.classes
    assert ablated.memory.nodes.keys() == full.memory.nodes.keys()
    assert ablated.memory.relations.keys() == full.memory.relations.keys()


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


def node_named(memory: GraphMemory, name: str) -> Node:
    """Return the only node with a name."""
    (node,) = [node for node in memory.nodes.values() if node.name == name]
    return node


def test_each_edge_between_two_names_of_a_path_counts_a_unit_of_evidence_once() -> None:
    """A unit of evidence is filed in the graph under paths: from a topic down to events.

    The count of an edge tells when the summary of an event is due. Here there are two units of
    evidence, of which the first names the same path twice.
    """
    path = GraphPath(
        base="Interests and Entertainment",
        concepts=("Sports",),
        events=("Running", "City Race"),
        labels=("ran", "ran it with Bob"),
    )

    memory = graph_after([[path, path], [path]])

    counts: dict[tuple[str, str], int] = {}
    for edge in memory.relations.values():
        source = memory.nodes[edge.source]
        target = memory.nodes[edge.target]
        counts[source.name, target.name] = edge.count
    assert counts == {("Sports", "Running"): 2, ("Running", "City Race"): 2}


def test_only_the_lowest_concept_of_a_path_scores_a_unit_of_evidence() -> None:
    """The score of a concept tells when its summary is due.

    A path leads from a base, one of the fixed topics, over narrower concepts down to an event. Here
    there are two units of evidence, of which the first names the same path twice.
    """
    path = GraphPath(base="Interests and Entertainment", concepts=("Sports",), events=("Running",))

    memory = graph_after([[path, path], [path]])

    assert node_named(memory, "Sports").score == 2
    assert node_named(memory, "Sports").evidence == ("e1", "e2")
    assert node_named(memory, "Interests and Entertainment").score == 0


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(GraphPath("Nowhere", events=("Steak",)), id="unknown-base"),
        pytest.param(GraphPath("Dining", concepts=(" ",), events=(" ",)), id="blank-names"),
    ],
)
def test_a_path_without_a_base_or_an_event_adds_no_node(path: GraphPath) -> None:
    """A model writes the paths under which evidence is filed: from a base down to an event.

    Evidence that cannot be filed in the graph, here e1, is kept all the same.
    """
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
    """A model writes the paths under which evidence is filed: from a base down to an event.

    The base "Dining" and the user are in the graph from the beginning.
    """
    memory = graph_after([[path]])

    assert [node.name for node in added_nodes(memory)] == ["Steak"]
    assert memory.evidence.keys() == {"e1"}


def graph_with_events(first_name: str, second_name: str, cosine: float) -> GraphMemory:
    """Return a memory of two units of evidence, each about an event; give the names a cosine."""
    paths = [GraphPath("Dining", events=(name,)) for name in (first_name, second_name)]
    return graph_after([[path] for path in paths], vectors_of(first_name, second_name, cosine))


def vectors_of(first_name: str, second_name: str, cosine: float) -> dict[str, np.ndarray]:
    """Return the vectors of two names, such that their cosine has this value."""
    sine = (1 - cosine**2) ** 0.5
    return {first_name: np.array([1.0, 0.0]), second_name: np.array([cosine, sine])}


@pytest.mark.parametrize(
    ("second_name", "cosine", "aliases"),
    [
        # A name with the same words, but for their endings, needs no alias.
        pytest.param("museum VISIT.", 0.0, (), id="the same words"),
        pytest.param("Gallery Tour", 0.9, ("Gallery Tour",), id="other words with near vectors"),
    ],
)
def test_two_names_for_the_same_event_become_one_node(
    second_name: str, cosine: float, aliases: tuple[str, ...]
) -> None:
    """Names are the same if their words are, or if the cosine of their vectors is 0.85 or more.

    A model says "Museum Visits" in one session, and the second name in another.
    """
    memory = graph_with_events("Museum Visits", second_name, cosine)

    (event,) = added_nodes(memory)
    assert event.name == "Museum Visits"
    assert event.aliases == aliases


@pytest.mark.parametrize(
    ("second_name", "cosine"),
    [
        pytest.param("museum VISIT.", 0.0, id="the same words"),
        pytest.param("Gallery Tour", 0.9, id="other words with near vectors"),
    ],
)
def test_two_names_for_the_same_concept_become_one_node(second_name: str, cosine: float) -> None:
    """A concept is a topic between a base, here "Dining", and the events, here one called "x"."""
    paths = [
        GraphPath("Dining", concepts=(name,), events=("x",))
        for name in ("Museum Visits", second_name)
    ]
    vectors = vectors_of("Museum Visits", second_name, cosine)

    memory = graph_after([[path] for path in paths], vectors)

    assert [node.name for node in added_nodes(memory)] == ["Museum Visits", "x"]


@pytest.mark.parametrize(
    ("second_name", "cosine"),
    [
        pytest.param("to visit the museums", 0.0, id="the same words and others"),
        pytest.param("Gallery Tour", 0.84, id="vectors that are not near enough"),
        pytest.param("Gallery Tour 2023", 0.99, id="near vectors, but another number"),
    ],
)
def test_events_with_names_that_are_a_little_alike_stay_two_nodes(
    second_name: str, cosine: float
) -> None:
    """Names are the same only if their words are, or if the cosine is 0.85 or more.

    A model says "Museum Visits" in one session, and the second name in another.
    """
    memory = graph_with_events("Museum Visits", second_name, cosine)

    assert [event.name for event in added_nodes(memory)] == ["Museum Visits", second_name]


GRAPHS = st.lists(random_graph_paths(), max_size=5).map(graph_after)
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
    """Evidence is filed under a base, one of eleven fixed topics, and concepts below the base.

    The user is at the top of the graph, whatever paths a model writes.
    """
    for node in memory.nodes.values():
        if node.tier == "abstract":
            assert USER in ids_above(memory, node.id)

    base_ids = memory.children(USER)
    assert len(base_ids) == 11
    for base_id in base_ids:
        assert memory.parents(base_id) == (USER,)


@given(memory=GRAPHS)
def test_no_unit_of_evidence_counts_twice(memory: GraphMemory) -> None:
    """The counts of edges and the scores of concepts tell when their summaries are due.

    A graph grows by random paths, in which a unit of evidence may come several times.
    """
    for edge in memory.relations.values():
        evidence_ids = {mention.evidence for mention in edge.mentions}
        assert len(edge.mentions) == len(evidence_ids)
        assert edge.count == len(evidence_ids)
    for node in memory.nodes.values():
        assert node.score == len(node.fresh)


def test_a_theory_made_from_lower_concepts_replaces_one_made_from_evidence() -> None:
    """A theory sums up a topic: from its own evidence, or from the theories of topics below it."""
    theory_from_evidence = Theory(sigma="likes soup")
    theory_from_lower_concepts = Theory(sigma="likes hot meals")
    node = Node(id="n1", name="Food", tier="abstract", own=theory_from_evidence)
    assert node.theory == theory_from_evidence

    parent = node.model_copy(update={"flow": theory_from_lower_concepts})

    assert parent.theory == theory_from_lower_concepts
