"""Programs under asyncio: no thread per question, and otherwise all as in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import dspy
import pytest
from mempiler import History, build
from mempiler.async_bridge import MAX_THREADS, in_thread, run_bridged, wait_for
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.programs.names import METHODS
from mempiler.programs.recording import recording
from mempiler.programs.single_flight import SingleFlight
from mempiler.programs.threads import gather, in_order, run_unordered

from ..async_engines import MAX_NEW_THREADS, AwaitedEngine, CrowdEngine, awaited_lm, run_within
from .conftest import behavior

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


# Calls of one key.


def test_two_tasks_of_one_loop_that_need_one_value_compute_it_once() -> None:
    flight: SingleFlight[str, str] = SingleFlight()
    computed: list[str] = []

    def compute() -> str:
        computed.append("a")
        wait_for(asyncio.sleep(0))
        return "value"

    async def both() -> list[str]:
        ask = partial(flight.get_or_compute, "key", compute)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask))

    assert run_within(10, both()) == ["value", "value"]
    assert computed == ["a"]


@pytest.mark.parametrize("computes", ["task", "thread"])
def test_a_task_and_a_thread_that_need_one_value_compute_it_once(computes: str) -> None:
    flight: SingleFlight[str, str] = SingleFlight()
    computed: list[str] = []
    begun = threading.Event()
    go = threading.Event()

    def compute(name: str) -> str:
        computed.append(name)
        begun.set()
        if name == "thread":
            go.wait(10)
        else:
            wait_for(asyncio.to_thread(go.wait, 10))
        return name

    def ask(name: str) -> str:
        return flight.get_or_compute("key", partial(compute, name))

    async def both() -> list[str]:
        def start(name: str) -> asyncio.Task[str]:
            call = partial(ask, name)
            return asyncio.create_task(
                run_bridged(call) if name == "task" else asyncio.to_thread(call)
            )

        first = start(computes)
        await asyncio.to_thread(begun.wait, 10)
        second = start("thread" if computes == "task" else "task")
        # The second asks meanwhile. If it came later, it would still compute nothing.
        await asyncio.sleep(0.02)
        go.set()
        return list(await asyncio.gather(first, second))

    assert run_within(20, both()) == [computes, computes]
    assert computed == [computes]


def test_all_tasks_that_need_a_value_get_the_error_of_computing_it() -> None:
    flight: SingleFlight[str, str] = SingleFlight()
    failures: list[ValueError] = []

    def fail() -> str:
        wait_for(asyncio.sleep(0))
        failures.append(ValueError("no such city"))
        raise failures[-1]

    async def both() -> list[Any]:
        ask = partial(flight.get_or_compute, "key", fail)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask), return_exceptions=True)

    errors = run_within(10, both())
    assert len(failures) == 1
    assert errors == failures * 2


def test_a_value_is_computed_again_after_a_failure() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def fail() -> str:
        raise ValueError("no such city")

    with pytest.raises(ValueError, match="no such city"):
        flight.get_or_compute("key", fail)
    assert flight.get_or_compute("key", lambda: "Lisbon") == "Lisbon"


def test_where_the_task_that_computes_is_cancelled_another_one_computes() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def compute(name: str) -> str:
        if name == "first":
            wait_for(asyncio.Event().wait())
        return name

    def ask(name: str) -> Any:
        return run_bridged(partial(flight.get_or_compute, "key", partial(compute, name)))

    async def cancel_the_first() -> str:
        first = asyncio.create_task(ask("first"))
        second = asyncio.create_task(ask("second"))
        await asyncio.sleep(0)  # both ask
        first.cancel()
        return await second

    assert run_within(10, cancel_the_first()) == "second"


def test_code_that_blocks_the_loop_does_not_wait_for_a_task_of_that_loop() -> None:
    flight: SingleFlight[str, str] = SingleFlight()

    def compute() -> str:
        wait_for(asyncio.sleep(0))
        return "task"

    async def block() -> list[str]:
        task = asyncio.create_task(run_bridged(partial(flight.get_or_compute, "key", compute)))
        await asyncio.sleep(0)
        blocking = flight.get_or_compute("key", lambda: "blocking")
        return [await task, blocking]

    assert run_within(10, block()) == ["task", "blocking"]


class Value:
    """A value that can be referred to weakly."""


@pytest.mark.parametrize("removal", ["eviction", "drop"])
def test_the_finalizer_of_a_removed_value_may_ask_the_same_map(removal: str) -> None:
    flight: SingleFlight[str, Value] = SingleFlight(capacity=1)
    finalized: list[Value | None] = []

    def make_value() -> Value:
        value = Value()
        weakref.finalize(value, lambda: finalized.append(flight.peek("other")))
        return value

    async def remove() -> None:
        flight.get_or_compute("key", make_value)
        if removal == "drop":
            flight.drop(lambda key: key == "key")
        else:
            flight.get_or_compute("other", Value)

    run_within(10, remove())
    assert len(finalized) == 1


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

    async def ask() -> None:
        has_ended = [asyncio.Event() for _ in range(3)]

        def call(number: int) -> None:
            # The last call ends first.
            if number < 2:
                wait_for(has_ended[number + 1].wait())
            has_ended[number].set()
            ends.append(number)
            if number:
                raise ValueError(f"call {number}")

        await run_bridged(lambda: gather([partial(call, number) for number in range(3)]))

    with pytest.raises(ValueError, match="call 1"):
        run_within(10, ask())
    assert ends == [2, 1, 0]


def test_gathered_calls_are_made_one_after_the_other_in_order() -> None:
    events: list[str] = []

    def call(number: int) -> None:
        events.append(f"begin {number}")
        # The first calls wait the longest.
        for _ in range(3 - number):
            wait_for(asyncio.sleep(0))
        events.append(f"end {number}")

    def ask() -> None:
        with in_order():
            gather([partial(call, number) for number in range(3)])

    run_within(10, run_bridged(ask))
    assert events == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


def test_gathered_calls_are_cancelled_with_their_caller() -> None:
    begun: list[int] = []
    ends: list[int] = []

    def call(number: int) -> None:
        begun.append(number)
        try:
            wait_for(asyncio.Event().wait())
        finally:
            ends.append(number)

    async def cancel() -> None:
        gathering = run_bridged(lambda: gather([partial(call, number) for number in range(3)]))
        task = asyncio.create_task(gathering)
        while len(begun) < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(10, cancel())
    assert sorted(ends) == [0, 1, 2]


def raise_cancelled() -> str:
    """Raise what a call raises that has waited for a cancelled task of its own."""
    raise asyncio.CancelledError("of the call's own")


@pytest.mark.parametrize("bridged", [True, False])
def test_gather_raises_that_a_call_was_cancelled_when_the_others_have_ended(bridged: bool) -> None:
    ends: list[str] = []

    def succeed() -> str:
        ends.append("succeed")
        return "value"

    def ask() -> list[str]:
        return gather([raise_cancelled, succeed])

    async def ask_in_loop() -> list[str]:
        return await (run_bridged(ask) if bridged else asyncio.to_thread(ask))

    with pytest.raises(asyncio.CancelledError, match="of the call's own"):
        run_within(10, ask_in_loop())
    assert ends == ["succeed"]


@pytest.mark.parametrize("bridged", [True, False])
def test_a_call_of_many_that_was_cancelled_is_a_failure_of_all(bridged: bool) -> None:
    def ask() -> list[str]:
        return list(run_unordered([raise_cancelled], limit=2))

    async def ask_in_loop() -> list[str]:
        return await (run_bridged(ask) if bridged else asyncio.to_thread(ask))

    with pytest.raises(asyncio.CancelledError, match="of the call's own"):
        run_within(10, ask_in_loop())


def test_a_failure_drops_the_calls_that_have_not_begun_and_those_in_flight_end() -> None:
    ends: list[int] = []

    async def ask() -> None:
        has_failed = asyncio.Event()

        def call(number: int) -> int:
            if number == 2:
                has_failed.set()
                raise ValueError("stop")
            wait_for(has_failed.wait())
            for _ in range(5):
                wait_for(asyncio.sleep(0))
            ends.append(number)
            return number

        calls = [partial(call, number) for number in range(100)]
        await run_bridged(lambda: list(run_unordered(calls, limit=3)))

    with pytest.raises(ValueError, match="stop"):
        run_within(10, ask())
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

    assert run_within(10, run_bridged(results)) == list(range(20))
    assert max(counts) == 3


@pytest.mark.parametrize("bridged", [True, False])
def test_context_variables_that_a_call_sets_are_seen_by_no_other_call(bridged: bool) -> None:
    def call(name: str) -> str:
        name_before = NAME.get()
        NAME.set(name)
        return name_before

    def ask() -> list[str]:
        NAME.set("caller")
        calls = [partial(call, name) for name in ("ada", "bob", "cyd")]
        return list(run_unordered(calls, limit=1))

    async def ask_in_loop() -> list[str]:
        return await (run_bridged(ask) if bridged else asyncio.to_thread(ask))

    assert run_within(10, ask_in_loop()) == ["caller"] * 3


# Calls of models.


class HoldingEngine(AwaitedEngine):
    """Answers its first call when `release` is set, and all others at once."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        self.holds = asyncio.Event()
        self.release = asyncio.Event()

    async def complete(self, request: Any) -> Any:
        if not self.holds.is_set():
            self.holds.set()
            await self.release.wait()
        return self.answers.complete(request)


