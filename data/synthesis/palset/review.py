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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import dspy

from ....signatures.synthesis_palset_records import (
    Contradiction,
    CorrectedLog,
    CorrectedUtterance,
    CorrectLogs,
    CorrectUtterances,
    DraftAssistantUtterance,
    DraftLog,
    DraftTurn,
    DraftUserUtterance,
    LogFault,
    ReviewActions,
    ReviewLogTypes,
    ReviewPersona,
    Role,
    UtteranceFault,
)
from ..runner import Check, CheckResult, Step, accept_if_valid
from .dialogue import Script
from .experiences import MIN_LOGS
from .records import Session
from .setting import Setting
from .texts import blank

FaultT = TypeVar("FaultT")

LOG_TYPE_REVIEW = Step("review of log types", ReviewLogTypes)
ACTION_REVIEW = Step("review of actions", ReviewActions)
PERSONA_REVIEW = Step("review against the persona", ReviewPersona)
LOG_CORRECTION = Step("correction of logs", CorrectLogs)
UTTERANCE_CORRECTION = Step("correction of utterances", CorrectUtterances)


def _ask_for_faults(
    step: Step,
    session: Session,
    inputs: Mapping[str, Any],
    check: Check[list[FaultT]],
    setting: Setting,
) -> list[FaultT]:
    """Ask a model for the faults in records of a session.

    A review that was given up finds none: the records then stay as they are.
    """
    # Not `setting.ask`, which refuses other languages: what a reviewer writes is no part of the
    # data.
    faults = setting.runner.ask(step, session.id, inputs, check)
    return faults if faults is not None else []


# Logs.


def review_logs(session: Session, logs: list[DraftLog], setting: Setting) -> list[DraftLog]:
    """Review and correct log entries in as many rounds as are set, and return the result.

    Args:
        session: The session of the entries, with its experience.
        logs: The entries.
        setting: The number of rounds, and the runner.
    """
    if setting.reviews == 0:
        return logs

    review = _LogReview(session, setting)
    entries = dict(enumerate(logs, 1))
    faults = review.find_faults(entries)
    for _ in range(setting.reviews):
        if not faults:
            break
        corrected = review.correct(entries, faults)
        if not corrected:
            # The correction was given up, so the faults remain.
            break
        entries.update(corrected)
        # Each entry is judged by itself, and those that were not corrected had no faults.
        faults = review.find_faults(corrected)

    if not faults:
        return list(entries.values())
    return review.leave_out(entries, faults)


class _LogReview:
    """Finds and corrects faults in the log entries of a session; entries are named by numbers."""

    def __init__(self, session: Session, setting: Setting) -> None:
        self._session = session
        self._setting = setting

    def find_faults(self, entries: Mapping[int, DraftLog]) -> dict[int, list[str]]:
        """Return what is wrong with entries, by their numbers, in order.

        A model looks for entries of the wrong type, and for contradictions to profile and past.
        """
        faults: dict[int, list[str]] = {}
        for fault in self._find_wrong_types(entries):
            faults.setdefault(fault.number, []).append(fault.reason)

        numbers_by_label: dict[str, int] = {}
        texts_by_label: dict[str, str] = {}
        for number, entry in entries.items():
            label = f"L{number}"
            numbers_by_label[label] = number
            texts_by_label[label] = f"{entry.timestamp} {entry.content}"
        # Logs are compared with profile and past alone, so without preferences.
        contradictions = _find_contradictions(texts_by_label, [], self._session, self._setting)
        for label, reason in contradictions:
            number = numbers_by_label[label]
            faults.setdefault(number, []).append(reason)
        return dict(sorted(faults.items()))

    def _find_wrong_types(self, entries: Mapping[int, DraftLog]) -> list[LogFault]:
        """Ask which entries do not match their types."""
        # The fields in the order in which `ReviewLogTypes` announces them.
        lines = [f"{number} | {entry.type} | {entry.content}" for number, entry in entries.items()]

        def check(answer: dspy.Prediction) -> CheckResult[list[LogFault]]:
            faults: list[LogFault] = answer.faults
            problems: list[str] = []
            for fault in faults:
                if fault.number not in entries:
                    problems.append(f"there is no record {fault.number!r}")
            return accept_if_valid(faults, problems)

        inputs = {"logs": lines}
        return _ask_for_faults(LOG_TYPE_REVIEW, self._session, inputs, check, self._setting)

    def correct(
        self, entries: Mapping[int, DraftLog], faults: Mapping[int, Sequence[str]]
    ) -> dict[int, DraftLog]:
        """Correct all faulty entries, and return the corrected ones by their numbers.

        If no attempt succeeds, nothing is corrected and the result is empty.
        """
        # The fields in the order in which `CorrectLogs` announces them.
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

        def check(answer: dspy.Prediction) -> CheckResult[list[CorrectedLog]]:
            return accept_if_valid(
                answer.corrected, corrected_log_problems(answer.corrected, faults)
            )

        corrections = self._setting.ask(LOG_CORRECTION, self._session.id, inputs, check)
        if corrections is None:
            return {}

        corrected_entries: dict[int, DraftLog] = {}
        for correction in corrections:
            # The prompt has time and event stay as they are.
            changes = {"type": correction.type, "content": correction.content}
            entry = entries[correction.number]
            corrected_entries[correction.number] = entry.model_copy(update=changes)
        return corrected_entries

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


