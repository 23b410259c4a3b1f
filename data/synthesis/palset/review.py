"""The later checks of PAL-Set: a model looks for errors in finished records, corrects them, and checks again.

    logs ──────> type fits content? ─┐
        └──────> contradicts persona? ├──> corrected ──> checked again ──> what is still wrong is left out
    dialogue ──> action fits words? ──┤                                   (a dialogue keeps it, and the report tells)
        └──────> contradicts persona? ┘

The three faults are those of the paper (Data Verification and Refinement). A log is left out only where fifteen remain;
logs are compared with profile and past, not with preferences. A finding is the model's opinion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....signatures.synthesis_palset_records import (
    DraftLog,
    DraftTurn,
    MendLogs,
    MendUtterances,
    ReviewActions,
    ReviewLogTypes,
    ReviewPersona,
)
from ..runner import Step, accept_if_valid
from .dialogue import Script
from .life import FEWEST_LOGS
from .people import Session, Setting, blank

LOG_TYPES = Step("review of log types", ReviewLogTypes)
ACTIONS = Step("review of actions", ReviewActions)
PERSONA = Step("review against the persona", ReviewPersona)
MENDED_LOGS = Step("mending of logs", MendLogs)
MENDED_WORDS = Step("mending of utterances", MendUtterances)

Records = dict[Any, Any]
"""By their places: the number of a log entry, turn and role of an utterance."""
Faults = Mapping[Any, Sequence[str]]
"""Reasons by the places of faulty records."""


@dataclass(frozen=True)
class _Review:
    """How records of one kind are shown, asked about and mended."""

    look: Step
    shown: str
    """The input of `look` that shows the records."""
    line: Callable[[Any, Any], str]
    """A record at its place, for `look`."""
    label: Callable[[Any, Any], tuple[str, str]]
    """What the review against the persona calls it, and how it reads there."""
    place: Callable[[Any], Any]
    """Where a finding, or a mended record, belongs."""
    mend: Step
    faulty: Callable[[Records, Faults], dict[str, Any]]
    """The inputs of `mend`."""
    changed: tuple[str, ...]
    """The fields that mending changes."""
    preferences: Sequence[str] = ()
    again: bool = False
    """Whether all records are looked at again, or the mended alone."""


def review_logs(session: Session, setting: Setting) -> list[DraftLog]:
    """The log entries of a session after as many rounds of review as are set."""

    def faulty(entries: Records, faults: Faults) -> dict[str, Any]:
        told = [(n, entries[n], "; ".join(reasons)) for n, reasons in faults.items()]
        shown = [f"{n} | {one.timestamp} | {one.event} | {one.type} | {one.content} | fault: {s}" for n, one, s in told]
        return {"profile": session.persona.profile, "experience": session.experience, "entries": shown}

    review = _Review(
        look=LOG_TYPES,
        shown="logs",
        line=lambda n, one: f"{n} | {one.type} | {one.content}",
        label=lambda n, one: (f"L{n}", f"{one.timestamp} {one.content}"),
        place=lambda one: one.number,
        mend=MENDED_LOGS,
        faulty=faulty,
        changed=("type", "content"),
    )
    entries, faults = _reviewed(review, dict(enumerate(session.logs, 1)), session, setting)
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

    def line(place: tuple[int, str], one: Any, reference: str = "") -> str:
        return f"turn {place[0]} | {place[1]} | {one.action}{reference} | {one.content}"

    def faulty(said: Records, faults: Faults) -> dict[str, Any]:
        return {
            "profile": persona.profile,
            "personality": persona.personality,
            "framework": script.framework,
            "dialogue": [line(place, one, f" | {one.reference}") for place, one in said.items()],
            "faulty": [f"turn {n} | {role} | fault: {'; '.join(reasons)}" for (n, role), reasons in faults.items()],
        }

    review = _Review(
        look=ACTIONS,
        shown="dialogue",
        line=line,
        label=lambda place, one: (f"{place[1][0].upper()}{place[0]}", one.content),
        place=lambda one: (one.turn, one.role),
        mend=MENDED_WORDS,
        faulty=faulty,
        changed=("content",),
        preferences=[f"{one.requirement}: likes: {one.pos} dislikes: {one.neg}" for one in tastes],
        again=True,
    )
    turns = range(1, len(session.turns) + 1)
    records = {(n, role): getattr(session.turns[n - 1], role) for n in turns for role in ("user", "assistant")}
    said, faults = _reviewed(review, records, session, setting)
    if faults:
        told = [f"turn {turn}, {role}: {'; '.join(reasons)}" for (turn, role), reasons in faults.items()]
        setting.runner.reject("dialogue review", session.id, told, "kept")
    return [DraftTurn(user=said[n, "user"], assistant=said[n, "assistant"]) for n in turns]


def _reviewed(review: _Review, records: Records, session: Session, setting: Setting) -> tuple[Records, Faults]:
    """Records after rounds of review, and what is still wrong with them; without a round nothing is looked at."""

    def found(step: Step, inputs: Mapping[str, Any], output: str, named: Callable[[Any], Any], known: Records) -> list:
        def unknown(told: Sequence[Any]) -> list[str]:
            return [f"there is no record {named(one)!r}" for one in told if named(one) not in known]

        told = setting.runner.ask(step, session.id, inputs, accept_if_valid(output, unknown)) or ()
        return [(known[named(one)], one.reason) for one in told]

    def faults_of(shown: Records) -> dict[Any, list[str]]:
        lines = [review.line(place, one) for place, one in shown.items()]
        told = found(review.look, {review.shown: lines}, "faults", review.place, {place: place for place in shown})
        labels = {place: review.label(place, one) for place, one in shown.items()}
        inputs = {
            "profile": session.persona.profile,
            "personality": session.persona.personality,
            "timeline": session.persona.months(session.end),
            "preferences": list(review.preferences),
            "records": [f"{id}: {text}" for id, text in labels.values()],
        }
        known = {id: place for place, (id, _) in labels.items()}
        told += found(PERSONA, inputs, "contradictions", lambda one: one.record.strip(" []:").upper(), known)
        reasons: defaultdict[Any, list[str]] = defaultdict(list)
        for place, reason in told:
            reasons[place].append(reason)
        return dict(sorted(reasons.items()))

    def problems(mended: Sequence[Any]) -> list[str]:
        given, wanted = sorted(map(review.place, mended)), sorted(faults)
        wrong = [] if given == wanted else [f"mended are {given}; mend {wanted}, once each"]
        return wrong + [f"{review.place(one)} is empty" for one in mended if blank(one.content)]

    faults = faults_of(records) if setting.reviews else {}
    for _ in range(setting.reviews):
        inputs = review.faulty(records, faults)
        mended = setting.ask(review.mend, session.id, inputs, accept_if_valid("mended", problems)) if faults else None
        if not mended:
            break
        change = {review.place(one): {name: getattr(one, name) for name in review.changed} for one in mended}
        new = {place: records[place].model_copy(update=fields) for place, fields in change.items()}
        records |= new
        faults = faults_of(records if review.again else new)
    return records, faults
