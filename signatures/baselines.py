"""Prompts of the baselines, in our own words; their papers are named in `programs/baselines/written.py`.

The summary of logs is Mem-PAL's addition, whose prompt is not printed: ours. ConditionMem's follows what the abstract
and summaries of its paper tell. MemoryBank's are the four of its released code; there the assistant is a companion.
"""

from __future__ import annotations

from typing import Annotated

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import Shown


class UpdateSummary(dspy.Signature):
    """Rewrite the running summary of a long acquaintance so that it also covers one more session.

    - The new summary replaces the old one: whatever it leaves out is forgotten for good.
    - Carry over everything of the old summary that still holds. Where the session contradicts it, the session is right.
    - Add what the session tells about each speaker: facts of their lives, people, places, preferences, plans, and
      what happened when. Work relative times ("last week") out from the session's date and write the date itself.
    - Records of behaviour (a kind of situation, the situation, an arrow, what the user did) tell of preferences, of
      habits of time and place, and of changes: keep these rather than single records.
    - Name the speaker in every sentence; no sentence may need another one to be understood.
    - Leave out greetings, small talk and the ids in brackets. Add nothing that neither summary nor session says.
    - Stay within the word limit: shorten what is general before you drop what is particular.
    """

    known_before: str = dspy.InputField(desc="the summary of all earlier sessions; empty before the first one")
    session_date: str = dspy.InputField(desc="when the session took place")
    dialogue: str = dspy.InputField(desc="the session's turns, one per line: [turn id] speaker: words")
    max_words: int = dspy.InputField(desc="most words that the updated summary may have")
    summary: str = dspy.OutputField(desc="the whole new summary, in plain sentences")


class UpdateLogSummary(dspy.Signature):
    """Rewrite the running summary of what a user's devices logged so that it also covers the newest logs.

    - The new summary replaces the old one: whatever it leaves out is forgotten for good.
    - Keep what tells of the user's life: habits with their times and places, health, work, people, plans, purchases,
      and what changed since the old summary was written. One-off events are kept where something may follow from them.
    - Entries that belong together, in time or by cause, become one sentence.
    - Write dates instead of "yesterday". Leave out the ids in brackets, and add nothing that is not in the logs.
    - Stay within the word limit: shorten what is general before you drop what is particular.
    """

    logs_known_before: str = dspy.InputField(desc="the summary of all earlier logs; empty before the first ones")
    new_logs: str = dspy.InputField(desc="the newest logs, one per line: [id] (date) device: entry")
    max_words: int = dspy.InputField(desc="most words that the updated summary may have")
    log_summary: str = dspy.OutputField(desc="the whole new summary of the logs, in plain sentences")


class ConditionalRecord(BaseModel):
    """One thing worth keeping of a dialogue, with the circumstances that it holds under."""

    turn_id: Annotated[str, Shown("past_dialogue")] = Field(
        default="", description="id of the utterance that it is about"
    )
    condition: str = Field(default="", description="what was being talked about or wanted when it came up")
    content: str = Field(description="what is to be remembered, understandable without the dialogue")


class RecordConditions(dspy.Signature):
    """Note what of a dialogue a personal assistant should keep for later ones, each thing with its condition.

    Go through the utterances one by one, in the light of all that was said before them.
    - Worth keeping is what could not be known without this user: facts about them and their work, knowledge that they
      taught, what they like or reject, how they want to be helped, feedback on a reply, and where a task was left.
    - The condition says in which context it came up, so that it is found when a similar one returns.
    - The content is the knowledge or experience itself; feedback is turned into what to do the next time.
    - Common knowledge, courtesies and what the assistant made up without a reaction of the user are left out.
    Nothing may be worth keeping; then there are no records.
    """

    past_dialogue: str = dspy.InputField(desc="turns, one per line: [turn id] (date) speaker: words")
    records: list[ConditionalRecord] = dspy.OutputField(desc="in the order of the dialogue")


class DigestEvents(dspy.Signature):
    """Sum up a dialogue between a user and an assistant: its themes, and the key things it tells.

    Be as concise as the dialogue allows. Where there are several key events, each gets a line of its own.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="turns, one per line: speaker: words")
    event_digest: str = dspy.OutputField(desc="the events of this dialogue")


class InferPersonality(dspy.Signature):
    """Infer from a dialogue what the user is like and how they feel, and from that how to reply to them.

    - Traits of character and interests that show in what they say.
    - Their mood during the dialogue.
    - A strategy for replies that suits such a person in such a mood.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="turns, one per line: speaker: words")
    personality_note: str = dspy.OutputField(desc="traits, mood and strategy, in plain sentences")


class MergeEvents(dspy.Signature):
    """Condense the digests of many dialogues into one account of what happened, as concise as it can be.

    What is essential stays, with its dates; what repeats itself is said once.
    """

    event_digests: str = dspy.InputField(desc="one per dialogue, oldest first: (date) digest")
    overall_events: str = dspy.OutputField(desc="what happened, in plain sentences")


class MergePersonality(dspy.Signature):
    """Condense notes on a user's character and moods into one portrait, and the way of replying that suits them best.

    The portrait is general and concise. Where notes disagree, what recurs counts, and the newer before the older.
    """

    personality_notes: str = dspy.InputField(desc="one per dialogue, oldest first: (date) note")
    user_portrait: str = dspy.OutputField(desc="what the user is like, and how to reply to them")
