"""Mutated files for every reader: each is read, or refused in one line; never a traceback.

    specimen (a file or folder that is read) ── mutant ──> read | refused | TRACEBACK

Specimens are small ones of every benchmark's form, histories, saved programs, folders of runs, exported memories,
judges' files, token files, and journals. What is read is used as a run would use it: rendered, hashed, split, scored.

Usage:
    $ python perf/fuzz_readers.py --count 10000 --seed 0
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from specimens import Specimen, specimens
from spoiled_values import mutant


@dataclass
class Tally:
    """What became of the mutants."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By specimen and verdict."""
    faults: list[str] = field(default_factory=list[str])
    """What must not be: a traceback, or a refusal of several lines."""
    accepted: list[str] = field(default_factory=list[str])
    """What was read though it was changed, in words."""

    def of(self, verdict: str) -> int:
        """How many ended so."""
        return sum(count for (_, each), count in self.counts.items() if each == verdict)


def fuzz(count: int, seed: int, folder: Path, only: str = "") -> Tally:
    """Reads mutants.

    Args:
        count: How many.
        seed: Chooses them.
        folder: An empty folder for the files.
        only: Name of the one specimen to change.
    """
    rng, tally = random.Random(seed), Tally()
    kinds = [each for each in specimens(folder / "made") if only in ("", each.name)]
    for specimen in kinds:
        _write(folder / "whole" / specimen.name, specimen.files)
        specimen.read(folder / "whole" / specimen.name)
    for number in range(count):
        specimen = kinds[number % len(kinds)]
        name = rng.choice(sorted(specimen.files))
        told, content = mutant(name, specimen.files[name], rng)
        _one(specimen, folder / specimen.name, name, content, f"{specimen.name}: {name}: {told}", tally)
    return tally


def _one(specimen: Specimen, place: Path, name: str, content: bytes, told: str, tally: Tally) -> None:
    from mempiler.errors import MempilerError

    if not place.exists():
        _write(place, specimen.files)
    (place / name).write_bytes(content)
    try:
        specimen.read(place)
        verdict = "read"
        tally.accepted.append(told)
    except MempilerError as error:
        verdict = "refused"
        if "\n" in str(error) or len(str(error)) > 2000 or not _printable(str(error)):
            tally.faults.append(f"{told}: no single line that can be printed: {str(error)[:300]!r}")
    except Exception:
        verdict = "TRACEBACK"
        tally.faults.append(f"{told}\n{traceback.format_exc()}")
    tally.counts[specimen.name, verdict] += 1
    if specimen.changes_folder:
        shutil.rmtree(place)
    else:
        (place / name).write_bytes(specimen.files[name])


def _printable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


def _rows(tally: Tally) -> Iterator[str]:
    names = list(dict.fromkeys(name for name, _ in tally.counts))
    yield f"{'specimen':<24}{'read':>8}{'refused':>9}{'traceback':>11}"
    for name in [*names, "all"]:
        found = [tally.of(verdict) if name == "all" else tally.counts[name, verdict] for verdict in _VERDICTS]
        yield f"{name:<24}{found[0]:>8}{found[1]:>9}{found[2]:>11}"


_VERDICTS = ("read", "refused", "TRACEBACK")


def main() -> None:
    """Prints counts, and everything that must not be; ends with 1 if there is any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="one specimen")
    parser.add_argument("--accepted", type=int, default=0, help="show so many mutants that were read")
    chosen: Any = parser.parse_args()
    os.environ.setdefault("MEMPILER_HOME", tempfile.mkdtemp(prefix="fuzz-home-"))
    with tempfile.TemporaryDirectory() as folder:
        tally = fuzz(chosen.count, chosen.seed, Path(folder), chosen.only)
    for line in _rows(tally):
        print(line)
    for line in random.Random(chosen.seed).sample(tally.accepted, min(chosen.accepted, len(tally.accepted))):
        print("read:", line)
    for fault in tally.faults[:20]:
        print(fault)
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
