"""Runs each optimizer: from an `OptimizerJob` to what it returns.

DSPy's teleprompters differ in how they take metrics, seeds, threads, error limits and models; each function here hides
one of them behind the same job. The catalog beside says what they change, need and cost.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..engines.local.settings import Finetuning
from ..engines.model_names import is_local
from ..errors import MissingDependencyError, UserError
from ..programs.predictor import is_for
from ..programs.program import MemoryProgram
from .catalog import optimizer
from .constructors import instantiate_settings, pop_settings
from .finetune import PassedFinetune
from .job import MAX_ERRORS, OptimizerJob
from .labelled import DemoBuilder, TaskExample, question_of
from .proposals import InferRules, Mipro

TRIED = 4
"""Training questions that are tried at most for each labelled demo."""


def run_labeled(job: OptimizerJob) -> Any:
    """Labelled demos."""
    labelling, wanted = DemoBuilder(job), job.settings["max_labeled_demos"]
    demos = labelling.demos(wanted, TRIED * wanted)
    _give(job.student, demos[: labelling.fitting(demos, wanted)])
    return job.student


def run_knn(job: OptimizerJob) -> Any:
    """DSPy's KNNFewShot replaces `forward`, which cannot be saved; the predictors choose their demos themselves."""
    labelling = DemoBuilder(job)
    demos = labelling.demos(len(job.train))
    for predictor in _give(job.student, demos):
        predictor.nearest = labelling.fitting(demos, job.settings["k"])
    return job.student


def _give(student: MemoryProgram, demos: Sequence[dspy.Example]) -> list[Any]:
    given = [p for _, p in student.named_predictors() if any(is_for(demo, getattr(p, "path", "")) for demo in demos)]
    for predictor in given:
        predictor.demos = list(demos)
    return given


def run_bootstrap(job: OptimizerJob) -> Any:
    """Demos from runs that passed."""
    metric, settings, tries = _tries(job, job.metric_views.passed)
    teleprompter = dspy.BootstrapFewShot(metric=metric, max_errors=MAX_ERRORS, **settings)
    found = teleprompter.compile(job.student, trainset=tries)
    guard = getattr(job.task_lm, "guard", None)
    was_stopped = guard is not None and guard.limit_hit is not None
    demos = [demo for predictor in found.predictors() for demo in predictor.demos]
    if not was_stopped and not any(demo.get("augmented") for demo in demos):
        least = job.metric_views.threshold
        job.on_note(f"no bootstrapped demos: of {len(tries)} training questions none scored {least:g} or more")
    return found


def _tries(job: OptimizerJob, view: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any], list[Any]]:
    """How to bootstrap: the metric, the settings of DSPy's own, and `max_tries` training questions.

    That is an upper end to what bootstrapping costs. Questions that make a labelled demo come first, and alone where
    they are enough: DSPy draws its labelled demos from all that it is given.
    """
    settings = dict(job.settings)
    most, traced = settings.pop("max_tries"), settings["max_bootstrapped_demos"]
    labelling, labelled = DemoBuilder(job), min(settings["max_labeled_demos"], most)
    demos = labelling.demos(most if labelled else 0, 2 * most)
    if labelled:
        settings["max_labeled_demos"] = labelling.fitting(demos, settings["max_labeled_demos"], traced)
    del settings["demo_context_tokens"], settings["max_demo_tokens"]
    taken = {id(question_of(demo)) for demo in demos}
    # Without an output of its own it is no demo, but a question to try.
    rest = [TaskExample({"question": e.get("question")}, asked=e) for e in job.train if id(e) not in taken]
    tries = demos if demos and len(demos) >= labelled else [*demos, *rest][:most]
    return labelling.metric(view, traced), settings, list(tries)


def _judging(job: OptimizerJob, metric: Callable[..., Any]) -> dict[str, Any]:
    """How optimizers with a threshold score candidates."""
    how = {"metric_threshold": job.metric_views.threshold, "num_threads": job.threads, "max_errors": MAX_ERRORS}
    return {"metric": metric, **how}


def run_bootstrap_random(job: OptimizerJob) -> Any:
    """The best of several bootstrapped sets."""
    metric, settings, tries = _tries(job, job.metric_views.score)
    teleprompter = dspy.BootstrapRS(**_judging(job, metric), **pop_settings(dspy.BootstrapRS, settings))
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val), **settings)


