"""The prompts that invent the people of a PAL-Set and their months, in the order of asking.

Source: Mem-PAL, appendix E, steps 1 to 5-3; rules and fields are carried over in our own words.

- For each set: `InventPeople` (step 1).
- For each person: `NarrateMonths` (2-1), `NameRequirementTypes` (2-2) and `DescribePreferences`
  (2-3).
- For each month: `PlanSituations` (3).
- For each situation: `DescribeExperience` (4) and `WriteRequirements` (5-1). Then
  `ProposeCandidates` (5-2), without a look at the user as in the paper, and `ChooseSolutions`
  (5-3).

Instructions are English for both languages of the data. `language` says in which one the texts are
written; the paper's authors translated their English data. `synthesis_palset_records.py` has the
prompts of the steps after these.
"""

from __future__ import annotations

from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

Language = Literal["Chinese", "English"]
Aspect = Literal["work", "health", "family", "leisure"]

_CHINESE_NAMES = {
    "低": "low",
    "中": "medium",
    "高": "high",
    "工作": "work",
    "健康": "health",
    "家庭": "family",
    "休闲": "leisure",
}


def _parse_name(value: object) -> object:
    """Return the English name of a level or an aspect in lower case."""
    if not isinstance(value, str):
        return value
    name = value.strip()
    return _CHINESE_NAMES.get(name, name.lower())


def _parse_list(value: object) -> object:
    """Return a lone text or record as a list of one."""
    return [value] if isinstance(value, dict | str | BaseModel) else value


Level = Annotated[Literal["low", "medium", "high"], BeforeValidator(_parse_name)]

Texts = Annotated[list[str], BeforeValidator(_parse_list)]
"""A list of texts; a model may give a lone one."""


class Personality(BaseModel):
    """The Big Five personality traits."""

    openness: Level
    conscientiousness: Level
    extraversion: Level
    agreeableness: Level
    neuroticism: Level


class DraftPerson(BaseModel):
    """One user."""

    name: str
    gender: str
    age: int = Field(description="in years")
    occupation: str = Field(description="two or three sentences")
    health_status: str = Field(description="two or three sentences")
    family_members: str = Field(description="two or three sentences")
    hobbies: str = Field(description="two or three sentences")
    personality: Personality


class DraftMonth(BaseModel):
    """What a user experiences in a month."""

    month: str = Field(description="YYYY-MM")
    events: str = Field(description="five sentences or more")


class DraftType(BaseModel):
    """A type of advice that a user repeatedly asks for."""

    aspect: Annotated[Aspect, BeforeValidator(_parse_name)]
    text: str = Field(description="a phrase that is abstract enough for many occasions")


class DraftPreference(BaseModel):
    """What a user thinks of solutions for one requirement type."""

    requirement_id: str = Field(description="e.g. work-1")
    requirement: str = Field(description="the text of the requirement type, repeated exactly")
    analysis: str = Field(
        description="one paragraph: what this user probably prefers here, and why"
    )
    pos: str = Field(
        description="four or five sentences: which suggestions the user tends to accept"
    )
    neg: str = Field(
        description="four or five sentences: which suggestions the user tends to reject"
    )


class DraftSituation(BaseModel):
    """Some days or weeks of a user's life that lead to requirements."""

    start: str = Field(description="first day, YYYY-MM-DD")
    end: str = Field(description="last day, YYYY-MM-DD")
    requirement_ids: Texts = Field(description="one to three ids of requirement types")
    situation: str = Field(description="one paragraph of five sentences or more")


class DraftNeed(BaseModel):
    """A need that the user does not state."""

    need: str = Field(description="the need, briefly")
    evidences: Texts = Field(
        description="the evidence: one to five details of the background or the experiences"
    )


class DraftTopic(BaseModel):
    """What a user asks about in a dialogue."""

    requirement_type: str = Field(description="the text of the type, repeated exactly")
    user_query: str = Field(
        description="how the user opens the topic, in the first person: brief and vague"
    )
    implicit_needs: Annotated[list[DraftNeed], BeforeValidator(_parse_list)] = Field(
        description="exactly two"
    )
    requirement: str = Field(
        description="the complete need: the query and the implicit needs combined"
    )


class DraftCandidates(BaseModel):
    """Solutions for one topic."""

    topic: str = Field(description="e.g. topic-1")
    solutions: Texts = Field(description="exactly eight, one sentence each")


class DraftChoice(BaseModel):
    """A solution with the user's opinion about it."""

    solution: str = Field(description="the text of the candidate, repeated exactly")
    feedback_reason: str = Field(description="the user's own reason, in one third-person sentence")


