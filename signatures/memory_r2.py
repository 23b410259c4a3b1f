"""The prompts of Memory-R2, in the order in which the method asks them.

Source: the released prompts (commit 357b4ec: prompt/math/multi_turn_mamrp.py,
memory/prompts/qa.txt). Every rule is carried over in our own words; `docs/coverage.md` maps rule by
rule.

- For each part of a session: `ExtractFacts`, or `ExtractFactsInContext` where the parts before it
  are shown. Then `ManageMemory`, or `ManageMemoryInContext`, decides how the facts change the
  memory.
- The ablation with a single agent asks `EditMemory` instead of these two.
- For each question: `AnswerFromMemories`.

Several prompts share rules. Their instructions are constants, which the classes set as `__doc__`;
the docstring above it is for readers of the code. Worked examples: `memory_r2_examples.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

EXTRACTION_RULES = """\
What to keep:
- Preferences: what a speaker likes, dislikes or thinks about food, entertainment, products, sports and the like.
- Personal details: names, relationships, family, important events of a life, and how long things lasted.
- Plans and intentions that a speaker states.
- Activities and routines: trips, places visited, habits, sports and hobbies, with their details.
- Health and wellness, as a speaker describes it. Never infer or store a diagnosis.
- Work: job titles, career goals, professional interests, working habits.
- Other things that matter to a speaker: books, films, creative work, projects, notable activities.

What to leave out:
- greetings, small talk, generic remarks and empty opinions;
- common knowledge;
- system messages and anything else that is not part of the dialogue.

Rules for each fact:
- One fact states one event, one preference, one intention or one attribute. Write separate facts for different events,
  for different times, for an event and the motive behind it, and for an action and what someone thinks about it. What
  has happened and what is planned are always two facts. Details that one turn gives about the same event, at the same
  time and place, may stay together.
- A fact makes sense alone, without any other fact. Start it with the name of its subject, and use the third person.
  Replace vague references by names. Use a pronoun only if its noun is in the same fact. If the turns do not show what a
  reference means, leave the fact out.
- Keep the time that was mentioned: a date, a duration or a relative time. If the date of the turn allows it, write the
  absolute date.
- Use at most 20 words. Split a longer fact.
- Take each fact from one turn, and give the id of that turn.
- That someone asks, thanks or agrees is not a fact, unless it shows something lasting."""
"""What the extractor keeps, and in what form."""

OPERATION_RULES = """\
For each fact, go through these steps in order:
1. Does the fact explicitly contradict a matching memory, so that the memory is no longer true? DELETE that memory, and
   go on to step 2.
2. Does a memory already say the same about the same person and topic, even in other words? Choose NONE, and stop.
3. Is a memory about the same entity or event, and does the fact refine, continue or confirm it? UPDATE that memory, and
   stop.
4. Otherwise, INSERT the fact.

INSERT adds a memory. Give speaker (the person the fact is about), content and turn_id. Give no memory_id: the system
assigns it. Do not insert a fact that a reader could understand only by guessing.

UPDATE rewrites a memory about the same entity or event. Give its memory_id, the new content, and the turn_id of the new
information. Use it when the fact adds a detail, corrects the memory, or is the next step of the same story, even at
another time: a plan was carried out, an idea became certain. Keep every part of the memory that is still true; you may
word it more briefly. If a memory names two cities that someone visited, an update must not drop one of them: choose
NONE or INSERT instead. If the fact and the memory mean the same, choose NONE. If they are about different events or
topics, choose INSERT.

DELETE removes a memory. Give its memory_id. Use it only for an explicit contradiction, never because a memory is old or
seems less important.

NONE changes nothing. Use it for a fact that is already known, redundant or insignificant.

Rules for all operations:
- Content has at most 20 words and states one fact, in the third person and in the tense of the fact. It names its
  subject and has no vague pronoun. If not everything fits, keep the most important part.
