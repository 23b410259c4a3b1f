"""The parts of a generated user and the rules of their texts; steps 1 and 2 of PAL-Set: people, and what they like.

    people, ten a call ──> timeline ──> requirement types ──> preferences of work, health, family, leisure

    a text is foreign    Chinese: more Latin words than Chinese characters; English: more characters than words
    a text is too long   more sentences than the prompt allows, and one more for the full stops of abbreviations

Texts of one or two words (labels, names, actions) are in no language. The example that a batch is shown is ours.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from ....errors import UserError
from ....signatures.synthesis_palset import (
    DescribePreferences,
    DraftChoice,
    DraftMonth,
    DraftPerson,
    DraftPreference,
    DraftTopic,
    DraftType,
    InventPeople,
    Language,
    NameRequirementTypes,
    NarrateMonths,
)
from ....signatures.synthesis_palset_records import DraftLog, DraftTurn
from ..runner import Check, CheckResult, Runner, Step, accept_if_valid

Code = Literal["zh", "en"]
Part = Literal["history", "query", ""]
LANGUAGES: Mapping[Code, Language] = {"zh": "Chinese", "en": "English"}
ASPECTS = ("work", "health", "family", "leisure")
TODAY = "2025-01-01"
PEOPLE = Step("people", InventPeople)
TIMELINE = Step("timeline", NarrateMonths)
TYPES = Step("requirement types", NameRequirementTypes)
PREFERENCES = Step("preferences", DescribePreferences)


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
            def checked(answer: Any) -> CheckResult:
                found, problems = check(answer), foreign(dict(answer.items()), self.language)
                return CheckResult(None, [*problems, *found.problems]) if problems else found

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


def drawn_by(seed: int, *names: str) -> random.Random:
    """Draws that the run's seed and some names decide."""
    return random.Random(" ".join([str(seed), *names]))


SPAN = (7, 12)
"""Fewest and most months of a user, where their number is drawn."""


def months_of(user: str, count: int | None, seed: int) -> list[str]:
    """Return a user's months, those before `TODAY`, oldest first, as YYYY-MM; their number is drawn if None.

    Raises:
        UserError: There would be no month.
    """
    if count is None:
        count = drawn_by(seed, user, "months").randint(*SPAN)
    if count < 1:
        raise UserError(f"months = {count}: every user has one month or more; None draws {SPAN[0]} to {SPAN[1]}")
    last = int(TODAY[:4]) * 12 + int(TODAY[5:7]) - 2
    return [f"{n // 12:04d}-{n % 12 + 1:02d}" for n in range(last - count + 1, last + 1)]


BATCH = 10

EXAMPLES: Mapping[Code, DraftPerson] = TypeAdapter(dict[Code, DraftPerson]).validate_json(
    Path(__file__).with_name("examples.json").read_bytes()
)
"""A person of the kind that is wanted, in each language; ours."""


def invent(count: int, setting: Setting) -> list[Persona]:
    """Invents so many people, ids "0000" and on; those of a batch that was given up are missing."""
    found: list[Persona] = []
    for first in range(0, count, BATCH):
        wanted = min(BATCH, count - first)
        inputs = {
            "count": wanted,
            "example": json.dumps(EXAMPLES[setting.language].model_dump(), ensure_ascii=False),
            "earlier_people": [f"{one.draft.name}: {one.draft.occupation}" for one in found],
        }
        check = accept_if_valid("people", people_problems, wanted, [one.draft.name for one in found])
        drafts = setting.ask(PEOPLE, f"{first:04d}-{first + wanted - 1:04d}", inputs, check) or []
        found += [Persona(f"{first + n:04d}", draft) for n, draft in enumerate(drafts)]
    return found


def personas(people: Sequence[Persona], setting: Setting) -> list[Persona]:
    """Gives people a past and a taste, in their order; those for whom a step was given up are missing."""
    found = list(people)
    for step in (_timeline, _types, _preferences):
        made = setting.runner.map(lambda persona, step=step: step(persona, setting), found)
        found = [persona for persona in made if persona is not None]
    return found


def _timeline(persona: Persona, setting: Setting) -> Persona | None:
    wanted = months_of(persona.id, setting.months, setting.seed)
    inputs = {"profile": persona.profile, "today": TODAY, "months": wanted}
    told = setting.ask(
        TIMELINE, persona.id, inputs, accept_if_valid("timeline", timeline_problems, wanted, persona.draft.name)
    )
    return told and replace(persona, timeline=told)


