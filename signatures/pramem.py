"""Prompts of PraMem: predict with experience, reflect on a practised prediction, adjust the experience by consensus.

Source: PraMem, Figures 7 to 9; every rule and field in our own words, `docs/coverage.md` maps rule by rule. The prompts
of the self-review (Figures 10 and 11) are in `pramem_review.py`. The paper's "calibration" experience is the alert
here, as in its text. `PredictAtOnce` and `ProposeAtOnce` stand in for the first two where Table 2 takes the deep
thinking or the reflection away.

Limits: ids, supporters and the pool are code's business (`adjustment`); no prompt copies a proposal back.
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
    their order, each on a line of its own. What records do not tell did not happen: their answer to it is No.
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
    predicted_action: str = dspy.OutputField(desc="what the user does, in the words in which records tell it")


class PractiseAtOnce(dspy.Signature):
    """Predict what this user does in a situation from the records before it and from experience, without deliberation.

    Patterns tell of this user: preferences and habits. Alerts tell of me, the model: mistakes I tend to make about
    this user, and what to mind. Where several things are asked, take them one by one in their order. What records do
    not tell did not happen: their answer to it is No.
    """

    patterns: list[str] = dspy.InputField(desc="what is known of this user's ways; may be empty")
    alerts: list[str] = dspy.InputField(desc="what I have to mind about this user; may be empty")
    recent_records: str = dspy.InputField(
        desc="the user's records before the situation, one per line, oldest first: situation => what the user did"
    )
    situation: str = dspy.InputField(desc=_SITUATION)
    predicted_action: str = dspy.OutputField(desc="what the user does, in the words in which records tell it")


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
    5. general: it holds for similar situations, and is no note of a single event.
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
    statistics behind it, and holds for similar situations. Propose no more than `most` changes.
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
    5. general: it holds for similar situations, and is no note of a single event.

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


def listed(value: Any) -> Any:
    """A list, from a list, a lone value or nothing."""
    return [] if value is None else value if isinstance(value, list) else [value]
