"""Kills workers by `kill -9` at random moments of a load: every stored session must be remembered exactly once.

Worker processes store the sessions of many users and remember them. Again and again one of them is killed with SIGKILL,
at a random moment, and a new one takes its place: it goes on with the sessions that were not acknowledged before. In
the end, for every user, the memory must hold every turn of every session once, in the order in which they were stored.

    acknowledged    sessions for which `add` had returned, by what the workers wrote down
    lost            acknowledged sessions that are not stored, or not in the memory
    twice           turns that are in the memory more than once
    wrong           users whose memory is not what `update` makes of their sessions, in order, from nothing
    idle            kills that came when every session was remembered: a load too small for the machine

With `--clocks-jump` every worker has a clock of its own: what `time.time` returns in its process is the machine's time
and an offset of a day, or of up to five minutes, before or after, or none, drawn anew a few times a second. The clock
of the machine stays as it is, and so does that of a PostgreSQL server, which decides there.

A write takes `--delay` seconds, in place of a language model. Workers end after the last kill. The exit code is 1 if
anything is lost, twice or wrong, or if every kill came too late.

Usage:
    $ python perf/kill.py --store sqlite --kills 50
    $ python perf/kill.py --store postgres --kills 50 --clocks-jump
    $ python perf/kill.py --store sqlite --soak 30
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mempiler import Session, Store, Turn, Update
from mempiler.memory.memory import TurnMemory
from mempiler.memory.store import queue
from mempiler.memory.store.owner import Owner
from mempiler.programs.baselines.turn_rag import TurnRAG, TurnWriter
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.user_memory import UserMemory
from mempiler.serving.worker.writers import write_all_queued

sys.path.append(str(Path(__file__).parents[1]))
LEASE = 1.0
LONGEST = 5.0
"""Seconds for which a claim is taken for alive at most, where clocks jump: ten minutes, shortened like the lease."""
OVER = "over"
"""File that tells the workers that the last kill was made."""
DAY = 86_400.0


class SlowWriter(TurnWriter):
    """Keeps every turn, and takes its time as a language model would; settles, so that this path is killed as well."""

    delay = 0.0

    def update(self, memory: TurnMemory, item: Any, extraction: None = None) -> Update[TurnMemory]:
        time.sleep(self.delay)
        return super().update(memory, item, extraction)

    def finalize(self, memory: TurnMemory) -> Update[TurnMemory]:
        time.sleep(self.delay / 2)
        return Update(memory.model_copy())


def sessions(count: int, users: int) -> list[tuple[str, Session]]:
    """User and session, in turn; every turn's text is its own."""
    return [
        (
            f"user-{n % users}",
            Session(id=f"S{n}", turns=tuple(Turn(id="", speaker="u", text=f"{n}/{k}") for k in "abc")),
        )
        for n in range(count)
    ]


def program(delay: float) -> MemoryProgram:
    """The program that all workers run."""
    method, writer = TurnRAG(), SlowWriter()
    method.writer, writer.delay = writer, delay
    return MemoryProgram(method, QuestionAnswering())


def jump(chance: random.Random) -> None:
    """Moves the clock of this process again and again."""
    real, offset = time.time, [0.0]

    def move() -> None:
        while True:
            # Within minutes claims look alive that are dead.
            offset[0] = chance.choice([0.0, DAY, -DAY, chance.uniform(-300, 300)])
            time.sleep(chance.uniform(0.05, 0.4))

    threading.Thread(target=move, daemon=True).start()
    time.time = lambda: real() + offset[0]


def work(url: str, share: list[tuple[str, Session]], acknowledged: Path, delay: float, jumps: bool) -> None:
    """One worker: stores what is not acknowledged yet, remembers, then helps until the kills are over."""
    if jumps:
        queue.MAX_LEASE = LONGEST  # pyright: ignore[reportConstantRedefinition]
        jump(random.Random(acknowledged.name))
    store, own = Store(url), program(delay)
    done = set(acknowledged.read_text().split()) if acknowledged.exists() else set()
    with acknowledged.open("a") as file:
        for n, (user, session) in enumerate(share):
            if session.id in done:
                continue
            memory = UserMemory(Memories(own, store), Owner(user), lease=LEASE)
            memory.add(session, remember=False)
            file.write(f"{session.id}\n")
            file.flush()
            if n % 2:
                memory.remember()
    while not acknowledged.with_name(OVER).exists() or any(found.queued for found in store.users.list_all()):
        if not write_all_queued(Memories(own, store), lease=LEASE).items:
            time.sleep(0.05)
    write_all_queued(Memories(own, store), lease=LEASE)


