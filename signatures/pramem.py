"""The prompts of PraMem, in the order in which the method asks them.

Source: PraMem, Figures 7 to 11. Every rule and field is carried over in our own words. What the
paper's figures call "calibration" experience is the alert here, as in its text.

- In each round of practice: `PractiseWithExperience` predicts a record (Figure 7), and
  `ReflectOnPractice` compares the prediction with what happened and proposes changes (Figure 8).
  Where Table 2 takes the deep thinking or the reflection away, `PractiseAtOnce` and `ProposeAtOnce`
  stand in for them.
- Then the proposals are reviewed. Do they rest on the records? `PlanPerturbations`,
  `JudgeGroundedness` (Figure 10). Do they hold for more than one situation? `WriteScenes`, and
  then `SelectScene`, the default, which is not told which scene is the true one; or
  `JudgeGenerality` (Figure 11), which is told.
- Every few rounds: `AdjustExperience` makes the changes that enough proposals support (Figure 9).
- For each question: `PredictWithExperience` (Figure 7).

Code keeps the ids, the supporters and the pool, so no prompt asks for a copy of a proposal. Most
instructions begin with `BACKGROUND`. These classes set `__doc__`, which is what a model reads; the
docstring above it is for readers of the code.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

ProposedAction = Literal["add pattern", "add alert", "modify", "remove"]
"""What a reflection may propose (Figure 8)."""

Adjustment = Literal["add pattern", "add alert", "modify", "downgrade"]
"""What an adjustment may do (Figure 9): an entry is never deleted, it goes back to the pool."""

Verdict = Literal["right", "wrong", "right by accident"]
"""How a prediction went (Figure 8)."""

_VERDICT_SYNONYMS = {
    "correct": "right",
    "incorrect": "wrong",
    "deviation": "wrong",
    "incorrect/deviation": "wrong",
}

_ACTION_PHRASES = (
    # The paper calls an alert "calibration" experience in its figures and "bias-alert" experience
    # in its text. A model may use either word.
    (r"add .*(?:calibration|bias-alert|alert experience)", "add alert"),
    # A model may write more than the name: "Add pattern experience", "Remove Existing Experience".
    (r"add pattern.*", "add pattern"),
    (r"add alert.*", "add alert"),
    (r"modify(?: .*)?", "modify"),
    (r"remove(?: .*)?", "remove"),
    (r"delete(?: .*)?", "remove"),
    (r"downgrade(?: .*)?", "downgrade"),
)
"""Phrases for actions, as patterns in lower case, and the actions. The first that fits counts."""

_WORDS_FOR_TRUE = ("true", "yes", "sensitive", "pass", "passed")
_WORDS_FOR_FALSE = ("false", "no", "insensitive", "fail", "failed")

NO_SCENE = "several"
"""The choice for a proposal that singles out no situation. "none" would be read as no answer."""

_LONGEST_LETTER = 2
"""The most characters that the letter of a situation has: AA comes after Z."""


def _parse_action(value: object) -> object:
    """Return the action that a phrase means, as `ProposedAction` and `Adjustment` spell it.

    "Remove_Existing_Experience" is "remove". Another value is returned as it is, apart from blanks
    and letter case, and pydantic refuses it.
    """
    if not isinstance(value, str):
        return value

    words = value.lower().replace("_", " ").split()
    phrase = " ".join(words)
    for pattern, action in _ACTION_PHRASES:
        if re.fullmatch(pattern, phrase):
            return action
    return phrase


def _parse_adjustment(value: object) -> object:
    """Return the name of an adjustment; to remove an entry is to downgrade it."""
    action = _parse_action(value)
    return "downgrade" if action == "remove" else action


def _parse_verdict(value: object) -> object:
    """Return a verdict as `Verdict` spells it; pydantic refuses other words."""
    if not isinstance(value, str):
        return value
    verdict = " ".join(value.lower().split())
    return _VERDICT_SYNONYMS.get(verdict, verdict)


def _parse_bool(value: object) -> bool | None:
    """Return true or false where one is clearly meant, else None."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None

    word = value.strip().lower()
    if word in _WORDS_FOR_TRUE:
        return True
    if word in _WORDS_FOR_FALSE:
        return False
    return None


def _parse_scene_letter(value: object) -> str | None:
    """Return the letter of a situation, NO_SCENE for no situation, or None if neither is clear."""
    if not isinstance(value, str):
        return None

    letter = value.strip().strip("[]().:\"'").casefold().removeprefix("situation ").strip()
    if letter == NO_SCENE:
        return NO_SCENE
    if letter.isascii() and letter.isalpha() and len(letter) <= _LONGEST_LETTER:
        return letter.upper()
    return None


