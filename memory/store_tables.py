"""The tables of a memory store, and how its database is opened: SQLite by path, PostgreSQL by URL.

    users       one row per tenant and user: next position, version of the memory, who is writing it until when
    items       raw sessions, logs, ... in the order in which they came: queued, remembered or failed
    turns       the ids of their turns, unique within a user
    open_turns  turns of sessions that have not ended
    memories    one memory per user, made from the items up to a position, by a program
    texts       the JSON of that memory, as it was when it was last written as a whole
    changes     what has changed in it since, one row a commit
    vectors     what an embedder made of texts of the user, by a digest of embedder and text
    rebuilds    users whose memory is to be written anew, whoever wrote it, until that is done
    metadata    what callers said of raw sessions, a JSON object of plain values each
    open_metadata    the same of sessions that have not ended
    amendments  what users changed in single entries of their memories, in order
    forgotten   who was forgotten of late, by a digest of the name: a write that began before is refused

Limits: an SQLite file belongs on a local disk (its locks and its log do not work over a network), and has one writer at
a time; several machines want PostgreSQL.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    cast,
    create_engine,
    event,
    extract,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from ..errors import MissingDependencyError, StoreError, UserError
from .stored import Owner

SCHEMA = 2
"""Version of the tables; `open_engine` brings those of version 1 up to it, and refuses others."""

DROPPED = ("recalls", "moments", "past_texts", "past_changes", "events", "event_counts")
"""Tables of version 1 that version 2 has not: what was noted beside memories, and nothing that a user stored."""

_LOCK = 0x7265636F
"""PostgreSQL's advisory lock under which the tables are made."""

tables = MetaData()
R = TypeVar("R")


def _owner() -> tuple[Column[Any], Column[Any]]:
    return Column("tenant", String, primary_key=True), Column("user", String, primary_key=True)


def _filled(**kinds: type[Any]) -> Generator[Column[Any]]:
    """Columns by name that are never NULL."""
    return (Column(name, kind, nullable=False) for name, kind in kinds.items())


