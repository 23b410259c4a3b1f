"""Wraps anything that answers questions about a history as a program: same questions, reader and scorers.

A store has `add(session)` and `search(query, k)` or `ask(question)`; anything else takes a history and a question.
The memory is the history itself, so memories stay values; a store is written when the memory is finalized (docs/own_systems.md).
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import dspy

from ...errors import ProgramError, UserError
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.timing import timed_search
from ...memory.memory import Memory, turn_entries
from ...records import AnyItem, Context, History, Hit, Item, Query
from ...records.import_object import import_object
from ...text import one_line
from ..method import Method
from ..reader import Reader
from ..settings import Settings
from ..writer import RecentItems, Update, Writer
from ..pending import PendingItems
from ..program import MemoryProgram
from ..recalled import Recalled
from ..recording import ExternalError
from ..cache import MemoryCache
from ..tasks.catalog import task_class
from ..tasks.settings import split_config
from ..tasks.task import Task
from .settings import (
    AnsweringSettings,
    EndpointSettings,
    ExternalSettings,
    SearchingSettings,
    with_constructor_arguments,
)
from .stores import CallThread, Endpoint, Stores, call_parameters, parameters

WEB = ("http://", "https://")
UNKNOWN = "has neither add and search nor the parameters (history, question)"
ANSWER_KEY = "given"
"""Where a query has what a thing answered, for a task that gives it on."""
TEXTS = ("text", "memory", "content", "page_content")
"""What systems call the text of what they recalled."""
LONG = 16
"""Characters that a text must have to be looked for in another: "Yes." is in many."""
MOST = 1000
"""Most things that are taken of what one search returned."""


def load_target(name: str) -> Any | None:
    """What a name stands for that is no method of ours; None for a method.

    Raises:
        UserError: It cannot be imported.
        ProgramError: It is nothing that can be scored.
    """
    if name.startswith(WEB):
        return Endpoint
    if ":" not in name or "+" in name:
        return None
    found = import_object("method", name)
    if inspect.isclass(found) and issubclass(found, Method):
        return None
    if target_kind(found) is None:
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method, and {UNKNOWN}")
    return found


def target_kind(thing: Any) -> Literal["search", "ask", "answer"] | None:
    """How something is asked; None for what cannot be scored.

    "search" and "ask" are stores, or classes and factories of such, which are given sessions; a factory of stores that
    answer by themselves says so by an attribute `asks`. "answer" takes a history and a question.
    """
    makes = not isinstance(thing, type) and "folder" in parameters(thing)
    if makes or (hasattr(thing, "add") and (hasattr(thing, "search") or hasattr(thing, "ask"))):
        return "search" if getattr(thing, "asks", False) is not True and (makes or hasattr(thing, "search")) else "ask"
    if isinstance(thing, type):
        return "answer" if issubclass(thing, dspy.Module) else None
    given = [each for each in parameters(thing).values() if each.kind in (0, 1)]
    return "answer" if isinstance(thing, dspy.Module) or len(given) > 1 else None


def takes_embedder(thing: Any) -> bool:
    """Whether a store asks for the run's embedder."""
    return target_kind(thing) in ("search", "ask") and "embedder" in parameters(thing)


