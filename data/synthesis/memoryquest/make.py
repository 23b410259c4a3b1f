"""Write MemoryQuest: requests whose facts a search for their words does not find, and the chats.

    profile ──> 1. requests ──> gate: mean cosine of request and references <= .3, the 15 lowest
                                  ├──> 2. timeline: 5 to 10 chats in outline, each reference in one
                                  └──> 3. dialogue of each chat ──> OUT/user0.json

Source: PGR, section 4.2, which describes the steps and prints no prompts. A request counts only
with its whole timeline; the report says what was left out.

Example:
    A script that is run again goes on: its answers are kept, and it pays for what is missing.
    `mempiler synthesize memoryquest` does the same.

        store = RunStore(Path("answers.sqlite"))
        lm = language_model("openai/gpt-4.1-mini", answers=store.answers)
        runner = Runner(attempts=3, threads=8)
        with dspy.context(lm=lm):
            profiles = read_profiles("PersonaLens")
            files = make_memoryquest(profiles, Path("quest"), runner, embedder("minilm"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..runner import Runner, write_json
from .dialogue import Chat, ToldTimeline, write_dialogues
from .profiles import Profile
from .queries import Embeds, refuse_offline_embedder, write_queries
from .timeline import plan_timelines, references_by_id


def make_memoryquest(
    profiles: Sequence[Profile],
    out: Path,
    runner: Runner,
    embedder: Embeds,
    on_progress: Callable[[str], None] = print,
) -> list[Path]:
    """Write one file per user, as soon as the user is complete, with the model of `dspy.context`.

    Args:
        profiles: The users.
        out: Folder of the files; created if it is not there.
        runner: Runs the steps; its report says what was refused.
        embedder: Measures how near requests are to their references. The offline one compares
            spelling and is refused.
        on_progress: Receives a line per user.

    Returns:
        The files written; a user without a single request gets none.

    Raises:
        LMError: The model failed; answers before are kept.
        DataError: A file cannot be written.
        UserError: The embedder is the offline one, whose cosines do not suit the gate.
    """
    refuse_offline_embedder(embedder)

    # Step 1: the requests of all users.
    queries_by_user = runner.map(lambda profile: write_queries(profile, runner, embedder), profiles)

    files: list[Path] = []
    for profile, queries in zip(profiles, queries_by_user, strict=True):
        # Step 2: the chats before each request, in outline.
        timelines = plan_timelines(profile, queries, runner)
        # Step 3: the words of each chat.
        told_timelines = write_dialogues(profile, timelines, runner)

        content = user_file(profile, told_timelines)
        num_queries = len(content["queries"])
        num_sessions = len(content["sessions"])
        on_progress(
            f"{profile.user_id}: {num_queries} requests, {num_sessions} sessions, "
            f"of {len(queries)} requests through the gate"
        )
        if num_queries:
            files.append(write_json(out / f"{profile.user_id}.json", content))
        else:
            problem = "no request came through all steps"
            runner.reject("user", profile.user_id, [problem], "given up")
    return files


class _ChatOfTimeline(NamedTuple):
    """A chat with the id of the timeline that it belongs to."""

    timeline_id: str
    chat: Chat


class _TimelineReference(NamedTuple):
    """Names a reference among those of all timelines: r1 of one is not r1 of another."""

    timeline_id: str
    reference_id: str


def user_file(profile: Profile, told_timelines: Sequence[ToldTimeline]) -> dict[str, Any]:
    """Return the content of a user's file, in the form that `data.memoryquest` reads.

    The chats of all timelines become the sessions of the user. Each reference of a request names
    the session in which it is told.
    """
    sessions: list[dict[str, Any]] = []
    session_ids: dict[_TimelineReference, str] = {}
    for session_number, (timeline_id, chat) in enumerate(_chats_in_order(told_timelines), 1):
        session_id = f"s{session_number}"
        turns = [turn.model_dump() for turn in chat.turns]
        sessions.append({"session_id": session_id, "date": chat.event.date, "turns": turns})
        for reference_id in chat.event.references:
            session_ids[_TimelineReference(timeline_id, reference_id)] = session_id

    queries: list[dict[str, Any]] = []
    for query_number, told_timeline in enumerate(told_timelines, 1):
        timeline = told_timeline.timeline
        references: list[dict[str, Any]] = []
        for reference_id, reference in references_by_id(timeline.query).items():
            session_id = session_ids[_TimelineReference(timeline.id, reference_id)]
            references.append({**reference.model_dump(), "session_id": session_id})
        query = {
            "query_id": f"q{query_number}",
            **timeline.query.model_dump(),
            "references": references,
        }
        queries.append(query)
    return {
        "user_id": profile.user_id,
        "demographics": profile.demographics,
        "domain_summaries": profile.domain_summaries,
        "sessions": sessions,
        "queries": queries,
    }


def _chats_in_order(told_timelines: Sequence[ToldTimeline]) -> list[_ChatOfTimeline]:
    """Return the chats of all timelines by their days; on one day in the order of the timelines."""
    chats: list[_ChatOfTimeline] = []
    for told_timeline in told_timelines:
        for chat in told_timeline.chats:
            chats.append(_ChatOfTimeline(told_timeline.timeline.id, chat))
    chats.sort(key=lambda chat_of_timeline: chat_of_timeline.chat.event.date)
    return chats