OptionalBool = Annotated[bool | None, BeforeValidator(_parse_bool)]
"""A verdict; None is an unclear one, which counts as missing."""


class KnownExperience(BaseModel):
    """An entry of the experience as prompts show it."""

    experience_id: str = Field(description="its id")
    text: str = Field(description="the pattern or the alert")


class PractisedTask(BaseModel):
    """How one prediction went."""

    task: str = Field(default="", description="the question; without questions, what was predicted")
    verdict: Annotated[Verdict, BeforeValidator(_parse_verdict)] = Field(
        description="right by accident: the prediction is right, but the entries it relied on were "
        "flawed"
    )
    analysis: str = Field(
        default="", description="what the success or the failure shows about the experience"
    )


class DraftProposal(BaseModel):
    """One proposed change to the experience."""

    trigger: str = Field(
        default="", description="the kind of situation in which the entry applies, in a few words"
    )
    action: Annotated[ProposedAction, BeforeValidator(_parse_action)] = Field(
        description="whether to add a pattern or an alert, or to modify or remove an entry"
    )
    experience_id: Annotated[str | None, IdFrom("pattern_experiences", "alert_experiences")] = (
        Field(default=None, description="the entry to modify or remove; null for a new entry")
    )
    content: str = Field(
        default="", description="the text of the new or modified entry; for a removal, the reason"
    )
    record_ids: Annotated[list[str], IdFrom("recent_records", "practised_record")] = Field(
        default=[], description="ids of the records that support the proposal, without the brackets"
    )


class ReviewedProposal(BaseModel):
    """A proposal as reviewers see it."""

    proposal: str = Field(description="its id")
    content: str = Field(description="when it applies, its action and its text")


class Perturbation(BaseModel):
    """A plan for altering the records so that they show different reactions."""

    direction: str = Field(
        description="the direction of the change in one sentence: what becomes what"
    )
    details: str = Field(
        default="",
        description="which reactions in these records change and how, with examples before and "
        "after",
    )


class GroundednessVerdict(BaseModel):
    """Whether a proposal depends on the records."""

    proposal: Annotated[str, IdFrom("proposals")] = Field(description="id of the proposal")
    sensitive: OptionalBool = Field(
        description="true if the proposal would no longer hold with the changed records; false if "
        "it still would; null if you cannot decide"
    )
    reason: str = Field(
        default="", description="which records support it, or why it does not depend on them"
    )


class GeneralityVerdict(BaseModel):
    """Whether a proposal holds for more than one situation."""

    proposal: Annotated[str, IdFrom("proposals")] = Field(description="id of the proposal")
    general: OptionalBool = Field(
        description="false if the proposal alone singles out the real situation, else true; null "
        "if you cannot decide"
    )
    reason: str = Field(default="", description="why, in a few words")


class SceneChoice(BaseModel):
    """The situation that a proposal singles out."""

    proposal: Annotated[str, IdFrom("proposals")] = Field(description="id of the proposal")
    situation: Annotated[str | None, BeforeValidator(_parse_scene_letter)] = Field(
        description='the letter, or "several" if it fits more than one or none in particular; '
        "never null"
    )
    reason: str = Field(default="", description="why, in a few words")


class PooledProposal(BaseModel):
    """A proposal of the pool as prompts show it."""

    proposal: str = Field(description="its id")
    record: str = Field(description="id of the record it came from")
    action: ProposedAction = Field(description="what it proposes")
    experience_id: str | None = Field(
        default=None, description="the entry to modify or remove; null for a new entry"
    )
    trigger: str = Field(default="", description="the kind of situation in which the entry applies")
    content: str = Field(
        description="the text of the new or modified entry; for a removal, the reason"
    )


class ExperienceChange(BaseModel):
    """One change to the experience, with the proposals that support it."""

    action: Annotated[Adjustment, BeforeValidator(_parse_adjustment)] = Field(
        description="whether to add a pattern or an alert, or to modify or downgrade an entry"
    )
    experience_id: Annotated[str | None, IdFrom("pattern_experiences", "alert_experiences")] = (
        Field(default=None, description="the entry that changes; null for a new entry")
    )
    text: str = Field(
        default="", description="the new text of the entry; empty if the entry is downgraded"
    )
    proposal_ids: Annotated[list[str], IdFrom("proposal_pool.proposal", allow_new=True)] = Field(
        default=[], description="ids of all proposals that support the change"
    )


