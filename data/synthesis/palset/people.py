"""The parts of a generated user, from profile to records, and the language that they are written in.

    Person ──> Persona ──> Situation ──> Session (experience, logs, topics, dialogue)

    a text is foreign    Chinese: more Latin words than Chinese characters; English: more characters than words
    a text is too long   more sentences than the prompt allows, and one more for the full stops of abbreviations

Texts of one or two words are passed over: labels, names and actions are such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import BaseModel

from ....signatures.synthesis_palset import DraftChoice, DraftMonth, DraftPerson, DraftPreference, DraftTopic, Language
from ....signatures.synthesis_palset_records import DraftLog, DraftTurn
from ..runner import Check, Checked, Runner, Step

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


# Each run of stops is tried once: texts are hostile input.
_STOPS = r"(?<![.!?])[.!?]++"
_ENDS = re.compile(rf"{_STOPS}(?=\s|$|[\"'”’)])|[。！？；]+")
_SURE_ENDS = re.compile(rf"{_STOPS}(?=\s+[^\sa-z]|\s*$)|[。！？]+")
_FEWEST = 3
_SPARE = 1
_NAMES: Mapping[str, str] = {"zh": "Chinese", "en": "English"}


def foreign(answer: Mapping[str, Any], language: Literal["zh", "en"]) -> list[str]:
    """The texts of an answer that are not in a language, each with where it stands."""
    return [
        f"{where} is not in {_NAMES[language]}: {text.strip():.60}"
        for where, text in _texts("", answer)
        if not _is(text, language)
    ]


def sentences(text: str) -> int:
    """How many sentences a text has, English or Chinese."""
    return _parts(_ENDS, text)


def length_problems(what: str, text: str, fewest: int = 1, most: int | None = None) -> list[str]:
    """What is wrong with the length of a text that has to have so many sentences."""
    found = sentences(text)
    if fewest <= found and (most is None or _surely(text) <= most + _SPARE):
        return []
    wanted = f"{fewest} or more" if most is None else f"{fewest} to {most}" if fewest < most else f"{most}"
    return [f"{what} has {found} sentences; write {wanted}"]


def _surely(text: str) -> int:
    """How many sentences a text has at least: no semicolon ends one, nor a full stop before a small letter."""
    return _parts(_SURE_ENDS, text)


def _parts(ends: re.Pattern[str], text: str) -> int:
    return len([part for part in ends.split(text) if re.search(r"\w", part)])


def _is(text: str, language: Literal["zh", "en"]) -> bool:
    chinese, latin = len(re.findall(r"[\u4e00-\u9fff]", text)), len(re.findall(r"[^\W\d_\u3000-\u9fff]{2,}", text))
    if language == "zh":
        return latin < _FEWEST or latin <= chinese
    return chinese < _FEWEST or chinese <= latin


def _texts(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, BaseModel):
        yield from _texts(where, dict(value))
    elif isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield from _texts(f"{where}.{name}" if where else name, part)
    elif isinstance(value, list):
        for n, part in enumerate(cast("list[Any]", value), 1):
            yield from _texts(f"{where}[{n}]", part)


def text_problems(what: str, text: str, fewest: int, name: str, most: int | None = None) -> list[str]:
    """What is wrong with a text that has to have so many sentences and must not give the user's name."""
    if blank(text):
        return [f"{what} is empty"]
    found = length_problems(what, text, fewest, most)
    return found + ([f"{what} names the user; say 'the user'"] if name.strip() and name.strip() in text else [])


def blank(text: str) -> bool:
    """Whether a text is empty, or the dots of a template."""
    return not text.strip(" .…\n\t")
