"""The prompts of H2Memory and of PAL-Bench's tasks in Chinese.

Chinese is the language of the paper's data and of its own prompts. `chinese.json` holds what the
English prompts say. Names of fields, and descriptions inside lists, stay English.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict

import dspy

from ..errors import UserError
from .pal import ASSISTANT_ACTIONS, AssistantAction

PromptLanguage = Literal["English", "Chinese"]


class _Prompt(TypedDict):
    """The Chinese texts of a signature."""

    instructions: str
    fields: dict[str, str]
    """The description of each field, by its name."""


class _Texts(TypedDict):
    """The content of `chinese.json`."""

    prompts: dict[str, _Prompt]
    """By the name of the signature."""
    assistant_actions: dict[AssistantAction, str]


@cache
def _chinese_texts() -> _Texts:
    return json.loads(Path(__file__).with_name("chinese.json").read_text(encoding="utf-8"))


def has_chinese(signature: type[dspy.Signature]) -> bool:
    """Return whether there is a Chinese prompt for a signature."""
    return signature.__name__ in _chinese_texts()["prompts"]


def in_language(signature: type[dspy.Signature], language: PromptLanguage) -> type[dspy.Signature]:
    """Return a signature with its instructions and the descriptions of its fields in a language.

    Raises:
        UserError: There is no Chinese prompt for the signature.
    """
    if language == "English":
        return signature
    if not has_chinese(signature):
        raise UserError(
            f"the prompt {signature.__name__} is in English alone; leave out language=Chinese"
        )

    prompt = _chinese_texts()["prompts"][signature.__name__]
    translated = signature.with_instructions(prompt["instructions"])
    for name, description in prompt["fields"].items():
        # DSPy declares each further argument as a dict, and takes any value.
        translated = translated.with_updated_fields(name, desc=description)  # pyright: ignore[reportArgumentType]
    return translated


def action_meaning(action: AssistantAction, language: PromptLanguage) -> str:
    """Return what a kind of reply means, for the field `action_meaning` of `ReplyInDialogue`."""
    if language == "English":
        return ASSISTANT_ACTIONS[action]
    return _chinese_texts()["assistant_actions"][action]
