"""What MLflow costs a run, and how long its pages take to start.

The 160 questions of LoCoMo's bundled sample are asked of a model that answers after two seconds, eight at a time; the
share of the run that goes into MLflow is measured within that run: what the scores, and what traces, prompts, models
and the dataset take. CPU seconds are those of the thread that logs, so they hold on a busy machine, too. Then
`mempiler ui` is started over the store of that run.

Usage:
    $ python perf/tracking.py [SECONDS_A_CALL] [TRACES|all]
"""

from __future__ import annotations

import importlib.util
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

GOAL = 0.03
"""Share of a run that waits for its model."""
TRACES = 20
PATIENCE = 120.0


Spent = dict[str, tuple[float, float]]
"""Seconds, and seconds of CPU, by what they went into."""


def _counted(spent: Spent, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    def done(*values: Any, **named: Any) -> Any:
        started, cpu = time.perf_counter(), time.thread_time()
        try:
            return work(*values, **named)
        finally:
            before = spent.get(name, (0.0, 0.0))
            spent[name] = before[0] + time.perf_counter() - started, before[1] + time.thread_time() - cpu

    return done


def run(delay: float, traces: int | None) -> None:
    """Evaluates against a slow model, and prints what share of it went into MLflow."""
    from mempiler.runs import experiment, tracked
    from mempiler.runs.setup import Setup
    from mempiler.runs.tracking import Tracker, client

    client()  # the store and the imports, which are there once
    spent: Spent = {}
    for name in ("__enter__", "__exit__", "params", "evaluation", "page"):
        setattr(Tracker, name, _counted(spent, "scores and files", getattr(Tracker, name)))
    for name in ("keep_prompts", "keep_model", "keep_questions", "keep_traces", "score_model", "link_prompts"):
        setattr(tracked, name, _counted(spent, name.removeprefix("keep_"), getattr(tracked, name)))
    spec = importlib.util.spec_from_file_location("stub", Path(__file__).parents[1] / "tests" / "stub_server.py")
    assert spec is not None
    assert spec.loader is not None
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    with stub.StubServer(None, delay=delay) as server:
        setup = Setup("locomo", lm=server.model, api_base=server.url, embedder="offline", traces=traces)
        started = time.perf_counter()
        found = experiment.run_evaluate("turn-rag", setup)
        took = time.perf_counter() - started

    shown = "all" if traces is None else traces
    print(f"{len(found.rows)} questions, {delay:g} s a call, traces of {shown}: {took:.1f} s")
    for name, (seconds, cpu) in sorted(spent.items(), key=lambda each: -each[1][1]):
        print(f"  {name}: {cpu:.2f} s of CPU, {seconds:.2f} s")
    whole, share = (sum(each[n] for each in spent.values()) / took for n in (0, 1))
    print(f"MLflow: {share:.1%} of the run in CPU ({whole:.1%} by the clock), goal below {GOAL:.0%}")


def pages() -> None:
    """Starts the pages over that store, and prints when the first one came."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "mempiler", "ui", "--port", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while time.perf_counter() - started < PATIENCE:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/"):
                break
            time.sleep(0.05)
        took = time.perf_counter() - started
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"mempiler ui: first page after {took:.1f} s, {cpu:.1f} s of CPU until its end; goal 10 s")


def main() -> None:
    """Prints both."""
    given = sys.argv[1:]
    delay, traces = float(given[0] if given else 2.0), None if given[1:] == ["all"] else int((given[1:] or [TRACES])[0])
    with tempfile.TemporaryDirectory(prefix="mempiler-tracking-") as folder:
        os.environ["MEMPILER_HOME"] = folder
        run(delay, traces)
        pages()


if __name__ == "__main__":
    main()
