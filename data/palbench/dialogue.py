"""PAL-Bench's third task: a simulated user talks with two assistants, and judges compare them.

    mempiler evaluate turn-rag --benchmark palbench.dialogue --judge-lm MODEL \
        --benchmark-set against=no-memory

Both dialogues are on the same topic. `plans` says what is talked about, alike for all assistants
(Mem-PAL's Tables 7 and 8): the plans of the release, if its `dialogue_template.json` is there, else
drawn ones of the same form. `against` names the method to compare with. The user is played by the
model of `--prompt-lm`, else by the task LM. In each of two dimensions the judge scores both
dialogues six times, three times with each one first; the higher mean wins (after FairEval, Wang et
al. 2024).

Limits: the simulated user answers each assistant anew, so two dialogues differ by more than their
assistants (the paper says the same). A topic takes 5 to 7 calls of the user and of each assistant,
and twelve of the judge. These have temperature 1 and another rollout each time, since the paper
does not say how judgements are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import dspy
from dspy.utils.exceptions import AdapterParseError

from ...errors import UserError
from ...signatures.judges import JudgeNeedUnderstanding, JudgePreferenceUnderstanding
from ...signatures.pal import USER_ACTIONS, PlayUser, UserAction
from ...text import one_line
from ..interaction import Interaction, Program
from ..judge import AnyJudge, JudgeRoles, PromptJudge, ask_all
from ..load_options import coerce_options
from ..scorer import Score, ScoredAnswer, Scorer
from .benchmark import PalBench, PalQuestion
from .plans import Plan, drawn_plan, find_plans, read_plans
from .topics import Persona, QueryTopic, Topic

VALUES = {"win": 1.0, "tie": 0.5, "lose": 0.0}
"""What an outcome counts in a mean."""
PER_ORDER = 3
"""Judgements of a pair in each order; six in all."""

_MAX_TRIES = 3
"""How often a judgement is asked for while its replies cannot be read."""
_ROLLOUTS_PER_TRY = 1000
"""More than there are judgements of one pair in one order."""
_PART_NAMES = {"requirement": "requ", "preference": "pref"}
"""How names of parts of a score call the dimensions."""
_TEMPERATURE = 1.0
_SILENCE = "..."
"""Stands for an utterance without words."""


@dataclass(frozen=True)
class Utterance:
    """One utterance."""

    role: str
    """"user" or "assistant"."""
    action: str
    text: str


class SimulatedUser(PromptJudge):
    """Plays users by `signatures.pal.PlayUser`, under its own model and outside every trace."""

    signature = PlayUser

    def __call__(
        self, persona: Persona, utterances: Sequence[Utterance], action: UserAction
    ) -> str:
        """Return the user's next words, raising what `ask` does.

        The user knows their needs while needs are talked about, and their preferences afterwards,
        as in the paper.
        """
        is_about_needs = action in ("topic inquiry", "requirement confirmation")
        reply = self.ask(
            profile=persona.profile,
            situation=persona.situation,
            wishes=persona.needs if is_about_needs else persona.preferences,
            dialogue=transcript(utterances),
            action=action,
            action_meaning=USER_ACTIONS[action],
            assistant_said=utterances[-1].text if utterances else "",
        )
        return one_line(reply.utterance)


class Conversation(NamedTuple):
    """A dialogue to the end of its plan."""

    utterances: list[Utterance]
    last_reply: dspy.Prediction
    """The assistant's last prediction."""


def converse(
    user: Callable[[Persona, Sequence[Utterance], UserAction], str],
    reply: Program,
    persona: Persona,
    plan: Plan,
    query: str,
) -> Conversation:
    """Let a user and an assistant talk to the end of a plan.

    Args:
        user: Returns the user's next words.
        reply: The assistant. It gets what the user just said as `question`, the `dialogue` before
            that, and its `action`.
        persona: Who the user is.
        plan: What kinds of utterances follow one another.
        query: The first message if `user` returns none.
    """
    utterances: list[Utterance] = []
    last_reply = dspy.Prediction()
    for turn in plan:
        user_words = user(persona, utterances, turn.user)
        if not user_words:
            user_words = _SILENCE if utterances else query
        last_reply = reply(
            question=user_words, dialogue=transcript(utterances), action=turn.assistant
        )
        assistant_words = one_line(last_reply.get("answer")) or _SILENCE
        utterances.append(Utterance("user", turn.user, user_words))
        utterances.append(Utterance("assistant", turn.assistant, assistant_words))
    return Conversation(utterances, last_reply)


def transcript(utterances: Sequence[Utterance]) -> str:
    """Return utterances as text, one per line: `role: words`."""
    return "\n".join(f"{utterance.role}: {utterance.text}" for utterance in utterances)


