"""What a memory costs as it grows: adding a session, the first question after it, questions to many users.

CPU milliseconds of the whole process, medians, with a language model that answers at once with three new facts. `mem0`
is measured in the same run where an interpreter has it (`--mem0 /tmp/mem0/bin/python`, see `perf/peer_mem0.py`), with a
model that answers at once, too: one call, no prompt that is checked, and no wait for the disk.

    add       a session of three facts: relate, edit, commit to an SQLite store (synchronous=FULL)
    rest      the same without what DSPy takes for the calls of the model, measured beside it
    first     the first question after it, from the store's memory to the recalled context, without an answer

Usage:
    $ python perf/cost_memory.py --sizes 100 1000 9000 12000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cost_row import Row, cpu_ms, middle, show

MEM0 = "/tmp/mem0/bin/python"
BOUND = (
    "2 calls of DSPy's and 5 transactions; of 12,000 facts 2 ms of faiss, .6 of moving the index, Python's collector"
)
SIZES = (100, 1_000, 9_000, 12_000)
ROUNDS = 15
PLACES = ("garden", "piano", "bicycle", "harbour", "winter", "novel", "kitchen", "mountain", "window", "letter")


def rows(sizes: Sequence[int] = SIZES, mem0: str = MEM0) -> Iterator[Row]:
    """The rows of a memory that grows."""
    yield from _facts(sizes, _peers(sizes, mem0))
    yield from _turns()
    yield from _many_users()
    yield from _queued()


def _text(n: int) -> str:
    """Words of a fact or turn, no two alike."""
    return f"Ada has the {PLACES[n % 10]} {PLACES[n // 10 % 10]} number {n} since year {1900 + n % 100}"


def _session(n: int) -> Any:
    from mempiler import Session, Turn

    time = datetime(2024, 1, 1) + timedelta(hours=n)
    return Session(id=f"S{n}", time=time, turns=(Turn(id=f"S{n}:1", speaker="Ada", text=_text(10**6 + n)),))


class _Facts:
    """Replies of the model of a memory of facts: three new facts a session, each inserted."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, kind: str, text: str) -> dict[str, Any]:
        if kind == "facts":
            self.number += 3
            said = [_text(2 * 10**6 + self.number + n) for n in range(3)]
            turn = text.rpartition("[S")[2].partition("]")[0]
            return {"facts": [{"speaker": "Ada", "turn_id": f"S{turn}", "fact": fact} for fact in said]}
        facts = [_text(2 * 10**6 + self.number + n) for n in range(3)]
        return {"operations": [{"op": "INSERT", "speaker": "Ada", "content": fact} for fact in facts]}


def _facts(sizes: Iterable[int], peers: dict[int, dict[str, float]]) -> Iterator[Row]:
    import dspy
    from mempiler.programs.memory_r2.memory import FactMemory, StoredFact

    for size in sizes:
        facts = tuple(StoredFact(id=f"m{n}", speaker="Ada", content=_text(n), sources=("D:1",)) for n in range(size))
        with tempfile.TemporaryDirectory() as folder:
            memory = _stored("memory-r2", FactMemory(facts=facts, issued=size), Path(folder), _lm(_Facts()))
            with dspy.context(lm=memory._lm, adapter=memory.program.asking()):
                adds, firsts, others = _grown(memory)
            calls = _calls(memory)
        peer = peers.get(size, {})
        added, searched = (f"{peer[name]:.1f}, mem0" if peer else "" for name in ("add", "search"))
        yield Row("memory-r2, add a session of 3 facts", f"{size:,} facts", middle(adds), 5, peer=added, bound=BOUND)
        yield Row("  of it, around the 2 LM calls", f"{size:,} facts", middle(adds) - calls, 5, bound=BOUND)
        yield Row("first ask after an add", f"{size:,} facts", middle(firsts), 5, peer=searched)
        yield Row("next ask", f"{size:,} facts", middle(others), 5)


def _grown(memory: Any) -> tuple[list[float], list[float], list[float]]:
    """What adds, the first recall after each, and further recalls take."""
    memory.recall("Which piano does Ada have?")
    adds, firsts, others = list[float](), list[float](), list[float]()
    for n in range(ROUNDS):
        adds.append(cpu_ms(lambda n=n: memory.add(_session(n))))
        firsts.append(cpu_ms(lambda: memory.recall("Which garden does Ada have?")))
        others.append(cpu_ms(lambda: memory.recall("Which bicycle does Ada have?")))
    return adds[2:], firsts[2:], others[2:]


def _calls(memory: Any) -> float:
    """What two calls of the model take, prompts and parsing included."""
    writer, item = memory.program.method.writer, _session(10**5)
    blank = writer.Memory()
    taken: list[float] = []
    import dspy

    with dspy.context(lm=memory._lm, adapter=memory.program.asking(), trace=None, disable_history=True):
        for _ in range(ROUNDS):
            taken.append(cpu_ms(lambda: writer.write(blank, item, writer.prepare(item))))
    return middle(taken[2:])


