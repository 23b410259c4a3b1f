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
        """Return the memory with records that wait for practice, or with a profile.

        Items of other kinds are ignored.
        """
        if isinstance(item, Behavior):
            return Update(memory.with_records(item.actions))
        if isinstance(item, Profile):
            return Update(self._with_profile(memory, item.turns))
        return Update(memory)

    def finalize(self, memory: ExperienceMemory) -> Update[ExperienceMemory]:
        """Practise on the records that wait: M_t = Practice(H_t, M_t') (Eq. 2).

        t' moves to the end of the records with the run. Later records continue the practice; those
        before t' are never drawn again.
        """
        if not memory.waiting:
            return Update(memory)
        if not memory.practised:
            memory = self._initialize_experience(memory)

        samples = draw_samples(memory, self.settings)
        batch_size = self.settings.adjust_every * self.settings.samples
        failed_items: tuple[Item, ...] = ()
        for start in range(0, len(samples), batch_size):
            update = self._practise_batch(memory, samples[start : start + batch_size])
            memory = update.memory
            failed_items += update.failed_items

        memory = memory.mark_practised(self.settings.practice_tokens)
        return Update(memory, failed_items)

    def update_with_part(self, memory: ExperienceMemory, part: Item) -> Update[ExperienceMemory]:
        """Practise once more on records of which practice came to nothing.

        The proposals wait in the pool for the next adjustment.
        """
        if not isinstance(part, Behavior):
            return Update(memory)

        places = {action.id: place for place, action in enumerate(memory.records)}
        failed_items: tuple[Item, ...] = ()
        for action in part.actions:
            # A record that is not kept any more is shown the newest records as its past.
            place = places.get(action.id, len(places))
            sample = make_sample(
                memory, action, place, memory.rounds, self.settings.practice_tokens
            )
            update = _add_result(memory, sample, self.practise(memory, sample))
            memory = update.memory
            failed_items += update.failed_items
        return Update(memory, failed_items)

    def _with_profile(self, memory: ExperienceMemory, turns: Sequence[Turn]) -> ExperienceMemory:
        """Return the memory with a profile (section 4.1), and a pattern for each of its turns."""
        memory = memory.replace(profile=(*memory.profile, *turns))
        if self.settings.patterns:
            for turn in turns:
                memory = memory.with_initial_entry("pattern", turn.content, (turn.id,))
        return memory

    def _initialize_experience(self, memory: ExperienceMemory) -> ExperienceMemory:
        """Return the memory as the first run begins with it: with common biases (section 4.1)."""
        if self.settings.alerts:
            for bias in COMMON_BIASES:
                memory = memory.with_initial_entry("alert", bias)
        return memory.after_adjustment(0, self.settings.keep_rounds)

    def _practise_batch(
        self, memory: ExperienceMemory, samples: Sequence[Sample]
    ) -> Update[ExperienceMemory]:
        """Practise the T rounds that lead to an adjustment, and adjust.

        Nothing is adjusted if the rounds add no proposal to the pool.
        """
        results = gather([partial(self.practise, memory, sample) for sample in samples])
        failed_items: tuple[Item, ...] = ()
        for sample, result in zip(samples, results, strict=True):
            update = _add_result(memory, sample, result)
            memory = update.memory
            failed_items += update.failed_items

        if any(result.proposals for result in results):
            memory = self.adjust_experience(memory)
        memory = memory.after_adjustment(samples[-1].round, self.settings.keep_rounds)
        return Update(memory, failed_items)

    def practise(self, memory: ExperienceMemory, sample: Sample) -> PracticeResult:
        """Practise a round on one sample with the experience of a memory (Eq. 3, 4, 6 and 7)."""
        reflection: PracticeResult
        perturbations: list[Perturbation]
        virtual_scenes: list[str]
        # What the reviews need depends on the sample alone, so it does not wait for proposals.
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
        """Return the usable proposals of a trial and the reflection on it (Eq. 3 and 4).

        If the answer of either stays unreadable, there are none, and "failed" is counted.
        """
        trial = self._try_experience(memory, sample)
        if trial is None:
            return PracticeResult((), Counter(failed=1))
        drafts = self._generate_proposals(memory, sample, trial)
        if drafts is None:
            return PracticeResult((), Counter(failed=1))

        proposals: list[Proposal] = []
        for draft in drafts[: self.settings.proposals]:
            proposal = usable_proposal(draft, memory, sample, self.settings.disabled_kinds)
            if proposal is not None:
                proposals.append(proposal)
        return PracticeResult(tuple(proposals), Counter(invalid=len(drafts) - len(proposals)))

    def _try_experience(self, memory: ExperienceMemory, sample: Sample) -> dspy.Prediction | None:
        """Predict the outcome of a sample: (a^_j, r_j) = LLM_thinking(H~_j, s~_j, M_t') (Eq. 3)."""
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
        """Draft proposals: {p_i} = LLM_reflection(H~_j, s~_j, a~_j, a^_j, r_j) (Eq. 4).

        Returns:
            The drafts, perhaps more than n; None if the answer stays unreadable.
        """
        inputs: dict[str, object] = {
            "pattern_experiences": _known_experiences(memory.patterns),
            "alert_experiences": _known_experiences(memory.alerts),
            "recent_records": sample.records,
            "practised_record": sample.exercise,
            "predicted_action": trial.predicted_action,
            "max_proposals": self.settings.proposals,
        }
        # Without reflection (Table 2), the prompt sees no thinking.
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
        """Return the proposals that pass both reviews (SelfReview of Eq. 4).

        The others are counted as ungrounded, specific (not general) or malformed (not judged).
        Only what is grounded is reviewed for generality.
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
        """Describe how the records could be altered: H~'_j = LLM_perturb(H~_j) (Eq. 6).

        As in Figure 10, the alteration is described and not carried out.
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
        """Return whether proposals are overturned by some perturbation (Gr.Review, Eq. 6)."""
        calls = [
            partial(self._judge_proposals, sample, proposals, perturbation)
            for perturbation in perturbations
        ]
        passes: dict[str, bool] = {}
        for verdicts in gather(calls):
            for proposal_id, is_sensitive in verdicts.items():
                passes[proposal_id] = passes.get(proposal_id, False) or is_sensitive
        return passes

    def _judge_proposals(
        self, sample: Sample, proposals: ProposalsById, perturbation: Perturbation
    ) -> Verdicts:
        """Return whether proposals fail to hold: LLM_judge(p_i | H~'_j, ...) != Hold (Eq. 6)."""
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
        """Invent scenes like the true one: {s_v} = LLM_rewrite(s~_j) (Eq. 7).

        Returns:
            At most m scenes that differ from one another and from the true one.
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
        for scene in dict.fromkeys(one_line(written) for written in written_scenes):
            is_true_scene = scene.casefold() == true_scene.casefold()
            if scene and not is_true_scene:
                virtual_scenes.append(scene)
        return virtual_scenes[:count]

    def _review_generalizability(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Return whether proposals do not give away the true scene (Ge.Review, Eq. 7).

        Without a virtual scene nothing can be judged.
        """
        if not virtual_scenes:
            return {}
        if self.settings.blind:
            return self._select_scenes(sample, proposals, virtual_scenes)
        return self._judge_generality_as_printed(sample, proposals, virtual_scenes)

    def _select_scenes(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Review by a blind choice: LLM_select(S_j | p_i) must not be s~_j (Eq. 7)."""
        true_scene = sample.true_scene(self.settings.scene_chars)
        scenes = [true_scene, *virtual_scenes]
        # Always the same order for the same record, so that a run can be repeated.
        random.Random(f"{self.settings.seed}:{sample.target.id}").shuffle(scenes)
        letters = [scene_letter(place) for place in range(len(scenes))]
        true_letter = letters[scenes.index(true_scene)]

        answer = self.try_call(
            self.judge_generality,
            candidates=lettered_scenes(scenes),
            proposals=shown_to_reviewers(proposals),
        )
        if answer is None:
            return {}

        choices: list[SceneChoice] = answer.scene_choices or []
        verdicts = [scene_verdict(choice, letters, true_letter) for choice in choices]
        return clear_verdicts(verdicts, proposals)

    def _judge_generality_as_printed(
        self, sample: Sample, proposals: ProposalsById, virtual_scenes: Sequence[str]
    ) -> Verdicts:
        """Review by the prompt of Figure 11, which knows that scene A is the true one."""
        true_scene = sample.true_scene(self.settings.scene_chars)
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
        """Adjust by consensus: M_t, P = LLM_consensus(M_t', P) (Eq. 5, Figure 9).

        An answer that stays unreadable changes nothing.
        """
        if not self.settings.consensus:
            return adopt_all_proposals(memory, self.settings)
        # Nothing is asked of a pool that cannot support any change.
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
    """Return the memory with the proposals of a round: P <- P + {p_i that passed} (Eq. 4).

    A record of which practice came to nothing is a failed item, and is practised on again.
    """
    memory = memory.with_proposals(sample.round, result.proposals).with_counts(result.counts)
    if not result.is_inconclusive:
        return Update(memory)
    record = Behavior.from_actions(sample.target.id, [sample.target])
    return Update(memory, failed_items=(record,))


def _thinking_process(trial: dspy.Prediction) -> str:
    """Return r_j: the explicit steps before a prediction; "" if the trial took none (Table 2)."""
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