BACKGROUND = """We want to predict what one user will do. There are hundreds of records of this user. Each record
describes a situation and what the user did in it. The final aim is to predict what the user does in a new situation.

To prepare for that, you practise on past records for which we know what the user did. Practice builds up two kinds of
experience:
- Patterns describe the user: preferences and habits.
- Alerts describe you, the model: mistakes that you tend to make about this user, and what you must watch out for. They
  are written from your point of view: "I tend to ..."
Each pattern or alert is one entry of the experience.

In each round of practice you predict the outcome of a record, compare it with what the user really did, and propose
changes to the experience. Reviews let a proposal pass only if it rests on the user's records and holds for more than
one situation. Every few rounds, a change is made if several proposals support it."""
"""What every prompt of practice begins with (Figures 8 to 11)."""

_QUALITY_RULES = """1. Of the right kind. A pattern describes the user; an alert describes a mistake that you tend to make.
2. Usable. It needs nothing that is unknown at the time of prediction, such as the user's name, or figures that change
   constantly, such as current view counts.
3. Checkable. The description of a situation shows directly, without inference, whether the entry applies.
4. Not falsely precise. It contains a number only if statistics support it (so not "by a factor of 0.1"). Words of
   degree are fine: "clearly longer", "slightly more often".
5. General. It holds for similar situations and is not a note about a single event."""

_PREDICTION_RULES = """If there are questions below the situation, answer them one by one, in their order, on numbered
lines. If there are none, write down what the user does, in the style of the records.

A record mentions every reaction of the user in its situation; what is not mentioned did not happen. So answer No to a
question if you expect that the user does not react in that way."""

_PATTERNS = "what is known about the user's preferences and habits; may be empty"
_ALERTS = "mistakes that you tend to make about this user; may be empty"

_RECORD_LINES = (
    "one per line, oldest first: [id] (time) user: kind of situation; situation => what the user "
    "did; lines about the user's profile may come first"
)

_RECORDS_BEFORE = f"the user's records before the situation, {_RECORD_LINES}"

_SITUATION = (
    "the situation whose outcome you must predict; questions about it may follow on numbered lines"
)

_PRACTISED_RECORD = (
    "the situation and, after the arrow, what the user really did; below it the questions about "
    "it, if there are any: the answer is No for whatever the record does not mention"
)

_PREDICTED_ACTION = (
    "one numbered answer for each question; without questions, what the user does, in the style of "
    "the records"
)

_REVIEWED_PROPOSALS = (
    "the proposals to judge, each in the form: when it applies | action | text (for a removal, the "
    "reason); the first part may be missing"
)

_MAX_PROPOSALS = "the maximum number of proposals"

_USEFUL_PATTERNS = (
    "the patterns that bear on the situation and, for each, what it says about the user"
)

_USEFUL_ALERTS = "the alerts that bear on the situation and, for each, what to watch out for"
_REASONING = "what follows from both lists and from the records"
_OPTION_OR_FREE = "if there are options, one of them, word for word; otherwise a short free answer"
_PROPOSALS = "the proposed changes, the most important first; empty if nothing needs to change"


class PractiseWithExperience(dspy.Signature):
    """Predict the outcome of a record in practice, step by step."""

    __doc__ = f"""{BACKGROUND}

Your task now is to predict the outcome of one record. You are given the experience so far, the records that came
before, and a situation. What the user did in this situation is hidden from you.

Work in this order:
1. List the patterns that bear on the situation. Say what each one says about how the user acts in such situations.
2. List the alerts that bear on the situation. Say what each one tells you to watch out for in your reasoning.
3. Reason from both lists and from the records.
4. Predict.

{_PREDICTION_RULES}"""

    patterns: list[str] = dspy.InputField(desc=_PATTERNS)
    alerts: list[str] = dspy.InputField(desc=_ALERTS)
    recent_records: str = dspy.InputField(desc=_RECORDS_BEFORE)
    situation: str = dspy.InputField(desc=_SITUATION)
    useful_patterns: list[str] = dspy.OutputField(desc=_USEFUL_PATTERNS, default_factory=list)
    useful_alerts: list[str] = dspy.OutputField(desc=_USEFUL_ALERTS, default_factory=list)
    reasoning: str = dspy.OutputField(desc=_REASONING, default="")
    predicted_action: str = dspy.OutputField(desc=_PREDICTED_ACTION)


