"""A memory program: a method and a task as one DSPy module, which every teleprompter can compile.

    forward(history, question):
        history  -- remember --> memory -- recall --> context -- task --> answer

The memory of a history is written once and shared by all questions about it.

Example:
    program = build("turn-rag")
    with dspy.context(lm=dspy.LM("openai/gpt-4.1-mini")):
        prediction = program(history=messages, question="Where does Ada live?")
    prediction.answer
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy
from pydantic import JsonValue

from ..async_bridge import run_bridged
from ..engines.call_context import measure_part
from ..engines.usage import Usage
from ..errors import UserError
from ..memory.memory import Memory
from ..memory.search.timing import SEARCH_TIMES
from ..records import History, Item, Query
from ..records.context_variables import set_context
from ._context import current_program_context, program_context
from ._embedders import semantic_embedder
from .adapter import adapter as make_adapter
from .cache import CachedMemory, MemoryCache
from .call_recorder import RecordedRecall
from .method import Method
from .pending import PendingItems
from .predictor import predictors_of, replace_predictors
from .recalled import Recalled
from .recording import exits_as_errors
from .replay import replay_write_calls
from .single_flight import SingleFlight
from .staging import Stage, Staging, copy_prompts, make_staging
from .state import copy_signature, signature_of
from .tasks.task import Task
from .writer import RecentItems

if TYPE_CHECKING:
    from .. import Store, UserMemory


_USAGE = "_usage_of_answer"
"""The attribute of a prediction with what the calls behind it used.

