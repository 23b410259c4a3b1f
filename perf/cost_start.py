"""What starting costs: a small evaluation, and the commands that ask nothing.

Each is a process of its own, of which the CPU of all threads counts. The evaluation is the second one of a results
folder: the first makes MLflow's store, through MLflow. Its peers are what it would have to import at least.

Usage:
    $ python perf/cost_start.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from cost_row import Row, main, middle

ROUNDS = 5
EVALUATE = ("-m", "mempiler", "evaluate", "turn-rag", "--on", "locomo", "--test", "5")


def rows() -> Iterator[Row]:
    """Every row of this part."""
    with tempfile.TemporaryDirectory() as home:
        first = _seconds(home, *EVALUATE)
        taken, imported, mlflow = list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            taken.append(_seconds(home, *EVALUATE))
            imported.append(_seconds(home, "-c", "import dspy"))
            mlflow.append(_seconds(home, "-c", "import mlflow.store.tracking.sqlalchemy_store"))
        peer = f"import dspy {middle(imported):.2f}, import MLflow and its store {middle(mlflow):.2f}"
        yield Row("evaluate of 5 questions", "store is there", middle(taken), 2, unit="CPU s", peer=peer)
        bound = "MLflow makes its tables in sixty migrations, once a results folder"
        yield Row("evaluate of 5 questions", "no store yet", first, 2, unit="CPU s", bound=bound)
        for name in ("list", "--help"):
            some = middle([_seconds(home, "-m", "mempiler", name) for _ in range(ROUNDS)])
            yield Row(f"mempiler {name}", "", some, 0.4, unit="CPU s")


def _seconds(home: str, *arguments: str) -> float:
    """CPU seconds of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "MEMPILER_HOME": home}
    environment.pop("MLFLOW_TRACKING_URI", None)
    subprocess.run([sys.executable, *arguments], env=environment, cwd=home, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(rows)
