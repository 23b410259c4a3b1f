"""RGMem's retrieval for planned keywords (L2): texts by BM25, the graph by names of nodes.

    L0   question and keywords ── BM25 ──> facts, conclusions
    L1   keyword ── cosine with names ──> nodes ──> what the keyword's layers ask for

| layer         | what is read at a node                           | as                       |
|---------------|--------------------------------------------------|--------------------------|
| `summary`     | the theory of a concept (R_K2, R_K3)             | nodes, and `traits`      |
| `inference`   | the newest theories of event edges (R_K1)        | inferences, and `traits` |
| `history`     | the newest labels of event edges                 | history                  |
| `conclusions` | conclusions of the newest units of evidence      | conclusions              |

A layer searches only the nodes that have such a thing.

Source: Tian et al., "RGMem", section 3.4, and lines 33 to 36 of algorithm 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from typing import NamedTuple

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, estimate_tokens, in_blocks
from ...signatures.rgmem import Keyword, Layer
from ..settings import SearchSettings
from .evolution import as_sentences, theory_as_text
from .memory import (
    USER,
    Conclusion,
    Evidence,
    GraphMemory,
    Mention,
    Node,
    Relation,
    Theory,
    seeds,
)

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

SearchedPart = Evidence | Entry
"""A part of a memory that texts are searched in: a unit of evidence, or a theory as an entry."""


class RecallSettings(SearchSettings):
    """What can be set of recall (section 3.4)."""

    use_l0: bool = Field(
        default=True, description="whether evidence is recalled (w/o L0, Tables 3 and 4)"
    )
    facts: int = Field(default=5, ge=0, description="facts recalled per question (Figure 8a)")
    conclusions: int = Field(
        default=30, ge=0, description="conclusions recalled per question (Figure 8b)"
    )
    nodes: int = Field(
        default=3, ge=0, description="concepts recalled per question, and events (Figure 8c)"
    )
    node_cosine: float = Field(
        default=0.5,
        ge=-1,
        le=1,
        description="lowest cosine of a keyword and a node's name (C.7)",
    )


@dataclass
class _Recollection:
    """What was recalled for a question, by kind."""

    facts: list[Hit] = field(default_factory=list)
    history: list[Hit] = field(default_factory=list)
    conclusions: list[Hit] = field(default_factory=list)
    nodes: list[Hit] = field(default_factory=list)
    inferences: list[Hit] = field(default_factory=list)
    traits: list[Hit] = field(default_factory=list)

    def as_context(self) -> Context:
        """Return each hit once, in the blocks of `BLOCKS`, with the numbers of hits and tokens."""
        hits_by_kind = {
            "facts": self.facts,
            "history": self.history,
            "conclusions": self.conclusions,
            "nodes": self.nodes,
            "inferences": self.inferences,
            "traits": self.traits,
        }
        unique_hits: dict[str, Hit] = {}
        counts: dict[str, int] = {}
        for kind, hits in hits_by_kind.items():
            unique_hits.update({hit.id: hit for hit in hits})
            counts[kind] = len({hit.id for hit in hits})

        context = Context(hits=in_blocks(unique_hits.values(), BLOCKS))
        counts["tokens"] = estimate_tokens(context.text())
        return context.model_copy(update={"counts": counts})


def recall_scales(
    memory: GraphMemory,
    texts: IndexCache,
    names: IndexCache | None,
    settings: RecallSettings,
    question: str,
    keywords: Sequence[Keyword],
) -> Context:
    """Return the context of all scales, C(q), in the blocks of `BLOCKS`.

    Its `counts` hold the number of hits of each kind, and of tokens.

    Args:
        memory: The memory to read.
        texts: Searches the evidence and theories of the memory (`searched_parts`).
        names: Searches the names of nodes (`name_entries`); None without a graph.
        settings: What is recalled, and how much.
        question: The question. Where it names people who have graphs, only those graphs are read.
        keywords: What to look for in which layers.
    """
    recollection = _Recollection()

    # L0ctx, line 34 of algorithm 1. The sub-queries are searched as one query.
    if settings.use_l0:
        keyword_names = [keyword.name for keyword in keywords]
        query = " ".join(dict.fromkeys([question, *keyword_names]))
        recollection.facts = _search_evidence(memory, texts, query, "fact", settings.facts)
        recollection.conclusions = _search_evidence(
            memory, texts, query, "conclusion", settings.conclusions
        )

    # L1ctx, line 35.
    if names is not None:
        people = named_people(memory, question)
        search = _GraphSearch(memory, names, settings, keywords, people)
        search.read_into(recollection)

    # C(q), line 36.
    return recollection.as_context()


def _search_evidence(
    memory: GraphMemory, texts: IndexCache, query: str, kind: str, limit: int
) -> list[Hit]:
    """Return the facts or the conclusions nearest to a query."""
    hits_per_query = texts.search(memory, [query], limit, where=partial(_is_of_kind, kind))
    return hits_per_query[0]


def _is_of_kind(kind: str, entry: Entry) -> bool:
    return entry.kind == kind


class ScoredNode(NamedTuple):
    """A node whose name is near to a keyword, with their cosine."""

    node: Node
    score: float


class _GraphSearch:
    """Read a graph at the nodes that keywords name.

    Args:
        memory: The memory with the graph.
        names: Searches the names of nodes.
        settings: How many nodes are read, and how near their names must be.
        keywords: What to look for in which layers.
        people: The people whose graphs are read.
    """

    def __init__(
        self,
        memory: GraphMemory,
        names: IndexCache,
        settings: RecallSettings,
        keywords: Sequence[Keyword],
        people: frozenset[str],
    ) -> None:
        self._memory = memory
        self._names = names
        self._settings = settings
        self._keywords = keywords
        self._people = people
        self._relations_below = memory.relations_below()

    def read_into(self, recollection: _Recollection) -> None:
        """Add what the graph has in the layers of the keywords."""
        self._read_summaries(recollection)
        self._read_inferences(recollection)
        self._read_history(recollection)
        if self._settings.use_l0:
            self._read_conclusions(recollection)

    def _read_summaries(self, recollection: _Recollection) -> None:
        """Read the theories of concepts."""
        for node, score in self._find_nodes("summary", "concept"):
            recollection.nodes.append(main_hit(self._memory, node, score))
            restrictions = aside_hit(self._memory, node, score)
            if restrictions is not None:
                recollection.traits.append(restrictions)

    def _read_inferences(self, recollection: _Recollection) -> None:
        """Read the newest theories of event edges at concepts and events."""
        for node, score in self._find_concepts_and_events("inference"):
            relations = [relation for relation in self._relations_of(node) if relation.theory]
            newest = sorted(relations, key=_step_of_theory, reverse=True)
            for relation in newest[:PER_NODE]:
                recollection.inferences.append(main_hit(self._memory, relation, score))
                traits = aside_hit(self._memory, relation, score)
                if traits is not None:
                    recollection.traits.append(traits)

    def _read_history(self, recollection: _Recollection) -> None:
        """Read the newest labels of event edges at concepts and events."""
        shows_facts = self._settings.use_l0
        for node, score in self._find_concepts_and_events("history"):
            relations = self._relations_of(node)
            hits = _history_hits(self._memory, relations, score, shows_facts)
            recollection.history.extend(hits)

    def _read_conclusions(self, recollection: _Recollection) -> None:
        """Read the conclusions of the newest units that are evidence of concepts and events."""
        for node, score in self._find_concepts_and_events("conclusions"):
            entries: list[Entry] = []
            for evidence_id in reversed(node.evidence):
                unit = self._memory.evidence[evidence_id]
                entries.extend(_conclusion_entries(unit, seeds(unit.conclusions)))
            hits = [entry.hit(score) for entry in entries[:PER_NODE]]
            recollection.conclusions.extend(hits)

    def _find_concepts_and_events(self, layer: Layer) -> list[ScoredNode]:
        return [*self._find_nodes(layer, "concept"), *self._find_nodes(layer, "event")]

    def _find_nodes(self, layer: Layer, kind: str) -> list[ScoredNode]:
        """Return the nodes of a kind that the keywords of a layer name, nearest first."""
        queries = [keyword.name for keyword in self._keywords if layer in keyword.retrieve]
        if not queries:
            return []

        limit = self._settings.nodes
        min_cosine = self._settings.node_cosine
        is_wanted = partial(_has_layer, layer, kind, self._people)
        best_scores: dict[str, float] = {}
        hits_per_query = self._names.search(self._memory, queries, limit, min_cosine, is_wanted)
        for hits in hits_per_query:
            for hit in hits:
                best_scores[hit.id] = max(hit.score, best_scores.get(hit.id, hit.score))

        # Sorting is stable: of equal scores, the node of the earlier keyword stays first.
        ranked = sorted(best_scores.items(), key=itemgetter(1), reverse=True)
        nodes = self._memory.nodes
        return [ScoredNode(nodes[node_id], score) for node_id, score in ranked[:limit]]

    def _relations_of(self, node: Node) -> list[Relation]:
        """Return the event edges below a concept, or those that begin or end at an event."""
        relations = self._memory.relations
        if node.tier == "abstract":
            relation_ids = self._relations_below.get(node.id, ())
            return [relations[relation_id] for relation_id in relation_ids]
        return [
            relation
            for relation in relations.values()
            if node.id in (relation.source, relation.target)
        ]


def _step_of_theory(relation: Relation) -> int:
    return relation.theory.step if relation.theory else 0


def _has_layer(layer: Layer, kind: str, people: frozenset[str], entry: Entry) -> bool:
    """Return whether a node, as an entry of `name_entries`, has something to read in a layer."""
    tags = entry.tags
    is_near = tags["kind"] == kind and tags["person"] in people
    return is_near and layer in tags["has"].split()


def named_people(memory: GraphMemory, question: str) -> frozenset[str]:
    """Return the people with a graph whom a question names, or all if it names none.

    It names them by the whole name, or by its first word.
    """
    people = [person for person in memory.roots if person != USER]
    first_names = Counter(person.split()[0] for person in people)
    named: list[str] = []
    for person in people:
        first_name = person.split()[0]
        # "Speaker" alone does not tell Speaker 1 from Speaker 2.
        is_first_name_clear = first_names[first_name] == 1
        is_named = _mentions(question, person)
        if is_named or (is_first_name_clear and _mentions(question, first_name)):
            named.append(person)
    return frozenset(named or memory.roots)


def _mentions(question: str, name: str) -> bool:
    if not name.isascii():
        # Chinese is written without spaces between words.
        return name in question
    # As it is written: "Will" is a person, "will" is none. A name may end in a full stop, after
    # which there is no \b.
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", question) is not None


def searched_parts(memory: GraphMemory, use_l0: bool = True) -> list[SearchedPart]:
    """Return what can be searched as text: units of evidence, then entries of theories.

    Args:
        memory: The memory to search.
        use_l0: Whether evidence may be found.
    """
    parts: list[SearchedPart] = []
    if use_l0:
        parts.extend(memory.evidence.values())
    for owner in (*memory.relations.values(), *memory.nodes.values()):
        if owner.theory is not None:
            parts.append(hit_as_entry(whole_hit(memory, owner)))
    return parts


def entries_of(part: SearchedPart) -> tuple[Entry, ...]:
    """Return the entries of a part that is searched: of a unit, its conclusions and its fact."""
    if not isinstance(part, Evidence):
        return (part,)

    entries = _conclusion_entries(part, part.conclusions)
    if part.fact:
        fact = Entry(id=part.id, text=part.fact, kind="fact", sources=part.sources, time=part.time)
        entries.append(fact)
    return tuple(entries)


def _conclusion_entries(unit: Evidence, wanted: Collection[Conclusion]) -> list[Entry]:
    """Return those of a unit's conclusions that are wanted and have words, as entries."""
    entries: list[Entry] = []
    for position, conclusion in enumerate(unit.conclusions):
        if conclusion.text and conclusion in wanted:
            entry = Entry(
                id=_conclusion_entry_id(unit, position),
                text=conclusion.text,
                kind="conclusion",
                sources=conclusion.sources,
                time=unit.time,
            )
            entries.append(entry)
    return entries


