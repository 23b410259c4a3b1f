"""Programs under asyncio: no thread per question, and otherwise all as in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import dspy
import pytest
from mempiler import History, build
from mempiler.async_bridge import MAX_THREADS, run_bridged, wait_for
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.programs.names import METHODS
from mempiler.programs.recording import recording
from mempiler.programs.single_flight import SingleFlight
from mempiler.programs.threads import gather, in_order, run_unordered

from .conftest import behavior

QUESTIONS = 512
OTHER_THREADS = 10
"""New threads that are not there for searches: the loops, and one that asks endpoints."""


class AwaitedEngine:
    """An engine for asyncio that gives the answers of another engine, after other tasks had a turn."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    async def complete(self, request: Any) -> Any:
        await asyncio.sleep(0)
        return self.answers.complete(request)


class CrowdEngine(AwaitedEngine):
    """An engine for asyncio that answers nobody until all questions are there; counts the threads by then."""

    def __init__(self, answers: Any, crowd: int = QUESTIONS) -> None:
        super().__init__(answers)
        self.everybody = asyncio.Barrier(crowd)
        self.threads = 0

    async def complete(self, request: Any) -> Any:
        async with asyncio.timeout(120):
            await self.everybody.wait()
        self.threads = max(self.threads, threading.active_count())
        return self.answers.complete(request)


class BlockingEngine:
    """An engine that must not be asked, since it would hold a thread."""

    def complete(self, request: Any) -> Any:
        pytest.fail("a thread asked")


def awaited_lm(engine: AwaitedEngine, guard: BudgetGuard | None = None) -> MeteredLM:
    return MeteredLM(
        "awaited/test",
        Meter(),
        guard=guard or BudgetGuard(in_flight=QUESTIONS),
        engine=BlockingEngine(),
        async_engine=engine,
        cache=False,
        temperature=0.0,
    )


# Calls of one key.


def test_two_tasks_of_one_loop_that_need_one_value_compute_it_once() -> None:
    flight: SingleFlight[str, str] = SingleFlight()
    computed: list[str] = []

    def compute() -> str:
        wait_for(asyncio.sleep(0.01))
        computed.append("a")
        return "value"

    async def both() -> list[str]:
        ask = partial(flight.get_or_compute, "key", compute)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask))

    assert asyncio.run(asyncio.wait_for(both(), 10)) == ["value", "value"]
    assert computed == ["a"]


@pytest.mark.parametrize("computes", ["task", "thread"])
def test_a_task_and_a_thread_that_need_one_value_compute_it_once(computes: str) -> None:
    flight: SingleFlight[str, str] = SingleFlight()
    begun = threading.Event()
    go = threading.Event()

    def compute() -> str:
        begun.set()
        if computes == "thread":
            go.wait(10)
        else:
            wait_for(asyncio.to_thread(go.wait, 10))
        return computes

    async def both() -> list[str]:
        ask = partial(flight.get_or_compute, "key", compute)
        in_task = partial(asyncio.create_task, run_bridged(ask))
        in_thread = partial(asyncio.create_task, asyncio.to_thread(ask))
        first, second = (in_task, in_thread) if computes == "task" else (in_thread, in_task)
        tasks = [first()]
        await asyncio.to_thread(begun.wait, 10)
        tasks.append(second())
        await asyncio.sleep(0.02)
        go.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(asyncio.wait_for(both(), 10)) == [computes, computes]


def test_all_tasks_that_need_a_value_get_the_error_of_computing_it() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def fail() -> str:
        wait_for(asyncio.sleep(0.01))
        raise ValueError("no such city")

    async def both() -> list[Any]:
        ask = partial(flight.get_or_compute, "key", fail)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask), return_exceptions=True)

    assert [str(error) for error in asyncio.run(both())] == ["no such city"] * 2


