"""The weights of a search: how much each signal counts beside the others.

Example:
    >>> from mempiler.memory.search.index import Index
    >>> from mempiler.memory.search.weights import SignalWeights
    >>> without_months = SignalWeights(month=0)
    >>> index = Index(hybrid=True, weights=without_months)
    >>> SignalWeights(month=-1)
    Traceback (most recent call last):
    ...
    mempiler.errors.UserError: search weight month = -1: input should be greater than or equal to 0

All defaults were chosen for the best recall of evidence on two conversations of LoCoMo, conv-26 and
conv-30, as `perf/retrieval.py` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)

from ...errors import UnknownNameError, UserError
from ...records import FrozenMapping
from ...records.frozen import FrozenDict
from ...validation import validation_message
from ..tuning_range import TuningRange

_MAX_SHOWN_CHARS = 40
"""Most characters of a wrong value that an error message shows."""

Deviations = Annotated[float, Field(ge=0, le=100)]
"""A number of standard deviations, the unit in which `fusion` adds signals."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A part of something, from 0 for nothing to 1 for all of it."""


def _check_step(step: int) -> int:
    """Refuse 0 as the distance between two neighbouring turns of a dialogue."""
    if step == 0:
        raise ValueError("a turn is no neighbour of itself")
    return step


NeighbourStep = Annotated[int, Field(ge=-10, le=10), AfterValidator(_check_step)]
"""How many turns later another turn of a dialogue comes: 1 is the next one, -1 the one before."""


class SignalWeights(BaseModel):
    """How much each signal of a search counts; a weight of 0 turns its signal off.

    Raises:
        UserError: A weight is out of its range, or there is none of that name.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        # The text below a weight is its description in the documentation.
        use_attribute_docstrings=True,
    )

    speaker: Annotated[Deviations, TuningRange(0, 5)] = 2.0
    """Added to the score of an entry whose speaker the question asks for."""
    month: Annotated[Deviations, TuningRange(0, 5)] = 2.0
    """Added to the score of an entry from the month that the question names."""
    next_month: Annotated[Share, TuningRange(0, 1)] = 0.4
    """How much of `month` an entry from the month after it gets: people tell of things later."""
    year: Annotated[Share, TuningRange(0, 1)] = 0.3
    """How much of `month` an entry from the year gets if the question names a year and no month."""
    neighbour_shares: FrozenMapping[NeighbourStep, Share] = Field(
        default_factory=lambda: FrozenDict({1: 0.5, 2: 0.2, -1: 0.2}),
        # pydantic writes no default into the JSON schema if there is a factory.
        json_schema_extra={"default": {"1": 0.5, "2": 0.2, "-1": 0.2}},
    )
    """The share of its score that a turn passes on to the turns near it: half to the next turn (1),
    a fifth to the turn after that (2), and a fifth to the turn before (-1)."""
    neighbour_words: Annotated[float, Field(ge=0, le=2), TuningRange(0, 2)] = 1.0
    """A factor for `neighbour_shares` in the scores by words; 0 passes nothing on."""
    neighbour_cosines: Annotated[Share, TuningRange(0, 1)] = 0.6
    """A factor for `neighbour_shares` in the scores by vectors; 0 passes nothing on."""
    cosines: Annotated[float, Field(ge=0, le=10), TuningRange(0, 3)] = 1.0
    """How much the score by vectors (cosine) counts, if the score by words counts 1."""
    similarity_beside_reranker: Annotated[Share, TuningRange(0, 1)] = 0.3
    """With a reranker: how much the first score still counts, if the reranker's counts 1."""
    reranked_hits: Annotated[int, Field(ge=0, le=1000)] = 100
    """With a reranker: how many of the best entries it scores again; 0 for none."""
    reranked_passages: Annotated[int, Field(ge=1, le=10_000)] = 150
    """With a reranker: how many passages of these entries it reads at most; it always reads the
    whole first entry."""

    @field_validator("neighbour_shares", mode="before")
    @classmethod
    def _read_steps(cls, shares: Any) -> Any:
        """Return the shares with whole numbers as keys; JSON has texts such as "-1"."""
        if not isinstance(shares, Mapping):
            # The validation of the type refuses it.
            return shares

        shares_by_step: dict[Any, Any] = {}
        for step, share in cast("Mapping[Any, Any]", shares).items():
            if isinstance(step, str) and step.removeprefix("-").isdecimal():
                shares_by_step[int(step)] = share
            else:
                shares_by_step[step] = share
        return shares_by_step

    @model_validator(mode="wrap")
    @classmethod
    def _check_weights(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the weights; turn pydantic's report of an error into a `UserError` of one line.

        Args:
            values: What the constructor was called with.
            validate: Pydantic's own validation of these values.
        """
        try:
            return validate(values)
        except ValidationError as validation_error:
            user_error = cls._error_of_first_problem(validation_error)

        # Raised outside the except block, so that pydantic's report is not shown beside it.
        raise user_error

    @classmethod
    def _error_of_first_problem(cls, error: ValidationError) -> UserError:
        """Return an error of one line about the first problem of pydantic's report.

        For example: search weight month = -1: input should be greater than or equal to 0.
        """
        problem = error.errors()[0]

        # The location says which weight is wrong, e.g. ("month",). If a key of a mapping is wrong,
        # pydantic adds "[key]" to it.
        location = [str(part) for part in problem["loc"] if part != "[key]"]
        weight_name = ".".join(location)
        if problem["type"] == "extra_forbidden":
            return UnknownNameError("search weight", weight_name, cls.model_fields)

        # Take the reason without the name of the weight, because the message below puts the value
        # between the two. "Input should be ..." gets a small letter in the middle of a sentence.
        reason = validation_message(error, skipped_parts=len(problem["loc"]))
        reason = reason[0].lower() + reason[1:]
        shown_value = repr(problem["input"])[:_MAX_SHOWN_CHARS]
        return UserError(f"search weight {weight_name} = {shown_value}: {reason}")


DEFAULT_WEIGHTS = SignalWeights()
"""The weights of every index that is given no others."""
