"""The prompts that invent the people of a PAL-Set: profiles, months, what they ask about, and what they like.

Mem-PAL, appendix E, steps 1 to 2-3. The rules and the fields are the paper's, the words ours; instructions are English
for both languages of the data, and `language` says in which one the texts are written. Each prompt takes `complaints`,
what code found wrong with the last attempt, so that a retry is another question.

Limits: the authors asked in Chinese and had their English data translated; here both are written at first hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

Language = Literal["Chinese", "English"]
Aspect = Literal["work", "health", "family", "leisure"]


_CHINESE: Mapping[str, str] = MappingProxyType(
    {"低": "low", "中": "medium", "高": "high", "工作": "work", "健康": "health", "家庭": "family", "休闲": "leisure"}
)


def _plain(value: object) -> object:
    return _CHINESE.get(value.strip(), value.strip().lower()) if isinstance(value, str) else value


Level = Annotated[Literal["low", "medium", "high"], BeforeValidator(_plain)]


class Personality(BaseModel):
    """The Big Five."""

    openness: Level
    conscientiousness: Level
    extraversion: Level
    agreeableness: Level
    neuroticism: Level


class DraftPerson(BaseModel):
    """One user in outline."""

    name: str
    gender: str
    age: int = Field(description="in years")
    occupation: str = Field(description="two or three sentences")
    health_status: str = Field(description="two or three sentences")
    family_members: str = Field(description="two or three sentences")
    hobbies: str = Field(description="two or three sentences")
    personality: Personality


class DraftMonth(BaseModel):
    """What happens to a user in a month."""

    month: str = Field(description="YYYY-MM")
    events: str = Field(description="five sentences or more")


class DraftType(BaseModel):
    """A kind of advice that a user comes back for."""

    aspect: Annotated[Aspect, BeforeValidator(_plain)]
    text: str = Field(description="a phrase, abstract enough for many occasions")


class DraftPreference(BaseModel):
    """What a user thinks of solutions for one requirement type."""

    requirement_id: str = Field(description="e.g. work-1")
    requirement: str = Field(description="the requirement type, word for word")
    analysis: str = Field(description="one paragraph: what this user is likely to prefer here, and why")
    pos: str = Field(description="four or five sentences: which suggestions the user tends to accept")
    neg: str = Field(description="four or five sentences: which suggestions the user tends to reject")


class InventPeople(dspy.Signature):
    """Invent users of a personal assistant, each with the facts of their life and a personality.

    - Work, health, family and leisure get two or three sentences each. Speak of "the user" there (用户 in Chinese).
    - The personality has a level for each of the Big Five.
    - Cover groups of people as different as possible, from one another and from the earlier people. Nobody is a
      student or retired.
    - Real lives differ. Families may be in conflict or far away, health may be poor, leisure may be empty, and a
      character may be closed, careless, shy, harsh or anxious: let all of that occur, do not fall back on harmony,
      good health, rich hobbies and friendly optimism.
    - The example shows the kind of content and its level of detail only; do not vary it.
    """

    language: Language = dspy.InputField(desc="language of all texts and names")
    count: int = dspy.InputField(desc="how many users")
    example: str = dspy.InputField(desc="one user, in JSON")
    earlier_people: list[str] = dspy.InputField(desc="users that exist already")
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    people: list[DraftPerson] = dspy.OutputField()


class NarrateMonths(dspy.Signature):
    """Tell what happened to this user in each of the past months.

    - One entry per month of the list, in its order, five sentences or more each.
    - The events come from work, health, family and leisure. A month need not touch all four, but touches more than one.
    - Report objective events. Leave out personality, opinions and particular likes.
    - Later months follow from earlier ones, and everything fits the profile.
    - Never give the user's name; say "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    today: str = dspy.InputField(desc="the day on which the months are looked back upon")
    months: list[str] = dspy.InputField(desc="the months to tell, YYYY-MM")
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    timeline: list[DraftMonth] = dspy.OutputField()


class NameRequirementTypes(dspy.Signature):
    """Name the kinds of advice for which this user would turn to a personal assistant in daily life.

    The user asks about what belongs to their own background and experiences.
    - Name four or five kinds for each of the aspects work, health, family and leisure; the numbers may differ.
    - Each is a brief phrase, rather abstract, and covers something that lasts through the months. What comes up once,
      at one moment or in one situation, is no kind.
    - The kinds differ from one another.
    """

    language: Language = dspy.InputField(desc="language of the phrases")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    requirement_types: list[DraftType] = dspy.OutputField()


class DescribePreferences(dspy.Signature):
    """Say which solutions this user would welcome and which they would turn down, for each requirement type given.

    The user asks a personal assistant for advice on these matters, and accepts or rejects what it suggests.
    - One entry per requirement type, in the order given, with its id and its wording repeated exactly.
    - The analysis comes first: one paragraph on the likely preferences and their reasons, drawn from profile and
      personality. The past months serve only to keep the preferences free of contradictions.
    - Then the suggestions that the user tends to accept, and those that the user tends to reject: four or five definite
      sentences for either side.
    - Both sides show what is peculiar to this user. What anybody would accept does not belong on the first side, and
      what anybody would find improper does not belong on the second.
    - Never give the user's name; say "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    aspect: Aspect = dspy.InputField()
    requirement_types: list[str] = dspy.InputField(desc="id and wording of each")
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    preferences: list[DraftPreference] = dspy.OutputField()
