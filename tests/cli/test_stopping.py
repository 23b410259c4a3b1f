"""The command line as a process: it starts fast, and stops without a wait and without noise."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from mempiler.cli import stop_line
from mempiler.errors import RunInterrupted
from mempiler.runs.tracking.store import client
from mempiler.runs.tracking.tracker import Tracker

from ..command_line import RunCommand, output_of
from ..conftest import within
from ..stub_server import every

MEMPILER = [sys.executable, "-m", "mempiler"]
EXIT_INTERRUPTED = 130


def run_python(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, which may take a minute."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=folder
    )


# --- Ctrl-C -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resume_options", "line"),
    [
        pytest.param(
            ("--resume", "run-1"),
            "stopped; it is kept; the same command with --resume run-1 goes on",
            id="with options",
        ),
        pytest.param((), "stopped; it is kept; the same command goes on", id="without options"),
    ],
)
def test_the_line_of_a_stopped_run_says_what_is_kept_and_how_to_go_on(
    resume_options: tuple[str, ...], line: str
) -> None:
    stop = RunInterrupted("it is kept", resume_options)

    assert stop_line(stop, ["train"]) == line


def test_the_line_of_a_stopped_rebuild_says_how_to_go_on() -> None:
    """With --force it would begin anew."""
    line = stop_line(KeyboardInterrupt(), ["memories", "rebuild", "program", "--force"])

    assert line == (
        "stopped; users and sessions that were written are kept, the others stay queued;"
        " the same command without --force goes on"
    )


def test_the_line_of_a_stopped_command_that_keeps_nothing_is_one_word() -> None:
    assert stop_line(KeyboardInterrupt(), ["list"]) == "stopped"


def environment_with_home(home: Path) -> dict[str, str]:
    """Return the environment of a process whose results go into a folder.

    The process writes into the tracking store of the tests: a new one takes seconds to create.
    """
    with Tracker("test-stopping"):
        pass
    return {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"sqlite:///{os.environ['MEMPILER_HOME']}/mlflow.db",
        "MEMPILER_HOME": str(home),
    }


@pytest.mark.slow
def test_a_process_that_waits_for_its_model_ends_when_it_is_told_to(
    tmp_path: Path, stub: Callable[..., Any]
) -> None:
    """The server of the model is silent. The last line says how to resume the run."""
    silent_server = stub(every("stall"))
    command = [
        *MEMPILER,
        *("evaluate", "no-memory"),
        *("--benchmark", "locomo"),
        *("--test", "2"),
        *("--lm", silent_server.model),
        *("--api-base", silent_server.url),
    ]

    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_with_home(tmp_path),
    )
    assert within(60, lambda: silent_server.texts)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)

    assert process.returncode == EXIT_INTERRUPTED
    (run,) = tmp_path.glob("*-evaluate-*")
    assert err.splitlines()[-1] == (
        f"mempiler: stopped; what was done is kept in {run};"
        f" the same command with --resume {run.name} goes on"
    )


INTERRUPTED_IMPORT = """
import runpy
import sys

class Interrupt:
    '''A finder of modules, at which the user presses Ctrl-C.'''

    def find_spec(self, name, *_):
        if name == MODULE:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["mempiler", "memories", "list", "--store", "none.sqlite"]
runpy.run_module("mempiler", run_name="__main__")
"""
"""Runs `mempiler memories list`, and presses Ctrl-C when it imports MODULE."""


@pytest.mark.parametrize("module", ["click", "mempiler.cli.memories", "sqlalchemy"])
def test_an_interrupt_while_a_module_is_imported_is_one_line(tmp_path: Path, module: str) -> None:
    process = run_python(INTERRUPTED_IMPORT.replace("MODULE", repr(module)), folder=tmp_path)

    assert process.returncode == EXIT_INTERRUPTED
    assert process.stderr == "mempiler: stopped\n"


LOST_INTERRUPT = """
import os
import signal
import time

from mempiler import cli

cli.REPEAT_INTERRUPT_AFTER = 0.2
cli.end_by_signal()

class InterruptedCleanup:
    '''Python loses an interrupt that comes while an object is cleaned up.'''

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

