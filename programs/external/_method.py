"""A memory system or an agent as a method.

The memory is the history itself, so memories stay values. A store is written when the memory of its
history is finalized. If the system has texts or numbers that can be set, the memory holds them too,
and is searched in the store that was written with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self

import dspy
from pydantic import Field, SerializeAsAny

from ...errors import UserError
from ...memory.entry import Entry
from ...memory.memory import Memory, turn_entries
from ...memory.search.timing import timed_search
from ...records import AnyItem, Context, History, Hit, Item, Query
from ...records.frozen import FrozenDict, FrozenMapping
from ...records.shared_by_copies import SharedByCopies
from ..method import Method
from ..pending import PendingItems
from ..reader import Reader
from ..recalled import Recalled
from ..recording import ExternalError, record_call_of_system
from ..settings import Settings
from ..writer import RecentItems, Update, Writer
from ._answers import Answer, hits_of, read_answer
from ._calls import FunctionCalls
from ._settings import AnsweringSettings
from ._stores import AddingCall, StoreContent, Stores
from .numbers import Number
from .target import KINDS_PASSED_BY_NAME, POSITIONAL_KINDS, parameters
from .texts import TextPredictor, TextPredictors

ANSWER_KEY = "external_answer"
"""Under which name a query carries the answer of a system to the task."""


class SharedFunction(SharedByCopies):
    """A function that all copies of a program share. An object with `__call__` would be copied."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class HistoryMemory(Memory):
    """The items, in time order."""

    names_sources = False
    """Only the system knows what it makes of the items."""
    items: tuple[AnyItem, ...] = ()
    texts: FrozenMapping[str, str] = Field(default_factory=FrozenDict[str, str])
    """The texts of the system with which the store is written; empty before that."""
    numbers: FrozenMapping[str, Number] = Field(default_factory=FrozenDict[str, Number])
    """The numbers of the system with which the store is written; empty before that."""

    @cached_property
    def history(self) -> History:
        """The items as a history; its id is made of their digest."""
        digest = History(id="", items=self.items).digest
        return History(id=digest[:12], items=self.items)

    @property
    def store_content(self) -> StoreContent:
        """What is in the store of a finalized memory."""
        return StoreContent(self.history, self.texts, self.numbers)

    def entries(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for item in self.items:
            entries.extend(turn_entries(item))
        return tuple(entries)


class HistoryWriterSettings(Settings):
    """The system that a history is written for, and what becomes of items after it."""

    system: str
    recent: RecentItems
    default_texts: dict[str, str]
    """The texts of the system that can be set, with their defaults."""
    numbers: dict[str, Number]
    """The numbers of the system that can be set, as they are now."""


class HistoryWriter(Writer[HistoryMemory, None]):
    """Keep every item; write the store of the history, if there is one, when it is finalized.

    Args:
        settings: The system, its texts and numbers, and what becomes of items after the history.
        stores: The stores of the system; None if it has none.
    """

    Memory = HistoryMemory

    def __init__(self, settings: HistoryWriterSettings, stores: Stores | None) -> None:
        super().__init__(settings)
        self.stores = stores
        self.numbers = FrozenDict(settings.numbers)
        self.recent_mode = settings.recent
        self.texts = TextPredictors(settings.default_texts)
        """The predictors whose instructions are the texts of the system."""

    def update(
        self, memory: HistoryMemory, item: Item, extraction: None = None
    ) -> Update[HistoryMemory]:
        return Update(memory.replace(items=(*memory.items, item)))

    def finalize(self, memory: HistoryMemory) -> Update[HistoryMemory]:
        """Write the store of the history, if the system has stores, with the present texts."""
        if self.stores is None:
            return Update(memory)

        present_texts = FrozenDict(self.texts.present_texts())
        written = memory.replace(texts=present_texts, numbers=self.numbers)
        adding_calls = self.stores.write(written.store_content)
        for name, predictor in self.texts.by_name().items():
            self._record_calls(name, predictor, adding_calls)
        return Update(written)

    def _record_calls(
        self, name: str, predictor: TextPredictor, adding_calls: Sequence[AddingCall]
    ) -> None:
        """Record the calls in which a text had a part as calls of its predictor.

        These are the calls whose prompts contain the text. If no prompt contains it, these are all
        calls: the text may be empty, or the system may have put marks between its words.

        Args:
            name: The name of the text.
            predictor: The predictor of the text.
            adding_calls: The model calls of the system.
        """
        calls_with_text = [call for call in adding_calls if name in call.text_names]
        for adding_call in calls_with_text or adding_calls:
            inputs = {
                "added_turns": list(adding_call.turn_ids),
                "prompt": adding_call.call.prompt,
            }
            prediction = dspy.Prediction(completion=adding_call.call.completion)
            record_call_of_system(predictor, inputs, prediction)

    @cached_property
    def calls_model(self) -> bool:
        return self.stores is not None

    @property
    def shows_resolved_dates(self) -> bool:
        """False: a system is given sessions as they were said."""
        return False


class SystemSettings(Settings):
    """The name and the settings of a system."""

    name: str
    """What tables and errors call the system."""
    # Also the fields of a subclass are saved.
    settings: SerializeAsAny[AnsweringSettings]
    default_texts: dict[str, str] = Field(default_factory=dict)
    """The texts of the system that can be set, with their defaults."""
    number_names: tuple[str, ...] = ()
    """Those of the settings that are numbers of the system, with which a store is written."""
    export_template: str = ""
    """Python code that sets the texts, with `$NAME` where each is inserted; "" if there is none."""

    @property
    def numbers(self) -> dict[str, Number]:
        """The present numbers of the system by name."""
        return {name: getattr(self.settings, name) for name in self.number_names}


class ExternalReader(Reader[HistoryMemory]):
    """Recall what a system finds.

    Args:
        settings: The name and the settings of the system.
        stores: The stores that are searched; None if a function or module answers.
        answerer: The function or module that answers. A module is copied with its program.
    """

    is_search_free = False

    def __init__(
        self,
        settings: SystemSettings,
        stores: Stores | None,
        answerer: dspy.Module | SharedFunction | None,
    ) -> None:
        super().__init__(settings)
        self.k = getattr(settings.settings, "k", Reader.k)
        self.stores = stores
        self.answerer = answerer

    def search(
        self,
        memory: HistoryMemory,
        queries: Sequence[str],
        k: int = 10,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return what the system finds for each query, in its order: `k` hits at most.

        A function or module is not searched, and finds nothing. `min_score` is not used, since
        scores of a system may mean anything.
        """
        if self.stores is None:
            return [[] for _ in queries]

        history = memory.history
        content = memory.store_content
        with timed_search():
            results = [self.stores.call(content, "search", query, k) for query in queries]

        hits_by_query: list[list[Hit]] = []
        for result in results:
            if result is None:
                raise ExternalError("search returned None, expected a list of texts or entries")
            hits = hits_of(result, history)
            # A system may return more than it was asked for.
            hits_by_query.append(list(hits[:k]))
        return hits_by_query

    def fallback(self, memory: HistoryMemory, query: Query) -> Sequence[Hit]:
        return ()


class External(Method):
    """A system with stores, or a function or module that is shown the history with every question.

    Args:
        system: The name of the system in tables and errors, its settings, texts and numbers.
        stores: Its stores; None for a function or module.
        answerer: The function or module; None for a system with stores.
    """

    Settings = AnsweringSettings

    def __init__(
        self,
        system: SystemSettings,
        stores: Stores | None = None,
        answerer: dspy.Module | SharedFunction | None = None,
    ) -> None:
        # Stores that are searched have the setting `k`, the number of hits. A module may have a
        # setting of the same name, but has no stores.
        is_searched = stores is not None and hasattr(system.settings, "k")

        # Items that come after the history cannot be added to a store: it could not forget them for
        # the next question. They are searched beside a store that is searched. A store that answers
        # by itself does not get them; a function or module is shown them with the question.
        recent_mode = "searched" if is_searched else "left out"
        writer_settings = HistoryWriterSettings(
            system=system.name,
            recent=recent_mode,
            default_texts=system.default_texts,
            numbers=system.numbers,
        )

        super().__init__(
            HistoryWriter(writer_settings, stores),
            ExternalReader(system, stores, answerer),
            settings=system.settings,
        )
        self.system = system
        self.stores = stores
        self.is_searched = is_searched
        self._function_calls = FunctionCalls(system.name, system.settings.timeout)

    @classmethod
    def check_constructor(cls) -> None:
        """Check nothing: `build` does not call the constructor, since no name stands for it."""

    @property
    def wrapped_module(self) -> dspy.Module | None:
        """The user's own module; None for a store or a function."""
        answerer = self._answerer
        return answerer if isinstance(answerer, dspy.Module) else None

    def present_texts(self) -> dict[str, str]:
        """Return the present texts of the system by name; none if it has no texts to set."""
        assert isinstance(self.writer, HistoryWriter)
        return self.writer.texts.present_texts()

    @property
    def writes_stores(self) -> bool:
        return self.stores is not None

    @property
    def recalls_without_answer(self) -> bool:
        return self.is_searched

    @property
    def _answerer(self) -> dspy.Module | SharedFunction | None:
        # The reader has it, so that a module's predictors are below the reader.
        assert isinstance(self.reader, ExternalReader)
        return self.reader.answerer

    def recall(
        self, memory: HistoryMemory, query: Query, pending: PendingItems | None = None
    ) -> Recalled:
        """Return what the system recalls for a query.

        A system that cannot be searched answers the query by itself. Then the task asks no model:
        it returns this answer, which is passed to it as a field of the query.

        Args:
            memory: The history.
            query: What is asked.
            pending: Items that are not in the memory yet.
        """
        if self.is_searched:
            return super().recall(memory, query, pending)

        history = _with_newer_items(memory.history, query, pending)
        answer = self._answer(query, memory, history)

        extra_fields = {**query.extra, ANSWER_KEY: answer.outputs}
        answered_query = query.model_copy(update={"extra": extra_fields})

        # None means that the system does not say what its answer rests on. An empty list would say
        # that it rests on nothing.
        is_reported = answer.recalled is not None
        context = Context(hits=hits_of(answer.recalled, history), is_reported=is_reported)
        return Recalled(answered_query, context, raw_turns=())

    def _answer(self, query: Query, memory: HistoryMemory, history: History) -> Answer:
        """Ask a system that answers by itself: the store of a history, or a function or module.

        Args:
            query: What is asked.
            memory: Holds the history that the store was written for.
            history: What a function or module is shown: the same history, and newer items after it.
        """
        question = query.dated_text
        if query.modality == "dialogue":
            # The system gets the whole dialogue, since the last words may say little ("Yes,
            # please.").
            question = query.search_text

        if self.stores is not None:
            full_question = _with_options(question, query)
            returned = self.stores.call(memory.store_content, "ask", full_question)
            return read_answer(returned)

        answerer = self._answerer
        assert answerer is not None, "a system without stores has an answerer"
        arguments = _query_arguments(answerer, query)
        # A function without a parameter for the options gets them as a part of the question.
        if "options" not in arguments:
            question = _with_options(question, query)
        ask = partial(answerer, history, question, **arguments)
        return read_answer(self._function_calls.call(ask))

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Return a new method like this one, with other values of `k` and of the system's numbers.

        It shares the stores of this one. Only whoever made the system can make it with other values
        of anything else.

        Args:
            changes: The other values by name.

        Raises:
            UserError: The system has no such setting, or a value is out of its range.
        """
        changeable_names = [*self.system.number_names]
        if self.is_searched:
            changeable_names.insert(0, "k")
        if not changeable_names:
            raise UserError(
                "a program with a system of your own has no settings that can be tuned; tune a"
                " method of the suite, or a Method of your own, or declare NUMBERS in a store"
            )
        for name in changes:
            if name not in changeable_names:
                raise UserError(
                    f"{self.system.name}: {name} cannot be changed any more; "
                    f"these can: {', '.join(changeable_names)}"
                )

        settings = self.system.settings.with_values(self.system.name, changes)
        system = self.system.model_copy(update={"settings": settings})
        return type(self)(system, self.stores)

    def close(self) -> None:
        """Close all stores, and end the threads in which functions answered."""
        self._function_calls.stop_idle_threads()
        if self.stores is not None:
            self.stores.close()


def _with_newer_items(history: History, query: Query, pending: PendingItems | None) -> History:
    """Return a history with the items that came after it, as a copy if there are any.

    Args:
        history: The history, which other questions share.
        query: Has the items that came after the history and before the question.
        pending: Items of the history that are not in the memory yet.
    """
    pending_items = pending.items if pending else ()
    newer_items = (*pending_items, *query.new_items)
    if not newer_items:
        return history
    return history.model_copy(update={"items": (*history.items, *newer_items)})


def _with_options(question: str, query: Query) -> str:
    """Return a question followed by its options, one per line."""
    return "\n".join([question, *query.options])


def _query_arguments(answerer: Any, query: Query) -> dict[str, Any]:
    """Return the further arguments for a function or module, besides history and question.

    It gets those of `options`, `date` and `query` that it has parameters for.
    """
    available = {
        "options": list(query.options),
        "date": query.when,
        "query": query,
    }
    accepted = _further_parameter_names(answerer)
    return {name: value for name, value in available.items() if name in accepted}


def _further_parameter_names(answerer: Any) -> list[str]:
    """Return the names of the parameters that can be passed by name besides history and question.

    History and question are passed by position, to the first two parameters. The user may call
    these `history` and `query`, for example, so they must not be passed by name as well.
    """
    remaining = _answerer_parameters(answerer)
    positional = [parameter for parameter in remaining if parameter.kind in POSITIONAL_KINDS]
    for parameter in positional[:2]:
        remaining.remove(parameter)
    return [parameter.name for parameter in remaining if parameter.kind in KINDS_PASSED_BY_NAME]


def _answerer_parameters(answerer: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, or of the method `forward` of a module, in order."""
    if isinstance(answerer, SharedFunction):
        return list(parameters(answerer.function).values())
    # `forward` is read from the class: DSPy logs a warning if it is read from a module. A method
    # that is read from a class has the parameter `self` too.
    forward_parameters = dict(parameters(type(answerer).forward))
    forward_parameters.pop("self", None)
    return list(forward_parameters.values())
