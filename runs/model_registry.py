"""Programs in MLflow's model registry: addresses like `models:/NAME@ALIAS`, and their files.

Only the JSON files of a program are fetched. They are checked like those of any folder, and no code
from the registry is run. A version of a model has the digest of its program as a tag, so files that
were exchanged in the artifact store are refused.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ProgramError, UserError
from ..text import one_line
from .manifest import check_states, is_intact, read_manifest
from .results_folder import create_folder, results_folder
from .tracking.store import client, tracking_uri

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

REGISTRY_PREFIX = "models:/"
DIGEST_TAG = "mempiler.manifest_sha256"
"""Tag of a version: the digest of its program's manifest, which holds that of the prompts."""
PROGRAM_PATH = "artifacts/program"
"""The folder of the program among the files of a version."""

_ADDRESS = re.compile(r"models:/(?P<name>[^/@:'\"]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def find_version(address: str | Path) -> ModelVersion:
    """Return the version of a model that an address names.

    Raises:
        UserError: There is no such model, version or alias, or the store cannot be reached.
    """
    match = _ADDRESS.fullmatch(str(address))
    if match is None:
        forms = "models:/NAME@ALIAS or models:/NAME/VERSION"
        raise UserError(f"{address}: is no registered model; write {forms}")

    mlflow_client = client()
    try:
        if match["alias"]:
            return mlflow_client.get_model_version_by_alias(match["name"], match["alias"])
        return mlflow_client.get_model_version(match["name"], match["version"])
    except Exception as error:
        reason = one_line(error, 300)
        raise UserError(f"{address}: {reason} (MLflow store {tracking_uri()})") from error


def pin_to_version(address: str) -> str:
    """Return the address of the version that an address of the registry names now."""
    version = find_version(address)
    return f"{REGISTRY_PREFIX}{version.name}/{version.version}"


def fetch_from_registry(address: str) -> Path:
    """Return the folder of the program of an address; download it unless it is here.

    Raises:
        UserError: There is no such version, or the store cannot be reached.
        ProgramError: It is no program of Mempiler, or was altered.
    """
    version = find_version(address)
    digest = dict(version.tags).get(DIGEST_TAG)
    if digest is None or not _DIGEST.fullmatch(digest):
        raise ProgramError(
            f"{address}: version {version.version} was not made by `mempiler publish`;"
            " publish a program"
        )

    folder = results_folder().absolute() / "registry" / digest[:16]
    if is_intact(folder) and read_manifest(folder).manifest_sha256 == digest:
        return folder

    create_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
        downloaded = _download(address, version, digest, Path(temporary))
        # What is left there is damaged, or another program: otherwise it was returned above.
        shutil.rmtree(folder, ignore_errors=True)
        # The move fails if another process has put its copy there meanwhile. That copy is the same,
        # by the digest.
        with suppress(OSError):
            downloaded.rename(folder)
    check_states(folder)
    return folder


def _download(address: str, version: ModelVersion, digest: str, target: Path) -> Path:
    """Download the program of a version into a folder and check it; return where it is there."""
    from mlflow.artifacts import download_artifacts

    source = str(version.source)
    uri = f"{source.rstrip('/')}/{PROGRAM_PATH}"
    try:
        path = download_artifacts(uri, dst_path=str(target), tracking_uri=tracking_uri())
    except Exception as error:
        reason = one_line(error, 300)
        raise UserError(f"{address}: cannot be fetched from {source}: {reason}") from error

    program = Path(path)
    if read_manifest(program).manifest_sha256 != digest:
        raise ProgramError(
            f"{address}: the program was altered after it was registered"
            " (its sha256 does not match)"
        )
    check_states(program)
    return program
