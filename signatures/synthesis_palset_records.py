"""The prompts that write the records of a PAL-Set, its logs and dialogues, and those that look them over and mend them.

Mem-PAL, appendix E, steps 6-1 and 6-2, with the log types of Table 5 and the actions of Table 7. That the finished
records are looked over for three kinds of faults and mended is in the paper's main text (Data Verification and
Refinement); it prints no prompts for it, so those are ours.

Limits: a log entry's type is told to writers and reviewers and kept in `log.json`, but is no part of the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from .pal import AssistantAction, UserAction
from .synthesis_palset import Language

Role = Literal["user", "assistant"]
LogType = Literal[
    "web search",
    "content publishing",
    "content browsing",
    "message sending",
    "message receiving",
    "schedule management",
    "transaction record",
    "device operation",
]


CHINESE: Mapping[str, str] = json.loads(
    Path(__file__).with_name("synthesis_palset_records.json").read_text(encoding="utf-8")
)
"""Types, actions and roles by their Chinese names, in which a model may give them."""


def _plain(value: object) -> object:
    text = value.strip().strip('"“”') if isinstance(value, str) else value
    return CHINESE.get(text, text.lower().replace("_", " ")) if isinstance(text, str) else value


AnyLogType = Annotated[LogType, BeforeValidator(_plain)]
AnyRole = Annotated[Role, BeforeValidator(_plain)]


class DraftLog(BaseModel):
    """One log entry."""

    timestamp: str = Field(description="YYYY-MM-DD HH:MM")
    event: str = Field(description="one sentence: the experience that the entry shows")
    type: AnyLogType
    content: str = Field(description="the entry itself, in the form of its type")


class DraftUserUtterance(BaseModel):
    """What the user says in a turn."""

    action: Annotated[UserAction, BeforeValidator(_plain)]
    reference: str = Field(description="the label that the plan gives, e.g. T1_Q")
    content: str = Field(description="the words")


class DraftAssistantUtterance(BaseModel):
    """What the assistant says in a turn."""

    action: Annotated[AssistantAction, BeforeValidator(_plain)]
    reference: str = Field(description="the label that the plan gives, e.g. T1_N1")
    content: str = Field(description="the words")


class DraftTurn(BaseModel):
    """One turn: the user speaks, the assistant answers."""

    user: DraftUserUtterance
    assistant: DraftAssistantUtterance


class LogFault(BaseModel):
    """A log entry whose content is not of its type."""

    number: int = Field(description="the entry's number")
    reason: str = Field(description="what is wrong, in one sentence")


class UtteranceFault(BaseModel):
    """An utterance that does something else than its action says."""

    turn: int = Field(description="the turn's number")
    role: AnyRole
    reason: str = Field(description="what is wrong, in one sentence")


class Contradiction(BaseModel):
    """A record that cannot be true of the user."""

    record: str = Field(description="the id at the head of the record's line")
    reason: str = Field(description="what contradicts what, in one sentence")


class MendedLog(BaseModel):
    """A log entry after mending; its time stays."""

    number: int
    type: AnyLogType
    content: str


class MendedUtterance(BaseModel):
    """An utterance after mending; its action stays."""

    turn: int
    role: AnyRole
    content: str


class WriteLogs(dspy.Signature):
    """Write the log entries that a user's own devices recorded while the user went through certain experiences.

    Every entry has one of these types, and a content of its form, in the data's language; every content begins with
    "The user" (用户 in Chinese):
    - web search: the user searched for some keywords and looked at something that was found (search engines, maps);
    - content publishing: the user put a post, article or video on a named platform, with its gist in one sentence;
    - content browsing: the user viewed an article, product page or video on a named platform, with its gist;
    - message sending: the user sent words, quoted, to a named contact (requests, confirmations, notices, small talk);
    - message receiving: the user got words, quoted, from a named contact or device platform (also warnings);
    - schedule management: the user created an appointment, named, in some system, with begin, end and exact place;
    - transaction record: the user bought a product or service through some channel, with its name and specification;
    - device operation: the user did something on a kind of device, with particulars or numbers; only where no other
      type fits.

    - An entry's time is exact to the minute and between `begin` and `end`; every entry is later than the one before.
    - Show all details of the experiences, and leave out no event. Be dense: twenty entries or more, several per event.
    - The profile is there to avoid contradictions; it needs no entries of its own.
    - An entry may show an event directly (a purchase at a pharmacy) or betray it indirectly (browsing take-away food in
      the afternoon, where lunch was missed). What naturally comes before or after an event may be added.
    - Stay plausible: messages are for what was said online; a talk face to face can only show indirectly, say in a
      diary.
    - Make vague times and places definite: around three becomes a minute near 15:00, a hotel becomes one with a name,
      floor and room. Invent names; never blank one out with letters such as XX.
    - Platform and device fit the surroundings: apps on the move, smart devices at home, office systems and web pages at
      work, and always the user's own devices, never public ones.
    - One entry is one action of the user; an event of several actions is several entries.
    """

    language: Language = dspy.InputField(desc="language of events and contents")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    experience: str = dspy.InputField(desc="what the user went through")
    begin: str = dspy.InputField(desc="YYYY-MM-DD HH:MM")
    end: str = dspy.InputField(desc="YYYY-MM-DD HH:MM")
    logs: list[DraftLog] = dspy.OutputField()


class WriteAdviceDialogue(dspy.Signature):
    """Write a dialogue in which a user asks a personal assistant for advice, exactly along a plan.

    What the user does: topic inquiry (opens a topic, brief and rather vague), requirement confirmation (answers the
    assistant's guess and confirms the actual need), solution discussion (goes into details of a proposal without a
    verdict on the whole), solution feedback (clearly approves or disapproves of a proposal). What the assistant does:
    requirement prediction (guesses an unsaid need from background or experiences), solution proposal (proposes one
    solution for the need), solution discussion (answers on the proposal in the light of the user's background and tries
    to win the user over), feedback response (reacts to approval or disapproval, without any other solution).

    - One turn per turn of the plan, with its two actions and its two references. A reference is a label of the
      framework: Ti_Q the query of topic i, Ti_Nj its j-th implicit need, Ti_Sj its j-th solution.
    - The user is the person described. What the assistant knows is said in `assistant_knows`.
    - topic inquiry: the query of the framework, fitted to the context if need be, its meaning unchanged.
    - requirement prediction: from the evidences, guess the need and ask for confirmation.
    - solution proposal: the solution of the framework, possibly fitted to the user's background, but still that one.
    - solution feedback: go by the feedback (pos or neg) and its reason; brief and direct. A wrong solution gets open
      displeasure, even anger; no polite detours that praise first and then refuse.
    - feedback response: after displeasure only regret, an apology, or whether there is anything else.
    - Solutions that are not in the framework never occur.
    - Let utterances connect: a new proposal may first take up the feedback on the last one, and a new topic may be led
      over to from the one before.
    - Do not use the user's name unless it is needed.
    """

    language: Language = dspy.InputField(desc="language of the dialogue")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    situation: str = dspy.InputField(desc="the user's recent situation")
    assistant_knows: str = dspy.InputField(desc="what the assistant knows of the user")
    framework: str = dspy.InputField(desc="topics with query, needs and solutions, in JSON")
    plan: list[str] = dspy.InputField(desc="actions and references, turn by turn")
    turns: list[DraftTurn] = dspy.OutputField()


class ReviewLogTypes(dspy.Signature):
    """Find log entries whose content is not what their type says.

    Types: web search; content publishing (own posts, articles, videos); content browsing (those of others, or product
    pages); message sending; message receiving (from people or device platforms); schedule management (an appointment is
    created); transaction record (something is bought); device operation (anything else that is done on a device, for
    which no other type fits). Name clear cases only, an empty list if there is none.
    """

    logs: list[str] = dspy.InputField(desc="number, type and content of each entry")
    faults: list[LogFault] = dspy.OutputField()


class ReviewActions(dspy.Signature):
    """Find utterances of a dialogue that do something else than their action says.

    The user's actions: topic inquiry (asks about a topic), requirement confirmation (answers a guess of the need),
    solution discussion (talks about details, no verdict), solution feedback (a clear verdict). The assistant's:
    requirement prediction (guesses an unsaid need), solution proposal (proposes a solution), solution discussion (talks
    further about the proposal), feedback response (reacts to the verdict, and offers no solution). Words that lead over
    from the last utterance are no fault. Name clear cases only, an empty list if there is none.
    """

    dialogue: list[str] = dspy.InputField(desc="turn, role, action and words of each utterance")
    faults: list[UtteranceFault] = dspy.OutputField()


class ReviewPersona(dspy.Signature):
    """Find records that contradict who the user is: profile, personality, past months or preferences.

    A record contradicts if both cannot be true, as a purchase for a child of a user without children, or liking what
    the user is known to reject. What is merely not mentioned elsewhere is no contradiction, and what the assistant
    proposes or guesses does not count as the user's. Name clear cases only, an empty list if there is none.
    """

    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    timeline: list[str] = dspy.InputField(desc="the user's months up to now")
    preferences: list[str] = dspy.InputField(desc="what the user likes and dislikes; may be empty")
    records: list[str] = dspy.InputField(desc="id and content of each")
    contradictions: list[Contradiction] = dspy.OutputField()


class MendLogs(dspy.Signature):
    """Rewrite faulty log entries so that their faults are gone and everything else stays.

    - Each faulty entry is given back once, under its number, with its type and content.
    - Where content and type disagree, correct whichever is wrong by the experience. Time and event stay.
    - The entry shows the same event, agrees with profile and experience, and is one action on the user's own device.
    """

    language: Language = dspy.InputField(desc="language of the contents")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    experience: str = dspy.InputField(desc="what the user went through")
    entries: list[str] = dspy.InputField(desc="number, time, event, type, content and fault of each faulty entry")
    mended: list[MendedLog] = dspy.OutputField()


class MendUtterances(dspy.Signature):
    """Rewrite faulty utterances of a dialogue so that their faults are gone and the dialogue still flows.

    - Each faulty utterance is given back once, under its turn and role; its action and what it refers to stay.
    - The words do what the action says, fit the framework and the user, and follow on from the utterances around them.
    - No solution enters that is not in the framework.
    """

    language: Language = dspy.InputField(desc="language of the dialogue")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    framework: str = dspy.InputField(desc="topics with query, needs and solutions, in JSON")
    dialogue: list[str] = dspy.InputField(desc="turn, role, action, reference and words of each utterance")
    faulty: list[str] = dspy.InputField(desc="turn, role and fault of each faulty utterance")
    mended: list[MendedUtterance] = dspy.OutputField()
