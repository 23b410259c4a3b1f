"""Clocks that jump during a load: every session is remembered, once, and in bounded time.

Workers store the sessions of many users and remember them, as in `perf/kill.py`; some are killed. Each worker has a
clock of its own, which is moved while it works: what `time.time` returns in its process is the machine's time and an
offset, drawn anew a few times a second. That is injected into the process: the machine's clock stays as it is, and so
does the clock of a PostgreSQL server, which decides there.

    steady      no offset
    ahead       a day, or none
    behind      minus a day, or none
    near        up to five minutes, before or after: claims look alive that are dead
    all         any of these

`survived`: nothing that was acknowledged is lost, nothing is there twice, no memory is wrong, and all workers ended.

Usage:
    $ python perf/clock.py --store sqlite
    $ python perf/clock.py --store postgres --runs ahead
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DAY = 86_400.0
RUNS: dict[str, Callable[[random.Random], float]] = {
    "steady": lambda chance: 0.0,
    "ahead": lambda chance: chance.choice([0.0, DAY]),
    "behind": lambda chance: chance.choice([0.0, -DAY]),
    "near": lambda chance: chance.uniform(-300, 300),
    "all": lambda chance: chance.choice([0.0, DAY, -DAY, chance.uniform(-300, 300)]),
}
LONGEST = 5.0
"""Seconds for which a claim is taken for alive at most: product's ten minutes, shortened like its lease."""


def load_of(
    kill: Any, url: str, options: argparse.Namespace, draw: Callable[[random.Random], float], folder: Path
) -> Any:
    """The load of `perf/kill.py`, with a clock in every worker that jumps."""
    work, real = kill.work, time.time

    def jumping(url: str, share: Any, acknowledged: Path, delay: float) -> None:
        chance, offset = random.Random(acknowledged.name), [0.0]

        def jump() -> None:
            while True:
                offset[0] = draw(chance)
                time.sleep(chance.uniform(0.05, 0.4))

        threading.Thread(target=jump, daemon=True).start()
        time.time = lambda: real() + offset[0]
        work(url, share, acknowledged, delay)

    kill.work = jumping
    load = kill.sessions(options.sessions, options.users)
    return kill.Load(url, load, options.workers, options.delay, folder), load


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One load under one kind of clock."""
    from mempiler import Store
    from mempiler.memory import store_reads

    store_reads.LONGEST_LEASE = LONGEST  # pyright: ignore[reportConstantRedefinition]
    kill = _kill()
    generator = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, kill.address(options.store, Path(folder)) as url:
        Store(url).close()
        begun, kills = time.monotonic(), 0
        running, load = load_of(kill, url, options, RUNS[name], Path(folder))
        for _ in range(options.kills):
            time.sleep(generator.uniform(0, 0.3))
            kills += running.kill(generator)
        ended = running.finish()
        found = kill.verify(url, load, running.acknowledged())
        seconds = round(time.monotonic() - begun, 1)
    good = ended and found["remembered"] == options.sessions and not found["lost"] + found["twice"] + found["wrong"]
    return {"clock": name, "store": options.store, "survived": good, "kills": kills, "seconds": seconds, **found}


def _kill() -> Any:
    spec = importlib.util.spec_from_file_location("kill", Path(__file__).with_name("kill.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres (a server of its own), or an address")
    parser.add_argument("--runs", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds a write takes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = [run(name, options) for name in options.runs]
    for one in found:
        print(json.dumps(one))
    return 0 if all(one["survived"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
