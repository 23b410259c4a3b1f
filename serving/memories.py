"""The memories of a store's users, as one program reads and writes them with one language model.

A memory's version names its content, so a parsed memory is kept under it: an unchanged one costs one indexed query per
question. All that is kept goes when anybody is forgotten, here or in another process: the store counts how often that
was. A process sees a new count when it next reads a memory, or when its worker looks.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack
from weakref import ReferenceType, ref

import dspy
from pydantic import ValidationError

from ..engines.call_context import call_context
from ..engines.fair_semaphore import FairSemaphore
from ..errors import ProgramError, StoreError, UserError
from ..memory.edits import Amendments, active_amendments
from ..memory.search.tokens import clear_word_cache
from ..memory.changes import apply_changes
from ..memory.metadata import validate_filter
from ..memory.memory import Memory
from ..memory.store.store import Store
from ..memory.store.documents import DOCUMENT_VERSION, Document, ChangeLog, Stamp
from ..memory.store.owner import Owner
from ..memory.tenant_lock import TenantLock
from ..memory.text_slots import SLOT_FACTORY
from ..programs.identity import digest, program_digest, writer_digest
from ..programs.pending import PendingItems
from ..programs.program import MemoryProgram
from ..records.context_variables import set_context
from .bodies import EntryChoice
from .breaker import breakers_of
from .failure_counts import FailureCounts
from .memory_view import ActiveAmendments, EditedMemory, MemoryFilter, MemoryView, ParsedMemory, UserCache

USERS = 320
"""Users of a store of whom something is kept; of each tenant those used last."""
PARTS = 8
"""Most parts of a user's memory that are kept as memories of their own."""


