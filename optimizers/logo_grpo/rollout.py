"""Rollouts: a sampling model writes the sessions of a history, and every step is kept.

    memory 0 ── session 1 ──> memory 1 ── session 2 ──> memory 2     `roll_out`: one trajectory
                              memory 1 ── session 2 ──> memory 2'    `rerun`: that session once more

`update` never changes its argument, so the memory before a session is the snapshot that reruns
start from. The adapter asks for no correction here, so that one call is one sample. A writer that
waits for several sessions (PGR's facts) is credited in the session that ends the wait, or at the
end of the history.
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
from ...programs.identity import rollout
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
    before: Memory
    """The memory the session was written into: the snapshot that reruns start from."""
    after: Memory
    calls: tuple[PredictorCall, ...]
    """Calls of the writing predictors, in program order."""


@dataclass(frozen=True)
class Rollout:
    """A trajectory, or one session of it written once more."""

    history: History
    """All sessions that were written up to the end of this rollout."""
    sessions: tuple[SessionRun, ...]
    memory: Memory
    """The finalized memory at the end: what questions are asked of."""
    settle_calls: tuple[PredictorCall, ...] = ()
    """Calls of `finalize`."""

    @property
    def calls(self) -> tuple[PredictorCall, ...]:
        """All calls in order."""
        calls: list[PredictorCall] = []
        for session in self.sessions:
            calls.extend(session.calls)
        return (*calls, *self.settle_calls)


def roll_out(writer: Writer[Any], history: History, name: str) -> Rollout:
    """Write a history under the language model and adapter of the context.

    Rollouts of different names share no cached answer.
    """
    return _write_sessions(writer, writer.Memory(), history.items, history, name)


def rerun(writer: Writer[Any], rollout: Rollout, session: int, name: str) -> Rollout:
    """Write one session of a rollout once more, from the memory that was there before it.

    Args:
        writer: What writes.
        rollout: The rollout to start from.
        session: Index of the session.
        name: Name of the new rollout.

    Returns:
        A rollout of that session alone; its history ends with it.
    """
    past = truncate_history(rollout.history, session + 1)
    before = rollout.sessions[session].before
    return _write_sessions(writer, before, past.items[-1:], past, name)


def truncate_history(history: History, sessions: int) -> History:
    """Return the first sessions of a history; the history itself if it is no longer than that."""
    if sessions >= len(history):
        return history
    return History(id=history.id, items=history.items[:sessions])


def single_attempt(program: MemoryProgram) -> dspy.Adapter:
    """Return a copy of the context's adapter, or else of the program's, that never retries."""
    adapter = copy.copy(program.current_adapter())
    retry_settings = {"corrections": 0, "use_json_adapter_fallback": False}
    for name, value in retry_settings.items():
        if hasattr(adapter, name):
            setattr(adapter, name, value)
    return adapter


def run_parallel(work: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Run independent rollouts at the same time and return their results in order.

    An engine can then batch their calls. With one thread nothing runs at the same time, not even
    the calls within a rollout, so that results do not depend on timing. The first failure, in
    order, is raised; work that has not begun is dropped.
    """
    if not work:
        return []
    if threads < 2:
        with in_order():
            return [run() for run in work]

    workers = min(threads, len(work))
    with ThreadPoolExecutor(workers, thread_name_prefix="mempiler-rollout") as pool:
        futures = [pool.submit(contextvars.copy_context().run, run) for run in work]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write_sessions(
    writer: Writer[Any], before: Memory, items: Sequence[Item], past: History, name: str
) -> Rollout:
    """Write items into the memory before them, finalize it, and keep every step.

    Args:
        writer: What writes.
        before: The memory to start from.
        items: The sessions to write.
        past: All sessions up to the last of `items`.
        name: Name of the rollout.
    """
    with rollout(name):
        memory = without_failed(before)
        sessions: list[SessionRun] = []
        extractions = _extract_all(writer, items)
        for item, extraction in zip(items, extractions, strict=True):
            session = _write_session(writer, memory, item, extraction)
            sessions.append(session)
            memory = session.after

        finalized = record_step(lambda: check_update(writer.finalize(memory), writer).memory, keep_completions=True)
        return Rollout(past, tuple(sessions), finalized.value, finalized.calls)


def _extract_all(writer: Writer[Any], items: Sequence[Item]) -> list[StepResult[Any]]:
    """Extract from all items at the same time, and keep the raw completions."""
    if not writer.needs_extraction:
        return [NO_EXTRACTION] * len(items)
    return gather([partial(_extract, writer, item) for item in items])


def _extract(writer: Writer[Any], item: Item) -> StepResult[Any]:
    return record_step(lambda: extract_item(writer, item), keep_completions=True)


def _write_session(
    writer: Writer[Any], memory: Memory, item: Item, extraction: StepResult[Any]
) -> SessionRun:
    """Write one session; failed turns are not tried again.

    Failed turns are not shown to the answer either: its reward tells how much they mattered.
    """
    preprocessed = writer.preprocess(item)
    updated = record_step(
        lambda: check_update(
            writer.update(memory, preprocessed, extraction.value), writer
        ).memory,
        keep_completions=True,
    )
    calls = extraction.calls + updated.calls
    return SessionRun(item, memory, updated.value, calls)
