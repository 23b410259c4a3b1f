"""Everything that has a cost of its own, in one table: CPU, walls, files; beside its peers, with what bounds it.

Runs the rows of all `perf/cost_*.py`, one after the other, each in a process of its own. Walls are of the machine as it
is: run it with nothing else on the cores.

    memory    what grows with a memory: adds, questions, queues; beside mem0
    search    words and vectors; beside bm25s, rank-bm25 and faiss
    calls     what is around calls of a model; beside dspy.Evaluate
    service   requests over HTTP, statements, many users
    runs      the store of runs
    workers   evaluation by several processes
    start     the first question of a process

Usage:
    $ python perf/costs.py
    $ python perf/costs.py memory search
    $ python perf/costs.py --write docs/costs.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cost_row import KEPT

HEAD = """# Costs

What everything but the language model costs; made by `python perf/costs.py --write docs/costs.md`, peers in the same
run. CPU is that of the whole process, medians of repeated work; walls and requests per second are of two cores that
clients and service share. Aims are the project's own; a row whose aim does not hold says what bounds it. Models answer
at once, or after a set time: nothing here tells how good an answer is. The same machine is up to twice as fast from one
day to the next, so read a row beside its peer.
"""
PARTS = ("memory", "search", "calls", "service", "runs", "workers", "start")


def main() -> int:
    """Runs the parts; 1 if one could not be."""
    parser = argparse.ArgumentParser(description="All rows of the table of costs.")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"some of {', '.join(PARTS)} [default: all]")
    parser.add_argument("--write", help="a page for the tables")
    given, failed, page = parser.parse_args(), 0, [HEAD]
    for part in given.parts:
        load = os.getloadavg()[0]
        print(f"\n{part} (load {load:.1f})", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows"
            rows.touch()
            script = str(Path(__file__).with_name(f"cost_{part}.py"))
            failed += subprocess.run([sys.executable, script], env={**os.environ, KEPT: str(rows)}).returncode != 0
            page.append(table(part, load, [json.loads(line) for line in rows.read_text().splitlines()]))
    if given.write:
        Path(given.write).write_text("\n".join(page))
    return int(bool(failed))


def table(part: str, load: float, rows: Sequence[Sequence[str]]) -> str:
    """The rows of a part as they stand on a page."""
    lines = [f"## {part.capitalize()}", "", f"Load {load:.1f} when it began.", ""]
    lines += [
        "| work | at | ours | aim | unit | holds | peer; what bounds it |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


if __name__ == "__main__":
    sys.exit(main())
