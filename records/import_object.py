"""Import a user's own classes and functions, which are named `module:attribute`."""

from __future__ import annotations

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
    """Import what a `module:attribute` names.

    For a path that a user wrote, modules of the current folder are found too, after those that are
    installed. For our own names and those of plugins they are not: a file of the folder could
    stand in for an optional package that is not installed.

    Args:
        kind: What it should be, for the error: "method", "benchmark", "metric".
        name: What the user wrote.
        path: The `module:attribute` that the name stands for; empty if it is the name itself.

    Raises:
        UserError: It cannot be imported; the message says where the module failed.
    """
    is_written_by_user = path in ("", name)
    module, _, attribute = (path or name).partition(":")
    refuse_python_file(kind, module)

    current_folder = str(Path.cwd())
    if is_written_by_user and current_folder not in sys.path:
        sys.path.append(current_folder)

    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:
        # A module can raise any exception while it is imported.
        if module == "__main__":
            # It was defined in a notebook or script, and `__main__` is now another program.
            reason = (
                "it stood in a notebook or script; "
                "put it into a file of its own, and compile from there"
            )
        else:
            reason = one_line(f"{type(error).__name__}: {error}")
        reason += _failing_line(error)
        raise UserError(f"{kind} {name!r}: cannot be imported: {reason}") from error


def _failing_line(error: Exception) -> str:
    """Return where a module failed, as ` (agent.py:7)`; "" if Python's import or we failed."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if frame.filename.startswith(("<", __file__)):
        return ""
    return f" ({Path(frame.filename).name}:{frame.lineno})"


def refuse_python_file(kind: str, name: str) -> None:
    """Refuse the path of a Python file where `module:Class` is due. The file is not run.

    Args:
        kind: What it should be, for the error: "method", "benchmark", "metric".
        name: What the user wrote, without `:Class`.

    Raises:
        UserError: It is the path of a Python file; the message says what to write instead.
    """
    if not name.endswith(".py"):
        return

    path = Path(name)
    if not path.is_file():
        raise UserError(
            f"{kind} {name!r}: there is no such file; write module:Class, e.g. agent:Agent"
        )

    class_names = _class_names(path)
    suggested_name = class_names[0] if class_names else "NAME"

    file = path.resolve()
    folder = Path.cwd()
    hint = ""
    if not file.is_relative_to(folder):
        folder = file.parent
        hint = f" in the folder {folder}"
    module = ".".join(file.relative_to(folder).with_suffix("").parts)
    raise UserError(f"{kind} {name!r} is a file; write {module}:{suggested_name}{hint}")


def _class_names(path: Path) -> list[str]:
    """Return the names of a file's classes, likely ones first; [] if it is not Python.

    Subclasses of a `Module`, such as DSPy's, come first, the last one before the others: it may
    build on them.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []

    module_names: list[str] = []
    other_names: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue

        base_names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        # A base may be a class further up in the same file.
        is_module = any(base == "Module" or base in module_names for base in base_names)
        if is_module:
            module_names.append(node.name)
        else:
            other_names.append(node.name)
    return [*reversed(module_names), *other_names]
