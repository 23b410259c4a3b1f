"""Pieces of work in several processes at the same time, by Ray; they tell what they find.

    run_parallel(work, [(a,), (b,)], 2)  ──>  work(a) yields 1, 2     (0, 1), (1, 7), (0, 2), ...     as it comes
                                              work(b) yields 7

A number of workers starts a Ray of this machine, which ends with this process; an address joins a cluster, which has
the package and the files on every machine at the same path. A piece that fails without one of our errors, or is killed,
tells no more, and who needs the rest does it again.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import socket
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NoReturn

from ..errors import MempilerError, MissingDependencyError, UserError

GRACE = 30.0
"""Seconds that calls in flight have to come back, when the work of another process failed: they are paid."""
STORE = 100 << 20
"""Bytes that a Ray of this machine shares between its processes, which send each other little."""

Work = Callable[..., Iterator[Any]]
"""Does one piece, and yields what it tells."""
Workers = int | str
"""A number of processes, or the address of a Ray cluster."""


def check_workers(workers: Workers, *models: str | None) -> None:
    """Refuses workers that are none, and models of which each would load a copy.

    Raises:
        UserError: The message says what to do instead.
        MissingDependencyError: Ray is not installed.
    """
    if workers == 1:
        return
    if not (isinstance(workers, int) and workers > 1) and ":" not in str(workers) and workers != "auto":
        raise UserError(f"workers = {workers!r}: give a number of processes, or HOST:PORT (or auto) of a Ray cluster")
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError("ray", "ray")
    from ..engines.models import GGUF, is_local

    for name in models:
        if name and (is_local(name) or name.startswith(GGUF)):
            raise UserError(f"--workers: each would load {name} for itself; serve it, and name its --api-base")


def count_of(workers: Workers) -> int:
    """How many pieces can be done at the same time: of a cluster, as many as it has CPUs."""
    return workers if isinstance(workers, int) else max(1, int(_connected(workers).cluster_resources().get("CPU", 1)))


def run_parallel(work: Work, given: Sequence[tuple[Any, ...]], workers: Workers) -> Generator[tuple[int, Any]]:
    """Does pieces of work at the same time, as many as there are workers; closing it ends them.

    Args:
        work: Does one piece, in a process of its own.
        given: The arguments of each piece; sent to where it is done.
        workers: How many, or where.

    Yields:
        The number of a piece, and what it told.

    Raises:
        MempilerError: A piece raised it; the others have ended.
    """
    ray = _connected(workers)
    task = ray.remote(num_cpus=1, max_retries=0, max_calls=1, num_returns="streaming")(_telling)
    streams = {task.remote(work, each): n for n, each in enumerate(given)}
    try:
        while streams:
            for stream in ray.wait(list(streams), num_returns=1)[0]:
                try:
                    what = ray.get(next(stream))
                except (StopIteration, ray.exceptions.RayError) as error:
                    # Ray ends this whole process if it is told to cancel what is completing.
                    del streams[stream]
                    if isinstance(cause := getattr(error, "cause", None), MempilerError):
                        # The others finish what they have begun, and begin nothing else.
                        _cancel(ray, streams, force=False)
                        raise cause from None
                    continue
                yield streams[stream], what
    finally:
        _cancel(ray, streams, force=True)


def _cancel(ray: Any, streams: Collection[Any], force: bool) -> None:
    """Cancels what is not through; unless it is forced, waits for what it has begun."""
    through = [each.completed() for each in streams]
    for each, done in zip(streams, through, strict=True):
        if not ray.wait([done], timeout=0)[0]:
            ray.cancel(each, force=force)
    if through and not force:
        ray.wait(through, num_returns=len(through), timeout=GRACE)


class _CancelledError(BaseException):
    pass


def _telling(work: Work, given: tuple[Any, ...]) -> Generator[Any]:
    # Ray cancels by SIGINT; as KeyboardInterrupt it would not wait for the calls in flight.
    signal.signal(signal.SIGINT, _cancelled)
    try:
        with closing(work(*given)) as found:  # pyright: ignore[reportArgumentType]
            yield from found
    except _CancelledError:
        return
    except MempilerError as error:
        # Those that make their own message cannot be sent.
        kind: Any = type(error) if type(error).__init__ is MempilerError.__init__ else UserError
        raise kind(str(error)) from None


def _cancelled(number: int, frame: Any) -> NoReturn:
    raise _CancelledError


def _connected(workers: Workers) -> Any:
    """Ray, connected; where this process has connected it already, as that is."""
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if isinstance(workers, int):
        ray.init("local", num_cpus=workers, object_store_memory=STORE, include_dashboard=False, **quiet)
        return ray
    try:
        if workers != "auto":
            # Ray itself would try for minutes.
            host, _, port = workers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        ray.init(workers, **quiet)
    except (OSError, ValueError) as error:
        raise UserError(f"--workers {workers}: no Ray cluster answers there: {str(error).splitlines()[0]}") from error
    return ray
