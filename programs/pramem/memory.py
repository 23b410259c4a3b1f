"""The experiential memory of PraMem: patterns, alerts, and a pool of proposals (section 2.2).

| in the paper                    | here                                                |
|---------------------------------|-----------------------------------------------------|
| M_t                             | `ExperienceMemory`                                  |
| pattern experience              | `patterns`                                          |
| bias-alert experience           | `alerts`                                            |
| proposal pool P                 | `pool`                                              |
| historical sequence H_t         | `records`: the newest ones, `dropped` before them   |
| t, t'                           | `total`, `practised`                                |
| short suffix of k records       | `short_suffix`, with tokens in place of k           |

Of the records that were practised on, only those are kept that later samples show as their past.
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

ADDED_KINDS: Mapping[str, Kind] = {"add pattern": "pattern", "add alert": "alert"}
"""What the actions that add experience add; other actions change an entry that is there."""

COMMON_BIASES = (
    "I tend to rely on the newest records and to overlook older ones that contradict them.",
    "I tend to predict what the user does most often, and to overlook when the user acts "
    "differently.",
    "I tend to apply what I believe about people in general instead of what this user's records "
    "show.",
    "I tend to give a few striking records more weight than many ordinary ones.",
    "I tend to mistake interest for a reaction: somebody who watches something may still not like, "
    "follow or buy.",
)
"""Alerts that every user begins with (section 4.1).

The paper has "generic prompts regarding common LLM biases" and prints none.
"""


# The docstrings of these four classes, and their fields, are part of the key of stored memories.


class Experience(MemoryPart):
    """One entry: a pattern or an alert."""

    id: str
    """`pattern-3` or `alert-1`; no other entry ever gets the same."""
    kind: Kind
    text: str
    sources: tuple[str, ...] = ()
    """Ids of the records that support it, oldest support first."""
    support: tuple[str, ...] = ()
    """Ids of the proposals that added and changed it."""
    earlier: tuple[str, ...] = ()
    """Wordings that changes have replaced, oldest first."""


class Proposal(MemoryPart):
    """A proposed change that waits in the pool for others to agree."""

    id: str
    """`p-7`; empty until the proposal is in the pool."""
    action: Literal["add pattern", "add alert", "modify", "remove"]
    target: str | None = None
    """Id of the entry to modify or remove."""
    trigger: str = ""
    """The kind of situation in which the entry applies."""
    content: str = ""
    """The text of the entry; for a removal, the reason."""
    sources: tuple[str, ...] = ()
    """Ids of the records it rests on: the practised one, then those that it cites.

    A downgraded entry keeps those that it rested on.
    """
    round: int = 0
    """The practice round that it comes from."""

    @property
    def record(self) -> str:
        """Id of the practised record; the proposal's own id if it comes from no record."""
        return self.sources[0] if self.sources else self.id

    def text(self) -> str:
        """Return the proposal as reviewers read it: trigger, action and content (Figure 8)."""
        operation = f"{self.action} {self.target}" if self.target else self.action
        parts = (self.trigger, operation, self.content)
        return " | ".join(part for part in parts if part)


class RoundExperience(MemoryPart):
    """The experience after the adjustment that followed a round."""

    round: int
    patterns: tuple[Experience, ...] = ()
    alerts: tuple[Experience, ...] = ()


