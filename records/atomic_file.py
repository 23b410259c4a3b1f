"""Writes files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from uuid import uuid4

from ..errors import UserError


@contextmanager
def atomic_write(path: Path, rights: int = 0o666) -> Generator[TextIO]:
    """A text file (with such rights before the umask) that takes the place of another once it is written whole.

    A device or a pipe stays, and gets the text as it comes.

    Raises:
        UserError: It cannot be written.
    """
    replaced = path.is_file() or not path.exists()
    part = path.with_name(f".{uuid4().hex}.part") if replaced else path
    try:
        with open(
            part, "x" if replaced else "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, rights)
        ) as file:
            yield file
        if replaced:
            part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if replaced:
            part.unlink(missing_ok=True)
