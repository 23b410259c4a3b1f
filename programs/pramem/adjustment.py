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

from ...reading.spelling import is_null_like
from ...signatures.pramem import ExperienceChange
from ...text import one_line
from .memory import ADDED_KINDS, Experience, ExperienceMemory, Kind, Proposal
from .practice import without_brackets
from .settings import PracticeSettings


def count_support(proposals: Sequence[Proposal], settings: PracticeSettings) -> int:
    """Count how strongly proposals support a change of the experience.

    With `distinct_records`, the default, proposals that come from the same practised record count
    once, so that a single record cannot decide. Otherwise every proposal counts.
    """
    if settings.distinct_records:
        record_ids = {proposal.record for proposal in proposals}
        return len(record_ids)
    return len(proposals)


def adopt_all_proposals(memory: ExperienceMemory, settings: PracticeSettings) -> ExperienceMemory:
    """Carry out every proposal that waits in the memory's pool, even if no other agrees with it.

    Usually a change needs several proposals. This is the ablation without that rule (Table 2).
    """
    changes = [_change_of_proposal(proposal) for proposal in memory.pool]
    one_supporter_needed = settings.model_copy(update={"needed": 1})
    memory = apply_changes(memory, changes, one_supporter_needed)

    # What is left waits for support that never comes: proposals that could not be carried out, and
    # entries that a removal has turned back into proposals.
    return memory.replace(pool=())


def _change_of_proposal(proposal: Proposal) -> ExperienceChange:
    """Return the change of experience that does what one proposal asks for.

    Without consensus, the trigger of a proposal is not part of the entry's text.
    """
    action = proposal.action
    if action == "remove":
        # Changes have no action "remove": an entry is downgraded, that is, becomes a proposal.
        action = "downgrade"
    return ExperienceChange(
        action=action,
        experience_id=proposal.target,
        text=proposal.content,
        proposal_ids=[proposal.id],
    )


def apply_changes(
    memory: ExperienceMemory, changes: Sequence[ExperienceChange], settings: PracticeSettings
) -> ExperienceMemory:
    """Make the changes that a model asks for, one after another, if enough proposals support them.

    A change cites proposals of the pool as its support. A proposal supports one change only, and
    leaves the pool once that change is made. Refused changes are counted by reason (Eq. 5).
    """
    # The pool as the model saw it. `memory.pool` grows where a change downgrades an entry to a
    # proposal, but such a proposal cannot be cited yet.
    pool = {proposal.id: proposal for proposal in memory.pool}
    adopted_ids: set[str] = set()
    for change in changes:
        cited_ids = _cited_ids(change)
        supporters: list[Proposal] = []
        for cited_id in cited_ids:
            if cited_id in pool and cited_id not in adopted_ids:
                supporters.append(pool[cited_id])

        # `refusal` is the reason to refuse the change; "" if it is made.
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
    """Return the ids of the proposals that a change cites, without repetitions."""
    cited_ids = [without_brackets(proposal_id) for proposal_id in change.proposal_ids]
    return list(dict.fromkeys(cited_ids))


def _reason_to_refuse(
    memory: ExperienceMemory, change: ExperienceChange, settings: PracticeSettings
) -> str:
    """Return why a change cannot be made, however many proposals support it; "" if it can be.

    An addition needs a kind of experience, pattern or alert, that is switched on. Any other change
    needs an entry that exists. Only a downgrade needs no text.
    """
    added_kind = ADDED_KINDS.get(change.action)  # None if the change adds no entry
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
    """Return the memory after a change: an entry is added, modified or downgraded to a proposal.

    Args:
        memory: The memory before.
        change: A change for which `_reason_to_refuse` had no reason.
        supporters: The proposals that support the change.
    """
    added_kind = ADDED_KINDS.get(change.action)
    if added_kind is not None:
        return _add(memory, added_kind, change.text, supporters)

    target = memory.find_by_id(change.experience_id)
    assert target is not None  # `_reason_to_refuse` refuses changes of unknown entries
    if change.action == "modify":
        return _modify(memory, target, change.text, supporters)
    return _downgrade(memory, target)


def _add(
    memory: ExperienceMemory, kind: Kind, text: str, supporters: Sequence[Proposal]
) -> ExperienceMemory:
    """Return the memory with a new entry.

    If an entry already says the same, it gets the supporters instead of being repeated.
    """
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
    """Return the memory in which one entry has another text, and the support for it.

    The entry keeps its id, and lists its earlier texts in `earlier`.
    """
    new_text = one_line(text)
    earlier_texts = target.earlier
    if new_text != target.text:
        earlier_texts = (*earlier_texts, target.text)

    modified_entry = _with_support(target, supporters)
    modified_entry = modified_entry.replace(text=new_text, earlier=earlier_texts)
    return memory.with_new_version(modified_entry).with_counts({"modified": 1})


def _downgrade(memory: ExperienceMemory, target: Experience) -> ExperienceMemory:
    """Return the memory in which an entry has become a proposal to add that entry.

    So no experience is deleted: the entry can come back if other proposals support it.
    """
    # The proposal gets its id in the pool.
    proposal = Proposal(
        id="",
        action="add alert" if target.kind == "alert" else "add pattern",
        content=target.text,
        sources=target.sources,
    )
    memory = memory.without_entry(target).with_proposals(memory.rounds, [proposal])
    return memory.with_counts({"downgraded": 1})


def _with_support(entry: Experience, supporters: Sequence[Proposal]) -> Experience:
    """Return an entry that lists further proposals as its support, and their records as sources."""
    proposal_ids = [proposal.id for proposal in supporters]
    return entry.replace(
        sources=_union(entry.sources, _sources_of(supporters)),
        support=_union(entry.support, proposal_ids),
    )


def _sources_of(proposals: Iterable[Proposal]) -> tuple[str, ...]:
    """Return the ids of all records that proposals rest on, without repetitions."""
    sources: tuple[str, ...] = ()
    for proposal in proposals:
        sources = _union(sources, proposal.sources)
    return sources


def _union(ids: Iterable[str], more_ids: Iterable[str]) -> tuple[str, ...]:
    """Return both groups of ids without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys([*ids, *more_ids]))
