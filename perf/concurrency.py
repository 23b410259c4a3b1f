"""How near evaluation comes to the least time its calls can take, with a model that only sleeps.

The engine gives fixed replies after 200 ms and uses no CPU, so whatever is above the ideal is the machinery: DSPy, the
memory cache, retrieval, scoring, and the run's store. The ideal is the longest chain of calls that write one memory
(they must follow one another), then all questions at once:

    ideal = latency x (longest write chain + ceil(questions / threads))

Each conversation has ten sessions, made from those of the file by repeating them; each session is written with two
calls, of which the extractions of all sessions run at once: a chain of 1 + 10. Turn RAG writes without calls.

Usage:
    $ python perf/concurrency.py locomo10.json --threads 32
"""

from __future__ import annotations

import argparse
import math
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripted_engine import ScriptedEngine

SESSIONS = 10
SHAPES = ((1, 200), (5, 100))
"""Conversations, and questions about each."""


def _reply(kind: str, text: str) -> dict[str, Any]:
    """One fact of the first turn shown, no operation on the memory, and always the same answer."""
    if kind == "facts":
        turn = re.search(r"^\[(\S+?)\](?: \(.*?\))? (\w+): ", text, re.MULTILINE)
        id, who = turn.groups() if turn else ("", "")
        return {"facts": [{"speaker": who, "turn_id": id, "fact": "likes walking on Mondays"}]}
    if kind == "operations":
        return {"operations": []}
    return {"reasoning": "It says so."} | _ANSWER if kind == "reasoning" else _ANSWER


_ANSWER = {"answer": "on Monday"}


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        os.environ["DSPY_CACHEDIR"] = folder
        cores, load = os.cpu_count(), os.getloadavg()[0]
        _measure(arguments, "memory-r2", 1, 4, 4, Path(folder))  # what is imported and compiled at the first call
        print(f"latency {arguments.latency:g} s, {cores} cores, load {load:.1f} before the start\n")
        print(f"{'method':<12}{'conversations':>14}{'questions':>11}{'threads':>9}{'calls':>7}", end="")
        print(f"{'wall s':>9}{'ideal s':>9}{'share':>7}{'CPU ms/call':>13}")
        for method in arguments.methods:
            for conversations, questions in SHAPES:
                for threads in arguments.threads:
                    _line(arguments, method, conversations, questions, threads, Path(folder))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Evaluation with a model that only sleeps, against the ideal.")
    parser.add_argument("file", nargs="?", help="a LoCoMo file [default: the bundled sample]")
    parser.add_argument("--threads", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--methods", nargs="+", default=["turn-rag", "memory-r2"])
    parser.add_argument("--latency", type=float, default=0.2)
    return parser.parse_args()


def _line(
    arguments: argparse.Namespace, method: str, conversations: int, questions: int, threads: int, folder: Path
) -> None:
    engine, wall, cpu = _measure(arguments, method, conversations, questions, threads, folder)
    chain = engine.calls["operations"] // conversations + (1 if engine.calls["facts"] else 0)
    asked, calls = conversations * questions, sum(engine.calls.values())
    ideal = arguments.latency * (chain + math.ceil(asked / threads))
    print(f"{method:<12}{conversations:>14}{asked:>11}{threads:>9}{calls:>7}", end="")
    print(f"{wall:>9.2f}{ideal:>9.2f}{ideal / wall:>7.2f}{1000 * cpu / calls:>13.1f}", flush=True)


def _measure(
    arguments: argparse.Namespace, method: str, conversations: int, questions: int, threads: int, folder: Path
) -> tuple[ScriptedEngine, float, float]:
    """The engine with its counts, and the wall and CPU seconds of one evaluation."""
    import dspy
    from mempiler import build
    from mempiler.engines.embedders import embedder
    from mempiler.engines.meter import Meter, MeteredLM
    from mempiler.programs.remember import MemoryCache
    from mempiler.runs.evaluate import evaluate
    from mempiler.runs.run_store import RunStore

    benchmark = _benchmark(arguments.file, conversations, questions)
    store = RunStore(folder / f"{method}-{conversations}-{questions}-{threads}.sqlite")
    engine = ScriptedEngine(arguments.latency, _reply)
    lm = MeteredLM("sleeping/test", Meter(), answers=store.answers, engine=engine, cache=False, temperature=0.0)
    # As large as the longest session: one extraction and one manager call for each.
    settings = {"chunk_turns": 1000} if method == "memory-r2" else {}
    program = build(method, embedder=embedder(), cache=MemoryCache(store.nodes), **settings)
    with dspy.context(lm=lm, warn_on_type_mismatch=False):
        started, cpu = time.perf_counter(), time.process_time()
        evaluate(program, benchmark, benchmark.examples, lm.meter, threads, journal=store.rows)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    store.close()
    return engine, wall, cpu


def _benchmark(file: str | None, conversations: int, questions: int) -> Any:
    """So many conversations of ten sessions each, with so many questions about each."""
    from mempiler.data.locomo.benchmark import Locomo

    source = Locomo.load(file)
    groups: dict[str, list[Any]] = {}
    for example in source.examples:
        groups.setdefault(source.group(example), []).append(example)
    found = []
    for n in range(conversations):
        known = list(groups.values())[n % len(groups)]
        history = _history(known[0].history, f"conversation-{n}")
        asked = [known[m % len(known)] for m in range(questions)]
        # Equal questions would be one call: the run's store knows the answer the second time.
        found += [
            example.copy(id=f"{n}:{m}", history=history, question=f"{example.question} ({m})").with_inputs(
                *example.inputs().keys()
            )
            for m, example in enumerate(asked)
        ]
    return Locomo(found, source.source)


def _history(history: Any, name: str) -> Any:
    items: Sequence[Any] = [history.items[n % len(history.items)] for n in range(SESSIONS)]
    return history.model_copy(update={"id": name, "items": tuple(_again(item, n) for n, item in enumerate(items))})


def _again(session: Any, n: int) -> Any:
    turns = [turn.model_copy(update={"id": f"D{n + 1}:{m}"}) for m, turn in enumerate(session.turns, 1)]
    return session.model_copy(update={"id": f"D{n + 1}", "turns": tuple(turns)})


if __name__ == "__main__":
    main()
