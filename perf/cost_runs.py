"""What the memory of a run costs: its file by its input, and CPU time with it by CPU time without it.

    turn-rag     200 histories of 480 turns, 48 MB: nothing is asked, and nothing kept
    memory-r2    histories of 480 turns whose every turn is a fact: what a node keeps is what changed, and the calls

The model is scripted and takes no time; both sides of a ratio run in turns, in one process.

Usage:
    $ python perf/cost_runs.py
"""

from __future__ import annotations

import gc
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from cost_row import Row, cpu_ms, main, middle
from mempiler import History, Session, Turn, build
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.programs.remember import MemoryCache
from mempiler.runs.run_store import RunStore
from scripted_engine import ScriptedEngine

SESSIONS, TURNS, LETTERS = 48, 10, 500
HISTORIES, ASKED = 200, 1
ROUNDS = 3
KEPT = "of memory-r2, .05 for putting nodes (calls and changes as JSON .03, SQL .01), .01 for opening and closing"


def histories(count: int) -> list[History]:
    """Histories of 480 turns of 500 characters, all different."""
    chance = np.random.default_rng(0)
    words = ["".join(chance.choice(list("abcdefghij"), 6)) for _ in range(5000)]

    def turn(s: int, t: int) -> Turn:
        said = " ".join(words[n] for n in chance.integers(0, len(words), LETTERS // 7))
        return Turn(id=f"D{s}:{t}", speaker=("Ann", "Bob")[t % 2], text=said)

    def session(s: int) -> Session:
        return Session(id=f"D{s}", turns=tuple(turn(s, t) for t in range(1, TURNS + 1)))

    return [History(id=f"h{n}", items=tuple(session(s) for s in range(1, SESSIONS + 1))) for n in range(count)]


def size_of(pasts: Sequence[History]) -> int:
    """Bytes of their texts."""
    return sum(len(turn.text) for past in pasts for turn, _ in past.turns.values())


def reply(kind: str, text: str) -> dict[str, Any]:
    """Memory-R2's prompts: every line is a fact of its first words, every fact is inserted."""
    if kind == "facts":
        shown = text.rpartition("[[ ## dialogue ## ]]")[2].partition("[[ ## earlier")[0]
        lines = re.findall(r"^\[(D\d+:\d+)\](?: \(.*?\))? (\w+): (.*)$", shown, re.MULTILINE)
        return {"facts": [{"speaker": who, "turn_id": id, "fact": said[:60]} for id, who, said in lines]}
    given = json.loads(text.split("[[ ## new_facts ## ]]")[1].split("[[ ##")[0].split("Respond with")[0])
    names = {"speaker": "speaker", "content": "fact", "turn_id": "turn_id"}
    return {"operations": [{"op": "INSERT", **{name: fact[own] for name, own in names.items()}} for fact in given]}


def remembered(name: str, pasts: Sequence[History], path: Path | None) -> None:
    """Writes all memories, with a store or without one."""
    store = RunStore(path) if path else None
    engine = ScriptedEngine(0.0, reply)
    lm = MeteredLM("scripted/free", Meter(), engine=engine, cache=False, temperature=0.0)
    with dspy.context(lm=lm, trace=None, disable_history=True):
        program = build(name, cache=MemoryCache(store.nodes if store else None))
        for past in pasts:
            program.remember(past)
    if store:
        store.close()


def costs(name: str, count: int) -> tuple[float, float, float, float]:
    """Size of the file by that of the texts; CPU with a new store, and with one that has it all, by CPU without; MB."""
    new, read, pasts = list[float](), list[float](), histories(count)
    remembered(name, pasts, None)
    with tempfile.TemporaryDirectory() as folder:
        for n in range(ROUNDS):
            path = Path(folder) / f"{n}.sqlite"
            first, without, second = (taken(name, pasts, where) for where in (path, None, path))
            new.append(first / without)
            read.append(second / without)
        size, text = path.stat().st_size, size_of(pasts)
    return size / text, middle(new), middle(read), text / 1e6


def taken(name: str, pasts: Sequence[History], path: Path | None) -> float:
    """CPU milliseconds; what was held before is no part of it."""
    gc.collect()
    return cpu_ms(lambda: remembered(name, pasts, path))


def rows() -> Iterable[Row]:
    """Both methods."""
    for name, count in (("turn-rag", HISTORIES), ("memory-r2", ASKED)):
        size, new, read, text = costs(name, count)
        at = f"{count} x {SESSIONS * TURNS} turns"
        yield Row(f"run store, {name}: file", at, size, 2, "x input", f"input {text:.1f} MB")
        yield Row(f"run store, {name}: CPU by none", at, new, 1.1, "x", bound=KEPT)
        yield Row(f"run store, {name}: CPU of reading", at, read, 1.1, "x")


if __name__ == "__main__":
    main(rows)
