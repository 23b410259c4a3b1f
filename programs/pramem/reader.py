"""How PraMem reads: all experience, what shares words with the query first."""

from __future__ import annotations

from ...memory.amending import Amend
from ...records import Context, Query, estimate_tokens
from ..method import EntryReader
from .memory import Experience, ExperienceMemory


class ExperienceReader(EntryReader):
    """Recalls all patterns and alerts; proposals are not shown."""

    def amended(self, memory: ExperienceMemory, amend: Amend) -> ExperienceMemory:
        def left(parts: tuple[Experience, ...]) -> tuple[Experience, ...]:
            return amend.parts(parts, memory.entry, lambda part, text: part.model_copy(update={"text": text}))

        return memory.changed(patterns=left(memory.patterns), alerts=left(memory.alerts))

    def recall(self, memory: ExperienceMemory, query: Query) -> Context:
        entries = memory.experiences
        found = self.nearest(memory, query, max(1, len(entries)))
        known = {hit.id for hit in found}
        rest = [part.entry().hit() for part in entries if part.id not in known]
        tokens = sum(estimate_tokens(part.line()) for part in entries)
        counts = {"patterns": len(memory.patterns), "alerts": len(memory.alerts), "tokens": tokens}
        return Context(hits=(*found, *rest), counts=counts)