class PractiseAtOnce(dspy.Signature):
    """Predict the outcome of a record in practice without reasoning first (Table 2)."""

    __doc__ = f"""{BACKGROUND}

Your task now is to predict the outcome of one record directly, without reasoning first. You are given the experience so
far, the records that came before, and a situation. What the user did in this situation is hidden from you.

{_PREDICTION_RULES}"""

    patterns: list[str] = dspy.InputField(desc=_PATTERNS)
    alerts: list[str] = dspy.InputField(desc=_ALERTS)
    recent_records: str = dspy.InputField(desc=_RECORDS_BEFORE)
    situation: str = dspy.InputField(desc=_SITUATION)
    predicted_action: str = dspy.OutputField(desc=_PREDICTED_ACTION)


class ReflectOnPractice(dspy.Signature):
    """Reflect on a practised prediction, and propose changes to the experience."""

    __doc__ = f"""{BACKGROUND}

Your task now is to reflect on a prediction that you have just made in practice, and to propose changes to the
experience. Be strict in your judgements. You are given the experience that you used, the records that came before the
situation, what the user really did in the situation, your thinking, and your prediction.

How entries are written:
- The subject of a pattern is the user: "This user skips long videos in the morning." Advice to the model is not a
  pattern: "Look at the length of the video first."
- The subject of an alert is you, and you write "I": "I tend to expect this user to buy more often than the records
  show." "I tend to forget that this user behaves differently at weekends." A trait of the user is not an alert: "This
  user rarely buys."

Step 1. Judge the prediction: make one judgement for each question, or one for the whole prediction if there are no
questions. A prediction is right, wrong, or right by accident. Count it as wrong if it clearly misses what happened. It
is right by accident if it fits what happened although the entries it relied on were flawed.

Step 2. Analyse every judgement, including those that went right.
- Right: Does it reveal a new pattern of the user, or something about your reasoning? Which entries led to it and could
  be made more precise (modify)? If it was right by accident, which entry needs revision?
- Wrong: Was a pattern inaccurate or incomplete? Was an alert missing, so that you overlooked something or were biased?
  Did entries contradict each other, or fail to fit this situation?

Step 3. Propose changes that follow from any of the judgements. A proposal adds a pattern, adds an alert, modifies
an entry or removes one. Make sure that every proposal is:
{_QUALITY_RULES}
Write proposals in the same language (such as English or Chinese) as the records. Make at most `max_proposals`
proposals."""

    pattern_experiences: list[KnownExperience] = dspy.InputField(
        desc="the patterns that you were given"
    )
    alert_experiences: list[KnownExperience] = dspy.InputField(
        desc="the alerts that you were given"
    )
    recent_records: str = dspy.InputField(desc=_RECORDS_BEFORE)
    practised_record: str = dspy.InputField(desc=_PRACTISED_RECORD)
    thinking: str = dspy.InputField(desc="how you reasoned before you predicted")
    predicted_action: str = dspy.InputField(desc="what you predicted")
    max_proposals: int = dspy.InputField(desc=_MAX_PROPOSALS)
    tasks: list[PractisedTask] = dspy.OutputField(
        desc="one judgement for each question, or one for the whole prediction if there are no "
        "questions",
        default_factory=list,
    )
    proposals: list[DraftProposal] = dspy.OutputField(desc=_PROPOSALS)


class ProposeAtOnce(dspy.Signature):
    """Propose changes to the experience from prediction and outcome alone (Table 2)."""

    __doc__ = f"""{BACKGROUND}

Your task now is to compare a prediction that you have just made in practice with what the user really did, and to
propose changes to the experience directly, without a separate analysis.

Begin a pattern with "This user ..." and an alert with "I tend to ..."

A proposal adds a pattern, adds an alert, modifies an entry or removes one. Make sure that every proposal is:
{_QUALITY_RULES}
Write proposals in the same language (such as English or Chinese) as the records. Make at most `max_proposals`
proposals."""

    pattern_experiences: list[KnownExperience] = dspy.InputField(
        desc="the patterns that you were given"
    )
    alert_experiences: list[KnownExperience] = dspy.InputField(
        desc="the alerts that you were given"
    )
    recent_records: str = dspy.InputField(desc=_RECORDS_BEFORE)
    practised_record: str = dspy.InputField(desc=_PRACTISED_RECORD)
    predicted_action: str = dspy.InputField(desc="what you predicted")
    max_proposals: int = dspy.InputField(desc=_MAX_PROPOSALS)
    proposals: list[DraftProposal] = dspy.OutputField(desc=_PROPOSALS)