def run_mipro(job: OptimizerJob) -> Any:
    """Instructions and demos by Bayesian search."""
    metric, settings, tries = _tries(job, job.metric_views.score)
    own, batch = pop_settings(dspy.MIPROv2, settings), settings.pop("minibatch_size")
    if own.setdefault("auto", None):
        # DSPy then chooses both.
        del own["num_candidates"], settings["num_trials"]
    teleprompter = Mipro(
        **_judging(job, metric),
        prompt_model=job.prompt_lm,
        task_model=job.task_lm,
        seed=job.seed,
        **own,
    )
    return teleprompter.compile(
        job.student,
        trainset=tries,
        valset=list(job.val),
        minibatch=len(job.val) > batch,
        minibatch_size=min(batch, len(job.val)),
        **settings,
    )


def run_copro(job: OptimizerJob) -> Any:
    """Instructions by coordinate ascent."""
    teleprompter: Any = dspy.COPRO(metric=job.metric_views.score, prompt_model=job.prompt_lm, **job.settings)
    quiet = {"num_threads": job.threads, "display_progress": False, "display_table": 0}
    return teleprompter.compile(job.student, trainset=list(job.train), eval_kwargs=quiet)


def run_simba(job: OptimizerJob) -> Any:
    """Advice and demos from contrasts."""
    settings = {**job.settings, "bsize": min(job.settings["bsize"], len(job.train))}
    labelling = DemoBuilder(job)
    del settings["demo_context_tokens"], settings["max_demo_tokens"]

    metric: Any = job.metric_views.score
    teleprompter = dspy.SIMBA(metric=metric, prompt_model=job.prompt_lm, num_threads=job.threads, **settings)
    add, *others = teleprompter.strategies

    @functools.wraps(add)
    def add_bounded(bucket: Any, system: Any, **given: Any) -> Any:
        good = bucket[0]
        labelling.shorten(good["trace"], good["example"], good["prediction"], settings["max_demos"])
        return add(bucket, system, **given)

    teleprompter.strategies = [add_bounded, *others]
    return teleprompter.compile(job.student, trainset=list(job.train), seed=job.seed)


def run_gepa(job: OptimizerJob) -> Any:
    """Instructions by reflection."""
    settings = instantiate_settings(job.settings)
    is_limited = settings.get("auto") or settings.get("max_full_evals") or settings["max_metric_calls"]
    if not is_limited:
        settings["max_metric_calls"] = gepa_budget(len(job.train), len(job.val))
    teleprompter = dspy.GEPA(
        metric=job.metric_views.feedback,
        reflection_lm=job.prompt_lm,
        num_threads=job.threads,
        seed=job.seed,
        track_stats=False,
        **pop_settings(dspy.GEPA, settings),
        gepa_kwargs=settings,
    )
    return teleprompter.compile(job.student, trainset=list(job.train), valset=list(job.val))


def gepa_budget(train: int, val: int) -> int:
    """GEPA's budget where none is set: three valsets, and each training question once."""
    return 3 * val + train


def run_infer_rules(job: OptimizerJob) -> Any:
    """Rules induced from demos."""
    metric, settings, tries = _tries(job, job.metric_views.score)
    teleprompter = InferRules(job.prompt_lm, job.settings["max_demo_tokens"], **_judging(job, metric), **settings)
    return teleprompter.compile(job.student, trainset=tries, valset=list(job.val))


def run_better_together(job: OptimizerJob) -> Any:
    """Several optimizers in a row."""
    steps = strategy_steps(job.settings)
    teleprompter = dspy.BetterTogether(
        metric=job.metric_views.score, **{f"s{n}": _Step(job, step) for n, step in enumerate(steps)}
    )
    given = {name: value for name, value in job.settings.items() if name != "strategy"}
    job.student.set_lm(job.task_lm)
    return teleprompter.compile(
        job.student,
        trainset=list(job.train),
        valset=list(job.val),
        num_threads=job.threads,
        max_errors=MAX_ERRORS,
        seed=job.seed,
        strategy=" -> ".join(f"s{n}" for n in range(len(steps))),
        **given,
    )


class _Step(Teleprompter):
    """An entry of this catalog as the teleprompter that BetterTogether wants."""

    def __init__(self, job: OptimizerJob, name: str) -> None:
        super().__init__()
        self._job, self._entry = job, optimizer(name)

    def compile(
        self, student: Any, *, trainset: list[Any], teacher: Any = None, valset: Any = None, **kwargs: Any
    ) -> Any:
        fresh = student.deepcopy()
        # An earlier step may have trained the weights.
        lm = trained_lm(student, self._job.task_lm) or self._job.task_lm
        job = replace(self._job, student=fresh, train=trainset, settings=self._entry.settings, task_lm=lm)
        try:
            compiled = self._entry.run(job)
        except Exception as error:
            # BetterTogether goes on with what the steps before have made, and says nothing.
            self._job.on_failure(error)
            raise
        # The optimizers that reset predictors lose the LM, which BetterTogether demands between its steps.
        compiled.set_lm(trained_lm(compiled, lm) or lm)
        return compiled


