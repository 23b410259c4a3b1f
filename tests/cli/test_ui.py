"""`mempiler ui` as a process: at our experiment, and nothing left when it has ended."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import psutil
import pytest
from mempiler.runs.tracking import Tracker, client

from ..conftest import within

EXPERIMENT = "looked-at"
PATIENCE = 90.0
pytestmark = pytest.mark.slow


def test_it_opens_at_our_experiment_and_leaves_nothing_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
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
        (id,) = re.findall(rf"{address}/#/experiments/(\d+)", said)
        assert id == client().get_experiment_by_name(EXPERIMENT).experiment_id
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{address}/"):
                break
            time.sleep(0.1)
        path = f"/ajax-api/2.0/mlflow/experiments/get?experiment_id={id}"
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
