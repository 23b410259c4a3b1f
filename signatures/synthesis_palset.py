"""The prompts that invent the people of a PAL-Set and their months: what they experience, ask for and prefer.

Mem-PAL, appendix E, steps 1 to 5-3, rules and fields in our own words; instructions are English for both languages of
the data, `language` says in which one the texts are written (the authors translated their English data). As in the
paper, candidates are written without a look at the user.
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

    aspect: Annotated[Aspect, BeforeValidator(_plain)]
    text: str = Field(description="a phrase that is abstract enough for many occasions")


class DraftPreference(BaseModel):
    """What a user thinks of solutions for one requirement type."""

    requirement_id: str = Field(description="e.g. work-1")
    requirement: str = Field(description="the text of the requirement type, repeated exactly")
    analysis: str = Field(description="one paragraph: what this user probably prefers here, and why")
    pos: str = Field(description="four or five sentences: which suggestions the user tends to accept")
    neg: str = Field(description="four or five sentences: which suggestions the user tends to reject")


class InventPeople(dspy.Signature):
    """Invent users of a personal assistant: the facts of their lives and their personalities.

    - Describe occupation, health status, family members and hobbies in two or three sentences each. Write "the user"
      (用户 in Chinese) instead of a name there.
    - Give a level for each of the Big Five personality traits.
    - Make the users as different as possible, from one another and from the earlier people. No user is a student or
      retired.
    - Show how different real lives are. Do not assume a harmonious family, good health, rich hobbies or an open and
      friendly character. Some families have conflicts or live far apart, some people are ill, some have no hobbies, and
      some are closed, careless, shy, harsh or anxious.
    - Use the example only for the kind of content and its level of detail. Do not vary it.
    """

    language: Language = dspy.InputField(desc="language of all texts and names")
    count: int = dspy.InputField(desc="how many users")
    example: str = dspy.InputField(desc="one user, in JSON")
    earlier_people: list[str] = dspy.InputField(desc="users that exist already")
    people: list[DraftPerson] = dspy.OutputField(desc="the new users")


class NarrateMonths(dspy.Signature):
    """Write what a user experienced in each of the past months.

    - Write one entry for each month in the list, in this order, with at least five sentences.
    - The events come from work, health, family and leisure. An entry does not have to cover all four, but it covers
      more than one.
    - Report events objectively. Do not describe the user's personality, opinions or particular preferences.
    - Later months continue earlier ones, and everything fits the profile.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    today: str = dspy.InputField(desc="the current date")
    months: list[str] = dspy.InputField(desc="the months to write about, YYYY-MM")
    timeline: list[DraftMonth] = dspy.OutputField(desc="one entry per month")


class NameRequirementTypes(dspy.Signature):
    """Name the types of advice that a user may ask a personal assistant for in daily life.

    You are given the user's profile and past months. The user asks about matters from their own background and
    experiences.
    - Name four or five types for each of the aspects work, health, family and leisure. The numbers may differ.
    - Each type is a short and fairly abstract phrase that applies throughout the months. Do not name something that
      comes up only once, at one moment or in one situation.
    - All types are different.
    """

    language: Language = dspy.InputField(desc="language of the phrases")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    requirement_types: list[DraftType] = dspy.OutputField(desc="four or five types per aspect")


class DescribePreferences(dspy.Signature):
    """Describe which solutions a user tends to accept and which they tend to reject, for each given requirement type.

    The user asks a personal assistant for advice of these types and accepts or rejects its suggestions.
    - Write one entry per requirement type, in the given order. Repeat its id and its text exactly.
    - First write the analysis: one paragraph on what the user probably prefers and why, based on the profile and the
      personality. Use the past months only to avoid contradictions.
    - Then describe the suggestions that the user tends to accept and those that the user tends to reject, with four or
      five definite sentences each.
    - Both descriptions must be typical of this user. Do not list what everybody would accept, or what everybody would
      reject as improper.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    timeline: list[str] = dspy.InputField(desc="the user's past months")
    aspect: Aspect = dspy.InputField(desc="the aspect that the requirement types belong to")
    requirement_types: list[str] = dspy.InputField(desc="the id and the text of each type")
    preferences: list[DraftPreference] = dspy.OutputField(desc="one entry per requirement type")


def _listed(value: object) -> object:
    return [value] if isinstance(value, dict | str | BaseModel) else value


Texts = Annotated[list[str], BeforeValidator(_listed)]


class DraftSituation(BaseModel):
    """Some days or weeks of a user's life that lead to requirements."""

    start: str = Field(description="first day, YYYY-MM-DD")
    end: str = Field(description="last day, YYYY-MM-DD")
    requirement_ids: Texts = Field(description="one to three ids of requirement types")
    situation: str = Field(description="one paragraph of five sentences or more")


class DraftNeed(BaseModel):
    """A need that the user does not state."""

    need: str = Field(description="the need, briefly")
    evidences: Texts = Field(description="one to five details of the background or the experiences that show it")


class DraftTopic(BaseModel):
    """What a user asks about in a dialogue."""

    requirement_type: str = Field(description="the text of the type, repeated exactly")
    user_query: str = Field(description="how the user opens the topic: brief and vague")
    implicit_needs: Annotated[list[DraftNeed], BeforeValidator(_listed)] = Field(description="exactly two")
    requirement: str = Field(description="the complete need: the query and the implicit needs combined")


