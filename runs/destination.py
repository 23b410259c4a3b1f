"""Where a compile saves its program: in the folder of `--out`, or in the run's own folder.

A compiled program replaces whatever program is in `--out`. The original program never replaces
another one: if `--out` holds one, the original is saved in the run's folder.
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
    _start_was_saved: bool = field(default=False, init=False)
    """Whether this process saved the start where nothing was before."""

    def __post_init__(self) -> None:
        check_writable(self.folder)

    @property
    def folder(self) -> Path:
        """The folder for a compiled program."""
        return self.out or self.run.program

    def save_start(self, start: MemoryProgram, manifest: Manifest) -> None:
        """Save the original program, so that there is one to load, however the run ends.

        It is saved only if the folder is empty, or is the run's own with a damaged program: an
        earlier start of the run may have been killed while it saved.
        """
        is_free = not _has_files(self.folder)
        is_own_and_damaged = self._is_in_run and not is_intact(self.folder)
        if is_free or is_own_and_damaged:
            save(start, self.folder, manifest)
            self._start_was_saved = True

    def remove_start(self) -> None:
        """Remove what `save_start` saved."""
        if self._start_was_saved:
            shutil.rmtree(self.folder)

    def save_original(self, start: MemoryProgram, manifest: Manifest) -> Path:
        """Save the original program, since the compiled one was not better; return its folder."""
        folder = self.run.program if self._holds_other_program(start) else self.folder
        save(start, folder, manifest)
        return folder

    def save_compiled(self, program: MemoryProgram, manifest: Manifest) -> Path:
        """Save the compiled program; return its folder."""
        save(program, self.folder, manifest)
        return self.folder

    def _holds_other_program(self, start: MemoryProgram) -> bool:
        """Tell whether the folder holds another program than the start, which must stay there."""
        if self._is_in_run or not _has_files(self.folder):
            return False

        is_damaged = not is_intact(self.folder)
        if is_damaged:
            # It may also be of another version of Mempiler. Somebody may still want it.
            return True

        # Only the manifest of a compiled program names an optimizer.
        is_compiled = bool(read_manifest(self.folder).optimizer)
        if is_compiled:
            # Its prompts may equal those of the start, but its manifest has scores that the start
            # does not have.
            return True

        is_start = holds_program(self.folder, start)
        return not is_start

    @property
    def _is_in_run(self) -> bool:
        """Whether the folder is the one in the run's own folder."""
        return self.folder.resolve() == self.run.program.resolve()


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
