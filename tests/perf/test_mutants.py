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
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")

ROOT = Path(__file__).parents[2]
NOTHING_EXCLUDED = re.compile("^$")

# A module of two functions. The test below knows the first one alone.
MODULE = """\
def allows(size):
    return size < 10


def is_odd(number):
    return number % 2 == 1
"""
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
def mutants(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    import mutants

    return mutants


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one module, of whose two functions one is tested."""
    tree = tmp_path / "tree"
    files = {
        "limits.py": MODULE,
        "tests/test_limits.py": TEST,
        "perf/mutants.py": (ROOT / "perf/mutants.py").read_text(encoding="utf-8"),
        "perf/mutants.toml": CONFIG,
    }
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return tree


def run_mutants(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "perf/mutants.py",
        "--jobs",
        "1",
        "--output",
        "report.json",
        *options,
    ]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def write_baseline(tree: Path, tested: int, survived: int) -> None:
    counts = {"tested": tested, "survived": survived}
    text = json.dumps({"guarantees": {"limits": counts}})
    (tree / "perf/mutants_baseline.json").write_text(text)


@pytest.mark.slow
def test_changes_that_no_test_notices_survive_and_are_reported(tree: Path) -> None:
    """The tests in `TEST` call `allows` with sizes around its limit, and do not call `is_odd`."""
    module = """\
def allows(size):
    return size < 10


def is_odd(number):
    return number % 2 == 1
"""
    (tree / "limits.py").write_text(module)
    write_baseline(tree, tested=6, survived=4)

    run = run_mutants(tree, "--per-module", "100")

    # No more survive than in the baseline.
    assert run.returncode == 0, run.stderr
    # The changes of `<` and `10` in line 2 are noticed, those of `%`, `2`, `==` and `1` in line 6
    # are not.
    report = json.loads((tree / "report.json").read_text())
    assert report["tested"] == 6
    assert report["survived"] == 4
    assert report["survival_rate"] == 66.67  # percent
    assert report["guarantees"] == {"limits": {"tested": 6, "survived": 4}}
    assert {survivor["file"] for survivor in report["survivors"]} == {"limits.py"}
    assert {survivor["line"] for survivor in report["survivors"]} == {6}
    assert "limits.py:6: return number" in run.stdout
    # The module is as it was before the changes.
    assert (tree / "limits.py").read_text() == module


@pytest.mark.slow
def test_a_run_fails_if_more_mutants_survive_than_in_the_baseline(tree: Path) -> None:
    """Four of six mutants survive: those of `is_odd`, which no test calls."""
    write_baseline(tree, tested=6, survived=3)

    run = run_mutants(tree, "--per-module", "100")

    assert run.returncode == 1, run.stderr


@pytest.mark.slow
def test_a_recorded_baseline_holds_counts_and_no_places(tree: Path) -> None:
    """Four of six mutants survive: those of `is_odd`, which no test calls."""
    recorded = run_mutants(tree, "--per-module", "100", "--record-baseline")

    assert recorded.returncode == 0, recorded.stderr
    baseline = json.loads((tree / "perf/mutants_baseline.json").read_text())
    assert baseline["guarantees"] == {"limits": {"tested": 6, "survived": 4}}
    assert "survivors" not in baseline
    assert "limits.py" not in json.dumps(baseline)


def test_tests_that_fail_without_a_mutation_end_the_run(tree: Path) -> None:
    """The module allows sizes below 10, so this test fails."""
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


def test_modules_and_tests_that_are_not_there_are_named(mutants, tree: Path) -> None:
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
    assert "limits: there is no file gone.py" in str(error.value)
    assert "limits: there is no file tests/test_gone.py" in str(error.value)
    assert "tests/test_limits.py" not in str(error.value)


def test_the_modules_and_tests_of_this_tree_are_there(mutants) -> None:
    """To read a configuration that names a missing file is an error."""
    config = mutants.read_config()

    assert len(config.modules) > 50


def test_a_sample_is_fair_to_modules_and_the_same_each_time(mutants, tmp_path, monkeypatch) -> None:
    """The short module has one place for a mutant.

    The long one has thirty, of which five are drawn.
    """
    monkeypatch.chdir(tmp_path)
    Path("short.py").write_text("LIMIT = 3\n")
    Path("long.py").write_text("".join(f"LIMIT_{n} = {n}\n" for n in range(30)))
    modules = [
        mutants.GuardedModule("limits", name, ("test.py",)) for name in ("short.py", "long.py")
    ]

    def sample(seed: int) -> list[tuple[str, int]]:
        """Return file and line of each mutant that is drawn."""
        drawn = mutants.sample_mutants(modules, NOTHING_EXCLUDED, per_module=5, seed=seed)
        return [(mutant.module.path, mutant.spec.start_pos[0]) for mutant in drawn]

    sample_of_seed_1 = sample(seed=1)

    files = [file for file, _ in sample_of_seed_1]
    assert files == ["short.py", *["long.py"] * 5]
    # No place is drawn twice.
    assert len(set(sample_of_seed_1)) == 6
    assert sample(seed=1) == sample_of_seed_1
    assert sample(seed=2) != sample_of_seed_1


def test_the_allowed_rate_counts_only_the_guarantees_that_were_tested(mutants) -> None:
    """A rate is the percentage of tested mutants that survived: 10 for 3 of 30, 20 for 8 of 40."""
    baseline = {
        "reading": mutants.Counts(tested=10, survived=5),
        "store": mutants.Counts(tested=30, survived=3),
    }

    assert mutants.baseline_rate(baseline, ["store"]) == 10
    assert mutants.baseline_rate(baseline, ["reading", "store"]) == 20


def test_all_mutants_of_a_guarantee_without_a_baseline_may_survive(mutants) -> None:
    baseline = {"store": mutants.Counts(tested=30, survived=3)}

    assert mutants.baseline_rate(baseline, ["new"]) == 100


def test_the_baseline_of_this_tree_can_be_read(mutants) -> None:
    """The recorded run tested 374 mutants, of which 109 survived."""
    baseline = mutants.read_baseline(mutants.BASELINE)

    assert mutants.total(baseline.values()) == mutants.Counts(374, 109)
