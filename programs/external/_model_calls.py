"""Record the model calls that a memory system makes, without a change to the system.

Example:
    with recorded_model_calls() as calls:
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
"""Most characters of a prompt that are kept. Some packages have prompts of 9,000 tokens."""

MAX_COMPLETION_LENGTH = 2000
"""Most characters of a completion that are kept."""

_OMISSION_MARK = "\n[...]\n"
"""Shows that the middle of a text was cut out."""


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
    """Keeps every model call that is reported to it."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    def add(self, prompt: Prompt, answers: Sequence[Any], samples: Sequence[Any]) -> None:
        """Keep a call; the parameters are those of a `CallListener`."""
        answer_texts = [_answer_text(answer) for answer in answers]
        call = ModelCall(prompt=_prompt_text(prompt), completion="\n\n".join(answer_texts))
        # A system may make several calls at the same time: `append` is safe between threads.
        self.calls.append(call)


@contextmanager
def recorded_model_calls() -> Generator[list[ModelCall]]:
    """Yield a list to which every call of a metered model in the block is appended."""
    listener = _ModelCallListener()
    with call_context(on_call=listener.add):
        yield listener.calls


def _prompt_text(prompt: Prompt) -> str:
    """Return the messages of a prompt as one text."""
    parts = [f"{message['role']}: {message['content']}" for message in plain_messages(prompt)]
    return "\n\n".join(parts)


def _answer_text(answer: Any) -> str:
    """Return an answer of a DSPy model, which is a text or a dict, as a text."""
    if not isinstance(answer, dict):
        return str(answer or "")

    parts: list[str] = []
    if answer.get("text"):
        parts.append(str(answer["text"]))
    for tool_call in answer.get("tool_calls") or ():
        # A function is a dict, or an object of LiteLLM that can be read like one.
        function = dict(tool_call["function"])
        parts.append(f"{function.get('name')}({_arguments_text(function.get('arguments'))})")
    return "\n".join(parts)


def _arguments_text(arguments: Any) -> str:
    """Return the arguments of a tool call, which may be JSON already."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _without_middle(text: str, max_length: int) -> str:
    """Return a text, with its middle cut out if it has more than `max_length` characters."""
    if len(text) <= max_length:
        return text

    # Two thirds of what is left are from the end: there, packages put the conversation to read.
    kept_length = max_length - len(_OMISSION_MARK)
    start_length = kept_length // 3
    end_length = kept_length - start_length
    return f"{text[:start_length]}{_OMISSION_MARK}{text[-end_length:]}"
