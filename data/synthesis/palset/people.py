"""Steps 1 and 2 of PAL-Set: people, their past, and what they ask for and like.

1    people, ten a call
2-1  the months of each person
2-2  requirement types of work, health, family and leisure
2-3  preferences for each of these aspects
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dspy
from pydantic import TypeAdapter

from ....signatures.synthesis_palset import (
    DescribePreferences,
    DraftMonth,
    DraftPerson,
    DraftPreference,
    DraftType,
    InventPeople,
    NameRequirementTypes,
    NarrateMonths,
)
from ..runner import CheckResult, Step, accept_if_valid
from .dates import TODAY, months_of
from .records import Persona
from .setting import Setting
from .texts import LanguageCode, blank, length_problems, phrase_problems, text_problems

ASPECTS = ("work", "health", "family", "leisure")
BATCH = 10
"""People that one call invents."""
MIN_AGE = 18
MIN_TYPES = 4
MAX_TYPES = 5
"""Requirement types of an aspect."""

PEOPLE = Step("people", InventPeople)
TIMELINE = Step("timeline", NarrateMonths)
TYPES = Step("requirement types", NameRequirementTypes)
PREFERENCES = Step("preferences", DescribePreferences)

EXAMPLES: Mapping[LanguageCode, DraftPerson] = TypeAdapter(
    dict[LanguageCode, DraftPerson]
).validate_json(Path(__file__).with_name("examples.json").read_bytes())
"""A person that a batch is shown as an example, in each language; ours."""

_DESCRIPTIONS = ("occupation", "health_status", "family_members", "hobbies")
"""Fields of a person with two or three sentences."""


# Step 1: people.


def invent_people(count: int, setting: Setting) -> list[Persona]:
    """Invent people with the ids "0000" and on; those of a batch that was given up are missing."""
    people: list[Persona] = []
    for first in range(0, count, BATCH):
        batch_size = min(BATCH, count - first)
        drafts = _invent_batch(first, batch_size, people, setting) or []
        for number, draft in enumerate(drafts, first):
            people.append(Persona(f"{number:04d}", draft))
    return people


def _invent_batch(
    first: int, count: int, known_people: Sequence[Persona], setting: Setting
) -> list[DraftPerson] | None:
    """Ask for some people.

    Args:
        first: The number of the first of them.
        count: How many.
        known_people: Those of earlier batches, whom they must not resemble.
        setting: Asks the model.
    """
    known_names = [persona.draft.name for persona in known_people]
    inputs = {
        "count": count,
        "example": json.dumps(EXAMPLES[setting.language].model_dump(), ensure_ascii=False),
        "earlier_people": [
            f"{persona.draft.name}: {persona.draft.occupation}" for persona in known_people
        ],
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftPerson]]:
        return accept_if_valid(answer.people, people_problems(answer.people, count, known_names))

    return setting.ask(PEOPLE, f"{first:04d}-{first + count - 1:04d}", inputs, check)


def people_problems(
    people: Sequence[DraftPerson], count: int, known_names: Sequence[str]
) -> list[str]:
    """Return what is wrong with a batch of profiles.

    Args:
        people: The batch.
        count: How many were asked for.
        known_names: Names of people who exist already.
    """
    problems: list[str] = []
    if len(people) != count:
        problems.append(f"{len(people)} users; invent {count}")

    uses_of_name = Counter([*known_names, *(person.name for person in people)])
    for person in people:
        if blank(person.name):
            problems.append("a user has no name")
        if blank(person.gender):
            problems.append("a user has no gender")
        if uses_of_name[person.name] > 1:
            problems.append(f"two users are called {person.name}; use another name")
        if person.age < MIN_AGE:
            problems.append(f"{person.name}: {person.age} years is no age of a working adult")
        for field in _DESCRIPTIONS:
            problems += length_problems(f"{person.name}: {field}", getattr(person, field), 2, 3)
    # Two people of one name have the same problem.
    return list(dict.fromkeys(problems))


# Step 2: their past, and what they ask for and like.


def complete_personas(people: Sequence[Persona], setting: Setting) -> list[Persona]:
    """Give people a past, requirement types and preferences.

    Those for whom a step was given up are missing. Each step is done for all before the next.
    """
    runner = setting.runner
    with_past = _present(runner.map(lambda persona: add_timeline(persona, setting), people))
    with_types = _present(runner.map(lambda persona: add_types(persona, setting), with_past))
    return _present(runner.map(lambda persona: add_preferences(persona, setting), with_types))


def _present(personas: Iterable[Persona | None]) -> list[Persona]:
    """Return personas without those that were given up."""
    return [persona for persona in personas if persona is not None]


def add_timeline(persona: Persona, setting: Setting) -> Persona | None:
    """Step 2-1: tell the past months of a user; None if they were given up."""
    months = months_of(persona.id, setting.months, setting.seed)
    inputs = {"profile": persona.profile, "today": TODAY, "months": months}

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftMonth]]:
        problems = timeline_problems(answer.timeline, months, persona.draft.name)
        return accept_if_valid(answer.timeline, problems)

    timeline = setting.ask(TIMELINE, persona.id, inputs, check)
    if timeline is None:
        return None
    return replace(persona, timeline=timeline)


def timeline_problems(
    timeline: Sequence[DraftMonth], months: Sequence[str], user_name: str
) -> list[str]:
    """Return the problems of a timeline that a model wrote for a user, as messages to the model.

    Args:
        timeline: The months with their events.
        months: The months that were asked for, in order.
        user_name: The name of the user.
    """
    problems: list[str] = []
    timeline_months = [month.month for month in timeline]
    if timeline_months != list(months):
        problems.append(f"months are {timeline_months}; tell {', '.join(months)}")
    for month in timeline:
        problems += text_problems(month.month, month.events, 5, user_name)
    return problems


def add_types(persona: Persona, setting: Setting) -> Persona | None:
    """Step 2-2: name what a user asks for; None if that was given up."""
    inputs = {"profile": persona.profile, "timeline": persona.months()}

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftType]]:
        drafts: list[DraftType] = answer.requirement_types
        return accept_if_valid(drafts, type_problems(drafts))

    drafts = setting.ask(TYPES, persona.id, inputs, check)
    if drafts is None:
        return None

    types: dict[str, str] = {}
    for aspect in ASPECTS:
        texts = [draft.text.strip() for draft in drafts if draft.aspect == aspect]
        for number, text in enumerate(texts, 1):
            types[f"{aspect}-{number}"] = text
    return replace(persona, types=types)


def type_problems(types: Sequence[DraftType]) -> list[str]:
    """Return what is wrong with the requirement types of a user."""
    problems: list[str] = []
    types_per_aspect = Counter(draft.aspect for draft in types)
    for aspect in ASPECTS:
        count = types_per_aspect[aspect]
        if not MIN_TYPES <= count <= MAX_TYPES:
            problems.append(f"{aspect} has {count} requirement types; name 4 or 5")

    for draft in types:
        problems += phrase_problems(f"requirement type {draft.text.strip()!r:.60}", draft.text)

    uses_of_text = Counter(draft.text.strip() for draft in types)
    for text, count in uses_of_text.items():
        if count > 1:
            problems.append(f"requirement type {text!r} is there twice")
    return problems


def add_preferences(persona: Persona, setting: Setting) -> Persona | None:
    """Step 2-3: describe what a user likes, aspect by aspect; None if one was given up."""
    preferences: dict[str, DraftPreference] = {}
    is_complete = True
    for aspect in ASPECTS:
        drafts = _describe_preferences(persona, aspect, setting)
        if drafts is None:
            # The other aspects are asked for nevertheless; a later run finds their answers.
            is_complete = False
            continue
        for draft in drafts:
            preferences[draft.requirement_id] = draft
    if not is_complete:
        return None
    return replace(persona, preferences=preferences)


def _describe_preferences(
    persona: Persona, aspect: str, setting: Setting
) -> list[DraftPreference] | None:
    """Ask what a user likes and dislikes about each requirement type of an aspect."""
    types = persona.types_of(aspect)
    inputs = {
        "profile": persona.profile,
        "personality": persona.personality,
        "timeline": persona.months(),
        "aspect": aspect,
        "requirement_types": [f"{type_id}: {text}" for type_id, text in types.items()],
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftPreference]]:
        problems = preference_problems(answer.preferences, types, persona.draft.name)
        return accept_if_valid(answer.preferences, problems)

    return setting.ask(PREFERENCES, f"{persona.id}/{aspect}", inputs, check)


def preference_problems(
    preferences: Sequence[DraftPreference], types: Mapping[str, str], user_name: str
) -> list[str]:
    """Return what is wrong with the preferences for an aspect's requirement types.

    Args:
        preferences: One for each requirement type.
        types: The requirement types by id.
        user_name: The user's name, which texts must not give.
    """
    problems: list[str] = []
    ids = [preference.requirement_id for preference in preferences]
    if ids != list(types):
        problems.append(f"requirement ids are {ids}; give {', '.join(types)}, in this order")

    for preference in preferences:
        type_id = preference.requirement_id
        wanted_text = types.get(type_id)
        if wanted_text is not None and preference.requirement.strip() != wanted_text:
            problems.append(f"{type_id}: requirement is not {wanted_text!r}, word for word")
        problems += text_problems(f"{type_id} analysis", preference.analysis, 1, user_name)
        problems += text_problems(f"{type_id} pos", preference.pos, 4, user_name, 5)
        problems += text_problems(f"{type_id} neg", preference.neg, 4, user_name, 5)
        if preference.pos.strip() == preference.neg.strip():
            problems.append(f"{type_id}: pos and neg are the same")
    return problems
