"""Stores of both kinds: a file, and a PostgreSQL server that the tests start for themselves."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler import Session, Turn
from mempiler.memory.store.database import Database
from mempiler.memory.store.documents import Stamp
from mempiler.memory.store.owner import Owner

ADA, BOB = Owner("ada"), Owner("bob")
WRITER = Stamp("w", "p", "e")
"""Who writes memories."""


def session(*texts: str, id: str = "") -> Session:
    """What Ada said."""
    return Session(id=id, turns=tuple(Turn(id="", speaker="Ada", text=text) for text in texts))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url_without_tables(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store, of each kind, that nobody has opened yet."""
    if request.param == "sqlite":
        return str(tmp_path / "memories.sqlite")
    return request.getfixturevalue("postgres").emptied()


@pytest.fixture
def url(url_without_tables: str, empty_store: Path) -> str:
    """The address of an empty store, of each kind."""
    if not url_without_tables.startswith("postgresql"):
        shutil.copy(empty_store, url_without_tables)
    return url_without_tables


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., Any]]:
    """Opens the store, any number of times, as processes would; all are closed in the end."""
    from mempiler import Store

    opened: list[Any] = []

    def make(**options: Any) -> Any:
        opened.append(Store(url, **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Any]) -> Any:
    """An empty store of each kind."""
    return open_store()


@pytest.fixture
def database(url: str, store: Any) -> Iterator[Database]:
    """Another connection to the database of `store`, for changes that no method of a store makes."""
    database = Database(url)
    yield database
    database.close()
