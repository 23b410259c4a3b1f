"""The prompts of H2Memory, in the order in which the method asks them.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term
User-Agent Interaction", appendix E. Every rule and field is carried over in our own words; the
paper's originals are Chinese. Texts stay in the language of what they are about.

- Device logs: `LinkLogs` (step 1-1), then `DescribeSituation` for each group of linked logs (1-2).
- Conversations: `OutlineTopics` (2-1), then `RefineNeed` for each topic (2-2).
- The background of the user: `UpdateBackground` (3).
- General principles: `AbstractNeeds` and `AbstractPreferences` make new ones (4-1, 4-2).
  `AdjustNeedType` and `AdjustPrinciple` change those that exist (4-3, 4-4).
- When a reply in a dialogue is asked for: `SummarizeNeed` ("Query Generation for Multi-turn
  Dialogue Interaction").
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

Aspect = Literal["work", "health", "family", "leisure"]
ASPECTS: tuple[Aspect, ...] = ("work", "health", "family", "leisure")

_CHINESE_ASPECTS = {
    "工作": "work",
    "健康": "health",
    "家庭": "family",
    "休闲": "leisure",
    "娱乐": "leisure",
}

Feedback = Literal["pos", "neg", "others"]
"""What a user thinks of a solution."""

_YES = ("yes", "true", "y", "1", "是", "需要")
_ID_DECORATION = "[]() \"'"


def parse_aspects(value: object) -> list[Aspect]:
    """Return the aspects that a model named, each once and in the order of `ASPECTS`.

    A text may name several. Letter case is ignored, Chinese names count, and other names are left
    out.
    """
    if isinstance(value, str):
        names = re.split(r"[,;/、，]| and ", value)
    elif isinstance(value, list | tuple | set):
        names = list(value)
    else:
        return []

    named_aspects: set[str] = set()
    for name in names:
        plain_name = str(name).strip(" \"'[]().").lower()
        named_aspects.add(_CHINESE_ASPECTS.get(plain_name, plain_name))
    return [aspect for aspect in ASPECTS if aspect in named_aspects]


def _parse_aspect(value: object) -> object:
    """Return the aspect that a model named, or the value itself for pydantic to refuse."""
    aspects = parse_aspects([value])
    return aspects[0] if aspects else value


def _parse_feedback(value: object) -> Feedback:
    """Return the opinion that a word begins with, e.g. "positive"; anything else is "others"."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if word.startswith("pos"):
        return "pos"
    if word.startswith("neg"):
        return "neg"
    return "others"


def _parse_turn_ids(value: object) -> list[str]:
    """Return the ids that a model wrote for the first and the last turn of a topic.

    All of these are ["D1:1", "D1:4"]. The turns between the two are not added.

        ["D1:1", "D1:4"]
        {"start": "D1:1", "end": "D1:4"}
        "[D1:1] to [D1:4]"
        "D1:1 - D1:4"
    """
    turn_ids: list[str] = []
    for part in _span_parts(value):
        turn_id = str(part).strip(_ID_DECORATION)
        is_empty_or_dash = set(turn_id) <= set(_ID_DECORATION + "-")
        if not is_empty_or_dash:
            turn_ids.append(turn_id)
    return turn_ids


def _span_parts(value: object) -> list[object]:
    """Return the words or elements of a value that names the first and the last turn of a topic.

    Some may be no ids: a text is not split at hyphens, since ids may contain them, so the words of
    "D1:1 - D1:4" are "D1:1", "-" and "D1:4". `_parse_turn_ids` drops the hyphen.
    """
    if value is None:
        return []
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, str):
        return list(re.split(r"[\s,~–—]+|\bto\b", value))
    if isinstance(value, list):
        return value
    return [value]


def _parse_yes(value: object) -> bool:
    """Return whether a model said yes, in English or Chinese."""
    if isinstance(value, str):
        return value.strip().lower() in _YES
    return bool(value)


class LogLinks(BaseModel):
    """The earlier logs that one log is linked to."""

    log_id: Annotated[str, IdFrom("device_logs")] = Field(description="id of the log")
    caused_by: Annotated[list[str], IdFrom("device_logs")] = Field(
        default=[], description="ids of the earlier logs that directly caused it; may be empty"
    )
    follows: Annotated[list[str], IdFrom("device_logs")] = Field(
        default=[],
        description="ids of the earlier logs of the same matter that did not cause it; may be "
        "empty",
    )


class DrawnSituation(BaseModel):
    """What a group of linked logs shows."""

    situation: str = Field(description="what happened, in one paragraph")
    aspects: Annotated[list[Aspect], BeforeValidator(parse_aspects)] = Field(
        default=[], description="the main aspects of life, at least one"
    )


class ProposedSolution(BaseModel):
    """One solution that was discussed for a topic."""

    solution: str = Field(description="the solution in one sentence")
    user_feedback: str = Field(
        default="",
        description="in the third person, what the user thinks of it; empty if there was no "
        "feedback",
    )
    feedback_type: Annotated[Feedback, BeforeValidator(_parse_feedback)] = Field(
        default="others",
        description="the user's final opinion: pos or neg; others only if the opinion stays "
        "unclear",
    )


