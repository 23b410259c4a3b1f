"""The prompts of H2Memory and of PAL-Bench's tasks in Chinese, the language of the paper's data and of its own prompts.

They say what the English ones say, in `chinese.json`; names of fields, and descriptions inside of lists, stay English.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import dspy

from ..errors import UserError
from .pal import ASSISTANT_ACTIONS, AssistantAction

PromptLanguage = Literal["English", "Chinese"]


@cache
def _texts() -> Mapping[str, Any]:
    return json.loads(Path(__file__).with_name("chinese.json").read_text(encoding="utf-8"))


def has_chinese(signature: type[dspy.Signature]) -> bool:
    """Return whether there is a Chinese prompt for a signature."""
    return signature.__name__ in _texts()["prompts"]


def in_language(signature: type[dspy.Signature], language: PromptLanguage) -> type[dspy.Signature]:
    """Return a signature with instructions and descriptions of fields in a language.

    Raises:
        UserError: There is no Chinese prompt for it.
    """
    if language == "English":
        return signature
    if not has_chinese(signature):
        raise UserError(
            f"the prompt {signature.__name__} is in English alone; leave out language=Chinese"
        )
    text = _texts()["prompts"][signature.__name__]
    translated = signature.with_instructions(text["instructions"])
    for name, description in text["fields"].items():
        translated = translated.with_updated_fields(name, desc=description)
    return translated


def action_meaning(action: AssistantAction, language: PromptLanguage) -> str:
    """Return what a kind of reply means, as `ReplyInDialogue` is told."""
    if language == "English":
        return ASSISTANT_ACTIONS[action]
    return _texts()["assistant_actions"][action]
