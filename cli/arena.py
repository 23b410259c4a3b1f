"""`mempiler arena`: whatever was scored, on one page."""

from __future__ import annotations

from pathlib import Path

import click

from .options import JSON, output, print_json


@click.group("arena")
def command() -> None:
    """Put finished runs side by side: methods, systems, endpoints, recorded answers."""


@command.command("report")
@click.argument("runs", nargs=-1, required=True, metavar="DIR...")
@click.option("--out", type=click.Path(), default="arena", show_default=True, help="folder for the page and the JSON")
@click.option(
    "--wrong-golds",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="questions whose gold answer is known to be wrong: a second view leaves them out; may be given again",
)
@JSON
def report(runs: tuple[str, ...], out: str, wrong_golds: tuple[str, ...], as_json: bool) -> None:
    """Write one page and one JSON file from runs.

    Each DIR is a run (its folder, or the end of the folder's name), or a folder of runs.
    """
    from ..runs.arena import entries, read_wrong_golds, write

    found = entries(runs, read_wrong_golds(wrong_golds))
    written = write(found, Path(out))
    if as_json:
        print_json({"entries": [each.model_dump(mode="json") for each in found], "files": [str(f) for f in written]})
        return
    for each in found:
        score = "-" if each.official is None or each.official.score is None else f"{each.official.score:.3f}"
        told = f"{score}  {each.program} on {each.basis.get('benchmark')}"
        output().print(f"{told}{f': {each.reason}' if each.reason else ''}", soft_wrap=True)
    output().print(f"page: {written[0]}", soft_wrap=True)
