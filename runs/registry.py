"""Programs in MLflow's model registry and on the Hugging Face hub: addresses, wherever a program folder goes.

    models:/locomo-qa@prod ── pinned ──> models:/locomo-qa/3      ── resolve ──> runs/local/registry/<digest>/
    hf://ada/memory@main   ── pinned ──> hf://ada/memory@<commit> ── resolve ──> runs/local/hub/ada--memory-<commit>/

Only the JSON files of the saved program are fetched, checked like those of any folder, and kept; none of the code in a
registry is run. Of a version in MLflow the digest is a tag, so that artifacts exchanged below the registry are refused.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import EndpointError, MempilerError, ProgramError, UserError
from ..text import one_line
from .results_folder import create_folder, results_folder
from .manifest import MANIFEST, STATE, is_intact, read_manifest, read_states
from .tracking import client, tracking_uri

HUB = "hf://"
REGISTERED = "models:/"
DIGEST = "mempiler.manifest_sha256"
"""Tag of a version in MLflow: the digest of its program's manifest, which holds that of the prompts."""
INSIDE = "artifacts/program"
"""The program's path in the files of a version."""
_VERSION = re.compile(r"models:/(?P<name>[^/@:'\"]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")
_REPOSITORY = re.compile(rf"{HUB}(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def pinned(name: str) -> str:
    """The address of what an address names now, which does not change any more; any other name as it is.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
    """
    if name.startswith(HUB):
        repo, revision = repository(name)
        return f"{HUB}{repo}@{_commit(name, repo, revision)}"
    if name.startswith(REGISTERED):
        found = version_of(name)
        return f"{REGISTERED}{found.name}/{found.version}"
    return name


def program_folder(name: str | Path) -> Path | None:
    """The folder of a saved program: a folder itself, or what `resolve` makes of an address; else None."""
    if str(name).startswith((HUB, REGISTERED)):
        return resolve(str(name))
    # pathlib raises for a name that is too long
    return Path(name) if os.path.isdir(name) else None  # noqa: PTH112


def resolve(name: str) -> Path:
    """Fetches the program of an address, unless it is here already, and checks it.

    Returns:
        A folder that `artifact.load` takes.

    Raises:
        UserError: There is no such program, or the store cannot be reached.
        EndpointError: The hub cannot be reached.
        ProgramError: It is no program of Mempiler, or was altered.
    """
    if name.startswith(HUB):
        repo, revision = repository(name)
        commit = _commit(name, repo, revision)
        folder = results_folder().absolute() / "hub" / f"{repo.replace('/', '--')}-{commit}"
        if not is_intact(folder):
            create_folder(folder.parent)
            with hub_errors(name):
                from huggingface_hub import hf_hub_download

                for file in (MANIFEST, STATE):
                    hf_hub_download(repo, file, revision=commit, local_dir=folder, force_download=True)
            read_states(folder)
        return folder
    found = version_of(name)
    digest = dict(found.tags).get(DIGEST)
    if digest is None or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ProgramError(f"{name}: version {found.version} was not made by `mempiler publish`; publish a program")
    folder = results_folder().absolute() / "registry" / digest[:16]
    if not (is_intact(folder) and read_manifest(folder).manifest_sha256 == digest):
        create_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
            fetched = _from_mlflow(name, str(found.source), digest, scratch)
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another process was faster: what it fetched is the same, by its digest
                fetched.rename(folder)
        read_states(folder)
    return folder


def version_of(name: str | Path) -> Any:
    """MLflow's entity of a version: `name`, `version`, `source`, `tags`.

    Raises:
        UserError: There is no such model, version or alias, or the store cannot be reached.
    """
    parts = _VERSION.fullmatch(str(name))
    if parts is None:
        raise UserError(f"{name}: is no registered model; write models:/NAME@ALIAS or models:/NAME/VERSION")
    registry = client()
    try:
        if parts["alias"]:
            return registry.get_model_version_by_alias(parts["name"], parts["alias"])
        return registry.get_model_version(parts["name"], parts["version"])
    except Exception as error:
        raise UserError(f"{name}: {one_line(error, 300)} (MLflow store {tracking_uri()})") from error


def _from_mlflow(name: str, source: str, digest: str, scratch: str) -> Path:
    from mlflow.artifacts import download_artifacts

    uri = tracking_uri()
    try:
        fetched = Path(download_artifacts(f"{source.rstrip('/')}/{INSIDE}", dst_path=scratch, tracking_uri=uri))
    except Exception as error:
        raise UserError(f"{name}: cannot be fetched from {source}: {one_line(error, 300)}") from error
    if read_manifest(fetched).manifest_sha256 != digest:
        raise ProgramError(f"{name}: the program was altered after it was registered (its sha256 does not match)")
    read_states(fetched)
    return fetched


def repository(name: str) -> tuple[str, str | None]:
    """The repository and the revision, if any, that an address of the hub names."""
    found = _REPOSITORY.fullmatch(name)
    if found is None:
        raise UserError(f"{name}: is no program on the hub; write {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION")
    return found["repo"], found["revision"]


def _commit(name: str, repo: str, revision: str | None) -> str:
    if revision and _COMMIT.fullmatch(revision):
        return revision
    with hub_errors(name):
        from huggingface_hub import HfApi

        commit = str(HfApi().model_info(repo, revision=revision).sha)
    if not _COMMIT.fullmatch(commit):
        raise EndpointError(f"{name}: the hub names no commit for it")
    return commit


@contextmanager
def hub_errors(name: str) -> Generator[None]:
    """Turns errors of the hub into ours, in one line.

    Raises:
        UserError: There is no such repository or revision, or the token may not do this.
        EndpointError: The hub cannot be reached.
    """
    from huggingface_hub import errors as hub

    try:
        yield
    except MempilerError:
        raise
    except Exception as error:  # the libraries below raise errors of many kinds, none of which is for users
        told = one_line(error, 200) or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if isinstance(error, hub.RepositoryNotFoundError):
            private = "or it is private: set HF_TOKEN, or run: hf auth login"
            raise UserError(f"{name}: there is no such repository on the hub, {private}") from error
        if status in (401, 403):
            raise UserError(f"{name}: the hub refuses the token (status {status}); set another HF_TOKEN") from error
        if isinstance(error, hub.RevisionNotFoundError | hub.HFValidationError | hub.EntryNotFoundError):
            raise UserError(f"{name}: the hub has no such repository, revision or program: {told}") from error
        raise EndpointError(f"{name}: the hub cannot be reached, or fails: {told}") from error
