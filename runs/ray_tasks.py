"""Run a function on several inputs at the same time, each in a process of its own, by Ray.

    for output in run_in_processes(answer_shard, shards, workers=4):
        output.number, output.value

A number of workers starts a Ray of this machine. An address joins a cluster, which must have the
package and the files on every machine at the same path.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import MempilerError, UserError
from ..text import one_line
from .config import Workers

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

OBJECT_STORE_BYTES = 100 << 20
"""Memory that a Ray of this machine shares between its processes; they send each other little."""
CONNECT_SECONDS = 5
"""How long a cluster may take to accept a connection."""


@dataclass(frozen=True)
class TaskOutput(Generic[OutputT]):
    """One of the values that a process yields."""

    number: int
    """Which input the process works on, from 0."""
    value: OutputT


def run_in_processes(
    function: Callable[[InputT], Iterator[OutputT]], inputs: Sequence[InputT], workers: Workers
) -> Generator[TaskOutput[OutputT]]:
    """Call a function on every input, each in its own process, and yield values as they come.

    Closing the generator ends the processes. A process that is killed, or fails with an error that
    is not a MempilerError, yields no more values.

    Args:
        function: What each process does with its input; it yields values.
        inputs: One input for each process.
        workers: How many processes run at the same time, or the address of a Ray cluster.

    Raises:
        UserError: An input cannot be sent to another process.
        MempilerError: A process raised it. The others have come to their end before, because the
            calls that they had begun are paid.
    """
    ray = connect_ray(workers)
    task = ray.remote(num_cpus=1, max_retries=0, max_calls=1, num_returns="streaming")(_run_task)
    try:
        numbers = {task.remote(function, value): n for n, value in enumerate(inputs)}
    except ray.exceptions.RayError:
        raise
    except Exception as error:
        # A user's object may raise anything while it is pickled. Ray's own message quotes the
        # whole input.
        reason = one_line(error.__cause__ or error, 100)
        raise UserError(
            f"--workers: a model or metric of your own cannot be sent to another process ({reason})"
            "; name a model that is behind an endpoint, or leave workers out"
        ) from error

    first_error: MempilerError | None = None
    try:
        while numbers:
            [stream], _ = ray.wait(list(numbers), num_returns=1)
            try:
                value = ray.get(next(stream))
            except (StopIteration, ray.exceptions.RayError) as error:
                # The process has ended, or failed.
                del numbers[stream]
                cause = getattr(error, "cause", None)
                if first_error is None and isinstance(cause, MempilerError):
                    first_error = cause
                continue
            yield TaskOutput(numbers[stream], value)
        if first_error is not None:
            raise first_error
    finally:
        for stream in numbers:
            # Ray ends this whole process if it is told to cancel what is completing.
            is_completing = bool(ray.wait([stream.completed()], timeout=0)[0])
            if not is_completing:
                ray.cancel(stream, force=True)


def _run_task(function: Callable[[InputT], Iterator[OutputT]], value: InputT) -> Generator[OutputT]:
    """Call a function in this process, which Ray has started, and yield its values."""
    try:
        yield from function(value)
    except MempilerError as error:
        # Ray pickles the error, and the other process makes it again from its message alone. That
        # fails for the few classes with other arguments, such as `UnknownNameError`. They are all
        # errors of the user's, so a UserError with the same message stands for them.
        error_class = type(error)
        if error_class.__init__ is not MempilerError.__init__:
            error_class = UserError
        raise error_class(str(error)) from None


def connect_ray(workers: Workers) -> Any:
    """Return Ray's module, connected to its processes; it has no types.

    If this process has connected it already, that connection stays.

    Args:
        workers: How many processes a Ray of this machine may run, or the address of a cluster.

    Raises:
        UserError: No cluster answers at the address.
    """
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        return ray

    # Without telemetry.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if isinstance(workers, int):
        ray.init(
            "local",
            num_cpus=workers,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            **quiet,
        )
        return ray

    try:
        if workers != "auto":
            _check_address(workers)
        ray.init(workers, **quiet)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--workers {workers}: no Ray cluster answers there: {reason}") from error
    return ray


def _check_address(address: str) -> None:
    """Raise an OSError or ValueError if nothing listens at HOST:PORT.

    Ray itself would try for minutes.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
