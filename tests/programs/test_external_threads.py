"""Threads of external systems: there are few, and they end with their stores."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import History
from mempiler.async_bridge import in_thread, run_bridged
from mempiler.engines.lm import language_model
from mempiler.programs.external import _calls, _stores
from mempiler.programs.external.program import build_external_program
from mempiler.programs.recording import ExternalError

from ..runs.evaluations import asked

SUPERVISOR = "external supervisor"
"""The name of the one thread that waits for the calls of all systems."""

QUESTIONS = [128, pytest.param(512, marks=pytest.mark.slow)]


class Lines:
    """A store of lines; `search` gives the newest."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, session: Any) -> Any:
        self.lines += session.lines()

    def search(self, query: str, k: int) -> Any:
        return self.lines[-k:]


class ThreadCounter:
    """Remember the largest number of new threads that run systems and functions of users.

    The thread of a test before, which is still ending, is not new, and other threads do not count.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self.most = 0

    def new_threads(self) -> list[threading.Thread]:
        """Return the threads of users' code that were started since, without the supervisor."""
        threads: list[threading.Thread] = []
        for thread in threading.enumerate():
            is_of_users = thread.name.startswith("external ") and thread.name != SUPERVISOR
            if is_of_users and thread not in self._before:
                threads.append(thread)
        return threads

    def count(self) -> None:
        self.most = max(self.most, len(self.new_threads()))


def external_program(target: Any, **config: Any) -> Any:
    return build_external_program(target, "mine", "question-answering", config=config)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, ten seconds at most."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


async def aevaluate(target: Any, examples: list[dspy.Example]) -> mempiler.Evaluation:
    options: dict[str, Any] = {"metric": "f1", "lm": "offline", "progress": False}
    return await mempiler.aevaluate(target, examples, threads=len(examples), **options)


# How many threads there are.


def searching_class(counter: ThreadCounter, is_async: bool) -> type[Lines]:
    """Return a class of stores that takes a moment to write and to search a history."""

    class Plain(Lines):
        def add(self, session: Any) -> None:
            time.sleep(0.002)
            counter.count()
            super().add(session)

        def search(self, query: str, k: int) -> Any:
            time.sleep(0.002)
            counter.count()
            return super().search(query, k)

    class Awaited(Lines):
        async def add(self, session: Any) -> None:
            await asyncio.sleep(0.002)
            counter.count()
            super().add(session)

        async def search(self, query: str, k: int) -> Any:
            await asyncio.sleep(0.002)
            counter.count()
            return super().search(query, k)

    return Awaited if is_async else Plain


@pytest.mark.parametrize("count", QUESTIONS)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_questions_about_as_many_histories_share_a_bounded_number_of_threads(
    is_async: bool,
    count: int,
    make_history: Callable[..., History],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_stores, "MAX_OPEN_STORES", 16)
    monkeypatch.setattr(_stores, "MAX_STORES_IN_WRITING", 16)
    counter = ThreadCounter()
    histories = [make_history(1, turns=2 + number, id=f"h{number}") for number in range(count)]
    examples = [example for history in histories for example in asked(history, 1)]
    evaluation = asyncio.run(aevaluate(searching_class(counter, is_async), examples))
    assert evaluation.n == count
    assert evaluation.failures == 0
    # Stores that are being written, that are open, and whose threads are just ending.
    assert 0 < counter.most <= 16 + 16 + 32


@pytest.mark.parametrize("count", QUESTIONS)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_questions_about_one_history_wait_for_its_only_thread(
    is_async: bool, count: int, make_history: Callable[..., History]
) -> None:
    counter = ThreadCounter()
    examples = asked(make_history(1), count)
    evaluation = asyncio.run(aevaluate(searching_class(counter, is_async), examples))
    assert evaluation.n == count
    assert evaluation.failures == 0
    assert counter.most == 1


@pytest.mark.parametrize("count", QUESTIONS)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_functions_answer_in_a_bounded_number_of_threads(
    is_async: bool, count: int, make_history: Callable[..., History]
) -> None:
    counter = ThreadCounter()

    def plain(history: History, question: str) -> str:
        time.sleep(0.05)
        counter.count()
        return "Bob"

    async def awaited(history: History, question: str) -> str:
        await asyncio.sleep(0.05)
        counter.count()
        return "Bob"

    evaluation = asyncio.run(
        aevaluate(awaited if is_async else plain, asked(make_history(1), count))
    )
    assert evaluation.n == count
    assert evaluation.score == 1.0
    assert 0 < counter.most <= _calls.MAX_FUNCTION_CALLS


