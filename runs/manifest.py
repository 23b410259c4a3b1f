"""The two files of a saved program, `manifest.json` and `state.json`, read and checked by their digests.

The manifest holds the digest of the state, and its own. They show that a file was damaged or edited by hand, and no
more: whoever writes the files can write the digests too.
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
MANIFEST, STATE = "manifest.json", "state.json"
MOST_BYTES = 64 * 2**20
"""Of a file of a saved program."""


class Manifest(BaseModel):
    """What a saved program is, where it came from and how good it was."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    method: str
    task: str
    config: dict[str, Any] = {}
    adapter: str = "chat"
    embedder: str | None = None
    reranker: str | None = None
    """What ranked the first hits again; None if nothing did."""
    benchmark: dict[str, Any] = {}
    """Name, path, sha256, whether it is the sample, split digest and sizes."""
    optimizer: dict[str, Any] = {}
    """Name, stage, seed and settings; empty for a program that was not compiled."""
    lms: dict[str, str] = {}
    """Model names by role."""
    lm_settings: dict[str, Any] = {}
    """Of every request to the task's model."""
    scores: dict[str, Any] = {}
    """Summaries of the evaluations before and after, and their difference."""
    packages: dict[str, str] = {}
    created: str = ""
    signatures: dict[str, list[Annotated[list[str], Field(min_length=4, max_length=4)]]] = {}
    """Per predictor: name, direction, type and shape of every field."""
    state_sha256: str = ""
    manifest_sha256: str = ""
    """Digest of this manifest without this field."""


def read_manifest(folder: str | Path) -> Manifest:
    """Reads a folder's manifest and checks it by its digest.

    Raises:
        ProgramError: It was altered, or another version of Mempiler wrote it.
        DataError: It is not JSON.
    """
    folder = Path(folder)
    if not folder.exists():
        raise ProgramError(f"{folder}: there is no such folder{_similar_program(folder)}")
    if not (folder / MANIFEST).is_file():
        raise ProgramError(f"{folder}: no saved program here ({MANIFEST} is missing)")
    _check_file(folder / MANIFEST)
    raw = read_json(folder / MANIFEST)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA:
        raise ProgramError(
            f"{folder / MANIFEST}: schema version {version!r} is unknown to Mempiler {__version__} (it reads {SCHEMA})"
        )
    try:
        manifest = Manifest.model_validate(raw)
        digest = digest_of(manifest)
    except ValidationError as error:
        raise ProgramError(f"{folder / MANIFEST}: field {validation_message(error)}; the file was altered") from error
    except ValueError as error:
        raise ProgramError(f"{folder / MANIFEST}: its values are no plain JSON; the file was altered") from error
    if manifest.manifest_sha256 != digest:
        raise ProgramError(f"{folder / MANIFEST}: the file was altered after it was saved (its sha256 does not match)")
    return manifest


def _similar_program(folder: Path) -> str:
    """Return "; did you mean ...?" with the saved program beside a missing folder whose name is the closest, or ""."""
    try:
        programs = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
    except OSError:
        return ""
    close = difflib.get_close_matches(folder.name, programs, n=1)
    return f"; did you mean {str(folder.parent / close[0])!r}?" if close else ""


def read_states(folder: str | Path) -> dict[str, PredictorState]:
    """Reads and checks the state of every predictor by name, without building the program.

    Raises:
        ProgramError: The folder was altered, or another version of Mempiler wrote it.
    """
    folder, manifest = Path(folder), read_manifest(folder)
    try:
        _check_file(folder / STATE)
        text = (folder / STATE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{folder / STATE}: cannot be read: {error}") from error
    if sha256_of(text) != manifest.state_sha256:
        raise ProgramError(f"{folder / STATE}: the file was altered after it was saved (its sha256 does not match)")
    try:
        return {
            name: PredictorState.model_validate(state) for name, state in parse_json(text, str(folder / STATE)).items()
        }
    except ValidationError as error:
        raise ProgramError(f"{folder / STATE}: {validation_message(error)}; not the state of a saved program") from error
    except (ValueError, AttributeError) as error:
        raise ProgramError(f"{folder / STATE}: not the state of a saved program: {error}") from error


def is_intact(folder: str | Path) -> bool:
    """Whether a folder holds an unaltered saved program; `artifact.load` checks whether it fits this code."""
    try:
        read_states(folder)
    except UserError:
        return False
    return True


def _check_file(path: Path) -> None:
    """Refuses links out of the folder, devices and pipes, which may not end, and what is larger than any program."""
    about = path.stat()
    if not path.resolve().is_relative_to(path.parent.resolve()) or not stat.S_ISREG(about.st_mode):
        raise ProgramError(f"{path}: is a link out of the folder, or no file; put the file itself there")
    if about.st_size > MOST_BYTES:
        raise ProgramError(f"{path}: has {about.st_size:,} bytes, a saved program at most {MOST_BYTES:,}")


def digest_of(manifest: Manifest) -> str:
    """The digest of a manifest, without the field that holds it, and without those that earlier versions did not have.

    They count where they hold anything.
    """
    left_out = {"manifest_sha256"} | {name for name in ("lm_settings", "reranker") if not getattr(manifest, name)}
    return sha256_of(json.dumps(manifest.model_dump(mode="json", exclude=left_out), sort_keys=True))


def sha256_of(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
