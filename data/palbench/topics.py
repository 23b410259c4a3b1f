"""The topics of PAL-Bench: what a user asks about in a dialogue, and what is known behind it."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, AliasPath, Field

from ...records import History, Logs, Record
from ..field_types import Listed, Text
from ..rows import Location, Row

Language = Literal["zh", "en"]
Feedback = Literal["pos", "neg", "neu"]

NUM_NEEDS = 2
NUM_CANDIDATES = 8
NUM_LIKED = 2
NUM_DISLIKED = 2


class Candidate(Row):
    """One candidate solution."""

    solution: Text
    feedback: Feedback


class Topic(Row):
    """What a user asks about in one dialogue, and what is behind it."""

    user_query: Text
    requirement: Text
    needs: Listed[Text] = Field((), validation_alias=AliasChoices("needs", "implicit_needs"))
    """Two implicit needs."""
    positives: Listed[Text] = Field(
        (), validation_alias=AliasChoices("positives", AliasPath("solution", "pos"))
    )
    """Two solutions that the user likes."""
    negatives: Listed[Text] = Field(
        (), validation_alias=AliasChoices("negatives", AliasPath("solution", "neg"))
    )
    """Solutions that the user rejects."""
    candidates: Listed[Candidate] = Field(
        (), validation_alias=AliasChoices("candidates", "candidate_solutions")
    )
    """Eight, in the order of the file: S1 to S8."""

    @property
    def feedback(self) -> dict[str, Feedback]:
        """What the user thinks of each candidate, by its id."""
        return {
            f"S{number}": candidate.feedback for number, candidate in enumerate(self.candidates, 1)
        }

    @property
    def options(self) -> list[str]:
        """The candidates with their ids, as they are shown."""
        return [
            f"S{number}: {candidate.solution}"
            for number, candidate in enumerate(self.candidates, 1)
        ]

    def report_missing_parts(self, location: Location) -> None:
        """Report a number of needs or candidates that is not the usual one."""
        if len(self.needs) != NUM_NEEDS:
            location.warn(
                "number of needs", f"has {len(self.needs)} implicit needs, not {NUM_NEEDS}"
            )

        num_candidates = len(self.candidates)
        num_liked = sum(candidate.feedback == "pos" for candidate in self.candidates)
        num_disliked = sum(candidate.feedback == "neg" for candidate in self.candidates)
        counts = (num_candidates, num_liked, num_disliked)
        if counts != (NUM_CANDIDATES, NUM_LIKED, NUM_DISLIKED):
            location.warn(
                "number of candidates",
                f"has {num_candidates} candidates, {num_liked} liked, {num_disliked} disliked; "
                f"expected {NUM_CANDIDATES}, {NUM_LIKED} and {NUM_DISLIKED}",
            )


class Persona(Record):
    """One user at the time of one topic, as judges and the simulated user read it."""

    profile: str = ""
    """Background and personality."""
    situation: str = ""
    needs: str = ""
    """The query, the implicit needs with what they rest on, and the whole requirement."""
    preferences: str = ""
    """The requirement, general preferences, and the solutions the user likes and rejects."""
    evidences: tuple[str, ...] = ()
    """What the implicit needs rest on, in words."""


class QueryTopic(Record):
    """One topic of a query sample: what all parts of PAL-Bench ask about."""

    id: str
    """E.g. "0000_sample26_topic-1"."""
    history: History
    """What is known when the dialogue begins."""
    logs: Logs | None
    """The sample's own logs, which are the last item of the history."""
    topic: Topic
    evidence: tuple[str, ...]
    """Ids of the log entries that the needs rest on, if the data has them."""
    persona: Persona
    language: Language
