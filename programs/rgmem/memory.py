"""RGMem's memory: units of evidence, and a graph of concepts and events with their theories.

    L0   Evidence e1, e2, ...      fact and conclusions, each with the turns that it rests on
    L1   user ── base concepts b1..b11 ── concepts ── general events ── instance events
             └────────── class edges ──────────┘ └────────── event edges ──────────┘
         Theory of an event edge (R_K1), of a concept (R_K2, own), of a parent (R_K3, flow)

Class edges are static. Event edges hold what units of evidence say on them, as mentions.

Each person who talks has a graph of their own, with a root and base concepts of its own; evidence
is shared. Nodes of different people are never joined.

Words in docstrings: a topic is a concept node (tier "abstract"), a fixed topic is a base concept, a
summary is a theory, and an edge to an event is a relation.

Source: Tian et al., "RGMem", sections 3.2 and 3.3, Eq. 2, 4, 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, get_args

from pydantic import Field

from ...memory.memory import Memory, MemoryPart
from ...memory.search.speakers import is_assistant
from ...records import Item
from ...records.messages import ROLES
from ...signatures.rgmem import Base

Tier = Literal["user", "abstract", "general", "instance"]
"""Levels of nodes: the root, then V_abs, V_gen and V_inst of the paper (section 3.3.1)."""

USER = "user"
"""Id of the root that always exists, and the name of its person if no other is known."""
BASES: tuple[str, ...] = get_args(Base)
"""The concepts right below the user; they always exist (appendix D)."""


class Conclusion(MemoryPart):
    """Something about the user that an episode shows; one of Lambda_conc (Eq. 4)."""

    text: str
    high: bool = False
    """Whether it is of high relevance, Lambda_rel; the others are Lambda_base."""
    person: str = ""
    """The speaker it is about; empty where it may be about any of them."""
    sources: tuple[str, ...] = ()
    """Ids of the turns it rests on."""


class Evidence(MemoryPart):
    """One unit of L0, d = (lambda_fact, Lambda_conc), Eq. 4."""

    id: str
    step: int
    """The step t (one session) that brought it."""
    fact: str
    conclusions: tuple[Conclusion, ...] = ()
    time: datetime | None = None
    sources: tuple[str, ...] = ()
    """Ids of the turns of its segment."""

    def conclusions_about(self, person: str) -> list[int]:
        """Return the positions in `conclusions` of those that are about a person, or may be.

        If it is not known whom a conclusion is about, its `person` is empty, and it may be about
        anybody.
        """
        positions: list[int] = []
        for position, conclusion in enumerate(self.conclusions):
            if conclusion.person in ("", person):
                positions.append(position)
        return positions


def people_of(item: Item) -> tuple[str, ...]:
    """Return the people who speak in an item, in order of appearance.

    Assistants, tools and the like are no people.
    """
    speakers = dict.fromkeys(turn.speaker for turn in item.spoken if turn.speaker.strip())
    return tuple(speaker for speaker in speakers if not _is_machine(speaker))


def _is_machine(speaker: str) -> bool:
    """Return whether a speaker is an assistant, or named like a role of a chat such as "tool"."""
    role = speaker.strip().lower()
    is_other_role = role in ROLES and role != USER
    return is_assistant(speaker) or is_other_role


def seeds(conclusions: tuple[Conclusion, ...]) -> tuple[Conclusion, ...]:
    """Return the conclusions of high relevance, or all conclusions if none is.

    The summary of a topic is made from these (Lambda_rel, Eq. 4).
    """
    salient = tuple(conclusion for conclusion in conclusions if conclusion.high)
    return salient or conclusions


class Theory(MemoryPart):
    """A summary at one scale (an effective theory of the paper), in two parts.

    | theory of      | made by | `sigma`                       | `delta`         |
    |----------------|---------|-------------------------------|-----------------|
    | an event edge  | R_K1    | fact summary                  | inferred traits |
    | a concept      | R_K2    | general facts                 | specific facts  |
    | a parent       | R_K3    | macro law and its core traits | restrictions    |

    Sigma of a concept is the paper's order parameter, Delta its correction term.
    """

    sigma: str
    delta: str = ""
    evidence: tuple[str, ...] = ()
    """Ids of the units it rests on, oldest first."""
    step: int = 0
    """The step that made it."""


class Node(MemoryPart):
    """A concept or an event: v in V."""

    id: str
    name: str
    tier: Tier
    person: str = USER
    """The person whose graph it belongs to."""
    aliases: tuple[str, ...] = ()
    """Other names that were merged into it."""
    evidence: tuple[str, ...] = ()
    """Ids of the units with a path on which it is the lowest concept, or an event."""
    fresh: tuple[str, ...] = ()
    """Those of a concept that R_K2 has not processed: the units d_j^new of Eq. 7."""
    fresh_relations: tuple[str, ...] = ()
    """Event edges below a concept whose theory R_K2 has not processed: T_ei^new of Eq. 7."""
    score: int = 0
    """score(v): new units and new theories of edges since R_K2; theta_sum is its threshold."""
    dirty: bool = False
    """Whether something below has changed since R_K3."""
    own: Theory | None = None
    """From its own evidence (R_K2)."""
    flow: Theory | None = None
    """From the concepts below it (R_K3)."""

    @property
    def theory(self) -> Theory | None:
        """The summary (theory) that is shown and used for the node; None if it has none yet.

        A topic may have two: `own` from evidence on the topic itself, and `flow` from `own` and the
        summaries of the topics below. So `flow` says more, and is preferred.
        """
        return self.flow or self.own


class ClassEdge(MemoryPart):
    """A concept and one right below it: a static edge, in E_cls. Its label is not stored."""

    parent: str
    child: str


class Mention(MemoryPart):
    """What one unit of evidence says on an event edge."""

    evidence: str
    """Id of the unit."""
    label: str
    """Snapshot of the event, or the unit's fact if the model gave none; empty once it is hidden."""
    conclusions: tuple[int, ...] | None = None
    """Positions of the unit's conclusions that are about the edge; None stands for all."""


