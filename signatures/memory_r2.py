"""Prompts of Memory-R2: extract facts, manage the memory, answer from it; and the one prompt of its single agent.

Source: the released prompts (commit 357b4ec: prompt/math/multi_turn_mamrp.py, memory/prompts/qa.txt); every rule is
carried over in our own words. `docs/coverage.md` maps rule by rule. The worked examples are ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

KEPT = """\
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

EDITS = """\
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

_TURN = "[turn id] (date) speaker: words"
_DIALOGUE = f"the turns to read, one per line: {_TURN}"
_EARLIER = (
    f"the turns of this session before `dialogue`, one per line: {_TURN}. Use them only to "
    "understand `dialogue`, and take no fact from them"
)


class Fact(BaseModel):
    """A fact worth remembering, from one turn."""

    speaker: str = Field(description="name of the person the fact is about")
    turn_id: Annotated[str, IdFrom("dialogue")] = Field(
        description="id of the turn that states the fact, copied from its brackets"
    )
    fact: str = Field(
        description="the fact, in the third person and at most 20 words, understandable alone"
    )


EXTRACT = f"""List the facts about both speakers in `dialogue` that are worth remembering for later conversations.

{KEPT}"""
"""The instructions of the extractor."""

_FACTS = "the facts, in the order of the turns; an empty list if nothing is worth keeping"


class ExtractFacts(dspy.Signature):
    """The facts of some turns."""

    __doc__ = EXTRACT

    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    facts: list[Fact] = dspy.OutputField(desc=_FACTS)


class ExtractFactsInContext(dspy.Signature):
    """The same, after the parts of the session before it."""

    __doc__ = EXTRACT

    earlier: str = dspy.InputField(desc=_EARLIER)
    dialogue: str = dspy.InputField(desc=_DIALOGUE)
    facts: list[Fact] = dspy.OutputField(desc=_FACTS)


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
    named = {
        "ADD": "INSERT",
        "NOOP": "NONE",
        "NO OPERATION": "NONE",
        "NO_OPERATION": "NONE",
        "NO-OP": "NONE",
    }
    upper = value.strip().upper() if isinstance(value, str) else value
    return named.get(upper, upper)


Words = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text; null is an empty one."""


class Operation(BaseModel):
    """One change of the memory."""

    op: Annotated[Literal["INSERT", "UPDATE", "DELETE", "NONE"], BeforeValidator(_operation)]
    memory_id: Annotated[str | None, IdFrom("memories")] = Field(
        default=None, description="id of the memory to update or delete; null for INSERT"
    )
    speaker: Words = Field(default="", description="name of the person the content is about")
    content: Words = Field(
        default="", description="the new text of the memory; empty for DELETE and NONE"
    )
    turn_id: Annotated[str | None, IdFrom("new_facts", "dialogue")] = Field(
        default=None, description="id of the turn that gave the new information"
    )


MANAGE = f"""Bring the stored memories up to date with new facts. Answer with a list of operations.

Each new fact has related_memory_ids: the ids of stored memories that a search found for it. Compare the fact with
these memories only. The search makes mistakes: a memory matches only if it is really about the same entity and the same
topic. Ignore the others. A fact without a matching memory can safely be inserted.

{EDITS}"""
"""The instructions of the manager."""

_SESSION_DATE = "date of the session in which the new facts were said"
_MEMORIES = "the stored memories that a search found for the new facts"
_NEW_FACTS = "the facts to deal with, each with the ids of the memories that may be about the same"
_OPERATIONS = "the operations, in the order of the facts; facts that change nothing may be left out"


class ManageMemory(dspy.Signature):
    """The operations that new facts call for."""

    __doc__ = MANAGE

    session_date: str = dspy.InputField(desc=_SESSION_DATE)
    memories: list[StoredMemory] = dspy.InputField(desc=_MEMORIES)
    new_facts: list[NewFact] = dspy.InputField(desc=_NEW_FACTS)
    operations: list[Operation] = dspy.OutputField(desc=_OPERATIONS)


class ManageMemoryInContext(dspy.Signature):
    """The same, after the facts of the session before these."""

    __doc__ = MANAGE

    session_date: str = dspy.InputField(desc=_SESSION_DATE)
    memories: list[StoredMemory] = dspy.InputField(desc=_MEMORIES)
    earlier_facts: list[Fact] = dspy.InputField(
        desc="facts from earlier in this session, which are already dealt with. Use them only to "
        "understand `new_facts`, and give no operation for them"
    )
    new_facts: list[NewFact] = dspy.InputField(desc=_NEW_FACTS)
    operations: list[Operation] = dspy.OutputField(desc=_OPERATIONS)


class EditMemory(dspy.Signature):
    """The operations that some turns call for: both steps as one, for the ablation with a single agent."""

    __doc__ = f"""Bring the stored memories up to date with `dialogue`. Answer with a list of operations.

First find the facts about both speakers in `dialogue` that are worth remembering for later conversations.

{KEPT}

Then compare each fact with the stored memories. A search found them, and it makes mistakes: a memory matches only if it
is really about the same entity and the same topic. Ignore the others.

{EDITS}"""

    session_date: str = dspy.InputField(desc="date of the session that the turns are from")
    memories: list[StoredMemory] = dspy.InputField(
        desc="the stored memories that a search found for `dialogue`"
    )
    earlier: str = dspy.InputField(desc=_EARLIER)
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


