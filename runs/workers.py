"""Pieces of work in several processes of this machine, or on the machines of a Ray cluster, which tell what they find.

    told(work, [(a,), (b,)])  ──>  work(a) yields 1, 2     (0, 1), (1, 7), (0, 2), ...     as it comes
                                   work(b) yields 7

A piece that fails without one of our errors, or is killed, is no error here: it tells no more, and who needs the rest
does it again and sees why. The processes end with the one that started them, also if that is killed.

Limits: a Ray cluster has the package, and the files that are named, on every machine at the same path; Ray does nothing
again by itself, since who pays for the calls must know of it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, cast

from ..errors import MempilerError, MissingDependencyError, UserError
from .side_by_side import begin, dspy_level

RAY = "ray"
"""The number of workers that means: as many as Ray's cluster has CPUs."""
PATIENCE = 4.0
"""Seconds that a process has to end in order; less than a command has that was stopped."""
GRACE = 30.0
"""Seconds that calls in flight have to come back, when the work of another process failed: they are paid."""

Work = Callable[..., Iterator[Any]]
"""Does one piece, and yields what it tells; found by its name in the new process."""
Workers = int | str
"""A number of processes, or `RAY`."""


def check_workers(workers: Workers, *models: str | None) -> None:
    """Refuses workers that are none, and models of which each would need a copy.

    Args:
        workers: What was asked for.
        models: Names of the language models that the workers would ask.

    Raises:
        UserError: The message says what to do instead.
    """
    if workers != RAY and not (isinstance(workers, int) and workers >= 1):
        raise UserError(f"workers = {workers!r}: give a number of processes, or {RAY!r}")
    if workers == 1:
        return
    from ..engines.models import GGUF, is_local

    for name in models:
        if name and (is_local(name) or name.startswith(GGUF)):
            raise UserError(f"--workers: each would load {name} for itself; serve it, and name its --api-base")


def count_of(workers: Workers) -> int:
    """How many pieces can be done at the same time.

    Raises:
        MissingDependencyError: Ray is asked for, and not installed.
    """
    return max(1, int(_ray().cluster_resources().get("CPU", 1))) if workers == RAY else int(workers)


def told(work: Work, given: Sequence[tuple[Any, ...]], workers: Workers) -> Generator[tuple[int, Any]]:
    """Does all pieces of work at the same time; closing it ends them.

    Args:
        work: Does one piece.
        given: The arguments of each piece; sent to where it is done.
        workers: Whether Ray says where.

    Yields:
        The number of a piece, and what it told.

    Raises:
        MempilerError: A piece raised it; the others are ended.
    """
    with closing(_from_ray(work, given) if workers == RAY else _from_processes(work, given)) as found:
        for n, what in found:
            if isinstance(what, _Raised):
                raise what.error()
            yield n, what


@dataclass(frozen=True)
class _Raised:
    """An error of ours, which ends the work of all; those that make their own message cannot be pickled."""

    kind: Any
    message: str

    def error(self) -> MempilerError:
        return self.kind(self.message)


def _telling(work: Work, given: tuple[Any, ...]) -> Generator[Any]:
    try:
        # What is printed here would stand between the results.
        with redirect_stdout(sys.stderr):
            yield from work(*given)
    except MempilerError as error:
        kind: Any = type(error) if type(error).__init__ is MempilerError.__init__ else UserError
        yield _Raised(kind, str(error))


def _from_processes(work: Work, given: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Any]]:
    spawn = multiprocessing.get_context("spawn")
    ends: dict[Any, int] = {}
    running: list[Any] = []
    try:
        for n, each in enumerate(given):
            here, there = spawn.Pipe(duplex=False)
            running.append(spawn.Process(target=begin, args=(_send, (there, work, each), dspy_level()), daemon=True))
            with _uninterrupted():
                running[-1].start()
            there.close()
            ends[here] = n
        while ends:
            for here in cast("list[Connection[Any, Any]]", wait(list(ends))):
                try:
                    what = here.recv()
                except (EOFError, OSError):
                    del ends[here]
                    continue
                if isinstance(what, _Raised):
                    _wind_down([process for n, process in enumerate(running) if n != ends[here]])
                yield ends[here], what
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join(PATIENCE)
            process.kill()
            process.join()


class _Enough(BaseException):
    """Nothing else is to be begun."""


def _wind_down(running: Sequence[Any]) -> None:
    """Lets processes finish what they have begun, and begin nothing else."""
    for process in running:
        if process.is_alive():
            os.kill(process.pid, signal.SIGUSR1)
    until = time.monotonic() + GRACE
    for process in running:
        process.join(max(0.0, until - time.monotonic()))


def _enough(number: int, frame: Any) -> NoReturn:
    raise _Enough


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keeps Ctrl-C from a process that is started, which would complain of it before it can be told not to."""
    resource_tracker.ensure_running()  # at its own start it would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(there: Connection, work: Work, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, _enough)
    try:
        with there, closing(_telling(work, given)) as found:
            for what in found:
                there.send(what)
    except _Enough:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    except KeyboardInterrupt:
        os._exit(130)  # Python would wait for calls in flight


def _from_ray(work: Work, given: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Any]]:
    ray = _ray()
    task = ray.remote(max_retries=0, num_returns="streaming")(_telling)
    streams = {task.remote(work, each): n for n, each in enumerate(given)}
    try:
        while streams:
            for stream in ray.wait(list(streams), num_returns=1)[0]:
                try:
                    what = ray.get(next(stream))
                except (StopIteration, ray.exceptions.RayError):
                    del streams[stream]
                    continue
                yield streams[stream], what
    finally:
        for stream in streams:
            ray.cancel(stream, force=True)


def _ray() -> Any:
    """Ray, connected to its cluster; to one of this machine where there is none."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingDependencyError("ray", "ray") from error
    if not ray.is_initialized():
        # The cluster of RAY_ADDRESS or of this machine, or else a new one.
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray
