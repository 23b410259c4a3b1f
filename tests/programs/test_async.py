"""Programs under asyncio need no thread per question, and do otherwise the same as in a thread.

The methods are plain functions. `await run_bridged(function)` runs such a function as a part of a
task of asyncio. Where the function has to wait, it calls `wait_for(awaitable)`: the event loop does
other work meanwhile, and the function goes on with the result. So `wait_for(asyncio.sleep(0))` in
these tests stands for a call of a model: other tasks get a turn.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import dspy
import pytest
from mempiler import build
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
from .conftest import behavior_history

T = TypeVar("T")

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")
"""A context variable that gathered calls read and set."""


# Calls that need the same value.
#
# A `SingleFlight` is a map whose values are computed once: the first caller that asks for a key
# computes its value, and all others that ask meanwhile wait for it.


def test_two_tasks_of_one_loop_that_need_one_value_compute_it_once() -> None:
    """A `SingleFlight` is a map: the first task that asks for a key computes, and the other waits.

    `run_bridged` runs a plain function in a task of asyncio, and `wait_for` awaits in it.
    """
    flight: SingleFlight[str, str] = SingleFlight()
    number_of_computations = 0

    def compute() -> str:
        nonlocal number_of_computations
        number_of_computations += 1
        # The other task asks meanwhile.
        wait_for(asyncio.sleep(0))
        return "value"

    async def ask_twice() -> list[str]:
        ask = partial(flight.get_or_compute, "key", compute)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask))

    assert run_within(10, ask_twice()) == ["value", "value"]
    assert number_of_computations == 1


class HeldComputation:
    """Computes the name of its caller, "task" or "thread", as soon as the test lets it end."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def compute_in_task(self) -> str:
        """Wait, while the event loop of the task goes on."""
        self._begin("task")
        wait_for(asyncio.to_thread(self.may_end.wait, 10))
        return "task"

    def compute_in_thread(self) -> str:
        """Wait, and block the thread meanwhile."""
        self._begin("thread")
        self.may_end.wait(10)
        return "thread"

    def _begin(self, caller: str) -> None:
        self.callers.append(caller)
        self.has_begun.set()


@pytest.mark.parametrize("first_caller", ["task", "thread"])
def test_a_task_and_a_thread_that_need_one_value_compute_it_once(first_caller: str) -> None:
    """The first that asks a `SingleFlight` for a key computes the value, and the other waits."""
    flight: SingleFlight[str, str] = SingleFlight()
    computation = HeldComputation()
    ask_in_task = partial(flight.get_or_compute, "key", computation.compute_in_task)
    ask_in_thread = partial(flight.get_or_compute, "key", computation.compute_in_thread)

    async def ask_one_after_the_other() -> list[str]:
        callers = [run_bridged(ask_in_task), asyncio.to_thread(ask_in_thread)]
        if first_caller == "thread":
            callers.reverse()

        first = asyncio.create_task(callers[0])
        await asyncio.to_thread(computation.has_begun.wait, 10)
        second = asyncio.create_task(callers[1])
        # The second asks meanwhile. If it came later, it would still compute nothing.
        await asyncio.sleep(0.02)
        computation.may_end.set()
        return [await first, await second]

    values = run_within(20, ask_one_after_the_other())
    assert values == [first_caller, first_caller]
    assert computation.callers == [first_caller]


def test_all_tasks_that_need_a_value_get_the_error_of_computing_it() -> None:
    """Two tasks ask a `SingleFlight` for one key: the first computes, and the second waits."""
    flight: SingleFlight[str, str] = SingleFlight()
    raised_errors: list[ValueError] = []

    def fail() -> str:
        # The other task asks meanwhile.
        wait_for(asyncio.sleep(0))
        error = ValueError("no such city")
        raised_errors.append(error)
        raise error

    async def ask_twice() -> list[Any]:
        ask = partial(flight.get_or_compute, "key", fail)
        return await asyncio.gather(run_bridged(ask), run_bridged(ask), return_exceptions=True)

    received_errors = run_within(10, ask_twice())

    [raised_error] = raised_errors
    assert received_errors == [raised_error, raised_error]


def test_a_value_is_computed_again_after_a_failure() -> None:
    """An error is not kept for later callers, since e.g. a server may work again by then."""
    flight: SingleFlight[str, str] = SingleFlight()

    def fail() -> str:
        raise ValueError("no such city")

    with pytest.raises(ValueError, match="no such city"):
        flight.get_or_compute("key", fail)

    assert flight.get_or_compute("key", lambda: "Lisbon") == "Lisbon"


