"""Publishing a saved program: to MLflow's model registry through a gate, or to the Hugging Face hub.

The gate asks of the dev questions, by the verdict a compile decides by, whether the program is better than what the
alias names now. The model holds no pickle: some lines of code (`registered_model.ENTRY`) and the program's JSON files.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import ProgramError, UserError
from ..programs.program import MemoryProgram
from ..text import one_line
from .artifact import open_program
from .manifest import MANIFEST, STATE, Manifest, read_manifest, read_states
from .promotion import rejection_reason
from .registered_model import ENTRY, PAST
from .registry import DIGEST, HUB, REGISTERED, hub_errors, program_folder, repository, resolve
from .statistics import MIN_N, Difference, Scope, compare_paired_scores
from .tracking import Tracker, client, tracking_uri

PART = "model"
"""The model's path among the artifacts of its run."""
SAME = {"name": "benchmark", "metric": "metric", "sha256": "data (sha256)", "split_sha256": "split"}
"""What two manifests' benchmarks must share for their dev scores to be compared."""


@dataclass(frozen=True)
class GateDecision:
    """What the gate says of a program that is to be registered."""

    line: str
    """The decision on one line."""
    difference: Difference | None
    """The program minus what the alias names now, on the dev questions; None if they were not compared."""

    @property
    def scope(self) -> Scope | None:
        """What the decision speaks of; None if no programs were compared."""
        return None if self.difference is None else self.difference.scope


@dataclass(frozen=True)
class Registered:
    """A program in the registry."""

    name: str
    version: str
    alias: str | None
    new: bool
    """False where this very program was a version already."""
    gate: str
    """What the gate said, in one line."""
    scope: Scope | None = None
    """What that speaks of; None if no programs were compared."""

    @property
    def address(self) -> str:
        """What is taken wherever a program folder is."""
        return f"{REGISTERED}{self.name}@{self.alias}" if self.alias else f"{REGISTERED}{self.name}/{self.version}"

    def summary(self) -> dict[str, Any]:
        """The object that `register --json` prints."""
        return {**vars(self), "address": self.address, "tracking_uri": tracking_uri()}


def register(
    program: str | Path,
    name: str,
    alias: str | None = None,
    force: bool = False,
    allow_code: bool = False,
    min_n: int | None = None,
) -> Registered:
    """Makes a saved program a version of a registered model, and lets the alias point to it.

    Args:
        program: Its folder, or the address of a version (to give it an alias, or another name).
        name: The registered model; made if it is new.
        alias: Points to the version from here on; what it points to now is what the gate compares with.
        force: Registers whatever the gate decides.
        allow_code: Whether a program's `module:Class` method may be imported.
        min_n: Below so many dev questions nothing is promoted; if None, as when the program was compiled.

    Raises:
        UserError: The gate refuses it, the name or alias is none that MLflow takes, or the store cannot be reached.
        ProgramError: The folder was altered, or does not fit this code.
    """
    if alias is not None and (not re.fullmatch(r"[\w-]{1,255}", alias) or re.fullmatch(r"latest|v\d+", alias, re.I)):
        raise UserError(f"{alias!r}: an alias is one word, and neither latest nor v and a number; choose another")
    if not name.strip() or set(name) & set("/:@'\"\\"):
        raise UserError(f"{name!r}: the name of a registered model has no slash, colon, @ or quote; choose another")
    folder = program_folder(program)
    if folder is None:
        raise ProgramError(f"{program}: no saved program here; give the folder that `mempiler compile` made")
    manifest = read_manifest(folder)
    # Nothing is sent to the embedder here, so the folder may name it.
    opened = open_program(folder, allow_code, embedder=manifest.embedder)
    decision = gate(manifest, *_current(name, alias), force=force, min_n=min_n)
    known = _known(name, manifest.manifest_sha256)
    number = known or _version(folder, opened.program, manifest, name, decision)
    if alias:
        _asked("set_registered_model_alias", name, alias, number)
    return Registered(name, number, alias, known is None, decision.line, decision.scope)


def push(folder: str | Path, name: str, private: bool = False) -> str:
    """Puts a saved program on the hub, as one commit of a repository, which is made if it is new.

    Args:
        folder: The program's.
        name: `hf://OWNER/NAME`.
        private: Whether a new repository is private.

    Returns:
        The address with the commit.

    Raises:
        UserError: There is no token, or it may not write there.
        EndpointError: The hub cannot be reached.
        ProgramError: The folder was altered.
    """
    folder = Path(folder)
    repo, revision = repository(name)
    if revision:
        raise UserError(f"{name}: a commit is made by pushing; leave out @{revision}")
    read_states(folder)
    with hub_errors(name):
        from huggingface_hub import HfApi, get_token

        if not get_token():
            raise UserError(f"{name}: pushing needs a token of the hub; set HF_TOKEN, or run: hf auth login")
        hub = HfApi()
        hub.create_repo(repo, private=private, exist_ok=True)
        what = {"repo_id": repo, "folder_path": folder, "allow_patterns": [MANIFEST, STATE]}
        done = hub.upload_folder(**what, commit_message="Push a program of Mempiler")
    return f"{HUB}{repo}@{done.oid}"


