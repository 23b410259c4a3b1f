"""One practice round: try, reflect, review (PraMem, equations 3, 4, 6 and 7).

Ours: of several perturbations one has to overturn a proposal, and fewer scenes than asked for do, if there is one that
differs from the true one. A blind review may say that a proposal singles out no scene; equation 7 has no such choice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...reading.spelling import is_null_like
from ...signatures.pramem import (
    NO_SCENE,
    DraftProposal,
    GeneralityVerdict,
    GroundednessVerdict,
    Perturbation,
    ReviewedProposal,
    SceneChoice,
)
from .._component import CallPredictor
from ..threads import gather
from .memory import ExperienceMemory, Proposal
from .samples import PracticeSettings, Sample, known

Verdicts = dict[str, bool]
"""Proposal id -> whether it passes; a malformed verdict is absent."""


class PracticeResult(NamedTuple):
    """What came of a trial, or of a whole round."""

    proposals: Sequence[Proposal]
    outcome_counts: Counter[str]
    """Other proposals by outcome; failed: 1 for an unreadable trial."""


class Practice:
    """One round with the prompts and settings of a writer, on one sample."""

    def __init__(self, ask: CallPredictor, settings: PracticeSettings, sample: Sample) -> None:
        self._ask, self._settings, self._sample = ask, settings, sample

    def run(self, memory: ExperienceMemory) -> PracticeResult:
        """Practises with the current experience; the memory is not changed."""
        calls = [lambda: self.tried(memory), self._perturbations, self._virtual_scenes]
        tried, perturbed, scenes = gather(calls)
        accepted, fates = self.reviewed(tried.proposals, perturbed, scenes)
        return PracticeResult(accepted, fates + tried.outcome_counts + Counter(pooled=len(accepted)))

    def tried(self, memory: ExperienceMemory) -> PracticeResult:
        """The trial and the reflection on it."""
        sample = self._sample
        trial = self._ask(
            "trial",
            patterns=[part.text for part in memory.patterns],
            alerts=[part.text for part in memory.alerts],
            recent_records=sample.records,
            situation=sample.situation,
        )
        if trial is None:
            return PracticeResult((), Counter(failed=1))
        inputs: dict[str, Any] = {
            "pattern_experiences": known(memory.patterns),
            "alert_experiences": known(memory.alerts),
            "recent_records": sample.records,
            "practised_record": sample.exercise,
            "predicted_action": trial.predicted_action,
            "max_proposals": self._settings.proposals,
        }
        if self._settings.reflection:
            inputs["thinking"] = _thinking(trial)
        found = self._ask("reflect", **inputs)
        if found is None:
            return PracticeResult((), Counter(failed=1))
        drafts: list[DraftProposal] = list(found.proposals or [])
        kept = [made for draft in drafts[: self._settings.proposals] if (made := self._proposal(memory, draft))]
        return PracticeResult(kept, Counter(invalid=len(drafts) - len(kept)))

    def reviewed(
        self, proposals: Sequence[Proposal], perturbed: Sequence[Perturbation], scenes: Sequence[str]
    ) -> tuple[list[Proposal], Counter[str]]:
        """The proposals that pass, and how many failed by reason: ungrounded, specific, malformed."""
        named = {f"r{n}": proposal for n, proposal in enumerate(proposals, 1)}
        fates: Counter[str] = Counter()
        if self._settings.groundedness and named:
            named = _passed(named, self._groundedness(named, perturbed), "ungrounded", fates)
        if self._settings.generalizability and named:
            named = _passed(named, self._generality(named, scenes), "specific", fates)
        return list(named.values()), fates

    def _perturbations(self) -> tuple[Perturbation, ...]:
        if not self._settings.groundedness:
            return ()
        most = self._settings.perturbations
        found = self._ask("plan", recent_records=self._sample.records, count=most)
        return tuple(found.plans or ())[:most] if found else ()

    def _virtual_scenes(self) -> tuple[str, ...]:
        """Scenes of the same type as the true one, each once, none of them the true one."""
        if not self._settings.generalizability:
            return ()
        true, most = self._sample.scene(self._settings.scene_chars), self._settings.virtual_scenes
        found = self._ask("write_scenes", situation=true, count=most)
        scenes: list[str] = found.virtual_scenes or [] if found else []
        said = [" ".join(scene.split()) for scene in scenes]
        others = [scene for scene in dict.fromkeys(said) if scene and scene.casefold() != true.casefold()]
        return tuple(others[:most])

    def _groundedness(self, named: dict[str, Proposal], perturbed: Sequence[Perturbation]) -> Verdicts:
        verdicts: Verdicts = {}
        for found in gather([lambda one=one: self._judged(named, one) for one in perturbed]):
            for id, overturned in found.items():
                verdicts[id] = verdicts.get(id, False) or overturned
        return verdicts

    def _judged(self, named: dict[str, Proposal], plan: Perturbation) -> Verdicts:
        found = self._ask(
            "judge_groundedness",
            recent_records=self._sample.records,
            direction=plan.direction,
            details=plan.details,
            proposals=_shown(named),
        )
        judged: list[GroundednessVerdict] = found.groundedness or [] if found else []
        return _agreed([(verdict.proposal, verdict.sensitive) for verdict in judged], named)

    def _generality(self, named: dict[str, Proposal], scenes: Sequence[str]) -> Verdicts:
        if not scenes:
            return {}
        true_scene = self._sample.scene(self._settings.scene_chars)
        if self._settings.blind:
            return self._chosen_blindly(named, true_scene, scenes)
        answer = self._ask("judge_generality", candidates=_lettered([true_scene, *scenes]), proposals=_shown(named))
        verdicts: list[GeneralityVerdict] = answer.generality or [] if answer else []
        return _agreed([(verdict.proposal, verdict.general) for verdict in verdicts], named)

    def _chosen_blindly(self, named: dict[str, Proposal], true_scene: str, scenes: Sequence[str]) -> Verdicts:
        """Return which proposals single out another scene than the true one, or none (equation 7)."""
        candidates = [true_scene, *scenes]
        # Always the same order for the same record, so that a run can be repeated.
        random.Random(f"{self._settings.seed}:{self._sample.target.id}").shuffle(candidates)
        letters = [_letter(place) for place in range(len(candidates))]
        true_letter = letters[candidates.index(true_scene)]

        answer = self._ask("judge_generality", candidates=_lettered(candidates), proposals=_shown(named))
        choices: list[SceneChoice] = answer.scene_choices or [] if answer else []
        verdicts: list[tuple[str, bool | None]] = []
        for choice in choices:
            is_clear = choice.situation == NO_SCENE or choice.situation in letters
            verdicts.append((choice.proposal, choice.situation != true_letter if is_clear else None))
        return _agreed(verdicts, named)

    def _proposal(self, memory: ExperienceMemory, draft: DraftProposal) -> Proposal | None:
        """A proposal whose target exists, whose kind is not switched off and whose content is not empty; else None."""
        adds = draft.action in ("add pattern", "add alert")
        target = None if adds else memory.find(draft.experience_id)
        content = "" if is_null_like(draft.content) else " ".join(draft.content.split())
        off = draft.action in {f"add {kind}" for kind in self._settings.off}
        if (not adds and target is None) or (draft.action != "remove" and not content) or off:
            return None
        cited = [id.strip("[]() ") for id in draft.record_ids]
        sources = dict.fromkeys([self._sample.target.id, *(id for id in cited if id in self._sample.ids)])
        return Proposal(
            id="",
            action=draft.action,
            target=target.id if target else None,
            trigger="" if is_null_like(draft.trigger) else " ".join(draft.trigger.split()),
            content=content,
            sources=tuple(sources),
        )


def _thinking(trial: Any) -> str:
    """r_j: the explicit steps before the prediction, empty where the trial took none."""
    named: list[str] = [*(trial.get("useful_patterns") or []), *(trial.get("useful_alerts") or [])]
    return "\n".join(part for part in (*named, trial.get("reasoning") or "") if part)


def _passed(named: dict[str, Proposal], verdicts: Verdicts, reason: str, fates: Counter[str]) -> dict[str, Proposal]:
    for id in named:
        if not verdicts.get(id, False):
            fates[reason if id in verdicts else "malformed"] += 1
    return {id: proposal for id, proposal in named.items() if verdicts.get(id, False)}


def _agreed(said: Sequence[tuple[str, bool | None]], named: dict[str, Proposal]) -> Verdicts:
    """One clear verdict per proposal; those with none, an unclear one or two that differ are left out."""
    verdicts: dict[str, set[bool | None]] = {}
    for id, verdict in said:
        verdicts.setdefault(id.strip("[]() "), set()).add(verdict)
    return {id: found == {True} for id, found in verdicts.items() if id in named and found in ({True}, {False})}


def _shown(named: dict[str, Proposal]) -> list[ReviewedProposal]:
    return [ReviewedProposal(proposal=id, content=proposal.text()) for id, proposal in named.items()]


def _lettered(scenes: Sequence[str]) -> str:
    """Return the scenes, one a line, each after its letter."""
    return "\n".join(f"{_letter(place)}. {scene}" for place, scene in enumerate(scenes))


def _letter(n: int) -> str:
    return chr(ord("A") + n) if n < 26 else f"{_letter(n // 26 - 1)}{_letter(n % 26)}"
