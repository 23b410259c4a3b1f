"""Mutation testing: how many small changes of the product does no test notice?

cosmic-ray makes the mutants: it replaces an operator, a number, a condition, an exception or a
keyword. `mutants.toml` names the modules that keep each guarantee, and the tests that guard each
module. A sample of the mutants of every module is tested, in copies of the tree, until the time is
up. A mutant whose tests pass is a survivor: a gap in the tests, or a change that means nothing.

Usage:
    $ python perf/mutants.py                      # all guarantees, at most 40 minutes
    $ python perf/mutants.py store reading        # these guarantees
    $ python perf/mutants.py --minutes 10 --per-module 3
    $ python perf/mutants.py --record-baseline    # later runs are compared with this one

Sample output:
    reading/json_text.py:276: depth += 2  [NumberReplacer]

    guarantee         tested  survived    rate
    reading               61        19   31.1%
    total                 61        19   31.1%
    recorded: 31.1%

How to read it:
    Every survivor is printed with its place, its changed line and the kind of the change; a test
    that fails for it is worth writing if the change means anything. Rates come from samples: with
    400 mutants, a rate of 20 % is known to four points. The same seed draws the same mutants of a
    module as long as that module is unchanged.

The exit status is 1 if more mutants survive, in percent, than `mutants_baseline.json` records for
these guarantees, and 2 if nothing could be tested. The baseline holds counts alone.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).parents[1]
CONFIG = Path(__file__).with_name("mutants.toml")
BASELINE = Path(__file__).with_name("mutants_baseline.json")

PYTEST = f"{shlex.quote(sys.executable)} -m pytest -x -q -p no:cacheprovider -m 'not slow'"
LONGEST_TEST_FILE = 600
"""Seconds that the tests of one file may take without a mutation."""


class MutantsError(Exception):
    """The mutants cannot be tested; the message says why."""


@dataclass(frozen=True)
class GuardedModule:
    """A module that keeps a guarantee, and the test files that guard it."""

    guarantee: str
    path: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    module: GuardedModule
    spec: MutationSpec


@dataclass(frozen=True)
class Result:
    """What the tests made of one mutant."""

    guarantee: str
    file: str
    line: int
    operator: str
    changed_line: str
    survived: bool


@dataclass(frozen=True)
class Config:
    """The contents of `mutants.toml`."""

    modules: list[GuardedModule]
    excluded_operators: re.Pattern[str]


def read_config(path: Path = CONFIG, root: Path = ROOT) -> Config:
    """Read which modules are mutated, and which tests guard them.

    Raises:
        MutantsError: A module or a test file is not there; all of them are named.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    modules = [
        GuardedModule(guarantee, module, tuple(tests))
        for guarantee, table in tables["guarantees"].items()
        for module, tests in table.items()
    ]

    problems: list[str] = []
    for module in modules:
        if not module.tests:
            problems.append(f"{module.guarantee}: {module.path} has no tests")
        for name in (module.path, *module.tests):
            if not (root / name).is_file():
                problems.append(f"{module.guarantee}: there is no file {name}")
    if problems:
        unique = "\n  ".join(dict.fromkeys(problems))
        raise MutantsError(f"{path.name} does not fit the tree; correct it:\n  {unique}")

    return Config(modules, re.compile("|".join(tables["excluded_operators"])))


def sample_mutants(
    modules: Sequence[GuardedModule], excluded: re.Pattern[str], per_module: int, seed: int
) -> list[Mutant]:
    """Choose `per_module` mutants of every module, so that any head of the list is fair to all.

    The first mutants of all modules come first, then the second ones, and so on. The same seed
    chooses the same mutants as long as a module is unchanged.
    """
    specs_by_path = _possible_mutations(sorted({module.path for module in modules}), excluded)
    chosen = [
        [Mutant(module, spec) for spec in _sample(specs_by_path[module.path], per_module, seed)]
        for module in modules
    ]
    rounds = zip_longest(*chosen)
    return [mutant for one_round in rounds for mutant in one_round if mutant is not None]


