"""How each optimizer is run: from a `Job` to what it returns.

DSPy's teleprompters differ in how they take metrics, seeds, threads, error limits and models; each function here hides
one of them behind the same job. The catalog beside says what they change, need and cost.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..engines.local.settings import Finetuning
from ..engines.models import is_local
from ..errors import MissingDependencyError, UserError
from ..programs.predictor import Predictor
from ..programs.program import MemoryProgram
from .metric_views import MetricViews
from .patient import InferRules, Mipro

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
    lookup: Callable[[str], Any]
    """Finds another entry of the catalog by name, for optimizers made of others."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    threads: int = 8
    ended: Callable[[Exception], None] = lambda error: None
    """Told what ended a step of several, which the others outlive."""
    scored: Callable[[dspy.Example, Any, float], None] = lambda example, prediction, score: None
    """Told every score of an optimizer whose evaluations nobody else sees."""


def run_labeled(job: Job) -> Any:
    """Labelled demos."""
    return dspy.LabeledFewShot(k=job.settings["max_labeled_demos"]).compile(job.student, trainset=list(job.train))


def run_knn(job: Job) -> Any:
    """DSPy's KNNFewShot replaces `forward`, which cannot be saved; the predictors choose their demos themselves."""
    program = dspy.LabeledFewShot(k=len(job.train)).compile(job.student, trainset=list(job.train), sample=False)
    for _, predictor in program.named_predictors():
        if isinstance(predictor, Predictor):
            predictor.nearest = job.settings["k"]
    return program


def run_bootstrap(job: Job) -> Any:
    """Demos from runs that passed."""
    settings, tries = _tries(job)
    teleprompter = dspy.BootstrapFewShot(metric=job.views.passed, max_errors=ENDLESS, **settings)
    return teleprompter.compile(job.student, trainset=tries)


def _tries(job: Job) -> tuple[dict[str, Any], list[dspy.Example]]:
    """The settings without `max_tries`, and so many training questions: an upper end to what bootstrapping costs."""
    settings = dict(job.settings)
    return settings, list(job.train)[: settings.pop("max_tries")]


def _judging(job: Job) -> dict[str, Any]:
    """How optimizers with a threshold score candidates."""
    views = job.views
    return {
        "metric": views.number,
        "metric_threshold": views.threshold,
        "num_threads": job.threads,
        "max_errors": ENDLESS,
    }


def run_bootstrap_random(job: Job) -> Any:
    """The best of several bootstrapped sets."""
    settings, tries = _tries(job)
    teleprompter = dspy.BootstrapRS(**_judging(job), **settings)
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val))


def run_mipro(job: Job) -> Any:
    """Instructions and demos by Bayesian search."""
    settings, tries = _tries(job)
    trials, batch = settings.pop("num_trials"), settings.pop("minibatch_size")
    teleprompter = Mipro(
        **_judging(job),
        prompt_model=job.prompt_lm,
        task_model=job.task_lm,
        auto=None,
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


def run_copro(job: Job) -> Any:
    """Instructions by coordinate ascent."""
    teleprompter: Any = dspy.COPRO(metric=job.views.number, prompt_model=job.prompt_lm, **job.settings)
    quiet = {"num_threads": job.threads, "display_progress": False, "display_table": 0}
    return teleprompter.compile(job.student, trainset=list(job.train), eval_kwargs=quiet)


def run_simba(job: Job) -> Any:
    """Advice and demos from contrasts."""
    settings = {**job.settings, "bsize": min(job.settings["bsize"], len(job.train))}

    def number(example: dspy.Example, prediction: Any) -> float:
        score = job.views.number(example, prediction)
        job.scored(example, prediction, score)
        return score

    metric: Any = number
    teleprompter = dspy.SIMBA(metric=metric, prompt_model=job.prompt_lm, num_threads=job.threads, **settings)
    return teleprompter.compile(job.student, trainset=list(job.train), seed=job.seed)


def run_gepa(job: Job) -> Any:
    """Instructions by reflection."""
    teleprompter = dspy.GEPA(
        metric=job.views.feedback,
        reflection_lm=job.prompt_lm,
        num_threads=job.threads,
        seed=job.seed,
        track_stats=False,
        max_metric_calls=job.settings["max_metric_calls"] or gepa_budget(len(job.train), len(job.val)),
    )
    return teleprompter.compile(job.student, trainset=list(job.train), valset=list(job.val))


def gepa_budget(train: int, val: int) -> int:
    """GEPA's budget where none is set: three valsets, and each training question once."""
    return 3 * val + train


def run_infer_rules(job: Job) -> Any:
    """Rules induced from demos."""
    settings, tries = _tries(job)
    # The rules would else be asked of the LM of the context, which answers questions.
    teleprompter = InferRules(job.prompt_lm, **_judging(job), **settings)
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val))