def gate(
    manifest: Manifest, other: Manifest | None = None, address: str = "", force: bool = False, min_n: int | None = None
) -> GateDecision:
    """Decide whether a program may take the place of the other, which an alias's address names.

    Raises:
        UserError: It may not, and is not forced; the message says why.
    """
    difference = None
    reason = _not_comparable(manifest, other, address)
    if reason is None and other is not None and other.manifest_sha256 != manifest.manifest_sha256:
        compiled_min_n: int = manifest.scores["gate"].get("min_n", MIN_N)
        difference = _dev_difference(manifest, other, compiled_min_n if min_n is None else min_n)
        reason = rejection_reason(difference, address)

    if reason is not None:
        if not force:
            raise UserError(f"{reason}; --force registers it all the same")
        return GateDecision(f"forced: {reason}", difference)

    new = manifest.scores["gate"]
    line = f"dev {new['score']:.3f} (n = {new['n']}, {new['lm']})"
    if other is None:
        return GateDecision(f"{line}, nothing to compare with", None)

    old = other.scores["gate"]
    line += f", {address} has {old['score']:.3f} ({old['lm']})"
    if difference is not None:
        line += f": {difference.statement}"
    return GateDecision(line, difference)


def _not_comparable(manifest: Manifest, other: Manifest | None, address: str) -> str | None:
    """Say why the dev scores of two programs cannot be compared; return None if they can."""
    new = manifest.scores.get("gate")
    if not new or new["score"] is None:
        return "the program has no score on dev questions; make it with `mempiler compile`"
    if new["stopped"]:
        return f"its scoring was stopped ({new['stopped']}); finish the compile with --resume"
    if other is None or other.manifest_sha256 == manifest.manifest_sha256:
        return None

    old = other.scores.get("gate")
    if not old or old["score"] is None:
        return f"{address} has no score on dev questions to compare with"
    for key, what in SAME.items():
        if manifest.benchmark.get(key) != other.benchmark.get(key):
            values = f"{manifest.benchmark.get(key)} here, {other.benchmark.get(key)} there"
            return f"{address} was scored on another {what} ({values}); compile on the same one"
    if new["judge"] != old["judge"]:
        return f"{address} was scored by another judge ({new['judge']} here, {old['judge']} there)"

    for scores, owner in ((old, address), (new, "the program")):
        if not scores.get("scores"):
            return f"{owner} keeps no score of each dev question to compare by; compile it again"
    if len(new["scores"]) != len(old["scores"]):
        return f"{address} was scored on another number of dev questions ({new['n']} here, {old['n']} there)"
    return None


def _dev_difference(manifest: Manifest, other: Manifest, min_n: int) -> Difference:
    """Return the difference of two programs' scores on the dev questions, which are the same for both."""
    new = manifest.scores["gate"]
    groups = [str(group) for group in new["groups"]]
    return compare_paired_scores(new["scores"], other.scores["gate"]["scores"], groups, min_n=min_n)


def _current(name: str, alias: str | None) -> tuple[Manifest | None, str]:
    if alias is None:
        return None, ""
    address, models = f"{REGISTERED}{name}@{alias}", _asked("search_registered_models", f"name = '{name}'")
    return (read_manifest(resolve(address)) if models and alias in models[0].aliases else None), address


def _known(name: str, digest: str) -> str | None:
    found = _asked("search_model_versions", f"name = '{name}'")
    same = [each for each in found if each.status == "READY" and dict(each.tags).get(DIGEST) == digest]
    return str(max(int(each.version) for each in same)) if same else None


def _version(folder: Path, program: MemoryProgram, manifest: Manifest, name: str, decision: GateDecision) -> str:
    tags = {DIGEST: manifest.manifest_sha256, "mempiler.version": __version__, "mempiler.gate": decision.line}
    if decision.scope is not None:
        tags["mempiler.scope"] = decision.scope
    with Tracker(f"register-{name}", {"command": "register"}) as tracker, tempfile.TemporaryDirectory() as scratch:
        tracker.params({"name": name, "program": manifest.method})
        _build(Path(scratch), folder, program)
        tracker.files(Path(scratch) / PART, PART)
        if tracker.failed is not None:
            raise UserError(f"the model could not be stored: {tracker.failed}; nothing was registered")
        source = f"{client().get_run(tracker.run_id).info.artifact_uri}/{PART}"
        if not _asked("search_registered_models", f"name = '{name}'"):
            _asked("create_registered_model", name)
        made = _asked("create_model_version", name, source, tracker.run_id, tags=tags, description=decision.line)
    return str(made.version)


def _build(scratch: Path, folder: Path, program: MemoryProgram) -> None:
    (scratch / "program.py").write_text(ENTRY, encoding="utf-8")
    (scratch / "program").mkdir()
    for file in (MANIFEST, STATE):
        shutil.copyfile(folder / file, scratch / "program" / file)
    with warnings.catch_warnings():
        # It would like type hints instead of the signature that is given.
        warnings.simplefilter("ignore")
        from mlflow.models import ModelSignature
        from mlflow.pyfunc import save_model
        from mlflow.types import ColSpec, DataType, Schema
        from mlflow.types.schema import AnyType

        names = {**dict.fromkeys(program.task.inputs, True), **dict.fromkeys(PAST, False)}
        kinds: dict[str, Any] = {name: DataType.string if name == "question" else AnyType() for name in names}
        columns: Any = [ColSpec(kinds[name], name, required) for name, required in names.items()]
        save_model(
            str(scratch / PART),
            python_model=str(scratch / "program.py"),
            artifacts={"program": str(scratch / "program")},
            signature=ModelSignature(Schema(columns)),
            pip_requirements=[f"mempiler=={__version__}"],
        )


def _asked(call: str, *values: Any, **named: Mapping[str, Any] | str) -> Any:
    try:
        return getattr(client(), call)(*values, **named)
    except Exception as error:
        raise UserError(f"MLflow store {tracking_uri()}: {one_line(error, 300)}") from error