def corrected_log_problems(
    corrected: Sequence[CorrectedLog], faulty_numbers: Iterable[int]
) -> list[str]:
    """Return what is wrong with corrections: each faulty entry is wanted once, with a text."""
    problems: list[str] = []
    numbers = sorted(entry.number for entry in corrected)
    wanted_numbers = sorted(faulty_numbers)
    if numbers != wanted_numbers:
        problems.append(f"corrected are {numbers}; correct {wanted_numbers}, once each")
    for entry in corrected:
        if blank(entry.content):
            problems.append(f"{entry.number} is empty")
    return problems


# Dialogues.


Utterance = DraftUserUtterance | DraftAssistantUtterance
Place = tuple[int, Role]
"""The place of an utterance: the number of its turn, counted from 1, and who speaks."""


def review_dialogue(
    session: Session, script: Script, turns: list[DraftTurn], setting: Setting
) -> list[DraftTurn]:
    """Review and correct a dialogue in as many rounds as are set, and return the result.

    Args:
        session: The session of the dialogue.
        script: The script that the dialogue follows.
        turns: The dialogue.
        setting: The number of rounds, and the runner.
    """
    if setting.reviews == 0:
        return turns

    review = _DialogueReview(session, script, setting)
    utterances = _utterances_of(turns)
    faults = review.find_faults(utterances)
    for _ in range(setting.reviews):
        if not faults:
            break
        corrected = review.correct(utterances, faults)
        if not corrected:
            # The correction was given up, so the faults remain.
            break
        utterances.update(corrected)
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
    """Put the utterances of a dialogue together into turns: the inverse of `_utterances_of`."""
    # Every turn has two utterances, and turns are numbered from 1.
    num_turns = len(utterances) // 2
    turns: list[DraftTurn] = []
    for number in range(1, num_turns + 1):
        # Validated, since the type of an utterance does not say who speaks.
        turn = {"user": utterances[number, "user"], "assistant": utterances[number, "assistant"]}
        turns.append(DraftTurn.model_validate(turn))
    return turns