meta = Table("mempiler_meta", tables, Column("name", String, primary_key=True), Column("value", String))
users = Table(
    "mempiler_users",
    tables,
    *_owner(),
    *_filled(next_position=Integer, version=String, worker=String, claimed_until=Float),
)
items = Table(
    "mempiler_items",
    tables,
    *_owner(),
    Column("position", Integer, primary_key=True),
    *_filled(id=String, digest=String, json=Text, state=String, attempts=Integer, error=Text, added=Float),
    Index("mempiler_items_id", "tenant", "user", "id", unique=True),
    Index("mempiler_items_state", "state", "tenant", "user"),
)
turns = Table(
    "mempiler_turns",
    tables,
    *_owner(),
    Column("turn", String, primary_key=True),
    *_filled(position=Integer),
)
open_turns = Table(
    "mempiler_open_turns",
    tables,
    *_owner(),
    Column("session", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    *_filled(json=Text, added=Float),
)
memories = Table(
    "mempiler_memories",
    tables,
    *_owner(),
    *_filled(json=Text, position=Integer),
    Column("settled", Text),
    *_filled(settled_position=Integer, speakers=Text, writer=String, program=String, embedder=String),
    *_filled(schema=Integer, updated=Float),
)
texts = Table("mempiler_texts", tables, *_owner(), *_filled(base=String, memory=Text), Column("settled", Text))
changes = Table(
    "mempiler_changes",
    tables,
    *_owner(),
    Column("number", Integer, primary_key=True),
    *_filled(memory=Text),
    Column("settled", Text),
)
vectors = Table(
    "mempiler_vectors",
    tables,
    *_owner(),
    Column("key", LargeBinary, primary_key=True),
    *_filled(vector=LargeBinary),
)
rebuilds = Table(
    "mempiler_rebuilds",
    tables,
    *_owner(),
    *_filled(writer=String, begun=Integer, since=Float),
)
metadata = Table(
    "mempiler_metadata",
    tables,
    *_owner(),
    Column("position", Integer, primary_key=True),
    *_filled(json=Text),
)
open_metadata = Table(
    "mempiler_open_metadata",
    tables,
    *_owner(),
    Column("session", String, primary_key=True),
    *_filled(json=Text),
)
amendments = Table(
    "mempiler_amendments",
    tables,
    *_owner(),
    Column("number", Integer, primary_key=True),
    *_filled(what=String, entry=String, kind=String, text=Text, sources=Text, at=Float, by=String, undoes=Integer),
    Column("new", Text),
)
forgotten = Table(
    "mempiler_forgotten",
    tables,
    Column("name", String, primary_key=True),
    *_filled(number=Integer, at=Float, erased=Integer),
)
OWNED = (
    *(items, turns, open_turns, memories, texts, changes, vectors, rebuilds),
    *(metadata, open_metadata, amendments, users),
)
"""Every table with rows of a user."""


SERVER_CLOCK = cast(extract("epoch", func.clock_timestamp()), Float)
"""PostgreSQL's time, in seconds since 1970."""


def clock(db: Connection) -> Any:
    """The time now, in seconds since 1970: PostgreSQL's own, so that the clocks of its clients do not matter."""
    return SERVER_CLOCK if db.dialect.name == "postgresql" else time.time()


def of(table: Table, owner: Owner) -> tuple[Any, Any]:
    """The conditions for rows of a user."""
    return table.c.tenant == owner.tenant, table.c.user == owner.user


def given(name: str) -> Any:
    """A value of a statement that is made once and run many times; a list, for `in_`, too."""
    return bindparam(name)  # pyright: ignore[reportUnknownVariableType]


def mine(table: Any) -> tuple[Any, Any]:
    """The conditions for rows of a user in such a statement; `whose` has the values."""
    return table.c.tenant == given("of_tenant"), table.c.user == given("of_user")


def whose(owner: Owner, **more: Any) -> dict[str, Any]:
    """The values of `mine`, and others."""
    return {"of_tenant": owner.tenant, "of_user": owner.user, **more}


def key_of(owner: Owner) -> dict[str, str]:
    """The key columns of a user's row."""
    return {"tenant": owner.tenant, "user": owner.user}


def each(
    table: Table,
    owner: Owner,
    key: str,
    rows: Iterable[Any],
    read: Callable[[Any], R],
    skipped: list[str] | None = None,
) -> list[R]:
    """Reads rows of a user, one by one.

    Args:
        table: Where they are from.
        owner: Whose they are.
        key: The column that tells them apart.
        rows: As the database gave them.
        read: Reads one.
        skipped: Damaged rows are left out, and named here.

    Raises:
        StoreError: A row is damaged, and `skipped` is None. The message says which, and not what it holds.
    """
    found: list[R] = []
    for row in rows:
        try:
            found.append(read(row))
        except (ValueError, TypeError, LookupError):
            skip(f"{table.name}: user {owner.user!r}, {key} {getattr(row, key)!r}", skipped)
    return found


def skip(row: str, skipped: list[str] | None) -> None:
    """Adds the name of a damaged row to those that are skipped; None is a StoreError."""
    if skipped is None:
        check = "`mempiler memories check` lists such rows, `mempiler memories export --skip-damaged` leaves them out"
        raise StoreError(f"{row}: the row is damaged; {check}") from None
    skipped.append(row)


def open_engine(url: str | Path, timeout: float) -> Engine:
    """Opens a database and makes its tables if it has none.

    Args:
        url: A path of an SQLite file, `sqlite:///path`, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a lock or a connection.

    Raises:
        UserError: The URL is of another kind.
        StoreError: The database cannot be opened, or is of another version.
        MissingDependencyError: PostgreSQL's driver is not installed.
    """
    engine = _engine(url, timeout)
    with store_errors(engine), engine.execution_options(write=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _check_schema(connection, address_of(engine))
    return engine


def address_of(engine: Engine) -> str:
    """The address of a database without its password."""
    return engine.url.render_as_string(hide_password=True)


@contextmanager
def store_errors(engine: Engine) -> Generator[None]:
    """Turns what the database raises into one line; a transaction that fails is rolled back.

    Raises:
        StoreError: The disk is full, the file is locked or damaged, the server is down, ...
    """
    try:
        yield
    except (SQLAlchemyError, UnicodeDecodeError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The first line says what is wrong; what follows in PostgreSQL's errors are the values of a row.
        reason = " ".join(str(cause).partition("\n")[0].split())
        fix = next((fix for sign, fix in _FIXES.items() if sign in reason), "put that right and try again")
        fix = fix.format(disk=Path(engine.url.database or ".").resolve().parent)
        raise StoreError(f"store {address_of(engine)}: {reason}; nothing was half written; {fix}") from error


def reading(engine: Engine) -> Engine:
    """The engine with read-only transactions that see one state of the database."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine


def looking(engine: Engine) -> Engine:
    """The engine for single statements that read, each of which sees one state of the database by itself."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="AUTOCOMMIT")
    return engine.execution_options(bare=True)


@contextmanager
def outside_transactions(engine: Engine) -> Generator[Connection]:
    """An SQLite connection that begins no transaction, for what cannot run in one; it is not used again."""
    with engine.execution_options(bare=True).connect() as connection:
        try:
            yield connection
        finally:
            # What was set on it must not come to another call from the pool.
            connection.invalidate()


_FIXES = {
    "database is locked": "another process holds the file; try again, or use PostgreSQL for several workers",
    "disk is full": "free some space on the disk of {disk} and try again",
    "disk I/O error": "look after the disk of {disk}: it is full, or failing",
    "No space left": "free some space on the disk of the server and try again",
    "readonly database": "make the file and its folder writable",
    "unable to open": "make its folder, and make it writable",
    "not a database": "give another --store: this file is none",
    "codec can't decode": "restore a backup",
    "malformed": "restore a backup, or export what can be read and import it anew",
    "refused": "start the server, or give another --store",
}


def _engine(url: str | Path, timeout: float) -> Engine:
    address = str(url)
    if "://" not in address:
        address = f"sqlite:///{Path(address).expanduser()}"
    try:
        parsed = make_url(address)
    except ArgumentError:
        raise UserError(f"store {address!r} is no address; give a path or postgresql://user@host/database") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise UserError("a store needs a file: give the path of one, e.g. --store memories.sqlite")
        _keep_private(Path(parsed.database or ""))
        arguments = {"timeout": timeout, "check_same_thread": False}
        # The connection used last knows best what is in the file: each reads anew what another one wrote.
        pool: dict[str, Any] = {"max_overflow": 64, "pool_timeout": timeout, "pool_use_lifo": True}
        return _sqlite(create_engine(parsed, **pool, connect_args=arguments))
    if kind != "postgresql":
        raise UserError(f"store {address!r}: {kind} is not supported; give a path (SQLite) or postgresql://...")
    try:
        parsed = parsed.set(drivername="postgresql+psycopg")
        from .postgres import CONNECTIONS, connecting

        pool = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_use_lifo": True, "pool_timeout": timeout}
        return connecting(create_engine(parsed, **pool), timeout)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise MissingDependencyError("psycopg", "postgres") from error


def _keep_private(path: Path) -> None:
    """Sees to it that only the owner of an SQLite file may read it; SQLite gives its log the same rights."""
    if path.name.startswith("file:"):
        return
    # What is wrong with the path SQLite says in a moment. A file that is there is not opened here: to close it would
    # take away the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def _sqlite(engine: Engine) -> Engine:
    """Write-ahead log, flushed at every commit; transactions that write take the lock before they read."""

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        # Bytes that are no text fail nothing but what reads them: `\\xff` stands in no JSON.
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("bare"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("write") else "BEGIN")

    return engine


def _check_schema(connection: Connection, url: str) -> None:
    if not inspect(connection).has_table(meta.name):
        tables.create_all(connection)
        connection.execute(insert(meta).values(name="schema", value=str(SCHEMA)))
        return
    version = meta.c.name == "schema"
    found = connection.execute(select(meta.c.value).where(version)).scalar()
    if found == "1":
        for name in DROPPED:
            connection.execute(text(f"DROP TABLE IF EXISTS mempiler_{name}"))
        # A store of before one of the tables gets it; nothing else in it changes.
        tables.create_all(connection)
        connection.execute(update(meta).where(version).values(value=str(SCHEMA)))
    elif found != str(SCHEMA):
        raise StoreError(
            f"store {url}: its tables are of version {found}, this Mempiler reads {SCHEMA}; with the version that "
            "wrote it run `mempiler memories export`, then `mempiler memories import` into a new store with this one"
        )
