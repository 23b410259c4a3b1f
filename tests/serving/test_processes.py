"""`serve --workers`: several processes on one port and one store, replaced when they die, ended in order."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mempiler
import pytest
from mempiler import Store
from mempiler.memory.stored import Owner

from tests.serving.served import Served

from .conftest import within

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]


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


def test_what_keeps_all_from_starting_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("acme short\n")
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = [sys.executable, "-m", "mempiler", "serve", "program", "--token-file", "tokens", "--workers", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert sum("the token of at least 16 characters" in line for line in done.stderr.splitlines()) == 1
