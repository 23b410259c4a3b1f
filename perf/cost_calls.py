"""What a call of a language model costs around it: evaluation, users written at the same time, one long conversation.

    evaluate      questions about written memories, in so many threads, beside `dspy.Evaluate` over the same prompt
    users         users with two queued sessions each, beside one such user
    remembering   one LoCoMo conversation, beside the calls of it that must follow one another

The engine gives its replies after 200 ms, scripted or made beforehand, and uses no CPU: what is above the ideal is the
machinery. The calls that must follow one another are found from two latencies: their number is what the wall time grows
by.

Usage:
    $ python perf/cost_calls.py locomo10.json
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from concurrency import _benchmark, _reply
from cost_row import Row, main, middle
from scripted_engine import ScriptedEngine

LATENCY = 0.2
QUESTIONS = {1: 300, 32: 640, 128: 1280}
"""Questions by threads."""
USERS = 40
ROUNDS = 3
"""Repetitions; their median counts."""
PARTS = "a third of it is the call in DSPy, a fifth the search, an eighth each the run's store and what its page keeps"
"""Where the CPU of a question is, by py-spy over one thread."""
WORD = "The garden behind the old house was full of apples in that year, and she told him so twice. "


def rows(file: str | None = None) -> Iterable[Row]:
    """All rows; with a LoCoMo file also those that need one."""
    with tempfile.TemporaryDirectory(prefix="mempiler-costs-") as folder:
        # DSPy reads it when it is imported; a cache of earlier runs would answer everything.
        os.environ.setdefault("DSPY_CACHEDIR", folder)
        yield from _evaluation(Path(folder), file)
        yield from _users(Path(folder), file)
        if file is not None:
            yield from _remembering(file)


def _evaluation(folder: Path, file: str | None) -> Iterator[Row]:
    _ours(folder, file, 4, 8, 0.0)  # what is imported and compiled at the first call
    _theirs(4, 8, 0.0)
    pairs = [(_ours(folder, file, 1, QUESTIONS[1], 0.0), _theirs(1, QUESTIONS[1], 0.0)) for _ in range(ROUNDS)]
    ours, theirs = (1000 * middle([pair[n][1] for pair in pairs]) / QUESTIONS[1] for n in (0, 1))
    yield Row("evaluate: a question", "turn-rag", ours, 2.5, peer=f"{theirs:.2f} dspy.Evaluate", bound=PARTS)
    for threads, aim in ((32, 0.92), (128, 0.8)):
        asked = QUESTIONS[threads]
        ideal = LATENCY * math.ceil(asked / threads)
        pairs = [(_ours(folder, file, threads, asked), _theirs(threads, asked)) for _ in range(ROUNDS)]
        ours, theirs = (middle([ideal / pair[n][0] for pair in pairs]) for n in (0, 1))
        cpu = middle([pair[0][1] for pair in pairs])
        yield Row(
            "evaluate: share of ideal",
            f"{threads} threads",
            ours,
            aim,
            "ideal/wall",
            f"{theirs:.2f} dspy.Evaluate",
            above=True,
            bound=f"one interpreter: {cpu:.1f} s of CPU within {ideal:.1f} s of waiting; {PARTS}",
        )


def _users(folder: Path, file: str | None) -> Iterator[Row]:
    _written(folder, file, 1, 0.0)
    one = middle([_written(folder, file, 1, LATENCY)[0] for _ in range(ROUNDS)])
    many = [_written(folder, file, USERS, LATENCY) for _ in range(ROUNDS)]
    wall, cpu, calls = (middle([each[n] for each in many]) for n in range(3))
    yield Row(
        "two sessions each: wall over one user's",
        f"{USERS} users",
        wall / one,
        1.3,
        "x",
        f"one user {one:.2f} s",
        bound=f"{calls:.0f} calls at 128 in flight take {LATENCY * calls / 128:.1f} s; {cpu:.1f} s of CPU",
    )


def _remembering(file: str) -> Iterator[Row]:
    for method in ("memory-r2", "rgmem", "h2memory"):
        known: dict[Any, Any] = {}
        _remembered(file, method, 0.0, known)
        shorts = [_remembered(file, method, LATENCY, known) for _ in range(ROUNDS)]
        short, cpu = (middle([each[n] for each in shorts]) for n in (0, 1))
        long, _ = _remembered(file, method, 4 * LATENCY, known)
        chain = LATENCY * round((long - short) / (3 * LATENCY))
        bound = f"{cpu:.1f} s of CPU, the part of it between calls that follow one another"
        yield Row(f"remembering conv-26 over its chain of {chain:.1f} s", method, short / chain, 1.1, "x", bound=bound)


@contextmanager
def _metered(engine: Any, model: str = "sleeping/test", **more: Any) -> Iterator[Any]:
    import dspy
    from mempiler.engines.meter import Meter, MeteredLM

    lm = MeteredLM(model, Meter(), engine=engine, cache=False, temperature=0.0, **more)
    with dspy.context(lm=lm, warn_on_type_mismatch=False, disable_history=True):
        yield lm


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _ours(
    folder: Path, file: str | None, threads: int, questions: int, latency: float = LATENCY
) -> tuple[float, float]:
    """Questions about five memories that are there already, with the run's store."""
    from mempiler import build
    from mempiler.engines.embedders import embedder
    from mempiler.programs.remember import MemoryCache
    from mempiler.runs.evaluate import evaluate
    from mempiler.runs.run_store import RunStore

    benchmark = _benchmark(file, 5, max(1, questions // 5))
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = RunStore(Path(own) / "run.sqlite")
        with _metered(ScriptedEngine(latency, _reply), answers=store.answers) as lm:
            program = build("turn-rag", embedder=embedder(), cache=MemoryCache(store.nodes))
            for history in dict.fromkeys(example.history for example in benchmark.examples):
                program.method.reader.search(program.remember(history).memory, ["anything"])
            taken = _timed(
                lambda: evaluate(program, benchmark, benchmark.examples, lm.meter, threads, journal=store.rows)
            )
        store.close()
    return taken


def _theirs(threads: int, questions: int, latency: float = LATENCY) -> tuple[float, float]:
    """The same prompt by `dspy.Evaluate`, without memory, store and meter."""
    import logging

    import dspy
    from mempiler.signatures.answering import AnswerFromContext

    logging.getLogger("dspy").setLevel(logging.ERROR)
    fields = [
        {"context": WORD * 10, "question": f"When was that ({n})?", "answer": "on Monday"} for n in range(questions)
    ]
    examples = [dspy.Example(**each).with_inputs("context", "question") for each in fields]
    lm = dspy.LM("sleeping/test", engine=ScriptedEngine(latency, _reply), cache=False, temperature=0.0)
    scored = dspy.Evaluate(
        devset=examples,
        metric=lambda example, said, trace=None: float(example.answer == said.answer),
        num_threads=threads,
        display_progress=False,
    )
    with dspy.context(lm=lm, warn_on_type_mismatch=False, disable_history=True):
        return _timed(lambda: scored(dspy.Predict(AnswerFromContext)))


def _written(folder: Path, file: str | None, users: int, latency: float) -> tuple[float, float, int]:
    """Users whose two sessions wait are written; wall and CPU seconds, and calls."""
    from mempiler import Store, build
    from mempiler.data.locomo.benchmark import Locomo
    from mempiler.engines.embedders import embedder
    from mempiler.memory.stored import Owner
    from mempiler.programs.remember_queued import remember_queued

    sessions = Locomo.load(file).examples[0].history.items[:2]
    engine = ScriptedEngine(latency, _reply)
    with tempfile.TemporaryDirectory(dir=folder) as own, Store(Path(own) / "memories.sqlite") as store:
        for user in range(users):
            for session in sessions:
                store.add(Owner(f"user {user}"), session)
        program = build("memory-r2", embedder=embedder())
        with _metered(engine) as lm:
            wall, cpu = _timed(lambda: remember_queued(store, program, lm=lm))
        assert not any(one.queued for one in store.users())
    return wall, cpu, sum(engine.calls.values())


class _Slow:
    """The offline engine, whose answers have the variety that methods need, after a wait.

    Args:
        latency: Seconds of a call.
        known: Answers by prompt. What is in it takes no CPU, as with a model that runs elsewhere.
    """

    def __init__(self, latency: float, known: dict[Any, Any]) -> None:
        from mempiler.engines.offline import OfflineEngine

        self._inner, self._latency, self._known = OfflineEngine(), latency, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def complete(self, request: Any) -> Any:
        """Waits, and answers."""
        time.sleep(self._latency)
        prompt = (request.system, tuple(message.text for message in request.messages))
        if prompt not in self._known:
            self._known[prompt] = self._inner.complete(request)
        return self._known[prompt]

    def __deepcopy__(self, memo: object) -> _Slow:
        return self


def _remembered(file: str, method: str, latency: float, known: dict[Any, Any]) -> tuple[float, float]:
    """The first conversation of a file is written."""
    from mempiler import build
    from mempiler.data.locomo.benchmark import Locomo
    from mempiler.engines.embedders import embedder

    history = Locomo.load(file).examples[0].history
    with _metered(_Slow(latency, known), "offline/extractive-1"):
        program = build(method, embedder=embedder())
        return _timed(lambda: program.remember(history))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help="a LoCoMo file [default: the bundled sample, and no remembering]")
    arguments = parser.parse_args()
    main(lambda: rows(arguments.file))
