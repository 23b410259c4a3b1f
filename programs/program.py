"""A memory program: a method and a task as one DSPy module, which every teleprompter can compile.

forward(history, question) ── remember ──> memory ── recall ──> context ── task ──> answer

The memory of a history is written once and shared by all questions about it (`remember`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dspy

from ..async_bridge import run_bridged
from ..errors import UserError
from ..memory.search.timing import SEARCH_TIMES
from ..memory.memory import Memory
from ..records import History, Item, Query
from ..records.context_variables import set_context
from ._context import current_program_context, program_context
from .adapter import adapter as make_adapter
from .method import Method
from .pending import PendingItems, Recalled
from ._embedders import semantic_embedder
from .predictor import Predictor, predictors_of, replace_predictors
from .call_recorder import RecordedRecall
from .cache import CachedMemory, MemoryCache
from .replay import replay_write_calls
from .state import signature_of
from .tasks.task import Task
from .single_flight import SingleFlight

if TYPE_CHECKING:
    from .. import Store, UserMemory

Stage = Literal["read", "write", "all"]


class MemoryProgram(dspy.Module):
    """Remembers a history, recalls what bears on a query, and answers.

    Args:
        method: Writes and searches the memory.
        task: Answers from the recalled context.
        cache: Memories that were written already; shared by all copies of the program.
        adapter: Name of the adapter that is used where `dspy.settings` has none.
        name: What manifests and tables call the program's method.

    Raises:
        UserError: The method is put together wrongly, or two predictors have equal signatures: GEPA and GRPO could not
            tell them apart.
    """

    all_predictors = predictors_of

    def __init__(
        self, method: Method, task: Task, cache: MemoryCache | None = None, adapter: str = "chat", name: str = ""
    ) -> None:
        super().__init__()
        method.check()
        replace_predictors(task)
        method.set_resolve_dates(task.settings.dates)
        self.method = method
        self.task = task
        self.cache = cache or MemoryCache()
        self.shared = SingleFlight(capacity=1024)
        """What all copies of the program share: what is kept of its durable memories."""
        self.adapter, self._adapter = adapter, make_adapter(adapter)
        self.name = name or f"{type(method).__module__}:{type(method).__qualname__}"
        self._stage: Stage = "all"
        self._frozen: frozenset[str] = frozenset()
        self._writing_lm: Any = None
        predictors = self.all_predictors()
        for (one, first), (other, second) in combinations(predictors.items(), 2):
            if signature_of(first).equals(signature_of(second)):
                raise UserError(
                    f"predictors {one} and {other} have equal signatures, so optimizers cannot tell them apart; "
                    "change the instructions or a field of one"
                )
        for path, predictor in predictors.items():
            predictor.path = path  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def config(self) -> dict[str, Any]:
        """What is set of it, as `build` takes it; of the task what is no default."""
        return {**self.method.config, **self.task.settings.non_defaults}

    @property
    def module(self) -> dspy.Module:
        """The user's own module that this program asks, e.g. to save it with DSPy alone; else the program itself."""
        return getattr(self.method, "module", None) or self

    def forward(
        self,
        history: History | list[Any],
        evidence_ids: Sequence[str] = (),
        recent: Sequence[Item] = (),
        remembered: CachedMemory | None = None,
        **fields: Any,
    ) -> dspy.Prediction:
        """Answers a query about a history.

        Args:
            history: The past, remembered; or its JSON, see `History.parse`.
            evidence_ids: Ids of the gold evidence turns; they choose which write steps an optimizer sees, nothing else.
            recent: Items that came after the history, e.g. the running conversation. They are shown with the question;
                a task that `remembers_recent` also has them remembered, as `Writer.recent` says.
            remembered: What `remember` gave for `history_before` the question, where it was called before.
            **fields: The query fields of the task, e.g. `question`.

        Returns:
            The task's outputs, the recalled `context`, and the `memory` it came from.
        """
        history = history if isinstance(history, History) else History.parse(history)
        with dspy.context(adapter=self.current_adapter()):
            past = self.history_before(history, recent)
            since = recent if past is history else ()
            node = remembered or self.remember(past)

            query = self.task.query(fields, past.items, since, past.speakers)
            found = self.recall(node.memory, query, self._waiting(since))
            if self._stage != "read":
                replay_write_calls(self.method.writer, node, found.context, evidence_ids)
            return self._answered(found, node.memory)

    async def aforward(self, *given: Any, **named: Any) -> dspy.Prediction:
        """`forward` for asyncio: no thread waits for a model that can be awaited."""
        # By the class: DSPy logs a warning whenever `forward` is read from a module itself.
        return await run_bridged(partial(type(self).forward, self, *given, **named))

    def history_before(self, history: History, recent: Sequence[Item] = ()) -> History:
        """Return what is remembered before a question: the history, with what came since where that is written too."""
        writes_recent = self.task.remembers_recent and self.method.writer.recent_mode == "written"
        if not (writes_recent and recent):
            return history
        return history.model_copy(update={"items": (*history.items, *recent)})

    def history_of(self, example: dspy.Example) -> History:
        """Return `history_before` the question of a benchmark's example."""
        return self.history_before(example.history, tuple(example.get("recent") or ()))

    def _waiting(self, since: Sequence[Item]) -> PendingItems | None:
        """Return the items after the memory that are searched as they were said; None where there are none."""
        searches_recent = self.task.remembers_recent and self.method.writer.recent_mode == "searched"
        return PendingItems(tuple(since)) if searches_recent and since else None

    def query_of(self, example: dspy.Example, history: History | None = None) -> Query:
        """The query of a benchmark's example; about another history than its own, e.g. the beginning of it."""
        inputs = {name: value for name, value in example.inputs().items() if name != "evidence_ids"}
        own, since = inputs.pop("history"), tuple(inputs.pop("recent", None) or ())
        past = history
        if past is None:
            past = self.history_before(own, since)
            since = since if past is own else ()
        return self.task.query(inputs, past.items, since, past.speakers)

    def recall_for(self, example: dspy.Example) -> Recalled:
        """Return what is recalled for the question of a benchmark's example."""
        memory = self.remember(self.history_of(example)).memory
        query = self.query_of(example)
        return self.recall(memory, query, self._waiting(query.new_items))

    def answer(self, memory: Memory, query: Query, waiting: PendingItems | None = None) -> dspy.Prediction:
        """Recalls and answers.

        Args:
            memory: A finalized memory.
            query: What is asked.
            waiting: Items that are not in the memory yet: those of their turns that bear on the query are shown as they
                are, and stand at the end of the context.

        Returns:
            The task's outputs, the recalled `context`, and the `memory`.
        """
        return self._answered(self.recall(memory, query, waiting), memory)

    async def aanswer(self, memory: Memory, query: Query, waiting: PendingItems | None = None) -> dspy.Prediction:
        """`answer` for asyncio: the memory is searched in a thread, and none waits for the answer."""
        return await run_bridged(partial(self.answer, memory, query, waiting))

    def recall(self, memory: Memory, query: Query, waiting: PendingItems | None = None) -> Recalled:
        """What the task is given for a query; arguments as `answer`."""
        record = current_program_context().recorder
        with set_context(SEARCH_TIMES, record.searches if record else None):
            found = self.method.recall(memory, query, waiting)
        if record:
            record.recalled.append(RecordedRecall(time.perf_counter(), found))
        return found

    def _answered(self, found: Recalled, memory: Memory) -> dspy.Prediction:
        with program_context(demo_embedder=semantic_embedder(self.method.embedder)):
            return _whole(self.task(context=found.context, query=found.query), found, memory)

    def remember(self, history: History) -> CachedMemory:
        """Return the memory of a history, written at most once per set of writing prompts.

        Returns:
            The finalized memory (`.memory`), the `.failures` of its last step, and its `.ancestors()`.
        """
        with dspy.context(lm=self._writing_lm or dspy.settings.lm, adapter=self.current_adapter()):
            return self.cache.get_or_write(self.method.writer, history)

    async def aremember(self, history: History) -> CachedMemory:
        """`remember` for asyncio: no thread waits for a model that can be awaited."""
        return await run_bridged(partial(self.remember, history))

    def count_missing(self, histories: Iterable[History]) -> int:
        """How many items `remember` would have to write, or read from a store; 0 where nothing is asked to write."""
        with dspy.context(lm=self._writing_lm or dspy.settings.lm, adapter=self.current_adapter()):
            return self.cache.count_missing(self.method.writer, histories)

    def current_adapter(self) -> dspy.Adapter:
        """The adapter of `dspy.settings`, or else the program's own: one for all its calls and copies."""
        return dspy.settings.adapter or self._adapter

    def memory(self, store: Store | str | Path, user: str, tenant: str = "default", lm: Any = None) -> UserMemory:
        """The durable memory of one user, for production.

        Args:
            store: A `Store`, the path of an SQLite file, or `postgresql://...`; one that is given as text is opened
                once per program.
            user: Any text that names the user.
            tenant: Keeps the users of several customers apart.
            lm: The language model, or its name; that of `dspy.settings` at the time of each call if None.

        Raises:
            UserError: The user, tenant or store is no valid name.
            StoreError: The store cannot be opened.
        """
        # Programs know no stores: the package says who keeps their memories.
        from .. import UserMemory

        return UserMemory.of(self, store, user, tenant, lm)

    def writer_names(self) -> frozenset[str]:
        """The names, in `all_predictors`, of the predictors that write memories."""
        writers = {id(predictor) for predictor in self.method.writer.predictors_below().values()}
        return frozenset(name for name, predictor in self.all_predictors().items() if id(predictor) in writers)

    def named_parameters(self) -> list[tuple[str, Any]]:
        """The parameters an optimizer may change: all but the frozen ones."""
        return [(name, value) for name, value in super().named_parameters() if name not in self._frozen]

    def staged(self, stage: Stage) -> MemoryProgram:
        """A copy whose predictors of the other stage are hidden from optimizers.

        Frozen writing predictors write under the LM of this moment, so that an optimizer's sampling does not write
        every memory anew. `with_prompts_of` takes what the optimizer returns back into a whole program.

        Raises:
            UserError: The stage has no predictor to tune.
        """
        writers, student = self.writer_names(), copy.deepcopy(self)
        student._stage = stage
        if stage == "write":
            student._frozen = frozenset(self.all_predictors()) - writers
        elif stage == "read":
            student._frozen, student._writing_lm = writers, dspy.settings.lm
        if not student.named_predictors():
            raise UserError(f"{self.name} has no prompt to tune in stage {stage!r}; choose another --stage")
        return student

    def with_prompts_of(self, tuned: MemoryProgram) -> MemoryProgram:
        """Return a copy whose predictors ask as those of `tuned` do, a copy of this program that an optimizer changed.

        Nothing else of `tuned` is taken along: optimizers hide predictors, bind models, and leave marks and logs.
        """
        new = copy.deepcopy(self)
        sources = tuned.all_predictors()
        for name, predictor in new.all_predictors().items():
            source = sources[name]
            # A signature class of its own: InferRules edits instructions on the class.
            signature = signature_of(source)
            predictor.signature = signature.with_instructions(signature.instructions)
            predictor.demos = list(source.demos)
            predictor.config = dict(source.config)
            predictor.fields = dict(source.fields)
            if isinstance(predictor, Predictor) and isinstance(source, Predictor):
                predictor.nearest = source.nearest
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryProgram:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        memo[id(self._writing_lm)] = self._writing_lm
        for name, value in self.__dict__.items():
            setattr(new, name, copy.deepcopy(value, memo))
        # An own signature class for every predictor: InferRules edits instructions on the class.
        for predictor in new.all_predictors().values():
            signature = signature_of(predictor)
            predictor.signature = signature.with_instructions(signature.instructions)
        return new


def _whole(answered: dspy.Prediction, found: Recalled, memory: Memory) -> dspy.Prediction:
    outputs = {key: answered[key] for key in answered.keys()}  # noqa: SIM118
    return dspy.Prediction(**outputs, context=found.full_context() if found.raw_turns else found.context, memory=memory)