class Gate:
    """Hold up calls until it is opened, as plain functions and as coroutines."""

    def __init__(self) -> None:
        self.is_open = threading.Event()

    def wait(self) -> None:
        self.is_open.wait(30)

    async def await_open(self) -> None:
        while not self.is_open.is_set():
            await asyncio.sleep(0.005)


def waiting_targets(gate: Gate) -> dict[str, Any]:
    class Plain(Lines):
        def search(self, query: str, k: int) -> Any:
            gate.wait()
            return super().search(query, k)

    class Awaited(Lines):
        async def search(self, query: str, k: int) -> Any:
            await gate.await_open()
            return super().search(query, k)

    def plain(history: History, question: str) -> str:
        gate.wait()
        return "Bob"

    async def awaited(history: History, question: str) -> str:
        await gate.await_open()
        return "Bob"

    return {"class": Plain, "async class": Awaited, "function": plain, "async function": awaited}


@pytest.mark.parametrize("name", ["class", "async class", "function", "async function"])
def test_questions_that_wait_for_a_system_hold_no_thread_of_the_shared_pool(
    name: str, make_history: Callable[..., History]
) -> None:
    gate = Gate()
    program = external_program(waiting_targets(gate)[name])
    history = make_history(1)

    async def ask_all() -> list[Any]:
        questions = [program.acall(history=history, question=f"Who, {n}?") for n in range(100)]
        answers = asyncio.ensure_future(asyncio.gather(*questions))
        await asyncio.sleep(0.2)
        # If the questions held the threads, this call would not get one.
        assert await asyncio.wait_for(in_thread(lambda: "free"), 10) == "free"
        gate.is_open.set()
        return await answers

    with dspy.context(lm=language_model()):
        answers = asyncio.run(asyncio.wait_for(ask_all(), 60))
    assert len(answers) == 100
    program.method.close()


def test_no_more_stores_are_written_at_a_time_than_the_limit(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "MAX_STORES_IN_WRITING", 3)
    writing: set[int] = set()
    counts: list[int] = []

    class Counting(Lines):
        async def add(self, session: Any) -> None:
            writing.add(id(self))
            await asyncio.sleep(0.01)
            counts.append(len(writing))
            writing.discard(id(self))

    histories = [make_history(1, turns=2 + number, id=f"h{number}") for number in range(12)]
    examples = [example for history in histories for example in asked(history, 1)]
    evaluation = asyncio.run(aevaluate(Counting, examples))
    assert evaluation.n == 12
    assert evaluation.failures == 0
    assert max(counts) == 3


def test_a_question_cancelled_while_its_store_waits_to_be_written_blocks_no_other(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "MAX_STORES_IN_WRITING", 1)
    gate = Gate()

    class Waiting(Lines):
        async def add(self, session: Any) -> None:
            await gate.await_open()
            super().add(session)

    program = external_program(Waiting)

    async def cancel_the_second() -> Any:
        first, second, third = (
            asyncio.create_task(program.acall(history=make_history(sessions), question="Who?"))
            for sessions in (1, 2, 3)
        )
        await asyncio.sleep(0.1)
        second.cancel()
        with suppress(asyncio.CancelledError):
            await second
        gate.is_open.set()
        await first
        return await asyncio.wait_for(third, 20)

    with dspy.context(lm=language_model()):
        assert asyncio.run(cancel_the_second()).context.hits
    program.method.close()


def test_everything_of_a_store_runs_in_one_loop_and_thread(
    make_history: Callable[..., History],
) -> None:
    places: set[tuple[int, int]] = set()

    def note_place() -> None:
        places.add((id(asyncio.get_running_loop()), threading.get_ident()))

    class Noting(Lines):
        def __init__(self) -> None:
            note_place()
            super().__init__()

        async def add(self, session: Any) -> None:
            note_place()
            await asyncio.sleep(0)
            super().add(session)

        def search(self, query: str, k: int) -> Any:
            note_place()
            return super().search(query, k)

        def close(self) -> None:
            note_place()

    program = external_program(Noting)
    with dspy.context(lm=language_model()):
        program(history=make_history(2), question="Who?")
        asyncio.run(program.acall(history=make_history(2), question="Where?"))
    program.method.close()
    assert len(places) == 1


