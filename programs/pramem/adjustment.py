"""Adjusting experience by consensus: a model groups the pool and cites supporters, code decides (Figure 9, Eq. 5).

A change counts where every proposal that it cites is in the pool, enough of them support it, and its entry is there;
its supporters leave the pool. What is refused is counted, and all other proposals stay word for word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...reading.kinds import is_nothing
from ...records import one_line
from ...signatures.pramem import ExperienceChange, PooledProposal
from ..predictor import Ask
from .memory import Experience, ExperienceMemory, Kind, Proposal
from .samples import PracticeSettings, known

DEFAULTS = PracticeSettings.model_validate({})


def adjust(ask: Ask, settings: PracticeSettings, memory: ExperienceMemory) -> ExperienceMemory:
    """The memory after one adjustment.

    A pool of fewer supporters than a change needs is left alone without a call; an answer that stays unreadable leaves
    everything unchanged. Without consensus every proposal is applied by code.
    """
    if not settings.consensus:
        every = [
            ExperienceChange(action=p.action, experience_id=p.target, text=p.content, proposal_ids=[p.id])
            for p in memory.pool
        ]
        return adjusted(memory, every, settings.model_copy(update={"needed": 1})).changed(pool=())
    if _support(memory.pool, settings) < settings.needed:
        return memory
    found = ask(
        "adjust",
        proposal_pool=[_shown(proposal) for proposal in memory.pool],
        pattern_experiences=known(memory.patterns),
        alert_experiences=known(memory.alerts),
        needed=settings.needed,
        distinct_records=settings.distinct_records,
    )
    if found is None:
        return memory.counted({"unreadable adjustments": 1})
    return adjusted(memory, found.changes or [], settings)


def adjusted(
    memory: ExperienceMemory, changes: Sequence[ExperienceChange], settings: PracticeSettings = DEFAULTS
) -> ExperienceMemory:
    """The memory after those changes, in order, that have enough support; `counts` tells their outcomes."""
    spent: set[str] = set()
    pool = {proposal.id: proposal for proposal in memory.pool}
    for change in changes:
        cited = tuple(dict.fromkeys(id.strip("[]() ") for id in change.proposal_ids))
        supporters = [pool[id] for id in cited if id in pool and id not in spent]
        reason = _refusal(memory, change, settings.off)
        if any(id not in pool for id in cited):
            reason = "refused: invented proposal"
        elif _support(supporters, settings) < settings.needed:
            reason = "refused: too little support"
        if reason:
            memory = memory.counted({reason: 1})
            continue
        memory, outcome = _applied(memory, change, supporters)
        spent.update(proposal.id for proposal in supporters)
        memory = memory.counted({outcome: 1})
    return memory.changed(pool=tuple(proposal for proposal in memory.pool if proposal.id not in spent))


def _support(proposals: Sequence[Proposal], settings: PracticeSettings) -> int:
    return len({proposal.record for proposal in proposals}) if settings.distinct_records else len(proposals)


def _refusal(memory: ExperienceMemory, change: ExperienceChange, off: Sequence[Kind]) -> str:
    adds = {"add pattern": "pattern", "add alert": "alert"}.get(change.action)
    if adds in off:
        return "refused: switched off"
    if not adds and memory.find(change.experience_id) is None:
        return "refused: unknown entry"
    if change.action in ("add pattern", "add alert", "modify") and is_nothing(change.text):
        return "refused: empty text"
    return ""


def _applied(
    memory: ExperienceMemory, change: ExperienceChange, supporters: Sequence[Proposal]
) -> tuple[ExperienceMemory, str]:
    sources = tuple(dict.fromkeys(id for proposal in supporters for id in proposal.sources))
    ids = tuple(proposal.id for proposal in supporters)
    text = one_line(change.text)
    target = memory.find(change.experience_id)
    if change.action in ("add pattern", "add alert"):
        kind: Kind = "pattern" if change.action == "add pattern" else "alert"
        same = memory.like(kind, text)
        if same is None:
            return memory.with_entry(kind, text, sources, ids), "added"
        return _with(memory, _supported(same, sources, ids)), "merged"
    assert target is not None
    if change.action == "modify":
        earlier = (*target.earlier, target.text) if text != target.text else target.earlier
        return _with(memory, _supported(target, sources, ids).changed(text=text, earlier=earlier)), "modified"
    rest = [part for part in memory.of(target.kind) if part.id != target.id]
    memory = memory.replaced(target.kind, rest)
    return (memory, "removed") if change.action == "remove" else (_pooled(memory, target), "downgraded")


def _pooled(memory: ExperienceMemory, entry: Experience) -> ExperienceMemory:
    action: Literal["add pattern", "add alert"] = "add pattern" if entry.kind == "pattern" else "add alert"
    back = Proposal(id="", action=action, content=entry.text, sources=entry.sources)
    return memory.with_proposals(memory.rounds, [back])


def _supported(entry: Experience, sources: tuple[str, ...], ids: tuple[str, ...]) -> Experience:
    united = tuple(dict.fromkeys((*entry.sources, *sources)))
    return entry.changed(sources=united, support=tuple(dict.fromkeys((*entry.support, *ids))))


def _with(memory: ExperienceMemory, entry: Experience) -> ExperienceMemory:
    return memory.replaced(entry.kind, [entry if part.id == entry.id else part for part in memory.of(entry.kind)])


def _shown(proposal: Proposal) -> PooledProposal:
    about = proposal.model_dump(include={"action", "trigger", "content"})
    return PooledProposal(proposal=proposal.id, record=proposal.record, experience_id=proposal.target, **about)