class InventPeople(dspy.Signature):
    """Invent users of a personal assistant: the facts of their lives and their personalities.

    - Describe occupation, health status, family members and hobbies in two or three sentences each. There, write "the
      user" (用户 in Chinese) instead of the user's name.
    - Give a level for each of the Big Five personality traits.
    - Make the users as different as possible, from one another and from the earlier people. No user may be a student
      or retired.
    - Show how different real lives are. Do not assume a harmonious family, good health, rich hobbies or an open and
      friendly character. Some families have conflicts or live far apart, some people are ill, some have no hobbies, and
      some are reserved, careless, shy, harsh or anxious.
    - The example only shows the kind of content and the level of detail. Do not invent a variation of that person.
    """

    language: Language = dspy.InputField(desc="language of all texts and names")
    count: int = dspy.InputField(desc="how many users to invent")
    example: str = dspy.InputField(desc="one user, in JSON")
    earlier_people: list[str] = dspy.InputField(desc="users that exist already")
    people: list[DraftPerson] = dspy.OutputField(desc="the new users")


class NarrateMonths(dspy.Signature):
    """Write what a user experienced in each of the past months.

    - Write one entry for each month in the list, in this order, with at least five sentences.
    - The events come from work, health, family and leisure. An entry does not have to cover all four, but it must cover
      at least two.
    - Report events objectively. Do not describe the user's personality, opinions or particular preferences.
    - Later months must continue earlier ones, and everything must fit the profile.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    today: str = dspy.InputField(desc="the current date; all events lie before it")
    months: list[str] = dspy.InputField(desc="the months to write about, YYYY-MM")
    timeline: list[DraftMonth] = dspy.OutputField(desc="one entry per month")


class NameRequirementTypes(dspy.Signature):
    """Name the types of advice that a user may ask a personal assistant for in daily life.

    You are given the user's profile and past months. The user asks about matters from their own background and
    experiences.
    - Name four or five types for each of the aspects work, health, family and leisure. Some aspects may have four types
      and others five.
    - Each type must be a short and fairly abstract phrase that stays relevant over all the months. Do not name
      something that comes up only once, at one moment or in one situation.
    - No two types may be the same.
    """

    language: Language = dspy.InputField(desc="language of the phrases")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    requirement_types: list[DraftType] = dspy.OutputField(desc="four or five types per aspect")


class DescribePreferences(dspy.Signature):
    """Describe which solutions a user tends to accept and which they tend to reject, for each given requirement type.

    The user asks a personal assistant for these types of advice and accepts or rejects its suggestions.
    - Write one entry per requirement type, in the given order. Repeat its id and its text exactly.
    - First write the analysis: one paragraph on what the user probably prefers and why, based on the profile and the
      personality. Use the past months only to avoid contradictions.
    - Then describe the suggestions that the user tends to accept and those that the user tends to reject, with four or
      five clear, specific sentences each (fields `pos` and `neg`).
    - Both descriptions must be typical of this user. Do not list what everybody would accept, or what everybody would
      reject as unsuitable.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    aspect: Aspect = dspy.InputField(desc="the aspect that the requirement types belong to")
    requirement_types: list[str] = dspy.InputField(desc="the id and the text of each type")
    preferences: list[DraftPreference] = dspy.OutputField(desc="one entry per requirement type")


