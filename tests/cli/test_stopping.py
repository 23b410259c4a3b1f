"""The command line as a process: fast to start, quiet when its reader leaves, and stopped by Ctrl-C without a wait."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from mempiler.cli import stop_line
from mempiler.errors import RunInterrupted
from mempiler.runs.tracking.store import client
from mempiler.runs.tracking.tracker import Tracker

from ..conftest import within


def test_the_line_of_a_stopped_command_says_how_to_go_on() -> None:
    said = stop_line(RunInterrupted("it is kept", ("--resume", "run-1")), ["train"])
    assert said == "stopped; it is kept; the same command with --resume run-1 goes on"
    said = stop_line(KeyboardInterrupt(), ["memories", "rebuild", "program", "--force"])
    assert said.endswith("the others stay queued; the same command without --force goes on")
    said = stop_line(RunInterrupted("it is kept"), ["synthesize"])
    assert said == "stopped; it is kept; the same command goes on"
    assert stop_line(KeyboardInterrupt(), ["list"]) == "stopped"


@pytest.mark.slow
def test_a_process_that_waits_for_its_model_ends_at_once(tmp_path: Path, stub: Callable[..., Any]) -> None:
    with Tracker("test-stopping"):
        pass
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{os.environ['MEMPILER_HOME']}/mlflow.db"}
    environment["MEMPILER_HOME"] = str(tmp_path)
    server = stub(lambda n, text: "stall")
    given = [
        "evaluate",
        "no-memory",
        "--benchmark",
        "locomo",
        "--test",
        "2",
        "--lm",
        server.model,
        "--api-base",
        server.url,
    ]
    command = [sys.executable, "-m", "mempiler", *given]
    process = subprocess.Popen(command, stdout=-3, stderr=subprocess.PIPE, text=True, env=environment)
    assert within(60, lambda: server.texts)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    (run,) = tmp_path.glob("*-evaluate-*")
    assert process.returncode == 130
    goes_on = f"the same command with --resume {run.name} goes on"
    # Before it stands what the run rests on.
    assert err.splitlines()[-1] == f"mempiler: stopped; what was done is kept in {run}; {goes_on}"


@pytest.mark.parametrize("module", ["click", "mempiler.cli.memories", "sqlalchemy"])
def test_an_interrupt_while_something_is_imported_is_one_line(tmp_path: Path, module: str) -> None:
    script = f"""
import runpy, sys
class Interrupted:
    def find_spec(self, name, *more):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
sys.argv = ["mempiler", "memories", "list", "--store", "none.sqlite"]
runpy.run_module("mempiler", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr == "mempiler: stopped\n"


def test_an_interrupt_that_python_loses_is_sent_again() -> None:
    lost = """
import os, signal, time
from mempiler import cli
cli.REPEAT_INTERRUPT_AFTER = 0.2
cli.end_by_signal()
class Cleaned:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
made = Cleaned()
del made
time.sleep(20)
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, timeout=30)
    assert time.monotonic() - began < 15
    assert "Exception ignored in" in done.stderr
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]


COMMAND = [sys.executable, "-m", "mempiler"]
HEAVY = ("pydantic", "dspy", "mlflow", "litellm", "numpy", "datasets", "faiss", "torch", "sklearn", "jieba", "asyncio", "rich")


def python(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **options}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import mempiler.cli", HEAVY),
        ("from mempiler.cli import main; main(['list'])", [name for name in HEAVY if name != "rich"]),
        ("from mempiler.cli import main; main(['list', 'optimizers'])", [name for name in HEAVY if name != "rich"]),
    ],
    ids=["the command line", "names, without what they name", "optimizers, without what they run"],
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
    words = ["evaluate", "no-memory", "--benchmark", "locomo", "--test", "2", "--split", "test", "--json"]
    assert json.loads(cli(*words)[1])["calls"]["task"] == 2
    assert len(list((tmp_path / "runs/local").glob("*/run.json"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


EXPERIMENT = "looked-at"
PATIENCE = 90.0


@pytest.mark.slow
def test_the_ui_opens_at_our_experiment_and_leaves_no_process_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    with Tracker("test-ui"):
        pass
    command = [sys.executable, "-W", "ignore", "-m", "mempiler", "ui", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "/#/" in line)
        address = f"http://127.0.0.1:{port}"
        (experiment_id,) = re.findall(rf"{address}/#/experiments/(\d+)", said)
        assert experiment_id == client().get_experiment_by_name(EXPERIMENT).experiment_id
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{address}/"):
                break
            time.sleep(0.1)
        path = f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={experiment_id}"
        with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
            found = json.load(answer)["experiment"]
        assert found["name"] == EXPERIMENT
        assert {"key": "mlflow.experimentKind", "value": "genai_development"} in found["tags"]
        assert running(port)
        process.terminate()
        process.wait(PATIENCE)
    assert within(20, lambda: not running(port))  # what was killed takes a moment to be gone


def running(port: int) -> list[int]:
    """Processes that were told of a port."""
    return [each.pid for each in psutil.process_iter(["cmdline"]) if str(port) in (each.info["cmdline"] or ())]
