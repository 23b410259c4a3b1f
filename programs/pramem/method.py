"""PraMem: a user's own records are practised on beforehand, and what practice teaches is the memory.

    write    records and profile join the memory; no LM call
    finalize 20 rounds of trial, reflection and review; every 5 rounds what several proposals support becomes experience
    recall   all patterns and alerts; the task adds the newest records as they are

Critical path: 5 calls per `adjust_every` rounds (trial, reflection, two reviews, adjustment), 20 for 20 rounds, where
124 would follow one another. Rounds between two adjustments see the same experience and are independent, so they run at
the same time and join the memory in order. Then 1 answer.

t' stays where it is during a run and moves to the end of the records with it: records that come later continue the
practice, older ones are never practised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Self

import dspy
from pydantic import Field, model_validator

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...records import Behavior, Context, Hit, Item, Profile, Query, estimate_tokens, in_blocks
from ...signatures.pramem import (
    AdjustExperience,
    JudgeGenerality,
    JudgeGroundedness,
    PlanPerturbations,
    PractiseAtOnce,
    PractiseWithExperience,
    PredictWithExperience,
    ProposeAtOnce,
    ReflectOnPractice,
    SelectScene,
    WriteScenes,
)
from ..method import Method
from ..reader import EntryReader
from ..settings import Settings
from ..writer import Update, Writer
from ..predictor import predictor
from ..tasks.behavior import BehaviorPrediction, unseen
from ..tasks.task import with_items
from ..threads import gather
from .adjustment import adjust
from .memory import COMMON_BIASES, ExperienceMemory
from .practice import Practice, PracticeResult
from .samples import PracticeSettings, Sample, draw, sample_of


class ExperienceReaderSettings(Settings):
    """What can be set of how experience is read."""

    at_round: int | None = None


class PraMemSettings(PracticeSettings):
    """What can be set of `PraMem`."""

    predict_tokens: int = Field(default=8_000, ge=0, description="most tokens of the newest records beside the question")
    two_step: bool = Field(default=False, description="whether the answer takes Figure 7's steps, with a prompt of its own")
    at_round: int | None = Field(
        default=None, ge=0, description="read the experience as it was after so many rounds (Figure 4); needs `keep_rounds`"
    )

    @model_validator(mode="after")
    def _rounds_are_kept(self) -> Self:
        if self.at_round is not None and not self.keep_rounds:
            raise ValueError(f"at_round={self.at_round} reads experience that is not kept; set keep_rounds=true too")
        return self


class PracticeWriter(Writer[ExperienceMemory, None]):
    """Practises on a user's records where the past ends."""

    Memory = ExperienceMemory
    recent_mode = "left out"
    """As in the released evaluator, experience is what practice before the first question gave."""

    settings: PracticeSettings

    def __init__(self, settings: PracticeSettings) -> None:
        super().__init__(settings)
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.trial = predictor(PractiseWithExperience if settings.deep_thinking else PractiseAtOnce)
        self.reflect = predictor(ReflectOnPractice if settings.reflection else ProposeAtOnce)
        if settings.groundedness:
            self.plan = predictor(PlanPerturbations)
            self.judge_groundedness = predictor(JudgeGroundedness)
        if settings.generalizability:
            self.write_scenes = predictor(WriteScenes)
            self.judge_generality = predictor(SelectScene if settings.blind else JudgeGenerality)
        if settings.consensus:
            self.adjust = predictor(AdjustExperience)

    def update(
        self, memory: ExperienceMemory, item: Item, extraction: None = None
    ) -> Update[ExperienceMemory]:
        """Takes behaviour records, which then wait for practice, or a profile; other items are ignored."""
        if isinstance(item, Behavior):
            return Update(memory.with_records(item.actions))
        if not isinstance(item, Profile):
            return Update(memory)
        memory = memory.replace(profile=(*memory.profile, *item.turns))
        known = [(turn.content, (turn.id,)) for turn in item.turns]
        return Update(memory.with_entries("pattern", known) if self.settings.patterns else memory)

    def finalize(self, memory: ExperienceMemory) -> Update[ExperienceMemory]:
        if not memory.waiting:
            return Update(memory)
        failed_items: list[Item] = []
        if not memory.practised:
            alerts = COMMON_BIASES if self.settings.alerts else ()
            memory = memory.with_entries("alert", [(text, ()) for text in alerts])
            memory = memory.after_adjustment(0, self.settings.keep_rounds)
        first = memory.rounds

        def run(sample: Sample) -> int:
            return (sample.round - first - 1) // self.settings.adjust_every

        for _, batch in groupby(draw(memory, self.settings), key=run):
            memory, failed = self._practised(memory, list(batch))
            failed_items += failed
        return Update(memory.mark_practised(self.settings.practice_tokens), tuple(failed_items))

    def update_with_part(self, memory: ExperienceMemory, part: Item) -> Update[ExperienceMemory]:
        """Practises once more on records of which practice came to nothing; the proposals wait for an adjustment."""
        failed_items: list[Item] = []
        places = {action.id: n for n, action in enumerate(memory.records)}
        for action in part.actions if isinstance(part, Behavior) else ():
            place = places.get(action.id, len(places))
            sample = sample_of(memory, action, place, memory.rounds, self.settings.practice_tokens)
            outcome = Practice(self.call_predictor, self.settings, sample).run(memory)
            memory = memory.with_proposals(sample.round, outcome.proposals).counted(outcome.outcome_counts)
            failed_items += self._failed(sample, outcome)
        return Update(memory, tuple(failed_items))

    def _practised(
        self, memory: ExperienceMemory, batch: list[Sample]
    ) -> tuple[ExperienceMemory, list[Item]]:
        before, settings = memory, self.settings
        outcomes = gather([lambda one=one: Practice(self.call_predictor, settings, one).run(before) for one in batch])
        failed_items: list[Item] = []
        for sample, outcome in zip(batch, outcomes, strict=True):
            memory = memory.with_proposals(sample.round, outcome.proposals).counted(outcome.outcome_counts)
            failed_items += self._failed(sample, outcome)
        if any(outcome.proposals for outcome in outcomes):
            memory = adjust(self.call_predictor, settings, memory)
        return memory.after_adjustment(batch[-1].round, settings.keep_rounds), failed_items

    @staticmethod
    def _failed(sample: Sample, outcome: PracticeResult) -> list[Item]:
        """The record of a sample of which practice came to nothing; it is practised on again."""
        accepted, fates = outcome
        # Proposals that nobody could judge are no judgement of the record.
        lost = fates["failed"] or (fates["malformed"] and not accepted)
        return [Behavior.from_actions(sample.target.id, [sample.target])] if lost else []


