"""Work in processes of its own: what fails or is killed is left undone, and nothing outlives its owner."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mempiler.runs.side_by_side import side_by_side


def write(folder: str, n: int) -> None:
    if n == 1:
        raise ValueError("no such work")
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    Path(folder, str(n)).write_text(str(os.getpid()))


def heard(folder: str) -> None:
    Path(folder, "level").write_text(str(logging.getLogger("dspy").level))


OWNER = """
import sys, time
from collections.abc import Callable
from pathlib import Path
from mempiler.runs.side_by_side import side_by_side
sys.path.insert(0, sys.argv[1])
from test_side_by_side import linger
if __name__ == "__main__":
    side_by_side(linger, [(sys.argv[2], 0), (sys.argv[2], 1)], 2)
"""


def linger(folder: str, n: int) -> None:
    Path(folder, str(n)).write_text(str(os.getpid()))
    time.sleep(60)


def test_each_piece_has_a_process_and_failures_do_not_stop_the_others(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    side_by_side(write, [(str(tmp_path), n) for n in range(4)], 2, lambda done, all: heard.append((done, all)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "3"]
    assert len({path.read_text() for path in tmp_path.iterdir()} | {str(os.getpid())}) == 3
    assert heard[-1] == (4, 4)


def test_dspy_is_as_quiet_there_as_here(tmp_path: Path) -> None:
    logger = logging.getLogger("dspy")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        side_by_side(heard, [(str(tmp_path),)], 1)
    finally:
        logger.setLevel(before)
    assert (tmp_path / "level").read_text() == str(logging.CRITICAL)


def test_the_processes_end_with_a_killed_owner(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    made = tmp_path / "made"
    made.mkdir()
    owner = subprocess.Popen([sys.executable, str(script), str(Path(__file__).parent), str(made)])
    until(lambda: len([path for path in made.iterdir() if path.read_text()]) == 2)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not any(alive(int(path.read_text())) for path in made.iterdir()))


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
