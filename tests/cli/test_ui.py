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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.tracking import Tracker, client

EXPERIMENT = "looked-at"
PATIENCE = 90.0
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Served:
    """The pages over the store of the tests."""

    process: Any
    port: int
    said: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=PATIENCE) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
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
            yield Served(process, port, said)
            process.terminate()
            process.communicate()


def test_it_opens_at_our_experiment(served):
    (id,) = re.findall(rf"{served.address}/#/experiments/(\d+)", served.said)
    assert id == client().get_experiment_by_name(EXPERIMENT).experiment_id
    found = served.asked(f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={id}")["experiment"]
    assert (found["name"], {"key": "mlflow.experimentKind", "value": "genai_development"} in found["tags"]) == (
        EXPERIMENT,
        True,
    )


def test_nothing_of_it_is_left_when_it_ends(served):
    assert running(served.port)
    served.process.terminate()
    served.process.wait(PATIENCE)
    deadline = time.monotonic() + 10
    while running(served.port) and time.monotonic() < deadline:
        time.sleep(0.1)  # what was killed takes a moment to be gone
    assert running(served.port) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", served.port), 1)


def running(port: int) -> list[str]:
    """The commands of processes that were told of a port."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if str(port).encode() in words:
                found.append(b" ".join(words).decode())
    return found
