"""RGMem's graph: how it takes in evidence, and what is recalled of it, with provenance; the ablations."""

import re

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Query, build
from mempiler.engines.embedders import embedder
from mempiler.programs.rgmem.graph import GraphPath, add_units
from mempiler.programs.rgmem.memory import USER, Evidence, GraphMemory, Node, Theory
from mempiler.programs.rgmem.retrieval import BLOCKS
from mempiler.runs.evidence import evidence_hits

from .conftest import graph_paths

LAYERS = ["inference", "history"]


def made(**settings):
    """Ann and Bob share one graph, unless the settings say otherwise."""
    return build("rgmem", embedder=embedder(), **{"merged_graph": True, **settings})


@pytest.fixture
def recalled(scripted, graph_replies, make_history):
    """Recalls from nine scripted sessions with a plan of one's own."""

    def recall(keywords, question="Who ran in week 3?", sessions=9, **settings):
        def reply(kind, text, n):
            return {"keywords": keywords} if kind == "keywords" else graph_replies(kind, text, n)

        lm, program = scripted(reply), made(**settings)
        with dspy.context(lm=lm):
            memory = program.remember(make_history(sessions)).memory
            return (
                memory,
                program.method.reader.recall(memory, Query(text=question)),
                lm.engine.calls,
            )

    return recall


def test_facts_and_conclusions_are_recalled_up_to_their_numbers(recalled):
    _, context, _ = recalled([{"name": "week"}], facts=2, conclusions=4)
    assert context.counts["facts"] == 2
    assert context.counts["conclusions"] == 4
    assert context.counts["nodes"] == 0
    assert [hit.id for hit in context.hits if "." not in hit.id] == ["e3", context.hits[1].id]
    sources = {hit.id: hit.sources for hit in context.hits}
    assert sources["e3.1"] == ("D3:1",)
    assert sources["e3"] == tuple(f"D3:{t}" for t in range(1, 7))


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        (["summary"], {"nodes": 1, "inferences": 0, "history": 0}),
        (["inference"], {"nodes": 0, "inferences": 1, "history": 0}),
        (["history"], {"nodes": 0, "inferences": 0, "history": 3}),
        (["summary", "inference", "history"], {"nodes": 1, "inferences": 1, "history": 3}),
        ("SUMMARIES", {"nodes": 1, "inferences": 0, "history": 0}),
    ],
)
def test_a_keyword_reads_the_layers_it_is_planned_for(recalled, layers, kinds):
    _, context, _ = recalled([{"name": "Sports", "retrieve": layers}])
    assert {name: context.counts[name] for name in kinds} == kinds


def test_conclusions_of_a_node_come_newest_first_behind_those_by_words(recalled):
    _, context, _ = recalled(
        [{"name": "Sports", "retrieve": ["conclusions"]}], conclusions=0, facts=0
    )
    assert [hit.id for hit in context.hits] == ["e9.1", "e8.1", "e7.1"]


def test_the_context_is_shown_in_blocks_and_inferences_have_no_date(recalled):
    plan = [
        {"name": "Interests and Entertainment", "retrieve": ["summary"]},
        {"name": "Sports", "retrieve": LAYERS},
    ]
    _, context, _ = recalled(plan, facts=1, conclusions=1)
    lines = context.text().split("\n")
    heads = [n for n, line in enumerate(lines) if not line.startswith("[")]
    blocks = {
        lines[n]: lines[n + 1 : end] for n, end in zip(heads, [*heads[1:], len(lines)], strict=True)
    }
    assert list(blocks) == [f"{block}:" for block in dict.fromkeys(BLOCKS.values())]
    evidence, conclusions, summaries, traits = blocks.values()
    dated = re.compile(r"\[\S+\] \(\d+ \w+ 2024, \w+\) ")
    assert all(dated.match(line) for line in (*evidence, *conclusions))
    assert not any(dated.match(line) for line in (*summaries, *traits))
    assert any("Sports to" in line or "of week" in line for line in evidence[1:])
    assert any(line.endswith("Interests and Entertainment: law 3. keen.") for line in summaries)
    assert any(
        line.endswith("Interests and Entertainment, restrictions: no heat.") for line in traits
    )
    assert any(line.endswith("Sports, Running, inferred: steady.") for line in traits)
    assert not any("steady" in line or "no heat" in line for line in summaries)
    assert not any(hit.is_evidence for hit in context.hits if hit.kind == "trait")


