"""Prompts of the baselines, in our own words; their papers are named in `programs/baselines/written.py`.

The summary of logs is Mem-PAL's addition, whose prompt is not printed: ours. ConditionMem's follows what the abstract
and summaries of its paper tell. MemoryBank's are the four of its released code; there the assistant is a companion.
"""

from __future__ import annotations

from typing import Annotated

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import IdFrom


class UpdateSummary(dspy.Signature):
    """Update the running summary of a long acquaintance with its newest session.

    You are given the summary of all earlier sessions and the newest session. Write one new summary of both.

    - The new summary replaces the old one. What it leaves out is lost.
    - Keep everything in the old summary that still holds. Where the session contradicts it, follow the session.
    - Add what the session tells about each speaker: facts about their lives, people, places, preferences, plans, and
      what happened when.
    - Write dates instead of relative times ("last week"). Work them out from the date of the session.
    - A session may consist of records of behaviour: the kind of situation, the situation, an arrow, and what the user
      did. Sum such records up as preferences, as habits of time and place, and as changes. Do not list single records.
    - Name the speaker in every sentence, and make every sentence understandable on its own.
    - Leave out greetings, small talk and the ids in brackets. Add nothing that neither the summary nor the session
      says.
    - Keep to the word limit. To make room, shorten general statements before you drop particular facts.
    """

    known_before: str = dspy.InputField(desc="the summary of all earlier sessions; empty before the first session")
    session_date: str = dspy.InputField(desc="when the session took place")
    dialogue: str = dspy.InputField(desc="the turns of the session, one per line: [turn id] speaker: words")
    max_words: int = dspy.InputField(desc="how many words the new summary may have at most")
    summary: str = dspy.OutputField(desc="the whole new summary, in plain sentences")


class UpdateLogSummary(dspy.Signature):
    """Update the running summary of a user's device logs with the newest logs.

    You are given the summary of all earlier logs and the newest logs. Write one new summary of both.

    - The new summary replaces the old one. What it leaves out is lost.
    - Keep what tells something about the user's life: habits with their times and places, health, work, people, plans,
      purchases, and changes since the old summary. Keep a single event if it may have consequences.
    - Join entries that belong together, in time or by cause, into one sentence.
    - Write dates instead of "yesterday" and the like. Leave out the ids in brackets. Add nothing that neither the
      summary nor the logs say.
    - Keep to the word limit. To make room, shorten general statements before you drop particular facts.
    """

    logs_known_before: str = dspy.InputField(desc="the summary of all earlier logs; empty before the first logs")
    new_logs: str = dspy.InputField(desc="the newest logs, one per line: [id] (date) device: entry")
    max_words: int = dspy.InputField(desc="how many words the new summary may have at most")
    log_summary: str = dspy.OutputField(desc="the whole new summary of the logs, in plain sentences")


class ConditionalRecord(BaseModel):
    """One thing to remember from a dialogue, and the condition under which it matters."""

    turn_id: Annotated[str, IdFrom("past_dialogue")] = Field(
        default="", description="id of the utterance it comes from"
    )
    condition: str = Field(default="", description="the topic or the task in which it came up")
    content: str = Field(description="what to remember, understandable without the dialogue")


class RecordConditions(dspy.Signature):
    """Note what a personal assistant should remember from a dialogue for later dialogues.

    Go through the utterances one by one. Read each one in the light of everything that was said before it.

    - Note what the assistant could not know without this user: facts about the user and their work, knowledge that the
      user taught, likes and dislikes, how the user wants to be helped, feedback on a reply, and the state of an
      unfinished task.
    - Give each note its condition: the topic or the task in which it came up. The note will be found by it when a
      similar one comes up again.
    - Write the knowledge or the experience itself as the content. Turn feedback into what to do next time.
    - Leave out common knowledge, polite phrases, and what the assistant said without a reaction from the user.

    If nothing is worth remembering, return an empty list.
    """

    past_dialogue: str = dspy.InputField(desc="the turns, one per line: [turn id] (date) speaker: words")
    records: list[ConditionalRecord] = dspy.OutputField(desc="the notes, in the order of the dialogue")


class DigestEvents(dspy.Signature):
    """Sum up a dialogue between a user and an assistant: its themes and the key events it tells of.

    Be as concise as you can. If there are several key events, write each one on a line of its own.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="the turns, one per line: speaker: words")
    event_digest: str = dspy.OutputField(desc="the themes and events of this dialogue")


class InferPersonality(dspy.Signature):
    """Infer from a dialogue what the user is like and how they feel, and how best to reply to them.

    Describe:
    - traits of character and interests that show in the user's words;
    - the user's mood during the dialogue;
    - a way of replying that suits such a person in such a mood.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="the turns, one per line: speaker: words")
    personality_note: str = dspy.OutputField(desc="traits, mood and way of replying, in plain sentences")


class MergeEvents(dspy.Signature):
    """Merge the digests of many dialogues into one account of what happened.

    Keep what is essential, with its dates. Tell what is repeated only once. Be as concise as you can.
    """

    event_digests: str = dspy.InputField(desc="one digest per dialogue, oldest first: (date) digest")
    overall_events: str = dspy.OutputField(desc="what happened, in plain sentences")


class MergePersonality(dspy.Signature):
    """Merge notes on a user's character and moods into one portrait, with the way of replying that suits the user best.

    Keep the portrait general and concise. If notes disagree, trust what recurs, and newer notes more than older ones.
    """

    personality_notes: str = dspy.InputField(desc="one note per dialogue, oldest first: (date) note")
    user_portrait: str = dspy.OutputField(desc="what the user is like, and how to reply to them")
