"""Addresses of programs, which work wherever the folder of a program does.

models:/locomo-qa@prod ── pin_address ──> models:/locomo-qa/3
                       ── fetch_program ──> runs/local/registry/<digest>/
hf://ada/memory@main   ── pin_address ──> hf://ada/memory@<commit>
                       ── fetch_program ──> runs/local/hub/ada--memory-<commit>/
"""

from __future__ import annotations

import os
from pathlib import Path

from .hub import HUB_PREFIX, fetch_from_hub, pin_to_commit
from .model_registry import REGISTRY_PREFIX, fetch_from_registry, pin_to_version


def pin_address(name: str) -> str:
    """Replace an alias or a branch in an address by the version or commit that it names now.

    An alias may soon name another version; the result always names this one. A name that is no
    address is returned as it is.

    Raises:
        UserError: There is no such program.
        EndpointError: The hub cannot be reached.
    """
    if name.startswith(HUB_PREFIX):
        return pin_to_commit(name)
    if name.startswith(REGISTRY_PREFIX):
        return pin_to_version(name)
    return name


def program_folder(name: str | Path) -> Path | None:
    """Return the folder of a saved program; None if there is no such folder.

    The program of an address is fetched.

    Raises:
        UserError: There is no program at the address.
        EndpointError: The hub cannot be reached.
        ProgramError: What is at the address is no program of Mempiler, or was altered.
    """
    if str(name).startswith((HUB_PREFIX, REGISTRY_PREFIX)):
        return fetch_program(str(name))
    # `Path.is_dir` raises an error for a name that is too long.
    if os.path.isdir(name):  # noqa: PTH112
        return Path(name)
    return None


def fetch_program(address: str) -> Path:
    """Return the folder of the program of an address; download and check it unless it is here.

    Raises:
        UserError: There is no such program, or the store cannot be reached.
        EndpointError: The hub cannot be reached.
        ProgramError: It is no program of Mempiler, or was altered.
    """
    if address.startswith(HUB_PREFIX):
        return fetch_from_hub(address)
    return fetch_from_registry(address)
