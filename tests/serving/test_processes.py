"""Services in processes of their own: killed, stopped, without a disk or a database, and crowded.

A service of several processes has a parent, which answers no requests, and workers, which do.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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

CROWD_SECONDS = 6.0
"""For how long the two hundred users use the service."""
OUTAGE_SECONDS = 6.0
"""For how long a disk is full, or a database stands still."""


# Processes


def child_processes(parent: int) -> list[int]:
    """Return the ids of the children of a process."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in children.split()]


def worker_processes(parent: int) -> set[int]:
    """Return the ids of the workers among the children of a process.

    Another child may be the helper of multiprocessing that cleans up after the workers.
    """
    workers: set[int] = set()
    for pid in child_processes(parent):
        # A process that was killed may disappear meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                workers.add(pid)
    return workers


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def count_events(served: Served, event: str) -> int:
    """Return how often the log of a service has an event."""
    return served.log.read_text().count(f'"event": "{event}"')


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service of two workers, both of which are serving; Ada has one session."""
    with Served(tmp_path, ["--grace", "5"], workers=2) as service:
        both_serve = within(60, lambda: count_events(service, "serving") == 2)
        assert both_serve, service.log.read_text()
        assert within(10, lambda: service.metrics().get(ADDED_SESSIONS) == 1)
        yield service


def add_forty_sessions(served: Served, place: str) -> int:
    """Store forty sessions of four users at the same time, and return how many were stored.

    Each says "Note NUMBER is on the PLACE.", so no two of them are equal.
    """

    def add(number: int) -> int:
        return served.add(f"Note {number} is on the {place}.", f"user-{number % 4}")

    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(add, range(40)))
    return statuses.count(201)


def texts_of_four_users(store_address: str) -> list[str]:
    """Return the texts of all sessions that calls of `add_forty_sessions` have stored."""
    texts: list[str] = []
    with Store(store_address) as store:
        for number in range(4):
            items = store.items.list_all(Owner(f"user-{number}", "acme"))
            texts.extend(stored.item.turns[0].text for stored in items)
    return texts


ADDED_SESSIONS = (
    'mempiler_requests_total{method="POST",route="/v1/users/{user}/sessions",status="201"}'
)
"""The metric that counts requests that have stored a session."""


def test_no_process_logs_the_name_of_a_user_or_a_query(served: Served) -> None:
    # Enough requests that each of the two processes is likely to have answered one.
    for _ in range(10):
        assert served.ask("GET", "/v1/users/hidden-name/entries?cursor=hidden-query") == 404

    route = '"route": "/v1/users/{user}/entries"'
    assert within(10, lambda: served.log.read_text().count(route) == 10)
    assert "hidden" not in served.log.read_text()


def test_processes_share_their_metrics(served: Served) -> None:
    """Whichever of the two processes is asked for the metrics, it reports those of both.

    One session was stored before. A request is counted a moment after its response.
    """
    assert add_forty_sessions(served, "fridge") == 40

    assert within(10, lambda: served.metrics()[ADDED_SESSIONS] == 1 + 40)


def kill_one_worker(served: Served) -> int:
    """Kill one of the two workers with SIGKILL, and return its id."""
    workers = worker_processes(served.process.pid)
    assert len(workers) == 2
    killed = min(workers)
    os.kill(killed, signal.SIGKILL)
    return killed


def test_no_session_is_lost_or_doubled_when_a_worker_is_killed(served: Served) -> None:
    """Forty sessions are stored before, and forty when one of two workers is killed."""
    assert add_forty_sessions(served, "fridge") == 40
    kill_one_worker(served)
    added_sessions = add_forty_sessions(served, "door")

    # Requests that come at this moment may meet the dying process, but hardly more than two.
    assert added_sessions >= 40 - 2
    texts = texts_of_four_users(served.store)
    assert len(texts) == len(set(texts))
    # The service may have stored a session, and not have come to say so.
    assert len(texts) >= 40 + added_sessions


def test_what_a_killed_worker_has_counted_still_counts_but_not_what_it_was_doing(
    served: Served,
) -> None:
    assert add_forty_sessions(served, "fridge") == 40
    assert within(10, lambda: served.metrics()[ADDED_SESSIONS] == 1 + 40)

    killed = kill_one_worker(served)
    assert within(60, lambda: len(worker_processes(served.process.pid) - {killed}) == 2)

    metrics = served.metrics()
    assert metrics[ADDED_SESSIONS] >= 1 + 40
    assert metrics['mempiler_requests_in_progress{pool="storing"}'] <= 1


def test_a_signal_to_the_parent_ends_all_workers_in_order(served: Served) -> None:
    """One of the two workers has replaced another one, which was killed."""
    kill_one_worker(served)
    assert within(60, lambda: count_events(served, "serving") == 3)
    workers = worker_processes(served.process.pid)
    assert len(workers) == 2

    served.process.send_signal(signal.SIGTERM)

    assert served.process.wait(30) == 0
    assert not any(is_running(pid) for pid in workers)
    # Each of the two workers has come to its end, and logged it.
    assert count_events(served, "stopped") == 2


def test_workers_end_when_their_parent_is_killed(served: Served) -> None:
    """Otherwise they would go on, and nobody would replace or stop them."""
    workers = worker_processes(served.process.pid)
    assert len(workers) == 2

    served.process.kill()
    served.process.wait(20)

    assert within(30, lambda: not any(is_running(pid) for pid in workers))


def test_an_error_that_keeps_all_processes_from_starting_is_printed_once(tmp_path: Path) -> None:
    """The token of the tenant `acme` is too short. Each of the three processes would find that."""
    (tmp_path / "tokens").write_text("acme short\n")
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = [
        *(sys.executable, "-m", "mempiler", "serve", "program"),
        *("--token-file", "tokens"),
        *("--workers", "3"),
    ]

    process = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )

    assert process.returncode == 2
    assert "Traceback" not in process.stderr
    assert process.stderr.count("the token of at least 16 characters") == 1


@pytest.fixture
def listening_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service that listens, and may not be ready yet. The environment has one of its settings."""
    monkeypatch.setenv("MEMPILER_THREADS", "3")
    service = Served(tmp_path)
    try:
        assert within(60, lambda: '"listening"' in service.log.read_text())
        yield service
    finally:
        service.end()


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_starts_ends_at_a_signal(
    listening_service: Served, stop_signal: signal.Signals
) -> None:
    listening_service.process.send_signal(stop_signal)

    assert listening_service.process.wait(20) == 0
    assert within(10, lambda: count_events(listening_service, "stopped") == 1)


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_service_ends_at_a_signal_and_has_stored_a_chat_with_its_answer(
    listening_service: Served, stop_signal: signal.Signals
) -> None:
    chat = {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}
    assert listening_service.ask("POST", "/v1/chat/completions", chat) == 200

    listening_service.process.send_signal(stop_signal)

    assert listening_service.process.wait(20) == 0
    with Store(listening_service.store) as store:
        (session,) = store.read(Owner("ada", "acme")).open_sessions
    assert len(session.turns) == 2  # the message and its answer


