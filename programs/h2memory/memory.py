"""The memory of H2Memory, M = {M_G, M_B, M_T, M_P} (Mem-PAL, "Memory Construction").

               concrete                     abstract
    logs       situations (M_G)  ─ F_GB ─>  background (M_B), a sentence per aspect
    dialogues  topics (M_T)      ─ F_TP ─>  principles (M_P)

F_GB leads from a situation to the backgrounds of its aspects, F_TP from a topic to the principle
that has it as a member.

A session of the paper is a dialogue together with the logs before it. Here they are separate items
of a history, and an item of logs is called a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field

from ...memory.memory import Memory, MemoryPart
from ...records import Item, comparable, latest
from ...records.query import About
from ...signatures.h2memory import ASPECTS, Aspect, Feedback

LinkKind = Literal["caused_by", "follows"]

_FEEDBACK_WORDS: dict[Feedback, str] = {
    "pos": "liked",
    "neg": "rejected",
    "others": "undecided",
}
"""What prompts say of a solution, by the user's feedback."""


# The names, docstrings and fields of these classes are part of the key of stored memories.


class Link(MemoryPart):
    """One edge of a log graph."""

    later: str
    """Id of the log that was caused by the earlier one, or follows it."""
    kind: LinkKind
    earlier: str
    """Id of the earlier log."""


class Situation(MemoryPart):
    """The situation of a group of linked logs."""

    id: str = ""
    """s1, s2, ... in the order in which situations were written."""
    batch: str = ""
    """Id of the item of logs it comes from."""
    text: str
    aspects: tuple[Aspect, ...] = ()
    """The aspects of the background that it belongs to (F_GB)."""
    sources: tuple[str, ...] = ()
    """Ids of its logs, oldest first."""
    links: tuple[Link, ...] = ()
    since: datetime | None = None
    """When its first log was written."""
    time: datetime | None = None
    """When its last log was written."""


class Solution(MemoryPart):
    """One solution that was talked about."""

    text: str
    feedback: str = ""
    """What the user thinks of it, in words."""
    kind: Feedback = "others"

    def line(self) -> str:
        """Return the solution with its feedback: `a walk at noon (rejected: too little time)`."""
        opinion = _FEEDBACK_WORDS[self.kind]
        if self.feedback:
            opinion = f"{opinion}: {self.feedback}"
        return f"{self.text} ({opinion})"


class Topic(MemoryPart):
    """The outline of one topic."""

    id: str = ""
    """t1, t2, ... in the order in which topics were written."""
    dialogue: str = ""
    """Id of the session it was talked about in."""
    need: str
    """What the user needs: the refined need once there is one, else the stated need."""
    stated: str = ""
    """The need r as the dialogue states it."""
    solutions: tuple[Solution, ...] = ()
    """The solutions o, with the user's feedback."""
    preference: str = ""
    """The kind of solution p that the user prefers for this need."""
    sources: tuple[str, ...] = ()
    """Ids of its turns."""
    time: datetime | None = None
    own: tuple[str, ...] = ()
    """Ids of the batches of logs that came before its dialogue."""

    def text(self, about: About | None = None) -> str:
        """Return the topic of a dialogue as prompts show it: need, proposed solutions, preference.

        If `about` is "needs", only the need is shown.
        """
        if about == "needs":
            return f"Need: {self.need}"

        parts: list[str] = []
        if self.need:
            parts.append(f"Need: {self.need}")
        if self.solutions:
            proposed = "; ".join(solution.line() for solution in self.solutions)
            parts.append(f"Proposed: {proposed}")
        if self.preference:
            parts.append(f"Preference: {self.preference}")
        return " | ".join(parts)


