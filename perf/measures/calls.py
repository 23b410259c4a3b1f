"""Measures what surrounds LM calls: their number, evaluation, concurrent users, the run's store.

The engine gives its replies after a set time and uses no CPU: what is above the ideal is the machinery. Counts are of
calls that reach the engine, which is the offline one where a method is to find something.
"""

from __future__ import annotations

import contextvars
import gc
import math
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import dspy
import numpy as np
from mempiler import History, Session, Store, Turn, build
from mempiler.data.locomo import Locomo
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.memory.store.owner import Owner
from mempiler.programs.cache import MemoryCache
from mempiler.runs.run_store import RunStore
from mempiler.runs.scoring import score_questions
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.writers import write_all_queued
from mempiler.signatures.answering import AnswerFromContext

from measures.scripted import ScriptedEngine, asking, cpu_ms, guard_of_a_run, scripted, timed

Found = dict[str, float]
LATENCY = 0.2
"""Seconds of a call where many are made."""
ROUNDS = 3


@cache
def remembered() -> Found:
    """LM calls and seconds of all questions about a conversation, where its memory is written once or each time.

    Raises:
        RuntimeError: The answers are not the same.
    """
    loaded = Locomo.load()
    first = loaded.group(loaded.examples[0])
    examples = [example for example in loaded.examples if loaded.group(example) == first]
    ways = {"once": _asked(examples, True, False), "rebuilt": _asked(examples, False, False)}
    ways["rebuilt, cached"] = _asked(examples, False, True)
    if len({answers for *_, answers in ways.values()}) > 1:
        raise RuntimeError("the answers are not the same")
    counts = {name: float(calls) for name, (calls, *_) in ways.items()}
    return counts | {f"{name}, s": seconds for name, (_, seconds, _) in ways.items()}


@cache
def evaluation(threads: int, questions: int, latency: float) -> Found:
    """Measure questions to turn RAG about five memories that are there, with the run's store.

    Args:
        threads: How many questions are asked at the same time.
        questions: How many there are.
        latency: Seconds of a call.

    Returns:
        The CPU of a question in milliseconds, and the share of the ideal wall, in which nothing but the calls takes
        time; both beside `dspy.Evaluate`. "cpu" and "ideal" are seconds of all questions.
    """
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        # What is imported and compiled when it is first needed.
        _evaluated(Path(folder), 4, 100, 0.0)
        _by_dspy(4, 8, 0.0)
        for _ in range(ROUNDS):
            ours.append(_evaluated(Path(folder), threads, questions, latency))
            theirs.append(_by_dspy(threads, questions, latency))

    our_wall = median(wall for wall, _ in ours)
    our_cpu = median(cpu for _, cpu in ours)
    their_wall = median(wall for wall, _ in theirs)
    their_cpu = median(cpu for _, cpu in theirs)
    ideal = latency * math.ceil(questions / threads)
    return {
        "CPU ms": 1000 * our_cpu / questions,
        "dspy.Evaluate, CPU ms": 1000 * their_cpu / questions,
        "share": ideal / our_wall,
        "dspy.Evaluate": ideal / their_wall,
        "cpu": our_cpu,
        "ideal": ideal,
    }


@cache
def users(count: int) -> Found:
    """The wall of so many users with two queued sessions each, by that of one."""
    _queued(1, 0.0)
    one = median(_queued(1, LATENCY)[0] for _ in range(ROUNDS))
    wall, cpu, calls = (median(each) for each in zip(*(_queued(count, LATENCY) for _ in range(ROUNDS)), strict=True))
    return {"ratio": wall / one, "one": one, "cpu": cpu, "calls": calls, "least": LATENCY * calls / 128}


@cache
def run_store(method: str, count: int, sessions: int) -> Found:
    """A run's store by its input, and CPU with a new store, and with one that has it all, by CPU without."""
    new, read, pasts = list[float](), list[float](), _histories(count, sessions)
    _kept(method, pasts, None)
    with tempfile.TemporaryDirectory() as folder:
        for n in range(ROUNDS):
            path = Path(folder) / f"{n}.sqlite"
            first, without, second = (_kept(method, pasts, where) for where in (path, None, path))
            new.append(first / without)
            read.append(second / without)
        size, text = path.stat().st_size, sum(len(turn.text) for past in pasts for turn, _ in past.turns.values())
    return {"file": size / text, "new": median(new), "read": median(read), "input": text / 1e6}


