"""Benchmarks CPU, wall time, file sizes and LM calls of each part beside its peers: the tables of docs/costs.md.

Rows are a list by part (`PARTS`); what they measure is in `measures`, each of which gives several numbers and is run
once. Parts run one after the other, each in a process of its own. Walls are of the machine as it is: run it with
nothing else on the cores.

    memory    what grows with a memory: adds, questions, queues; beside mem0
    search    words and vectors; beside rank-bm25 and faiss
    calls     how many calls of a model there are, where a memory is written once
    evaluate  what is around calls of a model; beside dspy.Evaluate and dspy.LM
    service   requests over HTTP, many users
    runs      the store of runs
    start     the first question of a process

Usage:
    $ python perf/bench.py --write docs/costs.md
    $ python perf/bench.py --only search
    $ python perf/bench.py --only "turn-rag, next ask|sparse query"
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HEAD = """# Costs

What Mempiler itself costs, without the language model. `python perf/bench.py --write docs/costs.md` makes this page
and measures the peers in the same run. Milliseconds are of CPU, the process's total, medians of repeated runs. Models
are stubs that answer at once or after a fixed time. The same machine can be twice as fast on another day, so compare a
row with its peer.
"""
ADD = "2 calls of DSPy's, 5 transactions, faiss, Python's collector"
HITS = "after faiss, hits are made and put in order"
HTTP = "dspy.LM {their_share:.2f}; CPU of a call of ours {ours:.2f} ms"
QUESTION = "a third is DSPy's call, a fifth the search"
REQUESTS = {
    "chat": (6, "HTTP and loop .24, two writes .17, DSPy's call .15, recall .13, view .08, stub .06"),
    "ask": (4, "HTTP and loop .33, DSPy's call .24, recall .15, view .12, stub .10, evidence .06"),
    "add": (2, "HTTP and loop .53, the write .41"),
}
"""Aims of requests, and shares of the process's CPU by the threads' clocks."""
SHARES = (
    (0.2, 32, 640, 0.92),
    (0.2, 128, 1280, 0.8),
    (1.0, 128, 1280, 0.95),
    (1.0, 512, 5120, 0.85),
)
"""Seconds of a call, threads, questions, and the aim of the share of the ideal wall."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        part: Where it stands, with `work`, `at` a size.
        measure: Gives numbers by name; `value` is ours, `peers` are those of others.
        aim: What it is to stay under, or above where `above`; None for none.
        of: The peer so many times whose number the aim is.
        above: Whether more is better.
        note: What is told beside it; names in braces are numbers.
        bound: What bounds it where the aim does not hold.
    """

    part: str
    work: str
    at: str
    measure: Callable[[], Mapping[str, float]]
    value: str
    aim: float | None = None
    unit: str = "ms"
    peers: Sequence[str] = ()
    of: str = ""
    above: bool = False
    note: str = ""
    bound: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row as texts, measured."""
        found = self.measure()
        ours, aim = found[self.value], self.aim
        if aim is not None and self.of:
            aim *= found[self.of]
        holds = aim is None or (ours >= aim if self.above else ours <= aim)
        shown = "" if aim is None else f"{'>=' if self.above else '<='}{aim:.3g}"
        told = [*(_peer(name, ours, found) for name in self.peers), self.note, "" if holds else self.bound]
        notes = "; ".join(note.format(**found) for note in told if note)
        verdict = "" if aim is None else "yes" if holds else "NO"
        return self.work, self.at, f"{ours:.4g}", shown, self.unit, verdict, notes


def _peer(name: str, ours: float, found: Mapping[str, float]) -> str:
    """What a peer took, and how many times as much ours takes."""
    return f"{name} {found[name]:.3g} ({ours / found[name]:.2g}x)" if found.get(name) else f"{name} not here"


def _memory(given: Namespace) -> Iterator[Row]:
    from measures import memory

    for size in (100, 12_000):
        row = partial(Row, "memory", at=f"{size:,} facts", measure=partial(memory.facts, size, given.mem0), aim=5)
        yield row("memory-r2, add a session of 3 facts", value="add", peers=["mem0, add"], bound=ADD)
        yield row("  of it, around the 2 LM calls", value="rest", bound=ADD)
        yield row("first ask after an add", value="first", peers=["mem0, search"])
        yield row("next ask", value="next")
    for size in (1_000, 20_000):
        row = partial(Row, "memory", at=f"{size:,} turns", measure=partial(memory.turns, size), aim=10)
        yield row("turn-rag, remember one session", value="add")
        yield row("turn-rag, next ask", value="first")
    for size in (200, 5_000):
        yield Row("memory", "ask with queued turns", f"{size:,} turns", partial(memory.queued, size), "ask", 10)


