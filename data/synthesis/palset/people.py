"""The parts of a generated user, from profile to records, and the language that they are written in.

    Persona ──> Session (situation, experience, logs, topics, dialogue)

    a text is foreign    Chinese: more Latin words than Chinese characters; English: more characters than words
    a text is too long   more sentences than the prompt allows, and one more for the full stops of abbreviations

Texts of one or two words are passed over: labels, names and actions are such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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

    def ask(self, step: Step, id: str, inputs: Mapping[str, Any], check: Check, last: Check | None = None) -> Any:
        """`Runner.ask` for what is written in the language of the data: texts in another one are refused."""

        def written(check: Check) -> Check:
            def checked(answer: Any) -> Checked:
                found, problems = check(answer), foreign(dict(answer.items()), self.language)
                return Checked(None, [*problems, *found.problems]) if problems else found

            return checked

        inputs = {"language": LANGUAGES[self.language], **inputs}
        return self.runner.ask(step, id, inputs, written(check), written(last) if last else None)


@dataclass(frozen=True)
class Persona:
    """A user: profile, and with the second step timeline, requirement types and preferences."""

    id: str
    """E.g. "0000"."""
    draft: DraftPerson
    timeline: Sequence[DraftMonth] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    """Requirement types by id, e.g. "work-1"."""
    preferences: Mapping[str, DraftPreference] = field(default_factory=dict)

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

    def months(self, until: str = "9999") -> list[str]:
        """The timeline up to the month of a day, a line per month."""
        return [f"{one.month}: {one.events}" for one in self.timeline if one.month <= until[:7]]


@dataclass(frozen=True)
class Topic:
    """One topic of a dialogue: eight candidates, and what the user thinks of them."""

    draft: DraftTopic
    candidates: Sequence[str]
    analysis: str
    liked: Sequence[DraftChoice]
    disliked: Sequence[DraftChoice]


@dataclass
class Session:
    """A situation, some days that lead to requirements, with all that was made of it; its last day is its key."""

    persona: Persona
    start: str
    end: str
    begins: str
    """YYYY-MM-DD HH:MM:SS"""
    ends: str
    """YYYY-MM-DD HH:MM:SS, when the dialogue begins."""
    requirement_ids: Sequence[str]
    situation: str
    part: Part = ""
    """Where its dialogue belongs; "" if none is drawn for it."""
    experience: str = ""
    logs: list[DraftLog] = field(default_factory=list)
    topics: Sequence[Topic] = ()
    turns: list[DraftTurn] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Names it in reports."""
        return f"{self.persona.id}/{self.end}"

    @property
    def span(self) -> str:
        """Begin and end to the minute."""
        return f"{self.begins[:16]} ~ {self.ends[:16]}"


def topic_text(draft: DraftTopic) -> str:
    """A topic without its type, in JSON: it must not reveal what the user likes."""
    return json.dumps(draft.model_dump(exclude={"requirement_type"}), ensure_ascii=False)


# Each run of stops is tried once: texts are hostile input.
_STOPS = r"(?<![.!?])[.!?]++"
_ENDS = re.compile(rf"{_STOPS}(?=\s|$|[\"'”’)])|[。！？；]+")
_SURE_ENDS = re.compile(rf"{_STOPS}(?=\s+[^\sa-z]|\s*$)|[。！？]+")
_FEWEST = 3


def foreign(answer: Mapping[str, Any], language: Code) -> list[str]:
    """The texts of an answer that are not in a language, each with where it stands."""
    return [
        f"{where} is not in {LANGUAGES[language]}: {text.strip():.60}"
        for where, text in _texts("", answer)
        if not _is(text, language)
    ]


def length_problems(what: str, text: str, fewest: int = 1, most: int | None = None) -> list[str]:
    """What is wrong with the length of a text that has to have so many sentences."""
    found = _sentences(_ENDS, text)
    # Too many are those that no semicolon ends, nor a full stop before a small letter.
    if fewest <= found and (most is None or _sentences(_SURE_ENDS, text) <= most + 1):
        return []
    wanted = f"{fewest} or more" if most is None else f"{fewest} to {most}" if fewest < most else f"{most}"
    return [f"{what} has {found} sentences; write {wanted}"]


def text_problems(what: str, text: str, fewest: int, name: str, most: int | None = None) -> list[str]:
    """What is wrong with a text that has to have so many sentences and must not give the user's name."""
    if blank(text):
        return [f"{what} is empty"]
    found = length_problems(what, text, fewest, most)
    return found + ([f"{what} names the user; say 'the user'"] if name.strip() and name.strip() in text else [])


def blank(text: str) -> bool:
    """Whether a text is empty, or the dots of a template."""
    return not text.strip(" .…\n\t")


def _sentences(ends: re.Pattern[str], text: str) -> int:
    return len([part for part in ends.split(text) if re.search(r"\w", part)])


def _is(text: str, language: Code) -> bool:
    chinese, latin = len(re.findall(r"[\u4e00-\u9fff]", text)), len(re.findall(r"[^\W\d_\u3000-\u9fff]{2,}", text))
    other, own = (latin, chinese) if language == "zh" else (chinese, latin)
    return other < _FEWEST or other <= own


def _texts(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, BaseModel):
        yield from _texts(where, dict(value))
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(f"{where}.{name}" if where else name, part)
    elif isinstance(value, list):
        for n, part in enumerate(value, 1):
            yield from _texts(f"{where}[{n}]", part)