value = InterruptedCleanup()
del value
time.sleep(20)
"""
"""Presses Ctrl-C while an object is cleaned up, and then sleeps for 20 seconds."""


def test_an_interrupt_that_python_loses_is_sent_again() -> None:
    """Python drops an exception that is raised while an object is cleaned up.

    Without a second interrupt the process would sleep for 20 seconds.
    """
    start = time.monotonic()
    process = run_python(LOST_INTERRUPT)
    seconds = time.monotonic() - start

    assert seconds < 15
    # The first interrupt was lost, and the second ended the process.
    assert "Exception ignored in" in process.stderr
    assert "KeyboardInterrupt" in process.stderr.splitlines()[-1]


# --- what a process imports, prints and writes ------------------------------------------------

HEAVY_MODULES = {
    "pydantic",
    "dspy",
    "mlflow",
    "litellm",
    "numpy",
    "datasets",
    "faiss",
    "torch",
    "sklearn",
    "jieba",
    "asyncio",
    "rich",
}
"""Modules that take a part of a second to import, each."""


def heavy_modules_of(code: str) -> set[str]:
    """Run Python code in a process; return the heavy modules that are imported afterwards."""
    process = run_python(f"{code}; import json, sys; print(json.dumps(list(sys.modules)))")

    assert process.returncode == 0, process.stderr
    imported_modules = set(json.loads(process.stdout.splitlines()[-1]))
    assert "mempiler.cli" in imported_modules
    return imported_modules & HEAVY_MODULES


def test_the_command_line_imports_no_heavy_module() -> None:
    assert heavy_modules_of("import mempiler.cli") == set()


@pytest.mark.parametrize("words", [["list"], ["list", "optimizers"]])
def test_list_imports_no_heavy_module_but_that_which_prints_tables(words: list[str]) -> None:
    assert heavy_modules_of(f"from mempiler.cli import main; main({words!r})") <= {"rich"}


@pytest.mark.parametrize("words", [["--help"], ["list", "--json"]], ids=["help", "list"])
def test_a_reader_that_leaves_early_is_no_error(words: list[str]) -> None:
    """The reader of `mempiler --help | head -1` leaves after one line."""
    process = subprocess.Popen(
        [*MEMPILER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None

    process.stdout.close()
    _, err = process.communicate(timeout=60)

    assert err == ""


def test_without_mempiler_home_results_go_below_the_current_folder(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMPILER_HOME")
    monkeypatch.chdir(tmp_path)

    output_of(cli, "evaluate", "no-memory", "--benchmark", "locomo", "--test", "2")

    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert len(list((tmp_path / "runs/local").glob("*/run.json"))) == 1


# --- ui ---------------------------------------------------------------------------------------

EXPERIMENT = "looked-at"
UI_START_SECONDS = 90.0
"""How long MLflow's server may take until it answers."""


@pytest.fixture
def free_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def answers(url: str) -> bool:
    """Return whether a server answers at an address."""
    try:
        with urllib.request.urlopen(url):
            return True
    except OSError:
        return False


def experiment_of_server(address: str, experiment_id: str) -> dict[str, Any]:
    """Ask MLflow's server for an experiment, which is a group of runs."""
    path = f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={experiment_id}"
    with urllib.request.urlopen(address + path, timeout=UI_START_SECONDS) as response:
        return json.load(response)["experiment"]


def processes_with(word: str) -> list[int]:
    """Return the ids of the processes whose command line has a word."""
    pids: list[int] = []
    for process in psutil.process_iter(["cmdline"]):
        if word in (process.info["cmdline"] or ()):
            pids.append(process.pid)
    return pids


@pytest.mark.slow
def test_the_ui_opens_at_our_experiment_and_leaves_no_process_when_it_ends(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mempiler ui` starts MLflow's server, which shows all runs, and prints where its page is.

    The processes of the server have the port in their command lines.
    """
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    with Tracker("test-ui"):
        pass
    experiment_id = client().get_experiment_by_name(EXPERIMENT).experiment_id
    address = f"http://127.0.0.1:{free_port}"
    # The warnings of MLflow are none of our business.
    command = [sys.executable, "-W", "ignore", "-m", "mempiler", "ui", "--port", str(free_port)]

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line_with_page = next(line for line in process.stderr if "/#/" in line)
        assert f"{address}/#/experiments/{experiment_id}/runs" in line_with_page

        assert within(UI_START_SECONDS, lambda: answers(f"{address}/"))
        assert experiment_of_server(address, experiment_id)["name"] == EXPERIMENT

        assert processes_with(str(free_port))
        process.terminate()
        process.wait(UI_START_SECONDS)

    # A process that was killed takes a moment to be gone.
    assert within(20, lambda: not processes_with(str(free_port)))
