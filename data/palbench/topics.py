"""The topics of a PAL-Set sample: query, needs, requirement and solutions, checked one by one.

Limits: a topic that lacks candidates can still be restated, one that lacks a query or a requirement is passed
over.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from ...records import Record
from ..cells import last_number

Feedback = Literal["pos", "neg", "neu"]
_FEEDBACK: Mapping[str, Feedback] = {
    "pos": "pos",
    "positive": "pos",
    "neg": "neg",
    "negative": "neg",
    "neu": "neu",
    "neutral": "neu",
    "others": "neu",
}
CANDIDATES = 8


class Fault(Protocol):
    """Called with a finding: the kind, the place, and a sentence."""

    def __call__(self, kind: str, where: str, message: str, fatal: bool = False) -> None:
        """Takes one finding."""
        ...


class Candidate(Record):
    """One candidate solution."""

    text: str
    feedback: Feedback


class Topic(Record):
    """What a user asks about in one dialogue, and what is behind it."""

    user_query: str
    needs: tuple[str, ...]
    """Two implicit needs."""
    requirement: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Eight, in the order of the file: S1 to S8."""
    evidence: tuple[str, ...] = ()
    """Ids of the log entries that the needs rest on, if the data has them."""

    @property
    def feedback(self) -> dict[str, Feedback]:
        """What the user thinks of each candidate, by its id."""
        return {f"S{n}": candidate.feedback for n, candidate in enumerate(self.candidates, 1)}

    @property
    def options(self) -> list[str]:
        """The candidates with their ids, as they are shown."""
        return [f"S{n}: {candidate.text}" for n, candidate in enumerate(self.candidates, 1)]

    def told(self) -> dict[str, Any]:
        """What personas are made of."""
        return self.model_dump(include={"user_query", "needs", "requirement", "positives", "negatives"})


def read_topics(value: Any, where: str, fault: Fault) -> Iterator[tuple[str, Topic]]:
    """Reads the topics of a sample, with their keys; those that cannot be asked about are passed over."""
    if not isinstance(value, dict) or not value:
        fault("no topics", where, f"'topics' is {reprlib.repr(value)}; nothing is asked about this sample")
        return
    for key in sorted(value, key=last_number):
        place = f"{where}, {key}"
        if not isinstance(value[key], dict):
            fault("wrong type", place, f"expected an object, got {reprlib.repr(value[key])}; passed over")
            continue
        row = value[key]
        query, requirement = _text(row.get("user_query")), _text(row.get("requirement"))
        if not query or not requirement:
            fault("incomplete topic", place, "has no user_query or no requirement; passed over")
            continue
        yield key, _topic(row, query, requirement, place, fault)


def _topic(row: Mapping[str, Any], query: str, requirement: str, place: str, fault: Fault) -> Topic:
    needs = tuple(text for text in map(_text, values_in(row.get("implicit_needs"))) if text)
    if len(needs) != 2:
        fault("number of needs", place, f"has {len(needs)} implicit needs, not 2")
    solution = row.get("solution")
    liked, disliked = (values_in(solution.get(kind)) if isinstance(solution, dict) else [] for kind in ("pos", "neg"))
    positives = tuple(filter(None, map(_text, liked)))
    negatives = tuple(filter(None, map(_text, disliked)))
    candidates = tuple(_candidates(values_in(row.get("candidate_solutions")), positives, negatives, place, fault))
    kinds = [candidate.feedback for candidate in candidates]
    if (len(kinds), kinds.count("pos"), kinds.count("neg")) != (CANDIDATES, 2, 2):
        counted = f"{len(kinds)} candidates, {kinds.count('pos')} liked, {kinds.count('neg')} disliked"
        fault("number of candidates", place, f"has {counted}; expected 8, 2 and 2")
    return Topic(
        user_query=query,
        needs=needs,
        requirement=requirement,
        positives=positives or tuple(each.text for each in candidates if each.feedback == "pos"),
        negatives=negatives or tuple(each.text for each in candidates if each.feedback == "neg"),
        candidates=candidates,
    )


def _candidates(
    rows: list[Any], positives: tuple[str, ...], negatives: tuple[str, ...], place: str, fault: Fault
) -> Iterator[Candidate]:
    for n, row in enumerate(rows, 1):
        text = _text(row)
        if not text:
            fault("empty candidate", place, f"candidate {n} has no text; passed over")
            continue
        said = str(row.get("feedback") or "").lower() if isinstance(row, dict) else ""
        kind = _FEEDBACK.get(said) or ("pos" if text in positives else "neg" if text in negatives else "neu")
        if said and said not in _FEEDBACK:
            fault("unknown feedback", place, f"candidate {n}: {said!r} is none of pos, neg, neu; taken as {kind}")
        yield Candidate(text=text, feedback=kind)


def values_in(value: Any) -> list[Any]:
    """A list, or the values of an object used as one."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A text, alone or as the solution or need of an object."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("solution", "need", "content", "text") if key in value), None)
    return value.strip() if isinstance(value, str) else ""