- Use only memory ids from the input, and each of them in at most one operation.
- Nothing that is known gets lost, unless a fact explicitly contradicts it.
- Check each content before you answer. It must make sense alone, name its subject, have no vague pronoun, and state
  something lasting, not merely that something was said."""
"""How the manager decides, and what its operations are."""

EXTRACTION_INSTRUCTIONS = f"""List the facts about both speakers in `dialogue` that are worth remembering for later conversations.

{EXTRACTION_RULES}"""
"""The instructions of the extractor."""

MANAGEMENT_INSTRUCTIONS = f"""Bring the stored memories up to date with new facts. Answer with a list of operations.

Each new fact has related_memory_ids: the ids of stored memories that a search found for it. Compare the fact with
these memories only. The search makes mistakes: a memory matches only if it is really about the same entity and the same
topic. Ignore the others. A fact without a matching memory can safely be inserted.

{OPERATION_RULES}"""
"""The instructions of the manager."""

EDITING_INSTRUCTIONS = f"""Bring the stored memories up to date with `dialogue`. Answer with a list of operations.

First find the facts about both speakers in `dialogue` that are worth remembering for later conversations.

{EXTRACTION_RULES}

Then compare each fact with the stored memories. A search found them, and it makes mistakes: a memory matches only if it
is really about the same entity and the same topic. Ignore the others.

