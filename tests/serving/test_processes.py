"""`serve --workers`: several processes on one port and one store, replaced when they die, ended in order."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Store
from mempiler.memory.stored import Owner

from tests.serving.served import Served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def within(seconds: float, check: Callable[[], Any]) -> Any:
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def processes(parent: int) -> set[int]:
    """The processes that answer for one that does not."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, ["--grace", "5"], workers=2) as made:
        assert within(60, lambda: made.log.read_text().count('"event": "serving"') == 2), made.log.read_text()
        yield made


def add_to(served: Served, where: str) -> int:
    """Stores forty sessions at once, and says how many were."""
    with ThreadPoolExecutor(8) as clients:
        added = clients.map(lambda n: served.add(f"Note {n} is on the {where}.", f"user-{n % 4}"), range(40))
        return sum(status == 201 for status in added)


def test_processes_share_port_and_store_are_replaced_and_end_in_order(served: Served) -> None:
    before = processes(served.process.pid)
    assert len(before) == 2
    posted = 'mempiler_requests_total{method="POST",route="/v1/users/{user}/sessions",status="201"}'
    first = served.metrics()[posted]
    assert add_to(served, "fridge") == 40
    assert served.metrics()[posted] == first + 40

    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    # One that came in this moment may have met the dying process.
    again = add_to(served, "door")
    assert again >= 38
    assert within(60, lambda: len(processes(served.process.pid) - {killed}) == 2)
    found = served.metrics()
    assert found[posted] >= first + 40
    assert found['mempiler_requests_in_progress{pool="storing"}'] <= 1

    with Store(served.store) as store:
        owners = [Owner(f"user-{user}", "acme") for user in range(4)]
        texts = [item.item.turns[0].text for owner in owners for item in store.items(owner)]
    assert len(set(texts)) == len(texts) >= 40 + again

    assert within(60, lambda: served.log.read_text().count('"event": "serving"') == 3)
    last = processes(served.process.pid)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(30) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in last)
    assert served.log.read_text().count('"event": "stopped"') == 2


def test_processes_end_with_the_one_that_started_them(served: Served) -> None:
    running = processes(served.process.pid)
    served.process.kill()
    served.process.wait(20)
    assert within(30, lambda: not any(Path(f"/proc/{pid}").exists() for pid in running))


def refused(folder: Path, *options: str) -> list[str]:
    """What a service says that cannot start."""
    mempiler.save(mempiler.build("turn-rag"), folder / "program")
    command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--workers", "3"]
    command += ["--store", str(folder / "m.sqlite"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    return done.stderr.splitlines()


def test_what_keeps_all_from_starting_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("acme short\n")
    said = refused(tmp_path, "--token-file", str(tmp_path / "tokens"), "--port", "0")
    assert sum("the token has 5 characters" in line for line in said) == 1


def test_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in refused(tmp_path, "--port", port)[-1]
