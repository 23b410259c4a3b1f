"""An entry: one text of a memory that can be searched, with who said it and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from ..records import FrozenMapping, Hit, Record
from ..records.frozen import FrozenDict

DIALOGUE = "dialogue"
"""The tag of an entry that is a turn: entries with an equal one are the turns of one dialogue, in their order."""
LABEL = "label"
"""The tag that is shown before an entry's text and not searched, e.g. the type of a fact."""

EntryFilter = Callable[["Entry"], bool]
"""A filter: only entries for which it is true are found. `SpeakerIs` costs the same in a memory of any size."""


class Entry(Record):
    """One thing to search for."""

    id: str
    """Unique within its index."""
    text: str
    kind: str = "entry"
    """What it is; see `records.Hit.kind`."""
    sources: tuple[str, ...] = ()
    """Ids of the turns the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    tags: FrozenMapping[str, str] = Field(default_factory=FrozenDict)
    """Free labels that filters look at, e.g. {"layer": "concept"}; `DIALOGUE` names the dialogue of a turn."""

    def hit(self, score: float = 0.0) -> Hit:
        """The entry as a search result."""
        # Of a dictionary, since a search makes thirty hits, and keyword arguments take as long again.
        about = {name: getattr(self, name) for name in ("id", "text", "kind", "sources", "time", "speaker")}
        return Hit.model_validate({**about, "score": score, "label": self.tags.get(LABEL, "")})


@dataclass(frozen=True)
class SpeakerIs:
    """A filter: entries of one speaker, or of everybody else."""

    speaker: str
    same: bool = True

    def __call__(self, entry: Entry) -> bool:
        return (entry.speaker == self.speaker) is self.same


def entry_of(hit: Hit) -> Entry:
    """What a hit is, as a thing to search for."""
    tags = {LABEL: hit.label} if hit.label else {}
    about = {"kind": hit.kind, "sources": hit.sources, "time": hit.time, "speaker": hit.speaker}
    return Entry.model_validate({"id": hit.id, "text": hit.text, "tags": tags, **about})
