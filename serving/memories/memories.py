"""The memories of a store's users, as one program reads and writes them with one language model.

A memory's version names its content, so a parsed memory is kept under it: an unchanged one costs
one indexed query per question. All that is kept goes when anybody is forgotten, here or in another
process: the store counts how often that was. A process sees a new count when it next reads a
memory, or when its worker looks.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

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
from ...memory.store.documents import DOCUMENT_VERSION, ChangeLog, Document, Stamp
from ...memory.store.owner import Owner
from ...memory.store.store import Store
from ...memory.tenant_lock import TenantLock
from ...memory.text_slots import SLOT_FACTORY
from ...programs.identity import digest, program_digest, writer_digest
from ...programs.pending import PendingItems
from ...programs.program import MemoryProgram
from ...records.context_variables import set_context
from ..worker.breaker import breakers_of
from .memory_filter import MemoryFilter
from .user_cache import ActiveAmendments, EditedMemory, ParsedMemory, UserCache
from .user_caches import UserCaches
from .user_vectors import UserVectors
from .view import MemoryView

PARTS = 8
"""Most parts of a user's memory that are kept as memories of their own."""


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
        self._kept: UserCaches = program.shared.get_or_compute(
            ("memories", self.store.url), UserCaches
        )
        self.failures = self._kept.failures
        """How often users could not be written in a row."""

    @cached_property
    def writer_fingerprint(self) -> Stamp:
        """What writes: the program as it was when this was first read.

        The memory depends on the writer with its settings, prompts and embedder, the adapter and
        the shape of the memory; prompts that only read may change without a rebuild. The model that
        writes is not part of it: changing the model is the operator's choice, and `rebuild --force`
        writes everything anew.
        """
        writer = self.program.method.writer
        embedder = getattr(writer, "embedder", None)
        adapter = self.program.adapter if writer.predictors_below() else ""
        return Stamp(
            writer=digest([writer_digest(writer), adapter]),
            program=program_digest(self.program),
            embedder=embedder.name if embedder else "",
        )

    def view(self, owner: Owner) -> MemoryView:
        """Return the memory that questions are answered from, and the pending items, as amended.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the
                fix.
        """
        forget_count = self._kept.forget_count
        try:
            view = self.read(owner)
            user = view.cache
            known = user.amendments
            if known.last_number != view.snapshot.last_amendment:
                edits = Amendments(active_amendments(self.store.amendments.list_all(owner)))
                known = ActiveAmendments(view.snapshot.last_amendment, edits)
                user.amendments = known

            amendments = known.edits
            if not amendments.active:
                return view
            finalized = user.apply_edits(0, self.program.method, view.finalized, amendments)
            pending = replace(view.pending, items=amendments.amended_items(view.pending.items))
            return replace(view, finalized=finalized, pending=pending, amendments=amendments)
        finally:
            if self._kept.forget_count != forget_count:
                self._wipe()

    def read(self, owner: Owner) -> MemoryView:
        """Return the memory as it was written, without amendments.

        It is read from the store only if it has changed since this process read it.

        Raises:
            ProgramError: Another program, embedder or version wrote it; the message has the command
                that repairs it.
        """
        # Taken before the store is read: if somebody is forgotten meanwhile, what is kept here now
        # is out of reach.
        user = self._kept.of(owner)
        known = user.parsed_memory
        snapshot = self.store.read(
            owner,
            lambda version: known is not None and known.version == version,
            user.parsed_items,
            known.document.log if known else ChangeLog(),
        )
        if self.drop_forgotten(snapshot.forget_count):
            user = self._kept.of(owner)
        user.parsed_items = snapshot.parsed
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
            self.cache_memory(user, snapshot.version, document, memory, finalized)

        items = (*(stored.item for stored in snapshot.pending_items), *snapshot.open_sessions)
        return MemoryView(
            method=self.program.method,
            snapshot=snapshot,
            document=document,
            memory=memory,
            finalized=finalized,
            pending=PendingItems(items, user.pending_lineage),
            cache=user,
        )

    def cache_memory(
        self, user: UserCache, version: str, document: Document, memory: Memory, finalized: Memory
    ) -> None:
        """Keep a user's memory under its version, in the place of an older one."""
        # Its texts are as large as the memory, and not looked at again.
        light = replace(document, memory="", finalized=None, change=None, since=None)
        user.parsed_memory = ParsedMemory(version, light, memory, finalized)

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
        """Return the filter that lets through what meets the conditions of `UserMemory.ask`.

        Raises:
            UserError: A condition is malformed.
        """
        conditions = validate_filter({} if where is None else where)
        turn_ids: frozenset[str] | None = None
        if conditions:
            turn_ids = self.store.metadata.turns_where(owner, conditions)
        return MemoryFilter(since, until, turn_ids)

    def filtered_view(self, view: MemoryView, **choice: Unpack[EntryChoice]) -> MemoryView:
        """Return what meets some conditions, as a memory of its own with an index of its own.

        Raises:
            UserError: A condition is malformed, or the method cannot leave entries out.
        """
        if all(condition in (None, {}) for condition in choice.values()):
            return view

        memory_filter = self.filter_for(view.snapshot.owner, **choice)
        place = 1 + hash(memory_filter) % PARTS
        filtered = view.cache.apply_edits(place, view.method, view.finalized, memory_filter)
        if filtered.lineage is view.finalized.lineage:
            for entry in view.method.reader.entries(filtered):
                if memory_filter.visible_entry(entry) is None:
                    raise UserError(
                        f"memories of {self.program.name} cannot be looked at in part; "
                        "ask without where, since, until"
                    )
            if filtered is not view.finalized:
                # An index that went to and fro between the two would be slower than two indexes.
                filtered = filtered.with_new_lineage()
                view.cache.edited_memories[place] = EditedMemory(
                    view.finalized, memory_filter, filtered
                )
        return replace(
            view,
            finalized=filtered,
            pending=PendingItems(memory_filter.amended_items(view.pending.items)),
            filter=memory_filter,
        )

    def drop(self, owner: Owner) -> None:
        """Remove a user's parsed memory, and with it its indexes, from this process."""
        with self._kept.lock:
            self._kept.users.pop(owner, None)

    def forget_failures(self, owner: Owner) -> None:
        """Drop what is counted of a user who was forgotten: writes and calls that failed."""
        self.failures.reset(owner)
        for breaker in breakers_of(self.lm or dspy.settings.lm, self.program.method.embedder):
            breaker.forget_user(owner)

    @contextmanager
    def user_context(self, view: MemoryView, asks: bool = False) -> Generator[None]:
        """Run the block under the settings for work on the words of a user.

        The words go into no trace, history or cache of DSPy's, because forgetting must remove them.
        Their vectors are kept with the user.

        Args:
            view: What is worked on.
            asks: Whether it is a question: it does not wait behind what the same user has said.
        """
        owner = view.snapshot.owner
        forget_count = view.snapshot.forget_count
        lm = self.lm or dspy.settings.lm
        if getattr(lm, "cache", False):
            lm = lm.copy(cache=False)
        self._kept.note_engines([lm, *self._own_models()])
        vectors = UserVectors(self.store, owner, forget_count, view.cache.vectors)
        dspy_settings = dspy.context(
            lm=lm,
            adapter=self.program.current_adapter(),
            trace=None,
            usage_tracker=None,
            disable_history=True,
        )
        caller = (owner.tenant, owner.user, asks)
        try:
            with (
                dspy_settings,
                call_context(caller=caller, vector_cache=vectors, slots=self.lane),
                set_context(SLOT_FACTORY, self.text_lock and self.text_lock.hold),
            ):
                yield
        finally:
            if self._kept.forget_count != forget_count:
                self._wipe()

    def drop_forgotten(self, forget_count: int) -> bool:
        """Drop what is kept of users if anybody was forgotten since this process last looked.

        Args:
            forget_count: What `Forgetting.count` or a snapshot says.

        Returns:
            Whether anybody was.
        """
        with self._kept.lock:
            is_new = forget_count > self._kept.forget_count
            self._kept.forget_count = max(self._kept.forget_count, forget_count)
        if is_new:
            self._wipe()
        return is_new

    def _parse(
        self, document: Document, known: ParsedMemory | None, owner: Owner
    ) -> tuple[Memory, Memory]:
        """Return the memory and the finalized memory of a document.

        Args:
            document: Has the whole text, or what has changed since the known memory.
            known: The memory that this process has.
            owner: The user, for the message.

        Raises:
            StoreError: The memory does not fit the program.
        """
        writer = self.program.method.writer
        try:
            if known is None or document.since is None:
                memory = writer.Memory.model_validate_json(document.memory)
                if not writer.needs_finalizing:
                    return memory, memory
                return memory, writer.Memory.model_validate_json(document.finalized or "{}")

            memory = known.memory
            finalized = known.finalized
            for change in document.since:
                memory = apply_changes(memory, json.loads(change.memory))
                if change.finalized is not None:
                    finalized = apply_changes(memory, json.loads(change.finalized))
        except (LookupError, TypeError, ValueError) as error:
            # Beside the type, pydantic's errors may hold what was said.
            reason = type(error).__name__
            if isinstance(error, ValidationError):
                reason = error.errors()[0]["type"]
            raise StoreError(
                f"the memory of user {owner.user!r} does not fit its program: {reason}; run: "
                f"mempiler memories rebuild PROGRAM --store {self.store.url} "
                f"--user {owner.user!r} --force"
            ) from None
        if not writer.needs_finalizing:
            return memory, memory
        return memory, finalized

    def _wipe(self) -> None:
        """Drop everything that this process keeps of what the store's users said."""
        with self._kept.lock:
            self._kept.users.clear()
        clear_word_cache()
        for keeper in (self.program.method.embedder, *self._kept.engines()):
            # What keeps texts in this process can drop them.
            if clear := getattr(keeper, "clear", None):
                clear()

    def _own_models(self) -> list[Any]:
        """Return the models of predictors that have a model of their own."""
        predictors = self.program.all_predictors().values()
        models = [getattr(predictor, "lm", None) for predictor in predictors]
        return [model for model in models if model is not None]
