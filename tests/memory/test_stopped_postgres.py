"""A PostgreSQL whose processes are stopped: errors after a time, not hangs; and work again when it goes on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, StoreError
from mempiler.memory.stored import Owner


def processes(server: Any) -> list[int]:
    """The server's main process and its children."""
    main = int((server._folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    return [main, *(int(child) for child in children)]


@contextmanager
def stopped(server: Any) -> Iterator[None]:
    found = processes(server)
    for process in found:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in found:
            os.kill(process, signal.SIGCONT)


def test_a_stopped_server_is_an_error_and_no_hang(postgres: Any) -> None:
    with Store(postgres.emptied(), timeout=1.0) as store:
        store.read(Owner("ada"))
        with stopped(postgres):
            begun = time.monotonic()
            with pytest.raises(StoreError, match=r"has not answered|timeout"):
                store.read(Owner("ada"))
            assert time.monotonic() - begun < 8
        store.read(Owner("ada"))
        store.check()
        store.check()