def build_external_program(
    thing: Any,
    name: str,
    task: str,
    embedder: Embedder | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> MemoryProgram:
    """The program of a thing, under the name that tables call it; its stores are in `folder`, or a temporary one.

    Raises:
        UserError: It cannot be scored, or has no such setting.
    """
    kind = target_kind(thing)
    if kind is None:
        raise UserError(f"{name}: {UNKNOWN}")
    own_config, of_task = split_config(config or {}, task)
    if kind == "answer":
        method = _answering_method(thing, name, own_config)
    else:
        method = _method_with_stores(thing, name, own_config, embedder, folder)

    asked = task_class(task)
    if kind != "search":
        if of_task.reasoning:
            raise UserError(f"{name} answers by itself: task.reasoning does not reach it")
        asked = type(
            asked.__name__,
            (asked,),
            {"prompt": None, "forward": return_precomputed_answer, "__module__": asked.__module__},
        )
    return MemoryProgram(method, asked().configure(of_task), cache, adapter, name)


def _answering_method(thing: Any, name: str, config: Mapping[str, Any]) -> External:
    """Return the method of a function, of a module, or of a class of modules, which is instantiated."""
    if not isinstance(thing, type):
        settings = AnsweringSettings.from_values(name, config)
        return _method_of(thing, name, settings.model_dump())

    settings_class = with_constructor_arguments(AnsweringSettings, thing)
    settings = settings_class.from_values(name, config)
    our_names = set(AnsweringSettings.model_fields)
    # Only what was set: the module has its defaults itself.
    arguments = settings.model_dump(include=config.keys() - our_names)
    return _method_of(thing(**arguments), name, settings.model_dump(include=our_names | config.keys()))


def _method_of(thing: Any, name: str, config: Mapping[str, Any]) -> External:
    if isinstance(thing, dspy.Module):
        # A program changes its predictors; the user's own object stays as it is.
        thing = thing.deepcopy()
    # Other answers of a file are another program.
    version: Mapping[str, Any] = getattr(thing, "version", {})
    return External(name, ExternalSettings(**{**config, **version}), thing=thing)


def _method_with_stores(
    thing: Any, name: str, config: Mapping[str, Any], embedder: Embedder | None, folder: Path | None
) -> External:
    """Return the method of an endpoint, of a store that is copied, or of a class or factory of stores."""
    settings_class = SearchingSettings if target_kind(thing) == "search" else AnsweringSettings
    if thing is Endpoint:
        settings_class = EndpointSettings
    settings = settings_class.from_values(name, config)

    make_store = _making(thing, name, embedder)
    if thing is Endpoint:
        make_store = partial(Endpoint, name, **settings.model_dump())
    stores = Stores(make_store, name, folder, settings.timeout)
    return External(name, ExternalSettings(**settings.model_dump()), stores)


def _making(thing: Any, name: str, embedder: Embedder | None) -> Callable[..., Any]:
    if isinstance(thing, type) or "folder" in parameters(thing):
        return partial(thing, **({"embedder": embedder} if "embedder" in parameters(thing) else {}))
    try:
        copy.deepcopy(thing)
    except Exception as error:
        raise UserError(f"{name}: cannot be copied, one for every history; give its class ({error})") from error
    return lambda: copy.deepcopy(thing)


class HistoryMemory(Memory):
    """The items, in time order."""

    names_sources = False
    """What a system makes of the items is known to the system alone."""
    items: tuple[AnyItem, ...] = ()

    @cached_property
    def history(self) -> History:
        """The items as a history, named by what is in it."""
        digest = History(id="", items=self.items).digest
        return History(id=digest[:12], items=self.items)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for item in self.items for entry in turn_entries(item))


class HistoryWriterSettings(Settings):
    """Which system a history is written for, and what becomes of items after it."""

    system: str
    recent: RecentItems


class HistoryWriter(Writer[HistoryMemory, None]):
    """Keeps every item; gives a system every session of a history, once, when the memory is finalized."""

    Memory = HistoryMemory

    def __init__(self, settings: HistoryWriterSettings, stores: Stores | None) -> None:
        super().__init__(settings)
        self.stores = stores
        self.recent_mode = settings.recent

    def update(self, memory: HistoryMemory, item: Item, extraction: None = None) -> Update[HistoryMemory]:
        return Update(memory.replace(items=(*memory.items, item)))

    def finalize(self, memory: HistoryMemory) -> Update[HistoryMemory]:
        if self.stores is not None:
            self.stores.write(memory.history)
        return Update(memory)

    @cached_property
    def calls_model(self) -> bool:
        return self.stores is not None

    @property
    def shows_resolved_dates(self) -> bool:
        """False: a system is given what was said in the words in which it was said."""
        return False


class ExternalReaderSettings(Settings):
    """The name and the settings of a system."""

    name: str
    settings: ExternalSettings