def _conclusion_entry_id(unit: Evidence, position: int) -> str:
    """Return the id of a unit's conclusion at a position, from e1.1 on."""
    return f"{unit.id}.{position + 1}"


def name_entries(memory: GraphMemory) -> list[Entry]:
    """Return the names of the nodes with something to read, as entries.

    Their tags hold the kind of the node, its person, and in `has` the layers that there is
    something of.
    """
    relations_below = memory.relations_below()
    relations_at = _relations_at_nodes(memory)
    entries: list[Entry] = []
    for node in memory.nodes.values():
        is_concept = node.tier in ("user", "abstract")
        if is_concept:
            relation_ids = relations_below.get(node.id, ())
        else:
            relation_ids = relations_at.get(node.id, ())
        layers = _layers_of(memory, node, relation_ids)
        if layers:
            tags = {
                "kind": "concept" if is_concept else "event",
                "has": " ".join(layers),
                "person": node.person,
            }
            entries.append(Entry(id=node.id, text=node.name, tags=tags))
    return entries


def _relations_at_nodes(memory: GraphMemory) -> Mapping[str, Sequence[str]]:
    """Return for each node the ids of the event edges that begin or end at it."""
    relation_ids: dict[str, list[str]] = {}
    for relation in memory.relations.values():
        for node_id in (relation.source, relation.target):
            relation_ids.setdefault(node_id, []).append(relation.id)
    return relation_ids


