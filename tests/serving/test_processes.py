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

import httpx
import mempiler
import pytest
from mempiler import Store
from mempiler.memory.stored import Owner


def within(seconds: float, check: Callable[[], Any]) -> Any:
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def processes(parent: int) -> set[int]:
    """The processes that answer for one that does not."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


class Serving:
    """A service of two processes."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log = folder / "memories.sqlite", folder / "log"
        mempiler.save(mempiler.build("turn-rag"), folder / "program")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--workers", "2"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--port", port, "--store", str(self.store), "--grace", "5"], stderr=log
            )
        assert within(60, lambda: self.log.read_text().count('"event": "serving"') == 2), self.log.read_text()

    def add(self, text: str, user: str = "ada") -> bool:
        """Stores a session over a connection of its own; false where the process behind it dies."""
        body = {"messages": [{"role": "user", "name": "Ada", "content": text}]}
        try:
            return httpx.post(f"{self.address}/v1/users/{user}/sessions", json=body, timeout=30).status_code == 201
        except httpx.HTTPError:
            return False

    def counted(self) -> float:
        """Sessions that were stored, as one of the processes tells of all."""
        lines = httpx.get(f"{self.address}/metrics", timeout=30).text.splitlines()
        route = 'mempiler_requests_total{method="POST",route="/v1/users/{user}/sessions",status="201"} '
        return sum(float(line.removeprefix(route)) for line in lines if line.startswith(route))


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    made = Serving(tmp_path_factory.mktemp("serving"))
    yield made
    made.process.kill()
    made.process.wait(20)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_processes_share_port_and_store_are_replaced_and_end_in_order(serving: Serving) -> None:
    before = processes(serving.process.pid)
    assert len(before) == 2
    with ThreadPoolExecutor(8) as clients:
        stored = list(clients.map(lambda n: serving.add(f"Note {n} is on the fridge.", f"user-{n % 4}"), range(40)))
    assert all(stored)
    assert within(20, lambda: serving.counted() == 40)

    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    with ThreadPoolExecutor(8) as clients:
        again = list(clients.map(lambda n: serving.add(f"Note {n} is on the door.", f"user-{n % 4}"), range(40)))
    # One that came in this moment may have met the dying process; what waited at its socket is answered by the next.
    assert sum(again) >= 38
    assert within(60, lambda: len(processes(serving.process.pid) - {killed}) == 2)
    assert "a process ended, another takes its place" in serving.log.read_text()

    with Store(serving.store) as store:
        texts = [item.item.turns[0].text for user in range(4) for item in store.items(Owner(f"user-{user}"))]
    assert len(set(texts)) == len(texts) >= sum(stored) + sum(again)

    last = processes(serving.process.pid)
    serving.process.send_signal(signal.SIGTERM)
    assert serving.process.wait(30) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in last)
    assert serving.log.read_text().count('"event": "stopped"') == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    made = Serving(tmp_path)
    running = processes(made.process.pid)
    made.process.kill()
    made.process.wait(20)
    assert within(30, lambda: not any(Path(f"/proc/{pid}").exists() for pid in running))


def test_what_keeps_all_from_starting_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("acme short\n")
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = [sys.executable, "-m", "mempiler", "serve", str(tmp_path / "program"), "--workers", "3", "--port", "0"]
    done = subprocess.run(
        [*command, "--token-file", str(tmp_path / "tokens"), "--store", str(tmp_path / "m.sqlite")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr.count("the token has 5 characters")) == (2, 1)
    assert done.stderr.splitlines()[-1].startswith("mempiler: the service did not start")
    assert "Traceback" not in done.stderr


def test_taken_port_is_refused(tmp_path: Path) -> None:
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "mempiler", "serve", str(tmp_path / "program"), "--workers", "2"]
        done = subprocess.run([*command, "--port", port], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, f"port {port}" in done.stderr) == (2, True)
