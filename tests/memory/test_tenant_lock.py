"""A lock that tenants hold in turns."""

import threading
import time

import pytest
from mempiler.memory.tenant_lock import CURRENT_TENANT, TenantLock

from ..conftest import within


class Crowd:
    """Threads of tenants that wait for a lock; `order` says who held it."""

    def __init__(self, lock: TenantLock) -> None:
        self.lock = lock
        self.order = list[str]()
        self._threads = list[threading.Thread]()

    def join_queue(self, tenant: str) -> None:
        before = self.lock.waiting
        thread = threading.Thread(target=self._hold, args=(tenant,))
        self._threads.append(thread)
        thread.start()
        assert within(10, lambda: self.lock.waiting == before + 1)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(10)

    def _hold(self, tenant: str) -> None:
        CURRENT_TENANT.set(tenant)
        with self.lock.hold():
            self.order.append(tenant)


def test_a_tenant_with_many_threads_holds_up_another_by_one() -> None:
    lock = TenantLock()
    crowd = Crowd(lock)
    with lock.hold():
        for tenant in ("greedy", "greedy", "greedy", "greedy", "modest", "other"):
            crowd.join_queue(tenant)
    crowd.wait()
    assert crowd.order == ["greedy", "modest", "other", "greedy", "greedy", "greedy"]


def test_one_holds_it_at_a_time_and_an_error_gives_it_on() -> None:
    lock = TenantLock()
    inside = list[int]()

    def work(number: int) -> None:
        CURRENT_TENANT.set(str(number % 3))
        with lock.hold():
            inside.append(number)
            assert inside == [number]
            time.sleep(0.001)
            inside.clear()

    with pytest.raises(ValueError, match="broken"), lock.hold():
        raise ValueError("broken")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (lock.waiting, inside) == (0, [])
    with lock.hold():
        pass


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_who_is_interrupted_while_waiting_leaves_the_lock_to_others(
    monkeypatch: pytest.MonkeyPatch, is_handed_over: bool
) -> None:
    lock = TenantLock()

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if is_handed_over:
                holder.__exit__(None, None, None)
            raise KeyboardInterrupt

    monkeypatch.setattr("mempiler.memory.tenant_lock.threading.Event", Interrupted)
    holder = lock.hold()
    holder.__enter__()
    with pytest.raises(KeyboardInterrupt), lock.hold():
        pytest.fail("it is held by another one")
    if not is_handed_over:
        holder.__exit__(None, None, None)
    assert lock.waiting == 0
    with lock.hold():
        pass
