"""Mutation testing: breaks one mechanism at a time, and shows which test notices.

    copy of the repository ── a mutation ──> the test that noticed it last ──> the tests of its group ──> noticed by
                                                                                                └──> SURVIVED

Before the mutants of a group, its tests have to pass on the unchanged copy. Mutants run one after the other, all of
them in six minutes. `noticed.json` holds the test that noticed each mutant last.

Usage:
    $ python perf/mutants.py                         # all
    $ python perf/mutants.py rgmem queue --timeout 300

Exits with 1 if a mutant survived.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import METHODS, Mutation
from mutations_rooms import ROOM_TESTS, ROOMS

ROOT = Path(__file__).parents[1]
MUTATIONS = (*METHODS, *ROOMS)
NOTICED = Path(__file__).with_name("noticed.json")
"""By mutant, the test that noticed it last: it is run first."""
TESTS = {
    "pramem": ("tests/programs/test_pramem_*.py",),
    "pgr": ("tests/programs/test_pgr_*.py",),
    "memory_r2": ("tests/programs/test_memory_r2_*.py",),
    "logo_grpo": (
        *("tests/optimizers/logo_grpo/test_reward.py", "tests/optimizers/logo_grpo/test_groups.py"),
        "tests/engines/local/test_loss.py",
    ),
    "h2memory": ("tests/programs/test_h2memory_*.py",),
    "rgmem": ("tests/programs/test_rgmem_*.py",),
    **ROOM_TESTS,
}
"""Where the tests of each group are, in the order in which they run."""
UNCHANGED = "unchanged"
TIMED_OUT = "timeout"
NO_SUCH_TEST = 4, 5
"""What pytest ends with where a test is gone, or slow."""
SLOWER = 4
"""How many times as long as without a mutation tests may take."""


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant."""

    method: str
    breaks: str
    noticed: str
    """The first test that failed; "" where all passed."""
    seconds: float

    def line(self) -> str:
        """The row of the table."""
        told = self.noticed or ("passes" if self.breaks == UNCHANGED else "SURVIVED")
        return f"{self.method:10} {self.breaks:52} {self.seconds:5.0f} s  {told}"


def misplaced(mutations: Iterable[Mutation], root: Path = ROOT) -> list[str]:
    """The mutations whose old text does not stand in its file exactly once, or that change nothing."""
    found: list[str] = []
    for each in mutations:
        times = (root / each.file).read_text(encoding="utf-8").count(each.old)
        if times != 1 or each.old == each.new:
            found.append(f"{each.file}: {each.breaks!r}: its old text stands there {times} times")
    return found


class MutantTree:
    """A copy of the repository in which mutants live.

    Args:
        folder: An empty folder.
        timeout: Seconds for the tests of one mutant; one that takes longer counts as noticed. They are more where the
            tests of its method take long without it.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self.timeout, self.noticers = timeout, noticers()
        self.copy = folder / "repository"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            target = self.copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self.library = folder / "library"
        self.library.mkdir()
        (self.library / "mempiler").symlink_to(self.copy)

    def tests(self, method: str, file: str = "") -> list[str]:
        """The test files of a method, in order, but first those that have the name of a source file in theirs."""
        groups = (sorted(self.copy.glob(pattern)) for pattern in TESTS[method])
        found = [str(path.relative_to(self.copy)) for paths in groups for path in paths]
        return sorted(found, key=lambda path: not file or f"_{Path(file).stem}." not in path)

    def outcome(self, method: str, mutation: Mutation | None = None) -> Outcome:
        """Runs the tests of a method on a mutant, or on the unchanged copy."""
        began = time.monotonic()
        if mutation is None:
            noticed = self._failing(self.tests(method))
        else:
            last = self.noticers.get(f"{method}: {mutation.breaks}")
            path = self.copy / mutation.file
            whole = path.read_text(encoding="utf-8")
            path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
            try:
                noticed = self._failing([last]) if last else ""
                noticed = noticed or self._failing(self.tests(method, mutation.file))
            finally:
                path.write_text(whole, encoding="utf-8")
        breaks = mutation.breaks if mutation else UNCHANGED
        return Outcome(method, breaks, noticed, time.monotonic() - began)

    def _failing(self, tests: Sequence[str]) -> str:
        """The first failing test; "" if there is none."""
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-m", "not slow", *tests]
        # Without the plugins of other packages pytest starts in half of the time.
        env = {**os.environ, "PYTHONPATH": str(self.library), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        try:
            run = subprocess.run(
                command, cwd=self.copy, env=env, timeout=self.timeout, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        if run.returncode in (0, *NO_SUCH_TEST):
            return ""
        failed = (
            line.partition(" ")[2]
            for line in run.stdout.splitlines()
            if line.startswith(("FAILED tests/", "ERROR tests/"))
        )
        return next(failed, f"pytest ended with {run.returncode}").partition(" - ")[0]


def outcomes(nursery: MutantTree, chosen: Sequence[Mutation]) -> Iterator[Outcome]:
    """What becomes of the mutants; a method whose tests fail ends it.

    Raises:
        SystemExit: The tests of a method fail without any mutation.
    """
    for method in dict.fromkeys(each.method for each in chosen):
        found = nursery.outcome(method)
        yield found
        if found.noticed:
            raise SystemExit(f"{method}: {found.noticed} fails without any mutation")
        # A slow machine must not pass for a test that hangs.
        nursery.timeout = max(nursery.timeout, SLOWER * found.seconds)
        yield from (nursery.outcome(method, each) for each in chosen if each.method == method)


def noticers() -> dict[str, str]:
    """The test that noticed each mutant last, by `group: what is broken`."""
    return json.loads(NOTICED.read_text(encoding="utf-8"))


def keep(found: Iterable[Outcome]) -> None:
    """Writes down which tests noticed the mutants."""
    kept = noticers() | {f"{each.method}: {each.breaks}": each.noticed for each in found if "::" in each.noticed}
    rows = {f"{each.method}: {each.breaks}" for each in MUTATIONS}
    kept = {row: test for row, test in sorted(kept.items()) if row in rows}
    NOTICED.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Prints a line per mutant, and how many were noticed."""
    parser = argparse.ArgumentParser(description="Breaks one mechanism at a time; which test notices?")
    parser.add_argument("methods", nargs="*", metavar="GROUP", help=f"some of {', '.join(TESTS)} [default: all]")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one mutant [default: %(default)g]")
    given = parser.parse_args()
    chosen = [each for each in MUTATIONS if each.method in (given.methods or TESTS)]
    if wrong := misplaced(chosen):
        raise SystemExit("\n".join(wrong))
    noticed = survived = 0
    done: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for found in outcomes(MutantTree(Path(folder), given.timeout), chosen):
            print(found.line(), flush=True)
            done.append(found)
            if found.breaks != UNCHANGED:
                noticed, survived = noticed + bool(found.noticed), survived + (not found.noticed)
    keep(done)
    print(f"{noticed} of {noticed + survived} mutants noticed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
