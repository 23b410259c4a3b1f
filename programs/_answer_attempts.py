"""The attempts at one answer: what is asked after an answer that cannot be read.

An unreadable answer is asked for once more, with a message that says what was wrong with it. One
that was cut off is asked for with twice the tokens instead. If that answer cannot be read either,
its error is raised.

Example:
    attempts = AnswerAttempts(lm, lm_kwargs, inputs, max_retries=1)
    while True:
        try:
            return send(attempts.current)
        except AdapterParseError as error:
            attempts.retry_after(error)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..reading.failures import CutShortError
from .recording import record_retry

DEFAULT_MAX_TOKENS = 4096
"""The limit that a cut answer is taken to have had if none was set, in tokens."""


@dataclass(frozen=True)
class Attempt:
    """One request for an answer."""

    retries_left: int
    """How often the answer may be asked for again."""

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The inputs of the predictor: an answer may refer to ids and options in them."""

    unreadable: AdapterParseError | None = None
    """Why the previous answer could not be read; None for the first attempt."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the model for this request, which replace those of the caller."""


class AnswerAttempts:
    """Decide what is asked after an answer that cannot be read.

    Args:
        lm: The language model that is asked.
        lm_kwargs: The caller's settings of the model.
        inputs: The inputs of the predictor.
        max_retries: How often an answer that cannot be read is asked for again.
    """

    def __init__(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: Mapping[str, Any],
        inputs: Mapping[str, Any],
        max_retries: int,
    ) -> None:
        self._lm_settings = {**getattr(lm, "kwargs", {}), **lm_kwargs}
        self.current = Attempt(max_retries, inputs)
        """The attempt that is to be made."""

    def retry_after(self, error: AdapterParseError) -> None:
        """Make `current` the attempt that follows an unreadable answer.

        Raises:
            AdapterParseError: The given error, if no retry is left.
        """
        if self.current.retries_left == 0:
            raise error
        self.current = Attempt(
            retries_left=self.current.retries_left - 1,
            inputs=self.current.inputs,
            unreadable=error,
            settings=self._settings_after(error),
        )
        record_retry("cut" if isinstance(error, CutShortError) else "parse")

    def _settings_after(self, error: AdapterParseError) -> dict[str, Any]:
        """Return the settings of the retry: a cut answer gets twice the tokens."""
        if not isinstance(error, CutShortError):
            return {}
        # DSPy gives models that reason their limit by the longer name.
        name = "max_tokens"
        if self._lm_settings.get("max_completion_tokens"):
            name = "max_completion_tokens"
        limit = self._lm_settings.get(name) or DEFAULT_MAX_TOKENS
        return {name: 2 * int(limit)}
