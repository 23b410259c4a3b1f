"""A teacher of `memory_env`: the outputs of a good and of a poor memory writer at both steps.

Warm-up on a poor teacher's demonstrations gives a model that knows the form of every answer and does about half of it
right: something for reinforcement learning to improve. The teacher reads the world's regular language and its own
notes; it does not see the gold answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from ...signatures.memory_r2 import Fact, NewFact, Operation, StoredMemory
from ..memory_env import NOTHING, VALUES, Kind

ERRORS: Mapping[Kind, float] = {"state": 0.4, "change": 0.55, "restate": 0.4, "retract": 0.55}
"""How often the poor teacher's operation is wrong, by what the fact means for the memory it meets.

Never much above one half: what a policy hardly ever tries, no reward can teach it.
"""
MISSED = 0.06
"""How often the poor teacher passes over a fact."""
MISHEARD = 0.04
"""How often it notes another value than was said."""

_LINE = re.compile(r"\[(?P<id>[^\]]+)\](?: \([^)]*\))? (?P<speaker>\w+): (?P<text>.*)")
_RIGHT: Mapping[Kind, str] = {"state": "INSERT", "change": "UPDATE", "restate": "NONE", "retract": "DELETE"}
_WRONG: Mapping[Kind, tuple[str, ...]] = {
    "state": ("NONE", "UPDATE"),
    "change": ("INSERT",),
    "restate": ("DELETE", "INSERT"),
    "retract": ("NONE",),
}


def teach_facts(dialogue: str, rng: random.Random, missed: float = 0.0, misheard: float = 0.0) -> list[Fact]:
    """The facts of some turns, each as subject, what about it, and value.

    Args:
        dialogue: Turns, one per line, as `Turn.line` writes them.
        rng: Draws the errors.
        missed: Share of facts that are left out.
        misheard: Share of facts with another value of the same subject.
    """
    facts = []
    for match in filter(None, map(_LINE.match, dialogue.splitlines())):
        words = match["text"].split()
        key = next((word for word in words if word in VALUES), None)
        if key is None or rng.random() < missed:
            continue
        value = next((word for word in words if word in VALUES[key]), None)
        if value is not None and rng.random() < misheard:
            value = rng.choice([other for other in VALUES[key] if other != value])
        note = f"{match['speaker']} {key} {value or NOTHING}"
        facts.append(Fact(speaker=match["speaker"], turn_id=match["id"], fact=note))
    return facts


def teach_operations(
    memories: Sequence[StoredMemory],
    new_facts: Sequence[NewFact],
    rng: random.Random,
    errors: Mapping[Kind, float] | None = None,
) -> list[Operation]:
    """One operation per fact, in their order.

    Args:
        memories: The entries that the facts are related to.
        new_facts: The facts, with the ids of those entries.
        rng: Draws the errors.
        errors: Share of wrong operations by situation; None for none.
    """
    entries = {memory.memory_id: memory for memory in memories}
    operations = []
    for fact in new_facts:
        related = [entries[id] for id in fact.related_memory_ids if id in entries]
        situation, target = _situation(fact, related)
        wrong = rng.random() < (errors or {}).get(situation, 0.0)
        choices = _WRONG[situation][: None if related else 1]
        op = rng.choice(choices) if wrong else _RIGHT[situation]
        # Where the poor teacher takes a new fact for a changed one, it overwrites what is nearest.
        aim = related[0] if wrong and situation == "state" and related else target
        operations.append(_operation(op, fact, aim))
    return operations


def _operation(op: str, fact: NewFact, target: StoredMemory | None) -> Operation:
    """The operation in full; one that needs an entry where there is none becomes NONE."""
    if op in ("UPDATE", "DELETE") and target is None:
        op = "NONE"
    id = target.memory_id if target is not None and op in ("UPDATE", "DELETE") else None
    content = fact.fact if op in ("INSERT", "UPDATE") else ""
    return Operation.model_validate({"op": op, "memory_id": id, "content": content, "turn_id": fact.turn_id})


def _situation(fact: NewFact, related: Sequence[StoredMemory]) -> tuple[Kind, StoredMemory | None]:
    """What a fact means for the entries it meets, and the oldest entry about the same subject, which answers."""
    about, value = fact.fact.split()[:2], fact.fact.split()[-1]
    same = [memory for memory in related if memory.content.split()[:2] == about]
    target = min(same, key=lambda memory: int(memory.memory_id.lstrip("m")), default=None)
    if value == NOTHING:
        return "retract", target
    if target is None:
        return "state", None
    return ("restate" if target.content.split()[-1] == value else "change"), target
