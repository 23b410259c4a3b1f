"""RGMem's graph taking in evidence: the base concepts, merging of names, counters, refused cycles, its JSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.rgmem.extraction import GraphPath, taken_in
from mempiler.programs.rgmem.memory import USER, Evidence, GraphMemory, Node, Theory

from .conftest import graph_paths


def grown(*steps, **settings):
    memory = GraphMemory()
    for n, paths in enumerate(steps, 1):
        unit = Evidence(id=f"e{n}", step=n, fact="something happened", sources=(f"D{n}:1", f"D{n}:2"))
        memory = taken_in(memory, [(unit, paths)], **settings)
    return memory


def names(memory, tier):
    return [node.name for node in memory.nodes.values() if node.tier == tier and not node.id.startswith("b")]


RACE = GraphPath("Interests and Entertainment", ("Sports",), ("Running", "City Race"), ("ran", "ran it with Bob"))


def test_mentions_and_scores_count_every_unit_once():
    memory = grown([RACE, RACE], [RACE])
    edges = memory.relations.values()
    counts = {(memory.nodes[edge.source].name, memory.nodes[edge.target].name): edge.count for edge in edges}
    assert counts == {("Sports", "Running"): 2, ("Running", "City Race"): 2}
    sports = next(node for node in memory.nodes.values() if node.name == "Sports")
    assert (sports.score, sports.fresh, sports.evidence) == (2, ("e1", "e2"), ("e1", "e2"))
    base = memory.nodes["b6"]
    assert (base.score, base.evidence) == (0, ())  # only the lowest concept of a path scores


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
    vectors = {"Museum Visits": np.array([1.0, 0.0]), other: np.array([cosine, (1 - cosine**2) ** 0.5])}
    memory = grown(*([GraphPath("Dining", (), (name,))] for name in ("Museum Visits", other)), vectors=vectors)
    events = [(node.name, node.aliases) for node in memory.nodes.values() if node.tier == "instance"]
    assert events == [("Museum Visits", known or ()), *([(other, ())] if known is None else [])]
    concepts = grown(*([GraphPath("Dining", (name,), ("x",))] for name in ("Museum Visits", other)), vectors=vectors)
    assert ("Museum Visits" in names(concepts, "abstract"), len(names(concepts, "abstract"))) == (True, len(events))


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
        assert id == USER or memory.nodes[id].tier != "abstract" or USER in seen
    assert [memory.parents(id) for id in memory.children(USER)] == [(USER,)] * 11
    for edge in memory.relations.values():
        units = [mention.evidence for mention in edge.mentions]
        assert len(units) == len(set(units)) == edge.count
    for node in memory.nodes.values():
        assert node.score == len(node.fresh)
    assert GraphMemory.model_validate_json(memory.model_dump_json()) == memory


def test_what_flows_up_stands_for_a_concept_that_has_a_theory_of_its_own():
    own, flow = Theory(sigma="own"), Theory(sigma="flow")
    node = Node(id="n1", name="Food", tier="abstract", own=own)
    assert (node.theory, node.model_copy(update={"flow": flow}).theory) == (own, flow)
