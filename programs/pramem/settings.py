"""Settings of PraMem: how it practises, and how its experience is read.

Defaults suit a user's own records. `mempiler reproduce pramem` sets what the paper has or, where
the paper is silent, what its released code has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ...memory.tuning_range import TuningRange
from ..settings import Settings
from .memory import Kind


class PracticeSettings(Settings):
    """What can be set of practice."""

    deprecated: ClassVar[Mapping[str, Any]] = {"start": "profile", "parallel": True}
    at_least_one_of = ("patterns", "alerts")

    rounds: Annotated[int, TuningRange(5, 80, log=True)] = Field(
        default=20, ge=1, description="most practice rounds of a run (section 4.1 has 80)"
    )
    samples: Annotated[int, TuningRange(1, 5)] = Field(
        default=1, ge=1, description="past records that a round practises on, one by one (q)"
    )
    adjust_every: Annotated[int, TuningRange(1, 20, log=True)] = Field(
        default=5,
        ge=1,
        description="rounds after which the experience is adjusted (T in the paper)",
    )
    proposals: Annotated[int, TuningRange(3, 20)] = Field(
        default=10, ge=1, description="most proposals of one reflection (n)"
    )
    virtual_scenes: Annotated[int, TuningRange(2, 12)] = Field(
        default=7,
        ge=1,
        description="invented scenes for the generality review, beside the true one (m)",
    )
    blind: bool = Field(
        default=True,
        description="whether the generality review has to find the true scene among invented ones; "
        "in Figure 11 it is told",
    )
    scene_chars: Annotated[int, TuningRange(32, 512, log=True)] = Field(
        default=128,
        ge=1,
        description="characters of the true scene that the prompt for invented ones shows (code)",
    )
    perturbations: Annotated[int, TuningRange(1, 5)] = Field(
        default=1,
        ge=1,
        description="imagined changes to the records, by which the groundedness review tests a "
        "proposal",
    )
    practice_tokens: Annotated[int, TuningRange(2_000, 32_000, log=True)] = Field(
        default=12_000,
        ge=0,
        description="most tokens of the records that are shown before a practised one (code)",
    )
    weighting: Literal["uniform", "recency"] = Field(
        default="uniform",
        description="how records are drawn for practice: uniform, each at most once; recency, "
        "newer ones more often (as the code does)",
    )
    min_history: Annotated[int, TuningRange(1, 20)] = Field(
        default=10,
        ge=1,
        description="a record is practised on only if at least so many come before it (code)",
    )
    groundedness: bool = Field(
        default=True, description="whether proposals are reviewed for groundedness (Figure 6)"
    )
    generalizability: bool = Field(
        default=True, description="whether proposals are reviewed for generality (Figure 6)"
    )
    patterns: bool = Field(default=True, description="whether there are patterns (Figure 5)")
    alerts: bool = Field(default=True, description="whether there are alerts (Figure 5)")
    deep_thinking: bool = Field(
        default=True,
        description="whether the model lists what matters and reasons before it predicts (Table 2)",
    )
    reflection: bool = Field(
        default=True,
        description="whether proposals rest on the reasoning and the outcome (Table 2); off: on "
        "the "
        "outcome alone",
    )
    consensus: bool = Field(
        default=True,
        description="whether only what several proposals support is adopted (Table 2); off: all",
    )
    needed: Annotated[int, TuningRange(1, 6)] = Field(
        default=3, ge=1, description="proposals that must support a change (Figure 9)"
    )
    distinct_records: bool = Field(
        default=True,
        description="whether several proposals from one practised record count as one; in Figure 9 "
        "each counts",
    )
    keep_rounds: bool = Field(
        default=False,
        description="whether the experience after every adjustment is kept, for `at_round`",
    )
    seed: int = Field(default=42, description="seed of the records that are drawn (code)")

    @property
    def disabled_kinds(self) -> tuple[Kind, ...]:
        """Kinds of experience that are switched off (Figure 5)."""
        kinds: list[Kind] = []
        if not self.patterns:
            kinds.append("pattern")
        if not self.alerts:
            kinds.append("alert")
        return tuple(kinds)


class ExperienceReaderSettings(Settings):
    """What can be set of how experience is read."""

    at_round: int | None = None


class PraMemSettings(PracticeSettings):
    """What can be set of `PraMem`."""

    predict_tokens: Annotated[int, TuningRange(1_000, 32_000, log=True)] = Field(
        default=8_000,
        ge=0,
        description="most tokens of the newest records beside the question",
    )
    two_step: bool = Field(
        default=False,
        description="whether the answering prompt makes the model go through the experience first, "
        "as in Figure 7",
    )
    at_round: int | None = Field(
        default=None,
        ge=0,
        description="read the experience as it was after so many rounds (Figure 4); "
        "needs `keep_rounds`",
    )

    @model_validator(mode="after")
    def _check_rounds_are_kept(self) -> Self:
        if self.at_round is not None and not self.keep_rounds:
            raise ValueError(
                f"at_round={self.at_round} reads experience that is not kept; "
                "set keep_rounds=true too"
            )
        return self
