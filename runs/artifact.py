"""Saved programs: a folder with `manifest.json` and `state.json`, plain JSON, checked before anything is used.

The state holds prompts (instructions, fields, demos) by predictor name; never a language model, a key or a pickle. A
folder decides what a model is asked, never where: addresses, headers and keys come from whoever runs the program.
"""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..engines.embedders import IN_PROCESS, NO_RERANKER, TextEmbedder
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.model_names import OFFLINE
from ..engines.rerankers import TOKENS
from ..errors import ProgramError, UserError
from ..memory.search.embedder import Embedder
from ..programs.adapter import ADAPTERS
from ..programs.catalog import build, needs_embedder
from ..programs.external.program import build_external_program
from ..programs.external.target import URL_PREFIXES, takes_embedder
from ..programs.program import MemoryProgram
from ..programs.state import PredictorState, dump_predictor, fingerprint, parse_predictor
from ..programs.tasks.settings import TASK_PREFIX
from .external import ANSWERS, SYSTEM, resolve_external
from .home import refuse_foreign
from .manifest import MANIFEST, SCHEMA, STATE, Manifest, digest_of, read_manifest, read_states, sha256_of
from .registry import program_folder

_KNOWN = (set[str](), {MANIFEST, STATE})
"""What a folder may hold that is replaced."""
PACKAGES = ("mempiler", "dspy", "litellm", "mlflow", "pydantic")


