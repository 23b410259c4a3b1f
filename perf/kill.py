"""Kill workers at random moments of a load: every stored session must be remembered exactly once.

Worker processes store the sessions of many users and write them into memories. Again and again one
of them is killed with `kill -9`, at a random moment, and a new one takes its place. The new worker
goes on with the sessions whose storing was not acknowledged. In the end every memory must hold
every turn of its user once, in the order in which the sessions were stored.

Usage:
    $ python perf/kill.py --store sqlite --kills 50
    $ python perf/kill.py --store postgres --kills 50 --clocks-jump    # starts a server of its own
    $ python perf/kill.py --store sqlite --soak 30                     # a hostile tenant instead

Sample output (of `--kills 10 --sessions 60 --users 6`):
    {"store": "sqlite", "jumping clocks": false, "kills": 10, "idle": 0, "seconds": 4.0,
     "ended": true, "sessions": 60, "remembered": 60, "lost": 0, "twice": 0, "wrong": 0}

Fields:
    kills         kills that hit a running worker
    idle          kills that came when every session was remembered already
    ended         whether the workers ended by themselves after the last kill
    sessions      sessions in the store
    remembered    sessions of which every turn is in the memory
    lost          sessions that were acknowledged (`add` had returned), but are not remembered
    twice         turns that are in a memory more than once
    wrong         users whose memory is not the one that their stored sessions give from nothing

How to read it:
    The exit status is 0 if all is well: nothing lost, twice or wrong, everything remembered. The
    moments of the kills depend on the machine, so no two runs are the same; a single 1 under lost,
    twice or wrong is a bug, not noise. If idle is near kills, the load was too small for the
    machine and the run shows nothing: give more `--sessions`, or a longer `--delay`.

With `--clocks-jump` every worker has a clock of its own: what `time.time` returns in its process is
wrong by nothing, by a day, or by up to five minutes, either way, drawn anew a few times a second.
The clock of the machine stays as it is, and so does that of a PostgreSQL server, which decides
there. With `--soak` one tenant attacks a service while another uses it; tests/serving/soak.py says
what is counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from mempiler import Session, Store, Turn, Update
from mempiler.memory.memory import TurnMemory
from mempiler.memory.store import queue
from mempiler.memory.store.owner import Owner
from mempiler.programs.baselines.turn_rag import TurnRAG, TurnWriter
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.records import Item
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.user_memory import UserMemory
from mempiler.serving.worker.writers import write_all_queued

# `tests` is no installed package.
sys.path.append(str(Path(__file__).parents[1]))

LEASE = 1.0
"""Seconds after which another worker takes over from one that was killed."""
MAX_LEASE_WITH_JUMPING_CLOCKS = 5.0
"""In place of the store's ten minutes: a claim that ends later was dated by a wrong clock."""
JOIN_TIMEOUT = 120.0
"""Seconds that a worker gets to end after the last kill."""
KILLS_ARE_OVER = "over"
"""A file with this name tells the workers that the last kill was made."""
DAY = 86_400.0


class UserSession(NamedTuple):
    """A session, and the user who stores it."""

    user: str
    session: Session


class SlowWriter(TurnWriter):
    """Keep every turn, and take as long as a language model would.

    It also has a `finalize` that takes a while, so that workers are killed in there, too.
    """

    delay = 0.0
    """Seconds that writing a session takes."""

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        time.sleep(self.delay)
        return super().update(memory, item, extraction)

    def finalize(self, memory: TurnMemory) -> Update[TurnMemory]:
        time.sleep(self.delay / 2)
        return Update(memory.model_copy())


def make_sessions(count: int, users: int) -> list[UserSession]:
    """Return so many sessions of three turns, of each user in turn. Every turn has its own text."""
    load: list[UserSession] = []
    for number in range(count):
        turns = [Turn(id="", speaker="u", text=f"{number}/{letter}") for letter in "abc"]
        session = Session(id=f"S{number}", turns=tuple(turns))
        load.append(UserSession(f"user-{number % users}", session))
    return load


def make_program(delay: float) -> MemoryProgram:
    """Return the program that all workers run; writing a session takes `delay` seconds."""
    writer = SlowWriter()
    writer.delay = delay
    method = TurnRAG()
    method.writer = writer
    return MemoryProgram(method, QuestionAnswering())


