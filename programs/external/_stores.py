"""The stores of a memory system: one for each history, in a folder of its own, written once.

If the system has texts or numbers that can be set, there is one for each history and each set of
their values.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ...engines.call_context import measure_usage, record_usage
from ...engines.usage import Usage
from ...records import Failure, History, Item
from ...records.shared_by_copies import SharedByCopies
from ..recording import ExternalError, failure_of, record_failure
from ..single_flight import SingleFlight
from ._calls import SystemCalls
from ._model_calls import ModelCall, recorded_model_calls
from ._slots import Slots
from .numbers import NUMBERS_PARAMETER, Number
from .target import parameters
from .texts import TEXTS_PARAMETER, texts_in_prompt

MAX_OPEN_STORES = 64
"""Most finished stores of a system that are open; one that is needed again is written anew."""

MAX_STORES_IN_WRITING = 64
"""Most stores of a system that are written at the same time. Each has a thread."""


@dataclass(frozen=True)
class StoreContent:
    """What decides what is in a store: two stores of equal content hold the same."""

    history: History
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts of the system by name; empty if it has none that can be set."""
    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """The numbers of the system by name; empty if it has none that can be set."""

    @property
    def key(self) -> str:
        """A text that tells it from other contents."""
        return f"{self.history.digest}{self._digest_of_declared}"

    @property
    def folder_name(self) -> str:
        """The name of a folder for such a store."""
        # The first 16 characters of a digest tell histories apart. A history without items has the
        # digest "", which is no name for a folder.
        history_name = (self.history.digest or "empty")[:16]
        return f"{history_name}{self._digest_of_declared[:17]}"

    @property
    def _digest_of_declared(self) -> str:
        """A digest of the texts and numbers after a hyphen; "" if there are none."""
        if not self.texts and not self.numbers:
            return ""
        declared = {"texts": dict(self.texts), "numbers": dict(self.numbers)}
        text = json.dumps(declared, sort_keys=True)
        return f"-{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True)
class AddingCall:
    """A model call that a system made while a session was added to it."""

    turn_ids: tuple[str, ...]
    """The turns of the session."""
    text_names: tuple[str, ...]
    """The names of the texts of the system that are in the prompt."""
    call: ModelCall


