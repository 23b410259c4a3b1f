"""What RGMem recalls for planned keywords (L2): texts by BM25, the graph by the names of its nodes (section 3.4).

    question + all keywords ── BM25 ──> top facts, top conclusions                             (L0)
    chosen keywords ── cosine with names ──> concepts, events ── by layer ──> profiles, inferences, history    (L1)

A keyword's layers say what is read at the nodes it finds: summary (a concept's theory), inference (theories of the
event edges at it), conclusions (those of its evidence) and history (labels of those edges). Only nodes that have such a
thing are searched for it. The paper bounds facts, conclusions and concepts, and leaves open how many events and how
many inferences per node are read: as many events as concepts, and of every node the newest three of each kind.

The context is told in blocks (`BLOCKS`): what happened, with dates; conclusions; what sums up a concept or a relation;
and apart from it what is only inferred, and what is to be avoided. A summary rests on many days, so it has no date.

Limits: a cosine belongs to its embedder. The paper's .5 is for a semantic one. The offline one compares spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from ...memory.amending import Amend
from ...memory.index import Entry, Where, entry_of
from ...memory.indexes import Indexes
from ...records import Context, Hit, estimate_tokens
from ...signatures.rgmem import Keyword
from ..settings import Settings
from .evolution import sentences, shown
from .memory import Evidence, GraphMemory, Node, Relation, Theory

PER_NODE = 3
"""Inferences, conclusions and labels that are read at a node, the newest ones."""
BLOCKS = {
    "fact": "Evidence, with dates",
    "label": "Evidence, with dates",
    "conclusion": "Conclusions",
    "summary": "Summaries by concept",
    "inference": "Summaries by concept",
    "trait": "Inferred traits and restrictions",
}
"""The headings under which hits are shown, by their kind, in the order of the context."""


class RecallSettings(Settings):
    """What can be set of recall (section 3.4)."""

    use_l0: bool = Field(True, description="whether evidence is recalled (w/o L0, Tables 3 and 4)")
    facts: int = Field(5, ge=0, description="facts recalled per question (Figure 8a)")
    conclusions: int = Field(30, ge=0, description="conclusions recalled per question (Figure 8b)")
    nodes: int = Field(3, ge=0, description="concepts recalled per question, and events (Figure 8c)")
    node_cosine: float = Field(0.5, ge=-1, le=1, description="lowest cosine of a keyword and a node's name (C.7)")
    hybrid: bool = Field(False, description="whether texts are found by BM25 and cosine together, instead of by BM25")


@dataclass(frozen=True)
class Retrieval:
    """Recalls from one memory.

    Args:
        memory: What is recalled from.
        texts: Search what `searched` gives of it.
        names: Search the names of its nodes, as `name_entries` gives them; None without a graph.
        settings: How many of each.
    """

    memory: GraphMemory
    texts: Indexes
    names: Indexes | None
    settings: RecallSettings

    def context(self, question: str, keywords: Sequence[Keyword]) -> Context:
        """The unified context, in the blocks of `BLOCKS`; `counts` has how many of each kind."""
        names = ("facts", "history", "conclusions", "nodes", "inferences", "traits")
        parts: dict[str, list[Hit]] = {name: [] for name in names}
        if self.settings.use_l0:
            query = [" ".join(dict.fromkeys([question, *(keyword.name for keyword in keywords)]))]
            for name, most in (("fact", self.settings.facts), ("conclusion", self.settings.conclusions)):
                found = self.texts.search(self.memory, query, most, where=lambda e, kind=name: e.kind == kind)
                parts[f"{name}s"] = found[0]
        if self.names is not None:
            self._read_graph(self.names, keywords, parts)
        hits = [hit for found in parts.values() for hit in {hit.id: hit for hit in found}.values()]
        unique = list({hit.id: hit for hit in hits}.values())
        counts = {name: len({hit.id for hit in found}) for name, found in parts.items()}
        context = Context(hits=in_blocks(unique), counts=counts)
        return context.model_copy(update={"counts": {**counts, "tokens": estimate_tokens(context.text())}})

    def _read_graph(self, names: Indexes, keywords: Sequence[Keyword], parts: dict[str, list[Hit]]) -> None:
        hung = self.memory.below()
        for node, score in self._found(names, keywords, "summary", ("concept",)):
            parts["nodes"].append(profile_hit(self.memory, node, score, whole=False))
            parts["traits"] += restrictions_of(self.memory, node, score)
        for node, score in self._found(names, keywords, "inference", ("concept", "event")):
            edges = [edge for edge in self._edges(node, hung) if edge.theory]
            newest = sorted(edges, key=lambda edge: -edge.theory.step if edge.theory else 0)[:PER_NODE]
            parts["inferences"] += [inference_hit(self.memory, edge, score, whole=False) for edge in newest]
            parts["traits"] += [hit for edge in newest for hit in traits_of(self.memory, edge, score)]
        for node, score in self._found(names, keywords, "history", ("concept", "event")):
            parts["history"] += _history(self.memory, self._edges(node, hung), score, self.settings.use_l0)
        if self.settings.use_l0:
            for node, score in self._found(names, keywords, "conclusions", ("concept", "event")):
                parts["conclusions"] += _conclusions_of(self.memory, node, score)

    def _edges(self, node: Node, hung: dict[str, tuple[str, ...]]) -> list[Relation]:
        if node.tier == "abstract":
            return [self.memory.relations[id] for id in hung.get(node.id, ())]
        return [edge for edge in self.memory.relations.values() if node.id in (edge.source, edge.target)]

    def _found(
        self, names: Indexes, keywords: Sequence[Keyword], layer: Any, kinds: Iterable[str]
    ) -> list[tuple[Node, float]]:
        """The nodes that the keywords of a layer name, at most `nodes` of every kind, nearest first."""
        queries = [keyword.name for keyword in keywords if layer in keyword.retrieve]
        most = self.settings.nodes
        if not queries:
            return []
        chosen: list[tuple[Node, float]] = []
        for kind in kinds:
            best: dict[str, float] = {}
            passes = _passes(layer, kind)
            for hits in names.search(self.memory, queries, most, self.settings.node_cosine, passes):
                for hit in hits:
                    best[hit.id] = max(hit.score, best.get(hit.id, hit.score))
            ranked = sorted(best.items(), key=lambda pair: -pair[1])[:most]
            chosen += [(self.memory.nodes[id], score) for id, score in ranked]
        return chosen


def in_blocks(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits under the headings of their kinds, block by block; within a block in their order."""
    order = list(dict.fromkeys(BLOCKS.values()))
    headed = [hit.model_copy(update={"block": BLOCKS[hit.kind]}) for hit in hits]
    return tuple(sorted(headed, key=lambda hit: order.index(hit.block)))


