"""Whoever stops a command with Ctrl-C reads what is kept and the command that goes on, and does not wait."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli.stopping import stop_line
from mempiler.errors import Stopped
from mempiler.runs.folder import RunFolder
from mempiler.runs.tracking import Tracker

RUN = Stopped("what was done is kept in here", ("--resume", "run-1"))


@pytest.mark.parametrize(
    ("stop", "arguments", "goes_on"),
    [
        (RUN, ["evaluate", "turn-rag", "--on", "my bench"], "evaluate turn-rag --on 'my bench' --resume run-1"),
        (RUN, ["compile", "x", "--resume", "old", "--seed", "1"], "compile x --seed 1 --resume run-1"),
        (RUN, ["train", "x", "--resume=old"], "train x --resume run-1"),
        (RUN, ["reproduce", "rgmem"], "reproduce rgmem --resume run-1"),
        (RUN, ["compare", "a", "b"], "compare a b"),
        (KeyboardInterrupt(), ["memories", "rebuild", "p"], "memories rebuild p"),
        (KeyboardInterrupt(), ["memories", "rebuild", "p", "--force"], "memories rebuild p"),
        (
            KeyboardInterrupt(),
            ["memories", "rebuild", "p", "--store", "postgresql://ann:secret@host/db"],
            "memories rebuild p --store postgresql://ann:...@host/db",
        ),
    ],
)
def test_the_command_that_goes_on(stop: BaseException, arguments: list[str], goes_on: str) -> None:
    line = stop_line(stop, arguments)
    assert line.startswith("stopped; ")
    assert line.endswith(f"; to go on: mempiler {goes_on}")


def test_a_command_that_keeps_nothing_was_stopped() -> None:
    assert stop_line(KeyboardInterrupt(), ["list"]) == "stopped"


def test_a_stopped_run_is_a_keyboard_interrupt_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    folder = RunFolder.create("evaluate-x", {})
    with pytest.raises(KeyboardInterrupt, match="is kept in"), folder.recording():
        raise KeyboardInterrupt
    assert folder.read()["status"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_waits_for_its_model_ends_at_once(
    tmp_path: Path, stub: Callable[..., Any], number: signal.Signals
) -> None:
    with Tracker("test-stopping"):
        pass
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{os.environ['MEMPILER_HOME']}/mlflow.db"}
    environment["MEMPILER_HOME"] = str(tmp_path)
    server = stub(lambda n, text: "stall")
    given = ["evaluate", "no-memory", "--on", "locomo", "--test", "2", "--lm", server.model, "--api-base", server.url]
    process = subprocess.Popen(
        [sys.executable, "-m", "mempiler", *given],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    until = time.monotonic() + 60
    while not server.texts and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    (run,) = tmp_path.glob("*-evaluate-*")
    assert process.returncode == 130
    command = shlex.join(["mempiler", *given, "--resume", run.name])
    assert err == f"mempiler: stopped; what was done is kept in {run}; to go on: {command}\n"


def test_an_interrupt_that_python_loses_is_sent_again() -> None:
    lost = """
import os, signal, time
from mempiler.cli import stopping
stopping.AGAIN = 0.2
stopping.end_by_signal()
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
