"""PAL-Bench's third task: a simulated user talks with two assistants on the same topic, and judges compare them.

    program ── dialogue with the user ──┐
    rival   ── dialogue with the user ──┴── 6 judgements of needs, 6 of preferences ──> win, tie or lose in each

    mempiler evaluate turn-rag --on palbench.dialogue --judge-lm MODEL --option against=no-memory

The paper compares its method with each baseline in turn: `against` names the one to compare with, and `against_logs`
lets it see the logs of the current session ("Vanilla (with log)" is `against=no-memory`, `against_logs=true`). The user
is played by the model of `--prompt-lm`, else by the task LM. `dialogue` holds the plan of a dialogue,
`judges` the comparison.

An example holds `history`, `question` (the user's query), `focus` (inputs); `answer` (the whole requirement),
`category`, `asked` and `id` (labels). The score of a topic is the mean over the two dimensions of 1 for a win, .5 for a
tie and 0 for a defeat; wins, ties and defeats are counted beside it.

Limits: the simulated user answers each assistant anew, so two dialogues differ by more than their assistants
(the paper says the same). A topic takes five to seven calls of the user and of each assistant, and twelve of the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ...errors import DataError, UserError
from ..confusion import Answered
from ..interaction import Interaction, Program
from ..scorer import Score, Scorer
from .benchmark import PalBench
from .dialogue import Dialogue, SimulatedUser, converse, plan
from .judges import (
    VALUES,
    Compared,
    NeedUnderstandingJudge,
    Outcome,
    PreferenceUnderstandingJudge,
    compare,
)
from .reader import Asked

DIMENSIONS = ("requirement", "preference")
_OUTCOMES: tuple[Outcome, ...] = ("win", "tie", "lose")
_OPTIONS = ("metric", "language", "show_logs", "against", "against_logs", "tie_margin", "seed")


class Compares(Scorer):
    """Has both dialogues compared in both dimensions: 1 for a win, .5 for a tie, 0 for a defeat."""

    title = "win 1, tie .5, lose 0"
    roles: ClassVar[Mapping[str, type[Any]]] = {
        "requirement": NeedUnderstandingJudge,
        "preference": PreferenceUnderstandingJudge,
    }
    tie_margin: float = 0.0
    """Mean scores, 1 to 10, that are not further apart are a tie."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Compares the dialogues of a prediction.

        Raises:
            UserError: No judge is bound, or the prediction is no dialogue beside another one.
        """
        judges = [self.judge(dimension) for dimension in DIMENSIONS]
        if prediction.get("rival") is None:
            raise UserError("palbench.dialogue scores dialogues; run it with mempiler evaluate")
        persona, parts, said = example.asked.persona, {}, []
        for dimension, judge in zip(DIMENSIONS, judges, strict=True):
            found = compare(judge, persona, prediction.answer, prediction.rival, self.tie_margin)
            parts |= _parts(dimension, found)
            said.append(f"{dimension} understanding: {found.outcome} ({found.own:.2f} against {found.other:.2f})")
        value = sum(parts[dimension] for dimension in DIMENSIONS) / len(DIMENSIONS)
        return Score(value, "; ".join(said), parts)

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """Wins, ties and defeats in each dimension (Table 3); topics that failed are in none."""
        judged = [row for row in rows if row.failure is None]
        return {
            f"{dimension} {outcome.upper()}": sum(row.parts.get(dimension) == VALUES[outcome] for row in judged)
            for dimension in DIMENSIONS
            for outcome in _OUTCOMES
        }


class PalConversation(Interaction):
    """Dialogues of one user with two assistants.

    Args:
        against: The method to compare with.
        against_logs: Whether it sees the logs of the current session.
        seed: Draws which dialogues have turns of discussion.
    """

    replies = 6.0

    def __init__(self, against: str, against_logs: bool, seed: int) -> None:
        self.against, self.against_logs, self.seed = against, against_logs, seed

    def played_by(self, lm: Any, adapter: dspy.Adapter | None) -> SimulatedUser:
        return SimulatedUser(lm, adapter)

    def hold(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Lets the user talk with the program and with the rival.

        Returns:
            `answer` and `rival` (the dialogues as text), and the `context` of the program's last reply.
        """
        user, rival = self.company()
        own, last = self._dialogue(user, program, example, bool(example.get("recent")))
        other, _ = self._dialogue(user, rival, example, self.against_logs)
        context = last.get("context") if last is not None else None
        return dspy.Prediction(answer=own.text, rival=other.text, context=context)

    def _dialogue(
        self, user: SimulatedUser, program: Program, example: dspy.Example, logs: bool
    ) -> tuple[Dialogue, dspy.Prediction | None]:
        asked: Asked = example.asked
        recent = {"recent": (asked.logs,)} if logs and asked.logs else {}

        def reply(**query: Any) -> dspy.Prediction:
            return program(history=asked.history, focus=example.focus, **recent, **query)

        return converse(user, reply, asked.persona, plan(asked.id, self.seed), asked.topic.user_query)


class PalDialogue(PalBench):
    """Multi-turn dialogue interaction: how often the judges prefer the program to another assistant.

    Args:
        examples: The topics.
        source: Where they came from.
        metric: "win_tie_lose".
        against: The method to compare with.
        against_logs: Whether it sees the logs of the current session.
        tie_margin: Mean scores, 1 to 10, that are not further apart are a tie.
        seed: Draws which dialogues have turns of discussion.
    """

    name = "palbench.dialogue"
    task = "dialogue-reply"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"win_tie_lose": Compares}

    def __init__(
        self,
        examples: Sequence[dspy.Example],
        source: Any,
        metric: str | None = None,
        against: str = "no-memory",
        against_logs: bool = False,
        tie_margin: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(examples, source, metric)
        if not isinstance(tie_margin, int | float) or tie_margin < 0:
            raise DataError(f"palbench.dialogue: tie_margin={tie_margin!r}: it must be 0 or more")
        self.interaction = PalConversation(against, against_logs, seed)
        self.scorer = Compares()
        self.scorer.tie_margin = tie_margin

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        language: str | None = None,
        show_logs: bool = False,
        against: str = "no-memory",
        against_logs: bool = False,
        tie_margin: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Reads the genuine files at `path`, or the bundled sample; see `PalBench.load` and the constructor."""
        cls.refuse_options(options, _OPTIONS)
        cls.refuse_other_than_bool(against_logs=against_logs)
        own = {"against": against, "against_logs": against_logs, "tie_margin": tie_margin, "seed": seed}
        return cls.made(path, language, show_logs, metric=metric, **own)

    @classmethod
    def query(cls, asked: Asked) -> dict[str, Any]:
        return {"question": asked.topic.user_query}

    @classmethod
    def gold(cls, asked: Asked) -> str:
        return asked.topic.requirement


def _parts(dimension: str, found: Compared) -> dict[str, float]:
    """The outcome as a value, and both mean scores, 1 to 10; equal dialogues have none."""
    short = dimension[:4]
    scores = {f"{short}_own": found.own, f"{short}_rival": found.other} if found.judgements else {}
    return {dimension: VALUES[found.outcome], **scores}
