"""The files of a PAL-Set in the released form, as `data.palbench.reader` reads them.

`input` is the data file. `background`, `timeline`, `preference`, `situation`, `experience`,
`requirement_framework`, `solution_preference` and `log` stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ....signatures.pal import AssistantAction, UserAction
from ....signatures.synthesis_palset import DraftChoice
from ....signatures.synthesis_palset_records import (
    CHINESE,
    DraftAssistantUtterance,
    DraftTurn,
    DraftUserUtterance,
)
from ..runner import write_json
from .people import ASPECTS
from .records import Session, Topic
from .texts import LanguageCode


def _chinese_names(actions: Sequence[str]) -> dict[str, str]:
    """Return the Chinese names of some actions, by their English names."""
    names: dict[str, str] = {}
    for chinese, english in CHINESE.items():
        if english in actions:
            names[english] = chinese
    return names


ACTIONS: Mapping[str, Mapping[str, str]] = {
    "user": _chinese_names(get_args(UserAction)),
    "assistant": _chinese_names(get_args(AssistantAction)),
}
"""The actions of each role, and their names in the Chinese data."""


def write_files(
    sessions_by_user: Mapping[str, Sequence[Session]], out: Path, language: LanguageCode
) -> list[Path]:
    """Write the files of all users, the data file first, and return their paths.

    Args:
        sessions_by_user: The sessions of each user, in order.
        out: The folder.
        language: The language of the data, which ends the names of English files.
    """
    contents: dict[str, dict[str, Any]] = {}
    for user, sessions in sessions_by_user.items():
        for name, part in user_parts(sessions, language).items():
            contents.setdefault(name, {})[user] = part

    ending = "_en" if language == "en" else ""
    return [write_json(out / f"{name}{ending}.json", content) for name, content in contents.items()]


def user_parts(sessions: Sequence[Session], language: LanguageCode) -> dict[str, Any]:
    """Return what each file says about a user, by the names of the files."""
    persona = sessions[0].persona
    parts: dict[str, Any] = {
        "input": input_part(sessions, language),
        "background": persona.background,
        "timeline": {month.month: month.events for month in persona.timeline},
        "preference": _preference_part(sessions),
        "situation": {},
        "experience": {},
        "requirement_framework": {},
        "solution_preference": {},
        "log": {},
    }
    for session in sessions:
        day = session.end
        times = {"start_timestamp": session.begins, "end_timestamp": session.ends}
        requirement_ids = list(session.requirement_ids)
        parts["situation"][day] = {
            **times,
            "requirement_ids": requirement_ids,
            "situation": session.situation,
        }
        if session.experience:
            parts["experience"][day] = {**times, "experience": session.experience}
        if session.logs:
            parts["log"][day] = [entry.model_dump() for entry in session.logs]
        if session.turns:
            requirements: dict[str, Any] = {}
            opinions: dict[str, Any] = {}
            for number, topic in enumerate(session.topics, 1):
                requirements[f"topic-{number}"] = topic.draft.model_dump()
                opinions[f"topic-{number}"] = _opinion(topic)
            parts["requirement_framework"][day] = requirements
            parts["solution_preference"][day] = opinions
    return parts


def _preference_part(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the user's preferences by aspect and requirement type."""
    persona = sessions[0].persona
    rows_by_aspect: dict[str, Any] = {aspect: {} for aspect in ASPECTS}
    for type_id, preference in persona.preferences.items():
        aspect, _, _ = type_id.rpartition("-")
        rows_by_aspect[aspect][type_id] = {
            "requirement": persona.types[type_id],
            "preference": {"pos": preference.pos, "neg": preference.neg},
        }
    return rows_by_aspect


def _opinion(topic: Topic) -> dict[str, Any]:
    """Return what the user thinks of the solutions for a topic, with the reasons."""
    return {
        "analysis": topic.analysis,
        "pos_list": _dumped(topic.liked),
        "neg_list": _dumped(topic.disliked),
    }


def _dumped(choices: Sequence[DraftChoice]) -> list[dict[str, Any]]:
    return [choice.model_dump() for choice in choices]


def input_part(sessions: Sequence[Session], language: LanguageCode) -> dict[str, Any]:
    """Return the samples of a user by part of the data.

    A sample is a dialogue with the log entries since the dialogue before. They include those of
    situations without a dialogue.
    """
    waiting_entries = [entry for session in sessions for entry in session.logs]
    waiting_entries.sort(key=lambda entry: entry.timestamp)

    samples: dict[str, list[Any]] = {"history": [], "query": []}
    num_samples = 0
    for session in sessions:
        if not session.turns:
            continue
        entries = [entry for entry in waiting_entries if entry.timestamp <= session.last_minute]
        waiting_entries = waiting_entries[len(entries) :]
        logs = [{"timestamp": entry.timestamp, "content": entry.content} for entry in entries]

        dialogue: dict[str, Any] = {}
        for number, turn in enumerate(session.turns, 1):
            dialogue[f"turn_{number}"] = _turn(turn, language)
        topics: dict[str, Any] = {}
        for number, topic in enumerate(session.topics, 1):
            topics[f"topic-{number}"] = _topic(topic)
        sample = {
            "sample_id": f"{session.persona.id}_sample{num_samples}",
            "dialogue_timestamp": session.ends,
            "logs": logs,
            "dialogue": dialogue,
            "topics": topics,
        }
        samples[session.part].append(sample)
        num_samples += 1
    return samples


def _turn(turn: DraftTurn, language: LanguageCode) -> dict[str, Any]:
    return {
        "user": _utterance("user", turn.user, language),
        "assistant": _utterance("assistant", turn.assistant, language),
    }


def _utterance(
    role: str,
    utterance: DraftUserUtterance | DraftAssistantUtterance,
    language: LanguageCode,
) -> dict[str, str]:
    """Return an utterance with its action in the language of the data."""
    action = utterance.action
    if language == "zh":
        action = ACTIONS[role][action]
    return {"action": action, "content": utterance.content.strip()}


def _topic(topic: Topic) -> dict[str, Any]:
    """Return a topic with its solutions, and which of them the user likes."""
    liked = [choice.solution for choice in topic.liked]
    disliked = [choice.solution for choice in topic.disliked]
    candidates: list[dict[str, str]] = []
    for solution in topic.candidates:
        feedback = "neu"
        if solution in liked:
            feedback = "pos"
        elif solution in disliked:
            feedback = "neg"
        candidates.append({"solution": solution, "feedback": feedback})
    return {
        "user_query": topic.draft.user_query,
        "implicit_needs": [need.need for need in topic.draft.implicit_needs],
        "requirement": topic.draft.requirement,
        "solution": {"pos": liked, "neg": disliked},
        "candidate_solutions": candidates,
    }