def _possible_mutations(
    paths: Sequence[str], excluded: re.Pattern[str]
) -> dict[str, list[MutationSpec]]:
    """List every mutation that cosmic-ray knows for each of these modules of the current folder."""
    specs_by_path: dict[str, list[MutationSpec]] = {path: [] for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        database_path = Path(folder, "mutations.sqlite")
        with use_db(database_path, WorkDB.Mode.create) as database:
            init([Path(path) for path in paths], database, {})
            for item in database.work_items:
                (spec,) = item.mutations
                if not excluded.search(spec.operator_name):
                    specs_by_path[spec.module_path.as_posix()].append(spec)
    return specs_by_path


def _sample(specs: Sequence[MutationSpec], count: int, seed: int) -> list[MutationSpec]:
    """Choose places in the source first, then a mutation of each.

    A `+` has eleven mutations and an `if` one: without the places, arithmetic would prevail.
    """
    specs_by_place: dict[tuple[int, int], list[MutationSpec]] = defaultdict(list)
    for spec in specs:
        line, column = spec.start_pos
        specs_by_place[line, column].append(spec)

    # Seeded for each module: a change of one module leaves the sample of the others as it is.
    generator = random.Random(f"{seed} {specs[0].module_path}" if specs else seed)
    places = generator.sample(sorted(specs_by_place), min(count, len(specs_by_place)))
    return [
        generator.choice(sorted(specs_by_place[place], key=lambda spec: spec.operator_name))
        for place in places
    ]


def copy_tree(target: Path) -> None:
    """Copy the files of the repository, with changes that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, listing.split("\0")):
        source = ROOT / name
        if source.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def enter_copy(folder: str) -> None:
    """Copy the tree, enter the copy, and let tests import the package from it."""
    copy = Path(tempfile.mkdtemp(dir=folder), "repository")
    copy_tree(copy)
    library = copy.parent / "library"
    library.mkdir()
    (library / "mempiler").symlink_to(copy)

    # cosmic-ray keeps tests from writing bytecode, since two mutants of one second would share it.
    # What is compiled here is used while the hash of its source is the same, and saves time.
    by_hash = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(copy, quiet=1, invalidation_mode=by_hash)

    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(library)
    # Without the plugins of other packages pytest starts in half of the time.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"


def pytest_command(tests: Iterable[str]) -> str:
    """Return the command that runs these test files until a test fails."""
    return f"{PYTEST} {' '.join(shlex.quote(test) for test in tests)}"


def time_unchanged_tests(test_file: str) -> float:
    """Return how many seconds the tests of a file take without a mutation.

    Raises:
        MutantsError: They fail, so that they would fail for any mutant.
    """
    start = time.monotonic()
    outcome, output = run_tests(pytest_command([test_file]), LONGEST_TEST_FILE)
    if outcome != TestOutcome.SURVIVED:
        raise MutantsError(f"{test_file} fails without a mutation:\n{output[-2000:]}")
    return time.monotonic() - start


def run_mutant(mutant: Mutant, timeout: float, deadline: float) -> Result | None:
    """Run the tests of a mutant; tests that take longer than `timeout` seconds count as failed.

    Return nothing after the deadline, or if cosmic-ray cannot make the mutant.
    """
    if time.time() > deadline:
        return None
    result = mutate_and_test([mutant.spec], pytest_command(mutant.module.tests), timeout)
    if result.test_outcome not in (TestOutcome.SURVIVED, TestOutcome.KILLED):
        return None
    return Result(
        guarantee=mutant.module.guarantee,
        file=mutant.module.path,
        line=mutant.spec.start_pos[0],
        operator=mutant.spec.operator_name.removeprefix("core/"),
        changed_line=_first_added_line(result.diff or ""),
        survived=result.test_outcome == TestOutcome.SURVIVED,
    )


def _first_added_line(diff: str) -> str:
    for line in diff.splitlines():
        if line.startswith("+") and not line.startswith("+++"):
            return line[1:].strip()
    return ""


def run_mutants(mutants: Sequence[Mutant], deadline: float, jobs: int) -> list[Result]:
    """Test mutants in order, in `jobs` copies of the tree, until the deadline; print survivors."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mempiler-mutants-") as folder:
        pool = ProcessPoolExecutor(
            jobs, mp_context=get_context("spawn"), initializer=enter_copy, initargs=(folder,)
        )
        with pool:
            test_files = sorted({test for mutant in mutants for test in mutant.module.tests})
            seconds = dict(zip(test_files, pool.map(time_unchanged_tests, test_files), strict=True))

            futures = []
            for mutant in mutants:
                # A slow machine must not pass for a test that hangs.
                timeout = 30 + 4 * sum(seconds[test] for test in mutant.module.tests)
                futures.append(pool.submit(run_mutant, mutant, timeout, deadline))

            for future in futures:
                result = future.result()
                if result is None:
                    continue
                results.append(result)
                if result.survived:
                    print(survivor_line(result), flush=True)
    return results


def survivor_line(result: Result) -> str:
    """Describe a survivor in one line."""
    return f"{result.file}:{result.line}: {result.changed_line}  [{result.operator}]"


@dataclass(frozen=True)
class Counts:
    """How many mutants were tested, and how many survived."""

    tested: int
    survived: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.tested + other.tested, self.survived + other.survived)

    def survival_rate(self) -> float:
        """Return the percentage of tested mutants that survived."""
        if self.tested == 0:
            return 0.0
        return 100 * self.survived / self.tested


def count_by_guarantee(results: Iterable[Result]) -> dict[str, Counts]:
    """Count the mutants of every guarantee that has any, sorted by name."""
    counts: dict[str, Counts] = {}
    for result in results:
        so_far = counts.get(result.guarantee, Counts(0, 0))
        counts[result.guarantee] = so_far + Counts(1, int(result.survived))
    return dict(sorted(counts.items()))


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    return sum(counts, Counts(0, 0))


