"""What answers by itself as a program: a callable, a `dspy.Module`, a system with `ask`, answers made elsewhere.

    thing(history, question) ──> answer, or (answer, recalled), or a `dspy.Prediction` of these

`history` is a `records.History`, `question` a text with everything about the question in it. A thing with parameters
`options` or `date` is given them by name; options are then not in the text. A module's predictors are the program's, so
every optimizer compiles it. The benchmark's task only says what a question is made of: its prompt is not asked.

Limits: a thing runs in this process, in a thread that is left behind where it hangs. Three times in a row too late is
for good: what is asked after that fails at once.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import dspy

from ...records import Context, History, Hit, Query
from ..method import Method, Reader
from ..program import MemoryProgram
from ..recording import record_context
from ..tasks.task import Task
from ..waiting import Waiting
from .kept import Keeper, Kept
from .lane import within
from .matching import hits_of
from .method import SystemWriter
from .searchable import ForeignError
from .stores import Limits, Stores

PATIENCE = 3
"""Answers in a row that may come too late."""
RECALLED = "recalled"
"""The field of a prediction that says what an answer rests on."""


class Speaker(Reader):
    """Base: what answers by itself; there is nothing to search."""

    free = False

    def answered(self, history: History, query: Query) -> Any:
        """Answers.

        Args:
            history: All that came before.
            query: What is asked.

        Returns:
            An answer; or one and what was recalled for it; or a mapping or prediction with `answer` and `recalled`.
        """
        raise NotImplementedError

    def search(
        self, memory: Kept, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [[] for _ in queries]

    def otherwise(self, memory: Kept, query: Query) -> Sequence[Hit]:
        return ()

    def size(self, memory: Kept) -> tuple[int | None, int | None]:
        return None, None


class Thing:
    """A callable that is shared by all copies of a program; a module is copied with it instead.

    Args:
        call: The callable.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __deepcopy__(self, memo: object = None) -> Thing:
        return self


class OwnReader(Speaker):
    """Asks a callable or a module.

    Args:
        thing: What answers.
        name: What failures call it.
        timeout: Seconds that an answer may take.
    """

    def __init__(self, thing: Any, name: str, timeout: float) -> None:
        super().__init__()
        self.thing = thing if isinstance(thing, dspy.Module) else Thing(thing)
        self.system, self.timeout, self._late = name, timeout, Late()

    def answered(self, history: History, query: Query) -> Any:
        thing: Any = self.thing.call if isinstance(self.thing, Thing) else self.thing
        takes = _parameters(thing)
        more = {name: value for name, value in _more(query).items() if name in takes}
        past: Any = "\n".join(line for item in history for line in item.lines()) if _reads_text(thing) else history
        question = asked(query, "options" in more)
        if isinstance(thing, dspy.Module) and ("kwargs" in takes or {"history", "question"} <= takes):
            return self._late.once(self.system, self.timeout, thing, history=past, question=question, **more)
        return self._late.once(self.system, self.timeout, thing, past, question, **more)


