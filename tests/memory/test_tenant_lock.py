"""A lock that tenants get one after the other (`memory.tenant_lock`)."""

import threading
import time

import pytest
from mempiler.memory.tenant_lock import CURRENT_TENANT, TenantLock

from ..conftest import within


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
        thread = threading.Thread(target=self._hold_lock, args=(tenant,))
        self._threads.append(thread)
        thread.start()
        assert within(10, lambda: self.lock.waiting == waiting_before + 1)

    def join(self) -> None:
        """Wait until every thread has had the lock."""
        for thread in self._threads:
            thread.join(10)

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

    threads = [threading.Thread(target=hold_lock, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

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

    monkeypatch.setattr("mempiler.memory.tenant_lock.threading.Event", InterruptedEvent)
    lock = TenantLock()

    with lock.hold(), pytest.raises(KeyboardInterrupt), lock.hold():
        pytest.fail("another block holds the lock")

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

    monkeypatch.setattr("mempiler.memory.tenant_lock.threading.Event", InterruptedEvent)
    first_holder.__enter__()

    with pytest.raises(KeyboardInterrupt), lock.hold():
        pytest.fail("the interruption comes first")

    assert_is_free(lock)


def assert_is_free(lock: TenantLock) -> None:
    """Hold the lock for a moment; if somebody else held it, this would wait for ever."""
    with lock.hold():
        assert lock.waiting == 0
