"""Stores of both kinds: a file, and a PostgreSQL server that the tests start for themselves."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler import Session, Store, Turn
from mempiler.memory.store.database import Database
from mempiler.memory.store.documents import Stamp
from mempiler.memory.store.owner import Owner

ADA = Owner("ada")
BOB = Owner("bob")
WRITER = Stamp("w", "p", "e")
"""What a store notes of the program that wrote a memory: digests of its parts, the embedder."""


# The argument is called like the field of a session.
def session(*texts: str, id: str = "") -> Session:  # noqa: A002
    """Return a session in which Ada says these texts."""
    turns = [Turn(id="", speaker="Ada", text=text) for text in texts]
    return Session(id=id, turns=tuple(turns))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url_without_tables(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database, of each kind, that no store has opened yet."""
    if request.param == "sqlite":
        return str(tmp_path / "memories.sqlite")
    # Requested here, so that no server is started for a test with a file.
    return request.getfixturevalue("postgres").emptied()


@pytest.fixture
def url(url_without_tables: str, empty_store: Path) -> str:
    """The address of an empty store, of each kind."""
    if not url_without_tables.startswith("postgresql"):
        shutil.copy(empty_store, url_without_tables)
    return url_without_tables


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., Store]]:
    """A function that opens the store once more, as another process would.

    All stores that it opens are closed after the test.
    """
    stores: list[Store] = []

    def open_once_more(**options: Any) -> Store:
        store = Store(url, **options)
        stores.append(store)
        return store

    yield open_once_more

    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    """An empty store of each kind."""
    return open_store()


@pytest.fixture
def database(url: str, store: Store) -> Iterator[Database]:
    """Another connection to the database of `store`, for changes that no method makes."""
    database = Database(url)
    yield database
    database.close()
