"""Mutation testing: which mutants are drawn, what is reported of them, and when the run fails.

A mutant is the product with one small change, such as `<` in place of `<=`. If all tests pass, it
survives: no test notices the change. A guarantee, such as "limits" here, is what some modules
promise; the configuration names them with their tests. The baseline is the share of survivors that
is allowed.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("cosmic_ray")

ROOT = Path(__file__).parents[2]
NOTHING_EXCLUDED = re.compile("^$")

MODULE = """\
def allows(size):
    return size < 10


def is_odd(number):
    return number % 2 == 1
"""
"""A module with two functions, of which `TEST` calls only the first one."""
TEST = """\
from mempiler.limits import allows


def test_limit():
    assert not allows(12)
    assert not allows(11)
    assert not allows(10)
    assert allows(9)
    assert allows(8)
"""
CONFIG = """\
excluded_operators = ["Is(Not)?$"]

[guarantees.limits]
"limits.py" = ["tests/test_limits.py"]
"""


@pytest.fixture
def mutants(script: Any) -> Any:
    """The script."""
    return script("mutants")


class FinishedRun(NamedTuple):
    """A run of the script that has ended."""

    tree: Path
    """The repository."""
    process: subprocess.CompletedProcess[str]


def make_tree(folder: Path) -> Path:
    """Make a repository with one module, of whose two functions one is tested; return its path."""
    files = {
        "limits.py": MODULE,
        "tests/test_limits.py": TEST,
        "perf/mutants.py": (ROOT / "perf/mutants.py").read_text(encoding="utf-8"),
        "perf/mutants.toml": CONFIG,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one module, of whose two functions one is tested."""
    return make_tree(tmp_path / "tree")


