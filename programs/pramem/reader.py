"""The reader of PraMem, and an answer prompt with the steps of Figure 7."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...records import Context, Hit, Query, estimate_tokens, in_blocks
from ...signatures.pramem import PredictWithExperience
from ..reader import EntryReader
from ..tasks.behavior import BehaviorPrediction, without_shown_turns
from ..tasks.task import lines_of_items
from .memory import ExperienceMemory, RoundExperience
from .settings import ExperienceReaderSettings

BLOCKS = {
    "pattern": "What earlier records have shown about this user",
    "alert": "Mistakes that you tend to make about this user and must avoid",
}
"""The headings of the two kinds of experience in the text of a memory (section 2.2)."""


class ExperienceReader(EntryReader[ExperienceMemory]):
    """Recall all patterns, then all alerts; of each kind, what is near to the query comes first.

    Proposals are not recalled. With the setting `at_round`, the experience is that of a round.
    """

    settings: ExperienceReaderSettings

    def __init__(self, settings: ExperienceReaderSettings) -> None:
        super().__init__(settings=settings)

    def search(
        self,
        memory: ExperienceMemory,
        queries: Sequence[str],
        k: int = 10,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return the `k` entries of the experience that are nearest to each query, best first.

        If the setting `at_round` names a practice round, the experience is searched as it was after
        that round, and not as it is now.
        """
        return super().search(self._at_round(memory), queries, k, min_score)

    def entries(self, memory: ExperienceMemory) -> Sequence[Entry]:
        return super().entries(self._at_round(memory))

    def fallback(self, memory: ExperienceMemory, query: Query) -> Iterable[Hit]:
        return super().fallback(self._at_round(memory), query)

    def recall(self, memory: ExperienceMemory, query: Query) -> Context:
        """Return all patterns and then all alerts of the memory, whatever the query is.

        The query decides the order alone: of each kind, entries that the search finds come first.
        `counts` says how many entries there are, and how many tokens they have (Figure 4).
        """
        memory = self._at_round(memory)
        experiences = memory.parts()
        most_hits = max(1, len(experiences))  # at least 1, even without any experience
        near_hits = self.nearest(memory, query, most_hits)

        # The search leaves out entries that have no word in common with the query.
        near_ids = {hit.id for hit in near_hits}
        other_hits: list[Hit] = []
        for experience in experiences:
            if experience.id not in near_ids:
                other_hits.append(memory.entry(experience).hit())

        counts = {
            "patterns": len(memory.patterns),
            "alerts": len(memory.alerts),
            "tokens": sum(estimate_tokens(experience.text) for experience in experiences),
        }
        # The blocks are ordered as `BLOCKS`: patterns, then alerts, each under a heading.
        hits = in_blocks([*near_hits, *other_hits], BLOCKS)
        return Context(hits=hits, counts=counts)

    def with_edits(self, memory: ExperienceMemory, edits: EntryEdits) -> ExperienceMemory:
        """Return the memory as its user sees it, with entries changed or deleted.

        The memory may hold copies of its patterns and alerts as they were after earlier rounds of
        practice. They are edited too, so that no deleted entry is read from a copy.
        """
        edited_memory = super().with_edits(memory, edits)

        # `memory.entry` makes the entry of a pattern or alert, which names it in the user's edits.
        # `memory.with_text` gives a pattern or alert the text that the user wrote.
        kept_rounds: list[RoundExperience] = []
        for kept_round in memory.kept_rounds:
            patterns = edits.amended_parts(kept_round.patterns, memory.entry, memory.with_text)
            alerts = edits.amended_parts(kept_round.alerts, memory.entry, memory.with_text)
            kept_rounds.append(kept_round.replace(patterns=patterns, alerts=alerts))
        return edited_memory.replace(kept_rounds=tuple(kept_rounds))

    def _at_round(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Return the memory with the experience that it had after a practice round.

        The setting `at_round` names the round. If it is None, the memory stays as it is, with the
        experience of all practice.
        """
        if self.settings.at_round is None:
            return memory
        return memory.at_round(self.settings.at_round)


class ExperiencedPrediction(BehaviorPrediction):
    """Predict by the steps of Figure 7: patterns and alerts that bear on the situation, answer.

    Everything that is no alert counts as a pattern, so that any memory can be shown.
    """

    prompt = PredictWithExperience

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt: patterns, alerts, the newest records and the question.

        Alerts are the hits of the kind "alert", and all other hits are patterns. So the prompt also
        suits memories of other methods: these have no alerts.
        """
        # Recalled records that are among the newest records are not shown twice.
        hits = without_shown_turns(context, query).hits
        return {
            "patterns": [hit.text for hit in hits if hit.kind != "alert"],
            "alerts": [hit.text for hit in hits if hit.kind == "alert"],
            "records": "\n".join(lines_of_items(query.shown_items)),
            "question": query.text,
            "options": list(query.options),
        }
