"""An entry: one text of a memory that can be searched, with who said it and when.

Example:
    >>> from mempiler.memory.entry import Entry, SpeakerIs
    >>> entry = Entry(id="f1", text="Ada moved to Lisbon.", speaker="Ada")
    >>> entry.hit(score=0.5).text
    'Ada moved to Lisbon.'
    >>> is_by_bob = SpeakerIs("Bob")
    >>> is_by_bob(entry)
    False
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from pydantic import Field

from ..records import FrozenMapping, Hit, Record
from ..records.frozen import FrozenDict
from .search.repeats import Utterance, utterance_of

DIALOGUE = "dialogue"
"""The tag that names the dialogue of a turn; the turns of a dialogue stand in their order."""
LABEL = "label"
"""The tag that is shown before the text of an entry and not searched, e.g. the type of a fact."""

EntryFilter = Callable[["Entry"], bool]
"""Returns whether a search may find an entry. It is called for many entries of a memory; a search
reads a `SpeakerIs` as a value instead and calls nothing."""


class Entry(Record):
    """One thing to search for."""

    id: str
    """Unique within its index."""
    text: str
    kind: str = "entry"
    """What it is; see `records.Hit.kind`."""
    sources: tuple[str, ...] = ()
    """Ids of the turns that the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    tags: FrozenMapping[str, str] = Field(default_factory=FrozenDict)
    """Free labels that filters look at, e.g. {"layer": "concept"}; see `DIALOGUE` and `LABEL`."""

    @cached_property
    def utterance(self) -> Utterance | None:
        """What the entry says, by which searches recognize repeats; see `search.repeats`.

        It is computed once, because many searches rank the same entry.
        """
        return utterance_of(self)

    def hit(self, score: float = 0.0) -> Hit:
        """Return the entry as a result of a search, which scored it with `score`."""
        return Hit(
            id=self.id,
            text=self.text,
            kind=self.kind,
            score=score,
            sources=self.sources,
            time=self.time,
            speaker=self.speaker,
            label=self.tags.get(LABEL, ""),
        )


@dataclass(frozen=True)
class SpeakerIs:
    """A filter for searches that passes the entries of one speaker, or those of all others."""

    speaker: str
    same: bool = True
    """True passes the entries of this speaker; False all others, also those without a speaker."""

    def __call__(self, entry: Entry) -> bool:
        """Return whether the entry passes."""
        is_by_speaker = entry.speaker == self.speaker
        return is_by_speaker if self.same else not is_by_speaker


def hit_as_entry(hit: Hit) -> Entry:
    """Turn the result of a search into an entry that can be searched again; the score is lost."""
    # The label, e.g. the type of a fact, is a field of a hit, but a tag of an entry.
    tags = {LABEL: hit.label} if hit.label else {}
    return Entry(
        id=hit.id,
        text=hit.text,
        kind=hit.kind,
        sources=hit.sources,
        time=hit.time,
        speaker=hit.speaker,
        tags=tags,
    )
