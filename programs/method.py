"""A memory method: how sessions become a memory, and how a query gets a context out of it.

    memory = method.Memory()
    for item in history: memory = method.write(memory, item, method.prepare(item))
    memory = method.settle(memory)
    context = method.recall(memory, "Where does Ann live?")

A method is a `dspy.Module`: its prompts are predictors that teleprompters can tune. `write` never changes its
argument, so any memory of the past stays usable: caches, rollouts and snapshots rest on that. `search` never calls an
LM, so that any retrieval policy can stand on any method.

Example (a whole method; see docs/extend.md):
    >>> class LastTurns(Method):
    ...     Memory = TurnMemory
    ...     def write(self, memory, item, prepared=None):
    ...         return memory.with_session(item)
    ...     def search(self, memory, queries, k=10, min_score=None):
    ...         return [memory.hits()[-k:] for _ in queries]
"""

from __future__ import annotations

import contextvars
import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel

from ..memory.flight import Flight
from ..memory.index import Embedder, Index
from ..records import Context, Failure, Hit, Item

_failures: contextvars.ContextVar[list[Failure] | None] = contextvars.ContextVar("failures", default=None)


class Method(dspy.Module):
    """Base class of memory methods.

    Every constructor argument but `embedder` must be kept as an attribute of the same name: together they are the
    method's `config`, which the cache key and the manifest of a saved program hold.

    Args:
        embedder: Turns texts into vectors, for methods that search by meaning; None for those that do not.
    """

    Memory: ClassVar[type[BaseModel]]
    """What is kept for one user; its JSON is its stored form."""
    writing: ClassVar[tuple[str, ...]] = ()
    """Attribute names of the predictors that `prepare`, `write` and `settle` call."""
    tasks: ClassVar[dict[str, type[dspy.Module]]] = {}
    """Answer prompts of the method's own paper, by task name; other tasks use the suite's."""
    continues: ClassVar[bool] = False
    """Whether a stored memory of a user goes on from its settled form, where settling is work done once and for all."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        super().__init__()
        self.embedder = embedder
        self._indexes = Flight(capacity=64)

    def prepare(self, item: Item) -> Any:
        """Does the part of `write` that does not depend on the memory; runs for all items at once. Default: none."""
        return None

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        """Takes one more item into the memory.

        Args:
            memory: The memory so far; never changed.
            item: The next item in time order.
            prepared: What `prepare(item)` returned.

        Returns:
            The memory with the item in it.
        """
        raise NotImplementedError

    def settle(self, memory: Any) -> Any:
        """Called once where the past given as history ends; idempotent. Default: the memory as it is."""
        return memory

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Finds the entries nearest to each query, best first, without an LM.

        Args:
            memory: The memory to search.
            queries: Any number of queries; searched in one batch.
            k: Most hits per query.
            min_score: Hits below it are left out; None takes the method's own default.

        Returns:
            One list of at most `k` hits per query.
        """
        raise NotImplementedError

    def search_evidence(self, memory: Any, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The search that recall of evidence is measured by. Default: `search`.

        A method whose search finds summaries too leaves them out here: a summary that rests on every turn would count
        as having found all evidence.
        """
        return self.search(memory, queries, k)

    def recall(self, memory: Any, query: str, **hints: Any) -> Context:
        """Retrieves what bears on a query. Default: the ten nearest entries of `search`."""
        return Context(hits=tuple(self.search(memory, [query])[0]))

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors by attribute name."""
        return {name: getattr(self, name) for name in self.writing}

    @property
    def config(self) -> dict[str, Any]:
        """The constructor arguments, without the embedder."""
        parameters = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in parameters if name not in ("self", "embedder")}

    @property
    def store(self) -> Method:
        """The method that writes the memory: itself, or the one beneath a retrieval policy."""
        return self

    def answering(self, task: str) -> dspy.Module:
        """Makes one of `tasks`; methods whose settings concern the answer pass them on."""
        return self.tasks[task]()

    def index(self, memory: BaseModel) -> Index:
        """The search index of a memory, built once and kept for the memories used last."""
        # The memory is kept beside its index, so that its id is not given to another object meanwhile.
        return self._indexes.once(id(memory), lambda: (memory, self.build_index(memory)))[1]

    def build_index(self, memory: Any) -> Index:
        """Builds the index of a memory; methods that use `index` implement it."""
        raise NotImplementedError

    def forget(self, memories: Sequence[BaseModel]) -> None:
        """Drops what is kept in this process of memories that are to be forgotten: their indexes."""
        gone = {id(memory) for memory in memories}
        for method in {id(method): method for method in (self, self.store)}.values():
            method._indexes.drop(lambda key: key in gone)

    def attempt(self, predictor: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        """Calls a predictor; output that stays unparseable is recorded as a failure and gives None."""
        try:
            return predictor(**inputs)
        except AdapterParseError as error:
            name = next((name for name, writer in self.writers().items() if writer is predictor), "recall")
            record_failure(Failure(kind="parse", where=name, message=_first_line(error)))
            return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Method:
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        memo[id(self.embedder)] = self.embedder
        for name, value in self.__dict__.items():
            setattr(new, name, copy.deepcopy(value, memo))
        return new


def record_failure(failure: Failure) -> None:
    """Adds a failure to the list that the running `collect_failures` keeps; lost where none runs."""
    failures = _failures.get()
    if failures is not None:
        failures.append(failure)


@contextmanager
def collect_failures() -> Iterator[list[Failure]]:
    """Collects the failures that methods record inside the block, from gathered calls too."""
    failures: list[Failure] = []
    token = _failures.set(failures)
    try:
        yield failures
    finally:
        _failures.reset(token)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