def _search(given: Namespace) -> Iterator[Row]:
    from measures import search

    for size, aim in ((1_000, 0.2), (10_000, 0.5), (100_000, 1.0)):
        measure = partial(search.words, size)
        yield Row("search", "sparse query", f"{size:,}", measure, "query", aim, peers=["rank-bm25"])
        yield from _changes("sparse", size)
    for size in (9_500, 100_000):
        for work, probes in (("dense query", 1), ("dense, 40 probes", 40)):
            peers = ["faiss on one thread", "faiss on all threads"]
            measure = partial(search.vectors, size, probes)
            yield Row("search", work, f"{size:,}", measure, "query", 1.3, peers=peers, of=peers[0], bound=HITS)
    yield from _changes("dense", 100_000)
    yield from _changes("hybrid", 100_000)


def _changes(kind: str, size: int) -> Iterator[Row]:
    from measures import search

    for change in ("add", "replace", "remove"):
        note, measure = f"next ask {{next ask, {change}:.3g}}", partial(search.changes, kind, size)
        yield Row("search", f"{kind} index, {change}", f"{size:,}", measure, change, 0.5, note=note)


def _calls(given: Namespace) -> Iterator[Row]:
    from measures import calls

    peers = ["rebuilt", "rebuilt, cached"]
    row = partial(Row, "calls", at="first of the sample", measure=calls.remembered)
    yield row("memory-r2, all questions of a conversation", value="once", unit="LM calls", peers=peers)
    yield row("  wall", value="once, s", unit="s", peers=[f"{name}, s" for name in peers])


def _evaluate(given: Namespace) -> Iterator[Row]:
    from measures import calls, endpoint

    measure, peers = partial(calls.evaluation, 1, 300, 0.0), ["dspy.Evaluate, CPU ms"]
    yield Row("evaluate", "evaluate: a question", "turn-rag", measure, "CPU ms", 1.6, peers=peers, bound=QUESTION)
    for latency, threads, questions, aim in SHARES:
        row = partial(Row, "evaluate", above=True, peers=["dspy.Evaluate"], unit="ideal/wall")
        measure = partial(calls.evaluation, threads, questions, latency)
        bound = f"one interpreter: {{cpu:.1f}} s of CPU within {{ideal:.1f}} s of waiting; {QUESTION}"
        yield row(f"evaluate, calls of {latency:g} s: share of ideal", f"{threads} threads", measure, "share", aim, bound=bound)
    bound = "{calls:.0f} calls at 128 in flight take {least:.1f} s; {cpu:.1f} s of CPU"
    row = partial(Row, "evaluate", at="40 users", measure=partial(calls.users, 40), unit="x", bound=bound)
    yield row("two sessions each: wall over one user's", value="ratio", aim=1.3, note="one user {one:.2f} s")
    for many, gathered in ((1, False), (8, False), (32, False), (128, False), (128, True)):
        measure, at = partial(endpoint.calls, many, gathered), f"{many} {'gathered' if gathered else 'threads'}"
        share = "of ideal {share:.2f}, dspy.LM {their_share:.2f}"
        row = partial(Row, "evaluate", at=at, measure=measure, peers=["dspy.LM"], of="dspy.LM", note=share)
        yield row("call over HTTP, 100 ms", value="ours", aim=1)


    for threads, aim in ((128, 0.95), (512, 0.85)):
        measure = partial(endpoint.calls, threads, latency=1.0)
        row = partial(Row, "evaluate", measure=measure, above=True, unit="ideal/wall", note=HTTP)
        yield row("call over HTTP, 1 s: share of ideal", at=f"{threads} threads", value="share", aim=aim)


