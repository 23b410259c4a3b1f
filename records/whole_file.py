"""Files that are written whole or not at all, and never over what is not Mempiler's own."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from uuid import uuid4

from ..errors import UserError

_HEAD = 4096
"""Bytes at the beginning of a file, in which its mark stands."""


@contextmanager
def replacing(path: Path, rights: int = 0o666) -> Generator[TextIO]:
    """A text file (with such rights before the umask) that takes the place of another once it is written whole.

    Raises:
        UserError: It cannot be written.
    """
    part = path.with_name(f".{uuid4().hex}.part")
    try:
        with open(part, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, rights)) as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


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
