"""The settings of a request that a saved program may hold: how an answer is sampled, and nothing else.

Whatever a predictor's `config` holds becomes part of its requests. An address, a header, a key, a provider or the name
of a model there would decide where a user's words go, so only the settings below are saved, and only they are loaded,
each within its bounds. All others come from whoever runs the program.

Example:
    >>> from mempiler.programs.sampling import sampling
    >>> sampling({"temperature": 0.7, "api_base": "http://elsewhere"})
    {'temperature': 0.7}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ProgramError

_Word = Annotated[str, Field(max_length=200)]


class Sampling(BaseModel):
    """The settings with their bounds; None stands for the provider's default."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=100_000)
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    n: int | None = Field(None, ge=1, le=64)
    stop: _Word | Annotated[list[_Word], Field(max_length=16)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    reasoning_effort: Annotated[str, Field(pattern="^(none|minimal|low|medium|high|xhigh|max)$")] | None = None
    rollout_id: int | _Word | None = None
    """DSPy's mark of an answer that is sampled anew; it is sent to no one."""


def sampling(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a predictor's config may be saved; the rest, which may be secret, is left out."""
    return {name: value for name, value in config.items() if _reason(name, value) is None}


def check_sampling(predictor: str, config: Mapping[str, Any]) -> None:
    """Refuses a saved config that holds anything but settings of sampling.

    Raises:
        ProgramError: The message names the predictor and the first such key.
    """
    for name, value in config.items():
        reason = _reason(name, value)
        if reason is not None:
            raise ProgramError(
                f"predictor {predictor}: saved setting {name!r:.80}: {reason}; "
                "a saved program may hold settings of sampling only, save it again without"
            )


def _reason(name: str, value: Any) -> str | None:
    """Why a setting may not be saved or loaded."""
    if name not in Sampling.model_fields:
        return "is none of " + ", ".join(Sampling.model_fields)
    try:
        Sampling.model_validate({name: value})
    except ValidationError as error:
        return f"{error.errors()[0]['msg'][0].lower()}{error.errors()[0]['msg'][1:]}"
    return None
