"""Prompts of Memory-R2: extract facts, manage the memory, answer from it.

Source: the prompt pieces on the paper's review page (items 29-64) and the released defaults; every rule is carried
over in our own words. `docs/coverage.md` maps rule by rule.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import dspy
from pydantic import BaseModel, Field, field_validator

from ..reading.ids import Shown


class Fact(BaseModel):
    """One thing worth remembering that a turn says."""

    speaker: str = Field(description="name of the person the fact is about")
    turn_id: Annotated[str, Shown("dialogue")] = Field(
        description="id of the turn that says it, as it stands in brackets"
    )
    fact: str = Field(description="the fact in at most 20 words, in the third person, understandable alone")


class ExtractFacts(dspy.Signature):
    """Collect the facts about both speakers that are worth remembering for later conversations.

    Worth keeping:
    - preferences: what someone likes, dislikes, favours or thinks of food, entertainment, products, sports;
    - personal details: names, relationships, family, how long things lasted, significant facts of a life;
    - plans and intentions that someone states for the future;
    - activities and routines: travels, places visited, habits, sports and hobbies with their particulars;
    - health and wellness as someone tells it; never infer or store a diagnosis;
    - work: job titles, career goals, professional interests, habits at work;
    - anything else that matters: books, films, creative work, projects, notable activities.

    Leave out: system text and anything that is no dialogue, small talk, greetings, generic remarks, opinions without
    substance, and common knowledge. Use only the given turns, and cover both speakers. One fact per entry.
    """

    dialogue: str = dspy.InputField(desc="turns, one per line: [turn id] (date) speaker: words")
    facts: list[Fact] = dspy.OutputField(desc="the facts, in the order of the turns; empty if nothing is worth keeping")


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
    """One edit of the memory."""

    op: Literal["INSERT", "UPDATE", "DELETE", "NONE"]
    memory_id: Annotated[str | None, Shown("memories")] = Field(
        default=None, description="the entry to change or delete; null for INSERT"
    )
    speaker: str = Field(default="", description="who the content is about")
    content: str = Field(default="", description="what the entry shall say; empty for DELETE")
    turn_id: Annotated[str | None, Shown("new_facts")] = Field(
        default=None, description="the turn that the new information comes from"
    )

    @field_validator("op", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        named = {"ADD": "INSERT", "NOOP": "NONE", "NO OPERATION": "NONE", "NO_OPERATION": "NONE", "NO-OP": "NONE"}
        upper = value.strip().upper() if isinstance(value, str) else value
        return named.get(upper, upper)

    @field_validator("speaker", "content", mode="before")
    @classmethod
    def _no_null(cls, value: Any) -> Any:
        return "" if value is None else value


class ManageMemory(dspy.Signature):
    """Bring the memory up to date with new facts by a list of operations.

    For every new fact look only at the memories its related_memory_ids name, and decide in this order:
    1. It explicitly contradicts one and makes it invalid: DELETE that memory.
    2. One says the same already (same person, same topic, same meaning), in whatever words: NONE, and stop.
    3. One is about the same entity or event, and the fact refines, continues or confirms it: UPDATE it, and stop.
    4. Otherwise: INSERT.

    INSERT gives speaker (who the fact is about), content (short, third person, tense as in the fact) and no memory_id.
    UPDATE is only for the same entity or event. Its content merges old and new: nothing stated before may be lost,
    though it may be said more briefly; if both mean the same, it is no update.
    DELETE is only for an explicit contradiction, never because a memory is old or matters less.
    Use memory ids of the input only. The memory grows monotonically: a fact leaves it only when contradicted.
    Before answering, check that every content can be understood alone, names its subject, leaves no vague pronoun,
    and holds a durable fact rather than a mere act of conversation.
    """

    session_date: str = dspy.InputField(desc="when the facts were said")
    memories: list[StoredMemory] = dspy.InputField(desc="the memories related to the new facts")
    new_facts: list[NewFact] = dspy.InputField()
    operations: list[Operation] = dspy.OutputField(
        desc="the edits, in order; facts that change nothing may be left out"
    )


class AnswerFromMemories(dspy.Signature):
    """Answer the question from the memories of both speakers.

    - Read all memories of both speakers, and mind their dates: they often decide the answer.
    - If the question asks for an event or a fact, look for direct evidence.
    - Where memories contradict one another, the most recent one holds.
    - Work dates and durations out from the memories' dates; the answer must not be vague about time.
    - A name inside a memory need not be the speaker the memory belongs to.
    - Only if the memories do not suffice and the question is about the world at large, use general knowledge.
    - If they say nothing about it, the answer is: Not mentioned in the conversation.
    - Think step by step first; then give the answer alone, usually in no more than 10 to 12 words, with every
      essential name and date.
    """

    first_speaker_memories: str = dspy.InputField(desc="memories of the first speaker, one per line with its date")
    second_speaker_memories: str = dspy.InputField(desc="memories of the second speaker, one per line with its date")
    question: str = dspy.InputField()
    reasoning: str = dspy.OutputField(desc="which memories bear on the question, and what follows", default="")
    answer: str = dspy.OutputField(desc="the final answer alone")