class Load:
    """Workers that are killed and replaced.

    Args:
        url: The store.
        load: Users and sessions.
        workers: How many processes.
        delay: Seconds per write.
        folder: Where the workers write down what was acknowledged.
        jumps: Whether their clocks jump.
    """

    def __init__(
        self, url: str, load: list[tuple[str, Session]], workers: int, delay: float, folder: Path, jumps: bool
    ) -> None:
        self.url, self.delay, self.folder, self.jumps = url, delay, folder, jumps
        self.shares = [load[n::workers] for n in range(workers)]
        self.sessions = len(load)
        self._fork = multiprocessing.get_context("fork")
        self.processes = [self._start(n) for n in range(workers)]

    def kill(self, generator: random.Random) -> bool:
        """Kills one worker, and starts another in its place; False if it had ended by itself."""
        n = generator.randrange(len(self.processes))
        self.processes[n].kill()
        self.processes[n].join()
        killed = self.processes[n].exitcode == -signal.SIGKILL
        self.processes[n] = self._start(n)
        return killed

    def idle(self) -> bool:
        """Whether every session is stored and remembered."""
        with Store(self.url) as store:
            return len(self.acknowledged()) == self.sessions and not any(found.queued for found in store.users.list_all())

    def finish(self) -> bool:
        """Waits for the workers; whether all ended well."""
        (self.folder / OVER).touch()
        for process in self.processes:
            process.join(120)
        return all(process.exitcode == 0 for process in self.processes)

    def acknowledged(self) -> set[str]:
        """Ids of the sessions for which `add` had returned."""
        return {id for path in self.folder.glob("*.acknowledged") for id in path.read_text().split()}

    def _start(self, n: int) -> Any:
        arguments = (self.url, self.shares[n], self.folder / f"{n}.acknowledged", self.delay, self.jumps)
        process = self._fork.Process(target=work, args=arguments)
        process.start()
        return process


def verify(url: str, load: list[tuple[str, Session]], acknowledged: set[str]) -> dict[str, int]:
    """Counts what is lost, twice or wrong."""
    reader = program(0.0)
    said = {session.id: {turn.text for turn in session.turns} for _, session in load}
    found: Counter[str] = Counter(sessions=0, remembered=0, lost=0, twice=0, wrong=0)
    with Store(url) as store:
        for user in sorted({user for user, _ in load}):
            memory = UserMemory(Memories(reader, store), Owner(user))
            texts = Counter(entry.text.removeprefix("u: ") for entry in memory.read().entries())  # pyright: ignore
            mine = {session.id for owner, session in load if owner == user}
            whole = {id for id in mine if said[id] <= set(texts)}
            folded = TurnMemory()
            for stored in store.items.list_all(memory.owner):
                folded = folded.with_session(stored.item)
            found["sessions"] += len(mine)
            found["remembered"] += len(whole)
            found["lost"] += len((mine & acknowledged) - whole)
            found["twice"] += sum(count > 1 for count in texts.values())
            found["wrong"] += folded != memory.read()
    return dict(found)


@contextmanager
def address(kind: str, folder: Path) -> Iterator[str]:
    """A store of a kind: a file, or a PostgreSQL server of our own; anything else is an address."""
    if kind == "sqlite":
        yield str(folder / "memories.sqlite")
    elif kind == "postgres":
        from tests.postgres import Postgres

        server = Postgres()
        try:
            yield server.url
        finally:
            server.stop()
    else:
        yield kind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres (a server of its own), or an address")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.1, help="seconds a write takes")
    parser.add_argument("--every", type=float, default=0.1, help="mean seconds between two kills")
    parser.add_argument("--clocks-jump", action="store_true", help="workers' clocks jump by days and minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--soak", type=float, help="seconds of each attack on a service, in place of the load")
    options = parser.parse_args()
    generator, load = random.Random(options.seed), sessions(options.sessions, options.users)
    with tempfile.TemporaryDirectory() as name, address(options.store, Path(name)) as url:
        Store(url).close()
        if options.soak:
            from tests.serving.soak import good, soak

            print(json.dumps(found := soak(Path(name), options.soak, url)))
            return int(not good(found))
        begun, kills, idle = time.monotonic(), 0, 0
        running = Load(url, load, options.workers, options.delay, Path(name), options.clocks_jump)
        for _ in range(options.kills):
            time.sleep(generator.uniform(0, 2 * options.every))
            idle += running.idle()
            kills += running.kill(generator)
        ended = running.finish()
        found = verify(url, load, running.acknowledged())
        seconds = round(time.monotonic() - begun, 1)
    about = {"store": options.store, "jumping clocks": options.clocks_jump}
    print(json.dumps({**about, "kills": kills, "idle": idle, "seconds": seconds, "ended": ended, **found}))
    good = ended and kills == options.kills and idle < max(1, kills) and found["remembered"] == options.sessions
    return 0 if good and not found["lost"] + found["twice"] + found["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
