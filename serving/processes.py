"""A service as several processes on one port: started, watched, replaced, and ended in order.

    this process ── listens, answers nothing ──> N processes, each with a socket of its own on the port, its own program
                                                 and threads, over the one store

The system gives each new connection to one of the sockets. They are opened here and outlive the processes that answer:
what waits at the socket of a process that died waits for the one that takes its place. Users are claimed through the
store, so no two processes write one user at once; every limit of the settings holds for each process.

Limits: Linux spreads connections evenly, other systems may give all of them to one process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from ..errors import UserError
from .logs import log
from .server import listen

LOOK = 0.5
"""Seconds between two looks whether a signal came."""
LONGEST_PAUSE = 30.0
"""Seconds between two starts of a process that ends before it serves."""
PATIENCE = 10.0
"""Seconds that a process has to end beyond its grace, before it is killed."""

Answer = Callable[[socket.socket, Callable[[], None]], None]
"""Serves at a socket until SIGTERM, and calls what it is given as soon as it does."""


def share(answer: Answer, host: str, port: int, workers: int, grace: float) -> None:
    """Serves with several processes until a signal comes; a second one ends them at once.

    Args:
        answer: What each process does; found by its name in the new process, with arguments that can be sent there.
        host: The address to listen at.
        port: The port; 0 for a free one, which the log names.
        workers: How many processes.
        grace: Seconds that each has to finish what it does.

    Raises:
        UserError: The port is taken, or no process could start.
    """
    # Two services of one user would divide the connections of a port between them unseen.
    with listen(host, port) as alone:
        port = alone.getsockname()[1]
    sockets = [listen(host, port, shared=True) for _ in range(workers)]
    _Processes(answer, sockets, grace).run(host, port)


class _Processes:
    """The processes of a service."""

    def __init__(self, answer: Answer, sockets: list[socket.socket], grace: float) -> None:
        self._answer, self._grace = answer, grace
        self._stopping = threading.Event()
        self._places = [_Place(bound) for bound in sockets]

    def run(self, host: str, port: int) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        log.info("listening", extra={"host": host, "port": port, "workers": len(self._places)})
        try:
            # One first: what keeps it from starting would keep all, and is said once.
            self._watch(self._places[:1], lambda: self._places[0].serves)
            self._watch(self._places, lambda: False)
        finally:
            self._stop()

    def _signalled(self, number: int, frame: Any) -> None:
        if self._stopping.is_set():
            for place in self._places:
                place.kill()
        self._stopping.set()

    def _watch(self, places: list[_Place], done: Callable[[], bool]) -> None:
        """Keeps a process in each place until that is enough, or a signal comes."""
        while not self._stopping.is_set() and not done():
            for place in places:
                place.fill(self._answer)
            wait([place.process.sentinel for place in places if place.process is not None], LOOK)

    def _stop(self) -> None:
        for place in self._places:
            place.terminate()
        until = time.monotonic() + self._grace + PATIENCE
        for place in self._places:
            place.end(until)


class _Place:
    """A socket, and the process that answers there."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self._pause, self._not_before = 0.0, 0.0
        self._served = False
        self._started: Any = None
        self.process: Any = None

    @property
    def serves(self) -> bool:
        """Whether its process has begun to serve."""
        return self.process is not None and self._started.is_set()

    def fill(self, answer: Answer) -> None:
        """Starts a process where there is none.

        Raises:
            UserError: The first one ended before it served.
        """
        if self.process is not None and not self.process.is_alive():
            self._ended()
        if self.process is None and time.monotonic() >= self._not_before:
            spawn = multiprocessing.get_context("spawn")
            self._started = spawn.Event()
            self.process = spawn.Process(target=_begin, args=(answer, self._bound, self._started))
            self.process.start()

    def terminate(self) -> None:
        """Tells the process to end."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """Ends the process at once."""
        if self.process is not None:
            self.process.kill()

    def end(self, until: float) -> None:
        """Waits for the process, and kills it when it is late."""
        if self.process is not None:
            self.process.join(max(0.0, until - time.monotonic()))
            self.kill()
            self.process.join()
        self._bound.close()

    def _ended(self) -> None:
        served, code = self.serves, self.process.exitcode
        self._served = self._served or served
        self.process = None
        if not self._served:
            raise UserError("the service did not start; the line before this one says why")
        self._pause = 0.0 if served else min(LONGEST_PAUSE, max(1.0, 2 * self._pause))
        self._not_before = time.monotonic() + self._pause
        log.warning("a process ended, another takes its place", extra={"code": code, "pause": self._pause})


def _begin(answer: Answer, bound: socket.socket, started: Any) -> None:
    # Ctrl-C goes to the whole group of a terminal; the process that started this one says when to end.
    os.setpgrp()
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    answer(bound, started.set)
    sys.stderr.flush()


def _end_with(owner: Any) -> None:
    owner.join()
    os.kill(os.getpid(), signal.SIGTERM)
