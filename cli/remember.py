"""`mempiler memories remember`: write what is queued, here or in several processes.

The store gives each user to one writer, so processes need to know nothing of each other; they are dealt the users only
so that each has some.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import ALL_TENANTS, JSON, STORE, USER, WORKERS, asking_options, open_asked, open_store
from .rebuild import report, users_of

if TYPE_CHECKING:
    from ..memory.stored import Owner
    from ..serving.writing import Remembered

_log = logging.getLogger("mempiler.cli.remember")


@click.command("remember")
@click.argument("program", type=click.Path())
@STORE
@USER
@ALL_TENANTS
@WORKERS
@JSON
@asking_options
def command(
    program: str, store: str | None, user: str | None, tenant: str | None, workers: Any, as_json: bool, **asking: Any
) -> None:
    """Write whatever is queued into the memories with PROGRAM; of all tenants and users.

    Turns that could not be taken in before are tried once more, in smaller pieces.
    """
    from ..runs.workers import check_workers
    from ..serving.documents import stamp_of

    loaded, name, model = open_asked(program, **asking)
    check_workers(workers, name)
    own = stamp_of(loaded)
    with open_store(store) as opened:
        if workers == 1 or user is not None:
            every = tenant is None and user is None
            owners = [one.owner for one in opened.users() if one.partial] if every else users_of(opened, tenant, user)
            done = written(opened, loaded, model, owners, named=user is not None, queued=every)
        else:
            waiting = [one.owner for one in opened.users(tenant) if one.queued or one.partial]
            done, left = shared(program, store, waiting, workers, asking)
            done += written(opened, loaded, model, left)
        users = opened.users(tenant, user)
    counts = {"sessions": done.items, "failures": len(done.failures), "still queued": sum(one.queued for one in users)}
    counts["partial"] = sum(one.partial for one in users)
    others = sum(one.stamp is not None and not one.stamp.writes_like(own) for one in users)
    report(as_json, counts | ({"users of another program (see mempiler rebuild)": others} if others else {}))


def written(
    opened: Any,
    loaded: Any,
    model: Any,
    owners: Sequence[Owner],
    lease: float | None = None,
    named: bool = False,
    queued: bool = False,
) -> Remembered:
    """Writes what is queued of users, and tries again what could not be taken in.

    Args:
        opened: The store.
        loaded: The program.
        model: The language model.
        owners: The users. Those of another program are passed over, unless `named`.
        lease: Seconds after which others may take over; the usual ones if None.
        named: Whether to refuse users of another program.
        queued: Whether to write then whatever is queued of anybody.
    """
    from ..engines.models import endpoint_errors
    from ..serving.memories import Memories
    from ..serving.writers import all_of, remember_queued
    from ..serving.writing import LEASE, Remembered, remember_user

    memories, lease = Memories(loaded, opened, model), lease or LEASE

    def remembered(owner: Any, stopping: Any) -> Remembered:
        stamp = None if named else opened.read(owner, lambda version: True).stamp
        if stamp is not None and not stamp.writes_like(memories.stamp):
            return Remembered()
        return remember_user(memories, owner, lease, stopping, retry=True)

    with endpoint_errors():
        done = sum(all_of([partial(remembered, owner) for owner in owners]), Remembered())
        return done + remember_queued(memories, lease) if queued else done


def shared(
    program: str,
    store: str | None,
    owners: Sequence[Owner],
    workers: Any,
    asking: dict[str, Any],
    lease: float | None = None,
) -> tuple[Remembered, list[Owner]]:
    """Writes what is queued of users in several processes.

    Args:
        program: The saved program.
        store: Address of the store.
        owners: The users.
        workers: How many processes, or the address of a Ray cluster.
        asking: How the program is loaded and asked, as `open_asked` takes it.
        lease: As `written` takes it.

    Returns:
        What they did, and the users of those that were killed.
    """
    from ..engines.endpoint.lanes import IN_FLIGHT
    from ..runs.workers import count_of, run_parallel
    from ..serving.writing import Remembered

    count = min(count_of(workers), len(owners))
    parts = [owners[n::count] for n in range(count)]
    in_flight = max(1, IN_FLIGHT // max(1, count))
    where = [_absolute(each) for each in (program, store)]
    given = [(*where, part, asking, in_flight, lease) for part in parts]
    done, left = Remembered(), dict(enumerate(parts))
    with closing(run_parallel(write, given, workers)) as found:
        for n, what in found:
            done += what
            del left[n]
    for part in left.values():
        _log.warning("a worker ended before it was through; its %d users are written here", len(part))
    return done, [owner for part in left.values() for owner in part]


def _absolute(address: str | None) -> str | None:
    """A path as other processes find it; addresses stay as they are."""
    return str(Path(address).absolute()) if address and ":/" not in address else address


def write(
    program: str,
    store: str | None,
    owners: Sequence[Owner],
    asking: dict[str, Any],
    in_flight: int,
    lease: float | None,
) -> Generator[Remembered]:
    """What a worker does: writes what is queued of some users, and yields what it did."""
    from ..engines.guard import Guard

    loaded, _, model = open_asked(program, **asking, guard=Guard(in_flight=in_flight))
    with open_store(store) as opened:
        yield written(opened, loaded, model, owners, lease)