It is no field of the prediction, so that neither optimizers nor tables take it for an output.
"""


class PromptsRefusedError(Exception):
    """Raised if a program is asked whose prompts an optimizer must not use."""


def usage_of(prediction: dspy.Prediction) -> Usage | None:
    """Return what recalling and answering took; None if no program made the prediction."""
    return getattr(prediction, _USAGE, None)


class MemoryProgram(dspy.Module):
    """Remember a history, recall what bears on a query, and answer.

    Args:
        method: Writes and searches the memory.
        task: Answers from the recalled context.
        cache: Memories that were written already; shared by all copies of the program.
        adapter: Name of the adapter that is used where `dspy.settings` has none.
        name: What manifests and tables call the method; its class if empty.

    Raises:
        UserError: The method is put together wrongly, or two predictors have equal signatures.
    """

    all_predictors = predictors_of

    def __init__(
        self,
        method: Method,
        task: Task,
        cache: MemoryCache | None = None,
        adapter: str = "chat",
        name: str = "",
    ) -> None:
        super().__init__()
        method.check()
        replace_predictors(task)
        method.set_resolve_dates(task.settings.dates)

        self.method = method
        self.task = task
        self.cache = cache or MemoryCache()
        self.shared: SingleFlight[tuple[str, str], Any] = SingleFlight(capacity=1024)
        """What all copies of the program share: its stores, and its durable memories in use."""
        self.adapter = adapter
        self._adapter = make_adapter(adapter)
        self.name = name or f"{type(method).__module__}:{type(method).__qualname__}"
        self._staging = Staging()
        self.refusal: str | None = None
        """Why an optimizer must not use the prompts of this candidate; it then answers nothing."""

        predictors = self.all_predictors()
        _check_signatures_differ(predictors)
        for path, predictor in predictors.items():
            predictor.path = path  # pyright: ignore[reportAttributeAccessIssue]

    def forward(
        self,
        history: History | Mapping[str, object] | JsonValue,
        evidence_ids: Sequence[str] = (),
        recent: Sequence[Item] = (),
        remembered: CachedMemory | None = None,
        **fields: Any,
    ) -> dspy.Prediction:
        """Answer a query about a history.

        Args:
            history: The past, which is remembered; or its JSON, see `History.parse`.
            evidence_ids: Ids of the turns that hold the answer. They choose which write calls an
                optimizer sees, and nothing else.
            recent: Items that came after the history, e.g. the running conversation. Tasks show
                them with the question. If the task `remembers_recent`, `Writer.recent_mode` may
                have them written into the memory instead, or searched as well as shown.
            remembered: The memory, if `remember` has been called already; else it is written here.
            **fields: The query fields of the task, e.g. `question`.

        Returns:
            The task's outputs, the recalled `context`, and the `memory` it came from. `usage_of`
            says what recalling and answering took.

        Raises:
            PromptsRefusedError: The program is a candidate of an optimizer, and was refused.
        """
        if self.refusal is not None:
            raise PromptsRefusedError(self.refusal)
        if not isinstance(history, History):
            history = History.parse(history)

        with dspy.context(adapter=self.current_adapter()), exits_as_errors():
            # Recent items are either written into the memory, as the end of the past, or are new.
            past = self.history_before(history, recent)
            new_items = self._new_items(recent)
            cached_memory = self.remember(past) if remembered is None else remembered

            # Writing is not measured: the memory is shared by many questions.
            with measure_part() as tracker:
                query = self.task.query(fields, past.items, new_items, past.speakers)
                recalled = self.recall(cached_memory.memory, query, self._pending(new_items))

                # For the same reason, the calls that wrote the memory are not in the trace of this
                # question. An optimizer that tunes these calls has to see them there.
                if self._staging.tunes_writing:
                    writer = self.method.writer
                    replay_write_calls(writer, cached_memory, recalled.context, evidence_ids)
                answered = self._answer_from(recalled, cached_memory.memory)
            setattr(answered, _USAGE, tracker.usage)
            return answered

    async def aforward(self, *args: Any, **kwargs: Any) -> dspy.Prediction:
        """Answer as `forward` does; no thread waits for a model that can be awaited."""
        # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
        return await run_bridged(partial(type(self).forward, self, *args, **kwargs))

    def remember(self, history: History) -> CachedMemory:
        """Return the memory of a history; it is written only if the cache does not have it.

        Returns:
            The finalized memory as `.memory`, and what it took to write.
        """
        with self._writing_context():
            return self.cache.get_or_write(self.method.writer, history)

    async def aremember(self, history: History) -> CachedMemory:
        """Remember as `remember` does; no thread waits for a model that can be awaited."""
        return await run_bridged(partial(self.remember, history))

    def recall(self, memory: Memory, query: Query, pending: PendingItems | None = None) -> Recalled:
        """Return what the method recalls for a query, from which the task then answers.

        If a recording is active (`recording`), it gets the result and the times of the searches.

        Args:
            memory: A finalized memory.
            query: The query.
            pending: Items that are not in the memory yet. Their turns are searched as they are.
        """
        recorder = current_program_context().recorder
        # Searches append their times to the list in `SEARCH_TIMES`; None if nobody measures them.
        search_times = None if recorder is None else recorder.searches
        with set_context(SEARCH_TIMES, search_times):
            recalled = self.method.recall(memory, query, pending)

        if recorder is not None:
            recorder.recalled.append(RecordedRecall(time.perf_counter(), recalled))
        return recalled

    def answer(
        self, memory: Memory, query: Query, pending: PendingItems | None = None
    ) -> dspy.Prediction:
        """Answer a query from a memory.

        Args:
            memory: A finalized memory.
            query: The query.
            pending: Items that are not in the memory yet. The task is shown those of their turns
                that are nearest to the query, after what the memory gave.

        Returns:
            The task's outputs, the recalled `context`, and the `memory`.
        """
        return self._answer_from(self.recall(memory, query, pending), memory)

    async def aanswer(
        self, memory: Memory, query: Query, pending: PendingItems | None = None
    ) -> dspy.Prediction:
        """Answer as `answer` does; no thread waits for a model that can be awaited."""
        return await run_bridged(partial(self.answer, memory, query, pending))

    def _answer_from(self, recalled: Recalled, memory: Memory) -> dspy.Prediction:
        """Answer a query from what was recalled for it.

        Args:
            recalled: The query, and what the method recalled for it.
            memory: The memory, which is not read, but returned with the answer.

        Returns:
            The task's outputs, the recalled `context`, and the `memory`.
        """
        if not self._staging.answers:
            shown_context = self.task.shown_context(recalled.full_context())
            return dspy.Prediction(answer="", context=shown_context, memory=memory)

        # The embedding model of the method also helps predictors to choose demos for their prompts.
        with program_context(demo_embedder=semantic_embedder(self.method.embedder)):
            outputs = self.task(context=recalled.context, query=recalled.query)
        return dspy.Prediction(
            **dict(outputs.items()), context=recalled.full_context(), memory=memory
        )

    def history_before(self, history: History, recent: Sequence[Item] = ()) -> History:
        """Return the history that has to be remembered before a question about it is answered.

        Args:
            history: The past.
            recent: Items that came after it. They are appended if the task wants them remembered
                and the method writes them into the memory (`Writer.recent_mode`).
        """
        if not recent or self._recent_mode != "written":
            return history
        return history.model_copy(update={"items": (*history.items, *recent)})

    @property
    def _recent_mode(self) -> RecentItems:
        """What becomes of the items that came after the history.

        They are written into the memory ("written"), searched beside it as raw turns ("searched"),
        or neither ("left out"). The writer decides, unless the task leaves them out.
        """
        if not self.task.remembers_recent:
            return "left out"
        return self.method.writer.recent_mode

    def _new_items(self, recent: Sequence[Item]) -> Sequence[Item]:
        """Return the recent items that are not written into the memory: all of them, or none."""
        if self._recent_mode == "written":
            return ()
        return recent

    def _pending(self, new_items: Sequence[Item]) -> PendingItems | None:
        """Return new items in the form in which `recall` searches them, as raw turns.

        The result is None if there are none, or if they are not to be searched.

        Args:
            new_items: Items that came after the end of the memory.
        """
        if not new_items or self._recent_mode != "searched":
            return None
        return PendingItems(tuple(new_items))

    def history_of(self, example: dspy.Example) -> History:
        """Return the history to remember before the question of a benchmark's example."""
        return self.history_before(example.history, tuple(example.get("recent") or ()))

    def query_of(self, example: dspy.Example, history: History | None = None) -> Query:
        """Return the query of a benchmark's example, as `forward` would make it.

        Args:
            example: The example.
            history: What the memory was written from, e.g. the beginning of the example's history.
                None stands for the history that `forward` would remember.
        """
        # An example has the arguments of `forward`. Once those that are not for the task have been
        # taken out, the query fields of the task are left.
        fields = dict(example.inputs().items())
        fields.pop("evidence_ids", None)
        example_history = fields.pop("history")
        recent = tuple(fields.pop("recent", None) or ())

        if history is None:
            # Recent items are either written into the memory, as the end of the past, or are new.
            past = self.history_before(example_history, recent)
            new_items = self._new_items(recent)
        else:
            # The memory has been written from this history alone, so all recent items are new.
            past = history
            new_items = recent
        return self.task.query(fields, past.items, new_items, past.speakers)

    def recall_for(self, example: dspy.Example) -> Recalled:
        """Return what is recalled for the question of a benchmark's example."""
        memory = self.remember(self.history_of(example)).memory
        query = self.query_of(example)
        return self.recall(memory, query, self._pending(query.new_items))

    @property
    def config(self) -> dict[str, Any]:
        """The settings, as `build` takes them; those of the task only where they are no default."""
        return {**self.method.config, **self.task.settings.non_defaults}

    @property
    def module(self) -> dspy.Module:
        """The user's own module that this program asks, e.g. to save it; else the program."""
        return self.method.wrapped_module or self

    def current_adapter(self) -> dspy.Adapter:
        """Return the adapter of `dspy.settings`, or else the program's own."""
        # The program's own is one object for all its calls and copies.
        return dspy.settings.adapter or self._adapter

    def _writing_context(self) -> AbstractContextManager[None]:
        """Return a context manager that sets the model and the adapter for writing memories.

        While an optimizer tunes only the prompts that read memories, `writing_lm` is the model from
        the time when it began. Otherwise the model of `dspy.settings` writes.
        """
        lm = self._staging.writing_lm or dspy.settings.lm
        return dspy.context(lm=lm, adapter=self.current_adapter())

    def count_missing(self, histories: Iterable[History]) -> int:
        """Return how many items of some histories `remember` would have to write.

        Only memories in this process are looked up, so items that a store has are counted too. The
        result is 0 for a method that writes without a model, since writing then costs nothing.
        """
        with self._writing_context():
            return self.cache.count_missing(self.method.writer, histories)

    def memory(
        self,
        store: Store | str | Path,
        user: str,
        tenant: str = "default",
        lm: dspy.BaseLM | str | None = None,
        feedback: bool = False,
    ) -> UserMemory:
        """Return the durable memory of one user, for production.

        Args:
            store: A `Store`, the path of an SQLite file, or `postgresql://...`. A store that is
                named is opened once per program.
            user: Any text that names the user.
            tenant: Keeps the users of several customers apart.
            lm: The language model, or its name. None takes the model that `dspy.settings` has at
                the time of each call.
            feedback: Whether answers are kept in the store, so that the user can rate them by
                `UserMemory.feedback`.

        Raises:
            UserError: The user, tenant or store is no valid name.
            StoreError: The store cannot be opened.
        """
        # Imported here, since `programs` must not depend on the room that serves memories.
        from .. import UserMemory

        return UserMemory.of(self, store, user, tenant, lm, feedback)

    def writer_names(self) -> frozenset[str]:
        """Return the names of the predictors that write memories, as `all_predictors` has them."""
        # Below the writer, the predictors have shorter names. So they are recognized as objects.
        writer_predictors = self.method.writer.predictors_below().values()
        writing_ids = {id(predictor) for predictor in writer_predictors}
        predictors = self.all_predictors().items()
        return frozenset(name for name, predictor in predictors if id(predictor) in writing_ids)

    def answer_names(self) -> frozenset[str]:
        """Return the names of the predictors that answer, as `all_predictors` has them."""
        answering_ids = {id(predictor) for predictor in self.task.predictors()}
        predictors = self.all_predictors().items()
        return frozenset(name for name, predictor in predictors if id(predictor) in answering_ids)

    def recalling_only(self) -> MemoryProgram:
        """Return a copy that remembers and recalls, and answers "" without asking a model.

        It is for metrics that look at what was recalled. It shares everything with this program;
        the context in its predictions is the one that a prompt would show.

        Raises:
            UserError: The method recalls nothing that could be looked at: it answers by itself.
        """
        if not self.method.recalls_without_answer:
            raise UserError(
                f"{self.name} answers by itself and shows no memory;"
                " the metric needs a method or a store with search"
            )
        new = self.__class__.__new__(self.__class__)
        for name, value in self.__dict__.items():
            setattr(new, name, value)
        new._staging = replace(self._staging, answers=False)
        return new

    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return the parameters that an optimizer may change: all but those that are frozen.

        DSPy's optimizers see a program through this method.
        """
        frozen = self._staging.frozen_predictors
        parameters = super().named_parameters()
        return [(name, parameter) for name, parameter in parameters if name not in frozen]

    def staged(self, stage: Stage, answers: bool = True) -> MemoryProgram:
        """Return a copy for an optimizer, which sees the predictors of one stage only.

        Args:
            stage: "read", "write" or "all". The predictors of the other stage are hidden.
            answers: Whether the copy answers. If not, the predictors that answer are hidden too.

        Returns:
            The copy. When it has been optimized, `with_prompts_of` makes a whole program of it.

        Raises:
            UserError: The stage has no predictor to tune.
        """
        student = copy.deepcopy(self)
        staging = make_staging(stage, self.all_predictors(), self.writer_names())
        if not answers:
            hidden = staging.frozen_predictors | self.answer_names()
            staging = replace(staging, frozen_predictors=hidden, answers=False)
        student._staging = staging
        if not student.named_predictors():
            raise UserError(
                f"{self.name} has no prompt to tune in stage {stage!r}; choose another --stage"
            )
        return student

    def with_prompts_of(self, tuned: MemoryProgram) -> MemoryProgram:
        """Return a copy of this program with the prompts and the settings of another copy.

        Optimizers also hide predictors of the program that they change, bind models to it and leave
        marks. None of that is taken over.

        Args:
            tuned: A copy of this program that an optimizer has changed.
        """
        if tuned.method.config == self.method.config:
            new = copy.deepcopy(self)
        else:
            # A method with these settings and nothing else of the other copy.
            new = self._with_method(tuned.method.with_settings({}))
        copy_prompts(tuned.all_predictors(), new.all_predictors())
        return new

    def with_settings(self, changes: Mapping[str, Any]) -> MemoryProgram:
        """Return a copy of this program with other values of some settings of its method.

        The prompts stay. The copy shares the memories of this program: they are written anew only
        if a setting of the writer changes.

        Args:
            changes: The other values by name, as `build` takes them.

        Raises:
            UserError: There is no such setting, or a value is out of its range.
        """
        new = self._with_method(self.method.with_settings(changes))
        copy_prompts(self.all_predictors(), new.all_predictors())
        return new

    def _with_method(self, method: Method) -> MemoryProgram:
        """Return a copy of this program with another method of the same kind."""
        new = MemoryProgram(method, copy.deepcopy(self.task), self.cache, self.adapter, self.name)
        new.shared = self.shared
        new._staging = self._staging
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryProgram:
        """Return a copy whose predictors share no signature class with this program.

        Some optimizers of DSPy edit signature classes in place.
        """
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            setattr(new, name, copy.deepcopy(value, memo))
        for predictor in new.all_predictors().values():
            predictor.signature = copy_signature(predictor)
        return new


def _check_signatures_differ(predictors: Mapping[str, dspy.Predict]) -> None:
    """Raise a UserError if two predictors have equal signatures.

    DSPy's GEPA and GRPO tell the predictors of a program apart by their signatures.
    """
    for (name, predictor), (other_name, other) in combinations(predictors.items(), 2):
        if signature_of(predictor).equals(signature_of(other)):
            raise UserError(
                f"predictors {name} and {other_name} have equal signatures, "
                "so optimizers cannot tell them apart; change the instructions or a field of one"
            )
