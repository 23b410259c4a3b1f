"""Prompts of the baselines.

Recursive summary: Wang et al. 2023, "Recursively summarizing enables long-term dialogue memory in large language
models" (arXiv:2308.15022), in our own words: the old summary and one more session give the new summary.
"""

from __future__ import annotations

import dspy


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
