"""Folding a history into a memory: prepare all items at once, write them in order, settle.

The order exists once, here. Who folds says by its `Steps` what each step is: the memory cache shares steps among
threads, the queue of a store commits them, rollouts keep what was sampled.

    items ── prepare, all at once ──> write, one after the other ──> settle

What could not be taken into a memory is kept in it as it was said, and tried again in smaller pieces: with the next
item (`take`), and before the memory is settled (`close`). A writer says what it could not take in by
`memory.left(item, turns)`. It sees memories of which nothing is unwritten, so it cannot lose what was left before.
Rollouts of reinforcement learning call `write` and `settle` themselves: there, what an action failed to do is to be
seen in its reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..engines.spending import Spending, taking
from ..memory.memory import Unwritten
from ..records import Failure, Item
from .gather import gather
from .method import Writer
from .recording import Call, recording

S = TypeVar("S")

TRIES = 2
"""How often turns are tried without being asked for: as they come, and once more in halves."""


@dataclass(frozen=True)
class Performed:
    """One step of a writer that was made: what it returned, what it asked, what failed, what it took."""

    value: Any = None
    calls: tuple[Call, ...] = ()
    failures: tuple[Failure, ...] = ()
    taken: Spending = field(default=Spending(), compare=False)
    error: Exception | None = None
    """Why it has no value, where whoever takes the step goes on without it."""

    def then(self, other: Performed) -> Performed:
        """Both steps as one, with the value of the later."""
        taken = self.taken + other.taken
        return Performed(other.value, self.calls + other.calls, self.failures + other.failures, taken)


NOTHING = Performed()


class Steps(Protocol, Generic[S]):
    """How the steps of a fold are taken; `S` is what is carried from one item to the next."""

    writer: Writer

    def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
        """Does what does not depend on the memory, for all items at once."""
        ...

    def write(self, state: S, item: Item, prepared: Performed) -> S:
        """Takes one item in."""
        ...

    def settle(self, state: S) -> S:
        """Ends the history."""
        ...


class PlainSteps:
    """Steps over a bare memory: no cache, no store, nothing kept but the memory.

    Args:
        writer: Whose steps are taken.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
        return gather([lambda item=item: Performed(self.writer.prepare(item)) for item in items])

    def write(self, state: Any, item: Item, prepared: Performed) -> Any:
        return take(self.writer, state, item, prepared.value)

    def settle(self, state: Any) -> Any:
        return close(self.writer, state)


def fold(items: Sequence[Item], state: S, steps: Steps[S], settle: bool = True) -> S:
    """Takes items into what was there before.

    Args:
        items: In time order.
        state: What was there before.
        steps: How each step is taken.
        settle: Whether the past ends with the last item.
    """
    prepared = steps.prepare(items) if steps.writer.prepares and items else [NOTHING] * len(items)
    for item, ready in zip(items, prepared, strict=True):
        state = steps.write(state, item, ready)
    return steps.settle(state) if settle else state


def perform(work: Callable[[], Any], raw: bool = False) -> Performed:
    """Takes one step of a writer and keeps what it asked, what failed and what it took."""
    with recording(raw) as record, taking() as step:
        value = work()
    return Performed(value, tuple(record.calls), tuple(record.failures), step.taken)


def take(writer: Writer, memory: Any, item: Item, prepared: Any = None) -> Any:
    """The memory with one more item, after what could not be taken in before was tried again.

    Args:
        writer: Whose `write` is called.
        memory: The memory so far.
        item: The next item in time order.
        prepared: What `prepare(item)` returned.
    """
    memory = again(writer, memory)
    return _with(writer.write(bare(memory), item, prepared), memory.unwritten)


def close(writer: Writer, memory: Any) -> Any:
    """The settled memory, after what could not be taken in before was tried again."""
    memory = again(writer, memory)
    return _with(writer.settle(bare(memory)), memory.unwritten) if writer.settles else memory


def again(writer: Writer, memory: Any, most: int = TRIES) -> Any:
    """The memory after one more try of what could not be taken in, in halves.

    Args:
        writer: Whose `write_piece` is called.
        memory: The memory so far.
        most: Tries after which turns are left alone.
    """
    kept = tuple(each for each in memory.unwritten if each.tries >= most)
    if len(kept) == len(memory.unwritten):
        return memory
    waiting, memory = [each for each in memory.unwritten if each.tries < most], bare(memory)
    for each in waiting:
        for piece in each.pieces():
            after = writer.write_piece(memory, piece)
            kept += tuple(one.model_copy(update={"tries": each.tries + 1}) for one in after.unwritten)
            memory = bare(after)
    return memory.model_copy(update={"unwritten": kept})


def bare(memory: Any) -> Any:
    """What a writer is given: the memory as if everything had been taken in."""
    return memory.model_copy(update={"unwritten": ()}) if memory.unwritten else memory


def _with(memory: Any, before: tuple[Unwritten, ...]) -> Any:
    """A writer's result, with what had been left before it."""
    return memory.model_copy(update={"unwritten": (*before, *memory.unwritten)}) if before else memory
