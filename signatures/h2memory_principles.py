"""Prompts of H2Memory that write what is abstract: types of needs, principles of preference, and their updates.

Source: Mem-PAL, appendix E, "Prompts of H2Memory Method", steps 4-1 to 4-4 and "Query Generation for Multi-turn
Dialogue Interaction": every rule and field, in our own words. Where the paper asks for one form of JSON or another
depending on "adjust", `Adjustment` has a second field that may stay empty.
"""

from __future__ import annotations

from typing import Annotated, Any

import dspy
from pydantic import BaseModel, BeforeValidator, Field


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
