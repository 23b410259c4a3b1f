"""Imports a user's own classes and functions, named `module:attribute`."""

import ast
import importlib
import operator
import sys
import traceback
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..text import one_line


def import_object(kind: str, name: str, path: str = "") -> Any:
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
    refuse_python_file(kind, (path or name).partition(":")[0])
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


def refuse_python_file(kind: str, name: str) -> None:
    """Refuse the path of a Python file where `module:Class` is meant, and say what to write; the file is not run.

    Args:
        kind: What it is to be, for the message: "method", "benchmark", "metric".
        name: What the user wrote, without `:Class`.

    Raises:
        UserError: It is the path of a Python file.
    """
    if not name.endswith(".py"):
        return
    path = Path(name)
    if not path.is_file():
        raise UserError(f"{kind} {name!r}: there is no such file; write module:Class, e.g. agent:Agent")

    classes = _classes_in(path)
    chosen = classes[0] if classes else "NAME"
    folder = Path.cwd()
    place = ""
    if not path.resolve().is_relative_to(folder):
        folder = path.resolve().parent
        place = f" in the folder {folder}"
    module = ".".join(path.resolve().relative_to(folder).with_suffix("").parts)
    raise UserError(f"{kind} {name!r} is a file; write {module}:{chosen}{place}")


def _classes_in(path: Path) -> list[str]:
    """Return the names of a file's classes, those derived from a `Module` (as of DSPy) first; [] if it is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    modules: list[str] = []
    others: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        # A class may derive from another one of the file.
        is_module = any(base == "Module" or base in modules for base in bases)
        (modules if is_module else others).append(node.name)
    return [*reversed(modules), *others]
