"""Stores of a system that changes when it is written: one per history, each in a folder of its own, written once.

A system with `snapshot` and `restore` is kept under the digest of what it was given: a longer history goes on from
there, a run that was killed takes it up again, and stores that were not asked for long are closed. Any other is written
anew where it is not running. docs/own_systems.md says what a system may have.

Calls of it are made one after the other in a thread of its own, all but `kill`, in a copy of their caller's context, so
that a model it asks is metered as the caller's own. Code that hangs cannot be ended in Python: its thread is left
behind, and every further call fails at once with the same reason.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ...engines.taken import Taken, note, taking
from ...errors import BudgetError, EndpointError, MempilerError, UserError
from ...memory.flight import Flight
from ...records import Failure, History
from ..failing import ExternalError, failure_of
from ..recording import record_failure

OPEN = 32
"""Stores that are open at a time, of a system that can take one up again."""
RUN_ENDS = (BudgetError, EndpointError, UserError)
"""Errors that are no fault of what is called: a limit, an endpoint that is gone, a mistake of the user's."""
CLOSING = 10.0
"""Seconds that a system has to end by itself."""


class CallThread:
    """One thread for one system; coroutines run on a loop that lives as long.

    Args:
        name: What failures call it.
        timeout: Seconds that a call may take.
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name, self.timeout, self.dead = name, timeout, ""
        self.kill: Callable[[], Any] = lambda: None
        """Ends what hangs from another thread, where it can be ended."""
        self.last: Callable[[], Any] | None = None
        """Called in the thread at its end, whatever that raises."""
        self._alone, self._loop = threading.Lock(), asyncio.new_event_loop()
        threading.Thread(target=_run, args=(self._loop,), name=f"external {name}", daemon=True).start()

    def call(self, what: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function, or a coroutine function, in the thread.

        Args:
            what: What the call is, for failures.
            function: What is called.
            *args: Its arguments.
            **named: Those by name.

        Raises:
            ExternalError: It failed, or took too long, now or before.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        with self._alone:
            if self.dead:
                raise ExternalError(f"{self.name}: {self.dead}")
            future = asyncio.run_coroutine_threadsafe(_outcome(partial(function, *args, **named)), self._loop)
            if not wait([future], self.timeout).done:
                self.dead = f"{what}: no answer within {self.timeout:g} s"
                self.kill()
                raise ExternalError(f"{self.name}: {self.dead}")
        value, error = future.result()
        if error is None or isinstance(error, RUN_ENDS):
            if error is not None:
                raise error
            return value
        told = error if isinstance(error, MempilerError) else f"{self.name}: {what}: {failure_of(what, error).message}"
        raise ExternalError(str(told)) from error

    def close(self) -> None:
        """Ends the system, in order if it still answers, and the thread after what it is doing."""
        if self.last is not None and not self.dead:
            self.timeout = min(self.timeout, CLOSING)
            with suppress(Exception):
                self.call("close", self.last)
        self.dead = self.dead or "is closed"
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)


class Store:
    """A system that is given one history; it ends with whoever used it last.

    Args:
        make: Makes the system in a folder.
        name: What failures call it.
        folder: The folder; emptied.
        timeout: Seconds that a call may take.
    """

    def __init__(self, make: Callable[[Path], Any], name: str, folder: Path, timeout: float) -> None:
        self.folder, self.calls = folder, CallThread(name, timeout)
        weakref.finalize(self, self.calls.close)
        self.taken, self.failures = Taken(), list[Failure]()
        """What writing its history took, and what it did not take of it."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.system = self.calls.call("make", make, folder)
        self.calls.kill = getattr(self.system, "kill", self.calls.kill)
        self.calls.last = getattr(self.system, "close", None)

    def ask(self, name: str, *args: Any) -> Any:
        """Calls one of the system's methods."""
        return self.calls.call(name, getattr(self.system, name), *args)

    @property
    def keeps(self) -> bool:
        """Whether it can be taken up again."""
        found = hasattr(self.system, "snapshot") and hasattr(self.system, "restore")
        return found and getattr(self.system, "keeps", True)


