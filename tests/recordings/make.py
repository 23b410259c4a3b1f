"""Makes the runs of this folder, each with the table that its replay must give.

    python tests/recordings/make.py [--lm gguf:qwen2.5-coder-0.5b] [--stub] [NAME ...]

A replay repeats a run with the answers that the model gave then, and without the model. A run that
is there is replaced. `--stub` asks a server on this machine instead, which answers with the offline
engine: for a first version of a run, or to try this script.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LM = "gguf:qwen2.5-coder-0.5b"
_PRAMEM = "rounds=1 samples=1 proposals=2 virtual_scenes=1 practice_tokens=500 predict_tokens=300"
_COMPILE = (
    "compile turn-rag --optimizer bootstrap --optimizer-set max_tries=2 "
    "--benchmark msc --train 3 --dev 2 --test 2 --force"
)
RECORDINGS = {
    "turn-rag": "evaluate turn-rag --benchmark msc --test 3",
    **{
        name: f"evaluate {name} --benchmark msc --test 1 --seed 1"
        for name in ("pgr", "pgr+turn-rag", "rgmem", "memory-r2")
    },
    "h2memory": "evaluate h2memory --benchmark palbench.select --data HERE/palset_en.json",
    "pramem": (
        f"evaluate pramem --benchmark movielens --test 1 --set {_PRAMEM.replace(' ', ' --set ')}"
    ),
    "bootstrap": _COMPILE,
}
"""The command of each, without its models; HERE stands for this folder."""
_KEPT = (
    *(
        "n",
        "score",
        "interval",
        "metrics",
        "by",
        "retrieval",
        "context",
        "calls",
        "tokens",
        "prompt_tokens",
    ),
    *("cached_share", "call_outcomes", "faults", "failure_rate", "failures"),
)
"""The fields of a result that a replay must repeat."""


def command(name: str) -> list[str]:
    """The command of a recording."""
    return [word.replace("HERE", str(HERE)) for word in RECORDINGS[name].split()]


def table(found: dict[str, Any]) -> dict[str, Any]:
    """What a replay must repeat of what a command prints: no times, no ids, no folders."""
    if "before" not in found:
        return {name: found[name] for name in _KEPT}
    parts = {part: table(found[part]) for part in ("before", "after")}
    return {
        **parts,
        **{name: found[name] for name in ("difference", "dev", "promoted", "stopped", "usage")},
    }


def run(words: list[str]) -> dict[str, Any]:
    """The table that a command prints."""
    from mempiler.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*words, "--json"])
    return table(json.loads(printed.getvalue()))


def make(name: str, models: list[str]) -> None:
    """Makes a run and its table: of the run's folder, what a replay needs."""
    from mempiler.runs.folder import RunFolder

    target, started = HERE / name, time.monotonic()
    # Vectors of another embedder would make a recording large.
    embedder = ["--embedder", "offline", "--reranker", "none"]
    found = run([*command(name), *models, *embedder, "--threads", "1"])
    ran = RunFolder.open("last")
    record = {part: ran.read()[part] for part in ("settings", "status", "models")}
    record["settings"]["data"] = (
        record["settings"]["data"] and Path(record["settings"]["data"]).name
    )
    target.mkdir(exist_ok=True)
    (target / "run.json").write_text(
        f"{json.dumps(record, indent=1, ensure_ascii=False)}\n", encoding="utf-8"
    )
    store = target / "run.sqlite"
    store.write_bytes(b"")
    with (
        contextlib.closing(sqlite3.connect(ran.path / "run.sqlite")) as whole,
        contextlib.closing(sqlite3.connect(store, isolation_level=None)) as kept,
    ):
        whole.backup(kept)
        for table in ("nodes", "rows"):
            kept.execute(f"DELETE FROM {table}")
        kept.execute("PRAGMA journal_mode=DELETE")
        kept.execute("VACUUM")
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (HERE / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    size, seconds = store.stat().st_size, time.monotonic() - started
    print(f"{name}: {size} bytes, {seconds:.0f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stub() -> Iterator[list[str]]:
    """Options that name a server which answers with the offline engine."""
    sys.path.insert(0, str(HERE.parents[1]))
    from tests.stub_server import StubServer

    with StubServer() as server:
        yield ["--lm", "openai/stub", "--api-base", server.url]


def main() -> None:
    """Makes the runs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECORDINGS))
    parser.add_argument("--lm", default=LM)
    parser.add_argument("--stub", action="store_true")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        stub() if chosen.stub else contextlib.nullcontext() as models,
    ):
        os.environ["MEMPILER_HOME"] = folder
        for name in chosen.names or RECORDINGS:
            make(name, models or ["--lm", chosen.lm])


if __name__ == "__main__":
    main()
