"""Threads of external systems: there are few, and they end with their stores.

An external system is code of the user's. A store holds the memory of one history: sessions are
added to it, and it is searched for each question. Its methods, and functions that answer questions,
may block or be coroutines, so each runs in a thread that has an event loop of its own. At most
`MAX_STORES_IN_WRITING` stores are written at a time. At most `MAX_OPEN_STORES` written ones stay
open: if there are more, the one that was not used for longest is closed.
"""

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
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import History, Session, Turn
from mempiler.async_bridge import in_thread, run_bridged
from mempiler.engines.lm import language_model
from mempiler.programs.external._calls import MAX_FUNCTION_CALLS
from mempiler.programs.external._stores import (
    MAX_OPEN_STORES,
    MAX_STORES_IN_WRITING,
    StoreContent,
    Stores,
)
from mempiler.programs.external.program import build_external_program
from mempiler.programs.recording import ExternalError

from ..runs.evaluations import questions_about

MakeHistory = Callable[..., History]
"""The fixture `make_history`: `make_history(3)` has sessions D1 to D3 of six turns each."""

SUPERVISOR = "external supervisor"
"""The name of the one thread that waits for the calls of all systems."""


class Lines:
    """A store of lines; `search` gives the last ones."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    # Subclasses may make it a coroutine function.
    def add(self, session: Any) -> Any:
        self.lines += session.lines()

    def search(self, query: str, k: int) -> Any:
        return self.lines[-k:]


class ThreadCounter:
    """Counts the threads that run systems and functions of users, and were started since.

    A thread of the test before, which is still ending, does not count.
    """

    def __init__(self) -> None:
        self._earlier_threads = set(threading.enumerate())
        self.largest_count = 0

    def new_threads(self) -> list[threading.Thread]:
        """Return the threads of users' code that were started since, without the supervisor."""
        threads: list[threading.Thread] = []
        for thread in threading.enumerate():
            is_of_users = thread.name.startswith("external ") and thread.name != SUPERVISOR
            if is_of_users and thread not in self._earlier_threads:
                threads.append(thread)
        return threads

    def count(self) -> None:
        self.largest_count = max(self.largest_count, len(self.new_threads()))


class Gate:
    """Holds up calls until it is opened: plain functions, and coroutines.

    Open it by `gate.is_open.set()`.
    """

    def __init__(self) -> None:
        self.is_open = threading.Event()

    def wait(self) -> None:
        """Block the calling thread until the gate is open."""
        self.is_open.wait(30)

    async def wait_in_loop(self) -> None:
        """Let the event loop go on until the gate is open."""
        while not self.is_open.is_set():
            await asyncio.sleep(0.005)


def external_program(target: Any, **config: Any) -> Any:
    """Return the program of a system that errors call "mine"."""
    return build_external_program(target, "mine", "question-answering", config=config)


def different_histories(count: int) -> list[History]:
    """Return histories of one turn each, of which every one needs a store of its own."""
    histories: list[History] = []
    for number in range(count):
        turn = Turn(id="D1:1", speaker="Ann", text=f"I saw city {number}.")
        histories.append(History(id=f"h{number}", items=(Session(id="D1", turns=(turn,)),)))
    return histories


def question_about_each(histories: list[History]) -> list[dspy.Example]:
    return [example for history in histories for example in questions_about(history, count=1)]


def ask(program: Any, history: History) -> Any:
    with dspy.context(lm=language_model()):
        return program(history=history, question="Who?")


def ask_about_enough_others_to_close_every_store(program: Any) -> None:
    """Ask about as many new histories as stores may be open, which closes all earlier ones."""
    for history in different_histories(MAX_OPEN_STORES):
        ask(program, history)


def evaluate_at_once(target: Any, examples: list[dspy.Example]) -> mempiler.Evaluation:
    """Score a system under asyncio, with all questions at the same time."""
    options: dict[str, Any] = {"metric": "f1", "lm": "offline", "progress": False}
    return asyncio.run(mempiler.aevaluate(target, examples, threads=len(examples), **options))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, ten seconds at most."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


