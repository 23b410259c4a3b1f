"""RGMem's retrieval for planned keywords (L2): texts by BM25, the graph by names of nodes (section 3.4).

A keyword's layers say what is read at the nodes it finds; only nodes that have such a thing are searched for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, EntryFilter, hit_as_entry
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, estimate_tokens, in_blocks
from ...signatures.rgmem import Keyword
from ..settings import SearchSettings
from .evolution import sentences, shown
from .memory import USER, Conclusion, Evidence, GraphMemory, Node, Relation, Theory, seeds

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


class RecallSettings(SearchSettings):
    """What can be set of recall (section 3.4)."""

    use_l0: bool = Field(default=True, description="whether evidence is recalled (w/o L0, Tables 3 and 4)")
    facts: int = Field(default=5, ge=0, description="facts recalled per question (Figure 8a)")
    conclusions: int = Field(default=30, ge=0, description="conclusions recalled per question (Figure 8b)")
    nodes: int = Field(default=3, ge=0, description="concepts recalled per question, and events (Figure 8c)")
    node_cosine: float = Field(default=0.5, ge=-1, le=1, description="lowest cosine of a keyword and a node's name (C.7)")


def recalled(
    memory: GraphMemory,
    texts: IndexCache,
    names: IndexCache | None,
    settings: RecallSettings,
    question: str,
    keywords: Sequence[Keyword],
) -> Context:
    """The unified context, in the blocks of `BLOCKS`; `counts` has how many of each kind.

    `texts` search what `searched` gives of the memory, `names` its nodes, None without a graph. Where the question
    names people who have graphs, only those graphs are read.
    """
    kinds = ("facts", "history", "conclusions", "nodes", "inferences", "traits")
    parts: dict[str, list[Hit]] = {name: [] for name in kinds}
    if settings.use_l0:
        query = [" ".join(dict.fromkeys([question, *(keyword.name for keyword in keywords)]))]
        for name, most in (("fact", settings.facts), ("conclusion", settings.conclusions)):
            parts[f"{name}s"] = texts.search(memory, query, most, where=lambda e, kind=name: e.kind == kind)[0]
    if names is not None:
        _read_graph(memory, names, settings, keywords, parts, named_people(memory, question))
    hits = {hit.id: hit for found in parts.values() for hit in {hit.id: hit for hit in found}.values()}
    counts = {name: len({hit.id for hit in found}) for name, found in parts.items()}
    context = Context(hits=in_blocks(hits.values(), BLOCKS), counts=counts)
    return context.model_copy(update={"counts": {**counts, "tokens": estimate_tokens(context.text())}})


def _read_graph(
    memory: GraphMemory,
    names: IndexCache,
    settings: RecallSettings,
    keywords: Sequence[Keyword],
    parts: dict[str, list[Hit]],
    people: frozenset[str],
) -> None:
    hung = memory.below()

    def edges(node: Node) -> list[Relation]:
        if node.tier == "abstract":
            return [memory.relations[id] for id in hung.get(node.id, ())]
        return [edge for edge in memory.relations.values() if node.id in (edge.source, edge.target)]

    def found(layer: Any, *kinds: str) -> list[tuple[Node, float]]:
        """The nodes that the keywords of a layer name, at most `nodes` of every kind, nearest first."""
        queries, most = [keyword.name for keyword in keywords if layer in keyword.retrieve], settings.nodes
        chosen: list[tuple[Node, float]] = []
        for kind in kinds if queries else ():
            best: dict[str, float] = {}
            passes = _passes(layer, kind, people)
            for hits in names.search(memory, queries, most, settings.node_cosine, passes):
                for hit in hits:
                    best[hit.id] = max(hit.score, best.get(hit.id, hit.score))
            ranked = sorted(best.items(), key=lambda pair: -pair[1])[:most]
            chosen += [(memory.nodes[id], score) for id, score in ranked]
        return chosen

    for node, score in found("summary", "concept"):
        profile, *restrictions = theory_hits(memory, node, score)
        parts["nodes"].append(profile)
        parts["traits"] += restrictions
    for node, score in found("inference", "concept", "event"):
        thought = [edge for edge in edges(node) if edge.theory]
        newest = sorted(thought, key=lambda edge: -edge.theory.step if edge.theory else 0)[:PER_NODE]
        for inference, *traits in (theory_hits(memory, edge, score) for edge in newest):
            parts["inferences"].append(inference)
            parts["traits"] += traits
    for node, score in found("history", "concept", "event"):
        parts["history"] += _history(memory, edges(node), score, settings.use_l0)
    for node, score in found("conclusions", "concept", "event") if settings.use_l0 else ():
        units = [memory.evidence[id] for id in reversed(node.evidence)]
        drawn = [entry for unit in units for entry in _drawn(unit, seeds(unit.conclusions))]
        parts["conclusions"] += [entry.hit(score) for entry in drawn[:PER_NODE]]


def named_people(memory: GraphMemory, question: str) -> frozenset[str]:
    """Return the people with a graph whom a question names, by the whole name or its first word; all if none."""
    people = [person for person in memory.roots if person != USER]
    first_names = Counter(person.split()[0] for person in people)
    named: list[str] = []
    for person in people:
        first_name = person.split()[0]
        # "Speaker" alone does not tell Speaker 1 from Speaker 2.
        is_first_name_clear = first_names[first_name] == 1
        if _mentions(question, person) or (is_first_name_clear and _mentions(question, first_name)):
            named.append(person)
    return frozenset(named or memory.roots)


def _mentions(question: str, name: str) -> bool:
    if not name.isascii():
        # Chinese is written without spaces between words.
        return name in question
    # As it is written: "Will" is a person, "will" is none. A name may end in a full stop, after which there is no \b.
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", question) is not None


def _passes(layer: str, kind: str, people: frozenset[str]) -> EntryFilter:
    def passes(entry: Entry) -> bool:
        tags = entry.tags
        return tags["kind"] == kind and layer in tags["has"].split() and tags["person"] in people

    return passes


def searched(memory: GraphMemory, use_l0: bool = True) -> list[Any]:
    """What can be searched as text: units of evidence as they came, behind them entries of theories and profiles."""
    parts = [part for part in (*memory.relations.values(), *memory.nodes.values()) if part.theory]
    return [*(memory.evidence.values() if use_l0 else ()), *(hit_as_entry(whole_hit(memory, part)) for part in parts)]


def entries_of(part: Any) -> tuple[Entry, ...]:
    """The entries of a part that is searched: of a unit its conclusions and its fact."""
    if not isinstance(part, Evidence):
        return (part,)
    fact = Entry(id=part.id, text=part.fact, kind="fact", sources=part.sources, time=part.time)
    return (*_drawn(part, part.conclusions), *([fact] if part.fact else ()))


def _drawn(unit: Evidence, which: Sequence[Conclusion]) -> list[Entry]:
    return [
        Entry(id=f"{unit.id}.{n}", text=one.text, kind="conclusion", sources=one.sources, time=unit.time)
        for n, one in enumerate(unit.conclusions, 1)
        if one.text and one in which
    ]


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
            tags = {"kind": "concept" if concept else "event", "has": " ".join(layers), "person": node.person}
            found.append(Entry(id=node.id, text=node.name, tags=tags))
    return found


def whole_hit(memory: GraphMemory, part: Node | Relation) -> Hit:
    """The theory of a concept or an event edge, with both of its parts."""
    assert part.theory is not None
    return _hit(memory, part, part.theory, f": {shown(part.theory)}")


def theory_hits(memory: GraphMemory, part: Node | Relation, score: float = 0.0) -> list[Hit]:
    """The same, and apart from it what is only inferred (R_K1), or to be avoided or kept in balance (R_K3)."""
    theory = part.theory
    assert theory is not None
    apart, what, label = (
        (part.flow, "restrictions", "restrictions") if isinstance(part, Node) else (theory, "traits", "inferred")
    )
    found = [_hit(memory, part, theory, f": {sentences(theory.sigma) if apart else shown(theory)}")]
    if apart and apart.delta:
        hit = _hit(memory, part, apart, f", {label}: {sentences(apart.delta)}")
        found.append(hit.model_copy(update={"id": f"{part.id}.{what}", "kind": "trait"}))
    return [hit.model_copy(update={"score": score}) for hit in found]


def _hit(memory: GraphMemory, part: Node | Relation, theory: Theory, said: str) -> Hit:
    """A theory, or part of it; it rests on many days, so it has no date."""
    node = isinstance(part, Node)
    title = _title(memory, part)
    kind, sources = "summary" if node else "inference", memory.turns(theory.evidence)
    return Hit(id=part.id, text=f"{title}{said}", kind=kind, sources=sources)


def _title(memory: GraphMemory, part: Node | Relation) -> str:
    """Return what a theory is about: whose it is, if a person is known, then its concept or the ends of its edge."""
    if isinstance(part, Node):
        person, names = part.person, [part.name]
    else:
        source, target = memory.nodes[part.source], memory.nodes[part.target]
        person, names = source.person, [source.name, target.name]
    if person not in (USER, names[0]):
        names.insert(0, person)
    return ", ".join(names)


def _history(memory: GraphMemory, edges: Sequence[Relation], score: float, facts: bool) -> list[Hit]:
    """The newest labels of relations; a fact stands in for a missing one, where facts may be recalled."""
    order = {id: n for n, id in enumerate(memory.evidence)}
    said = [(edge, m) for edge in edges for m in edge.mentions if facts or m.label != memory.evidence[m.evidence].fact]
    newest = sorted((pair for pair in said if pair[1].label), key=lambda pair: -order[pair[1].evidence])[:PER_NODE]
    return [
        Hit(
            id=f"{edge.id}.{mention.evidence}",
            text=mention.label,
            kind="label",
            score=score,
            sources=memory.turns((mention.evidence,)),
            time=memory.evidence[mention.evidence].time,
        )
        for edge, mention in newest
    ]


def with_edits(memory: GraphMemory, edits: EntryEdits) -> GraphMemory:
    """The memory with what is left of its evidence and theories.

    A fact or conclusion is reworded, or without words; its unit stays, for theories and nodes name it. A theory is
    reworded, or none; labels of mentions go with the fact of their unit.
    """
    evidence = {id: _unit(unit, edits) for id, unit in memory.evidence.items()}
    changed = {id for id, unit in evidence.items() if unit.fact != memory.evidence[id].fact}
    relations, nodes = dict(memory.relations), dict(memory.nodes)
    for id, relation in memory.relations.items():
        mentions = tuple(m.replace(label="") if m.evidence in changed else m for m in relation.mentions)
        relations[id] = relation.replace(mentions=mentions, theory=_theory(memory, relation, edits))
    for id, node in memory.nodes.items():
        theory = _theory(memory, node, edits)
        # What flowed up has taken the node's own theory in.
        nodes[id] = node if theory is node.theory else node.replace(own=None, flow=theory)
    return memory.replace(evidence=evidence, relations=relations, nodes=nodes)


def _unit(unit: Evidence, edits: EntryEdits) -> Evidence:
    entries = entries_of(unit)
    said = {entry.id: entry.text for entry in edits.amended_entries(entries)}
    if said == {entry.id: entry.text for entry in entries}:
        return unit
    texts = [said.get(f"{unit.id}.{n}", "") for n in range(1, len(unit.conclusions) + 1)]
    conclusions = tuple(one.replace(text=text) for one, text in zip(unit.conclusions, texts, strict=True))
    return unit.replace(fact=said.get(unit.id, ""), conclusions=conclusions)


def _theory(memory: GraphMemory, part: Node | Relation, edits: EntryEdits) -> Theory | None:
    theory = part.theory
    if theory is None:
        return None
    before = whole_hit(memory, part)
    whole, *apart = (edits.visible_entry(hit_as_entry(hit)) for hit in (before, *theory_hits(memory, part)[1:]))
    if whole is None:
        return None
    if None in apart:
        return theory.replace(delta="")
    if whole.text == before.text:
        return theory
    said = whole.text.removeprefix(before.text.partition(": ")[0]).removeprefix(": ")
    return theory.replace(sigma=said, delta="")
