"""The calls of a language model that a memory system makes, heard from outside.

Example:
    with heard_model_calls() as calls:
        system.add(session)
    [call.completion for call in calls]
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...engines.call_context import call_context
from ..call_recorder import Prompt, plain_messages

MAX_PROMPT_LENGTH = 4000
"""Most characters that are kept of a prompt. Some packages have prompts of 9,000 tokens."""

MAX_COMPLETION_LENGTH = 2000
"""Most characters that are kept of a completion."""

_CUT = "\n[...]\n"
"""Stands for the middle of a text that is cut."""


@dataclass(frozen=True, order=True)
class ModelCall:
    """One call of a language model that a system made."""

    prompt: str
    completion: str
    """The text of the answer, and the tools that it calls."""

    def shortened(self) -> ModelCall:
        """Return the call with the middle of its texts cut out where they are too long."""
        return ModelCall(
            prompt=_without_middle(self.prompt, MAX_PROMPT_LENGTH),
            completion=_without_middle(self.completion, MAX_COMPLETION_LENGTH),
        )


class _ModelCallListener:
    """Keeps every call that it hears of; systems may make several at the same time."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    def add(self, prompt: Prompt, answers: Sequence[Any], samples: Sequence[Any]) -> None:
        """Keep a call; the parameters are those of a `CallListener`."""
        texts = [_answer_text(answer) for answer in answers]
        self.calls.append(ModelCall(_prompt_text(prompt), "\n\n".join(texts)))


@contextmanager
def heard_model_calls() -> Generator[list[ModelCall]]:
    """Yield a list that gets every call of a metered model in the block."""
    listener = _ModelCallListener()
    with call_context(on_call=listener.add):
        yield listener.calls


def _prompt_text(prompt: Prompt) -> str:
    """Return the messages of a prompt as one text."""
    parts = [f"{message['role']}: {message['content']}" for message in plain_messages(prompt)]
    return "\n\n".join(parts)


def _answer_text(answer: Any) -> str:
    """Return an answer of DSPy's model, a text or an object, as a text."""
    if not isinstance(answer, dict):
        return str(answer or "")

    parts: list[str] = []
    if answer.get("text"):
        parts.append(str(answer["text"]))
    for tool_call in answer.get("tool_calls") or ():
        # They may be objects that can be read like dicts.
        function = dict(tool_call["function"])
        parts.append(f"{function.get('name')}({_arguments_text(function.get('arguments'))})")
    return "\n".join(parts)


def _arguments_text(arguments: Any) -> str:
    """Return the arguments of a tool call, which may be JSON already."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _without_middle(text: str, max_length: int) -> str:
    """Return a text, with its middle cut out if it has more than `max_length` characters.

    The end keeps two thirds: packages put what is to be read, the conversation, behind their rules.
    """
    if len(text) <= max_length:
        return text
    length = max_length - len(_CUT)
    length_of_start = length // 3
    length_of_end = length - length_of_start
    return f"{text[:length_of_start]}{_CUT}{text[-length_of_end:]}"
