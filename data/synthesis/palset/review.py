"""The later checks of PAL-Set: a model looks for errors in finished records and corrects them.

    logs ──────> type fits content? ─┐
        └──────> contradicts persona? ├──> corrected ──> checked again ──> what is still wrong
    dialogue ──> action fits words? ──┤                                    is left out of logs,
        └──────> contradicts persona? ┘                                    and kept in dialogues

The three kinds of faults are those of the paper (Data Verification and Refinement); a fault is the
model's opinion. The report tells what is still wrong in the end. A log entry is left out only where
fifteen remain. Logs are compared with profile and past, not with preferences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dspy

from ....signatures.synthesis_palset_records import (
    Contradiction,
    DraftAssistantUtterance,
    DraftLog,
    DraftTurn,
    DraftUserUtterance,
    LogFault,
    MendedLog,
    MendedUtterance,
    MendLogs,
    MendUtterances,
    ReviewActions,
    ReviewLogTypes,
    ReviewPersona,
    Role,
    UtteranceFault,
)
from ..runner import CheckResult, Step, accept_if_valid
from .dialogue import Script
from .experiences import MIN_LOGS
from .records import Session
from .setting import Setting
from .texts import blank

LOG_TYPES = Step("review of log types", ReviewLogTypes)
ACTIONS = Step("review of actions", ReviewActions)
PERSONA = Step("review against the persona", ReviewPersona)
MENDED_LOGS = Step("mending of logs", MendLogs)
MENDED_WORDS = Step("mending of utterances", MendUtterances)


# Logs.


def review_logs(session: Session, setting: Setting) -> list[DraftLog]:
    """Return the log entries of a session after as many rounds of review as are set."""
    if setting.reviews == 0:
        return session.logs

    review = _LogReview(session, setting)
    entries = dict(enumerate(session.logs, 1))
    faults = review.find_faults(entries)
    for _ in range(setting.reviews):
        if not faults:
            break
        mended = review.mend(entries, faults)
        if not mended:
            break
        entries.update(mended)
        faults = review.find_faults(mended)

    if not faults:
        return list(entries.values())
    return review.leave_out(entries, faults)


class _LogReview:
    """Finds and corrects faults in the log entries of a session; entries are named by numbers."""

    def __init__(self, session: Session, setting: Setting) -> None:
        self._session = session
        self._setting = setting

    def find_faults(self, entries: Mapping[int, DraftLog]) -> dict[int, list[str]]:
        """Return what is wrong with entries, by their numbers, in order."""
        faults: dict[int, list[str]] = {}
        for fault in self._find_wrong_types(entries):
            faults.setdefault(fault.number, []).append(fault.reason)

        numbers_by_label: dict[str, int] = {}
        texts_by_label: dict[str, str] = {}
        for number, entry in entries.items():
            label = f"L{number}"
            numbers_by_label[label] = number
            texts_by_label[label] = f"{entry.timestamp} {entry.content}"
        for label, reason in _find_contradictions(texts_by_label, [], self._session, self._setting):
            faults.setdefault(numbers_by_label[label], []).append(reason)
        return dict(sorted(faults.items()))

    def _find_wrong_types(self, entries: Mapping[int, DraftLog]) -> Sequence[LogFault]:
        """Ask which entries do not match their types."""
        lines = [f"{number} | {entry.type} | {entry.content}" for number, entry in entries.items()]

        def check(answer: dspy.Prediction) -> CheckResult[list[LogFault]]:
            faults: list[LogFault] = answer.faults
            problems = [
                f"there is no record {fault.number!r}"
                for fault in faults
                if fault.number not in entries
            ]
            return accept_if_valid(faults, problems)

        runner = self._setting.runner
        return runner.ask(LOG_TYPES, self._session.id, {"logs": lines}, check) or ()

    def mend(
        self, entries: Mapping[int, DraftLog], faults: Mapping[int, Sequence[str]]
    ) -> dict[int, DraftLog]:
        """Return the corrected entries, by their numbers; none if that was given up."""
        lines: list[str] = []
        for number, reasons in faults.items():
            entry = entries[number]
            record = f"{entry.timestamp} | {entry.event} | {entry.type} | {entry.content}"
            lines.append(f"{number} | {record} | fault: {'; '.join(reasons)}")
        inputs = {
            "profile": self._session.persona.profile,
            "experience": self._session.experience,
            "entries": lines,
        }

        def check(answer: dspy.Prediction) -> CheckResult[list[MendedLog]]:
            mended: list[MendedLog] = answer.mended
            numbers = sorted(entry.number for entry in mended)
            wanted_numbers = sorted(faults)
            problems: list[str] = []
            if numbers != wanted_numbers:
                problems.append(f"mended are {numbers}; mend {wanted_numbers}, once each")
            for entry in mended:
                if blank(entry.content):
                    problems.append(f"{entry.number} is empty")
            return accept_if_valid(mended, problems)

        drafts = self._setting.ask(MENDED_LOGS, self._session.id, inputs, check) or []
        mended_entries: dict[int, DraftLog] = {}
        for draft in drafts:
            changes = {"type": draft.type, "content": draft.content}
            mended_entries[draft.number] = entries[draft.number].model_copy(update=changes)
        return mended_entries

    def leave_out(
        self, entries: Mapping[int, DraftLog], faults: Mapping[int, Sequence[str]]
    ) -> list[DraftLog]:
        """Return the entries without the faulty ones; all of them where too few would remain."""
        are_enough_right = len(entries) - len(faults) >= MIN_LOGS
        problems = [
            f"{entries[number].content:.60}: {'; '.join(reasons)}"
            for number, reasons in faults.items()
        ]
        outcome = "left out" if are_enough_right else "kept"
        self._setting.runner.reject("log review", self._session.id, problems, outcome)

        if not are_enough_right:
            return list(entries.values())
        return [entry for number, entry in entries.items() if number not in faults]


# Dialogues.


Utterance = DraftUserUtterance | DraftAssistantUtterance
Place = tuple[int, Role]
"""The place of an utterance: the number of its turn, counted from 1, and who speaks."""


def review_dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn]:
    """Return the turns of a session's dialogue after as many rounds of review as are set."""
    if setting.reviews == 0:
        return session.turns

    review = _DialogueReview(session, script, setting)
    utterances = _utterances_of(session.turns)
    faults = review.find_faults(utterances)
    for _ in range(setting.reviews):
        if not faults:
            break
        mended = review.mend(utterances, faults)
        if not mended:
            break
        utterances.update(mended)
        # Utterances follow from one another, so all of them are looked at again.
        faults = review.find_faults(utterances)

    if faults:
        problems = [
            f"turn {number}, {role}: {'; '.join(reasons)}"
            for (number, role), reasons in faults.items()
        ]
        setting.runner.reject("dialogue review", session.id, problems, "kept")
    return _turns_of(utterances)


