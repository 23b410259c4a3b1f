"""How many LM calls of H2Memory follow one another, and how long that takes, with a model that only sleeps.

One user has 29 sessions of 30 logs and a dialogue, as PAL-Set's users have on average. Their memory is written twice:
one call after the other, and with whatever can run at the same time. Both memories must be equal, and the second run
must take at most a fifth of the first. The ideal is `HeterogeneousMemory.depth()` calls:

    2 to read all items, 1 per session for the background, 1 for the last needs, 2 for the principles and for each
    dialogue of the last month

Usage:
    $ python perf/h2memory_depth.py
    $ python perf/h2memory_depth.py --sessions 8 --latency 0.05
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

from scripted_engine import ScriptedEngine

LIMIT = 0.2
"""The most that the concurrent run may take of the sequential one."""


def _reply(kind: str, text: str) -> dict[str, Any]:
    """Links of neighbouring logs, a topic per dialogue, and texts that name what they were made from."""
    first = re.search(r"first_log ## \]\]\n(L\d+):(\d+)", text)
    batch, number = (first[1], int(first[2])) if first else ("", 0)
    about = " ".join(dict.fromkeys(re.findall(r"\b(?:matter|thing)-\d+\b", text)))
    change = {"aspect": "work", "summary": f"works on {about[-60:]}"}
    replies: dict[str, dict[str, Any]] = {
        "links": {
            "links": [
                {"log_id": f"{batch}:{n}", "follows": [f"{batch}:{n - 1}"]} for n in range(number + 1, number + 5)
            ]
        },
        "found_situation": {"found_situation": {"situation": f"busy with {about}", "aspects": ["work"]}},
        "outlines": {"outlines": [{"requirement": f"help with {about}", "preference": f"quiet {about}"}]},
        "detailed_need": {"detailed_need": f"help with {about[:80]}"},
        "updating_aspects": {"updating_aspects": ["work"], "updating_content": [change]},
        "type_verdict": {"type_verdict": {"adjust": False}},
        "principle_verdict": {"principle_verdict": {"adjust": True, "revised": about[:80]}},
    }
    return replies.get(kind, {kind: f"of {about[:40]}"})


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        os.environ["DSPY_CACHEDIR"] = folder
        _write(2, 0.0, together=True)  # what is imported and compiled at the first call
        print(f"latency {arguments.latency:g} s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
        print(f"{'calls':<12}{'number':>8}{'in a row':>10}{'wall s':>9}{'ideal s':>9}")
        slow, calls, memory = _write(arguments.sessions, arguments.latency, together=False)
        print(f"{'in order':<12}{calls:>8}{calls:>10}{slow:>9.2f}{calls * arguments.latency:>9.2f}", flush=True)
        fast, again, same = _write(arguments.sessions, arguments.latency, together=True)
        depth = same.depth()
        print(f"{'together':<12}{again:>8}{depth:>10}{fast:>9.2f}{depth * arguments.latency:>9.2f}")
    equal = (memory, calls) == (same, again)
    print(f"\ntogether / in order: {fast / slow:.3f} (at most {LIMIT}); by stage: {same.levels}; same memory: {equal}")
    if fast / slow > LIMIT or not equal:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The critical path of H2Memory, with a sleeping model.")
    parser.add_argument("--sessions", type=int, default=29)
    parser.add_argument("--latency", type=float, default=0.1)
    return parser.parse_args()


def _write(sessions: int, latency: float, together: bool) -> tuple[float, int, Any]:
    """Wall seconds, calls and memory of one run."""
    import dspy
    from mempiler.engines.embedders import embedder
    from mempiler.engines.meter import Meter, MeteredLM
    from mempiler.programs.catalog import build
    from mempiler.programs.gather import in_order

    engine = ScriptedEngine(latency, _reply)
    lm = MeteredLM("sleeping/test", Meter(), engine=engine, cache=False, temperature=0.0)
    program, history = build("h2memory", embedder=embedder()), _history(sessions)
    with dspy.context(lm=lm, warn_on_type_mismatch=False), nullcontext() if together else in_order():
        started = time.perf_counter()
        memory = program.remember(history).memory
        return time.perf_counter() - started, sum(engine.calls.values()), memory


def _history(sessions: int) -> Any:
    from mempiler import History, Session, Turn
    from mempiler.records import Logs

    items: list[Any] = []
    for s in range(sessions):
        start = datetime(2024, 1, 3) + timedelta(days=10 * s)
        logs = [
            Turn(id=f"L{s}:{n}", speaker="log", text=f"searched thing-{s * 30 + n}", time=start + timedelta(hours=n))
            for n in range(30)
        ]
        turns = [Turn(id=f"D{s}:{n}", speaker="user", text=f"what about matter-{s}, step {n}?") for n in range(14)]
        items += [Logs(id=f"L{s}", time=start, turns=tuple(logs))]
        items += [Session(id=f"D{s}", time=start + timedelta(days=5), turns=tuple(turns))]
    return History(id="user", items=tuple(items))


if __name__ == "__main__":
    main()