@pytest.mark.parametrize("kind", ["read from the cache", "asked in a thread"])
def test_a_model_answers_though_all_threads_wait_for_its_slot(kind: str, scripted: Any) -> None:
    answers = scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine
    holding = HoldingEngine(answers)
    guard = BudgetGuard(in_flight=1)
    blocking = MeteredLM("awaited/test", Metering(guard=guard), engine=answers, cache=False)
    asked = blocking
    if kind == "read from the cache":
        asked = awaited_lm(holding, guard, cache=True)

    async def ask() -> list[Any]:
        holder = asyncio.create_task(awaited_lm(holding, guard).acall("Who holds the slot?"))
        await holding.holds.wait()
        first = asyncio.create_task(asked.acall("Where was Ann?"))
        await asyncio.sleep(0)  # it stands in the queue now, or is the first to get a thread
        others = [
            asyncio.create_task(in_thread(partial(blocking, f"Where was Bob, {n}?")))
            for n in range(MAX_THREADS)
        ]
        await asyncio.sleep(0)
        holding.release.set()
        # Cancelled calls leave the queue, so that the threads end if this fails.
        return await asyncio.wait_for(asyncio.gather(holder, first, *others), 10)

    assert len(run_within(30, ask())) == 2 + MAX_THREADS


