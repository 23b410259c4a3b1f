"""Consensual experience adjustment: what code does with the changes that a model asks for.

    M_t, P = LLM_consensus(M_t', P)                                                (Eq. 5)

The model groups the proposals of the pool P, and cites for each change those that support it
(Figure 9). `apply_changes` makes a change if all cited proposals are in the pool, if enough of them
support it, and if its entry is there. Its supporters leave the pool. All other proposals stay, word
for word. No entry is deleted: one that proposals call into question is modified, or becomes a
proposal again.

The released code trusts the model with all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from ...reading.spelling import is_null_like
from ...signatures.pramem import ExperienceChange
from ...text import one_line
from .memory import ADDED_KINDS, Experience, ExperienceMemory, Kind, Proposal
from .practice import without_brackets
from .settings import PracticeSettings


def count_support(proposals: Sequence[Proposal], settings: PracticeSettings) -> int:
    """Count how many proposals support a change, or how many practised records they come from."""
    if settings.distinct_records:
        return len({proposal.record for proposal in proposals})
    return len(proposals)


def adopt_all_proposals(memory: ExperienceMemory, settings: PracticeSettings) -> ExperienceMemory:
    """Return the memory after every proposal was carried out by itself, in order.

    This is "w/o consensual adjustment" of Table 2. The pool is empty afterwards: an entry that a
    proposal removes is gone, since no proposal waits for others.
    """
    changes = [_change_of_proposal(proposal) for proposal in memory.pool]
    one_is_enough = settings.model_copy(update={"needed": 1})
    return apply_changes(memory, changes, one_is_enough).replace(pool=())


def _change_of_proposal(proposal: Proposal) -> ExperienceChange:
    """Return the change that carries out a proposal by itself."""
    action = "downgrade" if proposal.action == "remove" else proposal.action
    return ExperienceChange(
        action=action,
        experience_id=proposal.target,
        text=proposal.content,
        proposal_ids=[proposal.id],
    )


def apply_changes(
    memory: ExperienceMemory, changes: Sequence[ExperienceChange], settings: PracticeSettings
) -> ExperienceMemory:
    """Return the memory after the changes that have enough support, made in order (Eq. 5).

    A proposal supports one change at most: the first that cites it and is made. What became of the
    changes is counted in `counts`.
    """
    # An entry that a change downgrades joins the pool of the memory, but no other change cites it.
    pool = {proposal.id: proposal for proposal in memory.pool}
    adopted_ids: set[str] = set()
    for change in changes:
        cited_ids = _cited_ids(change)
        available_ids = pool.keys() - adopted_ids
        supporters = [pool[cited_id] for cited_id in cited_ids if cited_id in available_ids]

        if any(cited_id not in pool for cited_id in cited_ids):
            refusal = "invented proposal"
        elif count_support(supporters, settings) < settings.needed:
            refusal = "too little support"
        else:
            refusal = _reason_to_refuse(memory, change, settings)

        if refusal:
            memory = memory.with_counts({f"refused: {refusal}": 1})
        else:
            memory = _apply_change(memory, change, supporters)
            adopted_ids.update(proposal.id for proposal in supporters)

    remaining = [proposal for proposal in memory.pool if proposal.id not in adopted_ids]
    return memory.replace(pool=tuple(remaining))


def _cited_ids(change: ExperienceChange) -> list[str]:
    """Return the ids of the proposals that a change cites, each once."""
    cited_ids = [without_brackets(proposal_id) for proposal_id in change.proposal_ids]
    return list(dict.fromkeys(cited_ids))


def _reason_to_refuse(
    memory: ExperienceMemory, change: ExperienceChange, settings: PracticeSettings
) -> str:
    """Return why a change cannot be made, whatever supports it; "" if it can."""
    added_kind = ADDED_KINDS.get(change.action)
    if added_kind in settings.disabled_kinds:
        return "switched off"
    if added_kind is None and memory.find_by_id(change.experience_id) is None:
        return "unknown entry"
    if change.action != "downgrade" and is_null_like(change.text):
        return "empty text"
    return ""


def _apply_change(
    memory: ExperienceMemory, change: ExperienceChange, supporters: Sequence[Proposal]
) -> ExperienceMemory:
    """Return the memory after a change that is not refused, with its outcome counted."""
    added_kind = ADDED_KINDS.get(change.action)
    if added_kind is not None:
        return _add(memory, added_kind, change.text, supporters)

    target = memory.find_by_id(change.experience_id)
    assert target is not None  # a change of an unknown entry is refused
    if change.action == "modify":
        return _modify(memory, target, change.text, supporters)
    return _downgrade(memory, target)


def _add(
    memory: ExperienceMemory, kind: Kind, text: str, supporters: Sequence[Proposal]
) -> ExperienceMemory:
    """Return the memory with a new entry, or with more support for an entry that says the same."""
    equal_entry = memory.find_by_text(kind, text)
    if equal_entry is not None:
        merged_entry = _with_support(equal_entry, supporters)
        return memory.with_new_version(merged_entry).with_counts({"merged": 1})

    proposal_ids = tuple(proposal.id for proposal in supporters)
    memory = memory.with_new_entry(kind, text, _sources_of(supporters), proposal_ids)
    return memory.with_counts({"added": 1})


def _modify(
    memory: ExperienceMemory, target: Experience, text: str, supporters: Sequence[Proposal]
) -> ExperienceMemory:
    """Return the memory with another text of an entry; its id and the old wording stay."""
    new_text = one_line(text)
    earlier = target.earlier
    if new_text != target.text:
        earlier = (*earlier, target.text)

    modified_entry = _with_support(target, supporters).replace(text=new_text, earlier=earlier)
    return memory.with_new_version(modified_entry).with_counts({"modified": 1})


def _downgrade(memory: ExperienceMemory, target: Experience) -> ExperienceMemory:
    """Return the memory with an entry turned back into a proposal, in the entry's own words."""
    action: Literal["add pattern", "add alert"] = "add pattern"
    if target.kind == "alert":
        action = "add alert"
    proposal = Proposal(id="", action=action, content=target.text, sources=target.sources)

    memory = memory.without_entry(target).with_proposals(memory.rounds, [proposal])
    return memory.with_counts({"downgraded": 1})


def _with_support(entry: Experience, supporters: Sequence[Proposal]) -> Experience:
    """Return an entry that also rests on supporters and on their records."""
    proposal_ids = [proposal.id for proposal in supporters]
    return entry.replace(
        sources=_union(entry.sources, _sources_of(supporters)),
        support=_union(entry.support, proposal_ids),
    )


def _sources_of(proposals: Iterable[Proposal]) -> tuple[str, ...]:
    """Return the ids of all records that proposals rest on, each once."""
    sources: tuple[str, ...] = ()
    for proposal in proposals:
        sources = _union(sources, proposal.sources)
    return sources


def _union(ids: Iterable[str], more_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of both, each once, in order of first appearance."""
    return tuple(dict.fromkeys([*ids, *more_ids]))