def test_where_the_task_that_computes_is_cancelled_another_one_computes() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def compute(name: str) -> str:
        wait_for(asyncio.sleep(0.02))
        return name

    def ask(name: str) -> Any:
        return run_bridged(partial(flight.get_or_compute, "key", partial(compute, name)))

    async def cancel_the_first() -> str:
        first = asyncio.create_task(ask("first"))
        second = asyncio.create_task(ask("second"))
        await asyncio.sleep(0.001)
        first.cancel()
        return await second

    assert asyncio.run(cancel_the_first()) == "second"


def test_code_that_blocks_the_loop_does_not_wait_for_a_task_of_that_loop() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def compute() -> str:
        wait_for(asyncio.sleep(0.01))
        return "task"

    async def block() -> list[str]:
        task = asyncio.create_task(run_bridged(partial(flight.get_or_compute, "key", compute)))
        await asyncio.sleep(0)
        blocking = flight.get_or_compute("key", lambda: "blocking")
        return [await task, blocking]

    assert asyncio.run(block()) == ["task", "blocking"]


# Calls that are gathered.


def test_gathered_calls_wait_together_in_one_thread() -> None:
    async def ask() -> list[tuple[int, int]]:
        everybody = asyncio.Barrier(100)

        def call(number: int) -> tuple[int, int]:
            wait_for(everybody.wait())
            return number, threading.get_ident()

        return await run_bridged(partial(gather, [partial(call, number) for number in range(100)]))

    assert asyncio.run(ask()) == [(number, threading.get_ident()) for number in range(100)]


def test_the_first_failure_in_call_order_is_raised_after_all_gathered_calls_have_ended() -> None:
    ends: list[int] = []

    def call(number: int) -> None:
        wait_for(asyncio.sleep(0.03 / (1 + number)))
        ends.append(number)
        if number:
            raise ValueError(f"call {number}")

    with pytest.raises(ValueError, match="call 1"):
        asyncio.run(run_bridged(lambda: gather([partial(call, number) for number in range(3)])))
    assert ends == [2, 1, 0]


def test_gathered_calls_are_made_one_after_the_other_in_order() -> None:
    ends: list[int] = []

    def call(number: int) -> None:
        wait_for(asyncio.sleep(0.02 / (1 + number)))
        ends.append(number)

    def ask() -> None:
        with in_order():
            gather([partial(call, number) for number in range(3)])

    asyncio.run(run_bridged(ask))
    assert ends == [0, 1, 2]


def test_gathered_calls_are_cancelled_with_their_caller() -> None:
    ends: list[int] = []

    def call(number: int) -> None:
        try:
            wait_for(asyncio.Event().wait())
        finally:
            ends.append(number)

    async def cancel() -> None:
        task = asyncio.create_task(run_bridged(lambda: gather([partial(call, number) for number in range(3)])))
        await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert sorted(ends) == [0, 1, 2]


def test_a_failure_drops_the_calls_that_have_not_begun_and_those_in_flight_end() -> None:
    ends: list[int] = []

    def call(number: int) -> int:
        if number == 2:
            raise ValueError("stop")
        wait_for(asyncio.sleep(0.01))
        ends.append(number)
        return number

    def results() -> list[int]:
        return list(run_unordered([partial(call, number) for number in range(100)], limit=3))

    with pytest.raises(ValueError, match="stop"):
        asyncio.run(run_bridged(results))
    assert ends == [0, 1]


def test_no_more_calls_are_in_flight_than_the_limit() -> None:
    in_flight: list[int] = []
    counts: list[int] = []

    def call(number: int) -> int:
        in_flight.append(number)
        counts.append(len(in_flight))
        wait_for(asyncio.sleep(0))
        in_flight.remove(number)
        return number

    def results() -> list[int]:
        return sorted(run_unordered([partial(call, number) for number in range(20)], limit=3))

    assert asyncio.run(run_bridged(results)) == list(range(20))
    assert max(counts) == 3


# Programs.


def offline_lm() -> MeteredLM:
    return awaited_lm(AwaitedEngine(OfflineEngine()))


def blocking_lm() -> MeteredLM:
    return MeteredLM("awaited/test", Meter(), engine=OfflineEngine(), cache=False, temperature=0.0)


def history_of(method: str, make_history: Callable[..., History]) -> History:
    return behavior(20) if method == "pramem" else make_history(3)


