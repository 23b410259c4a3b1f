"""What RGMem's memory of a long history takes: saving and loading its JSON, its size, and its depth in LM calls.

A history of 600 turns in 27 sessions, LoCoMo's size, is written under a scripted model that is made up here: of every
segment of eight turns it draws eight conclusions and four paths, two of them to new events, and its theories have the
length that the prompts ask for. The time of saving and loading is the median of many rounds; nothing is embedded in it.

The depth is counted twice: by `GraphMemory.depth`, from the journal, and at the model, which takes a fixed time for
every call, so that the time from first to last call of a session is its depth times that.

Usage:
    $ python perf/rgmem_memory.py --turns 600 --sessions 27
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from scripted_engine import ScriptedEngine

AREAS = ("Sports", "Music", "Cooking", "Travel", "Reading", "Family")
ACTS = ("Running", "Swimming", "Piano", "Baking", "Hiking", "Novels", "Choir", "Cycling")
BASES = ("Interests and Entertainment", "Health and Wellness", "Social Relationships", "Goals and Plans")
SENTENCE = "Ann keeps to it on most days of the week and tells Bob how much it has come to mean to her lately"
LATENCY = 0.05
"""Seconds of a call where the depth is timed."""


def answer(kind: str, text: str) -> dict[str, Any]:
    """The output fields of one call."""
    turns = re.findall(r"^\[(D\d+:\d+)", text, re.MULTILINE)
    n = sum(map(ord, "".join(turns[:3])))
    if kind == "fact":
        drawn = [
            {"text": f"{SENTENCE} ({turn})", "relevance": ("high", "base")[i % 2], "turn_ids": [turn]}
            for i, turn in enumerate(turns)
        ]
        return {"fact": f"{SENTENCE}. " * 4, "conclusions": drawn}
    if kind == "entity_paths":
        return {"entity_paths": [_path(n + i, f"{turns[0]} {'abcd'[i]}" if i < 2 else "") for i in range(4)]}
    if kind == "edge_labels":
        ids = dict.fromkeys(re.findall(r'"segment_id": "(s\d+)"', text))
        return {"edge_labels": [{"segment_id": id, "label": f"user {SENTENCE} in {id}"} for id in ids]}
    if kind == "fact_summary":
        return {"fact_summary": f"{SENTENCE}. " * 3, "inferred_traits": _lines(4)}
    if kind == "general_facts":
        return {"general_facts": _lines(6), "specific_facts": _lines(9)}
    return {"macro_law": SENTENCE, "core_traits": _lines(5), "restrictions": _lines(4)}


def _lines(n: int) -> str:
    return "\n".join(f"- {SENTENCE}, {i}" for i in range(n))


def _path(n: int, instance: str) -> dict[str, Any]:
    events = [ACTS[n % len(ACTS)], *([f"Event {instance}"] if instance else [])]
    return {"base": BASES[n % len(BASES)], "concepts": [AREAS[n % len(AREAS)]], "events": events}


def main() -> None:
    parser = argparse.ArgumentParser(description="Size, saving, loading and depth of RGMem's memory.")
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--sessions", type=int, default=27)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        # DSPy reads it when it is imported.
        os.environ["DSPY_CACHEDIR"] = folder
        history = _history(arguments.turns, arguments.sessions)
        memory, calls = _written(history)
        _report(memory, calls, len(history.turns))
        _saving(memory, arguments.rounds)
        _timed_depth(history, memory)


def _history(turns: int, sessions: int) -> Any:
    from mempiler import History, Session, Turn

    sizes = [turns // sessions + (n < turns % sessions) for n in range(sessions)]
    items = tuple(
        Session(
            id=f"D{s}",
            time=datetime(2023, 1, 1) + timedelta(days=9 * s),
            turns=tuple(Turn(id=f"D{s}:{t}", speaker=("Ann", "Bob")[t % 2], text=SENTENCE) for t in range(1, size + 1)),
        )
        for s, size in enumerate(sizes, 1)
    )
    return History(id="long", items=items)


def _program(latency: float = 0.0) -> tuple[Any, Any, Any]:
    from mempiler import build
    from mempiler.engines.embedders import embedder
    from mempiler.engines.meter import Meter, MeteredLM

    engine = ScriptedEngine(latency, answer)
    lm = MeteredLM("scripted/test", Meter(), engine=engine, cache=False, temperature=0.0, num_retries=0)
    return build("rgmem", embedder=embedder()), lm, engine


def _written(history: Any) -> tuple[Any, Counter[str]]:
    import dspy

    program, lm, engine = _program()
    with dspy.context(lm=lm, trace=None, disable_history=True):
        return program.remember(history).memory, engine.calls


def _report(memory: Any, calls: Counter[str], turns: int) -> None:
    fired = Counter(entry.operator for entry in memory.journal)
    print(f"{turns} turns, {memory.step} sessions: {len(memory.evidence)} units, {len(memory.nodes)} nodes,")
    print(f"{len(memory.relations)} event edges, {len(memory.classes)} class edges, fired: {dict(fired)}")
    print(f"LM calls {sum(calls.values())}; one after another: 3 to extract + {memory.depth()} of the operators")


def _saving(memory: Any, rounds: int) -> None:
    save, load, text = [], [], ""
    for _ in range(rounds):
        started = time.perf_counter()
        text = memory.model_dump_json()
        saved = time.perf_counter()
        again = type(memory).model_validate_json(text)
        save.append(saved - started)
        load.append(time.perf_counter() - saved)
        assert again == memory
    both = [1000 * (a + b) for a, b in zip(save, load, strict=True)]
    print(
        f"{len(text) / 1e6:.2f} MB of JSON: save {1000 * statistics.median(save):.1f} ms, load "
        f"{1000 * statistics.median(load):.1f} ms, together {statistics.median(both):.1f} ms (median of {rounds}; "
        f"worst {max(both):.1f} ms)"
    )


def _timed_depth(history: Any, memory: Any) -> None:
    """Writes item by item under a model that takes its time, with everything extracted beforehand."""
    import dspy

    program, lm, _ = _program(LATENCY)
    method, written = program.method, type(memory)()
    with dspy.context(lm=lm, trace=None, disable_history=True):
        prepared = [method.writer.prepare(item) for item in history.items]
        started = time.perf_counter()
        for item, drafts in zip(history.items, prepared, strict=True):
            written = method.writer.write(written, item, drafts)
        seconds = time.perf_counter() - started
    assert written == memory
    print(
        f"at {1000 * LATENCY:.0f} ms a call the operators take {seconds:.2f} s, the time of {seconds / LATENCY:.0f} "
        f"calls, for a depth of {memory.depth()} and {len(memory.journal)} calls; the rest is our own work"
    )


if __name__ == "__main__":
    main()