class Relation(MemoryPart):
    """An edge from a concept or an event to an event: a dynamic edge e, in E_evt."""

    id: str
    source: str
    target: str
    mentions: tuple[Mention, ...] = ()
    count: int = 0
    """mentions(e): how many of the last `mentions` are new; theta_inf is its threshold."""
    theory: Theory | None = None
    """T_e, made by R_K1."""

    @property
    def fresh(self) -> tuple[Mention, ...]:
        """The newest mentions, which the summary (theory) of the edge does not reflect yet.

        A mention is what one part of a conversation says on the edge. These wait until the summary
        is renewed (D_e^new of Eq. 6).
        """
        processed_count = len(self.mentions) - self.count
        return self.mentions[processed_count:]


def _base_nodes(prefix: str, person: str) -> list[Node]:
    """Return the fixed topics (base concepts) of a person's graph, with ids `prefix`1, ..."""
    nodes: list[Node] = []
    for number, name in enumerate(BASES, 1):
        nodes.append(Node(id=f"{prefix}{number}", name=name, tier="abstract", person=person))
    return nodes


def _edges_to_bases(root: Node, bases: Sequence[Node]) -> list[ClassEdge]:
    """Return the edges from the root of a graph to its fixed topics (base concepts)."""
    return [ClassEdge(parent=root.id, child=base.id) for base in bases]


def new_graph(person: str, number: int) -> tuple[list[Node], list[ClassEdge]]:
    """Return the nodes and edges with which the graph of a person begins.

    These are a root, which stands for the person, and the fixed topics (base concepts) right below
    it.

    Args:
        person: Whose graph it is.
        number: How many graphs the memory has already. It is part of the ids of the nodes, which
            makes them unique.
    """
    root = Node(id=f"u{number}", name=person, tier="user", person=person)
    bases = _base_nodes(f"{root.id}b", person)
    return [root, *bases], _edges_to_bases(root, bases)


_FIRST_ROOT = Node(id=USER, name="User", tier="user")
_FIRST_BASES = _base_nodes("b", USER)
_FIRST_NODES = {node.id: node for node in [_FIRST_ROOT, *_FIRST_BASES]}


