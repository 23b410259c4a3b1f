"""Everything that has a cost of its own, in one table: CPU, walls, files; beside its peers, with what bounds it.

Runs the rows of all `perf/cost_*.py`, one after the other, each in a process of its own. Walls are of the machine as it
is: run it with nothing else on the cores.

    memory    what grows with a memory: adds, questions, queues; beside mem0
    search    words and vectors; beside bm25s, rank-bm25 and faiss
    calls     what is around calls of a model; beside dspy.Evaluate
    service   requests over HTTP, statements, many users
    runs      the store of runs
    start     the first question of a process

Usage:
    $ python perf/costs.py
    $ python perf/costs.py memory search
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PARTS = ("memory", "search", "calls", "service", "runs", "start")


def main() -> int:
    """Runs the parts; 1 if one could not be."""
    parser = argparse.ArgumentParser(description="All rows of the table of costs.")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"some of {', '.join(PARTS)} [default: all]")
    failed = 0
    for part in parser.parse_args().parts:
        print(f"\n{part} (load {os.getloadavg()[0]:.1f})", flush=True)
        failed += subprocess.run([sys.executable, str(Path(__file__).with_name(f"cost_{part}.py"))]).returncode != 0
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
