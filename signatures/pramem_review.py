"""Prompts of PraMem's self-review: does a proposal depend on the records, and does it hold beyond one situation?

    records ── PlanPerturbations ──> plan ── JudgeGroundedness ──> depends on the records?      (Figure 10)
    situation ── WriteScenes ──> scenes ── JudgeGenerality ──> more than this one situation?     (Figure 11)

As printed, a perturbation is described and not carried out, and the judge of generality knows which scene is real; the
paper's equations 6 and 7 say more. Wording ours; `docs/coverage.md` maps rule by rule.
"""

from __future__ import annotations

from typing import Annotated, Any

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import Shown

_YES = {"true", "yes", "sensitive", "pass", "passed"}
_NO = {"false", "no", "insensitive", "fail", "failed"}


def _clear_bool(value: Any) -> Any:
    """A bool where one is clearly meant, else None: an unclear verdict is a missing one."""
    if isinstance(value, bool):
        return value
    said = value.strip().lower() if isinstance(value, str) else value
    return True if said in _YES else False if said in _NO else None


Clear = Annotated[bool | None, BeforeValidator(_clear_bool)]


class ReviewedProposal(BaseModel):
    """A proposal as reviewers see it."""

    proposal: str = Field(description="its id")
    content: str


class Perturbation(BaseModel):
    """A way to turn the records around."""

    direction: str = Field(description="what the perturbation turns into what, as one theme")
    details: str = Field(
        default="", description="which reactions of these records change and how, with examples before and after"
    )


class PlanPerturbations(dspy.Signature):
    """Design strong perturbations of a user's records, to test whether conclusions really depend on the records.

    A perturbation changes what the user did, so that the records tell of wholly different preferences:
    - It is drastic: no adjustments of detail, but reversals. The user before and after must differ clearly.
    - It is broad: it covers all records or nearly all, and shifts what they say as a whole.
    - It has one clear direction. For example: everything active or positive (clicks, likes, purchases) becomes passive
      or negative (skipped, ignored); every intense reaction becomes none; every purchase is given up, every like
      becomes a report or a "not interested".
    Ask yourself of each plan: would somebody who saw only the perturbed records judge this user quite differently? If
    not, make it stronger. Describe the plan; do not write the perturbed records out.
    """

    recent_records: str = dspy.InputField(
        desc="records, one per line, oldest first: [id] situation => what the user did"
    )
    count: int = dspy.InputField(desc="how many plans")
    plans: list[Perturbation] = dspy.OutputField(desc="the plans, as many as asked for")


class GroundednessVerdict(BaseModel):
    """Whether a proposal falls with the records it came from."""

    proposal: Annotated[str, Shown("proposals")] = Field(description="id of the proposal")
    sensitive: Clear = Field(description="true if it would no longer hold; false if it would hold all the same")
    reason: str = Field(default="", description="which records carry it, or why it is independent of them")


class JudgeGroundedness(dspy.Signature):
    """Tell which proposals really rest on the user's records, and which the model has made up.

    A perturbation of the records is described below; it is not carried out. Think it through for each proposal:
    - it would no longer hold: it depends on what these records say, and is well grounded;
    - it would hold all the same: it has nothing to do with them, and was made up.

    First picture the user whom the perturbed records would show: which preferences would be clearly different? Then
    judge the proposals one by one: was it drawn from particular features of the real records, or is it a
    general claim? If the perturbed user contradicts what it says, it is sensitive; if the perturbed user is compatible
    with it, it is not. Every proposal gets exactly one verdict, under its id.
    """

    proposals: list[ReviewedProposal] = dspy.InputField(desc="the proposals to judge")
    recent_records: str = dspy.InputField(desc="the real records, one per line, oldest first")
    direction: str = dspy.InputField(desc="the direction of the perturbation")
    details: str = dspy.InputField(desc="what it changes, and how")
    groundedness: list[GroundednessVerdict] = dspy.OutputField(desc="one verdict per proposal")


class WriteScenes(dspy.Signature):
    """Write situations of the same type as a real one, to test whether a proposal holds for more than the real one.

    - They belong to the same broad category: a shop, an advertisement, a stream, a video.
    - The key entities (names, categories, branches, what is asked) are replaced by others of the same type.
    - Structure and format stay as they are; fixed phrases and the wording of questions are not touched.
    - They differ clearly from one another.
    Each is complete: all its details, and what is asked.
    """

    situation: str = dspy.InputField(desc="the real situation")
    count: int = dspy.InputField(desc="how many to write")
    virtual_scenes: list[str] = dspy.OutputField(desc="the situations, each in full")


class GeneralityVerdict(BaseModel):
    """Whether a proposal is more than a description of one situation."""

    proposal: Annotated[str, Shown("proposals")] = Field(description="id of the proposal")
    general: Clear = Field(description="false if the proposal alone singles the real situation out, else true")
    reason: str = Field(default="")


class JudgeGenerality(dspy.Signature):
    """Tell which proposals hold for situations of a type, and which are bound to a single one.

    Situation A is the real one that the proposals came from; the others are made up and of the same type. A
    proposal from which alone A can be singled out is too specific, and fails. A proposal that tells a general
    pattern does not say which of the situations it came from, and passes.

    First note what tells the situations apart: their key entities and features. Then judge the proposals one by one.
    Every proposal gets exactly one verdict, under its id.
    """

    proposals: list[ReviewedProposal] = dspy.InputField(desc="the proposals to judge")
    candidates: str = dspy.InputField(desc="the situations, each after its letter; A is the real one")
    generality: list[GeneralityVerdict] = dspy.OutputField(desc="one verdict per proposal")