async def wait_in_loop_until(condition: Callable[[], bool]) -> None:
    """Let the event loop go on until a condition holds, ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# How many threads there are.


def store_class_that_counts_threads(counter: ThreadCounter, is_async: bool) -> type[Lines]:
    """Return a class of stores that take a moment to write and to search, and count threads.

    Its methods are plain functions or coroutine functions.
    """

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


@pytest.mark.parametrize("count", [192, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_stores_of_many_histories_share_a_bounded_number_of_threads(
    is_async: bool, count: int
) -> None:
    """Each history has one question and needs one store, which has a thread while it is open."""
    counter = ThreadCounter()
    examples = question_about_each(different_histories(count))

    store_class = store_class_that_counts_threads(counter, is_async)
    evaluation = evaluate_at_once(store_class, examples)

    assert evaluation.n == count
    assert evaluation.failures == 0
    # Threads of stores that were closed just now may not have ended yet.
    ending_threads = 32
    most_threads = MAX_STORES_IN_WRITING + MAX_OPEN_STORES + ending_threads
    assert most_threads < count, "with a thread for each history, the test would fail"
    assert 0 < counter.largest_count <= most_threads


@pytest.mark.parametrize("count", [128, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_functions_answer_in_a_bounded_number_of_threads(
    is_async: bool, count: int, make_history: MakeHistory
) -> None:
    """Calls of a function need no store. Each has a thread, but only so many run at a time."""
    counter = ThreadCounter()

    def plain(history: History, question: str) -> str:
        time.sleep(0.05)
        counter.count()
        return "Bob"

    async def awaited(history: History, question: str) -> str:
        await asyncio.sleep(0.05)
        counter.count()
        return "Bob"

    function = awaited if is_async else plain
    evaluation = evaluate_at_once(function, questions_about(make_history(sessions=1), count=count))

    assert evaluation.n == count
    assert evaluation.score == 1.0
    assert 0 < counter.largest_count <= MAX_FUNCTION_CALLS


def systems_that_wait(gate: Gate) -> dict[str, Any]:
    """Return a system of each kind whose answers wait for a gate, by the name of the kind."""

    class Plain(Lines):
        def search(self, query: str, k: int) -> Any:
            gate.wait()
            return super().search(query, k)

    class Awaited(Lines):
        async def search(self, query: str, k: int) -> Any:
            await gate.wait_in_loop()
            return super().search(query, k)

    def plain(history: History, question: str) -> str:
        gate.wait()
        return "Bob"

    async def awaited(history: History, question: str) -> str:
        await gate.wait_in_loop()
        return "Bob"

    return {
        "class": Plain,
        "async class": Awaited,
        "function": plain,
        "async function": awaited,
    }


@pytest.mark.parametrize("kind", ["class", "async class", "function", "async function"])
def test_questions_that_wait_for_a_system_hold_no_thread_of_the_shared_pool(
    kind: str, make_history: MakeHistory
) -> None:
    """A hundred questions wait for a user's system, whose answers wait until a gate is opened.

    Meanwhile other code, such as searches, must get a thread of the pool that all programs share.
    """
    gate = Gate()
    program = external_program(systems_that_wait(gate)[kind])
    history = make_history(sessions=1)

    async def ask_all() -> list[Any]:
        calls = [
            program.acall(history=history, question=f"Who, {number}?") for number in range(100)
        ]
        answers = asyncio.ensure_future(asyncio.gather(*calls))
        # By then, all questions wait for the gate.
        await asyncio.sleep(0.2)
        result = await asyncio.wait_for(in_thread(lambda: "done in the pool"), 10)
        assert result == "done in the pool"
        gate.is_open.set()
        return await answers

    with dspy.context(lm=language_model()):
        answers = asyncio.run(asyncio.wait_for(ask_all(), 60))
    assert len(answers) == 100
    program.method.close()


def test_no_more_stores_are_written_at_a_time_than_the_limit() -> None:
    """Every history needs a store of its own, and there are 16 more histories than the limit.

    Each store gets one session, so a store is in writing while its method `add` runs.
    """
    stores_in_writing: set[int] = set()
    numbers_in_writing: list[int] = []
    limit_was_reached = threading.Event()

    class Counting(Lines):
        async def add(self, session: Any) -> None:
            stores_in_writing.add(id(self))
            if len(stores_in_writing) >= MAX_STORES_IN_WRITING:
                limit_was_reached.set()
            while not limit_was_reached.is_set():
                await asyncio.sleep(0.005)
            # If there were no limit, a further store would begin meanwhile.
            await asyncio.sleep(0.05)
            numbers_in_writing.append(len(stores_in_writing))
            stores_in_writing.discard(id(self))

    count = MAX_STORES_IN_WRITING + 16
    evaluation = evaluate_at_once(Counting, question_about_each(different_histories(count)))

    assert evaluation.n == count
    assert evaluation.failures == 0
    assert max(numbers_in_writing) == MAX_STORES_IN_WRITING


def store_class_written_when_open(gate: Gate, stores_in_writing: list[int]) -> type[Lines]:
    """Return a class of stores that take in sessions when a gate is open, and list themselves."""

    class WaitingStore(Lines):
        async def add(self, session: Any) -> None:
            stores_in_writing.append(id(self))
            await gate.wait_in_loop()
            super().add(session)

    return WaitingStore


def start_question(program: Any, history: History) -> asyncio.Task[Any]:
    """Ask a question in a task of its own."""
    return asyncio.create_task(program.acall(history=history, question="Who?"))


def test_a_question_cancelled_while_its_store_waits_to_be_written_blocks_no_other(
    make_history: MakeHistory,
) -> None:
    """A store that waits to be written gets its turn when another one is finished.

    A cancelled question must not take the turn that comes free, since it would never give it back.
    """
    gate = Gate()
    stores_in_writing: list[int] = []
    program = external_program(store_class_written_when_open(gate, stores_in_writing))

    async def cancel_a_waiting_question() -> Any:
        histories = different_histories(MAX_STORES_IN_WRITING)
        writing = [start_question(program, history) for history in histories]
        await wait_in_loop_until(lambda: len(stores_in_writing) == MAX_STORES_IN_WRITING)

        # No more stores may be written at a time, so two more questions have to wait.
        cancelled = start_question(program, make_history(sessions=2))
        waiting = start_question(program, make_history(sessions=3))
        await asyncio.sleep(0.1)
        await cancel(cancelled)

        gate.is_open.set()
        await asyncio.gather(*writing)
        return await asyncio.wait_for(waiting, 20)

    with dspy.context(lm=language_model()):
        prediction = asyncio.run(cancel_a_waiting_question())
    assert prediction.context.hits
    program.method.close()


def test_everything_of_a_store_runs_in_one_loop_and_thread(make_history: MakeHistory) -> None:
    """So a store may use objects that belong to a loop or a thread, such as connections.

    A history of two sessions is asked about once in a thread and once under asyncio.
    """
    calls: list[str] = []
    loops_and_threads: set[tuple[int, int]] = set()

    def record(method: str) -> None:
        calls.append(method)
        loops_and_threads.add((id(asyncio.get_running_loop()), threading.get_ident()))

    class Recording(Lines):
        def __init__(self) -> None:
            record("__init__")
            super().__init__()

        async def add(self, session: Any) -> None:
            record("add")
            await asyncio.sleep(0)
            super().add(session)

        def search(self, query: str, k: int) -> Any:
            record("search")
            return super().search(query, k)

        def close(self) -> None:
            record("close")

    program = external_program(Recording)
    two_sessions = make_history(sessions=2)
    with dspy.context(lm=language_model()):
        program(history=two_sessions, question="Who?")
        asyncio.run(program.acall(history=two_sessions, question="Where?"))
    program.method.close()

    assert calls == ["__init__", "add", "add", "search", "search", "close"]
    assert len(loops_and_threads) == 1


def test_coroutine_calls_of_one_store_never_overlap(make_history: MakeHistory) -> None:
    """Users write stores as if they were called once at a time, also where they can be awaited."""
    running_searches: list[str] = []
    numbers_of_running_searches: list[int] = []

    class Counting(Lines):
        async def search(self, query: str, k: int) -> Any:
            running_searches.append(query)
            await asyncio.sleep(0.001)
            numbers_of_running_searches.append(len(running_searches))
            running_searches.remove(query)
            return super().search(query, k)

    evaluation = evaluate_at_once(Counting, questions_about(make_history(sessions=1), count=20))

    assert evaluation.n == 20
    assert evaluation.failures == 0
    assert numbers_of_running_searches == [1] * 20


# What hangs.


def test_functions_that_hang_do_not_use_up_the_threads(make_history: MakeHistory) -> None:
    """After its time limit a call counts no longer, though Python cannot end its thread."""
    gate = Gate()

    def hang(history: History, question: str) -> str:
        if question == "Hang?":
            gate.wait()
        return "Bob"

    program = external_program(hang, timeout=0.5)
    history = make_history(sessions=1)

    async def hang_in_all_threads() -> list[Any]:
        calls = [
            program.acall(history=history, question="Hang?") for _ in range(MAX_FUNCTION_CALLS)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    errors = asyncio.run(hang_in_all_threads())
    assert len(errors) == MAX_FUNCTION_CALLS
    for error in errors:
        assert isinstance(error, ExternalError)
        assert "mine: answer: no answer within 0.5 s" in str(error)

    # There is a thread for a further question, though all the others still hang.
    assert program(history=history, question="Who?").answer == "Bob"
    gate.is_open.set()


def test_the_time_limit_holds_though_the_caller_was_cancelled(make_history: MakeHistory) -> None:
    """The first question hangs in its search, and is cancelled by its caller."""
    has_begun = threading.Event()
    release = threading.Event()

    class Hanging(Lines):
        def search(self, query: str, k: int) -> Any:
            has_begun.set()
            release.wait(30)
            return super().search(query, k)

    program = external_program(Hanging, timeout=0.3)
    history = make_history(sessions=1)

    async def cancel_question() -> None:
        task = asyncio.create_task(program.acall(history=history, question="Who?"))
        await asyncio.to_thread(has_begun.wait, 10)
        await cancel(task)

    with dspy.context(lm=language_model()):
        asyncio.run(cancel_question())
        # Nobody waits for the first search any more. If it had no time limit any more either, the
        # next question would wait for its thread until the end.
        with pytest.raises(ExternalError, match=r"mine: search: no answer within 0\.3 s"):
            program(history=history, question="Where?")
    release.set()


def test_a_system_that_hangs_is_killed_and_every_later_call_fails_at_once(
    make_history: MakeHistory,
) -> None:
    """Systems may have a method `kill`, which is called if another method takes too long."""
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
    history = make_history(sessions=1)
    with dspy.context(lm=language_model()):
        for question in ("Who?", "Where?"):
            with pytest.raises(ExternalError, match=r"mine: search: no answer within 0\.2 s"):
                program(history=history, question=question)
    # The second question was not searched for.
    assert calls == ["search", "kill"]


# How stores end.


class ClosingStore(Lines):
    """A store that takes some time to close, and counts how many of its class are closed."""

    number_closed = 0
    seconds_to_close = 0.0

    def close(self) -> None:
        time.sleep(self.seconds_to_close)
        type(self).number_closed += 1


def closing_store_class(seconds: float = 0.0) -> type[ClosingStore]:
    """Return a new class of stores, of which none is closed yet."""

    class NewClosingStore(ClosingStore):
        number_closed = 0
        seconds_to_close = seconds

    return NewClosingStore


def test_closing_a_method_waits_for_its_systems_and_ends_their_threads(
    make_history: MakeHistory,
) -> None:
    """Each of three histories has a store, which takes 0.1 s to close, in a thread of its own."""
    store_class = closing_store_class(seconds=0.1)
    counter = ThreadCounter()
    program = external_program(store_class)
    for number_of_sessions in (1, 2, 3):
        ask(program, make_history(number_of_sessions))

    program.method.close()

    assert store_class.number_closed == 3
    wait_until(lambda: not counter.new_threads())


def test_an_evaluation_under_asyncio_ends_when_its_systems_are_closed(
    make_history: MakeHistory,
) -> None:
    """It must not return while stores are still being closed."""
    store_class = closing_store_class(seconds=0.1)

    evaluate_at_once(store_class, questions_about(make_history(sessions=1), count=2))

    assert store_class.number_closed == 1


def test_a_closed_store_that_is_needed_again_is_written_anew(make_history: MakeHistory) -> None:
    """What a closed store held is gone. So the history is added to a new store."""
    store_class = closing_store_class()
    program = external_program(store_class)

    first_answer = ask(program, make_history(sessions=2))
    program.method.close()
    second_answer = ask(program, make_history(sessions=2))

    first_texts = [hit.text for hit in first_answer.context.hits]
    assert first_texts
    assert [hit.text for hit in second_answer.context.hits] == first_texts
    program.method.close()
    assert store_class.number_closed == 2


def test_a_system_is_closed_though_its_question_was_cancelled_while_it_was_made(
    make_history: MakeHistory,
) -> None:
    """A system may open files or connections while it is made. Only `close` lets them go."""
    gate = Gate()
    events: list[str] = []

    class SlowToMake(Lines):
        def __init__(self) -> None:
            events.append("begun")
            gate.wait()
            super().__init__()

        def close(self) -> None:
            events.append("closed")

    async def cancel_question() -> None:
        question = start_question(external_program(SlowToMake), make_history(sessions=1))
        await wait_in_loop_until(lambda: events == ["begun"])
        await cancel(question)

    asyncio.run(cancel_question())
    gate.is_open.set()
    gc.collect()
    wait_until(lambda: events == ["begun", "closed"])


def test_stores_end_with_their_program(make_history: MakeHistory) -> None:
    """Nobody has to close a program that is used no more."""
    store_class = closing_store_class()
    program = external_program(store_class)
    ask(program, make_history(sessions=1))

    # Nobody refers to the program any more.
    del program
    gc.collect()

    wait_until(lambda: store_class.number_closed == 1)


def test_a_question_does_not_wait_until_an_earlier_store_is_closed(
    make_history: MakeHistory,
) -> None:
    """Only so many stores stay open: another history has the oldest one closed."""
    gate = Gate()
    events: list[str] = []

    class SlowToClose(Lines):
        def close(self) -> None:
            events.append("closing")
            gate.wait()
            events.append("closed")

    program = external_program(SlowToClose)
    ask(program, make_history(sessions=1))
    # The last of these questions has the first store closed.
    ask_about_enough_others_to_close_every_store(program)

    assert "closed" not in events
    wait_until(lambda: events == ["closing"])
    gate.is_open.set()
    wait_until(lambda: events == ["closing", "closed"])
    program.method.close()


def test_a_store_is_written_anew_only_after_the_one_in_its_folder_is_closed(
    make_history: MakeHistory,
) -> None:
    """A history has one folder, which two stores of it must not use at the same time."""
    folders: list[Path] = []
    events_by_folder: dict[Path, list[str]] = {}

    class StoreInFolder(Lines):
        def __init__(self, folder: Path) -> None:
            super().__init__()
            folders.append(folder)
            self.events = events_by_folder.setdefault(folder, [])
            self.events.append("made")

        def close(self) -> None:
            time.sleep(0.1)
            self.events.append("closed")

    program = external_program(StoreInFolder)
    history = make_history(sessions=1)
    ask(program, history)
    ask_about_enough_others_to_close_every_store(program)
    ask(program, history)
    program.method.close()

    folder_of_history = folders[0]
    assert events_by_folder[folder_of_history] == ["made", "closed", "made", "closed"]


def start_to_ask(program: Any, history: History) -> threading.Thread:
    """Ask a question in a thread of its own."""
    thread = threading.Thread(target=ask, args=(program, history))
    thread.start()
    return thread


def test_a_store_that_a_question_asks_is_not_written_a_second_time(
    make_history: MakeHistory,
) -> None:
    """A store that is in use stays open, even if it is the one that was not used for longest."""
    gate = Gate()
    added_texts: list[str] = []
    searches: list[str] = []

    class SlowToSearch(Lines):
        def add(self, session: Any) -> None:
            super().add(session)
            added_texts.append(session.turns[0].text)

        def search(self, query: str, k: int) -> Any:
            searches.append(query)
            is_first_question = len(searches) == 1
            if is_first_question:
                gate.wait()
            return super().search(query, k)

    program = external_program(SlowToSearch)
    history = make_history(sessions=1)
    first_question = start_to_ask(program, history)
    wait_until(lambda: len(searches) == 1)

    # Stores of other histories take the place of the one that is still asked.
    ask_about_enough_others_to_close_every_store(program)
    second_question = start_to_ask(program, history)
    time.sleep(0.2)
    gate.is_open.set()
    first_question.join(10)
    second_question.join(10)
    program.method.close()

    assert not second_question.is_alive()
    assert added_texts.count("I saw Oslo with 1 friends") == 1


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
    """The script asks one question of a store, and does not close it."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))

    process = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=True
    )

    assert process.stdout.splitlines() == ["end of the script", "closed"]


