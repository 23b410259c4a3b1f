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
from ..programs.state import own_demos, shows_demos
from .catalog import OPTIMIZERS, make_optimizer
from .custom import CustomOptimizer, TeleprompterFactory
from .demo_lengths import drop_demos_beyond_window
from .demos import without_question
from .finetune import trained_lm
from .history import CandidateHistory
from .job import MAX_ERRORS, OptimizerJob
from .metric_views import MetricViews
from .optimizer import Optimizer
from .prompt_rules import PromptRules, drop_demos_beyond_growth
from .proposals import ProposingLM
from .settings_check import check_extra, check_settings

_log = logging.getLogger("mempiler")

_SECRET_NAME = re.compile("key|token|secret|password", re.IGNORECASE)
"""What the names of texts that no record may have contain."""

_QUESTIONS_PER_VALSET_QUESTION = 3
"""One of three training questions is set aside for the valset."""


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
    max_prompt_growth: float | None = None
    """How many times as long as the start's the prompts of a candidate may be; None: no limit."""
    make_teleprompter: TeleprompterFactory | None = None
    """A user's function that returns a teleprompter, in place of an optimizer of the catalog."""
    optimizer_object: Optimizer | None = None
    """An optimizer that the user made. `optimizer` and `settings` then only describe it."""

    @classmethod
    def of_object(cls, optimizer: Optimizer, stage: Stage = "all") -> CompileConfig:
        """Return the configuration for an optimizer object that the user made.

        Raises:
            UserError: The class of the object has no `name`, or its `extra` does not fit.
        """
        # Messages show this name.
        if not hasattr(optimizer, "name"):
            class_name = type(optimizer).__name__
            raise UserError(f'optimizer {class_name}: set a name in its class, name = "my-own"')
        check_extra(optimizer)

        # Records show the name in the catalog. A user's own class may have inherited such a name,
        # so records show the name of the class instead.
        is_from_catalog = type(optimizer) in OPTIMIZERS.values()
        recorded_name = optimizer.name if is_from_catalog else type(optimizer).__name__
        return cls(
            optimizer=recorded_name,
            stage=stage,
            settings=optimizer.changed_settings(),
            optimizer_object=optimizer,
        )

    def make_optimizer(self) -> Optimizer:
        """Return the optimizer with its settings.

        Raises:
            UnknownNameError: There is no optimizer of this name.
            UserError: A setting is unknown, of the wrong type, or too small.
        """
        if self.optimizer_object is not None:
            # The object has its settings already. Its constructor did not check their values.
            check_settings(type(self.optimizer_object), self.settings or {})
            return self.optimizer_object

        if self.make_teleprompter is not None:
            if self.settings:
                raise UserError(
                    f"optimizer {self.optimizer!r} is a function and has no settings; "
                    "put them into the function"
                )
            return CustomOptimizer(
                make_teleprompter=self.make_teleprompter, function_name=self.optimizer
            )

        return make_optimizer(self.optimizer, self.settings)

    def recorded_settings(self) -> dict[str, Any]:
        """Return the settings as records keep them: objects as their class with its arguments."""
        settings = self.settings or {}
        return {name: _setting_as_json(value) for name, value in settings.items()}

    @property
    def has_python_objects(self) -> bool:
        """Whether only Python code can describe the optimizer, and no file of settings.

        It is a user's function or class then, or has a Python object among its settings.
        """
        if self.make_teleprompter is not None:
            return True
        if self.optimizer_object is not None:
            is_from_catalog = type(self.optimizer_object) in OPTIMIZERS.values()
            if not is_from_catalog:
                return True
        return any(_has_object(value) for value in (self.settings or {}).values())


