"""The LM steps that wrote a memory, and which of them an optimizer should see for one question.

Optimizers learn from traces, but a memory from the cache was written in another call. Every node of the cache keeps
its steps, and `replay` puts those of the items that mattered for a question into the trace of the running program.
Replaying all of them would teach the wrong lesson: optimizers keep one random or last call per predictor, which would
hardly ever be the one that saw the evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.dsp.utils.settings import main_thread_config

from ..engines.taken import Taken
from ..memory.memory import Memory
from ..records import Failure, Item
from .halves import is_context
from .identity import jsonable
from .method import Writer

REPLAY_LIMIT = 8
"""Most steps that are replayed per predictor and question."""


@dataclass(frozen=True)
class Step:
    """One LM call of a writing predictor."""

    predictor: str
    """Its path below the writer."""
    inputs: dict[str, Any]
    prediction: dspy.Prediction


@dataclass(frozen=True)
class Node:
    """The memory after one item of a history."""

    memory: Memory
    item: Item | None = None
    steps: tuple[Step, ...] = ()
    failures: tuple[Failure, ...] = ()
    parent: Node | None = None
    version: str = ""
    """Names the memory, where it can be made again from what is stored without a call; "" where it cannot."""
    taken: Taken = field(default=Taken(), compare=False)
    """What writing it took, beyond the node before it."""

    def chain(self) -> list[Node]:
        """The nodes from the first item to this one."""
        node = self
        nodes: list[Node] = []
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


def replay(writer: Writer, node: Node, recalled: Sequence[str], focus: Sequence[str]) -> None:
    """Puts the write steps that mattered for a question into an optimizer's trace.

    Nothing happens where no optimizer listens: without a trace, or with the process-wide one that plain evaluation
    uses. With gold evidence (`focus`) only the steps that saw it are replayed: the recalled context may hold half of
    all sessions, and optimizers keep one call per predictor. Otherwise the steps behind the best-ranked hits are.

    Args:
        writer: That of the running program; steps are bound to its own predictors.
        node: The memory that was recalled from.
        recalled: Ids of the turns the recalled hits came from, best first.
        focus: Ids of the gold evidence turns, if known.
    """
    trace = dspy.settings.trace
    if trace is None or trace is main_thread_config["trace"]:
        return
    steps = _relevant(node, list(focus) or list(recalled))
    writers = writer.predictors_below()
    room = max(0, dspy.settings.max_trace_size - len(trace))
    # Inputs are copied: SIMBA shortens them in place.
    entries = [(writers[step.predictor], dict(step.inputs), step.prediction) for step in steps]
    trace.extend(entries[:room])


def _relevant(node: Node, wanted: list[str]) -> list[Step]:
    """At most REPLAY_LIMIT steps per predictor that saw a wanted turn, in writing order; else of the last item."""
    chosen: list[tuple[int, int, Step]] = []
    taken: dict[str, int] = {}
    nodes = node.chain()
    where = {turn.id: n for n, part in enumerate(nodes) if part.item for turn in part.item.turns}
    for turn in wanted:
        if turn not in where:
            continue
        # Methods that wait for several sessions write them with the last one, or when they settle.
        n = next((n for n in range(where[turn], len(nodes)) if nodes[n].steps), where[turn])
        for m, step in enumerate(nodes[n].steps):
            fresh = all((n, m) != (a, b) for a, b, _ in chosen)
            if fresh and taken.get(step.predictor, 0) < REPLAY_LIMIT and saw(step.inputs, turn):
                taken[step.predictor] = taken.get(step.predictor, 0) + 1
                chosen.append((n, m, step))
    if not chosen:
        return list(next((part.steps for part in reversed(nodes) if part.steps), ()))[-REPLAY_LIMIT:]
    return [step for _, _, step in sorted(chosen, key=lambda entry: entry[:2])]


def saw(inputs: dict[str, Any], turn: str) -> bool:
    """Whether a turn id is anywhere in the inputs of a call that are more than context."""
    worked = {name: value for name, value in inputs.items() if not is_context(name)}
    text = json.dumps(worked, default=jsonable, ensure_ascii=False)
    return re.search(rf"(?<![\w:]){re.escape(turn)}(?![\w:])", text) is not None