def run_mutants(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a repository; its report is `report.json`."""
    command = [
        sys.executable,
        "perf/mutants.py",
        *("--jobs", "1"),
        *("--output", "report.json"),
        *options,
    ]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def write_baseline(tree: Path, *, tested: int, survived: int) -> None:
    """Write how many mutants of the guarantee "limits" survived of those that were tested."""
    counts = {"tested": tested, "survived": survived}
    text = json.dumps({"guarantees": {"limits": counts}})
    (tree / "perf/mutants_baseline.json").write_text(text)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run over all mutants of a repository, with a baseline by which four of six survive."""
    tree = make_tree(tmp_path_factory.mktemp("finished") / "tree")
    write_baseline(tree, tested=6, survived=4)
    return FinishedRun(tree, run_mutants(tree, "--per-module", "100"))


@pytest.mark.slow
def test_changes_that_no_test_notices_survive_and_are_reported(finished_run: FinishedRun) -> None:
    """Line 2 of the module is `return size < 10`, and line 6 is `return number % 2 == 1`.

    The tests notice the changes of `<` and `10`. They do not call the function with line 6, so they
    notice none of the changes of `%`, `2`, `==` and `1`.
    """
    report = json.loads((finished_run.tree / "report.json").read_text())

    assert report["guarantees"] == {"limits": {"tested": 2 + 4, "survived": 4}}
    assert report["survival_rate"] == pytest.approx(100 * 4 / 6, abs=0.01)
    assert {(survivor["file"], survivor["line"]) for survivor in report["survivors"]} == {
        ("limits.py", 6)
    }


@pytest.mark.slow
def test_the_code_is_unchanged_after_a_run(finished_run: FinishedRun) -> None:
    assert (finished_run.tree / "limits.py").read_text() == MODULE


@pytest.mark.slow
def test_a_run_succeeds_if_no_more_mutants_survive_than_in_the_baseline(
    finished_run: FinishedRun,
) -> None:
    """Four of six survive, as in the baseline."""
    assert finished_run.process.returncode == 0, finished_run.process.stderr


@pytest.mark.slow
def test_a_run_fails_if_more_mutants_survive_than_in_the_baseline(tree: Path) -> None:
    """Four of six mutants survive: those of the function that no test calls."""
    write_baseline(tree, tested=6, survived=3)

    run = run_mutants(tree, "--per-module", "100")

    assert run.returncode == 1, run.stderr


@pytest.mark.slow
def test_a_recorded_baseline_holds_counts_and_no_places(tree: Path) -> None:
    """Four of six mutants survive: those of the function that no test calls."""
    recorded = run_mutants(tree, "--per-module", "100", "--record-baseline")

    assert recorded.returncode == 0, recorded.stderr
    baseline = json.loads((tree / "perf/mutants_baseline.json").read_text())
    assert baseline["guarantees"] == {"limits": {"tested": 6, "survived": 4}}
    assert "limits.py" not in json.dumps(baseline)


def test_tests_that_fail_without_a_mutation_end_the_run(tree: Path) -> None:
    """The module allows sizes below 10, so this test is wrong."""
    failing_test = """\
from mempiler.limits import allows


def test_limit():
    assert allows(10)
"""
    (tree / "tests/test_limits.py").write_text(failing_test)

    failed = run_mutants(tree)

    assert failed.returncode == 2
    assert "tests/test_limits.py fails without a mutation" in failed.stderr
    assert not (tree / "report.json").exists()


def test_a_configuration_with_missing_files_is_refused_with_their_names(
    mutants: Any, tree: Path
) -> None:
    """A configuration names modules of the product, each with its tests."""
    config = tree / "perf/mutants.toml"
    config.write_text("""\
excluded_operators = []
[guarantees.limits]
"gone.py" = ["tests/test_limits.py"]
"limits.py" = ["tests/test_gone.py"]
""")

    with pytest.raises(mutants.MutantsError) as error:
        mutants.read_config(config, tree)

    message = str(error.value)
    assert "limits: there is no file gone.py" in message
    assert "limits: there is no file tests/test_gone.py" in message
    # This one is there.
    assert "tests/test_limits.py" not in message


def test_the_configuration_of_this_repository_names_no_missing_file(mutants: Any) -> None:
    """To read a configuration with a missing file is an error."""
    config = mutants.read_config()

    assert len(config.modules) > 50


@dataclass(frozen=True)
class Sampling:
    """Draws mutants of two modules: `short.py` has one place for a mutant, and `long.py` thirty."""

    mutants: Any
    """The script."""

    def sample(self, *, per_module: int, seed: int) -> list[tuple[str, int]]:
        """Return file and line of each mutant that is drawn."""
        modules = [
            self.mutants.GuardedModule("limits", name, ("test.py",))
            for name in ("short.py", "long.py")
        ]
        drawn = self.mutants.sample_mutants(
            modules, NOTHING_EXCLUDED, per_module=per_module, seed=seed
        )
        return [(mutant.module.path, mutant.spec.start_pos[0]) for mutant in drawn]


@pytest.fixture
def sampling(mutants: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampling:
    """Draws mutants of `short.py` and `long.py` in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("short.py").write_text("LIMIT = 3\n")
    Path("long.py").write_text("".join(f"LIMIT_{n} = {n}\n" for n in range(30)))
    return Sampling(mutants)


def test_of_every_module_as_many_mutants_are_drawn_as_requested(sampling: Sampling) -> None:
    """Or fewer, if it has fewer places for mutants. No place is drawn twice."""
    sample = sampling.sample(per_module=5, seed=1)

    assert [file for file, _ in sample] == ["short.py"] + ["long.py"] * 5
    assert len(set(sample)) == len(sample)


def test_the_seed_decides_which_mutants_are_drawn(sampling: Sampling) -> None:
    sample = sampling.sample(per_module=5, seed=1)

    assert sampling.sample(per_module=5, seed=1) == sample
    assert sampling.sample(per_module=5, seed=2) != sample


def test_the_allowed_rate_counts_only_the_guarantees_that_were_tested(mutants: Any) -> None:
    """A rate is the percentage of tested mutants that survived."""
    baseline = {
        "reading": mutants.Counts(tested=10, survived=5),
        "store": mutants.Counts(tested=10, survived=1),
    }

    assert mutants.baseline_rate(baseline, ["store"]) == 10
    assert mutants.baseline_rate(baseline, ["reading", "store"]) == 30


def test_all_mutants_of_a_guarantee_without_a_baseline_may_survive(mutants: Any) -> None:
    baseline = {"store": mutants.Counts(tested=10, survived=1)}

    assert mutants.baseline_rate(baseline, ["new"]) == 100
