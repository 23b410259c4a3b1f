"""The call context: for whom calls are made, until when, and who hears of them.

DSPy calls a language model from deep inside a program, so what a call has to know about its
surroundings cannot be passed to it. It stands in one frozen `CallContext`, in the only context
variable of `engines`. The threads of `gather` and the tasks of asyncio see the same one.

    with call_context(caller=("acme", "ada"), deadline=Deadline(30)):
        with measure_usage() as tracker:
            lm("When did Ada move?")      # for ada, within 30 seconds, counted by the tracker
        tracker.usage.calls               # 1

A block changes only the fields that it names. After it, the context is what it was before.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from ..errors import MempilerError
from .usage import Usage, UsageReport, UsageTracker

if TYPE_CHECKING:
    import dspy

    from ..reading.layouts import Layout
    from .call import Call

CallListener = Callable[[Any, Sequence[Any], Sequence[Any]], None]
"""Takes three things of one finished call: its messages (or its prompt, if it has no messages), the
answers as DSPy returns them, and the samples that a local model recorded."""

ChunkCallback = Callable[[str], None]
"""Takes the next piece of an answer's text; it must not block."""


class VectorCache(Protocol):
    """Keep embedding vectors by key, as bytes. It raises nothing, and may keep nothing."""

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the vectors that are there."""
        ...

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Add vectors, or replace them."""
        ...


class Slots(Protocol):
    """Limit how much runs at the same time; `fair_semaphore.FairSemaphore` does."""

    def slot(self) -> AbstractContextManager[None]:
        """Hold a slot for the block, after waiting for it."""
        ...


class CostLimit(Protocol):
    """What a run may spend at most; `limits.Limits` says it."""

    @property
    def max_usd(self) -> float | None:
        """US dollars; None is no limit."""
        ...


class RequestGuard(Protocol):
    """Limit requests; `limits.BudgetGuard` does, and says what each method is for."""

    @property
    def limits(self) -> CostLimit:
        """What may be spent at most."""
        ...

    def slots(self, endpoint: str) -> Slots:
        """Return the slots for requests to an endpoint."""
        ...

    def reserve(self, expected: Usage) -> AbstractContextManager[None]:
        """Reserve what a request may use, for the block."""
        ...

    def admit(self) -> None:
        """Count a request that is about to be made, or refuse it."""
        ...

    def record_success(self, tokens: int, cost: float | None) -> None:
        """Add what an answered request used."""
        ...

    def record_failure(self, error: Exception) -> None:
        """Count a request that failed."""
        ...

    def stop(self, error: MempilerError) -> None:
        """Refuse all further requests."""
        ...


class UsageCounter(Protocol):
    """Count what is used; `meter.Meter` does."""

    def include(self, usage: UsageReport) -> None:
        """Add what was used."""
        ...


@dataclass(frozen=True)
class Accounting:
    """Who counts the requests of embedders, and may refuse them."""

    meter: UsageCounter
    guard: RequestGuard