class Principle(MemoryPart):
    """One type of need, and what the user prefers for it."""

    id: str
    """p1, p2, ... in the order in which principles were made."""
    need_type: str
    """The type of need, γ."""
    preference: str = ""
    """The principle itself, ρ; empty where the topics showed no preference."""
    members: tuple[str, ...] = ()
    """Ids of its topics, in the order in which they came in."""

    def text(self, about: About | None = None) -> str:
        """Return the principle as prompts show it: a type of need, and what the user prefers then.

        If `about` is "needs", only the type of need is shown.
        """
        if about == "needs" or not self.preference:
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
    """M_G, of all sessions."""
    background: dict[Aspect, Background] = Field(default_factory=dict[Aspect, Background])
    """M_B. An aspect of which nothing is known is left out."""
    since: datetime | None = None
    """When the first situation of the background began."""
    until: datetime | None = None
    """When the last situation of the background was over."""
    batches: tuple[str, ...] = ()
    """Ids of the batches of logs since the last dialogue; after a dialogue, those before it."""
    answered: bool = False
    """Whether the dialogue that follows those logs has come."""
    logs_of_failed: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """By id of a dialogue that could not be read at first: the batches of logs before it."""
    topics: tuple[Topic, ...] = ()
    """M_T."""
    waiting: tuple[str, ...] = ()
    """Ids of the topics whose need is to be refined."""
    principles: tuple[Principle, ...] = ()
    """M_P."""
    clustered: int = 0
    """Topics that the principles were made from by clustering; later ones joined one by one."""
    ended: datetime | None = None
    """The latest time of any item."""

    def continue_from(self, finalized: Any) -> Self:
        """Return the finalized memory: principles are made once, and later topics join them."""
        return finalized

    @property
    def current_situations(self) -> tuple[Situation, ...]:
        """The situations that belong to the session in which the next question is asked.

        They come from the logs since the last dialogue or, if there are none, from the logs right
        before it. `batches` names the items with these logs.
        """
        return self.situations_of(self.batches)

    def situations_of(self, batches: Iterable[str]) -> tuple[Situation, ...]:
        """Return the situations that were read from some items of logs.

        Args:
            batches: Ids of the items of logs.
        """
        batch_ids = set(batches)
        return tuple(situation for situation in self.situations if situation.batch in batch_ids)

    def aspects_behind(self, situations: Iterable[Situation]) -> list[Aspect]:
        """Return the aspects of life that situations belong to, in the order of `ASPECTS`.

        Aspects for which the memory has no background are left out.
        """
        named_aspects: set[Aspect] = set()
        for situation in situations:
            named_aspects.update(situation.aspects)
        known_aspects = named_aspects.intersection(self.background)
        return [aspect for aspect in ASPECTS if aspect in known_aspects]

    def principles_above(self, topics: Iterable[Topic]) -> list[Principle]:
        """Return the principles that topics belong to, in the order of the topics.

        A principle of several topics is returned once. A topic may belong to none yet.
        """
        principles: dict[str, Principle] = {}
        for topic in topics:
            principle = self._principles_by_topic.get(topic.id)
            if principle is not None:
                principles[principle.id] = principle
        return list(principles.values())

    def source_turns(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of the turns that situations and topics rest on, without repetitions.

        Args:
            ids: Ids of the situations and topics.
        """
        turn_ids: list[str] = []
        for part_id in ids:
            turn_ids.extend(self._sources_by_part.get(part_id, ()))
        return tuple(dict.fromkeys(turn_ids))

    def unassigned_topics(self) -> list[Topic]:
        """Return the topics that belong to no principle."""
        return [topic for topic in self.topics if topic.id not in self._principles_by_topic]

    def waiting_topics(self) -> list[Topic]:
        """Return the topics whose need is to be refined."""
        return [topic for topic in self.topics if topic.id in self.waiting]

    @cached_property
    def _principles_by_topic(self) -> dict[str, Principle]:
        """The principles, by the ids of their topics."""
        principles: dict[str, Principle] = {}
        for principle in self.principles:
            for topic_id in principle.members:
                principles[topic_id] = principle
        return principles

    @cached_property
    def _sources_by_part(self) -> dict[str, tuple[str, ...]]:
        """The ids of source turns, by the id of the situation or topic."""
        parts: tuple[Situation | Topic, ...] = (*self.situations, *self.topics)
        return {part.id: part.sources for part in parts}

    def with_time_of(self, item: Item) -> Self:
        """Return the memory with `ended`, the latest time of any item, after one more item."""
        turn_times = [turn.time for turn in item.turns]
        return self.replace(ended=latest(self.ended, *turn_times, item.time))

    def with_situations(self, batch: str, situations: Sequence[Situation]) -> Self:
        """Return the memory with the situations that were read from one more item of logs.

        Args:
            batch: Id of the item of logs.
            situations: The situations; they get their ids here.
        """
        # A session consists of items of logs and the dialogue after them. `batches` names the items
        # of logs of the current session. If `answered` is True, the session already has its
        # dialogue, so the new item of logs begins the next session.
        session_batches = () if self.answered else self.batches
        memory = self.with_situations_of_part(batch, situations)
        return memory.replace(
            batches=(*session_batches, batch),
            answered=False,  # the dialogue after these logs has yet to come
        )

    def with_situations_of_part(self, batch: str, situations: Sequence[Situation]) -> Self:
        """Return the memory with further situations of an item of logs that it knows already.

        The item begins no session: it came in its turn, and only a part of it was read later.

        Args:
            batch: Id of the item of logs.
            situations: The situations; they get their ids here.
        """
        new_situations: list[Situation] = []
        for number, situation in enumerate(situations, start=len(self.situations) + 1):
            new_situations.append(situation.replace(id=f"s{number}", batch=batch))
        return self.replace(situations=(*self.situations, *new_situations))

    def with_background(
        self, sentences: Mapping[str, str], situations: Sequence[Situation]
    ) -> Self:
        """Return the memory with new sentences about the user's life, made from new situations.

        Args:
            sentences: The new sentence for each aspect of life (work, health, ...) that changes, by
                aspect. Other aspects keep their sentence.
            situations: The new situations.
        """
        background: dict[Aspect, Background] = {}
        for aspect in ASPECTS:
            old_background = self.background.get(aspect)
            if aspect in sentences:
                background[aspect] = _rewrite_background(
                    old_background, sentences[aspect], aspect, situations
                )
            elif old_background is not None:
                background[aspect] = old_background

        # The background covers the time from `since` to `until`. Situations come in the order of
        # the history: the first ones set the beginning for good, later ones only move the end.
        since = self.since
        if since is None:
            start_times = [situation.since or situation.time for situation in situations]
            since = earliest(*start_times)
        end_times = [situation.time for situation in situations]
        until = latest(self.until, *end_times)
        return self.replace(background=background, since=since, until=until)

    def with_topics(self, dialogue: str, topics: Sequence[Topic]) -> Self:
        """Return the memory with the topics that were read from one more dialogue.

        It may also be a part of a dialogue that could not be read at first.

        Args:
            dialogue: Id of the dialogue.
            topics: The topics; they get their ids here.
        """
        if dialogue in self.logs_of_failed:
            # The dialogue came earlier, perhaps before the latest logs, which then still wait for
            # their own dialogue. The entry stays, since more parts may follow.
            logs_of_dialogue = self.logs_of_failed[dialogue]
            answered = self.answered
        else:
            logs_of_dialogue = self._logs_of_next_dialogue
            answered = True  # the logs in `batches` now have their dialogue

        new_topics: list[Topic] = []
        for number, topic in enumerate(topics, start=len(self.topics) + 1):
            new_topic = topic.replace(
                id=f"t{number}",
                dialogue=dialogue,
                own=logs_of_dialogue,  # ids of the logs that may explain the need
                stated=topic.need,  # the first wording, which stays when `need` is refined
            )
            new_topics.append(new_topic)

        new_ids = [topic.id for topic in new_topics]
        return self.replace(
            topics=(*self.topics, *new_topics),
            waiting=(*self.waiting, *new_ids),  # topics whose need is yet to be refined, by id
            answered=answered,
        )

    def with_failed_dialogue(self, dialogue: str) -> Self:
        """Return the memory after a dialogue that could not be read.

        It ends its session like any other dialogue. The memory remembers the logs before it, for
        the topics of a later attempt. Nothing changes if the dialogue failed before.

        Args:
            dialogue: Id of the dialogue.
        """
        if dialogue in self.logs_of_failed:
            return self
        logs_of_failed = {**self.logs_of_failed, dialogue: self._logs_of_next_dialogue}
        return self.replace(logs_of_failed=logs_of_failed, answered=True)

    @property
    def _logs_of_next_dialogue(self) -> tuple[str, ...]:
        """The batches of logs that a dialogue has if it comes now.

        `batches` names the latest batches. They belong to the first dialogue after them. If
        `answered` is True, that dialogue has come, and another one has no logs.
        """
        return () if self.answered else self.batches

    def with_needs(self, needs: Mapping[str, str]) -> Self:
        """Return the memory with refined needs; afterwards no topic waits to be refined.

        Args:
            needs: The refined needs by topic id. A topic without one, or with "", keeps its need.
        """
        topics: list[Topic] = []
        for topic in self.topics:
            refined_need = needs.get(topic.id)
            if refined_need:
                topics.append(topic.replace(need=refined_need))
            else:
                topics.append(topic)
        return self.replace(topics=tuple(topics), waiting=())


def earliest(*times: datetime | None) -> datetime | None:
    """Return the earliest of some times, any of which may be missing; None if all are."""
    known_times = [time for time in times if time]
    return min(known_times, key=comparable, default=None)


def _rewrite_background(
    old_background: Background | None,
    sentence: str,
    aspect: Aspect,
    situations: Sequence[Situation],
) -> Background:
    """Return the background of one aspect of life with a new sentence.

    It lists the situations that it was made from: those of the old background, and those of the new
    situations that belong to the aspect.
    """
    situation_ids: list[str] = []
    if old_background is not None:
        situation_ids.extend(old_background.situations)
    for situation in situations:
        if aspect in situation.aspects:
            situation_ids.append(situation.id)
    return Background(text=sentence, situations=tuple(dict.fromkeys(situation_ids)))
