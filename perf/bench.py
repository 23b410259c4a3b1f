"""Measure what Mempiler itself costs, beside other libraries: the tables of docs/costs.md.

The language model is always a stub, so a figure shows what everything around its calls takes. The
rows stand in seven parts; every part is a module of `measures/` that says what its rows measure:

    memory      adding sessions to a growing memory, and asking it; beside mem0
    search      an index alone, by words and vectors; beside rank-bm25 and faiss
    calls       how many model calls a conversation takes if its memory is written once
    evaluate    what surrounds the calls of an evaluation; beside dspy.Evaluate and dspy.LM
    service     requests over HTTP, one at a time and of many users
    runs        what the store of a run adds
    start       how long commands take to start

Usage:
    $ python perf/bench.py                                      # all parts: six minutes
    $ python perf/bench.py --only search                        # one part
    $ python perf/bench.py --only "turn-rag, first ask|sparse query"
    $ python perf/bench.py --write docs/costs.md

Sample output:
    search (load 0.6)
    work              at      ours     aim  unit  holds  peers; what bounds it
    sparse query   1,000   0.08989   <=0.2  ms    yes    rank-bm25 0.389 (0.23x)
    dense query    9,500     0.536  <=0.47  ms    NO     faiss on one thread 0.362 (1.5x); ...

Columns:
    work, at    what is done, and the size at which it is done
    ours        our value in the unit; "ms" is CPU of the whole process, the median of some runs
    aim         what the value should be; of some rows a multiple of a peer's value
    holds       whether the aim is reached: yes or NO
    peers       the value of a peer, and in brackets ours divided by it: 0.23x is a quarter
    bounds      what the time is spent on, where the aim is not reached

How to read it:
    Compare a row with its peer in the same run, never with the same row of another run: one machine
    can be twice as fast on another day. Run a row two or three times to see how much its ratio
    varies, and take no smaller difference for real. Leave the machine alone meanwhile: rows by the
    clock ("s", "ideal/wall") suffer most from other processes. The load beside the name of a part
    is the machine's average before it: near 0 at first, and later also what earlier parts left.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from measures.table import COLUMNS, Cells, Row

PARTS = ("memory", "search", "calls", "evaluate", "service", "runs", "start")
PAGE_HEAD = """# Costs

This page says what Mempiler itself costs in computing time, without the language model: models are
stubs that answer at once or after a fixed time. `python perf/bench.py --write docs/costs.md` makes
the page, and measures other libraries that do similar work (peers) in the same run. What users pay
a provider for is [what each method calls](methods/index.md).

How to read a table:

- **work, at**: what is done, and the size at which it is done.
- **ours**: our value; "ms" are milliseconds of CPU of the whole process, the median of some runs.
- **aim, holds**: what the value should be, and whether it is (yes or NO).
- **peers**: the value of a peer, and in brackets ours divided by it; 0.23x is a quarter.
- **what bounds it**: what takes the time, if the aim is not reached.

