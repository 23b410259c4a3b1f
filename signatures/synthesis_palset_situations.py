"""The prompts that fill the months of a PAL-Set's user: situations, what was lived through, what they ask, what helps.

Mem-PAL, appendix E, steps 3 to 5-3; see `synthesis_palset` for what the prompts share.

Limits: candidates are written without a look at the user, as in the paper; so some may not fit a liked or
disliked pair, and the choice among them is the model's opinion.
"""

from __future__ import annotations

from typing import Annotated

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from .synthesis_palset import Language


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
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
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
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
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
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    topics: list[DraftTopic] = dspy.OutputField()


class ProposeCandidates(dspy.Signature):
    """Suggest eight solutions for each of a user's requirements.

    - Every solution answers its requirement and is one sentence.
    - The eight of a topic are as diverse as they can be, so that each suits people of other tastes or circumstances.
    - All topics are served, under their keys.
    """

    language: Language = dspy.InputField(desc="language of the solutions")
    topics: list[str] = dspy.InputField(desc="per topic its key, query, implicit needs with evidences, and requirement")
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
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
    complaints: str = dspy.InputField(desc="what was wrong with your last attempt; empty at the first")
    analysis: str = dspy.OutputField(desc="of all candidates")
    liked: list[DraftChoice] = dspy.OutputField(desc="exactly two")
    disliked: list[DraftChoice] = dspy.OutputField(desc="exactly two")
