"""RGMem's memory: units of evidence, and a graph of concepts and events with their summaries.

    L0   Evidence e1, e2, ...            fact + conclusions, each with the turns it rests on
    L1   user ── base concepts b1..b11 ── concepts ── general events ── instances
             class edges (has profile in, has subclass)   event edges (labels of mentions)
         Theory of an event edge (R_K1), of a concept (R_K2, own), of a parent concept (R_K3, flow)

Each person who talks has a graph of their own, with a root and base concepts of its own; evidence is shared. Nodes of
different people are never joined.

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

USER = "user"
"""Id of the root that always exists, and the name of the person below it where no other is known."""
BASES: tuple[str, ...] = get_args(Base)
"""The concepts right below the user; they always exist (appendix D)."""


class Conclusion(MemoryPart):
    """Something about the user that an episode shows (Lambda_conc)."""

    text: str
    high: bool = False
    """Of high relevance (Lambda_rel): a seed of abstraction."""
    person: str = ""
    """The speaker it is about; empty where it may be about any of them."""
    sources: tuple[str, ...] = ()
    """Ids of the turns it rests on."""


class Evidence(MemoryPart):
    """One unit of L0, d = (fact, conclusions), Eq. 4."""

    id: str
    step: int
    """The step (session) that brought it."""
    fact: str
    conclusions: tuple[Conclusion, ...] = ()
    time: datetime | None = None
    sources: tuple[str, ...] = ()
    """Ids of the turns of its segment."""

    def conclusions_about(self, person: str) -> list[int]:
        """Return the positions of the conclusions that are about a person, or may be."""
        return [n for n, conclusion in enumerate(self.conclusions) if conclusion.person in ("", person)]


def people_of(item: Item) -> tuple[str, ...]:
    """Return the people who speak in an item, in order of appearance; assistants, tools and the like are none."""
    speakers = dict.fromkeys(turn.speaker for turn in item.spoken if turn.speaker.strip())
    return tuple(speaker for speaker in speakers if not _is_machine(speaker))


def _is_machine(speaker: str) -> bool:
    role = speaker.strip().lower()
    return is_assistant(speaker) or (role in ROLES and role != USER)


def seeds(conclusions: tuple[Conclusion, ...]) -> tuple[Conclusion, ...]:
    """Those of high relevance, with which abstraction begins (Eq. 6); all of them where none is."""
    return tuple(one for one in conclusions if one.high) or conclusions


class Theory(MemoryPart):
    """A summary at one scale (an effective theory of the paper), in two parts.

    Of an event edge: the fact summary, and the inferred traits. Of a concept: general facts (order parameter Sigma)
    and specific facts (correction Delta). Of a parent: macro-law with core traits, and restrictions.
    """

    sigma: str
    delta: str = ""
    evidence: tuple[str, ...] = ()
    """Ids of the units it rests on, oldest first."""
    step: int = 0
    """The step that made it."""


class Node(MemoryPart):
    """A concept or an event."""

    id: str
    name: str
    tier: Tier
    person: str = USER
    """Whose graph it belongs to."""
    aliases: tuple[str, ...] = ()
    """Other names that were merged into it."""
    evidence: tuple[str, ...] = ()
    """Units with a path on which it is the lowest concept, or an event."""
    fresh: tuple[str, ...] = ()
    """Those of a concept that R_K2 has not processed."""
    fresh_relations: tuple[str, ...] = ()
    """Event edges below a concept with a theory that R_K2 has not processed."""
    score: int = 0
    """New units and new relation theories since R_K2: what theta_sum is compared with."""
    dirty: bool = False
    """Something below has changed since R_K3."""
    own: Theory | None = None
    """From its own evidence (R_K2)."""
    flow: Theory | None = None
    """From the concepts below it (R_K3)."""

    @property
    def theory(self) -> Theory | None:
        """What represents it: the flow from below where there is one, which has taken its own theory in."""
        return self.flow or self.own


class ClassEdge(MemoryPart):
    """Static: a concept and one below it; its label in the paper is fixed."""

    parent: str
    child: str


class Mention(MemoryPart):
    """One unit's snapshot of an event edge."""

    evidence: str
    label: str
    conclusions: tuple[int, ...] | None = None
    """Which of the unit's conclusions are about the edge, counted from 0; all of them if None."""


