"""The writer of PraMem: practice on a user's own records becomes experience (sections 2.2 and 3).

    update    records and profile join the memory; nothing is asked
    finalize  rounds of trial, reflection and self-review; after every T rounds, adjustment

Everything a model is asked stands here. What code makes of the answers stands in `practice` and
`adjustment`.

| in the paper                             | here, methods of `PracticeWriter`             |
|------------------------------------------|-----------------------------------------------|
| M_t = Practice(H_t, M_t')         Eq. 2  | `finalize`                                    |
| existing experience trial         Eq. 3  | `_try_experience`                             |
| reflective proposal generation    Eq. 4  | `_generate_proposals`                         |
| SelfReview                        Eq. 4  | `self_review`                                 |
| consensual experience adjustment  Eq. 5  | `adjust_experience`                           |
| Gr.Review                         Eq. 6  | `_review_groundedness`                        |
| LLM_perturb, LLM_judge            Eq. 6  | `_plan_perturbations`, `_judge_proposals`     |
| Ge.Review                         Eq. 7  | `_review_generalizability`                    |
| LLM_rewrite, LLM_select           Eq. 7  | `_write_virtual_scenes`, `_select_scenes`     |
| q, T                                     | the settings `samples`, `adjust_every`        |
| n, m                                     | the settings `proposals`, `virtual_scenes`    |

Critical path: five calls for every T rounds (trial, reflection, two reviews, adjustment). Rounds
between two adjustments see the same experience and do not depend on one another, so they run at the
same time and join the memory in order.

Ours: of several perturbations, one is enough to overturn a proposal. Fewer virtual scenes than m
will do, if one differs from the true scene.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dspy

from ...records import Behavior, Item, Profile, Turn
from ...signatures.pramem import (
    AdjustExperience,
    DraftProposal,
    GeneralityVerdict,
    GroundednessVerdict,
    JudgeGenerality,
    JudgeGroundedness,
    KnownExperience,
    Perturbation,
    PlanPerturbations,
    PooledProposal,
    PractiseAtOnce,
    PractiseWithExperience,
    ProposeAtOnce,
    ReflectOnPractice,
    SceneChoice,
    SelectScene,
    WriteScenes,
)
from ...text import one_line
from ..predictor import predictor
from ..threads import gather
from ..writer import Update, Writer
from .adjustment import adopt_all_proposals, apply_changes, count_support
from .memory import COMMON_BIASES, Experience, ExperienceMemory, Proposal
from .practice import (
    PracticeResult,
    ProposalsById,
    Verdict,
    Verdicts,
    clear_verdicts,
    count_rejections,
    lettered_scenes,
    number_proposals,
    passing_proposals,
    scene_letter,
    scene_verdict,
    shown_to_reviewers,
    usable_proposal,
)
from .samples import Sample, draw_samples, make_sample
from .settings import PracticeSettings


class PracticeWriter(Writer[ExperienceMemory, None]):
    """Practise on a user's records where the history ends.

    Args:
        settings: How practice is done.
    """

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
        """Return the memory with an item's behaviour records, or with a user profile, added to it.

        The records wait until `finalize` practises on them. Items of other kinds are ignored. There
        is no extraction, since no model reads the items.
        """
        if isinstance(item, Behavior):
            return Update(memory.with_records(item.actions))
        if isinstance(item, Profile):
            return Update(self._with_profile(memory, item.turns))
        return Update(memory)

    def finalize(self, memory: ExperienceMemory) -> Update[ExperienceMemory]:
        """Let the model practise on the records that wait, and return what it has learnt.

        It predicts some of the records and then sees the outcomes. After each batch of rounds, the
        experience is adjusted. In the end all records count as practised: a later run draws its
        samples from later records (Eq. 2).
        """
        if not memory.waiting:
            return Update(memory)

        is_first_run = memory.practised == 0
        if is_first_run:
            memory = self._initialize_experience(memory)

        samples = draw_samples(memory, self.settings)
        # `adjust_every` counts rounds, and `samples` says how many samples a round has.
        batch_size = self.settings.adjust_every * self.settings.samples
        failed_items: tuple[Item, ...] = ()
        for start in range(0, len(samples), batch_size):
            update = self._practise_batch(memory, samples[start : start + batch_size])
            memory = update.memory
            failed_items += update.failed_items

        memory = memory.mark_practised(self.settings.practice_tokens)
        return Update(memory, failed_items)

    def update_with_part(self, memory: ExperienceMemory, part: Item) -> Update[ExperienceMemory]:
        """Let the model predict records again after its first answer could not be read.

        `finalize` has reported the records as failed. What the model proposes now to add to the
        experience waits in the memory for the next `finalize`.

        Args:
            memory: The memory so far.
            part: The failed records, or a part of them; only `Behavior` items have records.
        """
        if not isinstance(part, Behavior):
            return Update(memory)

        positions_by_id: dict[str, int] = {}
        for position, record in enumerate(memory.records):
            positions_by_id[record.id] = position

        failed_items: tuple[Item, ...] = ()
        for record in part.actions:
            # The model is shown the records before this position. Old records are dropped from the
            # memory. A dropped record comes before all others, so at position 0 none is shown.
            position = positions_by_id.get(record.id, 0)
            sample = make_sample(
                memory, record, position, memory.rounds, self.settings.practice_tokens
            )
            result = self.practise(memory, sample)
            update = _add_result(memory, sample, result)
            memory = update.memory
            failed_items += update.failed_items
        return Update(memory, failed_items)

    def _with_profile(self, memory: ExperienceMemory, turns: Sequence[Turn]) -> ExperienceMemory:
        """Return the memory with the turns of a user profile added to it.

        The content of each turn also becomes a pattern, if patterns are switched on (section 4.1).
        """
        memory = memory.replace(profile=(*memory.profile, *turns))
        if self.settings.patterns:
            for turn in turns:
                memory = memory.with_initial_entry("pattern", turn.content, (turn.id,))
        return memory

    def _initialize_experience(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Return the memory with the experience that it has before any practice (section 4.1).

        If alerts are switched on, these are alerts to biases that all models share.
        """
        if self.settings.alerts:
            for bias in COMMON_BIASES:
                memory = memory.with_initial_entry("alert", bias)

        # Practice rounds are numbered from 1. The memory notes this beginning like an adjustment
        # after a round 0. If `keep_rounds` is on, it also keeps a copy of the experience.
        return memory.after_adjustment(0, self.settings.keep_rounds)

    def _practise_batch(
        self, memory: ExperienceMemory, samples: Sequence[Sample]
    ) -> Update[ExperienceMemory]:
        """Practise on all samples at the same time, then adjust the experience once.

        All samples see the experience from before the batch. Without a new proposal there is
        nothing to adjust, and the model is not asked.
        """
        results = gather([partial(self.practise, memory, sample) for sample in samples])
        failed_items: tuple[Item, ...] = ()
        for sample, result in zip(samples, results, strict=True):
            update = _add_result(memory, sample, result)
            memory = update.memory
            failed_items += update.failed_items

        if any(result.proposals for result in results):
            memory = self.adjust_experience(memory)
        last_round = samples[-1].round
        memory = memory.after_adjustment(last_round, self.settings.keep_rounds)
        return Update(memory, failed_items)

    def practise(self, memory: ExperienceMemory, sample: Sample) -> PracticeResult:
        """Let the model predict a past record, propose what to learn from it, and review that.

        Args:
            memory: Its patterns and alerts are shown to the model.
            sample: The record, and the earlier records that are shown with it.

        Returns:
            The proposals that passed the reviews, and counts of what became of the others.
        """
        reflection: PracticeResult
        perturbations: list[Perturbation]
        virtual_scenes: list[str]
        # The two reviews need perturbations and virtual scenes. These depend on the sample alone,
        # so the model writes them while the proposals are being made.
        calls: list[Callable[[], Any]] = [
            partial(self.try_and_reflect, memory, sample),
            partial(self._plan_perturbations, sample),
            partial(self._write_virtual_scenes, sample),
        ]
        reflection, perturbations, virtual_scenes = gather(calls)

        review = self.self_review(sample, reflection.proposals, perturbations, virtual_scenes)
        pooled_count = Counter(pooled=len(review.proposals))
        counts = reflection.counts + review.counts + pooled_count
        return PracticeResult(review.proposals, counts)

    def try_and_reflect(self, memory: ExperienceMemory, sample: Sample) -> PracticeResult:
        """Let the model predict a record, and return what it proposes once it knows the outcome.

        Without a readable prediction or reflection there is no proposal, and the sample counts as
        "failed". Drafts that cannot be used, or are too many, count as "invalid" (Eq. 3 and 4).
        """
        trial = self._try_experience(memory, sample)
        if trial is None:
            return PracticeResult(proposals=(), counts=Counter(failed=1))
        drafts = self._generate_proposals(memory, sample, trial)
        if drafts is None:
            return PracticeResult(proposals=(), counts=Counter(failed=1))

        # A model may draft more proposals than the prompt allows.
        proposals: list[Proposal] = []
        for draft in drafts[: self.settings.proposals]:
            proposal = usable_proposal(draft, memory, sample, self.settings.disabled_kinds)
            if proposal is not None:
                proposals.append(proposal)

        invalid_count = len(drafts) - len(proposals)
        return PracticeResult(tuple(proposals), Counter(invalid=invalid_count))

    def _try_experience(self, memory: ExperienceMemory, sample: Sample) -> dspy.Prediction | None:
        """Let the model predict what the user did in a situation, from experience and past records.

        Returns:
            The prediction with its reasoning; None if the answer stays unreadable (Eq. 3).
        """
        return self.try_call(
            self.trial,
            patterns=[pattern.text for pattern in memory.patterns],
            alerts=[alert.text for alert in memory.alerts],
            recent_records=sample.records,
            situation=sample.situation,
        )

    def _generate_proposals(
        self, memory: ExperienceMemory, sample: Sample, trial: dspy.Prediction
    ) -> list[DraftProposal] | None:
        """Show the model its prediction beside what the user did, and ask what to learn from it.

        Returns:
            Drafts of proposals, perhaps more than the prompt allows; None if the answer stays
            unreadable (Eq. 4).
        """
        inputs: dict[str, object] = {
            "pattern_experiences": _known_experiences(memory.patterns),
            "alert_experiences": _known_experiences(memory.alerts),
            "recent_records": sample.records,
            "practised_record": sample.exercise,
            "predicted_action": trial.predicted_action,
            "max_proposals": self.settings.proposals,
        }
        # The prompt without reflection, an ablation of Table 2, has no input for the thinking.
        if self.settings.reflection:
            inputs["thinking"] = _thinking_process(trial)

        answer = self.try_call(self.reflect, **inputs)
        if answer is None:
            return None
        return answer.proposals or []

    def self_review(
        self,
        sample: Sample,
        proposals: Sequence[Proposal],
        perturbations: Sequence[Perturbation],
        virtual_scenes: Sequence[str],
    ) -> PracticeResult:
        """Return the proposals that pass two reviews; a review that is switched off is left out.

        The first asks whether a proposal rests on the records (else it is "ungrounded"). The second
        asks whether it holds beyond one scene (else "specific"). A proposal without a clear verdict
        fails, and counts as "malformed".
        """
        remaining = number_proposals(proposals)
        counts: Counter[str] = Counter()

        if self.settings.groundedness and remaining:
            verdicts = self._review_groundedness(sample, remaining, perturbations)
            counts += count_rejections(remaining, verdicts, "ungrounded")
            remaining = passing_proposals(remaining, verdicts)

        if self.settings.generalizability and remaining:
            verdicts = self._review_generalizability(sample, remaining, virtual_scenes)
            counts += count_rejections(remaining, verdicts, "specific")
            remaining = passing_proposals(remaining, verdicts)

        return PracticeResult(tuple(remaining.values()), counts)

    def _plan_perturbations(self, sample: Sample) -> list[Perturbation]:
        """Ask the model for ways to alter the records that a sample shows, for the first review.

        A plan describes an alteration in words; the records are never rewritten (Eq. 6, Figure 10).
        """
        if not self.settings.groundedness:
            return []

        count = self.settings.perturbations
        answer = self.try_call(self.plan, recent_records=sample.records, count=count)
        if answer is None:
            return []
        perturbations: list[Perturbation] = answer.plans or []
        return perturbations[:count]

    def _review_groundedness(
        self,
        sample: Sample,
        proposals: ProposalsById,
        perturbations: Sequence[Perturbation],
    ) -> Verdicts:
        """Review whether proposals rest on the records, by imagining the records altered.

        A proposal that would still hold with altered records does not rest on them, and fails. It
        passes if one of several alterations overturns it (Eq. 6).
        """
        calls = [
            partial(self._judge_proposals, sample, proposals, perturbation)
            for perturbation in perturbations
        ]
        combined: dict[str, bool] = {}
        for verdicts in gather(calls):
            for proposal_id, passes in verdicts.items():
                passed_before = combined.get(proposal_id, False)
                combined[proposal_id] = passed_before or passes
        return combined

    def _judge_proposals(
        self, sample: Sample, proposals: ProposalsById, perturbation: Perturbation
    ) -> Verdicts:
        """Ask which proposals would no longer hold if the records were altered as described.

        Such proposals rest on the records, and pass the review.

        Returns:
            Whether proposals pass, by id; those without a clear verdict are missing (Eq. 6).
        """
        answer = self.try_call(
            self.judge_groundedness,
            recent_records=sample.records,
            direction=perturbation.direction,
            details=perturbation.details,
            proposals=shown_to_reviewers(proposals),
        )
        if answer is None:
            return {}

        judgements: list[GroundednessVerdict] = answer.groundedness or []
        verdicts = [
            Verdict(judgement.proposal, passes=judgement.sensitive) for judgement in judgements
        ]
        return clear_verdicts(verdicts, proposals)

    def _write_virtual_scenes(self, sample: Sample) -> list[str]:
        """Let the model invent scenes like the true scene of a sample, for the second review.

        Returns:
            Scenes that differ from one another and from the true one, at most as many as the
            setting `virtual_scenes` says (Eq. 7).
        """
        if not self.settings.generalizability:
            return []

        count = self.settings.virtual_scenes
        true_scene = sample.true_scene(self.settings.scene_chars)
        answer = self.try_call(self.write_scenes, situation=true_scene, count=count)
        if answer is None:
            return []

        written_scenes: list[str] = answer.virtual_scenes or []
        virtual_scenes: list[str] = []
        for written_scene in written_scenes:
            scene = one_line(written_scene)
            is_true_scene = scene.casefold() == true_scene.casefold()
            is_repeated = scene in virtual_scenes
            if scene and not is_true_scene and not is_repeated:
                virtual_scenes.append(scene)
        return virtual_scenes[:count]

    def _review_generalizability(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Ask whether proposals are general, or describe a single scene of the user's life (Eq. 7).

        A reviewer compares them with the true scene, from which they were learned, and with scenes
        that a model has invented. Without invented scenes, no proposal gets a verdict.
        """
        if not virtual_scenes:
            return {}
        if self.settings.blind:
            # The reviewer is not told which scene is the true one.
            return self._select_scenes(sample, proposals, virtual_scenes)
        return self._judge_with_known_scene(sample, proposals, virtual_scenes)

    def _select_scenes(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Ask a reviewer which of several scenes each proposal fits best (Eq. 7).

        One is the true scene, from which the proposals were learned; the virtual ones are invented.
        The reviewer is not told which is the true one. A proposal fails if the true scene is picked
        for it: then it describes this scene, and is not general.
        """
        true_scene = sample.true_scene(self.settings.scene_chars)
        scenes = [true_scene, *virtual_scenes]
        # Always the same order for the same record, so that a run can be repeated.
        random.Random(f"{self.settings.seed}:{sample.target.id}").shuffle(scenes)
        letters = [scene_letter(position) for position in range(len(scenes))]
        true_letter = letters[scenes.index(true_scene)]

        answer = self.try_call(
            self.judge_generality,
            candidates=lettered_scenes(scenes),
            proposals=shown_to_reviewers(proposals),
        )
        if answer is None:
            return {}

        choices: list[SceneChoice] = answer.scene_choices or []
        # A proposal passes unless the true scene was picked for it.
        verdicts = [scene_verdict(choice, letters, true_letter) for choice in choices]
        return clear_verdicts(verdicts, proposals)

    def _judge_with_known_scene(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Ask a reviewer, who is told which scene is the true one, which proposals are general.

        The true scene is the one from which the proposals were learned; the virtual ones are
        invented. The paper prints this prompt (Figure 11), although in its equation the reviewer
        does not know the true scene (Eq. 7).
        """
        true_scene = sample.true_scene(self.settings.scene_chars)
        # The prompt says that the first scene, scene A, is the true one.
        answer = self.try_call(
            self.judge_generality,
            candidates=lettered_scenes([true_scene, *virtual_scenes]),
            proposals=shown_to_reviewers(proposals),
        )
        if answer is None:
            return {}

        judgements: list[GeneralityVerdict] = answer.generality or []
        verdicts = [
            Verdict(judgement.proposal, passes=judgement.general) for judgement in judgements
        ]
        return clear_verdicts(verdicts, proposals)

    def adjust_experience(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Let the model change the experience where several proposals of the pool agree.

        A change without enough supporting proposals is refused. An answer that stays unreadable
        changes nothing (Eq. 5, Figure 9).
        """
        # Without this setting, proposals need no support from others.
        if not self.settings.consensus:
            return adopt_all_proposals(memory, self.settings)

        # If even all proposals together are too few to support a change, the model is not asked.
        if count_support(memory.pool, self.settings) < self.settings.needed:
            return memory

        answer = self.try_call(
            self.adjust,
            pattern_experiences=_known_experiences(memory.patterns),
            alert_experiences=_known_experiences(memory.alerts),
            proposal_pool=[_shown_in_pool(proposal) for proposal in memory.pool],
            needed=self.settings.needed,
            distinct_records=self.settings.distinct_records,
        )
        if answer is None:
            return memory.with_counts({"unreadable adjustments": 1})
        return apply_changes(memory, answer.changes or [], self.settings)


def _add_result(
    memory: ExperienceMemory, sample: Sample, result: PracticeResult
) -> Update[ExperienceMemory]:
    """Return the memory with the result of practice on one record: proposals and counts.

    If the practice came to nothing because an answer of the model could not be read, the record is
    reported as failed too. The caller may then practise on it again.
    """
    memory = memory.with_proposals(sample.round, result.proposals).with_counts(result.counts)
    # `is_inconclusive`: an unreadable answer left the practice without a result that can be used.
    if not result.is_inconclusive:
        return Update(memory)

    # Only items can be reported as failed. The record is a part of an item, a `Behavior`, so an
    # item is made that holds this record alone.
    failed_record = Behavior.from_actions(sample.target.id, [sample.target])
    return Update(memory, failed_items=(failed_record,))


def _thinking_process(trial: dspy.Prediction) -> str:
    """Return what the model wrote before its prediction, one step a line.

    It is "" for the prompt that asks for a prediction alone (an ablation of Table 2).
    """
    useful_patterns: list[str] = trial.get("useful_patterns") or []
    useful_alerts: list[str] = trial.get("useful_alerts") or []
    reasoning: str = trial.get("reasoning") or ""
    steps = [*useful_patterns, *useful_alerts, reasoning]
    return "\n".join(step for step in steps if step)


def _known_experiences(experiences: Sequence[Experience]) -> list[KnownExperience]:
    """Return entries as prompts show them."""
    return [
        KnownExperience(experience_id=experience.id, text=experience.text)
        for experience in experiences
    ]


def _shown_in_pool(proposal: Proposal) -> PooledProposal:
    """Return a proposal of the pool as prompts show it."""
    return PooledProposal(
        proposal=proposal.id,
        record=proposal.record,
        action=proposal.action,
        experience_id=proposal.target,
        trigger=proposal.trigger,
        content=proposal.content,
    )
