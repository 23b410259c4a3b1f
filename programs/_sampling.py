"""The settings of a request that a saved program may hold."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_ShortText = Annotated[str, Field(max_length=200)]
_StopTexts = Annotated[list[_ShortText], Field(max_length=16)]
_ReasoningEffort = Annotated[str, Field(pattern="^(none|minimal|low|medium|high|xhigh|max)$")]


class Sampling(BaseModel):
    """Settings of sampling with their bounds; None is the provider's default.

    Whatever a predictor's `config` holds becomes part of its requests. An address, a header, a key
    or the name of a model there would decide where a user's words go. So a saved program may hold
    nothing but these settings; the rest comes from whoever runs the program.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=100_000)
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    n: int | None = Field(None, ge=1, le=64)
    stop: _ShortText | _StopTexts | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    reasoning_effort: _ReasoningEffort | None = None
    rollout_id: int | _ShortText | None = None
    """DSPy's mark of an answer that is sampled anew; it is sent to no one."""


def sampling_error(name: str, value: Any) -> str | None:
    """Return why a saved program may not hold a setting of requests; None if it may.

    Only settings of sampling are allowed, each within the bounds of `Sampling`.

    Example:
        >>> from mempiler.programs._sampling import sampling_error
        >>> sampling_error("temperature", 3.0)
        'input should be less than or equal to 2'
    """
    if name not in Sampling.model_fields:
        return f"is none of {', '.join(Sampling.model_fields)}"
    try:
        Sampling.model_validate({name: value})
    except ValidationError as error:
        # The reason continues a sentence, so it begins with a small letter.
        message = error.errors()[0]["msg"]
        return f"{message[0].lower()}{message[1:]}"
    return None