The same machine can be twice as fast on another day. So compare a row with its peer, not with a row
of another day. "Load" is how busy the machine was before a part (0 is idle).
"""
PART_INTRODUCTIONS = {
    "memory": (
        "Sessions are added to a memory, and it is asked. A first ask reads what was added; a next"
        " ask is a further question with nothing added between. Queued turns are stored, but not"
        " yet written into the memory. mem0 makes one model call for a session where Memory-R2"
        " makes two, and does not wait for the disk."
    ),
    "search": (
        "An index of so many entries is searched or changed: by words (sparse), by vectors (dense)"
        " or by both (hybrid). 40 probes are 40 queries at once. In the rows about changes, the"
        " last column says what the next search takes, the first one after the change, in ms. Our"
        " searches also cut the query into words and return whole entries; rank-bm25 and faiss"
        " return only row numbers."
    ),
    "calls": (
        "All questions about one conversation are answered. The rows count model calls, and seconds"
        " by the clock (wall). Mempiler writes the memory once. In the column of peers, the memory"
        " is written again for every question (rebuilt), also with DSPy's cache of calls (rebuilt,"
        " cached)."
    ),
    "evaluate": (
        "The rows show what Mempiler adds to the calls of an evaluation. The share of ideal is the"
        " time that the calls alone would take, divided by the time that passed: 1 is perfect."
        " Gathered calls are awaited with asyncio instead of threads. The row of two sessions says"
        " how much longer the queued sessions of 40 users take than those of one user."
    ),
    "service": (
        "Requests go to `mempiler serve` with turn RAG, from one client (ms) or from 200 clients at"
        " once; p50 is the median time of an answer. The peer `models` is `GET /v1/models`, which"
        ' touches no store. "Errors and leaks 0" says that no request failed, and that no answer'
        " held a text of another user: each session that is stored has a secret word of its own,"
        " which every answer is searched for."
    ),
    "runs": (
        "A run keeps its memories in a file, to be resumed. The rows are ratios: the size of this"
        " file by that of the input, and the CPU of writing memories with the file by that without"
        " one. In the rows of reading, the memories are read from the file instead of written."
    ),
    "start": (
        "The rows show the CPU seconds of a command from its start to its end. `evaluate` imports"
        " DSPy and MLflow: the peers are these imports alone."
    ),
}
"""What the rows of each part measure, for a reader of the page."""
TERMINAL_LINE = "{:<46}{:>20}{:>10}{:>10}  {:<11}{:<6} {}"
"""A row in the terminal."""
PAGE_ALIGNMENT = "| --- | ---: | ---: | ---: | --- | --- | --- |"


@dataclass(frozen=True)
class PartReport:
    """The measured rows of one part."""

    part: str
    load: float
    """The load of the machine before the part began."""
    lines: Sequence[Cells]


def rows_of(part: str, mem0_python: str) -> list[Row]:
    """Declare the rows of a part. Nothing is measured yet.

    Args:
        part: One of `PARTS`.
        mem0_python: An interpreter with mem0.
    """
    # Imported here, so that a process imports its own part alone, after `main` has set what DSPy
    # reads from the environment.
    match part:
        case "memory":
            from measures import memory

            return memory.rows(mem0_python)
        case "search":
            from measures import search

            return search.rows()
        case "calls":
            from measures import calls

            return calls.rows()
        case "evaluate":
            from measures import evaluate

            return evaluate.rows()
        case "service":
            from measures import service

            return service.rows()
        case "runs":
            from measures import runs

            return runs.rows()
        case "start":
            from measures import start

            return start.rows()
    raise ValueError(f"there is no part {part!r}")


def is_selected(row: Row, part: str, only: str | None) -> bool:
    """Return whether `--only` selects a row of a part: by the part's name, or by a pattern."""
    if only is None:
        return True
    if only in PARTS:
        return only == part
    return re.search(only, f"{row.work}, {row.at}") is not None


def measure_part(part: str, only: str | None, mem0_python: str) -> PartReport:
    """Measure the selected rows of a part, and print each as soon as it is there."""
    load = os.getloadavg()[0]
    rows = [row for row in rows_of(part, mem0_python) if is_selected(row, part, only)]
    # After the rows: DSPy sets its level when it is imported.
    logging.getLogger("dspy").setLevel(logging.ERROR)
    if rows:
        print(f"\n{part} (load {load:.1f})")
        print(TERMINAL_LINE.format(*COLUMNS), flush=True)

    lines: list[Cells] = []
    for row in rows:
        cells = row.measured_cells()
        print(TERMINAL_LINE.format(*cells), flush=True)
        lines.append(cells)
    return PartReport(part, load, lines)


def page_section(report: PartReport) -> str:
    """Return the section of the page about a part."""
    lines = [
        f"## {report.part.capitalize()}",
        "",
        PART_INTRODUCTIONS[report.part],
        "",
        f"Load {report.load:.1f}.",
        "",
        _page_row(COLUMNS),
        PAGE_ALIGNMENT,
    ]
    lines += [_page_row(cells) for cells in report.lines]
    return "\n".join(lines)


def _page_row(cells: Cells) -> str:
    return f"| {' | '.join(cells)} |"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What Mempiler itself costs, beside its peers.")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help=f"one part ({', '.join(PARTS)}), or a regular expression that matches rows",
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="write the tables of all parts into a page"
    )
    parser.add_argument(
        "--mem0",
        default="/tmp/mem0/bin/python",
        metavar="PYTHON",
        help="an interpreter with mem0ai and faiss-cpu [default: %(default)s]",
    )
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write takes all parts, without --only")
    return arguments


def main() -> int:
    """Measure the parts one after the other, each in a process of its own."""
    arguments = parse_arguments()
    sections = [PAGE_HEAD]
    with tempfile.TemporaryDirectory() as folder:
        # DSPy and faiss read these when they are imported. DSPy's cache of earlier runs would
        # answer every call.
        os.environ["DSPY_CACHEDIR"] = f"{folder}/dspy"
        os.environ["MEMPILER_HOME"] = folder
        os.environ["TQDM_DISABLE"] = "1"

        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
            for part in PARTS:
                future = pool.submit(measure_part, part, arguments.only, arguments.mem0)
                sections.append(page_section(future.result()))

    if arguments.write:
        arguments.write.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
