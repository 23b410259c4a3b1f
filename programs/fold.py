"""Folding a history into a memory: prepare all items at once, write them in order, settle.

What could not be taken into a memory is kept in it as it was said (`memory.left`), and tried again in halves: with the
next item, and before the memory settles. A writer sees memories of which nothing is unwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engines.spending import Spending, measure_usage
from ..memory.memory import Unwritten
from ..records import Failure, Item
from .method import Writer
from .recording import Call, recording
from .threads import gather

TRIES = 2
"""How often turns are tried without being asked for: as they come, and once more in halves."""


@dataclass(frozen=True)
class StepResult:
    """One step of a writer that was made: what it returned, what it asked, what failed, what it took."""

    value: Any = None
    calls: tuple[Call, ...] = ()
    failures: tuple[Failure, ...] = ()
    taken: Spending = field(default=Spending(), compare=False)
    error: Exception | None = None
    """Why it has no value, where whoever takes the step goes on without it."""

    def then(self, other: StepResult) -> StepResult:
        """Both steps as one, with the value of the later."""
        taken = self.taken + other.taken
        return StepResult(other.value, self.calls + other.calls, self.failures + other.failures, taken)


NOTHING = StepResult()


class Steps:
    """How the steps of a fold are taken: here over a bare memory, of which nothing else is kept.

    Whoever carries something else from one item to the next derives from it.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def step(self, work: Callable[[], Any]) -> StepResult:
        """Takes one step of the writer."""
        return StepResult(work())

    def prepare(self, items: Sequence[Item]) -> Sequence[StepResult]:
        """Does what does not depend on the memory, for all items at once."""
        return gather([lambda item=item: self.ready(item) for item in items])

    def ready(self, item: Item) -> StepResult:
        """Does it for one item."""
        return self.step(lambda: self.writer.prepare(self.writer.given(item)))

    def write(self, state: Any, item: Item, prepared: StepResult) -> Any:
        """Takes one item in."""
        return take(self.writer, state, item, prepared.value)

    def settle(self, state: Any) -> Any:
        """Ends the history."""
        return close(self.writer, state)


def fold(items: Sequence[Item], state: Any, steps: Steps, settle: bool = True) -> Any:
    """Takes items, in time order, into what was there before; `settle` says whether the past ends with the last."""
    prepared = steps.prepare(items) if steps.writer.prepares and items else [NOTHING] * len(items)
    for item, ready in zip(items, prepared, strict=True):
        state = steps.write(state, item, ready)
    return steps.settle(state) if settle else state


def run_step(work: Callable[[], Any], raw: bool = False) -> StepResult:
    """Takes one step of a writer and keeps what it asked, what failed and what it took."""
    with recording(raw) as record, measure_usage() as step:
        value = work()
    return StepResult(value, tuple(record.calls), tuple(record.failures), step.taken)


def take(writer: Writer, memory: Any, item: Item, prepared: Any = None) -> Any:
    """The memory with one more item, after what could not be taken in before was tried again."""
    if not memory.unwritten:
        return writer.write(memory, writer.given(item), prepared)
    memory = again(writer, memory)
    return _with(writer.write(bare(memory), writer.given(item), prepared), memory.unwritten)


def close(writer: Writer, memory: Any) -> Any:
    """The settled memory, after what could not be taken in before was tried again."""
    memory = again(writer, memory)
    return _with(writer.settle(bare(memory)), memory.unwritten) if writer.settles else memory


def again(writer: Writer, memory: Any, most: int = TRIES) -> Any:
    """The memory after one more try, in halves, of what could not be taken in; not of what had `most` tries."""
    kept = tuple(each for each in memory.unwritten if each.tries >= most)
    if len(kept) == len(memory.unwritten):
        return memory
    waiting, memory = [each for each in memory.unwritten if each.tries < most], bare(memory)
    for each in waiting:
        for piece in each.pieces():
            after = writer.write_piece(memory, writer.given(piece))
            kept += tuple(one.model_copy(update={"tries": each.tries + 1}) for one in after.unwritten)
            memory = bare(after)
    return memory.model_copy(update={"unwritten": kept})


def bare(memory: Any) -> Any:
    """What a writer is given: the memory as if everything had been taken in."""
    return memory.model_copy(update={"unwritten": ()}) if memory.unwritten else memory


def _with(memory: Any, before: tuple[Unwritten, ...]) -> Any:
    return memory.model_copy(update={"unwritten": (*before, *memory.unwritten)}) if before else memory
