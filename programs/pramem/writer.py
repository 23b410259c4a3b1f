"""How PraMem writes: records wait, and are practised on where the past ends.

    write    records and profile join the memory; no LM call
    settle   80 rounds of trial, reflection and review; every 5 rounds what several proposals support becomes experience

Source: Li et al., "PraMem: Practice-derived Experiential Memory for Long-horizon Behavior Prediction", section 3.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ...records import Behavior, Item, Profile
from .adjustment import adjust
from .memory import COMMON_BIASES, ExperienceMemory
from .practice import Practised, practise
from .prompts import Practising
from .samples import Sample, again, draw


class PracticeWriter(Practising):
    """Practises on a user's records; see `Practising`."""

    Memory = ExperienceMemory

    def write(self, memory: ExperienceMemory, item: Item, prepared: Any = None) -> ExperienceMemory:
        """Takes behaviour records, which then wait for practice, or a profile; other items are ignored."""
        if isinstance(item, Behavior):
            return memory.with_records(item.actions)
        if not isinstance(item, Profile):
            return memory
        memory = memory.with_profile(item.turns)
        if self.start == "empty" or not self.patterns:
            return memory
        return memory.with_entries("pattern", [(turn.content, (turn.id,)) for turn in item.turns])

    def settle(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Practises on the waiting records, if any."""
        if not memory.waiting:
            return memory
        memory = memory if memory.practised else self._begun(memory)
        drawn = draw(
            memory, self.rounds, self.samples, self.practice_tokens, self.weighting, self.min_history, self.seed
        )
        first = memory.rounds
        for _, batch in groupby(drawn, key=lambda sample: (sample.round - first - 1) // self.adjust_every):
            memory = self._practised(memory, list(batch))
        return memory.covered(self.practice_tokens)

    def write_piece(self, memory: ExperienceMemory, piece: Item) -> ExperienceMemory:
        """Practises once more on records of which practice came to nothing; the proposals wait for an adjustment."""
        for action in piece.actions if isinstance(piece, Behavior) else ():
            outcome = practise(self, memory, again(memory, action, self.practice_tokens))
            memory = self._after(memory, outcome)
        return memory

    def _after(self, memory: ExperienceMemory, outcome: Practised) -> ExperienceMemory:
        """The memory after one practice sample; a record of which it came to nothing is left for another try."""
        memory = memory.after_round(outcome.round, outcome.accepted)
        fates = outcome.round.outcome
        # Proposals that nobody could judge are no judgement of the record.
        lost = fates.get("failed") or (fates.get("malformed") and not outcome.accepted)
        return memory.left(Behavior.of(outcome.target.id, [outcome.target])) if lost else memory

    def _begun(self, memory: ExperienceMemory) -> ExperienceMemory:
        if self.start == "profile" and self.alerts:
            memory = memory.with_entries("alert", [(text, ()) for text in COMMON_BIASES])
        return memory.after_adjustment(0)

    def _practised(self, memory: ExperienceMemory, batch: list[Sample]) -> ExperienceMemory:
        """The memory after the rounds between two adjustments, and the adjustment."""
        before = memory
        outcomes = self.run([lambda sample=sample: practise(self, before, sample) for sample in batch])
        for outcome in outcomes:
            memory = self._after(memory, outcome)
        if any(outcome.accepted for outcome in outcomes):
            memory = adjust(self, memory)
        return memory.after_adjustment(batch[-1].round)
