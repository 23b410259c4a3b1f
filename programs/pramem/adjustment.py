"""Adjusting experience by consensus: a model groups the pool and cites supporters, code decides (Figure 9, Eq. 5).

A change counts where every proposal that it cites is in the pool, enough of them support it, and its entry is there;
its supporters leave the pool. What is refused is counted, and all other proposals stay word for word. No entry is
deleted: one that is called into question is modified, or downgraded to a proposal of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...reading.spelling import is_null_like
from ...signatures.pramem import ExperienceChange, PooledProposal
from ...text import one_line
from .._component import CallPredictor
from .memory import Experience, ExperienceMemory, Kind, Proposal
from .samples import PracticeSettings, known

DEFAULTS = PracticeSettings.model_validate({})
ADDED_KIND: dict[str, Kind] = {"add pattern": "pattern", "add alert": "alert"}
"""The kind of the entry that an action adds."""


def adjust(ask: CallPredictor, settings: PracticeSettings, memory: ExperienceMemory) -> ExperienceMemory:
    """Return the memory after one adjustment.

    A pool of fewer supporters than a change needs is left alone without a call. An answer that stays unreadable leaves
    everything unchanged. Without consensus every proposal is carried out by code.
    """
    if not settings.consensus:
        return _every_proposal_adopted(memory, settings)
    if _support(memory.pool, settings) < settings.needed:
        return memory

    answer = ask(
        "adjust",
        pattern_experiences=known(memory.patterns),
        alert_experiences=known(memory.alerts),
        proposal_pool=[_as_shown(proposal) for proposal in memory.pool],
        needed=settings.needed,
        distinct_records=settings.distinct_records,
    )
    if answer is None:
        return memory.counted({"unreadable adjustments": 1})
    return adjusted(memory, answer.changes or [], settings)


def _every_proposal_adopted(memory: ExperienceMemory, settings: PracticeSettings) -> ExperienceMemory:
    """Return the memory after every proposal was carried out by itself.

    The pool is empty afterwards: an entry whose removal was proposed is gone, as nothing waits for others to agree.
    """
    changes = [
        ExperienceChange(
            action="downgrade" if proposal.action == "remove" else proposal.action,
            experience_id=proposal.target,
            text=proposal.content,
            proposal_ids=[proposal.id],
        )
        for proposal in memory.pool
    ]
    return adjusted(memory, changes, settings.model_copy(update={"needed": 1})).replace(pool=())


def adjusted(
    memory: ExperienceMemory, changes: Sequence[ExperienceChange], settings: PracticeSettings = DEFAULTS
) -> ExperienceMemory:
    """Return the memory after those changes, in order, that have enough support; `counts` tells their outcomes."""
    pool = {proposal.id: proposal for proposal in memory.pool}
    spent: set[str] = set()
    for change in changes:
        cited = tuple(dict.fromkeys(id.strip("[]() ") for id in change.proposal_ids))
        supporters = [pool[id] for id in cited if id in pool and id not in spent]

        refusal = _refusal(memory, change, settings.off)
        if any(id not in pool for id in cited):
            refusal = "refused: invented proposal"
        elif _support(supporters, settings) < settings.needed:
            refusal = "refused: too little support"
        if refusal:
            memory = memory.counted({refusal: 1})
            continue

        memory, outcome = _applied(memory, change, supporters)
        spent.update(proposal.id for proposal in supporters)
        memory = memory.counted({outcome: 1})
    return memory.replace(pool=tuple(proposal for proposal in memory.pool if proposal.id not in spent))


def _support(proposals: Sequence[Proposal], settings: PracticeSettings) -> int:
    """Count the supporters: the proposals, or the records that they were practised on."""
    if settings.distinct_records:
        return len({proposal.record for proposal in proposals})
    return len(proposals)


def _refusal(memory: ExperienceMemory, change: ExperienceChange, off: Sequence[Kind]) -> str:
    """Say why a change cannot be made whatever its support; "" where it can."""
    added_kind = ADDED_KIND.get(change.action)
    if added_kind in off:
        return "refused: switched off"
    if added_kind is None and memory.find(change.experience_id) is None:
        return "refused: unknown entry"
    if change.action != "downgrade" and is_null_like(change.text):
        return "refused: empty text"
    return ""


def _applied(
    memory: ExperienceMemory, change: ExperienceChange, supporters: Sequence[Proposal]
) -> tuple[ExperienceMemory, str]:
    """Return the memory after a change, and what came of it as `counts` names it."""
    sources = tuple(dict.fromkeys(id for proposal in supporters for id in proposal.sources))
    ids = tuple(proposal.id for proposal in supporters)
    text = one_line(change.text)

    added_kind = ADDED_KIND.get(change.action)
    if added_kind is not None:
        same = memory.like(added_kind, text)
        if same is None:
            return memory.with_entry(added_kind, text, sources, ids), "added"
        return _with(memory, _supported(same, sources, ids)), "merged"

    target = memory.find(change.experience_id)
    assert target is not None
    if change.action == "modify":
        earlier = (*target.earlier, target.text) if text != target.text else target.earlier
        return _with(memory, _supported(target, sources, ids).replace(text=text, earlier=earlier)), "modified"

    others = [entry for entry in memory.of(target.kind) if entry.id != target.id]
    memory = memory.replaced(target.kind, others)
    return _pooled(memory, target), "downgraded"


def _pooled(memory: ExperienceMemory, entry: Experience) -> ExperienceMemory:
    """Return the memory with an entry as a proposal of the pool, in its own words."""
    action: Literal["add pattern", "add alert"] = "add pattern" if entry.kind == "pattern" else "add alert"
    proposal = Proposal(id="", action=action, content=entry.text, sources=entry.sources)
    return memory.with_proposals(memory.rounds, [proposal])


def _supported(entry: Experience, sources: tuple[str, ...], ids: tuple[str, ...]) -> Experience:
    all_sources = tuple(dict.fromkeys((*entry.sources, *sources)))
    all_ids = tuple(dict.fromkeys((*entry.support, *ids)))
    return entry.replace(sources=all_sources, support=all_ids)


def _with(memory: ExperienceMemory, entry: Experience) -> ExperienceMemory:
    entries = [entry if other.id == entry.id else other for other in memory.of(entry.kind)]
    return memory.replaced(entry.kind, entries)


def _as_shown(proposal: Proposal) -> PooledProposal:
    return PooledProposal(
        proposal=proposal.id,
        record=proposal.record,
        action=proposal.action,
        experience_id=proposal.target,
        trigger=proposal.trigger,
        content=proposal.content,
    )