def _setting_as_json(value: Any) -> Any:
    """Return a setting as JSON; an object becomes a text such as "PxNSampling(p=2, n=3)"."""
    if isinstance(value, Mapping):
        return {name: _setting_as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_setting_as_json(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, type) or inspect.isroutine(value):
        # A class or a function is known by its name.
        return value.__name__
    return _object_as_text(value)


def _has_object(value: Any) -> bool:
    """Return whether a setting is or holds a Python object that no file of settings can hold."""
    if isinstance(value, Mapping):
        return any(_has_object(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_object(item) for item in value)
    return value is not None and not isinstance(value, str | int | float)


def _object_as_text(value: object) -> str:
    """Return the name of an object's class with its arguments, such as "PxNSampling(p=2, n=3)"."""
    class_name = type(value).__name__
    if isinstance(value, dspy.BaseLM):
        # The arguments of a model may be API keys.
        return class_name
    if isinstance(value, PurePath | date):
        return repr(value)
    if isinstance(value, Set):
        # Sets of equal items may have different orders.
        return f"{class_name}({sorted(repr(item) for item in value)})"

    arguments = [
        f"{name}={_argument_as_text(argument)}"
        for name, argument in _constructor_arguments(value).items()
    ]
    if not arguments:
        return class_name
    return f"{class_name}({', '.join(arguments)})"


def _constructor_arguments(value: object) -> dict[str, Any]:
    """Return the arguments that an object was made with, as far as records may show them.

    They are read from the attributes that have the names of the constructor's parameters. Other
    attributes may change while the object works. Arguments that may be secret are left out.
    """
    try:
        parameter_names = list(inspect.signature(type(value)).parameters)
    except (TypeError, ValueError):
        # Python does not know the parameters of some classes that are written in C.
        return {}

    arguments: dict[str, Any] = {}
    for name in parameter_names:
        attribute = getattr(value, name, None)
        # A method may happen to have the name of a parameter.
        if attribute is None or inspect.ismethod(attribute):
            continue
        # Mappings, such as the headers of a request, may hold API keys.
        if isinstance(attribute, Mapping):
            continue
        if isinstance(attribute, str | list | tuple) and _SECRET_NAME.search(name):
            continue
        arguments[name] = attribute
    return arguments


def _argument_as_text(argument: Any) -> str:
    """Return an argument as Python code would have it: texts in quotes, objects without."""
    recorded = _setting_as_json(argument)
    is_described_object = isinstance(recorded, str) and not isinstance(argument, str)
    return recorded if is_described_object else repr(recorded)


def plan_job(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    config: CompileConfig,
    prompt_lm: MeteredLM | None = None,
) -> OptimizerJob:
    """Return the job of `compile_program`, checked before any paid call.

    The questions are split at random into those to learn from and, for an optimizer that needs one,
    a valset to choose candidates by.

    Raises:
        UserError: Too few training questions count, a setting is wrong, or something that the
            optimizer needs is missing.
    """
    optimizer = config.make_optimizer()
    # Only questions that count for the score are learned from.
    examples = [example for example in trainset if benchmark.in_headline(example)]
    # With fewer questions, the valset would be empty.
    fewest = _QUESTIONS_PER_VALSET_QUESTION if optimizer.needs_valset else 1
    if len(examples) < fewest:
        raise UserError(
            f"{config.optimizer} needs at least {fewest} training questions that count for "
            f"the score, there are {len(examples)}; raise --train or widen --categories"
        )

    valset_size = 0
    if optimizer.needs_valset:
        valset_size = len(examples) // _QUESTIONS_PER_VALSET_QUESTION
    # The valset is a random part of the questions.
    random.Random(config.seed).shuffle(examples)
    # Conversations take turns in both parts, so that an optimizer which uses only the first
    # questions still learns from many conversations.
    val_examples = benchmark.interleave(examples[:valset_size])
    train_examples = benchmark.interleave(examples[valset_size:])

    student = _student(program, benchmark, config.stage, optimizer.tunes_prompts)
    _refuse_texts_alone(student, optimizer, config.optimizer)
    writers = program.writer_names()
    tunes_writing = any(name in writers for name, _ in student.named_predictors())
    job = OptimizerJob(
        student=student,
        train=train_examples,
        val=val_examples,
        metric_views=MetricViews(benchmark, config.threshold, sorted(writers), tunes_writing),
        task_lm=dspy.settings.lm,
        prompt_lm=prompt_lm or dspy.settings.lm,
        seed=config.seed,
        threads=config.threads,
        category=benchmark.category,
        rules=PromptRules(program, trainset, config.max_prompt_growth),
    )
    optimizer.check_requirements(job)
    return job


def _student(
    program: MemoryProgram, benchmark: Benchmark, stage: Stage, tunes_prompts: bool
) -> MemoryProgram:
    """Return the copy of a program that an optimizer changes; it answers if the metric needs that.

    Args:
        program: The program.
        benchmark: Its metric decides whether the copy answers.
        stage: Which prompts the optimizer changes.
        tunes_prompts: Whether it changes prompts at all.

    Raises:
        UserError: The stage has no prompt to tune, or one that the metric does not depend on.
    """
    needs_answer = benchmark.scorer.needs_answer
    if not tunes_prompts:
        student = program.deepcopy()
        return student if needs_answer else student.recalling_only()
    if needs_answer:
        return program.staged(stage)

    title = benchmark.scorer.title
    names = program.all_predictors().keys()
    stages: list[Stage] = []
    if program.writer_names():
        stages.append("write")
    if names - program.writer_names() - program.answer_names():
        stages.append("read")
    if not stages:
        raise UserError(
            f"{program.name} writes and recalls without a prompt, so nothing of it can be tuned"
            f" for {title!r}; choose another method or --metric"
        )
    if stage not in stages:
        advice = " or ".join(f"--stage {name}" for name in stages)
        raise UserError(
            f"{title!r} asks for no answer, so stage {stage!r} would tune a prompt that it does not"
            f" depend on; take {advice}"
        )
    return program.staged(stage, answers=False)


def _refuse_texts_alone(student: MemoryProgram, optimizer: Optimizer, name: str) -> None:
    """Refuse an optimizer that could change nothing, because a program has texts alone.

    Args:
        student: The program as the optimizer sees it.
        optimizer: The optimizer.
        name: What the user calls it.

    Raises:
        UserError: All that the optimizer sees are texts of a memory system, and it changes none.
    """
    if optimizer.changes_texts:
        return
    has_prompt = any(shows_demos(predictor) for _, predictor in student.named_predictors())
    if not has_prompt:
        raise UserError(
            f"{name} changes no texts; the texts of {student.name} can be tuned by "
            "--optimizer gepa (in Python: optimizer='gepa')"
        )


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
            optimizer early; a new one if None. Its `refusal` says which rule the compiled program
            breaks.

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
    assert job.rules is not None
    history.set_rules(job.rules)
    _set_question_limit(optimizer, job, history)
    _warn_of_few_proposals(optimizer, job, history, guard)

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
    for line in drop_demos_beyond_growth(result, job.rules):
        history.note(line)
    history.refusal = job.rules.refuse_program(result)
    return result


def clean_program(compiled: MemoryProgram, start: MemoryProgram) -> MemoryProgram:
    """Return a copy of `start` with the prompts and settings of `compiled`, fit to be saved.

    Nothing else is copied from `compiled`. Optimizers attach other things to the program
    that they return, such as candidate programs, logs and scores. These are left out.
    """
    result = start.with_prompts_of(compiled)
    for predictor in result.all_predictors().values():
        # Every predictor has the demos of the whole program. It keeps those that it shows. A demo
        # also has the training question that it was made from, with a whole history: too much for a
        # saved program.
        predictor.demos = [without_question(demo) for demo in own_demos(predictor)]
        # A program is saved without a language model.
        predictor.lm = None
    return result


def _set_question_limit(optimizer: Optimizer, job: OptimizerJob, history: CandidateHistory) -> None:
    """Set how many questions the optimizer asks at most, of which the progress is a share."""
    bounds = optimizer.call_bounds(job)
    if bounds is not None:
        history.max_questions = math.ceil(bounds.answers.high + bounds.recalls.high)


def _warn_of_few_proposals(
    optimizer: Optimizer, job: OptimizerJob, history: CandidateHistory, guard: BudgetGuard
) -> None:
    """Log a warning if the settings or the calls that are left allow hardly any proposal.

    The history keeps the warning too, as a note on the result.
    """
    remaining_limits = guard.remaining(share=1.0)
    calls_left = remaining_limits.max_calls
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
        on_frontier=history.add_frontier,
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
