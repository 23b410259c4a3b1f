"""The later checks of PAL-Set: a model looks for errors in finished records, corrects them, and checks again.

    logs ──────> type fits content? ─┐
        └──────> contradicts persona? ├──> corrected ──> checked again ──> what is still wrong is left out
    dialogue ──> action fits words? ──┤                                   (a dialogue keeps it, and the report tells)
        └──────> contradicts persona? ┘

The three faults are those of the paper (Data Verification and Refinement); the authors also had people look at it.

Limits: an entry is left out only where fifteen remain. Logs are compared with profile and past, not with
preferences: entries are events. A finding is the model's opinion; an error that it misses stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ....signatures.synthesis_palset_records import (
    DraftLog,
    DraftTurn,
    MendLogs,
    MendUtterances,
    ReviewActions,
    ReviewLogTypes,
    ReviewPersona,
)
from ..runner import Step, whole
from .dialogue import Script
from .life import FEWEST_LOGS
from .people import Session, Setting, blank

LOG_TYPES = Step("review of log types", ReviewLogTypes)
ACTIONS = Step("review of actions", ReviewActions)
PERSONA = Step("review against the persona", ReviewPersona)
MENDED_LOGS = Step("mending of logs", MendLogs)
MENDED_WORDS = Step("mending of utterances", MendUtterances)

ROLES = ("user", "assistant")
Place = tuple[int, str]
"""Turn and role."""
K = TypeVar("K")
R = TypeVar("R")
Faults = Mapping[K, Sequence[str]]
"""Reasons by the places of faulty records."""


def review_logs(session: Session, setting: Setting) -> list[DraftLog]:
    """The log entries of a session after as many rounds of review as are set."""

    def faults_of(entries: Mapping[int, DraftLog]) -> Faults[int]:
        lines = [f"{n} | {one.type} | {one.content}" for n, one in entries.items()]
        known = {n: n for n in entries}
        found = _found(LOG_TYPES, session, {"logs": lines}, "faults", lambda one: one.number, known, setting)
        records = {f"L{n}": (n, f"{one.timestamp} {one.content}") for n, one in entries.items()}
        return _by_place([*found, *_contradictions(session, records, [], setting)])

    def mend(entries: Mapping[int, DraftLog], faults: Faults[int]) -> dict[int, DraftLog]:
        shown = []
        for n, reasons in faults.items():
            one = entries[n]
            told = f"{n} | {one.timestamp} | {one.event} | {one.type} | {one.content} | fault: {'; '.join(reasons)}"
            shown.append(told)
        inputs = {"profile": session.persona.profile, "experience": session.experience, "entries": shown}
        found = _mended(MENDED_LOGS, session, inputs, faults, lambda one: one.number, setting)
        return {n: entries[n].model_copy(update={"type": one.type, "content": one.content}) for n, one in found.items()}

    records = dict(enumerate(session.logs, 1))
    entries, faults = _reviewed(
        records, setting.reviews, lambda found, new: faults_of({n: found[n] for n in new}), mend
    )
    if faults:
        enough = len(entries) - len(faults) >= FEWEST_LOGS
        told = [f"{entries[n].content:.60}: {'; '.join(faults[n])}" for n in faults]
        setting.runner.reject("log review", session.id, told, "left out" if enough else "kept")
        entries = {n: one for n, one in entries.items() if n not in faults or not enough}
    return list(entries.values())


def review_dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn]:
    """The turns of a session's dialogue after as many rounds of review as are set."""
    persona = session.persona
    tastes = [persona.preferences[id] for id in session.requirement_ids]
    likes = [f"{one.requirement}: likes: {one.pos} dislikes: {one.neg}" for one in tastes]

    def lines(said: Mapping[Place, Any], references: bool = False) -> list[str]:
        return [
            f"turn {n} | {role} | {one.action}{f' | {one.reference}' if references else ''} | {one.content}"
            for (n, role), one in said.items()
        ]

    def place(one: Any) -> Place:
        return one.turn, one.role

    def faults_of(said: Mapping[Place, Any], _: object) -> Faults[Place]:
        known = {place: place for place in said}
        found = _found(ACTIONS, session, {"dialogue": lines(said)}, "faults", place, known, setting)
        records = {f"{role[0].upper()}{n}": ((n, role), one.content) for (n, role), one in said.items()}
        return _by_place([*found, *_contradictions(session, records, likes, setting)])

    def mend(said: Mapping[Place, Any], faults: Faults[Place]) -> dict[Place, Any]:
        inputs = {
            "profile": persona.profile,
            "personality": persona.personality,
            "framework": script.framework,
            "dialogue": lines(said, references=True),
            "faulty": [f"turn {n} | {role} | fault: {'; '.join(reasons)}" for (n, role), reasons in faults.items()],
        }
        found = _mended(MENDED_WORDS, session, inputs, faults, place, setting)
        return {at: said[at].model_copy(update={"content": one.content}) for at, one in found.items()}

    turns = range(1, len(session.turns) + 1)
    records: dict[Place, Any] = {(n, role): getattr(session.turns[n - 1], role) for n in turns for role in ROLES}
    said, faults = _reviewed(records, setting.reviews, faults_of, mend)
    if faults:
        told = [f"turn {turn}, {role}: {'; '.join(reasons)}" for (turn, role), reasons in faults.items()]
        setting.runner.reject("dialogue review", session.id, told, "kept")
    return [DraftTurn(user=said[n, "user"], assistant=said[n, "assistant"]) for n in turns]


