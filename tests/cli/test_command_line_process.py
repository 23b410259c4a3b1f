"""The command line as a process of its own: fast to start, quiet when its reader leaves."""

import json
import os
import subprocess
import sys

import pytest
from mempiler.runs.tracking import Tracker

COMMAND = [sys.executable, "-m", "mempiler"]
HEAVY = ("pydantic", "dspy", "mlflow", "litellm", "numpy", "datasets", "faiss", "torch", "sklearn", "jieba", "rich")


def python(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **options}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=60)


def test_the_command_line_imports_nothing_heavy():
    code = f"import sys, mempiler.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_the_names_are_listed_without_what_they_name():
    heavy = [name for name in HEAVY if name != "rich"]
    code = (
        f"import sys; from mempiler.cli import main; main(['list']); print([n for n in {heavy!r} if n in sys.modules])"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--json"]], ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(arguments):
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == ""


@pytest.mark.slow
def test_results_go_below_the_current_folder(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "MEMPILER_HOME"}
    # The store of the other tests: making one takes seconds, and its experiment knows where artifacts go.
    with Tracker("test-results-below"):
        pass
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{os.environ['MEMPILER_HOME']}/mlflow.db"
    command = [*COMMAND, "evaluate", "no-memory", "--on", "locomo", "--test", "2", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=100)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["calls"]["task"] == 2
    assert len(list((tmp_path / "runs/local").iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