class SlowLines(Lines):
    """A store that takes 0.02 s for each session, and answers with the number of its lines."""

    async def add(self, session: Any) -> None:
        await asyncio.sleep(0.02)
        self.lines += session.lines()

    def ask(self, question: str) -> str:
        return str(len(self.lines))


def test_a_question_that_blocks_the_loop_leaves_the_store_that_is_being_written_alone(
    make_history: MakeHistory,
) -> None:
    """A task writes a store, when code that blocks its event loop asks about the same history.

    The blocking code cannot wait for the task, and writes a second store instead.
    """
    history = make_history(sessions=6, turns=1)
    stores = Stores(SlowLines, name="slow", folder=None, timeout=60.0)

    def ask_how_many_lines() -> str:
        return stores.call(StoreContent(history), "ask", "How many?")

    async def ask_three_times() -> list[str]:
        awaited_question = asyncio.create_task(run_bridged(ask_how_many_lines))
        # The store is being written now: six sessions take 0.12 s.
        await asyncio.sleep(0.03)
        blocking_answer = ask_how_many_lines()
        awaited_answer = await awaited_question
        later_answer = await run_bridged(ask_how_many_lines)
        return [blocking_answer, awaited_answer, later_answer]

    assert asyncio.run(ask_three_times()) == ["6", "6", "6"]