{OPERATION_RULES}"""
"""The instructions of the single agent, which does both steps at once."""

_OPERATION_SYNONYMS = {
    "ADD": "INSERT",
    "NOOP": "NONE",
    "NO OPERATION": "NONE",
    "NO_OPERATION": "NONE",
    "NO-OP": "NONE",
}


def _parse_operation(value: object) -> object:
    """Return the name of an operation as `Operation` spells it; pydantic refuses other names."""
    if not isinstance(value, str):
        return value
    name = value.strip().upper()
    return _OPERATION_SYNONYMS.get(name, name)


def _empty_if_null(value: object) -> object:
    return "" if value is None else value


NullableText = Annotated[str, BeforeValidator(_empty_if_null)]
"""A text; null is read as an empty one."""


class Fact(BaseModel):
    """A fact worth remembering, from one turn."""

    speaker: str = Field(description="name of the person the fact is about")
    turn_id: Annotated[str, IdFrom("dialogue")] = Field(
        description="id of the turn that states the fact, copied from its brackets"
    )
    fact: str = Field(
        description="the fact, in the third person and at most 20 words, understandable alone"
    )


class StoredMemory(BaseModel):
    """A memory entry as the manager sees it."""

    memory_id: str
    speaker: str
    content: str
    date: str | None = None


class NewFact(BaseModel):
    """An extracted fact with the ids of the memories nearest to it."""

    speaker: str
    turn_id: str
    fact: str
    related_memory_ids: list[str] = []


class Operation(BaseModel):
    """One change of the memory."""

    op: Annotated[Literal["INSERT", "UPDATE", "DELETE", "NONE"], BeforeValidator(_parse_operation)]
    memory_id: Annotated[str | None, IdFrom("memories")] = Field(
        default=None, description="id of the memory to update or delete; null for INSERT"
    )
    speaker: NullableText = Field(default="", description="name of the person the content is about")
    content: NullableText = Field(
        default="", description="the new text of the memory; empty for DELETE and NONE"
    )
    turn_id: Annotated[str | None, IdFrom("new_facts", "dialogue")] = Field(
        default=None, description="id of the turn that gave the new information"
    )


_TURN_LINE = "[turn id] (date) speaker: words"
_DIALOGUE = f"the turns to read, one per line: {_TURN_LINE}"

_EARLIER_TURNS = (
    f"the turns of this session before `dialogue`, one per line: {_TURN_LINE}. Use them only to "
    "understand `dialogue`, and take no fact from them"
)

_FACTS = "the facts, in the order of the turns; an empty list if nothing is worth keeping"
_SESSION_DATE = "date of the session in which the new facts were said"
_STORED_MEMORIES = "the stored memories that a search found for the new facts"
_NEW_FACTS = "the facts to deal with, each with the ids of the memories that may be about the same"
_OPERATIONS = "the operations, in the order of the facts; facts that change nothing may be left out"


class ExtractFacts(dspy.Signature):
    """Extract the facts of some turns."""

    __doc__ = EXTRACTION_INSTRUCTIONS

    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    facts: list[Fact] = dspy.OutputField(desc=_FACTS)


class ExtractFactsInContext(dspy.Signature):
    """Extract the facts of some turns, with the earlier turns of the session in view."""

    __doc__ = EXTRACTION_INSTRUCTIONS

    earlier: str = dspy.InputField(desc=_EARLIER_TURNS)
    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    facts: list[Fact] = dspy.OutputField(desc=_FACTS)


class ManageMemory(dspy.Signature):
    """Decide how new facts change the memory."""

    __doc__ = MANAGEMENT_INSTRUCTIONS

    session_date: str = dspy.InputField(desc=_SESSION_DATE)
    memories: list[StoredMemory] = dspy.InputField(desc=_STORED_MEMORIES)
    new_facts: list[NewFact] = dspy.InputField(desc=_NEW_FACTS)
    operations: list[Operation] = dspy.OutputField(desc=_OPERATIONS)


class ManageMemoryInContext(dspy.Signature):
    """Decide how new facts change the memory, with the earlier facts of the session in view."""

    __doc__ = MANAGEMENT_INSTRUCTIONS

    session_date: str = dspy.InputField(desc=_SESSION_DATE)
    memories: list[StoredMemory] = dspy.InputField(desc=_STORED_MEMORIES)
    earlier_facts: list[Fact] = dspy.InputField(
        desc="facts from earlier in this session, which are already dealt with. Use them only to "
        "understand `new_facts`, and give no operation for them"
    )
    new_facts: list[NewFact] = dspy.InputField(desc=_NEW_FACTS)
    operations: list[Operation] = dspy.OutputField(desc=_OPERATIONS)


class EditMemory(dspy.Signature):
    """Change the memory by turns, without extracting facts first (the single agent)."""

    __doc__ = EDITING_INSTRUCTIONS

    session_date: str = dspy.InputField(desc="date of the session that the turns are from")
    memories: list[StoredMemory] = dspy.InputField(
        desc="the stored memories that a search found for `dialogue`"
    )
    earlier: str = dspy.InputField(desc=_EARLIER_TURNS)
    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    operations: list[Operation] = dspy.OutputField(
        desc="the operations, in the order of the turns; an empty list if nothing changes"
    )


class AnswerFromMemories(dspy.Signature):
    """Answer the question from the memories of two speakers.

    First think step by step, in `reasoning`:
    - Read all memories of both speakers. Note their dates, which often decide the answer.
    - When an event or a fact is asked for, find the memory that states it directly.
    - Where two memories disagree, trust the more recent one.
    - Work out relative times and durations from the date of the memory, and show how.
    - A name in a memory need not be the speaker whose memory it is. Do not confuse them.
    - Use general knowledge only if the memories are not enough and the question is about the world at large.

    Then give the answer alone, in `answer`, usually in at most 10 to 12 words:
    - Include every essential name and date.
    - Give a time as a date, a month or a year, never as a vague or relative time.
    - Check that it answers what was asked.
    """

    first_speaker_memories: str = dspy.InputField(
        desc="memories of the first speaker, one per line: [id] (date) speaker: memory"
    )
    second_speaker_memories: str = dspy.InputField(
        desc="memories of the second speaker, in the same form"
    )
    question: str = dspy.InputField(desc="the question to answer")
    reasoning: str = dspy.OutputField(
        desc="which memories matter, and what follows from them", default=""
    )
    answer: str = dspy.OutputField(desc="the answer alone")