class DraftOutline(BaseModel):
    """The outline of one topic of a conversation."""

    turn_span: Annotated[list[str], BeforeValidator(_parse_turn_ids)] = Field(
        default=[], description="ids of the first and the last turn of the topic"
    )
    requirement: str = Field(description="what the user needs, in one sentence")
    solution_list: list[ProposedSolution] = Field(
        default=[], description="the solutions that were discussed, in order"
    )
    preference: str = Field(
        default="",
        description="which kind of solution the user prefers for this need, in one sentence; "
        "empty if there was no feedback",
    )


class AspectSummary(BaseModel):
    """The background in one aspect of life."""

    aspect: Annotated[Aspect, BeforeValidator(_parse_aspect)]
    summary: str = Field(description="the new summary, in one sentence")


class Adjustment(BaseModel):
    """Whether a description has to change, and the new description."""

    adjust: Annotated[bool, BeforeValidator(_parse_yes)] = Field(
        default=False, description="whether it has to change"
    )
    revised: str = Field(default="", description="the new description; empty if it does not change")


class LinkLogs(dspy.Signature):
    """Find out which earlier logs each log is linked to.

    You are given device logs, oldest first, and a range of them. Go through every log from the first to the last of the
    range, both included. Let B be the current log and A an earlier one. There are two kinds of links:
    - caused_by: A directly caused B. Without A, B would not have happened.
    - follows: A and B belong to the same matter and B is a later step of it, but B does not strictly depend on A.

    Rules:
    1. Link a log to earlier logs only. They may lie before the range.
    2. Record only clear, direct links. If one log causes a second and the second causes a third, do not link the third
       to the first.
    3. Look for caused_by first, then for follows. Do not use follows for two logs that caused_by already links.
    """

    device_logs: str = dspy.InputField(
        desc="one log per line, oldest first: [log id] (date) device: content"
    )
    first_log: str = dspy.InputField(desc="id of the first log of the range")
    last_log: str = dspy.InputField(desc="id of the last log of the range")
    links: list[LogLinks] = dspy.OutputField(desc="one entry for every log of the range, in order")


class DescribeSituation(dspy.Signature):
    """From a group of linked logs, describe what the user has recently experienced or done.

    You are given the logs with their links. A link connects a log B to an earlier log A:
    - caused_by: B would not have happened without A.
    - follows: both belong to the same matter and B is a later step, but B does not strictly depend on A.

    - Describe the situation in one concise paragraph. Use the links to connect the logs. Logs often show events only
      indirectly: infer what happened and describe that, instead of repeating the wording of the logs.
    - Do not mention times unless they are necessary. If there are several logs, focus on how they are related.
    - Name the aspects of life that the situation mainly belongs to: work, health, family or leisure. Name at least one.
    - Write in the language of the logs.
    """

    linked_logs: str = dspy.InputField(
        desc="one log per line, oldest first: [log id] (date) device: content <links to earlier "
        "logs>"
    )
    found_situation: DrawnSituation = dspy.OutputField(desc="the situation and its aspects")


class OutlineTopics(dspy.Signature):
    """Outline the topics of a conversation between a user and a personal assistant.

    In such a conversation the user asks for advice about their life. The assistant finds out what the user needs and
    proposes solutions, and the user may say what they think of them. A conversation has one or more topics. Each topic
    is about one need of the user and covers consecutive turns: first the need becomes clear, then solutions are
    discussed.

    For each topic, give:
    1. turn_span: the ids of its first and its last turn. Each topic begins right after the previous one ends, so that
       the spans cover all turns.
    2. requirement: one sentence that says what advice the user really wants, in this situation and with this
       background.
    3. solution_list: every solution that user and assistant discussed, each summarised in one sentence, even if it was
       spread over several turns. For each solution, user_feedback says briefly, in the third person, what the user
       thinks of it. feedback_type is the user's final opinion after the discussion: pos or neg; others only if the
       opinion stays unclear.
    4. preference: one sentence that says which kind of solution the user prefers for this need, based on the feedback.
       If the user rejected a solution, also say which kind of solution the user dislikes. Leave it empty if there was
       no feedback.

    If two people talk and neither is an assistant, treat the one who asks for advice or help as the user and the other
    one as the assistant. Write in the language of the conversation.
    """

    conversation: str = dspy.InputField(desc="one turn per line: [turn id] (date) speaker: words")
    outlines: list[DraftOutline] = dspy.OutputField(desc="the topics in order")


class RefineNeed(dspy.Signature):
    """Describe a user's need in more detail, using the user's background and recent situations.

    The need was summarised from a conversation between the user and a personal assistant. The background and the
    situations may explain the reasons for it, but they may also contain unrelated information.
    - Add the information that is related to this need and helps to understand it better. Ignore the rest.
    - Write one sentence about this one need. Do not add other needs.
    - Write in the language of the need.
    """

    overall_background: str = dspy.InputField(
        desc="what is generally known about the user, by aspect; may be empty"
    )
    recent_situations: str = dspy.InputField(
        desc="what the user recently experienced; may be empty"
    )
    stated_need: str = dspy.InputField(desc="the need as summarised from the conversation")
    detailed_need: str = dspy.OutputField(desc="the need in more detail, in one sentence")


