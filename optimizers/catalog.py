"""The teleprompters by name: what each changes, needs and costs, and how it is run.

An entry is a function from a `Job` to a compiled program, its settings with their defaults, and what it needs. Needs
are checked before the first paid call. `recollect list optimizers` prints this catalog.

Example:
    >>> OPTIMIZERS["mipro"].check(job)
    >>> compiled = OPTIMIZERS["mipro"].run(job)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..errors import MissingDependencyError, UnknownNameError, UserError
from ..programs.predictor import Predictor
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
    needs: str = "nothing beyond training questions"
    check: Callable[[Job], None] = lambda job: None
    """Raises a UserError where a need is not met."""


def _labeled(job: Job) -> Any:
    return dspy.LabeledFewShot(k=job.settings["max_labeled_demos"]).compile(job.student, trainset=list(job.train))


def _knn(job: Job) -> Any:
    """DSPy's KNNFewShot replaces `forward`, which cannot be saved; the predictors choose their demos themselves."""
    program = dspy.LabeledFewShot(k=len(job.train)).compile(job.student, trainset=list(job.train), sample=False)
    for _, predictor in program.named_predictors():
        if isinstance(predictor, Predictor):
            predictor.nearest = job.settings["k"]
    return program


def _bootstrap(job: Job) -> Any:
    settings, tries = _tries(job)
    teleprompter = dspy.BootstrapFewShot(metric=job.views.passed, max_errors=ENDLESS, **settings)
    return teleprompter.compile(job.student, trainset=tries)


def _tries(job: Job) -> tuple[dict[str, Any], list[dspy.Example]]:
    """The settings without `max_tries`, and so many training questions: an upper end to what bootstrapping costs."""
    settings = dict(job.settings)
    return settings, list(job.train)[: settings.pop("max_tries")]


def _bootstrap_random(job: Job) -> Any:
    settings, tries = _tries(job)
    teleprompter = dspy.BootstrapRS(
        metric=job.views.number,
        metric_threshold=job.views.threshold,
        num_threads=job.threads,
        max_errors=ENDLESS,
        **settings,
    )
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val))


def _mipro(job: Job) -> Any:
    settings, tries = _tries(job)
    trials, batch = settings.pop("num_trials"), settings.pop("minibatch_size")
    teleprompter = dspy.MIPROv2(
        metric=job.views.number,
        metric_threshold=job.views.threshold,
        prompt_model=job.prompt_lm,
        task_model=job.task_lm,
        auto=None,
        num_threads=job.threads,
        max_errors=ENDLESS,
        seed=job.seed or 9,
        **settings,
    )
    return teleprompter.compile(
        job.student,
        trainset=tries,
        valset=list(job.val),
        num_trials=trials,
        minibatch=len(job.val) > batch,
        minibatch_size=min(batch, len(job.val)),
    )


def _copro(job: Job) -> Any:
    teleprompter: Any = dspy.COPRO(metric=job.views.number, prompt_model=job.prompt_lm, **job.settings)
    quiet = {"num_threads": job.threads, "display_progress": False, "display_table": 0}
    return teleprompter.compile(job.student, trainset=list(job.train), eval_kwargs=quiet)


def _simba(job: Job) -> Any:
    settings = {**job.settings, "bsize": min(job.settings["bsize"], len(job.train))}
    number: Any = job.views.number
    teleprompter = dspy.SIMBA(metric=number, prompt_model=job.prompt_lm, num_threads=job.threads, **settings)
    return teleprompter.compile(job.student, trainset=list(job.train), seed=job.seed)


def _gepa(job: Job) -> Any:
    teleprompter = dspy.GEPA(
        metric=job.views.feedback,
        reflection_lm=job.prompt_lm,
        num_threads=job.threads,
        seed=job.seed,
        track_stats=False,
        **job.settings,
    )
    return teleprompter.compile(job.student, trainset=list(job.train), valset=list(job.val))


def _infer_rules(job: Job) -> Any:
    settings, tries = _tries(job)
    teleprompter = dspy.InferRules(
        metric=job.views.number,
        metric_threshold=job.views.threshold,
        num_threads=job.threads,
        max_errors=ENDLESS,
        **settings,
    )
    # Its rule proposals are the only calls it makes outside the program; they go to the LM of the context.
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val))


def _better_together(job: Job) -> Any:
    steps = strategy_steps(job.settings)
    teleprompter = dspy.BetterTogether(
        metric=job.views.number, **{f"s{n}": _Step(job, step) for n, step in enumerate(steps)}
    )
    job.student.set_lm(job.task_lm)
    return teleprompter.compile(
        job.student,
        trainset=list(job.train),
        valset=list(job.val),
        num_threads=job.threads,
        max_errors=ENDLESS,
        seed=job.seed,
        strategy=" -> ".join(f"s{n}" for n in range(len(steps))),
    )


