"""Prompts of Memory-R2: extract facts, manage the memory, answer from it; and the one prompt of its single agent.

Source: the released prompts (commit 357b4ec: prompt/math/multi_turn_mamrp.py, memory/prompts/qa.txt); every rule is
carried over in our own words. `docs/coverage.md` maps rule by rule.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

KEPT = """\
Worth keeping:
- preferences: what someone likes, dislikes, favours or thinks of food, entertainment, products, sports;
- personal details: names, relationships, family, how long things lasted, significant facts of a life;
- plans and intentions that someone states for the future;
- activities and routines: travels, places visited, habits, sports and hobbies with their particulars;
- health and wellness as someone tells it; never infer or store a diagnosis;
- work: job titles, career goals, professional interests, habits at work;
- anything else that matters: books, films, creative work, projects, notable activities.

Leave out: system text and anything that is no dialogue, small talk, greetings, generic remarks, opinions without
substance, and common knowledge. Use only the given turns, and cover both speakers.

Every fact
- is one event, one preference, one intention or one attribute. Never put together several events, several time frames,
  a motive and an event, a reflection and an action, or something past and a plan. What happened and what somebody
  intends are always two facts, and several facts of one message several entries. Only what one turn tells of the same
  event at the same time and place may be one fact;
- can be understood alone, without any other fact: it names its subject first, in the third person; a pronoun stays only
  where its noun is in the same fact, and a vague reference becomes a name. What the turns do not resolve is not stored;
- keeps its time: the date, the duration or the relative time that was said, as an absolute time wherever the date of
  the turn gives one;
- has at most 20 words; what needs more is split into several;
- rests on one turn and names its id;
- is more than an act of conversation: that someone asks, thanks or agrees is no fact without something lasting in
  it."""
"""What the extractor keeps, and in what form."""

EDITS = """\
1. It explicitly contradicts one and makes it invalid: DELETE that memory.
2. One says the same already (same person, same topic, same meaning), in whatever words: NONE, and stop.
3. One is about the same entity or event, and the fact refines, continues or confirms it: UPDATE it, and stop.
4. Otherwise: INSERT.

INSERT gives speaker (who the fact is about), content, turn_id and no memory_id. What cannot be understood alone
without guessing is not inserted.
UPDATE is only for the same entity or event, with its memory_id and the turn_id of what is new: it adds detail,
corrects, or goes on with the same story, even at another time (what was planned is done, what was considered is
certain). It takes the more informative wording and may be briefer, but no known part may be lost: to leave out one of
two cities that were visited is wrong, so answer NONE or INSERT then. Another event or topic is an INSERT; if both mean
the same, it is no update.
DELETE is only for an explicit contradiction, never because a memory is old or matters less.
NONE is for what is known in other words, redundant or insignificant.
Every content has at most 20 words and one fact, in the third person, with its subject named and no vague pronoun, in
the tense of the fact; if not everything fits, what is most essential.
Use memory ids of the input only, each for at most one operation. The memory grows monotonically: a fact leaves it only
when contradicted.
Before answering, check that every content can be understood alone, names its subject, leaves no vague pronoun, and
holds a durable fact rather than a mere act of conversation."""
"""How the manager decides, and what its operations are."""

_DIALOGUE = "turns, one per line: [turn id] (date) speaker: words"
_EARLIER = "the turns of the session before these, only to understand them by: no fact is taken from here"


class Fact(BaseModel):
    """One thing worth remembering that a turn says."""

    speaker: str = Field(description="name of the person the fact is about")
    turn_id: Annotated[str, IdFrom("dialogue")] = Field(
        description="id of the turn that says it, as it stands in brackets"
    )
    fact: str = Field(description="the fact in at most 20 words, in the third person, understandable alone")


class ExtractFacts(dspy.Signature):
    """The facts of some turns."""

    __doc__ = f"""Collect the facts about both speakers that are worth remembering for later conversations.

