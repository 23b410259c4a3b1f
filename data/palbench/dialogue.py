"""PAL-Bench's third task: a simulated user talks with two assistants on the same topic, and judges compare them.

    mempiler evaluate turn-rag --benchmark palbench.dialogue --judge-lm MODEL --benchmark-set against=no-memory

`plans` says what is talked about, alike for all assistants (Mem-PAL's Tables 7 and 8): the plans of the release, if
its `dialogue_template.json` is there, else drawn ones of the same form. `against` names the method to compare with;
the user is played by the model of `--prompt-lm`, else by the task LM. In each of two dimensions the judge scores both
dialogues six times, three with each one first; the higher mean wins (after FairEval, Wang et al. 2024).

Limits: the simulated user answers each assistant anew, so two dialogues differ by more than their assistants (the paper
says the same). A topic takes 5 to 7 calls of the user and of each assistant, and twelve of the judge, at temperature 1
with another rollout each time: the paper does not say how judgements are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

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
from .benchmark import Gold, PalBench
from .plans import Plan, drawn_plan, find_plans, read_plans
from .reader import Persona, QueryTopic, Topic

VALUES = {"win": 1.0, "tie": 0.5, "lose": 0.0}
"""What an outcome counts in a mean."""
PER_ORDER = 3
"""Judgements of a pair in each order; six in all."""
DIMENSIONS = ("requirement", "preference")
_TRIES = 3
_TEMPERATURE = 1.0


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

    def __call__(self, persona: Persona, said: Sequence[Utterance], action: UserAction) -> str:
        """The user's next words, raising what `ask` does.

        While needs are talked about the user knows their needs, afterwards their preferences, as in the paper.
        """
        needs = action in ("topic inquiry", "requirement confirmation")
        found = self.ask(
            profile=persona.profile,
            situation=persona.situation,
            wishes=persona.needs if needs else persona.preferences,
            dialogue=transcript(said),
            action=action,
            action_meaning=USER_ACTIONS[action],
            assistant_said=said[-1].text if said else "",
        )
        return one_line(found.utterance)


def converse(
    user: Callable[[Persona, Sequence[Utterance], UserAction], str],
    reply: Program,
    persona: Persona,
    turns: Plan,
    query: str,
) -> tuple[list[Utterance], dspy.Prediction]:
    """Lets a user and an assistant talk to the end of a plan.

    Args:
        user: Says the user's next words.
        reply: The assistant; gets what the user just said as `question`, the `dialogue` before it, and its `action`.
        persona: Who the user is.
        turns: The plan.
        query: The first message if `user` returns none.

    Returns:
        The dialogue, and the assistant's last prediction.
    """
    said: list[Utterance] = []
    last = dspy.Prediction()
    for asked, action in turns:
        words = user(persona, said, asked) or (query if not said else "...")
        last = reply(question=words, dialogue=transcript(said), action=action)
        said.append(Utterance("user", asked, words))
        said.append(Utterance("assistant", action, one_line(last.get("answer")) or "..."))
    return said, last


def transcript(said: Sequence[Utterance]) -> str:
    """Utterances, one per line: `role: words`."""
    return "\n".join(f"{each.role}: {each.text}" for each in said)


@dataclass(frozen=True)
class PairScore:
    """Mean scores of two dialogues over all judgements, 1 to 10; equal dialogues are not judged and have 0."""

    own: float = 0.0
    other: float = 0.0

    @property
    def outcome(self) -> str:
        """Win, tie or lose of the first dialogue."""
        return "tie" if self.own == self.other else "win" if self.own > self.other else "lose"


class NeedUnderstandingJudge(PromptJudge):
    """Scores two dialogues by `signatures.judges.JudgeNeedUnderstanding`."""

    signature = JudgeNeedUnderstanding
    measure: ClassVar[str] = "needs"
    """What of a persona the dialogues are measured by."""

    def __call__(self, persona: Persona, first: str, second: str, rollout: int) -> tuple[float, float]:
        """The scores of two dialogues, 1 to 10, raising what `ask` does after a third reply that cannot be read.

        `rollout` numbers the judgements of one pair in one order.
        """
        for attempt in range(_TRIES):
            # A first try at another number than any second one: none may be answered from the other's cache.
            config = {"rollout_id": rollout + attempt * 1000, "temperature": _TEMPERATURE}
            try:
                found = self.ask(
                    config=config,
                    profile=persona.profile,
                    situation=persona.situation,
                    wishes=getattr(persona, self.measure),
                    dialogue_1=first,
                    dialogue_2=second,
                )
                return found.scores.assistant_1, found.scores.assistant_2
            except AdapterParseError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")


class PreferenceUnderstandingJudge(NeedUnderstandingJudge):
    """Scores two dialogues by `signatures.judges.JudgePreferenceUnderstanding`."""

    signature = JudgePreferenceUnderstanding
    measure = "preferences"


def compare(judge: AnyJudge, persona: Persona, own: str, other: str) -> PairScore:
    """Has two dialogues judged six times, three in each order, and takes the mean scores, raising what the judge does.

    The judgements do not wait for one another. Equal dialogues are a tie without a call.

    Args:
        judge: Scores in one dimension.
        persona: The user of both.
        own: The dialogue whose outcome it is.
        other: What it is compared with.
    """
    if own == other:
        return PairScore()
    jobs = [(own, other, rollout) for rollout in range(1, PER_ORDER + 1)]
    jobs += [(other, own, rollout) for rollout in range(1, PER_ORDER + 1)]
    found = ask_all(lambda job: judge(persona, *job), jobs, len(jobs))
    scores = found[:PER_ORDER] + [(second, first) for first, second in found[PER_ORDER:]]
    return PairScore(sum(a for a, _ in scores) / len(scores), sum(b for _, b in scores) / len(scores))


class PairwiseScorer(Scorer):
    """Has both dialogues compared in both dimensions: 1 for a win, .5 for a tie, 0 for a defeat."""

    title = "win 1, tie .5, lose 0"
    judge_roles: ClassVar[JudgeRoles] = dict(
        zip(DIMENSIONS, (NeedUnderstandingJudge, PreferenceUnderstandingJudge), strict=True)
    )

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Compares the dialogues of a prediction.

        Raises:
            UserError: No judge is bound, or the prediction is no dialogue beside another one.
        """
        judges = {dimension: self.judge(dimension) for dimension in DIMENSIONS}
        if prediction.get("rival") is None:
            raise UserError("palbench.dialogue scores dialogues; run it with mempiler evaluate")
        parts, said = dict[str, float](), list[str]()
        for dimension, judge in judges.items():
            found = compare(judge, example.asked.persona, prediction.answer, prediction.rival)
            parts[dimension] = VALUES[found.outcome]
            if found != PairScore():
                parts |= {f"{dimension[:4]}_own": found.own, f"{dimension[:4]}_rival": found.other}
            said.append(f"{dimension} understanding: {found.outcome} ({found.own:.2f} against {found.other:.2f})")
        value = sum(parts[dimension] for dimension in DIMENSIONS) / len(DIMENSIONS)
        return Score(value, "; ".join(said), parts)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Wins, ties and defeats in each dimension (Table 3); topics that failed are in none."""
        judged = [row for row in rows if row.failure is None]
        return {
            f"{dimension} {outcome.upper()}": sum(row.parts.get(dimension) == VALUES[outcome] for row in judged)
            for dimension in DIMENSIONS
            for outcome in VALUES
        }


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

    def with_simulated_user(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None, rival: Program) -> Self:
        return replace(self, user=SimulatedUser(lm, adapter), rival=rival)

    def converse(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Lets the user talk with the program and with the rival.

        Returns:
            `answer` and `rival` (the dialogues as text), and the `context` of the program's last reply.
        """
        if self.user is None or self.rival is None:
            raise UserError("this benchmark needs someone to play the user and a rival; run it with mempiler evaluate")
        own, last = self._dialogue(self.user, program, example, bool(example.get("recent")))
        other, _ = self._dialogue(self.user, self.rival, example, self.against_logs)
        return dspy.Prediction(answer=transcript(own), rival=transcript(other), context=last.get("context"))

    def _dialogue(
        self, user: SimulatedUser, program: Program, example: dspy.Example, logs: bool
    ) -> tuple[list[Utterance], dspy.Prediction]:
        asked: QueryTopic = example.asked
        recent = {"recent": (asked.logs,)} if logs and asked.logs else {}

        def reply(**query: Any) -> dspy.Prediction:
            return program(history=asked.history, evidence_ids=example.evidence_ids, **recent, **query)

        turns = self.plans.get(asked.id) or drawn_plan(asked.id, self.seed)
        return converse(user, reply, asked.persona, turns, asked.topic.user_query)


class PalDialogue(PalBench):
    """Multi-turn dialogue interaction: how often the judges prefer the program to another assistant."""

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
        """As `Benchmark.load`.

        Args:
            path: A file or folder.
            against: The method to compare with.
            against_logs: Whether it sees the logs of the current session.
            seed: Draws which dialogues have turns of discussion, for topics without a plan.
            plans: The released `dialogue_template.json`; found by itself if it lies below the folder of the data.
            **options: Those of `Benchmark.load`.

        Raises:
            DataError: As `Benchmark.load`, or the plans cannot be read.
        """
        coerce_options(cls.name, cls.load, {"against_logs": against_logs, "seed": seed, "plans": plans})
        made = super().load(path, **options)
        file = Path(plans) if plans is not None else None
        if file is None and path is not None:
            file = find_plans(Path(path))
        made.interaction = PalConversation(against, against_logs, seed, {} if file is None else read_plans(file))
        return made

    @classmethod
    def query_and_gold(cls, topic: Topic) -> tuple[dict[str, Any], Gold] | None:
        return {"question": topic.user_query}, topic.requirement
