"""The processes of one training, as torchrun starts them.

The first process leads: it samples, rewards, and calls the methods of its job. The others follow:
each repeats these calls on a job of its own. A step splits the rows of a batch into shards, one
for each process, and sums the gradients, so that all processes take the same step.

    first process     rollouts, rewards -> job.step(groups) -> gradients of shard 0 -> sum -> step
    other processes         repeat(job) -> job.step(groups) -> gradients of shard n -> sum -> step

If a process is lost, the processes that wait for it end with one line; torchrun ends the rest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ...errors import UserError
from ...text import one_line

if TYPE_CHECKING:
    from torch import Tensor

Job = TypeVar("Job")
Row = TypeVar("Row")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

TIMEOUT = timedelta(days=7)
"""How long a process waits for the others: the first process samples for hours between steps."""
LAST_METHOD = "terminate"
"""The method of a job after which no other follows."""


class MethodCall(NamedTuple):
    """A call that the first process makes on its job, for the others to repeat."""

    method: str
    arguments: tuple[Any, ...]
    named_arguments: Mapping[str, Any]


def rank() -> int:
    """Return the number of this process, counted from 0; process 0 leads."""
    return int(os.environ.get("RANK") or 0)


def started_processes() -> int:
    """Return how many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def count() -> int:
    """Return how many processes are connected now."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


def connect(number: int = 1) -> None:
    """Connect the processes that torchrun started for one training, and give each its GPU.

    Without torchrun, or if they are connected, nothing happens.

    Args:
        number: Which training the caller follows, counted from 1. In the first process it has no
            effect: that process counts the trainings itself, in torchrun's store.
    """
    import torch
    import torch.distributed as dist

    if started_processes() == 1 or count() > 1:
        return

    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    # rendezvous and PrefixStore are documented in torch.distributed, which exports neither.
    rendezvous = dist.rendezvous("env://", timeout=TIMEOUT)  # pyright: ignore[reportPrivateImportUsage]
    # A store of keys and values that all processes share, as long as torchrun lives.
    store, _, _ = next(rendezvous)
    if rank() == 0:
        number = store.add("trainings", 1)

    # The processes of a training find each other under keys with the number of the training. Under
    # the keys of the previous one there are still addresses where nobody listens any more.
    prefix = f"training {number}"
    training_store = dist.PrefixStore(prefix, store)  # pyright: ignore[reportPrivateImportUsage]

    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if has_gpu else "gloo",
        store=training_store,
        rank=rank(),
        world_size=started_processes(),
        timeout=TIMEOUT,
    )


def leave() -> None:
    """Disconnect this process; others that wait for it get an error."""
    import torch.distributed as dist

    if count() > 1:
        dist.destroy_process_group()


def broadcast(value: Any) -> None:
    """Send a value from the first process to all others; in another process do nothing."""
    if count() > 1 and rank() == 0:
        _broadcast_from_first(value)


def receive_broadcast() -> Any:
    """Wait for the next value that the first process sends."""
    return _broadcast_from_first(None)


def dismiss() -> None:
    """Tell the other processes that no training follows; in another process do nothing."""
    if rank() == 0 and started_processes() > 1:
        connect()
        broadcast(None)
        leave()


def on_all_ranks(
    method: Callable[Concatenate[Job, Parameters], Result],
) -> Callable[Concatenate[Job, Parameters], Result]:
    """Decorate a method of a job, so that the other processes repeat what the first one calls.

    A process in which the method fails disconnects, so that no other waits for it.
    """

    @functools.wraps(method)
    def call_on_all_ranks(job: Job, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            broadcast(MethodCall(method.__name__, args, kwargs))
            return method(job, *args, **kwargs)
        except BaseException:
            leave()
            raise

    return call_on_all_ranks


def repeat(job: Any) -> None:
    """Call on a job, in a following process, what the first process calls on its own job.

    It returns after the last call, of `LAST_METHOD`.

    Args:
        job: A job of the same kind; `on_all_ranks` decorates the methods whose calls are repeated.

    Raises:
        UserError: Another process has ended.
    """
    while True:
        call: MethodCall = receive_broadcast()
        getattr(job, call.method)(*call.arguments, **call.named_arguments)
        if call.method == LAST_METHOD:
            return


def local_shard(rows: Sequence[Row]) -> Sequence[Row]:
    """Return this process's part of the rows: every n-th one, of n processes."""
    if count() == 1:
        return rows
    return rows[rank() :: count()]


def gather_shards(shard_results: Sequence[Result], row_count: int) -> Sequence[Result]:
    """Return the results of all rows, in the order of the rows.

    Args:
        shard_results: The results of this process's `local_shard`.
        row_count: Rows in all shards.

    Raises:
        UserError: Another process has ended.
    """
    import torch.distributed as dist

    process_count = count()
    if process_count == 1:
        return shard_results

    results_by_rank: list[Any] = [None] * process_count
    with _lost_process_as_user_error():
        dist.all_gather_object(results_by_rank, shard_results)
    results: list[Result] = []
    for row in range(row_count):
        shard = results_by_rank[row % process_count]
        results.append(shard[row // process_count])
    return results


def all_reduce_sum(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor, in place, by its sum over all processes.

    Raises:
        UserError: Another process has ended.
    """
    import torch.distributed as dist

    if count() == 1:
        return
    for tensor in tensors:
        with _lost_process_as_user_error():
            dist.all_reduce(tensor)


def _broadcast_from_first(value: Any) -> Any:
    """Return the first process's value, in every process; the values of the others are ignored."""
    import torch
    import torch.distributed as dist

    values = [value]
    with _lost_process_as_user_error():
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
    return values[0]


@contextmanager
def _lost_process_as_user_error() -> Iterator[None]:
    """Turn torch's error about a process that is gone into a UserError that says how to go on."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"another process of the training has ended, see its message above; "
            f"go on with --resume RUN ({one_line(error, 80)})"
        ) from error
