"""Prompts of PraMem: predict with experience, reflect on a practised prediction, review proposals, adjust by consensus.

Source: PraMem, Figures 7 to 11; every rule and field in our own words. The paper's "calibration" experience is the
alert here, as in its text. `PractiseAtOnce` and `ProposeAtOnce` stand in for the first two where Table 2 takes the deep
thinking or the reflection away. Ids, supporters and the pool are code's business: no prompt copies a proposal back.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import Shown

ProposedAction = Literal["add pattern", "add alert", "modify", "remove"]
Adjustment = Literal["add pattern", "add alert", "modify", "remove", "downgrade"]
Verdict = Literal["right", "wrong", "right by accident"]
_SITUATION = (
    "where the user is now; what the user does is to be predicted, by the questions below it where there are any"
)
_PRACTISED = (
    "the situation and what the user really did: [id] situation => action; below it what was asked: what the action "
    "does not tell has the answer No"
)

_PREDICTED = "a numbered line for each thing asked; where nothing is asked, what the user does, as records tell it"


def _plain_action(value: Any) -> Any:
    """The name of an action as the types spell it, from other spellings of it."""
    if not isinstance(value, str):
        return value
    lower = " ".join(value.lower().replace("_", " ").split())
    if lower.startswith("add ") and lower.endswith(("calibration", "bias-alert", "alert experience")):
        return "add alert"
    begins = {"add pattern": "add pattern", "add alert": "add alert"}
    first = {"modify": "modify", "remove": "remove", "delete": "remove", "downgrade": "downgrade"}
    found = next((name for start, name in begins.items() if lower.startswith(start)), None)
    return found or first.get(lower.split(" ")[0] if lower else "", lower)


class KnownExperience(BaseModel):
    """An entry of the experience as prompts show it."""

    experience_id: str
    text: str


class PractiseWithExperience(dspy.Signature):
    """Predict what this user does in a situation, as an exercise, from the records before it and from experience.

    There are two kinds of experience. Patterns tell of this user: preferences and habits. Alerts tell of me, the model:
    mistakes I tend to make about this user, points I overlook, what to mind while I reason.

    Two steps come before the prediction:
    1. Name the patterns that bear on the situation, and what this user tends to do in such situations.
    2. Name the alerts that bear on it, and what I have to mind in my reasoning.
    Then reason from both and from the records, and predict. Where several things are asked, take them one by one in
    their order: a numbered line for each. What records do not tell did not happen: their answer to it is No.
    """

    patterns: list[str] = dspy.InputField(desc="what is known of this user's ways; may be empty")
    alerts: list[str] = dspy.InputField(desc="what I have to mind about this user; may be empty")
    recent_records: str = dspy.InputField(
        desc="the user's records before the situation, one per line, oldest first: situation => what the user did"
    )
    situation: str = dspy.InputField(desc=_SITUATION)
    useful_patterns: list[str] = dspy.OutputField(
        desc="the patterns that bear on it, with the tendency they tell", default_factory=list
    )
    useful_alerts: list[str] = dspy.OutputField(
        desc="the alerts that bear on it, with what to mind", default_factory=list
    )
    reasoning: str = dspy.OutputField(desc="what follows from these and from the records", default="")
    predicted_action: str = dspy.OutputField(desc=_PREDICTED)


class PractiseAtOnce(dspy.Signature):
    """Predict what this user does in a situation from the records before it and from experience, without deliberation.

    Patterns tell of this user: preferences and habits. Alerts tell of me, the model: mistakes I tend to make about
    this user, and what to mind. Where several things are asked, take them one by one in their order: a numbered line
    for each. What records do not tell did not happen: their answer to it is No.
    """

    patterns: list[str] = dspy.InputField(desc="what is known of this user's ways; may be empty")
    alerts: list[str] = dspy.InputField(desc="what I have to mind about this user; may be empty")
    recent_records: str = dspy.InputField(
        desc="the user's records before the situation, one per line, oldest first: situation => what the user did"
    )
    situation: str = dspy.InputField(desc=_SITUATION)
    predicted_action: str = dspy.OutputField(desc=_PREDICTED)


class PredictWithExperience(dspy.Signature):
    """Predict what this user does in the situation that the question describes, from records and from experience.

    - The records tell what the user did before, oldest first. A reaction that is not told there did not take place.
    - Patterns tell of this user: preferences and habits that long practice on older records has found.
    - Alerts tell of me, the model: mistakes I tend to make about this user, and what to mind while I reason.

    Two steps come before the answer:
    1. Name the patterns that bear on the situation, and what this user tends to do in such situations.
    2. Name the alerts that bear on it, and what I have to mind in my reasoning.
    Then reason from both and from the records. Where there are options, the answer is one of them, word for word, and
    nothing else.
    """

    patterns: list[str] = dspy.InputField(desc="what is known of this user's ways; may be empty")
    alerts: list[str] = dspy.InputField(desc="what I have to mind about this user; may be empty")
    records: str = dspy.InputField(desc="the user's latest records, one per line, oldest first; may be empty")
    question: str = dspy.InputField(desc="the situation, and what is asked about it")
    options: list[str] = dspy.InputField(desc="the answers there are; empty where the answer is free")
    relevant_patterns: list[str] = dspy.OutputField(
        desc="the patterns that bear on it, with the tendency they tell", default_factory=list
    )
    relevant_alerts: list[str] = dspy.OutputField(
        desc="the alerts that bear on it, with what to mind", default_factory=list
    )
    reasoning: str = dspy.OutputField(desc="what follows from these and from the records", default="")
    answer: str = dspy.OutputField(desc="one of the options, exactly as it is written there")


def _verdict(value: Any) -> Any:
    named = {"correct": "right", "incorrect": "wrong", "deviation": "wrong", "incorrect/deviation": "wrong"}
    lower = " ".join(value.lower().split()) if isinstance(value, str) else value
    return named.get(lower, lower)


class PractisedTask(BaseModel):
    """What reflection says of one thing that was predicted."""

    task: str = Field(default="", description="what was predicted")
    verdict: Annotated[Verdict, BeforeValidator(_verdict)] = Field(
        description="right by accident: the outcome fits, the experience relied on was flawed"
    )
    analysis: str = Field(default="", description="what the success or the failure shows about the experience")


class DraftProposal(BaseModel):
    """One proposed change of the experience."""

    trigger: str = Field(default="", description="the kind of situation in which it applies, in a few words")
    action: Annotated[ProposedAction, BeforeValidator(_plain_action)]
    experience_id: Annotated[str | None, Shown("pattern_experiences", "alert_experiences")] = Field(
        default=None, description="the entry to modify or remove; null for a new one"
    )
    content: str = Field(default="", description="what the entry shall say, or why it should go")
    record_ids: Annotated[list[str], Shown("recent_records", "practised_record")] = Field(
        default=[], description="ids of records that show it, as they stand in brackets"
    )


class ReflectOnPractice(dspy.Signature):
    """Reflect strictly on a prediction you made as an exercise, and propose how to revise the experience you used.

    You practise on this user's records before predicting in earnest: predict, compare with what the user did, propose
    revisions; every few rounds the proposals that several rounds support become experience. A proposal must survive two
    checks first: it really depends on the records, and it holds for more than this one situation.

    Two kinds of experience:
    - Patterns have this user as their subject: "This user watches outdoor streams to the end." A reminder to the model
      ("check for outdoor scenes") is no pattern.
    - Alerts have me, the model, as their subject: "I overestimate how often this user buys from streams", "I must mind
      the time of day with emotional videos." A trait of the user is no alert.

    First judge every task: right, wrong (also when it clearly deviates), or right by accident. Analyse each one, also
    those that went right:
    - right: does it reveal a new pattern of the user, or something about my reasoning? Which entries carried it, and
      might be strengthened? Was it luck, since what I relied on was flawed? Then that entry needs revision.
    - wrong: was a pattern inaccurate or incomplete? Was an alert missing, so that I left something out or leaned to one
      side? Did entries contradict each other, or not fit this situation?

    Then propose, for any of the tasks. Every proposal must be
    1. of the right kind: a pattern or an alert, never mixed up;
    2. usable: it needs nothing that is hidden at prediction, such as the user's identity or live statistics;
    3. judgeable: its condition can be read off the description of a situation, without inference;
    4. free of false precision: no numbers without statistics behind them ("factor 0.1"); say "clearly longer",
       "slightly more often";
    5. general: it holds for similar situations, and is no note of a single event;
    6. in the language of the records.
    An empty list means that nothing needs revision. Propose no more than `most` changes.
    """

    practised_record: str = dspy.InputField(desc=_PRACTISED)
    recent_records: str = dspy.InputField(desc="the records before it, one per line, oldest first")
    pattern_experiences: list[KnownExperience] = dspy.InputField(desc="the patterns that you were given")
    alert_experiences: list[KnownExperience] = dspy.InputField(desc="the alerts that you were given")
    thinking: str = dspy.InputField(desc="how you reasoned")
    predicted_action: str = dspy.InputField(desc="what you predicted")
    most: int = dspy.InputField(desc="the most proposals")
    tasks: list[PractisedTask] = dspy.OutputField(
        desc="one entry for each thing that was predicted", default_factory=list
    )
    proposals: list[DraftProposal] = dspy.OutputField(desc="the proposed changes, the most important ones first")


class ProposeAtOnce(dspy.Signature):
    """Compare a prediction about a user with what the user did, and propose changes of the experience right away.

    Patterns have this user as their subject, alerts have me, the model. Every proposal is of the right kind, needs
    nothing that is hidden at prediction, has a condition that can be read off a situation, claims no number without
    statistics behind it, holds for similar situations, and is in the language of the records. Propose no more than
    `most` changes.
    """

    practised_record: str = dspy.InputField(desc=_PRACTISED)
    recent_records: str = dspy.InputField(desc="the records before it, one per line, oldest first")
    pattern_experiences: list[KnownExperience] = dspy.InputField(desc="the patterns that you were given")
    alert_experiences: list[KnownExperience] = dspy.InputField(desc="the alerts that you were given")
    predicted_action: str = dspy.InputField(desc="what you predicted")
    most: int = dspy.InputField(desc="the most proposals")
    proposals: list[DraftProposal] = dspy.OutputField(desc="the proposed changes, the most important ones first")


class PooledProposal(BaseModel):
    """A proposal of the pool as prompts show it."""

    proposal: str = Field(description="its id")
    record: str = Field(description="the record that it was practised on")
    action: ProposedAction
    experience_id: str | None = None
    trigger: str = ""
    content: str


class ExperienceChange(BaseModel):
    """One change of the experience, with the proposals that support it."""

    action: Annotated[Adjustment, BeforeValidator(_plain_action)]
    experience_id: Annotated[str | None, Shown("pattern_experiences", "alert_experiences")] = Field(
        default=None, description="the entry that changes; null for a new one"
    )
    text: str = Field(default="", description="what the entry shall say; empty to remove or downgrade it")
    proposal_ids: Annotated[list[str], Shown("proposal_pool.proposal", new=True)] = Field(
        default=[], description="ids of every proposal that supports the change"
    )


class AdjustExperience(dspy.Signature):
    """Review the pool of proposals, and change the experience with care where several of them agree.

    Patterns have this user as their subject; alerts have me, the model, while I reason about this user.

    Step 1: group the proposals by what they say; those of one group express the same view.
    Step 2: go through every group and skip none of these rules:
    - A view that `needed` or more proposals support may become an entry, or modify one.
    - A view that fewer support stays in the pool and changes nothing.
    - An entry that `needed` or more proposals call into question is modified, removed, or downgraded to the pool.
    - An entry that fewer call into question stays as it is.
    - If `distinct_records` is true, proposals with the same `record` count as one.
    The pool is no list of things to do. It holds views under observation: after most reviews most of it stays there.
    Step 3: before a text becomes an entry, make sure that it is
    1. of the right kind: patterns describe the user, alerts what to mind in reasoning;
    2. usable: it needs nothing that is hidden at prediction;
    3. judgeable: its condition can be read off the input;
    4. free of false precision: words of degree in place of numbers without statistics;
    5. general: it holds for similar situations, and is no note of a single event;
    6. in the language of the proposals.

    First say in words which groups are adopted, by the ids of their proposals, and which entries change. Then list the
    changes, each with the ids of all proposals that support it; a proposal supports one change. What is in no
    change stays as it is, word for word, and need not be repeated.
    """

    proposal_pool: list[PooledProposal] = dspy.InputField(desc="the proposals so far, oldest first")
    pattern_experiences: list[KnownExperience] = dspy.InputField(desc="the patterns as they are")
    alert_experiences: list[KnownExperience] = dspy.InputField(desc="the alerts as they are")
    needed: int = dspy.InputField(desc="how many proposals a change needs")
    distinct_records: bool = dspy.InputField(desc="whether these must come from as many records")
    decisions: str = dspy.OutputField(desc="what is adopted, modified, removed or downgraded, and why", default="")
    changes: list[ExperienceChange] = dspy.OutputField(desc="the changes; empty if no view has enough support")


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
