"""Work that tells what it finds, in processes of its own: what breaks tells no more, and errors of ours end all."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mempiler.errors import EndpointError, MissingDependencyError, UnknownNameError, UserError
from mempiler.runs.workers import told

PATIENCE = 60.0


def work(n: int) -> Iterator[Any]:
    print("what workers print is no result")
    yield n, os.getpid()
    if n == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == 2:
        raise ValueError("a mistake of the work")
    yield "through"


def fail(n: int) -> Iterator[Any]:
    yield os.getpid()
    if n == 0:
        raise UnknownNameError("method", "no-such", ["turn-rag"])
    if n == 1:
        raise EndpointError("the endpoint is gone")
    time.sleep(PATIENCE)


def test_pieces_tell_what_they_find_and_one_that_breaks_tells_no_more() -> None:
    found = list(told(work, [(n,) for n in range(4)], 4))
    assert sorted(n for n, what in found if what == "through") == [0, 3]
    firsts = {n: what for n, what in found if what != "through"}
    assert {n: what[0] for n, what in firsts.items()} == {n: n for n in range(4)}
    assert len({what[1] for what in firsts.values()} | {os.getpid()}) == 5


@pytest.mark.parametrize(("n", "kind", "said"), [(0, UserError, "no-such"), (1, EndpointError, "is gone")])
def test_an_error_of_ours_ends_all_and_is_raised(n: int, kind: type[Exception], said: str) -> None:
    started = time.monotonic()
    with pytest.raises(kind, match=said):
        list(told(fail, [(2,), (n,)], 2))
    assert time.monotonic() - started < PATIENCE / 2
    assert not multiprocessing.active_children()


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match="ray"):
        list(told(work, [(0,)], "ray"))
