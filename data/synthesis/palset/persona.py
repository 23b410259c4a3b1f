"""Steps 1 and 2 of PAL-Set: people in batches of ten, then timeline, requirement types and preferences of each.

    people ──> timeline ──> requirement types ──> preferences of work, health, family, leisure

Checked are the rules of the released code (fields, levels, months, ids, wording, nothing empty), and those numbers of
the paper's prompts that can be counted. A batch knows names and occupations of the people before it. The examples that
it is shown are ours; the authors had ten of their own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....signatures.synthesis_palset import (
    DescribePreferences,
    DraftMonth,
    DraftPerson,
    DraftPreference,
    DraftType,
    InventPeople,
    NameRequirementTypes,
    NarrateMonths,
    Personality,
)
from ..runner import Step, whole
from .life import TODAY, months_of
from .people import ASPECTS, Code, Persona, Setting, blank, length_problems, text_problems

PEOPLE = Step("people", InventPeople)
TIMELINE = Step("timeline", NarrateMonths)
TYPES = Step("requirement types", NameRequirementTypes)
PREFERENCES = Step("preferences", DescribePreferences)
BATCH = 10

_LEVELS = Personality(
    openness="medium", conscientiousness="high", extraversion="low", agreeableness="low", neuroticism="medium"
)
EXAMPLES: dict[Code, DraftPerson] = {
    "en": DraftPerson(
        name="Marta Quill",
        gender="female",
        age=46,
        occupation="The user drives a tram on the early shift. Twice a year she trains newcomers and finds it dull.",
        health_status="The user has had trouble with one knee since a fall. Otherwise she is well, though she smokes.",
        family_members="The user is divorced and sees her grown daughter rarely. A brother lives in the same street.",
        hobbies="The user repairs old radios in the cellar. She gave up singing in a choir some years ago.",
        personality=_LEVELS,
    ),
    "zh": DraftPerson(
        name="乔玉梅",
        gender="女",
        age=46,
        occupation="用户是一名开早班的电车司机。她每年带两批新人，对此并不热心。",
        health_status="用户几年前摔伤过膝盖，走远路时会疼。除此之外身体尚可，但一直没有戒烟。",
        family_members="用户离异，成年的女儿很少回来。她有一个弟弟住在同一条街上。",
        hobbies="用户喜欢在地下室修旧收音机。她以前参加过合唱团，后来不去了。",
        personality=_LEVELS,
    ),
}
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
        check = whole("people", people_problems, wanted, [one.draft.name for one in found])
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
    told = setting.ask(TIMELINE, persona.id, inputs, whole("timeline", timeline_problems, wanted, persona.draft.name))
    return told and replace(persona, timeline=told)


def _types(persona: Persona, setting: Setting) -> Persona | None:
    inputs = {"profile": persona.profile, "timeline": persona.months()}
    drafts: list[DraftType] | None = setting.ask(TYPES, persona.id, inputs, whole("requirement_types", type_problems))
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
        check = whole("preferences", preference_problems, types, persona.draft.name)
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
