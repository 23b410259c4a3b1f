"""Part "start": how long commands take from nothing, in CPU seconds of their process.

`mempiler evaluate` imports DSPy and MLflow; what these imports alone take stands beside it. In a
results folder without a store MLflow first makes its tables.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from statistics import median

from measures.table import Aim, Peer, Result, Row

ROUNDS = 5
EVALUATE = ("-m", "mempiler", "evaluate", "turn-rag", "--benchmark", "locomo", "--test", "5")
IMPORT_DSPY = ("-c", "import dspy")
IMPORT_MLFLOW = ("-c", "import mlflow.store.tracking.sqlalchemy_store")


@dataclass(frozen=True)
class StartCosts:
    """CPU seconds of a command."""

    first_run: float
    """In a results folder without a store."""
    later_run: float
    """In the same folder after that; the median."""


def rows() -> list[Row]:
    """Declare the rows of this part."""
    evaluate = "evaluate of 5 questions"
    unit = "CPU s"
    return [
        Row(evaluate, "store is there", evaluate_with_store, Aim(3), unit),
        Row(evaluate, "no store yet", evaluate_without_store, unit=unit),
        Row("mempiler list", "", partial(start_command, "list"), Aim(0.2), unit),
        Row("mempiler --help", "", partial(start_command, "--help"), Aim(0.1), unit),
    ]


def evaluate_with_store() -> Result:
    """Evaluate in a results folder that has a store, beside the imports alone."""
    peers = [
        Peer("import dspy", _measure_start(*IMPORT_DSPY).later_run),
        Peer("import MLflow and its store", _measure_start(*IMPORT_MLFLOW).later_run),
    ]
    return Result(_measure_start(*EVALUATE).later_run, peers)


def evaluate_without_store() -> Result:
    """Evaluate in an empty results folder."""
    remark = "MLflow makes its tables, once a results folder"
    return Result(_measure_start(*EVALUATE).first_run, remark=remark)


def start_command(argument: str) -> Result:
    """Start `mempiler` with one argument."""
    return Result(_measure_start("-m", "mempiler", argument).later_run)


@cache
def _measure_start(*arguments: str) -> StartCosts:
    """Start Python with these arguments, first in an empty results folder."""
    with tempfile.TemporaryDirectory() as home:
        first_run = _cpu_seconds(home, *arguments)
        later_runs = [_cpu_seconds(home, *arguments) for _ in range(ROUNDS)]
    return StartCosts(first_run, median(later_runs))


def _cpu_seconds(home: str, *arguments: str) -> float:
    """Run Python with these arguments, and return the CPU seconds of its process.

    Raises:
        RuntimeError: It failed; the message is what it printed.
    """
    environment = {**os.environ, "MEMPILER_HOME": home}
    environment.pop("MLFLOW_TRACKING_URI", None)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=home, capture_output=True, text=True
    )
    if process.returncode != 0:
        raise RuntimeError(process.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
