"""A lock that tenants get one after the other (`memory.tenant_lock`).

A tenant is a customer of a service. With a plain lock, a tenant with a hundred waiting threads
would hold up another tenant a hundred times.
"""

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from mempiler.memory.tenant_lock import CURRENT_TENANT, TenantLock

from ..conftest import within

SECONDS_TO_WAIT = 10
"""After so long, a thread that still waits for a lock will wait for ever."""


def join_in_time(threads: list[threading.Thread]) -> None:
    """Wait until all threads have ended, and fail if they do not."""
    have_ended = within(SECONDS_TO_WAIT, lambda: not any(thread.is_alive() for thread in threads))
    assert have_ended, f"threads still wait for the lock after {SECONDS_TO_WAIT} seconds"


def assert_is_free(lock: TenantLock) -> None:
    """Let another thread hold the lock for a moment; fail if it does not get it."""
    assert lock.waiting == 0
    was_held = threading.Event()

    def hold_lock() -> None:
        with lock.hold():
            was_held.set()

    # A daemon, so that a thread that hangs does not keep pytest from ending.
    thread = threading.Thread(target=hold_lock, daemon=True)
    thread.start()
    join_in_time([thread])

    assert was_held.is_set()


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


def test_tenant_with_many_threads_delays_another_tenant_by_one_of_them_only() -> None:
    lock = TenantLock()
    threads = WaitingThreads(lock)

    with lock.hold():
        threads.start("greedy")
        threads.start("greedy")
        threads.start("greedy")
        threads.start("greedy")
        threads.start("modest")
        threads.start("other")
    threads.join()

    assert threads.tenants_in_order == [
        "greedy",
        "modest",
        "other",
        "greedy",
        "greedy",
        "greedy",
    ]


def test_one_thread_holds_the_lock_at_a_time() -> None:
    lock = TenantLock()
    current_holders: list[int] = []
    holders_at_once: list[int] = []

    def hold_lock(number: int) -> None:
        CURRENT_TENANT.set(f"tenant {number % 3}")
        with lock.hold():
            current_holders.append(number)
            # Other threads run now. They would add themselves to the holders if they could.
            time.sleep(0.001)
            holders_at_once.append(len(current_holders))
            current_holders.remove(number)

    threads = [
        threading.Thread(target=hold_lock, args=(number,), daemon=True) for number in range(30)
    ]
    for thread in threads:
        thread.start()
    join_in_time(threads)

    assert holders_at_once == [1] * 30
    assert_is_free(lock)


def test_error_in_the_block_frees_the_lock() -> None:
    lock = TenantLock()

    with pytest.raises(ValueError, match="broken"), lock.hold():
        raise ValueError("broken")

    assert_is_free(lock)


# Ctrl-C while a thread waits for the lock. Only the main thread, which runs pytest, learns of it.


@pytest.fixture
def _ctrl_c_raises() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, as in a program; workers of pytest-xdist ignore it."""
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler_before)


def press_ctrl_c() -> None:
    """Send the main thread the signal that Ctrl-C sends."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_thread_that_is_interrupted_while_it_waits_leaves_the_queue() -> None:
    lock = TenantLock()

    def interrupt_waiting_thread() -> None:
        within(SECONDS_TO_WAIT, lambda: lock.waiting == 1)
        # The thread is in the queue; after a moment it also sleeps.
        time.sleep(0.05)
        press_ctrl_c()

    interrupter = threading.Thread(target=interrupt_waiting_thread, daemon=True)
    with lock.hold():
        interrupter.start()
        # The thread waits for a lock that it holds itself, so that only Ctrl-C ends the wait.
        with pytest.raises(KeyboardInterrupt), lock.hold():
            pytest.fail("the lock was held twice")
    interrupter.join()

    assert_is_free(lock)


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("attempt", range(10))
def test_thread_that_is_interrupted_when_it_gets_the_lock_passes_it_on(attempt: int) -> None:
    """Ctrl-C comes in the moment in which the first thread hands the lock to the main thread.

    The moment is not the same each time, so the test tries it ten times.
    """
    lock = TenantLock()
    is_held = threading.Event()

    def free_lock_and_interrupt() -> None:
        with lock.hold():
            is_held.set()
            within(SECONDS_TO_WAIT, lambda: lock.waiting == 1)
            time.sleep(0.02)
        # The lock now belongs to the main thread, which nearly always learns of Ctrl-C first.
        press_ctrl_c()

    first_holder = threading.Thread(target=free_lock_and_interrupt, daemon=True)
    first_holder.start()
    assert is_held.wait(SECONDS_TO_WAIT)
    with pytest.raises(KeyboardInterrupt), lock.hold():
        # If the interruption comes too late to meet the handover, it comes here.
        time.sleep(SECONDS_TO_WAIT)
    first_holder.join()

    assert_is_free(lock)
