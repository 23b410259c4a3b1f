"""kill -9 during a load, under clocks that jump: what `perf/kill.py` does fifty times over, a few times."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "perf" / "kill.py"


def killed(url: str, *options: str) -> dict[str, Any]:
    """What the script counted, over forty sessions unless told otherwise."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--store", url, "--sessions", "40", "--users", "5", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_killed_workers_lose_and_repeat_no_session(url: str) -> None:
    found = killed(url, "--kills", "5", "--every", "0.05")
    assert (found["kills"], found["sessions"], found["remembered"]) == (5, 40, 40)
    assert found["idle"] < 5, "every kill came after the load"
    assert (found["lost"], found["twice"], found["wrong"]) == (0, 0, 0)


@pytest.mark.slow
def test_load_under_jumping_clocks_and_kills_loses_nothing(url: str) -> None:
    found = killed(url, "--kills", "15", "--sessions", "95", "--delay", "0.05", "--clocks-jump")
    assert (found["kills"], found["remembered"]) == (15, found["sessions"])
    assert (found["lost"], found["twice"], found["wrong"]) == (0, 0, 0)
