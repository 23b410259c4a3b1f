"""The ablations of RGMem: one flag each; what it changes, and that it changes nothing else."""

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.records import Query


@pytest.fixture
def variant(scripted, graph_replies, make_history):
    """Memory, context and calls of one variant after nine sessions."""

    def run(**flags):
        def reply(kind, text, n):
            if kind == "keywords":
                layers = ["summary", "inference", "conclusions", "history"]
                return {"keywords": [{"name": "Sports", "retrieve": layers}]}
            return graph_replies(kind, text, n)

        lm, program = scripted(reply), build("rgmem", embedder=embedder(), **flags)
        with dspy.context(lm=lm):
            memory = program.remember(make_history(9)).memory
            context = program.method.reader.recall(memory, Query(text="Who ran in week 3?"))
        return memory, context, lm.engine.calls

    return run


def test_without_l0_the_memory_is_the_same_and_no_evidence_is_recalled(variant):
    (full, whole, calls), (memory, context, again) = variant(), variant(use_l0=False)
    assert (memory.evidence, memory.classes, calls) == (full.evidence, full.classes, again)
    assert {id: node.score for id, node in memory.nodes.items()} == {id: node.score for id, node in full.nodes.items()}
    assert (context.counts["facts"], context.counts["conclusions"]) == (0, 0)
    graph = ("nodes", "inferences", "history")
    assert {name: context.counts[name] for name in graph} == {name: whole.counts[name] for name in graph}
    assert context.counts["tokens"] < whole.counts["tokens"]


def test_without_l1_there_is_evidence_and_no_graph(variant):
    (full, whole, _), (memory, context, calls) = variant(), variant(use_l1=False)
    assert memory.evidence == full.evidence
    assert (len(memory.nodes), memory.relations) == (12, {})
    assert dict(calls) == {"fact": 9, "keywords": 1}
    assert [context.counts[name] for name in ("nodes", "inferences", "history")] == [0, 0, 0]
    assert context.counts["facts"] == whole.counts["facts"]
    assert {hit.id for hit in context.hits} <= {hit.id for hit in whole.hits}


def test_without_rg_the_graph_is_the_same_and_every_session_rewrites(variant):
    (full, whole, _), (memory, context, calls) = variant(), variant(use_rg=False)
    assert (memory.evidence, memory.classes) == (full.evidence, full.classes)
    assert memory.nodes.keys() == full.nodes.keys()
    assert {id: edge.mentions for id, edge in memory.relations.items()} == {
        id: edge.mentions for id, edge in full.relations.items()
    }
    assert calls["concept_summary"] == 9 + 5  # Sports in every session, Health in the odd ones
    assert not {"fact_summary", "general_facts", "macro_law"} & calls.keys()
    assert (context.counts["nodes"], context.counts["inferences"]) == (1, 0)
    assert context.counts["facts"] == whole.counts["facts"]