# Outages


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = status.partition("VmRSS:")[2].split()[0]
    return int(kilobytes) / 1024


def check_outage(service: Served, end_outage: Callable[[], object]) -> None:
    """Check a service during an outage that has begun, end the outage, and check it afterwards.

    During the outage `/health` is answered in 5 s, `/ready` says 503 in 3 s, memory grows by less
    than 200 MB, and the log has less than 1 MB. Afterwards the service works within 20 s.
    """
    memory_before = resident_megabytes(service.process.pid)
    started = time.monotonic()
    # The service tries every ten seconds only whether its store can be written. The outage lasts
    # longer if the service has not noticed it yet.
    end = started + OUTAGE_SECONDS
    latest_end = started + 2 * OUTAGE_SECONDS
    has_said_503 = False
    while time.monotonic() < (end if has_said_503 else latest_end):
        assert service.ask("GET", "/health", timeout=5) == 200
        if service.ask("GET", "/ready", timeout=3) == 503:
            has_said_503 = True
        assert resident_megabytes(service.process.pid) - memory_before < 200
        time.sleep(0.2)

    end_outage()

    assert has_said_503, "/ready never said 503"
    seconds_until_well = service.well(20)
    assert seconds_until_well is not None
    assert service.log.stat().st_size < 1_000_000