class _DialogueReview:
    """Finds and corrects faults in the utterances of a session's dialogue."""

    def __init__(self, session: Session, script: Script, setting: Setting) -> None:
        self._session = session
        self._script = script
        self._setting = setting

    def find_faults(self, utterances: Mapping[Place, Utterance]) -> dict[Place, list[str]]:
        """Return what is wrong with utterances, by their places, in order.

        A model looks for words that do not do what their action says, and for contradictions to
        what is known about the user.
        """
        faults: dict[Place, list[str]] = {}
        for fault in self._find_wrong_actions(utterances):
            faults.setdefault((fault.turn, fault.role), []).append(fault.reason)

        # The review against the persona names a record by one word: "U3" or "A3" for turn 3.
        places_by_label: dict[str, Place] = {}
        texts_by_label: dict[str, str] = {}
        for (number, role), utterance in utterances.items():
            label = f"U{number}" if role == "user" else f"A{number}"
            places_by_label[label] = (number, role)
            texts_by_label[label] = utterance.content
        contradictions = _find_contradictions(
            texts_by_label, self._preferences(), self._session, self._setting
        )
        for label, reason in contradictions:
            place = places_by_label[label]
            faults.setdefault(place, []).append(reason)
        return dict(sorted(faults.items()))

    def _preferences(self) -> list[str]:
        """Return what the user likes and dislikes about the matters of the dialogue."""
        lines: list[str] = []
        for type_id in self._session.requirement_ids:
            preference = self._session.persona.preferences[type_id]
            likes = f"likes: {preference.pos} dislikes: {preference.neg}"
            lines.append(f"{preference.requirement}: {likes}")
        return lines

    def _find_wrong_actions(self, utterances: Mapping[Place, Utterance]) -> list[UtteranceFault]:
        """Ask which utterances do not do what their actions say."""
        # The fields in the order in which `ReviewActions` announces them.
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

        inputs = {"dialogue": lines}
        return _ask_for_faults(ACTION_REVIEW, self._session, inputs, check, self._setting)

    def correct(
        self, utterances: Mapping[Place, Utterance], faults: Mapping[Place, Sequence[str]]
    ) -> dict[Place, Utterance]:
        """Ask the model to correct the faulty utterances, and return the corrected ones by place.

        A correction is accepted only if it corrects all of them. If no attempt succeeds, the result
        is empty.

        Args:
            utterances: All utterances of the dialogue, by place.
            faults: What is wrong with the faulty ones, by place.
        """

        def check(answer: dspy.Prediction) -> CheckResult[list[CorrectedUtterance]]:
            return accept_if_valid(
                answer.corrected, corrected_utterance_problems(answer.corrected, faults)
            )

        inputs = self._mending_inputs(utterances, faults)
        corrections = self._setting.ask(UTTERANCE_CORRECTION, self._session.id, inputs, check)
        if corrections is None:
            return {}

        corrected_utterances: dict[Place, Utterance] = {}
        for correction in corrections:
            place = (correction.turn, correction.role)
            # Only the words change. The action stays, because the plan of the dialogue sets it.
            changes = {"content": correction.content}
            corrected_utterances[place] = utterances[place].model_copy(update=changes)
        return corrected_utterances

    def _mending_inputs(
        self, utterances: Mapping[Place, Utterance], faults: Mapping[Place, Sequence[str]]
    ) -> dict[str, Any]:
        """Return the inputs of `CorrectUtterances`: all utterances, and what is wrong with some."""
        dialogue: list[str] = []
        for (number, role), utterance in utterances.items():
            plan = f"{utterance.action} | {utterance.reference}"
            dialogue.append(f"turn {number} | {role} | {plan} | {utterance.content}")
        faulty: list[str] = []
        for (number, role), reasons in faults.items():
            faulty.append(f"turn {number} | {role} | fault: {'; '.join(reasons)}")
        return {
            "profile": self._session.persona.profile,
            "personality": self._session.persona.personality,
            "framework": self._script.framework,
            "dialogue": dialogue,
            "faulty": faulty,
        }


def corrected_utterance_problems(
    corrected: Sequence[CorrectedUtterance], faulty_places: Iterable[Place]
) -> list[str]:
    """Return what is wrong with corrections: each faulty utterance is wanted once, with words."""
    problems: list[str] = []
    places = sorted((utterance.turn, utterance.role) for utterance in corrected)
    wanted_places = sorted(faulty_places)
    if places != wanted_places:
        problems.append(f"corrected are {places}; correct {wanted_places}, once each")
    for utterance in corrected:
        if blank(utterance.content):
            problems.append(f"{(utterance.turn, utterance.role)} is empty")
    return problems


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
    """Ask which records of a session contradict what is known about the user.

    Args:
        texts_by_label: The log entries or utterances. The model sees each after its label, such as
            "L3", and names it by the label.
        preferences: What the user likes and dislikes; empty if the records are not compared with
            it.
        session: The session. The model is told what happened up to its month.
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
            # A model may copy the label as "[L3]", "L3:" or "l3".
            label = contradiction.record.strip(" []:").upper()
            if label not in texts_by_label:
                problems.append(f"there is no record {label!r}")
            reasons.append(_LabelledReason(label, contradiction.reason))
        return accept_if_valid(reasons, problems)

    return _ask_for_faults(PERSONA_REVIEW, session, inputs, check, setting)