def _turns() -> Iterator[Row]:
    from mempiler.memory.index import Entry
    from mempiler.memory.turns import TurnMemory

    for size in (1_000, 5_000, 20_000):
        turns = tuple(
            Entry(
                id=f"t{n}",
                text=f"Ada: {_text(n)}",
                kind="turn",
                sources=(f"t{n}",),
                speaker="Ada",
                tags={"dialogue": f"t{n // 10}"},
            )
            for n in range(size)
        )
        with tempfile.TemporaryDirectory() as folder:
            memory = _stored("turn-rag", TurnMemory(turns=turns), Path(folder), _lm(_Facts()))
            adds, firsts, _ = _grown(memory)
        yield Row("turn-rag, remember one session", f"{size:,} turns", middle(adds), 10)
        yield Row("turn-rag, next ask", f"{size:,} turns", middle(firsts), 10)


def _many_users(users: int = 100, size: int = 200) -> Iterator[Row]:
    from mempiler.engines.embedders import TextEmbedder, embedder
    from mempiler.engines.models import language_model
    from mempiler.engines.vector_file import VectorFile
    from mempiler.engines.vectors import Kept
    from mempiler.memory.store import Store
    from mempiler.memory.stored import Owner
    from mempiler.programs.catalog import build
    from mempiler.programs.memory_r2.memory import FactMemory, StoredFact

    count = [0]

    def compute(texts: Any) -> Any:
        count[0] += len(texts)
        return embedder().embed(texts)

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
        kept = Kept("counted", VectorFile(Path(folder) / "vectors.sqlite"))
        first, second = (
            build("memory-r2", embedder=TextEmbedder("counted", compute, 384, kept=kept)) for _ in range(2)
        )
        for user in range(users):
            said = [f"{_text(n)} of user {user}" for n in range(size)]
            facts = tuple(
                StoredFact(id=f"m{n}", speaker="Ada", content=text, sources=("S:1",)) for n, text in enumerate(said)
            )
            _put(store, Owner(f"u{user}"), FactMemory(facts=facts, issued=size), first)
        lm, embedded = language_model("offline"), list[float]()
        for turn, program in enumerate((first, first, second)):
            count[0] = 0
            for user in range(users):
                program.memory(store, f"u{user}", lm=lm).recall(f"Which piano does Ada have? {turn} {user}")
            embedded.append(count[0] / users)
    yield Row("texts embedded per ask", f"{users} users x {size}", embedded[1], 1, unit="texts")
    yield Row("  by a new process", f"{users} users x {size}", embedded[2], 1, unit="texts")


def _queued() -> Iterator[Row]:
    from mempiler.engines.models import language_model
    from mempiler.memory.store import Store
    from mempiler.programs.catalog import build

    for turns in (200, 1_000, 5_000):
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
            memory = build("memory-r2").memory(store, "ada", lm=language_model("offline"))
            for n in range(turns // 10):
                said = [{"role": "user", "name": "Ada", "content": _text(10 * n + m)} for m in range(10)]
                memory.add(said, remember=False)
            memory.recall("Which piano does Ada have?")
            probes = (f"Which bicycle {n} does Ada have?" for n in range(ROUNDS))
            taken = [cpu_ms(partial(memory.recall, probe)) for probe in probes]
        yield Row("ask with queued turns", f"{turns:,} turns", middle(taken[2:]), 10)


def _lm(reply: Any) -> Any:
    from mempiler.engines.meter import Meter, MeteredLM
    from scripted_engine import ScriptedEngine

    return MeteredLM("scripted", Meter(), engine=ScriptedEngine(0, reply), cache=False)


def _stored(method: str, memory: Any, folder: Path, lm: Any) -> Any:
    """A user of a store whose memory is this one."""
    from mempiler.memory.store import Store
    from mempiler.memory.stored import Owner
    from mempiler.programs.catalog import build

    program, store = build(method), Store(folder / "s.sqlite")
    _put(store, Owner("ada"), memory, program)
    return program.memory(store, "ada", lm=lm)


def _put(store: Any, owner: Any, memory: Any, program: Any) -> None:
    """Stores a memory as if it had been written from one session."""
    from mempiler import Session, Turn
    from mempiler.memory.stored import Document
    from mempiler.programs.live import stamp_of

    store.add(owner, Session(id="S", turns=(Turn(id="S:1", speaker="Ada", text="hello"),)))
    claim = store.claim("cost", 60, stamp_of(program), owner)
    document = Document(memory.model_dump_json(), 1, None, 1, ("Ada",), stamp_of(program))
    store.commit(claim, document, 60)
    store.release(claim)


def _peers(sizes: Sequence[int], mem0: str) -> dict[int, dict[str, float]]:
    """What mem0 takes at each size, where an interpreter has it."""
    if not Path(mem0).exists():
        return {}
    command = [mem0, str(Path(__file__).with_name("peer_mem0.py")), *map(str, sizes)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {each["size"]: each for each in found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What a memory costs as it grows.")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--mem0", default=MEM0, help="an interpreter with mem0ai and faiss-cpu")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    show(rows(given.sizes, given.mem0))
