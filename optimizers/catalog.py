"""The teleprompters by name: what each changes, needs and costs, and the job that each is run with.

Needs are checked before the first paid call. `mempiler list optimizers` prints this catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError

if TYPE_CHECKING:
    import dspy

    from ..programs.program import MemoryProgram
    from .metric_views import MetricViews

ENDLESS = 1_000_000
"""Errors an optimizer tolerates: the guard at the LM boundary decides when to stop, not a count of ten."""


@dataclass(frozen=True)
class Job:
    """Everything an optimizer is run with."""

    student: MemoryProgram
    train: Sequence[dspy.Example]
    """Examples to learn from; for optimizers without a valset, all of them."""
    val: Sequence[dspy.Example]
    """Examples to choose by; empty for optimizers without a valset."""
    views: MetricViews
    task_lm: Any
    prompt_lm: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    threads: int = 8
    ended: Callable[[Exception], None] = lambda error: None
    """Told what ended a step of several, which the others outlive."""
    category: Callable[[dspy.Example], str] = lambda example: ""
    """The category of a question: labelled demos are spread over them."""
    noted: Callable[[str], None] = lambda line: None
    """Told what a user should know of the result, in one line."""


@dataclass(frozen=True)
class Optimizer:
    """One entry of the catalog: `runners.run_NAME` runs it."""

    name: str
    settings: Mapping[str, Any]
    """Settings with their defaults."""
    changes: str
    """What it changes in a program."""
    cost: str
    """What it costs, roughly."""
    validates: bool = False
    """Whether it needs a valset, taken from the training questions."""
    needs: str = "training questions"

    def run(self, job: Job) -> Any:
        """Runs it; what DSPy's teleprompter returns."""
        return self._runner("run")(job)

    def check(self, job: Job) -> None:
        """Raises a UserError where a need is not met."""
        self._runner("check")(job)

    def _runner(self, what: str) -> Callable[[Job], Any]:
        # Imported for that only, since it takes DSPy, which to list names does not.
        runners = import_module(".runners", __package__)
        return getattr(runners, f"{what}_{self.name.replace('-', '_')}", lambda job: None)


_BOUNDS: Mapping[str, Any] = {"demo_context_tokens": 300, "max_demo_tokens": 6000}
"""Tokens of the context of a labelled demo, and of all demos of a prompt."""

_CATALOG = (
    Optimizer(
        "labeled",
        {"max_labeled_demos": 8, **_BOUNDS},
        "demos: training questions with what is recalled for them and their gold answers",
        "what recalling takes; no calls where neither writing nor recalling asks a model",
    ),
    Optimizer(
        "knn",
        {"k": 8, **_BOUNDS},
        "demos: the k training questions nearest to each new one, chosen at every call",
        "what recalling takes, for every training question",
    ),
    # Labelled demos are needed: a teacher without demos hardly ever passes, and then nothing is bootstrapped.
    Optimizer(
        "bootstrap",
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 8, "max_rounds": 1, "max_tries": 30, **_BOUNDS},
        "demos: calls of the program's own that led to a good answer, for every predictor, and labelled ones",
        "one question per try, 4 to 30 tries",
    ),
    Optimizer(
        "bootstrap-random",
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 8, "num_candidate_programs": 6, "max_tries": 30, **_BOUNDS},
        "demos: the best of several bootstrapped sets, by the valset",
        "9 valsets, and 4 or more tries for each of 7 sets",
        validates=True,
    ),
    Optimizer(
        "mipro",
        {
            "auto": None,
            "num_candidates": 5,
            "num_trials": 8,
            "minibatch_size": 35,
            "max_bootstrapped_demos": 4,
            "max_labeled_demos": 8,
            "max_tries": 30,
            **_BOUNDS,
        },
        "instructions and demos, searched together",
        "9 valsets (minibatches of 35 where they are larger), 3 bootstrapped sets, about 10 proposals a predictor",
        validates=True,
        needs="optuna",
    ),
    Optimizer(
        "copro",
        {"breadth": 4, "depth": 2},
        "instructions and the prefix of the last field, by coordinate ascent",
        "breadth x depth training sets for every predictor",
    ),
    Optimizer(
        "simba",
        {"bsize": 32, "num_candidates": 4, "max_steps": 4, "max_demos": 4, **_BOUNDS},
        "instructions (advice) and demos, from contrasts between good and bad runs",
        "about 8 batches a step, and 5 training sets at the end",
    ),
    Optimizer(
        "gepa",
        {"max_metric_calls": None},
        "instructions, by reflection on what went wrong where",
        "max_metric_calls questions (3 valsets and the training set if not set), a proposal for about 6 of them",
        validates=True,
        needs="the gepa package (a dependency of dspy)",
    ),
    Optimizer(
        "infer-rules",
        {
            "num_candidates": 4,
            "num_rules": 6,
            "max_bootstrapped_demos": 4,
            "max_labeled_demos": 8,
            "max_tries": 30,
            **_BOUNDS,
        },
        "instructions (rules induced from demos) and demos",
        "5 valsets, one bootstrapped set, one proposal a predictor and candidate",
        validates=True,
    ),
    Optimizer(
        "better-together",
        {"strategy": "bootstrap -> gepa"},
        "what the optimizers of its strategy change, one after another",
        "the sum of its steps",
        validates=True,
    ),
    Optimizer(
        "finetune",
        {"exclude_demos": True, "learning_rate": None, "epochs": None, "batch_size": None, "lora": None},
        "the weights of the model, from traces that led to a good answer",
        "one pass over the training questions, and a training job",
        needs="an LM whose provider can fine-tune",
    ),
)
OPTIMIZERS = {each.name: each for each in _CATALOG}
"""By name."""


def optimizer(name: str) -> Optimizer:
    """The entry of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]
