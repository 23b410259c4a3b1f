"""`mempiler systems`: other people's memory systems, each in an environment of its own, as `system:NAME`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from .options import JSON, output, print_json


@click.group("systems")
def command() -> None:
    """Other people's memory systems: list, install, remove, check.

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
    for name in ("name", "what", "installed", "licence", "packages"):
        table.add_column(name, overflow="fold")
    for found in SYSTEMS.values():
        here = "yes" if found.environment.here else "no"
        table.add_row(found.name, found.what, here, found.licence, ", ".join(found.packages))
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


@command.command("check")
@click.argument("name")
def check_system(name: str) -> None:
    """Compare the packages of NAME with the pinned ones, and start it once."""
    from ..systems.catalog import factory, shipped

    shipped(name).environment.check()
    with tempfile.TemporaryDirectory(prefix="mempiler-check-") as place, factory(name)(Path(place)) as system:
        output().print(f"{name}: as pinned, starts, {len(system)} entries", soft_wrap=True)
