"""A row of the table of costs: what a piece of work takes here, beside what its peer takes in the same run.

The scripts `perf/cost_*.py` each measure a part and yield rows; `perf/costs.py` runs them all. A row whose aim does not
hold says what bounds it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

KEPT = "MEMPILER_COST_ROWS"
"""Environment variable with the file to which rows are written as well."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    at: str
    """The size at which it was measured."""
    ours: float
    aim: float
    """What it is to stay under, or above where `above`."""
    unit: str = "CPU ms"
    peer: str = ""
    """What the peer took, and its name."""
    above: bool = False
    bound: str = ""
    """What bounds it where the aim does not hold."""

    @property
    def holds(self) -> bool:
        """Whether the aim is reached."""
        return self.ours >= self.aim if self.above else self.ours <= self.aim


def show(rows: Iterable[Row]) -> bool:
    """Prints rows as they come; whether all aims hold."""
    print(f"{'work':<46}{'at':>18}{'ours':>10}{'aim':>10}  {'unit':<10}{'holds':<6} peer; what bounds it", flush=True)
    every, kept = True, os.environ.get(KEPT)
    for row in rows:
        every = every and row.holds
        work, at, ours, aim, unit, holds, notes = cells(row)
        print(f"{work:<46}{at:>18}{ours:>10}{aim:>10}  {unit:<10}{holds:<6} {notes}", flush=True)
        if kept:
            with Path(kept).open("a") as file:
                file.write(json.dumps(cells(row)) + "\n")
    return every


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts; what bounds it only where its aim does not hold."""
    aim = f"{'>=' if row.above else '<='}{row.aim:g}"
    notes = "; ".join(note for note in (row.peer, "" if row.holds else row.bound) if note)
    return row.work, row.at, f"{row.ours:.3g}", aim, row.unit, "yes" if row.holds else "NO", notes


def cpu_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of CPU that a piece of work takes, of all threads of the process."""
    begun = time.process_time()
    work()
    return 1000 * (time.process_time() - begun)


def middle(taken: Sequence[float]) -> float:
    """The median of some measurements."""
    return median(taken)


def main(rows: Callable[[], Iterable[Row]]) -> None:
    """Prints the rows of one script."""
    show(rows())
    sys.exit(0)