def strategy_steps(settings: Mapping[str, Any]) -> list[str]:
    """The optimizers that a better-together strategy names, in order."""
    return [step.strip() for step in str(settings["strategy"]).split("->")]


def run_finetune(job: OptimizerJob) -> Any:
    """Weights, where the provider can."""
    own = pop_settings(dspy.BootstrapFinetune, dict(job.settings))
    kwargs = _train_kwargs(job)
    teleprompter = PassedFinetune(metric=job.metric_views.passed, num_threads=job.threads, train_kwargs=kwargs, **own)
    job.student.set_lm(job.task_lm)
    return teleprompter.compile(job.student, trainset=list(job.train))


def _train_kwargs(job: OptimizerJob) -> dict[str, Any]:
    """The settings that go to the provider: those that are set, and the seed where it is known to take one."""
    given = {name: value for name, value in job.settings.items() if value is not None}
    pop_settings(dspy.BootstrapFinetune, given)
    return {"seed": job.seed, **given} if is_local(job.task_lm.model) else given


def trained_lm(program: MemoryProgram, start: Any) -> Any:
    """The LM with trained weights that an optimizer, which began with `start`, bound to a program; None if none."""
    bound = [predictor.lm for predictor in program.all_predictors().values()]
    # Other optimizers bind copies of the LM that sample differently: those keep its name.
    return next((lm for lm in bound if lm is not None and start is not None and lm.model != start.model), None)


def check_bootstrap_random(job: OptimizerJob) -> None:
    """DSPy draws how many bootstrapped demos a set has, from one on."""
    if not job.settings["max_bootstrapped_demos"]:
        raise UserError(
            "max_bootstrapped_demos = 0: each set of demos has 1 or more; for none choose --optimizer labeled"
        )


def check_mipro(job: OptimizerJob) -> None:
    """Without optuna, MIPROv2 would fail only after its paid proposals."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingDependencyError("optuna")
    if job.settings["max_labeled_demos"]:
        check_bootstrap_random(job)


def check_gepa(job: OptimizerJob) -> None:
    """Its budget is given in one way."""
    given = [name for name in ("auto", "max_full_evals", "max_metric_calls") if job.settings.get(name)]
    if len(given) > 1:
        raise UserError(f"gepa takes one of {', '.join(given)}; leave out the others")


def check_better_together(job: OptimizerJob) -> None:
    """Every step of a strategy is an optimizer whose own needs are met."""
    for step in strategy_steps(job.settings):
        if step == "better-together":
            raise UserError("better-together cannot hold itself; name other optimizers in its strategy")
        entry = optimizer(step)
        entry.check(replace(job, settings=entry.settings))


def check_finetune(job: OptimizerJob) -> None:
    """The LM can be fine-tuned."""
    # DSPy's provider for openai/... sends the data to OpenAI itself, whatever the model's own address is.
    elsewhere = "api_base" in job.task_lm.kwargs
    if elsewhere or not getattr(getattr(job.task_lm, "provider", None), "finetunable", False):
        raise UserError(
            f"the provider of {job.task_lm.model} cannot fine-tune; choose another --lm, or a prompt optimizer"
        )
    if is_local(job.task_lm.model):
        Finetuning.parse(_train_kwargs(job))


RUNNERS: dict[str, Callable[[OptimizerJob], MemoryProgram]] = {
    "labeled": run_labeled,
    "knn": run_knn,
    "bootstrap": run_bootstrap,
    "bootstrap-random": run_bootstrap_random,
    "mipro": run_mipro,
    "copro": run_copro,
    "simba": run_simba,
    "gepa": run_gepa,
    "infer-rules": run_infer_rules,
    "better-together": run_better_together,
    "finetune": run_finetune,
}
"""The function that runs each optimizer of the catalog."""

CHECKS: dict[str, Callable[[OptimizerJob], None]] = {
    "bootstrap-random": check_bootstrap_random,
    "mipro": check_mipro,
    "gepa": check_gepa,
    "better-together": check_better_together,
    "finetune": check_finetune,
}
"""The function that checks the needs of an optimizer, where it has needs of its own."""
