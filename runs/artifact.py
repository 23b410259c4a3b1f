"""Saved programs: save one into a folder, and load it again.

    save(program, "my-program")
    program = load("my-program")
    program = load("models:/memory@prod")      # from MLflow's model registry

The folder has two files of plain JSON, `manifest.json` and `state.json`. The state holds the
prompts (instructions, fields, demos) by the name of the predictor. There is no language model, key
or pickle in it: the folder decides what a model is asked, never which model and where. Addresses,
headers and keys come from whoever runs the program.
"""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..engines.model_names import OFFLINE
from ..errors import ProgramError, UserError
from ..memory.search.embedder import Embedder
from ..programs.adapter import ADAPTERS
from ..programs.catalog import build
from ..programs.external.program import build_external_program
from ..programs.external.target import URL_PREFIXES
from ..programs.program import MemoryProgram
from ..programs.state import PredictorState, dump_predictor, fingerprint, parse_predictor
from ..programs.tasks.settings import TASK_PREFIX
from .artifact_embedder import choose_embedder, embedder_for, external_system
from .external import ANSWER_FILE_ENDINGS
from .manifest import (
    MANIFEST,
    SCHEMA,
    STATE,
    Manifest,
    digest_of,
    read_manifest,
    read_states,
    sha256_of,
)
from .program_address import program_folder
from .results_folder import refuse_foreign_folder

PACKAGES = (
    "mempiler",
    "dspy",
    "litellm",
    "mlflow",
    "pydantic",
)
"""The packages that decide what a program does; the manifest has their versions."""

_PROGRAM_FILES = {MANIFEST, STATE}
"""All that a folder may hold for `save` to replace it."""
_PREVIOUS_PROGRAM = "old"
"""The folder into which `save` moves the program that it replaces, until the new one is there."""


@dataclass(frozen=True)
class LoadedProgram:
    """A loaded program, and what its folder says of it."""

    program: MemoryProgram
    manifest: Manifest
    folder: Path

    def model(self, chosen: str | None) -> str:
        """Return the name of the language model that is asked.

        Args:
            chosen: The model that the user chose. None takes the offline engine, if the program was
                made with it.

        Raises:
            UserError: The program was made with another model, and the user did not choose one.
        """
        made_with = self.manifest.lms.get("task", OFFLINE)
        if chosen:
            return chosen
        if made_with == OFFLINE:
            return OFFLINE
        raise UserError(
            f"{self.folder}: was compiled with {made_with!r}; "
            f"give --lm {shlex.quote(made_with)} (or MEMPILER_LM) if it is to be asked"
        )


@dataclass(frozen=True)
class _Contents:
    """The program itself, as its folder holds it; its origin and scores are no part of this."""

    state: str
    """The text of `state.json`."""
    fields: dict[str, Any]
    """Fields of the manifest."""


