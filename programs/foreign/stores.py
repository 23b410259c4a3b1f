"""Stores of a system that changes when it is written: one per history, each in a folder of its own, written once.

    Kept memory (a value) ── its digest ──> Store: folder, lane, system      made once, however many threads ask

A memory stays a value: it is the history itself, and the system's store is to it what an index is to entries. It is
made when a history is settled, by giving the system every session in order. A system with `snapshot` and `restore` is
kept under the digest of what it was given: a longer history goes on from there, a run that was killed takes it up
again, and stores that were not asked for long are closed. Any other is written anew where it is not running.

    folder/<digest>/store      what the system was made with
    folder/<digest>/snapshot   what it kept itself in; written.json says of what, and what writing it took
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...engines.taken import Taken, note, taking
from ...errors import BudgetError, EndpointError, MempilerError, UserError
from ...memory.flight import Flight
from ...memory.index import Embedder
from ...records import Failure, History, Hit, Item
from ..failing import failure_of, one_line
from ..recording import record_failure
from .lane import Lane
from .matching import hits_of
from .searchable import Factory, ForeignError

OPEN = 32
"""Stores that are open at a time, of a system that can take one up again."""
EVERY = 60.0
"""Seconds of writing after which a history that is not at its end is kept, too."""
WRITTEN = "written.json"


@dataclass(frozen=True)
class Limits:
    """What a store may take."""

    timeout: float = 600.0
    """Seconds of one call."""
    max_mb: float = 2000.0
    """Megabytes of its folder."""


@dataclass
class Store:
    """A system that was given a history."""

    system: Any
    lane: Lane
    folder: Path
    """What it was made with."""
    taken: Taken = field(default_factory=Taken)
    """What writing this history took so far."""
    failures: tuple[Failure, ...] = ()
    """Sessions that it did not take."""
    users: int = 0

    def call(self, name: str, *args: Any) -> Any:
        """Calls one of its methods.

        Raises:
            ForeignError: It failed.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        try:
            return self.lane.call(name, getattr(self.system, name), *args)
        except (BudgetError, EndpointError, UserError):
            raise
        except MempilerError as error:
            raise ForeignError(str(error)) from error
        finally:
            if self.lane.dead:
                shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def keeps(self) -> bool:
        """Whether it can be taken up again."""
        able = hasattr(self.system, "snapshot") and hasattr(self.system, "restore")
        return able and getattr(self.system, "keeps", True) is not False

    def close(self) -> None:
        """Ends it."""
        self.lane.close(getattr(self.system, "close", None))