class Memories:
    """The memories of the users of one store; objects are cheap, and share what is kept.

    Args:
        program: Writes and reads them.
        store: A `Store`, the path of an SQLite file, or `postgresql://...`; one that is given as text is opened once
            per program.
        lm: The language model; that of `dspy.settings` at the time of each call if None.

    Raises:
        UserError: The store is no valid name.
        StoreError: The store cannot be opened.
    """

    def __init__(self, program: MemoryProgram, store: Store | str | Path, lm: Any = None) -> None:
        self.program, self.lm = program, lm
        opened = (
            store
            if isinstance(store, Store)
            else program.shared.get_or_compute(("store", str(store)), lambda: Store(store))
        )
        self.store: Store = opened
        self.lane: FairSemaphore | None = None
        """Where users take turns at embedding and reranking."""
        self.text_lock: TenantLock | None = None
        """The lock that tenants hold in turns for long work on text; None if nobody has to wait."""
        self._kept: _Cache = program.shared.get_or_compute(("memories", self.store.url), _Cache)
        self.failures = self._kept.failures
        """How often users could not be written in a row."""

    @cached_property
    def writer_fingerprint(self) -> Stamp:
        """Who writes: the program as it was when this was first asked.

        The memory depends on the writer with its settings, prompts and embedder, the adapter and the shape of the
        memory; prompts that only read may change without a rebuild. The model that writes is not part of it: changing
        the model is the operator's choice, and `rebuild --force` writes everything anew.
        """
        writer = self.program.method.writer
        embedder = getattr(writer, "embedder", None)
        writes = [writer_digest(writer), self.program.adapter if writer.predictors_below() else ""]
        return Stamp(digest(writes), program_digest(self.program), embedder.name if embedder else "")

    def view(self, owner: Owner) -> MemoryView:
        """The memory that questions are answered from, as amendments leave it, and what is not in it yet.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
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
        """The memory as it was written; read from the store only where it changed since this process read it.

        Raises:
            ProgramError: Another program, embedder or version wrote it; the message has the command that repairs it.
        """
        # Taken before the store is read: what an older reading keeps here, a wipe in between has put out of reach.
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

    def cache_memory(self, user: UserCache, version: str, document: Document, memory: Memory, finalized: Memory) -> None:
        """Keeps a user's memory under its version, in the place of an older one."""
        # Its texts are as large as the memory, and not looked at again.
        light = replace(document, memory="", finalized=None, change=None, since=None)
        user.parsed_memory = ParsedMemory(version, light, memory, finalized)

    def check(self, found: Stamp, owner: Owner) -> None:
        """Refuses a memory that this program would have written otherwise.

        Raises:
            ProgramError: Program, embedder or version differ.
        """
        own = self.writer_fingerprint
        if found.writes_like(own):
            return
        fix = f"run: mempiler memories rebuild PROGRAM --store {self.store.url} --user {owner.user!r}"
        fix += "" if owner.tenant == "default" else f" --tenant {owner.tenant!r}"
        how = f"by another program ({found.writer[:8]}, not {own.writer[:8]})"
        if found.schema != own.schema:
            newer = found.schema > own.schema
            how = f"by {'a newer' if newer else 'an older'} Mempiler (document {found.schema}, this reads {DOCUMENT_VERSION})"
            fix = "install that" if newer else fix
        elif found.embedder != own.embedder:
            how = f"with the embedder {found.embedder!r}, not {own.embedder!r}"
        raise ProgramError(f"the memory of user {owner.user!r} was written {how}; {fix}")

    def filter_for(
        self,
        owner: Owner,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> MemoryFilter:
        """What is looked at of a user's memory.

        Raises:
            UserError: A condition is malformed.
        """
        conditions = validate_filter({} if where is None else where)
        return MemoryFilter(since, until, self.store.metadata.turns_where(owner, conditions) if conditions else None)

    def filtered_view(self, view: MemoryView, **choice: Unpack[EntryChoice]) -> MemoryView:
        """What is looked at of a user's memory, as a memory of its own, with an index of its own.

        Raises:
            UserError: A condition is malformed, or the method cannot leave entries out.
        """
        if all(wanted in (None, {}) for wanted in choice.values()):
            return view
        within = self.filter_for(view.snapshot.owner, **choice)
        place = 1 + hash(within) % PARTS
        left = view.cache.apply_edits(place, view.method, view.finalized, within)
        if left.lineage is view.finalized.lineage:
            if any(within.visible_entry(entry) is None for entry in view.method.reader.entries(left)):
                raise UserError(
                    f"memories of {self.program.name} cannot be looked at in part; ask without where, since, until"
                )
            if left is not view.finalized:
                # An index that went to and fro between the two would be slower than one for each.
                left = left.with_new_lineage()
                view.cache.edited_memories[place] = EditedMemory(view.finalized, within, left)
        return replace(
            view, finalized=left, pending=PendingItems(within.amended_items(view.pending.items)), filter=within
        )

    def drop(self, owner: Owner) -> None:
        """Removes a user's parsed memory, and with it its indexes, from this process."""
        with self._kept.lock:
            self._kept.users.pop(owner, None)

    def forget_failures(self, owner: Owner) -> None:
        """Drop what is counted of a user who was forgotten: writes and calls that failed."""
        self.failures.reset(owner)
        for breaker in breakers_of(self.lm or dspy.settings.lm, self.program.method.embedder):
            breaker.forget_user(owner)

    @contextmanager
    def user_context(self, view: MemoryView, asks: bool = False) -> Generator[None]:
        """The settings under which the words of a user are worked on.

        They go into no trace, history or cache of DSPy's: forgetting must remove them. Vectors of them are kept with
        the user.

        Args:
            view: What is worked on.
            asks: Whether the user asks: that does not wait behind what the same user has said.
        """
        owner = view.snapshot.owner
        forget_count = view.snapshot.forget_count
        lm = self.lm or dspy.settings.lm
        if getattr(lm, "cache", False):
            lm = lm.copy(cache=False)
        self._kept.note_engines([lm, *self._own_models()])
        vectors = _UserVectors(self.store, owner, forget_count, view.cache.vectors)
        adapter, whose = self.program.current_adapter(), (owner.tenant, owner.user, asks)
        try:
            with (
                dspy.context(lm=lm, adapter=adapter, trace=None, usage_tracker=None, disable_history=True),
                call_context(caller=whose, vector_cache=vectors, slots=self.lane),
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

    def _parse(self, document: Document, known: ParsedMemory | None, owner: Owner) -> tuple[Memory, Memory]:
        """Return the memory and the finalized one of a document: of its text, or of what changed since the known one."""
        writer = self.program.method.writer
        try:
            if known is None or document.since is None:
                memory = writer.Memory.model_validate_json(document.memory)
                finalized = (
                    writer.Memory.model_validate_json(document.finalized or "{}") if writer.needs_finalizing else memory
                )
            else:
                memory, finalized = known.memory, known.finalized
                for change in document.since:
                    memory = apply_changes(memory, json.loads(change.memory))
                    finalized = finalized if change.finalized is None else apply_changes(memory, json.loads(change.finalized))
        except (LookupError, TypeError, ValueError) as error:
            # What pydantic says beside the type may hold what was said.
            what = error.errors()[0]["type"] if isinstance(error, ValidationError) else type(error).__name__
            raise StoreError(
                f"the memory of user {owner.user!r} does not fit its program: {what}; "
                f"run: mempiler memories rebuild PROGRAM --store {self.store.url} --user {owner.user!r} --force"
            ) from None
        return memory, finalized if writer.needs_finalizing else memory

    def _wipe(self) -> None:
        """Drops everything that this process keeps of what the store's users said."""
        with self._kept.lock:
            self._kept.users.clear()
        clear_word_cache()
        for keeper in (self.program.method.embedder, *self._kept.engines()):
            # What keeps texts in this process can drop them.
            if clear := getattr(keeper, "clear", None):
                clear()

    def _own_models(self) -> list[Any]:
        """The models of those predictors that have one of their own."""
        models = [getattr(predictor, "lm", None) for predictor in self.program.all_predictors().values()]
        return [model for model in models if model is not None]


@dataclass(frozen=True, eq=False)
class _UserVectors:
    """The shelf of a user, where embedders read and write vectors; what was seen on it is not written once more.

    A store that fails here fails nobody: what is read and written next says so.
    """

    store: Store
    owner: Owner
    forget_count: int
    """What `Forgetting.count` was when the work began."""
    seen: dict[bytes, int]
    """The lengths of the vectors known to be there, from one work with the user to the next."""

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found: Mapping[bytes, bytes] = {}
        with suppress(StoreError):
            found = self.store.vectors.get(self.owner, keys)
        self.seen.update((key, len(vector)) for key, vector in found.items())
        return found

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        new = {key: vector for key, vector in vectors.items() if self.seen.get(key) != len(vector)}
        with suppress(StoreError):
            if new and self.store.vectors.put(self.owner, new, self.forget_count):
                self.seen.update((key, len(vector)) for key, vector in new.items())


class _Cache:
    """What a process keeps of the users of one store, and how often anybody was forgotten when it last looked."""

    def __init__(self) -> None:
        self.users = OrderedDict[Owner, UserCache]()
        self.forget_count = 0
        self.lock = threading.Lock()
        self.failures = FailureCounts()
        self._engines: dict[int, ReferenceType[Any]] = {}
        """Engines by their ids; some cannot be hashed."""

    def note_engines(self, models: Sequence[Any]) -> None:
        """Note what is shown texts of users, and may keep them."""
        engines = [getattr(model, "engine", None) for model in models]
        with self.lock:
            for engine in engines:
                if hasattr(engine, "clear"):
                    self._engines[id(engine)] = ref(engine)

    def engines(self) -> list[Any]:
        """What was shown texts and is still there."""
        with self.lock:
            engines = {number: reference() for number, reference in self._engines.items()}
            self._engines = {number: self._engines[number] for number, engine in engines.items() if engine is not None}
        return [engine for engine in engines.values() if engine is not None]

    def of(self, owner: Owner) -> UserCache:
        """What is kept of a user, from now on; the tenant of whom most is kept makes room."""
        with self.lock:
            kept = self.users[owner] = self.users.get(owner) or UserCache()
            self.users.move_to_end(owner)
            if len(self.users) > USERS:
                [(most, _)] = Counter(one.tenant for one in self.users).most_common(1)
                del self.users[next(one for one in self.users if one.tenant == most)]
            return kept