def _layers_of(memory: GraphMemory, node: Node, relation_ids: Sequence[str]) -> list[Layer]:
    """Return the layers in which there is something to read at a node with these event edges."""
    layers: list[Layer] = []
    if node.theory is not None:
        layers.append("summary")
    if any(memory.relations[relation_id].theory for relation_id in relation_ids):
        layers.append("inference")
    if node.evidence:
        layers.append("conclusions")
    if relation_ids:
        layers.append("history")
    return layers


def whole_hit(memory: GraphMemory, owner: Node | Relation) -> Hit:
    """Return the theory of a concept or an event edge, with both of its parts."""
    theory = _theory_of(owner)
    return _theory_hit(memory, owner, theory, f": {theory_as_text(theory)}")


def main_hit(memory: GraphMemory, owner: Node | Relation, score: float = 0.0) -> Hit:
    """Return the theory of a concept or an event edge without what `aside_hit` returns."""
    theory = _theory_of(owner)
    text = theory_as_text(theory)
    if _aside_theory(owner) is not None:
        text = as_sentences(theory.sigma)
    hit = _theory_hit(memory, owner, theory, f": {text}")
    return hit.model_copy(update={"score": score})


def aside_hit(memory: GraphMemory, owner: Node | Relation, score: float = 0.0) -> Hit | None:
    """Return what is shown apart from a theory, or None if there is nothing of the kind.

    Of an event edge these are inferred traits (R_K1), of a parent concept its restrictions (R_K3).
    """
    theory = _aside_theory(owner)
    if theory is None or not theory.delta:
        return None

    text = as_sentences(theory.delta)
    if isinstance(owner, Node):
        hit = _theory_hit(memory, owner, theory, f", restrictions: {text}")
        hit_id = f"{owner.id}.restrictions"
    else:
        hit = _theory_hit(memory, owner, theory, f", inferred: {text}")
        hit_id = f"{owner.id}.traits"
    return hit.model_copy(update={"id": hit_id, "kind": "trait", "score": score})


