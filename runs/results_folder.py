"""The folder of all results: `runs/local/` of the current folder, or `MEMPILER_HOME`.

    path = results_folder() / "memories.sqlite"
    create_folder(path.parent)

Files that Mempiler did not write are never overwritten without being asked (`refuse_foreign_file`,
`refuse_foreign_folder`). Files of ours are recognised by a mark near their beginning.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError

_MARK_BYTES = 4096
"""The mark of a file stands in its first bytes; that many are read."""


def results_folder() -> Path:
    """Return the results folder, which need not exist yet."""
    configured = os.environ.get("MEMPILER_HOME")
    if configured:
        return Path(configured)
    return Path.cwd() / "runs" / "local"


def create_folder(folder: Path) -> None:
    """Create a folder and its parents, unless it is there.

    Raises:
        UserError: It cannot be created, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "choose another folder or MEMPILER_HOME"
        raise UserError(f"{folder}: cannot be created: {error.strerror}; {advice}") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: is not writable; choose another folder or set MEMPILER_HOME")


def refuse_foreign_file(path: Path, mark: str, force: bool = False) -> None:
    """Refuse to write a file where something stands that Mempiler did not write.

    Args:
        path: The file that is to be written.
        mark: A text that stands near the beginning of every such file of ours.
        force: Whether a file of somebody else may be overwritten, too.

    Raises:
        UserError: There is such a file, or something else that is no file.
    """
    if not os.path.lexists(path):
        return
    if path.is_file() and (force or _has_mark(path, mark)):
        return

    advice = "choose another name"
    if path.is_file():
        advice = "choose another name, or give --force"
    raise UserError(f"{path}: is there already and was not written by Mempiler; {advice}")


def refuse_foreign_folder(folder: Path, file_name: str, mark: str) -> None:
    """Refuse to write into a folder that holds something else than what Mempiler wrote.

    Args:
        folder: The folder that is to be written; an empty one may be used.
        file_name: The file in the folder by which a folder of ours is recognised.
        mark: A text that stands near the beginning of that file.

    Raises:
        UserError: The folder holds other files, or is no folder.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_dir() and not any(folder.iterdir()):
        return
    file = folder / file_name
    if file.is_file() and _has_mark(file, mark):
        return
    raise UserError(
        f"{folder}: is there already and was not written by Mempiler; choose another name"
    )


def _has_mark(path: Path, mark: str) -> bool:
    """Tell whether a mark stands in the first bytes of a file."""
    with path.open("rb") as file:
        return mark.encode() in file.read(_MARK_BYTES)
