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
from typing import Any, NamedTuple

import dspy

from ..records import Context
from .cache import CachedMemory, WriteCall
from .identity import jsonable
from .writer import Writer

REPLAY_LIMIT = 8
"""Most calls that are replayed per predictor and question."""


class _CallPlace(NamedTuple):
    """Where a call stands among all write calls of a memory. Places compare in writing order."""

    memory_position: int
    call_number: int


def replay_write_calls(
    writer: Writer[Any], cached: CachedMemory, recalled: Context, evidence_ids: Sequence[str]
) -> None:
    """Add to DSPy's current trace the calls that wrote what the memory knows about a question.

    An optimizer of writing prompts learns from the trace of each question. But a memory is written
    once for many questions and outside of their traces, so its calls have to be added.

    Args:
        writer: The writer; the calls are traced as calls of its predictors.
        cached: The memory that the question was asked of.
        recalled: What was recalled for the question.
        evidence_ids: Ids of the turns that hold the answer. Only calls that saw one of these turns
            are added. If no ids are known, the turns that the recalled hits come from are used,
            which may be many more.
    """
    # An optimizer sets a trace for its own runs. DSPy also has a trace for the whole process, which
    # is current in a plain evaluation; nobody learns from it.
    trace = dspy.settings.trace
    if trace is None or trace is _process_wide_trace():
        return

    turn_ids = evidence_ids or recalled.sources
    calls = _relevant_calls(cached, turn_ids)

    predictors = writer.predictors_below()
    room = max(0, dspy.settings.max_trace_size - len(trace))
    for call in calls[:room]:
        # A copy of the inputs, since DSPy's SIMBA shortens them in place.
        trace.append((predictors[call.predictor], dict(call.inputs), call.prediction))


def inputs_contain_turn(inputs: dict[str, Any], turn_id: str) -> bool:
    """Return whether a call was asked about a turn: whether its inputs contain the turn's id.

    Args:
        inputs: The inputs of the call by name.
        turn_id: The id, e.g. "D1:3".
    """
    # An input such as `earlier_turns` is context, and not what the call is asked about.
    relevant_inputs: dict[str, Any] = {}
    for name, value in inputs.items():
        if not name.startswith("earlier"):
            relevant_inputs[name] = value

    # The id is no part of a longer one: "D1:3" is not in "D1:30" or "D1:3:2".
    text = json.dumps(relevant_inputs, default=jsonable, ensure_ascii=False)
    return re.search(rf"(?<![\w:]){re.escape(turn_id)}(?![\w:])", text) is not None


def _process_wide_trace() -> Any:
    """Return the trace of DSPy's settings for the whole process.

    It is read in an empty context, where no `dspy.context` block changes the settings.
    """
    return contextvars.Context().run(lambda: dspy.settings.trace)


def _relevant_calls(cached: CachedMemory, turn_ids: Sequence[str]) -> list[WriteCall]:
    """Return the calls whose inputs contain one of the turns, in writing order.

    At most `REPLAY_LIMIT` calls per predictor are returned. If no call saw any of the turns, the
    last calls that wrote into the memory are returned.

    Args:
        cached: The memory that the calls wrote.
        turn_ids: Ids of the turns, the most important ones first.
    """
    # One memory for each item of the history, as it was after that item.
    memories = cached.ancestors()
    position_of_turn = _positions_of_turns(memories)
    calls_by_place: dict[_CallPlace, WriteCall] = {}
    calls_per_predictor = Counter[str]()
    for turn_id in turn_ids:
        if turn_id not in position_of_turn:
            continue

        # Some writers collect several items before they call a model. So the call that wrote the
        # turn may have been made for a later item than the item of the turn.
        position = _next_with_calls(memories, position_of_turn[turn_id])
        for number, call in enumerate(memories[position].write_calls):
            place = _CallPlace(position, number)
            if place in calls_by_place or calls_per_predictor[call.predictor] >= REPLAY_LIMIT:
                continue
            if inputs_contain_turn(call.inputs, turn_id):
                calls_per_predictor[call.predictor] += 1
                calls_by_place[place] = call

    if not calls_by_place:
        return _last_calls(memories)
    # Places compare by the position of the memory, then by the number of the call.
    return [calls_by_place[place] for place in sorted(calls_by_place)]


def _last_calls(memories: Sequence[CachedMemory]) -> list[WriteCall]:
    """Return the calls of the last memory that took any, at most `REPLAY_LIMIT`."""
    for memory in reversed(memories):
        if memory.write_calls:
            return list(memory.write_calls[-REPLAY_LIMIT:])
    return []


def _positions_of_turns(memories: Sequence[CachedMemory]) -> dict[str, int]:
    """Return for each turn, by its id, the position of the memory after the item of the turn.

    Args:
        memories: The memories after each item of a history, in order.
    """
    positions: dict[str, int] = {}
    for position, memory in enumerate(memories):
        # The empty memory and the finalized one have no item.
        if memory.item is None:
            continue

        # If two items have a turn of the same id, the later one counts.
        for turn in memory.item.turns:
            positions[turn.id] = position
    return positions


def _next_with_calls(memories: Sequence[CachedMemory], start: int) -> int:
    """Return the position of the first memory, from `start` on, that took a call to write.

    Some writers wait for several sessions and then write them together, or when they finalize. So
    the call that wrote a turn may belong to a later item. Without such a memory, `start` is
    returned.
    """
    for position in range(start, len(memories)):
        if memories[position].write_calls:
            return position
    return start
