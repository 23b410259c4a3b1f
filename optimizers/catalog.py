"""The teleprompters by name: what each changes, needs and costs, and how it is run.

Needs are checked before the first paid call. `mempiler list optimizers` prints this catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError

if TYPE_CHECKING:
    from .job import Job


@dataclass(frozen=True)
class Optimizer:
    """One entry of the catalog."""

    run: Callable[[Job], Any]
    settings: Mapping[str, Any]
    """Settings with their defaults."""
    changes: str
    """What it changes in a program."""
    cost: str
    """What it costs, roughly."""
    validates: bool = False
    """Whether it needs a valset, taken from the training questions."""
    needs: str = "training questions"
    check: Callable[[Job], None] = lambda job: None
    """Raises a UserError where a need is not met."""


def _runners():
    """How they are run; imported for that only, since it takes DSPy, which to list names does not."""
    from . import runners

    return runners


_BOUNDS: Mapping[str, Any] = {"demo_context_tokens": 300, "max_demo_tokens": 6000}
"""Tokens of the context of a labelled demo, and of all demos of a prompt."""

OPTIMIZERS: dict[str, Optimizer] = {
    "labeled": Optimizer(
        lambda job: _runners().run_labeled(job),
        {"max_labeled_demos": 8, **_BOUNDS},
        "demos: training questions with what is recalled for them and their gold answers",
        "what recalling takes; no calls where neither writing nor recalling asks a model",
    ),
    "knn": Optimizer(
        lambda job: _runners().run_knn(job),
        {"k": 8, **_BOUNDS},
        "demos: the k training questions nearest to each new one, chosen at every call",
        "what recalling takes, for every training question",
    ),
    # Labelled demos are needed: a teacher without demos hardly ever passes, and then nothing is bootstrapped.
    "bootstrap": Optimizer(
        lambda job: _runners().run_bootstrap(job),
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 8, "max_rounds": 1, "max_tries": 30, **_BOUNDS},
        "demos: calls of the program's own that led to a good answer, for every predictor, and labelled ones",
        "one question per try, 4 to 30 tries",
    ),
    "bootstrap-random": Optimizer(
        lambda job: _runners().run_bootstrap_random(job),
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 8, "num_candidate_programs": 6, "max_tries": 30, **_BOUNDS},
        "demos: the best of several bootstrapped sets, by the valset",
        "9 valsets, and 4 or more tries for each of 7 sets",
        validates=True,
    ),
    "mipro": Optimizer(
        lambda job: _runners().run_mipro(job),
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
        check=lambda job: _runners().check_optuna(job),
    ),
    "copro": Optimizer(
        lambda job: _runners().run_copro(job),
        {"breadth": 4, "depth": 2},
        "instructions and the prefix of the last field, by coordinate ascent",
        "breadth x depth training sets for every predictor",
    ),
    "simba": Optimizer(
        lambda job: _runners().run_simba(job),
        {"bsize": 32, "num_candidates": 4, "max_steps": 4, "max_demos": 4, **_BOUNDS},
        "instructions (advice) and demos, from contrasts between good and bad runs",
        "about 8 batches a step, and 5 training sets at the end",
    ),
    "gepa": Optimizer(
        lambda job: _runners().run_gepa(job),
        {"max_metric_calls": None},
        "instructions, by reflection on what went wrong where",
        "max_metric_calls questions (3 valsets and the training set if not set), a proposal for about 6 of them",
        validates=True,
        needs="the gepa package (a dependency of dspy)",
    ),
    "infer-rules": Optimizer(
        lambda job: _runners().run_infer_rules(job),
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
    "better-together": Optimizer(
        lambda job: _runners().run_better_together(job),
        {"strategy": "bootstrap -> gepa"},
        "what the optimizers of its strategy change, one after another",
        "the sum of its steps",
        validates=True,
        check=lambda job: _runners().check_strategy(job),
    ),
    "finetune": Optimizer(
        lambda job: _runners().run_finetune(job),
        {"exclude_demos": True, "learning_rate": None, "epochs": None, "batch_size": None, "lora": None},
        "the weights of the model, from traces that led to a good answer",
        "one pass over the training questions, and a training job",
        needs="an LM whose provider can fine-tune",
        check=lambda job: _runners().check_provider(job),
    ),
}


def optimizer(name: str) -> Optimizer:
    """The entry of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]