class Deadline:
    """The moment when work must have ended, down to the calls deep inside it.

    If it is made under another deadline, it passes no later than that one.

    Args:
        seconds: Time from now on.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = time.monotonic() + seconds
        self._outer = current_context().deadline

    @property
    def remaining(self) -> float:
        """Seconds that are left; never below 0."""
        remaining = max(0.0, self._end - time.monotonic())
        if self._outer is None:
            return remaining
        return min(remaining, self._outer.remaining)

    @property
    def passed(self) -> bool:
        """Whether the time is over, or nobody waits for the work any more."""
        return self.remaining <= 0

    def cancel(self) -> None:
        """Let the deadline pass now, because nobody waits for the work any more."""
        self._end = -math.inf


@dataclass(frozen=True)
class AdapterCall:
    """What an adapter was called with, and made the prompt of a model call from."""

    signature: type[dspy.Signature]
    demos: Sequence[Mapping[str, Any]]
    """Values by the name of their field; some may be missing."""
    inputs: Mapping[str, Any]
    """Values by the name of their field."""
    layout: Layout
    """How the prompt asks for the outputs."""
    lm: object
    """The model that the adapter asks. It may ask other models for its answer, which are asked
    something else."""


@dataclass(frozen=True)
class CallContext:
    """What calls of language models and embedders know about the work that makes them."""

    caller: Hashable = None
    """For whom the work is done, e.g. a tuple that begins with the tenant. Callers take turns."""
    deadline: Deadline | None = None
    """When the work must have ended; None if there is no limit."""
    usage: UsageTracker | None = None
    """What counts the usage of calls: the innermost `measure_usage` block."""
    vector_cache: VectorCache | None = None
    """Where vectors of the caller's texts are kept; None means the file that all texts share."""
    slots: Slots | None = None
    """Where embedding and reranking wait for their turn; None if they do not wait."""
    accounting: Accounting | None = None
    """Who limits and counts requests of embedders that have no accounting of their own."""
    on_text: Callable[[], ChunkCallback] | None = None
    """Called when an attempt of a call begins, in the thread of the endpoints. What it returns gets
    the text of the answer while it comes. Models of this process and caches send no text."""
    on_call: CallListener | None = None
    """Called after each call."""
    running_call: Call | None = None
    """The call that a metered model is making; a local model adds its samples to it."""
    adapter_call: AdapterCall | None = None
    """The call of one of our adapters that asks the model; the offline engine answers from it. A
    `MeteredLM` takes it out of the context if the adapter asks another model."""


class ContextChanges(TypedDict, total=False):
    """The fields of a `CallContext` that a block changes."""

    caller: Hashable
    deadline: Deadline | None
    usage: UsageTracker | None
    vector_cache: VectorCache | None
    slots: Slots | None
    accounting: Accounting | None
    on_text: Callable[[], ChunkCallback] | None
    on_call: CallListener | None
    running_call: Call | None
    adapter_call: AdapterCall | None


_OUTSIDE = CallContext()
"""The context of code in no `call_context` block."""

_current: contextvars.ContextVar[CallContext] = contextvars.ContextVar(
    "mempiler_call_context", default=_OUTSIDE
)


def current_context() -> CallContext:
    """Return the call context of the running code."""
    return _current.get()


def adapter_call_to(lm: object) -> AdapterCall | None:
    """Return the running call of an adapter if it asks this model; None if it asks another one."""
    adapter_call = current_context().adapter_call
    if adapter_call is None or adapter_call.lm is not lm:
        return None
    return adapter_call


@contextmanager
def call_context(**changes: Unpack[ContextChanges]) -> Generator[None]:
    """Change some fields of the call context for the block; the others stay as they are."""
    token = _current.set(replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def measure_usage() -> Generator[UsageTracker]:
    """Count the usage of the calls in the block.

    Calls in a `measure_usage` block inside it are counted there alone.
    """
    tracker = UsageTracker()
    with call_context(usage=tracker):
        yield tracker
        tracker.ended = time.perf_counter()


@contextmanager
def measure_part() -> Generator[UsageTracker]:
    """Count the usage of the calls in the block, there and in the `measure_usage` block around it.

    It is counted even if the block raises an error, since work that fails has used something too.
    """
    outer_tracker = current_context().usage
    with measure_usage() as tracker:
        try:
            yield tracker
        finally:
            # The outer tracker sees nothing of an inner block, so the usage of its calls is passed
            # on to it. The seconds of the block are not: the clock of the outer tracker has counted
            # them already.
            if outer_tracker is not None:
                outer_tracker.calls.append(sum(tracker.calls, Usage()))


def record_usage(usage: Usage) -> None:
    """Add usage to the innermost `measure_usage` block; outside of all blocks, do nothing.

    It may be the usage of a call, or what the work used in another process or an earlier run.
    """
    tracker = current_context().usage
    if tracker is not None:
        tracker.calls.append(usage)
