"""PraMem's memory: the user's patterns, alerts of the model's own biases, and the pool (section 4.1).

Of the records only those are kept that later practice shows as the past of its samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from ...memory.entry import Entry
from ...memory.memory import Memory, MemoryPart
from ...records import Action, Turn
from ...records.token_counts import count_fitting_lines
from ...text import one_line

Kind = Literal["pattern", "alert"]

COMMON_BIASES = (
    "I tend to rely on the newest records and to overlook older ones that contradict them.",
    "I tend to predict what the user does most often, and to overlook when the user acts differently.",
    "I tend to apply what I believe about people in general instead of what this user's records show.",
    "I tend to give a few striking records more weight than many ordinary ones.",
    "I tend to mistake interest for a reaction: somebody who watches something may still not like, follow or buy.",
)
"""Alerts that every user begins with. The paper has "generic prompts regarding common LLM biases" and prints none."""


class Experience(MemoryPart):
    """One entry: a pattern or an alert."""

    id: str
    """`pattern-3` or `alert-1`; never given twice."""
    kind: Kind
    text: str
    sources: tuple[str, ...] = ()
    """Ids of the records that support it, oldest support first."""
    support: tuple[str, ...] = ()
    """Ids of the proposals that made it and changed it."""
    earlier: tuple[str, ...] = ()
    """Wordings that changes replaced."""


class Proposal(MemoryPart):
    """A proposed change that waits in the pool for others to agree."""

    id: str
    action: Literal["add pattern", "add alert", "modify", "remove"]
    target: str | None = None
    """The entry to modify or remove."""
    trigger: str = ""
    content: str = ""
    sources: tuple[str, ...] = ()
    """Ids of the records it rests on: the practised one, and those it cites."""
    round: int = 0

    @property
    def record(self) -> str:
        """The record that it was practised on; its own id where it comes from none."""
        return self.sources[0] if self.sources else self.id

    def text(self) -> str:
        """What reviewers read: trigger, action and content, as the paper lays a proposal out."""
        what = f"{self.action} {self.target}" if self.target else self.action
        return " | ".join(part for part in (self.trigger, what, self.content) if part)


class RoundExperience(MemoryPart):
    """The experience after the adjustment that followed a round."""

    round: int
    patterns: tuple[Experience, ...] = ()
    alerts: tuple[Experience, ...] = ()


class ExperienceMemory(Memory[Experience]):
    """What is kept for one user."""

    profile: tuple[Turn, ...] = ()
    """What is known of the user from the start; shown with every sample."""
    patterns: tuple[Experience, ...] = ()
    alerts: tuple[Experience, ...] = ()
    pool: tuple[Proposal, ...] = ()
    records: tuple[Action, ...] = ()
    """In time order: those that practice has covered and still shows, then those that wait."""
    dropped: int = 0
    """How many records came before `records` and were dropped."""
    practised: int = 0
    """t': how many records of the whole stream practice has covered."""
    rounds: int = 0
    issued: dict[str, int] = Field(default_factory=dict)
    """Ids given so far, by kind."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Proposals by outcome (pooled, invalid, ungrounded, specific, malformed; failed, for unreadable trials), and what
    was adopted and refused, and why."""
    adjusted: tuple[int, ...] = ()
    """Rounds after which experience was adjusted, the beginning (0) first."""
    kept_rounds: tuple[RoundExperience, ...] = ()
    """The experience after each of these, where `keep_rounds` is set."""

    @property
    def total(self) -> int:
        """t: how many records there were."""
        return self.dropped + len(self.records)

    def entry(self, part: Experience) -> Entry:
        return Entry(id=part.id, text=part.text, kind=part.kind, sources=part.sources)

    def continue_from(self, finalized: Any) -> Self:
        """Records are practised on once; later ones continue the practice."""
        return finalized

    def parts(self) -> tuple[Experience, ...]:
        """Patterns, then alerts."""
        return (*self.patterns, *self.alerts)

    @property
    def waiting(self) -> int:
        """How many records practice has not covered."""
        return self.total - self.practised

    def with_records(self, records: Iterable[Action]) -> ExperienceMemory:
        """The memory with more records that wait for practice."""
        return self.replace(records=(*self.records, *records))

    def with_entries(self, kind: Kind, texts: Iterable[tuple[str, tuple[str, ...]]]) -> ExperienceMemory:
        """The memory with new entries, by text and sources; one with a text that is there is skipped."""
        memory = self
        for text, sources in texts:
            if one_line(text) and memory.like(kind, text) is None:
                memory = memory.with_entry(kind, text, sources)
        return memory

    def with_entry(
        self, kind: Kind, text: str, sources: tuple[str, ...], support: tuple[str, ...] = ()
    ) -> ExperienceMemory:
        """The memory with one more entry."""
        id, memory = self.next_id(kind)
        new = Experience(id=id, kind=kind, text=one_line(text), sources=sources, support=support)
        return memory.replaced(kind, (*memory.of(kind), new))

    def like(self, kind: Kind, text: str) -> Experience | None:
        """The entry of a kind that says the same."""
        said = one_line(text).casefold()
        return next((part for part in self.of(kind) if part.text.casefold() == said), None)

    def of(self, kind: Kind) -> tuple[Experience, ...]:
        """The entries of a kind."""
        return self.patterns if kind == "pattern" else self.alerts

    def replaced(self, kind: Kind, entries: Sequence[Experience]) -> ExperienceMemory:
        """The memory with other entries of a kind."""
        return self.replace(**{"patterns" if kind == "pattern" else "alerts": tuple(entries)})

    def find(self, id: str | None) -> Experience | None:
        """The entry of an id."""
        return next((part for part in self.parts() if part.id == id), None)

    def next_id(self, name: str) -> tuple[str, ExperienceMemory]:
        """A fresh id, and the memory that knows it is taken."""
        number = self.issued.get(name, 0) + 1
        return f"{name}-{number}", self.replace(issued={**self.issued, name: number})

    def with_proposals(self, round: int, accepted: Iterable[Proposal]) -> ExperienceMemory:
        """The memory whose pool has the proposals of a round, under ids of their own."""
        memory = self
        for proposal in accepted:
            id, memory = memory.next_id("p")
            memory = memory.replace(pool=(*memory.pool, proposal.replace(id=id, round=round)))
        return memory

    def after_adjustment(self, round: int, keep: bool = False) -> ExperienceMemory:
        """Return the memory after the adjustment that followed a round; `keep` keeps the experience as it is then."""
        after = self.replace(rounds=round, adjusted=(*self.adjusted, round))
        if not keep:
            return after
        present = RoundExperience(round=round, patterns=self.patterns, alerts=self.alerts)
        return after.replace(kept_rounds=(*self.kept_rounds, present))

    def at_round(self, round: int) -> ExperienceMemory:
        """Return the memory with the experience that it had after so many rounds, for a memory that keeps rounds.

        Between two adjustments that is the experience of the earlier one, after the last one that of the last.
        """
        until_then = [kept_round for kept_round in self.kept_rounds if kept_round.round <= round]
        if not until_then:
            return self
        return self.replace(patterns=until_then[-1].patterns, alerts=until_then[-1].alerts)

    def mark_practised(self, max_tokens: int) -> ExperienceMemory:
        """The memory at the end of a practice run: t' = t, and only records that later samples show are kept."""
        gone = len(self.records) - len(suffix(self.records, max_tokens))
        return self.replace(records=self.records[gone:], dropped=self.dropped + gone, practised=self.total)

    def counted(self, more: Mapping[str, int]) -> ExperienceMemory:
        """The memory with more counted."""
        return self.replace(counts=dict(Counter(self.counts) + Counter(dict(more))))


def suffix(records: Sequence[Action], max_tokens: int) -> tuple[Action, ...]:
    """The newest records whose lines fit, in time order: up to the first that does not."""
    count = count_fitting_lines((record.turn().line() for record in reversed(records)), max_tokens)
    return tuple(records[len(records) - count :])
