"""Real services in processes of their own: under what would take them down, and under two hundred users at once.

While a disk is full or PostgreSQL stands still, `/health` is answered in 5 s, `/ready` says 503 in 3 s, memory grows by
less than 200 MB and the log has less than 1 MB; afterwards all is well in 20 s.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
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
from mempiler.memory.store.owner import Owner

from tests.postgres import Postgres
from tests.serving.served import Served, crowd

from .conftest import within
from .soak import good, soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def processes(parent: int) -> set[int]:
    """The processes that answer for one that does not; one that was killed may end while it is looked at."""
    found = set[int]()
    for pid in children(parent):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found |= {pid} if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes() else set()
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, ["--grace", "5"], workers=2) as made:
        assert within(60, lambda: made.log.read_text().count('"event": "serving"') == 2), (
            made.log.read_text()
        )
        yield made


def add_to(served: Served, where: str) -> int:
    """Stores forty sessions at once, and says how many were."""
    with ThreadPoolExecutor(8) as clients:
        added = clients.map(
            lambda n: served.add(f"Note {n} is on the {where}.", f"user-{n % 4}"), range(40)
        )
        return sum(status == 201 for status in added)


def test_no_process_logs_a_user_s_name_or_a_query(served: Served) -> None:
    line = '"route": "/v1/users/{user}/entries"'
    # Enough requests that each of the two processes is likely to have answered one.
    for _ in range(10):
        assert served.ask("GET", "/v1/users/hidden-name/entries?cursor=hidden-query") == 404
    assert within(10, lambda: served.log.read_text().count(line) == 10)
    assert "hidden" not in served.log.read_text()


def test_processes_share_port_and_store_are_replaced_and_end_in_order(served: Served) -> None:
    before = processes(served.process.pid)
    assert len(before) == 2
    posted = 'mempiler_requests_total{method="POST",route="/v1/users/{user}/sessions",status="201"}'
    # The one session that says that it is ready, and forty; what is answered is counted a moment later.
    assert within(10, lambda: served.metrics().get(posted) == 1)
    assert add_to(served, "fridge") == 40
    assert within(10, lambda: served.metrics()[posted] == 41)

    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    # One that came in this moment may have met the dying process.
    again = add_to(served, "door")
    assert again >= 38
    assert within(60, lambda: len(processes(served.process.pid) - {killed}) == 2)
    found = served.metrics()
    assert found[posted] >= 41
    assert found['mempiler_requests_in_progress{pool="storing"}'] <= 1

    with Store(served.store) as store:
        owners = [Owner(f"user-{user}", "acme") for user in range(4)]
        texts = [
            item.item.turns[0].text for owner in owners for item in store.items.list_all(owner)
        ]
    assert len(set(texts)) == len(texts) >= 40 + again

    assert within(60, lambda: served.log.read_text().count('"event": "serving"') == 3)
    last = processes(served.process.pid)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(30) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in last)
    assert served.log.read_text().count('"event": "stopped"') == 2


def test_worker_processes_end_with_their_parent(served: Served) -> None:
    running = processes(served.process.pid)
    served.process.kill()
    served.process.wait(20)
    assert within(30, lambda: not any(Path(f"/proc/{pid}").exists() for pid in running))


def test_an_error_that_keeps_all_workers_from_starting_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("acme short\n")
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = [
        sys.executable,
        "-m",
        "mempiler",
        "serve",
        "program",
        "--token-file",
        "tokens",
        "--workers",
        "3",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (
        sum("the token of at least 16 characters" in line for line in done.stderr.splitlines()) == 1
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("asked", [True, False])
def test_command_serves_until_a_signal_and_leaves_nothing_half_done(
    tmp_path, monkeypatch, number, asked
) -> None:
    """Also with settings from the environment; the signal may come while it starts."""
    monkeypatch.setenv("MEMPILER_THREADS", "3")
    served = Served(tmp_path)
    try:
        assert within(60, lambda: '"listening"' in served.log.read_text())
        body = {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}
        if asked:
            assert served.ask("POST", "/v1/chat/completions", body) == 200
        served.process.send_signal(number)
        assert served.process.wait(20) == 0
    finally:
        served.__exit__()
    assert '"stopped"' in served.log.read_text()
    with Store(served.store) as store:
        sessions = store.read(Owner("ada", "acme")).open_sessions
    assert [len(session.turns) for session in sessions] == ([2] if asked else [])


SECONDS = 6.0


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


def test_a_service_reports_a_full_disk_and_recovers(tmp_path: Path) -> None:
    def allow(size: int) -> None:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    with Served(tmp_path, limits=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)) as service:
        allow(0)
        assert service.add() >= 500
        survives(service, lambda: allow(resource.RLIM_INFINITY))
        # What is said before the service begins is no JSON.
        lines = [
            json.loads(line)
            for line in service.log.read_text().splitlines()
            if line.startswith("{")
        ]
        assert any(
            "full" in line.get("cause", "") or "disk" in line.get("cause", "") for line in lines
        )


def test_a_service_reports_a_stopped_database_server_and_recovers(tmp_path: Path) -> None:
    try:
        server = Postgres()
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        with Served(tmp_path, store=server.emptied()) as service:
            main = int((server._folder / "data" / "postmaster.pid").read_text().split()[0])
            all_of_it = [main, *children(main)]
            for process in all_of_it:
                os.kill(process, signal.SIGSTOP)
            survives(service, lambda: [os.kill(process, signal.SIGCONT) for process in all_of_it])
    finally:
        server.stop()


def test_a_process_that_is_replaced_while_the_database_is_down_takes_none_with_it(
    tmp_path: Path,
) -> None:
    try:
        database = Postgres()
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        with Served(tmp_path, store=database.emptied(), workers=2) as service:
            log = service.log
            assert within(60, lambda: log.read_text().count('"event": "serving"') == 2)
            killed, survivor = sorted(processes(service.process.pid))

            database.shut_down()
            os.kill(killed, signal.SIGKILL)
            assert within(60, lambda: log.read_text().count('"event": "serving"') == 3), (
                log.read_text()[-2000:]
            )
            running = processes(service.process.pid)
            assert len(running) == 2
            assert survivor in running
            assert killed not in running
            for _ in range(6):
                assert service.ask("GET", "/health") == 200
                assert service.ask("GET", "/ready") == 503
                assert service.add() == 503

            database.start()
            assert within(60, lambda: all(service.ask("GET", "/ready") == 200 for _ in range(6)))
            assert {service.add(f"Note {n}.") for n in range(6)} == {201}
            assert processes(service.process.pid) == running
    finally:
        database.stop()


def test_two_hundred_users_meet_no_error_and_no_word_of_another(tmp_path: Path) -> None:
    with Served(tmp_path, workers=2) as service:
        found: dict[str, Any] = asyncio.run(crowd(service.address, 200, SECONDS, service.tokens))
    assert [name for name in found if name.startswith("error")] == []
    assert found["leaks"] == 0
    assert found["recalled"] > 0.5 * found["questions"] > 0


SLOW = {"chat": 5.0, "search": 5.0, "remembered": 60.0}
"""Seconds: some five times those of a machine of one's own, for one that others work on as well."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_hostile_tenant_delays_no_other_and_nothing_is_lost_doubled_or_disclosed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("postgres").emptied() if kind == "postgres" else None
    found: dict[str, Any] = soak(tmp_path, 2.0, store)
    assert good(found, **SLOW), found
    assert min(found[count] for count in ("kills", "sessions", "chats")) >= 1
