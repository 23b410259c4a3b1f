"""Shows for every mechanism of a method that it matters in its world: what was predicted, and what was found.

A world (`data.worlds`) is built so that each mechanism of one paper's method is needed; the oracle engine does every
job rightly, as far as its prompt allows. So leaving a mechanism out, or starving it, has to lower the score of the
questions that need it, and of no others. Every row compares the method as it is with a changed one, question by
question; intervals of 95 % resample users. The oracle is a test instrument: no number here says anything of a model.

Usage:
    $ python perf/worlds.py                         # the worlds of all papers
    $ python perf/worlds.py rgmem --users 40

The tables of claims are in `perf/worlds_*.py`, a file per paper. Exits with 1 if a prediction does not hold.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from world_claims import Found


def papers() -> list[str]:
    """The papers that have a table of claims."""
    return sorted(path.stem.removeprefix("worlds_") for path in Path(__file__).parent.glob("worlds_*.py"))


def shown(found: Iterable[Found]) -> int:
    """Prints rows as they come, below a head; how many predictions do not hold."""
    print(f"{'changed':<34}{'questions':<52}{'predicted':<11}{'found: as it is - changed':<34}{'n':>5}  holds")
    failed = 0
    for row in found:
        print(row.line(), flush=True)
        failed += not row.holds
    return failed


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Predicted against found, for every mechanism.")
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"some of {', '.join(papers())} [default: all]")
    parser.add_argument("--users", type=int, default=40, help="users of a world [default: %(default)s]")
    given, failed = parser.parse_args(), 0
    for paper in given.papers or papers():
        module = importlib.import_module(f"worlds_{paper}")
        print(f"\n{paper}: {module.WORLD}, {given.users} users, oracle\n")
        failed += shown(module.found(given.users))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