def test_if_the_task_that_computes_is_cancelled_another_one_computes() -> None:
    """Two tasks ask a `SingleFlight` for one key: the first computes, and the second waits."""
    flight: SingleFlight[str, str] = SingleFlight()

    def wait_forever() -> str:
        never = asyncio.Event()
        wait_for(never.wait())
        return "value of the first"

    def compute() -> str:
        return "value of the second"

    async def cancel_the_first() -> str:
        ask_first = partial(flight.get_or_compute, "key", wait_forever)
        ask_second = partial(flight.get_or_compute, "key", compute)
        first = asyncio.create_task(run_bridged(ask_first))
        second = asyncio.create_task(run_bridged(ask_second))
        # Both ask in the meantime.
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert run_within(10, cancel_the_first()) == "value of the second"


def test_code_that_blocks_the_loop_does_not_wait_for_a_task_of_that_loop() -> None:
    """A task computes the value of a key, when code that blocks its event loop asks for the key.

    If the blocking code waited for the task, the task could not go on, and both would wait forever.
    """
    flight: SingleFlight[str, str] = SingleFlight()

    def compute_in_task() -> str:
        wait_for(asyncio.sleep(0))
        return "value of the task"

    async def block_the_loop() -> None:
        ask = partial(flight.get_or_compute, "key", compute_in_task)
        task = asyncio.create_task(run_bridged(ask))
        # The task begins to compute.
        await asyncio.sleep(0)
        blocking_value = flight.get_or_compute("key", lambda: "value of the blocking code")

        assert blocking_value == "value of the blocking code"
        assert await task == "value of the task"

    run_within(10, block_the_loop())


class Value:
    """A value for which Python can call a function when nobody refers to the value any more."""


def value_that_asks_when_it_goes(flight: SingleFlight[str, Value], answers: list[Any]) -> Value:
    """Return a value that asks a map for the key "other" when nobody refers to it any more."""

    def ask() -> None:
        answers.append(flight.peek("other"))

    value = Value()
    weakref.finalize(value, ask)
    return value


def test_a_value_that_has_to_make_room_may_ask_the_map_that_drops_it() -> None:
    """If the map destroyed values while it holds its lock, such a value would wait forever."""
    flight: SingleFlight[str, Value] = SingleFlight(capacity=1)
    answers: list[Value | None] = []

    async def replace_value() -> None:
        flight.get_or_compute("key", lambda: value_that_asks_when_it_goes(flight, answers))
        flight.get_or_compute("another key", Value)

    run_within(10, replace_value())
    assert answers == [None], "the value has asked, and there is no other"


# Calls that run at the same time.
#
# Methods make such calls by two functions. `gather(calls)` returns the results in the order of the
# calls. `run_unordered(calls, limit)` makes at most `limit` calls at once, and gives results as
# they come. In a task both use tasks, and in a thread they use threads.


def test_gathered_calls_wait_together_in_one_thread() -> None:
    """In a task, `gather` makes plain functions wait like coroutines: none holds up the others.

    `run_bridged` runs a plain function in a task of asyncio, and `wait_for` awaits in it.
    """
    threads: set[int] = set()

    async def gather_calls() -> list[int]:
        # No call gets past the barrier before all hundred have reached it.
        everybody = asyncio.Barrier(100)

        def call(number: int) -> int:
            wait_for(everybody.wait())
            threads.add(threading.get_ident())
            return number

        calls = [partial(call, number) for number in range(100)]
        return await run_bridged(partial(gather, calls))

    assert asyncio.run(gather_calls()) == list(range(100))
    assert threads == {threading.get_ident()}


def test_the_first_failure_in_call_order_is_raised_after_all_gathered_calls_have_ended() -> None:
    """Of three gathered calls, the second fails before the first does, and the third ends last.

    `wait_for` awaits in a plain function, which `run_bridged` runs in a task of asyncio.
    """
    ended_calls: list[str] = []

    async def gather_calls() -> None:
        second_has_failed = asyncio.Event()
        first_has_failed = asyncio.Event()

        def first() -> None:
            wait_for(second_has_failed.wait())
            first_has_failed.set()
            raise ValueError("first call")

        def second() -> None:
            second_has_failed.set()
            raise ValueError("second call")

        def third() -> None:
            wait_for(first_has_failed.wait())
            ended_calls.append("third")

        await run_bridged(partial(gather, [first, second, third]))

    with pytest.raises(ValueError, match="first call"):
        run_within(10, gather_calls())
    assert ended_calls == ["third"]


