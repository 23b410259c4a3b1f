"""Part "memory": adding sessions to a growing memory, and asking it.

All values are milliseconds of CPU, medians of repeated runs. The language model is a stub that
answers at once; for Memory-R2 it extracts one fact from every turn. The store is an SQLite file
that is synchronized with every commit (`synchronous=FULL`).

mem0 is measured beside Memory-R2 if `--mem0` names an interpreter that has it. Its model answers at
once, too; but mem0 makes one call where Memory-R2 makes two, and does not wait for the disk.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from mempiler import Session, Store, Turn, build
from mempiler.serving.memories.user_memory import UserMemory

from measures.clock import cpu_ms
from measures.scripted import ScriptedEngine, scripted_model, use_model
from measures.table import Aim, Peer, Result, Row

ROUNDS = 15
WARM_UP_ROUNDS = 2
"""The first rounds import modules and fill caches. They do not count."""

PLACES = (
    "garden",
    "piano",
    "bicycle",
    "harbour",
    "winter",
    "novel",
    "kitchen",
    "mountain",
    "window",
    "letter",
)
ADD_BOTTLENECK = "2 calls of DSPy's, 5 transactions, faiss, Python's collector"


@dataclass(frozen=True)
class AddAndAskCosts:
    """Milliseconds of CPU of the three things that are done with a memory."""

    add: float
    """Adding one session."""
    first_ask: float
    """The first question after an add."""
    next_ask: float
    """A further question."""


@dataclass(frozen=True)
class Mem0Costs:
    """Milliseconds of CPU in mem0; None if no interpreter has it."""

    add: float | None
    search: float | None


def rows(mem0_python: str) -> list[Row]:
    """Declare the rows of this part.

    Args:
        mem0_python: An interpreter with mem0; a file that is not there is no error.
    """
    part: list[Row] = []
    for size in (100, 12_000):
        at = f"{size:,} facts"
        aim = Aim(5)
        part += [
            Row(
                "memory-r2, add a session of 3 facts",
                at,
                partial(add_facts, size, mem0_python),
                aim,
            ),
            Row("  of it, around the 2 LM calls", at, partial(add_facts_without_calls, size), aim),
            Row("first ask after an add", at, partial(first_ask, size, mem0_python), aim),
            Row("next ask", at, partial(next_ask, size), aim),
        ]
    for size in (1_000, 20_000):
        at = f"{size:,} turns"
        aim = Aim(10)
        part += [
            Row("turn-rag, remember one session", at, partial(add_turn, size), aim),
            Row("turn-rag, first ask after it", at, partial(first_ask_of_turns, size), aim),
        ]
    for size in (200, 5_000):
        at = f"{size:,} turns"
        part.append(Row("ask with queued turns", at, partial(ask_while_queued, size), Aim(10)))
    return part


def add_facts(size: int, mem0_python: str) -> Result:
    """Add a session of three facts to a memory of `size` facts."""
    peer = Peer("mem0, add", _mem0_costs(size, mem0_python).add)
    return Result(_fact_costs(size).costs.add, [peer], bottleneck=ADD_BOTTLENECK)


def add_facts_without_calls(size: int) -> Result:
    """Add such a session, without what the two calls of the model take in DSPy."""
    costs = _fact_costs(size)
    return Result(costs.costs.add - costs.two_calls, bottleneck=ADD_BOTTLENECK)


def first_ask(size: int, mem0_python: str) -> Result:
    """Ask a memory of `size` facts after a session was added."""
    peer = Peer("mem0, search", _mem0_costs(size, mem0_python).search)
    return Result(_fact_costs(size).costs.first_ask, [peer])


def next_ask(size: int) -> Result:
    """Ask a memory of `size` facts again."""
    return Result(_fact_costs(size).costs.next_ask)


def add_turn(size: int) -> Result:
    """Add a session of one turn to a memory of `size` turns."""
    return Result(_turn_costs(size).add)


def first_ask_of_turns(size: int) -> Result:
    """Ask a memory of `size` turns after a session was added."""
    return Result(_turn_costs(size).first_ask)


def ask_while_queued(size: int) -> Result:
    """Ask a user whose `size` turns wait to be written into the memory."""
    with _stored_memory("memory-r2", size, remember=False) as memory:
        memory.recall("Which piano does Ada have?")
        return Result(_median_cpu_ms(lambda n: memory.recall(f"Which bicycle {n} does Ada have?")))


@dataclass(frozen=True)
class _FactCosts:
    costs: AddAndAskCosts
    two_calls: float
    """Milliseconds of CPU of the two calls of an add, alone."""


@cache
def _fact_costs(size: int) -> _FactCosts:
    with _stored_memory("memory-r2", size, parts=1) as memory:
        costs = _measure_adds_and_asks(memory, turns=3)

        # The prompts of an add, made and read without a store and an index.
        writer: Any = memory.program.method.writer

        def make_two_calls(number: int) -> None:
            session = _session(number, turns=3)
            writer.update(writer.Memory(), session, writer.extract(session))

        lm = memory.memories.lm
        assert lm is not None
        with use_model(lm, adapter=memory.program.current_adapter()):
            two_calls = _median_cpu_ms(make_two_calls)
    return _FactCosts(costs, two_calls)


@cache
def _turn_costs(size: int) -> AddAndAskCosts:
    with _stored_memory("turn-rag", size) as memory:
        return _measure_adds_and_asks(memory, turns=1)


@cache
def _mem0_costs(size: int, python: str) -> Mem0Costs:
    """Measure mem0 in a process of the interpreter that has it."""
    if not Path(python).exists():
        return Mem0Costs(None, None)
    script = Path(__file__).with_name("mem0ai.py")
    output = subprocess.run(
        [python, str(script), str(size)], capture_output=True, text=True, check=True
    ).stdout
    # The figures are the last line, whatever else was printed.
    figures = json.loads(output.splitlines()[-1])
    return Mem0Costs(figures["add"], figures["search"])


@contextmanager
def _stored_memory(
    method: str, size: int, remember: bool = True, **settings: Any
) -> Iterator[UserMemory]:
    """Open the memory of a user who has said `size` turns, in sessions of ten.

    Args:
        method: Name of the memory method.
        size: Number of turns.
        remember: Whether the sessions are written into the memory; they stay queued if False.
        **settings: Settings of the method.
    """
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
        program = build(method, **settings)
        memory = program.memory(store, "ada", lm=scripted_model(ScriptedEngine()))
        for number in range(size // 10):
            memory.add(_session(number, turns=10), remember=False)
        if remember:
            memory.remember()
        yield memory


def _session(number: int, turns: int) -> Session:
    """Return a session whose turns are unlike all others."""
    return Session(
        id=f"S{number}",
        time=datetime(2024, 1, 1) + timedelta(hours=number % 10_000),
        turns=tuple(
            Turn(id=f"S{number}:{n}", speaker="Ada", text=_turn_text(1000 * number + n))
            for n in range(turns)
        ),
    )


def _turn_text(number: int) -> str:
    place = PLACES[number % 10]
    other_place = PLACES[number // 10 % 10]
    year = 1900 + number % 100
    return f"Ada has the {place} {other_place} number {number} since year {year}"


def _measure_adds_and_asks(memory: UserMemory, turns: int) -> AddAndAskCosts:
    """Measure adds of sessions with so many turns, and two questions after each."""
    memory.recall("Which piano does Ada have?")
    adds: list[float] = []
    first_asks: list[float] = []
    next_asks: list[float] = []
    for number in range(100_000, 100_000 + ROUNDS):
        adds.append(cpu_ms(partial(_add_new_session, memory, number, turns)))
        first_asks.append(cpu_ms(partial(memory.recall, "Which garden does Ada have?")))
        next_asks.append(cpu_ms(partial(memory.recall, "Which bicycle does Ada have?")))
    return AddAndAskCosts(
        add=median(adds[WARM_UP_ROUNDS:]),
        first_ask=median(first_asks[WARM_UP_ROUNDS:]),
        next_ask=median(next_asks[WARM_UP_ROUNDS:]),
    )


def _add_new_session(memory: UserMemory, number: int, turns: int) -> None:
    memory.add(_session(number, turns))


def _median_cpu_ms(call: Callable[[int], object]) -> float:
    """Return the median CPU milliseconds of calls with the number of the round."""
    costs = [cpu_ms(partial(call, number)) for number in range(ROUNDS)]
    return median(costs[WARM_UP_ROUNDS:])