class PlanSituations(dspy.Signature):
    """Expand the events of one month in a user's life into four to six situations that make the user need advice.

    The user asks a personal assistant for advice about their own background and experiences. You are given the profile,
    the requirement types, the situations of the month before, and the events of this month.
    - Base the situations on the events. The profile describes what is permanent, and the earlier situations what
      happened just before. Do not contradict them.
    - The situations must follow one another without gaps: each begins on the day after the previous one ends. The first
      one begins on the day after `begin_after`, or, if that is empty, on the first day of the month. Each situation
      must last more than one day.
    - All situations must end within the month. The last one must end on one of the last three days of the month.
    - For each situation, list the ids of the one to three requirement types that it leads to, preferably more than one.
      They may belong to the same aspect or to different ones.
    - Describe each situation in one paragraph of at least five sentences: the experiences that make the user need
      advice of these types. Cover the whole period instead of a single moment, and do not emphasise dates.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    requirement_types: list[str] = dspy.InputField(desc="the id and the text of each type")
    earlier_situations: list[str] = dspy.InputField(
        desc="situations of the month before; empty for the first month"
    )
    begin_after: str = dspy.InputField(
        desc="the last day of the last earlier situation; empty for the first month"
    )
    month: str = dspy.InputField(desc="the month, YYYY-MM")
    events: str = dspy.InputField(desc="what the user experienced in the month")
    situations: list[DraftSituation] = dspy.OutputField(desc="four to six situations, in order")


class DescribeExperience(dspy.Signature):
    """Expand a user's current situation into a detailed account of what the user experienced in this period.

    - Follow the current situation. Use the profile and the previous situation only to avoid contradictions.
    - Cover the whole period instead of a single moment.
    - Report only objective events, with more detail than the situation. Leave out all intentions, thoughts,
      realisations and feelings.
    - Describe concrete everyday events and how one led to another. Exact times are not important.
    - Right after the period ends, the user starts a dialogue with a personal assistant. Do not mention this dialogue.
      Do not end with anything that would make it impossible, such as the user having fallen asleep. Do not describe
      anything that happens after the period ends. The times in `span` use the 24-hour format.
    - Never write the user's name. Write "the user" (用户 in Chinese). Give only the account, without remarks.
    """

    language: Language = dspy.InputField(desc="language of the account")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    previous_situation: str = dspy.InputField(
        desc="period and text of the previous situation; empty at the beginning"
    )
    span: str = dspy.InputField(desc="beginning and end of the current situation")
    situation: str = dspy.InputField(desc="the current situation")
    experience: str = dspy.OutputField(desc="the detailed account")


class WriteRequirements(dspy.Signature):
    """For each requirement type, write one topic that the user now raises with the assistant.

    The user's question is vague. From what it knows about the user, the assistant should work out what the question
    leaves unsaid.
    - Write one topic per requirement type, in the given order. Repeat the text of the type exactly.
    - The query opens the topic in the current situation. It must be as brief and vague as possible, with hardly any
      details of background or experiences.
    - Give exactly two implicit needs per topic: intentions that the query does not state but that the assistant should
      recognise. Describe each one briefly; it is about one thing. Add one to five pieces of evidence: details of the
      background or the experiences themselves, without their dates and without reasoning. Both needs must stay close to
      the requirement type. Together they must add up to one focused request.
    - The requirement describes the user's actual need completely and in detail. It combines the query and the two needs
      and stays close to the requirement type.
    - Never write the user's name. The query is in the first person; elsewhere write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    situation: str = dspy.InputField(desc="the user's recent situation")
    experience: str = dspy.InputField(desc="the user's recent experiences in detail")
    requirement_types: list[str] = dspy.InputField(desc="the types to write topics for")
    topics: list[DraftTopic] = dspy.OutputField(desc="one topic per requirement type")


class ProposeCandidates(dspy.Signature):
    """Suggest eight solutions for each of a user's requirements.

    - Each solution must meet its requirement and be one sentence.
    - The eight solutions of a topic must be as different as possible, so that they suit people with different
      preferences or circumstances.
    - Cover all topics, each under its key.
    """

    language: Language = dspy.InputField(desc="language of the solutions")
    topics: list[str] = dspy.InputField(
        desc="per topic: key, query, implicit needs with evidence, and requirement"
    )
    candidates: list[DraftCandidates] = dspy.OutputField(desc="the solutions of each topic")


class ChooseSolutions(dspy.Signature):
    """Choose the two solutions that a user would like most and the two that the user would like least.

    - All candidates are valid solutions to the requirement, but they may not suit this user. Judge them by the user's
      background (`profile`, `personality` and `situation`) and by the given preferences (`likes` and `dislikes`).
      Prefer solutions that fit both; one that fits only one ranks lower.
    - First analyse all candidates. Then give the two best and the two worst. For each one, say why in one third-person
      sentence that gives the user's own reason and refers to their background or preferences.
    - Repeat the solutions word for word, without any change.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    situation: str = dspy.InputField(desc="the user's recent situation")
    topic: str = dspy.InputField(desc="query, implicit needs with evidence, and requirement")
    likes: str = dspy.InputField(
        desc="which solutions the user likes for requirements of this type"
    )
    dislikes: str = dspy.InputField(
        desc="which solutions the user dislikes for requirements of this type"
    )
    candidates: list[str] = dspy.InputField(desc="the candidate solutions")
    analysis: str = dspy.OutputField(desc="analysis of all candidates")
    liked: list[DraftChoice] = dspy.OutputField(desc="the two best, exactly two")
    disliked: list[DraftChoice] = dspy.OutputField(desc="the two worst, exactly two")
