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
    Contradiction,
    DraftLog,
    DraftTurn,
    LogFault,
    MendedLog,
    MendedUtterance,
    MendLogs,
    MendUtterances,
    ReviewActions,
    ReviewLogTypes,
    ReviewPersona,
    UtteranceFault,
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
Words = Mapping[Place, Any]
"""What is said, utterance by utterance."""
K = TypeVar("K")
R = TypeVar("R")


def review_logs(session: Session, setting: Setting) -> list[DraftLog]:
    """The log entries of a session after as many rounds of review as are set."""
    entries, faults = _reviewed(
        dict(enumerate(session.logs, 1)),
        setting.reviews,
        lambda entries, new: _log_faults(session, {n: entries[n] for n in new}, setting),
        lambda entries, faults: _mend_logs(session, entries, faults, setting),
    )
    if faults:
        enough = len(entries) - len(faults) >= FEWEST_LOGS
        told = [f"{entries[n].content:.60}: {'; '.join(faults[n])}" for n in faults]
        setting.runner.reject("log review", session.id, told, "left out" if enough else "kept")
        entries = {n: one for n, one in entries.items() if n not in faults or not enough}
    return list(entries.values())


def review_dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn]:
    """The turns of a session's dialogue after as many rounds of review as are set."""
    turns = range(1, len(session.turns) + 1)
    said, faults = _reviewed(
        {(n, role): getattr(session.turns[n - 1], role) for n in turns for role in ROLES},
        setting.reviews,
        lambda said, _: _word_faults(session, said, setting),
        lambda said, faults: _mend_words(session, said, faults, script, setting),
    )
    if faults:
        told = [f"turn {turn}, {role}: {'; '.join(reasons)}" for (turn, role), reasons in faults.items()]
        setting.runner.reject("dialogue review", session.id, told, "kept")
    return [DraftTurn(user=said[n, "user"], assistant=said[n, "assistant"]) for n in turns]


def _reviewed(
    records: Mapping[K, R],
    rounds: int,
    faults_of: Callable[[Mapping[K, R], Iterable[K]], dict[K, list[str]]],
    mend: Callable[[Mapping[K, R], Mapping[K, list[str]]], Mapping[K, R] | None],
) -> tuple[dict[K, R], dict[K, list[str]]]:
    """Records after rounds of review, and what is still wrong with them.

    Args:
        records: By their places.
        rounds: Of mending; without one nothing is looked at.
        faults_of: Reasons by place, given all records and the places of those that are new.
        mend: Other records for the faulty places; None where it was given up.
    """
    found = dict(records)
    faults = faults_of(found, found) if rounds else {}
    for _ in range(rounds):
        mended = mend(found, faults) if faults else None
        if not mended:
            break
        found |= mended
        faults = faults_of(found, mended)
    return found, faults


def _log_faults(session: Session, entries: Mapping[int, DraftLog], setting: Setting) -> dict[int, list[str]]:
    """Reasons by the numbers of faulty entries."""
    lines = [f"{n} | {one.type} | {one.content}" for n, one in entries.items()]

    def unknown(faults: list[LogFault]) -> list[str]:
        return [f"there is no entry {one.number}" for one in faults if one.number not in entries]

    found: defaultdict[int, list[str]] = defaultdict(list)
    for fault in setting.runner.ask(LOG_TYPES, session.id, {"logs": lines}, whole("faults", unknown)) or ():
        found[fault.number].append(fault.reason)
    records = {f"L{n}": f"{one.timestamp} {one.content}" for n, one in entries.items()}
    for record, reason in _contradictions(session, records, [], setting):
        found[int(record[1:])].append(reason)
    return dict(sorted(found.items()))


