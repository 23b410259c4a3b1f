"""The environments that other people's systems are installed in, made from pinned packages.

There is one folder for each set of pins and each version of Python:

    pins/mem0.txt ──> ~/.cache/mempiler/systems/mem0/3f9c2a71/
                                                     └── .complete    written last

An environment without `.complete` is made anew. The folder is `MEMPILER_SYSTEMS`, or
`mempiler/systems` of the user's cache. Two processes that install the same wait for each other.
Nothing is installed into the environment of Mempiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..engines.cache_folder import cache_folder
from ..errors import EndpointError, UserError

STAMP = ".complete"


@dataclass(frozen=True)
class Environment:
    """The place where a system is installed, or will be."""

    name: str
    """The name of the system."""
    pins: Path
    """A requirements file that lists all packages with their versions."""

    @property
    def path(self) -> Path:
        """The folder of the environment, which differs for other pins and another Python."""
        python_version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        digest = hashlib.sha256(self.pins.read_bytes() + python_version.encode()).hexdigest()
        return folder() / self.name / digest[:8]

    @property
    def is_installed(self) -> bool:
        """Whether an installation was completed."""
        return (self.path / STAMP).is_file()

    def python(self) -> Path:
        """Return the path of the interpreter.

        Raises:
            UserError: The system is not installed.
        """
        if not self.is_installed:
            raise UserError(
                f"the system {self.name} is not installed; run: mempiler fetch system:{self.name}"
            )
        return self.path / "bin" / "python"

    def install(self) -> Path:
        """Make the environment from scratch, unless it is complete; return its folder.

        Raises:
            EndpointError: A package could not be fetched.
            UserError: The folder cannot be written.
        """
        # It imports asyncio, which takes as long as all else that `mempiler list` needs.
        from filelock import FileLock

        try:
            folder().mkdir(parents=True, exist_ok=True)
            with FileLock(folder() / f".{self.name}.lock"):
                if not self.is_installed:
                    self._install_from_scratch()
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"{folder()}: cannot be written: {reason}; set MEMPILER_SYSTEMS"
            ) from error
        return self.path

    def _install_from_scratch(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._run([sys.executable, "-m", "venv", str(self.path)])
        python = str(self.path / "bin" / "python")
        self._run(
            [
                python,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "--quiet",
                "--no-deps",
                "--requirement",
                str(self.pins),
            ]
        )
        (self.path / STAMP).touch()

    def _run(self, command: list[str]) -> None:
        """Run one command of the installation.

        Raises:
            EndpointError: It failed. Most often a package could not be fetched; the message has the
                last line that the command printed.
        """
        # Settings of the user's pip stay, such as an index of their own. The user's Python path
        # would mix environments.
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        # Without an input, pip cannot wait for somebody who answers a question.
        process = subprocess.run(
            command, capture_output=True, text=True, env=variables, stdin=subprocess.DEVNULL
        )
        if process.returncode != 0:
            reason = _last_line(process.stderr) or "no reason was told"
            raise EndpointError(f"{self.name} cannot be installed: {reason[:300]}")


def folder() -> Path:
    """Return the folder that environments are kept in."""
    return Path(os.environ.get("MEMPILER_SYSTEMS") or cache_folder() / "systems")


def _last_line(text: str) -> str:
    """Return the last line of a text that is not blank, or an empty text."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
