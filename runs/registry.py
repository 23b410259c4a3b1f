"""Programs in MLflow's model registry: `models:/NAME@ALIAS`, `models:/NAME/VERSION`, wherever a program folder goes.

    models:/locomo-qa@prod ── pinned ──> models:/locomo-qa/3 ── resolve ──> runs/local/registry/<digest>/

A registered version is a model that `mlflow models serve` runs (see `register`); of it only the JSON files of the saved
program are fetched, checked like any saved program, and kept under their digest. None of the code in the registry is
run. The digest is also a tag of the version, so that artifacts that were exchanged below the registry are refused;
someone with write access to the registry can change both.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..errors import ProgramError, UserError, one_line
from .addresses import REGISTERED
from .artifact import MANIFEST, is_intact, read_manifest, read_states
from .home import home, make_folder
from .tracking import client, tracking_uri

DIGEST = "mempiler.manifest_sha256"
"""Tag of a version: the digest of its program's manifest, which holds that of the prompts."""
INSIDE = "artifacts/program"
"""The program's path in the files of a version."""
_ADDRESS = re.compile(r"models:/(?P<name>[^/@:'\"]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def pinned(name: str) -> str:
    """The address of the version behind an alias.

    An alias may move during a run, or before it is resumed; a version does not change.

    Raises:
        UserError: There is no such model, version or alias.
    """
    found = version_of(name)
    return f"{REGISTERED}{found.name}/{found.version}"


def resolve(name: str | Path) -> Path:
    """Fetches the program of a registered model, unless it is here already, and checks it.

    Args:
        name: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

    Returns:
        A folder that `artifact.load` takes.

    Raises:
        UserError: There is no such model, version or alias, or the store cannot be reached.
        ProgramError: The version is no program of Mempiler, or was altered.
    """
    found = version_of(name)
    digest = dict(found.tags).get(DIGEST)
    if digest is None or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ProgramError(f"{name}: version {found.version} was not made by `mempiler publish`; publish a program")
    folder = home().absolute() / "registry" / digest[:16]
    if not (is_intact(folder) and read_manifest(folder).manifest_sha256 == digest):
        _fetch(str(name), str(found.source), folder, digest)
    return folder


def keep(fetched: Path, folder: Path) -> None:
    """Lets a program that was fetched and checked take its place among the results.

    Raises:
        UserError: It cannot be written there.
    """
    if folder.exists() and not is_intact(folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        fetched.rename(folder)
    except OSError as error:
        # Another process was faster: what it fetched is the same, by its digest.
        if not is_intact(folder):
            told = f"{folder}: cannot be written: {error.strerror or error}"
            raise UserError(f"{told}; set MEMPILER_HOME to another folder") from error


def version_of(name: str | Path) -> Any:
    """MLflow's entity of a version: `name`, `version`, `source`, `tags`.

    Raises:
        UserError: There is no such model, version or alias, or the store cannot be reached.
    """
    parts = _ADDRESS.fullmatch(str(name))
    if parts is None:
        raise UserError(f"{name}: is no registered model; write models:/NAME@ALIAS or models:/NAME/VERSION")
    registry = client()
    try:
        if parts["alias"]:
            return registry.get_model_version_by_alias(parts["name"], parts["alias"])
        return registry.get_model_version(parts["name"], parts["version"])
    except Exception as error:
        raise UserError(f"{name}: {one_line(error, 300)} (MLflow store {tracking_uri()})") from error


def _fetch(name: str, source: str, folder: Path, digest: str) -> None:
    """Downloads beside the target, checks, and lets it take the target's place."""
    make_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        fetched = _downloaded(name, source, Path(scratch))
        if not (fetched / MANIFEST).is_file():
            raise ProgramError(f"{name}: no saved program in {source}/{INSIDE}; register it again")
        read_states(fetched)
        if read_manifest(fetched).manifest_sha256 != digest:
            raise ProgramError(f"{name}: the program was altered after it was registered (its sha256 does not match)")
        keep(fetched, folder)


def _downloaded(name: str, source: str, scratch: Path) -> Path:
    from mlflow.artifacts import download_artifacts

    uri = tracking_uri()
    try:
        found = download_artifacts(f"{source.rstrip('/')}/{INSIDE}", dst_path=str(scratch), tracking_uri=uri)
    except Exception as error:
        raise UserError(f"{name}: cannot be fetched from {source}: {one_line(error, 300)}") from error
    return Path(found)
