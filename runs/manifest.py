"""The two files of a saved program, `manifest.json` and `state.json`.

The manifest holds the digest of the state, and its own. They show that a file was damaged or edited
by hand, and no more: whoever writes the files can write the digests, too.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import stat
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..errors import ProgramError, UserError
from ..programs.state import PredictorState
from ..records import parse_json, read_json
from ..validation import validation_message

SCHEMA = 2
"""The version of both files."""
MANIFEST = "manifest.json"
STATE = "state.json"
MAX_BYTES = 64 * 2**20
"""Most bytes of each file."""

FieldFingerprint = Annotated[list[str], Field(min_length=4, max_length=4)]
"""Name, direction, type and shape of a predictor's field."""


class Manifest(BaseModel):
    """What a saved program is, where it came from and how good it was."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    method: str
    task: str
    config: dict[str, Any] = {}
    """Settings of method and task."""
    adapter: str = "chat"
    embedder: str | None = None
    reranker: str | None = None
    """What ranked the first hits of a search again; None if nothing did."""
    benchmark: dict[str, Any] = {}
    """Name, path, sha256, whether it is the sample, split digest and sizes."""
    optimizer: dict[str, Any] = {}
    """Name, stage, seed, settings and growth limit; empty for a program that was not compiled."""
    lms: dict[str, str] = {}
    """Names of the language models by role."""
    lm_settings: dict[str, Any] = {}
    """Settings of every request to the task's model."""
    scores: dict[str, Any] = {}
    """Summaries of the evaluations before and after, and their difference."""
    packages: dict[str, str] = {}
    """Versions of packages."""
    created: str = ""
    """Date and time, in ISO format."""
    signatures: dict[str, list[FieldFingerprint]] = {}
    """The fields of each predictor."""
    state_sha256: str = ""
    manifest_sha256: str = ""
    """Digest of this manifest without this field."""


def read_manifest(folder: str | Path) -> Manifest:
    """Read the manifest of a saved program, and check it by its digest.

    Raises:
        ProgramError: It was altered, or another version of Mempiler wrote it.
        DataError: It is not JSON.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not folder.exists():
        raise ProgramError(f"{folder}: there is no such folder{_suggestion(folder)}")
    if not path.is_file():
        raise ProgramError(f"{folder}: no saved program here ({MANIFEST} is missing)")
    _check_file(path)

    values = read_json(path)
    schema_version = values.get("schema_version") if isinstance(values, dict) else None
    if schema_version != SCHEMA:
        problem = f"schema version {schema_version!r} is unknown to Mempiler {__version__}"
        raise ProgramError(f"{path}: {problem} (it reads {SCHEMA})")

    try:
        manifest = Manifest.model_validate(values)
        digest = digest_of(manifest)
    except ValidationError as error:
        problem = f"field {validation_message(error)}"
        raise ProgramError(f"{path}: {problem}; the file was altered") from error
    except ValueError as error:
        raise ProgramError(f"{path}: its values are no plain JSON; the file was altered") from error
    if manifest.manifest_sha256 != digest:
        raise ProgramError(
            f"{path}: the file was altered after it was saved (its sha256 does not match)"
        )
    return manifest


def read_states(folder: str | Path) -> dict[str, PredictorState]:
    """Read the state of every predictor by its name, without building the program.

    The digest of the file must be the one in the manifest, and every state must have the fields of
    a `PredictorState`. Whether it fits the code is checked when the program is built.

    Raises:
        ProgramError: The folder was altered, or another version of Mempiler wrote it.
    """
    folder = Path(folder)
    path = folder / STATE
    manifest = read_manifest(folder)
    try:
        _check_file(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{path}: cannot be read: {error}") from error
    if sha256_of(text) != manifest.state_sha256:
        raise ProgramError(
            f"{path}: the file was altered after it was saved (its sha256 does not match)"
        )

    try:
        states = parse_json(text, str(path))
        if not isinstance(states, dict):
            raise ProgramError(f"{path}: not the state of a saved program: expected an object")
        return {name: PredictorState.model_validate(state) for name, state in states.items()}
    except ValidationError as error:
        problem = validation_message(error)
        raise ProgramError(f"{path}: {problem}; not the state of a saved program") from error
    except ValueError as error:
        raise ProgramError(f"{path}: not the state of a saved program: {error}") from error


def check_states(folder: str | Path) -> None:
    """Check the states of the predictors as `read_states` does.

    Raises:
        ProgramError: The folder was altered, or another version of Mempiler wrote it.
    """
    read_states(folder)


def is_intact(folder: str | Path) -> bool:
    """Tell whether a folder holds an unaltered program; `load` checks whether it fits the code."""
    try:
        check_states(folder)
    except UserError:
        return False
    return True


def digest_of(manifest: Manifest) -> str:
    """Return the digest of a manifest, without the field that holds it.

    Fields that early versions did not have count only if they hold something.
    """
    excluded = {"manifest_sha256"}
    for name in ("lm_settings", "reranker"):
        if not getattr(manifest, name):
            excluded.add(name)
    values = manifest.model_dump(mode="json", exclude=excluded)
    return sha256_of(json.dumps(values, sort_keys=True))


def sha256_of(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _suggestion(folder: Path) -> str:
    """Return "; did you mean ...?" with the saved program of the closest name, or ""."""
    try:
        names = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
    except OSError:
        return ""
    closest = difflib.get_close_matches(folder.name, names, n=1)
    if not closest:
        return ""
    return f"; did you mean {str(folder.parent / closest[0])!r}?"


def _check_file(path: Path) -> None:
    """Refuse a file that is too large, or is not an ordinary file in the folder of a program.

    A link may lead to a file elsewhere. Reading a device or a pipe may never end.

    Raises:
        ProgramError: The file is one of these.
        OSError: There is no such file.
    """
    status = path.stat()
    is_inside = path.resolve().is_relative_to(path.parent.resolve())
    if not is_inside or not stat.S_ISREG(status.st_mode):
        problem = "is a link to a file outside the folder, or no ordinary file"
        raise ProgramError(f"{path}: {problem}; put the file itself there")
    if status.st_size > MAX_BYTES:
        size = f"has {status.st_size:,} bytes, a saved program at most {MAX_BYTES:,}"
        raise ProgramError(f"{path}: {size}")