class PlanPerturbations(dspy.Signature):
    """Plan how records could be turned around."""

    __doc__ = f"""{BACKGROUND}

Your task now is to plan strong perturbations of the user's records. A perturbation alters the reactions in the
records, so that the records show completely different preferences. Perturbations are used to test whether a proposal
really depends on the records. Every plan must be:
- Drastic. It reverses reactions instead of adjusting details. The user must look clearly different after the change.
- Broad. It changes all records, or nearly all, so that their overall message changes.
- Clear in its direction. For example: active and positive reactions (clicks, likes, purchases) become passive or
  negative ones (skipped, ignored); strong reactions disappear; purchases are abandoned, and likes become complaints
  or "not interested".

Check every plan: would somebody who sees the changed records judge this user very differently from somebody who sees
the real ones? If not, make the plan stronger.

Describe the plans. Do not rewrite the records; give a few examples only."""

    recent_records: str = dspy.InputField(desc=f"the user's records, {_RECORD_LINES}")
    count: int = dspy.InputField(desc="how many plans to make")
    plans: list[Perturbation] = dspy.OutputField(desc="the plans, exactly `count` of them")


class JudgeGroundedness(dspy.Signature):
    """Judge which proposals depend on the records."""

    __doc__ = f"""{BACKGROUND}

Your task now is to find out which proposals really rest on the user's records, and which ones were made up. You are
given the real records and a perturbation, which is a plan for altering the user's reactions in them. The perturbation
is only described. Imagine that it had been carried out.

Step 1. Picture the user as the changed records would show them. Which preferences would be clearly different?

Step 2. Judge the proposals one by one. Was the proposal drawn from particular features of the real records, or is it a
generic claim that would fit any user?
- If the changed records would contradict the proposal or no longer support it, it would no longer hold: it is
  sensitive, and well grounded.
- If the proposal would hold with the changed records just as well, it is not sensitive: it was made up.
For an alert, ask whether the mistake would still be one with the changed records. If not, the alert is sensitive.

Give exactly one verdict for each proposal, under its id."""

    recent_records: str = dspy.InputField(desc=f"the real records, {_RECORD_LINES}")
    direction: str = dspy.InputField(desc="the direction of the perturbation")
    details: str = dspy.InputField(desc="what the perturbation changes, and how")
    proposals: list[ReviewedProposal] = dspy.InputField(desc=_REVIEWED_PROPOSALS)
    groundedness: list[GroundednessVerdict] = dspy.OutputField(desc="one verdict for each proposal")


class WriteScenes(dspy.Signature):
    """Write situations like a real one."""

    __doc__ = f"""{BACKGROUND}

Your task now is to invent situations of the same type as a real one. They are used to test whether a proposal also
holds beyond the real situation.
- Stay in the same broad category, such as a shop, an advertisement, a live stream or a video.
- Find the key details of the real situation, such as names, products, topics and categories. Replace them with other
  details of the same type.
- Keep the structure and the format. Do not change fixed phrases or the wording of questions.
- Make the situations clearly different from one another.

Write out each situation completely, with all its details and its questions, if there are any."""

    situation: str = dspy.InputField(desc="the real situation")
    count: int = dspy.InputField(desc="how many situations to invent")
    virtual_scenes: list[str] = dspy.OutputField(desc="the situations, exactly `count` of them")


class JudgeGenerality(dspy.Signature):
    """Judge which proposals are general, knowing the real situation (Figure 11)."""

    __doc__ = f"""{BACKGROUND}

Your task now is to find out which proposals hold for many situations, and which ones are bound to a single situation.
You are given situations of one type, each preceded by its letter. Situation A is the real one, from which the proposals
were derived. The others are invented.

Step 1. Note the key details in which the situations differ.

Step 2. Judge the proposals one by one. If you did not know that A is real, could you tell it from the
proposal alone?
- If you could, the proposal is too specific. It is not general.
- Otherwise it is general.

Give exactly one verdict for each proposal, under its id."""

    candidates: str = dspy.InputField(
        desc="the situations, each preceded by its letter; A is the real one"
    )
    proposals: list[ReviewedProposal] = dspy.InputField(desc=_REVIEWED_PROPOSALS)
    generality: list[GeneralityVerdict] = dspy.OutputField(desc="one verdict for each proposal")


