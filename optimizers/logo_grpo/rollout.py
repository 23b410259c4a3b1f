"""Rollouts: a writer takes the sessions of a history in under a sampling model, and every step of it is kept.

    memory 0 ── session 1 ──> memory 1 ── session 2 ──> memory 2 ...      `roll_out`: one whole trajectory
                              memory 1 ── session 2 ──> memory 2'         `rerun`: that session once more

`update` never changes its argument, so the memory before a session is its own snapshot. An adapter asks for no
correction here, so that one call is one sample. A writer that waits for several sessions (PGR's facts) is credited in
the session that ends the wait, or at the end of the history.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import dspy

from ...memory.memory import Memory
from ...programs.fold import StepResult, Steps, run_step, without_failed, write_items
from ...programs.identity import rollout
from ...programs.method import Writer
from ...programs.program import MemoryProgram
from ...programs.recording import PredictorCall
from ...programs.threads import in_order
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
    """The sessions that count as past: all that were written up to the end of this rollout."""
    sessions: tuple[SessionRun, ...]
    memory: Memory
    """The settled memory at the end: what questions are asked of."""
    settle_calls: tuple[PredictorCall, ...] = ()
    """Calls of `finalize`."""

    @property
    def calls(self) -> tuple[PredictorCall, ...]:
        """All calls in order."""
        return (*(call for session in self.sessions for call in session.calls), *self.settle_calls)


def roll_out(writer: Writer, history: History, name: str) -> Rollout:
    """Writes a history, under the language model and adapter of the context; rollouts of other names share no cache."""
    return _sampled(writer, writer.Memory(), history.items, history, name)


def rerun(writer: Writer, rollout: Rollout, session: int, name: str) -> Rollout:
    """Writes one session of a rollout, by its index, once more, from the memory that was there before it.

    The rollout that is returned is of that session alone; its history ends with it.
    """
    past = truncate_history(rollout.history, session + 1)
    return _sampled(writer, rollout.sessions[session].before, past.items[-1:], past, name)


def truncate_history(history: History, sessions: int) -> History:
    """The first sessions of a history; the history itself where it is no longer than that."""
    return history if sessions >= len(history) else History(id=history.id, items=history.items[:sessions])


def single_attempt(program: MemoryProgram) -> dspy.Adapter:
    """The adapter of the context, or else the program's, without retries."""
    chosen = copy.copy(program.current_adapter())
    for name, value in (("corrections", 0), ("use_json_adapter_fallback", False)):
        if hasattr(chosen, name):
            setattr(chosen, name, value)
    return chosen


def run_parallel(work: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Runs independent rollouts at the same time, so that an engine can batch their calls; results in order.

    With one thread nothing runs at the same time, the calls within a rollout neither: then what is computed does not
    depend on timing at all. The first failure, in order, is raised; work that has not begun is dropped.
    """
    if not work:
        return []
    if threads < 2:
        with in_order():
            return [each() for each in work]
    with ThreadPoolExecutor(min(threads, len(work)), thread_name_prefix="mempiler-rollout") as pool:
        futures = [pool.submit(contextvars.copy_context().run, each) for each in work]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _sampled(writer: Writer, before: Memory, items: Sequence[Item], past: History, name: str) -> Rollout:
    with rollout(name):
        return write_items(items, Rollout(past, (), before), _SampledSteps(writer))


class _SampledSteps(Steps):
    """Steps whose calls are kept with their raw completions, and the memory before each."""

    def run(self, work: Callable[[], Any]) -> StepResult:
        return run_step(work, raw=True)

    def write(self, state: Rollout, item: Item, extraction: StepResult) -> Rollout:
        done = extraction.merge(
            self.run(lambda: self.writer.update(state.memory, self.writer.preprocess(item), extraction.value))
        )
        # What an action failed to take in is not shown to the answer: its reward is to tell.
        memory = without_failed(done.value)
        run = SessionRun(item, state.memory, memory, done.calls)
        return replace(state, sessions=(*state.sessions, run), memory=memory)

    def finalize(self, state: Rollout) -> Rollout:
        done = self.run(lambda: self.writer.finalize(state.memory))
        return replace(state, memory=without_failed(done.value), settle_calls=done.calls)
