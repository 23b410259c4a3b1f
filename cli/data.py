"""`mempiler data`: fetch the genuine files, and look into data files."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click
from rich.table import Table

from .make import make
from .options import JSON, OPTION, output, parse_settings, print_json


@click.group("data")
def command() -> None:
    """Fetch data files and look into them."""


@command.command("check")
@click.argument("benchmark")
@click.argument("path", type=click.Path())
@OPTION
@JSON
def check(benchmark: str, path: str, pairs: tuple[str, ...], as_json: bool) -> None:
    """Say what is in the file PATH of a BENCHMARK, and row by row what is wrong with it.

    Ends with code 1 if the file cannot be used as it is.
    """
    from ..data.check import check as checked

    report = checked(benchmark, path, **parse_settings(pairs))
    if as_json:
        print_json(report.to_dict())
        sys.exit(0 if report.ok else 1)
    console = output()
    summary = Table(title=str(path), title_justify="left", show_header=False)
    for name, value in report.counts.items():
        summary.add_row(name, str(value))
    console.print(summary)
    for row in report.rows:
        console.print(f"{'ERROR: ' if row.fatal else ''}{row.where}: {row.kind}: {row.message}", soft_wrap=True)
    fatal = sum(row.fatal for row in report.rows)
    remarks = len(report.rows) - fatal
    console.print(f"{fatal} errors, {remarks} remarks" if report.rows else "nothing wrong found")
    if not report.ok:
        console.print(f"{path}: cannot be used as it is; mend the lines marked ERROR", soft_wrap=True)
        sys.exit(1)


@command.command("fetch")
@click.argument("name")
@click.option("--out", type=click.Path(), help="folder for the file [default: data/ of the results folder]")
@click.option("--sha256", default="", metavar="HEX", help="what a file of the hub must have")
@JSON
def fetch_file(name: str, out: str | None, sha256: str, as_json: bool) -> None:
    """Fetch the genuine file of the benchmark NAME, its sha256 checked; its licence is shown first.

    NAME may also be a file of any set on the Hugging Face hub, hf://datasets/OWNER/NAME@COMMIT/FILE.
    """
    from ..data.fetch import HUB, download, fetch
    from ..runs.home import home, make_folder

    wanted = download(name, sha256)
    folder = Path(out) if out else home() / "data"
    make_folder(folder)
    found = fetch(name, folder, lambda line: click.echo(line, err=True), sha256)
    if as_json:
        about = {"name": name, "licence": wanted.licence, "address": wanted.address}
        print_json(about | dataclasses.asdict(found) | {"path": str(found.path)})
        return
    differs = "sha256 differs from the reported one" if wanted.sha256 else f"sha256 {found.sha256}, not verified"
    state = "sha256 verified" if found.verified else differs
    use = f"--data {found.path}" if name.startswith(HUB) else f"--on {name} --data {found.path}"
    click.echo(f"{found.path}: {'fetched' if found.fresh else 'was there'}, {state}; use {use}")


command.add_command(make)