def test_coroutine_calls_of_one_store_never_overlap(make_history: Callable[..., History]) -> None:
    running: list[int] = []

    class Checking(Lines):
        async def search(self, query: str, k: int) -> Any:
            running.append(1)
            await asyncio.sleep(0.001)
            assert len(running) == 1
            running.pop()
            return super().search(query, k)

    evaluation = asyncio.run(aevaluate(Checking, asked(make_history(1), 20)))
    assert evaluation.n == 20
    assert evaluation.failures == 0


# What hangs.


def test_functions_that_hang_do_not_use_up_the_threads(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls, "MAX_FUNCTION_CALLS", 1)
    release = threading.Event()

    def hanging(history: History, question: str) -> str:
        if question == "Hang?":
            release.wait(30)
        return "Bob"

    program = external_program(hanging, timeout=0.2)
    with pytest.raises(ExternalError, match=r"mine: answer: no answer within 0\.2 s"):
        program(history=make_history(1), question="Hang?")
    assert program(history=make_history(1), question="Who?").answer == "Bob"
    release.set()


def test_the_time_limit_holds_though_the_caller_was_cancelled(
    make_history: Callable[..., History],
) -> None:
    begun = threading.Event()
    release = threading.Event()

    class Hanging(Lines):
        def search(self, query: str, k: int) -> Any:
            begun.set()
            release.wait(30)
            return super().search(query, k)

    program = external_program(Hanging, timeout=0.3)
    history = make_history(1)

    async def cancel() -> None:
        task = asyncio.create_task(program.acall(history=history, question="Who?"))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with dspy.context(lm=language_model()):
        asyncio.run(cancel())
        with pytest.raises(ExternalError, match=r"mine: search: no answer within 0\.3 s"):
            program(history=history, question="Where?")
    release.set()


def test_a_system_that_hangs_is_killed_and_every_later_call_fails_at_once(
    make_history: Callable[..., History],
) -> None:
    calls: list[str] = []
    release = threading.Event()

    class Killable(Lines):
        def search(self, query: str, k: int) -> Any:
            calls.append("search")
            release.wait(30)
            raise RuntimeError("was killed")

        def kill(self) -> None:
            calls.append("kill")
            release.set()

    program = external_program(Killable, timeout=0.2)
    history = make_history(1)
    with dspy.context(lm=language_model()):
        for question in ("Who?", "Where?"):
            with pytest.raises(ExternalError, match=r"mine: search: no answer within 0\.2 s"):
                program(history=history, question=question)
    assert calls == ["search", "kill"]


# How stores end.


class Closing(Lines):
    """A store that takes its time to close, and says when it has."""

    closed = 0
    delay = 0.0

    def close(self) -> None:
        time.sleep(self.delay)
        type(self).closed += 1


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> type[Closing]:
    return type("Closing", (Closing,), {"closed": 0})


def ask(program: Any, history: History) -> Any:
    with dspy.context(lm=language_model()):
        return program(history=history, question="Who?")


def test_closing_a_method_waits_for_its_systems_and_ends_their_threads(
    closing: type[Closing], make_history: Callable[..., History]
) -> None:
    closing.delay = 0.1
    counter = ThreadCounter()
    program = external_program(closing)
    for sessions in (1, 2, 3):
        ask(program, make_history(sessions))
    program.method.close()
    assert closing.closed == 3
    until(lambda: not counter.new_threads())


def test_closing_a_method_under_asyncio_waits_for_its_systems(
    closing: type[Closing], make_history: Callable[..., History]
) -> None:
    closing.delay = 0.1
    examples = asked(make_history(1), 2)
    asyncio.run(aevaluate(closing, examples))
    assert closing.closed == 1


def test_a_closed_store_that_is_needed_again_is_written_anew(
    closing: type[Closing], make_history: Callable[..., History]
) -> None:
    program = external_program(closing)
    first = ask(program, make_history(2))
    program.method.close()
    second = ask(program, make_history(2))
    assert [hit.text for hit in second.context.hits] == [hit.text for hit in first.context.hits]
    program.method.close()
    assert closing.closed == 2