def _passes(layer: str, kind: str) -> Where:
    return lambda entry: entry.tags["kind"] == kind and layer in entry.tags["has"].split()


def searched(memory: GraphMemory, use_l0: bool = True) -> list[Any]:
    """What can be searched as text: units of evidence as they came, behind them entries of theories and profiles."""
    hits = [inference_hit(memory, relation) for relation in memory.relations.values() if relation.theory]
    hits += [profile_hit(memory, node) for node in memory.nodes.values() if node.theory]
    return [*(memory.evidence.values() if use_l0 else ()), *map(entry_of, hits)]


def entries_of(part: Any) -> tuple[Entry, ...]:
    """The entries of a part that is searched: of a unit its conclusions and its fact."""
    if not isinstance(part, Evidence):
        return (part,)
    found = [
        Entry(id=f"{part.id}.{n}", text=one.text, kind="conclusion", sources=one.sources, time=part.time)
        for n, one in enumerate(part.conclusions, 1)
        if one.text
    ]
    if part.fact:
        found.append(Entry(id=part.id, text=part.fact, kind="fact", sources=part.sources, time=part.time))
    return tuple(found)


def name_entries(memory: GraphMemory) -> list[Entry]:
    """The names of the nodes, tagged with their kind and with the layers that there is something of."""
    hung = memory.below()
    touched = {id for relation in memory.relations.values() for id in (relation.source, relation.target)}
    thought = {id for r in memory.relations.values() if r.theory for id in (r.source, r.target)}
    found: list[Entry] = []
    for node in memory.nodes.values():
        concept = node.tier in ("user", "abstract")
        edges = hung.get(node.id, ()) if concept else ()
        theory = any(memory.relations[id].theory for id in edges) or (not concept and node.id in thought)
        has = {"summary": bool(node.theory), "inference": theory, "conclusions": bool(node.evidence)}
        has["history"] = bool(edges) or (not concept and node.id in touched)
        layers = [layer for layer, there in has.items() if there]
        if layers:
            tags = {"kind": "concept" if concept else "event", "has": " ".join(layers)}
            found.append(Entry(id=node.id, text=node.name, tags=tags))
    return found