@pytest.mark.parametrize(
    "plan", ["no", {"keywords": []}, {"keywords": {"name": " ", "retrieve": None}}]
)
def test_without_a_plan_the_question_is_the_keyword(scripted, graph_replies, make_history, plan):
    def reply(kind, text, n):
        return plan if kind == "keywords" else graph_replies(kind, text, n)

    with dspy.context(lm=scripted(reply)):
        program = made()
        context = program(history=make_history(2), question="Who ran in week 2?").context
    assert context.counts["conclusions"] > 0


def test_search_finds_theories_and_the_measure_of_evidence_does_not(
    scripted, graph_replies, make_history
):
    lm, program = scripted(graph_replies), made()
    with dspy.context(lm=lm):
        memory = program.remember(make_history(9)).memory
        calls = len(lm.engine.prompts)
        reader = program.method.reader
        found = reader.search(memory, ["concept theory", "relation theory", ""], k=20)
        evidence = [
            evidence_hits(reader, memory, probe, 20) for probe in ("concept theory week", "week")
        ]
    assert len(lm.engine.prompts) == calls
    assert memory.nodes[found[0][0].id].name in ("Sports", "Health and Wellness")
    assert found[1][0].id in memory.relations
    assert found[2] == []
    assert found[0][0].kind == "summary"
    assert found[1][0].kind == "inference"
    assert {hit.id[0] for hits in evidence for hit in hits} == {"e"}
    assert {hit.kind for hits in evidence for hit in hits} == {"fact", "conclusion"}


EVERY_LAYER = [{"name": "Sports", "retrieve": ["summary", "inference", "conclusions", "history"]}]


def test_without_l0_the_memory_is_the_same_and_no_evidence_is_recalled(recalled):
    (full, whole, calls), (memory, context, again) = (
        recalled(EVERY_LAYER),
        recalled(EVERY_LAYER, use_l0=False),
    )
    assert memory.evidence == full.evidence
    assert memory.classes == full.classes
    assert calls == again
    assert {id: node.score for id, node in memory.nodes.items()} == {
        id: node.score for id, node in full.nodes.items()
    }
    assert context.counts["facts"] == 0
    assert context.counts["conclusions"] == 0
    graph = ("nodes", "inferences", "history")
    assert {name: context.counts[name] for name in graph} == {
        name: whole.counts[name] for name in graph
    }
    assert context.counts["tokens"] < whole.counts["tokens"]


def test_without_l1_there_is_evidence_and_no_graph(recalled):
    (full, whole, _), (memory, context, calls) = (
        recalled(EVERY_LAYER),
        recalled(EVERY_LAYER, use_l1=False),
    )
    assert memory.evidence == full.evidence
    assert len(memory.nodes) == 12
    assert memory.relations == {}
    assert dict(calls) == {"fact": 9, "keywords": 1}
    assert [context.counts[name] for name in ("nodes", "inferences", "history")] == [0, 0, 0]
    assert context.counts["facts"] == whole.counts["facts"]
    assert {hit.id for hit in context.hits} <= {hit.id for hit in whole.hits}


def test_without_rg_the_graph_is_the_same_and_every_session_rewrites(recalled):
    (full, whole, _), (memory, context, calls) = (
        recalled(EVERY_LAYER),
        recalled(EVERY_LAYER, use_rg=False),
    )
    assert memory.evidence == full.evidence
    assert memory.classes == full.classes
    assert memory.nodes.keys() == full.nodes.keys()
    assert {id: edge.mentions for id, edge in memory.relations.items()} == {
        id: edge.mentions for id, edge in full.relations.items()
    }
    assert calls["concept_summary"] == 9 + 5  # Sports in every session, Health in the odd ones
    assert not {"fact_summary", "general_facts", "macro_law"} & calls.keys()
    assert context.counts["nodes"] == 1
    assert context.counts["inferences"] == 0
    assert context.counts["facts"] == whole.counts["facts"]


