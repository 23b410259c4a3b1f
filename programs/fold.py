"""Folding a history into a memory: prepare all items at once, write them in order, settle.

What could not be taken into a memory is kept in it as it was said (`memory.left`), and tried again in halves: with the
next item, and before the memory settles. A writer sees memories of which nothing is unwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engines.call_context import measure_usage
from ..engines.usage import Usage
from ..memory.memory import FailedItem
from ..records import Failure, Item
from .method import Writer
from .recording import PredictorCall, recording
from .threads import gather

MAX_ATTEMPTS = 2
"""How often turns are tried without being asked for: as they come, and once more in halves."""


@dataclass(frozen=True)
class StepResult:
    """One step of a writer that was made: what it returned, what it asked, what failed, what it took."""

    value: Any = None
    calls: tuple[PredictorCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    usage: Usage = field(default=Usage(), compare=False)
    error: Exception | None = None
    """Why it has no value, where whoever takes the step goes on without it."""

    def merge(self, other: StepResult) -> StepResult:
        """Both steps as one, with the value of the later."""
        taken = self.usage + other.usage
        return StepResult(other.value, self.calls + other.calls, self.failures + other.failures, taken)


NOTHING = StepResult()


class Steps:
    """How the steps of a fold are taken: here over a bare memory, of which nothing else is kept.

    Whoever carries something else from one item to the next derives from it.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def run(self, work: Callable[[], Any]) -> StepResult:
        """Takes one step of the writer."""
        return StepResult(work())

    def extract(self, items: Sequence[Item]) -> Sequence[StepResult]:
        """Does what does not depend on the memory, for all items at once."""
        return gather([lambda item=item: self.extract_one(item) for item in items])

    def extract_one(self, item: Item) -> StepResult:
        """Does it for one item."""
        return self.run(lambda: self.writer.extract(self.writer.preprocess(item)))

    def write(self, state: Any, item: Item, extraction: StepResult) -> Any:
        """Takes one item in."""
        return write_item(self.writer, state, item, extraction.value)

    def finalize(self, state: Any) -> Any:
        """Ends the history."""
        return finalize_memory(self.writer, state)


def write_items(items: Sequence[Item], state: Any, steps: Steps, finalize: bool = True) -> Any:
    """Takes items, in time order, into what was there before; `finalize` says whether the past ends with the last."""
    prepared = steps.extract(items) if steps.writer.needs_extraction and items else [NOTHING] * len(items)
    for item, ready in zip(items, prepared, strict=True):
        state = steps.write(state, item, ready)
    return steps.finalize(state) if finalize else state


def run_step(work: Callable[[], Any], raw: bool = False) -> StepResult:
    """Takes one step of a writer and keeps what it asked, what failed and what it took."""
    with recording(raw) as record, measure_usage() as step:
        value = work()
    return StepResult(value, tuple(record.calls), tuple(record.failures), step.usage)


def write_item(writer: Writer, memory: Any, item: Item, extraction: Any = None) -> Any:
    """The memory with one more item, after what could not be taken in before was tried again."""
    if not memory.failed_items:
        return writer.update(memory, writer.preprocess(item), extraction)
    memory = retry_failed(writer, memory)
    return _with(writer.update(without_failed(memory), writer.preprocess(item), extraction), memory.failed_items)


def finalize_memory(writer: Writer, memory: Any) -> Any:
    """The settled memory, after what could not be taken in before was tried again."""
    memory = retry_failed(writer, memory)
    return _with(writer.finalize(without_failed(memory)), memory.failed_items) if writer.needs_finalizing else memory


def retry_failed(writer: Writer, memory: Any, most: int = MAX_ATTEMPTS) -> Any:
    """The memory after one more try, in halves, of what could not be taken in; not of what had `most` tries."""
    kept = tuple(each for each in memory.failed_items if each.attempts >= most)
    if len(kept) == len(memory.failed_items):
        return memory
    waiting, memory = [each for each in memory.failed_items if each.attempts < most], without_failed(memory)
    for each in waiting:
        for piece in each.halves():
            after = writer.update_with_part(memory, writer.preprocess(piece))
            kept += tuple(one.model_copy(update={"attempts": each.attempts + 1}) for one in after.failed_items)
            memory = without_failed(after)
    return memory.model_copy(update={"failed_items": kept})


def without_failed(memory: Any) -> Any:
    """What a writer is given: the memory as if everything had been taken in."""
    return memory.model_copy(update={"failed_items": ()}) if memory.failed_items else memory


def _with(memory: Any, before: tuple[FailedItem, ...]) -> Any:
    return memory.model_copy(update={"failed_items": (*before, *memory.failed_items)}) if before else memory