@dataclass(frozen=True)
class WorkerTask:
    """What one worker does. A worker that takes another's place does the same task."""

    url: str
    """The store."""
    sessions: Sequence[UserSession]
    """What it stores."""
    acknowledged_path: Path
    """A file with the ids of the sessions for which `add` has returned."""
    delay: float
    clocks_jump: bool

    def acknowledged_ids(self) -> set[str]:
        """Return the ids of the sessions for which `add` has returned."""
        if not self.acknowledged_path.exists():
            return set()
        return set(self.acknowledged_path.read_text().split())

    def kills_are_over(self) -> bool:
        """Return whether the last kill was made."""
        return self.acknowledged_path.with_name(KILLS_ARE_OVER).exists()


def run_worker(task: WorkerTask) -> None:
    """Store the sessions that are not acknowledged, and write queued ones until the kills end."""
    if task.clocks_jump:
        queue.MAX_LEASE = MAX_LEASE_WITH_JUMPING_CLOCKS  # pyright: ignore[reportConstantRedefinition]
        start_jumping_clock(random.Random(task.acknowledged_path.name))

    store = Store(task.url)
    program = make_program(task.delay)
    store_sessions(task, program, store)

    while not task.kills_are_over() or has_queued(store):
        if write_all_queued(Memories(program, store), lease=LEASE).items == 0:
            time.sleep(0.05)
    write_all_queued(Memories(program, store), lease=LEASE)


def store_sessions(task: WorkerTask, program: MemoryProgram, store: Store) -> None:
    """Store the sessions of a task that are not acknowledged; write every second one at once."""
    acknowledged = task.acknowledged_ids()
    with task.acknowledged_path.open("a") as file:
        for number, (user, session) in enumerate(task.sessions):
            if session.id in acknowledged:
                continue
            memory = UserMemory(Memories(program, store), Owner(user), lease=LEASE)
            memory.add(session, remember=False)
            file.write(f"{session.id}\n")
            file.flush()
            if number % 2 == 1:
                memory.remember()


def has_queued(store: Store) -> bool:
    """Return whether sessions of any user wait to be written into the memory."""
    return any(status.queued for status in store.users.list_all())


def start_jumping_clock(generator: random.Random) -> None:
    """Let `time.time` of this process return another wrong time again and again."""
    real_time = time.time
    offset = 0.0

    def jump_forever() -> None:
        nonlocal offset
        while True:
            # After a jump of minutes, the claim of a dead worker may look alive.
            offset = generator.choice([0.0, DAY, -DAY, generator.uniform(-300, 300)])
            time.sleep(generator.uniform(0.05, 0.4))

    def wrong_time() -> float:
        return real_time() + offset

    threading.Thread(target=jump_forever, daemon=True).start()
    time.time = wrong_time


class WorkerPool:
    """Workers that are killed and replaced.

    Args:
        tasks: What each worker does.
    """

    def __init__(self, tasks: Sequence[WorkerTask]) -> None:
        self.tasks = tasks
        self._fork = multiprocessing.get_context("fork")
        self._processes = [self._start(task) for task in tasks]

    def kill_one(self, generator: random.Random) -> bool:
        """Kill a random worker, and start another in its place.

        Returns:
            Whether it was running; False if it had ended by itself.
        """
        number = generator.randrange(len(self._processes))
        process = self._processes[number]
        process.kill()
        process.join()
        self._processes[number] = self._start(self.tasks[number])
        return process.exitcode == -signal.SIGKILL

    def is_idle(self) -> bool:
        """Return whether every session is stored and remembered."""
        task = self.tasks[0]
        sessions = sum(len(task.sessions) for task in self.tasks)
        if len(self.acknowledged_ids()) < sessions:
            return False
        with Store(task.url) as store:
            return not has_queued(store)

    def finish(self) -> bool:
        """Let the workers end. Return whether all of them ended well."""
        self.tasks[0].acknowledged_path.with_name(KILLS_ARE_OVER).touch()
        for process in self._processes:
            process.join(JOIN_TIMEOUT)
        return all(process.exitcode == 0 for process in self._processes)

    def acknowledged_ids(self) -> set[str]:
        """Return the ids of the sessions for which `add` has returned, in any worker."""
        return set().union(*(task.acknowledged_ids() for task in self.tasks))

    def _start(self, task: WorkerTask) -> BaseProcess:
        process = self._fork.Process(target=run_worker, args=(task,))
        process.start()
        return process


@dataclass
class Findings:
    """Counts of what is in the store in the end; the module's docstring says what they mean."""

    sessions: int = 0
    remembered: int = 0
    lost: int = 0
    twice: int = 0
    wrong: int = 0

    def is_clean(self) -> bool:
        """Return whether every session is remembered, once and in order."""
        return self.remembered == self.sessions and self.lost + self.twice + self.wrong == 0


