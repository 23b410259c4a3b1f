"""Consensual adjustment: a model groups the pool and cites supporters, code decides (PraMem, equation 5, Figure 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...signatures.pramem import ExperienceChange, PooledProposal
from .adjustment import Change, adjusted, adopted_all, support
from .memory import ExperienceMemory, Proposal
from .practice import known

if TYPE_CHECKING:
    from .writer import PracticeWriter


def adjust(writer: PracticeWriter, memory: ExperienceMemory) -> ExperienceMemory:
    """The memory after one adjustment.

    A pool of fewer supporters than a change needs is left alone without a call; an answer that stays unreadable leaves
    everything unchanged. Without consensus every proposal is applied by code.

    Args:
        writer: Whose prompt is used.
        memory: Experience and pool.
    """
    if not writer.consensus:
        return adopted_all(memory, writer.off)
    if support(memory.pool, writer.distinct_records) < writer.needed:
        return memory
    found = writer.attempt(
        writer.adjust,
        proposal_pool=[_shown(proposal) for proposal in memory.pool],
        pattern_experiences=known(memory.patterns),
        alert_experiences=known(memory.alerts),
        needed=writer.needed,
        distinct_records=writer.distinct_records,
    )
    if found is None:
        return memory.counted({"unreadable adjustments": 1})
    changes: list[ExperienceChange] = found.changes or []
    asked = [_change(change) for change in changes]
    return adjusted(memory, asked, writer.needed, writer.off, writer.distinct_records)


def _shown(proposal: Proposal) -> PooledProposal:
    return PooledProposal(
        proposal=proposal.id,
        record=proposal.record,
        action=proposal.action,
        experience_id=proposal.target,
        trigger=proposal.trigger,
        content=proposal.content,
    )


def _change(change: ExperienceChange) -> Change:
    ids = tuple(str(id).strip("[]() ") for id in change.proposal_ids)
    return Change(change.action, change.experience_id, change.text, ids)