@dataclass(frozen=True)
class PairScore:
    """Mean scores of two dialogues over all judgements, 1 to 10.

    Equal dialogues are not judged, and both have 0.
    """

    own: float = 0.0
    other: float = 0.0

    @property
    def outcome(self) -> str:
        """Return "win", "tie" or "lose" for the first dialogue."""
        if self.own == self.other:
            return "tie"
        return "win" if self.own > self.other else "lose"

    @property
    def is_judged(self) -> bool:
        """Whether a judge was asked."""
        return self != PairScore()


class DialogueScores(NamedTuple):
    """The scores of two dialogues in one judgement, 1 to 10, in the order they were shown in."""

    first: float
    second: float


class NeedUnderstandingJudge(PromptJudge):
    """Scores two dialogues by `signatures.judges.JudgeNeedUnderstanding`."""

    signature = JudgeNeedUnderstanding

    def wishes(self, persona: Persona) -> str:
        """Return what the dialogues are measured by."""
        return persona.needs

    def __call__(self, persona: Persona, first: str, second: str, rollout: int) -> DialogueScores:
        """Score two dialogues, raising what `ask` does after the third reply that cannot be read.

        `rollout` numbers the judgements of one pair in one order.
        """
        for attempt in range(_MAX_TRIES - 1):
            try:
                return self._score(persona, first, second, rollout, attempt)
            except AdapterParseError:
                continue
        return self._score(persona, first, second, rollout, _MAX_TRIES - 1)

    def _score(
        self, persona: Persona, first: str, second: str, rollout: int, attempt: int
    ) -> DialogueScores:
        """Score two dialogues by one call."""
        # Calls are cached by their prompt and rollout. Another number for each judgement, and for
        # each try of it, keeps a call from being answered with the reply of another one.
        rollout_id = rollout + attempt * _ROLLOUTS_PER_TRY
        reply = self.ask(
            config={"rollout_id": rollout_id, "temperature": _TEMPERATURE},
            profile=persona.profile,
            situation=persona.situation,
            wishes=self.wishes(persona),
            dialogue_1=first,
            dialogue_2=second,
        )
        return DialogueScores(reply.scores.assistant_1, reply.scores.assistant_2)


class PreferenceUnderstandingJudge(NeedUnderstandingJudge):
    """Scores two dialogues by `signatures.judges.JudgePreferenceUnderstanding`."""

    signature = JudgePreferenceUnderstanding

    def wishes(self, persona: Persona) -> str:
        return persona.preferences


class _Judgement(NamedTuple):
    """What one call of a judge is asked about."""

    first: str
    second: str
    rollout: int


def compare(judge: AnyJudge, persona: Persona, own: str, other: str) -> PairScore:
    """Have two dialogues judged six times, three in each order, and return their mean scores.

    The judgements do not wait for one another. Equal dialogues are a tie without a call. What the
    judge raises is raised.

    Args:
        judge: Scores in one dimension.
        persona: The user of both.
        own: The dialogue whose outcome is returned.
        other: The dialogue that it is compared with.
    """
    if own == other:
        return PairScore()
    rollouts = range(1, PER_ORDER + 1)
    judgements = [
        *(_Judgement(own, other, rollout) for rollout in rollouts),
        *(_Judgement(other, own, rollout) for rollout in rollouts),
    ]

    def ask_judge(judgement: _Judgement) -> DialogueScores:
        return judge(persona, judgement.first, judgement.second, judgement.rollout)

    results = ask_all(ask_judge, judgements, len(judgements))
    own_scores: list[float] = []
    other_scores: list[float] = []
    for judgement, (first_score, second_score) in zip(judgements, results, strict=True):
        own_is_first = judgement.first == own
        own_scores.append(first_score if own_is_first else second_score)
        other_scores.append(second_score if own_is_first else first_score)
    return PairScore(
        own=sum(own_scores) / len(own_scores),
        other=sum(other_scores) / len(other_scores),
    )


