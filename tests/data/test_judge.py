"""Many judgements at once: which failure is told when several calls fail, and what is not begun any more."""

import threading
import time

import pytest
from mempiler.data.judge import ask_all


class RefusedError(Exception):
    """Raised by a call that fails."""


def test_replies_stand_in_the_order_of_what_was_asked():
    def ask(number: int) -> int:
        time.sleep(0.01 * (4 - number))
        return 10 * number

    assert ask_all(ask, [1, 2, 3], threads=3) == [10, 20, 30]


def test_the_error_of_the_first_call_in_order_is_raised():
    for _ in range(20):
        all_running = threading.Barrier(8)

        def ask(number: int, all_running: threading.Barrier = all_running) -> None:
            all_running.wait(timeout=10)
            raise RefusedError(number)

        with pytest.raises(RefusedError) as failure:
            ask_all(ask, range(8), threads=8)
        assert failure.value.args == (0,)


def test_an_earlier_call_that_fails_later_is_still_the_first():
    second_failed = threading.Event()

    def ask(number: int) -> None:
        if number == 0:
            second_failed.wait(timeout=10)
            time.sleep(0.05)
        else:
            second_failed.set()
        raise RefusedError(number)

    with pytest.raises(RefusedError) as failure:
        ask_all(ask, [0, 1], threads=2)
    assert failure.value.args == (0,)


def test_after_a_failure_no_further_call_begins():
    begun: list[int] = []

    def ask(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise RefusedError(number)
        time.sleep(0.01)

    with pytest.raises(RefusedError):
        ask_all(ask, range(100), threads=1)
    assert begun[:3] == [0, 1, 2]
    assert len(begun) < 10
