"""A real service in a process of its own under what would take it down, and under two hundred users at once.

The disk of an SQLite file is full, and has room again; PostgreSQL's processes are stopped, and go on. While it lasts
`/health` is answered in 5 s, and `/ready` says 503 in 3 s; memory grows by less than 200 MB, the log has less than
1 MB; afterwards all is well in 20 s.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import Postgres
from tests.serving.crowd import crowd
from tests.serving.served import Served

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]
SECONDS = 8.0


def memory_of(process: int) -> float:
    """Resident memory in MB."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def survives(service: Served, heal: Callable[[], object]) -> None:
    """Asks while something lasts, ends it, and holds what must be."""
    begun, before, told = time.monotonic(), memory_of(service.process.pid), False
    # Whether a store can be written is tried every ten seconds.
    while time.monotonic() < begun + (SECONDS if told else 2 * SECONDS):
        assert service.ask("GET", "/health", timeout=5) == 200
        told = told or service.ask("GET", "/ready", timeout=3) == 503
        assert memory_of(service.process.pid) - before < 200
        time.sleep(0.2)
    heal()
    assert told, "/ready never said 503"
    assert service.well(20) is not None
    assert service.log.stat().st_size < 1_000_000


def test_a_full_disk_is_told_and_got_over(tmp_path: Path) -> None:
    def allow(size: int) -> None:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    with Served(tmp_path, limits=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)) as service:
        allow(0)
        assert service.add() >= 500
        survives(service, lambda: allow(resource.RLIM_INFINITY))
        # What is said before the service begins is no JSON.
        lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
        assert any("full" in line.get("cause", "") or "disk" in line.get("cause", "") for line in lines)


def test_a_database_server_that_is_stopped_is_told_and_got_over(tmp_path: Path) -> None:
    try:
        server = Postgres()
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        with Served(tmp_path, store=server.emptied()) as service:
            main = int((server._folder / "data" / "postmaster.pid").read_text().split()[0])
            processes = [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]
            for process in processes:
                os.kill(process, signal.SIGSTOP)
            heal = lambda: [os.kill(process, signal.SIGCONT) for process in processes]  # noqa: E731
            survives(service, heal)
    finally:
        server.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_two_hundred_users_meet_no_error_and_no_word_of_another(tmp_path: Path, workers: int) -> None:
    with Served(tmp_path, workers=workers) as service:
        found: dict[str, Any] = asyncio.run(crowd(service.address, 200, SECONDS, service.tokens))
    assert [name for name in found if name.startswith("error")] == []
    assert found["leaks"] == 0
    assert found["recalled"] > 0.5 * found["questions"] > 0
