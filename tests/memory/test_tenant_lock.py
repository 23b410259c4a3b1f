"""A lock that tenants get one after the other (`memory.tenant_lock`)."""

import threading
import time
from collections.abc import Callable

import pytest
from mempiler.memory.tenant_lock import CURRENT_TENANT, TenantLock

from ..conftest import within


SECONDS_TO_WAIT = 10
"""After so long, a thread that still waits for a lock will wait for ever."""


def finish_in_time(block: Callable[[], None]) -> None:
    """Run a block in a thread of its own, and fail if it hangs.

    Raises:
        BaseException: The error of the block, if it has one.
    """
    errors: list[BaseException] = []

    def run_block() -> None:
        try:
            block()
        except BaseException as error:
            errors.append(error)

    # A daemon, so that a thread that hangs does not keep pytest from ending.
    thread = threading.Thread(target=run_block, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_WAIT)

    if thread.is_alive():
        pytest.fail(f"the lock is not free after {SECONDS_TO_WAIT} seconds")
    if errors:
        raise errors[0]


def join_in_time(threads: list[threading.Thread]) -> None:
    """Wait until all threads have ended, and fail if they do not."""
    has_ended = within(SECONDS_TO_WAIT, lambda: not any(thread.is_alive() for thread in threads))
    assert has_ended, f"threads wait for the lock after {SECONDS_TO_WAIT} seconds"


class WaitingThreads:
    """Threads of several tenants that wait for a lock, one behind the other."""

    def __init__(self, lock: TenantLock) -> None:
        self.lock = lock
        self.tenants_in_order: list[str] = []
        """The tenants that got the lock, in this order."""
        self._threads: list[threading.Thread] = []

    def start(self, tenant: str) -> None:
        """Start a thread of a tenant, and wait until it stands in the queue."""
        waiting_before = self.lock.waiting
        thread = threading.Thread(target=self._hold_lock, args=(tenant,), daemon=True)
        self._threads.append(thread)
        thread.start()
        assert within(SECONDS_TO_WAIT, lambda: self.lock.waiting == waiting_before + 1)

    def join(self) -> None:
        """Wait until every thread has had the lock."""
        join_in_time(self._threads)

    def _hold_lock(self, tenant: str) -> None:
        CURRENT_TENANT.set(tenant)
        with self.lock.hold():
            self.tenants_in_order.append(tenant)


def test_tenant_with_many_threads_holds_up_another_by_one_of_them() -> None:
    lock = TenantLock()
    threads = WaitingThreads(lock)

    with lock.hold():
        for tenant in ("greedy", "greedy", "greedy", "greedy", "modest", "other"):
            threads.start(tenant)
    threads.join()

    expected_order = ["greedy", "modest", "other", "greedy", "greedy", "greedy"]
    assert threads.tenants_in_order == expected_order


def test_one_thread_holds_the_lock_at_a_time() -> None:
    lock = TenantLock()
    holders: list[int] = []

    def hold_lock(number: int) -> None:
        CURRENT_TENANT.set(f"tenant {number % 3}")
        with lock.hold():
            holders.append(number)
            assert holders == [number]
            time.sleep(0.001)
            holders.clear()

    threads = [
        threading.Thread(target=hold_lock, args=(number,), daemon=True) for number in range(30)
    ]
    for thread in threads:
        thread.start()
    join_in_time(threads)

    # A thread whose assertion failed would have left its number behind.
    assert holders == []
    assert_is_free(lock)


def test_error_in_the_block_frees_the_lock() -> None:
    lock = TenantLock()

    with pytest.raises(ValueError, match="broken"), lock.hold():
        raise ValueError("broken")

    assert_is_free(lock)


def test_thread_that_is_interrupted_while_it_waits_leaves_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class InterruptedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    lock = TenantLock()

    def wait_twice() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("mempiler.memory.tenant_lock.threading.Event", InterruptedEvent)
            with lock.hold(), pytest.raises(KeyboardInterrupt), lock.hold():
                pytest.fail("another block holds the lock")

    finish_in_time(wait_twice)

    assert_is_free(lock)


def test_thread_that_is_interrupted_when_it_gets_the_lock_passes_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = TenantLock()
    first_holder = lock.hold()

    class InterruptedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            # The lock is handed over, and the interruption comes before anybody notices.
            first_holder.__exit__(None, None, None)
            raise KeyboardInterrupt

    def wait_for_first_holder() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("mempiler.memory.tenant_lock.threading.Event", InterruptedEvent)
            first_holder.__enter__()
            with pytest.raises(KeyboardInterrupt), lock.hold():
                pytest.fail("the interruption comes first")

    finish_in_time(wait_for_first_holder)

    assert_is_free(lock)


def assert_is_free(lock: TenantLock) -> None:
    """Hold the lock for a moment; fail if somebody else holds it."""

    def hold_lock() -> None:
        with lock.hold():
            assert lock.waiting == 0

    finish_in_time(hold_lock)
