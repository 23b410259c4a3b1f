"""Evaluations under asyncio: hundreds of questions wait for the model in few threads.

`mempiler.evaluate` asks a program questions and scores its answers. `mempiler.aevaluate` does the
same under asyncio, with a model that is awaited. Two programs are asked here: turn RAG makes one
call per question; Memory-R2 first asks the model to write a memory. If nothing else is said, the
gold answer is "Bob".
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.errors import UserError
from mempiler.runs.rows import Row

from ..async_engines import (
    MAX_NEW_THREADS,
    AwaitedEngine,
    BlockingEngine,
    CrowdEngine,
    run_within,
)
from ..scripted_engine import ScriptedEngine, chat_fields
from .evaluations import questions_about

TIMEOUT_SECONDS = 150
"""A test that takes longer fails, instead of hanging."""
OPTIONS: dict[str, Any] = {"metric": "f1", "progress": False, "max_failure_rate": 1.0}
"""Options of every evaluation here; it may fail as often as it likes without being broken."""


def always_bob() -> ScriptedEngine:
    """Return an engine that answers every question with "Bob", which is right."""
    return ScriptedEngine(lambda kind, prompt, call_number: {"answer": "Bob"})


def awaited_user_lm(engine: Any) -> dspy.LM:
    """Return a model of the user's own that is awaited, and must not be asked by a thread."""
    return dspy.LM(
        "awaited/test", engine=BlockingEngine(), async_engine=engine, cache=False, temperature=0.0
    )


def completion(answer: str) -> Any:
    """Return an answer as `dspy.BaseLM.aforward` returns it."""
    message = SimpleNamespace(content=chat_fields(answer=answer), tool_calls=None)
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    choice = SimpleNamespace(message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], usage=usage, model="own/model")


