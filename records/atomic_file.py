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
