"""What code checks in a round of practice: proposals, and the verdicts of the self-review.

A reflection drafts proposals; `usable_proposal` refuses those that cannot be carried out. Reviewers
then judge the others under short ids, and `clear_verdicts` reads what they say (section 3):

    proposals_by_id = number_proposals(proposals)                       # r1, r2, ...
    verdicts = clear_verdicts([Verdict("[r1]", True)], proposals_by_id) # {"r1": True}
    passing_proposals(proposals_by_id, verdicts)                        # r1 alone
    count_rejections(proposals_by_id, verdicts, "specific")             # r2: "malformed"

The paper does not say what an unclear verdict means. Here the proposal does not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...reading.spelling import is_null_like
from ...signatures.pramem import NO_SCENE, DraftProposal, ReviewedProposal, SceneChoice
from ...text import one_line
from .memory import ADDED_KINDS, ExperienceMemory, Kind, Proposal
from .samples import Sample

ProposalsById = Mapping[str, Proposal]
"""Proposals under review, by the ids under which reviewers see them: r1, r2, ..."""

Verdicts = Mapping[str, bool]
"""Whether proposals pass a review, by their ids; one without a clear verdict is missing."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class PracticeResult:
    """What came of a round of practice on one sample, or of a part of the round."""

    proposals: tuple[Proposal, ...]
    """The proposals that passed; they have no ids yet."""
    counts: Counter[str]
    """How many proposals had which outcome, as `ExperienceMemory.counts` names it.

    "failed" is 1 if the answer of the trial or of the reflection could not be read.
    """

    @property
    def is_inconclusive(self) -> bool:
        """Whether the record has to be practised on again, because a model's answer was unreadable.

        This is so if the prediction or the reflection failed, or if no proposal passed and some
        could not be judged.
        """
        if self.counts["failed"]:
            return True
        return self.counts["malformed"] > 0 and not self.proposals


@dataclass(frozen=True)
class Verdict:
    """What one reviewer says about one proposal."""

    proposal_id: str
    """The id as the reviewer wrote it, perhaps in brackets."""
    passes: bool | None
    """Whether the proposal passes; None if the reviewer is not clear."""


def usable_proposal(
    draft: DraftProposal,
    memory: ExperienceMemory,
    sample: Sample,
    disabled_kinds: Collection[Kind],
) -> Proposal | None:
    """Return a model's draft as a proposal; None if it could never be carried out.

    A draft that adds an entry needs a kind that is switched on. A draft that modifies or removes an
    entry needs an entry that exists. All but removals need a text.

    Args:
        draft: The draft, as a model wrote it.
        memory: Holds the entries that a draft may change.
        sample: The record that was practised on; the proposal names it as its first source.
        disabled_kinds: Kinds of experience that are switched off.
    """
    target_id: str | None = None
    added_kind = ADDED_KINDS.get(draft.action)
    changes_an_entry = added_kind is None
    if changes_an_entry:
        target_id = draft.experience_id
        if memory.find_by_id(target_id) is None:
            return None
    elif added_kind in disabled_kinds:
        return None

    content = _text_or_empty(draft.content)
    if not content and draft.action != "remove":
        return None

    return Proposal(
        id="",
        action=draft.action,
        target=target_id,
        trigger=_text_or_empty(draft.trigger),
        content=content,
        sources=_sources_of_draft(draft, sample),
    )


def _text_or_empty(text: str) -> str:
    """Return a text on one line; "" if it is "null" or the like."""
    return "" if is_null_like(text) else one_line(text)


def _sources_of_draft(draft: DraftProposal, sample: Sample) -> tuple[str, ...]:
    """Return the id of the practised record, and the ids of other records that a draft cites.

    Records that the model was not shown are left out: it cannot have learnt from them.
    """
    shown_ids = sample.shown_ids
    source_ids = [sample.target.id]
    for cited_id in draft.record_ids:
        record_id = without_brackets(cited_id)
        if record_id in shown_ids:
            source_ids.append(record_id)
    return tuple(dict.fromkeys(source_ids))