@dataclass(eq=False)
class _Store:
    """A system that holds one history. It is closed when nobody refers to the store any more."""

    calls: SystemCalls
    usage: Usage = field(default_factory=Usage)
    """The model calls of the system while it wrote the history."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """The errors of sessions that the system could not add."""
    adding_calls: list[AddingCall] = field(default_factory=list[AddingCall])
    """The model calls of the system, if it has texts that an optimizer may change."""

    def __post_init__(self) -> None:
        # A finalizer may run anywhere, even where a lock is held: `begin_close` waits for nothing.
        weakref.finalize(self, self.calls.begin_close)


@dataclass(frozen=True)
class _UnusableStore:
    """A store that could not be written."""

    reason: str
    """Why not, as the message of an error."""
    usage: Usage
    """The model calls of the system before it failed."""


class Stores(SharedByCopies):
    """The stores of one system.

    Args:
        make_system: Makes the system of one history. If it has a parameter `folder`, it is given
            the folder of the store; texts and numbers that can be set it is given as `texts` and
            `numbers`.
        name: The name of the system in errors.
        folder: Where the folders of the stores are made; a temporary one if None.
        timeout: Seconds that one call of the system may take.
    """

    def __init__(
        self, make_system: Callable[..., Any], name: str, folder: Path | None, timeout: float
    ) -> None:
        self.name = name
        self._make_system = make_system
        self._timeout = timeout
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="mempiler-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = folder
        self._stores = SingleFlight[str, _Store | _UnusableStore](MAX_OPEN_STORES)
        self._writing_slots = Slots(MAX_STORES_IN_WRITING)
        self._latest_calls: dict[Path, SystemCalls] = {}
        """The calls of the newest store in each folder."""
        self._folders_in_writing: set[Path] = set()
        """The folders of the stores that are being written."""
        self._stores_in_use = WeakValueDictionary[Path, _Store]()
        """Written stores that somebody refers to, by their folder.

        A store that a question asks is one of them even if `_stores` has no more room for it.
        """

    def write(self, content: StoreContent) -> Sequence[AddingCall]:
        """Write the store of a history, unless it is open, which means that it was written before.

        The usage and the failures of the writing are recorded in both cases.

        Returns:
            The model calls of the writing; none if the system has no texts that can be set.

        Raises:
            ExternalError: The system cannot be made, hangs, or adds no session of the history.
        """
        # A store that is not open is written by opening it.
        store = self._open_store(content)
        record_usage(store.usage)
        for failure in store.failures:
            record_failure(failure)
        return store.adding_calls

    def call(self, content: StoreContent, method: str, *args: Any) -> Any:
        """Call a method of the system that holds a history, and return its result.

        The store of the history is written first if it is not open.

        Raises:
            ExternalError: The system fails, or its store cannot be written.
        """
        # A store is closed when nothing refers to it any more, so the variable keeps it open.
        store = self._open_store(content)
        return store.calls.call(method, *args)

    def close(self) -> None:
        """Close all stores that are written and not in use, and wait until they are closed.

        A store that is being called is closed after the call, which is not waited for. This object
        can still be used: a store that is needed again is written anew.
        """
        # Drop all stores that are written. A store that nothing else refers to begins to close. A
        # call that is running refers to its store, which therefore stays open.
        self._stores.drop(is_unwanted=lambda digest: True)

        # This returns at once for a store that stays open.
        for calls in tuple(self._latest_calls.values()):
            calls.wait_until_closed()

    def _open_store(self, content: StoreContent) -> _Store:
        """Return the store of a history; write it if it is not open.

        Raises:
            ExternalError: The store cannot be written, now or at an earlier call.
        """
        # An unusable store is kept too, so that no later question waits for a system that hangs.
        store = self._stores.get_or_compute(content.key, partial(self._write_store, content))
        if isinstance(store, _UnusableStore):
            raise ExternalError(store.reason, store.usage)
        return store

    def _write_store(self, content: StoreContent) -> _Store | _UnusableStore:
        """Make a new system, add all sessions of a history to it, and return the store.

        If the system cannot be made, hangs, or adds no session, an `_UnusableStore` is returned.
        """
        folder = self._free_folder(content)
        # The store may have been dropped for want of room while a question still asks it. Two
        # systems must not work in one folder, so it is taken back.
        store_in_use = self._stores_in_use.get(folder)
        if store_in_use is not None:
            return store_in_use

        self._folders_in_writing.add(folder)
        try:
            # A store that is being written has a thread, so only so many are written at a time.
            with self._writing_slots.slot():
                return self._write_store_in(folder, content)
        finally:
            self._folders_in_writing.discard(folder)

    def _write_store_in(self, folder: Path, content: StoreContent) -> _Store | _UnusableStore:
        """Do what `_write_store` does, in a folder in which no other store is being written."""
        self._empty_folder(folder)
        calls = SystemCalls(self.name, self._timeout)
        # A later store of the same history gets the same folder; `_empty_folder` then waits until
        # these calls have ended.
        self._latest_calls[folder] = calls
        store = _Store(calls)

        # Model calls are counted here, not for the question that happens to need the store first.
        # `Stores.write` adds them to the usage of the run.
        with measure_usage() as tracker:
            try:
                self._fill_store(store, content, folder)
            except ExternalError as error:
                return _UnusableStore(str(error), tracker.usage)

        store.usage = tracker.usage
        self._stores_in_use[folder] = store
        return store

    def _free_folder(self, content: StoreContent) -> Path:
        """Return the folder for the store of a history; no store is being written in it.

        A history has one folder for each set of texts and numbers. It needs another one only if its
        store is being written, and another caller writes it a second time because waiting would
        block the event loop.
        """
        folder_name = content.folder_name
        folder = self._folder / folder_name
        number = 1
        while folder in self._folders_in_writing:
            number += 1
            folder = self._folder / f"{folder_name}-{number}"
        return folder

    def _empty_folder(self, folder: Path) -> None:
        """Make a folder empty, after the system that worked in it before has been closed."""
        previous_calls = self._latest_calls.get(folder)
        if previous_calls is not None:
            # An earlier system that is being closed may still write files in the folder. Nobody
            # asks it any more, but its finalizer may not have run yet.
            previous_calls.begin_close()
            previous_calls.wait_until_closed()

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def _fill_store(self, store: _Store, content: StoreContent, folder: Path) -> None:
        """Make the system of a store, and add the sessions of a history to it, one by one.

        The error of a session that cannot be added is appended to `store.failures`.

        Raises:
            ExternalError: The system cannot be made, hangs, or adds no session.
        """
        make_system = self._make_system
        if "folder" in parameters(make_system):
            make_system = partial(make_system, folder=folder)
        if content.texts:
            make_system = partial(make_system, **{TEXTS_PARAMETER: dict(content.texts)})
        if content.numbers:
            make_system = partial(make_system, **{NUMBERS_PARAMETER: dict(content.numbers)})
        store.calls.make_system(make_system)

        history = content.history
        for item in history.items:
            with recorded_model_calls() as model_calls:
                self._add_item(store, item)
            # Calls that are kept take memory, and only texts are tuned by them.
            if content.texts:
                store.adding_calls.extend(_adding_calls(content, item, model_calls))

        if history.items and len(store.failures) == len(history.items):
            last_message = store.failures[-1].message
            raise ExternalError(
                f"{self.name}: took none of {len(history)} sessions: {last_message}"
            )

    def _add_item(self, store: _Store, item: Item) -> None:
        """Add a session to the system of a store; if it cannot be added, keep the error.

        Raises:
            ExternalError: The system hangs.
        """
        try:
            store.calls.call("add", item)
        except ExternalError as error:
            # A system that hangs takes no further call, and says why in `end_reason`.
            if store.calls.end_reason:
                raise
            store.failures.append(failure_of(f"{self.name}.add", error))


def _adding_calls(
    content: StoreContent, item: Item, model_calls: Sequence[ModelCall]
) -> list[AddingCall]:
    """Return the model calls that a system made while an item was added.

    Calls of a system may run at the same time, and end in any order. They are sorted, since a
    resumed run must show an optimizer the same calls in the same order.
    """
    turn_ids = tuple(turn.id for turn in item.turns)
    adding_calls: list[AddingCall] = []
    for call in sorted(model_calls):
        text_names = texts_in_prompt(content.texts, call.prompt)
        adding_calls.append(AddingCall(turn_ids, text_names, call.shortened()))
    return adding_calls
