"""Addresses of programs, wherever the folder of one goes: MLflow's registry and the Hugging Face hub.

models:/NAME@ALIAS        registry ──┐
hf://OWNER/NAME@REVISION  hub ───────┴── pinned ──> a version, a commit ── resolve ──> a folder, checked
"""

from __future__ import annotations

from pathlib import Path

HUB = "hf://"
REGISTERED = "models:/"


def is_address(name: str | Path) -> bool:
    """Whether a name is the address of a program, rather than a folder or a method."""
    return str(name).startswith((HUB, REGISTERED))


def pinned(name: str) -> str:
    """The address of what an address names now, which does not change any more; any other name as it is.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
    """
    if not is_address(name):
        return name
    from . import hub, registry

    return hub.pinned(name) if name.startswith(HUB) else registry.pinned(name)


def resolve(name: str | Path) -> Path:
    """Fetches the program of an address, unless it is here already, and checks it.

    Returns:
        A folder that `artifact.load` takes.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
        ProgramError: It is no program of Mempiler, or was altered.
    """
    from . import hub, registry

    return hub.resolve(str(name)) if str(name).startswith(HUB) else registry.resolve(name)


def program_folder(name: str | Path) -> Path | None:
    """The folder of a saved program: a folder itself, or the copy of what an address names; None for any other name.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
        ProgramError: It was altered.
    """
    if is_address(name):
        return resolve(name)
    return Path(name) if Path(name).is_dir() else None
