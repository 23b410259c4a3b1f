"""Runs a part of a test in several processes, as torchrun starts them."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, {repository!r})
from {module} import main
main(Path({folder!r}))
os._exit(0)  # at once: threads of torch may abort a Python that winds down
"""


def run_in_two_processes(module: str, folder: Path, timeout: float) -> None:
    """Run `main(folder)` of a module of tests in two processes that train together.

    Args:
        module: The name of the module, such as `tests.engines.local.training_runs`.
        folder: Where the processes find their input and leave their results.
        timeout: In seconds.
    """
    script = folder / "run.py"
    script.write_text(SCRIPT.format(repository=str(REPOSITORY), module=module, folder=str(folder)))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    processes = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert processes.returncode == 0, processes.stderr