_SESSION = "8 May 2023, Monday 13:00"
_GREETING = "[D4:1] (8 May 2023, Monday 13:00) Mia: Hi Leo! How was your weekend?"
_NEWS = """\
[D4:2] (8 May 2023, Monday 13:00) Leo: Great! Yesterday I went to the pottery fair in Bruges with Ina, and I bought a \
blue teapot there.
[D4:3] (8 May 2023, Monday 13:00) Mia: Lovely! I want to learn the guitar this summer. I have had one for ten years."""
_NEWS_FACTS = (
    Fact(
        speaker="Leo",
        turn_id="D4:2",
        fact="Leo visited the pottery fair in Bruges with Ina on 7 May 2023.",
    ),
    Fact(
        speaker="Leo",
        turn_id="D4:2",
        fact="Leo bought a blue teapot at the pottery fair in Bruges on 7 May 2023.",
    ),
    Fact(speaker="Mia", turn_id="D4:3", fact="Mia intends to learn the guitar in summer 2023."),
    Fact(
        speaker="Mia", turn_id="D4:3", fact="Mia has owned a guitar for ten years as of May 2023."
    ),
)
_FAREWELL = (
    "[D4:4] (8 May 2023, Monday 13:00) Leo: That sounds good. My sister Ina waves, see you soon!"
)
_FAREWELL_FACT = Fact(speaker="Leo", turn_id="D4:4", fact="Leo has a sister named Ina.")
_SAID_BEFORE = "3 April 2023, Monday 18:00"
_KNOWN = tuple(
    StoredMemory(memory_id=memory_id, speaker=speaker, content=content, date=_SAID_BEFORE)
    for memory_id, speaker, content in (
        ("m1", "Leo", "Leo plans to visit the pottery fair in Bruges in May 2023."),
        ("m2", "Leo", "Ina is Leo's younger sister."),
        ("m3", "Mia", "Mia does not own a musical instrument."),
        ("m4", "Mia", "Mia went to a guitar concert in Ghent in 2022."),
    )
)
_RELATED = (["m1", "m2"], ["m1"], ["m4", "m3"], ["m3", "m4"])
_CHANGES = (
    Operation(
        op="UPDATE", memory_id="m1", speaker="Leo", content=_NEWS_FACTS[0].fact, turn_id="D4:2"
    ),
    Operation(op="INSERT", speaker="Leo", content=_NEWS_FACTS[1].fact, turn_id="D4:2"),
    Operation(op="INSERT", speaker="Mia", content=_NEWS_FACTS[2].fact, turn_id="D4:3"),
    Operation(op="DELETE", memory_id="m3", speaker="Mia", turn_id="D4:3"),
    Operation(op="INSERT", speaker="Mia", content=_NEWS_FACTS[3].fact, turn_id="D4:3"),
)
_NO_CHANGE = Operation(op="NONE", memory_id="m2", speaker="Leo", turn_id="D4:4")


def extraction_examples() -> list[dspy.Example]:
    """Return worked examples for `ExtractFactsInContext`: turns with four facts, and a greeting without one."""
    return [
        _example(
            ("earlier", "dialogue"), earlier=_GREETING, dialogue=_NEWS, facts=list(_NEWS_FACTS)
        ),
        _example(("earlier", "dialogue"), earlier="", dialogue=_GREETING, facts=[]),
    ]


def management_examples() -> list[dspy.Example]:
    """Return worked examples for `ManageMemoryInContext`: all four operations, and memories that do not match."""
    names = ("session_date", "memories", "earlier_facts", "new_facts")
    news = [
        NewFact(**fact.model_dump(), related_memory_ids=ids)
        for fact, ids in zip(_NEWS_FACTS, _RELATED, strict=True)
    ]
    farewell = NewFact(**_FAREWELL_FACT.model_dump(), related_memory_ids=["m2"])
    return [
        _example(
            names,
            session_date=_SESSION,
            memories=list(_KNOWN),
            earlier_facts=[],
            new_facts=news,
            operations=list(_CHANGES),
        ),
        _example(
            names,
            session_date=_SESSION,
            memories=[_KNOWN[1]],
            earlier_facts=list(_NEWS_FACTS),
            new_facts=[farewell],
            operations=[_NO_CHANGE],
        ),
    ]


def editing_examples() -> list[dspy.Example]:
    """Return worked examples for `EditMemory`: the same dialogue as one step."""
    names = ("session_date", "memories", "earlier", "dialogue")
    given = {"session_date": _SESSION, "memories": list(_KNOWN)}
    return [
        _example(names, **given, earlier=_GREETING, dialogue=_NEWS, operations=list(_CHANGES)),
        _example(names, **given, earlier="", dialogue=_GREETING, operations=[]),
    ]


def without_context(examples: list[dspy.Example]) -> list[dspy.Example]:
    """Return examples for `ExtractFacts` or `ManageMemory`, which are shown nothing of the session before."""
    context = ("earlier", "earlier_facts")
    return [example.without(*(name for name in context if name in example)) for example in examples]


def _example(inputs: tuple[str, ...], **values: Any) -> dspy.Example:
    return dspy.Example(**values).with_inputs(*inputs)
