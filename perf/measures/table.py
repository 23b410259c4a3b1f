"""A row of the table of costs: what it declares, what its measurement returns, and its cells.

This module imports nothing of Mempiler, so that the parts of the table can be listed before DSPy is
imported and reads its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Aim:
    """What the value of a row should reach.

    Args:
        limit: The value should not be above this.
        larger_is_better: The value should not be below `limit` instead.
        times_peer: The limit counts in multiples of this peer's value; a plain number if empty.
    """

    limit: float
    larger_is_better: bool = False
    times_peer: str = ""


@dataclass(frozen=True)
class Peer:
    """What another library took for the same work, in the same run."""

    name: str
    value: float | None
    """None if the library is not installed."""


@dataclass(frozen=True)
class Result:
    """What one row measured."""

    value: float
    peers: Sequence[Peer] = ()
    remark: str = ""
    """Further figures of the same measurement."""
    bottleneck: str = ""
    """What the time is spent on; the table says it where the aim is missed."""


class Cells(NamedTuple):
    """The texts of one row of the table, in the order of the columns."""

    work: str
    at: str
    ours: str
    aim: str
    unit: str
    holds: str
    remarks: str


COLUMNS = Cells("work", "at", "ours", "aim", "unit", "holds", "peers; what bounds it")


@dataclass(frozen=True)
class Row:
    """One row of the table, before it is measured.

    Args:
        work: What is done.
        at: The size or setting at which it is done.
        measure: Does the work and returns what it took.
        aim: What the value should reach, if anything.
        unit: The unit of the value and of the peers' values.
    """

    work: str
    at: str
    measure: Callable[[], Result]
    aim: Aim | None = None
    unit: str = "ms"

    def measured_cells(self) -> Cells:
        """Measure the row and return its cells."""
        result = self.measure()

        limit_text = ""
        verdict = ""
        is_missed = False
        if self.aim is not None:
            limit = _limit(self.aim, result.peers)
            if self.aim.larger_is_better:
                limit_text = f">={limit:.3g}"
                is_missed = result.value < limit
            else:
                limit_text = f"<={limit:.3g}"
                is_missed = result.value > limit
            verdict = "NO" if is_missed else "yes"

        remarks = [_compare(result.value, peer) for peer in result.peers]
        if result.remark:
            remarks.append(result.remark)
        if is_missed and result.bottleneck:
            remarks.append(result.bottleneck)

        return Cells(
            work=self.work,
            at=self.at,
            ours=f"{result.value:.4g}",
            aim=limit_text,
            unit=self.unit,
            holds=verdict,
            remarks="; ".join(remarks),
        )


def _limit(aim: Aim, peers: Sequence[Peer]) -> float:
    """Return the limit of an aim as a number."""
    if not aim.times_peer:
        return aim.limit
    for peer in peers:
        if peer.name == aim.times_peer and peer.value is not None:
            return aim.limit * peer.value
    raise ValueError(f"the aim counts in multiples of {aim.times_peer}, which was not measured")


def _compare(value: float, peer: Peer) -> str:
    """Say what a peer took, and how many times as much we take."""
    if not peer.value:
        return f"{peer.name} not here"
    return f"{peer.name} {peer.value:.3g} ({value / peer.value:.2g}x)"
