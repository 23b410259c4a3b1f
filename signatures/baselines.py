"""The prompts of the baselines that write a memory, in our own words.

The files of the baselines in `programs/baselines/` name their papers. The prompts:

- Recursive summaries (Wang et al. 2023): `UpdateSummary`, after each session.
- Summaries of device logs, which Mem-PAL adds without printing a prompt: `UpdateLogSummary`.
- ConditionMem: `RecordConditions`. It follows the abstract and summaries of the paper.
- MemoryBank, from its released code, where the assistant is a companion: `DigestEvents` and
  `InferPersonality` after each session, then `MergeEvents` and `MergePersonality` over all
  sessions.
"""

from __future__ import annotations

from typing import Annotated

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import IdFrom


class ConditionalRecord(BaseModel):
    """One thing to remember from a dialogue, and the condition under which it matters."""

    turn_id: Annotated[str, IdFrom("past_dialogue")] = Field(
        default="", description="id of the turn it comes from"
    )
    condition: str = Field(default="", description="the topic or the task in which it came up")
    content: str = Field(description="what to remember, understandable without the dialogue")


class UpdateSummary(dspy.Signature):
    """Update the running summary of a long series of conversations to include the newest session.

    You are given the summary of all earlier sessions and the newest session. Write one new summary of both.

    - The new summary replaces the old one. What it leaves out is lost.
    - Keep everything in the old summary that still holds. Where the session contradicts it, follow the session.
    - Add what the session tells about each speaker: facts about their lives, people, places, preferences, plans, and
      what happened when.
    - Write dates instead of relative times ("last week"). Work them out from the date of the session.
    - A session may consist of records of behaviour: the kind of situation, the situation, an arrow, and what the user
      did. Summarise such records as preferences, habits (with their times and places) and changes in them. Do not list
      individual records.
    - Name the speaker in every sentence, and make every sentence understandable on its own.
    - Leave out greetings, small talk and the ids in brackets. Add only what the old summary or the session says.
    - Keep to the word limit. To make room, shorten general statements first; drop specific facts only if you must.
    """

    known_before: str = dspy.InputField(
        desc="the summary of all earlier sessions; empty before the first session"
    )
    session_date: str = dspy.InputField(desc="when the session took place")
    dialogue: str = dspy.InputField(
        desc="the turns of the session, one per line: [turn id] speaker: words"
    )
    max_words: int = dspy.InputField(desc="the maximum number of words in the new summary")
    summary: str = dspy.OutputField(desc="the whole new summary, in plain sentences")


class UpdateLogSummary(dspy.Signature):
    """Update the running summary of a user's device logs to include the newest logs.

    You are given the summary of all earlier logs and the newest logs. Write one new summary of both.

    - The new summary replaces the old one. What it leaves out is lost.
    - Keep whatever says something about the user's life: habits with their times and places, health, work, people,
      plans, purchases, and changes since the old summary. Keep a one-off event if it may have consequences.
    - Combine entries that are connected in time or by cause into one sentence.
    - Write dates instead of "yesterday" and the like. Leave out the ids in brackets. Add only what the old summary or
      the logs say.
    - Keep to the word limit. To make room, shorten general statements first; drop specific facts only if you must.
    """

    logs_known_before: str = dspy.InputField(
        desc="the summary of all earlier logs; empty before the first logs"
    )
    new_logs: str = dspy.InputField(desc="the newest logs, one per line: [id] (date) device: entry")
    max_words: int = dspy.InputField(desc="the maximum number of words in the new summary")
    log_summary: str = dspy.OutputField(
        desc="the whole new summary of the logs, in plain sentences"
    )


class RecordConditions(dspy.Signature):
    """Note what a personal assistant should remember from a dialogue for later dialogues.

    Go through the turns one by one. Read each one in the light of everything that was said before it. If no speaker is
    an assistant and two people talk to each other, both of them count as users: name the person in each note.

    - Note what the assistant can know only from this user: facts about the user and their work, knowledge that the
      user taught, likes and dislikes, how the user wants to be helped, feedback on a reply, and the state of an
      unfinished task.
    - Give each note its condition: the topic or the task in which it came up. The condition will be used to find the
      note when a similar topic or task comes up.
    - As the content, write what was learned, not that it was mentioned. Turn feedback into what to do next time.
    - Leave out common knowledge, polite phrases, and anything the assistant said that the user did not react to.

    If nothing is worth remembering, return an empty list.
    """

    past_dialogue: str = dspy.InputField(
        desc="the turns, one per line: [turn id] (date) speaker: words"
    )
    records: list[ConditionalRecord] = dspy.OutputField(
        desc="the notes, in the order of the dialogue"
    )


class DigestEvents(dspy.Signature):
    """Summarise a dialogue between a user and an assistant: its themes and the key events it mentions.

    Be as concise as you can. If there are several key events, write each one on a line of its own.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="the turns, one per line: speaker: words")
    event_digest: str = dspy.OutputField(desc="the themes and key events of this dialogue")


class InferPersonality(dspy.Signature):
    """Infer from a dialogue the user's traits and mood, and how best to reply to the user.

    Describe:
    - character traits and interests that are evident from the user's words;
    - the user's mood during the dialogue;
    - a way of replying that suits such a person in such a mood.
    """

    session_date: str = dspy.InputField(desc="when the dialogue took place")
    spoken: str = dspy.InputField(desc="the turns, one per line: speaker: words")
    personality_note: str = dspy.OutputField(
        desc="traits, mood and way of replying, in plain sentences"
    )


class MergeEvents(dspy.Signature):
    """Merge the digests of many dialogues into one account of what happened.

    Keep what is essential, with its dates. Mention repeated matters only once. Be as concise as you can.
    """

    event_digests: str = dspy.InputField(
        desc="one digest per dialogue, oldest first: (date) digest"
    )
    overall_events: str = dspy.OutputField(desc="what happened, in plain sentences")


class MergePersonality(dspy.Signature):
    """Merge notes on a user's character and moods into one portrait, and say how best to reply to the user.

    Keep the portrait general and concise. If notes disagree, give more weight to what recurs and to newer notes.
    """

    personality_notes: str = dspy.InputField(
        desc="one note per dialogue, oldest first: (date) note"
    )
    user_portrait: str = dspy.OutputField(
        desc="what the user is like, and how best to reply to the user"
    )
