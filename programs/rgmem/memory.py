"""RGMem's memory: units of evidence, and a graph of concepts and events with their summaries.

    L0   Evidence e1, e2, ...            fact + conclusions, each with the turns it rests on
    L1   user ── base concepts b1..b11 ── concepts ── general events ── instances
             class edges (has profile in, has subclass)   event edges (labels of mentions)
         Theory of an event edge (R_K1), of a concept (R_K2, own), of a parent concept (R_K3, flow)

Source: Tian et al., "RGMem", sections 3.2 and 3.3, Eq. 2, 4, 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, get_args

from pydantic import Field

from ...memory.memory import Memory, Stored
from ...signatures.rgmem import Base

Tier = Literal["user", "abstract", "general", "instance"]

USER = "user"
"""Id of the root."""
BASES: tuple[str, ...] = get_args(Base)
"""The concepts right below the user; they always exist (appendix D)."""


class Conclusion(Stored):
    """Something about the user that an episode shows (Lambda_conc)."""

    text: str
    high: bool = False
    """Of high relevance (Lambda_rel): a seed of abstraction."""
    sources: tuple[str, ...] = ()
    """Ids of the turns it rests on."""


class Evidence(Stored):
    """One unit of L0, d = (fact, conclusions), Eq. 4."""

    id: str
    step: int
    """The step (session) that brought it."""
    fact: str
    conclusions: tuple[Conclusion, ...] = ()
    time: datetime | None = None
    sources: tuple[str, ...] = ()
    """Ids of the turns of its segment."""


def seeds(conclusions: tuple[Conclusion, ...]) -> tuple[Conclusion, ...]:
    """Those of high relevance, with which abstraction begins (Eq. 6); all of them where none is."""
    return tuple(one for one in conclusions if one.high) or conclusions


class Theory(Stored):
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


class Node(Stored):
    """A concept or an event."""

    id: str
    name: str
    tier: Tier
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


class ClassEdge(Stored):
    """Static: a concept and one below it; its label in the paper is fixed."""

    parent: str
    child: str


class Mention(Stored):
    """One unit's snapshot of an event edge."""

    evidence: str
    label: str
    conclusions: tuple[int, ...] | None = None
    """Which of the unit's conclusions are about the edge, counted from 0; all of them if None."""


class Relation(Stored):
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
