"""Saved programs: a folder with `manifest.json` and `state.json`, plain JSON, checked before anything is used.

    save(program, folder, manifest)     all or nothing: written beside, then renamed
    load(folder)                        everything is verified first; a mismatch names what differs and what to do

The state holds prompts (instructions, fields, demos) by predictor name; never a language model, a key or a pickle.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..engines.embedders import embedder as make_embedder
from ..errors import ProgramError, UserError
from ..memory.index import Embedder
from ..programs.catalog import build, needs_embedder
from ..programs.program import MemoryProgram
from ..programs.state import (
    PredictorState,
    check_fields,
    dump_predictor,
    fingerprint,
    load_predictor,
    parse_predictor,
    signature_of,
)
from ..records import parse_json, read_json

SCHEMA = 2
MANIFEST, STATE = "manifest.json", "state.json"
_FILES = {MANIFEST, STATE}
REGISTERED = "models:/"
"""What the address of a program in the model registry begins with, see `registry`."""
PACKAGES = ("mempiler", "dspy", "litellm", "mlflow", "pydantic")


class Manifest(BaseModel):
    """What a saved program is, where it came from and how good it was."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    method: str
    task: str
    config: dict[str, Any] = {}
    adapter: str = "chat"
    embedder: str | None = None
    benchmark: dict[str, Any] = {}
    """Name, path, sha256, whether it is the sample, split digest and sizes."""
    optimizer: dict[str, Any] = {}
    """Name, stage, seed and settings; empty for a program that was not compiled."""
    lms: dict[str, str] = {}
    """Model names by role."""
    scores: dict[str, Any] = {}
    """Summaries of the evaluations before and after, and their difference."""
    packages: dict[str, str] = {}
    created: str = ""
    signatures: dict[str, list[Annotated[list[str], Field(min_length=4, max_length=4)]]] = {}
    """Per predictor: name, direction, type and shape of every field."""
    state_sha256: str = ""
    manifest_sha256: str = ""
    """Digest of this manifest without this field."""


def save(program: MemoryProgram, folder: str | Path, manifest: Manifest | None = None) -> Manifest:
    """Saves a program.

    Args:
        program: What to save.
        folder: Where; an older saved program there is replaced, anything else is not.
        manifest: What is known of it beyond itself (benchmark, scores, ...).

    Returns:
        The manifest as written.

    Raises:
        UserError: The folder holds something else, or cannot be written.
    """
    folder = Path(folder)
    predictors = program.all_predictors()
    state = json.dumps(
        {name: dump_predictor(predictor).model_dump(mode="json") for name, predictor in sorted(predictors.items())},
        indent=1,
        ensure_ascii=False,
    )
    embedder = program.method.embedder
    manifest = (manifest or Manifest(method="", task="")).model_copy(
        update={
            "schema_version": SCHEMA,
            "method": program.name,
            "task": program.task.name,
            "config": program.method.config,
            "adapter": program.adapter,
            "embedder": embedder.name if embedder else None,
            "packages": {name: _version(name) for name in PACKAGES},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "signatures": {
                name: fingerprint(signature_of(predictor)) for name, predictor in sorted(predictors.items())
            },
            "state_sha256": _sha256(state),
        }
    )
    manifest = manifest.model_copy(update={"manifest_sha256": _manifest_digest(manifest)})
    _write(folder, {STATE: state, MANIFEST: manifest.model_dump_json(indent=1)})
    return manifest


