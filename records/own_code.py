"""Classes and functions of a user's own, named `module:attribute` wherever a name is taken."""

import pkgutil
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
    try:
        return pkgutil.resolve_name(path or name)
    except Exception as error:
        # Importing a module can raise any exception.
        last = traceback.extract_tb(error.__traceback__)[-1]
        inside = last.filename.startswith(("<", pkgutil.__file__))
        place = "" if inside else f" ({Path(last.filename).name}:{last.lineno})"
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"{kind} {name!r}: cannot be imported: {reason}{place}") from error
