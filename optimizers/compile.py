"""Compiles a program: one optimizer, one stage, and a result that can be saved.

    program -> staged copy -> optimizer -> compiled copy -> its prompts -> copy of the program

If the budget ends while an optimizer runs, or the optimizer breaks after calls were made, the
result is the best candidate that was scored in full. If the endpoint dies, there is no result:
DSPy's optimizers would return an untuned program as compiled.
"""

from __future__ import annotations

import inspect
import logging
import math
import random
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from pathlib import PurePath
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.limits import BudgetGuard
from ..engines.metered_lm import MeteredLM
from ..errors import BudgetError, EndpointError, MempilerError, UserError
from ..programs.program import MemoryProgram
from ..programs.staging import Stage
from ..programs.state import own_demos
from .catalog import OPTIMIZERS, make_optimizer
from .custom import CustomOptimizer, TeleprompterFactory
from .demo_lengths import drop_demos_beyond_window
from .demos import without_question
from .finetune import trained_lm
from .history import CandidateHistory
from .job import MAX_ERRORS, OptimizerJob
from .metric_views import MetricViews
from .optimizer import Optimizer
from .proposals import ProposingLM
from .settings_check import check_extra, check_settings

_log = logging.getLogger("mempiler")

_SECRET_NAME = re.compile("key|token|secret|password", re.IGNORECASE)
"""What the names of texts that no record may have contain."""

_VALSET_SHARE = 3
"""One of so many training questions is set aside for the valset."""


@dataclass(frozen=True)
class CompileConfig:
    """How a program is compiled."""

    optimizer: str = "bootstrap"
    """The name of the optimizer, or of the user's function."""
    stage: Stage = "all"
    seed: int = 0
    threads: int = 8
    settings: Mapping[str, Any] | None = None
    """Settings of the optimizer; all others have their defaults."""
    threshold: float = 0.5
    """The smallest score of an answer to learn from."""
    make_teleprompter: TeleprompterFactory | None = None
    """A user's function that returns a teleprompter, in place of an optimizer of the catalog."""
    optimizer_object: Optimizer | None = None
    """An optimizer that the user made. `optimizer` and `settings` then only describe it."""

    @classmethod
    def of_object(cls, optimizer: Optimizer, stage: Stage = "all") -> CompileConfig:
        """Return how an optimizer that the user made compiles a program.

        Records have the name in the catalog, or the name of a class that is not in it.

        Raises:
            UserError: Its class has no `name`, which messages show, or its `extra` does not fit.
        """
        if not hasattr(optimizer, "name"):
            class_name = type(optimizer).__name__
            raise UserError(f'optimizer {class_name}: set a name in its class, name = "my-own"')
        check_extra(optimizer)
        name = type(optimizer).__name__
        if type(optimizer) in OPTIMIZERS.values():
            name = optimizer.name
        settings = optimizer.changed_settings()
        return cls(name, stage, settings=settings, optimizer_object=optimizer)

    def make_optimizer(self) -> Optimizer:
        """Return the optimizer with its settings.

        Raises:
            UnknownNameError: There is no optimizer of this name.
            UserError: A setting is unknown, of the wrong type, or too small.
        """
        if self.optimizer_object is not None:
            check_settings(type(self.optimizer_object), self.settings or {})
            return self.optimizer_object
        if self.make_teleprompter is None:
            return make_optimizer(self.optimizer, self.settings)
        if self.settings:
            raise UserError(
                f"optimizer {self.optimizer!r} is a function and has no settings; "
                "put them into the function"
            )
        return CustomOptimizer(
            make_teleprompter=self.make_teleprompter, function_name=self.optimizer
        )

    def recorded_settings(self) -> dict[str, Any]:
        """Return the settings as records keep them: objects as their class with its arguments."""
        settings = self.settings or {}
        return {name: _recorded(value) for name, value in settings.items()}

    @property
    def has_python_objects(self) -> bool:
        """Whether it is a user's function or class, or has Python objects among its settings."""
        if self.make_teleprompter is not None:
            return True
        if self.optimizer_object is not None:
            is_from_catalog = type(self.optimizer_object) in OPTIMIZERS.values()
            if not is_from_catalog:
                return True
        return any(_has_object(value) for value in (self.settings or {}).values())


