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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import dspy

from ..errors import UserError
from ..memory.edits import EntryEdits
from ..memory.entry import Entry
from ..memory.memory import FailedItem, turn_entries
from ..memory.search.embedder import Embedder
from ..memory.search.index_cache import IndexCache
from ..records import Context, Hit, Query
from ._component import Component, constructor_parameters
from ._embedders import semantic_embedder
from ._fallback import MAX_FALLBACK_HITS, Fallback, as_fallback, newest_statements, prior_reply_ids
from .pending import RAW_TURNS, PendingItems, show_raw_turns, with_failed_items
from .predictor import replace_predictors
from .reader import Reader
from .recalled import Recalled
from .settings import Settings as BaseSettings
from .writer import MemoryT, Writer

_HOOKS_OF_PARTS = {
    "writer": ("extract", "finalize", "update"),
    "reader": ("search",),
}
"""Hooks that belong to the writer or to the reader, and would never be called on a method."""

_BUILD_ARGUMENTS = ("settings", "embedder", "inner")
"""The arguments that `catalog.build` can give to the constructor of a method."""

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
            hybrid=True,
            parts=lambda pending: pending.items,
            part_entries=lambda _, item: turn_entries(item),
        )
        """Indexes of turns that are not in a memory yet."""

    def recall(self, memory: Any, query: Query, pending: PendingItems | None = None) -> Recalled:
        """Return hits of the memory for a question, and turns that are not in the memory yet.

        If none of them may answer the question, the newest entries and turns take their places
        (`fallback`).

        Args:
            memory: A finalized memory.
            query: The question.
            pending: Items that are not in the memory yet. Their turns are searched as they are.
        """
        # Items that could not be written are searched like those that wait to be written.
        pending = with_failed_items(memory, pending)
        raw_turns = self._search_raw_turns(pending, query)

        # The task shows the raw turns beside the context. They are put into the query, so that the
        # reader knows them as well, and need not recall them.
        shown_query = show_raw_turns(query, pending, raw_turns)
        context = self.reader.recall(memory, shown_query)

        # Not `shown_query`, since a fallback chooses anew which raw turns are shown.
        fallback = self.fallback(memory, query, pending, (*context.hits, *raw_turns))
        if fallback is not None:
            # No hit may be an answer, so the hits and the raw turns are both replaced.
            fallback_hits = fallback.entries_instead_of(context.hits)
            context = context.model_copy(update={"hits": fallback_hits})
            raw_turns = fallback.raw_turns_instead_of(raw_turns)
            shown_query = show_raw_turns(query, pending, raw_turns)
        return Recalled(shown_query, _with_fallback_count(context, raw_turns), raw_turns)

    def _search_raw_turns(self, pending: PendingItems, query: Query) -> tuple[Hit, ...]:
        """Return the turns of pending items that are nearest to a query, best first."""
        if not pending.items:
            return ()
        hits_per_query = self.raw.search(pending, [query.search_text], RAW_TURNS)
        return tuple(hits_per_query[0])

    def fallback(
        self, memory: Any, query: Query, pending: PendingItems, hits: Sequence[Hit]
    ) -> Fallback | None:
        """Return what to show instead of the hits of a search, if none of them may be an answer.

        "Where do I live?" shares no word with "I moved to Lisbon". So the newest pending turns are
        shown, and then entries of the memory, `MAX_FALLBACK_HITS` in all.

        Args:
            memory: A finalized memory.
            query: The question.
            pending: Items that are not in the memory.
            hits: What was found in the memory and among the pending items.

        Returns:
            The fallback. None if a hit may be an answer, or if there is nothing else to show.
        """
        question = query.search_text
        reply_ids = prior_reply_ids(question, hits, self._all_entries(memory, pending))
        if reply_ids is None:
            # A hit may be an answer.
            return None

        # A hit that is no answer must not come back, nor a turn that the task shows anyway.
        hit_ids = {hit.id for hit in hits}
        excluded_ids = query.shown_turn_ids.union(reply_ids, hit_ids)
        newest_turns = pending.newest_first()
        raw_turns = newest_statements(question, newest_turns, excluded_ids, MAX_FALLBACK_HITS)

        # The memory fills the room that pending turns leave; it may have the same turns.
        room = MAX_FALLBACK_HITS - len(raw_turns)
        excluded_ids = excluded_ids.union(turn.id for turn in raw_turns)
        candidates = self.reader.fallback(memory, query)
        entries = newest_statements(question, candidates, excluded_ids, room)
        if not raw_turns and not entries:
            return None

        # Of the hits, only earlier replies to the same question are shown.
        return Fallback(
            reply_ids=reply_ids.intersection(hit_ids),
            entries=as_fallback(entries),
            raw_turns=as_fallback(raw_turns),
        )

    def _all_entries(self, memory: Any, pending: PendingItems) -> Iterator[Entry]:
        """Yield the entries of a memory, and after them the turns of pending items.

        A generator, since most questions need none of them.
        """
        yield from self.reader.entries(memory)
        yield from pending.entries()

    def apply_edits(self, memory: MemoryT, edits: EntryEdits) -> MemoryT:
        """Return a memory in which entries and turns are as their user has edited them.

        Args:
            memory: A finalized memory, which stays as it is.
            edits: Corrections and deletions of entries and of turns.
        """
        edited_memory = self.reader.with_edits(memory, edits)
        if not memory.failed_items:
            return edited_memory

        # Items that could not be written stand beside the memory, and their turns are shown too.
        edited_items = edits.amended_items(failed.item for failed in memory.failed_items)
        failed_items: list[FailedItem] = []
        for failed, item in zip(memory.failed_items, edited_items, strict=True):
            # No turn is left if the user has deleted them all.
            if item.turns:
                failed_items.append(failed.model_copy(update={"item": item}))
        return edited_memory.model_copy(update={"failed_items": tuple(failed_items)})

    def set_resolve_dates(self, resolve: bool) -> None:
        """Set whether prompts show a date beside each relative date: "yesterday [7 May 2023]".

        It is set for the method and for all components in it, e.g. its writer.
        """
        components: Any = self.named_sub_modules(Component)
        for _, component in components:
            component.resolve_dates = resolve

    @property
    def wrapped_module(self) -> dspy.Module | None:
        """The user's module that answers instead of the method; None for a method of ours."""
        return None

    @property
    def writes_stores(self) -> bool:
        """Whether histories are written into stores of the user's, outside of the memories.

        A session that such a store does not take is lost. Methods of ours keep its turns.
        """
        return False

    @property
    def recalls_without_answer(self) -> bool:
        """Whether `recall` asks for no answer: False for a user's system that answers by itself."""
        return True

    def all_settings(self) -> dict[str, BaseSettings]:
        """Return the settings of the method, and of methods beneath it, by prefixes of names.

        A method without settings is left out. The prefix of the method itself is "".
        """
        return {} if self.settings is None else {"": self.settings}

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a new method like this one, with other values of some settings.

        Its prompts are those of the code. Where the search stays the same but for its weights, the
        new method uses the indexes of this one.

        Args:
            changes: The other values by name, as `config` has them.

        Raises:
            UserError: There is no such setting, or a value is out of its range.
        """
        arguments = self._constructor_arguments(changes)
        new = type(self)(**arguments)
        _share_indexes(self, new)
        return new

    def _constructor_arguments(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that make a method like this one with other settings."""
        arguments: dict[str, Any] = {}
        if self.embedder_use != "none":
            arguments["embedder"] = self.embedder
        settings = self.settings
        if settings is None:
            settings = self.Settings()
        settings = settings.with_values(type(self).__name__, changes)
        # A method without settings may have a constructor without the parameter `settings`.
        if self.Settings.model_fields:
            arguments["settings"] = settings
        return arguments

    def make_task(self, task: str) -> dspy.Module:
        """Return a new answer prompt of `tasks`; override it to pass settings on."""
        return self.tasks[task]()

    def close(self) -> None:
        """End what runs beside the program."""

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """Return the settings that suit the method for a benchmark better than its defaults.

        Args:
            benchmark: The name of the benchmark. For a name such as "palbench.select", `presets`
                may have the whole name or its family, "palbench".
            beneath: For a policy, the name of the method beneath it. Subclasses may depend on it.
        """
        # The empty name holds for every benchmark that has no preset of its own.
        family = benchmark.partition(".")[0]
        for name in (benchmark, family, ""):
            if name in cls.presets:
                return dict(cls.presets[name])
        return {}

    @classmethod
    def check_constructor(cls) -> None:
        """Raise a UserError if `catalog.build` could not call the constructor of the class.

        Programs are built from names and settings, so a constructor may take `settings`,
        `embedder` and, for a policy, the `inner` method. One that takes `embedder` also has to say
        in `embedder_use` whether it needs one.
        """
        parameters = constructor_parameters(cls)
        # Only the constructors of `Method` and `Policy` take a writer or a reader. So a class that
        # has such a parameter has inherited one of these.
        inherits_constructor = "writer" in parameters or "reader" in parameters

        for name in parameters:
            if name not in _BUILD_ARGUMENTS and name not in ("writer", "reader"):
                raise UserError(
                    f"{cls.__name__}: the constructor takes {name}; make {name} a field of its "
                    f"Settings class and take `settings` alone, see docs/extend.md"
                )

        # An inherited constructor takes an embedder too, but the class need not use it.
        takes_own_embedder = "embedder" in parameters and not inherits_constructor
        if takes_own_embedder and cls.embedder_use == "none":
            raise UserError(
                f"{cls.__name__}: the constructor takes embedder; "
                'set embedder_use = "optional" or "required"'
            )

    def check(self) -> None:
        """Check that the method is put together as a program needs it.

        This also replaces every plain `dspy.Predict` in the method by a predictor that records its
        calls.

        Raises:
            UserError: The constructor takes other arguments than programs are built from; the
                writer or the reader is missing or of a wrong class; the method defines a hook that
                only they may have; settings would not be saved; or a predictor belongs to both of
                them or to neither.
        """
        self.check_constructor()

        # Both parts are there, and none of their hooks is defined on the method instead.
        self._check_part("writer", Writer)
        self._check_part("reader", Reader)
        if not isinstance(getattr(self.writer, "Memory", None), type):
            writer = type(self.writer).__name__
            raise UserError(f"{writer}: names no Memory; set Memory to the class of what it writes")

        self._check_settings()

        # Replaced first, so that the predictors of the program are those that are checked.
        replace_predictors(self)
        self._check_predictors()

    def _check_predictors(self) -> None:
        """Raise a UserError if a predictor belongs to writer and reader, or to neither of them.

        The predictors of the writer are part of the key of its memories. So it must be clear which
        these are.
        """
        name = type(self).__name__
        writer_ids = {id(predictor) for predictor in self.writer.predictors_below().values()}
        reader_ids = {id(predictor) for predictor in self.reader.predictors_below().values()}
        for path, predictor in self.predictors_below().items():
            is_of_writer = id(predictor) in writer_ids
            is_of_reader = id(predictor) in reader_ids
            # Right: it belongs to exactly one of them.
            if is_of_writer != is_of_reader:
                continue

            where = "writer and reader" if is_of_writer else "neither writer nor reader"
            raise UserError(
                f"{name}: {path} is below {where}; "
                "a predictor is below the half that calls it, alone"
            )

    def _check_settings(self) -> None:
        """Raise a UserError if settings of the method, or of a component in it, would not be saved.

        A program saves the settings that constructors give to `super().__init__`.
        """
        name = type(self).__name__
        # A method that has nothing to set has a `Settings` class without fields.
        if self.settings is None and self.Settings.model_fields:
            raise UserError(f"{name}: give its settings to super().__init__, as settings=settings")
        if self.settings is not None and not self.Settings.model_fields:
            settings = type(self.settings).__name__
            raise UserError(f"{name}: names no class of its settings; set Settings = {settings}")

        components: Any = self.named_sub_modules(Component)
        for _, component in components:
            component.check_settings()
            if not isinstance(component, Method):
                _check_keeps_settings(component)

    def _check_part(self, part: str, part_class: type) -> None:
        """Raise a UserError if the writer or the reader is missing, or its hook is defined here.

        Args:
            part: "writer" or "reader".
            part_class: The class that the writer or reader must have: `Writer` or `Reader`.
        """
        name = type(self).__name__
        if not isinstance(getattr(self, part, None), part_class):
            raise UserError(
                f"{name}: self.{part} is no {part_class.__name__}; "
                "give super().__init__ a writer and a reader"
            )

        # Hooks are called on the writer and the reader. On the method itself, nothing would call
        # them, and the user would wonder why.
        for hook in _HOOKS_OF_PARTS[part]:
            if hasattr(type(self), hook):
                raise UserError(f"{name}: {hook} is the {part}'s; nothing calls it here")