@dataclass
class Late:
    """How often in a row an answer came too late; shared by all copies of a program."""

    count: int = 0
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def once(self, name: str, timeout: float, thing: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a thing, unless it was too late too often."""
        if self.count >= PATIENCE:
            raise ForeignError(f"{name}: gave no answer within {timeout:g} s, {PATIENCE} times in a row")
        try:
            found = within(name, timeout, thing, *args, **named)
        except ForeignError:
            with self.lock:
                self.count += 1
            raise
        with self.lock:
            self.count = 0
        return found

    def __deepcopy__(self, memo: object = None) -> Late:
        return self


class AskedReader(Speaker):
    """Asks a system that was given the history before.

    Args:
        stores: The system's.
    """

    def __init__(self, stores: Stores) -> None:
        super().__init__()
        self.stores = stores

    def answered(self, history: History, query: Query) -> Any:
        return self.stores.ask(history, asked(query))

    def size(self, memory: Kept) -> tuple[int | None, int | None]:
        return self.stores.size(memory.history)


class Own(Method):
    """A callable or a module that is shown the whole history with every question.

    Args:
        reader: What answers.
        timeout: Seconds that an answer may take.
    """

    def __init__(self, reader: Speaker, timeout: float = Limits.timeout) -> None:
        super().__init__(Keeper(), reader)


class Replayed(Own):
    """Answers that were made elsewhere.

    Args:
        reader: Gives them.
        sha256: Of their file: other answers are another program.
    """

    def __init__(self, reader: Speaker, sha256: str) -> None:
        super().__init__(reader)


class Asked(Method):
    """A system that is given the history once and answers by itself.

    Args:
        stores: Where its stores are.
        timeout: Seconds that one call may take.
        max_mb: Megabytes that the store of one history may take.
    """

    def __init__(self, stores: Stores, timeout: float = Limits.timeout, max_mb: float = Limits.max_mb) -> None:
        super().__init__(SystemWriter(stores.name, stores), AskedReader(stores))
        self.stores = stores

    def close(self) -> None:
        self.stores.close()


class SpokenProgram(MemoryProgram):
    """A program whose method answers; its task has no prompt."""

    def answer(
        self,
        memory: Any,
        query: Query,
        waiting: Waiting | None = None,
        recalled: Callable[[Context], None] = lambda context: None,
    ) -> dspy.Prediction:
        reader = self.method.reader
        if not isinstance(reader, Speaker):
            return super().answer(memory, query, waiting, recalled)
        since = (*(waiting.items if waiting else ()), *query.since)
        known: History = memory.history
        history = known.model_copy(update={"items": (*known.items, *since)}) if since else known
        outputs, found = _read(reader.answered(history, query))
        context = Context(hits=hits_of(found, history))
        record_context(context)
        recalled(context)
        return dspy.Prediction(**{**outputs, "context": context, "memory": memory})


def silent(task: type[Task]) -> Task:
    """A task that makes the same queries and has no prompt."""
    return type(task.__name__, (task,), {"prompt": None, "__module__": task.__module__})()


def asked(query: Query, apart: bool = False) -> str:
    """A question as a text.

    Args:
        query: What is asked.
        apart: Whether the options are given beside it.
    """
    text = query.line if query.modality == "question" else query.probe
    return text if apart or not query.options else "\n".join([text, *query.options])


def _more(query: Query) -> dict[str, Any]:
    return {"options": list(query.options), "date": query.when, "query": query}


def _parameters(thing: Any) -> set[str]:
    called: Any = getattr(thing, "forward") if isinstance(thing, dspy.Module) else thing  # noqa: B009
    try:
        return set(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return set()


def _reads_text(thing: Any) -> bool:
    """Whether a module is a prompt whose history is a text, as `dspy.Predict("history, question -> answer")`."""
    signature = getattr(thing, "signature", None) or getattr(getattr(thing, "predict", None), "signature", None)
    field = getattr(signature, "input_fields", {}).get("history")
    return field is not None and field.annotation is str


def _read(given: Any) -> tuple[dict[str, Any], Any]:
    """The outputs of an answer and what was recalled for it."""
    outputs, found = {"answer": given}, None
    if isinstance(given, dspy.Prediction | Mapping):
        fields = cast("Mapping[str, Any]", given)
        outputs = {key: fields[key] for key in fields.keys() if key not in (RECALLED, "memory")}  # noqa: SIM118
        found = fields.get(RECALLED, outputs.pop("context", None))
    elif isinstance(given, tuple):
        pair = cast("tuple[Any, ...]", given)
        outputs, found = ({"answer": pair[0]}, pair[1]) if len(pair) == 2 else (outputs, None)
    if isinstance(found, Context):
        found = found.hits
    answer: Any = outputs.get("answer")
    if not isinstance(answer, str | int | float | list):
        raise ForeignError(f"answered {type(answer).__name__}, expected a text or (text, recalled)")
    return {**outputs, "answer": str(answer) if isinstance(answer, int | float) else answer}, found