def profile_hit(memory: GraphMemory, node: Node, score: float = 0.0, whole: bool = True) -> Hit:
    """A concept's theory, without its restrictions if not `whole`; its sources are the turns of all its units."""
    assert node.theory is not None
    said = shown(node.theory) if whole or node.flow is None else sentences(node.flow.sigma)
    return _theory_hit(memory, node.id, f"{node.name}: {said}", "summary", node.theory.evidence, score)


def restrictions_of(memory: GraphMemory, node: Node, score: float) -> list[Hit]:
    """What R_K3 says is to be avoided or kept in balance; none where it has not fired."""
    if node.flow is None or not node.flow.delta:
        return []
    said = f"{node.name}, restrictions: {sentences(node.flow.delta)}"
    return [_theory_hit(memory, f"{node.id}.restrictions", said, "trait", node.flow.evidence, score)]


def inference_hit(memory: GraphMemory, relation: Relation, score: float = 0.0, whole: bool = True) -> Hit:
    """An event edge's theory, without its inferred traits if not `whole`."""
    assert relation.theory is not None
    said = f"{_way(memory, relation)}: {shown(relation.theory) if whole else sentences(relation.theory.sigma)}"
    return _theory_hit(memory, relation.id, said, "inference", relation.theory.evidence, score)


def traits_of(memory: GraphMemory, relation: Relation, score: float) -> list[Hit]:
    """What R_K1 infers beside the facts."""
    theory = relation.theory
    if theory is None or not theory.delta:
        return []
    said = f"{_way(memory, relation)}, inferred: {sentences(theory.delta)}"
    return [_theory_hit(memory, f"{relation.id}.traits", said, "trait", theory.evidence, score)]


def _way(memory: GraphMemory, relation: Relation) -> str:
    return f"{memory.nodes[relation.source].name}, {memory.nodes[relation.target].name}"


def _history(memory: GraphMemory, edges: Sequence[Relation], score: float, facts: bool) -> list[Hit]:
    """The newest labels of relations; a fact stands in for a missing one, where facts may be recalled."""
    order = {id: n for n, id in enumerate(memory.evidence)}
    said = [(edge, m) for edge in edges for m in edge.mentions if facts or m.label != memory.evidence[m.evidence].fact]
    mentions = [(order[m.evidence], edge, m) for edge, m in said if m.label]
    newest = sorted(mentions, key=lambda row: -row[0])[:PER_NODE]
    units = [(f"{edge.id}.{mention.evidence}", mention.label, mention.evidence) for _, edge, mention in newest]
    return [
        Hit(
            id=id,
            text=label,
            kind="label",
            score=score,
            sources=memory.turns((unit,)),
            time=memory.evidence[unit].time,
        )
        for id, label, unit in units
    ]


