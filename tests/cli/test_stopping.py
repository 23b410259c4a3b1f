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

from ..command_line import RunCommand
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
    ("stop", "words", "expected"),
    [
        pytest.param(
            RunInterrupted("it is kept", ("--resume", "run-1")),
            ["train"],
            "stopped; it is kept; the same command with --resume run-1 goes on",
            id="a run",
        ),
        pytest.param(
            RunInterrupted("it is kept"),
            ["synthesize"],
            "stopped; it is kept; the same command goes on",
            id="a command that goes on by itself",
        ),
        pytest.param(
            KeyboardInterrupt(),
            ["memories", "rebuild", "program", "--force"],
            "stopped; users and sessions that were written are kept, the others stay queued;"
            " the same command without --force goes on",
            id="a rebuild",
        ),
        pytest.param(KeyboardInterrupt(), ["list"], "stopped", id="a command that keeps nothing"),
    ],
)
def test_the_line_of_a_stopped_command_says_how_to_go_on(
    stop: BaseException, words: list[str], expected: str
) -> None:
    """A `RunInterrupted` says what is kept, and the options with which the command goes on."""
    assert stop_line(stop, words) == expected


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
def test_a_process_that_waits_for_its_model_ends_at_once(
    tmp_path: Path, stub: Callable[..., Any]
) -> None:
    """The server of the model is silent. The process gets a signal to end while it waits."""
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
    last_line = err.splitlines()[-1]
    assert last_line == (
        f"mempiler: stopped; what was done is kept in {run};"
        f" the same command with --resume {run.name} goes on"
    )


@pytest.mark.parametrize("module", ["click", "mempiler.cli.memories", "sqlalchemy"])
def test_an_interrupt_while_something_is_imported_is_one_line(tmp_path: Path, module: str) -> None:
    """The user presses Ctrl-C while the command `memories list` still imports `module`."""
    process = run_python(
        f"""
import runpy
import sys

class Interrupt:
    '''A finder of modules, at which the user presses Ctrl-C.'''

    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["mempiler", "memories", "list", "--store", "none.sqlite"]
runpy.run_module("mempiler", run_name="__main__")
""",
        folder=tmp_path,
    )

    assert process.returncode == EXIT_INTERRUPTED
    assert process.stderr == "mempiler: stopped\n"


def test_an_interrupt_that_python_loses_is_sent_again() -> None:
    """An object is cleaned up when Ctrl-C comes, and Python drops the exception.

    Without a second interrupt the process would sleep for 20 seconds.
    """
    start = time.monotonic()
    process = run_python(
        """
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
    )
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


@pytest.mark.parametrize(
    ("code", "needed_modules"),
    [
        pytest.param("import mempiler.cli", set(), id="import"),
        # Rich prints the tables.
        pytest.param("from mempiler.cli import main; main(['list'])", {"rich"}, id="list"),
        pytest.param(
            "from mempiler.cli import main; main(['list', 'optimizers'])",
            {"rich"},
            id="list optimizers",
        ),
    ],
)
def test_nothing_heavy_is_imported_without_need(code: str, needed_modules: set[str]) -> None:
    """Each of these modules takes a part of a second, and a command such as `list` needs none."""
    process = run_python(f"{code}; import json, sys; print(json.dumps(list(sys.modules)))")

    assert process.returncode == 0, process.stderr
    imported_modules = set(json.loads(process.stdout.splitlines()[-1]))
    assert "mempiler.cli" in imported_modules
    assert imported_modules & HEAVY_MODULES <= needed_modules


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


def test_results_go_below_the_current_folder(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MEMPILER_HOME names another folder for results. Here it is not set."""
    monkeypatch.delenv("MEMPILER_HOME")
    monkeypatch.chdir(tmp_path)
    options = ("--benchmark", "locomo", "--test", "2", "--split", "test")

    code, out, err = cli("evaluate", "no-memory", *options, "--json")

    assert code == 0, err
    assert json.loads(out)["calls"]["task"] == 2
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
    """`mempiler ui` starts MLflow's server, which shows all runs.

    An experiment of MLflow is a group of runs. The port in the command line tells the processes of
    the server.
    """
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    with Tracker("test-ui"):
        pass
    experiment_id = client().get_experiment_by_name(EXPERIMENT).experiment_id
    address = f"http://127.0.0.1:{free_port}"
    # The warnings of MLflow are none of our business.
    command = [sys.executable, "-W", "ignore", "-m", "mempiler", "ui", "--port", str(free_port)]

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        # It prints where the page is.
        assert process.stderr is not None
        lines = (line for line in process.stderr if "/#/" in line)
        first_line = next(lines)
        assert f"{address}/#/experiments/{experiment_id}/runs" in first_line

        # MLflow's server knows the experiment.
        assert within(UI_START_SECONDS, lambda: answers(f"{address}/"))
        path = f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={experiment_id}"
        with urllib.request.urlopen(address + path, timeout=UI_START_SECONDS) as response:
            experiment = json.load(response)["experiment"]
        assert experiment["name"] == EXPERIMENT
        kind = {"key": "mlflow.experimentKind", "value": "genai_development"}
        assert kind in experiment["tags"]

        assert processes_with(str(free_port))
        process.terminate()
        process.wait(UI_START_SECONDS)

    # A process that was killed takes a moment to be gone.
    assert within(20, lambda: not processes_with(str(free_port)))
