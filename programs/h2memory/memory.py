"""The memory of H2Memory: situations and background from logs, topics and principles from dialogues (Mem-PAL, M).

               concrete                    abstract
    logs       situations (M_G)  ──────>  background (M_B), a sentence per aspect
    dialogues  topics (M_T)      ──────>  principles (M_P)

A situation leads to the backgrounds of its aspects, a topic to the principle that has it as a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field

from ...memory.memory import Memory, MemoryPart
from ...records import Item, comparable, latest
from ...signatures.h2memory import ASPECTS, Aspect

LinkKind = Literal["caused_by", "follows"]
KINDS: tuple[LinkKind, ...] = ("caused_by", "follows")
"""In the order in which they count."""
Content = Literal["needs", "solutions"]
"""What is to be seen of a topic or principle: the need alone, or solutions and preferences too."""
Feedback = Literal["pos", "neg", "others"]
_FEEDBACK = {"pos": "liked", "neg": "rejected", "others": "undecided"}


class Link(MemoryPart):
    """One edge of a log graph."""

    later: str
    """Id of the log that goes back to the other one."""
    kind: LinkKind
    earlier: str


class Situation(MemoryPart):
    """The situation of a group of linked logs."""

    id: str = ""
    batch: str = ""
    """Id of the item of logs it comes from."""
    text: str
    aspects: tuple[Aspect, ...] = ()
    sources: tuple[str, ...] = ()
    """Ids of its logs, oldest first."""
    links: tuple[Link, ...] = ()
    since: datetime | None = None
    time: datetime | None = None
    """When its last log was written."""


class Solution(MemoryPart):
    """One solution that was talked about."""

    text: str
    feedback: str = ""
    kind: Feedback = "others"

    def line(self) -> str:
        """`a walk at noon (rejected: too little time)`."""
        said = f"{_FEEDBACK[self.kind]}: {self.feedback}" if self.feedback else _FEEDBACK[self.kind]
        return f"{self.text} ({said})"


class Topic(MemoryPart):
    """The outline of one topic."""

    id: str = ""
    dialogue: str = ""
    """Id of the session it was talked about in."""
    need: str
    """What the user needed; as refined, once it is."""
    stated: str = ""
    """The need as the dialogue has it."""
    solutions: tuple[Solution, ...] = ()
    preference: str = ""
    sources: tuple[str, ...] = ()
    """Ids of its turns."""
    time: datetime | None = None
    own: tuple[str, ...] = ()
    """Ids of the items of logs that came before its dialogue."""

    def text(self, content: Content | None = None) -> str:
        """The need alone, or with what was proposed and preferred (also where no content is asked for)."""
        if content == "needs":
            return f"Need: {self.need}"
        proposed = "; ".join(solution.line() for solution in self.solutions)
        parts = (("Need", self.need), ("Proposed", proposed), ("Preference", self.preference))
        return " | ".join(f"{name}: {part}" for name, part in parts if part)


class Principle(MemoryPart):
    """One type of need, and what the user prefers for it."""

    id: str
    need_type: str
    preference: str = ""
    """The principle itself; empty where the topics showed no preference."""
    members: tuple[str, ...] = ()
    """Ids of its topics, in the order in which they came in."""

    def text(self, content: Content | None = None) -> str:
        """The type of need alone, or with the principle (also where no content is asked for)."""
        if content == "needs" or not self.preference:
            return f"Type of need: {self.need_type}"
        return f"Type of need: {self.need_type} | Principle: {self.preference}"


class Background(MemoryPart):
    """What is known of the user in one aspect of life."""

    text: str
    situations: tuple[str, ...] = ()
    """Ids of the situations of that aspect at the updates that wrote it."""


class HeterogeneousMemory(Memory):
    """What is kept for one user."""

    situations: tuple[Situation, ...] = ()
    background: dict[Aspect, Background] = Field(default_factory=dict[Aspect, Background])
    since: datetime | None = None
    """When the first situation of the background began."""
    until: datetime | None = None
    """When the last situation of the background was over."""
    batches: tuple[str, ...] = ()
    """Ids of the items of logs since the last dialogue; after a dialogue, those that came before it."""
    answered: bool = False
    """Whether the dialogue that follows those logs has come."""
    topics: tuple[Topic, ...] = ()
    waiting: tuple[str, ...] = ()
    """Ids of the topics whose need is to be refined."""
    principles: tuple[Principle, ...] = ()
    clustered: int = 0
    """Topics that the principles were made from by clustering; later ones joined one by one."""
    ended: datetime | None = None
    """The latest time of any item."""

    def continue_from(self, finalized: Any) -> Self:
        """Principles are made once; later topics join them."""
        return finalized

    @property
    def recent(self) -> tuple[Situation, ...]:
        """The situations of the current session: of the logs since the last dialogue, or else before it."""
        return self.of(self.batches)

    def of(self, batches: Iterable[str]) -> tuple[Situation, ...]:
        """The situations of some items of logs."""
        wanted = set(batches)
        return tuple(situation for situation in self.situations if situation.batch in wanted)

    def behind(self, situations: Iterable[Situation]) -> list[Aspect]:
        """F_GB: the aspects of situations that there is a background of, in the fixed order of aspects."""
        named = {aspect for situation in situations for aspect in situation.aspects}
        return [aspect for aspect in ASPECTS if aspect in named and aspect in self.background]

    def above(self, topics: Iterable[Topic]) -> list[Principle]:
        """F_TP: the principles of topics, each once, in the order of the topics."""
        found = (self._principles.get(topic.id) for topic in topics)
        return list({principle.id: principle for principle in found if principle}.values())

    @cached_property
    def _principles(self) -> dict[str, Principle]:
        return {id: principle for principle in self.principles for id in principle.members}

    @cached_property
    def _sources(self) -> dict[str, tuple[str, ...]]:
        parts: tuple[Situation | Topic, ...] = (*self.situations, *self.topics)
        return {part.id: part.sources for part in parts}

    def turns(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Ids of the turns that situations and topics rest on, each once."""
        return tuple(dict.fromkeys(turn for id in ids for turn in self._sources.get(id, ())))

    def unassigned(self) -> list[Topic]:
        """The topics that belong to no principle."""
        return [topic for topic in self.topics if topic.id not in self._principles]

    def at(self, item: Item) -> HeterogeneousMemory:
        """The memory that knows when its latest item was."""
        times = [turn.time for turn in item.turns if turn.time] + [item.time]
        return self.replace(ended=latest(self.ended, *times))

    def with_situations(self, batch: str, situations: Sequence[Situation]) -> HeterogeneousMemory:
        """The memory with the situations of one more item of logs, which get their ids."""
        first = len(self.situations) + 1
        new = [situation.replace(id=f"s{n}", batch=batch) for n, situation in enumerate(situations, first)]
        batches = (batch,) if self.answered else (*self.batches, batch)
        return self.replace(situations=(*self.situations, *new), batches=batches, answered=False)

    def with_background(self, texts: Mapping[Aspect, str], situations: Sequence[Situation]) -> HeterogeneousMemory:
        """The memory whose background has new sentences for some aspects, made from further situations."""
        changed = dict(self.background)
        for aspect, text in texts.items():
            before = changed[aspect].situations if aspect in changed else ()
            new = [situation.id for situation in situations if aspect in situation.aspects]
            changed[aspect] = Background(text=text, situations=tuple(dict.fromkeys((*before, *new))))
        return self.replace(
            background={aspect: changed[aspect] for aspect in ASPECTS if aspect in changed},
            since=self.since or earliest(situation.since or situation.time for situation in situations),
            until=latest(self.until, *(situation.time for situation in situations)),
        )

    def with_topics(self, dialogue: str, topics: Sequence[Topic]) -> HeterogeneousMemory:
        """The memory with the topics of one more dialogue, which get their ids; not refined yet."""
        own = () if self.answered else self.batches
        first = len(self.topics) + 1
        new = [
            topic.replace(id=f"t{n}", dialogue=dialogue, own=own, stated=topic.need)
            for n, topic in enumerate(topics, first)
        ]
        waiting = (*self.waiting, *(topic.id for topic in new))
        return self.replace(topics=(*self.topics, *new), waiting=waiting, answered=True)

    def with_needs(self, needs: Mapping[str, str]) -> HeterogeneousMemory:
        """The memory with refined needs, by topic id; no topic is pending."""
        topics = (topic.replace(need=needs[topic.id]) if needs.get(topic.id) else topic for topic in self.topics)
        return self.replace(topics=tuple(topics), waiting=())


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """The first of some times; None without any."""
    return min((time for time in times if time), key=comparable, default=None)
