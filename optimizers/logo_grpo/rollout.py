"""Rollouts: a method writes the sessions of a history under a sampling model, and every step of it is kept.

    memory 0 ── session 1 ──> memory 1 ── session 2 ──> memory 2 ...      `roll_out`: one whole trajectory
                              memory 1 ── session 2 ──> memory 2'         `rerun`: that session once more

`write` never changes its argument, so the memory before a session is its own snapshot: a rerun starts from the very
object, and nothing that one rollout does can reach another one. What needs no memory (`prepare`) is sampled too, anew
in every rollout and rerun.

Limits: an adapter asks for no correction here, so that one call is one sample. A method that waits for several sessions
(PGR's fact store) acts in the session that ends the wait, or when the history ends; such calls are credited there.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import dspy
from pydantic import BaseModel

from ...programs.adapter import adapter as make_adapter
from ...programs.gather import gather, in_order
from ...programs.keys import rollout
from ...programs.method import Method, collect_failures
from ...programs.program import MemoryProgram
from ...programs.recording import Call, Capture, recording
from ...records import History, Item

T = TypeVar("T")


@dataclass(frozen=True)
class SessionRun:
    """One session of a rollout."""

    item: Item
    before: BaseModel
    """The memory the session was written into: the snapshot that reruns start from."""
    after: BaseModel
    calls: tuple[Call, ...]
    """Calls of the writing predictors, in program order."""


@dataclass(frozen=True)
class Rollout:
    """A trajectory, or one session of it written once more."""

    history: History
    """The sessions that count as past: all that were written up to the end of this rollout."""
    sessions: tuple[SessionRun, ...]
    memory: BaseModel
    """The settled memory at the end: what questions are asked of."""
    last: tuple[Call, ...] = ()
    """Calls of `settle`."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls in order."""
        return (*(call for session in self.sessions for call in session.calls), *self.last)


def roll_out(method: Method, history: History, name: str, capture: Capture = lambda: nullcontext([])) -> Rollout:
    """Writes a history, under the language model and adapter of the context.

    Args:
        method: Writes; the one beneath a retrieval policy.
        history: The sessions of the horizon.
        name: Tells the rollout from its siblings: nothing is shared between names.
        capture: Opens the engine's record of raw completions.

    Returns:
        The trajectory with the memory before every session.
    """
    with rollout(name), collect_failures():
        prepared = _prepared(method, history.items, capture)
        memory, sessions = method.Memory(), []
        for item, (value, calls) in zip(history.items, prepared, strict=True):
            run = _write(method, memory, item, value, calls, capture)
            sessions.append(run)
            memory = run.after
        settled, last = _settle(method, memory, capture)
    return Rollout(history, tuple(sessions), settled, last)


def rerun(
    method: Method, taken: Rollout, session: int, name: str, capture: Capture = lambda: nullcontext([])
) -> Rollout:
    """Writes one session of a rollout once more, from the memory that was there before it.

    Args:
        method: As in `roll_out`.
        taken: The rollout whose snapshot is used.
        session: Index of the session.
        name: Tells the rerun from all others.
        capture: As in `roll_out`.

    Returns:
        A rollout of that session alone; its history ends with it.
    """
    before, item = taken.sessions[session].before, taken.sessions[session].item
    with rollout(name), collect_failures():
        [(value, calls)] = _prepared(method, [item], capture)
        run = _write(method, before, item, value, calls, capture)
        settled, last = _settle(method, run.after, capture)
    return Rollout(head(taken.history, session + 1), (run,), settled, last)


def head(history: History, sessions: int) -> History:
    """The first sessions of a history; the history itself where it is no longer than that."""
    return history if sessions >= len(history) else History(id=history.id, items=history.items[:sessions])


def single_attempt(program: MemoryProgram) -> dspy.Adapter:
    """The adapter of the context, or else the program's, with nothing that asks a model a second time."""
    chosen = copy.copy(dspy.settings.adapter or make_adapter(program.adapter))
    for name, value in (("corrections", 0), ("use_json_adapter_fallback", False)):
        if hasattr(chosen, name):
            setattr(chosen, name, value)
    return chosen


def together(work: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Runs independent rollouts at the same time, so that an engine can batch their calls; results in order.

    With one thread nothing runs at the same time, the calls within a rollout neither: then what is computed does not
    depend on timing at all.

    Raises:
        Exception: The first failure, in order; work that has not begun is dropped.
    """
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


def _prepared(method: Method, items: Sequence[Item], capture: Capture) -> list[tuple[Any, list[Call]]]:
    """What `prepare` makes of every item, with its calls; all items at once."""
    if type(method).prepare is Method.prepare:
        return [(None, []) for _ in items]

    def one(item: Item) -> tuple[Any, list[Call]]:
        with recording(capture) as calls:
            value = method.prepare(item)
        return value, calls

    return gather([lambda item=item: one(item) for item in items])


def _write(
    method: Method, memory: BaseModel, item: Item, prepared: Any, calls: Sequence[Call], capture: Capture
) -> SessionRun:
    with recording(capture) as own:
        after = method.write(memory, item, prepared)
    return SessionRun(item, memory, after, (*calls, *own))


def _settle(method: Method, memory: BaseModel, capture: Capture) -> tuple[BaseModel, tuple[Call, ...]]:
    with recording(capture) as calls:
        settled = method.settle(memory)
    return settled, tuple(calls)
