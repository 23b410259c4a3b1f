"""Checks the form of a finished PAL-Set, more strictly than the reader, which accepts most oddities.

    samples     numbered on through history and query, in time; the query set is one month, the last
    logs        some, in time, after the dialogue before and not after their own
    dialogue    turn_1, turn_2, ...; known actions in an order that Table 8 of the paper allows; no empty words
    topics      one to three; a query, two needs, a requirement; eight candidates, two liked, two disliked

Limits: only the form is checked. A "fault" here need not prevent use: `mempiler evaluate --check` lists
them as remarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....records import read_json
from ...dataset import Finding
from ...rows import read_date
from .dialogue import CANDIDATE_COUNT, CHOSEN, NEEDS
from .layout import ACTIONS

ENDS = "feedback response"
AFTER: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "user": {
        "topic inquiry": ("requirement prediction",),
        "requirement confirmation": ("requirement prediction", "solution proposal"),
        "solution discussion": ("solution discussion",),
        "solution feedback": ("solution proposal", "feedback response"),
    },
    "assistant": {
        "requirement prediction": ("requirement confirmation",),
        "solution proposal": ("solution discussion", "solution feedback"),
        "solution discussion": ("solution discussion", "solution feedback"),
        "feedback response": ("topic inquiry",),
    },
}
"""What may follow each action (Table 8): the assistant's actions after the user's, the user's after the assistant's."""


def validate(path: str | Path) -> list[Finding]:
    """Checks a data file of PAL-Set's form.

    Raises:
        DataError: It is missing or no JSON.
    """
    return list(faults(read_json(Path(path))))


def faults(content: Any) -> Iterator[Finding]:
    """Findings on the content of a data file; none is fatal to a reader."""
    if not isinstance(content, dict) or not content:
        yield Finding("not a PAL-Set", "whole file", "expected an object with user ids")
        return
    for user, parts in content.items():
        if not _of(parts, dict, {"history": list, "query": list}):
            yield Finding("not a PAL-Set", str(user), "expected the lists 'history' and 'query'")
            continue
        rows = [*parts["history"], *parts["query"]]
        if not parts["query"]:
            yield Finding("no query", str(user), "its query set is empty")
        before = ""
        for number, row in enumerate(rows):
            where = f"{user}_sample{number}"
            for message in _sample(row, where, before):
                yield Finding("form", f"{user}, {where}", f"{where}: {message}")
            before = str(row.get("dialogue_timestamp")) if isinstance(row, dict) else before
        months = [_month(row) for row in rows]
        cut = len(parts["history"])
        if len(set(months[cut:])) > 1 or set(months[cut:]) & set(months[:cut]):
            yield Finding("calendar", str(user), f"{user}: the query set is not the last month alone")


def _sample(row: Any, id: str, before: str) -> Iterator[str]:
    kinds = {"sample_id": str, "dialogue_timestamp": str, "logs": list, "dialogue": dict, "topics": dict}
    if not _of(row, dict, kinds):
        yield f"expected an object with {', '.join(kinds)}"
        return
    if row["sample_id"] != id:
        yield f"sample_id is {row['sample_id']!r}; ids count on through history and query"
    end = row["dialogue_timestamp"]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", end) or read_date(end) is None:
        yield f"dialogue_timestamp {end!r} is not YYYY-MM-DD HH:MM:SS"
    elif before >= end:
        yield f"its dialogue of {end} is not after the one before, {before}"
    yield from _logs(row["logs"], before[:16], end[:16])
    yield from _dialogue(row["dialogue"])
    yield from _topics(row["topics"])


def _logs(logs: Sequence[Any], after: str, until: str) -> Iterator[str]:
    if not logs:
        yield "no logs"
    last = ""
    for n, one in enumerate(logs, 1):
        if not _of(one, dict, {"timestamp": str, "content": str}) or not one["content"].strip():
            yield f"log {n} is no object with timestamp and content"
            continue
        time = one["timestamp"]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", time) or read_date(time) is None:
            yield f"log {n}: timestamp {time!r} is not YYYY-MM-DD HH:MM"
        elif not after < time <= until:
            yield f"log {n} of {time} is not between the dialogues of {after or 'none'} and {until}"
        elif time < last:
            yield f"log {n} of {time} is earlier than the one before it"
        last = time


def _dialogue(turns: Mapping[str, Any]) -> Iterator[str]:
    if list(turns) != [f"turn_{n}" for n in range(1, len(turns) + 1)] or not turns:
        yield f"turns are {list(turns)}; expected turn_1, turn_2 and so on"
    last = ENDS
    for key, turn in turns.items():
        for role, other in (("user", "assistant"), ("assistant", "user")):
            said = turn.get(role) if isinstance(turn, dict) else None
            said = said if isinstance(said, dict) else {}
            if not _of(said, dict, {"action": str, "content": str}) or not said["content"].strip():
                yield f"{key}: the {role} has no action and content"
                return
            action = _action(role, said["action"])
            if action is None:
                yield f"{key}: {said['action']!r} is no action of the {role}"
                return
            if action not in AFTER[other][last]:
                yield f"{key}: {action} of the {role} cannot follow {last}"
            last = action
    if last != ENDS:
        yield f"the dialogue ends with {last}"


def _action(role: str, said: str) -> str | None:
    names = ACTIONS[role]
    return next((name for name, chinese in names.items() if said in (name, chinese)), None)


def _topics(topics: Mapping[str, Any]) -> Iterator[str]:
    if not 1 <= len(topics) <= 3 or list(topics) != [f"topic-{n}" for n in range(1, len(topics) + 1)]:
        yield f"topics are {list(topics)}; expected topic-1, to topic-3 at most"
    kinds = {"user_query": str, "implicit_needs": list, "requirement": str}
    for key, topic in topics.items():
        if not _of(topic, dict, {**kinds, "solution": dict, "candidate_solutions": list}):
            yield f"{key}: expected {', '.join(kinds)}, solution and candidate_solutions"
            continue
        needs = topic["implicit_needs"]
        if len(needs) != NEEDS or not all(map(_text, [*needs, topic["user_query"], topic["requirement"]])):
            yield f"{key}: expected a query, a requirement and two implicit needs, none empty"
        yield from (f"{key}: {message}" for message in _solutions(topic["solution"], topic["candidate_solutions"]))


def _solutions(sides: Mapping[str, Any], candidates: Sequence[Any]) -> Iterator[str]:
    if not all(_of(one, dict, {"solution": str, "feedback": str}) and _text(one["solution"]) for one in candidates):
        yield "a candidate is no object with solution and feedback"
        return
    if len(candidates) != CANDIDATE_COUNT or len({one["solution"] for one in candidates}) != CANDIDATE_COUNT:
        yield f"{len(candidates)} candidates; expected 8 different ones"
    for side in ("pos", "neg"):
        marked = [one["solution"] for one in candidates if one["feedback"] == side]
        given = sides.get(side)
        if not isinstance(given, list) or len(marked) != CHOSEN or sorted(marked) != sorted(map(str, given)):
            yield f"solution.{side} is not the two candidates that are marked {side}"
    strange = {one["feedback"] for one in candidates} - {"pos", "neg", "neu"}
    if strange:
        yield f"feedback {', '.join(sorted(strange))} is none of pos, neg, neu"


def _month(row: Any) -> str:
    return str(row.get("dialogue_timestamp"))[:7] if isinstance(row, dict) else ""


def _of(value: Any, kind: type, fields: Mapping[str, type]) -> bool:
    return isinstance(value, kind) and all(isinstance(value.get(name), of) for name, of in fields.items())


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
