"""Where results go: `runs/local/` of the current folder, or `MEMPILER_HOME`; never the installed package."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError


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
