"""The oracle's jobs in the world of Memory-R2: extract facts, edit the memory, both at once, answer.

The extractor resolves "it" and "them" by what the speaker named last in the turns that it is shown, and drops what it
cannot resolve. The manager decides by the memories that its prompt names beside a fact: a changed value is an UPDATE, a
count is counted on, what is taken back is a DELETE, and without such a memory a fact is an INSERT, but for one that is
taken back, which is then no fact. The reader prefers what was said last, by its date or, of turns of one session, by
its id, and does not calculate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...grammar.memory_r2 import (
    FACTS,
    NOT_MENTIONED,
    QUESTIONS,
    TURNS,
    Been,
    Fact,
    Fetched,
    Forget,
    Got,
    Have,
    IFetched,
    IGot,
    IGotThem,
    IHave,
    ItIs,
    IWas,
    Line,
    MyOwn,
    Own,
    WhatIs,
    Where,
    Withdrawn,
    lines,
)
from ..offline.prompt import Prompt, parsed
from .engine import UNKNOWN, Job

Moment = tuple[datetime, int]
"""A date, and which turn of that session; 0 for a memory, whose place in its session is not told."""
Dated = tuple[Moment, Fact]


def _extract(prompt: Prompt) -> Mapping[str, Any] | None:
    if "existing_facts" in prompt.inputs:
        return None
    found = _told(prompt.inputs.get("earlier", ""), prompt.inputs.get("dialogue", ""))
    return {"facts": [{"speaker": line.speaker, "turn_id": line.id, "fact": FACTS.say(fact)} for line, fact in found]}


def _told(earlier: str, dialogue: str) -> list[tuple[Line, Fact]]:
    """The facts of a dialogue, with the lines that say them."""
    named: dict[str, str] = {}
    found: list[tuple[Line, Fact]] = []
    before = list(lines(earlier))
    for n, line in enumerate([*before, *lines(dialogue)]):
        for said in TURNS.read(line.text):
            fact = _fact(line.speaker, said, named.get(line.speaker))
            named[line.speaker] = getattr(said, "thing", named.get(line.speaker, ""))
            if fact is not None and n >= len(before):
                found.append((line, fact))
    return found


def _fact(who: str, said: Any, last: str | None) -> Fact | None:
    """What somebody says in the third person; `last` is what they named before."""
    match said:
        case MyOwn(thing, value):
            return Own(who, thing, value)
        case ItIs(value):
            return Own(who, last, value) if last else None
        case IHave(n, thing):
            return Have(who, n, thing)
        case IGot(n, thing):
            return Got(who, n, thing)
        case IGotThem(n):
            return Got(who, n, last) if last else None
        case IFetched(n, thing, whom):
            return Fetched(who, n, thing, whom)
        case IWas(place):
            return Been(who, place)
        case Forget(thing):
            return Withdrawn(who, thing)
        case _:
            return None


def _manage(prompt: Prompt) -> Mapping[str, Any] | None:
    """Operations for new facts, or, where one prompt does both, for what the turns say."""
    memories = {
        each["memory_id"]: fact for each in _records(prompt, "memories") for fact in FACTS.read(each["content"])
    }
    edits = _Edits(memories)
    if "dialogue" in prompt.inputs:
        for line, fact in _told(prompt.inputs.get("earlier", ""), prompt.inputs["dialogue"]):
            edits.take(fact, line.id, memories)
    else:
        for each in _records(prompt, "new_facts"):
            for fact in FACTS.read(each["fact"]):
                edits.take(fact, each["turn_id"], each["related_memory_ids"])
    return {"operations": [*edits.changed.values(), *edits.inserted]}


class _Edits:
    """The operations of one prompt; at most one for each memory."""

    def __init__(self, memories: Mapping[str, Fact]) -> None:
        self.memories = dict(memories)
        self.changed: dict[str, dict[str, Any]] = {}
        self.inserted: list[dict[str, Any]] = []

    def take(self, fact: Fact, turn: str, related: Collection[str]) -> None:
        """Decides what a fact calls for, given the memories that are related to it."""
        shown = {id: self.memories[id] for id in related if id in self.memories}
        if fact in shown.values():
            return
        id, now = self._instead(fact, shown)
        operation = {"speaker": fact.speaker, "turn_id": turn}
        if isinstance(fact, Withdrawn):
            if id:
                del self.memories[id]
                self.changed[id] = {**operation, "op": "DELETE", "memory_id": id, "content": ""}
        elif id:
            self.memories[id] = now
            self.changed[id] = {**operation, "op": "UPDATE", "memory_id": id, "content": FACTS.say(now)}
        else:
            self.inserted.append({**operation, "op": "INSERT", "memory_id": None, "content": FACTS.say(fact)})

    def _instead(self, fact: Fact, shown: Mapping[str, Fact]) -> tuple[str, Fact]:
        """The memory that a fact changes, "" if none, and what that is to say."""
        for id, known in shown.items():
            match fact, known:
                case (Own(who, thing), Own(whose, other)) if (who, thing) == (whose, other):
                    return id, fact
                case (Withdrawn(who, thing), Own(whose, other)) if (who, thing) == (whose, other):
                    return id, fact
                case (Have(who, _, thing), Have(whose, _, other)) if (who, thing) == (whose, other):
                    return id, fact
                case (Got(who, more, thing), Have(whose, n, other)) if (who, thing) == (whose, other):
                    return id, Have(who, n + more, thing)
                case _:
                    continue
        return "", fact


def _read(prompt: Prompt) -> Mapping[str, Any] | None:
    question = next(iter(QUESTIONS.read(prompt.inputs.get("question", ""))), None)
    if question is None:
        return None
    shown = [prompt.inputs.get(name, "") for name in ("first_speaker_memories", "second_speaker_memories", "context")]
    known = [pair for text in shown for pair in _known(text)]
    found = _wanted(question, [pair for pair in known if pair[1].speaker == question.speaker])
    missing = NOT_MENTIONED if NOT_MENTIONED in prompt.instructions else UNKNOWN
    # Several values of one date: which of them holds is not told.
    return {"answer": missing if not found else found[0] if len(found) == 1 else UNKNOWN}


def _known(text: str) -> list[Dated]:
    """The facts that memories or turns say, with their dates."""
    memories = [((line.time or datetime.min, 0), fact) for line in lines(text) for fact in FACTS.read(line.text)]
    return [*memories, *((_moment(line), fact) for line, fact in _told("", text))]


def _moment(line: Line) -> Moment:
    place = line.id.rpartition(":")[2]
    return line.time or datetime.min, int(place) if place.isdecimal() else 0


def _wanted(question: Any, known: Sequence[Dated]) -> list[str]:
    """The answers that the facts allow, each once."""
    if isinstance(question, Where):
        places = sorted({fact.place for _, fact in known if isinstance(fact, Been)})
        return [" and ".join(places)] if places else []
    kinds = (Own, Withdrawn) if isinstance(question, WhatIs) else (Have,)
    about = [(when, fact) for when, fact in known if isinstance(fact, kinds) and fact.thing == question.thing]
    last = max((when for when, _ in about), default=None)
    return list(dict.fromkeys(value for when, fact in about if when == last and (value := _value(fact))))


def _value(fact: Fact) -> str:
    """What a fact says; "" where it takes something back."""
    return fact.value if isinstance(fact, Own) else str(fact.n) if isinstance(fact, Have) else ""


def _records(prompt: Prompt, name: str) -> list[dict[str, Any]]:
    """The records of a list among the inputs; none where it is no such list."""
    value = parsed(prompt.inputs.get(name, ""))
    value = value if isinstance(value, list) else []
    return [json.loads(each) if isinstance(each, str) else each for each in value]


JOBS: Mapping[frozenset[str], Job] = {
    frozenset({"facts"}): _extract,
    frozenset({"operations"}): _manage,
    frozenset({"reasoning", "answer"}): _read,
    frozenset({"answer"}): _read,
}
