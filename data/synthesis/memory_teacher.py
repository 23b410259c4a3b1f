"""A teacher of `memory_env`: the answers of a good and of a poor memory writer at both steps.

A model that is warmed up on the demonstrations of the poor teacher knows the form of every answer
and gets about half of them right. That leaves something for reinforcement learning to improve.

The teacher reads the regular language of the world and its own notes; it does not see the gold
answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
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


class _Note(NamedTuple):
    """What the text of a fact or of an entry says, e.g. "Ada pet cat".

    The note of a retracted fact is "Ada pet none".
    """

    topic: list[str]
    """Speaker and subject: ["Ada", "pet"]."""
    value: str

    @classmethod
    def parse(cls, text: str) -> _Note:
        """Read a note. Facts and entries are such notes, since the teacher has written them all."""
        words = text.split()
        return cls(topic=words[:2], value=words[-1])


class _Comparison(NamedTuple):
    """What a new fact means for the entries of the memory that are related to it."""

    kind: Kind
    target: StoredMemory | None
    """The oldest entry about the same subject: questions are answered by that one."""


# Step 1: extract facts.


def teach_facts(
    dialogue: str, rng: random.Random, missed: float = 0.0, misheard: float = 0.0
) -> list[Fact]:
    """Answer the first step as a teacher: return the facts that a dialogue states.

    "[D2:1] Ada: my pet is cat" gives the fact "Ada pet cat", which is a `_Note`. With `missed` or
    `misheard` above 0 the teacher makes errors on purpose.

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

        # No word of the world has two meanings: the one that is a key of VALUES is the subject.
        words = match["text"].split()
        subject = _first_word_in(VALUES, words)
        if subject is None:
            # The turn is small talk.
            continue
        if rng.random() < missed:
            continue

        value = _first_word_in(VALUES[subject], words)
        if value is None:
            # A sentence with a subject and no value retracts the fact: "I have no pet any more".
            value = NOTHING
        elif rng.random() < misheard:
            other_values = [other for other in VALUES[subject] if other != value]
            value = rng.choice(other_values)

        note = f"{match['speaker']} {subject} {value}"
        facts.append(Fact(speaker=match["speaker"], turn_id=match["id"], fact=note))
    return facts


def _first_word_in(vocabulary: Collection[str], words: Sequence[str]) -> str | None:
    """Return the first of some words that belongs to a vocabulary, or None."""
    for word in words:
        if word in vocabulary:
            return word
    return None


# Step 2: update the memory.


def teach_operations(
    memories: Sequence[StoredMemory],
    new_facts: Sequence[NewFact],
    rng: random.Random,
    error_rates: Mapping[Kind, float] | None = None,
) -> list[Operation]:
    """Answer the second step as a teacher: return one memory operation for each fact, in order.

    Without `error_rates` every operation is right. With them the teacher does something wrong on
    purpose, as a model does that has not learned the task.

    Args:
        memories: The entries of the memory that the model is shown.
        new_facts: The facts, each with the ids of the entries that are related to it.
        rng: Draws the errors.
        error_rates: For each kind of fact, the share of its operations that are wrong.
    """
    entries_by_id = {memory.memory_id: memory for memory in memories}
    operations: list[Operation] = []
    for fact in new_facts:
        related: list[StoredMemory] = []
        for memory_id in fact.related_memory_ids:
            if memory_id in entries_by_id:
                related.append(entries_by_id[memory_id])

        comparison = _compare_with_memory(fact, related)
        error_rate = error_rates.get(comparison.kind, 0.0) if error_rates else 0.0
        if rng.random() < error_rate:
            operations.append(_wrong_operation(fact, comparison, related, rng))
        else:
            name = _RIGHT_OPERATIONS[comparison.kind]
            operations.append(_operation(name, fact, comparison.target))
    return operations


def _wrong_operation(
    fact: NewFact, comparison: _Comparison, related: Sequence[StoredMemory], rng: random.Random
) -> Operation:
    """Draw an operation that is wrong for a fact.

    Args:
        fact: The fact.
        comparison: What the fact means for the memory.
        related: The entries related to the fact, nearest first.
        rng: Draws the operation.
    """
    names = _WRONG_OPERATIONS[comparison.kind]
    if not related:
        # Only the first is possible without an entry.
        names = names[:1]
    name = rng.choice(names)

    target = comparison.target
    if comparison.kind == "state" and related:
        # The teacher takes a new fact for a change of the nearest entry and overwrites that.
        target = related[0]
    return _operation(name, fact, target)


def _operation(name: str, fact: NewFact, target: StoredMemory | None) -> Operation:
    """Return an operation with its fields.

    Args:
        name: "INSERT", "UPDATE", "DELETE" or "NONE".
        fact: The fact that the operation deals with.
        target: The entry to update or delete. If it is missing, nothing can be done, and the
            operation is "NONE".
    """
    needs_target = name in ("UPDATE", "DELETE")
    if needs_target and target is None:
        return _operation("NONE", fact, None)

    values: dict[str, str | None] = {
        "op": name,
        "memory_id": None,
        "content": "",
        "turn_id": fact.turn_id,
    }
    if needs_target and target is not None:
        values["memory_id"] = target.memory_id
    if name in ("INSERT", "UPDATE"):
        values["content"] = fact.fact
    return Operation.model_validate(values)


def _compare_with_memory(fact: NewFact, related: Sequence[StoredMemory]) -> _Comparison:
    """Return whether a fact is new to the memory, changes an entry, repeats it or retracts it."""
    note = _Note.parse(fact.fact)
    same_subject: list[StoredMemory] = []
    for memory in related:
        if _Note.parse(memory.content).topic == note.topic:
            same_subject.append(memory)
    oldest = min(same_subject, key=_entry_number, default=None)

    if note.value == NOTHING:
        return _Comparison("retract", oldest)
    if oldest is None:
        return _Comparison("state", None)
    if _Note.parse(oldest.content).value == note.value:
        return _Comparison("restate", oldest)
    return _Comparison("change", oldest)


def _entry_number(memory: StoredMemory) -> int:
    """Return the number in the id of an entry, "m12": older entries have lower ones."""
    return int(memory.memory_id.lstrip("m"))