def _contradictions(
    session: Session, records: Mapping[str, str], preferences: list[str], setting: Setting
) -> list[tuple[str, str]]:
    person = session.persona.person
    inputs = {
        "profile": person.profile,
        "personality": person.personality,
        "timeline": session.persona.months_until(session.situation.end),
        "preferences": preferences,
        "records": [f"{id}: {text}" for id, text in records.items()],
    }

    def unknown(contradictions: list[Contradiction]) -> list[str]:
        return [f"there is no record {one.record!r}" for one in contradictions if _id(one) not in records]

    found = setting.runner.ask(PERSONA, session.id, inputs, whole("contradictions", unknown)) or []
    return [(_id(one), one.reason) for one in found]


def _id(found: Contradiction) -> str:
    return found.record.strip(" []:").upper()


def _mend_logs(
    session: Session, entries: Mapping[int, DraftLog], faults: Mapping[int, Sequence[str]], setting: Setting
) -> dict[int, DraftLog] | None:
    shown = []
    for n, reasons in faults.items():
        one = entries[n]
        shown.append(f"{n} | {one.timestamp} | {one.event} | {one.type} | {one.content} | fault: {'; '.join(reasons)}")
    person = session.persona.person
    inputs = {"profile": person.profile, "experience": session.experience, "entries": shown}

    def problems(mended: list[MendedLog]) -> list[str]:
        found = _same_places([one.number for one in mended], list(faults))
        return found + [f"entry {one.number} is empty" for one in mended if blank(one.content)]

    found = setting.ask(MENDED_LOGS, session.id, inputs, whole("mended", problems))
    return found and {
        one.number: entries[one.number].model_copy(update={"type": one.type, "content": one.content}) for one in found
    }


def _word_faults(session: Session, said: Words, setting: Setting) -> dict[Place, list[str]]:
    """Reasons by the places of faulty utterances."""

    def unknown(faults: list[UtteranceFault]) -> list[str]:
        return [f"there is no turn {one.turn} of {one.role}" for one in faults if (one.turn, one.role) not in said]

    found: defaultdict[Place, list[str]] = defaultdict(list)
    for fault in setting.runner.ask(ACTIONS, session.id, {"dialogue": _lines(said)}, whole("faults", unknown)) or ():
        found[fault.turn, fault.role].append(fault.reason)
    records = {f"{role[0].upper()}{n}": one.content for (n, role), one in said.items()}
    tastes = [session.persona.preferences[id] for id in session.situation.requirement_ids]
    likes = [f"{one.requirement}: likes: {one.pos} dislikes: {one.neg}" for one in tastes]
    for record, reason in _contradictions(session, records, likes, setting):
        found[int(record[1:]), "user" if record[0] == "U" else "assistant"].append(reason)
    return dict(sorted(found.items()))


def _mend_words(
    session: Session, said: Words, faults: Mapping[Place, Sequence[str]], script: Script, setting: Setting
) -> dict[Place, Any] | None:
    person = session.persona.person
    inputs = {
        "profile": person.profile,
        "personality": person.personality,
        "framework": script.framework,
        "dialogue": _lines(said, references=True),
        "faulty": [f"turn {turn} | {role} | fault: {'; '.join(reasons)}" for (turn, role), reasons in faults.items()],
    }

    def problems(mended: list[MendedUtterance]) -> list[str]:
        found = _same_places([(one.turn, one.role) for one in mended], list(faults))
        return found + [f"turn {one.turn} of {one.role} is empty" for one in mended if blank(one.content)]

    found = setting.ask(MENDED_WORDS, session.id, inputs, whole("mended", problems))
    places = {(one.turn, one.role): one.content for one in found or ()}
    return {place: said[place].model_copy(update={"content": words}) for place, words in places.items()} or None


def _lines(said: Words, references: bool = False) -> list[str]:
    return [
        f"turn {n} | {role} | {one.action}{f' | {one.reference}' if references else ''} | {one.content}"
        for (n, role), one in said.items()
    ]


def _same_places(given: Sequence[Any], wanted: Sequence[Any]) -> list[str]:
    return [] if sorted(given) == sorted(wanted) else [f"mended are {sorted(given)}; mend {sorted(wanted)}, once each"]
