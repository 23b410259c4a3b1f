"""What worker processes bring to an evaluation: the share of the ideal at 128 calls in flight, one process and two.

The engine gives a fixed reply after 200 ms and uses no CPU, so what is above the ideal is the machinery. Turn RAG
writes without calls, so the ideal is the latency times the questions by the calls in flight. Asking begins with the
first row; what passes before it, in which processes start and read the data, is a row of its own.

Usage:
    $ python perf/cost_workers.py
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from concurrency import _reply
from cost_calls import _theirs
from cost_row import Row, main, middle
from scripted_engine import ScriptedEngine

LATENCY, THREADS, USERS, QUESTIONS = 0.2, 128, 8, 2560
ROUNDS = 3


def rows() -> Iterable[Row]:
    """One process and two, in turns."""
    with tempfile.TemporaryDirectory(prefix="mempiler-workers-") as folder:
        os.environ.setdefault("DSPY_CACHEDIR", folder)
        os.environ["MEMPILER_HOME"] = folder
        data = _data(Path(folder))
        _evaluated(data, 1, 0.0)  # what is imported and compiled at the first call
        taken = [{workers: _evaluated(data, workers, LATENCY) for workers in (1, 2)} for _ in range(ROUNDS)]
        ideal = LATENCY * math.ceil(QUESTIONS / THREADS)
        theirs = ideal / _theirs(THREADS, QUESTIONS)[0]
        cores, load = os.cpu_count(), os.getloadavg()[0]
        for workers in (1, 2):
            share = middle([ideal / each[workers][1] for each in taken])
            cpu = middle([each[workers][2] for each in taken])
            yield Row(
                "evaluate, processes: share of ideal",
                f"{workers} x {THREADS // workers} threads",
                share,
                0.8,
                "ideal/wall",
                f"{theirs:.2f} dspy.Evaluate",
                above=True,
                bound=f"{cpu:.1f} s of CPU within {ideal:.1f} s of waiting, on {cores} cores at load {load:.1f}",
            )
        start = middle([each[2][0] - each[1][0] for each in taken])
        yield Row("evaluate: wall until two workers ask", "2 workers", start, 5, "s")


def _data(folder: Path) -> Path:
    """Questions about users with ten sessions each."""
    path = folder / "questions.jsonl"

    def said(user: int, session: int) -> list[dict[str, str]]:
        texts = [f"I saw place {user}-{session}-{turn} with the others on that day." for turn in range(10)]
        return [{"role": "user", "name": "Ann", "content": text, "time": f"2024-03-{session + 1:02}"} for text in texts]

    users = [[said(user, session) for session in range(10)] for user in range(USERS)]
    lines = [
        {"user": f"u{n % USERS}", "messages": users[n % USERS], "question": f"Where was that ({n})?", "answer": "Oslo"}
        for n in range(QUESTIONS)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def _sleeping(name: str, meter: Any, role: str, *rest: Any, **known: Any) -> Any:
    """In the place of `language_model`: one that waits."""
    from mempiler.engines.meter import MeteredLM

    kept = {key: known[key] for key in ("guard", "answers")}
    engine = ScriptedEngine(float(os.environ["PERF_LATENCY"]), _reply)
    return MeteredLM("sleeping/test", meter, engine=engine, cache=False, temperature=0.0, **kept)


def slow(shard: Any) -> Iterator[Any]:
    """What a worker does, with the waiting model."""
    from mempiler.runs import setup
    from mempiler.runs.shards import ask

    setup.language_model = _sleeping
    yield from ask(shard)


def _evaluated(data: Path, workers: int, latency: float) -> tuple[float, float, float]:
    """Wall seconds until the first row and from then on, and CPU seconds of all processes from the start."""
    from mempiler.runs import setup, shards
    from mempiler.runs.evaluate import evaluate

    os.environ["PERF_LATENCY"] = str(latency)
    setup.language_model, kept, shards.ask = _sleeping, (setup.language_model, shards.ask), slow
    try:
        chosen = setup.Setup("jsonl", str(data), embedder="offline", threads=THREADS, workers=workers)
        benchmark, runtime = chosen.load(), setup.Runtime.start(chosen, "evaluate", "turn-rag", {})
        program = runtime.program("turn-rag", benchmark)
        for history in dict.fromkeys(example.history for example in benchmark.examples) if workers == 1 else ():
            program.method.reader.search(program.remember(history).memory, ["anything"])
        at = list[float]()
        sharing = shards.Sharing(runtime, "turn-rag") if workers > 1 else None
        begun, cpu = time.perf_counter(), _cpu()
        with runtime.context(program):
            found = evaluate(
                program,
                benchmark,
                benchmark.examples,
                runtime.meter,
                THREADS,
                lambda done, total: at.append(time.perf_counter()),
                runtime.folder.store.rows,
                elsewhere=sharing,
            )
    finally:
        setup.language_model, shards.ask = kept
    assert len(found.rows) == sum(found.calls.values()) == QUESTIONS
    return at[0] - begun, at[-1] - at[0] + latency, _cpu() - cpu


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


if __name__ == "__main__":
    main(rows)
