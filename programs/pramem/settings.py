"""Settings of PraMem: how it practises, and how its experience is read.

Defaults suit a user's own records. `mempiler reproduce pramem` sets what the paper has or, where
the paper is silent, what its released code has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ..settings import Settings
from .memory import Kind


class PracticeSettings(Settings):
    """What can be set of practice."""

    deprecated: ClassVar[Mapping[str, Any]] = {"start": "profile", "parallel": True}
    at_least_one_of = ("patterns", "alerts")

    rounds: int = Field(
        default=20, ge=1, description="most practice rounds of a run (section 4.1: 80)"
    )
    samples: int = Field(
        default=1, ge=1, description="samples of a round (q), each tried and reviewed on its own"
    )
    adjust_every: int = Field(
        default=5,
        ge=1,
        description="rounds between two adjustments (T), and at most before the last",
    )
    proposals: int = Field(default=10, ge=1, description="most proposals of one reflection (n)")
    virtual_scenes: int = Field(default=7, ge=1, description="scenes beside the true one (m)")
    blind: bool = Field(
        default=True,
        description="the generality review is not told which of the shuffled scenes is true "
        "(Figure 11: it is)",
    )
    scene_chars: int = Field(
        default=128,
        ge=1,
        description="most characters of a scene that others are written for (code)",
    )
    perturbations: int = Field(default=1, ge=1, description="perturbations of a sample")
    practice_tokens: int = Field(
        default=12_000,
        ge=0,
        description="most tokens of records before a practised one (code)",
    )
    weighting: Literal["uniform", "recency"] = Field(
        default="uniform",
        description="all records alike and each once, or the later the likelier "
        "(code: quadratic, repeating)",
    )
    min_history: int = Field(
        default=10, ge=1, description="records that come before any practised one (code)"
    )
    groundedness: bool = Field(
        default=True, description="review proposals for groundedness (Figure 6)"
    )
    generalizability: bool = Field(
        default=True, description="review proposals for generality (Figure 6)"
    )
    patterns: bool = Field(default=True, description="keep patterns (Figure 5)")
    alerts: bool = Field(default=True, description="keep alerts (Figure 5)")
    deep_thinking: bool = Field(
        default=True,
        description="trials name what bears on them, and reason, first (Table 2)",
    )
    reflection: bool = Field(
        default=True,
        description="proposals come from thinking and outcome, not outcome alone (Table 2)",
    )
    consensus: bool = Field(
        default=True,
        description="only what several proposals support is adopted, not all (Table 2)",
    )
    needed: int = Field(default=3, ge=1, description="proposals that a change needs (Figure 9)")
    distinct_records: bool = Field(
        default=True,
        description="proposals of one practised record support a change once "
        "(Figure 9: each counts)",
    )
    keep_rounds: bool = Field(
        default=False,
        description="keep the experience after every adjustment, for `at_round`",
    )
    seed: int = Field(default=42, description="what samples are drawn with (code)")

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

    predict_tokens: int = Field(
        default=8_000,
        ge=0,
        description="most tokens of the newest records beside the question",
    )
    two_step: bool = Field(
        default=False,
        description="whether the answer takes Figure 7's steps, with a prompt of its own",
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
