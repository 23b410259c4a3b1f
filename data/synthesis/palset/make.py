"""Writes a PAL-Set: users with months of device logs and of dialogues about what they need and like.

    people ──> personas ──> situations ──> experiences ──> logs ───────────────────────> review ──┐
                                └── drawn ──> topics, solutions ──> script ──> dialogue ──> review ─┴──> files

Mem-PAL (Huang et al. 2025), section "Dataset Construction", appendices B and E; the numbers that the paper leaves open
are those of the released code. Files have the form of `data.palbench.reader`, and `timeline`, `experience` and `log`
beside it. A user counts with a whole persona and all situations, a dialogue with its logs, topics and all turns, or not
at all: its logs then belong to the next one.

Limits: about 45 calls per user and month with reviews. One stage is done for all users before the next begins, and
files are written at the end. What people did for the authors' data, reading and refining, is not done.

Example:
    A script that is run again goes on: its answers are kept, and it pays for what is missing.

        store = RunStore(Path("answers.sqlite"))
        lm = language_model("openai/gpt-4.1-mini", answers=store.answers)
        runner = Runner(attempts=10, threads=128)
        with dspy.context(lm=lm):
            files = make_palset(2, Path("pal"), Setting("en", months=8, seed=0, runner=runner))
        print(runner.report)  # what was accepted and refused; `--benchmark palbench.restate --data` takes files[0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ....signatures.pal import AssistantAction, UserAction
from ....signatures.synthesis_palset_records import CHINESE, DraftTurn
from ..runner import write_json
from .dialogue import dialogue, script, topics
from .life import experience, logs, situations
from .people import ASPECTS, Code, Session, Setting, Topic, invent, personas
from .review import review_dialogue, review_logs

ACTIONS: Mapping[str, Mapping[str, str]] = {
    role: {english: chinese for chinese, english in CHINESE.items() if english in actions}
    for role, actions in (("user", get_args(UserAction)), ("assistant", get_args(AssistantAction)))
}
"""The actions of each role, and their names in the Chinese data."""


def make_palset(users: int, out: Path, setting: Setting, on_progress: Callable[[str], None] = print) -> list[Path]:
    """Writes the files of a PAL-Set into a folder, under the language model of `dspy.context`.

    Args:
        users: How many.
        out: The folder; made if missing.
        setting: Language, months, seed and the runner, whose report says what was refused.
        on_progress: Told a line per user.

    Returns:
        The files, the data file first; none if no user came through.

    Raises:
        LMError: The model failed; answers before are kept.
        DataError: A file cannot be written.
    """
    runner = setting.runner
    planned = runner.map(lambda persona: situations(persona, setting), personas(invent(users, setting), setting))
    runner.map(lambda job: _live(*job, setting), [(own, n) for own in planned for n in range(len(own))])
    every = [session for own in planned for session in own]
    runner.map(lambda session: _talk(session, setting), [one for one in every if one.part and one.logs])
    kept = {own[0].persona.id: own for own in planned if own and _complete(own, setting, on_progress)}
    for n in range(users):
        if f"{n:04d}" not in kept:
            runner.reject("user", f"{n:04d}", ["did not come through all steps"], "given up")
    ending, files = "_en" if setting.language == "en" else "", dict[str, dict[str, Any]]()
    for user, sessions in kept.items():
        for name, value in _files(sessions, setting.language).items():
            files.setdefault(name, {})[user] = value
    return [write_json(out / f"{name}{ending}.json", content) for name, content in files.items()]


def _live(own: Sequence[Session], n: int, setting: Setting) -> None:
    session = own[n]
    told = experience(own, n, setting)
    entries = logs(session, told, setting) if told is not None else None
    if told is not None and entries is not None:
        session.experience, session.logs = told, entries
        session.logs = review_logs(session, setting)


def _talk(session: Session, setting: Setting) -> None:
    found = topics(session, setting)
    if found is None:
        return
    planned = script(found, session.part, f"{setting.seed} {session.persona.id} {session.end}")
    session.turns = dialogue(session, planned, setting) or []
    if session.turns:
        session.topics = found
        session.turns = review_dialogue(session, planned, setting)


def _complete(sessions: Sequence[Session], setting: Setting, note: Callable[[str], None]) -> bool:
    user = sessions[0].persona.id
    parts = [session.part for session in sessions if session.turns]
    problems = [f"no dialogue in the {part} set" for part in ("history", "query") if part not in parts]
    count = sum(len(session.logs) for session in sessions)
    note(f"{user}: {parts.count('history')} + {parts.count('query')} dialogues, {count} log entries")
    if problems:
        setting.runner.reject("whole user", user, problems, "given up")
    return not problems


def _files(sessions: Sequence[Session], language: Code) -> dict[str, Any]:
    persona = sessions[0].persona
    tastes = {
        id: {"requirement": persona.types[id], "preference": {"pos": one.pos, "neg": one.neg}}
        for id, one in persona.preferences.items()
    }
    times = {one.end: {"start_timestamp": one.begins, "end_timestamp": one.ends} for one in sessions}
    topics = {one.end: {f"topic-{n}": topic for n, topic in enumerate(one.topics, 1)} for one in sessions if one.turns}
    return {
        "input": _input(sessions, language),
        "background": persona.background,
        "timeline": {one.month: one.events for one in persona.timeline},
        "preference": {aspect: {id: row for id, row in tastes.items() if id.startswith(aspect)} for aspect in ASPECTS},
        "situation": {
            one.end: times[one.end] | {"requirement_ids": list(one.requirement_ids), "situation": one.situation}
            for one in sessions
        },
        "experience": {one.end: times[one.end] | {"experience": one.experience} for one in sessions if one.experience},
        "requirement_framework": {
            day: {key: topic.draft.model_dump() for key, topic in found.items()} for day, found in topics.items()
        },
        "solution_preference": {
            day: {key: _opinion(topic) for key, topic in found.items()} for day, found in topics.items()
        },
        "log": {one.end: [entry.model_dump() for entry in one.logs] for one in sessions if one.logs},
    }


def _opinion(topic: Topic) -> dict[str, Any]:
    sides = {"pos_list": topic.liked, "neg_list": topic.disliked}
    return {"analysis": topic.analysis} | {name: [one.model_dump() for one in side] for name, side in sides.items()}


def _input(sessions: Sequence[Session], language: Code) -> dict[str, Any]:
    """The samples: a dialogue each, with the logs since the one before, also of situations without a dialogue."""
    entries = sorted((one for session in sessions for one in session.logs), key=lambda one: one.timestamp)
    found: dict[str, list[Any]] = {"history": [], "query": []}
    for number, session in enumerate(session for session in sessions if session.turns):
        ready = [one for one in entries if one.timestamp <= session.ends[:16]]
        entries = entries[len(ready) :]
        found[session.part].append(
            {
                "sample_id": f"{session.persona.id}_sample{number}",
                "dialogue_timestamp": session.ends,
                "logs": [{"timestamp": one.timestamp, "content": one.content} for one in ready],
                "dialogue": {f"turn_{n}": _turn(turn, language) for n, turn in enumerate(session.turns, 1)},
                "topics": {f"topic-{n}": _topic(topic) for n, topic in enumerate(session.topics, 1)},
            }
        )
    return found


def _turn(turn: DraftTurn, language: Code) -> dict[str, Any]:
    return {
        role: {
            "action": ACTIONS[role][said.action] if language == "zh" else said.action,
            "content": said.content.strip(),
        }
        for role, said in (("user", turn.user), ("assistant", turn.assistant))
    }


def _topic(topic: Topic) -> dict[str, Any]:
    sides = {"pos": [one.solution for one in topic.liked], "neg": [one.solution for one in topic.disliked]}
    feedback = {solution: side for side, chosen in sides.items() for solution in chosen}
    return {
        "user_query": topic.draft.user_query,
        "implicit_needs": [need.need for need in topic.draft.implicit_needs],
        "requirement": topic.draft.requirement,
        "solution": sides,
        "candidate_solutions": [{"solution": text, "feedback": feedback.get(text, "neu")} for text in topic.candidates],
    }