# Programs.


def offline_lm() -> MeteredLM:
    return awaited_lm(AwaitedEngine(OfflineEngine()))


def blocking_lm() -> MeteredLM:
    return MeteredLM("awaited/test", engine=OfflineEngine(), cache=False, temperature=0.0)


def history_of(method: str, make_history: Callable[..., History]) -> History:
    return behavior(20) if method == "pramem" else make_history(3)


@pytest.mark.parametrize("method", [*METHODS, "pgr+turn-rag"])
def test_a_method_writes_and_answers_under_asyncio_as_in_a_thread(
    method: str, make_history: Any
) -> None:
    history = history_of(method, make_history)
    fields = {"question": "Where was Ann?"}

    def build_program() -> Any:
        return build(method, task="question-answering", embedder=embedder())

    with dspy.context(lm=blocking_lm(), trace=[]), recording() as expected_record:
        expected = build_program()(history=history, **fields)
        expected_trace = [(step[1], step[2].toDict()) for step in dspy.settings.trace]
        expected_calls = dspy.settings.lm.meter.read().calls

    with dspy.context(lm=offline_lm(), trace=[]), recording() as record:
        prediction = asyncio.run(build_program().acall(history=history, **fields))
        trace = [(step[1], step[2].toDict()) for step in dspy.settings.trace]
        calls = dspy.settings.lm.meter.read().calls

    assert prediction.answer == expected.answer
    assert prediction.memory == expected.memory
    assert calls == expected_calls
    assert trace == expected_trace
    assert [(call.order, call.predictor.path) for call in record.calls] == [
        (call.order, call.predictor.path) for call in expected_record.calls
    ]


@pytest.mark.parametrize("questions", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_questions_wait_for_the_model_together_in_few_threads(
    scripted: Any, make_history: Any, questions: int
) -> None:
    answers = scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine
    engine = CrowdEngine(answers, crowd=questions)
    program = build("turn-rag")
    history = make_history(1)

    async def ask_all() -> list[Any]:
        asked = [
            program.acall(history=history, question=f"Where was Ann, {n}?")
            for n in range(questions)
        ]
        return await asyncio.gather(*asked)

    with dspy.context(lm=awaited_lm(engine)):
        predictions = run_within(150, ask_all())
    assert [prediction.answer for prediction in predictions] == ["Lisbon"] * questions
    assert len(engine.new_threads) <= MAX_NEW_THREADS


def test_questions_that_wait_for_room_in_a_budget_do_not_hold_up_the_loop(
    scripted: Any, make_history: Any
) -> None:
    engine = AwaitedEngine(scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine)
    # What a call may use at most is more than what is left, so the calls come one after the other.
    guard = BudgetGuard(Limits(max_tokens=5_000))
    program = build("turn-rag")

    async def ask_all() -> list[Any]:
        history = make_history(1)
        asked = [program.acall(history=history, question=f"Where was Ann, {n}?") for n in range(5)]
        return await asyncio.gather(*asked)

    with dspy.context(lm=awaited_lm(engine, guard)):
        predictions = run_within(60, ask_all())
    assert [prediction.answer for prediction in predictions] == ["Lisbon"] * 5


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
        return await second

    with dspy.context(lm=awaited_lm(AwaitedEngine(answers))):
        prediction = run_within(60, cancel_the_first())
        assert prediction.memory == program.remember(history).memory
    assert answers.calls["reasoning"] == 1


@pytest.mark.parametrize("is_metered", [True, False])
def test_a_model_that_cannot_be_awaited_is_asked_in_a_thread(
    scripted: Any, make_history: Any, is_metered: bool
) -> None:
    threads: list[int] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"answer": "Lisbon"}

    async def ask() -> Any:
        program = build("turn-rag")
        threads.append(threading.get_ident())
        return await program.acall(history=make_history(1), question="Where was Ann?")

    engine = scripted(reply).engine
    lm: Any = dspy.LM("blocking/test", engine=engine, cache=False)
    if is_metered:
        lm = MeteredLM("blocking/test", engine=engine, cache=False)
    with dspy.context(lm=lm):
        prediction = run_within(60, ask())
    assert prediction.answer == "Lisbon"
    loop_thread, model_thread = threads
    assert model_thread != loop_thread