def without_brackets(shown_id: str) -> str:
    """Return an id without the brackets in which prompts show it: `a1` for `[a1]`."""
    return shown_id.strip("[]() ")


def number_proposals(proposals: Sequence[Proposal]) -> dict[str, Proposal]:
    """Return proposals by the ids that reviewers see: r1, r2, ..."""
    return {f"r{number}": proposal for number, proposal in enumerate(proposals, 1)}


def shown_to_reviewers(proposals: ProposalsById) -> list[ReviewedProposal]:
    """Return proposals in the form in which reviewers see them."""
    return [
        ReviewedProposal(proposal=proposal_id, content=proposal.text())
        for proposal_id, proposal in proposals.items()
    ]


def clear_verdicts(verdicts: Iterable[Verdict], proposals: ProposalsById) -> dict[str, bool]:
    """Return whether proposals pass, by id, for those on which a reviewer's answer is clear.

    It is not clear if the reviewer gives several verdicts on one proposal that differ, or one that
    could not be read. Ids of unknown proposals are ignored.
    """
    values_by_id: dict[str, set[bool | None]] = {}
    for verdict in verdicts:
        proposal_id = without_brackets(verdict.proposal_id)
        values_by_id.setdefault(proposal_id, set()).add(verdict.passes)

    clear_values: dict[str, bool] = {}
    for proposal_id, values in values_by_id.items():
        if proposal_id not in proposals:
            continue
        if values == {True}:
            clear_values[proposal_id] = True
        elif values == {False}:
            clear_values[proposal_id] = False
    return clear_values


def passing_proposals(proposals: ProposalsById, verdicts: Verdicts) -> dict[str, Proposal]:
    """Return the proposals that pass a review, by id; a proposal without a verdict does not."""
    passing: dict[str, Proposal] = {}
    for proposal_id, proposal in proposals.items():
        passes = verdicts.get(proposal_id, False)
        if passes:
            passing[proposal_id] = proposal
    return passing


def count_rejections(proposals: ProposalsById, verdicts: Verdicts, reason: str) -> Counter[str]:
    """Count the proposals that do not pass a review.

    Args:
        proposals: The proposals under review, by id.
        verdicts: Whether they pass; a proposal without a verdict counts as "malformed".
        reason: What a proposal that fails by its verdict counts as.
    """
    counts: Counter[str] = Counter()
    for proposal_id in proposals:
        if proposal_id not in verdicts:
            counts["malformed"] += 1
        elif not verdicts[proposal_id]:
            counts[reason] += 1
    return counts


def scene_verdict(choice: SceneChoice, letters: Collection[str], true_letter: str) -> Verdict:
    """Return the verdict on a proposal that follows from the scene a reviewer picked for it.

    A proposal passes unless the reviewer picked the true scene: then it describes that scene alone
    (Eq. 7). It also passes if it fits no scene better than others, which the paper does not offer.

    Args:
        choice: The proposal, and the letter of the scene that was picked for it, or `NO_SCENE`.
        letters: Letters of all scenes that the reviewer was shown.
        true_letter: The letter of the true scene.
    """
    picked_letter = choice.situation
    is_readable = picked_letter == NO_SCENE or picked_letter in letters
    if not is_readable:
        return Verdict(choice.proposal, passes=None)
    return Verdict(choice.proposal, passes=picked_letter != true_letter)


def lettered_scenes(scenes: Sequence[str]) -> str:
    """Return scenes as prompts list them, one a line: "A. video; a clip of a concert"."""
    lines = [f"{scene_letter(position)}. {scene}" for position, scene in enumerate(scenes)]
    return "\n".join(lines)


def scene_letter(position: int) -> str:
    """Return the letter of a scene in a list, for positions from 0: A to Z, then AA, AB, ..."""
    if position < len(_LETTERS):
        return _LETTERS[position]
    # As in the columns of a spreadsheet: what precedes the last letter counts from A again.
    prefix = scene_letter(position // len(_LETTERS) - 1)
    last_letter = _LETTERS[position % len(_LETTERS)]
    return prefix + last_letter
