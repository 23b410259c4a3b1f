"""`mempiler rebuild`: write stored memories anew from the raw sessions."""

from __future__ import annotations

from typing import Any

import click

from .options import JSON, STORE, TENANT, USER, asking_options, open_asked, open_store, output, print_json


@click.command("rebuild")
@click.argument("program", type=click.Path())
@STORE
@USER
@TENANT
@click.option("--force", is_flag=True, help="also memories that this very program wrote")
@click.option("--failed", is_flag=True, help="only sessions, and parts of sessions, that could not be written before")
@JSON
@asking_options
def command(
    program: str,
    store: str | None,
    user: str | None,
    tenant: str,
    force: bool,
    failed: bool,
    as_json: bool,
    **asking: Any,
) -> None:
    """Write memories anew with PROGRAM, from the sessions as they were said.

    Only memories that another program or embedder wrote, and whatever is queued, unless --force is given. Stopped half
    way, the same command without --force goes on. With --failed the memories stay, and what they lack is tried again.
    """
    from ..engines.models import endpoint_errors
    from ..errors import UserError
    from ..programs.remember_queued import Remembered
    from ..programs.user_memory import UserMemory

    if force and failed:
        raise UserError("--force writes everything anew and --failed only what failed; give one of them")
    loaded, _, model = open_asked(program, **asking)
    with open_store(store) as opened:
        owners = [found.owner for found in opened.users(tenant, user)]
        if user is not None and not owners:
            raise UserError(f"no user {user!r} in {opened.url}; `mempiler memories list` shows all")
        done = Remembered()
        with endpoint_errors():
            for owner in owners:
                memory = UserMemory(loaded, opened, owner, model)
                done += memory.retry() if failed else memory.rebuild(force)
    report(as_json, {"users": len(owners), "sessions": done.items, "failures": len(done.failures)})


def report(as_json: bool, found: dict[str, Any]) -> None:
    """Prints counts."""
    if as_json:
        print_json(found)
    else:
        output().print(", ".join(f"{value} {name}" for name, value in found.items()), soft_wrap=True)
