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
from typing import Annotated, NamedTuple

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
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
        default=True, description="whether evidence is recalled (L0, Tables 3 and 4)"
    )
    facts: Annotated[int, TuningRange(0, 30)] = Field(
        default=5, ge=0, description="facts recalled per question (Figure 8a)"
    )
    conclusions: Annotated[int, TuningRange(0, 60)] = Field(
        default=30, ge=0, description="conclusions recalled per question (Figure 8b)"
    )
    nodes: Annotated[int, TuningRange(0, 10)] = Field(
        default=3,
        ge=0,
        description="concepts recalled per question, and as many events (Figure 8c)",
    )
    node_cosine: Annotated[float, TuningRange(0, 0.9)] = Field(
        default=0.5,
        ge=-1,
        le=1,
        description="lowest cosine of a keyword and the name of a concept or event (C.7)",
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
        """Return a context with each hit once, under the headings of `BLOCKS`.

        Its `counts` hold the number of different hits of each kind, and the estimated number of
        tokens. A hit of two kinds is counted under both.
        """
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
            hits_by_id = {hit.id: hit for hit in hits}
            unique_hits.update(hits_by_id)
            counts[kind] = len(hits_by_id)

        context = Context(hits=in_blocks(unique_hits.values(), BLOCKS))
        counts["tokens"] = estimate_tokens(context.text())
        return context.model_copy(update={"counts": counts})


def recall_scales(
    memory: GraphMemory,
    text_index: IndexCache,
    name_index: IndexCache | None,
    settings: RecallSettings,
    question: str,
    keywords: Sequence[Keyword],
) -> Context:
    """Return what a memory says on a question, at every scale from single facts to summaries.

    Facts and conclusions are found by their words; summaries and events are read at the nodes of
    the graph that have the names of keywords (algorithm 1, lines 34 to 36).

    Args:
        memory: The memory to read.
        text_index: Searches the texts of evidence and summaries in the memory.
        name_index: Searches the names of nodes in the graph; None without a graph.
        settings: What is recalled, and how much.
        question: The question. Where it names people who have graphs, only those graphs are read.
        keywords: What to look for at the nodes, in which layers of the memory.
    """
    recollection = _Recollection()

    # `use_l0`: whether evidence is read. The query is the question with all keywords.
    if settings.use_l0:
        keyword_names = [keyword.name for keyword in keywords]
        query = " ".join(dict.fromkeys([question, *keyword_names]))
        recollection.facts = _search_evidence(memory, text_index, query, "fact", settings.facts)
        recollection.conclusions = _search_evidence(
            memory, text_index, query, "conclusion", settings.conclusions
        )

    if name_index is not None:
        people = named_people(memory, question)
        search = _GraphSearch(memory, name_index, settings, keywords, people)
        search.read_into(recollection)

    return recollection.as_context()


def _search_evidence(
    memory: GraphMemory, text_index: IndexCache, query: str, kind: str, limit: int
) -> list[Hit]:
    """Return the entries of a kind, "fact" or "conclusion", that are nearest to a query."""
    hits_per_query = text_index.search(memory, [query], limit, where=partial(_is_of_kind, kind))
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
        name_index: Searches the names of nodes.
        settings: How many nodes are read, and how near their names must be.
        keywords: What to look for in which layers.
        people: The people whose graphs are read.
    """

    def __init__(
        self,
        memory: GraphMemory,
        name_index: IndexCache,
        settings: RecallSettings,
        keywords: Sequence[Keyword],
        people: frozenset[str],
    ) -> None:
        self._memory = memory
        self._name_index = name_index
        self._settings = settings
        self._keywords = keywords
        self._people = people
        self._relations_below = memory.relations_below()

    def read_into(self, recollection: _Recollection) -> None:
        """Add what the graph says at the nodes that keywords name, layer by layer.

        A keyword asks for one or several of the four layers.
        """
        self._read_summaries(recollection)
        self._read_inferences(recollection)
        self._read_history(recollection)
        if self._settings.use_l0:
            self._read_conclusions(recollection)

    def _read_summaries(self, recollection: _Recollection) -> None:
        """Add the summaries of the topics (concepts) that keywords name, and their restrictions.

        A summary may have restrictions as its second part: where it does not hold. The context
        shows them under a heading of their own.
        """
        for node, score in self._find_nodes("summary", "concept"):
            recollection.nodes.append(summary_hit(self._memory, node, score))
            restrictions = trait_hit(self._memory, node, score)
            if restrictions is not None:
                recollection.traits.append(restrictions)

    def _read_inferences(self, recollection: _Recollection) -> None:
        """Add the newest summaries (theories) of edges to events, at the nodes that keywords name.

        A node is a topic or an event. A summary has two parts, facts and inferred traits, which
        become two hits, since the context shows them under different headings.
        """
        for node, score in self._find_concepts_and_events("inference"):
            relations = [relation for relation in self._relations_of(node) if relation.theory]
            newest_first = sorted(relations, key=_step_of_theory, reverse=True)
            for relation in newest_first[:PER_NODE]:
                recollection.inferences.append(summary_hit(self._memory, relation, score))
                traits = trait_hit(self._memory, relation, score)
                if traits is not None:
                    recollection.traits.append(traits)

    def _read_history(self, recollection: _Recollection) -> None:
        """Add what happened last at the nodes that keywords name, at most `PER_NODE` hits for each.

        A node is a topic or an event. What happened is told by the labels of its edges to events.
        """
        # A label may be a fact of the evidence. `use_l0`: whether evidence is read at all.
        shows_facts = self._settings.use_l0
        for node, score in self._find_concepts_and_events("history"):
            relations = self._relations_of(node)
            hits = _history_hits(self._memory, relations, score, shows_facts)
            recollection.history.extend(hits)

    def _read_conclusions(self, recollection: _Recollection) -> None:
        """Add to `recollection` the newest conclusions about topics and events that keywords name.

        A conclusion is a sentence drawn from a unit of evidence, which is what one part of a
        conversation says. Each topic or event adds at most `PER_NODE` conclusions.
        """
        # "conclusions": only keywords count that ask for conclusions, not e.g. for summaries.
        for node, score in self._find_concepts_and_events("conclusions"):
            newest_first: list[Entry] = []
            # `node.evidence`: the ids of the units of evidence about the node, oldest first.
            for evidence_id in reversed(node.evidence):
                unit = self._memory.evidence[evidence_id]
                # `seeds` keeps the conclusions marked as highly relevant, or all if none is marked.
                relevant_conclusions = seeds(unit.conclusions)
                newest_first.extend(_conclusion_entries(unit, relevant_conclusions))

            # What is shown is a hit: here, a conclusion with the score of its topic or event.
            hits = [entry.hit(score) for entry in newest_first[:PER_NODE]]
            recollection.conclusions.extend(hits)

    def _find_concepts_and_events(self, layer: Layer) -> list[ScoredNode]:
        """Return the topics (concepts), then the events, that the keywords for a layer name."""
        return [*self._find_nodes(layer, "concept"), *self._find_nodes(layer, "event")]

    def _find_nodes(self, layer: Layer, kind: str) -> list[ScoredNode]:
        """Return the nodes with the names most similar to keywords, most similar first.

        Args:
            layer: What is to be read at the nodes: only keywords that ask for this layer count, and
                only nodes that have something in it.
            kind: "concept" or "event".
        """
        queries = [keyword.name for keyword in self._keywords if layer in keyword.retrieve]
        if not queries:
            return []

        limit = self._settings.nodes
        min_cosine = self._settings.node_cosine
        is_readable = partial(_is_readable, layer, kind, self._people)
        hits_per_query = self._name_index.search(
            self._memory, queries, limit, min_cosine, is_readable
        )

        # A node that several keywords name gets the best of its scores.
        best_scores: dict[str, float] = {}
        for hits in hits_per_query:
            for hit in hits:
                best_scores[hit.id] = max(hit.score, best_scores.get(hit.id, hit.score))

        # Sorting is stable: of equal scores, the node of the earlier keyword stays first.
        ranked = sorted(best_scores.items(), key=itemgetter(1), reverse=True)
        nodes = self._memory.nodes
        return [ScoredNode(nodes[node_id], score) for node_id, score in ranked[:limit]]

    def _relations_of(self, node: Node) -> list[Relation]:
        """Return the edges (relations) to events that say something about a topic or an event.

        For a topic they are the edges to all events below it. For an event they are the edges that
        begin or end at it.
        """
        relations = self._memory.relations
        # Topics (concepts) are the nodes of the tier "abstract".
        if node.tier == "abstract":
            relation_ids = self._relations_below.get(node.id, ())
            return [relations[relation_id] for relation_id in relation_ids]

        return [
            relation
            for relation in relations.values()
            if node.id in (relation.source, relation.target)
        ]


def _step_of_theory(relation: Relation) -> int:
    """Return in which session the summary (theory) of an edge was made; 0 if it has none."""
    return relation.theory.step if relation.theory else 0


def _is_readable(layer: Layer, kind: str, people: frozenset[str], entry: Entry) -> bool:
    """Return whether a node has the wanted kind and person, and something to read in a layer.

    Args:
        layer: What is to be read at the node, such as "history".
        kind: "concept" or "event".
        people: The people whose graphs are searched.
        entry: The node, as an entry that `name_entries` made.
    """
    is_of_kind = entry.tags["kind"] == kind
    is_of_people = entry.tags["person"] in people
    # A tag is a string: `has` holds all layers of the node, as in "summary history".
    has_layer = layer in entry.tags["has"].split()
    return is_of_kind and is_of_people and has_layer


def named_people(memory: GraphMemory, question: str) -> frozenset[str]:
    """Return the people with a graph whom a question names, or all people if it names none.

    A person is named by the whole name, or by its first word if no other name begins with it:
    "Speaker" alone does not tell Speaker 1 from Speaker 2.
    """
    people = [person for person in memory.roots if person != USER]
    first_name_counts = Counter(person.split()[0] for person in people)
    people_named: list[str] = []
    for person in people:
        first_name = person.split()[0]
        is_named_in_full = _mentions(question, person)
        is_unique = first_name_counts[first_name] == 1
        if is_named_in_full or (is_unique and _mentions(question, first_name)):
            people_named.append(person)

    if not people_named:
        return frozenset(memory.roots)
    return frozenset(people_named)


def _mentions(question: str, name: str) -> bool:
    """Return whether a question holds a name as a word; "will" is not the person Will."""
    if not name.isascii():
        # Chinese is written without spaces between words.
        return name in question
    # Not \b: a name may end in a full stop, and \b does not match after it.
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", question) is not None


def searched_parts(memory: GraphMemory, use_l0: bool = True) -> list[SearchedPart]:
    """Return what can be searched as text: units of evidence, then the summaries (theories).

    Args:
        memory: The memory to search.
        use_l0: Whether to include the units of evidence, which the paper calls the level L0.
    """
    parts: list[SearchedPart] = []
    if use_l0:
        parts.extend(memory.evidence.values())

    for owner in _owners_of_summaries(memory):
        # Both parts of the summary in one text. The search takes entries, not hits.
        hit = whole_hit(memory, owner)
        parts.append(hit_as_entry(hit))
    return parts


def trait_entries(memory: GraphMemory) -> list[Entry]:
    """Return the traits and restrictions that the context shows as entries of their own.

    No search finds them, since the summaries that they belong to say the same.
    """
    entries: list[Entry] = []
    for owner in _owners_of_summaries(memory):
        hit = trait_hit(memory, owner)
        if hit is not None:
            entries.append(hit_as_entry(hit))
    return entries


def _owners_of_summaries(memory: GraphMemory) -> list[Node | Relation]:
    """Return what has a summary (theory): edges (relations) to events, and then topics."""
    owners = (*memory.relations.values(), *memory.nodes.values())
    return [owner for owner in owners if owner.theory is not None]


def entries_of(part: SearchedPart) -> tuple[Entry, ...]:
    """Return the entries of a unit of evidence: one for each conclusion, and one for its fact.

    The other searched parts of a memory are summaries, which are entries already.
    """
    if not isinstance(part, Evidence):
        return (part,)

    entries = _conclusion_entries(part, part.conclusions)
    if part.fact:
        fact = Entry(id=part.id, text=part.fact, kind="fact", sources=part.sources, time=part.time)
        entries.append(fact)
    return tuple(entries)


def _conclusion_entries(unit: Evidence, wanted: Collection[Conclusion]) -> list[Entry]:
    """Return conclusions of a unit of evidence as entries: those that are wanted and have words.

    The user may have hidden a conclusion; then it has no words.
    """
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
    """Return entries by which nodes of the graph are searched by their names.

    An entry has tags: the `kind` of the node ("concept" for a topic, or "event"), its `person`, and
    in `has` what can be read at it, such as "summary history". Nodes without anything to read are
    left out.
    """
    # What an edge (relation) to an event says can be read at all topics above, and at the events
    # that it joins.
    relations_below = memory.relations_below()
    relations_at = _relations_at_nodes(memory)
    entries: list[Entry] = []
    for node in memory.nodes.values():
        if node.tier in ("user", "abstract"):
            kind = "concept"
            relation_ids = relations_below.get(node.id, ())
        else:
            kind = "event"
            relation_ids = relations_at.get(node.id, ())
        layers = _layers_of(memory, node, relation_ids)
        if layers:
            tags = {"kind": kind, "has": " ".join(layers), "person": node.person}
            entries.append(Entry(id=node.id, text=node.name, tags=tags))
    return entries


def _relations_at_nodes(memory: GraphMemory) -> Mapping[str, Sequence[str]]:
    """Return by the id of a node the ids of the edges to events that begin or end at the node."""
    relation_ids: dict[str, list[str]] = {}
    for relation in memory.relations.values():
        for node_id in (relation.source, relation.target):
            relation_ids.setdefault(node_id, []).append(relation.id)
    return relation_ids


def _layers_of(memory: GraphMemory, node: Node, relation_ids: Sequence[str]) -> list[Layer]:
    """Return all layers for which there is something to read at a topic or an event; maybe none.

    A layer is a kind of text, such as "summary", that a question may ask for.

    Args:
        memory: The memory with the node.
        node: The topic or event.
        relation_ids: Ids of the edges to events that are read at the node.
    """
    layers: list[Layer] = []
    # The summary of a topic.
    if node.theory is not None:
        layers.append("summary")
    # The summary of an edge to an event, with traits that a model inferred.
    if any(memory.relations[relation_id].theory for relation_id in relation_ids):
        layers.append("inference")
    if node.evidence:
        layers.append("conclusions")
    # The labels of edges to events tell what happened.
    if relation_ids:
        layers.append("history")
    return layers


def whole_hit(memory: GraphMemory, owner: Node | Relation) -> Hit:
    """Return the summary (theory) of a topic, or of an edge to an event, as one hit.

    The hit holds both parts of the summary, the general and the particular one.
    """
    return _theory_hit(memory, owner, theory_as_text(_theory_of(owner)))


def summary_hit(memory: GraphMemory, owner: Node | Relation, score: float = 0.0) -> Hit:
    """Return a summary as a hit, which is a text to show with a score.

    A summary has a general part, `sigma`, and a particular part, `delta`. Some particular parts are
    shown under another heading, so they are left out here.

    Args:
        memory: Holds the summary.
        owner: The topic (a node), or the edge to an event (a relation), that has the summary.
        score: How well the owner fits the question.
    """
    # The paper calls a summary a theory.
    theory = _theory_of(owner)
    if _shows_delta_separately(owner):
        return _theory_hit(memory, owner, as_sentences(theory.sigma), score)

    # `theory_as_text` joins both parts.
    return _theory_hit(memory, owner, theory_as_text(theory), score)


def trait_hit(memory: GraphMemory, owner: Node | Relation, score: float = 0.0) -> Hit | None:
    """Return the second part of a summary, `delta`, for the heading of traits and restrictions.

    It holds inferred traits in the summary of an edge to an event, and restrictions in the summary
    of a topic. None is returned if it is empty, or if `summary_hit` shows the whole summary.
    """
    theory = _theory_of(owner)
    if not theory.delta or not _shows_delta_separately(owner):
        return None

    part_name = "restrictions" if isinstance(owner, Node) else "traits"
    return Hit(
        id=f"{owner.id}.{part_name}",
        text=f"{_trait_title(memory, owner)}: {as_sentences(theory.delta)}",
        kind="trait",
        score=score,
        sources=memory.turns(theory.evidence),
    )


def _trait_title(memory: GraphMemory, owner: Node | Relation) -> str:
    """Return what the text of `trait_hit` begins with: "Ann, Sports, restrictions"."""
    introduction = "restrictions" if isinstance(owner, Node) else "inferred"
    return f"{_title(memory, owner)}, {introduction}"


def _shows_delta_separately(owner: Node | Relation) -> bool:
    """Return whether the second part of a summary (`delta`) is shown under a heading of its own.

    It is shown there if it holds inferred traits or restrictions, and together with the first part
    if it holds facts.
    """
    if isinstance(owner, Relation):
        # The summary of an edge to an event: `delta` holds inferred traits.
        return True
    # A topic with `flow` shows this summary, which is made from those of the topics below: its
    # `delta` holds restrictions. Any other topic shows a summary of its own evidence, where `delta`
    # holds specific facts.
    return owner.flow is not None


def _theory_of(owner: Node | Relation) -> Theory:
    """Return the summary (theory) of a topic or an edge that is known to have one."""
    theory = owner.theory
    assert theory is not None, f"{owner.id} has no theory"
    return theory


def _theory_hit(memory: GraphMemory, owner: Node | Relation, text: str, score: float = 0.0) -> Hit:
    """Return a text made from a summary (theory) as a hit.

    The hit has no date: a summary rests on what was said on many days.

    Args:
        memory: The memory with the summary.
        owner: The topic, or the edge to an event, that the summary is about.
        text: The summary, or a part of it, as running text. The title is put before it.
        score: The score of the hit.
    """
    kind = "summary" if isinstance(owner, Node) else "inference"
    return Hit(
        id=owner.id,
        text=f"{_title(memory, owner)}: {text}",
        kind=kind,
        score=score,
        sources=memory.turns(_theory_of(owner).evidence),
    )


def _title(memory: GraphMemory, owner: Node | Relation) -> str:
    """Return what a summary is about, to begin its text with: "Ann, Sports, City Race".

    It names the topic, or both ends of the edge to an event. The name of the person comes first,
    unless it is not known or is the first name already.
    """
    if isinstance(owner, Node):
        person = owner.person
        names = [owner.name]
    else:
        source = memory.nodes[owner.source]
        target = memory.nodes[owner.target]
        person = source.person
        names = [source.name, target.name]
    # `USER` stands for a person without a known name.
    if person not in (USER, names[0]):
        names.insert(0, person)
    return ", ".join(names)


class _DatedMention(NamedTuple):
    """A mention on an event edge, with the number of its unit of evidence, from the oldest on."""

    relation: Relation
    mention: Mention
    unit_number: int


def _history_hits(
    memory: GraphMemory, relations: Sequence[Relation], score: float, shows_facts: bool
) -> list[Hit]:
    """Return what happened last on some edges to events, as at most `PER_NODE` hits.

    Each time that a unit of evidence (what one part of a conversation says) mentions an edge, the
    mention has a label that tells in a few words what happened.

    Args:
        memory: The memory with the edges.
        relations: The edges.
        score: The score of all hits.
        shows_facts: Whether to return also labels that are the fact of a unit of evidence. Where
            the model gave a mention no label, the fact stands in for it.
    """
    # Evidence stands in the memory from oldest to newest, so the numbers of units order the labels.
    unit_numbers = {evidence_id: number for number, evidence_id in enumerate(memory.evidence)}
    labelled_mentions: list[_DatedMention] = []
    for relation in relations:
        for mention in relation.mentions:
            is_fact = mention.label == memory.evidence[mention.evidence].fact
            if is_fact and not shows_facts:
                continue
            # A label that the user has hidden is empty.
            if mention.label:
                unit_number = unit_numbers[mention.evidence]
                labelled_mentions.append(_DatedMention(relation, mention, unit_number))

    newest_first = sorted(labelled_mentions, key=attrgetter("unit_number"), reverse=True)
    hits: list[Hit] = []
    for dated_mention in newest_first[:PER_NODE]:
        hits.append(_label_hit(memory, dated_mention.relation, dated_mention.mention, score))
    return hits


def _label_hit(memory: GraphMemory, relation: Relation, mention: Mention, score: float) -> Hit:
    """Return the label of a mention as a hit: what happened, in a few words.

    A mention is what a unit of evidence, one part of a conversation, says on the edge to an event.
    The hit has the time and the sources of the unit.
    """
    unit = memory.evidence[mention.evidence]
    return Hit(
        # A unit has at most one mention on an edge, so both ids together are unique.
        id=f"{relation.id}.{unit.id}",
        text=mention.label,
        kind="label",
        score=score,
        sources=memory.turns((unit.id,)),
        time=unit.time,
    )


def with_edits(memory: GraphMemory, edits: EntryEdits) -> GraphMemory:
    """Return the memory as the user edited it: with some entries reworded or hidden.

    A hidden fact or conclusion loses its words, but its unit of evidence stays, since the graph
    refers to it. A hidden summary (theory) is removed.
    """
    evidence: dict[str, Evidence] = {}
    changed_facts: set[str] = set()
    for evidence_id, unit in memory.evidence.items():
        edited_unit = _edit_unit(unit, edits)
        evidence[evidence_id] = edited_unit
        if edited_unit.fact != unit.fact:
            changed_facts.add(evidence_id)

    # The mentions on an edge have labels, which retell the facts of units of evidence. They are
    # removed where the user hid or reworded the fact, since they may still say what it said before.
    relations: dict[str, Relation] = {}
    for relation_id, relation in memory.relations.items():
        mentions = _hide_labels(relation.mentions, changed_facts)
        theory = _edit_theory(memory, relation, edits)
        relations[relation_id] = relation.replace(mentions=mentions, theory=theory)

    nodes = {node_id: _edit_node(memory, node, edits) for node_id, node in memory.nodes.items()}
    return memory.replace(evidence=evidence, relations=relations, nodes=nodes)


def _edit_node(memory: GraphMemory, node: Node, edits: EntryEdits) -> Node:
    """Return a topic or an event with its summary (theory) as the user edited it.

    Without edits, return the same object.
    """
    theory = _edit_theory(memory, node, edits)
    if theory is node.theory:
        return node
    # A topic may have two summaries: `own` from evidence on the topic itself, and `flow` from `own`
    # and the summaries of the topics below. The words of `own` may recur in `flow`, which is shown,
    # so the edited summary replaces both.
    return node.replace(own=None, flow=theory)


def _hide_labels(
    mentions: Sequence[Mention], hidden_evidence: Collection[str]
) -> tuple[Mention, ...]:
    """Return the mentions of an edge, without the labels of those from hidden evidence.

    A mention is what a unit of evidence says on the edge, and its label says it in a few words. The
    mention itself stays, since other parts of the memory count on it.

    Args:
        mentions: The mentions.
        hidden_evidence: Ids of the units of evidence to hide.
    """
    edited: list[Mention] = []
    for mention in mentions:
        if mention.evidence in hidden_evidence:
            edited.append(mention.replace(label=""))
        else:
            edited.append(mention)
    return tuple(edited)


def _edit_unit(unit: Evidence, edits: EntryEdits) -> Evidence:
    """Return a unit of evidence with its fact and conclusions as the user edited them.

    What the user hid stays as an empty text. Without edits, return the same object.
    """
    # The user edits the fact and the conclusions as entries. Hidden entries are not visible.
    entries = entries_of(unit)
    visible_texts = {entry.id: entry.text for entry in edits.amended_entries(entries)}
    is_unedited = all(visible_texts.get(entry.id) == entry.text for entry in entries)
    if is_unedited:
        return unit

    # A hidden conclusion keeps its place, since the graph refers to conclusions by their position.
    conclusions: list[Conclusion] = []
    for position, conclusion in enumerate(unit.conclusions):
        entry_id = _conclusion_entry_id(unit, position)
        visible_text = visible_texts.get(entry_id, "")
        conclusions.append(conclusion.replace(text=visible_text))

    # The entry of the fact has the id of the unit.
    visible_fact = visible_texts.get(unit.id, "")
    return unit.replace(fact=visible_fact, conclusions=tuple(conclusions))


def _edit_theory(memory: GraphMemory, owner: Node | Relation, edits: EntryEdits) -> Theory | None:
    """Return the summary (theory) of a topic or an edge as the user edited it; None if hidden.

    A summary has two parts, `sigma` and `delta`. If the user reworded the whole summary, all new
    words are in `sigma`. If the user reworded the traits or restrictions that are shown beside it,
    these words are in `delta`. Without edits, return the same object.
    """
    theory = owner.theory
    if theory is None:
        return None

    whole = whole_hit(memory, owner)
    visible_entry = edits.visible_entry(hit_as_entry(whole))
    if visible_entry is None:
        return None

    # A new wording replaces both parts, so it is shown even if the user has hidden `delta` as well.
    if visible_entry.text != whole.text:
        # The text of an entry begins with what the summary is about; the summary itself does not.
        title = whole.text.partition(": ")[0]
        text = visible_entry.text.removeprefix(title).removeprefix(": ")
        return theory.replace(sigma=text, delta="")

    # Where the context shows `delta` as an entry of its own, the user may have edited it alone.
    traits = trait_hit(memory, owner)
    if traits is None:
        return theory
    visible_traits = edits.visible_entry(hit_as_entry(traits))
    if visible_traits is None:
        return theory.replace(delta="")
    if visible_traits.text != traits.text:
        # Like the summary, the second part is stored without what it is about.
        title = _trait_title(memory, owner)
        return theory.replace(delta=visible_traits.text.removeprefix(f"{title}: "))
    return theory
