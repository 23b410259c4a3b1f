"""What the verbs of single entries cost, at some sizes of a memory: CPU time of a process that has the memory already.

Turn RAG over sessions of ten turns, half of which have a metadata value; SQLite. Every verb is repeated, each time on
another entry; the median is told. "first" is the first call after something changed, or with another filter.

Usage:
    $ python perf/cost_entries.py 1000 10000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mempiler
from mempiler import Session, Turn
from mempiler.engines.models import language_model

ROUNDS, TURNS = 15, 10
WORDS = [
    "garden",
    "bicycle",
    "piano",
    "harbour",
    "winter",
    "novel",
    "kitchen",
    "mountain",
    "river",
    "market",
    "violin",
    "cellar",
]


def main() -> None:
    """Prints a table of milliseconds."""
    parser = argparse.ArgumentParser(description="CPU time of the verbs of entries.")
    parser.add_argument("turns", nargs="*", type=int, default=[1_000, 10_000])
    sizes = parser.parse_args().turns
    columns = [measured(size) for size in sizes]
    print("| verb, CPU ms | " + " | ".join(f"{size:,} turns" for size in sizes) + " |")
    print("| --- |" + " ---: |" * len(sizes))
    for verb in columns[0]:
        print(f"| {verb} | " + " | ".join(f"{column[verb]:.1f}" for column in columns) + " |")


def measured(size: int) -> dict[str, float]:
    """Milliseconds of every verb over a memory of so many turns."""
    with tempfile.TemporaryDirectory() as folder, mempiler.Store(Path(folder) / "memories.sqlite") as store:
        memory = mempiler.build("turn-rag").memory(store, "ada", lm=language_model("offline"))
        sessions = size // TURNS
        for n in range(sessions):
            memory.add(session(n), remember=False, metadata={"half": n % 2, "number": n})
        memory.remember()
        found = {"search": cpu(lambda n: memory.search(WORDS[n % 12]))}
        found["search, first after a session"] = cpu(lambda n: memory.search(WORDS[n % 12]), lambda n: add(memory, n))
        found["add"] = cpu(lambda n: add(memory, n + ROUNDS))
        found["get"] = cpu(lambda n: memory.get(f"D{n}:1"))
        found["list, a page of 100"] = cpu(lambda n: memory.list(f"D{n * 3}:1", 100))
        found["list where, half"] = cpu(lambda n: memory.list(f"D{n * 3}:1", 100, where={"half": 1}))
        found["search where, half"] = cpu(lambda n: memory.search(WORDS[n % 12], where={"half": 1}))
        found["search where, one session"] = cpu(lambda n: memory.search(WORDS[n % 12], where={"number": n}))
        found["recall where, first, half"] = cpu(
            lambda n: memory.recall(WORDS[n % 12], where={"half": 1, "number": {"gte": n}})
        )
        found["recall where, again"] = cpu(lambda n: memory.recall(WORDS[n % 12], where={"half": 1}))
        now = datetime.now(UTC)
        found["search as of, first"] = cpu(
            lambda n: memory.search("piano", as_of=now), lambda n: add(memory, n + 50), 1
        )
        found["search as of, again"] = cpu(lambda n: memory.search("piano", as_of=now + timedelta(microseconds=n)))
        found["delete"] = cpu(lambda n: memory.delete(f"D{n + 1}:1"))
        found["search, first after a deletion"] = cpu(
            lambda n: memory.search(WORDS[n % 12]), lambda n: memory.delete(f"D{n + 1}:2")
        )
        found["search, with deletions"] = cpu(lambda n: memory.search(WORDS[n % 12]))
        found["search, first after a session, with deletions"] = cpu(
            lambda n: memory.search(WORDS[n % 12]), lambda n: add(memory, n + 100)
        )
        found["update"] = cpu(lambda n: memory.update(f"D{n + 1}:3", "I sold the piano."))
        found["undo"] = cpu(lambda n: memory.undo(f"D{n + 1}:3"))
        found["history"] = cpu(lambda n: memory.history(f"D{n + 1}:3"))
        return found


def session(number: int) -> Session:
    """Ten turns."""
    said = (
        f"I saw the {WORDS[(number + n) % 12]} near the {WORDS[(number * 7 + n) % 12]} {number}" for n in range(TURNS)
    )
    turns = tuple(Turn(id=f"D{number}:{n}", speaker="Ada", text=text) for n, text in enumerate(said, 1))
    return Session(id=f"D{number}", time=datetime(2024, 1, 1) + timedelta(hours=number), turns=turns)


def add(memory: mempiler.programs.user_memory.UserMemory, number: int) -> None:
    """One more session."""
    memory.add(session(1_000_000 + number))


def cpu(call: Callable[[int], object], before: Callable[[int], object] | None = None, rounds: int = ROUNDS) -> float:
    """The median of the CPU milliseconds of a call; what comes before each is not counted."""
    taken: list[float] = []
    for n in range(rounds):
        if before is not None:
            before(n)
        begun = time.process_time()
        call(n)
        taken.append((time.process_time() - begun) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
