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
from mempiler.errors import UserError

from ..async_engines import (
    MAX_NEW_THREADS,
    AwaitedEngine,
    BlockingEngine,
    CrowdEngine,
    run_within,
)
from ..conftest import chat_fields
from .evaluations import asked

OPTIONS: dict[str, Any] = {"metric": "f1", "progress": False, "max_failure_rate": 1.0}


def own_lm(engine: Any) -> dspy.LM:
    """Return a model of the user's own that is awaited."""
    return dspy.LM(
        "awaited/test", engine=BlockingEngine(), async_engine=engine, cache=False, temperature=0.0
    )


def results(evaluation: mempiler.Evaluation) -> list[Any]:
    return [
        (row.id, row.answer, row.score, row.calls, row.prompt_tokens, row.recall)
        for row in evaluation.rows
    ]


@pytest.mark.parametrize("questions", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_questions_are_asked_at_once_in_few_threads(
    scripted: Callable[..., Any], make_history: Callable[..., Any], questions: int
) -> None:
    engine = CrowdEngine(scripted(lambda kind, text, n: {"answer": "Bob"}).engine, questions)
    examples = asked(make_history(1), questions)
    options = {**OPTIONS, "lm": own_lm(engine), "threads": questions}
    evaluation = run_within(150, mempiler.aevaluate("turn-rag", examples, **options))
    assert evaluation.score == 1.0
    assert evaluation.calls["task"] == questions
    assert len(engine.new_threads) <= MAX_NEW_THREADS


def test_aevaluate_writes_and_answers_as_evaluate_does(
    scripted: Callable[..., Any], fact_replies: Any, make_history: Callable[..., Any]
) -> None:
    examples = asked(make_history(3), 24, "Who saw Oslo with 2 friends, {n}?")

    in_threads = scripted(fact_replies).engine
    lm = dspy.LM("awaited/test", engine=in_threads, cache=False, temperature=0.0)
    expected = mempiler.evaluate("memory-r2", examples, lm=lm, **OPTIONS)

    in_tasks = CrowdEngine(scripted(fact_replies).engine, crowd=24)
    options = {**OPTIONS, "lm": own_lm(in_tasks), "threads": 24}
    evaluation = run_within(150, mempiler.aevaluate("memory-r2", examples, **options))

    assert results(evaluation) == results(expected)
    assert evaluation.calls == expected.calls
    assert in_tasks.answers.calls == in_threads.calls


def test_metrics_of_the_user_that_block_do_not_hold_up_one_another(
    scripted: Callable[..., Any], make_history: Callable[..., Any]
) -> None:
    everybody = threading.Barrier(8)

    def slow_metric(example: Any, prediction: Any) -> float:
        everybody.wait(30)
        return 1.0

    engine = AwaitedEngine(scripted(lambda kind, text, n: {"answer": "Bob"}).engine)
    options = {**OPTIONS, "lm": own_lm(engine), "threads": 8, "metric": slow_metric}
    evaluation = run_within(
        60, mempiler.aevaluate("turn-rag", asked(make_history(1), 8), **options)
    )
    assert evaluation.score == 1.0


def test_a_run_with_a_limit_of_calls_stops_under_asyncio_as_in_threads(
    scripted: Callable[..., Any], make_history: Callable[..., Any]
) -> None:
    engine = AwaitedEngine(scripted(lambda kind, text, n: {"answer": "Bob"}).engine)
    limits = mempiler.Limits(max_calls=5)
    options = {**OPTIONS, "lm": own_lm(engine), "threads": 8, "limits": limits}
    evaluation = asyncio.run(mempiler.aevaluate("turn-rag", asked(make_history(1), 20), **options))
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
    answers = scripted(lambda kind, text, n: {"answer": "Bob"}).engine
    begun = threading.Event()

    class HangingEngine(AwaitedEngine):
        """Answers three questions, and hangs at the next."""

        async def complete(self, request: Any) -> Any:
            if sum(self.answers.calls.values()) == 3:
                begun.set()
                await asyncio.Event().wait()
            return self.answers.complete(request)

    async def cancel() -> None:
        options = {**OPTIONS, "lm": own_lm(HangingEngine(answers)), "threads": 1}
        task = asyncio.create_task(mempiler.aevaluate("turn-rag", examples, **options))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(120, cancel())
    options = {**OPTIONS, "lm": own_lm(AwaitedEngine(answers)), "resume": "last"}
    resumed = asyncio.run(mempiler.aevaluate("turn-rag", examples, **options))
    assert resumed.n == answers.calls["answer"] == 6


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
    evaluation = asyncio.run(
        mempiler.aevaluate("turn-rag", examples, lm=OwnModel("own/model"), **OPTIONS)
    )
    assert evaluation.score == 1.0


def completion(answer: str) -> Any:
    """An answer as `dspy.BaseLM.aforward` returns it."""
    message = SimpleNamespace(content=chat_fields(answer=answer), tool_calls=None)
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    choice = SimpleNamespace(message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


def test_an_error_of_a_run_is_raised_by_aevaluate(make_history: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="no-such-model"):
        asyncio.run(
            mempiler.aevaluate(
                "turn-rag", asked(make_history(1), 2), metric="f1", lm="no-such-model"
            )
        )
