"""Measures a growing memory: adding a session, the first question after it, questions while sessions are queued.

CPU milliseconds, medians, with a language model that answers at once, with a fact of every turn. `mem0` is measured
beside it where an interpreter has it, with a model that answers at once, too: one call, no prompt that is checked, and
no wait for the disk.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from mempiler import Session, Store, Turn, build

from measures.scripted import ScriptedEngine, asking, cpu_ms, scripted

Found = dict[str, float]
ROUNDS = 15
PLACES = ("garden", "piano", "bicycle", "harbour", "winter", "novel", "kitchen", "mountain", "window", "letter")


@cache
def facts(size: int, mem0: str) -> Found:
    """Adds to and questions of a memory of so many facts; `rest` is an add without what DSPy takes for the calls."""
    with _grown("memory-r2", size, parts=1) as memory:
        found = _asked(memory, 3)
        writer = memory.program.method.writer
        with asking(memory.memories.lm, adapter=memory.program.current_adapter()):
            calls = _median(lambda n: writer.update(writer.Memory(), one := _session(n, 3), writer.extract(one)))
    return {**found, "rest": found["add"] - calls, **_mem0(size, mem0)}


@cache
def turns(size: int) -> Found:
    """The same of turn RAG."""
    with _grown("turn-rag", size) as memory:
        return _asked(memory, 1)


@cache
def queued(size: int) -> Found:
    """A question of a user so many turns of whom are not remembered yet."""
    with _grown("memory-r2", size, remember=False) as memory:
        memory.recall("Which piano does Ada have?")
        return {"ask": _median(lambda n: memory.recall(f"Which bicycle {n} does Ada have?"))}


def _session(number: int, turns: int) -> Session:
    """A session of turns no two of which are alike."""

    def said(n: int) -> str:
        place, other = PLACES[n % 10], PLACES[n // 10 % 10]
        return f"Ada has the {place} {other} number {n} since year {1900 + n % 100}"

    about = ((f"S{number}:{n}", said(1000 * number + n)) for n in range(turns))
    time = datetime(2024, 1, 1) + timedelta(hours=number % 10**4)
    return Session(id=f"S{number}", time=time, turns=tuple(Turn(id=id, speaker="Ada", text=text) for id, text in about))


@contextmanager
def _grown(method: str, size: int, remember: bool = True, **settings: Any) -> Iterator[Any]:
    """A user of a store with so many turns, in sessions of ten; an SQLite file (synchronous=FULL)."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
        memory = build(method, **settings).memory(store, "ada", lm=scripted(ScriptedEngine()))
        for n in range(size // 10):
            memory.add(_session(n, 10), remember=False)
        if remember:
            memory.remember()
        yield memory


def _asked(memory: Any, turns: int) -> Found:
    """What adds, the first recall after each, and further recalls take."""
    memory.recall("Which piano does Ada have?")
    taken: list[list[float]] = [[], [], []]
    for n in range(10**5, 10**5 + ROUNDS):
        taken[0].append(cpu_ms(lambda n=n: memory.add(_session(n, turns))))
        taken[1].append(cpu_ms(lambda: memory.recall("Which garden does Ada have?")))
        taken[2].append(cpu_ms(lambda: memory.recall("Which bicycle does Ada have?")))
    return {name: median(each[2:]) for name, each in zip(("add", "first", "next"), taken, strict=True)}


def _median(call: Callable[[int], Any]) -> float:
    """CPU milliseconds of a call."""
    taken = [cpu_ms(lambda n=n: call(n)) for n in range(ROUNDS)]
    return median(taken[2:])


def _mem0(size: int, interpreter: str) -> Found:
    """What mem0 takes, where an interpreter has it."""
    if not Path(interpreter).exists():
        return {}
    command = [interpreter, str(Path(__file__).with_name("mem0ai.py")), str(size)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return {f"mem0, {name}": taken for name, taken in json.loads(told).items()}
