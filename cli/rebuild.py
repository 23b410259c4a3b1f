"""`mempiler memories rebuild`: writes stored memories from their sessions.

The store gives each user to one writer: the same command may run several times at once, on other machines too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from .options import ALL_TENANTS, JSON, STORE, USER, asking_options, open_asked, open_store
from .printing import as_json, report

if TYPE_CHECKING:
    from ..serving.writing import Remembered


@click.command("rebuild")
@click.argument("program", type=click.Path())
@STORE
@USER
@ALL_TENANTS
@click.option("--queued", is_flag=True, help="only what is queued; memories that another program wrote are left alone")
@click.option("--failed", is_flag=True, help="only sessions, and parts of sessions, that could not be written before")
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
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
    **asking: Any,
) -> None:
    """Write memories with PROGRAM: what is queued, and anew what another program or embedder wrote.

    Of all tenants and users, unless one is named. Stopped half way, the same command without --force goes on: what it
    had written is not written again. Turns that could not be taken in before are tried once more.
    """
    from ..engines.models import endpoint_errors
    from ..programs.gather import gather
    from ..serving.memories import Memories, stamp_of
    from ..serving.writing import Remembered

    if queued + failed + force > 1:
        raise UserError("--queued, --failed and --force each say what is written; give one of them")
    loaded, _, model = open_asked(program, asking)
    own, stopped = stamp_of(loaded), threading.Event()
    with open_store(store) as opened:
        owners = users_of(opened, tenant, user)
        for owner in owners if force else ():
            opened.reset(owner)
        if queued and user is None:
            owners = [one.owner for one in opened.users(tenant) if one.queued or one.partial]
        memories = Memories(loaded, opened, model)

        def written(owner: Any) -> Remembered:
            try:
                return Remembered() if stopped.is_set() else _written(memories, owner, queued, failed, user, stopped)
            except BaseException:
                stopped.set()
                raise

        with endpoint_errors():
            done = sum(gather([lambda owner=owner: written(owner) for owner in owners]), Remembered())
        users = opened.users(tenant, user)
    others = sum(one.stamp is not None and not one.stamp.writes_like(own) for one in users)
    counts = {"users": len(users), "sessions": done.items, "failures": len(done.failures)}
    left = {"still queued": sum(one.queued for one in users), "partial": sum(one.partial for one in users)}
    left["users of another program"] = others
    report(counts | {name: count for name, count in left.items() if count or as_json()})


def users_of(opened: Any, tenant: str | None, user: str | None) -> list[Any]:
    """The users of a store, or those of one tenant or one name.

    Raises:
        UserError: One is named, and is not there.
    """
    found = [one.owner for one in opened.users(tenant, user)]
    if user is not None and not found:
        raise UserError(f"no user {user!r} in {opened.url}; `mempiler memories list` shows all")
    return found


def _written(
    memories: Any, owner: Any, queued: bool, failed: bool, named: str | None, stopped: threading.Event
) -> Remembered:
    """Writes the memory of a user; if only what is queued is written, one of another program alone if it is named."""
    from ..serving.settings import LEASE
    from ..serving.user_memory import UserMemory
    from ..serving.writing import Remembered, remember_user

    if not queued:
        memory = UserMemory(memories, owner, stop=stopped.is_set)
        return memory.retry() if failed else memory.rebuild()
    stamp = None if named else memories.store.read(owner, lambda version: True).stamp
    if stamp is not None and not stamp.writes_like(memories.stamp):
        return Remembered()
    return remember_user(memories, owner, LEASE, stopped.is_set, retry=True)
