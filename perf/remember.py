"""What remembering once saves: LM calls and wall time of Memory-R2 on one conversation, against naive rebuilding.

    remember              one memory cache for all questions, DSPy's LM cache off
    naive, LM cache off   a new memory cache for every question: the memory is written again each time
    naive, LM cache on    the same, with DSPy's LM cache (in a temporary folder) taking repeated prompts

Calls are counted where they reach the engine. The engine is the offline one, so times are of the machinery: with a real
model every call costs its latency and its price on top.

Usage:
    $ python perf/remember.py locomo10.json --conversation conv-30 --threads 32
"""

from __future__ import annotations

import argparse
import contextvars
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """What one way of asking all questions cost."""

    name: str
    calls: int
    """Calls that reached the engine."""
    cached: int
    """Calls that DSPy's LM cache answered."""
    seconds: float
    answers: tuple[str, ...]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="mempiler-benchmark-") as folder:
        # DSPy reads it when it is imported; a cache of earlier runs would answer everything.
        os.environ["DSPY_CACHEDIR"] = folder
        examples = _questions(arguments.file, arguments.conversation, arguments.questions)
        sessions, turns = len(examples[0].history), len(examples[0].history.turns)
        print(
            f"{examples[0].history.id}: {len(examples)} questions, {sessions} sessions, {turns} turns; Memory-R2, "
            f"offline engine (extractive, no language model), {arguments.threads} threads",
            flush=True,
        )
        rows = [_measure(name, examples, arguments.threads) for name in ("remember", "cache off", "cache on")]
    _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="LM calls and wall time of remembering once.")
    parser.add_argument("file", nargs="?", help="a LoCoMo file [default: the bundled sample]")
    parser.add_argument("--conversation", help="id of a conversation [default: the first]")
    parser.add_argument("--questions", type=int, help="how many questions [default: all of the conversation]")
    parser.add_argument("--threads", type=int, default=32)
    return parser.parse_args()


def _questions(file: str | None, conversation: str | None, most: int | None) -> list[Any]:
    from mempiler.data.locomo.benchmark import Locomo

    benchmark = Locomo.load(file)
    wanted = conversation or benchmark.group(benchmark.examples[0])
    found = [example for example in benchmark.examples if benchmark.group(example) == wanted][:most]
    if not found:
        known = ", ".join(sorted({benchmark.group(example) for example in benchmark.examples}))
        raise SystemExit(f"no questions about {wanted!r}; the conversations are: {known}")
    return found


def _measure(kind: str, examples: Sequence[Any], threads: int) -> Row:
    import dspy
    from mempiler import build
    from mempiler.engines.embedders import embedder
    from mempiler.engines.models import language_model

    shared = embedder()
    lm = language_model("offline", cache=kind == "cache on")
    once = build("memory-r2", embedder=shared)

    def ask(example: Any) -> str:
        # `build` without a cache makes a new one: nothing is remembered from question to question.
        program = once if kind == "remember" else build("memory-r2", embedder=shared)
        return program(history=example.history, question=example.question).answer

    with dspy.context(lm=lm, trace=None, disable_history=True):
        started = time.perf_counter()
        answers = _in_threads(ask, examples, threads)
        seconds = time.perf_counter() - started
    usage = lm.meter.read()
    name = "remember" if kind == "remember" else f"naive, LM {kind}"
    return Row(name, sum(usage.calls.values()), usage.cached, seconds, tuple(answers))


def _in_threads(ask: Callable[[Any], str], examples: Sequence[Any], threads: int) -> list[str]:
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, ask, example) for example in examples]
        return [job.result() for job in jobs]


def _print(rows: Sequence[Row]) -> None:
    first = rows[0]
    print(f"\n{'':<22}{'LM calls':>10}{'ratio':>8}{'cached':>10}{'seconds':>10}{'ratio':>8}")
    for row in rows:
        calls, seconds = row.calls / first.calls, row.seconds / first.seconds
        print(f"{row.name:<22}{row.calls:>10,}{calls:>8.1f}{row.cached:>10,}{row.seconds:>10.1f}{seconds:>8.1f}")
    same = all(row.answers == first.answers for row in rows)
    print(f"\nanswers are the same in every row: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
