"""The contract of methods: a writer and a reader of the same memories.

    from mempiler import Method, Settings
    from pydantic import Field

    class NoteSettings(Settings):
        k: int = Field(default=10, ge=1, description="notes recalled per query")

    class SentenceNotes(Method):
        Settings = NoteSettings

        def __init__(self, settings: NoteSettings | None = None) -> None:
            settings = settings or NoteSettings()
            super().__init__(SentenceWriter(), DayReader(settings.k), settings=settings)

Writer and reader are DSPy modules. Predictors below the writer write memories, and are part of a
memory's cache key; predictors below the reader recall. A constructor takes nothing but `settings`
and `embedder`, and neither has to be given, so that programs are built from names and settings. A
method without settings leaves both out.

| attribute or hook  | required? | meaning, and the default                                     |
|--------------------|-----------|--------------------------------------------------------------|
| `writer`, `reader` | yes       | given to `super().__init__`; see `writer.py` and `reader.py` |
| `Settings`         | no        | class of the constructor's `settings`; one without fields    |
| `embedder_use`     | no        | whether the constructor takes an `embedder`; "none"          |
| `tasks`            | no        | answer prompts of the method's own paper, by task; none      |
| `presets`          | no        | settings per benchmark; none                                 |
| `make_task(task)`  | no        | makes one of `tasks`; without arguments                      |
| `close()`          | no        | ends what runs beside the program; does nothing              |

A `Policy` is a method over another one, such as `pgr+turn-rag`: it writes with the inner method's
writer and calls the inner reader's `search` from a reader of its own. Its constructor takes `inner`
and `settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import dspy

from ..errors import UserError
from ..memory.edits import EntryEdits
from ..memory.entry import Entry
from ..memory.memory import turn_entries
from ..memory.search.embedder import Embedder
from ..memory.search.index_cache import IndexCache
from ..records import Hit, Query
from ._component import Component, constructor_parameters
from ._embedders import semantic_embedder
from ._fallback import FEW, Fallback, as_fallback, newest_statements, prior_reply_ids
from .pending import RAW_TURNS, PendingItems, show_raw_turns, with_failed_items
from .predictor import replace_predictors
from .reader import Reader
from .recalled import Recalled
from .settings import Settings as BaseSettings
from .writer import MemoryT, Writer

_HOOKS_OF_HALVES = {
    "writer": ("extract", "finalize", "update"),
    "reader": ("search",),
}
"""Hooks that belong to the writer or to the reader, and would never be called on a method."""

_BUILT_WITH = ("settings", "embedder", "inner")
"""What `build` gives a constructor."""
_HALVES = ("writer", "reader")
"""Arguments of a class that inherits the constructor of `Method` or `Policy`."""

EmbedderUse = Literal["none", "optional", "required"]


class Method(Component):
    """A writer and a reader.

    Args:
        writer: Writes histories into memories.
        reader: Recalls a context from a memory.
        embedder: Turns texts into vectors, for methods that search by meaning.
        settings: What can be set of the method; an object of its `Settings`.
    """

    writer: Writer[Any]
    reader: Reader[Any]
    Settings: ClassVar[type[BaseSettings]] = BaseSettings
    """The class of the constructor's `settings`; one without fields if there is nothing to set."""
    embedder_use: ClassVar[EmbedderUse] = "none"
    """Whether the constructor takes an `embedder`.

    A method that is built without one gets None if it is optional, and the offline embedder if it
    is required.
    """
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {}
    """Answer prompts of the method's own paper, by task name; other tasks use the suite's."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that suit a benchmark better, by its name, the name of its family, or "" for any."""

    def __init__(
        self,
        writer: Writer[Any],
        reader: Reader[Any],
        embedder: Embedder | None = None,
        settings: BaseSettings | None = None,
    ) -> None:
        super().__init__(settings)
        self.writer = writer
        self.reader = reader
        self.embedder = embedder
        self.raw = IndexCache(
            semantic_embedder(embedder),
            True,
            lambda pending: pending.items,
            lambda _, item: turn_entries(item),
        )
        """Indexes of turns that are not in a memory yet."""

    def recall(self, memory: Any, query: Query, pending: PendingItems | None = None) -> Recalled:
        """Return what a question is answered from.

        That is what the reader recalls, and raw turns that are not in the memory. Where neither may
        answer the query, fallback hits are added: they are marked, and counted as "fallback".

        Args:
            memory: A finalized memory.
            query: What is asked.
            pending: Items that are not in the memory yet.
        """
        pending = with_failed_items(memory, pending)
        raw_turns = self._search_raw_turns(pending, query)
        shown_query = show_raw_turns(query, pending, raw_turns)
        context = self.reader.recall(memory, shown_query)

        fallback = self.fallback(memory, query, pending, (*context.hits, *raw_turns))
        if fallback is not None:
            context = context.model_copy(update={"hits": fallback.entries_after(context.hits)})
            raw_turns = fallback.extra_raw_turns(raw_turns)
            shown_query = show_raw_turns(query, pending, raw_turns)

        fallback_count = sum(hit.fallback for hit in (*context.hits, *raw_turns))
        if fallback_count:
            counts = {**context.counts, "fallback": fallback_count}
            context = context.model_copy(update={"counts": counts})
        return Recalled(shown_query, context, raw_turns)

    def _search_raw_turns(self, pending: PendingItems, query: Query) -> tuple[Hit, ...]:
        if not pending.items:
            return ()
        hits_per_query = self.raw.search(pending, [query.search_text], RAW_TURNS)
        return tuple(hits_per_query[0])

    def fallback(
        self, memory: Any, query: Query, pending: PendingItems, hits: Sequence[Hit]
    ) -> Fallback | None:
        """Return what is shown where no hit may answer a query; None if a hit may.

        None is also returned if there is nothing else to show.

        Args:
            memory: A finalized memory.
            query: What is asked.
            pending: Items that are not in the memory.
            hits: What was found in the memory and among the pending items.
        """
        entries = self._all_entries(memory, pending)
        reply_ids = prior_reply_ids(query.search_text, hits, entries)
        if reply_ids is None:
            return None

        hit_ids = {hit.id for hit in hits}
        excluded_ids = query.shown_turn_ids.union(reply_ids, hit_ids)
        raw_turns = newest_statements(query.search_text, pending.newest_first(), excluded_ids, FEW)
        excluded_ids = excluded_ids.union(turn.id for turn in raw_turns)
        candidates = self.reader.fallback(memory, query)
        room = FEW - len(raw_turns)
        others = newest_statements(query.search_text, candidates, excluded_ids, room)
        if not raw_turns and not others:
            return None
        return Fallback(
            reply_ids.intersection(hit_ids), as_fallback(others), as_fallback(raw_turns)
        )

    def _all_entries(self, memory: Any, pending: PendingItems) -> Iterator[Entry]:
        """Yield the entries of a memory, then the pending turns; lazily, since few need them."""
        yield from self.reader.entries(memory)
        yield from pending.entries()

    def apply_edits(self, memory: MemoryT, edits: EntryEdits) -> MemoryT:
        """Return a finalized memory with a user's edits of its entries and its failed turns."""
        edited_memory = self.reader.with_edits(memory, edits)
        if not memory.failed_items:
            return edited_memory

        edited_items = edits.amended_items(failed.item for failed in memory.failed_items)
        remaining = tuple(
            failed.model_copy(update={"item": item})
            for failed, item in zip(memory.failed_items, edited_items, strict=True)
            if item.turns
        )
        return edited_memory.model_copy(update={"failed_items": remaining})

    def set_resolve_dates(self, resolve: bool) -> None:
        """Set for all parts whether models are shown the date beside each relative date."""
        parts: Any = self.named_sub_modules(Component)
        for _, part in parts:
            part.resolve_dates = resolve

    @property
    def wrapped_module(self) -> dspy.Module | None:
        """The user's module that answers instead of the method; None for a method of ours."""
        return None

    def make_task(self, task: str) -> dspy.Module:
        """Return a new answer prompt of `tasks`; override it to pass settings on."""
        return self.tasks[task]()

    def close(self) -> None:
        """End what runs beside the program."""

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """Return the settings for a benchmark.

        Those of "palbench" hold for "palbench.select" too, those of "" for any other benchmark.

        Args:
            benchmark: Its name.
            beneath: The name of the inner method, for policies that depend on it.
        """
        family = benchmark.partition(".")[0]
        for name in (benchmark, family, ""):
            if name in cls.presets:
                return dict(cls.presets[name])
        return {}

    @classmethod
    def check_constructor(cls) -> None:
        """Raise a UserError if the constructor takes what `build` does not give."""
        parameters = constructor_parameters(cls)
        for name in parameters:
            if name not in _BUILT_WITH and name not in _HALVES:
                raise UserError(
                    f"{cls.__name__}: the constructor takes {name}; make {name} a field of its "
                    f"Settings class and take `settings` alone, see docs/extend.md"
                )

        is_own = not any(name in parameters for name in _HALVES)
        if is_own and "embedder" in parameters and cls.embedder_use == "none":
            raise UserError(
                f"{cls.__name__}: the constructor takes embedder; "
                'set embedder_use = "optional" or "required"'
            )

    def check(self) -> None:
        """Raise a UserError if the method is put together wrongly.

        Raises:
            UserError: A half is missing or wrong, settings would not be saved, the method defines a
                hook of a half, or a predictor is not below exactly one half.
        """
        name = type(self).__name__
        self.check_constructor()
        self._check_half("writer", Writer)
        self._check_half("reader", Reader)
        if not isinstance(getattr(self.writer, "Memory", None), type):
            writer = type(self.writer).__name__
            raise UserError(f"{writer}: names no Memory; set Memory to the class of what it writes")

        self._check_settings_are_held()
        replace_predictors(self)
        writing = {id(predictor) for predictor in self.writer.predictors_below().values()}
        reading = {id(predictor) for predictor in self.reader.predictors_below().values()}
        for path, predictor in self.predictors_below().items():
            is_writing = id(predictor) in writing
            is_reading = id(predictor) in reading
            if is_writing != is_reading:
                continue
            where = "writer and reader" if is_writing else "neither writer nor reader"
            raise UserError(
                f"{name}: {path} is below {where}; "
                "a predictor is below the half that calls it, alone"
            )

    def _check_settings_are_held(self) -> None:
        name = type(self).__name__
        if self.settings is None and self.Settings.model_fields:
            raise UserError(f"{name}: give its settings to super().__init__, as settings=settings")
        if self.settings is not None and not self.Settings.model_fields:
            settings = type(self.settings).__name__
            raise UserError(f"{name}: names no class of its settings; set Settings = {settings}")

        components: Any = self.named_sub_modules(Component)
        for _, component in components:
            component.check_settings()

    def _check_half(self, half: str, half_class: type) -> None:
        name = type(self).__name__
        if not isinstance(getattr(self, half, None), half_class):
            raise UserError(
                f"{name}: self.{half} is no {half_class.__name__}; "
                "give super().__init__ a writer and a reader"
            )
        for hook in _HOOKS_OF_HALVES[half]:
            if hasattr(type(self), hook):
                raise UserError(f"{name}: {hook} is the {half}'s; nothing calls it here")


class Policy(Method):
    """A method over another one: it uses that method's memories and recalls in its own way.

    Args:
        inner: The method beneath.
        reader: Recalls a context from a memory of the inner method.
        writer: Writes histories; the writer of the inner method if None.
        settings: What can be set of the policy; an object of its `Settings`.
    """

    INNER_PREFIX: ClassVar[str] = "inner_"
    """Prefix of the settings of the inner method."""

    def __init__(
        self,
        inner: Method,
        reader: Reader[Any],
        writer: Writer[Any] | None = None,
        settings: BaseSettings | None = None,
    ) -> None:
        super().__init__(writer or inner.writer, reader, inner.embedder, settings)
        self._inner_config = inner.config

    @property
    def config(self) -> dict[str, Any]:
        """The policy's settings and, prefixed by `inner_`, those of the inner method."""
        config = super().config
        for name, value in self._inner_config.items():
            config[f"{self.INNER_PREFIX}{name}"] = value
        return config