def _check_keeps_settings(component: Component) -> None:
    """Raise a UserError if a writer or reader takes settings, but gives none to its base class."""
    component_class = type(component)
    if component.settings is not None or component_class.__init__ is Component.__init__:
        return
    parameter = constructor_parameters(component_class).get("settings")
    # A constructor whose settings are optional may have been given none.
    if parameter is not None and parameter.default is parameter.empty:
        raise UserError(
            f"{component_class.__name__}: takes settings but does not keep them; "
            "give them to super().__init__(settings)"
        )


def _share_indexes(source: Method, target: Method) -> None:
    """Let the components of one method search with the indexes of the same ones of another."""
    sources: dict[str, Any] = dict(source.named_sub_modules(Component))
    targets: dict[str, Any] = dict(target.named_sub_modules(Component))
    for path, component in targets.items():
        for name, cache in vars(component).items():
            other_cache = getattr(sources.get(path), name, None)
            if isinstance(cache, IndexCache) and isinstance(other_cache, IndexCache):
                cache.share_indexes_with(other_cache)


@dataclass(frozen=True)
class _InnerMethod:
    """The method beneath a policy.

    DSPy finds the predictors of all modules that are attributes. It must not find those of the
    inner method, since they also belong to the reader and the writer of the policy.
    """

    method: Method


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
        if writer is None:
            writer = inner.writer
        super().__init__(writer, reader, inner.embedder, settings)
        self._inner = _InnerMethod(inner)

    @property
    def config(self) -> dict[str, Any]:
        """The policy's settings and, prefixed by `inner_`, those of the inner method."""
        config = super().config
        for name, value in self._inner.method.config.items():
            config[f"{self.INNER_PREFIX}{name}"] = value
        return config

    def all_settings(self) -> dict[str, BaseSettings]:
        settings_by_prefix = super().all_settings()
        for prefix, settings in self._inner.method.all_settings().items():
            settings_by_prefix[f"{self.INNER_PREFIX}{prefix}"] = settings
        return settings_by_prefix

    def _constructor_arguments(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        policy_changes: dict[str, Any] = {}
        inner_changes: dict[str, Any] = {}
        for name, value in changes.items():
            if name.startswith(self.INNER_PREFIX):
                inner_changes[name.removeprefix(self.INNER_PREFIX)] = value
            else:
                policy_changes[name] = value

        arguments = super()._constructor_arguments(policy_changes)
        # A policy has no embedder of its own: it searches with the one of the method beneath.
        arguments.pop("embedder", None)
        arguments["inner"] = self._inner.method.with_settings(inner_changes)
        return arguments


def _with_fallback_count(context: Context, raw_turns: Iterable[Hit]) -> Context:
    """Return a context with the number of fallback hits among its counts, if there are any.

    Fallback hits are shown only because a search found nothing that may be an answer.
    """
    fallback_count = sum(hit.fallback for hit in (*context.hits, *raw_turns))
    if fallback_count == 0:
        return context
    counts = {**context.counts, "fallback": fallback_count}
    return context.model_copy(update={"counts": counts})
