"""What a ladder is made of: rungs with their settings, and what each of them gave.

Every rung is scored greedy and sampled. Where two operations are about equally likely, a step of training can turn all
greedy answers over without making the model any better: a gain that only the greedy score shows is such a turn.

Example:
    >>> from mempiler.runs.recipes.rungs import Ladder, Rung
    >>> Ladder((Rung("SFT", "finetune"),)).told({"sft.learning_rate": 1e-3}).rungs[0].settings
    {'learning_rate': 0.001}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...engines.meter import Usage
from ...errors import UserError
from ...optimizers.logo_grpo.policy import PolicyScore
from ..results import Evaluation
from ..statistics import Difference, Interval, interval, paired

LOGO = "logo-grpo"
"""The optimizer of a rung that is trained by reinforcement; the others are those of `compile --with`."""


@dataclass(frozen=True)
class Rung:
    """One optimizer with its settings."""

    label: str
    optimizer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those of the optimizer; of `logo-grpo` those of `reinforced.course`."""
    questions: int | None = None
    """Training questions it may use at most; all if None."""

    @property
    def key(self) -> str:
        """How options and folders call it."""
        return self.label.lower()


@dataclass(frozen=True)
class Ladder:
    """Rungs in order."""

    rungs: tuple[Rung, ...]
    answer_tokens: int | None = None
    """Most tokens of one completion; the engine's own limit if None."""

    def told(self, changes: Mapping[str, Any]) -> Ladder:
        """The ladder with settings changed by `RUNG.NAME`; `questions` is a name of every rung.

        Raises:
            UserError: There is no such rung.
        """
        rungs = {rung.key: rung for rung in self.rungs}
        for name, value in changes.items():
            key, dot, setting = name.partition(".")
            # Names come from a command line, where "_" means "-" in NAME=VALUE.
            rung = rungs.get(key.replace("_", "-"))
            if rung is None or not dot:
                raise UserError(f"{name!r} is not RUNG.NAME; the rungs are {', '.join(rungs)}")
            if setting == "questions":
                if type(value) is not int or value < 1:
                    raise UserError(f"{name} = {value!r} is no number of questions; give 1 or more")
                rungs[rung.key] = replace(rung, questions=value)
            else:
                rungs[rung.key] = replace(rung, settings={**rung.settings, setting: value})
        return replace(self, rungs=tuple(rungs.values()))


@dataclass(frozen=True)
class Step:
    """What one rung gave."""

    label: str
    optimizer: str
    begun_from: str
    """The label of the rung whose program and weights it began from; empty at the start."""
    evaluation: Evaluation
    """Of the test questions, greedy."""
    sampled: PolicyScore
    """Of the test questions, with memories written at temperature 1."""
    dev: tuple[float | None, float | None]
    """On the dev questions: what it began from, and what it gave."""
    dev_n: int
    dev_interval: Interval | None
    """95 % interval of what it gave there."""
    kept: bool
    """Whether the next rung begins from it."""
    gain: Difference | None
    """On the test questions, greedy, against what it began from."""
    sampled_gain: Difference | None = None
    """The same for memories written at temperature 1."""
    used: Usage = field(default_factory=Usage)
    """Calls and tokens of the tuning, without the scoring of dev and test questions."""
    seconds: float = 0.0
    """Of the tuning."""
    scoring: Usage = field(default_factory=Usage)
    """Calls and tokens of scoring dev and test questions."""
    scoring_seconds: float = 0.0
    program: str = ""
    model: str = ""
    told: str = ""
    """What else is to be known, e.g. why a training ended early."""

    @property
    def sampled_interval(self) -> Interval | None:
        """95 % interval of the sampled score."""
        return interval(self.sampled.scores, self.sampled.groups)

    @property
    def near_tie(self) -> bool:
        """Whether greedy answers are beyond doubt worse than sampled ones, as where wrong ones are barely likelier."""
        greedy = sureness(self.evaluation)
        sampled = self.sampled_interval
        return greedy is not None and sampled is not None and sampled.low > greedy.high

    @property
    def greedy_alone(self) -> bool:
        """Whether the greedy gain is beyond doubt and the sampled one is not."""
        return _sure(self.gain) and not _sure(self.sampled_gain)


def sureness(found: Evaluation) -> Interval | None:
    """95 % interval of a score."""
    return interval([row.score for row in found.counted], [row.group for row in found.counted])


def sampled_difference(before: PolicyScore, after: PolicyScore) -> Difference:
    """Paired difference of two scorings of the same questions: after minus before."""
    known = dict(zip(before.ids, before.scores, strict=True))
    return paired(after.scores, [known[id] for id in after.ids], after.groups)


def _sure(found: Difference | None) -> bool:
    return found is not None and found.interval is not None and found.interval.low > 0