@dataclass(frozen=True)
class LoadedProgram:
    """A program as it was loaded, and what is known of its folder."""

    program: MemoryProgram
    manifest: Manifest
    folder: Path

    def model(self, chosen: str | None) -> str:
        """The name of the language model to ask.

        Args:
            chosen: By whoever runs the program; None takes the offline engine, where the manifest names that.

        Raises:
            UserError: Nobody chose one, and the folder may not choose it by itself.
        """
        named = self.manifest.lms.get("task", OFFLINE)
        if chosen or named == OFFLINE:
            return chosen or named
        raise UserError(
            f"{self.folder}: was compiled with {named!r}; "
            f"give --lm {shlex.quote(named)} (or MEMPILER_LM) if it is to be asked"
        )


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
    contents = _contents(program)
    manifest = (manifest or Manifest(method="", task="")).model_copy(
        update={
            **contents.fields,
            "schema_version": SCHEMA,
            "packages": versions(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    manifest = manifest.model_copy(update={"manifest_sha256": digest_of(manifest)})
    _write(Path(folder), {STATE: contents.state, MANIFEST: manifest.model_dump_json(indent=1)})
    return manifest


def holds_program(folder: str | Path, program: MemoryProgram) -> bool:
    """Return whether a folder holds this very program, whatever else its manifest says of it.

    Raises:
        ProgramError: The folder holds no program, or it was altered.
    """
    fields = _contents(program).fields
    expected = Manifest(**fields).model_dump(mode="json", include=set(fields))
    return read_manifest(folder).model_dump(mode="json", include=set(fields)) == expected


@dataclass(frozen=True)
class _Contents:
    """What makes a program: all that a saved one has in its files but for its history and scores."""

    state: str
    """The text of `state.json`."""
    fields: dict[str, Any]
    """Fields of the manifest."""


def _contents(program: MemoryProgram) -> _Contents:
    states = {name: dump_predictor(predictor) for name, predictor in sorted(program.all_predictors().items())}
    dumped = {name: state.model_dump(mode="json") for name, state in states.items()}
    text = json.dumps(dumped, indent=1, ensure_ascii=False)
    embedder = program.method.embedder
    fields = {
        "method": program.name,
        "task": program.task.name,
        "config": program.config,
        "adapter": program.adapter,
        "embedder": embedder.name if embedder else None,
        "reranker": getattr(getattr(embedder, "reranker", None), "name", None),
        "signatures": {name: fingerprint(state.fields) for name, state in states.items()},
        "state_sha256": sha256_of(text),
    }
    return _Contents(text, fields)


def load(folder: str | Path, allow_code: bool = False, embedder: Embedder | None = None) -> MemoryProgram:
    """Loads a saved program.

    Args:
        folder: A folder that `save` wrote, or an address: `models:/NAME@ALIAS`, `hf://OWNER/NAME@REVISION`.
        allow_code: Whether a method given as `module:Class` may be imported; only for folders you trust.
        embedder: Makes the vectors, e.g. one behind an address of your own; None takes the one that the manifest names,
            where that runs in this process.

    Raises:
        ProgramError: The folder was altered, is of another version, or does not fit this code.
        DataError: It holds no saved program.
    """
    return _opened(program_folder(folder) or Path(folder), allow_code, embedder).program


def open_program(folder: str | Path, allow_code: bool = False, **chosen: str | None) -> LoadedProgram:
    """As `load`, with what is known of the folder, and an embedder that is chosen as `chosen_embedder` says."""
    folder = program_folder(folder) or Path(folder)
    return _opened(folder, allow_code, chosen_embedder(folder, **chosen))


def _opened(folder: Path, allow_code: bool, embedder: Embedder | None) -> LoadedProgram:
    manifest, states = read_manifest(folder), read_states(folder)
    if manifest.method.startswith(URL_PREFIXES) or manifest.method.endswith(ANSWERS):
        raise ProgramError(f"{folder}: its method {manifest.method!r} is an address or a file; no saved program is one")
    if ":" in manifest.method and not allow_code:
        raise ProgramError(
            f"{folder}: its method {manifest.method!r} is code outside Mempiler; "
            "load it with allow_code=True (--allow-code) if you trust it"
        )
    embedder = _embedder(folder, manifest, embedder)
    program = _built(folder, manifest, embedder)
    _take(folder, program, manifest, states)
    return LoadedProgram(program, manifest, folder)


def chosen_embedder(
    folder: str | Path,
    embedder: str | None = None,
    embedder_api_base: str | None = None,
    reranker: str | None = None,
) -> TextEmbedder | None:
    """The embedder that whoever runs a saved program chose for it, for `load`.

    Args:
        folder: The program's.
        embedder: Its name.
        embedder_api_base: Address of an OpenAI-compatible server, which then knows the program's embedder by its name.
        reranker: As `engines.embedders.embedder` takes it.

    Returns:
        The program's embedder, if it runs in this process, was named or has an address; else None, and `load` decides.
    """
    manifest = read_manifest(folder)
    made_with = manifest.embedder
    if made_with in IN_PROCESS:
        return make_embedder(made_with, None, reranker) if reranker else embedder_of(Path(folder), manifest)
    if made_with is None or (made_with != embedder and not embedder_api_base):
        return None
    return make_embedder(made_with, embedder_api_base, reranker)


def check_writable(folder: str | Path) -> None:
    """Checks that `save` can write a folder, before any paid call.

    Raises:
        UserError: The folder holds something else, or cannot be written.
    """
    with _staging(Path(folder).resolve()):
        pass


def _embedder(folder: Path, manifest: Manifest, given: Embedder | None) -> Embedder | None:
    """The embedder that a program needs, if any; the folder alone does not choose one far away."""
    system = _system(manifest)
    if not (needs_embedder(manifest.method) if system is None else takes_embedder(system)):
        return None
    named = manifest.embedder or OFFLINE_EMBEDDER
    if given is not None and given.name != named:
        raise ProgramError(f"{folder}: was made with the embedder {named!r}, not {given.name!r}")
    if given is None and named not in IN_PROCESS:
        raise ProgramError(
            f"{folder}: was made with the embedder {named!r}; "
            f"give --embedder {shlex.quote(named)} (embedder=... in Python) if texts may be sent to it"
        )
    return given or embedder_of(folder, manifest)


def embedder_of(folder: Path, manifest: Manifest) -> TextEmbedder:
    """The embedder of this process that a program was made with, and what ranked its hits again.

    Raises:
        ProgramError: That was a model of fastembed, which is loaded only where it is named.
    """
    if (manifest.reranker or TOKENS) != TOKENS:
        raise ProgramError(f"{folder}: was made with --reranker {manifest.reranker}; give that if it may be loaded")
    return make_embedder(manifest.embedder or OFFLINE_EMBEDDER, None, manifest.reranker or NO_RERANKER)


def _built(folder: Path, manifest: Manifest, embedder: Embedder | None) -> MemoryProgram:
    if manifest.adapter not in ADAPTERS:
        raise ProgramError(f"{folder}: its adapter {manifest.adapter!r} is none of {', '.join(ADAPTERS)}")
    taken = sorted(set(manifest.config) & set(inspect.signature(build).parameters))
    if taken:
        raise ProgramError(f"{folder}: its config holds {taken[0]!r}, which is no setting of {manifest.method!r}")
    # Programs that were saved before relative dates were resolved by default say nothing of them, and had none.
    system, config = _system(manifest), {f"{TASK_PREFIX}dates": False, **manifest.config}
    try:
        if system is not None:
            return build_external_program(
                system, manifest.method, manifest.task, embedder, adapter=manifest.adapter, config=config
            )
        return build(manifest.method, manifest.task, embedder, adapter=manifest.adapter, **config)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{folder}: its config does not fit {manifest.method!r}: {error}") from error


def _system(manifest: Manifest) -> Any | None:
    return resolve_external(manifest.method) if manifest.method.startswith(SYSTEM) else None


def _take(folder: Path, program: MemoryProgram, manifest: Manifest, states: dict[str, PredictorState]) -> None:
    """Gives a program the saved states; all are checked before the first is assigned."""
    predictors = program.all_predictors()
    missing = sorted(({*states, *manifest.signatures}) - set(predictors))
    if missing:
        raise ProgramError(
            f"{folder}: saved predictor {missing[0]} is not in the code; compile again with this version"
        )
    absent = sorted(set(predictors) - set(states))
    if absent:
        raise ProgramError(f"{folder}: predictor {absent[0]} of the code is not in the saved program; compile again")
    parsed = {name: parse_predictor(predictors[name], state, name) for name, state in states.items()}
    for name, parsed_state in parsed.items():
        parsed_state.assign_to(predictors[name])


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, on the same disk; removed unless it holds the only copy of a program."""
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} in _KNOWN):
        raise UserError(f"{folder}: exists and is no saved program; choose another --out")
    refuse_foreign(folder, '"schema_version"', MANIFEST)
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


def versions() -> dict[str, str]:
    """The versions of the packages that decide what a program does."""
    found: dict[str, str] = dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
