"""The parts of a generated user, from profile to records.

Person ──> Persona ──> Situation ──> Session (experience, logs, topics, dialogue)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from ....signatures.synthesis_palset import DraftMonth, DraftPerson, DraftPreference, Language
from ....signatures.synthesis_palset_records import DraftLog, DraftTurn
from ....signatures.synthesis_palset_situations import DraftChoice, DraftTopic
from ..runner import Check, Checked, Runner, Step
from .wording import foreign

Code = Literal["zh", "en"]
Part = Literal["history", "query", ""]
LANGUAGES: Mapping[Code, Language] = {"zh": "Chinese", "en": "English"}
ASPECTS = ("work", "health", "family", "leisure")


@dataclass(frozen=True)
class Setting:
    """What a whole run has in common."""

    language: Code
    months: int | None
    """Months of every user; None draws 7 to 12."""
    seed: int
    runner: Runner
    reviews: int = 1
    """How often records are reviewed and corrected."""

    @property
    def inputs(self) -> dict[str, Any]:
        """The input that all writing prompts share."""
        return {"language": LANGUAGES[self.language]}

    def ask(self, step: Step, id: str, inputs: Mapping[str, Any], check: Check, last: Check | None = None) -> Any:
        """`Runner.ask` for what is written in the language of the data: texts in another one are refused."""

        def written(check: Check) -> Check:
            def checked(answer: Any) -> Checked:
                found, problems = check(answer), foreign(dict(answer.items()), self.language)
                return Checked(None, [*problems, *found.problems]) if problems else found

            return checked

        return self.runner.ask(step, id, self.inputs | dict(inputs), written(check), written(last) if last else None)


@dataclass(frozen=True)
class Person:
    """A user's profile, under its id ("0000")."""

    id: str
    draft: DraftPerson

    @property
    def profile(self) -> dict[str, str]:
        """The background without personality, as prompts show it."""
        return {name: str(value) for name, value in self.background.items() if name != "personality"}

    @property
    def personality(self) -> dict[str, str]:
        """Levels of the Big Five, by their names in the released data."""
        return {name.capitalize(): str(level) for name, level in self.draft.personality.model_dump().items()}

    @property
    def background(self) -> dict[str, Any]:
        """The row of `background.json`."""
        row = {name.replace("_", " "): value for name, value in self.draft.model_dump().items()}
        return row | {"personality": self.personality}


@dataclass(frozen=True)
class Persona:
    """A user with timeline, requirement types and preferences."""

    person: Person
    timeline: Sequence[DraftMonth]
    types: Mapping[str, str]
    """Requirement types by id, e.g. "work-1"."""
    preferences: Mapping[str, DraftPreference]

    def months_until(self, day: str) -> list[str]:
        """The timeline up to the month of a day, a line per month."""
        return months([one for one in self.timeline if one.month <= day[:7]])


@dataclass(frozen=True)
class Situation:
    """Some days that lead to requirements; its last day is its key."""

    start: str
    end: str
    begins: str
    """YYYY-MM-DD HH:MM:SS"""
    ends: str
    """YYYY-MM-DD HH:MM:SS, when the dialogue begins."""
    requirement_ids: Sequence[str]
    text: str

    @property
    def span(self) -> str:
        """Begin and end to the minute."""
        return f"{self.begins[:16]} ~ {self.ends[:16]}"


class Choice(BaseModel):
    """What the user thinks of the candidates of a topic."""

    analysis: str
    liked: list[DraftChoice]
    disliked: list[DraftChoice]


@dataclass(frozen=True)
class Topic:
    """One topic of a dialogue, with its solutions."""

    requirement_id: str
    draft: DraftTopic
    candidates: Sequence[str]
    choice: Choice

    @property
    def text(self) -> str:
        """Query, needs and requirement in JSON, as prompts show them."""
        return topic_text(self.draft)


@dataclass
class Session:
    """A situation with all that was made of it."""

    persona: Persona
    situation: Situation
    part: Part = ""
    """Where its dialogue belongs; "" if none is drawn for it."""
    experience: str = ""
    logs: list[DraftLog] = field(default_factory=list)
    topics: Sequence[Topic] = ()
    turns: list[DraftTurn] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Names it in reports."""
        return f"{self.persona.person.id}/{self.situation.end}"


def months(timeline: Sequence[DraftMonth]) -> list[str]:
    """A line per month, as prompts show a timeline."""
    return [f"{one.month}: {one.events}" for one in timeline]


def topic_text(draft: DraftTopic) -> str:
    """A topic without its type, in JSON: it must not reveal what the user likes."""
    return json.dumps(draft.model_dump(exclude={"requirement_type"}), ensure_ascii=False)
