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
    """The error of the previous answer, which could not be read; None for the first attempt."""

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
        """Make `current` the next attempt, after an answer that could not be read.

        Args:
            error: Says why the answer could not be read.

        Raises:
            AdapterParseError: `error`, if no retry is left.
        """
        if self.current.retries_left == 0:
            raise error

        if isinstance(error, CutShortError):
            settings = self._doubled_token_limit()
            record_retry("cut")
        else:
            settings = {}
            record_retry("parse")
        self.current = Attempt(
            retries_left=self.current.retries_left - 1,
            inputs=self.current.inputs,
            unreadable=error,
            settings=settings,
        )

    def _doubled_token_limit(self) -> dict[str, Any]:
        """Return the setting of the model that lets an answer be twice as long."""
        # DSPy passes the limit under the longer name to models that reason before they answer.
        name = "max_tokens"
        if self._lm_settings.get("max_completion_tokens"):
            name = "max_completion_tokens"
        limit = self._lm_settings.get(name) or DEFAULT_MAX_TOKENS
        return {name: 2 * int(limit)}
