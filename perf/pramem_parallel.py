"""How much sooner PraMem has practised when rounds run at the same time, with a model that only sleeps.

The engine gives fixed replies after 200 ms. One user's 80 rounds are practised twice: one call after the other, as the
paper does (55.8 minutes a user, Table 3), and with the rounds between two adjustments at the same time. Both memories
must be equal, and the second run must take at most a quarter of the first. The ideal is the critical path:

    per five rounds   trial, reflection, two reviews, adjustment     5 calls of 200 ms, 16 times

Usage:
    $ python perf/pramem_parallel.py
    $ python perf/pramem_parallel.py --rounds 20 --latency 0.05
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tempfile
import time
from typing import Any

from scripted_engine import ScriptedEngine

CHAIN = 5
"""Calls that follow one another between two adjustments, the adjustment included."""
LIMIT = 0.25
"""The most that the parallel run may take of the sequential one."""


def _reply(kind: str, text: str) -> dict[str, Any]:
    """Proposals that name the practised record, so that memories differ if the order of rounds does."""
    reviewed = re.findall(r'"proposal": "(r\d+)"', text)
    of = {by: id for id, by in reversed(re.findall(r'"proposal": "(p-\d+)",\s*"record": "(\w+)"', text))}
    pool = sorted(of.values())[:3]
    record = (re.findall(r"## practised_record ## \]\]\n\[(\w+)\]", text) or [""])[0]
    drafts = [{"action": "add pattern", "content": f"{n} of {record}"} for n in ("one", "two")]
    adopted = {"action": "add pattern", "text": f"agreed {' '.join(pool)}", "proposal_ids": pool}
    replies: dict[str, dict[str, Any]] = {
        "useful_patterns": {
            "useful_patterns": [],
            "useful_alerts": [],
            "reasoning": "It follows.",
            "predicted_action": "watched",
        },
        "tasks": {"tasks": [{"verdict": "right"}], "proposals": drafts},
        "plans": {"plans": [{"direction": "all reversed", "details": "likes become reports"}]},
        "groundedness": {"groundedness": [{"proposal": id, "sensitive": True} for id in reviewed]},
        "virtual_scenes": {"virtual_scenes": [f"video; scene {n}" for n in range(7)]},
        "generality": {"generality": [{"proposal": id, "general": True} for id in reviewed]},
        "decisions": {"decisions": "Three agree.", "changes": [adopted]},
    }
    return replies[kind]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        os.environ["DSPY_CACHEDIR"] = folder
        _practise(2, 0.0, parallel=True)  # what is imported and compiled at the first call
        print(
            f"latency {arguments.latency:g} s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start\n"
        )
        print(f"{'rounds':<12}{'calls':>7}{'wall s':>9}{'critical path s':>17}{'wall / path':>13}")
        slow, calls, memory = _practise(arguments.rounds, arguments.latency, parallel=False)
        _line("in order", calls, slow, calls * arguments.latency)
        fast, again, same = _practise(arguments.rounds, arguments.latency, parallel=True)
        _line("together", again, fast, math.ceil(arguments.rounds / 5) * CHAIN * arguments.latency)
    equal = (memory, calls) == (same, again)
    print(f"\ntogether / in order: {fast / slow:.3f} (at most {LIMIT}); same memory and calls: {equal}")
    if fast / slow > LIMIT or not equal:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PraMem's practice in order and together, with a sleeping model.")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--latency", type=float, default=0.2)
    return parser.parse_args()


def _line(name: str, calls: int, wall: float, path: float) -> None:
    print(f"{name:<12}{calls:>7}{wall:>9.2f}{path:>17.2f}{wall / path if path else math.nan:>13.2f}", flush=True)


def _practise(rounds: int, latency: float, parallel: bool) -> tuple[float, int, Any]:
    """Wall seconds, calls and memory of one run."""
    import dspy
    from mempiler.engines.meter import Meter, MeteredLM
    from mempiler.programs.catalog import build

    engine = ScriptedEngine(latency, _reply)
    lm = MeteredLM("sleeping/test", Meter(), engine=engine, cache=False, temperature=0.0)
    program = build("pramem", task="behavior-prediction", rounds=rounds, parallel=parallel)
    history = _history(rounds + 20)
    with dspy.context(lm=lm, warn_on_type_mismatch=False):
        started = time.perf_counter()
        memory = program.remember(history).memory
        return time.perf_counter() - started, sum(engine.calls.values()), memory


def _history(records: int) -> Any:
    from mempiler import History
    from mempiler.records import Action, Behavior

    actions = [
        Action(id=f"a{n}", scene="video", situation=f"clip {n} of channel {n % 7}", action=f"watched {n % 90} s")
        for n in range(1, records + 1)
    ]
    return History(id="user", items=(Behavior.of("records", actions),))


if __name__ == "__main__":
    main()