class Stores:
    """The stores of one system; a method raises `ExternalError` where the system fails.

    Args:
        make: Makes the system of one history in a folder.
        name: What tables call it.
        folder: Where they are; a temporary folder if None.
        timeout: Seconds that one call may take.
    """

    def __init__(self, make: Callable[[Path], Any], name: str, folder: Path | None, timeout: float) -> None:
        self.name, self._make, self._timeout = name, make, timeout
        self._folder = folder or Path(tempfile.mkdtemp(prefix="mempiler-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._stores, self._recent = Flight(), deque[str]()

    def write(self, history: History) -> None:
        """Writes the store of a history, if it is not there; tells what that took, and what the system did not take."""
        store = self._of(history)
        note(store.taken)
        for failure in store.failures:
            record_failure(failure)

    def ask(self, history: History, name: str, *args: Any) -> Any:
        """Asks the system of a history: calls one of its methods."""
        return self._of(history).ask(name, *args)

    def size(self, history: History) -> tuple[int | None, int | None]:
        """How many entries the store of a history has, where the system tells, and the bytes of its folder."""
        with suppress(ExternalError, OSError):
            store = self._of(history)
            size = sum(path.lstat().st_size for path in store.folder.rglob("*"))
            return store.ask("__len__") if hasattr(store.system, "__len__") else None, size or None
        return None, None

    def close(self) -> None:
        """Ends every system; one that is asked again is opened again."""
        self._stores.drop(lambda digest: True)

    def _of(self, history: History) -> Store:
        """The store of a history; what cannot be opened once never can: no question waits twice for what hangs."""
        digest = history.digest or "empty"
        found = self._stores.once(digest, lambda: self._opened(digest, history))
        if isinstance(found, ExternalError):
            raise ExternalError(str(found)) from found
        return found

    def _opened(self, digest: str, history: History) -> Store | ExternalError:
        try:
            with taking():  # who asks first need not be who it is for
                store = Store(self._make, self.name, self._folder / digest[:16] / "store", self._timeout)
                self._write(store, history)
        except ExternalError as error:
            return error
        if store.keeps:
            self._recent.append(digest)
            if len(self._recent) > OPEN:
                self._stores.forget(self._recent.popleft())
        return store

    def _write(self, store: Store, history: History) -> None:
        """Gives a system what it does not know of a history yet, and keeps it where it can be kept."""
        known = self._restored(store, history) if store.keeps else 0
        for item in history.items[known:]:
            with taking() as work:
                try:
                    store.ask("add", item)
                except ExternalError as error:
                    if store.calls.dead:
                        raise
                    store.failures.append(failure_of(f"{self.name}.add", error))
            store.taken += work.taken
        if history.items and len(store.failures) == len(history):
            raise ExternalError(f"{self.name}: took none of {len(history)} sessions: {store.failures[-1].message}")
        if store.keeps and known < len(history):
            self._keep(store)

    def _restored(self, store: Store, history: History) -> int:
        """Takes up the longest beginning of a history that was kept; how many items that are."""
        for count, prefix in reversed([*enumerate(history.prefixes, 1)]):
            kept, whole = self._folder / prefix[:16] / "kept", count == len(history)
            if kept.is_dir() and (whole or getattr(store.system, "forks", True)):
                record = json.loads((kept / "record.json").read_text(encoding="utf-8"))
                store.ask("restore", kept / "snapshot")
                store.failures += [Failure.model_validate(each) for each in record["failures"]]
                store.taken = Taken(**record["taken"]) if whole else Taken()  # what a shorter one took is its own
                return count
        return 0

    def _keep(self, store: Store) -> None:
        """Keeps a store beside its folder, whole or not at all."""
        part = store.folder.with_name("part")
        shutil.rmtree(part, ignore_errors=True)
        (part / "snapshot").mkdir(parents=True)
        store.ask("snapshot", part / "snapshot")
        record = {"taken": asdict(store.taken), "failures": [each.model_dump(mode="json") for each in store.failures]}
        (part / "record.json").write_text(json.dumps(record), encoding="utf-8")
        part.rename(store.folder.with_name("kept"))

    def __deepcopy__(self, memo: object = None) -> Stores:
        return self


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a function returns or raises; raised here, the end of a process would end the loop."""
    try:
        value = function()
        return (await value if inspect.isawaitable(value) else value), None
    except BaseException as error:
        return None, error