def ignore_signal_of_file_limit() -> None:
    """Let a process get an error, instead of being ended, when its file is too large."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def fill_disk(service: Served) -> None:
    """Let no file of a service grow. To the service this is like a disk that is full."""
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def empty_disk(service: Served) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, unlimited)


def logged_causes(service: Served) -> list[str]:
    """Return the causes of errors that the log of a service names."""
    # What is said before the service begins is no JSON.
    log_lines = service.log.read_text().splitlines()
    records = [json.loads(line) for line in log_lines if line.startswith("{")]
    return [record["cause"] for record in records if "cause" in record]


def test_a_service_reports_a_full_disk_and_recovers(tmp_path: Path) -> None:
    """`check_outage` asks for the state of the service, and ends the outage after some seconds."""
    with Served(tmp_path, limits=ignore_signal_of_file_limit) as service:
        fill_disk(service)
        status_of_added_session = service.add()
        assert status_of_added_session >= 500

        check_outage(service, end_outage=lambda: empty_disk(service))

        causes = logged_causes(service)
        assert any("full" in cause or "disk" in cause for cause in causes)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for one test, which may stop it."""
    try:
        server = Postgres()
    except RuntimeError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


def postgres_processes(server: Postgres) -> list[int]:
    """Return the ids of all processes of a PostgreSQL server."""
    import psycopg

    with psycopg.connect(server.url) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    pid_file = Path(row[0]) / "postmaster.pid"
    main_process = int(pid_file.read_text().split()[0])
    return [main_process, *child_processes(main_process)]


def send_signal(processes: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes; one that served a closed connection may have ended meanwhile."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def test_a_service_reports_a_database_server_that_stands_still_and_recovers(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    """`check_outage` asks for the state of the service, and ends the outage after some seconds."""
    with Served(tmp_path, store=own_postgres.emptied()) as service:
        processes = postgres_processes(own_postgres)
        send_signal(processes, signal.SIGSTOP)  # They stand still.
        try:
            check_outage(service, end_outage=lambda: send_signal(processes, signal.SIGCONT))
        finally:
            # Also if a check failed: a server that stands still cannot be ended.
            send_signal(processes, signal.SIGCONT)


def test_a_killed_process_is_replaced_while_the_database_is_down(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    """One of two workers is killed. When the database is back, both that are there work again.

    Six requests are enough that each of the two is likely to answer one.
    """
    with Served(tmp_path, store=own_postgres.emptied(), workers=2) as service:
        assert within(60, lambda: count_events(service, "serving") == 2)

        own_postgres.shut_down()
        killed = kill_one_worker(service)
        is_replaced = within(60, lambda: count_events(service, "serving") == 3)
        assert is_replaced, service.log.read_text()[-2000:]
        workers = worker_processes(service.process.pid)
        assert len(workers - {killed}) == 2

        for _ in range(6):
            assert service.ask("GET", "/health") == 200
            assert service.ask("GET", "/ready") == 503
            assert service.add() == 503

        own_postgres.start()
        assert within(60, lambda: all(service.ask("GET", "/ready") == 200 for _ in range(6)))
        for number in range(6):
            assert service.add(f"Note {number}.") == 201
        assert worker_processes(service.process.pid) == workers


# Many users, and a hostile one


def test_two_hundred_users_at_once_get_no_error_and_no_word_of_each_other(tmp_path: Path) -> None:
    """Each user stores secret words and asks for them; one that another user gets is a leak."""
    with Served(tmp_path, workers=2) as service:
        counts = asyncio.run(
            crowd(service.address, users=200, seconds=CROWD_SECONDS, tokens=service.tokens)
        )

    errors = [name for name in counts if name.startswith("error")]
    assert errors == []
    assert counts["leaks"] == 0
    # Most questions are answered from what was stored before.
    assert counts["recalled"] > 0.5 * counts["questions"] > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_hostile_tenant_delays_no_other_and_nothing_is_lost_doubled_or_disclosed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In a soak a tenant attacks the service while another one uses it, and kills come in between.

    The report has how long the other tenant waited, and whether each of its sessions is stored
    once. `good` compares these seconds with limits, which are some five times those of an idle
    machine, since others may use this one too.
    """
    store_address = None
    if kind == "postgres":
        # Not a parameter of the test, since the other case needs no server.
        store_address = request.getfixturevalue("postgres").emptied()

    report = soak(tmp_path, seconds=2.0, store=store_address)

    assert good(report, chat=5.0, search=5.0, remembered=60.0), report
    assert report["kills"] >= 1
    assert report["sessions"] >= 1
    assert report["chats"] >= 1
