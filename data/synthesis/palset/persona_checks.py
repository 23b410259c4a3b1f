"""What code can check of profiles, timelines, requirement types and preferences.

The rules of the released code (fields, levels, months, ids, wording, nothing empty), and those numbers of the paper's
prompts that can be counted: sentences at least, and that the user is not named. Every problem is a sentence for the
model that has to do better.

Limits: sentences are counted by their full stops, so one more than the prompt allows is let through. That no user is a
student or retired, and that types are abstract, is left to the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ....signatures.synthesis_palset import DraftMonth, DraftPerson, DraftPreference, DraftType
from .people import ASPECTS
from .wording import length_problems

TYPES = (4, 5)
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
        if not TYPES[0] <= counts[aspect] <= TYPES[1]:
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


def text_problems(what: str, text: str, fewest: int, name: str, most: int | None = None) -> list[str]:
    """What is wrong with a text that has to have so many sentences and must not give the user's name."""
    if blank(text):
        return [f"{what} is empty"]
    found = length_problems(what, text, fewest, most)
    return found + ([f"{what} names the user; say 'the user'"] if name.strip() and name.strip() in text else [])


def blank(text: str) -> bool:
    """Whether a text is empty, or the dots of a template."""
    return not text.strip(" .…\n\t")
