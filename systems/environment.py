"""Environments of other people's systems: made from scratch from pinned packages, below the user's cache.

    pins/mem0.txt ──> ~/.cache/mempiler/systems/mem0/3f9c2a71/        one folder per set of pins and version of Python
                                                     └── .complete    written last: without it, it is made anew

The folder is `MEMPILER_SYSTEMS`, or `mempiler/systems` of the user's cache. Two that install the same wait for each
other. Nothing is installed into the environment of Mempiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ..engines.weights import cache
from ..errors import EndpointError, UserError

STAMP = ".complete"


@dataclass(frozen=True)
class Environment:
    """Where a system is installed, or is to be."""

    name: str
    """Of the system."""
    pins: Path
    """The file with its packages, all of them with their versions."""

    @property
    def path(self) -> Path:
        """Its folder; other pins have another one."""
        version = f"{sys.version_info[0]}.{sys.version_info[1]}".encode()
        return folder() / self.name / hashlib.sha256(self.pins.read_bytes() + version).hexdigest()[:8]

    @property
    def is_installed(self) -> bool:
        """Whether it was made to its end."""
        return (self.path / STAMP).is_file()

    def python(self) -> Path:
        """Its interpreter.

        Raises:
            UserError: It is not installed.
        """
        if not self.is_installed:
            raise UserError(f"the system {self.name} is not installed; run: mempiler fetch system:{self.name}")
        return self.path / "bin" / "python"

    def install(self) -> Path:
        """Makes it from scratch, unless it is there.

        Raises:
            EndpointError: A package did not come.
            UserError: The folder cannot be written.
        """
        try:
            folder().mkdir(parents=True, exist_ok=True)
            with FileLock(folder() / f".{self.name}.lock"):
                if not self.is_installed:
                    shutil.rmtree(self.path, ignore_errors=True)
                    self._run([sys.executable, "-m", "venv", str(self.path)])
                    pip = [str(self.path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
                    self._run([*pip, "--quiet", "--no-deps", "--requirement", str(self.pins)])
                    (self.path / STAMP).touch()
        except OSError as error:
            raise UserError(
                f"{folder()}: cannot be written: {error.strerror or error}; set MEMPILER_SYSTEMS"
            ) from error
        return self.path

    def _run(self, command: list[str]) -> None:
        # Settings of the user's pip hold, such as an index of their own; their Python path would mix environments.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, capture_output=True, text=True, env=kept, stdin=subprocess.DEVNULL)
        if done.returncode:
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason was told")
            raise EndpointError(f"{self.name} cannot be installed: {last.strip()[:300]}")


def folder() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("MEMPILER_SYSTEMS") or cache() / "systems")
