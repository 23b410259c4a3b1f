"""A memory method: a writer, which writes a history into a memory, and a reader, which recalls a context from it.

Both are DSPy modules: predictors below the writer write, those below the reader read. A retrieval policy over another
method takes that method's writer as it is, and calls its reader's `search`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_origin, get_type_hints

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from ..errors import UserError
from ..memory.edits import EntryEdits
from ..memory.entries import MOST as MOST_ENTRIES
from ..memory.index import Embedder, Entry
from ..memory.indexes import Indexes
from ..memory.memory import Memory, turn_entries
from ..records import Context, Hit, Item, Query
from .fallback import FEW, Fallback, as_fallback, newest_sayings, prior_reply_ids
from .pending import RAW_TURNS, PendingItems, Recalled, with_failed_items, with_raw
from .predictor import Component, replace_predictors, semantic_embedder
from .recording import CURRENT_RECORDING
from .relative_dates import resolve_item_dates

ANY_COSINE = -1.0
"""The `min_score` of a search that leaves nothing out."""

EntryCount = Annotated[int, Field(ge=1, le=MOST_ENTRIES)]
"""How many entries of a memory are shown or recalled: a saved program must not show a model all of a large one."""

S = TypeVar("S", bound="Settings")
RecentItems = Literal["written", "searched", "left out"]
"""What becomes of items between a history and a question about it, see `Writer.recent`."""


class Settings(BaseModel):
    """What constructors, `--set`, manifests, docs and errors know of a setting: default, range and description."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    kind: ClassVar[str] = "method"
    """Of what they are, in errors."""
    deprecated: ClassVar[Mapping[str, Any]] = {}
    """Settings that programs saved by earlier versions name, each with the value that is what happens now."""
    at_least_one_of: ClassVar[tuple[str, ...]] = ()
    """Switches that may not all be off."""

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in given.items() if name not in cls.deprecated or cls.deprecated[name] != value
        }

    @model_validator(mode="after")
    def _one_is_on(self) -> Self:
        if self.at_least_one_of and not any(getattr(self, name) for name in self.at_least_one_of):
            raise ValueError(f"{' and '.join(self.at_least_one_of)} are all off; leave one on")
        return self

    @classmethod
    def from_values(cls, name: str, given: Mapping[str, Any]) -> Self:
        """The settings of what has this name from what was set of it.

        Raises:
            UserError: It has no such setting, or the value is out of its range.
        """
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
        wrong = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            has = ", ".join(f"{each}={field.default}" for each, field in cls.model_fields.items())
            raise UserError(f"{cls.kind} {name!r} has no setting {wrong!r}; it has: {has}")
        said = first["msg"].removeprefix("Value error, ").replace("Input", "input")
        if not wrong:
            raise UserError(f"{cls.kind} {name!r}: {said}")
        field = cls.model_fields[wrong]
        told = "; ".join(filter(None, (field.description, f"default {field.default!r}")))
        raise UserError(f"{cls.kind} {name!r}: {wrong} = {first['input']!r}: {said} ({told})")

    @classmethod
    def for_class(cls, kind: type) -> type[Self]:
        """These settings, and one for each argument of a constructor that is not what something is made of.

        An argument whose type is `Annotated` has the range that stands there.
        """
        fields: dict[str, Any] = {}
        ranges = _annotated_arguments(kind)
        for name, each in list(inspect.signature(kind.__init__).parameters.items())[1:]:
            if each.kind.name.startswith("VAR") or name in ("embedder", "inner", *cls.model_fields):
                continue
            default = ... if each.default is each.empty else each.default
            type_of_default = type(default) if isinstance(default, bool | int | float | str) else Any
            fields[name] = ranges.get(name, type_of_default), default
        return create_model(kind.__name__, __base__=cls, **fields)

    def restrict_to(self, kind: type[S]) -> S:
        """Those of the settings that another model has too: what a writer is made with decides its memories."""
        return kind.model_validate({name: getattr(self, name) for name in kind.model_fields})


def _annotated_arguments(kind: type) -> dict[str, Any]:
    """Return the types of those arguments of a constructor that are `Annotated`, by name."""
    try:
        hints = get_type_hints(kind.__init__, include_extras=True)
    except NameError:  # hints of a class of one's own that are there for type checkers alone
        return {}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


class SearchSettings(Settings):
    """How a method of a paper that searches by cosine, or by words, is searched outside its paper."""

    hybrid: bool | None = Field(None, description="whether BM25 and cosine add up; by default with an embedding model")

    def uses_fusion(self, embedder: Embedder | None) -> bool:
        """Whether they add up with this embedder."""
        return semantic_embedder(embedder) is not None if self.hybrid is None else self.hybrid


