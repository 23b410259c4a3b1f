"""The memories of a store's users, as one program reads and writes them with one language model.

A memory's version names its content, so a parsed memory is kept under it: an unchanged one costs
one indexed query per question. All that is kept goes when anybody is forgotten, here or in another
process: the store counts how often that was. A process sees a new count when it next reads a
memory, or when its worker looks.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import dspy
from pydantic import ValidationError

from ...engines.call_context import call_context
from ...engines.fair_semaphore import FairSemaphore
from ...engines.lm import metered_model
from ...engines.metered_lm import MeteredLM
from ...errors import ProgramError, StoreError, UserError
from ...memory.changes import apply_changes
from ...memory.edits import Amendments, active_amendments
from ...memory.entry_choice import EntryChoice
from ...memory.memory import Memory
from ...memory.metadata import validate_filter
from ...memory.search.tokens import clear_word_cache
from ...memory.store.documents import (
    DOCUMENT_VERSION,
    ChangeLog,
    Document,
    MemoryChange,
    Stamp,
)
from ...memory.store.owner import Owner
from ...memory.store.store import Store
from ...memory.tenant_lock import TenantLock
from ...memory.text_slots import SLOT_FACTORY
from ...programs.identity import digest, program_digest, writer_digest
from ...programs.method import Method
from ...programs.pending import PendingItems
from ...programs.program import MemoryProgram
from ...records.context_variables import set_context
from ..worker.breaker import breakers_of
from .memory_filter import MemoryFilter
from .user_cache import ActiveAmendments, ParsedMemory, UserCache
from .user_caches import UserCaches
from .user_vectors import UserVectors
from .view import MemoryView


class _MemoryForms(NamedTuple):
    """A stored memory in its two forms; they are one object if the writer finalizes nothing."""

    memory: Memory
    """What further items are written into."""
    finalized: Memory
    """What questions are answered from."""


class Memories:
    """The memories of the users of one store; objects are cheap, and share what is kept.

    Args:
        program: Writes and reads them.
        store: A `Store`, the path of an SQLite file, or `postgresql://...`; a store named by a text
            is opened once per program.
        lm: The language model, or its name; that of `dspy.settings` at the time of each call if
            None. A `dspy.LM` of your own is metered, as one by its name is.

    Raises:
        UserError: The store is no valid name.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self, program: MemoryProgram, store: Store | str | Path, lm: str | dspy.BaseLM | None = None
    ) -> None:
        self.program = program
        self.lm: MeteredLM | None = None if lm is None else metered_model(lm)
        """The model of `lm`, which counts its calls."""
        if isinstance(store, Store):
            self.store: Store = store
        else:
            self.store = program.shared.get_or_compute(("store", str(store)), lambda: Store(store))
        self.lane: FairSemaphore | None = None
        """Where users take turns at embedding and reranking."""
        self.text_lock: TenantLock | None = None
        """The lock that tenants hold in turns for long work on text; None if nobody has to wait."""
        self._caches: UserCaches = program.shared.get_or_compute(
            ("memories", self.store.url), UserCaches
        )
        self.failures = self._caches.failures
        """How often users could not be written in a row."""

    @cached_property
    def writer_fingerprint(self) -> Stamp:
        """The stamp of the memories that this program writes, as it was when this was first read.

        A memory with another stamp must be rebuilt before this program can use it. So the stamp
        covers all that the content of a memory depends on: the writer with its settings and
        prompts, the adapter, the embedder, and the shape of the memory. Prompts that only read are
        left out, and may change without a rebuild. The language model is left out too: changing it
        is the operator's choice, and `rebuild --force` writes everything anew.
        """
        writer = self.program.method.writer
        # A writer without predictors asks no model, so no adapter matters to it.
        adapter = self.program.adapter if writer.predictors_below() else ""
        # Not every writer has an embedder.
        embedder = getattr(writer, "embedder", None)
        return Stamp(
            writer=digest([writer_digest(writer), adapter]),
            program=program_digest(self.program),
            embedder=embedder.name if embedder else "",
        )

    def view(self, owner: Owner) -> MemoryView:
        """Return a user's memory as questions see it: with the user's own changes of entries.

        These changes, the amendments, are stored beside the memory. They are applied here, to the
        finalized memory and to the pending items.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the
                fix.
        """
        forget_count = self._caches.forget_count
        try:
            view = self.read(owner)
            amendments = self._active_amendments(view)
            if not amendments.active:
                return view

            finalized = view.cache.amend_memory(view.method, view.finalized, amendments)
            pending_items = amendments.amended_items(view.pending.items)
            return replace(
                view,
                finalized=finalized,
                pending=replace(view.pending, items=pending_items),
                amendments=amendments,
            )
        finally:
            # In any case: what was done before a failure may stand in caches, too.
            self._wipe_if_forgotten_since(forget_count)

    def _active_amendments(self, view: MemoryView) -> Amendments:
        """Return the amendments in force; the store is read only if there is a new one."""
        cache = view.cache
        last_number = view.snapshot.last_amendment
        if cache.amendments.last_number != last_number:
            stored = self.store.amendments.list_all(view.snapshot.owner)
            amendments = Amendments(active_amendments(stored))
            cache.amendments = ActiveAmendments(last_number, amendments)
            return amendments
        return cache.amendments.edits

    def read(self, owner: Owner) -> MemoryView:
        """Return the memory as it was written, without amendments.

        It is read from the store only if it has changed since this process read it.

        Raises:
            ProgramError: Another program, embedder or version wrote it; the message has the command
                that repairs it.
        """
        # Taken before the store is read: if somebody is forgotten meanwhile, this cache object is
        # dropped, and what is put into it later can be reached by nobody.
        cache = self._caches.cache_of(owner)
        known = cache.parsed_memory
        snapshot = self.store.read(
            owner,
            lambda version: known is not None and known.version == version,
            cache.parsed_items,
            known.document.log if known else ChangeLog(),
        )
        if self.drop_forgotten(snapshot.forget_count):
            cache = self._caches.cache_of(owner)
        cache.parsed_items = snapshot.parsed
        if snapshot.stamp is not None:
            self.check(snapshot.stamp, owner)

        document = snapshot.document
        if snapshot.stamp is not None and known is not None and known.version == snapshot.version:
            document = known.document
            memory = known.memory
            finalized = known.finalized
        elif document is None:
            memory = finalized = self.program.method.writer.Memory()
        else:
            memory, finalized = self._parse(document, known, owner)
            self.cache_memory(cache, snapshot.version, document, memory, finalized)

        items = (*(stored.item for stored in snapshot.pending_items), *snapshot.open_sessions)
        return MemoryView(
            method=self.program.method,
            snapshot=snapshot,
            document=document,
            memory=memory,
            finalized=finalized,
            pending=PendingItems(items, cache.pending_lineage),
            cache=cache,
        )

    def cache_memory(
        self, cache: UserCache, version: str, document: Document, memory: Memory, finalized: Memory
    ) -> None:
        """Keep a user's memory under its version, in the place of an older one."""
        # Its texts are as large as the memory, and not looked at again.
        light = replace(document, memory="", finalized=None, change=None, since=None)
        cache.parsed_memory = ParsedMemory(version, light, memory, finalized)

    def check(self, stamp: Stamp, owner: Owner) -> None:
        """Refuse a memory that this program would have written otherwise.

        Args:
            stamp: What wrote the memory.
            owner: The user, for the message.

        Raises:
            ProgramError: Program, embedder or version differ.
        """
        fingerprint = self.writer_fingerprint
        if stamp.writes_like(fingerprint):
            return

        fix = self._rebuild_command(owner)
        versions = f"(document {stamp.schema}, this reads {DOCUMENT_VERSION})"
        if stamp.schema > fingerprint.schema:
            difference = f"by a newer Mempiler {versions}"
            fix = "install that"
        elif stamp.schema < fingerprint.schema:
            difference = f"by an older Mempiler {versions}"
        elif stamp.embedder != fingerprint.embedder:
            difference = f"with the embedder {stamp.embedder!r}, not {fingerprint.embedder!r}"
        else:
            difference = f"by another program ({stamp.writer[:8]}, not {fingerprint.writer[:8]})"
        raise ProgramError(f"the memory of user {owner.user!r} was written {difference}; {fix}")

    def _rebuild_command(self, owner: Owner) -> str:
        """Return, for an error message, the command that writes the memory of a user anew."""
        command = (
            f"run: mempiler memories rebuild PROGRAM --store {self.store.url} --user {owner.user!r}"
        )
        if owner.tenant != "default":
            command += f" --tenant {owner.tenant!r}"
        return command

    def filter_for(
        self,
        owner: Owner,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> MemoryFilter:
        """Return the filter for the conditions that `UserMemory.ask` takes.

        Args:
            owner: The user.
            where: Conditions on the metadata of sessions; none if empty or None.
            since: Nothing older passes the filter.
            until: Nothing newer passes the filter.

        Raises:
            UserError: A condition is malformed.
        """
        conditions = validate_filter({} if where is None else where)
        # None lets all turns pass.
        turn_ids: frozenset[str] | None = None
        if conditions:
            turn_ids = self.store.metadata.turns_where(owner, conditions)
        return MemoryFilter(since, until, turn_ids)

    def filtered_view(self, view: MemoryView, **choice: Unpack[EntryChoice]) -> MemoryView:
        """Return a view of the part of the memory that meets some conditions.

        The part is a memory with a search index of its own. The cache of the user keeps it, so that
        further questions with these conditions neither filter nor index anew.

        Raises:
            UserError: A condition is malformed, or the method cannot leave entries out.
        """
        if all(condition in (None, {}) for condition in choice.values()):
            return view

        memory_filter = self.filter_for(view.snapshot.owner, **choice)
        finalized = view.cache.filtered_memory(view.finalized, memory_filter)
        if finalized is None:
            finalized = self._filter_memory(view.method, view.finalized, memory_filter)
            view.cache.keep_filtered_memory(view.finalized, memory_filter, finalized)

        pending_items = memory_filter.amended_items(view.pending.items)
        return replace(
            view, finalized=finalized, pending=PendingItems(pending_items), filter=memory_filter
        )

    def _filter_memory(self, method: Method, memory: Memory, memory_filter: MemoryFilter) -> Memory:
        """Return the part of a memory that a filter leaves.

        Raises:
            UserError: The method cannot leave entries out.
        """
        filtered = method.apply_edits(memory, memory_filter)
        # A method that cannot leave entries out returns them all, also those that must be hidden.
        for entry in method.reader.entries(filtered):
            if memory_filter.visible_entry(entry) is None:
                raise UserError(
                    f"memories of {self.program.name} cannot be looked at in part; "
                    "ask without where, since, until"
                )
        if filtered is memory:
            return memory
        # Memories of one lineage share a search index, which every search brings to the memory that
        # it searches. Questions to the whole memory and to this part would change it all the time.
        return filtered.with_new_lineage()

    def drop(self, owner: Owner) -> None:
        """Remove a user's parsed memory, and with it its indexes, from this process."""
        with self._caches.lock:
            self._caches.users.pop(owner, None)

    def forget_failures(self, owner: Owner) -> None:
        """Drop what is counted of a user who was forgotten: writes and calls that failed."""
        self.failures.reset(owner)
        for breaker in breakers_of(self.lm or dspy.settings.lm, self.program.method.embedder):
            breaker.forget_user(owner)

    @contextmanager
    def user_context(self, view: MemoryView, asks: bool = False) -> Generator[None]:
        """Run the block under the settings for work on the words of a user.

        Forgetting must be able to remove these words, so they go into no trace, history or cache of
        DSPy's. Vectors of them are stored with the user. The block's model calls are made in the
        name of the user, who takes turns with others at the models and at long work on texts.

        Args:
            view: What is worked on.
            asks: Whether the work is a question. Questions of a user take turns apart from the
                writing for the same user, so they do not wait until that is done.
        """
        owner = view.snapshot.owner
        forget_count = view.snapshot.forget_count
        lm = self.lm or dspy.settings.lm
        if getattr(lm, "cache", False):
            lm = lm.copy(cache=False)
        # The engines of these models may keep the user's words; `_wipe` clears them.
        self._caches.note_engines([lm, *self._own_models()])

        dspy_settings = dspy.context(
            lm=lm,
            adapter=self.program.current_adapter(),
            trace=None,
            usage_tracker=None,
            disable_history=True,
        )
        model_calls = call_context(
            caller=(owner.tenant, owner.user, asks),
            vector_cache=UserVectors(self.store, owner, forget_count, view.cache.vectors),
            slots=self.lane,
        )
        # Outside of a service nobody waits for work on texts, and there is no lock.
        text_slots = None if self.text_lock is None else self.text_lock.hold
        try:
            with dspy_settings, model_calls, set_context(SLOT_FACTORY, text_slots):
                yield
        finally:
            self._wipe_if_forgotten_since(forget_count)

    def drop_forgotten(self, forget_count: int) -> bool:
        """Drop what is kept of all users if anybody was forgotten since this process last looked.

        The store counts how often somebody was forgotten, and does not keep who it was.

        Args:
            forget_count: The count, as just read from the store.

        Returns:
            Whether anybody was forgotten.
        """
        with self._caches.lock:
            is_new = forget_count > self._caches.forget_count
            self._caches.forget_count = max(self._caches.forget_count, forget_count)
        if is_new:
            self._wipe()
        return is_new

    def _parse(self, document: Document, known: ParsedMemory | None, owner: Owner) -> _MemoryForms:
        """Parse a memory that was read from the store.

        The store returns either the whole text of a memory, or only the changes since the memory
        that this process has read before.

        Args:
            document: What the store returned.
            known: The memory that this process has read before; None if it has read none.
            owner: The user, for the error message.

        Raises:
            StoreError: The memory does not fit the program.
        """
        changes = document.since
        try:
            if known is None or changes is None:
                return self._parse_text(document)
            return self._with_changes(known, changes)
        except (LookupError, TypeError, ValueError) as error:
            # The message shows only the type of an error. Other parts of an error of pydantic may
            # quote what the user said.
            reason = type(error).__name__
            if isinstance(error, ValidationError):
                reason = error.errors()[0]["type"]
            raise StoreError(
                f"the memory of user {owner.user!r} does not fit its program: {reason}; run: "
                f"mempiler memories rebuild PROGRAM --store {self.store.url} "
                f"--user {owner.user!r} --force"
            ) from None

    def _parse_text(self, document: Document) -> _MemoryForms:
        """Parse the whole text of a memory, and that of its finalized form if it has one."""
        writer = self.program.method.writer
        memory = writer.Memory.model_validate_json(document.memory)
        if not writer.needs_finalizing:
            return _MemoryForms(memory, memory)
        return _MemoryForms(memory, writer.Memory.model_validate_json(document.finalized or "{}"))

    def _with_changes(self, known: ParsedMemory, changes: Iterable[MemoryChange]) -> _MemoryForms:
        """Return a memory after changes that were stored since it was parsed, oldest first."""
        needs_finalizing = self.program.method.writer.needs_finalizing
        memory = known.memory
        finalized = known.finalized
        for change in changes:
            memory = apply_changes(memory, json.loads(change.memory))
            if not needs_finalizing:
                finalized = memory
            elif change.finalized is not None:
                # A finalized memory is stored as its difference from the memory it was made of, not
                # from the finalized memory before it.
                finalized = apply_changes(memory, json.loads(change.finalized))
        return _MemoryForms(memory, finalized)

    def _wipe_if_forgotten_since(self, forget_count: int) -> None:
        """Wipe once more if anybody was forgotten while some work ran.

        The work may have put words of that user into a cache after the cache was wiped.

        Args:
            forget_count: What this process knew of the store's count when the work began.
        """
        if self._caches.forget_count != forget_count:
            self._wipe()

    def _wipe(self) -> None:
        """Drop everything that this process keeps of what the store's users said."""
        with self._caches.lock:
            self._caches.users.clear()
        clear_word_cache()
        for keeper in (self.program.method.embedder, *self._caches.engines()):
            # Embedders and engines may be of any class; those that keep texts can drop them.
            clear = getattr(keeper, "clear", None)
            if clear is not None:
                clear()

    def _own_models(self) -> list[Any]:
        """Return the models of predictors that have a model of their own."""
        predictors = self.program.all_predictors().values()
        models = [getattr(predictor, "lm", None) for predictor in predictors]
        return [model for model in models if model is not None]