class ExperienceMemory(Memory[Experience]):
    """What is kept for one user."""

    profile: tuple[Turn, ...] = ()
    """What is known of the user from the start; every sample shows it."""
    patterns: tuple[Experience, ...] = ()
    """The pattern experience: what the user is like."""
    alerts: tuple[Experience, ...] = ()
    """The bias-alert experience: where the model tends to go wrong about this user."""
    pool: tuple[Proposal, ...] = ()
    """Proposals that passed the reviews and were not adopted, oldest first."""
    records: tuple[Action, ...] = ()
    """Records in time order: first those that samples still show, then those that wait."""
    dropped: int = 0
    """How many earlier records are not kept any more."""
    practised: int = 0
    """t': how many records of the whole sequence practice has covered."""
    rounds: int = 0
    """How many rounds were practised, in all runs together."""
    issued: dict[str, int] = Field(default_factory=dict)
    """The last number of an id, by what stands before it: "pattern", "alert" or "p"."""
    counts: dict[str, int] = Field(default_factory=dict)
    """How many proposals and changes had which outcome.

    Proposals are pooled, invalid, ungrounded, specific or malformed. Changes are added, merged,
    modified, downgraded or refused. Trials that nobody could read are failed.
    """
    adjusted: tuple[int, ...] = ()
    """The rounds after which experience was adjusted; 0 stands for the beginning."""
    kept_rounds: tuple[RoundExperience, ...] = ()
    """The experience after each of these rounds, if the setting `keep_rounds` is on."""

    @property
    def total(self) -> int:
        """t: how many records there were."""
        return self.dropped + len(self.records)

    @property
    def waiting(self) -> int:
        """How many records practice has not covered."""
        return self.total - self.practised

    def entry(self, part: Experience) -> Entry:
        return Entry(id=part.id, text=part.text, kind=part.kind, sources=part.sources)

    def continue_from(self, finalized: Any) -> Self:
        """Return the finalized memory: records are practised on once, and M_t' becomes M_t."""
        return finalized

    def parts(self) -> tuple[Experience, ...]:
        """Return the patterns, then the alerts."""
        return (*self.patterns, *self.alerts)

    def experiences(self, kind: Kind) -> tuple[Experience, ...]:
        """Return the entries of a kind."""
        return self.patterns if kind == "pattern" else self.alerts

    def find_by_id(self, experience_id: str | None) -> Experience | None:
        """Return the entry with an id; None if there is none."""
        for experience in self.parts():
            if experience.id == experience_id:
                return experience
        return None

    def find_by_text(self, kind: Kind, text: str) -> Experience | None:
        """Return the pattern or alert with this text; None if there is none.

        Case and white space make no difference.
        """
        wanted_text = one_line(text).casefold()
        for experience in self.experiences(kind):
            if experience.text.casefold() == wanted_text:
                return experience
        return None

    def with_records(self, records: Iterable[Action]) -> ExperienceMemory:
        """Return the memory with more records, which wait for practice."""
        return self.replace(records=(*self.records, *records))

    def with_initial_entry(
        self, kind: Kind, text: str, sources: tuple[str, ...] = ()
    ) -> ExperienceMemory:
        """Return the memory with an entry that it has before any practice, so without support.

        Nothing is added if the text is blank, or if an entry of this kind already says the same.
        """
        is_blank = not one_line(text)
        if is_blank or self.find_by_text(kind, text) is not None:
            return self
        return self.with_new_entry(kind, text, sources)

    def with_new_entry(
        self,
        kind: Kind,
        text: str,
        sources: tuple[str, ...],
        support: tuple[str, ...] = (),
    ) -> ExperienceMemory:
        """Return the memory with one more entry.

        Args:
            kind: Pattern or alert.
            text: What the entry says.
            sources: Ids of the records that it rests on.
            support: Ids of the proposals that asked for it.
        """
        # `issued` holds the last number of each kind. Numbers of deleted entries are not reused.
        number = self.issued.get(kind, 0) + 1
        experience = Experience(
            id=f"{kind}-{number}",
            kind=kind,
            text=one_line(text),
            sources=sources,
            support=support,
        )
        memory = self.replace(issued={**self.issued, kind: number})
        return memory._with_experiences(kind, [*self.experiences(kind), experience])

    def with_new_version(self, new_version: Experience) -> ExperienceMemory:
        """Return the memory with an entry replaced by a new version, which has the same id."""
        experiences: list[Experience] = []
        for experience in self.experiences(new_version.kind):
            if experience.id == new_version.id:
                experiences.append(new_version)
            else:
                experiences.append(experience)
        return self._with_experiences(new_version.kind, experiences)

    def without_entry(self, entry: Experience) -> ExperienceMemory:
        """Return the memory without an entry."""
        others = [other for other in self.experiences(entry.kind) if other.id != entry.id]
        return self._with_experiences(entry.kind, others)

    def with_proposals(self, round_number: int, proposals: Sequence[Proposal]) -> ExperienceMemory:
        """Return the memory with more proposals at the end of its pool.

        Args:
            round_number: The practice round that the proposals come from.
            proposals: The proposals; they get their ids here.
        """
        if not proposals:
            return self

        # `issued` holds the last number of a proposal under "p".
        number = self.issued.get("p", 0)
        pool = list(self.pool)
        for proposal in proposals:
            number += 1
            pool.append(proposal.replace(id=f"p-{number}", round=round_number))
        return self.replace(pool=tuple(pool), issued={**self.issued, "p": number})

    def with_counts(self, counts: Mapping[str, int]) -> ExperienceMemory:
        """Return the memory with these numbers added to its `counts`."""
        return self.replace(counts=dict(Counter(self.counts) + Counter(dict(counts))))

    def after_adjustment(self, round_number: int, keep_round: bool) -> ExperienceMemory:
        """Return the memory with a note that its experience was adjusted after a practice round.

        Args:
            round_number: The last round before the adjustment; 0 if no round was practised yet.
            keep_round: Whether to keep a copy of the experience as it is now. `at_round` can then
                return to it after later adjustments.
        """
        memory = self.replace(rounds=round_number, adjusted=(*self.adjusted, round_number))
        if not keep_round:
            return memory

        snapshot = RoundExperience(round=round_number, patterns=self.patterns, alerts=self.alerts)
        return memory.replace(kept_rounds=(*self.kept_rounds, snapshot))

    def at_round(self, round_number: int) -> ExperienceMemory:
        """Return the memory with the experience that it had after a practice round (Figure 4).

        That is the copy kept at this round or, if there is none, the last copy before it. Without
        an early enough copy the memory is returned unchanged.
        """
        snapshots = [snapshot for snapshot in self.kept_rounds if snapshot.round <= round_number]
        if not snapshots:
            return self

        latest_snapshot = snapshots[-1]
        return self.replace(patterns=latest_snapshot.patterns, alerts=latest_snapshot.alerts)

    def mark_practised(self, max_tokens: int) -> ExperienceMemory:
        """Return the memory in which all records count as practised, at the end of a practice run.

        Old records are dropped. Only the newest stay, since practice on later records shows them as
        the past.

        Args:
            max_tokens: Most tokens of past records that practice shows.
        """
        newest_records = short_suffix(self.records, max_tokens)
        dropped_count = len(self.records) - len(newest_records)
        return self.replace(
            records=newest_records,
            dropped=self.dropped + dropped_count,
            practised=self.total,
        )

    def _with_experiences(self, kind: Kind, experiences: Iterable[Experience]) -> ExperienceMemory:
        """Return the memory with all entries of one kind replaced."""
        if kind == "pattern":
            return self.replace(patterns=tuple(experiences))
        return self.replace(alerts=tuple(experiences))


def short_suffix(records: Sequence[Action], max_tokens: int) -> tuple[Action, ...]:
    """Return the newest records that fit into `max_tokens` together, in time order (Eq. 2 and 3).

    Records are counted backwards from the newest, until one does not fit; older ones that would fit
    are left out too, so that there is no gap.
    """
    newest_lines = (record.turn().line() for record in reversed(records))
    count = count_fitting_lines(newest_lines, max_tokens)
    return tuple(records[len(records) - count :])