@dataclass(frozen=True)
class ExtractionFailed:
    """What `extract` returns for what could not be read, so that `update` can say so with `memory.mark_failed`."""

    turns: frozenset[str] | None = None
    """Ids of the turns; all of the item if None."""


class Writer(Component):
    """Takes the items of a history into a memory."""

    Memory: type[Memory]
    """What is kept for one user."""
    longest_text = 4000
    recent_mode: RecentItems = "written"
    """What becomes of the items that came after the history, before a question of a task that `remembers_recent`.

    They are written into the memory, searched beside it as they were said, or left out of it.
    """
    shows_entries: Any = False
    """Whether its prompts show entries of the memory as their user left them (`memory.edits`)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kind, writer = vars(cls).get("Memory"), cls.__name__
        if kind is None:
            return
        if not (isinstance(kind, type) and issubclass(kind, Memory)):
            raise UserError(f"{writer}: Memory = {kind!r} is no subclass of mempiler.Memory")
        if not kind.model_config.get("frozen"):
            raise UserError(f"{writer}: {kind.__name__} is not frozen; a memory never changes, it has a successor")
        needed = [name for name, field in kind.model_fields.items() if field.is_required()]
        if needed:
            raise UserError(f"{writer}: {kind.__name__} needs {', '.join(needed)}; give every field a default")

    @property
    def config(self) -> dict[str, Any]:
        return {**super().config, **({"dates": True} if self.shows_resolved_dates else {})}

    @property
    def shows_resolved_dates(self) -> bool:
        """Whether a model is shown items with the date beside each relative date; memories are other ones then."""
        return self.resolve_dates and self.calls_model

    def preprocess(self, item: Item) -> Item:
        """An item as `extract` and `update` get it."""
        return resolve_item_dates(item) if self.shows_resolved_dates else item

    def extract(self, item: Item) -> Any:
        """Does the part of `update` that does not depend on the memory; runs for all items at once. Default: none."""
        return None

    def update(self, memory: Any, item: Item, extraction: Any = None) -> Any:
        """The memory, which is never changed, with the next item in it; `prepared` is what `prepare(item)` returned."""
        raise NotImplementedError

    def finalize(self, memory: Any) -> Any:
        """Called once at the end of a history; idempotent. Default: the memory unchanged."""
        return memory

    def update_with_part(self, memory: Any, piece: Item) -> Any:
        """Takes in a piece of an item that could not be taken in before. Default: as any other item."""
        return self.update(memory, piece, self.extract(piece) if self.needs_extraction else None)

    @property
    def needs_extraction(self) -> bool:
        """Whether there is anything to prepare."""
        return type(self).extract is not Writer.extract

    @cached_property
    def calls_model(self) -> bool:
        """Whether writing takes more than this process: a model, or a system of somebody else's."""
        return bool(self.predictors_below())

    @property
    def needs_finalizing(self) -> bool:
        """Whether settling changes anything."""
        return type(self).finalize is not Writer.finalize


