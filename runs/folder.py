"""The folder of one run: its command and settings, its state, its store, and the program it made.

    runs/local/20260102-030405-compile-turn-rag-locomo-ab12/
        run.json       command, settings, status, MLflow run id
        report.html    the page of the result; report.json.gz holds what the page shows
        run.sqlite     answers of language models, memories, answered questions
        run.lock       held by the process that works on the run
        program/       the saved program of a compile, unless --out names another folder
        parts/NAME/    of a reproduce: the same for each variant, but without a store of its own

A killed process leaves everything readable: `run.json` is replaced as a whole.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
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
"""The file with the record of a run."""
PARTS = "parts"
"""The folder with the parts of a run."""
LAST = "last"
"""A name for the run that was started last."""

_MAX_NAME_BYTES = 150
"""Most bytes of the title in a folder's name: file systems allow 255 for the whole name."""
_RUN_ID_LENGTH = 32
"""Digits of a whole MLflow run id."""
_SHORTEST_RUN_ID = 8
"""Digits of an MLflow run id that are enough to name a run."""


@dataclass(eq=False)
class RunFolder:
    """A run on disk."""

    path: Path
    """Its folder, which exists."""
    parent: RunFolder | None = None
    """The run that this one is a part of, if any."""

    @classmethod
    def create(cls, title: str, settings: dict[str, Any]) -> RunFolder:
        """Create the folder of a new run.

        Args:
            title: What the folder is named after, e.g. "compile-turn-rag-locomo".
            settings: Everything that decides the result of the run.
        """
        # A letter takes up to four bytes; one that is cut in half is dropped.
        short_title = file_name_of(title).encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{short_title}-{uuid.uuid4().hex[:4]}"
        folder = cls(results_folder() / name)
        create_folder(folder.path)
        folder.write({"settings": settings, "status": "running"})
        return folder

    @classmethod
    def open(cls, name: str) -> RunFolder:
        """Find a run.

        Args:
            name: The path of its folder, the folder's name or the end of that name, its MLflow run
                id or the first eight digits of it, or "last".

        Raises:
            UserError: There is no such run, or more than one.
        """
        if (Path(name) / RUN).is_file():
            return cls(Path(name))

        all_runs = _list_runs()
        matches = [path for path in all_runs if path.name == name or path.name.endswith(f"-{name}")]
        if not matches and name == LAST:
            whole_runs = [path for path in all_runs if path.parent.name != PARTS]
            matches = whole_runs[-1:]
        if not matches:
            matches = _runs_by_id(all_runs, name)

        if len(matches) != 1:
            count = f"{len(matches)} runs" if matches else "no run"
            raise UserError(f"{count} {name!r} in {results_folder()}; give the run's folder")
        return cls(matches[0])

    @classmethod
    def resume(cls, name: str, settings: dict[str, Any]) -> RunFolder:
        """Find a run that is to be resumed.

        Args:
            name: As `open` takes it.
            settings: Everything that decides the result; the run must have been started with it.

        Raises:
            UserError: There is no such run, or it was started with other settings.
        """
        folder = cls.open(name)
        first_settings = folder.read()["settings"]
        for key in sorted({*first_settings, *settings}):
            before = first_settings.get(key)
            now = settings.get(key)
            if before != now:
                raise UserError(
                    f"run {folder.path.name} was started with {key} = {before!r}, not {now!r};"
                    " resume it with the same command, or start a new run"
                )
        return folder

    def child(self, name: str, settings: dict[str, Any]) -> RunFolder:
        """Return a part of this run; create it unless it is there.

        Answers, memories and rows of the part are kept in this run's store.
        """
        folder = RunFolder(self.path / PARTS / name, self)
        create_folder(folder.path)
        if not (folder.path / RUN).is_file():
            folder.write({"settings": settings, "status": "running"})
        return folder

    def has_child(self, name: str) -> bool:
        """Tell whether a part of this run was begun."""
        return (self.path / PARTS / name / RUN).is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run has come to its end and its result is here."""
        record = self.read()
        return record.get("status") == "finished" and isinstance(record.get("result"), dict)

    @property
    def resumable(self) -> Path:
        """The folder of the run that `--resume` can continue: this run, or the one it is a part of.

        A part is not resumed alone: its answers are in the store of the whole run.
        """
        if self.parent is None:
            return self.path
        return self.parent.resumable

    @property
    def program(self) -> Path:
        """Where a compile saves its program by default."""
        return self.path / "program"

    @property
    def saved_program(self) -> Path:
        """The folder of the program that the run ended with.

        The result of a compile names this folder. It may be that of `--out`, although the run's own
        folder has a program too: the run may first have kept the original program here, and then,
        resumed with `--force`, the compiled one there. Runs without a result have the program here.
        """
        result = self.read().get("result")
        named_folder = result.get("program") if isinstance(result, dict) else None
        if named_folder and Path(str(named_folder)).is_dir():
            return Path(str(named_folder))
        return self.program

    @cached_property
    def store(self) -> RunStore:
        """The run's SQLite file."""
        if self.parent is None:
            return RunStore(self.path / "run.sqlite")
        return self.parent.store.part(self.path.name)

    def read(self) -> dict[str, Any]:
        """Return the content of `run.json`.

        Raises:
            DataError: It is not the record of a run.
        """
        path = self.path / RUN
        record = read_json(path)
        if not _is_run_record(record):
            raise DataError(f"{path}: is not the record of a run; name another, or start a new one")
        return record

    def write(self, record: dict[str, Any]) -> None:
        """Replace `run.json`, as a whole or not at all."""
        with atomic_write(self.path / RUN) as file:
            json.dump(record, file, indent=1, ensure_ascii=False)

    def update(self, **values: Any) -> None:
        """Set some values of `run.json`; the others stay."""
        self.write({**self.read(), **values})

    def write_rows(self, phase: str, rows: Iterable[Row]) -> None:
        """Write scored questions, one JSON object a line, without their traces."""
        with atomic_write(self.path / f"{phase}_rows.jsonl") as file:
            for row in rows:
                line = row.model_dump_json(exclude={"trace"})
                file.write(f"{line}\n")

    @contextmanager
    def recording(self) -> Generator[None]:
        """Lock the run for the block, and write into `run.json` why the block ended early.

        If the block comes to its end, it has written the status itself, such as "finished": only
        the caller has the result. After a kill -9 the status stays "running".

        Raises:
            UserError: Another process works on the run.
            RunInterrupted: The user stopped the run; the exception says how to resume it.
        """
        with self._lock():
            self.update(status="running")
            try:
                yield
            except KeyboardInterrupt as stop:
                with suppress(MempilerError):
                    self.update(status="stopped", error="stopped by the user")
                kept = f"what was done is kept in {self.resumable}"
                resume_options = ("--resume", self.resumable.name)
                raise RunInterrupted(kept, resume_options) from stop
            except BaseException as error:
                with suppress(MempilerError):
                    self.update(status="failed", error=one_line(error, 500))
                raise

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Keep other processes from this run for the block: they would pay for the same calls.

        The lock of a run holds for its parts, too.

        Raises:
            UserError: Another process has the lock, or the file cannot be locked.
        """
        # Imported here because most commands do not need it.
        from filelock import FileLock, Timeout

        if self.parent is not None:
            yield
            return

        lock = FileLock(self.path / "run.lock", timeout=0)
        name = self.path.name
        try:
            lock.acquire()
        except Timeout as error:
            advice = "wait for its end, or stop it"
            raise UserError(f"run {name} still runs in another process; {advice}") from error
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"run {name} cannot be locked: {reason}") from error
        try:
            yield
        finally:
            lock.release()


def file_name_of(text: str) -> str:
    """Return a text with a hyphen for each character that should not stand in a file name."""
    characters = [char if char.isalnum() or char in "-_." else "-" for char in text]
    return "".join(characters)


def _list_runs() -> list[Path]:
    """Return the folders of all runs and of their parts, in the order in which they were made."""
    records = [
        *results_folder().glob(f"*/{RUN}"),
        *results_folder().glob(f"*/{PARTS}/*/{RUN}"),
    ]
    return [path.parent for path in sorted(records)]


def _runs_by_id(folders: list[Path], run_id: str) -> list[Path]:
    """Return the folders of the runs whose MLflow id begins with `run_id`.

    Args:
        folders: The folders of all runs, the oldest first.
        run_id: A whole MLflow id, or its first digits. With fewer than `_SHORTEST_RUN_ID` digits
            there is no match.
    """
    if len(run_id) < _SHORTEST_RUN_ID:
        return []

    is_whole_id = len(run_id) == _RUN_ID_LENGTH
    matches: list[Path] = []
    # Users mostly ask for one of the newest runs, so these are read first.
    for folder in reversed(folders):
        if _read_run_id(folder).startswith(run_id):
            matches.append(folder)
            # No other run has the same whole id.
            if is_whole_id:
                break
    return matches


def _read_run_id(folder: Path) -> str:
    """Return the MLflow id of a run; "" if there is none."""
    try:
        return str(read_json(folder / RUN).get("run_id") or "")
    except (DataError, AttributeError):
        return ""


def _is_run_record(record: Any) -> bool:
    """Tell whether the content of a JSON file is the record of a run."""
    if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        return False
    options = record["settings"].get("options", {})
    parameters = record.get("parameters", {})
    return isinstance(options, dict) and isinstance(parameters, dict)
