"""Part "calls": how many language model calls a conversation takes if its memory is written once.

Memory-R2 answers all questions about the first conversation of LoCoMo's bundled sample, with the
offline model, in three ways:

    once               the program keeps the memory: the conversation is written once
    rebuilt            a new program for every question writes the conversation again
    rebuilt, cached    the same, but equal calls are answered from DSPy's cache of calls

The values are counts of calls that reach the model, and seconds by the clock. All three ways must
give the same answers.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import dspy
from mempiler import build
from mempiler.data.locomo import Locomo
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model

from measures.clock import measure_times
from measures.scripted import use_model
from measures.table import Peer, Result, Row

THREADS = 32


@dataclass(frozen=True)
class AnsweredQuestions:
    """What answering all questions of a conversation took."""

    model_calls: int
    seconds: float
    answers: tuple[str, ...]


@dataclass(frozen=True)
class ThreeWays:
    """The three ways of the module's docstring."""

    once: AnsweredQuestions
    rebuilt: AnsweredQuestions
    rebuilt_cached: AnsweredQuestions


def rows() -> list[Row]:
    """Declare the rows of this part."""
    at = "first of the sample"
    return [
        Row("memory-r2, all questions of a conversation", at, count_calls, unit="LM calls"),
        Row("  wall", at, wall_seconds, unit="s"),
    ]


def count_calls() -> Result:
    """Count the calls of all questions."""
    ways = _answer_in_three_ways()
    peers = [
        Peer("rebuilt", ways.rebuilt.model_calls),
        Peer("rebuilt, cached", ways.rebuilt_cached.model_calls),
    ]
    return Result(ways.once.model_calls, peers)


def wall_seconds() -> Result:
    """Time all questions by the clock."""
    ways = _answer_in_three_ways()
    peers = [
        Peer("rebuilt, s", ways.rebuilt.seconds),
        Peer("rebuilt, cached, s", ways.rebuilt_cached.seconds),
    ]
    return Result(ways.once.seconds, peers)


@cache
def _answer_in_three_ways() -> ThreeWays:
    """Answer all questions in the three ways.

    Raises:
        RuntimeError: The answers are not the same.
    """
    benchmark = Locomo.load()
    first_conversation = benchmark.group(benchmark.examples[0])
    examples = [
        example for example in benchmark.examples if benchmark.group(example) == first_conversation
    ]
    once = _answer_all(examples, keep_memory=True, cache_calls=False)
    rebuilt = _answer_all(examples, keep_memory=False, cache_calls=False)
    rebuilt_cached = _answer_all(examples, keep_memory=False, cache_calls=True)

    if not once.answers == rebuilt.answers == rebuilt_cached.answers:
        raise RuntimeError("the answers are not the same")
    return ThreeWays(once, rebuilt, rebuilt_cached)


def _answer_all(
    examples: Sequence[dspy.Example], *, keep_memory: bool, cache_calls: bool
) -> AnsweredQuestions:
    shared_embedder = embedder()
    lm = language_model("offline", cache=cache_calls)
    shared_program = build("memory-r2", embedder=shared_embedder)
    answers: list[str] = []

    def answer(example: dspy.Example) -> str:
        program = shared_program
        if not keep_memory:
            # A program that is built without a cache gets a new one: it remembers nothing.
            program = build("memory-r2", embedder=shared_embedder)
        return program(history=example.history, question=example.question).answer

    def answer_all() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            futures = []
            for example in examples:
                # DSPy finds its settings in context variables.
                context = contextvars.copy_context()
                futures.append(pool.submit(context.run, answer, example))
            answers.extend(future.result() for future in futures)

    with use_model(lm):
        seconds = measure_times(answer_all).wall
    model_calls = sum(lm.meter.read().calls.values())
    return AnsweredQuestions(model_calls, seconds, tuple(answers))
