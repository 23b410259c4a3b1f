"""Show an optimizer the write calls that mattered for a question.

A memory is written once and shared by many questions, outside every optimizer's trace. Optimizers
that learn from traces still have to see the calls that wrote what a question was answered from. So
those calls are appended to the trace of each question, bound to the predictors of the running copy.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dspy

from ..records import Context
from .cache import CachedMemory, WriteCall
from .identity import jsonable
from .writer import Writer

REPLAY_LIMIT = 8
"""Most calls that are replayed per predictor and question."""


def replay_write_calls(
    writer: Writer[Any], cached: CachedMemory, recalled: Context, evidence_ids: Sequence[str]
) -> None:
    """Append the write calls that mattered for a question to the trace of the current context.

    Nothing happens where no optimizer listens: without a trace, or with the trace of the whole
    process that plain evaluation uses.

    Args:
        writer: The writer whose predictors the calls are bound to.
        cached: The memory that the question was asked of.
        recalled: What was recalled for the question.
        evidence_ids: Ids of the gold evidence. If there are any, only calls that saw these turns
            are replayed, since a context may rest on half of all sessions; otherwise the calls
            behind the best hits are.
    """
    trace = dspy.settings.trace
    if trace is None or trace is _process_wide_trace():
        return

    predictors = writer.predictors_below()
    room = max(0, dspy.settings.max_trace_size - len(trace))
    for call in _relevant_calls(cached, evidence_ids or recalled.sources)[:room]:
        # Inputs are copied: SIMBA shortens them in place.
        trace.append((predictors[call.predictor], dict(call.inputs), call.prediction))


def inputs_contain_turn(inputs: dict[str, Any], turn_id: str) -> bool:
    """Return whether a turn id is in the inputs of a call.

    Inputs called `earlier...` are context alone, and do not count.
    """
    relevant_inputs: dict[str, Any] = {}
    for name, value in inputs.items():
        if not name.startswith("earlier"):
            relevant_inputs[name] = value
    text = json.dumps(relevant_inputs, default=jsonable, ensure_ascii=False)
    return re.search(rf"(?<![\w:]){re.escape(turn_id)}(?![\w:])", text) is not None


def _process_wide_trace() -> Any:
    """Return the trace of DSPy's settings for the whole process.

    No `dspy.context` is in force in an empty context.
    """
    return contextvars.Context().run(lambda: dspy.settings.trace)


def _relevant_calls(cached: CachedMemory, turn_ids: Sequence[str]) -> list[WriteCall]:
    """Return the calls that saw one of the turns, in writing order.

    There are at most REPLAY_LIMIT per predictor. Where no call saw a turn, the last calls count.
    """
    memories = cached.ancestors()
    position_of_turn = _positions_of_turns(memories)
    calls_by_place: dict[tuple[int, int], WriteCall] = {}
    calls_per_predictor = Counter[str]()
    for turn_id in turn_ids:
        if turn_id not in position_of_turn:
            continue
        position = _next_with_calls(memories, position_of_turn[turn_id])
        for number, call in enumerate(memories[position].write_calls):
            place = (position, number)
            if place in calls_by_place or calls_per_predictor[call.predictor] >= REPLAY_LIMIT:
                continue
            if inputs_contain_turn(call.inputs, turn_id):
                calls_per_predictor[call.predictor] += 1
                calls_by_place[place] = call

    if calls_by_place:
        return [calls_by_place[place] for place in sorted(calls_by_place)]
    for memory in reversed(memories):
        if memory.write_calls:
            return list(memory.write_calls[-REPLAY_LIMIT:])
    return []


def _positions_of_turns(memories: Sequence[CachedMemory]) -> dict[str, int]:
    """Return by turn id the position of the last memory whose item has the turn."""
    positions: dict[str, int] = {}
    for position, memory in enumerate(memories):
        if memory.item is None:
            continue
        for turn in memory.item.turns:
            positions[turn.id] = position
    return positions


def _next_with_calls(memories: Sequence[CachedMemory], start: int) -> int:
    """Return the position of the first memory from `start` on that took a call, else `start`.

    Writers that wait for several sessions write them with the last one, or when they finalize.
    """
    for position in range(start, len(memories)):
        if memories[position].write_calls:
            return position
    return start