class UpdateBackground(dspy.Signature):
    """Update the summary of a user's background with recent situations.

    The background has four aspects: work, health, family and leisure. Each is summarised in one sentence; an empty one
    means that nothing is known yet. First decide which aspects need an update. Then write the new sentence for each of
    these.

    - A summary gives the user's general circumstances in this aspect, such as occupation, health, family members or
      hobbies. Do not include very specific events.
    - Do not update an aspect about which the situations say nothing. Also do not update it if the summary already
      covers the new information, or if that information is too specific for a general background.
    - Each new summary is one concise sentence without repetition. Merge the old and new information, and shorten the
      sentence if it becomes too long.
    - Use the time spans only to weigh the information: if the old summary covers a long period, let recent situations
      change it as little as possible. Do not mention times in a summary.
    - Write in the language of the situations.
    """

    background_before: str = dspy.InputField(desc="the summaries so far, one aspect per line")
    span_before: str = dspy.InputField(desc="the period that the summaries cover")
    situations_since: list[str] = dspy.InputField(
        desc="recent situations, not yet in the summaries"
    )
    span_since: str = dspy.InputField(desc="the period that the situations cover")
    updating_aspects: list[str] = dspy.OutputField(
        desc="the aspects that need an update; may be empty"
    )
    updating_content: list[AspectSummary] = dspy.OutputField(
        desc="the new summary of each of these aspects"
    )


class AbstractNeeds(dspy.Signature):
    """Generalise a user's specific needs into one general type of need.

    You are given needs with similar meaning, collected from the user's conversations with a personal assistant.
    - Write a concise phrase. Leave out the circumstances of the specific needs.
    - The phrase must make clear which broad area of life the needs belong to.
    - If there are only a few needs, or only one, the phrase must still be more abstract than they are.
    - Write in the language of the needs.
    """

    specific_needs: list[str] = dspy.InputField(desc="the needs to generalise")
    general_need: str = dspy.OutputField(desc="the general type of need, as a concise phrase")


class AbstractPreferences(dspy.Signature):
    """Generalise likes and dislikes into one general principle about what the user prefers.

    You are given a type of need, and likes and dislikes that the user showed for this type of need in conversations
    with a personal assistant.
    - Write one concise sentence that is more abstract and more widely applicable than the single likes and dislikes.
    - It says what the user generally prefers for this type of need.
    - If there are only a few likes and dislikes, or only one, the sentence must still be a generalisation.
    - Write in the language of the likes and dislikes.
    """

    type_of_need: str = dspy.InputField(desc="the type of need")
    preference_experiences: list[str] = dspy.InputField(
        desc="likes and dislikes that the user showed for this type of need"
    )
    general_preference: str = dspy.OutputField(desc="the principle, in one sentence")


class AdjustNeedType(dspy.Signature):
    """Decide whether a general type of need has to change because of new needs.

    You are given the type, which generalises many earlier needs, and new needs that were assigned to it.
    - Keep the type unless a change is necessary. A change is necessary only if some of the new needs do not fit the
      type.
    - A new type must cover both the old type and the new needs. It is a concise phrase for a broad area. It contains no
      details, no examples and no preferences.
    - Write in the language of the type.
    """

    type_so_far: str = dspy.InputField(desc="the general type of need")
    needs_since: list[str] = dspy.InputField(desc="the new needs")
    type_verdict: Adjustment = dspy.OutputField(
        desc="whether the type has to change; if so, the new phrase"
    )


class AdjustPrinciple(dspy.Signature):
    """Decide whether a principle about a user's preferences has to change because of new experiences.

    You are given the type of need, the current principle (a generalisation of many earlier experiences) and new
    experiences. An experience says what the user liked or disliked.
    - Keep the principle unless a change is necessary. A change is necessary if new experiences conflict with the
      principle, or if the principle clearly lacks something important that they show.
    - A new principle must cover both the old principle and the new experiences. It is one concise sentence that
      generalises the experiences and is about the given type of need.
    - Write in the language of the principle.
    """

    kind_of_need: str = dspy.InputField(desc="the type of need that the principle is about")
    principle_so_far: str = dspy.InputField(desc="the current principle")
    experiences_since: list[str] = dspy.InputField(
        desc="the new experiences: what the user liked and disliked"
    )
    principle_verdict: Adjustment = dspy.OutputField(
        desc="whether it has to change; if so, the new sentence"
    )


class SummarizeNeed(dspy.Signature):
    """Read a dialogue in progress and summarise what the user needs now.

    You are given the dialogue between the user and a personal assistant so far. Write one concise sentence that says
    what advice the user wants now. Do not include what the user likes or dislikes about solutions. Write in the
    language of the dialogue.
    """

    dialogue_so_far: str = dspy.InputField(desc="the dialogue, one utterance per line")
    current_need: str = dspy.OutputField(desc="what the user needs now, in one sentence")
