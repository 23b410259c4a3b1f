"""Work that tells what it finds, in processes of its own: what breaks tells no more, and errors of ours end all."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mempiler.errors import EndpointError, MissingDependencyError, UnknownNameError, UserError
from mempiler.runs.workers import check_workers, run_parallel

PATIENCE = 60.0
OWNER = """
from mempiler.runs.workers import run_parallel
from test_workers import linger
for _ in run_parallel(linger, [(0,), (1,)], 2):
    print("begun", flush=True)
"""


def work(n: int) -> Iterator[Any]:
    print("what workers print is no result")
    yield n, os.getpid()
    if n == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == 2:
        raise ValueError("a mistake of the work")
    yield "through"


def fail(n: int, folder: str) -> Iterator[Any]:
    if n < 2:
        until(Path(folder, "begun").exists)
    if n == 0:
        raise UnknownNameError("method", "no-such", ["turn-rag"])
    if n == 1:
        raise EndpointError("the endpoint is gone")
    try:
        Path(folder, "begun").touch()
        yield from linger(n)
    finally:
        time.sleep(0.5)
        Path(folder, "finished").touch()


def linger(n: int) -> Iterator[Any]:
    yield os.getpid()
    for _ in range(int(PATIENCE)):
        try:
            queue.SimpleQueue[None]().get(timeout=1)
        except queue.Empty:
            continue


@pytest.mark.slow
def test_pieces_tell_what_they_find_and_one_that_breaks_tells_no_more(ray: Any) -> None:
    found = list(run_parallel(work, [(n,) for n in range(4)], 2))
    assert sorted(n for n, what in found if what == "through") == [0, 3]
    # What was told at the moment of a kill may be lost with the piece.
    firsts = {n: what for n, what in found if what != "through" and n != 1}
    assert {n: what[0] for n, what in firsts.items()} == {0: 0, 2: 2, 3: 3}
    assert len({what[1] for what in firsts.values()} | {os.getpid()}) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("n", "kind", "said"), [(0, UserError, "no-such"), (1, EndpointError, "is gone")])
def test_an_error_of_ours_ends_all_after_what_was_begun(
    n: int, kind: type[Exception], said: str, ray: Any, tmp_path: Path
) -> None:
    started = time.monotonic()
    with pytest.raises(kind, match=said):
        list(run_parallel(fail, [(2, str(tmp_path)), (n, str(tmp_path))], 2))
    assert time.monotonic() - started < PATIENCE / 2
    assert (tmp_path / "finished").exists()


@pytest.mark.slow
def test_the_workers_end_with_a_killed_owner(ray: Any) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command, environment = [sys.executable, "-c", OWNER], {**os.environ, "PYTHONPATH": path}
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert owner.stdout is not None
    assert [owner.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
    workers = [one for one in psutil.Process(owner.pid).children(recursive=True) if "_telling" in one.name()]
    assert len(workers) == 2
    owner.kill()
    owner.wait()
    owner.stdout.close()
    psutil.wait_procs(workers, timeout=PATIENCE)
    assert not any(one.is_running() for one in workers)


@pytest.mark.slow
def test_an_address_at_which_there_is_no_cluster_is_one_line(ray: Any) -> None:
    ray.shutdown()
    with pytest.raises(UserError, match=r"--workers 127.0.0.1:1: no Ray cluster answers there"):
        list(run_parallel(work, [(0,)], "127.0.0.1:1"))


@pytest.mark.parametrize("workers", [0, -1, "two", "ray"])
def test_what_is_neither_a_number_nor_an_address_is_refused(workers: Any) -> None:
    with pytest.raises(UserError, match="give a number of processes, or HOST:PORT"):
        check_workers(workers)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"^ray is not installed; run: pip install '\.\[ray\]'$"):
        check_workers(2)


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
