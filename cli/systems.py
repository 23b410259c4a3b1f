"""`mempiler systems`: other people's memory systems, each in an environment of its own, as `system:NAME`."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from .options import JSON, output, print_json


@click.group("systems")
def command() -> None:
    """Other people's memory systems: list, install, remove.

    What is installed is scored as any method is: mempiler evaluate system:NAME. Its own package runs, in an environment
    and a process of its own, with the model and the embedder of the run.
    """


@command.command("list")
@JSON
def list_systems(as_json: bool) -> None:
    """List the systems that are shipped, and whether they are installed."""
    from ..systems.catalog import SYSTEMS
    from ..systems.environment import folder

    if as_json:
        print_json({"systems": [{**asdict(each), "installed": each.environment.here} for each in SYSTEMS.values()]})
        return
    table = Table(title=f"systems in {folder()}", title_justify="left")
    for name in ("name", "what", "installed"):
        table.add_column(name, overflow="fold")
    for found in SYSTEMS.values():
        table.add_row(found.name, found.what, "yes" if found.environment.here else "no")
    output().print(table)


@command.command("install")
@click.argument("name")
def install_system(name: str) -> None:
    """Make the environment of NAME, from scratch and from pinned packages, unless it is there."""
    from ..systems.catalog import shipped

    path = shipped(name).environment.install()
    output().print(f"{path}: installed; use it as system:{name}", soft_wrap=True)


@command.command("remove")
@click.argument("name")
def remove_system(name: str) -> None:
    """Remove the environment of NAME."""
    from ..systems.catalog import shipped

    removed = shipped(name).environment.remove()
    output().print(f"{name}: {'removed' if removed else 'was not installed'}")