def test_gathered_calls_are_made_one_after_the_other_within_in_order() -> None:
    """Runs that must be repeatable make all calls one after the other, in the block `in_order`."""
    events: list[str] = []

    def call(name: str) -> None:
        events.append(f"{name} begins")
        # Without the block, the second call would begin now.
        wait_for(asyncio.sleep(0))
        events.append(f"{name} ends")

    def gather_in_order() -> None:
        with in_order():
            gather([partial(call, "first"), partial(call, "second")])

    run_within(10, run_bridged(gather_in_order))
    assert events == ["first begins", "first ends", "second begins", "second ends"]


def test_gathered_calls_are_cancelled_with_their_caller() -> None:
    """Each of three calls waits for an event that never comes, until its caller is cancelled."""
    begun_calls: list[str] = []
    ended_calls: list[str] = []

    def call(name: str) -> None:
        begun_calls.append(name)
        never = asyncio.Event()
        try:
            wait_for(never.wait())
        finally:
            ended_calls.append(name)

    async def cancel_caller() -> None:
        calls = [partial(call, name) for name in ("first", "second", "third")]
        caller = asyncio.create_task(run_bridged(partial(gather, calls)))
        while len(begun_calls) < 3:
            await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    run_within(10, cancel_caller())
    assert set(ended_calls) == {"first", "second", "third"}


def raise_cancelled() -> str:
    """Raise what a call raises that waited for a task which was cancelled by somebody else."""
    raise asyncio.CancelledError("a task of the call")


async def run_in_place(function: Callable[[], T], place: str) -> T:
    """Run a function bridged, as a task of this loop ("task"), or in a thread ("thread")."""
    if place == "task":
        return await run_bridged(function)
    return await asyncio.to_thread(function)


@pytest.mark.parametrize("place", ["task", "thread"])
def test_gather_raises_that_a_call_was_cancelled_when_the_others_have_ended(place: str) -> None:
    """One of two gathered calls waits for a task that is cancelled. Its error must not get lost.

    Nobody has cancelled the caller of `gather`, and the other call succeeds.
    """
    ended_calls: list[str] = []

    def succeed() -> str:
        ended_calls.append("succeed")
        return "value"

    def gather_calls() -> list[str]:
        return gather([raise_cancelled, succeed])

    with pytest.raises(asyncio.CancelledError, match="a task of the call"):
        run_within(10, run_in_place(gather_calls, place))
    assert ended_calls == ["succeed"]


@pytest.mark.parametrize("place", ["task", "thread"])
def test_unordered_calls_raise_that_one_of_them_was_cancelled(place: str) -> None:
    """The call waits for a task that somebody cancels. Nobody has cancelled the caller."""

    def run_calls() -> list[str]:
        return list(run_unordered([raise_cancelled], limit=2))

    with pytest.raises(asyncio.CancelledError, match="a task of the call"):
        run_within(10, run_in_place(run_calls, place))


def test_a_failure_drops_the_calls_that_have_not_begun_and_those_in_flight_end() -> None:
    """Of a hundred calls, three run at a time: the calls 0, 1 and 2 when call 2 fails."""
    ended_calls: list[int] = []

    async def run_calls() -> None:
        has_failed = asyncio.Event()

        def call(number: int) -> int:
            if number == 2:
                has_failed.set()
                raise ValueError("stop")
            wait_for(has_failed.wait())
            # The calls 0 and 1 end a little later than call 2.
            for _ in range(5):
                wait_for(asyncio.sleep(0))
            ended_calls.append(number)
            return number

        calls = [partial(call, number) for number in range(100)]
        await run_bridged(lambda: list(run_unordered(calls, limit=3)))

    with pytest.raises(ValueError, match="stop"):
        run_within(10, run_calls())
    assert ended_calls == [0, 1]


def test_no_more_calls_are_in_flight_than_the_limit() -> None:
    """`run_unordered` makes calls at the same time, here three of twenty."""
    in_flight: list[int] = []
    numbers_in_flight: list[int] = []

    def call(number: int) -> int:
        in_flight.append(number)
        numbers_in_flight.append(len(in_flight))
        wait_for(asyncio.sleep(0))
        in_flight.remove(number)
        return number

    def run_calls() -> list[int]:
        calls = [partial(call, number) for number in range(20)]
        return sorted(run_unordered(calls, limit=3))

    assert run_within(10, run_bridged(run_calls)) == list(range(20))
    assert max(numbers_in_flight) == 3


