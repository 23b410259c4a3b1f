"""`mempiler memories rebuild`: writes stored memories from their sessions, here or in several processes.

The store gives each user to one writer, so processes need to know nothing of each other; they are dealt the users only
so that each has some.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..errors import UserError
from .options import ALL_TENANTS, JSON, STORE, USER, WORKERS, asking_options, open_asked, open_store
from .printing import output, report

if TYPE_CHECKING:
    from ..memory.stored import Owner
    from ..serving.writing import Remembered

_log = logging.getLogger("mempiler.cli.rebuild")

What = Literal["queued", "failed", "all"]
"""What is written of a user: whatever waits; what could not be written before; and what another program wrote, too."""


@click.command("rebuild")
@click.argument("program", type=click.Path())
@STORE
@USER
@ALL_TENANTS
@click.option("--queued", is_flag=True, help="only what is queued; memories that another program wrote are left alone")
@click.option("--failed", is_flag=True, help="only sessions, and parts of sessions, that could not be written before")
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
@WORKERS
@JSON
@asking_options
def command(
    program: str,
    store: str | None,
    user: str | None,
    tenant: str | None,
    queued: bool,
    failed: bool,
    force: bool,
    workers: Any,
    as_json: bool,
    **asking: Any,
) -> None:
    """Write memories with PROGRAM: what is queued, and anew what another program or embedder wrote.

    Of all tenants and users, unless one is named. Stopped half way, the same command goes on, with --force or without:
    what it had written is not written again. Turns that could not be taken in before are tried once more.
    """
    from ..runs.workers import check_workers
    from ..serving.memories import stamp_of

    if queued + failed + force > 1:
        raise UserError("--queued, --failed and --force each say what is written; give one of them")
    what: What = "queued" if queued else "failed" if failed else "all"
    loaded, name, model = open_asked(program, **asking)
    check_workers(workers, name)
    own = stamp_of(loaded)
    with open_store(store) as opened:
        owners = users_of(opened, tenant, user)
        if force:
            _plan(opened, owners, own.writer, tenant, user)
        if queued and user is None:
            owners = [one.owner for one in opened.users(tenant) if one.queued or one.partial]
        if workers == 1 or user is not None:
            done = written(opened, loaded, model, owners, what, named=user is not None)
        else:
            done, left = shared(program, store, owners, workers, asking, what)
            done += written(opened, loaded, model, left, what)
        users = opened.users(tenant, user)
    others = sum(one.stamp is not None and not one.stamp.writes_like(own) for one in users)
    counts = {"users": len(users), "sessions": done.items, "failures": len(done.failures)}
    left = {"still queued": sum(one.queued for one in users), "partial": sum(one.partial for one in users)}
    left["users of another program"] = others
    report(as_json, counts | {name: count for name, count in left.items() if count or as_json})


def users_of(opened: Any, tenant: str | None, user: str | None) -> list[Any]:
    """The users of a store, or those of one tenant or one name.

    Raises:
        UserError: One is named, and is not there.
    """
    from ..memory.stored import name_of

    tenant = name_of("tenant", tenant) if tenant is not None else None
    user = name_of("user", user) if user is not None else None
    found = [one.owner for one in opened.users(tenant, user)]
    if user is not None and not found:
        raise UserError(f"no user {user!r} in {opened.url}; `mempiler memories list` shows all")
    return found


def written(
    opened: Any,
    loaded: Any,
    model: Any,
    owners: Sequence[Owner],
    what: What = "queued",
    lease: float | None = None,
    named: bool = False,
) -> Remembered:
    """Writes memories of users, many at the same time.

    Args:
        opened: The store.
        loaded: The program.
        model: The language model.
        owners: The users.
        what: What of theirs is written.
        lease: Seconds after which others may take over; the usual ones if None.
        named: Whether to refuse a user of another program, where only what is queued is written.
    """
    from ..engines.models import endpoint_errors
    from ..serving.memories import Memories
    from ..serving.user_memory import UserMemory
    from ..serving.writers import all_of
    from ..serving.writing import LEASE, Remembered, remember_user

    memories = Memories(loaded, opened, model)

    def remembered(owner: Any, stopping: Any) -> Remembered:
        if what != "queued":
            memory = UserMemory(memories, owner, stop=stopping)
            return memory.retry() if what == "failed" else memory.rebuild()
        stamp = None if named else opened.read(owner, lambda version: True).stamp
        if stamp is not None and not stamp.writes_like(memories.stamp):
            return Remembered()
        return remember_user(memories, owner, lease or LEASE, stopping, retry=True)

    with endpoint_errors():
        return sum(all_of([partial(remembered, owner) for owner in owners]), Remembered())


def shared(
    program: str,
    store: str | None,
    owners: Sequence[Owner],
    workers: Any,
    asking: dict[str, Any],
    what: What = "queued",
    lease: float | None = None,
) -> tuple[Remembered, list[Owner]]:
    """Writes memories of users in several processes.

    Args:
        program: The saved program.
        store: Address of the store.
        owners: The users.
        workers: How many processes, or the address of a Ray cluster.
        asking: How the program is loaded and asked, as `open_asked` takes it.
        what: As `written` takes it, like all that follow.
        lease: Seconds after which others may take over.

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
    given = [(*where, part, asking, in_flight, what, lease) for part in parts]
    done, left = Remembered(), dict(enumerate(parts))
    with closing(run_parallel(write, given, workers)) as found:
        for n, made in found:
            done += made
            del left[n]
    for part in left.values():
        _log.warning("a worker ended before it was through; its %d users are written here", len(part))
    return done, [owner for part in left.values() for owner in part]


def write(
    program: str,
    store: str | None,
    owners: Sequence[Owner],
    asking: dict[str, Any],
    in_flight: int,
    what: What,
    lease: float | None,
) -> Generator[Remembered]:
    """What a worker does: writes memories of some users, and yields what it did."""
    from ..engines.guard import Guard

    loaded, _, model = open_asked(program, **asking, guard=Guard(in_flight=in_flight))
    with open_store(store) as opened:
        yield written(opened, loaded, model, owners, what, lease)


def _absolute(address: str | None) -> str | None:
    """A path as other processes find it; addresses stay as they are."""
    return str(Path(address).absolute()) if address and ":/" not in address else address


def _plan(opened: Any, owners: Sequence[Any], writer: str, tenant: str | None, user: str | None) -> None:
    """Notes whom a forced rebuild is to write: all, unless one was stopped; that one goes on."""
    left = opened.rebuilds(writer, tenant, user)
    if not left:
        opened.plan_rebuild(owners, writer)
        return
    begun = datetime.fromtimestamp(min(one.since for one in left), UTC)
    told = f"going on with the rebuild of {begun:%Y-%m-%d %H:%M} UTC: {len(left)} of {len(owners)} users are left"
    output(errors=True).print(told, soft_wrap=True)
