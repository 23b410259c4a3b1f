"""A teacher of the world of dependent facts: what `memory_teacher` is for independent ones.

    I plan on cat as my pet              ──> fact "Ada plan cat"        ──> INSERT "Ada plan cat"
    my pet is now as planned             ──> fact "Ada pet plan"        ──> UPDATE to the value of the plan
    now I have the same pet as Ada       ──> fact "Ben pet like Ada"    ──> UPDATE to the value of Ada's entry

The operations of the last two need a value that was said sessions ago, so they are right only where the memory is.

Example:
    >>> import random
    >>> from mempiler.data.synthesis.dependent_teacher import teach_facts
    >>> teach_facts("[D1:1] Ada: my pet is now as planned", random.Random(0))[0].fact
    'Ada pet plan'
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

from ...signatures.memory_r2 import Fact, NewFact, Operation, StoredMemory
from . import memory_teacher as plain
from .dependent_env import LIKE, PLAN, plan_note
from .memory_env import NAMES, NOTHING, VALUES, note

Situation = Literal["state", "change", "restate", "retract", "plan", "replan", "drop", "planned", "like"]

ERRORS: Mapping[Situation, float] = {
    "state": 0.2,
    "change": 0.35,
    "restate": 0.3,
    "retract": 0.4,
    "plan": 0.5,
    "replan": 0.5,
    "drop": 0.5,
    "planned": 0.3,
    "like": 0.3,
}
"""How often the poor teacher's operation is wrong, by what the fact means for the memory it meets."""


def teach_facts(dialogue: str, rng: random.Random, missed: float = 0.0, misheard: float = 0.0) -> list[Fact]:
    """The facts of some turns, plans and references among them; arguments as in `memory_teacher.teach_facts`."""
    facts = []
    for line in dialogue.splitlines():
        match = plain.LINE.match(line)
        words = match["text"].split() if match else []
        key = next((word for word in words if word in VALUES), None)
        if match is None or (key is None and PLAN not in words) or rng.random() < missed:
            continue
        value = next((word for word in words if word in VALUES.get(key or "", ())), None)
        if key is not None and value is not None and rng.random() < misheard:
            value = rng.choice([other for other in VALUES[key] if other != value])
        fact = _fact(match["speaker"], key, value, words)
        facts.append(Fact(speaker=match["speaker"], turn_id=match["id"], fact=fact))
    return facts


def teach_operations(
    memories: Sequence[StoredMemory],
    new_facts: Sequence[NewFact],
    rng: random.Random,
    errors: Mapping[Situation, float] | None = None,
) -> list[Operation]:
    """One operation per fact, in their order; arguments as in `memory_teacher.teach_operations`."""
    entries = {memory.memory_id: memory for memory in memories}
    operations = []
    for fact in new_facts:
        related = [entries[id] for id in fact.related_memory_ids if id in entries]
        situation, resolved = _resolved(fact, related)
        right, target = _right(resolved, related)
        op = right
        if rng.random() < (errors or {}).get(situation, 0.0):
            op = rng.choice([each for each in _WRONG[situation] if each != right] or ["NONE"])
        operations.append(plain.operation(op, resolved or fact, target))
    return operations


_WRONG: Mapping[Situation, tuple[str, ...]] = {
    "state": ("NONE",),
    "change": ("INSERT",),
    "restate": ("DELETE", "INSERT"),
    "retract": ("NONE",),
    "plan": ("NONE",),
    "replan": ("INSERT", "NONE"),
    "drop": ("NONE",),
    "planned": ("INSERT", "NONE"),
    "like": ("INSERT", "NONE"),
}


def _fact(speaker: str, key: str | None, value: str | None, words: Sequence[str]) -> str:
    """A turn as the extraction notes it."""
    other = next((word for word in words if word in NAMES), None)
    if key is None or (PLAN in words and value is not None):
        return plan_note(speaker, value)
    if "planned" in words:
        return f"{speaker} {key} {PLAN}"
    return f"{speaker} {key} {LIKE} {other}" if other else note(speaker, key, value)


def _resolved(fact: NewFact, related: Sequence[StoredMemory]) -> tuple[Situation, NewFact | None]:
    """What a fact means, and the fact with the value it refers to; None where the memory does not tell."""
    words = fact.fact.split()
    speaker, key = words[:2]
    if words[2] in (PLAN, LIKE):
        source = _about([speaker, PLAN] if words[2] == PLAN else [words[3], key], related)
        value = source.content.split()[-1] if source else None
        known = fact.model_copy(update={"fact": note(speaker, key, value)}) if value in VALUES[key] else None
        return "planned" if words[2] == PLAN else "like", known
    there = _about(words[:2], related)
    if words[-1] == NOTHING:
        return "drop" if key == PLAN else "retract", fact
    if key == PLAN:
        return "replan" if there else "plan", fact
    same = there is not None and there.content.split()[-1] == words[-1]
    return "restate" if same else "change" if there else "state", fact


def _right(fact: NewFact | None, related: Sequence[StoredMemory]) -> tuple[str, StoredMemory | None]:
    """The operation that a resolved fact calls for, and the entry it is about."""
    if fact is None:
        return "NONE", None
    target, value = _about(fact.fact.split()[:2], related), fact.fact.split()[-1]
    if value == NOTHING:
        return "DELETE", target
    if target is None:
        return "INSERT", None
    return ("NONE" if target.content.split()[-1] == value else "UPDATE"), target


def _about(words: Sequence[str], related: Sequence[StoredMemory]) -> StoredMemory | None:
    """The oldest entry about a speaker's subject or plan."""
    return plain.oldest([memory for memory in related if memory.content.split()[:2] == list(words)])
