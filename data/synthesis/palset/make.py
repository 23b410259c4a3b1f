"""Write a PAL-Set: users with months of device logs, and of dialogues about what they need.

    1, 2  people ──> past, requirement types, preferences
    3     months ──> situations
    4     situations ──> experiences
    6-1   experiences ──> logs ──────────────────────────────────────────────> review ──┐
    5     situations ── drawn ──> topics, solutions                                     │
    6-2                             └── drawn ──> script ──> dialogue ──> review ───────┴──> files

Source: Mem-PAL (Huang et al. 2025), section "Dataset Construction", appendices B and E; steps have
the numbers of appendix E. Figures that the paper leaves open are those of the released code.

A user counts with a whole persona and all situations. A dialogue counts with its logs, topics and
all turns, or not at all: its logs then belong to the next one.

Limits: with reviews there are about 45 calls per user and month. One stage is done for all users
before the next begins, and files are written at the end. What people did for the authors' data,
reading and refining, is not done.

Example:
    A script that is run again goes on: its answers are kept, and it pays for what is missing.
    `mempiler synthesize palset` does the same.

        store = RunStore(Path("answers.sqlite"))
        lm = language_model("openai/gpt-4.1-mini", answers=store.answers)
        runner = Runner(attempts=10, threads=128)
        with dspy.context(lm=lm):
            files = make_palset(2, Path("pal"), Setting("en", months=8, seed=0, runner=runner))
        print(runner.report)  # what was accepted and refused
        # `mempiler evaluate h2memory --benchmark palbench.restate --data` takes files[0].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .dialogue import draw_script, write_dialogue
from .experiences import write_experience, write_logs
from .files import write_files
from .people import complete_personas, invent_people
from .records import Session
from .review import review_dialogue, review_logs
from .setting import Setting
from .situations import plan_situations
from .topics import write_topics


def make_palset(
    users: int, out: Path, setting: Setting, on_progress: Callable[[str], None] = print
) -> list[Path]:
    """Write the files of a PAL-Set into a folder, with the language model of `dspy.context`.

    Args:
        users: How many.
        out: The folder; created if it is not there.
        setting: Language, months, seed and the runner, whose report says what was refused.
        on_progress: Receives a line per user.

    Returns:
        The files, the data file first; none if no user came through.

    Raises:
        LMError: The model failed; answers before are kept.
        DataError: A file cannot be written.
    """
    runner = setting.runner

    # Steps 1 and 2: people, their past, what they ask for and what they like.
    people = invent_people(users, setting)
    personas = complete_personas(people, setting)

    # Step 3: situations, and which of them end in a dialogue.
    sessions_by_persona = runner.map(lambda persona: plan_situations(persona, setting), personas)
    sessions: list[Session] = []
    for sessions_of_persona in sessions_by_persona:
        sessions.extend(sessions_of_persona)

    # Steps 4 and 6-1: experiences, and the logs of them.
    runner.map(lambda session: _add_logs(session, setting), sessions)

    # Steps 5 and 6-2: dialogues.
    with_dialogue = [session for session in sessions if session.part and session.logs]
    runner.map(lambda session: _add_dialogue(session, setting), with_dialogue)

    complete_users: dict[str, Sequence[Session]] = {}
    for sessions_of_persona in sessions_by_persona:
        if not sessions_of_persona:
            # A month of situations was given up.
            continue
        user = sessions_of_persona[0].persona.id
        on_progress(f"{user}: {_counts(sessions_of_persona)}")

        problems = _missing_parts(sessions_of_persona)
        if problems:
            runner.reject("whole user", user, problems, "given up")
        else:
            complete_users[user] = sessions_of_persona
    for number in range(users):
        user = f"{number:04d}"
        if user not in complete_users:
            runner.reject("user", user, ["did not come through all steps"], "given up")
    return write_files(complete_users, out, setting.language)


def _add_logs(session: Session, setting: Setting) -> None:
    """Write the experience and the logs of a session, review the logs, and add both to the session.

    If a step is given up, the session gets neither.
    """
    experience = write_experience(session, setting)
    if experience is None:
        return
    logs = write_logs(session, experience, setting)
    if logs is None:
        return

    # The review reads the experience in the session.
    session.experience = experience
    session.logs = review_logs(session, logs, setting)


def _add_dialogue(session: Session, setting: Setting) -> None:
    """Write the topics and the turns of a session, review the turns, and add both to the session.

    If a step is given up, the session gets neither: a dialogue counts as a whole or not at all.
    """
    topics = write_topics(session, setting)
    if topics is None:
        return
    # Each session has a seed, so that its script does not depend on what became of others.
    seed = f"{setting.seed} {session.persona.id} {session.end}"
    script = draw_script(topics, session.part, seed)
    turns = write_dialogue(session, script, setting)
    if not turns:
        return

    session.topics = topics
    session.turns = review_dialogue(session, script, turns, setting)


def _counts(sessions: Sequence[Session]) -> str:
    """Return in words how many dialogues and log entries a user has."""
    parts = [session.part for session in sessions if session.turns]
    num_logs = sum(len(session.logs) for session in sessions)
    return f"{parts.count('history')} + {parts.count('query')} dialogues, {num_logs} log entries"


def _missing_parts(sessions: Sequence[Session]) -> list[str]:
    """Return which part of the data has no dialogue of a user; none if the user is complete."""
    parts = [session.part for session in sessions if session.turns]
    problems: list[str] = []
    if "history" not in parts:
        problems.append("no dialogue in the history set")
    if "query" not in parts:
        problems.append("no dialogue in the query set")
    return problems
