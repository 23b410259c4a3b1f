"""Self-review: only proposals that are grounded in the sample and hold beyond it pass (PraMem, section 3).

    groundedness (Eq. 6)     the records are perturbed; a proposal that holds all the same is out
    generality (Eq. 7)       the scene is rewritten m times; a proposal that singles the true scene out is out

Groundedness comes first; only what passed it is judged for generality. A verdict that is missing, unclear or
contradicts another one of the same proposal rejects the proposal and is counted as malformed, and so does every
judgement that cannot be made because its plan or its scenes are missing.

Choices of ours: with several perturbations a proposal is grounded if one of them overturns it (each may leave alone
what the proposal is about), and fewer scenes than asked for do, if there is one that differs from the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...signatures.pramem_review import (
    GeneralityVerdict,
    GroundednessVerdict,
    Perturbation,
    ReviewedProposal,
)
from .memory import Proposal
from .prompts import Practising
from .samples import Sample

Verdicts = dict[str, bool]
"""Proposal id -> whether it passes; a malformed verdict is absent."""


@dataclass(frozen=True)
class Materials:
    """What a review needs beside the proposals."""

    perturbed: tuple[Perturbation, ...] = ()
    scenes: tuple[str, ...] = ()

    @classmethod
    def of(cls, writer: Practising, found: Sequence[Any]) -> Materials:
        """From the results of `groundwork`, in its order."""
        rest = list(found)
        perturbed = rest.pop(0) if writer.groundedness else ()
        return cls(perturbed, rest.pop(0) if writer.generalizability else ())


def groundwork(writer: Practising, sample: Sample) -> list[Callable[[], Any]]:
    """The calls that a review needs and that need no proposal: perturbations, virtual scenes."""
    calls: list[Callable[[], Any]] = []
    if writer.groundedness:
        calls.append(lambda: perturbations(writer, sample))
    if writer.generalizability:
        calls.append(lambda: virtual_scenes(writer, sample))
    return calls


def perturbations(writer: Practising, sample: Sample) -> tuple[Perturbation, ...]:
    """Plans that reverse the sample's past."""
    found = writer.attempt(writer.plan, recent_records=sample.records, count=writer.perturbations)
    return tuple(found.plans or ())[: writer.perturbations] if found else ()


def virtual_scenes(writer: Practising, sample: Sample) -> tuple[str, ...]:
    """Scenes of the same type as the true one, each once, none of them the true one."""
    true = sample.scene(writer.scene_chars)
    found = writer.attempt(writer.write_scenes, situation=true, count=writer.virtual_scenes)
    scenes: list[str] = found.virtual_scenes or [] if found else []
    said = [" ".join(scene.split()) for scene in scenes]
    others = [scene for scene in dict.fromkeys(said) if scene and scene.casefold() != true.casefold()]
    return tuple(others[: writer.virtual_scenes])


def reviewed(
    writer: Practising, sample: Sample, proposals: Sequence[Proposal], materials: Materials
) -> tuple[list[Proposal], Counter[str]]:
    """The proposals that pass, and how many failed by reason: ungrounded, specific, malformed."""
    named = {f"r{n}": proposal for n, proposal in enumerate(proposals, 1)}
    fates: Counter[str] = Counter()
    if writer.groundedness and named:
        named = _passed(named, _groundedness(writer, sample, named, materials.perturbed), "ungrounded", fates)
    if writer.generalizability and named:
        named = _passed(named, _generality(writer, sample, named, materials.scenes), "specific", fates)
    return list(named.values()), fates


def _passed(named: dict[str, Proposal], verdicts: Verdicts, reason: str, fates: Counter[str]) -> dict[str, Proposal]:
    for id in named:
        if not verdicts.get(id, False):
            fates[reason if id in verdicts else "malformed"] += 1
    return {id: proposal for id, proposal in named.items() if verdicts.get(id, False)}


def _groundedness(
    writer: Practising, sample: Sample, named: dict[str, Proposal], perturbed: Sequence[Perturbation]
) -> Verdicts:
    rounds = writer.run([lambda one=one: _judged(writer, sample, named, one) for one in perturbed])
    verdicts: Verdicts = {}
    for found in rounds:
        for id, overturned in found.items():
            verdicts[id] = verdicts.get(id, False) or overturned
    return verdicts


def _judged(writer: Practising, sample: Sample, named: dict[str, Proposal], plan: Perturbation) -> Verdicts:
    """Whether a perturbation overturns each proposal."""
    found = writer.attempt(
        writer.judge_groundedness,
        proposals=_shown(named),
        recent_records=sample.records,
        direction=plan.direction,
        details=plan.details,
    )
    judged: list[GroundednessVerdict] = found.groundedness or [] if found else []
    return _agreed([(verdict.proposal, verdict.sensitive) for verdict in judged], named)


def _generality(writer: Practising, sample: Sample, named: dict[str, Proposal], scenes: Sequence[str]) -> Verdicts:
    if not scenes:
        return {}
    options = enumerate((sample.scene(writer.scene_chars), *scenes))
    candidates = "\n".join(f"{_letter(n)}. {scene}" for n, scene in options)
    found = writer.attempt(writer.judge_generality, proposals=_shown(named), candidates=candidates)
    verdicts: list[GeneralityVerdict] = found.generality or [] if found else []
    return _agreed([(verdict.proposal, verdict.general) for verdict in verdicts], named)


def _agreed(said: Sequence[tuple[str, bool | None]], named: dict[str, Proposal]) -> Verdicts:
    """One clear verdict per proposal; those with none, an unclear one or two that differ are left out."""
    verdicts: dict[str, set[bool | None]] = {}
    for id, verdict in said:
        verdicts.setdefault(id.strip("[]() "), set()).add(verdict)
    return {id: found == {True} for id, found in verdicts.items() if id in named and found in ({True}, {False})}


def _shown(named: dict[str, Proposal]) -> list[ReviewedProposal]:
    return [ReviewedProposal(proposal=id, content=proposal.text()) for id, proposal in named.items()]


def _letter(n: int) -> str:
    return chr(ord("A") + n) if n < 26 else f"{_letter(n // 26 - 1)}{_letter(n % 26)}"