@pytest.mark.parametrize("question_count", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_hundreds_of_questions_wait_for_the_model_without_a_thread_for_each(
    make_history: Callable[..., Any], question_count: int
) -> None:
    """`CrowdEngine` answers nobody before all questions wait for it at the same time.

    The number of threads may not grow with the number of questions: `MAX_NEW_THREADS` is the same
    for 128 questions and for 512.
    """
    engine = CrowdEngine(always_bob(), crowd=question_count)
    examples = questions_about(make_history(1), question_count)
    lm = awaited_user_lm(engine)

    evaluation = run_within(
        TIMEOUT_SECONDS,
        mempiler.aevaluate("turn-rag", examples, lm=lm, threads=question_count, **OPTIONS),
    )

    assert evaluation.score == 1.0
    assert evaluation.calls["task"] == question_count
    assert len(engine.new_threads) <= MAX_NEW_THREADS


def results_of(row: Row) -> dict[str, Any]:
    """Return the fields of a scored question that do not depend on the time."""
    return row.model_dump(include={"id", "answer", "score", "calls", "prompt_tokens", "recall"})


def test_aevaluate_gives_the_same_result_as_evaluate(
    fact_replies: Any, make_history: Callable[..., Any]
) -> None:
    """Memory-R2 first asks the model to write a memory, and then to answer each question.

    `evaluate` calls the model from threads, and `aevaluate` awaits it. Both get the same replies.
    """
    examples = questions_about(make_history(3), 24, "Who saw Oslo with 2 friends, {n}?")
    called_engine = ScriptedEngine(fact_replies)
    called_lm = dspy.LM("awaited/test", engine=called_engine, cache=False, temperature=0.0)
    awaited_engine = ScriptedEngine(fact_replies)
    awaited_lm = awaited_user_lm(CrowdEngine(awaited_engine, crowd=24))

    expected = mempiler.evaluate("memory-r2", examples, lm=called_lm, **OPTIONS)
    evaluation = run_within(
        TIMEOUT_SECONDS,
        mempiler.aevaluate("memory-r2", examples, lm=awaited_lm, threads=24, **OPTIONS),
    )

    assert len(evaluation.rows) == 24
    assert [results_of(row) for row in evaluation.rows] == [
        results_of(row) for row in expected.rows
    ]
    assert evaluation.calls == expected.calls
    assert awaited_engine.calls == called_engine.calls


def test_a_users_blocking_metric_scores_eight_questions_at_the_same_time(
    make_history: Callable[..., Any],
) -> None:
    """A user's metric may block its thread, so each of eight answers is scored in a thread.

    No call of this metric returns before all eight have begun.
    """
    all_eight_calls = threading.Barrier(8)

    def waits_for_the_other_seven(example: Any, prediction: Any) -> float:
        all_eight_calls.wait(timeout=30)
        return 1.0

    examples = questions_about(make_history(1), 8)
    lm = awaited_user_lm(AwaitedEngine(always_bob()))
    options = {**OPTIONS, "metric": waits_for_the_other_seven}

    evaluation = run_within(
        TIMEOUT_SECONDS,
        mempiler.aevaluate("turn-rag", examples, lm=lm, threads=8, **options),
    )

    assert evaluation.score == 1.0


def test_aevaluate_stops_at_the_limit_of_calls(
    make_history: Callable[..., Any],
) -> None:
    """Turn RAG makes one call per question, so five calls answer five of the twenty questions."""
    engine = always_bob()
    examples = questions_about(make_history(1), 20)
    lm = awaited_user_lm(AwaitedEngine(engine))
    limits = mempiler.Limits(max_calls=5)

    evaluation = asyncio.run(
        mempiler.aevaluate("turn-rag", examples, lm=lm, threads=8, limits=limits, **OPTIONS)
    )

    assert "max-calls 5" in str(evaluation.stopped)
    assert evaluation.n == 5
    assert engine.calls["answer"] == 5


class HangingEngine(AwaitedEngine):
    """An engine that answers three questions, and hangs at the next one; `hangs` is set then."""

    def __init__(self, answers: ScriptedEngine) -> None:
        super().__init__(answers)
        self.hangs = threading.Event()

    async def complete(self, request: Any) -> Any:
        if len(self.answers.prompts) == 3:
            self.hangs.set()
            await asyncio.Event().wait()
        return self.answers.complete(request)


async def evaluate_and_cancel(examples: list[dspy.Example], engine: HangingEngine) -> None:
    """Start an evaluation, and cancel it as soon as its model hangs."""
    lm = awaited_user_lm(engine)
    evaluation = mempiler.aevaluate("turn-rag", examples, lm=lm, threads=1, **OPTIONS)
    task = asyncio.create_task(evaluation)
    await asyncio.to_thread(engine.hangs.wait, timeout=60)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_evaluation_is_resumed_without_asking_a_question_twice(
    make_history: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`HangingEngine` answers three of the six questions, and then the user cancels."""
    # In a results folder of its own, the last run is the one that was cancelled.
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    examples = questions_about(make_history(1), 6)
    engine = always_bob()

    run_within(TIMEOUT_SECONDS, evaluate_and_cancel(examples, HangingEngine(engine)))
    assert engine.calls["answer"] == 3

    lm = awaited_user_lm(AwaitedEngine(engine))
    resumed = asyncio.run(mempiler.aevaluate("turn-rag", examples, lm=lm, resume="last", **OPTIONS))
    assert resumed.n == 6
    assert engine.calls["answer"] == 6


class AsyncOnlyModel(dspy.BaseLM):
    """A model of the user's own that answers "Bob" when it is awaited, and must not be called."""

    async def aforward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return completion("Bob")

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        pytest.fail("the model was called, although it can only be awaited")


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_users_model_that_can_only_be_awaited_answers_all_questions(
    make_history: Callable[..., Any],
) -> None:
    """`AsyncOnlyModel` has DSPy's method `aforward`, which is awaited, but no `forward`."""
    examples = questions_about(make_history(1), 3)

    evaluation = asyncio.run(
        mempiler.aevaluate("turn-rag", examples, lm=AsyncOnlyModel("own/model"), **OPTIONS)
    )

    assert evaluation.score == 1.0


def test_aevaluate_refuses_a_model_that_it_does_not_know(make_history: Callable[..., Any]) -> None:
    examples = questions_about(make_history(1), 2)

    with pytest.raises(UserError, match="no-such-model"):
        asyncio.run(mempiler.aevaluate("turn-rag", examples, metric="f1", lm="no-such-model"))