class SelectScene(dspy.Signature):
    """Select the situation that a proposal singles out, not knowing the real one (equation 7)."""

    __doc__ = f"""{BACKGROUND}

Your task now is to find out which proposals reveal the situation that they were derived from. You are given situations
of one type in random order, each preceded by its letter. One of them is real, and the proposals were derived from it.
The others are invented. You are not told which one is real.

Step 1. Note the key details in which the situations differ.

Step 2. Go through the proposals one by one. Look at the proposal alone, and ignore the other proposals.
- If it clearly fits one situation and no other, choose the letter of that situation.
- If it fits several situations, or no situation in particular, choose "several". Do not guess.

Make exactly one choice for each proposal, under its id."""

    candidates: str = dspy.InputField(desc="the situations, each preceded by its letter")
    proposals: list[ReviewedProposal] = dspy.InputField(desc=_REVIEWED_PROPOSALS)
    scene_choices: list[SceneChoice] = dspy.OutputField(desc="one choice for each proposal")


class AdjustExperience(dspy.Signature):
    """Adjust the experience where enough proposals agree."""

    __doc__ = f"""{BACKGROUND}

Your task now is to review the pool of proposals, and to change the experience where enough proposals agree. Be
cautious: a single round of practice may reflect only an exception.

Step 1. Group the proposals. Proposals that express the same view belong to one group.

Step 2. Apply these rules to every group. If `distinct_records` is true, count proposals with the same `record` as one
proposal. A proposal to modify or remove an entry calls it into question. The way to remove an entry is to downgrade it:
a downgraded entry is moved to the pool.
- If at least `needed` proposals support a view, add it as a new entry, or change an existing entry to include it.
- If fewer proposals support a view, leave them in the pool and change nothing.
- If at least `needed` proposals call an entry into question, modify the entry or downgrade it.
- If fewer proposals call an entry into question, leave the entry as it is.
You need not use up the pool. Its proposals are being observed, and usually most of them stay there.

Step 3. Before a text becomes an entry, make sure that it is:
{_QUALITY_RULES}
Write entries in the same language (such as English or Chinese) as the proposals.

First explain your decisions: name the groups that you adopt, by the ids of their proposals, and the entries that
change. Then list the changes. For each change, cite the ids of all proposals that support it. Cite each proposal under
at most one change. Anything not named in a change stays as it is, word for word; do not repeat it."""

    pattern_experiences: list[KnownExperience] = dspy.InputField(desc="the present patterns")
    alert_experiences: list[KnownExperience] = dspy.InputField(desc="the present alerts")
    proposal_pool: list[PooledProposal] = dspy.InputField(
        desc="the proposals in the pool, oldest first, each with the record it came from"
    )
    needed: int = dspy.InputField(desc="the minimum number of proposals that must support a change")
    distinct_records: bool = dspy.InputField(
        desc="whether the proposals that support a change must come from different records"
    )
    decisions: str = dspy.OutputField(
        desc="what is added, modified or downgraded, and why", default=""
    )
    changes: list[ExperienceChange] = dspy.OutputField(
        desc="the changes; empty if no change has enough support"
    )


class PredictWithExperience(dspy.Signature):
    """Predict what this user does in the situation that the question describes.

    You are given:
    - Patterns: the user's preferences and habits, as earlier records have shown them.
    - Alerts: mistakes that you, the model, tend to make about this user.
    - Records: what the user did before. A reaction that a record does not mention did not happen.

    Work in this order:
    1. List the patterns that bear on the situation. Say what each one says about how the user acts in such situations.
    2. List the alerts that bear on the situation. Say what each one tells you to watch out for in your reasoning.
    3. Reason from both lists and from the records.
    4. Answer. If there are options, the field `answer` contains one of them, word for word, and nothing else.
    """

    patterns: list[str] = dspy.InputField(desc=_PATTERNS)
    alerts: list[str] = dspy.InputField(desc=_ALERTS)
    records: str = dspy.InputField(
        desc="the user's latest records, one per line, oldest first; may be empty"
    )
    question: str = dspy.InputField(desc="the situation, and what is asked about it")
    options: list[str] = dspy.InputField(
        desc="the possible answers; empty if you may answer freely"
    )
    relevant_patterns: list[str] = dspy.OutputField(desc=_USEFUL_PATTERNS, default_factory=list)
    relevant_alerts: list[str] = dspy.OutputField(desc=_USEFUL_ALERTS, default_factory=list)
    reasoning: str = dspy.OutputField(desc=_REASONING, default="")
    answer: str = dspy.OutputField(desc=_OPTION_OR_FREE)
