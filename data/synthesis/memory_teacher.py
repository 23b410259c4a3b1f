"""A teacher of `memory_env`: the answers of a good and of a poor memory writer at both steps.

A model that is warmed up on the demonstrations of the poor teacher knows the form of every answer
and gets about half of them right. That leaves something for reinforcement learning to improve.

The teacher reads the regular language of the world and its own notes; it does not see the gold
answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...signatures.memory_r2 import Fact, NewFact, Operation, StoredMemory
from ..memory_env import NOTHING, VALUES, Kind

ERRORS: Mapping[Kind, float] = {
    "state": 0.4,
    "change": 0.55,
    "restate": 0.4,
    "retract": 0.55,
}
"""How often the poor teacher's operation is wrong, by what the fact means for the memory.

No figure is much above one half: what a policy hardly ever tries, no reward can teach it.
"""
MISSED = 0.06
"""How often the poor teacher passes over a fact."""
MISHEARD = 0.04
"""How often the poor teacher notes another value than was said."""

_LINE = re.compile(r"\[(?P<id>[^\]]+)\](?: \([^)]*\))? (?P<speaker>\w+): (?P<text>.*)")
"""A turn as `Turn.line` writes it."""
_RIGHT_OPERATIONS: Mapping[Kind, str] = {
    "state": "INSERT",
    "change": "UPDATE",
    "restate": "NONE",
    "retract": "DELETE",
}
_WRONG_OPERATIONS: Mapping[Kind, tuple[str, ...]] = {
    "state": ("NONE", "UPDATE"),
    "change": ("INSERT",),
    "restate": ("DELETE", "INSERT"),
    "retract": ("NONE",),
}
"""The operations of which the poor teacher draws one; the first needs no related entry."""


class _Situation(NamedTuple):
    """What a fact means for the memory that it meets."""

    kind: Kind
    target: StoredMemory | None
    """The oldest entry about the same subject; a question is answered by that one."""


def teach_facts(
    dialogue: str, rng: random.Random, missed: float = 0.0, misheard: float = 0.0
) -> list[Fact]:
    """Return the facts of some turns, each as speaker, subject and value.

    Args:
        dialogue: Turns, one per line, as `Turn.line` writes them.
        rng: Draws the errors.
        missed: Share of facts that are left out.
        misheard: Share of facts with another value of the same subject.
    """
    facts: list[Fact] = []
    for line in dialogue.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        words = match["text"].split()
        subject = next((word for word in words if word in VALUES), None)
        if subject is None or rng.random() < missed:
            continue

        value = next((word for word in words if word in VALUES[subject]), None)
        if value is not None and rng.random() < misheard:
            other_values = [other for other in VALUES[subject] if other != value]
            value = rng.choice(other_values)

        note = f"{match['speaker']} {subject} {value or NOTHING}"
        facts.append(Fact(speaker=match["speaker"], turn_id=match["id"], fact=note))
    return facts


def teach_operations(
    memories: Sequence[StoredMemory],
    new_facts: Sequence[NewFact],
    rng: random.Random,
    errors: Mapping[Kind, float] | None = None,
) -> list[Operation]:
    """Return one operation for each fact, in their order.

    Args:
        memories: The entries to which the facts are related.
        new_facts: The facts, with the ids of those entries.
        rng: Draws the errors.
        errors: Share of wrong operations by what a fact means; None for none.
    """
    entries_by_id = {memory.memory_id: memory for memory in memories}
    error_rates = errors or {}
    operations: list[Operation] = []
    for fact in new_facts:
        related: list[StoredMemory] = []
        for memory_id in fact.related_memory_ids:
            if memory_id in entries_by_id:
                related.append(entries_by_id[memory_id])

        situation = _situation(fact, related)
        is_wrong = rng.random() < error_rates.get(situation.kind, 0.0)
        name = _RIGHT_OPERATIONS[situation.kind]
        target = situation.target
        if is_wrong:
            name = _wrong_operation(situation.kind, rng, has_related=bool(related))
            if situation.kind == "state" and related:
                # Where the poor teacher takes a new fact for a changed one, it overwrites what is
                # nearest.
                target = related[0]
        operations.append(_operation(name, fact, target))
    return operations


def _wrong_operation(kind: Kind, rng: random.Random, has_related: bool) -> str:
    """Draw a wrong operation; without a related entry only the first is possible."""
    choices = _WRONG_OPERATIONS[kind]
    return rng.choice(choices if has_related else choices[:1])


def _operation(name: str, fact: NewFact, target: StoredMemory | None) -> Operation:
    """Return an operation in full; one that needs an entry where there is none becomes NONE."""
    needs_entry = name in ("UPDATE", "DELETE")
    if needs_entry and target is None:
        name = "NONE"
        needs_entry = False

    memory_id = target.memory_id if target is not None and needs_entry else None
    content = fact.fact if name in ("INSERT", "UPDATE") else ""
    values = {"op": name, "memory_id": memory_id, "content": content, "turn_id": fact.turn_id}
    return Operation.model_validate(values)


def _situation(fact: NewFact, related: Sequence[StoredMemory]) -> _Situation:
    """Return what a fact means for the entries that it meets."""
    speaker_and_subject = fact.fact.split()[:2]
    value = fact.fact.split()[-1]
    same_subject = [
        memory for memory in related if memory.content.split()[:2] == speaker_and_subject
    ]
    target = min(same_subject, key=_age_rank, default=None)

    if value == NOTHING:
        return _Situation("retract", target)
    if target is None:
        return _Situation("state", None)
    if target.content.split()[-1] == value:
        return _Situation("restate", target)
    return _Situation("change", target)


def _age_rank(memory: StoredMemory) -> int:
    """Return the number in the id of an entry: older entries have lower ones."""
    return int(memory.memory_id.lstrip("m"))