{KEPT}"""

    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    facts: list[Fact] = dspy.OutputField(desc="the facts, in the order of the turns; empty if nothing is worth keeping")


class ExtractFactsInContext(ExtractFacts):
    """The same, with the parts of the session before it as context."""

    __doc__ = ExtractFacts.instructions

    earlier: str = dspy.InputField(desc=_EARLIER)


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


def _operation(value: Any) -> Any:
    named = {"ADD": "INSERT", "NOOP": "NONE", "NO OPERATION": "NONE", "NO_OPERATION": "NONE", "NO-OP": "NONE"}
    upper = value.strip().upper() if isinstance(value, str) else value
    return named.get(upper, upper)


Words = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text; null is an empty one."""


class Operation(BaseModel):
    """One edit of the memory."""

    op: Annotated[Literal["INSERT", "UPDATE", "DELETE", "NONE"], BeforeValidator(_operation)]
    memory_id: Annotated[str | None, IdFrom("memories")] = Field(
        default=None, description="the entry to change or delete; null for INSERT"
    )
    speaker: Words = Field(default="", description="who the content is about")
    content: Words = Field(default="", description="what the entry shall say; empty for DELETE")
    turn_id: Annotated[str | None, IdFrom("new_facts", "dialogue")] = Field(
        default=None, description="the turn that the new information comes from"
    )


class ManageMemory(dspy.Signature):
    """The operations that new facts call for."""

    __doc__ = f"""Bring the memory up to date with new facts by a list of operations.

For every new fact look only at the memories its related_memory_ids name. They come from a search and may be noise:
check that entity and topic are really the same, and decide as if there were none otherwise; without any, INSERT is
safe. Decide in this order:
{EDITS}"""

    session_date: str = dspy.InputField(desc="when the facts were said")
    memories: list[StoredMemory] = dspy.InputField(desc="the memories related to the new facts")
    new_facts: list[NewFact] = dspy.InputField()
    operations: list[Operation] = dspy.OutputField(
        desc="the edits, in order; facts that change nothing may be left out"
    )


class ManageMemoryInContext(ManageMemory):
    """The same, with the facts of the session before these."""

    __doc__ = ManageMemory.instructions

    earlier_facts: list[Fact] = dspy.InputField(
        desc="facts of the session before the new ones, dealt with already: no operation is for them"
    )


class EditMemory(dspy.Signature):
    """The operations that some turns call for: both steps as one, for the ablation with a single agent."""

    __doc__ = f"""Bring the memory up to date with what a dialogue says that is worth remembering for later.

{KEPT}

For every such fact look at the memories. They come from a search and may be noise: check that entity and topic are
really the same. Decide in this order:
{EDITS}"""

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    memories: list[StoredMemory] = dspy.InputField(desc="the memories nearest to the dialogue")
    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    earlier: str = dspy.InputField(desc=_EARLIER)
    operations: list[Operation] = dspy.OutputField(desc="the edits, in order; empty if nothing is to be changed")


class AnswerFromMemories(dspy.Signature):
    """Answer the question from the memories of both speakers.

    - Read all memories of both speakers, and mind their dates: they often decide the answer.
    - If the question asks for an event or a fact, look for direct evidence.
    - Where memories contradict one another, the most recent one holds.
    - Work relative times and durations out from the memories' dates, and answer with a date, a month or a year; the
      answer must not be vague about time.
    - A name inside a memory need not be the speaker the memory belongs to.
    - Only if the memories do not suffice and the question is about the world at large, use general knowledge.
    - Think step by step first, and show how a time was worked out; then give the answer alone, usually in no more than
      10 to 12 words, with every essential name and date. Check that it answers what was asked.
    """

    first_speaker_memories: str = dspy.InputField(desc="memories of the first speaker, one per line with its date")
    second_speaker_memories: str = dspy.InputField(desc="memories of the second speaker, one per line with its date")
    question: str = dspy.InputField()
    reasoning: str = dspy.OutputField(desc="which memories bear on the question, and what follows", default="")
    answer: str = dspy.OutputField(desc="the final answer alone")
