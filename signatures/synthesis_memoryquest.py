"""The three prompts that write MemoryQuest, in the order in which they are asked.

PGR, section 4.2, describes the steps and their numbers and prints no prompt for them; the words are
ours. `WriteQueries` writes requests with the references that they depend on. For each request,
`PlanTimeline` plans the chats before it. For each chat, `WriteDialogue` writes it out.

The prompts ask for realism; code can check only dates, numbers and mentions.
"""

from __future__ import annotations

from typing import Literal

import dspy
from pydantic import BaseModel, Field


class DraftReference(BaseModel):
    """One thing about the user that a good response has to take into account."""

    text: str = Field(description="one atomic fact about the user, understandable on its own")
    date: str = Field(description="when the user mentioned it, YYYY-MM-DD")


class DraftQuery(BaseModel):
    """A request with the facts that it silently depends on."""

    query: str = Field(description="what the user says to the assistant")
    date: str = Field(description="when the user says it, YYYY-MM-DD, after all references")
    reasoning: str = Field(description="how the references bear on the request, and on one another")
    references: list[DraftReference] = Field(description="3 to 5 references")


class DraftEvent(BaseModel):
    """One chat between user and assistant, in outline."""

    date: str = Field(description="YYYY-MM-DD")
    domains: list[str] = Field(
        description="the domains that the chat is about, named as in domain_summaries"
    )
    summary: str = Field(
        description="what the user wants, says and decides in the chat, in one to three sentences"
    )
    references: list[str] = Field(
        default=[],
        description="ids of the references that the user mentions in the chat; empty for filler "
        "events",
    )


class DraftTurn(BaseModel):
    """One utterance."""

    speaker: Literal["user", "assistant"]
    text: str


class WriteQueries(dspy.Signature):
    """Write requests that this user might make to an assistant who has known the user for months.

    You are given the user's profile (demographics, and a summary for each domain of life) and the existing
    requests. Each new request comes with 3 to 5 references: facts that a good response must take into account. The user
    mentioned them earlier, on different days, in chats about other matters.
    - A request asks for help with planning something or carrying it out. It is not a test of memory.
    - A request is brief and gives few details. It does not mention its references.
    - References share no content words and no obvious topic with the request. A search with the words of the request
      would not find them, yet someone who thinks the plan through would need every one of them.
    - The references of a request belong together: later facts are consequences of earlier ones. None contradicts
      another or the profile.
    - A reference is one concrete, lasting fact about this user, with names, numbers or places. It is new, not a copy of
      the profile.
    - Use several domains. The new requests differ in aim and, as far as possible, in domain from one another and from
      the existing ones.
    - All dates are real calendar days. Every reference is older than its request, and the references of a request are
      spread over weeks or months.
    """

    demographics: dict[str, str] = dspy.InputField(desc="who the user is")
    domain_summaries: dict[str, str] = dspy.InputField(
        desc="what is known about the user, by domain"
    )
    earlier_queries: list[str] = dspy.InputField(desc="the existing requests")
    count: int = dspy.InputField(desc="how many requests to write")
    queries: list[DraftQuery] = dspy.OutputField(desc="the new requests, as many as `count` says")


class PlanTimeline(dspy.Signature):
    """Plan the chats that this user had with the assistant before making a request.

    You are given the user's profile (demographics, and a summary for each domain of life), the request with its date,
    and its references: facts that the user mentioned earlier, each with an id and a date. Plan the chats as events.
    - There are 5 to 10 events, from earliest to latest, at most one a day, all before the day of the request.
    - The first event takes place a few days or weeks before the earliest reference.
    - The user mentions each reference in exactly one event, on the date of the reference. That event lists its id.
    - All other events are filler: everyday matters from various domains that fit the user's profile and habits. They
      neither mention a reference nor give the request away.
    - Together the events make up a plausible stretch of life. What happens in one event may have consequences in a
      later one, and nothing contradicts anything else.
    """

    demographics: dict[str, str] = dspy.InputField(desc="who the user is")
    domain_summaries: dict[str, str] = dspy.InputField(
        desc="what is known about the user, by domain"
    )
    query: str = dspy.InputField(desc="the request")
    query_date: str = dspy.InputField(desc="the day of the request, YYYY-MM-DD")
    references: list[str] = dspy.InputField(desc="id, date and fact of each reference")
    events: list[DraftEvent] = dspy.OutputField(desc="the chats, from earliest to latest")


class WriteDialogue(dspy.Signature):
    """Write one chat between the user and the assistant.

    You are given the user's profile (demographics, and summaries of the domains that the chat is about), the date and
    the outline of the chat, the facts that the user must mention in it, and the chats before it.
    - The chat has 5 to 30 turns. The user begins, and then the two alternate.
    - The user talks like a person of these demographics, with the tastes in the summaries. The assistant helps, asks
      for clarification when something is unclear, and knows only what it has been told in this chat or an earlier one.
    - The user works every fact of the list naturally into the conversation, with its names, numbers and places, as part
      of what the chat is about, and never as an announcement. Invent no lasting facts beyond the list and the outline.
    - The chat comes after the earlier chats. It may refer to them but must not contradict them. Nobody in it knows
      anything of later days.
    """

    demographics: dict[str, str] = dspy.InputField(desc="who the user is")
    domain_summaries: dict[str, str] = dspy.InputField(
        desc="what is known about the user in the domains of the chat"
    )
    date: str = dspy.InputField(desc="the day of the chat, YYYY-MM-DD")
    outline: str = dspy.InputField(desc="what happens in the chat")
    facts: list[str] = dspy.InputField(
        desc="what the user has to mention in the chat; may be empty"
    )
    earlier_chats: list[str] = dspy.InputField(
        desc="date and outline of each earlier chat, from earliest to latest"
    )
    turns: list[DraftTurn] = dspy.OutputField(desc="the chat, turn by turn")
