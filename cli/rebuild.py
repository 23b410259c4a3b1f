"""`mempiler rebuild`: write stored memories anew from the raw sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from ..errors import UserError
from .options import ALL_TENANTS, JSON, STORE, USER, asking_options, open_asked, open_store, output, print_json


@click.command("rebuild")
@click.argument("program", type=click.Path())
@STORE
@USER
@ALL_TENANTS
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
@click.option("--failed", is_flag=True, help="only sessions, and parts of sessions, that could not be written before")
@JSON
@asking_options
def command(
    program: str,
    store: str | None,
    user: str | None,
    tenant: str | None,
    force: bool,
    failed: bool,
    as_json: bool,
    **asking: Any,
) -> None:
    """Write memories anew with PROGRAM, from the sessions as they were said; of all tenants and users.

    Only memories that another program or embedder wrote, and whatever is queued, unless --force is given. Stopped half
    way, the same command goes on, with --force or without: what it had written is not written again. With --failed the
    memories stay, and what they lack is tried again.
    """
    from ..engines.models import endpoint_errors
    from ..serving.documents import stamp_of
    from ..serving.memories import Memories
    from ..serving.user_memory import UserMemory
    from ..serving.writers import all_of
    from ..serving.writing import Remembered

    if force and failed:
        raise UserError("--force writes everything anew and --failed only what failed; give one of them")
    loaded, _, model = open_asked(program, **asking)
    with open_store(store) as opened:
        owners = users_of(opened, tenant, user)
        if force:
            _plan(opened, owners, stamp_of(loaded).writer, tenant, user)

        def written(owner: Any, stopping: Any) -> Remembered:
            memory = UserMemory(Memories(loaded, opened, model), owner, stop=stopping)
            return memory.retry() if failed else memory.rebuild()

        with endpoint_errors():
            done = sum(all_of([partial(written, owner) for owner in owners]), Remembered())
        queued = sum(one.queued for one in opened.users(tenant, user))
    counts = {"users": len(owners), "sessions": done.items, "failures": len(done.failures)}
    report(as_json, counts | ({"still queued": queued} if queued else {}))


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


def _plan(opened: Any, owners: list[Any], writer: str, tenant: str | None, user: str | None) -> None:
    """Notes whom a forced rebuild is to write: all, unless one was stopped; that one goes on."""
    left = opened.rebuilds(writer, tenant, user)
    if not left:
        opened.plan_rebuild(owners, writer)
        return
    begun = datetime.fromtimestamp(min(one.since for one in left), UTC)
    told = f"going on with the rebuild of {begun:%Y-%m-%d %H:%M} UTC: {len(left)} of {len(owners)} users are left"
    output(errors=True).print(told, soft_wrap=True)


def report(as_json: bool, found: dict[str, Any]) -> None:
    """Prints counts."""
    if as_json:
        print_json(found)
    else:
        output().print(", ".join(f"{value} {name}" for name, value in found.items()), soft_wrap=True)
