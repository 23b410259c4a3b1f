"""A claim: what a switch does to which questions of a world, and what of it was found.

    Claim ── base, changed (arms) ── the same questions ── found() ──> Found: predicted, difference, verdict

Differences are changed minus as it is, paired question by question, with an interval of 95 % over users. A prediction
that questions stay as they are is an equivalence test: it holds where the whole interval lies within `MARGIN` of zero,
category by category, so that neither a gain nor two changes that cancel out can pass for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...results import Row
from ...statistics import Difference, paired

Predicted = Literal["lower", "higher", "same"]
Verdict = Literal["as predicted", "not", "cannot be told"]

MARGIN = 0.1
"""By how much the score of a category may differ, either way, and count as the same."""
_TIE = 1e-9


@dataclass(frozen=True)
class Arm:
    """What is evaluated: a method with settings that differ from its own, and perhaps one predictor silent."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    silent: frozenset[str] = frozenset()
    """Outputs of the predictor whose prompts are answered with nothing."""

    @property
    def key(self) -> str:
        """The same for arms that are the same."""
        return f"{self.method} {sorted(self.settings.items())} {sorted(self.silent)}"

    @property
    def label(self) -> str:
        """What tables call it where no claim names it."""
        settings = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        return f"{self.method}: {settings}" if settings else f"{self.method} as it is"


@dataclass(frozen=True)
class Claim:
    """That a change lowers the score of some questions, and leaves others as they are."""

    name: str
    lowers: tuple[str, ...] = ()
    """The categories whose score it lowers."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings that differ from those of what it is compared with."""
    silent: frozenset[str] = frozenset()
    """Outputs of the predictor that says nothing."""
    beside: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of both, the changed one and the one it is compared with."""
    raises: tuple[str, ...] = ()
    """The categories whose score it raises."""
    keeps: tuple[str, ...] | None = None
    """The categories that stay as they are; all others if None."""
    method: str = ""
    """Of the changed one, where it is another."""
    over: str = ""
    """Of what it is compared with, where it is not the paper's own."""


@dataclass(frozen=True)
class Found:
    """What a claim predicted of some questions, and what was found."""

    name: str
    questions: str
    predicted: Predicted
    difference: Difference
    """Changed minus as it is."""
    n: int

    @property
    def verdict(self) -> Verdict:
        """Whether the interval bears the prediction out, goes against it, or does neither."""
        span = self.difference.interval
        if span is None:
            return "cannot be told"
        low, high = span.low, span.high
        if self.predicted == "same":
            return _verdict(low >= -MARGIN and high <= MARGIN, low > MARGIN or high < -MARGIN)
        low, high = (low, high) if self.predicted == "higher" else (-high, -low)
        return _verdict(low > _TIE, high <= _TIE)


@dataclass(frozen=True)
class Claims:
    """The claims of a paper."""

    method: str
    world: str
    claims: tuple[Claim, ...]
    apart: Mapping[str, str]
    """Settings, and parts without one, of which there is no claim that they are needed, and why."""

    def arms(self, claim: Claim) -> tuple[Arm, Arm]:
        """What is compared: as it is, and changed."""
        base = Arm(claim.over or self.method, dict(claim.beside))
        if claim.method:
            return base, Arm(claim.method, dict(claim.settings), claim.silent)
        return base, Arm(base.method, {**claim.beside, **claim.settings}, claim.silent)

    def named(self, name: str) -> Claim:
        """The claim of a name.

        Raises:
            KeyError: There is none.
        """
        return {claim.name: claim for claim in self.claims}[name]


def found(claim: Claim, before: Sequence[Row], after: Sequence[Row]) -> Iterator[Found]:
    """What was found: a row per category that is to change, or that is to stay and did not; one for all that stayed.

    Args:
        claim: What was predicted.
        before: The rows of the method as it is.
        after: Those of the changed one, on the same questions.
    """
    moving: dict[str, Predicted] = {**dict.fromkeys(claim.lowers, "lower"), **dict.fromkeys(claim.raises, "higher")}
    for category, predicted in moving.items():
        yield _compared(claim, category, predicted, before, after, (category,))
    known = dict.fromkeys(row.category or "" for row in before)
    stays = [name for name in (known if claim.keeps is None else claim.keeps) if name not in moving]
    rows = [_compared(claim, name, "same", before, after, (name,)) for name in stays]
    moved = [row for row in rows if row.difference.wins or row.difference.losses]
    yield from moved
    still = [row.questions for row in rows if row not in moved]
    if still:
        told = still[0] if len(still) == 1 else "all" if len(still) == len(known) else f"{len(still)} others"
        yield _compared(claim, told, "same", before, after, still)


def _compared(
    claim: Claim, told: str, predicted: Predicted, before: Sequence[Row], after: Sequence[Row], names: Sequence[str]
) -> Found:
    scores = {row.id: row.score for row in after}
    rows = [row for row in before if row.category in names and row.id in scores]
    difference = paired([scores[row.id] for row in rows], [row.score for row in rows], [row.group for row in rows])
    return Found(claim.name, told, predicted, difference, len(rows))


def _verdict(borne_out: bool, against: bool) -> Verdict:
    return "as predicted" if borne_out else "not" if against else "cannot be told"