class GraphMemory(Memory):
    """The state M = (D_L0, G), Eq. 2.

    `evidence` is D_L0. G = (V, E) has `nodes` as V, `classes` as E_cls and `relations` as E_evt.
    """

    evidence: dict[str, Evidence] = Field(default_factory=dict)
    """Units by their ids, oldest first."""
    nodes: dict[str, Node] = Field(_FIRST_NODES)
    classes: tuple[ClassEdge, ...] = tuple(_edges_to_bases(_FIRST_ROOT, _FIRST_BASES))
    relations: dict[str, Relation] = Field(default_factory=dict)
    step: int = 0
    """Sessions written so far."""
    issued: int = 0
    """Ids given so far to nodes and event edges."""
    shared_by: tuple[str, ...] = ()
    """The people who share the one graph, where they are to share it."""

    @property
    def roots(self) -> dict[str, str]:
        """The id of the root of each person's graph, by person."""
        return {node.person: node.id for node in self.nodes.values() if node.tier == "user"}

    def user_of(self, person: str) -> str:
        """Return the name that prompts show for the person whom a graph is about.

        This is the name under which the graph is stored, but for one case. A graph that several
        people share is stored under the name "user", and prompts show the names of all of them:
        "Ann and Bob (they share one profile ...)".

        Args:
            person: The name under which the graph is stored, as in `Node.person`.
        """
        # `shared_by`: the names of the people who share a graph; empty if nobody does.
        is_shared_graph = person == USER and len(self.shared_by) > 0
        if not is_shared_graph:
            return person
        return name_of_user(self.shared_by)

    def children(self, node_id: str) -> tuple[str, ...]:
        """Return the ids of the topics (concepts) right below a topic, in order of arrival."""
        return tuple(edge.child for edge in self.classes if edge.parent == node_id)

    def parents(self, node_id: str) -> tuple[str, ...]:
        """Return the ids of the topics (concepts) right above a topic, in order of arrival."""
        return tuple(edge.parent for edge in self.classes if edge.child == node_id)

    def relations_below(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of all edges to events below each topic, by the id of the topic.

        Such an edge (relation) leads from the topic (concept) to an event, or from there to further
        events. Edges below narrower topics do not count, and topics without edges are left out
        (N(v) in Eq. 7).
        """
        outgoing: dict[str, list[Relation]] = {}
        for relation in self.relations.values():
            outgoing.setdefault(relation.source, []).append(relation)

        below: dict[str, tuple[str, ...]] = {}
        for node in self.nodes.values():
            # Topics are the nodes of the tier "abstract".
            if node.tier == "abstract" and node.id in outgoing:
                below[node.id] = _reachable_relations(node.id, outgoing)
        return below

    def turns(self, evidence: tuple[str, ...]) -> tuple[str, ...]:
        """Return the ids of the turns of conversation that evidence comes from, each once.

        Args:
            evidence: Ids of units of evidence.
        """
        turn_ids: dict[str, None] = {}
        for evidence_id in evidence:
            turn_ids.update(dict.fromkeys(self.evidence[evidence_id].sources))
        return tuple(turn_ids)


def name_of_user(people: Sequence[str]) -> str:
    """Return the name by which prompts call the people whom one graph is about.

    It is "user" if nobody is known, the person's name if there is one person, and otherwise all
    names with a remark that these people share a profile.
    """
    if not people:
        return USER
    if len(people) == 1:
        return people[0]

    names = f"{', '.join(people[:-1])} and {people[-1]}"
    return (
        f"{names} (they share one profile: each counts as the user, "
        "and every statement names the person it is about)"
    )


def _reachable_relations(
    node_id: str, outgoing: Mapping[str, Sequence[Relation]]
) -> tuple[str, ...]:
    """Return the ids of the edges to events that can be reached from a node, nearest first.

    Args:
        node_id: The node to begin at.
        outgoing: The edges that lead from a node to events, by the id of the node.
    """
    relation_ids: list[str] = []
    reached = {node_id}
    # The loop appends to the queue that it runs over, so it reaches all events below.
    queue = [node_id]
    for source_id in queue:
        for relation in outgoing.get(source_id, ()):
            relation_ids.append(relation.id)
            if relation.target not in reached:
                reached.add(relation.target)
                queue.append(relation.target)
    return tuple(relation_ids)
