"""The prompts that invent the people of a PAL-Set and fill their months: what they live through, ask, and like.

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
    preferences: list[DraftPreference] = dspy.OutputField()


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
    """Something that the user leaves unsaid."""

    need: str = Field(description="the intent, in brief")
    evidences: Texts = Field(description="one to five details of background or experiences that show it")


class DraftTopic(BaseModel):
    """What a user asks about in a dialogue."""

    requirement_type: str = Field(description="word for word as given")
    user_query: str = Field(description="how the user opens the topic: brief and vague")
    implicit_needs: Annotated[list[DraftNeed], BeforeValidator(_listed)] = Field(description="exactly two")
    requirement: str = Field(description="the whole need: the query together with what was left unsaid")


class DraftCandidates(BaseModel):
    """Solutions for one topic."""

    topic: str = Field(description="e.g. topic-1")
    solutions: Texts = Field(description="exactly eight, one sentence each")


class DraftChoice(BaseModel):
    """A solution with the user's opinion of it."""

    solution: str = Field(description="the candidate, word for word")
    feedback_reason: str = Field(description="one sentence from the user's view: why")


class PlanSituations(dspy.Signature):
    """Expand what happened to this user in one month into four to six situations that lead to requirements.

    The user turns to a personal assistant for advice on matters of their own background and experiences.
    - Go by the events of the month. The profile tells what lasts, the earlier situations what came just before: nothing
      may contradict them.
    - The situations follow one another without gaps: each begins right after the one before has ended, the first one
      right after the day `begin_after`, if one is given. A situation lasts more than one day.
    - All of them end within the month; the last one ends on one of the last three days of the month.
    - Each lists the ids of the one to three requirement types that it gives rise to, preferably more than one. They may
      belong to one aspect or to several.
    - Each is told in one paragraph of five sentences or more: the background experiences that make the user need advice
      of these types. It covers the whole span rather than a single moment, and does not dwell on the dates.
    - Never give the user's name; say "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    requirement_types: list[str] = dspy.InputField(desc="id and wording of each")
    earlier_situations: list[str] = dspy.InputField(desc="those of the month before; empty for the first month")
    begin_after: str = dspy.InputField(desc="last day of the last earlier situation; empty for the first month")
    month: str = dspy.InputField(desc="YYYY-MM")
    events: str = dspy.InputField(desc="what happened in the month")
    situations: list[DraftSituation] = dspy.OutputField()


class DescribeExperience(dspy.Signature):
    """Expand a user's situation into a detailed account of what they went through in that time.

    - Keep to the current situation. The profile and the situation before it are there to avoid contradictions.
    - Cover the whole span of time rather than one moment of it.
    - Only objective events remain, with more detail than before: leave out every intention, thought, awareness and
      feeling.
    - Tell everyday events concretely, and how one led to another; exact times matter little.
    - Right after the end of the span the user begins a dialogue with the assistant, which the account does not mention.
      Nothing before may rule it out (the user has not gone to sleep), and nothing later than the end is told. Times are
      in 24-hour form.
    - Never give the user's name; say "the user" (用户 in Chinese). The account is all there is, without remarks.
    """

    language: Language = dspy.InputField(desc="language of the account")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    previous_situation: str = dspy.InputField(desc="span and text of the one before; empty at the beginning")
    span: str = dspy.InputField(desc="begin and end of the current situation")
    situation: str = dspy.InputField(desc="the current situation")
    experience: str = dspy.OutputField(desc="the detailed account")


class WriteRequirements(dspy.Signature):
    """Write what this user asks the assistant now, one topic for each requirement type given.

    The assistant is to understand from what it knows of the user what a vague query leaves unsaid.
    - One topic per requirement type, in the order given, with its wording repeated exactly.
    - The query opens the topic in the current situation: as brief and vague as possible, with hardly any detail of
      background or experiences.
    - Exactly two implicit needs per topic: intents that the query does not state, though the assistant ought to see
      them. Each is about one thing and put briefly, with one to five evidences. An evidence is a detail of background
      or experiences as such, without its date and without reasoning about it. Both needs stay close to the requirement
      type and add up to one focused need.
    - The requirement describes the user's actual need in full and in particulars, from the query and the two needs,
      without straying from the requirement type.
    - Never give the user's name; outside the query say "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    situation: str = dspy.InputField(desc="the user's recent situation")
    experience: str = dspy.InputField(desc="the user's recent experiences in detail")
    requirement_types: list[str] = dspy.InputField(desc="those to write topics for")
    topics: list[DraftTopic] = dspy.OutputField()


class ProposeCandidates(dspy.Signature):
    """Suggest eight solutions for each of a user's requirements.

    - Every solution answers its requirement and is one sentence.
    - The eight of a topic are as diverse as they can be, so that each suits people of other tastes or circumstances.
    - All topics are served, under their keys.
    """

    language: Language = dspy.InputField(desc="language of the solutions")
    topics: list[str] = dspy.InputField(desc="per topic its key, query, implicit needs with evidences, and requirement")
    candidates: list[DraftCandidates] = dspy.OutputField()


class ChooseSolutions(dspy.Signature):
    """Find the two solutions that this user would like best and the two that they would like least.

    - All candidates are proper solutions as such; they need not suit this user. Weigh them by the user's background and
      by the preferences given. A liked one fits both; one that fails either is not liked.
    - First an analysis of all candidates, then the two best and the two worst, each with the user's reason in one
      sentence, which points to their background or preferences.
    - Solutions are repeated word for word, without any change.
    - Never give the user's name; say "the user" (用户 in Chinese).
    """

    language: Language = dspy.InputField(desc="language of the texts")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    situation: str = dspy.InputField(desc="the user's recent situation")
    topic: str = dspy.InputField(desc="query, implicit needs with evidences, and requirement")
    likes: str = dspy.InputField(desc="solutions that the user likes for such requirements")
    dislikes: str = dspy.InputField(desc="solutions that the user dislikes for such requirements")
    candidates: list[str] = dspy.InputField(desc="the candidate solutions")
    analysis: str = dspy.OutputField(desc="of all candidates")
    liked: list[DraftChoice] = dspy.OutputField(desc="exactly two")
    disliked: list[DraftChoice] = dspy.OutputField(desc="exactly two")