BLOCKS = {
    "pattern": "What earlier records have shown about this user",
    "alert": "Mistakes that you tend to make about this user and must avoid",
}
"""The headings of the two kinds of experience in the text of a memory (section 2.2)."""


class ExperienceReader(EntryReader[ExperienceMemory]):
    """Recalls all patterns, then all alerts, what shares words with the query first; proposals are not shown."""

    settings: ExperienceReaderSettings

    def __init__(self, settings: ExperienceReaderSettings) -> None:
        super().__init__(settings=settings)

    def search(
        self, memory: ExperienceMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return super().search(self._as_read(memory), queries, k, min_score)

    def entries(self, memory: ExperienceMemory) -> Sequence[Entry]:
        return super().entries(self._as_read(memory))

    def fallback(self, memory: ExperienceMemory, query: Query) -> Iterable[Hit]:
        return super().fallback(self._as_read(memory), query)

    def recall(self, memory: ExperienceMemory, query: Query) -> Context:
        memory = self._as_read(memory)
        entries = memory.parts()
        found = self.nearest(memory, query, max(1, len(entries)))
        known = {hit.id for hit in found}
        rest = [memory.entry(part).hit() for part in entries if part.id not in known]
        tokens = sum(estimate_tokens(part.text) for part in entries)
        counts = {"patterns": len(memory.patterns), "alerts": len(memory.alerts), "tokens": tokens}
        return Context(hits=in_blocks((*found, *rest), BLOCKS), counts=counts)

    def with_edits(self, memory: ExperienceMemory, edits: EntryEdits) -> ExperienceMemory:
        kept_rounds = tuple(
            kept_round.replace(
                patterns=edits.amended_parts(kept_round.patterns, memory.entry, memory.with_text),
                alerts=edits.amended_parts(kept_round.alerts, memory.entry, memory.with_text),
            )
            for kept_round in memory.kept_rounds
        )
        return super().with_edits(memory, edits).replace(kept_rounds=kept_rounds)

    def _as_read(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Return the memory with the experience that `at_round` asks for, the newest if None."""
        at_round = self.settings.at_round
        return memory if at_round is None else memory.at_round(at_round)


class ExperiencedPrediction(BehaviorPrediction):
    """The prediction by Figure 7's steps: the patterns and the alerts that bear on the situation, then the answer.

    Everything that is no alert counts as a pattern, so that the prompt can also stand before another memory.
    """

    prompt = PredictWithExperience

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        hits = unseen(context, query).hits
        return {
            "patterns": [hit.text for hit in hits if hit.kind != "alert"],
            "alerts": [hit.text for hit in hits if hit.kind == "alert"],
            "records": with_items("", query.shown_items),
            "question": query.text,
            "options": list(query.options),
        }


class PraMem(Method):
    """Practises on a user's records and recalls what practice has taught."""

    Settings = PraMemSettings
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"behavior-prediction": BehaviorPrediction}

    settings: PraMemSettings

    def __init__(self, settings: PraMemSettings | None = None) -> None:
        settings = settings or PraMemSettings()
        writer = PracticeWriter(settings.restrict_to(PracticeSettings))
        reader = ExperienceReader(settings.restrict_to(ExperienceReaderSettings))
        super().__init__(writer, reader, settings=settings)

    def make_task(self, task: str) -> dspy.Module:
        """The task with its budget of newest records, by the prompt of all methods (section 4.1) or in two steps."""
        prediction = ExperiencedPrediction if self.settings.two_step else BehaviorPrediction
        return prediction(self.settings.predict_tokens)
