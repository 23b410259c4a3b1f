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
    DraftLog,
    DraftTurn,
    DraftUserUtterance,
)
from ..runner import write_json
from .people import ASPECTS
from .records import Persona, Session, Topic
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
        language: The language of the data. Names of files in English end in "_en", as in the
            release; those in Chinese have no ending.
    """
    # By the name of a file and the id of a user.
    contents: dict[str, dict[str, Any]] = {}
    for user, sessions in sessions_by_user.items():
        for name, content_of_user in user_contents(sessions, language).items():
            contents.setdefault(name, {})[user] = content_of_user

    ending = "_en" if language == "en" else ""
    return [write_json(out / f"{name}{ending}.json", content) for name, content in contents.items()]


def user_contents(sessions: Sequence[Session], language: LanguageCode) -> dict[str, Any]:
    """Return what each file says about a user, by the names of the files.

    Args:
        sessions: All sessions of the user; there is one at least.
        language: The language of the data.
    """
    persona = sessions[0].persona
    return {
        "input": _samples(sessions, language),
        "background": persona.background,
        "timeline": {month.month: month.events for month in persona.timeline},
        "preference": _preferences(persona),
        "situation": _situations(sessions),
        "experience": _experiences(sessions),
        "requirement_framework": _requirements(sessions),
        "solution_preference": _solution_preferences(sessions),
        "log": _logs(sessions),
    }


def _preferences(persona: Persona) -> dict[str, Any]:
    """Return the user's preferences by aspect and requirement type."""
    rows_by_aspect: dict[str, Any] = {}
    for aspect in ASPECTS:
        rows: dict[str, Any] = {}
        for type_id, text in persona.types_of(aspect).items():
            preference = persona.preferences[type_id]
            rows[type_id] = {
                "requirement": text,
                "preference": {"pos": preference.pos, "neg": preference.neg},
            }
        rows_by_aspect[aspect] = rows
    return rows_by_aspect


# Contents with a row for each session; the last day of a session is its key.


def _situations(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the situation of every session, with the requirement types that it leads to."""
    rows: dict[str, Any] = {}
    for session in sessions:
        rows[session.end] = {
            "start_timestamp": session.begins,
            "end_timestamp": session.ends,
            "requirement_ids": list(session.requirement_ids),
            "situation": session.situation,
        }
    return rows


def _experiences(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the experience of each session that has one."""
    rows: dict[str, Any] = {}
    for session in sessions:
        if session.experience:
            rows[session.end] = {
                "start_timestamp": session.begins,
                "end_timestamp": session.ends,
                "experience": session.experience,
            }
    return rows


def _logs(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the log entries of each session that has some."""
    rows: dict[str, Any] = {}
    for session in sessions:
        if session.logs:
            rows[session.end] = [entry.model_dump() for entry in session.logs]
    return rows


def _requirements(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the topics of each dialogue: what the user asks for and silently needs."""
    rows: dict[str, Any] = {}
    for session in sessions:
        if session.turns:
            rows[session.end] = {
                _topic_key(number): topic.draft.model_dump()
                for number, topic in enumerate(session.topics, 1)
            }
    return rows


def _solution_preferences(sessions: Sequence[Session]) -> dict[str, Any]:
    """Return which solutions the user likes and dislikes, for each topic of each dialogue."""
    rows: dict[str, Any] = {}
    for session in sessions:
        if session.turns:
            rows[session.end] = {
                _topic_key(number): _opinion(topic)
                for number, topic in enumerate(session.topics, 1)
            }
    return rows


def _topic_key(number: int) -> str:
    """Return the key of a topic by its place in the dialogue, counted from 1."""
    return f"topic-{number}"


def _opinion(topic: Topic) -> dict[str, Any]:
    """Return what the user thinks of the solutions for a topic, with the reasons."""
    return {
        "analysis": topic.analysis,
        "pos_list": _dumped(topic.liked),
        "neg_list": _dumped(topic.disliked),
    }


def _dumped(choices: Sequence[DraftChoice]) -> list[dict[str, Any]]:
    return [choice.model_dump() for choice in choices]


# The data file.


def _samples(sessions: Sequence[Session], language: LanguageCode) -> dict[str, list[Any]]:
    """Return the samples of a user for both parts of the data, "history" and "query".

    A sample is a dialogue with the log entries since the dialogue before. They include those of
    situations without a dialogue. Entries after the last dialogue are in no sample.
    """
    all_entries = [entry for session in sessions for entry in session.logs]
    all_entries.sort(key=lambda entry: entry.timestamp)
    with_dialogue = [session for session in sessions if session.turns]

    samples: dict[str, list[Any]] = {"history": [], "query": []}
    previous_end = ""
    for number, session in enumerate(with_dialogue):
        entries: list[DraftLog] = []
        for entry in all_entries:
            if previous_end < entry.timestamp <= session.last_minute:
                entries.append(entry)
        previous_end = session.last_minute
        samples[session.part].append(_sample(session, number, entries, language))
    return samples


def _sample(
    session: Session, number: int, entries: Sequence[DraftLog], language: LanguageCode
) -> dict[str, Any]:
    """Return a sample in the released form.

    Args:
        session: A session with a dialogue.
        number: The place of the sample among those of the user, counted from 0.
        entries: The log entries since the dialogue before.
        language: The language of the data.
    """
    dialogue: dict[str, Any] = {}
    for turn_number, turn in enumerate(session.turns, 1):
        dialogue[f"turn_{turn_number}"] = _turn(turn, language)
    topics: dict[str, Any] = {}
    for topic_number, topic in enumerate(session.topics, 1):
        topics[_topic_key(topic_number)] = _topic(topic)
    return {
        "sample_id": f"{session.persona.id}_sample{number}",
        "dialogue_timestamp": session.ends,
        "logs": [{"timestamp": entry.timestamp, "content": entry.content} for entry in entries],
        "dialogue": dialogue,
        "topics": topics,
    }


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