def run_better_together(job: Job) -> Any:
    """Several optimizers in a row."""
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
        self._job, self._entry = job, job.lookup(name)

    def compile(
        self, student: Any, *, trainset: list[Any], teacher: Any = None, valset: Any = None, **kwargs: Any
    ) -> Any:
        fresh = student.deepcopy()
        fresh._compiled = False
        # An earlier step may have trained the weights.
        lm = trained_lm(student, self._job.task_lm) or self._job.task_lm
        job = replace(self._job, student=fresh, train=trainset, settings=self._entry.settings, task_lm=lm)
        try:
            compiled = self._entry.run(job)
        except Exception as error:
            # BetterTogether goes on with what the steps before have made, and says nothing.
            self._job.ended(error)
            raise
        # The optimizers that reset predictors lose the LM, which BetterTogether demands between its steps.
        compiled.set_lm(trained_lm(compiled, lm) or lm)
        return compiled


def strategy_steps(settings: Mapping[str, Any]) -> list[str]:
    """The optimizers that a better-together strategy names, in order."""
    return [step.strip() for step in str(settings["strategy"]).split("->")]


def run_finetune(job: Job) -> Any:
    """Weights, where the provider can."""
    teleprompter = _Finetune(
        metric=job.views.passed,
        num_threads=job.threads,
        exclude_demos=job.settings["exclude_demos"],
        train_kwargs=_train_kwargs(job),
    )
    job.student.set_lm(job.task_lm)
    return teleprompter.compile(job.student, trainset=list(job.train))


class _Finetune(dspy.BootstrapFinetune):
    """Learns from answers that passed, and from them alone."""

    def _prepare_finetune_data(self, trace_data: list[dict[str, Any]], lm: Any, pred_ind: int | None = None) -> Any:
        # DSPy scores a completion that it cannot parse -1, and takes that for a pass.
        passed = [run for run in trace_data if (run["score"] or 0) > 0]
        return super()._prepare_finetune_data(passed, lm, pred_ind)


def _train_kwargs(job: Job) -> dict[str, Any]:
    """The settings that go to the provider: those that are set, and the seed where it is known to take one."""
    given = {name: value for name, value in job.settings.items() if name != "exclude_demos" and value is not None}
    return {"seed": job.seed, **given} if is_local(job.task_lm.model) else given


def trained_lm(program: MemoryProgram, start: Any) -> Any:
    """The LM with trained weights that an optimizer bound to a program's predictors; None if it trained none.

    Args:
        program: What an optimizer returned.
        start: The LM it began with.
    """
    bound = [predictor.lm for predictor in program.all_predictors().values()]
    # Other optimizers bind copies of the LM that sample differently: those keep its name.
    return next((lm for lm in bound if lm is not None and start is not None and lm.model != start.model), None)


def check_optuna(job: Job) -> None:
    """Without optuna, MIPROv2 would fail only after its paid proposals."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingDependencyError("optuna", "dev")


def check_strategy(job: Job) -> None:
    """Every step of a strategy is an optimizer whose own needs are met."""
    for step in strategy_steps(job.settings):
        if step == "better-together":
            raise UserError("better-together cannot hold itself; name other optimizers in its strategy")
        entry = job.lookup(step)
        entry.check(replace(job, settings=entry.settings))


def check_provider(job: Job) -> None:
    """The LM can be fine-tuned."""
    # DSPy's provider for openai/... sends the data to OpenAI itself, whatever the model's own address is.
    elsewhere = "api_base" in job.task_lm.kwargs
    if elsewhere or not getattr(getattr(job.task_lm, "provider", None), "finetunable", False):
        raise UserError(
            f"the provider of {job.task_lm.model} cannot fine-tune; choose another --lm, or a prompt optimizer"
        )
    if is_local(job.task_lm.model):
        Finetuning.parse(_train_kwargs(job))
