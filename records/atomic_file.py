"""Write files whole or not at all."""

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
    """Open a text file that replaces the one at `path` when the block ends without an error.

    A device or a pipe is not replaced: it gets the text as it is written.

    Args:
        path: Where the file is written.
        rights: The rights of a new file, before the umask.

    Raises:
        UserError: The file cannot be written.
    """

    def open_with_rights(name: str, flags: int) -> int:
        return os.open(name, flags, rights)

    is_device = path.exists() and not path.is_file()
    part_path = path.with_name(f".{uuid4().hex}.part")
    try:
        if is_device:
            with open(path, "w", encoding="utf-8", opener=open_with_rights) as file:
                yield file
        else:
            with open(part_path, "x", encoding="utf-8", opener=open_with_rights) as file:
                yield file
            part_path.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if not is_device:
            part_path.unlink(missing_ok=True)
