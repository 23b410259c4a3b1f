"""The folder of one run: its command and settings, its state, its store, and the program it made.

runs/local/20260102-030405-compile-turn-rag-locomo-ab12/
    run.json       command, its settings, status, MLflow run id
    report.html    what came of it, to look at; report.json.gz is what the page shows
    run.sqlite     LM answers, memories, answered questions
    run.lock       held by the process that works on it
    program/       the saved program of a compile, unless --out names another folder
    parts/NAME/    of a reproduce: the same for each variant, without a store of its own
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import DataError, MempilerError, RunInterrupted, UserError
from ..records import read_json
from ..records.atomic_file import atomic_write
from ..text import one_line
from .results_folder import create_folder, results_folder
from .rows import Row
from .run_store import RunStore

RUN = "run.json"
PARTS = "parts"
LONGEST_NAME = 150
"""Most bytes of what a run is called after: file systems allow 255 in the name of a folder."""
LAST = "last"
"""Names the run that was started last."""


@dataclass(eq=False)
class RunFolder:
    """A run on disk."""

    path: Path
    """Its folder, which exists."""
    parent: RunFolder | None = None
    """The run that it is a part of, if it is."""

    @classmethod
    def create(cls, name: str, settings: dict[str, Any]) -> RunFolder:
        """Makes the folder of a new run; its settings are everything that decides its result."""
        # A letter takes up to four bytes; one that is cut in half is dropped.
        name = plain_name(name).encode()[:LONGEST_NAME].decode(errors="ignore")
        folder = cls(results_folder() / f"{datetime.now():%Y%m%d-%H%M%S}-{name}-{uuid.uuid4().hex[:4]}")
        create_folder(folder.path)
        folder.write({"settings": settings, "status": "running"})
        return folder

    @classmethod
    def open(cls, name: str) -> RunFolder:
        """Finds a run by its folder, the folder's name, the end of that name, its MLflow run id, or as the `last` one.

        Raises:
            UserError: There is no such run, or more than one.
        """
        if (Path(name) / RUN).is_file():
            return cls(Path(name))
        files = [*results_folder().glob(f"*/{RUN}"), *results_folder().glob(f"*/{PARTS}/*/{RUN}")]
        runs = [path.parent for path in sorted(files)]
        found = [path for path in runs if path.name == name or path.name.endswith(f"-{name}")]
        if name == LAST and not found:
            found = [path for path in runs if path.parent.name != PARTS][-1:]
        # A whole MLflow id names one run, most often the newest.
        named = (path for path in reversed(runs) if len(name) >= 8 and _run_id(path).startswith(name))
        found = found or list(islice(named, 1 if len(name) == 32 else None))
        if len(found) != 1:
            what = "no run" if not found else f"{len(found)} runs"
            raise UserError(f"{what} {name!r} in {results_folder()}; give the run's folder")
        return cls(found[0])

    @classmethod
    def resume(cls, name: str, settings: dict[str, Any]) -> RunFolder:
        """Opens a run to resume it, whose settings must be those it was started with.

        Args:
            name: As `open` takes it.
            settings: Everything that decides its result.

        Raises:
            UserError: They differ; the message names the first.
        """
        folder = cls.open(name)
        before = folder.read()["settings"]
        for key in sorted({*before, *settings}):
            if before.get(key) != settings.get(key):
                raise UserError(
                    f"run {folder.path.name} was started with {key} = {before.get(key)!r}, not {settings.get(key)!r}; "
                    "resume it with the same command, or start a new run"
                )
        return folder

    def child(self, name: str, settings: dict[str, Any]) -> RunFolder:
        """A part of this run, made where it is not there; its answers, memories and rows are in this run's store."""
        found = RunFolder(self.path / PARTS / name, self)
        create_folder(found.path)
        if not (found.path / RUN).is_file():
            found.write({"settings": settings, "status": "running"})
        return found

    def has(self, name: str) -> bool:
        """Whether a part was begun."""
        return (self.path / PARTS / name / RUN).is_file()

    @property
    def finished(self) -> bool:
        """Whether it has come to its end, and its result is here."""
        found = self.read()
        return found.get("status") == "finished" and isinstance(found.get("result"), dict)

    @property
    def resumed(self) -> Path:
        """The folder of what is resumed: this run, or the one that it is a part of."""
        return self.path if self.parent is None else self.parent.resumed

    @property
    def program(self) -> Path:
        """Where a compile saves its program by default."""
        return self.path / "program"

    @property
    def saved(self) -> Path:
        """Where its program is: in the folder that its result names, or else where a compile saves it by default.

        A run may have a program in both: the original one here, and one that `--force` kept later in `--out`.
        """
        result = self.read().get("result")
        named = result.get("program") if isinstance(result, dict) else None
        if named and Path(str(named)).is_dir():
            return Path(str(named))
        return self.program

    @cached_property
    def store(self) -> RunStore:
        """The run's SQLite file."""
        return RunStore(self.path / "run.sqlite") if self.parent is None else self.parent.store.part(self.path.name)

    def read(self) -> dict[str, Any]:
        """The content of `run.json`.

        Raises:
            DataError: It is no such file.
        """
        found = read_json(self.path / RUN)
        settings = found.get("settings") if isinstance(found, dict) else None
        parts = (
            [settings, settings.get("options", {}), found.get("parameters", {})] if isinstance(settings, dict) else []
        )
        if not parts or not all(isinstance(part, dict) for part in parts):
            raise DataError(f"{self.path / RUN}: is not the record of a run; name another, or start a new one")
        return found

    def keep_rows(self, phase: str, rows: Iterable[Row]) -> None:
        """Writes scored questions into the run's folder, one JSON object a line, without their traces."""
        with atomic_write(self.path / f"{phase}_rows.jsonl") as file:
            file.writelines(f"{row.model_dump_json(exclude={'trace'})}\n" for row in rows)

    def update(self, **values: Any) -> None:
        """Adds values to `run.json`."""
        self.write({**self.read(), **values})

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Says in `run.json` why a run ended that did not finish; a killed process leaves it "running".

        Raises:
            UserError: Another process works on it.
        """
        with self._alone():
            self.update(status="running")
            try:
                yield
            except KeyboardInterrupt as stop:
                with suppress(MempilerError):
                    self.update(status="stopped", error="stopped by the user")
                raise RunInterrupted(
                    f"what was done is kept in {self.resumed}", ("--resume", self.resumed.name)
                ) from stop
            except BaseException as error:
                with suppress(MempilerError):
                    self.update(status="failed", error=one_line(error, 500))
                raise

    def _alone(self) -> ExitStack:
        """Keeps other processes from a run and its parts; they would pay for the same once more."""
        from filelock import FileLock, Timeout

        stack = ExitStack()
        try:
            if self.parent is None:
                stack.enter_context(FileLock(self.path / "run.lock", timeout=0))
        except OSError as error:
            why = "still runs in another process; wait for its end, or stop it"
            why = why if isinstance(error, Timeout) else f"cannot be locked: {error.strerror or error}"
            raise UserError(f"run {self.path.name} {why}") from error
        return stack

    def write(self, record: dict[str, Any]) -> None:
        """Replaces `run.json` at once."""
        with atomic_write(self.path / RUN) as file:
            json.dump(record, file, indent=1, ensure_ascii=False)


def plain_name(text: str) -> str:
    """The text as a part of a folder's name."""
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in text)


def _run_id(path: Path) -> str:
    try:
        return str(read_json(path / RUN).get("run_id") or "")
    except (DataError, AttributeError):
        return ""
