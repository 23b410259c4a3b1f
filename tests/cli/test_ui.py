"""`mempiler ui` as a process: at our experiment, and nothing left when it has ended."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.tracking import Tracker, client

EXPERIMENT = "looked-at"
PATIENCE = 90.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Any, int, str]]:
    """The process that serves the pages over the store of the tests, its port, and what it said."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        with Tracker("test-ui"):
            pass
        command = [sys.executable, "-W", "ignore", "-m", "mempiler", "ui", "--port", str(port)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "/#/" in line)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and process.poll() is None:
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/"):
                    break
                time.sleep(0.1)
            yield process, port, said
            process.terminate()
            process.communicate()


def test_it_opens_at_our_experiment_and_leaves_nothing_when_it_ends(served):
    process, port, said = served
    address = f"http://127.0.0.1:{port}"
    (id,) = re.findall(rf"{address}/#/experiments/(\d+)", said)
    assert id == client().get_experiment_by_name(EXPERIMENT).experiment_id
    path = f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={id}"
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        found = json.load(answer)["experiment"]
    assert found["name"] == EXPERIMENT
    assert {"key": "mlflow.experimentKind", "value": "genai_development"} in found["tags"]
    assert running(port)
    process.terminate()
    process.wait(PATIENCE)
    deadline = time.monotonic() + 10
    while running(port) and time.monotonic() < deadline:
        time.sleep(0.1)  # what was killed takes a moment to be gone
    assert running(port) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)


def running(port: int) -> list[str]:
    """The commands of processes that were told of a port."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if str(port).encode() in words:
                found.append(b" ".join(words).decode())
    return found