def test_a_system_is_closed_though_its_question_was_cancelled_while_it_was_made(
    make_history: Callable[..., History],
) -> None:
    gate = Gate()
    events: list[str] = []

    class Slow(Lines):
        def __init__(self) -> None:
            events.append("begun")
            gate.wait()
            super().__init__()

        def close(self) -> None:
            events.append("closed")

    async def cancel() -> None:
        program = external_program(Slow)
        task = asyncio.create_task(program.acall(history=make_history(1), question="Who?"))
        async with asyncio.timeout(10):
            while not events:
                await asyncio.sleep(0.005)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    gate.is_open.set()
    gc.collect()
    until(lambda: events == ["begun", "closed"])


def test_stores_end_with_their_program(
    closing: type[Closing], make_history: Callable[..., History]
) -> None:
    program = external_program(closing)
    ask(program, make_history(1))
    del program
    gc.collect()
    until(lambda: closing.closed == 1)


def test_a_question_does_not_wait_until_the_store_before_it_is_closed(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "MAX_OPEN_STORES", 1)
    release = threading.Event()
    closed: list[bool] = []

    class Slow(Lines):
        def close(self) -> None:
            closed.append(release.wait(30))

    program = external_program(Slow)
    ask(program, make_history(1))
    ask(program, make_history(2))
    assert closed == []
    release.set()
    until(lambda: closed == [True])
    program.method.close()


def test_a_store_is_written_anew_only_after_the_one_in_its_folder_is_closed(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "MAX_OPEN_STORES", 1)
    folders: list[tuple[str, Path]] = []

    def make(folder: Path) -> Any:
        folders.append(("made", folder))
        store: Any = Lines()
        store.close = partial(end, folder)
        return store

    def end(folder: Path) -> None:
        time.sleep(0.1)
        folders.append(("closed", folder))

    program = external_program(make)
    for sessions in (1, 2, 1):
        ask(program, make_history(sessions))
    program.method.close()
    one = [event for event, folder in folders if folder == folders[0][1]]
    assert one == ["made", "closed", "made", "closed"]


def test_a_store_that_a_question_asks_is_not_written_a_second_time(
    make_history: Callable[..., History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "MAX_OPEN_STORES", 1)
    gate = Gate()
    folders: list[Path] = []
    searches: list[str] = []

    def make(folder: Path) -> Any:
        folders.append(folder)
        return SlowSearch()

    class SlowSearch(Lines):
        def search(self, query: str, k: int) -> Any:
            searches.append(query)
            if len(searches) == 1:
                gate.wait()
            return super().search(query, k)

    program = external_program(make)
    asking = threading.Thread(target=ask, args=(program, make_history(1)))
    asking.start()
    until(lambda: len(searches) == 1)

    # The store of another history takes the place of the one that is still asked.
    ask(program, make_history(2))
    again = threading.Thread(target=ask, args=(program, make_history(1)))
    again.start()
    time.sleep(0.2)
    gate.is_open.set()
    asking.join(10)
    again.join(10)
    program.method.close()
    assert len(folders) == len(set(folders)) == 2


SCRIPT = """
    from pathlib import Path

    import dspy
    from mempiler import History
    from mempiler.engines.lm import language_model
    from mempiler.programs.external.program import build_external_program

    class Store:
        def add(self, session):
            pass
        def search(self, query, k):
            return []
        def close(self):
            print("closed")

    history = History.from_messages([{"role": "user", "content": "I moved to Lisbon."}])
    program = build_external_program(Store, "mine", "question-answering")
    with dspy.context(lm=language_model()):
        program(history=history, question="Where?")
    print("end of the script")
"""


@pytest.mark.slow
def test_stores_are_closed_at_the_end_of_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout.splitlines() == ["end of the script", "closed"]


class SlowLines(Lines):
    """A store that takes time for each session."""

    async def add(self, session: Any) -> None:
        await asyncio.sleep(0.02)
        self.lines += session.lines()

    def ask(self, question: str) -> str:
        return str(len(self.lines))


def test_a_question_that_blocks_the_loop_leaves_the_store_that_is_being_written_alone(
    make_history: Callable[..., History],
) -> None:
    history = make_history(6)
    stores = _stores.Stores(SlowLines, "slow", None, 60.0)

    def ask() -> str:
        return stores.call(history, "ask", "How many?")

    async def main() -> list[str]:
        first = asyncio.create_task(run_bridged(ask))
        await asyncio.sleep(0.03)
        second = ask()
        return [await first, second, await run_bridged(ask)]

    answers = asyncio.run(main())
    lines = [line for session in history for line in session.lines()]
    assert answers == [str(len(lines))] * 3
