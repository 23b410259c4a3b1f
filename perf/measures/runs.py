"""Part "runs": what the store of a run adds to writing memories.

A run keeps the memories that it writes in an SQLite file, so that it can be resumed. The values are
ratios: the size of the file by the size of the input, and the CPU of writing memories with a store
by the CPU without one. With a store that has all memories already ("CPU of reading") they are read
instead of written.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median

import numpy as np
from mempiler import History, Session, Turn, build
from mempiler.programs.cache import MemoryCache
from mempiler.runs.run_store import RunStore

from measures.clock import cpu_ms
from measures.scripted import ScriptedEngine, scripted_model, use_model
from measures.table import Aim, Result, Row

ROUNDS = 3
SESSIONS = 48
TURNS_PER_SESSION = 10
TURN_CHARACTERS = 500
VOCABULARY_SIZE = 5000
WORD_CHARACTERS = 6
SPEAKERS = ("Ann", "Bob")
WRITING_BOTTLENECK = (
    "with memory-r2, .05 of the ratio is for storing the memory after each session (its calls and "
    "changes as JSON .03, SQL .01), .01 for opening and closing the file"
)


@dataclass(frozen=True)
class RunStoreCosts:
    """What a store takes, by what the same work takes without one."""

    file_by_input: float
    """Bytes of the file by characters of the turns."""
    cpu_of_writing: float
    cpu_of_reading: float
    input_megabytes: float


def rows() -> list[Row]:
    """Declare the rows of this part."""
    part: list[Row] = []
    for method, conversations in (("turn-rag", 200), ("memory-r2", 1)):
        at = f"{conversations} x {SESSIONS * TURNS_PER_SESSION} turns"
        part += [
            Row(
                f"run store, {method}: file by input",
                at,
                partial(file_size, method, conversations),
                Aim(2),
                unit="x",
            ),
            Row(
                f"run store, {method}: CPU by none",
                at,
                partial(writing_cpu, method, conversations),
                Aim(1.1),
                unit="x",
            ),
            Row(
                f"run store, {method}: CPU of reading",
                at,
                partial(reading_cpu, method, conversations),
                Aim(1.1),
                unit="x",
            ),
        ]
    return part


def file_size(method: str, conversations: int) -> Result:
    """Measure the file by the size of the input."""
    costs = _measure_run_store(method, conversations)
    return Result(costs.file_by_input, remark=f"input {costs.input_megabytes:.1f} MB")


def writing_cpu(method: str, conversations: int) -> Result:
    """Measure the CPU with a new store by the CPU without one."""
    costs = _measure_run_store(method, conversations)
    return Result(costs.cpu_of_writing, bottleneck=WRITING_BOTTLENECK)


def reading_cpu(method: str, conversations: int) -> Result:
    """Measure the CPU with a store that has all memories by the CPU without one."""
    costs = _measure_run_store(method, conversations)
    return Result(costs.cpu_of_reading, bottleneck=WRITING_BOTTLENECK)


@cache
def _measure_run_store(method: str, conversations: int) -> RunStoreCosts:
    histories = _random_histories(conversations)
    # Imports and fills caches.
    _remember_all(method, histories, None)

    writing_ratios: list[float] = []
    reading_ratios: list[float] = []
    file_bytes = 0
    with tempfile.TemporaryDirectory() as folder:
        for n in range(ROUNDS):
            path = Path(folder) / f"{n}.sqlite"
            with_new_store = _remember_all(method, histories, path)
            without_store = _remember_all(method, histories, None)
            with_full_store = _remember_all(method, histories, path)
            writing_ratios.append(with_new_store / without_store)
            reading_ratios.append(with_full_store / without_store)
            file_bytes = path.stat().st_size

    input_characters = 0
    for history in histories:
        for session in history.items:
            input_characters += sum(len(turn.text) for turn in session.turns)
    return RunStoreCosts(
        file_by_input=file_bytes / input_characters,
        cpu_of_writing=median(writing_ratios),
        cpu_of_reading=median(reading_ratios),
        input_megabytes=input_characters / 1e6,
    )


def _remember_all(method: str, histories: Sequence[History], store_path: Path | None) -> float:
    """Write the memories of all histories; return the CPU milliseconds.

    Args:
        method: Name of the memory method.
        histories: What is written.
        store_path: The file of the run's store; no store if None.
    """

    def remember_all() -> None:
        store = RunStore(store_path) if store_path else None
        with use_model(scripted_model(ScriptedEngine())):
            program = build(method, cache=MemoryCache(store.memories if store else None))
            for history in histories:
                program.remember(history)
        if store:
            store.close()

    # What earlier work left behind is not collected at the cost of this one.
    gc.collect()
    return cpu_ms(remember_all)


def _random_histories(conversations: int) -> list[History]:
    """Return conversations of 48 sessions of ten turns, all of random words."""
    generator = np.random.default_rng(0)
    letters = list("abcdefghij")
    vocabulary = [
        "".join(generator.choice(letters, WORD_CHARACTERS)) for _ in range(VOCABULARY_SIZE)
    ]

    def random_turn(session: int, number: int) -> Turn:
        # A word and a space are seven characters.
        words = generator.integers(0, VOCABULARY_SIZE, TURN_CHARACTERS // (WORD_CHARACTERS + 1))
        text = " ".join(vocabulary[word] for word in words)
        return Turn(id=f"D{session}:{number}", speaker=SPEAKERS[number % 2], text=text)

    histories: list[History] = []
    for conversation in range(conversations):
        sessions: list[Session] = []
        for session in range(1, SESSIONS + 1):
            turns = [random_turn(session, n) for n in range(1, TURNS_PER_SESSION + 1)]
            sessions.append(Session(id=f"D{session}", turns=tuple(turns)))
        histories.append(History(id=f"h{conversation}", items=tuple(sessions)))
    return histories
