"""Evaluations under asyncio: hundreds of questions wait for the model in few threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.async_bridge import MAX_THREADS
from mempiler.errors import EndpointError, UserError

from .evaluations import asked

QUESTIONS = 512
OTHER_THREADS = 40
"""Threads of the process that are not there for searches, those of the test runner included."""


class CrowdEngine:
    """An engine for asyncio that answers nobody until all questions are there; counts the threads by then.

    Calls that write a memory are answered at once.
    """

    def __init__(self, answers: Any, crowd: int = QUESTIONS) -> None:
        self.answers = answers
        self.everybody = asyncio.Barrier(crowd)
        self.threads = 0

    async def complete(self, request: Any) -> Any:
        if "`answer`" in str(request.system):
            async with asyncio.timeout(200):
                await self.everybody.wait()
            self.threads = max(self.threads, threading.active_count())
        else:
            await asyncio.sleep(0)
        return self.answers.complete(request)


class BlockingEngine:
    """An engine that must not be asked, since it would hold a thread."""

    def complete(self, request: Any) -> Any:
        pytest.fail("a thread asked")


def make_lm(engine: Any, async_engine: Any = None) -> dspy.LM:
    return dspy.LM("awaited/test", engine=engine, async_engine=async_engine, cache=False, temperature=0.0)


def results(evaluation: mempiler.Evaluation) -> list[Any]:
    return [(row.id, row.answer, row.score, row.calls, row.prompt_tokens, row.recall) for row in evaluation.rows]


def test_five_hundred_questions_about_a_memory_are_asked_at_once_in_few_threads(
    scripted: Callable[..., Any], fact_replies: Any, make_history: Any
) -> None:
    examples = asked(make_history(3), QUESTIONS, "Who saw Oslo with 2 friends, {n}?")
    options: dict[str, Any] = {"metric": "f1", "progress": False, "max_failure_rate": 1.0}

    in_threads = scripted(fact_replies).engine
    lm = make_lm(in_threads)
    expected = mempiler.evaluate(mempiler.build("memory-r2"), examples, lm=lm, threads=8, **options)

    in_tasks = CrowdEngine(scripted(fact_replies).engine)
    lm = make_lm(BlockingEngine(), in_tasks)
    found = asyncio.run(mempiler.aevaluate(mempiler.build("memory-r2"), examples, lm=lm, threads=QUESTIONS, **options))

    assert results(found) == results(expected)
    assert in_tasks.answers.calls == in_threads.calls
    assert found.calls == expected.calls
    assert in_tasks.threads <= MAX_THREADS + OTHER_THREADS


def test_an_error_of_a_run_is_raised_by_aevaluate(make_history: Any) -> None:
    with pytest.raises(UserError, match="no-such-model"):
        asyncio.run(mempiler.aevaluate("turn-rag", asked(make_history(1), 2), metric="f1", lm="no-such-model"))
