"""The SQLite file of a tracking store: made whole, or not at all.

    no file ── lock ── made beside, some eight seconds ── renamed ──> mlflow.db

MLflow makes the tables of a new database in some sixty steps, and does not go on after a process that was stopped in
the middle, or beside one that makes them too. So they are made in a folder beside the file, under a lock that ends with
its process, and the whole file is renamed. A file that was left half made, by whoever, is recognised and replaced;
one that holds anything is never touched.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import UserError

WHOLE = 0x6D656D70
"""SQLite's `user_version` of the files that were made here."""
PATIENCE = 300.0
"""Seconds to wait for another process that makes the file."""
BUILDING = ".mlflow-"
"""What the folders begin with in which a file is made."""
BLANK = {"experiments": 1, "workspaces": 1, "alembic_version": 1}
"""Tables of a new database that have rows, and how many."""


def prepare(uri: str, build: Callable[[Path], None] | None = None) -> None:
    """Makes the file of a tracking store, if it is an SQLite file and is missing or half made.

    Args:
        uri: Address of the store.
        build: Makes a whole database at a path; MLflow if None.

    Raises:
        UserError: It cannot be made: the folder cannot be written, or another process takes too long.
    """
    path = file_of(uri)
    if path is None or is_there(uri):
        return
    try:
        with FileLock(f"{path}.lock", timeout=PATIENCE):
            if _missing(path):
                _make(path, build or _by_mlflow)
    except Timeout as error:
        raise UserError(
            f"MLflow store {uri}: another process has been making it for {PATIENCE:.0f} s; stop it"
        ) from error
    except OSError as error:
        raise UserError(f"MLflow store {uri}: cannot be made: {error.strerror or error}") from error


def is_there(uri: str) -> bool:
    """Whether nothing is left to be made: a whole file, or a store that is none."""
    path = file_of(uri)
    return path is None or not _missing(path)


def file_of(uri: str) -> Path | None:
    """The SQLite file that an address names; None for any other store."""
    scheme, _, rest = uri.partition("://")
    return Path(rest.removeprefix("/")) if scheme == "sqlite" and len(rest) > 1 and "?" not in rest else None


def _make(path: Path, build: Callable[[Path], None]) -> None:
    for left in path.parent.glob(f"{BUILDING}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=BUILDING, dir=path.parent, ignore_cleanup_errors=True) as folder:
        new = Path(folder) / path.name
        build(new)
        with closing(sqlite3.connect(new, isolation_level=None)) as database:
            database.execute(f"PRAGMA user_version={WHOLE}")
        # What a half-made file left beside it would be taken for the journal of the new one.
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        new.replace(path)


def _by_mlflow(path: Path) -> None:
    with warnings.catch_warnings():
        # Its import and its tables warn of what its own dependencies will drop.
        warnings.simplefilter("ignore")
        from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        SqlAlchemyStore(f"sqlite:///{path}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH).engine.dispose()


def _missing(path: Path) -> bool:
    """Whether there is no file, or one that holds nothing and is not whole."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            whole = database.execute("PRAGMA user_version").fetchone()[0] == WHOLE
            return not whole and _blank(database) and _version(database) != _latest()
    except sqlite3.Error:
        # MLflow says what is wrong with it.
        return False


def _blank(database: sqlite3.Connection) -> bool:
    """Whether nobody has written anything but the tables."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return all(
        database.execute(f'SELECT COUNT(*) FROM (SELECT 1 FROM "{name}" LIMIT 2)').fetchone()[0] <= BLANK.get(name, 0)
        for name in sorted(names, key=lambda name: name != "runs")
    )


def _version(database: sqlite3.Connection) -> str | None:
    known = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    found = database.execute("SELECT version_num FROM alembic_version").fetchone() if known else None
    return found[0] if found else None


def _latest() -> str | None:
    """The version of the tables that this MLflow makes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from alembic.script import ScriptDirectory
        from mlflow.store import db_migrations
    return ScriptDirectory(str(Path(next(iter(db_migrations.__path__))))).get_current_head()