class DraftCandidates(BaseModel):
    """Solutions for one topic."""

    topic: str = Field(description="e.g. topic-1")
    solutions: Texts = Field(description="exactly eight, one sentence each")


class DraftChoice(BaseModel):
    """A solution with the user's opinion about it."""

    solution: str = Field(description="the text of the candidate, repeated exactly")
    feedback_reason: str = Field(description="why, in one sentence from the user's point of view")


class PlanSituations(dspy.Signature):
    """Expand a user's events of one month into four to six situations that lead to requirements.

    The user asks a personal assistant for advice about their own background and experiences. You are given the profile,
    the requirement types, the situations of the month before, and the events of this month.
    - Base the situations on the events. The profile describes what is permanent, and the earlier situations what
      happened just before. Do not contradict them.
    - The situations follow one another without gaps: each begins right after the previous one ends. The first one
      begins right after the day `begin_after`, if it is given. Each situation lasts more than one day.
    - All situations end within the month. The last one ends on one of the last three days of the month.
    - For each situation, list the ids of the one to three requirement types that it leads to, preferably more than one.
      They may belong to the same aspect or to different ones.
    - Describe each situation in one paragraph of at least five sentences: the experiences that make the user need
      advice of these types. Cover the whole period instead of a single moment, and do not emphasise dates.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    requirement_types: list[str] = dspy.InputField(desc="the id and the text of each type")
    earlier_situations: list[str] = dspy.InputField(desc="situations of the month before; empty for the first month")
    begin_after: str = dspy.InputField(desc="the last day of the last earlier situation; empty for the first month")
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
    - Right after the period ends, the user starts a dialogue with the assistant. Do not mention this dialogue. Do not
      write anything that makes it impossible, for example that the user has gone to sleep, and nothing that happens
      after the end. Times are given in the 24-hour format.
    - Never write the user's name. Write "the user" (用户 in Chinese). Give only the account, without remarks.
    """

    language: Language = dspy.InputField(desc="language of the account")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    previous_situation: str = dspy.InputField(desc="period and text of the previous situation; empty at the beginning")
    span: str = dspy.InputField(desc="beginning and end of the current situation")
    situation: str = dspy.InputField(desc="the current situation")
    experience: str = dspy.OutputField(desc="the detailed account")


class WriteRequirements(dspy.Signature):
    """Write what a user asks the assistant now, as one topic for each given requirement type.

    The user's question is vague. The assistant is supposed to understand from what it knows about the user what the
    question leaves out.
    - Write one topic per requirement type, in the given order. Repeat the text of the type exactly.
    - The query opens the topic in the current situation. It is as brief and vague as possible, with hardly any details
      of background or experiences.
    - Give exactly two implicit needs per topic: intentions that the query does not state but that the assistant should
      recognise. Describe each one briefly; it is about one thing. Add one to five pieces of evidence: details of the
      background or the experiences themselves, without their dates and without reasoning. Both needs stay close to the
      requirement type and together form one focused need.
    - The requirement describes the user's actual need completely and in detail. It combines the query and the two needs
      and stays close to the requirement type.
    - Never write the user's name. Outside the query, write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    situation: str = dspy.InputField(desc="the user's recent situation")
    experience: str = dspy.InputField(desc="the user's recent experiences in detail")
    requirement_types: list[str] = dspy.InputField(desc="the types to write topics for")
    topics: list[DraftTopic] = dspy.OutputField(desc="one topic per requirement type")


class ProposeCandidates(dspy.Signature):
    """Suggest eight solutions for each of a user's requirements.

    - Each solution meets its requirement and is one sentence.
    - The eight solutions of a topic are as different as possible, so that they suit people with different preferences
      or circumstances.
    - Cover all topics, each under its key.
    """

    language: Language = dspy.InputField(desc="language of the solutions")
    topics: list[str] = dspy.InputField(desc="per topic: key, query, implicit needs with evidence, and requirement")
    candidates: list[DraftCandidates] = dspy.OutputField(desc="the solutions of each topic")


class ChooseSolutions(dspy.Signature):
    """Choose the two solutions that a user would like most and the two that the user would like least.

    - All candidates are proper solutions for the requirement, but they may not suit this user. Judge them by the user's
      background and by the given preferences. A liked solution must fit both; if it fails one of them, the user does
      not like it.
    - First analyse all candidates. Then give the two best and the two worst. For each one, give the user's reason in
      one sentence that refers to their background or preferences.
    - Repeat the solutions word for word, without any change.
    - Never write the user's name. Write "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    situation: str = dspy.InputField(desc="the user's recent situation")
    topic: str = dspy.InputField(desc="query, implicit needs with evidence, and requirement")
    likes: str = dspy.InputField(desc="which solutions the user likes for requirements of this type")
    dislikes: str = dspy.InputField(desc="which solutions the user dislikes for requirements of this type")
    candidates: list[str] = dspy.InputField(desc="the candidate solutions")
    analysis: str = dspy.OutputField(desc="analysis of all candidates")
    liked: list[DraftChoice] = dspy.OutputField(desc="the two best, exactly two")
    disliked: list[DraftChoice] = dspy.OutputField(desc="the two worst, exactly two")
