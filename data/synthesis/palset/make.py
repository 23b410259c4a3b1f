"""Writes a PAL-Set: users with months of device logs and of dialogues about what they need and like.

    people ──> personas ──> situations ──> experiences ──> logs ───────────────────────> review ──┐
                                └── drawn ──> topics, solutions ──> script ──> dialogue ──> review ─┴──> files

Mem-PAL (Huang et al. 2025), section "Dataset Construction", appendices B and E; the numbers that the paper leaves open
are those of the released code. Every answer is checked by code and asked for again until it passes or is given up.

A user counts with a whole persona and all situations; a situation whose experience or logs were given up has none, and
a dialogue counts with its logs, topics and all turns, or not at all: its logs then belong to the next one. A resumed
run tries again what was given up.

Limits: about 45 calls per user and month with reviews. One stage is done for all users before the next begins,
and files are written at the end. What people did for the authors' data, reading and refining, is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .dialogue import dialogue, script, topics
from .layout import told, write
from .life import draw, experience, logs, situations
from .people import Part, Persona, Session, Setting
from .persona import invent, personas
from .review import review_dialogue, review_logs


def make_palset(users: int, out: Path, setting: Setting, note: Callable[[str], None] = print) -> list[Path]:
    """Writes the files of `layout` into a folder, under the language model of `dspy.context`.

    Args:
        users: How many.
        out: The folder; made if missing.
        setting: Language, months, seed and the runner, whose report says what was refused.
        note: Told a line per user.

    Returns:
        The files, the data file first; none if no user came through.

    Raises:
        LMError: The model failed; answers before are kept.
        DataError: A file cannot be written.
    """
    found = personas(invent(users, setting), setting)
    planned = setting.runner.map(lambda persona: _sessions(persona, setting), found)
    whole = [sessions for sessions in planned if sessions]
    every = [session for sessions in whole for session in sessions]
    setting.runner.map(lambda job: _live(job[0], job[1], setting), [(own, n) for own in whole for n in range(len(own))])
    setting.runner.map(lambda session: _talk(session, setting), [one for one in every if one.part and one.logs])
    kept = [sessions for sessions in whole if _complete(sessions, setting, note)]
    complete = {sessions[0].persona.person.id for sessions in kept}
    for n in range(users):
        if f"{n:04d}" not in complete:
            setting.runner.reject("user", f"{n:04d}", ["did not come through all steps"], "given up")
    return write(out, kept, setting.language) if kept else []


def _sessions(persona: Persona, setting: Setting) -> list[Session]:
    """A session per situation, with what is drawn for it; none if a month was given up."""
    found = situations(persona, setting) or []
    if not found:
        return []
    ends = [one.end for one in found]
    history, query = draw(persona.person.id, ends, persona.timeline[-1].month, setting.seed)
    parts: dict[str, Part] = {**dict.fromkeys(history, "history"), **dict.fromkeys(query, "query")}
    return [Session(persona, one, part=parts.get(one.end, "")) for one in found]


def _live(own: Sequence[Session], n: int, setting: Setting) -> None:
    """Gives a session its experience and its logs."""
    session = own[n]
    told = experience(session.persona, [one.situation for one in own], n, setting)
    entries = logs(session.persona, session.situation, told, setting) if told is not None else None
    if told is not None and entries is not None:
        session.experience, session.logs = told, entries
        session.logs = review_logs(session, setting)


def _talk(session: Session, setting: Setting) -> None:
    """Gives a session its topics and its dialogue."""
    found = topics(session, setting)
    if found is None or not session.part:
        return
    person, end = session.persona.person.id, session.situation.end
    planned = script(found, session.part, f"{setting.seed} {person} {end}")
    session.turns = dialogue(session, planned, setting) or []
    if session.turns:
        session.topics = found
        session.turns = review_dialogue(session, planned, setting)


def _complete(sessions: Sequence[Session], setting: Setting, note: Callable[[str], None]) -> bool:
    """Whether a user can be written: with dialogues in both parts."""
    user = sessions[0].persona.person.id
    parts = [session.part for session in told(sessions)]
    problems = [f"no dialogue in the {part} set" for part in ("history", "query") if part not in parts]
    count = sum(len(session.logs) for session in sessions)
    note(f"{user}: {parts.count('history')} + {parts.count('query')} dialogues, {count} log entries")
    if problems:
        setting.runner.reject("whole user", user, problems, "given up")
    return not problems