class Reader(Component):
    """Finds in a memory what bears on a query."""

    hybrid: bool = False
    """Whether the scores of `search` are sums of BM25 and cosine; a `min_score` is a cosine then all the same."""
    k: int = 10
    """Entries that `recall` gives by default."""
    is_search_free: ClassVar[bool] = True
    """Whether a search takes nothing, so that what it ranks may be looked at beside what was recalled."""

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Finds the entries nearest to each query, best first, without a language model.

        Args:
            memory: The memory to search.
            queries: Any number of queries; searched in one batch.
            k: Most hits per query.
            min_score: Hits below it are left out; None takes the method's own default.

        Returns:
            One list of at most `k` hits per query; a smaller `k` gives the head of a larger one.
        """
        raise NotImplementedError

    def recall(self, memory: Any, query: Query) -> Context:
        """Retrieves what bears on a query. Default: the `k` nearest entries of `search`."""
        return Context(hits=tuple(self.nearest(memory, query, self.k)))

    def nearest(self, memory: Any, query: Query, k: int) -> list[Hit]:
        """The `k` best hits of `search` for a query; the same search serves whoever looks at more of them beside."""
        record = CURRENT_RECORDING.get() if self.is_search_free else None
        hits = self.search(memory, [query.search_text], max(k, record.ranking_depth) if record else k)[0]
        if record:
            record.ranked = self, hits
        return hits[:k]

    def entries(self, memory: Any) -> Sequence[Entry]:
        """What a search can find, and what else of a memory is shown by itself; each with an id of its own.

        Default: the entries of the memory.
        """
        return memory.entries()

    def with_edits(self, memory: Any, amend: EntryEdits) -> Any:
        """The memory with what is left of its entries; one that no entry changes in may be any equal one.

        All that `entries` gives and `recall` shows is asked for. Default: every field of entries, or of `Memory.parts`.

        Args:
            memory: A settled memory; it is only read from then on.
            amend: Says of an entry what is left of it.
        """
        made: dict[str, Sequence[Any]] = {name: value for name, value in memory if isinstance(value, tuple)}
        kinds = (Entry, *{type(part) for part in memory.parts()})
        left = {
            name: amend.amended_parts(value, memory.entry, memory.with_text)
            for name, value in made.items()
            if all(isinstance(one, kinds) for one in value)
        }
        return memory.model_copy(update=left)

    def fallback(self, memory: Any, query: Query) -> Iterable[Hit]:
        """What is shown where `recall` finds nothing, the first `FEW` of it; it counts as not found.

        Default: the entries, last first. "Where do I live?" shares no word with "I moved to Lisbon".
        """
        return (entry.hit() for entry in reversed(memory.entries()))


class EntryReader(Reader):
    """Recalls the `k` entries of a memory that are nearest to the query: by cosine with an embedder, else by BM25.

    Args:
        k: Entries recalled per query.
        min_score: Lowest score of a hit; lowest cosine where there is an embedder.
        embedder: Turns texts into vectors.
        indexes: Indexes to share with the writer; its own if None.
        hybrid: Whether BM25 and cosine are added (`memory.index`), where there is an embedder.
    """

    def __init__(
        self,
        k: int = 10,
        min_score: float = 0.0,
        embedder: Embedder | None = None,
        indexes: Indexes | None = None,
        hybrid: bool = False,
    ) -> None:
        super().__init__()
        self.k = k
        self.min_score = min_score
        self.hybrid = hybrid
        self.indexes = Indexes(embedder, hybrid) if indexes is None else indexes

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.indexes.search(memory, queries, k, self.min_score if min_score is None else min_score)

    def entries(self, memory: Any) -> Sequence[Entry]:
        # What is searched: a memory whose entries are made of parts lists none by itself.
        return self.indexes.entries(memory)


class Method(Component):
    """A writer and a reader.

    Args:
        writer: Writes the history.
        reader: Gets a context out.
        embedder: Turns texts into vectors, for methods that search by meaning.
    """

    writer: Writer
    reader: Reader
    Settings: ClassVar[type[Settings] | None] = None
    """What can be set of it, if it is made with `settings=`; its constructor names its settings otherwise."""
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {}
    """Answer prompts of the method's own paper, by task name; other tasks use the suite's."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that suit a benchmark better than the defaults, by its name or by that of its family."""

    def __init__(self, writer: Writer, reader: Reader, embedder: Embedder | None = None) -> None:
        super().__init__()
        self.writer = writer
        self.reader = reader
        self.embedder = embedder
        self.raw = Indexes(
            semantic_embedder(embedder), True, lambda items: items.items, lambda _, item: turn_entries(item)
        )
        """Of turns that are not in a memory yet."""

    def recall(self, memory: Any, query: Query, waiting: PendingItems | None = None) -> Recalled:
        """What a question is answered from: what the reader recalls of a settled memory, and raw turns that wait.

        Where that finds nothing that may answer, the `fallback` is added: marked, and counted under that name.
        """
        items = with_failed_items(memory, waiting) if memory.failed_items else waiting or PendingItems()
        raw = tuple(self.raw.search(items, [query.search_text], RAW_TURNS)[0]) if items.items else ()
        asked = with_raw(query, items, raw) if raw else query
        context = self.reader.recall(memory, asked)
        fallback = self.fallback(memory, query, items, (*context.hits, *raw))
        if fallback is not None:
            context = context.model_copy(update={"hits": fallback.entries_after(context.hits)})
            raw = fallback.extra_raw_turns(raw)
            asked = with_raw(query, items, raw)

        marked = sum(hit.fallback for hit in (*context.hits, *raw))
        if marked:
            context = context.model_copy(update={"counts": {**context.counts, "fallback": marked}})
        return Recalled(asked, context, raw)

    def fallback(self, memory: Any, query: Query, items: PendingItems, found: Sequence[Hit]) -> Fallback | None:
        """What is shown where a search finds nothing that may answer a query.

        Args:
            memory: A settled memory.
            query: What is asked.
            items: What is not in the memory.
            found: What was found in both.

        Returns:
            None if something that was found may answer, or if there is nothing else to show.
        """
        replies = prior_reply_ids(query.search_text, found, self._entries(memory, items))
        if replies is None:
            return None

        left_out = query.shown_turn_ids.union(replies, (hit.id for hit in found))
        raw = newest_sayings(query.search_text, items.newest_first(), left_out, FEW)
        left_out = left_out.union(hit.id for hit in raw)
        newest = self.reader.fallback(memory, query)
        others = newest_sayings(query.search_text, newest, left_out, FEW - len(raw))
        if not (raw or others):
            return None
        return Fallback(replies.intersection(hit.id for hit in found), as_fallback(others), as_fallback(raw))

    def _entries(self, memory: Any, items: PendingItems) -> Iterator[Entry]:
        """The entries of a memory, then the turns that are not in it; nothing is made before they are asked for."""
        yield from self.reader.entries(memory)
        yield from items.entries()

    def apply_edits(self, memory: Any, amend: EntryEdits) -> Any:
        """A settled memory with what `amend` leaves of its entries, and of the turns that it could not take in."""
        left = self.reader.with_edits(memory, amend)
        items = amend.amended_items(each.item for each in memory.failed_items)
        pairs = zip(memory.failed_items, items, strict=True)
        unwritten = tuple(each.model_copy(update={"item": item}) for each, item in pairs if item.turns)
        return left.model_copy(update={"failed_items": unwritten}) if memory.failed_items else left

    def set_resolve_dates(self, resolve: bool) -> None:
        """Say for all parts whether models are shown the date beside each relative date."""
        parts: Any = self.named_sub_modules(Component)
        for _, part in parts:
            part.resolve_dates = resolve

    def make_task(self, task: str) -> dspy.Module:
        """Makes one of `tasks`; methods whose settings concern the answer pass them on."""
        return self.tasks[task]()

    def close(self) -> None:
        """Ends what runs beside the program. Default: nothing does."""

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """The settings for a benchmark; those of "palbench" hold for "palbench.select" too, those of "" for any other.

        Args:
            benchmark: Its name.
            beneath: The name of the inner method, for policies that depend on it.
        """
        named = (benchmark, benchmark.partition(".")[0], "")
        return dict(next((cls.presets[name] for name in named if name in cls.presets), {}))

    def check(self) -> None:
        """Refuses a method that is put together wrongly, in one line that names the mistake.

        Raises:
            UserError: A half is missing or wrong, its work is defined here, or a predictor is not below exactly one.
        """
        name = type(self).__name__
        for half, kind in (("writer", Writer), ("reader", Reader)):
            if not isinstance(getattr(self, half, None), kind):
                told = f"self.{half} is no {kind.__name__}; give super().__init__ a writer and a reader"
                raise UserError(f"{name}: {told}")
            for each in sorted({"extract", "update", "finalize", "search"} & {*dir(kind)} & {*dir(type(self))}):
                raise UserError(f"{name}: {each} is the {half}'s; nothing calls it here")
        if not isinstance(getattr(self.writer, "Memory", None), type):
            raise UserError(f"{type(self.writer).__name__}: names no Memory; set Memory to the class of what it writes")
        replace_predictors(self)
        ids = {half: set(map(id, getattr(self, half).predictors_below().values())) for half in ("writer", "reader")}
        for path, predictor in self.predictors_below().items():
            below = [half for half in ids if id(predictor) in ids[half]]
            if len(below) != 1:
                where = " and ".join(below) or "neither writer nor reader"
                raise UserError(f"{name}: {path} is below {where}; a predictor is below the half that calls it, alone")


class Policy(Method):
    """A method over another one, as `pgr+turn-rag`: it uses that method's memory and recalls in its own way.

    Args:
        inner: The method beneath.
        writer: Writes the history; that of the inner method if None.
        reader: Gets a context out.
    """

    INNER_PREFIX: ClassVar[str] = "inner_"
    """Prefix of the settings of the inner method."""

    def __init__(self, inner: Method, reader: Reader, writer: Writer | None = None) -> None:
        super().__init__(writer or inner.writer, reader, inner.embedder)
        self._inner_config = inner.config

    @property
    def config(self) -> dict[str, Any]:
        """The policy's settings and, with `inner_` before their names, those of the inner method."""
        return {**super().config, **{f"{self.INNER_PREFIX}{name}": value for name, value in self._inner_config.items()}}
