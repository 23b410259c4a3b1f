"""What is written about a user of PAL-Set: a persona, its sessions, and the topics of dialogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ....signatures.synthesis_palset import (
    DraftChoice,
    DraftMonth,
    DraftPerson,
    DraftPreference,
    DraftTopic,
)
from ....signatures.synthesis_palset_records import DraftLog, DraftTurn

Part = Literal["history", "query", ""]
"""The part of the data to which a dialogue belongs; "" if there is none."""

_MINUTE_LENGTH = len("YYYY-MM-DD HH:MM")
_MONTH_LENGTH = len("YYYY-MM")


@dataclass(frozen=True)
class Persona:
    """A user: a profile, and after step 2 a past, requirement types and preferences."""

    id: str
    """E.g. "0000"."""
    draft: DraftPerson
    timeline: Sequence[DraftMonth] = ()
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Requirement types by id: "work-1", "work-2" and on for each aspect."""
    preferences: Mapping[str, DraftPreference] = field(default_factory=dict[str, DraftPreference])
    """Preferences by the ids of requirement types."""

    @property
    def background(self) -> dict[str, Any]:
        """The row of `background.json`."""
        row: dict[str, Any] = {}
        for name, value in self.draft.model_dump().items():
            row[name.replace("_", " ")] = value
        row["personality"] = self.personality
        return row

    @property
    def profile(self) -> dict[str, str]:
        """The background without the personality, as prompts show it."""
        profile: dict[str, str] = {}
        for name, value in self.background.items():
            if name != "personality":
                profile[name] = str(value)
        return profile

    @property
    def personality(self) -> dict[str, str]:
        """The levels of the Big Five, by their names in the released data."""
        levels = self.draft.personality.model_dump()
        return {name.capitalize(): str(level) for name, level in levels.items()}

    def types_of(self, aspect: str) -> dict[str, str]:
        """Return the requirement types of an aspect, e.g. "work", by id."""
        types: dict[str, str] = {}
        for type_id, text in self.types.items():
            if type_id.startswith(f"{aspect}-"):
                types[type_id] = text
        return types

    def months(self, until: str = "9999") -> list[str]:
        """Return the timeline up to the month of a day, a line per month."""
        last_month = until[:_MONTH_LENGTH]
        return [
            f"{month.month}: {month.events}" for month in self.timeline if month.month <= last_month
        ]


@dataclass(frozen=True)
class Topic:
    """A topic of a dialogue: eight candidate solutions, and what the user thinks of them."""

    draft: DraftTopic
    candidates: Sequence[str]
    analysis: str
    liked: Sequence[DraftChoice]
    disliked: Sequence[DraftChoice]


@dataclass
class Session:
    """Some days of a user's life that lead to requirements, and all that is written about them.

    The last day names the session. Experience, logs, topics and turns are filled in by later steps.
    """

    persona: Persona
    start: str
    """The first day."""
    end: str
    """The last day."""
    begins: str
    """YYYY-MM-DD HH:MM:SS."""
    ends: str
    """YYYY-MM-DD HH:MM:SS, when the dialogue begins."""
    requirement_ids: Sequence[str]
    situation: str
    previous_situation: str = ""
    """The situation before, with its span; "" for the user's first."""
    part: Part = ""
    """Where its dialogue belongs; "" if none is drawn for it."""
    experience: str = ""
    logs: list[DraftLog] = field(default_factory=list[DraftLog])
    topics: Sequence[Topic] = ()
    turns: list[DraftTurn] = field(default_factory=list[DraftTurn])

    @property
    def id(self) -> str:
        """How reports call it."""
        return f"{self.persona.id}/{self.end}"

    @property
    def first_minute(self) -> str:
        """When it begins, to the minute."""
        return self.begins[:_MINUTE_LENGTH]

    @property
    def last_minute(self) -> str:
        """When it ends, to the minute."""
        return self.ends[:_MINUTE_LENGTH]

    @property
    def span(self) -> str:
        """Beginning and end to the minute."""
        return f"{self.first_minute} ~ {self.last_minute}"
