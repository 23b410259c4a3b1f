"""The three prompts that write MemoryQuest: requests, the timeline behind a request, and the chats of a timeline.

The paper describes the steps (PGR, section 4.2) and prints no prompt for them: the words are ours, the numbers its own.
Limits: the prompts ask for realism, code can check dates, numbers and mentions only.
"""

from __future__ import annotations

from typing import Literal

import dspy
from pydantic import BaseModel, Field


class DraftReference(BaseModel):
    """One thing about the user that a good response has to know."""

    text: str = Field(description="one atomic fact about the user, understandable alone")
    date: str = Field(description="when the user mentioned it, YYYY-MM-DD")


class DraftQuery(BaseModel):
    """A request with what it silently depends on."""

    query: str = Field(description="what the user says to the assistant")
    date: str = Field(description="when it is said, YYYY-MM-DD, after all references")
    reasoning: str = Field(description="how the references bear on the request, and on one another")
    references: list[DraftReference] = Field(description="3 to 5")


class DraftEvent(BaseModel):
    """One chat between user and assistant, in outline."""

    date: str = Field(description="YYYY-MM-DD")
    domains: list[str] = Field(description="the domains it is about, by the names of domain_summaries")
    summary: str = Field(description="what the user wants, tells and decides in it, in one to three sentences")
    references: list[str] = Field(default=[], description="ids of the references told in it; empty for other chats")


class DraftTurn(BaseModel):
    """One utterance."""

    speaker: Literal["user", "assistant"]
    text: str


class WriteQueries(dspy.Signature):
    """Write requests that this user might make to an assistant who has known them for months.

    - A request asks for help in planning something or following something through; it is no quiz about the past.
    - It says little. What a good response must respect was mentioned earlier, on different days, in chats about other
      matters: these are its 3 to 5 references.
    - References share no wording and no obvious topic with the request: a search with the request's words would not
      find them, yet someone who thinks the plan through would need each of them.
    - They belong together: later ones follow from earlier ones, and none contradicts another or the profile.
    - A reference is one concrete, durable fact with names, numbers or places, true of this user, and new: not a mere
      copy of the profile.
    - Draw on several domains. Requests differ from one another and from the earlier ones in aim and domain.
    - Dates are real calendar days; every reference is older than its request, and they spread over weeks or months.
    """

    demographics: dict[str, str] = dspy.InputField()
    domain_summaries: dict[str, str] = dspy.InputField(desc="what is known of the user, by domain")
    earlier_queries: list[str] = dspy.InputField(desc="requests that exist already")
    count: int = dspy.InputField(desc="how many requests to write")
    queries: list[DraftQuery] = dspy.OutputField()


class PlanTimeline(dspy.Signature):
    """Plan the chats that this user had with the assistant before making the request.

    - 5 to 10 events in ascending order, no two on one day, all before the day of the request.
    - The first one is a few days or weeks before the earliest reference.
    - Every reference is told in exactly one event, on the reference's own day; name it by its id there.
    - All other events are filler: everyday matters that fit the user's profile and habits, from varied domains, which
      neither tell a reference nor give the request away.
    - The events make one plausible life: what happens in one may have consequences in a later one, nothing contradicts.
    """

    demographics: dict[str, str] = dspy.InputField()
    domain_summaries: dict[str, str] = dspy.InputField(desc="what is known of the user, by domain")
    query: str = dspy.InputField(desc="the request")
    query_date: str = dspy.InputField()
    references: list[str] = dspy.InputField(desc="id, day and fact of each")
    events: list[DraftEvent] = dspy.OutputField()


class WriteDialogue(dspy.Signature):
    """Write out one chat between the user and the assistant.

    - 5 to 30 turns, the user begins, then they alternate.
    - The user talks as someone of these demographics would, with the tastes of the domain summaries; the assistant
      helps, asks back where something is open, and does not know what it was not told.
    - Every fact of the list is told by the user in passing, with its names, numbers and places, as part of what the
      chat is about, never as an announcement. If the list is empty, invent no lasting facts beyond the outline.
    - It follows on the earlier chats: they may be referred to, and nothing contradicts them. Nothing of later days is
      known.
    """

    demographics: dict[str, str] = dspy.InputField()
    domain_summaries: dict[str, str] = dspy.InputField(desc="what is known of the user in the domains of the chat")
    date: str = dspy.InputField()
    outline: str = dspy.InputField(desc="what happens in the chat")
    facts: list[str] = dspy.InputField(desc="what the user has to tell in it")
    earlier_chats: list[str] = dspy.InputField(desc="day and outline of each, oldest first")
    turns: list[DraftTurn] = dspy.OutputField()
