"""Writes that come at the same time share a transaction: each is there when its call returns, and fails alone."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mempiler import Session, Store, StoreError, Turn
from mempiler.memory.stored import Owner
from sqlalchemy import event


def session(text: str, id: str = "") -> Session:
    return Session(id=id, turns=(Turn(id="", speaker="Ada", text=text),))


def texts(store: Store, owner: Owner) -> list[str]:
    return [stored.item.turns[0].text for stored in store.items(owner)]


def together(store: Store, calls: list[Callable[[], Any]]) -> list[Any]:
    """Makes calls while somebody writes, so that all of them wait; returns what each returned or raised."""

    def tried(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(max(1, len(calls))) as pool:
        with store._turn:
            running = [pool.submit(tried, call) for call in calls]
            waited = threading.Event()
            for _ in range(500):
                if len(store._writes) == len(calls):
                    break
                waited.wait(0.01)
        return [one.result(30) for one in running]


def commits(store: Store) -> list[int]:
    seen: list[int] = []
    event.listen(store._engine, "commit", lambda connection: seen.append(1))
    return seen


def test_write_that_cannot_be_committed_fails_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.add(Owner("ada"), session("first"))

        def limit(connection: Any) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 8}")

        event.listen(store._engine, "begin", limit)
        large = lambda: store.add(Owner("bob"), session("large " * 50_000), since=0)  # noqa: E731
        small = [lambda n=n: store.add(Owner(f"user-{n}"), session(f"note {n}"), since=0) for n in range(3)]
        found = together(store, [small[0], large, *small[1:]])
        assert [type(one).__name__ for one in found] == ["Added", "StoreError", "Added", "Added"]
        assert "disk is full" in str(found[1])
        assert [texts(store, Owner(f"user-{n}")) for n in range(3)] == [[f"note {n}"] for n in range(3)]
        assert texts(store, Owner("bob")) == []


def test_file_that_somebody_holds_is_waited_for_once(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite", timeout=0.5) as store, Store(tmp_path / "s.sqlite") as other:
        done = threading.Event()

        def hold() -> None:
            with other._write():
                held.set()
                done.wait(20)

        held = threading.Event()
        holding = threading.Thread(target=hold)
        holding.start()
        assert held.wait(10)
        timer = threading.Timer(2.0, done.set)
        timer.start()
        # Each of them alone would wait half a second: the last would find the file free.
        add = [lambda n=n: store.add(Owner(f"user-{n}"), session(f"note {n}"), since=0) for n in range(8)]
        found = together(store, add)
        holding.join()
    assert [isinstance(one, StoreError) for one in found] == [True] * 8


def test_interrupted_writer_leaves_the_others_to_be_written(tmp_path: Path) -> None:
    class Stopped(BaseException):
        pass

    begun, go = threading.Event(), threading.Event()

    def stop(db: Any) -> None:
        begun.set()
        go.wait(10)
        raise Stopped

    def interrupted() -> None:
        with pytest.raises(Stopped):
            store._commit(stop)

    with Store(tmp_path / "s.sqlite") as store:
        first = threading.Thread(target=interrupted)
        first.start()
        assert begun.wait(10)
        second = threading.Thread(target=lambda: store.add(Owner("ada"), session("after"), since=0))
        second.start()
        go.set()
        first.join(10)
        second.join(10)
        assert texts(store, Owner("ada")) == ["after"]