def _reviewed(
    records: Mapping[K, R],
    rounds: int,
    faults_of: Callable[[Mapping[K, R], Iterable[K]], Faults[K]],
    mend: Callable[[Mapping[K, R], Faults[K]], Mapping[K, R]],
) -> tuple[dict[K, R], Faults[K]]:
    """Records after rounds of review, and what is still wrong with them.

    Without a round nothing is looked at. `faults_of` is given all records and the places of those that are new; what
    `mend` gives is none where it was given up.
    """
    found = dict(records)
    faults = faults_of(found, found) if rounds else {}
    for _ in range(rounds):
        mended = mend(found, faults) if faults else {}
        if not mended:
            break
        found |= mended
        faults = faults_of(found, mended)
    return found, faults


def _found(
    step: Step,
    session: Session,
    inputs: Mapping[str, Any],
    output: str,
    named: Callable[[Any], Any],
    known: Mapping[Any, K],
    setting: Setting,
) -> list[tuple[K, str]]:
    """What a review finds: places, of those that are known by the names it gives them, and reasons."""

    def unknown(found: Sequence[Any]) -> list[str]:
        return [f"there is no record {named(one)!r}" for one in found if named(one) not in known]

    found = setting.runner.ask(step, session.id, inputs, whole(output, unknown)) or ()
    return [(known[named(one)], one.reason) for one in found]


def _contradictions(
    session: Session, records: Mapping[str, tuple[K, str]], preferences: list[str], setting: Setting
) -> list[tuple[K, str]]:
    inputs = {
        "profile": session.persona.profile,
        "personality": session.persona.personality,
        "timeline": session.persona.months(session.end),
        "preferences": preferences,
        "records": [f"{id}: {text}" for id, (_, text) in records.items()],
    }
    known = {id: place for id, (place, _) in records.items()}
    return _found(
        PERSONA, session, inputs, "contradictions", lambda one: one.record.strip(" []:").upper(), known, setting
    )


def _by_place(found: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    reasons: defaultdict[Any, list[str]] = defaultdict(list)
    for place, reason in found:
        reasons[place].append(reason)
    return dict(sorted(reasons.items()))


def _mended(
    step: Step,
    session: Session,
    inputs: Mapping[str, Any],
    faults: Faults[K],
    place: Callable[[Any], K],
    setting: Setting,
) -> dict[K, Any]:
    """Other records for the faulty places; none where they were given up."""

    def problems(mended: Sequence[Any]) -> list[str]:
        given, wanted = sorted(map(place, mended)), sorted(faults)  # pyright: ignore[reportArgumentType]
        found = [] if given == wanted else [f"mended are {given}; mend {wanted}, once each"]
        return found + [f"{place(one)} is empty" for one in mended if blank(one.content)]

    return {place(one): one for one in setting.ask(step, session.id, inputs, whole("mended", problems)) or ()}