def _conclusions_of(memory: GraphMemory, node: Node, score: float) -> list[Hit]:
    units: list[Evidence] = [memory.evidence[id] for id in reversed(node.evidence)]
    found = [
        (unit, n, one) for unit in units for n, one in enumerate(unit.conclusions, 1) if one.text and one in unit.seeds
    ]
    return [
        Hit(id=f"{unit.id}.{n}", text=one.text, kind="conclusion", score=score, sources=one.sources, time=unit.time)
        for unit, n, one in found[:PER_NODE]
    ]


def _theory_hit(memory: GraphMemory, id: str, text: str, kind: str, evidence: Sequence[str], score: float) -> Hit:
    """A theory rests on many days, so it has no date."""
    return Hit(id=id, text=text, kind=kind, score=score, sources=memory.turns(tuple(evidence)))


def amended(memory: GraphMemory, amend: Amend) -> GraphMemory:
    """The memory with what is left of its evidence and theories.

    A fact or conclusion is reworded, or without words; its unit stays, for theories and nodes name it. A theory is
    reworded, or none; labels of mentions go with the fact of their unit.
    """
    evidence = {id: _unit(unit, amend) for id, unit in memory.evidence.items()}
    changed = {id for id, unit in evidence.items() if unit.fact != memory.evidence[id].fact}
    relations = {id: _relation(memory, one, amend, changed) for id, one in memory.relations.items()}
    nodes = {id: _node(memory, node, amend) for id, node in memory.nodes.items()}
    return memory.model_copy(update={"evidence": evidence, "relations": relations, "nodes": nodes})


def _unit(unit: Evidence, amend: Amend) -> Evidence:
    entries = entries_of(unit)
    if not any(amend.touches(entry.id, entry.sources) for entry in entries):
        return unit
    said = {entry.id: entry.text for entry in amend.entries(entries)}
    texts = [said.get(f"{unit.id}.{n}", "") for n in range(1, len(unit.conclusions) + 1)]
    if said == {entry.id: entry.text for entry in entries}:
        return unit
    conclusions = [one.model_copy(update={"text": text}) for one, text in zip(unit.conclusions, texts, strict=True)]
    return unit.model_copy(update={"fact": said.get(unit.id, ""), "conclusions": tuple(conclusions)})


def _relation(memory: GraphMemory, relation: Relation, amend: Amend, changed: set[str]) -> Relation:
    mentions = relation.mentions
    if any(mention.evidence in changed for mention in mentions):
        bare = ({"label": ""} if mention.evidence in changed else {} for mention in mentions)
        mentions = tuple(m.model_copy(update=update) for m, update in zip(mentions, bare, strict=True))
    theory = relation.theory
    if theory is not None:
        theory = _theory(theory, [inference_hit(memory, relation), *traits_of(memory, relation, 0.0)], amend)
    if theory is relation.theory and mentions is relation.mentions:
        return relation
    return relation.model_copy(update={"mentions": mentions, "theory": theory})


def _node(memory: GraphMemory, node: Node, amend: Amend) -> Node:
    if node.theory is None:
        return node
    theory = _theory(node.theory, [profile_hit(memory, node), *restrictions_of(memory, node, 0.0)], amend)
    if theory is node.theory:
        return node
    # What flowed up has taken the node's own theory in.
    return node.model_copy(update={"own": None, "flow": theory})


def _theory(theory: Theory, hits: Sequence[Hit], amend: Amend) -> Theory | None:
    """A theory after its texts were looked at, the first of which is the whole."""
    left = [amend(entry_of(hit)) for hit in hits]
    whole = left[0]
    if whole is None:
        return None
    if any(after is None for after in left[1:]):
        return theory.model_copy(update={"delta": ""})
    if whole.text == hits[0].text:
        return theory
    said = whole.text.removeprefix(hits[0].text.partition(": ")[0]).removeprefix(": ")
    return theory.model_copy(update={"sigma": said, "delta": ""})
