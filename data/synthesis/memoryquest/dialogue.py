"""Step 3 of MemoryQuest: the words of each chat.

A chat knows the outlines of the earlier chats of its own request, not their words. So the chats of
two requests of a user may contradict each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import dspy

from ....signatures.synthesis_memoryquest import DraftEvent, DraftTurn, WriteDialogue
from ..runner import CheckResult, Runner, Step, accept_if_valid
from .profiles import Profile
from .texts import normalized, word_beginnings
from .timeline import Timeline

MIN_TURNS = 5
MAX_TURNS = 30
MIN_STATED_SHARE = 0.5
"""Share of the words of a fact that the user has to say in its chat; ours."""

DIALOGUE = Step("dialogue", WriteDialogue)


class _PlannedChat(NamedTuple):
    """A chat whose words are to be written."""

    timeline: Timeline
    event: DraftEvent
    """Its outline."""
    earlier_events: Sequence[DraftEvent]
    """The events of the timeline before it."""


@dataclass(frozen=True)
class Chat:
    """An event of a timeline with its words."""

    event: DraftEvent
    turns: Sequence[DraftTurn]


@dataclass(frozen=True)
class ToldTimeline:
    """A timeline with the words of all its chats."""

    timeline: Timeline
    chats: Sequence[Chat]


def write_dialogues(
    profile: Profile, timelines: Sequence[Timeline], runner: Runner
) -> list[ToldTimeline]:
    """Write the chats of each timeline; a timeline without all its chats is left out whole."""
    planned_chats: list[_PlannedChat] = []
    for timeline in timelines:
        for number, event in enumerate(timeline.events):
            planned_chats.append(_PlannedChat(timeline, event, timeline.events[:number]))

    # One `map` for the chats of all timelines: a `map` for each would let threads wait for the last
    # chat of one timeline before the next one begins.
    dialogues = runner.map(lambda chat: _write_dialogue(profile, chat, runner), planned_chats)

    chats_by_timeline: dict[str, list[Chat]] = {timeline.id: [] for timeline in timelines}
    missing_dates: dict[str, list[str]] = {timeline.id: [] for timeline in timelines}
    for planned_chat, turns in zip(planned_chats, dialogues, strict=True):
        timeline_id = planned_chat.timeline.id
        if turns is None:
            missing_dates[timeline_id].append(planned_chat.event.date)
        else:
            chats_by_timeline[timeline_id].append(Chat(planned_chat.event, turns))

    told_timelines: list[ToldTimeline] = []
    for timeline in timelines:
        if missing_dates[timeline.id]:
            # The request of the timeline is left out with it.
            problem = f"left out: no dialogue for {', '.join(missing_dates[timeline.id])}"
            runner.reject("query", timeline.id, [problem], "given up")
        else:
            told_timelines.append(ToldTimeline(timeline, chats_by_timeline[timeline.id]))
    return told_timelines


def _write_dialogue(profile: Profile, chat: _PlannedChat, runner: Runner) -> list[DraftTurn] | None:
    """Ask for the words of a chat; None if they were given up."""
    event = chat.event
    facts = chat.timeline.facts_of(event)
    inputs = {
        "demographics": profile.demographics,
        "domain_summaries": _summaries_of(event, profile),
        "date": event.date,
        "outline": event.summary,
        "facts": facts,
        "earlier_chats": [f"{earlier.date}: {earlier.summary}" for earlier in chat.earlier_events],
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftTurn]]:
        return accept_if_valid(answer.turns, dialogue_problems(answer.turns, facts))

    # A timeline has one event a day, so the date tells which one it is.
    return runner.ask(DIALOGUE, f"{chat.timeline.id}/{event.date}", inputs, check)


def _summaries_of(event: DraftEvent, profile: Profile) -> dict[str, str]:
    """Return what is known of the user in the domains of an event."""
    domains = {normalized(domain) for domain in event.domains}
    summaries: dict[str, str] = {}
    for domain, summary in profile.domain_summaries.items():
        if normalized(domain) in domains:
            summaries[domain] = summary
    return summaries


def dialogue_problems(turns: Sequence[DraftTurn], facts: Sequence[str]) -> list[str]:
    """Return what is wrong with a chat in which the user has to state these facts."""
    problems: list[str] = []
    if not MIN_TURNS <= len(turns) <= MAX_TURNS:
        problems.append(f"{len(turns)} turns; write 5 to 30")
    if turns and turns[0].speaker != "user":
        problems.append("the user has to begin")
    if any(turn.speaker == following.speaker for turn, following in pairwise(turns)):
        problems.append("user and assistant have to alternate")
    if not all(turn.text.strip() for turn in turns):
        problems.append("a turn is empty")

    user_words = word_beginnings(" ".join(turn.text for turn in turns if turn.speaker == "user"))
    for fact in facts:
        fact_words = word_beginnings(fact)
        if len(fact_words & user_words) < MIN_STATED_SHARE * len(fact_words):
            problems.append(f"the user does not tell this: {fact}")
    return problems
