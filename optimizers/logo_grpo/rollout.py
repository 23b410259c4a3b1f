"""Rollouts: the model that learns writes the sessions of a history, and every step is kept.

    M_0 -- session 1 --> M_1 -- session 2 --> M_2      `roll_out`: a rollout of two sessions
                         M_1 -- session 2 --> M_2'     `rerun_session`: its session 2 once more

M_s is the memory after session s. Writing never changes a memory but makes a new one, so M_1 is
itself the snapshot that reruns start from. The paper calls them "local rerollouts" from "the same
intermediate memory state".

A model is not asked again for an answer that cannot be read, so that one call is one sample. A
writer that waits for several sessions (such as PGR's facts) makes its calls in the session that
ends the wait, or at the end of the history.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import dspy

from ...memory.memory import Memory
from ...programs.call_recorder import PredictorCall
from ...programs.identity import rollout as uncached_rollout
from ...programs.program import MemoryProgram
from ...programs.retry import check_update, without_failed
from ...programs.threads import gather, in_order
from ...programs.writer import Writer
from ...programs.writing import NO_EXTRACTION, StepResult, extract_item, record_step
from ...records import History, Item

T = TypeVar("T")


@dataclass(frozen=True)
class SessionRun:
    """One session of a rollout."""

    item: Item
    memory_before: Memory
    """The memory that the session was written into: the snapshot that reruns start from."""
    memory_after: Memory
    calls: tuple[PredictorCall, ...]
    """The calls of the writing predictors, in program order."""


@dataclass(frozen=True)
class Rollout:
    """A conversation that was written from its start, or a single session of it written again."""

    history: History
    """All sessions up to the last one of this rollout."""
    sessions: tuple[SessionRun, ...]
    memory: Memory
    """The finalized memory at the end, which questions are asked of."""
    finalize_calls: tuple[PredictorCall, ...] = ()
    """The calls that finalizing it took."""

    @property
    def calls(self) -> tuple[PredictorCall, ...]:
        """All calls in order."""
        calls: list[PredictorCall] = []
        for session in self.sessions:
            calls.extend(session.calls)
        return (*calls, *self.finalize_calls)


def roll_out(writer: Writer[Any], history: History, name: str) -> Rollout:
    """Write a history with the language model and the adapter of the context.

    Rollouts of different names share no cached answer.
    """
    return _write_sessions(writer, writer.Memory(), history.items, history, name)


def rerun_session(writer: Writer[Any], source: Rollout, session: int, name: str) -> Rollout:
    """Write one session of a rollout once more, from the memory that was there before it.

    Args:
        writer: What writes.
        source: The rollout that has the memory.
        session: The index of the session.
        name: The name of the new rollout.

    Returns:
        A rollout of that session alone; its history ends with it.
    """
    history = truncate_history(source.history, session + 1)
    memory = source.sessions[session].memory_before
    return _write_sessions(writer, memory, history.items[-1:], history, name)


def truncate_history(history: History, sessions: int) -> History:
    """Return the first sessions of a history; the history itself if it is no longer than that."""
    if sessions >= len(history):
        return history
    return History(id=history.id, items=history.items[:sessions])


def single_attempt(program: MemoryProgram) -> dspy.Adapter:
    """Return a copy of the context's adapter, or else of the program's, that never asks again."""
    adapter = copy.copy(program.current_adapter())
    retry_settings = {"corrections": 0, "use_json_adapter_fallback": False}
    for name, value in retry_settings.items():
        if hasattr(adapter, name):
            setattr(adapter, name, value)
    return adapter


def run_parallel(calls: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Run independent rollouts at the same time, and return their results in order.

    An engine can then batch their calls. With one thread nothing runs at the same time, not even
    the calls within a rollout, so results do not depend on timing.

    Raises:
        Exception: The first failure, in order; rollouts that have not begun are dropped.
    """
    if not calls:
        return []
    if threads < 2:
        with in_order():
            return [call() for call in calls]

    workers = min(threads, len(calls))
    with ThreadPoolExecutor(workers, thread_name_prefix="mempiler-rollout") as pool:
        futures = [pool.submit(contextvars.copy_context().run, call) for call in calls]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write_sessions(
    writer: Writer[Any], memory: Memory, items: Sequence[Item], history: History, name: str
) -> Rollout:
    """Write sessions into a memory, finalize it, and keep every step.

    The model is trained on what it wrote, so its raw completions are recorded.

    Args:
        writer: What writes.
        memory: The memory to start from.
        items: The sessions to write.
        history: All sessions up to the last of `items`.
        name: The name of the rollout.
    """
    with uncached_rollout(name):
        # A memory carries the items that could not be written, to try them again. A training does
        # not: what the model failed to write is lost.
        memory = without_failed(memory)

        sessions: list[SessionRun] = []
        # Extracting needs no memory, so all sessions are extracted from at the same time.
        extractions = _extract_all(writer, items)
        for item, extraction in zip(items, extractions, strict=True):
            session = _write_session(writer, memory, item, extraction)
            sessions.append(session)
            memory = session.memory_after

        finalized = record_step(partial(_finalize, writer, memory), keep_completions=True)
        return Rollout(
            history=history,
            sessions=tuple(sessions),
            memory=finalized.value,
            finalize_calls=finalized.calls,
        )


def _extract_all(writer: Writer[Any], items: Sequence[Item]) -> list[StepResult[Any]]:
    """Extract from all sessions at the same time, and keep the raw completions."""
    if not writer.needs_extraction:
        return [NO_EXTRACTION] * len(items)
    return gather([partial(_extract, writer, item) for item in items])


def _extract(writer: Writer[Any], item: Item) -> StepResult[Any]:
    return record_step(lambda: extract_item(writer, item), keep_completions=True)


def _write_session(
    writer: Writer[Any], memory: Memory, item: Item, extraction: StepResult[Any]
) -> SessionRun:
    """Write one session into a memory, and record the calls that wrote it.

    Args:
        writer: What writes.
        memory: The memory before the session.
        item: The session.
        extraction: What the writer extracted from the session before, with its calls.
    """
    update = partial(_update, writer, memory, writer.preprocess(item), extraction.value)
    updated = record_step(update, keep_completions=True)
    return SessionRun(
        item=item,
        memory_before=memory,
        memory_after=updated.value,
        calls=extraction.calls + updated.calls,
    )


def _update(writer: Writer[Any], memory: Memory, item: Item, extraction: Any) -> Memory:
    """Return the memory after an item, without the turns that could not be written."""
    update = check_update(writer.update(memory, item, extraction), writer)
    # Outside of training, the failed turns of an update are kept and tried again. In training they
    # are lost, so that a failure lowers the reward: questions about them are asked all the same.
    return update.memory


def _finalize(writer: Writer[Any], memory: Memory) -> Memory:
    """Return the memory that questions are asked of, without what could not be written."""
    update = check_update(writer.finalize(memory), writer)
    return update.memory