class ExternalReader(Reader[HistoryMemory]):
    """Recalls what a system finds; its `thing` is what answers instead."""

    is_search_free = False

    def __init__(self, settings: ExternalReaderSettings, stores: Stores | None, thing: Any) -> None:
        super().__init__(settings)
        self.k = getattr(settings.settings, "k", Reader.k)
        self.stores = stores
        # A module is copied with its program; anything else is shared by all copies, as a function is.
        shared = functools.wraps(thing, updated=())(lambda *given, **named: thing(*given, **named)) if thing else None
        self.thing: Any = thing if isinstance(thing, dspy.Module) else shared

    def search(
        self, memory: HistoryMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        if self.stores is None:
            return [[] for _ in queries]
        history = memory.history
        with timed_search():
            found = [self.stores.ask(history, "search", each, k) for each in queries]
        return [list(hits_of(each, history)[:k]) for each in found]

    def fallback(self, memory: HistoryMemory, query: Query) -> Sequence[Hit]:
        return ()


class External(Method):
    """What is no method of ours: a system with stores, or a thing that is shown the history with every question."""

    Settings = ExternalSettings

    def __init__(
        self, name: str, settings: ExternalSettings, stores: Stores | None = None, thing: Any = None
    ) -> None:
        # A module may have a setting `k` of its own, which says nothing about a search.
        is_searched = stores is not None and hasattr(settings, "k")
        # A store cannot go back to what it was before an item, so each question would take one that is written anew.
        # What is no store is shown the newer items with the question; one that answers by itself is not.
        recent = "searched" if is_searched else "left out"
        writer = HistoryWriter(HistoryWriterSettings(system=name, recent=recent), stores)
        reader = ExternalReader(ExternalReaderSettings(name=name, settings=settings), stores, thing)
        super().__init__(writer, reader, settings=settings)
        self.system, self.stores, self.is_searched = name, stores, is_searched

    @classmethod
    def check_constructor(cls) -> None:
        """Nothing: no name stands for this class, so `build` does not call it."""

    @property
    def wrapped_module(self) -> dspy.Module | None:
        """The user's own module; None for a store or a function."""
        reader: Any = self.reader
        return reader.thing if isinstance(reader.thing, dspy.Module) else None

    def recall(self, memory: HistoryMemory, query: Query, pending: PendingItems | None = None) -> Recalled:
        if self.is_searched:
            return super().recall(memory, query, pending)

        # The memory's own history is shared with questions about earlier moments: newer items go into a copy.
        history = memory.history
        newer_items = (*(pending.items if pending else ()), *query.new_items)
        if newer_items:
            history = history.model_copy(update={"items": (*history.items, *newer_items)})

        outputs, recalled = _read(self._answer(memory, history, query))
        answered = query.model_copy(update={"extra": {**query.extra, ANSWER_KEY: outputs}})
        context = Context(hits=hits_of(recalled, history), is_reported=recalled is not None)
        return Recalled(answered, context, ())

    def _answer(self, memory: HistoryMemory, history: History, query: Query) -> Any:
        text = query.dated_text if query.modality == "question" else query.search_text
        whole = "\n".join([text, *query.options])
        if self.stores is not None:
            # A store was given the items of the memory; what came after them is not in it.
            return self.stores.ask(memory.history, "ask", whole)
        thing: Any = self.reader.thing  # pyright: ignore[reportAttributeAccessIssue]
        takes = call_parameters(thing)
        about = {"options": list(query.options), "date": query.when, "query": query}
        named = {name: value for name, value in about.items() if name in takes}
        with closing(CallThread(self.system, self.settings.timeout)) as thread:
            return thread.call("answer", partial(thing, history, text if "options" in named else whole, **named))

    def close(self) -> None:
        if self.stores is not None:
            self.stores.close()


def return_precomputed_answer(self: Task, context: Context, query: Query) -> dspy.Prediction:
    """What was answered already: the `forward` of a task that has no prompt."""
    return dspy.Prediction(**query.extra[ANSWER_KEY])


def hits_of(found: Any, history: History) -> tuple[Hit, ...]:
    """The hits of what a search returned, in its order: texts, entries, mappings or objects with a text.

    Raises:
        ExternalError: It is no list, or holds something without a text.
    """
    listed = found.get("results") if isinstance(found, Mapping) else () if found is None else found
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        raise ExternalError(f"recalled {type(found).__name__}, expected a list of texts or entries")
    return tuple(each if isinstance(each, Hit) else _hit(each, history) for each in islice(listed, MOST))


def _hit(recalled: Any, history: History) -> Hit:
    """A text or an entry; it rests on the turns that it names, else on those whose words it holds, or that hold its.

    What matches no turn, e.g. a fact that a model put into other words, is a `summary`: evidence recall is not told
    from it.
    """
    if isinstance(recalled, str):
        recalled = {"text": recalled}
    # A mapping, as Mem0 gives them, or an object.
    get = recalled.get if isinstance(recalled, Mapping) else lambda name: getattr(recalled, name, None)
    text = next((value for name in TEXTS if isinstance(value := get(name), str)), None)
    if text is None:
        raise ExternalError(f"recalled {type(recalled).__name__} without a text; expected one of {', '.join(TEXTS)}")
    own, score, told = str(get("id") or ""), get("score"), one_line(text).casefold()
    listed = [each for name in ("sources", "ids") if isinstance(each := get(name), list | tuple)]
    named = dict.fromkeys([*(str(each) for ids in listed for each in ids), own])
    sources = tuple(each for each in named if each in history.turns)
    if not sources:
        words = {id: one_line(turn.text or turn.content).casefold() for id, (turn, _) in history.turns.items()}
        sources = tuple(id for id, said in words.items() if said and (said == told or _within(said, told)))
    return Hit(
        id=one_line(own) or f"M{hashlib.sha256(text.encode()).hexdigest()[:6]}",
        text=text,
        kind="entry" if sources else "summary",
        score=float(score) if isinstance(score, int | float) else 0.0,
        sources=sources,
    )


def _within(one: str, other: str) -> bool:
    return (len(one) >= LONG and one in other) or (len(other) >= LONG and other in one)


def _read(given: Any) -> tuple[dict[str, Any], Any]:
    outputs, found = {"answer": given}, None
    if isinstance(given, dspy.Prediction | Mapping):
        outputs = {name: value for name, value in given.items() if name != "memory"}
        found = outputs.pop("recalled", outputs.pop("context", None))
    elif isinstance(given, tuple) and len(given) == 2:
        outputs, found = {"answer": given[0]}, given[1]
    answer = outputs.get("answer")
    if not isinstance(answer, str | int | float | list):
        raise ExternalError(f"answered {type(answer).__name__}, expected a text or (text, recalled)")
    if isinstance(answer, int | float):
        outputs["answer"] = str(answer)
    return outputs, found.hits if isinstance(found, Context) else found