def _recorded(value: Any) -> Any:
    """Return a setting as JSON; an object becomes a text such as "PxNSampling(p=2, n=3)"."""
    if isinstance(value, Mapping):
        return {name: _recorded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_recorded(item) for item in value]
    if not _has_object(value):
        return value
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__name__
    return _recorded_object(value)


def _has_object(value: Any) -> bool:
    """Return whether a setting is or holds a Python object that no file of settings can hold."""
    if isinstance(value, Mapping):
        return any(_has_object(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_object(item) for item in value)
    return value is not None and not isinstance(value, str | int | float)


def _recorded_object(value: object) -> str:
    """Return the name of an object's class, with the arguments that it was made with.

    Arguments are the values that the object keeps under the names of its constructor's parameters.
    Its other attributes may change while it works.
    """
    class_name = type(value).__name__
    # The arguments of a model may be keys, and records name it by its class alone.
    if isinstance(value, dspy.BaseLM):
        return class_name
    if isinstance(value, PurePath | date):
        return repr(value)
    if isinstance(value, Set):
        return f"{class_name}({sorted(repr(item) for item in value)})"
    try:
        parameter_names = list(inspect.signature(type(value)).parameters)
    except (TypeError, ValueError):
        return class_name

    arguments: list[str] = []
    for name in parameter_names:
        argument = getattr(value, name, None)
        # A method of that name is no argument. Keys may also stand in mappings, such as headers.
        if argument is None or inspect.ismethod(argument) or isinstance(argument, Mapping):
            continue
        may_be_secret = isinstance(argument, str | list | tuple) and _SECRET_NAME.search(name)
        if may_be_secret:
            continue
        recorded_argument = _recorded(argument)
        is_object = isinstance(recorded_argument, str) and not isinstance(argument, str)
        argument_text = recorded_argument if is_object else repr(recorded_argument)
        arguments.append(f"{name}={argument_text}")
    if not arguments:
        return class_name
    return f"{class_name}({', '.join(arguments)})"


def plan_job(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    config: CompileConfig,
    prompt_lm: MeteredLM | None = None,
) -> OptimizerJob:
    """Return the job of `compile_program`, checked before any paid call.

    Raises:
        UserError: Too few training questions count, a setting is wrong, or something that the
            optimizer needs is missing.
    """
    optimizer = config.make_optimizer()
    # Only questions that count for the score are learned from.
    examples = [example for example in trainset if benchmark.in_headline(example)]
    fewest = _VALSET_SHARE if optimizer.needs_valset else 1
    if len(examples) < fewest:
        raise UserError(
            f"{config.optimizer} needs at least {fewest} training questions that count for "
            f"the score, there are {len(examples)}; raise --train or widen --categories"
        )

    valset_size = 0
    if optimizer.needs_valset:
        valset_size = len(examples) // _VALSET_SHARE
    random.Random(config.seed).shuffle(examples)
    job = OptimizerJob(
        student=program.staged(config.stage),
        train=benchmark.interleave(examples[valset_size:]),
        val=benchmark.interleave(examples[:valset_size]),
        metric_views=MetricViews(benchmark, config.threshold, sorted(program.writer_names())),
        task_lm=dspy.settings.lm,
        prompt_lm=prompt_lm or dspy.settings.lm,
        seed=config.seed,
        threads=config.threads,
        category=benchmark.category,
    )
    optimizer.check_requirements(job)
    return job


def compile_program(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    config: CompileConfig | None = None,
    prompt_lm: MeteredLM | None = None,
    history: CandidateHistory | None = None,
) -> MemoryProgram:
    """Compile a program on training questions, under the LM of the current context.

    Args:
        program: The program; it is not changed.
        benchmark: Its metric decides.
        trainset: Questions with answers.
        config: Optimizer, stage, seed and settings.
        prompt_lm: Writes proposals and reflections; the LM of the context if None.
        history: Collects the candidates, the proposals, the trained LM, and what ended the
            optimizer early; a new one if None.

    Returns:
        A compiled copy that shares the program's memory cache. It is an unchanged copy if the
        budget ended, or the optimizer broke, before any candidate was scored.

    Raises:
        UserError: As `plan_job`.
        EndpointError: The endpoint died while the optimizer ran.
    """
    config = config or CompileConfig()
    lm = dspy.settings.lm
    guard = lm.guard if isinstance(lm, MeteredLM) else BudgetGuard()
    job = plan_job(program, benchmark, trainset, config, prompt_lm)
    optimizer = config.make_optimizer()
    history = history or CandidateHistory(lm.meter)
    _expect(optimizer, job, history, guard)

    refused_calls_before = guard.refused_calls
    compiled = _run(optimizer, job, history, guard)
    if guard.fatal_error is not None:
        raise type(guard.fatal_error)(str(guard.fatal_error))

    was_limited = guard.refused_calls > refused_calls_before
    if was_limited:
        # Whatever error followed from the refused calls, the limit ended the optimizer.
        history.failure = None
    if was_limited or compiled is None:
        compiled = history.best() or compiled

    if compiled is not None:
        history.trained_lm = trained_lm(compiled, lm)
    result = clean_program(compiled if compiled is not None else job.student, program)
    window = getattr(lm, "window", None)
    if window:
        for line in drop_demos_beyond_window(result, window):
            history.note(line)
    return result


def clean_program(compiled: MemoryProgram, start: MemoryProgram) -> MemoryProgram:
    """Return a copy of `start` with the prompts of `compiled`, fit to be saved.

    Nothing is frozen, no LM is bound, and predictors keep only demos that a prompt shows. What the
    optimizer attached to its program is left behind: candidate programs, logs, scores.
    """
    result = start.with_prompts_of(compiled)
    for predictor in result.all_predictors().values():
        predictor.demos = [without_question(demo) for demo in own_demos(predictor)]
        predictor.lm = None
    return result


def _expect(
    optimizer: Optimizer, job: OptimizerJob, history: CandidateHistory, guard: BudgetGuard
) -> None:
    """Tell the history how many questions will be asked, and warn if there are few proposals."""
    bounds = optimizer.call_bounds(job)
    if bounds is not None:
        # The history reports the progress as a share of this number.
        history.max_questions = math.ceil(bounds.answers.high + bounds.recalls.high)

    # The budget may allow too few calls for the proposals that the settings ask for.
    calls_left = guard.remaining(1.0).max_calls
    warning = optimizer.proposal_warning(job, calls_left)
    if warning is not None:
        _log.warning(warning)
        history.note(warning)


def _run(
    optimizer: Optimizer, job: OptimizerJob, history: CandidateHistory, guard: BudgetGuard
) -> MemoryProgram | None:
    """Return the optimizer's result; None if it was ended by the budget, or broke in paid work.

    Raises:
        MempilerError: Another error of ours than that of a limit or an endpoint.
        Exception: The optimizer broke before it made any call, so there is nothing to rescue.
    """
    refused_calls_before = guard.refused_calls
    calls_before = history.count_calls()

    # Optimizers get a copy, so that a rescue never sees a half changed student.
    student: Any = job.student.deepcopy()
    optimizer_job = replace(
        job,
        student=student,
        prompt_lm=ProposingLM.from_lm(job.prompt_lm, history.proposals),
        on_failure=history.set_failure,
        on_note=history.note,
    )
    callbacks = [*(dspy.settings.callbacks or []), history, history.proposals]
    # Without `trace=None`, plain calls inside an optimizer would fill the trace of the process.
    with dspy.context(trace=None, callbacks=callbacks, max_errors=MAX_ERRORS, disable_history=True):
        try:
            compiled = optimizer.run(optimizer_job)
        except (BudgetError, EndpointError):
            return None
        except MempilerError:
            raise
        except Exception as error:
            # An exception may follow from calls that the guard refused, and the guard knows why.
            is_dead = guard.fatal_error is not None
            has_refused = guard.refused_calls != refused_calls_before
            has_asked = history.count_calls() != calls_before
            if not is_dead and not has_refused and not has_asked:
                raise
            history.set_failure(error)
            return None

    history.add_simba_scores(compiled, len(job.train))
    return compiled