def _service(given: Namespace) -> Iterator[Row]:
    from measures import service

    for name, (aim, bound) in REQUESTS.items():
        row = partial(Row, "service", at="20 sessions", measure=service.cpu, peers=["models"], bound=bound)
        yield row(f"service: {name}", value=name, aim=aim)
    share = "{took:.0f} s: {service:.0f} s of CPU in the service, {clients:.0f} s in its clients"
    bound = f"{{per second:.0f}} requests a second of one process; {share}"
    note = "errors and leaks 0; p99 {p99:.2f} s"
    one, two = (partial(service.crowd, workers) for workers in (1, 2))
    yield Row("service", "200 users at once, p50", "1 process", one, "p50", 0.5, "s", note=note, bound=bound)
    bound = f"{share}; of two processes one writes to an SQLite file at a time"
    row = partial(Row, "service", unit="x", above=True, note=note, bound=bound)
    yield row("service: requests of 2 processes over 1", "200 users", two, "over one", 1.5)


def _runs(given: Namespace) -> Iterator[Row]:
    from measures import calls

    bound = "of memory-r2, .05 for putting nodes (calls and changes as JSON .03, SQL .01), .01 for opening and closing"
    for method, count in (("turn-rag", 200), ("memory-r2", 1)):
        measure, at = partial(calls.run_store, method, count, 48), f"{count} x 480 turns"
        row = partial(Row, "runs", at=at, measure=measure, unit="x")
        yield row(f"run store, {method}: file by input", value="file", aim=2, note="input {input:.1f} MB")
        yield row(f"run store, {method}: CPU by none", value="new", aim=1.1, bound=bound)
        yield row(f"run store, {method}: CPU of reading", value="read", aim=1.1)


def _start(given: Namespace) -> Iterator[Row]:
    from measures import service

    row, peers = partial(Row, "start", unit="CPU s"), ["import dspy", "import MLflow and its store"]
    evaluate, note = partial(service.start, *service.EVALUATE), "MLflow makes its tables, once a results folder"
    yield row("evaluate of 5 questions", "store is there", evaluate, "again", 3, peers=peers)
    yield row("evaluate of 5 questions", "no store yet", evaluate, "first", note=note)
    for name, aim in (("list", 0.2), ("--help", 0.1)):
        yield row(f"mempiler {name}", "", partial(service.start, "-m", "mempiler", name), "again", aim)


PARTS: Mapping[str, Callable[[Namespace], Iterator[Row]]] = {
    "memory": _memory,
    "search": _search,
    "calls": _calls,
    "evaluate": _evaluate,
    "service": _service,
    "runs": _runs,
    "start": _start,
}
"""The rows of every part."""
COLUMNS = ("work", "at", "ours", "aim", "unit", "holds", "peers; what bounds it")
_LINE = "{:<46}{:>20}{:>10}{:>10}  {:<11}{:<6} {}"


def measured(part: str, given: Namespace) -> tuple[float, list[tuple[str, ...]]]:
    """Prints the rows of a part that are asked for; the machine's load before, and the rows as texts."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    load, found = os.getloadavg()[0], list[tuple[str, ...]]()
    for row in PARTS[part](given):
        if given.only in (None, part) or (given.only not in PARTS and re.search(given.only, f"{row.work}, {row.at}")):
            if not found:
                print(f"\n{part} (load {load:.1f})\n{_LINE.format(*COLUMNS)}", flush=True)
            found.append(row.cells())
            print(_LINE.format(*found[-1]), flush=True)
    return load, found


def section(part: str, load: float, found: Sequence[Sequence[str]]) -> str:
    """The rows of a part as they stand on a page."""
    lines = [f"## {part.capitalize()}", "", f"Load {load:.1f}.", "", f"| {' | '.join(COLUMNS)} |"]
    lines += ["| --- | ---: | ---: | ---: | --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in found)]
    return "\n".join(lines)


def main() -> int:
    """Measures the parts one after the other."""
    parser = argparse.ArgumentParser(description="All rows of the table of costs.")
    parser.add_argument("--only", metavar="PATTERN", help=f"a part ({', '.join(PARTS)}), or a pattern of rows")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into a page; all parts")
    parser.add_argument("--mem0", default="/tmp/mem0/bin/python", help="an interpreter with mem0ai and faiss-cpu")
    given = parser.parse_args()
    if given.only and given.write:
        parser.error("--write takes all parts, without --only")
    page = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        # Read when DSPy and faiss are imported; a cache of earlier runs would answer everything.
        os.environ |= {"DSPY_CACHEDIR": f"{folder}/dspy", "MEMPILER_HOME": folder, "TQDM_DISABLE": "1"}
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
            for part in PARTS:
                page.append(section(part, *processes.submit(measured, part, given).result()))
    if given.write:
        given.write.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
