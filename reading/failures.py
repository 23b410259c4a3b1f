"""Say what kind of failure an error of a language model call is.

Some failures concern one prompt and say nothing of others: the answer cannot be read (`parse`) or
was cut off (`cut`), or the endpoint refuses the prompt for its content (`refused`) or its length
(`too-long`). Callers count these and go on without the answer. They pass on any other error.
"""

from __future__ import annotations

import re

from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    LMError,
    LMInvalidRequestError,
    LMUnsupportedModelError,
)

from ..records.context import FailureKind
from .layouts import remove_thoughts

MAX_QUOTED_LENGTH = 1000
"""Most characters that the message of an error quotes of an answer."""


class CutShortError(AdapterParseError):
    """Raised if an answer reached its limit of tokens."""


_PROMPT_FAILURES: frozenset[FailureKind] = frozenset({"parse", "cut", "refused", "too-long"})

# llama.cpp, vLLM and Ollama report a prompt that is too long without a code that DSPy knows.
_TOO_LONG_MESSAGE = re.compile(r"context[ _](?:size|length|window)", re.IGNORECASE)


def quote_answer(completion: str) -> str:
    """Return an answer as the message of an error quotes it.

    Thoughts before the answer are left out, and of a long answer only the beginning is quoted.
    """
    answer = remove_thoughts(completion)
    thoughts_length = len(completion) - len(answer)
    if len(answer) > MAX_QUOTED_LENGTH:
        answer = f"{answer[:MAX_QUOTED_LENGTH]} ..."
    if thoughts_length == 0:
        return answer
    return f"({thoughts_length:,} characters of thoughts) {answer.strip()}"


def concerns_prompt(error: BaseException) -> bool:
    """Say whether an error concerns its prompt alone, so that other prompts may succeed."""
    return failure_kind(error) in _PROMPT_FAILURES


def failure_kind(error: BaseException) -> FailureKind:
    """Return the kind of failure that an error is; `error` if no language model caused it."""
    # The order matters: errors that come first are subclasses of later ones.
    if isinstance(error, LMInvalidRequestError) and _TOO_LONG_MESSAGE.search(str(error)):
        return "too-long"
    if isinstance(error, CutShortError):
        return "cut"
    if isinstance(error, AdapterParseError):
        return "parse"
    if isinstance(error, ContextWindowExceededError):
        return "too-long"
    if isinstance(error, LMUnsupportedModelError):
        # DSPy calls it an invalid request, but no other prompt would succeed.
        return "endpoint"
    if isinstance(error, LMInvalidRequestError):
        return "refused"
    if isinstance(error, LMError):
        return "endpoint"
    return "error"