def _types(persona: Persona, setting: Setting) -> Persona | None:
    inputs = {"profile": persona.profile, "timeline": persona.months()}
    drafts: list[DraftType] | None = setting.ask(
        TYPES, persona.id, inputs, accept_if_valid("requirement_types", type_problems)
    )
    if drafts is None:
        return None
    by_aspect = {aspect: [one.text.strip() for one in drafts if one.aspect == aspect] for aspect in ASPECTS}
    types = {f"{aspect}-{n}": text for aspect, texts in by_aspect.items() for n, text in enumerate(texts, 1)}
    return replace(persona, types=types)


def _preferences(persona: Persona, setting: Setting) -> Persona | None:
    found: list[list[DraftPreference] | None] = []
    for aspect in ASPECTS:
        types = {id: text for id, text in persona.types.items() if id.startswith(aspect)}
        inputs = {
            "profile": persona.profile,
            "personality": persona.personality,
            "timeline": persona.months(),
            "aspect": aspect,
            "requirement_types": [f"{id}: {text}" for id, text in types.items()],
        }
        check = accept_if_valid("preferences", preference_problems, types, persona.draft.name)
        found.append(setting.ask(PREFERENCES, f"{persona.id}/{aspect}", inputs, check))
    if None in found:
        return None
    return replace(persona, preferences={one.requirement_id: one for part in found for one in part or ()})


TYPE_COUNT = (4, 5)
"""Requirement types of an aspect."""
_TEXTS = ("occupation", "health_status", "family_members", "hobbies")


def people_problems(people: Sequence[DraftPerson], count: int, taken: Sequence[str]) -> list[str]:
    """What is wrong with a batch of profiles; `taken` are names that exist already."""
    found = [] if len(people) == count else [f"{len(people)} users; invent {count}"]
    names = Counter([*taken, *(person.name for person in people)])
    for person in people:
        for name in ("name", "gender"):
            found += [f"a user has no {name}"] if blank(getattr(person, name)) else []
        found += [f"two users are called {person.name}; use another name"] if names[person.name] > 1 else []
        found += [f"{person.name}: {person.age} years is no age of a working adult"] if person.age < 18 else []
        for name in _TEXTS:
            found += length_problems(f"{person.name}: {name}", getattr(person, name), 2, 3)
    return list(dict.fromkeys(found))


def timeline_problems(timeline: Sequence[DraftMonth], months: Sequence[str], name: str) -> list[str]:
    """What is wrong with the months of a user."""
    told = [one.month for one in timeline]
    found = [] if told == list(months) else [f"months are {told}; tell {', '.join(months)}"]
    for one in timeline:
        found += text_problems(one.month, one.events, 5, name)
    return found


def type_problems(types: Sequence[DraftType]) -> list[str]:
    """What is wrong with the requirement types of a user."""
    found = []
    counts = Counter(one.aspect for one in types)
    for aspect in ASPECTS:
        if not TYPE_COUNT[0] <= counts[aspect] <= TYPE_COUNT[1]:
            found.append(f"{aspect} has {counts[aspect]} requirement types; name 4 or 5")
    for one in types:
        what = f"requirement type {one.text.strip()!r:.60}"
        found += [f"{what} is empty"] if blank(one.text) else length_problems(what, one.text, 1, 1)
    repeated = [text for text, n in Counter(one.text.strip() for one in types).items() if n > 1]
    return found + [f"requirement type {text!r} is there twice" for text in repeated]


def preference_problems(preferences: Sequence[DraftPreference], types: Mapping[str, str], name: str) -> list[str]:
    """What is wrong with the preferences for an aspect's requirement types."""
    ids = [one.requirement_id for one in preferences]
    found = [] if ids == list(types) else [f"requirement ids are {ids}; give {', '.join(types)}, in this order"]
    for one in preferences:
        wanted = types.get(one.requirement_id)
        if wanted is not None and one.requirement.strip() != wanted:
            found.append(f"{one.requirement_id}: requirement is not {wanted!r}, word for word")
        found += text_problems(f"{one.requirement_id} analysis", one.analysis, 1, name)
        found += text_problems(f"{one.requirement_id} pos", one.pos, 4, name, 5)
        found += text_problems(f"{one.requirement_id} neg", one.neg, 4, name, 5)
        if one.pos.strip() == one.neg.strip():
            found.append(f"{one.requirement_id}: pos and neg are the same")
    return found