class Relation(MemoryPart):
    """Dynamic: an event edge, from a concept or an event to an event."""

    id: str
    source: str
    target: str
    mentions: tuple[Mention, ...] = ()
    count: int = 0
    """Mentions since R_K1, the last ones of `mentions`: what theta_inf is compared with."""
    theory: Theory | None = None

    @property
    def fresh(self) -> tuple[Mention, ...]:
        """The mentions that R_K1 has not processed."""
        return self.mentions[len(self.mentions) - self.count :]


_BASES = {f"b{n}": Node(id=f"b{n}", name=name, tier="abstract") for n, name in enumerate(BASES, 1)}


def new_graph(person: str, number: int) -> tuple[list[Node], list[ClassEdge]]:
    """Return the root and the base concepts of a further person's graph, with the edges between them."""
    root = Node(id=f"u{number}", name=person, tier="user", person=person)
    bases = [Node(id=f"{root.id}b{n}", name=name, tier="abstract", person=person) for n, name in enumerate(BASES, 1)]
    return [root, *bases], [ClassEdge(parent=root.id, child=base.id) for base in bases]


class GraphMemory(Memory):
    """The state M = D_L0 x G (Eq. 2)."""

    evidence: dict[str, Evidence] = Field(default_factory=dict)
    nodes: dict[str, Node] = Field({USER: Node(id=USER, name="User", tier="user"), **_BASES})
    classes: tuple[ClassEdge, ...] = tuple(ClassEdge(parent=USER, child=id) for id in _BASES)
    relations: dict[str, Relation] = Field(default_factory=dict)
    step: int = 0
    """Sessions written so far."""
    issued: int = 0
    """Ids given so far to nodes and event edges."""
    shared_by: tuple[str, ...] = ()
    """The people who share the one graph, where they are to share it."""

    @property
    def roots(self) -> dict[str, str]:
        """The id of the root of each person's graph."""
        return {node.person: node.id for node in self.nodes.values() if node.tier == "user"}

    def user_of(self, person: str) -> str:
        """Return what prompts call the person, or the people, whom a graph is about."""
        return name_of_user(self.shared_by) if person == USER and self.shared_by else person

    def children(self, id: str) -> tuple[str, ...]:
        """The concepts right below one, in order of arrival."""
        return tuple(edge.child for edge in self.classes if edge.parent == id)

    def parents(self, id: str) -> tuple[str, ...]:
        """The concepts right above one, in order of arrival."""
        return tuple(edge.parent for edge in self.classes if edge.child == id)

    def below(self) -> dict[str, tuple[str, ...]]:
        """For every concept the event edges that hang on it, N(v): its own, and those of the events they lead to."""
        outgoing: dict[str, list[Relation]] = {}
        for relation in self.relations.values():
            outgoing.setdefault(relation.source, []).append(relation)
        concepts = [node.id for node in self.nodes.values() if node.tier == "abstract" and node.id in outgoing]
        return {id: _reached(id, outgoing) for id in concepts}

    def turns(self, evidence: tuple[str, ...]) -> tuple[str, ...]:
        """Ids of the turns behind units of evidence, in their order, each once."""
        return tuple(dict.fromkeys(turn for id in evidence for turn in self.evidence[id].sources))


def name_of_user(people: Sequence[str]) -> str:
    """Return what prompts call the user: a name, or several, which then share a profile."""
    if not people:
        return USER
    if len(people) == 1:
        return people[0]
    names = f"{', '.join(people[:-1])} and {people[-1]}"
    return (
        f"{names} (they share one profile: each counts as the user, and every statement names the person it is about)"
    )


def _reached(id: str, outgoing: Mapping[str, Sequence[Relation]]) -> tuple[str, ...]:
    found: list[str] = []
    queue, seen = [id], {id}
    while queue:
        for relation in outgoing.get(queue.pop(0), ()):
            found.append(relation.id)
            if relation.target not in seen:
                seen.add(relation.target)
                queue.append(relation.target)
    return tuple(found)