def load(folder: str | Path, allow_code: bool = False, embedder: Embedder | None = None) -> MemoryProgram:
    """Loads a saved program.

    Args:
        folder: A folder that `save` wrote, or the address of a registered program, `models:/NAME@ALIAS`.
        allow_code: Whether a method given as `module:Class` may be imported; only for folders you trust.
        embedder: Makes the vectors, e.g. one behind an address of your own; the one the manifest names if None.

    Raises:
        ProgramError: The folder was altered, is of another version, or does not fit this code.
        DataError: It holds no saved program.
    """
    folder = _fetched(folder)
    manifest = read_manifest(folder)
    states = _verified_states(folder, manifest)
    if ":" in manifest.method and not allow_code:
        raise ProgramError(
            f"{folder}: its method {manifest.method!r} is code outside Mempiler; "
            "load it with allow_code=True (--allow-code) if you trust it"
        )
    needed = needs_embedder(manifest.method)
    if needed and embedder is not None and embedder.name != manifest.embedder:
        raise ProgramError(f"{folder}: was made with the embedder {manifest.embedder!r}, not {embedder.name!r}")
    embedder = (embedder or make_embedder(manifest.embedder or "offline")) if needed else None
    program = build(manifest.method, manifest.task, embedder, adapter=manifest.adapter, **manifest.config)
    predictors = program.all_predictors()
    missing = sorted(set(states) - set(predictors))
    if missing:
        raise ProgramError(
            f"{folder}: saved predictor {missing[0]} is not in the code; compile again with this version"
        )
    absent = sorted(set(predictors) - set(states))
    if absent:
        raise ProgramError(f"{folder}: predictor {absent[0]} of the code is not in the saved program; compile again")
    if manifest.signatures.keys() != predictors.keys():
        raise ProgramError(f"{folder / MANIFEST}: describes other predictors than it holds; the file was altered")
    for name, fields in manifest.signatures.items():
        check_fields(name, fields, fingerprint(signature_of(predictors[name])))
    parsed = {name: parse_predictor(predictors[name], state, name) for name, state in states.items()}
    for name, state in parsed.items():
        load_predictor(predictors[name], state)
    return program


def check_writable(folder: str | Path) -> None:
    """Checks that `save` can write a folder, before any paid call.

    Raises:
        UserError: The folder holds something else, or cannot be written.
    """
    with _staging(Path(folder).resolve()):
        pass


def is_intact(folder: str | Path) -> bool:
    """Whether a folder holds an unaltered saved program; `load` checks whether it fits this code."""
    try:
        _verified_states(Path(folder), read_manifest(folder))
    except UserError:
        return False
    return True


def read_states(folder: str | Path) -> dict[str, PredictorState]:
    """Reads and checks the state of every predictor by name, without building the program.

    Raises:
        ProgramError: The folder was altered, or another version of Mempiler wrote it.
    """
    folder = _fetched(folder)
    return _verified_states(folder, read_manifest(folder))


def read_manifest(folder: str | Path) -> Manifest:
    """Reads and checks a manifest.

    Raises:
        ProgramError: It was altered, or another version of Mempiler wrote it.
        DataError: There is none, or it is not JSON.
    """
    folder = _fetched(folder)
    if not (folder / MANIFEST).is_file():
        raise ProgramError(f"{folder}: no saved program here ({MANIFEST} is missing)")
    raw = read_json(folder / MANIFEST)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA:
        raise ProgramError(
            f"{folder / MANIFEST}: schema version {version!r} is unknown to Mempiler {__version__} (it reads {SCHEMA})"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ProgramError(f"{folder / MANIFEST}: field {where}: {first['msg']}; the file was altered") from error
    if manifest.manifest_sha256 != _manifest_digest(manifest):
        raise ProgramError(f"{folder / MANIFEST}: the file was altered after it was saved (its sha256 does not match)")
    return manifest


def _fetched(folder: str | Path) -> Path:
    """A folder as it is; of the address of a registered program, its local copy."""
    if not str(folder).startswith(REGISTERED):
        return Path(folder)
    from .registry import resolve

    return resolve(folder)


def _verified_states(folder: Path, manifest: Manifest) -> dict[str, PredictorState]:
    try:
        text = (folder / STATE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{folder / STATE}: cannot be read: {error}") from error
    if _sha256(text) != manifest.state_sha256:
        raise ProgramError(f"{folder / STATE}: the file was altered after it was saved (its sha256 does not match)")
    try:
        return {
            name: PredictorState.model_validate(state) for name, state in parse_json(text, str(folder / STATE)).items()
        }
    except (ValueError, AttributeError) as error:
        raise ProgramError(f"{folder / STATE}: not the state of a saved program: {error}") from error


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, on the same disk; removed unless it holds the only copy of a program."""
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} in (set(), _FILES)):
        raise UserError(f"{folder}: exists and is no saved program; choose another --out")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            yield staging
        finally:
            if folder.exists() or not (staging / "old").exists():
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}; choose another --out") from error


def _write(folder: Path, files: dict[str, str]) -> None:
    """Writes files into a new folder beside the target, and lets it take the target's place."""
    folder = folder.resolve()
    with _staging(folder) as staging:
        new, old = staging / "new", staging / "old"
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise


def _manifest_digest(manifest: Manifest) -> str:
    return _sha256(json.dumps(manifest.model_dump(mode="json", exclude={"manifest_sha256"}), sort_keys=True))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