@pytest.mark.parametrize("place", ["task", "thread"])
def test_context_variables_that_a_call_sets_are_seen_by_no_other_call(place: str) -> None:
    """`NAME` is a context variable. Each call sees its caller's value, and sets another one."""

    def call(name: str) -> str:
        name_before_call = NAME.get()
        NAME.set(name)
        return name_before_call

    def run_calls() -> list[str]:
        NAME.set("caller")
        # With a limit of one, the calls are made one after the other.
        calls = [partial(call, name) for name in ("ada", "bob", "cyd")]
        return list(run_unordered(calls, limit=1))

    assert run_within(10, run_in_place(run_calls, place)) == ["caller", "caller", "caller"]


# Calls of models.


def answer_lisbon(kind: str, text: str, n: int) -> dict[str, Any]:
    """Answer every question alike, as the script of a model."""
    return {"answer": "Lisbon"}


class HoldingEngine(AwaitedEngine):
    """An engine that answers its first call when `release` is set, and all others at once.

    Meanwhile, the first call holds its slot. The event `is_holding` is set when the call is there.
    """

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        self.is_holding = asyncio.Event()
        self.release = asyncio.Event()

    async def complete(self, request: Any) -> Any:
        if not self.is_holding.is_set():
            self.is_holding.set()
            await self.release.wait()
        return self.answers.complete(request)


@pytest.mark.parametrize("first_in_queue", ["awaited model with a cache", "blocking model"])
def test_a_model_answers_though_all_threads_wait_for_its_slot(
    first_in_queue: str, scripted: Any
) -> None:
    """A slot is the right to call a model. Who gets it must not need one of the waiting threads."""
    answers = scripted(answer_lisbon).engine
    engine = HoldingEngine(answers)
    only_slot = BudgetGuard(in_flight=1)
    holding_lm = awaited_lm(engine, only_slot)
    blocking_lm = MeteredLM("awaited/test", Metering(guard=only_slot), engine=answers, cache=False)
    first_lm = blocking_lm
    if first_in_queue == "awaited model with a cache":
        first_lm = awaited_lm(engine, only_slot, cache=True)

    async def ask_all() -> list[Any]:
        holder = asyncio.create_task(holding_lm.acall("Who holds the slot?"))
        await engine.is_holding.wait()
        first_to_wait = asyncio.create_task(first_lm.acall("Where was Ann?"))
        await asyncio.sleep(0)

        # These take every thread, and wait for the slot in it.
        waiting_in_threads = [
            asyncio.create_task(in_thread(partial(blocking_lm, f"Where was Bob, {number}?")))
            for number in range(MAX_THREADS)
        ]
        await asyncio.sleep(0)
        engine.release.set()
        # Cancelled calls leave the queue, so that the threads end if this fails.
        everybody = asyncio.gather(holder, first_to_wait, *waiting_in_threads)
        return await asyncio.wait_for(everybody, 10)

    replies = run_within(30, ask_all())
    assert len(replies) == 1 + 1 + MAX_THREADS


# Programs.


@dataclass(frozen=True)
class Observed:
    """What can be observed of a question that a program answered."""

    answer: str
    memory: Any
    calls: Any
    trace: list[tuple[dict[str, Any], dict[str, Any]]]
    """Inputs and outputs of every call of a predictor, as optimizers see them."""
    recorded_calls: list[tuple[Any, str]]
    """Order and predictor of every call, as the recorder sees them."""


def observe(lm: MeteredLM, answer_question: Callable[[], dspy.Prediction]) -> Observed:
    """Have a question answered with a model, and return what can be observed of it."""
    trace: list[Any] = []
    with dspy.context(lm=lm, trace=trace), recording() as record:
        prediction = answer_question()
        return Observed(
            answer=prediction.answer,
            memory=prediction.memory,
            calls=lm.meter.read().calls,
            trace=[(inputs, outputs.toDict()) for _, inputs, outputs in trace],
            recorded_calls=[(call.order, call.predictor.path) for call in record.calls],
        )


