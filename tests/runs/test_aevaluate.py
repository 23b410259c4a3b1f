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
def test_questions_are_asked_at_once_in_few_threads(
    make_history: Callable[..., Any], question_count: int
) -> None:
    """A question that waits for the model holds no thread.

    So `MAX_NEW_THREADS` is the same number for 128 questions and for 512.
    """
    # This engine answers when so many questions wait for it at the same time.
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


def test_aevaluate_writes_and_answers_as_evaluate_does(
    fact_replies: Any, make_history: Callable[..., Any]
) -> None:
    """Memory-R2 asks the model first to write a memory of the history, and then to answer."""
    examples = questions_about(make_history(3), 24, "Who saw Oslo with 2 friends, {n}?")

    # `evaluate` asks a model by threads, which call it ...
    engine_of_evaluate = ScriptedEngine(fact_replies)
    called_lm = dspy.LM("awaited/test", engine=engine_of_evaluate, cache=False, temperature=0.0)
    expected = mempiler.evaluate("memory-r2", examples, lm=called_lm, **OPTIONS)

    # ... and `aevaluate` by tasks, which await it.
    engine_of_aevaluate = ScriptedEngine(fact_replies)
    awaited_lm = awaited_user_lm(CrowdEngine(engine_of_aevaluate, crowd=24))
    evaluation = run_within(
        TIMEOUT_SECONDS,
        mempiler.aevaluate("memory-r2", examples, lm=awaited_lm, threads=24, **OPTIONS),
    )

    assert len(evaluation.rows) == 24
    for row, expected_row in zip(evaluation.rows, expected.rows, strict=True):
        assert row.id == expected_row.id
        assert row.answer == expected_row.answer
        assert row.score == expected_row.score
        assert row.calls == expected_row.calls
        assert row.prompt_tokens == expected_row.prompt_tokens
        assert row.recall == expected_row.recall
    assert evaluation.calls == expected.calls
    assert engine_of_aevaluate.calls == engine_of_evaluate.calls


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

    evaluation = asyncio.run(
        mempiler.aevaluate(
            "turn-rag",
            questions_about(make_history(1), 20),
            lm=awaited_user_lm(AwaitedEngine(engine)),
            threads=8,
            limits=mempiler.Limits(max_calls=5),
            **OPTIONS,
        )
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


def test_a_cancelled_evaluation_ends_and_a_resumed_one_asks_the_rest(
    make_history: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`HangingEngine` answers three of six questions, and hangs at the fourth."""
    # In a home of its own, the last run is the one that was cancelled.
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    examples = questions_about(make_history(1), 6)
    engine = always_bob()
    hanging_engine = HangingEngine(engine)

    async def evaluate_and_cancel() -> None:
        task = asyncio.create_task(
            mempiler.aevaluate(
                "turn-rag", examples, lm=awaited_user_lm(hanging_engine), threads=1, **OPTIONS
            )
        )
        await asyncio.to_thread(hanging_engine.hangs.wait, timeout=60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(TIMEOUT_SECONDS, evaluate_and_cancel())
    assert engine.calls["answer"] == 3

    # The same engine answers now without hanging: three more questions, and none twice.
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
        pytest.fail("a thread asked")


# DSPy warns of models with methods of their own, which it takes until 3.5.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_users_model_that_can_only_be_awaited_answers_all_questions(
    make_history: Callable[..., Any],
) -> None:
    """DSPy awaits a model by its method `aforward`, and calls it by `forward`."""
    examples = questions_about(make_history(1), 3)

    evaluation = asyncio.run(
        mempiler.aevaluate("turn-rag", examples, lm=AsyncOnlyModel("own/model"), **OPTIONS)
    )

    assert evaluation.score == 1.0


def test_an_error_of_a_run_is_raised_by_aevaluate(make_history: Callable[..., Any]) -> None:
    examples = questions_about(make_history(1), 2)

    with pytest.raises(UserError, match="no-such-model"):
        asyncio.run(mempiler.aevaluate("turn-rag", examples, metric="f1", lm="no-such-model"))
