"""The folder in which a round of `mempiler improve` works, and which is removed at its end.

It holds what users said: exported questions, answers of models, memories and pages.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from .folder import file_name_of
from .results_folder import create_folder, results_folder


@contextmanager
def round_folder(model_name: str) -> Iterator[Path]:
    """Create an empty folder for a round of a model; remove it after the block.

    The folder is locked, so that only one process improves a model at a time.

    Raises:
        UserError: Another process improves the model.
    """
    # Imported here because most commands do not need it.
    from filelock import FileLock, Timeout

    parent = results_folder() / "improve"
    create_folder(parent)
    folder = parent / file_name_of(model_name)
    lock = FileLock(f"{folder}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError(
            f"models:/{model_name}: another process is improving it, so nothing was done;"
            " wait until it ends, or stop it"
        ) from error
    try:
        # A killed round leaves its folder behind.
        _remove_folder(folder)
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _remove_folder(folder)
        lock.release()


def _remove_folder(folder: Path) -> None:
    """Remove a folder if it exists.

    An error is raised and not ignored, because texts of users are still there.
    """
    if folder.exists():
        shutil.rmtree(folder)
