"""The command line as a process of its own: fast to start, quiet when its reader leaves."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "mempiler"]
HEAVY = ("pydantic", "dspy", "mlflow", "litellm", "numpy", "datasets", "faiss", "torch", "sklearn", "jieba", "rich")


def python(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **options}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import mempiler.cli", HEAVY),
        ("from mempiler.cli import main; main(['list'])", [name for name in HEAVY if name != "rich"]),
        ("from mempiler.data.text_metrics import stem; assert stem('dying') == 'die'", ["scipy", "sklearn"]),
    ],
    ids=["the command line", "names, without what they name", "stems"],
)
def test_nothing_heavy_is_imported_that_is_not_asked_for(code, heavy):
    process = python("-c", f"import sys; {code}; print([name for name in {heavy!r} if name in sys.modules])")
    assert process.stdout.splitlines()[-1:] == ["[]"], process.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--json"]], ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(arguments):
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == ""


def test_results_go_below_the_current_folder(cli, tmp_path, monkeypatch):
    monkeypatch.delenv("MEMPILER_HOME")
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "no-memory", "--on", "locomo", "--test", "2", "--part", "test", "--json"]
    assert json.loads(cli(*words)[1])["calls"]["task"] == 2
    assert len(list((tmp_path / "runs/local").glob("*/run.json"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
