"""Where a compile saves its program: the folder of `--out`, or one in the run's own folder.

A program that was kept for its gain, or by force, replaces whatever program is in `--out`. The original program never
replaces another one: it goes into the run's folder then, and `--out` is left as it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ..programs.program import MemoryProgram
from .artifact import check_writable, holds_program, save
from .folder import RunFolder
from .manifest import Manifest, is_intact, read_manifest


@dataclass
class Destination:
    """The folder for the program of one run.

    Raises:
        UserError: The folder holds something else than a program, or cannot be written.
    """

    run: RunFolder
    out: Path | None
    """The folder of `--out`; None for one in the run's folder."""
    _start_is_new: bool = field(default=False, init=False)
    """Whether the start was saved by this process where nothing was before."""

    def __post_init__(self) -> None:
        check_writable(self.folder)

    @property
    def folder(self) -> Path:
        """The folder for a program that is kept for its gain."""
        return self.out or self.run.program

    def save_start(self, start: MemoryProgram, manifest: Manifest) -> None:
        """Save the original program if the folder is free, so that it can be loaded however the run ends."""
        is_free = not _has_files(self.folder)
        if is_free or (self._is_of_run() and not is_intact(self.folder)):
            save(start, self.folder, manifest)
            self._start_is_new = True

    def remove_start(self) -> None:
        """Remove what `save_start` saved."""
        if self._start_is_new:
            shutil.rmtree(self.folder)

    def save_original(self, start: MemoryProgram, manifest: Manifest) -> Path:
        """Save the original program, which was kept; return its folder, which is in the run if `--out` is taken."""
        folder = self.run.program if self._holds_another(start) else self.folder
        save(start, folder, manifest)
        return folder

    def save_compiled(self, program: MemoryProgram, manifest: Manifest) -> Path:
        """Save a compiled program; return its folder."""
        save(program, self.folder, manifest)
        return self.folder

    def _holds_another(self, start: MemoryProgram) -> bool:
        """Whether the folder holds what the original program must not replace."""
        if self._is_of_run() or not _has_files(self.folder):
            return False
        if not is_intact(self.folder):
            # Damaged, or of another version of Mempiler: somebody may still want it.
            return True
        # A compiled program that equals the start has scores that the start does not have.
        return bool(read_manifest(self.folder).optimizer) or not holds_program(self.folder, start)

    def _is_of_run(self) -> bool:
        return self.folder.resolve() == self.run.program.resolve()


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
