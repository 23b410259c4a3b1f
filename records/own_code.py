"""Imports a user's own classes and functions, named `module:attribute`."""

import importlib
import operator
import sys
import traceback
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line


def imported(kind: str, name: str, path: str = "") -> Any:
    """What a `module:attribute` names; for one that a user named, modules of the current folder are found as well.

    They come behind all that are installed. Names of the suite and of plugins do not bring the folder in: whatever lies
    there could stand for an optional package that is not installed.

    Args:
        kind: What it is to be, for failures: "method", "benchmark", "metric".
        name: What failures call it.
        path: Where it is; the name itself if empty.

    Raises:
        UserError: It cannot be imported; the line says where the module failed.
    """
    here = str(Path.cwd())
    if path in ("", name) and here not in sys.path:
        sys.path.append(here)
    module, _, attribute = (path or name).partition(":")
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:
        # Importing a module can raise any exception.
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if last.filename.startswith(("<", __file__)) else f" ({Path(last.filename).name}:{last.lineno})"
        reason = one_line(f"{type(error).__name__}: {error}")
        if module == "__main__":
            # It was defined in a notebook or script, which is another one now.
            reason = "it stood in a notebook or script; put it into a file of its own, and compile from there"
        raise UserError(f"{kind} {name!r}: cannot be imported: {reason}{place}") from error
