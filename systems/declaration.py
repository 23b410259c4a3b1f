"""Read which texts and numbers of its package the adapter of a shipped system lets one set.

    system:langmem ──> inside/declaration.py, in its environment ──> Declaration(texts, ...)

The defaults are the package's own. So the adapter, which reads them from the package, is imported
in the environment of the system.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

_SCRIPT = Path(__file__).parent / "inside" / "declaration.py"

_IMPORT_SECONDS = 120
"""How long a package may take to be imported."""


@dataclass(frozen=True)
class Declaration:
    """What an adapter declares."""

    texts: Mapping[str, str]
    """The texts of the package by name, with their defaults."""
    numbers: Mapping[str, Mapping[str, float]]
    """The numbers of the package by name, each with its `default`, `low` and `high`."""
    export: str
    """Python code that sets the texts and numbers, with `$NAME` where each is inserted."""

    def default_numbers(self) -> dict[str, float]:
        """Return the defaults of the numbers by name."""
        return {name: number["default"] for name, number in self.numbers.items()}


@functools.cache
def read_declaration(name: str, python: Path, file: Path) -> Declaration:
    """Return what an adapter declares. The first call imports it in a process of its own.

    Args:
        name: The name of the system in errors.
        python: The interpreter in the environment of the system.
        file: The file of the adapter.

    Raises:
        UserError: The adapter cannot be imported: its environment is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="mempiler-") as folder:
        answer = Path(folder) / "declaration.json"
        # With -I, Python looks neither into the folder of the file nor for the user's own packages.
        command = [str(python), "-I", str(_SCRIPT), str(file), str(answer)]
        try:
            subprocess.run(
                command,
                env=_variables(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_IMPORT_SECONDS,
                check=True,
            )
            declared = json.loads(answer.read_text(encoding="utf-8"))
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            environment = python.parent.parent
            raise UserError(
                f"the system {name} cannot be imported ({_reason(error)}); install it anew: "
                f"rm -r {environment}; mempiler fetch system:{name}"
            ) from error
    return Declaration(
        texts=declared["texts"], numbers=declared["numbers"], export=declared["export"]
    )


def _variables(folder: str) -> dict[str, str]:
    """Return the environment variables of the process: no keys, and a temporary home folder."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        "OPENAI_API_KEY": "none",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "ANONYMIZED_TELEMETRY": "False",
    }


def _reason(error: Exception) -> str:
    """Return why the process failed: the last line of its error output, or else the error."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        if lines:
            return lines[-1][:300]
    return str(error)[:300]
