"""What kind of failure an error of a language model call is, and whether it concerns its one prompt alone.

An answer that cannot be read (`parse`), or was cut for want of room (`cut`), and a prompt that the endpoint refuses for
its content (`refused`) or its length (`too-long`), say nothing of other prompts: whoever asks counts them and goes on
without the answer. Any other error is passed on.
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


class CutShortError(AdapterParseError):
    """Raised if an answer ended for want of room."""


def concerns_prompt(error: BaseException) -> bool:
    """Say whether an error concerns its one prompt, so that other prompts may well succeed."""
    return failure_kind(error) in _OF_ONE_PROMPT


def failure_kind(error: BaseException) -> FailureKind:
    """Return the kind of failure that an error is; `error` where it is none of a language model."""
    if isinstance(error, LMInvalidRequestError) and _TOO_LONG.search(str(error)):
        return "too-long"
    for error_type, kind in _KINDS:
        if isinstance(error, error_type):
            return kind
    return "error"


_OF_ONE_PROMPT: frozenset[FailureKind] = frozenset({"parse", "cut", "refused", "too-long"})
_TOO_LONG = re.compile(r"context[ _](?:size|length|window)", re.IGNORECASE)
"""What llama.cpp, vLLM and Ollama say of a prompt that is too long; they have no code for it that DSPy knows."""
_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (CutShortError, "cut"),
    (AdapterParseError, "parse"),
    (ContextWindowExceededError, "too-long"),
    (LMUnsupportedModelError, "endpoint"),  # an invalid request to DSPy, and one for every prompt
    (LMInvalidRequestError, "refused"),
    (LMError, "endpoint"),
)
"""The first type that fits decides."""
