"""The database of a store, and the transactions that its methods work in."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection

from . import store_tables as t
from .group_commit import GroupCommit

T = TypeVar("T")


class Transactions:
    """An open database; `Store` says what its arguments are."""

    def __init__(self, url: str | Path, timeout: float = 30.0) -> None:
        self._engine = t.open_engine(url, timeout)
        self.url = t.address_of(self._engine)
        """The address, without a password."""
        self._writer = self._engine.execution_options(write=True)
        self._reader, self._looker = t.reading(self._engine), t.looking(self._engine)
        self._group = GroupCommit(self._writer) if self._engine.dialect.name == "sqlite" else None

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __deepcopy__(self, memo: object = None) -> Self:
        return self

    def _commit(self, work: Callable[[Connection], T]) -> T:
        """Runs a write that may share its transaction with others, and be run once more if that one fails."""
        with t.store_errors(self._engine):
            if self._group is not None:
                return self._group.write(work)
            with self._writer.begin() as connection:
                return work(connection)

    @contextmanager
    def _write(self) -> Generator[Connection]:
        """A transaction for a write of its own."""
        with self._alone(), t.store_errors(self._engine), self._writer.begin() as connection:
            yield connection

    def _alone(self) -> AbstractContextManager[None]:
        return nullcontext() if self._group is None else self._group.alone()

    @contextmanager
    def _read(self) -> Generator[Connection]:
        """One state of the database."""
        with t.store_errors(self._engine), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def _look(self) -> Generator[Connection]:
        """For one statement that reads: it needs no transaction."""
        with t.store_errors(self._engine), self._looker.connect() as connection:
            yield connection
