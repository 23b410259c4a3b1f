"""The prompts that write, review and correct the records of a PAL-Set: its logs and dialogues.

Source: Mem-PAL, appendix E, steps 6-1 and 6-2, with the log types of Table 5 and the actions of
Table 7. The main text of the paper says that finished records are reviewed for three kinds of
faults and corrected (Data Verification and Refinement). It prints no prompts for that, so those are
ours.

- `WriteLogs` (6-1) and `WriteAdviceDialogue` (6-2) write the records of a situation.
- `ReviewLogTypes`, `ReviewActions` and `ReviewPersona` look for faults.
- `CorrectLogs` and `CorrectUtterances` correct the faulty records.

Several prompts share rules. Their classes set `__doc__`, which is what a model reads; the docstring
above it is for readers of the code. Writers and reviewers are told the type of a log entry, and
`log.json` keeps it, but it is no part of the data.
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
"""The English names of types, actions and roles, by the Chinese names that a model may use."""


def _parse_name(value: object) -> object:
    """Return the English name of a type, an action or a role as the types spell it."""
    if not isinstance(value, str):
        return value
    name = value.strip().strip('"“”')
    return CHINESE.get(name, name.lower().replace("_", " "))


AnyLogType = Annotated[LogType, BeforeValidator(_parse_name)]
AnyRole = Annotated[Role, BeforeValidator(_parse_name)]


class DraftLog(BaseModel):
    """One log entry."""

    timestamp: str = Field(description="YYYY-MM-DD HH:MM")
    event: str = Field(description="the experience that the entry shows, in one sentence")
    type: AnyLogType
    content: str = Field(description="the text of the entry, in the form of its type")


class DraftUserUtterance(BaseModel):
    """What the user says in a turn."""

    action: Annotated[UserAction, BeforeValidator(_parse_name)]
    reference: str = Field(description="the label in the plan, e.g. T1_Q")
    content: str = Field(description="the words")


class DraftAssistantUtterance(BaseModel):
    """What the assistant says in a turn."""

    action: Annotated[AssistantAction, BeforeValidator(_parse_name)]
    reference: str = Field(description="the label in the plan, e.g. T1_N1")
    content: str = Field(description="the words")


class DraftTurn(BaseModel):
    """One turn: the user speaks, the assistant answers."""

    user: DraftUserUtterance
    assistant: DraftAssistantUtterance


class LogFault(BaseModel):
    """A log entry whose content does not match its type."""

    number: int = Field(description="the entry's number")
    reason: str = Field(description="what is wrong, in one sentence")


class UtteranceFault(BaseModel):
    """An utterance that does not do what its action says."""

    turn: int = Field(description="the turn's number")
    role: AnyRole
    reason: str = Field(description="what is wrong, in one sentence")


class Contradiction(BaseModel):
    """A record that cannot be true of the user."""

    record: str = Field(description="the id at the beginning of the record's line")
    reason: str = Field(description="what contradicts what, in one sentence")


class CorrectedLog(BaseModel):
    """A corrected log entry; its time stays."""

    number: int = Field(description="the entry's number")
    type: AnyLogType
    content: str = Field(description="the corrected text, in the form of its type")


class CorrectedUtterance(BaseModel):
    """A corrected utterance; its action stays."""

    turn: int = Field(description="the turn's number")
    role: AnyRole
    content: str = Field(description="the corrected words")


_LOG_TYPE_FORMS = """\
- web search: the user searched for certain keywords and viewed a result (search engines, maps);
- content publishing: the user published a post, article or video on a named platform; summarise it in one sentence;
- content browsing: the user viewed an article, product page or video on a named platform; summarise it in one
  sentence;
- message sending: the user sent a message to a named contact; quote it (requests, confirmations, notices, small talk);
- message receiving: the user received a message from a named contact or device platform; quote it (also warnings);
- schedule management: the user created an appointment in a named system, with a title, beginning, end and exact place;
- transaction record: the user bought a product or service through a named channel, with its name and specification;
- device operation: the user did something on a certain kind of device, with details or numbers. Use this type only
  if no other type fits."""

_ACTION_MEANINGS = """\
Actions of the user:
- topic inquiry: opens a topic with a brief and rather vague question. Use the query of the framework. You may adapt
  it to the context without changing its meaning.
