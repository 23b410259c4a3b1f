"""kill -9 during a load: what `perf/kill.py` does fifty times over, a few times."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "perf" / "kill.py"


def test_killed_workers_lose_and_repeat_no_session(url: str) -> None:
    sizes = ["--kills", "5", "--sessions", "40", "--users", "5", "--delay", "0.1", "--every", "0.05"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--store", url, *sizes],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert (found["kills"], found["sessions"], found["remembered"]) == (5, 40, 40)
    assert found["idle"] < 5, "every kill came after the load"
    assert (found["lost"], found["twice"], found["wrong"]) == (0, 0, 0)