def _aside_theory(owner: Node | Relation) -> Theory | None:
    """Return the theory whose second part is shown apart; a concept's own has none."""
    if isinstance(owner, Node):
        return owner.flow
    return owner.theory


def _theory_of(owner: Node | Relation) -> Theory:
    theory = owner.theory
    assert theory is not None, f"{owner.id} has no theory"
    return theory


def _theory_hit(memory: GraphMemory, owner: Node | Relation, theory: Theory, text: str) -> Hit:
    """Return a hit of a theory, or of part of it; it rests on many days, so it has no date.

    Args:
        memory: The memory with the theory.
        owner: The concept or event edge that the theory is about.
        theory: The theory, whose turns the hit rests on.
        text: What follows the title.
    """
    kind = "summary" if isinstance(owner, Node) else "inference"
    return Hit(
        id=owner.id,
        text=f"{_title(memory, owner)}{text}",
        kind=kind,
        sources=memory.turns(theory.evidence),
    )


def _title(memory: GraphMemory, owner: Node | Relation) -> str:
    """Return what a theory is about: its concept, or the ends of its edge.

    The name of the person comes first, if it is known and not the same.
    """
    if isinstance(owner, Node):
        person = owner.person
        names = [owner.name]
    else:
        source = memory.nodes[owner.source]
        target = memory.nodes[owner.target]
        person = source.person
        names = [source.name, target.name]
    if person not in (USER, names[0]):
        names.insert(0, person)
    return ", ".join(names)


class _EdgeLabel(NamedTuple):
    """A label of an event edge, with the number of its unit of evidence, from the oldest on."""

    relation: Relation
    mention: Mention
    unit_number: int