def _asked(examples: Sequence[Any], remember: bool, cached: bool) -> tuple[int, float, tuple[str, ...]]:
    shared, lm = embedder(), language_model("offline", cache=cached)
    once, answers = build("memory-r2", embedder=shared), list[str]()

    def ask(example: Any) -> str:
        # `build` without a cache makes a new one: nothing is remembered from question to question.
        program = once if remember else build("memory-r2", embedder=shared)
        return program(history=example.history, question=example.question).answer

    def ask_all() -> None:
        with ThreadPoolExecutor(32) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, ask, example) for example in examples]
            answers.extend(job.result() for job in jobs)

    with asking(lm):
        seconds = timed(ask_all)[0]
    return sum(lm.meter.read().calls.values()), seconds, tuple(answers)


def _evaluated(folder: Path, threads: int, questions: int, latency: float) -> tuple[float, float]:
    source = Locomo.load()
    # Equal questions would be one call: the run's store knows the answer the second time.
    asked = [(n, source.examples[n % len(source.examples)]) for n in range(questions)]
    examples = [
        each.copy(id=str(n), question=f"{each.question} ({n})").with_inputs(*each.inputs().keys()) for n, each in asked
    ]
    loaded = Locomo(examples, source.source)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = RunStore(Path(own) / "run.sqlite")
        model = scripted(ScriptedEngine(latency), answers=store.answers, guard=guard_of_a_run(threads))
        with asking(model) as lm:
            program = build("turn-rag", embedder=embedder(), cache=MemoryCache(store.memories))
            for history in dict.fromkeys(example.history for example in loaded.examples):
                program.method.reader.search(program.remember(history).memory, ["anything"])
            # A full collection takes 150 ms here, and falls into one run of three: into none, then.
            gc.collect()
            taken = timed(lambda: score_questions(program, loaded, loaded.examples, lm.meter, threads, journal=store.rows))
        store.close()
    return taken


def _by_dspy(threads: int, questions: int, latency: float) -> tuple[float, float]:
    """The same prompt by `dspy.Evaluate`, without memory, store and meter."""
    context = "The garden behind the old house was full of apples in that year, and she told him so twice. " * 10
    fields = [
        {"context": context, "question": f"When was that ({n})?", "answer": "on Monday"} for n in range(questions)
    ]
    scored = dspy.Evaluate(
        devset=[dspy.Example(**each).with_inputs("context", "question") for each in fields],
        metric=lambda example, said, trace=None: float(example.answer == said.answer),
        num_threads=threads,
        display_progress=False,
    )
    engine = ScriptedEngine(latency)
    with asking(dspy.LM("scripted/free", engine=engine, cache=False, temperature=0.0)):  # pyright: ignore
        return timed(lambda: scored(dspy.Predict(AnswerFromContext)))


def _queued(count: int, latency: float) -> tuple[float, float, int]:
    sessions, engine = Locomo.load().examples[0].history.items[:2], ScriptedEngine(latency, facts=1)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "memories.sqlite") as store:
        for user in range(count):
            for session in sessions:
                store.items.add(Owner(f"user {user}"), session)
        program = build("memory-r2", embedder=embedder())
        with asking(scripted(engine)) as lm:
            wall, cpu = timed(lambda: write_all_queued(Memories(program, store, lm)))
        assert not any(one.queued for one in store.users.list_all())
    return wall, cpu, engine.calls


def _histories(count: int, sessions: int) -> list[History]:
    """Histories of ten turns of 500 characters a session, all different."""
    chance = np.random.default_rng(0)
    words = ["".join(chance.choice(list("abcdefghij"), 6)) for _ in range(5000)]

    def turn(s: int, t: int) -> Turn:
        said = " ".join(words[n] for n in chance.integers(0, len(words), 500 // 7))
        return Turn(id=f"D{s}:{t}", speaker=("Ann", "Bob")[t % 2], text=said)

    def session(s: int) -> Session:
        return Session(id=f"D{s}", turns=tuple(turn(s, t) for t in range(1, 11)))

    return [History(id=f"h{n}", items=tuple(session(s) for s in range(1, sessions + 1))) for n in range(count)]


def _kept(method: str, pasts: Sequence[History], path: Path | None) -> float:
    """CPU milliseconds of writing all memories, with a store or without one; what was held before is no part of it."""

    def remember() -> None:
        store = RunStore(path) if path else None
        with asking(scripted(ScriptedEngine())):
            program = build(method, cache=MemoryCache(store.memories if store else None))
            for past in pasts:
                program.remember(past)
        if store:
            store.close()

    gc.collect()
    return cpu_ms(remember)