- requirement confirmation: responds to the assistant's guess and confirms that the need is real.
- solution discussion: talks about details of a proposal without judging it as a whole.
- solution feedback: clearly approves or disapproves of a proposal, according to its feedback (pos or neg) and the
  reason in the framework. Be brief and direct. If the feedback is neg, the user shows displeasure openly, even anger,
  and does not soften the refusal by praising the proposal first.

Actions of the assistant:
- requirement prediction: guesses an implicit need from its evidence and asks for confirmation.
- solution proposal: proposes the solution of the framework. You may adapt it to what the assistant knows about the
  user, but it stays the same solution.
- solution discussion: answers questions about the proposal with regard to the user's background, and tries to
  convince the user.
- feedback response: responds to the approval or disapproval, without another solution. If the feedback is neg, the
  assistant only apologises, expresses regret or asks whether there is anything else."""

_REFERENCE_RULE = """\
- A reference is a label of the framework: Ti_Q is the query of topic i, Ti_Nj its j-th implicit need, Ti_Sj its j-th
  solution."""


class WriteLogs(dspy.Signature):
    """Write the log entries of a user's devices for certain experiences."""

    __doc__ = f"""Write the log entries that a user's devices recorded while the user had certain experiences.

Each entry has one of the types below, and its content has the form of its type. Write contents and events in
`language`. Each content must begin with "The user" (用户 in Chinese):
{_LOG_TYPE_FORMS}

Rules:
- The time of an entry must be exact to the minute and lie between `begin` and `end`. Each entry must be later than the
  previous one.
- Cover all details of the experiences and do not leave out any event. Write many entries, several for one event and at
  least twenty in all.
- Use the profile only to avoid contradictions. Do not write entries about it.
- An entry may show an event directly (a purchase at a pharmacy) or indirectly (browsing take-away food in the afternoon
  because lunch was missed). You may add actions that naturally come before or after an event.
- Be plausible. Use messages only for what was said online. A conversation face to face can only appear indirectly, for
  example in a diary.
- Make vague times and places exact: "around three" becomes a minute near 15:00, "a hotel" becomes a hotel with a name,
  floor and room. Invent names; never replace them with placeholders such as XX.
- Platforms and devices must fit the surroundings: apps on the move, smart devices at home, office systems and web pages
  at work. Use only devices that the user owns or uses for work, not public ones.
- Each entry records one action (or one received message); a search and the result viewed count as one. Split an event
  with several actions into several entries.
"""

    language: Language = dspy.InputField(desc="language of events and contents")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    experience: str = dspy.InputField(desc="what the user experienced")
    begin: str = dspy.InputField(desc="beginning of the experiences, YYYY-MM-DD HH:MM")
    end: str = dspy.InputField(desc="end of the experiences, YYYY-MM-DD HH:MM")
    logs: list[DraftLog] = dspy.OutputField(desc="the entries, in chronological order")


class WriteAdviceDialogue(dspy.Signature):
    """Write a dialogue in which a user asks a personal assistant for advice."""

    __doc__ = f"""Write a dialogue in which a user asks a personal assistant for advice. Follow the plan exactly.

{_ACTION_MEANINGS}

Rules:
- Write one turn for each turn of the plan, with its two actions and its two references.
{_REFERENCE_RULE}
- The user is the person described. `assistant_knows` says what the assistant knows about the user; it also knows the
  evidence of a need that it guesses. The assistant must not show any other knowledge.
- Never mention solutions that are not in the framework.
- Connect the utterances: a new proposal may first respond to the feedback on the previous one, and a new topic may
  begin with a transition from the one before.
- Do not use the user's name unless it is necessary.
"""

    language: Language = dspy.InputField(desc="language of the dialogue")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    situation: str = dspy.InputField(desc="the user's recent situation")
    assistant_knows: str = dspy.InputField(desc="what the assistant knows about the user")
    framework: str = dspy.InputField(desc="topics with query, needs and solutions, in JSON")
    plan: list[str] = dspy.InputField(desc="the actions and references of each turn")
    turns: list[DraftTurn] = dspy.OutputField(desc="the turns of the dialogue, in order")


