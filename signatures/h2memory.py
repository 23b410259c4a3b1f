"""Prompts of H2Memory: linked logs, situations, the background, topic outlines, needs, and principles drawn from them.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term User-Agent
Interaction", appendix E, "Prompts of H2Memory Method", and "Query Generation for Multi-turn Dialogue Interaction":
every rule and field in our own words. The paper's originals are Chinese; texts stay in the language they are about.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import Shown

Aspect = Literal["work", "health", "family", "leisure"]
ASPECTS: tuple[Aspect, ...] = ("work", "health", "family", "leisure")
_CHINESE = {"工作": "work", "健康": "health", "家庭": "family", "休闲": "leisure", "娱乐": "leisure"}


def aspects_of(value: Any) -> list[Aspect]:
    """The aspects that a model named, each once: any letter case, Chinese names, a lone name; others are left out."""
    if isinstance(value, str):
        value = re.split(r"[,;/、，]| and ", value)
    if not isinstance(value, list | tuple | set):
        return []
    plain = [str(name).strip(" \"'[]().").lower() for name in value]
    named = [_CHINESE.get(name, name) for name in plain]
    return [aspect for aspect in ASPECTS if aspect in named]


def as_list(value: Any) -> Any:
    """A list: nothing becomes an empty one, a lone value one of length 1."""
    return [] if value is None else value if isinstance(value, list) else [value]


class LogLinks(BaseModel):
    """The earlier logs that one log goes back to."""

    log_id: Annotated[str, Shown("device_logs")]
    caused_by: Annotated[list[str], Shown("device_logs")] = Field(
        default=[], description="ids of earlier logs; empty if there are none"
    )
    follows: Annotated[list[str], Shown("device_logs")] = Field(
        default=[], description="ids of earlier logs; empty if there are none"
    )


class LinkLogs(dspy.Signature):
    """Say of each log in a range which earlier logs it is linked to.

    Let B be the log in question and A an earlier one. There are two kinds of links:
    - caused_by: A brought B about directly; had A not happened, B would not have happened either.
    - follows: A and B belong to one matter and B comes later in it, but B does not depend on A altogether.

    Go through every log from the first to the last of the range, both included.
    1. A log is linked to earlier logs alone. These may also lie before the range.
    2. Only plain, direct links count. If one log causes a second and the second a third, the third is not linked to
       the first because of that.
    3. Look for caused_by first, then for follows. Two logs that caused_by links are not linked by follows as well.
    """

    device_logs: str = dspy.InputField(desc="logs, one per line, oldest first: [log id] (date) device: content")
    first_log: str = dspy.InputField(desc="id of the first log of the range")
    last_log: str = dspy.InputField(desc="id of the last log of the range")
    links: list[LogLinks] = dspy.OutputField(desc="an entry for every log of the range, in order")


class DrawnSituation(BaseModel):
    """What a group of linked logs tells."""

    situation: str = Field(description="one paragraph")
    aspects: Annotated[list[Aspect], BeforeValidator(aspects_of)] = Field(
        default=[], description="the aspects of life it mainly belongs to, at least one"
    )


class DescribeSituation(dspy.Signature):
    """Tell from linked logs what the user has lately experienced or done, and which aspects of life that belongs to.

    A link ties a log B to an earlier log A: caused_by, if B would not have happened without A; follows, if both belong
    to one matter and B comes later, without depending on A altogether.

    - The situation is one concise paragraph that joins the logs by way of their links. Logs show mostly indirectly what
      goes on: conclude what lies behind them and tell that, instead of repeating their wording.
    - Leave out points of time unless they are needed. With several logs, the way they hang together is what counts.
    - The aspects are work, health, family and leisure: name the main one, or several; never none.
    - Write in the language of the logs.
    """

    linked_logs: str = dspy.InputField(
        desc="logs, one per line, oldest first: [log id] (date) device: content <links to earlier logs>"
    )
    found_situation: DrawnSituation = dspy.OutputField()


def _feedback(value: Any) -> str:
    lower = value.strip().lower() if isinstance(value, str) else ""
    return "pos" if lower.startswith("pos") else "neg" if lower.startswith("neg") else "others"


def _ends(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, str):
        value = re.split(r"[\s,~–—]+|\bto\b", value)
    return [str(id).strip("[]() \"'") for id in as_list(value) if str(id).strip("[]() \"'-")]


class ProposedSolution(BaseModel):
    """One solution that came up for a topic."""

    solution: str = Field(description="the solution in one sentence")
    user_feedback: str = Field(default="", description="what the user thinks of it, told from the assistant's side")
    feedback_type: Annotated[Literal["pos", "neg", "others"], BeforeValidator(_feedback)] = Field(
        default="others", description="pos or neg wherever possible; others if it stays unclear"
    )


class DraftOutline(BaseModel):
    """The outline of one topic of a conversation."""

    turn_span: Annotated[list[str], BeforeValidator(_ends)] = Field(
        default=[], description="ids of the first and of the last turn of the topic"
    )
    requirement: str = Field(description="what the user needs, in one sentence")
    solution_list: list[ProposedSolution] = Field(default=[], description="the solutions talked about, in order")
    preference: str = Field(default="", description="what the user likes and dislikes for this need, in one sentence")


class OutlineTopics(dspy.Signature):
    """Outline each topic of a conversation between a user and their daily assistant.

    The user asks for advice on something from their life; the assistant makes out what they need and proposes
    solutions; the user may say what they think of these. There may be several topics. Each turns on one need of the
    user and takes up turns that follow one another: first the need is made out, then solutions for it are talked about.

    For every topic give:
    1. turn_span: the ids of its first and of its last turn. The spans of the topics leave no turn between them: where
       one ends, the next begins.
    2. requirement: one sentence that says what advice the user is really after in this situation and with their
       background.
    3. solution_list: each solution that user and assistant talked about. A solution may be spread over several
       sentences or turns: sum it up in one sentence. user_feedback tells briefly what the user thinks of it, as the
       assistant sees it. feedback_type is where the user stands in the end, after talking it over: pos or neg. It is
       others only if that stays quite unclear.
    4. preference: one sentence on what the user likes for this need, going by their feedback on the solutions. If they
       rejected something, the sentence also says which kind of solution they dislike or tend to refuse.

    Where two people talk, the one who looks for advice or help is the user, and the other stands for the assistant.
    Write in the language of the conversation.
    """

    conversation: str = dspy.InputField(desc="turns, one per line: [turn id] (date) speaker: words")
    outlines: list[DraftOutline] = dspy.OutputField(desc="the topics in order")


class RefineNeed(dspy.Signature):
    """Say again, in more detail, what a user needs, with the help of their background and of what they went through.

    The need was summed up from a conversation with the user's daily assistant. Background and recent situations may
    hold the reasons and events that led to it, and also much that has nothing to do with it.
    - Work in what bears on this need, so that it is understood more deeply; leave everything else out.
    - The result is still one sentence about the same one need, and brings in no other need.
    - Keep the language of the need.
    """

    overall_background: str = dspy.InputField(desc="what is known of the user in general, by aspect; may be empty")
    recent_situations: str = dspy.InputField(desc="what the user went through lately; may be empty")
    stated_need: str = dspy.InputField(desc="the need as the conversation has it")
    detailed_need: str = dspy.OutputField(desc="one sentence")


class AspectSummary(BaseModel):
    """The background in one aspect of life."""

    aspect: Annotated[Aspect, BeforeValidator(lambda value: next(iter(aspects_of([value])), value))]
    summary: str = Field(description="one sentence")


class UpdateBackground(dspy.Signature):
    """Bring the summary of a user's background up to date with what they went through since.

    The background has four aspects: work, health, family and leisure, a sentence each; an empty one means that nothing
    of use is known yet. Decide first which aspects need an update, then write the new sentence for these.
    - The background says what the user is like in an aspect on the whole (occupation, state of health, members of the
      family, hobbies and so on). Events that are too particular do not belong there.
    - An aspect of which the situations say nothing stays as it is. So does one that they touch, if the background has
      it already or if what they say is too particular for it.
    - A new summary is still one concise sentence without repetition. Condense old and new together, and build the
      sentence anew where it would become too long.
    - The spans of time only help to weigh: where the background covers a long time, recent situations change it as
      little as possible. No time is named in a summary.
    - Write in the language of the situations.
    """

    background_before: str = dspy.InputField(desc="the summary so far, one aspect per line")
    span_before: str = dspy.InputField(desc="the time it covers")
    situations_since: list[str] = dspy.InputField(desc="what is not in the summary yet")
    span_since: str = dspy.InputField(desc="the time the situations cover")
    updating_aspects: list[str] = dspy.OutputField(desc="the aspects that need an update; may be empty")
    updating_content: list[AspectSummary] = dspy.OutputField(desc="the new summary of each of these aspects")


class AbstractNeeds(dspy.Signature):
    """Generalize specific needs of a user into one overall type of need.

    The needs were gathered from talks with the user's daily assistant and are alike in meaning.
    - The type is a concise phrase without any circumstances of the specific needs.
    - All the needs belong to one wider field; the type names that field.
    - Where there are few needs, or only one, the type is still more abstract than they are.
    - Keep the language of the needs.
    """

    specific_needs: list[str] = dspy.InputField()
    general_need: str = dspy.OutputField(desc="the overall type of need, a concise phrase")


class AbstractPreferences(dspy.Signature):
    """Generalize what a user liked and disliked, time after time, into one principle of preference.

    The experiences were gathered from talks with the user's daily assistant. All of them belong to one type of need.
    - The principle is one concise sentence; it is more abstract than the experiences and holds more widely.
    - It says what the user prefers on the whole where they have this type of need.
    - Where there are few experiences, or only one, the principle still generalizes them.
    - Keep the language of the experiences.
    """

    type_of_need: str = dspy.InputField()
    preference_experiences: list[str] = dspy.InputField()
    general_preference: str = dspy.OutputField(desc="one sentence")


def _said(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("yes", "true", "y", "1", "是", "需要")
    return bool(value)


class Adjustment(BaseModel):
    """Whether a description is to change, and into what."""

    adjust: Annotated[bool, BeforeValidator(_said)] = False
    revised: str = Field(default="", description="the new description; empty if nothing changes")


class AdjustNeedType(dspy.Signature):
    """Decide whether an overall type of need still fits now that further needs were counted under it.

    - The type generalizes many earlier needs. It stays as it is unless it has to change: that is where new needs
      conflict with it instead of falling under it.
    - A revised type takes in both the old type and the new needs. It is again a concise phrase on a wider, more
      abstract level, holds no particulars and above all no examples, and says nothing of preferences.
    - Keep the language of the type.
    """

    type_so_far: str = dspy.InputField()
    needs_since: list[str] = dspy.InputField(desc="the needs that were counted under it since")
    type_verdict: Adjustment = dspy.OutputField(desc="whether the type has to change; if so, the revised phrase")


class AdjustPrinciple(dspy.Signature):
    """Decide whether a principle of a user's preference still holds in view of further experiences.

    - The principle generalizes many earlier experiences. It stays as it is unless it has to change: that is where new
      experiences conflict with it, or where it plainly lacks something important that they show.
    - A revised principle takes in both the old one and the new experiences. It is again one concise sentence,
      generalizes what is particular, and is about the given type of need.
    - Keep the language of the principle.
    """

    kind_of_need: str = dspy.InputField()
    principle_so_far: str = dspy.InputField()
    experiences_since: list[str] = dspy.InputField(desc="what the user liked and disliked since")
    principle_verdict: Adjustment = dspy.OutputField(desc="whether it has to change; if so, the revised sentence")


class SummarizeNeed(dspy.Signature):
    """Sum up what the user needs, going by a dialogue between them and their assistant that is still under way.

    One concise sentence says which advice the user wants. What they like or dislike about solutions does not belong in
    it. Keep the language of the dialogue.
    """

    dialogue_so_far: str = dspy.InputField()
    current_need: str = dspy.OutputField(desc="the need that the dialogue is about now, in one sentence")