@pytest.mark.parametrize("method", [*METHODS, "pgr+turn-rag"])
def test_a_method_writes_and_answers_under_asyncio_as_in_a_thread(
    method: str, make_history: Any
) -> None:
    """The offline model answers by rules, so both programs get the same answers from it."""
    # PraMem reads records of behaviour alone.
    history = behavior_history(records=20) if method == "pramem" else make_history(sessions=3)
    question = "Where was Ann?"

    def build_program() -> Any:
        return build(method, task="question-answering", embedder=embedder())

    def answer_in_thread() -> dspy.Prediction:
        return build_program()(history=history, question=question)

    def answer_under_asyncio() -> dspy.Prediction:
        return asyncio.run(build_program().acall(history=history, question=question))

    blocking_lm = MeteredLM("awaited/test", engine=OfflineEngine(), cache=False, temperature=0.0)
    without_asyncio = observe(blocking_lm, answer_in_thread)
    under_asyncio = observe(awaited_lm(AwaitedEngine(OfflineEngine())), answer_under_asyncio)

    assert under_asyncio.answer == without_asyncio.answer
    assert under_asyncio.memory == without_asyncio.memory
    assert under_asyncio.calls == without_asyncio.calls
    assert without_asyncio.trace
    assert under_asyncio.trace == without_asyncio.trace
    assert under_asyncio.recorded_calls == without_asyncio.recorded_calls


@pytest.mark.parametrize("questions", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_questions_wait_for_the_model_together_in_few_threads(
    scripted: Any, make_history: Any, questions: int
) -> None:
    """Every question waits for the model at the same time, and hardly any has a thread."""
    answers = scripted(answer_lisbon).engine
    engine = CrowdEngine(answers, crowd=questions)
    program = build("turn-rag")
    history = make_history(sessions=1)

    async def ask_all() -> list[Any]:
        calls = [
            program.acall(history=history, question=f"Where was Ann, {number}?")
            for number in range(questions)
        ]
        return await asyncio.gather(*calls)

    # The engine answers none of the questions before all of them wait for it.
    with dspy.context(lm=awaited_lm(engine)):
        predictions = run_within(150, ask_all())
    assert [prediction.answer for prediction in predictions] == ["Lisbon"] * questions
    assert len(engine.new_threads) <= MAX_NEW_THREADS


def test_questions_that_wait_for_room_in_a_budget_do_not_hold_up_the_loop(
    scripted: Any, make_history: Any
) -> None:
    """A question that waited in the thread of the loop would keep the others from ending.

    Before a call, the guard of a budget reserves as many tokens as the call may use. If they are
    not left, the call waits until others have ended.
    """
    engine = AwaitedEngine(scripted(answer_lisbon).engine)
    # Two calls at a time might use more than the budget, so they are made one after the other.
    guard = BudgetGuard(Limits(max_tokens=5_000))
    program = build("turn-rag")
    history = make_history(sessions=1)

    async def ask_all() -> list[Any]:
        calls = [
            program.acall(history=history, question=f"Where was Ann, {number}?")
            for number in range(5)
        ]
        return await asyncio.gather(*calls)

    with dspy.context(lm=awaited_lm(engine, guard)):
        predictions = run_within(60, ask_all())
    assert [prediction.answer for prediction in predictions] == ["Lisbon"] * 5


def test_a_cancelled_question_asks_nothing_more_and_another_one_writes_the_memory(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """Two questions about one history share its memory, which the model writes by many calls.

    The first question writes the memory, until it is cancelled. Then the second writes it.
    """
    answers = scripted(fact_replies).engine
    program = build("memory-r2", embedder=embedder())
    history = make_history(sessions=2)

    async def cancel_the_first() -> Any:
        first = asyncio.create_task(program.acall(history=history, question="Where was Ann?"))
        second = asyncio.create_task(program.acall(history=history, question="Where was Bob?"))
        # The first writes the memory, and the second waits for it.
        while not answers.prompts:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    with dspy.context(lm=awaited_lm(AwaitedEngine(answers))):
        prediction = run_within(60, cancel_the_first())
        assert prediction.memory == program.remember(history).memory
    # The answer of a question begins with its reasoning: only the second question was answered.
    assert answers.calls["reasoning"] == 1


@pytest.mark.parametrize("lm_class", [MeteredLM, dspy.LM])
def test_a_model_that_cannot_be_awaited_is_asked_in_a_thread(
    scripted: Any, make_history: Any, lm_class: Any
) -> None:
    """A model that blocks must not hold up the event loop, so it is asked in another thread."""
    model_threads: list[int] = []

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        model_threads.append(threading.get_ident())
        return {"answer": "Lisbon"}

    async def ask_and_return_thread() -> int:
        program = build("turn-rag")
        await program.acall(history=make_history(sessions=1), question="Where was Ann?")
        return threading.get_ident()

    lm = lm_class("blocking/test", engine=scripted(reply).engine, cache=False)
    with dspy.context(lm=lm):
        loop_thread = run_within(60, ask_and_return_thread())

    [model_thread] = model_threads
    assert model_thread != loop_thread
