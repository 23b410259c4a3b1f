"""Publishing a saved program: to MLflow's model registry through a gate, or to the hub.

A version in the registry holds no pickle. It holds the JSON files of the program, and a few lines
of code with which MLflow serves it (`registered_model.ENTRY`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import ProgramError, UserError
from ..programs.program import MemoryProgram
from .artifact import open_program
from .gate import GateDecision, gate
from .hub import HUB_PREFIX, HubAddress, hub_errors
from .manifest import MANIFEST, STATE, Manifest, check_states, read_manifest
from .model_registry import DIGEST_TAG, REGISTRY_PREFIX
from .program_address import fetch_program, program_folder
from .promotion import PromotionBasis
from .registered_model import ENTRY, HISTORY_FIELDS
from .statistics import Scope
from .tracking.store import client, store_errors, tracking_uri
from .tracking.tracker import Tracker

MODEL = "model"
"""The folder of the model among the artifacts of its run."""


@dataclass(frozen=True)
class RegisteredProgram:
    """A program in the model registry."""

    name: str
    version: str
    alias: str | None
    is_new: bool
    """False if this very program was a version already."""
    gate: str
    """What the gate said, on one line."""
    scope: Scope | None = None
    """Which questions the gate spoke of; None if no programs were compared."""
    basis: PromotionBasis | None = None
    """What the gate accepted it for; None if no programs were compared, or it was forced."""

    @property
    def address(self) -> str:
        """The address of the program."""
        if self.alias:
            return f"{REGISTRY_PREFIX}{self.name}@{self.alias}"
        return f"{REGISTRY_PREFIX}{self.name}/{self.version}"

    def summary(self) -> dict[str, Any]:
        """Return the object that `mempiler publish --json` prints."""
        return {
            "name": self.name,
            "version": self.version,
            "alias": self.alias,
            "new": self.is_new,
            "gate": self.gate,
            "scope": self.scope,
            "basis": self.basis,
            "address": self.address,
            "tracking_uri": tracking_uri(),
        }


def register(
    program: str | Path,
    name: str,
    alias: str | None = None,
    force: bool = False,
    allow_code: bool = False,
    min_n: int | None = None,
    margin: float | None = None,
) -> RegisteredProgram:
    """Make a saved program a version of a registered model, and let an alias point to it.

    Args:
        program: Its folder, or the address of a version that gets an alias or another name.
        name: The registered model, which is created if it is new.
        alias: Points to the version from now on. The gate compares with the program to which it
            points now.
        force: Whether a program is registered that the gate would refuse.
        allow_code: Whether a method that is named as `module:Class` may be imported.
        min_n: With fewer dev questions the gate refuses the program. None takes the number of the
            program's compile.
        margin: How much worse a cheaper program may be. None takes the margin of the program's
            compile.

    Raises:
        UserError: The gate refuses the program, MLflow does not take the name or alias, or the
            store cannot be reached.
        ProgramError: The folder was altered, or does not fit this code.
    """
    if alias is not None:
        _check_alias(alias)
    _check_model_name(name)
    folder = program_folder(program)
    if folder is None:
        advice = "give the folder that `mempiler compile` made"
        raise ProgramError(f"{program}: no saved program here; {advice}")

    manifest = read_manifest(folder)
    # Nothing is sent to the embedder here, so the folder may name it.
    opened = open_program(folder, allow_code, embedder=manifest.embedder)

    current = None
    current_address = ""
    if alias is not None:
        current_address = f"{REGISTRY_PREFIX}{name}@{alias}"
        if _has_alias(name, alias):
            current = read_manifest(fetch_program(current_address))
    decision = gate(manifest, current, current_address, force, min_n, margin)

    return add_version(folder, opened.program, name, alias, decision)


def add_version(
    folder: Path,
    program: MemoryProgram,
    name: str,
    alias: str | None,
    decision: GateDecision,
) -> RegisteredProgram:
    """Make a program that was accepted a version of a registered model; let an alias point to it.

    A program that is a version already gets no second one.

    Args:
        folder: The folder of the program.
        program: The program.
        name: The registered model, which is created if it is new.
        alias: Points to the version from now on; None moves none.
        decision: Why the program was accepted.

    Raises:
        UserError: The store takes no files, or cannot be reached.
    """
    manifest = read_manifest(folder)
    known_version = _find_same_program(name, manifest)
    version = known_version
    if version is None:
        version = _create_version(name, folder, program, manifest, decision)
    if alias:
        with store_errors():
            client().set_registered_model_alias(name, alias, version)
    return RegisteredProgram(
        name,
        version,
        alias,
        is_new=known_version is None,
        gate=decision.line,
        scope=decision.scope,
        basis=decision.basis,
    )


def push(folder: str | Path, address: str, private: bool = False) -> str:
    """Put a saved program on the hub, as one commit; create the repository if it is new.

    Args:
        folder: The folder of the program.
        address: `hf://OWNER/NAME`.
        private: Whether a new repository is private.

    Returns:
        The address with the commit.

    Raises:
        UserError: There is no token, or it does not allow to write there.
        EndpointError: The hub cannot be reached.
        ProgramError: The folder was altered.
    """
    folder = Path(folder)
    hub_address = HubAddress.parse(address)
    if hub_address.revision:
        revision = hub_address.revision
        raise UserError(f"{address}: a commit is made by pushing; leave out @{revision}")
    check_states(folder)

    with hub_errors(address):
        from huggingface_hub import HfApi, get_token

        if not get_token():
            advice = "set HF_TOKEN, or run: hf auth login"
            raise UserError(f"{address}: pushing needs a token of the hub; {advice}")
        hub = HfApi()
        hub.create_repo(hub_address.repository, private=private, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=hub_address.repository,
            folder_path=folder,
            allow_patterns=[MANIFEST, STATE],
            commit_message="Push a program of Mempiler",
        )
    return f"{HUB_PREFIX}{hub_address.repository}@{commit.oid}"


def _check_alias(alias: str) -> None:
    """Refuse an alias that MLflow does not take.

    Raises:
        UserError: It is such an alias.
    """
    is_word = re.fullmatch(r"[\w-]{1,255}", alias)
    is_reserved = re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE)
    if not is_word or is_reserved:
        raise UserError(
            f"{alias!r}: an alias is one word, and neither latest nor v and a number;"
            " choose another"
        )


def _check_model_name(name: str) -> None:
    """Refuse a name of a model that cannot stand in an address.

    Raises:
        UserError: It is such a name.
    """
    if not name.strip() or set(name) & set("/:@'\"\\"):
        raise UserError(
            f"{name!r}: the name of a registered model has no slash, colon, @ or quote;"
            " choose another"
        )


def _has_alias(name: str, alias: str) -> bool:
    """Tell whether there is a registered model with an alias."""
    with store_errors():
        models = client().search_registered_models(f"name = '{name}'")
    return bool(models) and alias in models[0].aliases


def _find_same_program(name: str, manifest: Manifest) -> str | None:
    """Return the newest version of a model that is this very program; None if there is none."""
    with store_errors():
        versions = client().search_model_versions(f"name = '{name}'")

    same_versions: list[int] = []
    for version in versions:
        digest = dict(version.tags).get(DIGEST_TAG)
        if version.status == "READY" and digest == manifest.manifest_sha256:
            same_versions.append(int(version.version))
    if not same_versions:
        return None
    return str(max(same_versions))


def _create_version(
    name: str, folder: Path, program: MemoryProgram, manifest: Manifest, decision: GateDecision
) -> str:
    """Store a program in a run of its own, and make it a version of a model.

    Args:
        name: The registered model, which is created if it is new.
        folder: The folder of the program.
        program: The program.
        manifest: Its manifest.
        decision: What the gate said.

    Returns:
        The number of the version.

    Raises:
        UserError: The store takes no files, or cannot be reached.
    """
    tags: dict[str, str] = {
        DIGEST_TAG: manifest.manifest_sha256,
        "mempiler.version": __version__,
        "mempiler.gate": decision.line,
    }
    if decision.scope is not None:
        tags["mempiler.scope"] = decision.scope
    if decision.basis is not None:
        tags["mempiler.basis"] = decision.basis

    with (
        Tracker(f"register-{name}", {"command": "register"}) as tracker,
        tempfile.TemporaryDirectory() as temporary,
    ):
        tracker.log_params({"name": name, "program": manifest.method})
        model = _write_model(Path(temporary), folder, program)
        tracker.log_folder(model, MODEL)
        if tracker.failure is not None:
            raise UserError(
                f"the model could not be stored: {tracker.failure}; nothing was registered"
            )

        mlflow_client = client()
        source = f"{mlflow_client.get_run(tracker.run_id).info.artifact_uri}/{MODEL}"
        with store_errors():
            if not mlflow_client.search_registered_models(f"name = '{name}'"):
                mlflow_client.create_registered_model(name)
            version = mlflow_client.create_model_version(
                name, source, tracker.run_id, tags=tags, description=decision.line
            )
    return str(version.version)


def _write_model(parent: Path, folder: Path, program: MemoryProgram) -> Path:
    """Write the folder of the model that MLflow serves; return it.

    Args:
        parent: An empty folder.
        folder: The folder of the program.
        program: The program.
    """
    code = parent / "program.py"
    code.write_text(ENTRY, encoding="utf-8")
    artifacts = parent / "program"
    artifacts.mkdir()
    for file in (MANIFEST, STATE):
        shutil.copyfile(folder / file, artifacts / file)

    model = parent / MODEL
    with warnings.catch_warnings():
        # MLflow advises type hints in the place of a signature.
        warnings.simplefilter("ignore")
        from mlflow.pyfunc import save_model

        save_model(
            str(model),
            python_model=str(code),
            artifacts={"program": str(artifacts)},
            signature=_signature_of(program),
            pip_requirements=[f"mempiler=={__version__}"],
        )
    return model


def _signature_of(program: MemoryProgram) -> Any:
    """Return what MLflow lets a row hold: the inputs of the program's task, and a history."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    columns: list[ColSpec | TensorSpec] = []
    for name in program.task.inputs:
        kind = DataType.string if name == "question" else AnyType()
        columns.append(ColSpec(kind, name, required=True))
    for name in HISTORY_FIELDS:
        columns.append(ColSpec(AnyType(), name, required=False))
    return ModelSignature(Schema(columns))