def _utterances_of(turns: Sequence[DraftTurn]) -> dict[Place, Utterance]:
    """Return the utterances of turns by their places."""
    utterances: dict[Place, Utterance] = {}
    for number, turn in enumerate(turns, 1):
        utterances[number, "user"] = turn.user
        utterances[number, "assistant"] = turn.assistant
    return utterances


def _turns_of(utterances: Mapping[Place, Utterance]) -> list[DraftTurn]:
    """Return the turns of utterances."""
    turns: list[DraftTurn] = []
    for number in range(1, len(utterances) // 2 + 1):
        user = utterances[number, "user"]
        assistant = utterances[number, "assistant"]
        turns.append(DraftTurn.model_validate({"user": user, "assistant": assistant}))
    return turns


class _DialogueReview:
    """Finds and corrects faults in the utterances of a session's dialogue."""

    def __init__(self, session: Session, script: Script, setting: Setting) -> None:
        self._session = session
        self._script = script
        self._setting = setting

    def find_faults(self, utterances: Mapping[Place, Utterance]) -> dict[Place, list[str]]:
        """Return what is wrong with utterances, by their places, in order."""
        faults: dict[Place, list[str]] = {}
        for fault in self._find_wrong_actions(utterances):
            faults.setdefault((fault.turn, fault.role), []).append(fault.reason)

        places_by_label: dict[str, Place] = {}
        texts_by_label: dict[str, str] = {}
        for (number, role), utterance in utterances.items():
            label = f"{role[0].upper()}{number}"
            places_by_label[label] = (number, role)
            texts_by_label[label] = utterance.content
        contradictions = _find_contradictions(
            texts_by_label, self._preferences(), self._session, self._setting
        )
        for label, reason in contradictions:
            faults.setdefault(places_by_label[label], []).append(reason)
        return dict(sorted(faults.items()))

    def _preferences(self) -> list[str]:
        """Return what the user likes and dislikes about the matters of the dialogue."""
        lines: list[str] = []
        for type_id in self._session.requirement_ids:
            preference = self._session.persona.preferences[type_id]
            likes = f"likes: {preference.pos} dislikes: {preference.neg}"
            lines.append(f"{preference.requirement}: {likes}")
        return lines

    def _find_wrong_actions(
        self, utterances: Mapping[Place, Utterance]
    ) -> Sequence[UtteranceFault]:
        """Ask which utterances do not do what their actions say."""
        lines: list[str] = []
        for (number, role), utterance in utterances.items():
            lines.append(f"turn {number} | {role} | {utterance.action} | {utterance.content}")

        def check(answer: dspy.Prediction) -> CheckResult[list[UtteranceFault]]:
            faults: list[UtteranceFault] = answer.faults
            problems: list[str] = []
            for fault in faults:
                place = (fault.turn, fault.role)
                if place not in utterances:
                    problems.append(f"there is no record {place!r}")
            return accept_if_valid(faults, problems)

        runner = self._setting.runner
        return runner.ask(ACTIONS, self._session.id, {"dialogue": lines}, check) or ()

    def mend(
        self, utterances: Mapping[Place, Utterance], faults: Mapping[Place, Sequence[str]]
    ) -> dict[Place, Utterance]:
        """Return the corrected utterances, by their places; none if that was given up."""
        dialogue: list[str] = []
        for (number, role), utterance in utterances.items():
            label = f"turn {number} | {role} | {utterance.action} | {utterance.reference}"
            dialogue.append(f"{label} | {utterance.content}")
        faulty: list[str] = []
        for (number, role), reasons in faults.items():
            faulty.append(f"turn {number} | {role} | fault: {'; '.join(reasons)}")
        inputs = {
            "profile": self._session.persona.profile,
            "personality": self._session.persona.personality,
            "framework": self._script.framework,
            "dialogue": dialogue,
            "faulty": faulty,
        }

        def check(answer: dspy.Prediction) -> CheckResult[list[MendedUtterance]]:
            mended: list[MendedUtterance] = answer.mended
            places = sorted((utterance.turn, utterance.role) for utterance in mended)
            wanted_places = sorted(faults)
            problems: list[str] = []
            if places != wanted_places:
                problems.append(f"mended are {places}; mend {wanted_places}, once each")
            for utterance in mended:
                if blank(utterance.content):
                    problems.append(f"{(utterance.turn, utterance.role)} is empty")
            return accept_if_valid(mended, problems)

        drafts = self._setting.ask(MENDED_WORDS, self._session.id, inputs, check) or []
        mended_utterances: dict[Place, Utterance] = {}
        for draft in drafts:
            place = (draft.turn, draft.role)
            changes = {"content": draft.content}
            mended_utterances[place] = utterances[place].model_copy(update=changes)
        return mended_utterances


# Both kinds of records against the persona.


class _LabelledReason(NamedTuple):
    """Why a record contradicts the persona."""

    label: str
    reason: str


def _find_contradictions(
    texts_by_label: Mapping[str, str],
    preferences: Sequence[str],
    session: Session,
    setting: Setting,
) -> list[_LabelledReason]:
    """Ask which records contradict what is known about the user.

    Args:
        texts_by_label: The records, by the labels under which the model sees them.
        preferences: What the user likes and dislikes, as far as the records are compared with it.
        session: The session of the records.
        setting: Its runner asks the model.
    """
    persona = session.persona
    inputs = {
        "profile": persona.profile,
        "personality": persona.personality,
        "timeline": persona.months(session.end),
        "preferences": preferences,
        "records": [f"{label}: {text}" for label, text in texts_by_label.items()],
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[_LabelledReason]]:
        contradictions: list[Contradiction] = answer.contradictions
        reasons: list[_LabelledReason] = []
        problems: list[str] = []
        for contradiction in contradictions:
            label = contradiction.record.strip(" []:").upper()
            reasons.append(_LabelledReason(label, contradiction.reason))
            if label not in texts_by_label:
                problems.append(f"there is no record {label!r}")
        return accept_if_valid(reasons, problems)

    return setting.runner.ask(PERSONA, session.id, inputs, check) or []