class _Step(Teleprompter):
    """An entry of this catalog as the teleprompter that BetterTogether wants."""

    def __init__(self, job: Job, name: str) -> None:
        super().__init__()
        self._job, self._entry = job, optimizer(name)

    def compile(
        self, student: Any, *, trainset: list[Any], teacher: Any = None, valset: Any = None, **kwargs: Any
    ) -> Any:
        fresh = student.deepcopy()
        fresh._compiled = False
        job = replace(self._job, student=fresh, train=trainset, settings=self._entry.settings)
        compiled = self._entry.run(job)
        # The optimizers that reset predictors lose the LM, which BetterTogether demands between its steps.
        compiled.set_lm(job.task_lm)
        return compiled


def strategy_steps(settings: Mapping[str, Any]) -> list[str]:
    """The optimizers that a better-together strategy names, in order."""
    return [step.strip() for step in str(settings["strategy"]).split("->")]


def _finetune(job: Job) -> Any:
    teleprompter = dspy.BootstrapFinetune(metric=job.views.passed, num_threads=job.threads, **job.settings)
    job.student.set_lm(job.task_lm)
    return teleprompter.compile(job.student, trainset=list(job.train))


def _check_optuna(job: Job) -> None:
    if importlib.util.find_spec("optuna") is None:
        raise MissingDependencyError("optuna", "dev")


def _check_strategy(job: Job) -> None:
    for step in strategy_steps(job.settings):
        if step == "better-together":
            raise UserError("better-together cannot hold itself; name other optimizers in its strategy")
        entry = optimizer(step)
        entry.check(replace(job, settings=entry.settings))


def _check_provider(job: Job) -> None:
    if not getattr(getattr(job.task_lm, "provider", None), "finetunable", False):
        raise UserError(
            f"the provider of {job.task_lm.model} cannot fine-tune; choose another --lm, or a prompt optimizer"
        )


OPTIMIZERS: dict[str, Optimizer] = {
    "labeled": Optimizer(
        _labeled,
        {"max_labeled_demos": 16},
        "demos: training questions with their gold answers, for predictors that have these fields",
        "no calls",
    ),
    "knn": Optimizer(
        _knn,
        {"k": 8},
        "demos: the k training questions nearest to each new one, chosen at every call",
        "no calls",
    ),
    # Labelled demos are needed: a teacher without demos hardly ever passes, and then nothing is bootstrapped.
    "bootstrap": Optimizer(
        _bootstrap,
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 16, "max_rounds": 1, "max_tries": 40},
        "demos: calls of the program's own that led to a good answer, for every predictor, and labelled ones",
        "one question per try, 4 to 40 tries",
    ),
    "bootstrap-random": Optimizer(
        _bootstrap_random,
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 16, "num_candidate_programs": 6, "max_tries": 40},
        "demos: the best of several bootstrapped sets, by the valset",
        "9 valsets, and 4 or more tries for each of 7 sets",
        validates=True,
    ),
    "mipro": Optimizer(
        _mipro,
        {
            "num_candidates": 5,
            "num_trials": 8,
            "minibatch_size": 35,
            "max_bootstrapped_demos": 4,
            "max_labeled_demos": 16,
            "max_tries": 40,
        },
        "instructions and demos, searched together",
        "9 valsets (minibatches of 35 where they are larger), 3 bootstrapped sets, about 10 proposals a predictor",
        validates=True,
        needs="optuna",
        check=_check_optuna,
    ),
    "copro": Optimizer(
        _copro,
        {"breadth": 4, "depth": 2},
        "instructions and the prefix of the last field, by coordinate ascent",
        "breadth x depth training sets for every predictor",
    ),
    "simba": Optimizer(
        _simba,
        {"bsize": 32, "num_candidates": 4, "max_steps": 4, "max_demos": 4},
        "instructions (advice) and demos, from contrasts between good and bad runs",
        "about 8 batches a step, and 5 training sets at the end",
    ),
    "gepa": Optimizer(
        _gepa,
        {"max_metric_calls": 300},
        "instructions, by reflection on what went wrong where",
        "max_metric_calls questions, and one proposal for about 10 of them",
        validates=True,
        needs="the gepa package (a dependency of dspy)",
    ),
    "infer-rules": Optimizer(
        _infer_rules,
        {"num_candidates": 4, "num_rules": 6, "max_bootstrapped_demos": 4, "max_labeled_demos": 16, "max_tries": 40},
        "instructions (rules induced from demos) and demos",
        "5 valsets, one bootstrapped set, one proposal a predictor and candidate",
        validates=True,
    ),
    "better-together": Optimizer(
        _better_together,
        {"strategy": "bootstrap -> gepa"},
        "what the optimizers of its strategy change, one after another",
        "the sum of its steps",
        validates=True,
        check=_check_strategy,
    ),
    "finetune": Optimizer(
        _finetune,
        {"exclude_demos": True},
        "the weights of the model, from traces that led to a good answer",
        "one pass over the training questions, and a training job",
        needs="an LM whose provider can fine-tune",
        check=_check_provider,
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