def _history_hits(
    memory: GraphMemory, relations: Sequence[Relation], score: float, shows_facts: bool
) -> list[Hit]:
    """Return the newest labels of event edges.

    Args:
        memory: The memory with the edges.
        relations: The edges.
        score: The score of all hits.
        shows_facts: Whether facts may be recalled. A fact stands in for the label of an edge that
            the model left without one.
    """
    unit_numbers = {evidence_id: number for number, evidence_id in enumerate(memory.evidence)}
    labels: list[_EdgeLabel] = []
    for relation in relations:
        for mention in relation.mentions:
            is_fact = mention.label == memory.evidence[mention.evidence].fact
            if mention.label and (shows_facts or not is_fact):
                labels.append(_EdgeLabel(relation, mention, unit_numbers[mention.evidence]))

    newest = sorted(labels, key=attrgetter("unit_number"), reverse=True)
    hits: list[Hit] = []
    for relation, mention, _ in newest[:PER_NODE]:
        hit = Hit(
            id=f"{relation.id}.{mention.evidence}",
            text=mention.label,
            kind="label",
            score=score,
            sources=memory.turns((mention.evidence,)),
            time=memory.evidence[mention.evidence].time,
        )
        hits.append(hit)
    return hits


def with_edits(memory: GraphMemory, edits: EntryEdits) -> GraphMemory:
    """Return the memory with what is left of its evidence and theories.

    A fact or conclusion is reworded, or without words; its unit stays, for theories and nodes name
    it. A theory is reworded, or none. The labels of mentions go with the fact of their unit.
    """
    evidence: dict[str, Evidence] = {}
    changed_facts: set[str] = set()
    for evidence_id, unit in memory.evidence.items():
        edited_unit = _edit_unit(unit, edits)
        evidence[evidence_id] = edited_unit
        if edited_unit.fact != unit.fact:
            changed_facts.add(evidence_id)

    relations: dict[str, Relation] = {}
    for relation_id, relation in memory.relations.items():
        mentions = _hide_labels(relation.mentions, changed_facts)
        theory = _edit_theory(memory, relation, edits)
        relations[relation_id] = relation.replace(mentions=mentions, theory=theory)

    nodes: dict[str, Node] = {}
    for node_id, node in memory.nodes.items():
        theory = _edit_theory(memory, node, edits)
        if theory is node.theory:
            nodes[node_id] = node
        else:
            # What flowed up has taken the node's own theory in.
            nodes[node_id] = node.replace(own=None, flow=theory)
    return memory.replace(evidence=evidence, relations=relations, nodes=nodes)


def _hide_labels(
    mentions: Sequence[Mention], hidden_evidence: Collection[str]
) -> tuple[Mention, ...]:
    """Return mentions, those of some units of evidence without their labels."""
    edited: list[Mention] = []
    for mention in mentions:
        if mention.evidence in hidden_evidence:
            edited.append(mention.replace(label=""))
        else:
            edited.append(mention)
    return tuple(edited)


def _edit_unit(unit: Evidence, edits: EntryEdits) -> Evidence:
    """Return what is left of a unit; the same object if nothing changes."""
    entries = entries_of(unit)
    texts_before = {entry.id: entry.text for entry in entries}
    texts = {entry.id: entry.text for entry in edits.amended_entries(entries)}
    if texts == texts_before:
        return unit

    conclusions: list[Conclusion] = []
    for position, conclusion in enumerate(unit.conclusions):
        text = texts.get(_conclusion_entry_id(unit, position), "")
        conclusions.append(conclusion.replace(text=text))
    return unit.replace(fact=texts.get(unit.id, ""), conclusions=tuple(conclusions))


def _edit_theory(memory: GraphMemory, owner: Node | Relation, edits: EntryEdits) -> Theory | None:
    """Return what is left of the theory of a node or an edge; the same object if nothing changes.

    If the traits or restrictions alone are hidden, the first part stays. A reworded theory has one
    part.
    """
    theory = owner.theory
    if theory is None:
        return None

    hit = whole_hit(memory, owner)
    visible_entry = edits.visible_entry(hit_as_entry(hit))
    if visible_entry is None:
        return None

    aside = aside_hit(memory, owner)
    if aside is not None and edits.visible_entry(hit_as_entry(aside)) is None:
        return theory.replace(delta="")

    if visible_entry.text == hit.text:
        return theory
    title = hit.text.partition(": ")[0]
    text = visible_entry.text.removeprefix(title).removeprefix(": ")
    return theory.replace(sigma=text, delta="")