def save(program: MemoryProgram, folder: str | Path, manifest: Manifest | None = None) -> Manifest:
    """Save a program.

    Args:
        program: The program.
        folder: The folder to write. A saved program that is there is replaced; anything else is
            not.
        manifest: What is known beside the program itself: its benchmark, optimizer, scores.

    Returns:
        The manifest as it was written.

    Raises:
        UserError: The folder holds something else, or cannot be written.
    """
    if manifest is None:
        manifest = Manifest(method="", task="")
    contents = _contents_of(program)
    manifest = manifest.model_copy(
        update={
            **contents.fields,
            "schema_version": SCHEMA,
            "packages": versions(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    manifest = manifest.model_copy(update={"manifest_sha256": digest_of(manifest)})

    _write_folder(
        Path(folder),
        {
            STATE: contents.state,
            MANIFEST: manifest.model_dump_json(indent=1),
        },
    )
    return manifest


def holds_program(folder: str | Path, program: MemoryProgram) -> bool:
    """Tell whether a folder holds this very program, whatever its origin and scores.

    Raises:
        ProgramError: The folder holds no program, or it was altered.
    """
    fields = _contents_of(program).fields
    names = set(fields)
    expected = Manifest(**fields).model_dump(mode="json", include=names)
    return read_manifest(folder).model_dump(mode="json", include=names) == expected


def load(
    folder: str | Path, allow_code: bool = False, embedder: Embedder | None = None
) -> MemoryProgram:
    """Load a saved program.

    Args:
        folder: A folder that `save` wrote, or an address: `models:/NAME@ALIAS`,
            `hf://OWNER/NAME@REVISION`.
        allow_code: Whether a method that is named as `module:Class` may be imported. Allow it only
            for folders that you trust.
        embedder: The embedder that the program was made with, e.g. one behind an address of yours.
            None makes the one that the manifest names, if it runs in this process.

    Raises:
        ProgramError: The folder was altered, is of another version, or does not fit this code.
        DataError: It holds no saved program.
        UserError: It is neither a path nor a text.
    """
    local_folder = _local_folder(folder)
    return _load_folder(local_folder, allow_code, embedder).program


def open_program(
    folder: str | Path, allow_code: bool = False, **embedder_options: str | None
) -> LoadedProgram:
    """Load a saved program as `load` does, together with its manifest.

    Args:
        folder: The folder of the program, or its address.
        allow_code: Whether a method that is named as `module:Class` may be imported.
        **embedder_options: The embedder that the user chose; see `choose_embedder`.
    """
    local_folder = _local_folder(folder)
    embedder = choose_embedder(local_folder, **embedder_options)
    return _load_folder(local_folder, allow_code, embedder)


def _local_folder(folder: object) -> Path:
    """Return the folder on this machine that a folder or an address stands for.

    Raises:
        UserError: It is neither a path nor a text; callers without type checks may pass anything.
    """
    if not isinstance(folder, str | Path):
        raise UserError(
            f"folder = {folder!r:.60}: give the folder of a saved program, or an address such as"
            " models:/NAME@ALIAS"
        )
    local_folder = program_folder(folder)
    if local_folder is None:
        # There is no such folder. Whoever reads its manifest raises the error that says so.
        return Path(folder)
    return local_folder


def check_writable(folder: str | Path) -> None:
    """Check that `save` can write a folder, before anything is paid for.

    Raises:
        UserError: The folder holds something else than a saved program, or cannot be written.
    """
    # `save` makes such a temporary folder, too. That it can be made is the whole check.
    with _temporary_folder(Path(folder).resolve()):
        pass


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide what a program does."""
    return {package: _installed_version(package) for package in PACKAGES}


# Python reads the whole description of a package to find its version, which takes milliseconds.
@cache
def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _contents_of(program: MemoryProgram) -> _Contents:
    """Return the text of `state.json` and the fields of the manifest that describe a program."""
    states: dict[str, PredictorState] = {}
    for name, predictor in sorted(program.all_predictors().items()):
        states[name] = dump_predictor(predictor)
    state_values = {name: state.model_dump(mode="json") for name, state in states.items()}
    state_text = json.dumps(state_values, indent=1, ensure_ascii=False)

    embedder = program.method.embedder
    # Only embedders of Mempiler have a reranker, and not all of them.
    reranker = getattr(embedder, "reranker", None)
    fields = {
        "method": program.name,
        "task": program.task.name,
        "config": program.config,
        "adapter": program.adapter,
        "embedder": embedder.name if embedder else None,
        "reranker": getattr(reranker, "name", None),
        "signatures": {name: fingerprint(state.fields) for name, state in states.items()},
        "state_sha256": sha256_of(state_text),
    }
    return _Contents(state_text, fields)


def _load_folder(folder: Path, allow_code: bool, embedder: Embedder | None) -> LoadedProgram:
    """Load the program of a folder of this machine."""
    manifest = read_manifest(folder)
    states = read_states(folder)

    method = manifest.method
    if method.startswith(URL_PREFIXES) or method.endswith(ANSWER_FILE_ENDINGS):
        reason = "is an address or a file; no saved program is one"
        raise ProgramError(f"{folder}: its method {method!r} {reason}")
    if ":" in method and not allow_code:
        raise ProgramError(
            f"{folder}: its method {method!r} is code outside Mempiler; "
            "load it with allow_code=True (--allow-code) if you trust it"
        )

    program = _build_program(folder, manifest, embedder_for(folder, manifest, embedder))
    _assign_states(folder, program, manifest, states)
    return LoadedProgram(program, manifest, folder)


def _build_program(folder: Path, manifest: Manifest, embedder: Embedder | None) -> MemoryProgram:
    """Build the program that a manifest describes, with the prompts of the code.

    Raises:
        ProgramError: The adapter or a setting of the manifest does not fit this code.
    """
    method = manifest.method
    adapter = manifest.adapter
    if adapter not in ADAPTERS:
        known = ", ".join(ADAPTERS)
        raise ProgramError(f"{folder}: its adapter {adapter!r} is none of {known}")

    # `build` takes the settings of the config as keyword arguments. A setting named like another
    # argument of `build`, such as "embedder", would take the place of that argument.
    build_arguments = inspect.signature(build).parameters
    reserved_names = sorted(set(manifest.config) & set(build_arguments))
    if reserved_names:
        reason = f"which is no setting of {method!r}"
        raise ProgramError(f"{folder}: its config holds {reserved_names[0]!r}, {reason}")

    # Relative dates are resolved by default. Early versions did not resolve them, and the config of
    # a program of theirs does not have the setting. Such a program goes on without.
    config = {f"{TASK_PREFIX}dates": False, **manifest.config}
    system = external_system(manifest)
    try:
        if system is None:
            return build(method, manifest.task, embedder, adapter=adapter, **config)
        return build_external_program(
            system, method, manifest.task, embedder, adapter=adapter, config=config
        )
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{folder}: its config does not fit {method!r}: {error}") from error


def _assign_states(
    folder: Path,
    program: MemoryProgram,
    manifest: Manifest,
    states: Mapping[str, PredictorState],
) -> None:
    """Give a program the saved prompts; all are checked before the first is assigned."""
    predictors = program.all_predictors()
    not_in_code = sorted({*states, *manifest.signatures} - set(predictors))
    if not_in_code:
        raise ProgramError(
            f"{folder}: saved predictor {not_in_code[0]} is not in the code;"
            " compile again with this version"
        )
    not_saved = sorted(set(predictors) - set(states))
    if not_saved:
        raise ProgramError(
            f"{folder}: predictor {not_saved[0]} of the code is not in the saved program;"
            " compile again"
        )

    parsed_states = {
        name: parse_predictor(predictors[name], state, name) for name, state in states.items()
    }
    for name, state in parsed_states.items():
        state.assign_to(predictors[name])


@contextmanager
def _temporary_folder(folder: Path) -> Generator[Path]:
    """Make a temporary folder in which `_write_folder` prepares the new content of a folder.

    It is on the same disk as that folder, so that content can be moved from one to the other in one
    step. It is removed at the end of the block.

    Raises:
        UserError: The folder holds something else than a program, or cannot be written.
    """
    _refuse_other_content(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            yield temporary
        finally:
            # `_write_folder` moves the previous program here. If it could neither finish nor move
            # that program back, this is the only copy, and it stays.
            is_only_copy = (temporary / _PREVIOUS_PROGRAM).exists() and not folder.exists()
            if not is_only_copy:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{folder}: cannot be written: {reason}; choose another --out") from error


def _refuse_other_content(folder: Path) -> None:
    """Refuse to replace a folder that holds anything but a saved program.

    Raises:
        UserError: The path is a file, or a folder with other files.
    """
    if folder.exists() and not _has_only_program_files(folder):
        raise UserError(f"{folder}: exists and is no saved program; choose another --out")
    # Somebody else's files may have the same names. A manifest of ours has this field.
    refuse_foreign_folder(folder, MANIFEST, mark='"schema_version"')


def _has_only_program_files(folder: Path) -> bool:
    """Tell whether a path is an empty folder, or one with the files of a program and no others."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    return not names or names == _PROGRAM_FILES


def _write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Replace a folder by one with these files, so that there is always a whole program.

    Args:
        folder: The folder.
        files: The text of each file by its name.
    """
    folder = folder.resolve()
    with _temporary_folder(folder) as temporary:
        new = temporary / "new"
        old = temporary / _PREVIOUS_PROGRAM
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
