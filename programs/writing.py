"""Write items into a memory: the order in which the hooks of a writer are called.

    memory = write_items(writer, writer.Memory(), history.items)     # without finalizing
    memory = finalize_memory(writer, memory)                         # questions may be asked of it

`write_items` extracts from all items at once and then calls `write_item` for one after another.
The memory cache, rollouts and the serving queue call these functions one by one, because each keeps
something else between two items. They also want to know which calls a step made:

    step = record_step(lambda: write_item(writer, memory, item))
    step.value, step.calls, step.failures, step.usage

Turns that could not be written are tried again, see `retry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from ..engines.call_context import measure_usage
from ..engines.usage import Usage
from ..records import Failure, Item
from .call_recorder import PredictorCall
from .recording import recording
from .retry import check_update, retry_failed, with_failed, without_failed
from .threads import gather
from .writer import MemoryT, Writer

T = TypeVar("T")


@dataclass(frozen=True)
class StepResult(Generic[T]):
    """What one step of a writer returned, which calls it made, what failed, and what it used."""

    value: T
    calls: tuple[PredictorCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    usage: Usage = field(default=Usage(), compare=False)

    def followed_by(self, later: StepResult[Any]) -> StepResult[Any]:
        """Return this step and a later one as one step, with the value of the later one."""
        return StepResult(
            value=later.value,
            calls=self.calls + later.calls,
            failures=self.failures + later.failures,
            usage=self.usage + later.usage,
        )


NO_EXTRACTION: StepResult[Any] = StepResult(None)
"""The extraction of a writer that needs none."""


def record_step(compute: Callable[[], T], keep_completions: bool = False) -> StepResult[T]:
    """Run one step of a writer, and return its value with the calls that it made.

    Args:
        compute: Runs the step and returns its value.
        keep_completions: Whether the texts of the model's answers are kept as they came.
    """
    with recording(keep_completions) as recorder, measure_usage() as tracker:
        value = compute()
    return StepResult(value, tuple(recorder.calls), tuple(recorder.failures), tracker.usage)


def extract_item(writer: Writer[Any], item: Item) -> Any:
    """Return what the writer reads from one item without a memory."""
    return writer.extract(writer.preprocess(item))


def extract_all(writer: Writer[Any], items: Sequence[Item]) -> list[Any]:
    """Return what the writer reads from each item alone; all items are read at the same time.

    Without an `extract` of the writer, the result is None for every item.
    """
    if not writer.needs_extraction:
        return [None] * len(items)
    return gather([partial(extract_item, writer, item) for item in items])


def write_items(writer: Writer[MemoryT], memory: MemoryT, items: Sequence[Item]) -> MemoryT:
    """Return a new memory with further items in it; it is not finalized.

    All items are extracted from at the same time, and then written one after another.
    """
    extractions = extract_all(writer, items)
    for item, extraction in zip(items, extractions, strict=True):
        memory = write_item(writer, memory, item, extraction)
    return memory


def write_history(writer: Writer[MemoryT], items: Sequence[Item]) -> MemoryT:
    """Return the finalized memory of a whole history."""
    memory = write_items(writer, writer.Memory(), items)
    return finalize_memory(writer, memory)


def write_item(
    writer: Writer[MemoryT], memory: MemoryT, item: Item, extraction: Any = None
) -> MemoryT:
    """Return a new memory with one more item in it, after trying its failed items once more.

    Args:
        writer: The writer.
        memory: The memory so far.
        item: The next item.
        extraction: What `extract_item` returned for it; None for a writer without `extract`.
    """
    memory = retry_failed(writer, memory)
    still_failed = memory.failed_items

    # Writers only get memories without failed items.
    update = writer.update(without_failed(memory), writer.preprocess(item), extraction)
    return with_failed(check_update(update, writer), still_failed)


def finalize_memory(writer: Writer[MemoryT], memory: MemoryT) -> MemoryT:
    """Return the memory that questions are asked of, after trying its failed items once more.

    This is the last step of writing a history.
    """
    memory = retry_failed(writer, memory)
    still_failed = memory.failed_items
    if not writer.needs_finalizing:
        return memory

    # Writers only get memories without failed items.
    update = writer.finalize(without_failed(memory))
    return with_failed(check_update(update, writer), still_failed)
