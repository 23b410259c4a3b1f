"""The files of a PAL-Set, in the layout of the released data.

    input.json                      {user: {"history": [SAMPLE], "query": [SAMPLE]}}, see `data.palbench.reader`
    background.json                 {user: {name, gender, age, ..., personality}}
    timeline.json                   {user: {month: events}}
    requirement.json                {user: {aspect: {"work-1": text}}}
    preference.json                 {user: {aspect: {"work-1": {requirement, preference: {pos, neg}}}}}
    situation.json, experience.json {user: {day: {start_timestamp, end_timestamp, ...}}}
    dialogue_situation_ids.json     {user: {"history": [day], "query": [day]}}
    requirement_framework.json, candidate_solution.json, solution_preference.json    {user: {day: {topic: ...}}}
    log.json                        {user: {day: [{timestamp, event, type, content}]}}

A day is the last one of a situation. The English files end in `_en`. A sample holds the logs since the last dialogue,
of situations without a dialogue too; types, events and references are not in it.

Limits: all files lie in one folder, where the released ones have folders of their own. Names of actions are
English in the English files; how the authors' translation calls them was not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ....records.whole_file import write_json
from ....signatures.pal import AssistantAction, UserAction
from ....signatures.synthesis_palset_records import CHINESE, DraftTurn
from .people import ASPECTS, Code, Persona, Session, Topic

ACTIONS: Mapping[str, Mapping[str, str]] = {
    role: {english: chinese for chinese, english in CHINESE.items() if english in actions}
    for role, actions in (("user", get_args(UserAction)), ("assistant", get_args(AssistantAction)))
}
"""The actions of each role, and their names in the Chinese data."""


def record(sessions: Sequence[Session], language: Code) -> dict[str, Any]:
    """A user's entry in `input.json`.

    Args:
        sessions: All of the user's, in order; those without a dialogue give their logs to the next that has one.
        language: Of the data.
    """
    user = sessions[0].persona.person.id
    entries = sorted((one for session in sessions for one in session.logs), key=lambda one: one.timestamp)
    found: dict[str, list[Any]] = {"history": [], "query": []}
    for number, session in enumerate(told(sessions)):
        end = session.situation.ends
        ready = [one for one in entries if one.timestamp <= end[:16]]
        entries = entries[len(ready) :]
        found[session.part].append(
            {
                "sample_id": f"{user}_sample{number}",
                "dialogue_timestamp": end,
                "logs": [{"timestamp": one.timestamp, "content": one.content} for one in ready],
                "dialogue": {f"turn_{n}": _turn(turn, language) for n, turn in enumerate(session.turns, 1)},
                "topics": {f"topic-{n}": _topic(topic) for n, topic in enumerate(session.topics, 1)},
            }
        )
    return found


def told(sessions: Sequence[Session]) -> list[Session]:
    """The sessions that have a dialogue."""
    return [session for session in sessions if session.turns]


def write(out: Path, users: Sequence[Sequence[Session]], language: Code) -> list[Path]:
    """Writes all files; the first is the data file.

    Raises:
        DataError: One cannot be written.
    """
    ending = "_en" if language == "en" else ""
    parts = {"input": {_id(sessions): record(sessions, language) for sessions in users}}
    for sessions in users:
        for name, value in {**_persona(sessions[0].persona), **_days(sessions)}.items():
            parts.setdefault(name, {})[_id(sessions)] = value
    return [write_json(out / f"{name}{ending}.json", content) for name, content in parts.items()]


def _id(sessions: Sequence[Session]) -> str:
    return sessions[0].persona.person.id


def _turn(turn: DraftTurn, language: Code) -> dict[str, Any]:
    return {
        role: {
            "action": ACTIONS[role][said.action] if language == "zh" else said.action,
            "content": said.content.strip(),
        }
        for role, said in (("user", turn.user), ("assistant", turn.assistant))
    }


def _topic(topic: Topic) -> dict[str, Any]:
    sides = {
        "pos": [one.solution for one in topic.choice.liked],
        "neg": [one.solution for one in topic.choice.disliked],
    }
    feedback = {solution: side for side, chosen in sides.items() for solution in chosen}
    return {
        "user_query": topic.draft.user_query,
        "implicit_needs": [need.need for need in topic.draft.implicit_needs],
        "requirement": topic.draft.requirement,
        "solution": sides,
        "candidate_solutions": [{"solution": text, "feedback": feedback.get(text, "neu")} for text in topic.candidates],
    }


def _persona(persona: Persona) -> dict[str, Any]:
    def by_aspect(rows: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {aspect: {id: row for id, row in rows.items() if id.startswith(aspect)} for aspect in ASPECTS}

    tastes = {
        id: {"requirement": persona.types[id], "preference": {"pos": one.pos, "neg": one.neg}}
        for id, one in persona.preferences.items()
    }
    return {
        "background": persona.person.background,
        "timeline": {one.month: one.events for one in persona.timeline},
        "requirement": by_aspect(persona.types),
        "preference": by_aspect(tastes),
    }


def _days(sessions: Sequence[Session]) -> dict[str, Any]:
    def by_day(rows: Mapping[str, Any]) -> dict[str, Any]:
        return {day: row for day, row in rows.items() if row}

    chosen = told(sessions)
    times = {
        one.situation.end: {"start_timestamp": one.situation.begins, "end_timestamp": one.situation.ends}
        for one in sessions
    }
    situations = {
        one.situation.end: times[one.situation.end]
        | {"requirement_ids": list(one.situation.requirement_ids), "situation": one.situation.text}
        for one in sessions
    }
    frames = {one.situation.end: {f"topic-{n}": topic for n, topic in enumerate(one.topics, 1)} for one in chosen}
    return {
        "situation": situations,
        "experience": {
            one.situation.end: times[one.situation.end] | {"experience": one.experience}
            for one in sessions
            if one.experience
        },
        "dialogue_situation_ids": {
            part: [one.situation.end for one in chosen if one.part == part] for part in ("history", "query")
        },
        "requirement_framework": {d: {k: t.draft.model_dump() for k, t in ts.items()} for d, ts in frames.items()},
        "candidate_solution": {d: {k: list(t.candidates) for k, t in ts.items()} for d, ts in frames.items()},
        "solution_preference": {
            d: {
                k: {
                    "analysis": t.choice.analysis,
                    "pos_list": [one.model_dump() for one in t.choice.liked],
                    "neg_list": [one.model_dump() for one in t.choice.disliked],
                }
                for k, t in ts.items()
            }
            for d, ts in frames.items()
        },
        "log": by_day({one.situation.end: [entry.model_dump() for entry in one.logs] for one in sessions}),
    }