@pytest.mark.parametrize("method", [*METHODS, "pgr+turn-rag"])
def test_a_method_writes_and_answers_under_asyncio_as_in_a_thread(method: str, make_history: Any) -> None:
    history = history_of(method, make_history)
    fields = {"question": "Where was Ann?"}

    def build_program() -> Any:
        return build(method, task="question-answering", embedder=embedder())

    with dspy.context(lm=blocking_lm(), trace=[]), recording() as expected_record:
        expected = build_program()(history=history, **fields)
        expected_trace = [(step[1], step[2].toDict()) for step in dspy.settings.trace]
        expected_calls = dspy.settings.lm.meter.read().calls

    with dspy.context(lm=offline_lm(), trace=[]), recording() as record:
        found = asyncio.run(build_program().acall(history=history, **fields))
        trace = [(step[1], step[2].toDict()) for step in dspy.settings.trace]
        calls = dspy.settings.lm.meter.read().calls

    assert found.answer == expected.answer
    assert found.memory == expected.memory
    assert calls == expected_calls
    assert trace == expected_trace
    assert [(call.order, call.predictor.path) for call in record.calls] == [
        (call.order, call.predictor.path) for call in expected_record.calls
    ]


def test_five_hundred_questions_wait_for_the_model_together_in_few_threads(scripted: Any, make_history: Any) -> None:
    engine = CrowdEngine(scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine)
    program = build("turn-rag")
    history = make_history(1)
    # Threads of earlier tests may wait idle in the pools of the process.
    threads_before = threading.active_count()

    async def ask_all() -> list[Any]:
        asked = [program.acall(history=history, question=f"Where was Ann, {n}?") for n in range(QUESTIONS)]
        return await asyncio.gather(*asked)

    with dspy.context(lm=awaited_lm(engine)):
        answers = asyncio.run(ask_all())
    assert [found.answer for found in answers] == ["Lisbon"] * QUESTIONS
    assert engine.threads - threads_before <= MAX_THREADS + OTHER_THREADS


def test_questions_that_wait_for_room_in_a_budget_do_not_hold_up_the_loop(scripted: Any, make_history: Any) -> None:
    engine = AwaitedEngine(scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine)
    # What a call may use at most is more than what is left, so the calls come one after the other.
    guard = BudgetGuard(Limits(max_tokens=5_000))
    program = build("turn-rag")

    async def ask_all() -> list[Any]:
        questions = [f"Where was Ann, {n}?" for n in range(5)]
        asked = [program.acall(history=make_history(1), question=question) for question in questions]
        return await asyncio.wait_for(asyncio.gather(*asked), 60)

    with dspy.context(lm=awaited_lm(engine, guard)):
        answers = asyncio.run(ask_all())
    assert [found.answer for found in answers] == ["Lisbon"] * 5


def test_a_cancelled_question_asks_nothing_more_and_another_one_writes_the_memory(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    answers = scripted(fact_replies).engine
    program = build("memory-r2", embedder=embedder())
    history = make_history(2)

    async def cancel_the_first() -> Any:
        first = asyncio.create_task(program.acall(history=history, question="Where was Ann?"))
        second = asyncio.create_task(program.acall(history=history, question="Where was Bob?"))
        while not answers.prompts:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await asyncio.wait_for(second, 60)

    with dspy.context(lm=awaited_lm(AwaitedEngine(answers))):
        found = asyncio.run(cancel_the_first())
        assert found.memory == program.remember(history).memory
    assert answers.calls["reasoning"] == 1


def test_a_model_that_cannot_be_awaited_is_asked_in_a_thread(scripted: Any, make_history: Any) -> None:
    threads: list[int] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"answer": "Lisbon"}

    lm = dspy.LM("blocking/test", engine=scripted(reply).engine, cache=False)
    with dspy.context(lm=lm):
        found = asyncio.run(build("turn-rag").acall(history=make_history(1), question="Where was Ann?"))
    assert found.answer == "Lisbon"
    assert threads
    assert threads != [threading.get_ident()]
