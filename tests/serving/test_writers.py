"""Jobs at the same time: all begin while there is room, a failure lets no other begin, and users overlap."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dspy.utils.exceptions import LMServerError
from mempiler import Store, build
from mempiler.memory.stored import Owner
from mempiler.serving.memories import Memories
from mempiler.serving.writers import all_of, remember_queued


@pytest.mark.parametrize(("most", "jobs"), [(1, 3), (2, 5), (8, 5), (3, 0)])
def test_results_come_in_order_and_no_more_run_than_there_is_room(most: int, jobs: int) -> None:
    lock, now, seen = threading.Lock(), [0], [0]

    def job(n: int) -> int:
        with lock:
            now[0] += 1
            seen[0] = max(seen[0], now[0])
        time.sleep(0.005)
        with lock:
            now[0] -= 1
        return n

    assert all_of([lambda stopping, n=n: job(n) for n in range(jobs)], most) == list(range(jobs))
    assert seen[0] <= min(most, jobs)


def test_after_a_failure_nothing_begins_and_what_runs_is_told() -> None:
    begun, stopped = list[int](), threading.Event()

    def waits(stopping: Callable[[], bool]) -> int:
        end = time.monotonic() + 10
        while not stopping() and time.monotonic() < end:
            time.sleep(0.001)
        stopped.set()
        return 1

    def fails(stopping: Callable[[], bool]) -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        all_of([waits, fails, *[lambda stopping, n=n: begun.append(n) or n for n in range(5)]], most=2)
    assert stopped.is_set()
    assert begun == []


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "s.sqlite") as opened:
        for user in range(12):
            for n in range(2):
                owner = Owner(f"user {user}")
                build("turn-rag").memory(opened, owner.user).add(
                    [{"role": "user", "content": f"note {n} of {user}"}], remember=False
                )
        yield opened


def test_all_users_are_written_at_the_same_time(store: Store, scripted: Any) -> None:
    together = threading.Barrier(12, timeout=10)

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        together.wait()  # passes when there is a call of every user
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), store, scripted(reply))).items == 24


def test_a_slow_user_holds_up_nobody_who_comes_later_either(store: Store, scripted: Any) -> None:
    slow = threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if "of late" in text:
            slow.set()
        elif " of 3" in text:
            build("turn-rag").memory(store, "late").add(
                [{"role": "user", "content": "note of late"}], id="only", remember=False
            )
            assert slow.wait(20)
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), store, scripted(reply))).items == 25


def test_a_failure_leaves_the_rest_queued_and_no_user_claimed(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if " of 3" in text:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    program = build("recursive-summary")
    with pytest.raises(LMServerError):
        remember_queued(Memories(program, store, scripted(reply)))
    queued = sum(one.queued for one in store.users())
    assert queued >= 2
    well = scripted(lambda kind, text, n: {kind: "summary"})
    assert remember_queued(Memories(program, store, well)).items == queued
