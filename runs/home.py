"""Where results go: `runs/local/` of the current folder, or `MEMPILER_HOME`; never over what is not Mempiler's own."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError

_HEAD = 4096
"""Bytes at the beginning of a file, in which its mark stands."""


def home() -> Path:
    """The results folder; not created yet."""
    return Path(os.environ.get("MEMPILER_HOME") or Path.cwd() / "runs" / "local")


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents.

    Raises:
        UserError: It cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be created: {error.strerror}; choose another folder or MEMPILER_HOME"
        ) from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: is not writable; choose another folder or set MEMPILER_HOME")


def refuse_foreign(path: Path, mark: str, within: str = "", force: bool = False) -> None:
    """Raises UserError where something stands that Mempiler did not write.

    Args:
        path: What is to be written: a file, or a folder.
        mark: What is in the beginning of every such file of ours.
        within: The file of a folder that has the mark; an empty folder is anybody's.
        force: Lets another's file be overwritten, too; never what is no file.
    """
    if not os.path.lexists(path) or (within and path.is_dir() and not any(path.iterdir())):
        return
    known = path / within
    if known.is_file():
        with known.open("rb") as file:
            if force or mark.encode() in file.read(_HEAD):
                return
    fix = ", or give --force" if path.is_file() and not within else ""
    raise UserError(f"{path}: is there already and was not written by Mempiler; choose another name{fix}")