class Stores:
    """The stores of one system.

    Args:
        make: Makes the system of one history.
        name: What tables call it.
        folder: Where they are; a temporary folder if None.
        limits: What each may take.
        embedder: Given to systems that ask for one.
    """

    def __init__(
        self,
        make: Factory,
        name: str,
        folder: Path | None = None,
        limits: Limits | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.name, self._make, self._limits, self._embedder = name, make, limits or Limits(), embedder
        self._given, self._lock = folder, threading.Lock()
        self._dead: dict[str, str] = {}
        self._open: OrderedDict[str, Store] = OrderedDict()
        self._writing = Flight(capacity=0)
        weakref.finalize(self, _close_all, self._open)

    def write(self, history: History) -> None:
        """Writes the store of a history, if it is not there; tells what that took, and what the system did not take.

        Raises:
            ForeignError: The system failed.
        """
        with self._of(history) as store:
            note(store.taken)
            for failure in store.failures:
                record_failure(failure)

    def search(self, history: History, query: str, k: int) -> tuple[Hit, ...]:
        """What the system finds for a query about a history.

        Raises:
            ForeignError: It failed.
        """
        with self._of(history) as store:
            return hits_of(store.call("search", query, k), history)[:k]

    def ask(self, history: History, question: str) -> Any:
        """The system's own answer to a question about a history.

        Raises:
            ForeignError: It failed.
        """
        with self._of(history) as store:
            return store.call("ask", question)

    def size(self, history: History) -> tuple[int | None, int | None]:
        """How many entries the store of a history has, where the system tells, and the bytes of its folder."""
        count: int | None = None
        with suppress(ForeignError), self._of(history) as store:
            with suppress(Exception):
                count = int(store.call("__len__")) if hasattr(store.system, "__len__") else None
            return count, _bytes(store.folder) or None
        return None, None

    def close(self) -> None:
        """Ends every system; one that is asked again is opened again."""
        _close_all(self._open)

    @contextmanager
    def _of(self, history: History) -> Generator[Store]:
        """The store of a history, which stays open for the block."""
        digest = history.digest or "empty"
        while (store := self._taken(digest)) is None:
            self._writing.once(digest, lambda: self._enter(digest, history))
        try:
            yield store
        finally:
            if store.lane.dead:
                self._dead.setdefault(digest, f"{self.name}: {store.lane.dead}")
            with self._lock:
                store.users -= 1
            self._trim()

    def _taken(self, digest: str) -> Store | None:
        """The open store of a digest, now in use by one more."""
        if digest in self._dead:
            raise ForeignError(self._dead[digest])
        with self._lock:
            store = self._open.get(digest)
            if store is not None:
                self._open.move_to_end(digest)
                store.users += 1
            return store

    def _enter(self, digest: str, history: History) -> None:
        """Opens the store of a history; what fails once fails for good: no question waits twice for what hangs."""
        if digest in self._open:
            return
        try:
            with taking():  # who asks first need not be who it is for
                store = self._opened(self._folder / digest[:16], history)
        except ForeignError as error:
            self._dead[digest] = str(error)
            raise
        with self._lock:
            self._open[digest] = store

    def _opened(self, folder: Path, history: History) -> Store:
        store = self._made(folder)
        try:
            self._fill(store, folder, history, self._restored(store, folder, history))
        except BaseException:
            store.close()
            raise
        return store

    def _made(self, folder: Path) -> Store:
        """A fresh system in an empty folder."""
        own = folder / "store"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        lane = Lane(self.name, self._limits.timeout, lambda: _too_large(own, self._limits.max_mb))
        named = {"embedder": self._embedder} if "embedder" in inspect.signature(self._make).parameters else {}
        try:
            system = lane.call("make", self._make, own, **named)
        except (BudgetError, EndpointError, UserError):
            lane.close()
            raise
        except Exception as error:
            lane.close()
            raise ForeignError(f"{self.name}: cannot be made: {one_line(error)}") from error
        lane.kill = getattr(system, "kill", None)
        return Store(system, lane, own)

    def _restored(self, store: Store, folder: Path, history: History) -> int:
        """Takes up the longest part of a history that was kept; how many items that are."""
        if not store.keeps:
            return 0
        forks = getattr(store.system, "forks", True)
        shorter = [self._folder / prefix[:16] for prefix in reversed(history.prefixes[:-1])] if forks else []
        counts = {prefix: count for count, prefix in enumerate(history.prefixes, 1)}
        for place in [folder, *shorter]:
            kept = _record(place)
            count = counts.get(kept["digest"], 0) if kept else 0
            if kept and count and (forks or count == len(counts)):
                store.call("restore", place / kept["snapshot"])
                store.failures = tuple(Failure.model_validate(each) for each in kept["failures"])
                # What another history took is its own; what this one took before it was broken off belongs to it.
                store.taken = Taken(**kept["taken"]) if place == folder else Taken()
                return count
        return 0

    def _fill(self, store: Store, folder: Path, history: History, count: int) -> None:
        """Gives a system the rest of a history, and keeps it where it can be kept."""
        saved = time.monotonic()
        for item in history.items[count:]:
            with taking() as work:
                self._add(store, item)
            store.taken += work.taken
            count += 1
            if store.keeps and (count == len(history.items) or time.monotonic() - saved > EVERY):
                self._keep(store, folder, history.prefixes[count - 1])
                saved = time.monotonic()
        if history.items and len(store.failures) == len(history.items):
            raise ForeignError(f"{self.name}: took none of {len(history.items)} sessions: {store.failures[-1].message}")

    def _add(self, store: Store, item: Item) -> None:
        try:
            store.call("add", item)
        except (BudgetError, EndpointError, UserError):
            raise
        except Exception as error:
            if store.lane.dead:
                raise
            failure = failure_of(f"{self.name}.add", error)
            store.failures = (*store.failures, failure)

    def _keep(self, store: Store, folder: Path, digest: str) -> None:
        """Keeps a store under the digest of what it was given; the record is replaced at once, then the older goes."""
        before = _record(folder)
        snapshot = folder / f"snapshot-{digest[:16]}"
        shutil.rmtree(snapshot, ignore_errors=True)
        snapshot.mkdir()
        store.call("snapshot", snapshot)
        record = {
            "digest": digest,
            "snapshot": snapshot.name,
            "taken": asdict(store.taken),
            "failures": [failure.model_dump(mode="json") for failure in store.failures],
        }
        scratch = folder / f".{WRITTEN}"
        scratch.write_text(json.dumps(record), encoding="utf-8")
        scratch.replace(folder / WRITTEN)
        if before and before["snapshot"] != snapshot.name:
            shutil.rmtree(folder / before["snapshot"], ignore_errors=True)

    def _trim(self) -> None:
        """Closes what was not asked for long and can be taken up again."""
        with self._lock:
            idle = [name for name, store in self._open.items() if not store.users and store.keeps]
            closing = [self._open.pop(name) for name in idle[: max(0, len(self._open) - OPEN)]]
        for store in closing:
            store.close()

    @property
    def _folder(self) -> Path:
        with self._lock:
            if self._given is None:
                self._given = Path(tempfile.mkdtemp(prefix="mempiler-"))
                weakref.finalize(self, shutil.rmtree, self._given, ignore_errors=True)
            return self._given

    def __deepcopy__(self, memo: object = None) -> Stores:
        return self


def _record(folder: Path) -> dict[str, Any] | None:
    """What a folder says of its snapshot."""
    try:
        found: dict[str, Any] = json.loads((folder / WRITTEN).read_text(encoding="utf-8"))
        return found if (folder / str(found["snapshot"])).is_dir() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _too_large(folder: Path, most: float) -> str | None:
    return f"wrote more than {most:g} MB" if _bytes(folder) > most * 1e6 else None


def _bytes(folder: Path) -> int:
    size = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                size += (Path(place) / file).lstat().st_size
    return size


def _close_all(stores: OrderedDict[str, Store]) -> None:
    while stores:
        stores.popitem()[1].close()