def grown(*steps, **settings):
    memory = GraphMemory()
    for n, paths in enumerate(steps, 1):
        unit = Evidence(
            id=f"e{n}", step=n, fact="something happened", sources=(f"D{n}:1", f"D{n}:2")
        )
        memory = add_units(memory, [(unit, paths)], **settings)
    return memory


def names(memory, tier):
    return [
        node.name
        for node in memory.nodes.values()
        if node.tier == tier and not node.id.startswith("b")
    ]


RACE = GraphPath(
    "Interests and Entertainment", ("Sports",), ("Running", "City Race"), ("ran", "ran it with Bob")
)


def test_mentions_and_scores_count_every_unit_once():
    memory = grown([RACE, RACE], [RACE])
    edges = memory.relations.values()
    counts = {
        (memory.nodes[edge.source].name, memory.nodes[edge.target].name): edge.count
        for edge in edges
    }
    assert counts == {("Sports", "Running"): 2, ("Running", "City Race"): 2}
    sports = next(node for node in memory.nodes.values() if node.name == "Sports")
    assert sports.score == 2
    assert sports.fresh == ("e1", "e2")
    assert sports.evidence == ("e1", "e2")
    base = memory.nodes["b6"]
    # only the lowest concept of a path scores
    assert base.score == 0
    assert base.evidence == ()


@pytest.mark.parametrize(
    ("path", "nodes"),
    [
        (GraphPath("Nowhere", (), ("Steak",)), 12),
        (GraphPath("Dining", (" ",), (" ",)), 12),
        (GraphPath("Dining", ("Dining",), ("Steak", "Steak")), 13),
        (GraphPath("Dining", ("user", "Dining"), ("Steak",)), 13),
    ],
)
def test_broken_paths_leave_what_is_sound(path, nodes):
    memory = grown([path])
    assert len(memory.nodes) == nodes
    assert memory.evidence.keys() == {"e1"}


@pytest.mark.parametrize(
    ("other", "cosine", "known"),
    [
        ("museum VISIT.", 0.0, ()),
        ("to visit the museums", 0.0, None),
        ("Gallery Tour", 0.9, ("Gallery Tour",)),
        ("Gallery Tour", 0.84, None),
        ("Gallery Tour 2023", 0.99, None),
    ],
)
def test_names_are_one_by_stems_or_by_cosine_with_the_same_numbers(other, cosine, known):
    vectors = {
        "Museum Visits": np.array([1.0, 0.0]),
        other: np.array([cosine, (1 - cosine**2) ** 0.5]),
    }
    memory = grown(
        *([GraphPath("Dining", (), (name,))] for name in ("Museum Visits", other)), vectors=vectors
    )
    events = [
        (node.name, node.aliases) for node in memory.nodes.values() if node.tier == "instance"
    ]
    assert events == [("Museum Visits", known or ()), *([(other, ())] if known is None else [])]
    concepts = grown(
        *([GraphPath("Dining", (name,), ("x",))] for name in ("Museum Visits", other)),
        vectors=vectors,
    )
    assert "Museum Visits" in names(concepts, "abstract")
    assert len(names(concepts, "abstract")) == len(events)


@given(st.lists(graph_paths(), max_size=5))
def test_whatever_comes_in_the_graph_stays_sound(steps):
    memory = grown(*steps)
    above = {id: set(memory.parents(id)) for id in memory.nodes}
    for id in memory.nodes:
        seen, queue = set(), [id]
        while queue:
            for parent in above[queue.pop()]:
                assert parent != id, "a cycle"
                if parent not in seen:
                    seen.add(parent)
                    queue.append(parent)
        if id != USER and memory.nodes[id].tier == "abstract":
            assert USER in seen
    assert [memory.parents(id) for id in memory.children(USER)] == [(USER,)] * 11
    for edge in memory.relations.values():
        units = [mention.evidence for mention in edge.mentions]
        assert len(units) == len(set(units)) == edge.count
    for node in memory.nodes.values():
        assert node.score == len(node.fresh)
    assert GraphMemory.model_validate_json(memory.model_dump_json()) == memory


def test_a_theory_that_flows_up_replaces_the_one_of_the_concept():
    own, flow = Theory(sigma="own"), Theory(sigma="flow")
    node = Node(id="n1", name="Food", tier="abstract", own=own)
    assert node.theory == own
    assert node.model_copy(update={"flow": flow}).theory == flow
