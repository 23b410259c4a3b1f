"""Evaluations under asyncio: hundreds of questions wait for the model in few threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.async_bridge import MAX_THREADS
from mempiler.errors import UserError

from ..conftest import chat_fields
from .evaluations import asked

QUESTIONS = 512
OTHER_THREADS = 10
"""New threads that are not there for searches: the loops, and one that asks endpoints."""


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


OPTIONS: dict[str, Any] = {"metric": "f1", "progress": False, "max_failure_rate": 1.0}


@pytest.mark.slow
def test_five_hundred_questions_are_asked_at_once_in_few_threads(
    scripted: Callable[..., Any], make_history: Callable[..., Any]
) -> None:
    engine = CrowdEngine(scripted(lambda kind, text, n: {"answer": "Bob"}).engine)
    examples = asked(make_history(1), QUESTIONS)
    lm = make_lm(BlockingEngine(), engine)
    # Threads of earlier tests may wait idle in the pools of the process.
    threads_before = threading.active_count()
    evaluation = asyncio.run(mempiler.aevaluate("turn-rag", examples, lm=lm, threads=QUESTIONS, **OPTIONS))
    assert evaluation.score == 1.0
    assert evaluation.calls["task"] == QUESTIONS
    assert engine.threads - threads_before <= MAX_THREADS + OTHER_THREADS


def test_aevaluate_writes_and_answers_as_evaluate_does(
    scripted: Callable[..., Any], fact_replies: Any, make_history: Callable[..., Any]
) -> None:
    examples = asked(make_history(3), 24, "Who saw Oslo with 2 friends, {n}?")

    in_threads = scripted(fact_replies).engine
    expected = mempiler.evaluate("memory-r2", examples, lm=make_lm(in_threads), **OPTIONS)

    in_tasks = CrowdEngine(scripted(fact_replies).engine, crowd=24)
    lm = make_lm(BlockingEngine(), in_tasks)
    found = asyncio.run(mempiler.aevaluate("memory-r2", examples, lm=lm, threads=24, **OPTIONS))

    assert results(found) == results(expected)
    assert found.calls == expected.calls
    assert in_tasks.answers.calls == in_threads.calls


def test_a_run_with_a_limit_of_calls_stops_under_asyncio_as_in_threads(
    scripted: Callable[..., Any], make_history: Callable[..., Any]
) -> None:
    engine = CrowdEngine(scripted(lambda kind, text, n: {"answer": "Bob"}).engine, crowd=1)
    limited = {"limits": mempiler.Limits(max_calls=5), "threads": 8}
    lm = make_lm(BlockingEngine(), engine)
    evaluation = asyncio.run(mempiler.aevaluate("turn-rag", asked(make_history(1), 20), lm=lm, **limited, **OPTIONS))
    assert "max-calls 5" in str(evaluation.stopped)
    assert evaluation.n == engine.answers.calls["answer"] == 5


def test_cancelling_an_evaluation_ends_it_and_resuming_asks_the_rest(
    scripted: Callable[..., Any],
    make_history: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In a home of its own, the last run is the one that was cancelled.
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    examples = asked(make_history(1), 6)
    engine = scripted(lambda kind, text, n: {"answer": "Bob"}).engine

    class HangingEngine(CrowdEngine):
        """Answers three questions, and hangs at the next."""

        async def complete(self, request: Any) -> Any:
            if sum(self.answers.calls.values()) == 3:
                begun.set()
                await asyncio.Event().wait()
            return self.answers.complete(request)

    begun = threading.Event()

    async def cancel() -> None:
        lm = make_lm(BlockingEngine(), HangingEngine(engine))
        task = asyncio.create_task(mempiler.aevaluate("turn-rag", examples, lm=lm, threads=1, **OPTIONS))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    lm = make_lm(engine, CrowdEngine(engine, crowd=1))
    resumed = asyncio.run(mempiler.aevaluate("turn-rag", examples, lm=lm, resume="last", **OPTIONS))
    assert resumed.n == engine.calls["answer"] == 6


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_with_aforward_of_its_own_is_awaited(make_history: Callable[..., Any]) -> None:
    class OwnModel(dspy.BaseLM):
        async def aforward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return completion("Bob")

        def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            pytest.fail("a thread asked")

    examples = asked(make_history(1), 3)
    evaluation = asyncio.run(mempiler.aevaluate("turn-rag", examples, lm=OwnModel("own/model"), **OPTIONS))
    assert evaluation.score == 1.0


def completion(answer: str) -> Any:
    """An answer as `dspy.BaseLM.aforward` returns it."""
    message = SimpleNamespace(content=chat_fields(answer=answer), tool_calls=None)
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    choice = SimpleNamespace(message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


def test_an_error_of_a_run_is_raised_by_aevaluate(make_history: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="no-such-model"):
        asyncio.run(mempiler.aevaluate("turn-rag", asked(make_history(1), 2), metric="f1", lm="no-such-model"))