def count_report(counts: Mapping[str, Counts], seed: int, per_module: int) -> dict[str, Any]:
    """Return counts and rates as JSON: what the baseline keeps of a run.

    No line and no path is in there, so the baseline stays valid when the code is edited or moved.
    """
    total_counts = total(counts.values())
    return {
        "seed": seed,
        "per_module": per_module,
        "tested": total_counts.tested,
        "survived": total_counts.survived,
        "survival_rate": round(total_counts.survival_rate(), 2),
        "guarantees": {guarantee: asdict(count) for guarantee, count in counts.items()},
    }


def survivor_records(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return every survivor as JSON, sorted by its place."""
    survivors = [result for result in results if result.survived]
    survivors.sort(key=lambda result: (result.guarantee, result.file, result.line))
    return [
        {
            "guarantee": result.guarantee,
            "file": result.file,
            "line": result.line,
            "operator": result.operator,
            "changed_line": result.changed_line,
        }
        for result in survivors
    ]


def read_baseline(path: Path) -> dict[str, Counts]:
    """Read the recorded counts of each guarantee."""
    guarantees = json.loads(path.read_text(encoding="utf-8"))["guarantees"]
    return {
        name: Counts(counts["tested"], counts["survived"]) for name, counts in guarantees.items()
    }


def baseline_rate(baseline: Mapping[str, Counts], guarantees: Iterable[str]) -> float:
    """Return the recorded survival rate of these guarantees together; 100 if none is recorded."""
    recorded = [baseline[guarantee] for guarantee in guarantees if guarantee in baseline]
    if not recorded:
        return 100.0
    return total(recorded).survival_rate()


def print_report(counts: Mapping[str, Counts]) -> None:
    """Print the survival rate of each guarantee and in total."""
    rows = [*counts.items(), ("total", total(counts.values()))]
    print(f"\n{'guarantee':16} {'tested':>7} {'survived':>9} {'rate':>7}")
    for name, count in rows:
        print(f"{name:16} {count.tested:7} {count.survived:9} {count.survival_rate():6.1f}%")


def write_json(record: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which small changes does no test notice?")
    parser.add_argument("guarantees", nargs="*", metavar="GUARANTEE", help="some of mutants.toml")
    parser.add_argument("--minutes", type=float, default=40, help="time limit [default: 40]")
    parser.add_argument("--per-module", type=int, default=6, help="mutants of each [default: 6]")
    parser.add_argument("--seed", type=int, default=1, help="another one draws others [default: 1]")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time [default: 2]")
    parser.add_argument("--output", type=Path, default=Path("mutants.json"), help="JSON report")
    parser.add_argument(
        "--record-baseline",
        action="store_true",
        help=f"write the counts into {BASELINE.name} instead of comparing with it",
    )
    return parser.parse_args()


def choose_modules(config: Config, guarantees: Sequence[str]) -> list[GuardedModule]:
    """Return the modules of some guarantees, or of all if none is named.

    Raises:
        MutantsError: There is no such guarantee.
    """
    names = list(dict.fromkeys(module.guarantee for module in config.modules))
    unknown = set(guarantees) - set(names)
    if unknown:
        raise MutantsError(f"no guarantee {', '.join(unknown)}; there are {', '.join(names)}")
    if not guarantees:
        return config.modules
    return [module for module in config.modules if module.guarantee in guarantees]


def main() -> int:
    """Test a sample of mutants, print and write the report, and compare it with the baseline."""
    arguments = parse_arguments()
    deadline = time.time() + 60 * arguments.minutes
    try:
        config = read_config()
        modules = choose_modules(config, arguments.guarantees)

        output = arguments.output.absolute()
        os.chdir(ROOT)
        mutants = sample_mutants(
            modules, config.excluded_operators, arguments.per_module, arguments.seed
        )
        results = run_mutants(mutants, deadline, arguments.jobs)
        if not results:
            raise MutantsError("no mutant was tested; give more --minutes")
    except MutantsError as error:
        print(error, file=sys.stderr)
        return 2

    counts = count_by_guarantee(results)
    print_report(counts)
    if len(results) < len(mutants):
        print(f"{len(mutants) - len(results)} of {len(mutants)} sampled mutants were not tested")

    summary = count_report(counts, arguments.seed, arguments.per_module)
    write_json({**summary, "survivors": survivor_records(results)}, output)
    if arguments.record_baseline:
        write_json(summary, BASELINE)
        return 0
    if not BASELINE.exists():
        return 0

    tested_guarantees = {module.guarantee for module in modules}
    recorded_rate = baseline_rate(read_baseline(BASELINE), tested_guarantees)
    print(f"recorded: {recorded_rate:.1f}%")
    return int(summary["survival_rate"] > round(recorded_rate, 2))


if __name__ == "__main__":
    sys.exit(main())