def inspect_memories(url: str, load: Sequence[UserSession], acknowledged: set[str]) -> Findings:
    """Compare the memories of all users with what was stored."""
    sessions_by_user: dict[str, list[Session]] = {}
    for user, session in load:
        sessions_by_user.setdefault(user, []).append(session)

    program = make_program(0.0)
    findings = Findings()
    with Store(url) as store:
        for user, sessions in sessions_by_user.items():
            memory = UserMemory(Memories(program, store), Owner(user))
            _inspect_memory(memory, sessions, acknowledged, findings)
    return findings


def _inspect_memory(
    memory: UserMemory, sessions: Sequence[Session], acknowledged: set[str], findings: Findings
) -> None:
    """Add to the findings what is in the memory of one user."""
    written: Any = memory.read()
    text_counts = Counter(entry.text.removeprefix("u: ") for entry in written.entries())

    for session in sessions:
        is_remembered = all(turn.text in text_counts for turn in session.turns)
        findings.sessions += 1
        findings.remembered += is_remembered
        findings.lost += session.id in acknowledged and not is_remembered
    findings.twice += sum(count > 1 for count in text_counts.values())

    expected = TurnMemory()
    for stored in memory.store.items.list_all(memory.owner):
        expected = expected.with_session(stored.item)
    findings.wrong += expected != written


@contextmanager
def open_address(store: str, folder: Path) -> Iterator[str]:
    """Yield the address of a store: of a new file, of a server of our own, or `store` itself."""
    if store == "sqlite":
        yield str(folder / "memories.sqlite")
    elif store == "postgres":
        from tests.postgres import Postgres

        server = Postgres()
        try:
            yield server.url
        finally:
            server.stop()
    else:
        yield store


def run_load(options: argparse.Namespace, url: str, folder: Path) -> int:
    """Kill workers under a load, print what is found, and return the exit status."""
    generator = random.Random(options.seed)
    load = make_sessions(options.sessions, options.users)
    tasks: list[WorkerTask] = []
    for number in range(options.workers):
        tasks.append(
            WorkerTask(
                url=url,
                sessions=load[number :: options.workers],
                acknowledged_path=folder / f"{number}.acknowledged",
                delay=options.delay,
                clocks_jump=options.clocks_jump,
            )
        )

    start = time.monotonic()
    pool = WorkerPool(tasks)
    kills = 0
    idle = 0
    for _ in range(options.kills):
        time.sleep(generator.uniform(0, 2 * options.every))
        idle += pool.is_idle()
        kills += pool.kill_one(generator)
    ended = pool.finish()
    findings = inspect_memories(url, load, pool.acknowledged_ids())

    report = {
        "store": options.store,
        "jumping clocks": options.clocks_jump,
        "kills": kills,
        "idle": idle,
        "seconds": round(time.monotonic() - start, 1),
        "ended": ended,
        **asdict(findings),
    }
    print(json.dumps(report))

    # With no kill asked for, none can come too late.
    came_in_time = idle < kills or options.kills == 0
    is_good = ended and kills == options.kills and came_in_time and findings.is_clean()
    return 0 if is_good else 1


def run_soak(options: argparse.Namespace, url: str, folder: Path) -> int:
    """Let a hostile tenant attack a service, print what is found, and return the exit status."""
    from tests.serving.soak import good, soak

    report = soak(folder, options.soak, url)
    print(json.dumps(report))
    return 0 if good(report) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill workers under load: is anything lost?")
    parser.add_argument(
        "--store", default="sqlite", help="sqlite, postgres (a server of its own), or an address"
    )
    parser.add_argument("--kills", type=int, default=50, help="how many [default: 50]")
    parser.add_argument("--sessions", type=int, default=200, help="of all users [default: 200]")
    parser.add_argument("--users", type=int, default=20, help="how many [default: 20]")
    parser.add_argument("--workers", type=int, default=4, help="processes [default: 4]")
    parser.add_argument(
        "--delay", type=float, default=0.1, help="seconds a write takes [default: 0.1]"
    )
    parser.add_argument(
        "--every", type=float, default=0.1, help="mean seconds between two kills [default: 0.1]"
    )
    parser.add_argument(
        "--clocks-jump", action="store_true", help="workers' clocks jump by days and minutes"
    )
    parser.add_argument("--seed", type=int, default=0, help="of moments and workers [default: 0]")
    parser.add_argument(
        "--soak", type=float, help="seconds of each attack on a service, in place of the load"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    with (
        tempfile.TemporaryDirectory() as name,
        open_address(options.store, Path(name)) as url,
    ):
        # Makes the tables before the workers start.
        Store(url).close()
        if options.soak:
            return run_soak(options, url, Path(name))
        return run_load(options, url, Path(name))


if __name__ == "__main__":
    sys.exit(main())