class PairwiseScorer(Scorer):
    """Has both dialogues compared in both dimensions: 1 for a win, .5 for a tie, 0 for a defeat."""

    title = "win 1, tie .5, lose 0"
    judge_roles: ClassVar[JudgeRoles] = {
        "requirement": NeedUnderstandingJudge,
        "preference": PreferenceUnderstandingJudge,
    }
    """The judges of the two dimensions."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Return how the program's dialogue compares with that of the rival assistant.

        The simulated user talks about the same topic with both. `prediction.answer` is the dialogue
        with the program, and `prediction.rival` the one with the other assistant. A judge for each
        dimension compares the two. The score is the mean over the dimensions: 1 if the program
        wins, .5 for a tie, 0 if the rival wins.

        Raises:
            UserError: No judge is bound, or the prediction has no `rival`, because the program was
                called without a simulated user.
        """
        judges = {dimension: self.judge(dimension) for dimension in self.judge_roles}
        if prediction.get("rival") is None:
            raise UserError("palbench.dialogue scores dialogues; run it with mempiler evaluate")

        # What is known of the user, for the judges to read.
        persona: Persona = example.asked.persona
        values: list[float] = []
        parts: dict[str, float] = {}
        feedback: list[str] = []
        for dimension, judge in judges.items():
            pair = compare(judge, persona, own=prediction.answer, other=prediction.rival)
            # The outcome of the program, "win", "tie" or "lose", as a number.
            value = VALUES[pair.outcome]
            values.append(value)
            parts[dimension] = value
            # If the dialogues are equal, no judge was asked, and there are no scores.
            if pair.is_judged:
                part_name = _PART_NAMES[dimension]
                parts[f"{part_name}_own"] = pair.own
                parts[f"{part_name}_rival"] = pair.other
            feedback.append(
                f"{dimension} understanding: {pair.outcome} "
                f"({pair.own:.2f} against {pair.other:.2f})"
            )
        return Score(sum(values) / len(values), "; ".join(feedback), parts)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Count wins, ties and defeats in each dimension (Table 3); failed topics are in none."""
        judged = [row for row in rows if row.failure is None]
        counts: dict[str, float] = {}
        for dimension in self.judge_roles:
            for outcome, value in VALUES.items():
                count = sum(row.parts.get(dimension) == value for row in judged)
                counts[f"{dimension} {outcome.upper()}"] = count
        return counts


@dataclass(frozen=True)
class PalConversation(Interaction):
    """Dialogues of one user with two assistants; the fields are options of `PalDialogue.load`."""

    against: str
    against_logs: bool
    seed: int
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """The released plans by topic; for other topics `seed` draws one."""
    user: SimulatedUser | None = None
    rival: Program | None = None
    replies: ClassVar[float] = 6.0

    def with_simulated_user(
        self, lm: dspy.BaseLM, adapter: dspy.Adapter | None, rival: Program
    ) -> Self:
        return replace(self, user=SimulatedUser(lm, adapter), rival=rival)

    def converse(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Let the user talk with the program and with the rival.

        Returns:
            `answer` and `rival`, the dialogues as text, and the `context` of the program's last
            reply.
        """
        if self.user is None or self.rival is None:
            raise UserError(
                "this benchmark needs someone to play the user and a rival; "
                "run it with mempiler evaluate"
            )
        shows_logs = bool(example.get("recent"))
        own = self._dialogue(self.user, program, example, shows_logs)
        other = self._dialogue(self.user, self.rival, example, self.against_logs)
        return dspy.Prediction(
            answer=transcript(own.utterances),
            rival=transcript(other.utterances),
            context=own.last_reply.get("context"),
        )

    def _dialogue(
        self, user: SimulatedUser, program: Program, example: dspy.Example, shows_logs: bool
    ) -> Conversation:
        """Let the user talk with one assistant, which may be shown the logs of the session."""
        asked: QueryTopic = example.asked
        inputs: dict[str, Any] = {"history": asked.history, "evidence_ids": example.evidence_ids}
        if shows_logs and asked.logs:
            inputs["recent"] = (asked.logs,)

        def reply(**query: Any) -> dspy.Prediction:
            return program(**inputs, **query)

        plan = self.plans.get(asked.id) or drawn_plan(asked.id, self.seed)
        return converse(user, reply, asked.persona, plan, asked.topic.user_query)


class PalDialogue(PalBench):
    """Multi-turn dialogues: how often the judges prefer the program to another assistant."""

    name = "palbench.dialogue"
    task = "dialogue-reply"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"win_tie_lose": PairwiseScorer}

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        against: str = "no-memory",
        against_logs: bool = False,
        seed: int = 0,
        plans: str | None = None,
        **options: Any,
    ) -> Self:
        """Load the data as `Benchmark.load` does, and set how the dialogues are held.

        Args:
            path: A file or folder.
            against: The method to compare with.
            against_logs: Whether that method sees the logs of the current session.
            seed: Draws a plan for each topic that has no released plan. Drawn plans differ in
                whether the two solutions are discussed for a turn.
            plans: The file of released plans, `dialogue_template.json`. It need not be named if it
                lies below the folder of the data.
            **options: Those of `Benchmark.load`.

        Raises:
            DataError: As `Benchmark.load`, or the plans cannot be read.
            UserError: An option is of another kind.
        """
        settings = coerce_options(
            cls.name, cls.load, {"against_logs": against_logs, "seed": seed, "plans": plans}
        )
        benchmark = super().load(path, **options)

        plans_file: Path | None = None
        if settings["plans"] is not None:
            plans_file = Path(settings["plans"])
        elif path is not None:
            plans_file = find_plans(Path(path))
        plans_by_topic = {} if plans_file is None else read_plans(plans_file)

        benchmark.interaction = PalConversation(
            against=against,
            against_logs=settings["against_logs"],
            seed=settings["seed"],
            plans=plans_by_topic,
        )
        return benchmark

    @classmethod
    def question_about(cls, topic: Topic) -> PalQuestion | None:
        return PalQuestion({"question": topic.user_query}, topic.requirement)
