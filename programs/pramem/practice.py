"""One practice round: try, reflect, review (PraMem, equations 3 and 4).

    sample ── trial ──> prediction, thinking ── reflection ──> proposals ┐
       ├───── perturbation plan ─────────────────────────────────────────┼── review ──> those that join the pool
       └───── virtual scenes ────────────────────────────────────────────┘

The perturbation and the scenes need nothing but the sample, so they are written while the trial is under way: four
calls follow one another, of six. A trial or reflection that stays unreadable ends the round and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...reading.kinds import is_nothing
from ...records import Action
from ...signatures.pramem import DraftProposal, KnownExperience, PractisedTask
from .memory import Experience, ExperienceMemory, Proposal, Round
from .prompts import Practising
from .review import Materials, groundwork, reviewed
from .samples import Sample


@dataclass(frozen=True)
class Practised:
    """The result of one sample."""

    round: Round
    target: Action
    accepted: tuple[Proposal, ...] = ()


@dataclass(frozen=True)
class Reflection:
    """What was learnt from comparing prediction and outcome."""

    proposals: tuple[Proposal, ...] = ()
    verdicts: tuple[str, ...] = ()
    invalid: int = 0
    failed: bool = False


def practise(writer: Practising, memory: ExperienceMemory, sample: Sample) -> Practised:
    """Practises one sample with the current experience; the memory is not changed.

    Args:
        writer: Whose prompts and settings are used.
        memory: The experience.
        sample: The exercise.
    """
    tasks: list[Callable[[], Any]] = [lambda: tried(writer, memory, sample), *groundwork(writer, sample)]
    reflection, *found = writer.run(tasks)
    fates: Counter[str] = Counter(invalid=reflection.invalid, failed=int(reflection.failed))
    accepted, refused = reviewed(writer, sample, reflection.proposals, Materials.of(writer, found))
    fates.update(refused)
    fates["pooled"] = len(accepted)
    outcome = {name: count for name, count in fates.items() if count}
    done = Round(number=sample.round, record=sample.target.id, verdicts=reflection.verdicts, outcome=outcome)
    return Practised(done, sample.target, tuple(accepted))


def tried(writer: Practising, memory: ExperienceMemory, sample: Sample) -> Reflection:
    """The trial and the reflection on it."""
    trial = writer.attempt(
        writer.trial,
        patterns=[part.line() for part in memory.patterns],
        alerts=[part.line() for part in memory.alerts],
        recent_records=sample.records,
        situation=sample.situation,
    )
    if trial is None:
        return Reflection(failed=True)
    inputs: dict[str, Any] = {
        "practised_record": sample.exercise,
        "recent_records": sample.records,
        "pattern_experiences": known(memory.patterns),
        "alert_experiences": known(memory.alerts),
        "predicted_action": trial.predicted_action,
        "most": writer.proposals,
    }
    if writer.reflection:
        inputs["thinking"] = _thinking(trial)
    found = writer.attempt(writer.reflect, **inputs)
    if found is None:
        return Reflection(failed=True)
    drafts: list[DraftProposal] = list(found.proposals or [])
    tasks: list[PractisedTask] = found.get("tasks") or []
    kept = [made for draft in drafts[: writer.proposals] if (made := _proposal(writer, memory, sample, draft))]
    return Reflection(tuple(kept), tuple(task.verdict for task in tasks), len(drafts) - len(kept))


def known(entries: Sequence[Experience]) -> list[KnownExperience]:
    """Entries as prompts show them."""
    return [KnownExperience(experience_id=part.id, text=part.line()) for part in entries]


def _thinking(trial: Any) -> str:
    """r_j: the explicit steps before the prediction, empty where the trial took none."""
    parts: list[str] = [
        *(trial.get("useful_patterns") or []),
        *(trial.get("useful_alerts") or []),
        trial.get("reasoning") or "",
    ]
    return "\n".join(part for part in parts if part)


def _proposal(writer: Practising, memory: ExperienceMemory, sample: Sample, draft: DraftProposal) -> Proposal | None:
    """A proposal whose target exists, whose kind is not switched off and whose content is not empty; else None."""
    adds = draft.action in ("add pattern", "add alert")
    target = None if adds else memory.find(draft.experience_id)
    content = "" if is_nothing(draft.content) else " ".join(draft.content.split())
    if (not adds and target is None) or (draft.action != "remove" and not content) or _is_off(writer, draft):
        return None
    shown = sample.ids
    cited = [id.strip("[]() ") for id in draft.record_ids]
    sources = dict.fromkeys([sample.target.id, *(id for id in cited if id in shown)])
    return Proposal(
        id="",
        action=draft.action,
        target=target.id if target else None,
        trigger="" if is_nothing(draft.trigger) else " ".join(draft.trigger.split()),
        content=content,
        sources=tuple(sources),
    )


def _is_off(writer: Practising, draft: DraftProposal) -> bool:
    return draft.action in {f"add {kind}" for kind in writer.off}
