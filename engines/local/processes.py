"""Several processes of one training, as torchrun starts them: the first one leads, the others repeat what its job does.

    first     rollouts, rewards ── step(groups) ──> its share of every batch ──> sum of gradients, step
    others                          repeat(job) ──> their share              ──> the same sum, the same step

Whoever loses another process ends with one line; torchrun then ends the rest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ...errors import UserError
from ...text import one_line

if TYPE_CHECKING:
    from torch import Tensor

Row = TypeVar("Row")
Result = TypeVar("Result")
Given = ParamSpec("Given")

PATIENCE = timedelta(days=7)
"""How long a process waits for the others: the first one samples for hours."""


def rank() -> int:
    """The number of this process among those that torchrun started; 0 leads."""
    return int(os.environ.get("RANK") or 0)


def started_processes() -> int:
    """Return how many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def count() -> int:
    """Processes that train together now."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def local_shard(rows: Sequence[Row]) -> Sequence[Row]:
    """This process's part of rows."""
    return rows[rank() :: count()] if count() > 1 else rows


def connect(number: int = 1) -> None:
    """Join the other processes of a training, if torchrun started any; each takes the GPU of its number.

    Args:
        number: Which training of the other processes it is, counted from 1. The first process counts for itself: it
            may train several models, and the others can be ready for the next one long before.
    """
    import torch
    import torch.distributed as dist

    if started_processes() == 1 or count() > 1:
        return
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Both names are documented in torch.distributed, which lists neither as exported.
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))  # pyright: ignore[reportPrivateImportUsage]
    if rank() == 0:
        number = store.add("trainings", 1)
    # Each training has keys of its own: under those of the one before stand addresses where nobody listens any more.
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpu else "gloo",
        store=dist.PrefixStore(f"training {number}", store),  # pyright: ignore[reportPrivateImportUsage]
        rank=rank(),
        world_size=started_processes(),
        timeout=PATIENCE,
    )


def leave() -> None:
    """Ends what `connect` began; processes that still wait for this one hear of it."""
    import torch.distributed as dist

    if count() > 1:
        dist.destroy_process_group()


def broadcast(said: Any) -> None:
    """Says something to the other processes, where this one leads."""
    if count() > 1 and rank() == 0:
        _broadcast([said])


def receive_broadcast() -> Any:
    """What the first process says next."""
    return _broadcast([None])[0]


def dismiss() -> None:
    """Tell the other processes that no further training comes, where this one leads."""
    if rank() == 0 and started_processes() > 1:
        connect()
        broadcast(None)
        leave()


def on_all_ranks(method: Callable[Concatenate[Any, Given], Result]) -> Callable[Concatenate[Any, Given], Result]:
    """A method of the first process's job that those of the others repeat; where it fails, all end."""

    @functools.wraps(method)
    def done(job: Any, *given: Given.args, **named: Given.kwargs) -> Result:
        try:
            broadcast((method.__name__, given, named))
            return method(job, *given, **named)
        except BaseException:
            leave()
            raise

    return done


def repeat(job: Any) -> None:
    """Does with a job what the first process does with its own, until that ends.

    Raises:
        UserError: Another process has ended.
    """
    command = ""
    while command != "terminate":
        command, given, named = receive_broadcast()
        getattr(job, command)(*given, **named)


def all_reduce_sum(tensors: Sequence[Tensor]) -> None:
    """Replaces tensors by their sums over all processes."""
    import torch.distributed as dist

    for tensor in tensors if count() > 1 else ():
        _together(dist.all_reduce, tensor)


def distributed_map(rows: Sequence[Row], work: Callable[[Sequence[Row]], Sequence[Result]]) -> Sequence[Result]:
    """The results of rows, in order; each process works on its share of them."""
    import torch.distributed as dist

    own = work(local_shard(rows))
    if count() == 1:
        return own
    parts: list[Any] = [None] * count()
    _together(dist.all_gather_object, parts, own)
    return [parts[n % count()][n // count()] for n in range(len(rows))]


def _broadcast(said: list[Any]) -> list[Any]:
    import torch
    import torch.distributed as dist

    _together(dist.broadcast_object_list, said, 0, device=torch.device("cpu"))
    return said


def _together(act: Callable[..., Any], *given: Any, **named: Any) -> None:
    try:
        act(*given, **named)
    except RuntimeError as error:
        raise UserError(
            f"another process of the training has ended, see its message above; go on with --resume RUN "
            f"({one_line(error, 80)})"
        ) from error