class ReviewLogTypes(dspy.Signature):
    """Find log entries whose content does not match their type.

    The types are:
    - web search: keywords are searched for and a result is viewed (search engines, maps);
    - content publishing: the user's own posts, articles and videos;
    - content browsing: posts, articles and videos of others, or product pages;
    - message sending: to a contact;
    - message receiving: from people or device platforms;
    - schedule management: an appointment is created;
    - transaction record: something is bought;
    - device operation: anything else that is done on a device and fits no other type.

    Report clear cases only. If there are none, return an empty list.
    """

    logs: list[str] = dspy.InputField(desc="number, type and content of each entry")
    faults: list[LogFault] = dspy.OutputField(desc="the faulty entries; may be empty")


class ReviewActions(dspy.Signature):
    """Find utterances of a dialogue that do not match their action label.

    Actions of the user: topic inquiry (asks about a topic), requirement confirmation (responds to the assistant's guess
    about the need), solution discussion (talks about details without judging), solution feedback (judges clearly).
    Actions of the assistant: requirement prediction (guesses an unstated need), solution proposal (proposes a
    solution), solution discussion (talks further about the proposal), feedback response (responds to the judgement and
    offers no solution).

    Words that connect an utterance to the previous one are not a fault. Report clear cases only. If there are none,
    return an empty list.
    """

    dialogue: list[str] = dspy.InputField(desc="turn, role, action and words of each utterance")
    faults: list[UtteranceFault] = dspy.OutputField(desc="the faulty utterances; may be empty")


class ReviewPersona(dspy.Signature):
    """Find records that contradict what is known about a user: profile, personality, past months or preferences.

    A record contradicts what is known only if both cannot be true, such as a purchase for the user's child when the
    user has no children, or liking something that the user is known to reject. It is not a contradiction if something
    is merely not mentioned elsewhere. Ignore what the assistant proposes or guesses. Report clear cases only. If there
    are none, return an empty list.
    """

    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    timeline: list[str] = dspy.InputField(desc="the user's months up to now")
    preferences: list[str] = dspy.InputField(desc="what the user likes and dislikes; may be empty")
    records: list[str] = dspy.InputField(desc="id and content of each record")
    contradictions: list[Contradiction] = dspy.OutputField(
        desc="the records that contradict what is known; may be empty"
    )


class CorrectLogs(dspy.Signature):
    """Correct faulty log entries."""

    __doc__ = f"""Correct faulty log entries. Remove the faults and keep everything else.

The types of entries, and the form of their contents, are the following. Each content must begin with "The user"
(用户 in Chinese):
{_LOG_TYPE_FORMS}

Rules:
- Return each faulty entry once, with its number, type and content.
- If content and type do not match, use the experience to decide which of them is wrong, and correct it. The
  time cannot be changed.
- The corrected entry must show the same event. Only if the event itself is the fault, show something else that the user
  may have done at that time.
- The corrected entry must agree with the profile and the experience. It shows one action or one received message on a
  device that the user owns or uses for work.
"""

    language: Language = dspy.InputField(desc="language of the contents")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    experience: str = dspy.InputField(desc="what the user experienced")
    entries: list[str] = dspy.InputField(
        desc="number, time, event, type, content and fault of each faulty entry"
    )
    corrected: list[CorrectedLog] = dspy.OutputField(desc="the corrected entries")


class CorrectUtterances(dspy.Signature):
    """Correct faulty utterances of a dialogue."""

    __doc__ = f"""Correct faulty utterances of a dialogue. Remove the faults and keep the dialogue coherent.

{_ACTION_MEANINGS}

Rules:
- Return each faulty utterance once, with its turn and role. Its action and its reference stay as they are.
{_REFERENCE_RULE}
- The new words must do what the action says, agree with the framework and the user, and fit the utterances before and
  after.
- Do not mention a solution that is not in the framework.
"""

    language: Language = dspy.InputField(desc="language of the dialogue")
    profile: dict[str, str] = dspy.InputField(desc="who the user is")
    personality: dict[str, str] = dspy.InputField(desc="level of each trait")
    framework: str = dspy.InputField(desc="topics with query, needs and solutions, in JSON")
    dialogue: list[str] = dspy.InputField(
        desc="turn, role, action, reference and words of each utterance"
    )
    faulty: list[str] = dspy.InputField(desc="turn, role and fault of each faulty utterance")
    corrected: list[CorrectedUtterance] = dspy.OutputField(desc="the corrected utterances")
