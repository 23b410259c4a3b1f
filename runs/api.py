"""The Python API: compile, evaluate, compare, check and train, on examples or on a benchmark.

    result = mempiler.compile(
        agent, trainset=train, valset=dev, testset=test, metric=my_metric,
        optimizer=mempiler.optimizers.Gepa(max_metric_calls=300),
        lm=dspy.LM("openai/gpt-4.1-mini"), limits=mempiler.Limits(max_usd=5),
    )
    print(result)
    result.save("my-program")

Every run is one MLflow run and has a folder, which `resume=` continues. The command line calls
these functions. Its options are arguments here, with the same names (`RunOptions`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import dspy

from ..async_bridge import run_in_own_loop
from ..data.benchmark import Benchmark
from ..data.catalog import benchmark as load_benchmark
from ..engines.meter import Meter
from ..errors import UnknownNameError, UserError
from ..optimizers.catalog import OPTIMIZERS
from ..optimizers.compile import CompileConfig
from ..optimizers.custom import TeleprompterFactory
from ..optimizers.logo_grpo.training_config import TrainingConfig
from ..optimizers.optimizer import Optimizer
from ..optimizers.settings_search import SettingsSearch
from ..programs.staging import Stage
from .announce import announce
from .check import AnyModel, CheckModels, Subjects, run_check
from .check_result import Check
from .choice import Choice
from .choose import run_choose
from .comparison import Comparison, compare_evaluations
from .compile import KeepOptions, run_compile
from .compile_result import CompileResult
from .config import UNAVAILABLE_OPTIONS, RunConfig
from .evaluate import Part, run_evaluate
from .halving import DEFAULT_SHARE
from .improve import ImproveConfig, run_improve
from .improvement import Improvement
from .inputs import RunInputs
from .options import Questions, RunOptions, check_model_option, make_inputs
from .planning import Plan, plan_compile, plan_evaluate
from .progress import OnProgress, RunProgress, StartPhase, run_progress
from .results import Evaluation
from .round_split import MIN_USERS
from .statistics import MIN_N
from .train import TrainResult, run_train
from .training_plan import plan_train

if TYPE_CHECKING:
    from ..memory.store.store import Store

Examples = Sequence[dspy.Example]
"""Questions with their answers, and the history that each is about."""
Metric = str | Callable[..., object]
"""The name of a metric, or a function of an example and a prediction."""


def compile(  # noqa: A001 (the public name)
    program: object,
    *,
    trainset: Examples | None = None,
    valset: Examples | None = None,
    testset: Examples | None = None,
    metric: Metric | None = None,
    optimizer: str | Optimizer | TeleprompterFactory = "bootstrap",
    optimizer_set: Mapping[str, Any] | None = None,
    stage: Stage = "all",
    max_prompt_growth: float | None = None,
    max_context_tokens: int | None = None,
    out: str | Path | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> CompileResult:
    """Tune the prompts of a program against a metric, and score it before and after.

    Args:
        program: A method's name, a `dspy.Module` with `forward(history, question)`, a class or
            object with `add` and `search`, a `MemoryProgram`, or a saved program: its folder, or
            `models:/NAME@ALIAS`.
        trainset: Examples to learn from, with `history`, `question` and `answer`. Alone it is split
            into the three parts. In the place of examples, name a `benchmark`.
        valset: Examples that decide whether the compiled program is better.
        testset: Examples that are scored before and after.
        metric: A function of an example and a prediction, in any form that DSPy or GEPA takes, or
            the name of a metric: "f1", "exact", "judge", "support".
        optimizer: A name (`mempiler list optimizers`), settings such as
            `mempiler.optimizers.Gepa(...)`, or a function that makes a
            `dspy.teleprompt.Teleprompter` for a metric.
        optimizer_set: Settings of an optimizer that is named.
        stage: Which prompts are tuned: those that "write" memories, those that "read" them, or
            "all".
        max_prompt_growth: How many times as long as those of the start the prompts of a candidate
            may be, instructions and demos together; None is no limit.
        max_context_tokens: For the optimizer "settings": most tokens that may be recalled for a
            question, as a mean over the training questions.
        out: Folder for the program; one in the run's folder if None.
        force: Keep the compiled program whatever the dev questions show.
        **options: Models, limits and everything else that runs share; see `RunOptions`.

    Returns:
        The program that was kept, its scores before and after, the paired difference and the
        verdict.

    Raises:
        UserError: An argument does not fit; nothing was asked.
        EndpointError: The model's endpoint is down; the message says how to resume.
    """
    _refuse_options(options, UNAVAILABLE_OPTIONS["compile"], "compile")
    questions = Questions(trainset, valset, testset, metric)
    inputs = _inputs_for(compile, options, questions)
    compile_config = make_compilation(
        optimizer, optimizer_set, stage, max_prompt_growth, max_context_tokens
    )
    keep = KeepOptions(out, force)
    with _show_progress(options, inputs, program) as (start_phase, meter):
        return run_compile(program, inputs, compile_config, keep, start_phase, meter)


def evaluate(
    program: object,
    testset: Examples | None = None,
    *,
    metric: Metric | None = None,
    split: Part = "all",
    **options: Unpack[RunOptions],
) -> Evaluation:
    """Score a program on examples, or on a benchmark.

    Args:
        program: As `compile` takes it; or a function of `(history, question)`, a file of answers,
            or the address of a chat endpoint.
        testset: Examples with `history`, `question` and `answer`; in their place, name a
            `benchmark`.
        metric: As `compile` takes it.
        split: Which questions of a benchmark: "all", or a part of the split that `compile` uses.
        **options: Models, limits and everything else that runs share; see `RunOptions`.

    Raises:
        UserError: An argument does not fit; nothing was asked.
        EndpointError: The model's endpoint is down; the message says how to resume.
    """
    _refuse_options(options, UNAVAILABLE_OPTIONS["evaluate"], "evaluate")
    questions = Questions(testset=testset, metric=metric)
    inputs = _inputs_for(evaluate, options, questions)
    with _show_progress(options, inputs, program, split) as (start_phase, meter):
        return run_evaluate(program, inputs, split, progress=start_phase, meter=meter)


def choose(
    programs: Sequence[object],
    testset: Examples | None = None,
    *,
    metric: Metric | None = None,
    share: float = DEFAULT_SHARE,
    split: Part = "all",
    **options: Unpack[RunOptions],
) -> Choice:
    """Find out which of several methods suits the questions best, with few calls.

    All methods are asked some of the questions. The worse half leaves, and so does whoever is
    clearly behind the leader; those that stay are asked further ones, until two are left.

    Args:
        programs: Two methods or more, each in a form that `evaluate` takes, except for files of
            answers.
        testset: As `evaluate` takes it.
        metric: As `compile` takes it.
        share: The share of all answers, each method on each question, that is asked for at most:
            above 0, up to 1.
        split: Which questions of a benchmark: "all", or a part of the split that `compile` uses.
        **options: Models, limits and everything else that runs share; see `RunOptions`. The limits
            hold for all methods together.

    Returns:
        The methods, the best first, with their scores and what they take, and whether the first
        one is told apart from the second one.

    Raises:
        UserError: An argument does not fit; nothing was asked.
        EndpointError: The model's endpoint is down; the message says how to resume.
    """
    _refuse_options(options, UNAVAILABLE_OPTIONS["choose"], "choose")
    questions = Questions(testset=testset, metric=metric)
    inputs = _inputs_for(choose, options, questions)
    with _show_progress(options, inputs, None, split) as (start_phase, meter):
        return run_choose(programs, inputs, share, split, start_phase, meter)


async def aevaluate(
    program: object,
    testset: Examples | None = None,
    *,
    metric: Metric | None = None,
    split: Part = "all",
    **options: Unpack[RunOptions],
) -> Evaluation:
    """Score a program as `evaluate` does, for asyncio; arguments, result and errors are the same.

    `threads` says how many questions are asked at a time. It may be in the hundreds: a language
    model that can be awaited occupies no thread. A limited number of threads does the rest:
    searches, calls of other models, your own module and your own metric.

    Cancelling the task that awaits this ends the run and the calls in flight. `resume` continues
    such a run.
    """
    run = partial(evaluate, program, testset, metric=metric, split=split, **options)
    return await run_in_own_loop(run)


def compare(
    baseline: str | Evaluation | CompileResult,
    *others: str | Evaluation | CompileResult,
    min_n: int = MIN_N,
) -> Comparison:
    """Compare evaluations on the questions that all were asked.

    Args:
        baseline: An evaluation, the result of a compile, or the name of a finished run.
        *others: What is compared with it.
        min_n: With fewer questions there is no verdict.

    Returns:
        The paired difference of each to the baseline, with its interval and verdict, in all and by
        category.

    Raises:
        UserError: There is nothing to compare, or the evaluations have no question in common.
    """
    if not others:
        raise UserError("one evaluation is nothing to compare; give another")
    return compare_evaluations([baseline, *others], min_n)


def check(
    program: object,
    *,
    against: object,
    testset: Examples | None = None,
    metric: Metric | None = None,
    split: Part = "all",
    lms: Sequence[AnyModel] = (),
    against_lm: AnyModel | None = None,
    floors: Mapping[str, float] | None = None,
    **options: Unpack[RunOptions],
) -> Check:
    """Check whether a program may take the place of the one in use, and with which models.

    Both programs answer the same questions. The check fails if `program` is significantly worse
    than `against`, by the paired verdict of `compare`, or if a figure is below its floor. It also
    fails with fewer than `min_n` questions. A difference that is not told apart passes, and the
    result says which loss would have been noticed.

    Args:
        program: The program that is checked, as `evaluate` takes it. Settings in `set` are meant
            for it alone.
        against: The program in use, e.g. "models:/memory@prod".
        testset: As `evaluate` takes it.
        metric: As `compile` takes it.
        split: As `evaluate` takes it.
        lms: Several models, which `program` is asked with one after the other. For a single one,
            `lm` does as well.
        against_lm: The model in use, which the reference is asked with. If left out, it is the one
            that `against` was compiled with, or else the first of `lms`.
        floors: The least value of figures of `program`, e.g. {"recall@20": 0.7, "score": 0.5}.
        **options: Models, limits and everything else that runs share; see `RunOptions`.

    Returns:
        A table of programs and models, with the differences to the reference, and whether the
        check passes.

    Raises:
        UserError: An argument does not fit.
        BrokenRunError: Too much failed in the evaluation of the reference, or a limit was reached.
        EndpointError: The model's endpoint is down; the message says how to resume.
    """
    _refuse_options(options, UNAVAILABLE_OPTIONS["check"], "check")
    checked_models = _checked_models(lms, options.get("lm"))
    check_model_option("against_lm", against_lm)
    subjects = Subjects.pinned(program, against)
    default_model = dspy.settings.lm or "offline"
    models = CheckModels.choose(subjects.reference, checked_models, against_lm, default_model)

    questions = Questions(testset=testset, metric=metric)
    reference_options: RunOptions = {**options, "lm": models.reference}
    inputs = _inputs_for(check, reference_options, questions)
    with _show_progress(options, inputs, subjects.reference, split) as (start_phase, meter):
        return run_check(subjects, models, inputs, split, floors, start_phase, meter)


def _checked_models(lms: Sequence[AnyModel], lm: AnyModel | None) -> list[AnyModel]:
    """Return the models of a check: those of `lms`, or the single one of `lm`; none if none is set.

    Raises:
        UserError: Both are set, or one is neither a model nor the name of one.
    """
    if isinstance(lms, str):
        raise UserError(f"lms = {lms!r:.100}: give a list of models, e.g. [{lms!r:.100}]")
    if lms and lm is not None:
        raise UserError("lm: lms names the models already; give one of the two")
    models = list(lms)
    if lm is not None:
        models = [lm]
    for model in models:
        check_model_option("lms", model)
    return models


def train(
    program: object = "memory-r2",
    *,
    trainset: Examples | None = None,
    valset: Examples | None = None,
    testset: Examples | None = None,
    metric: Metric | None = None,
    optimizer: str = "logo-grpo",
    train_set: Mapping[str, Any] | None = None,
    trainer: str | None = None,
    out: str | Path | None = None,
    **options: Unpack[RunOptions],
) -> TrainResult:
    """Train the local language model behind a method, and score it before and after.

    Args:
        program: A method's name, or a saved program.
        trainset: Examples to learn from; in their place, name a `benchmark`.
        valset: Examples by which the best checkpoint is kept.
        testset: Examples that are scored before and after.
        metric: The reward; as `compile` takes it.
        optimizer: "logo-grpo", "grpo", "grpo-session", "grpo-cumulative" or "local".
        train_set: Settings of the training, of its reward or trainer, e.g.
            {"steps": 10, "learning_rate": 2e-4}.
        trainer: "local", or "trl" for weights in shards and vLLM.
        out: Folder for the program; one in the run's folder if None.
        **options: Models, limits and everything else that runs share. `lm` is the name of the model
            to train, "local:NAME". `answer_lm` answers the questions that rewards come from, in the
            place of that model.

    Raises:
        UserError: The model cannot be trained in this process, or an argument does not fit.
    """
    # Other options that the command line does not have for a training work from Python.
    _refuse_options(options, ("margin",), "train")
    questions = Questions(trainset, valset, testset, metric)
    inputs = _inputs_for(train, options, questions)
    training = make_training(inputs.config, optimizer, train_set, trainer, options.get("threads"))
    with _show_progress(options, inputs, program) as (start_phase, meter):
        return run_train(program, inputs, training, out, start_phase, meter)


def improve(
    address: str,
    *,
    store: Store | str | Path | None = None,
    tenant: str | None = None,
    metric: str | None = None,
    optimizer: str | Optimizer | TeleprompterFactory = "gepa",
    optimizer_set: Mapping[str, Any] | None = None,
    stage: Stage = "all",
    max_prompt_growth: float | None = None,
    min_users: int = MIN_USERS,
    allow_user_text: bool = False,
    **options: Unpack[RunOptions],
) -> Improvement:
    """Compile a registered program on new questions of its users; move its alias if it is better.

    A round decides only on questions that no earlier round decided on. With too few of them it
    pays for nothing, and says how many are missing.

    Args:
        address: `models:/NAME@ALIAS`. The program is the start, and the alias moves to a better
            one.
        store: The store whose feedback becomes questions: itself, the path of its file, or
            `postgresql://...`. In its place, give `data`: a file of questions in the form of the
            benchmark `jsonl`.
        tenant: Only questions of this tenant of the store.
        metric: "f1", "exact", "judge" or `module:function`; the first if None.
        optimizer: As `compile` takes it. Without `allow_user_text`, none that makes demos.
        optimizer_set: Settings of an optimizer that is named.
        stage: As for `compile`.
        max_prompt_growth: As for `compile`.
        min_users: Users whose questions decide, at least.
        allow_user_text: Register a program although its prompts hold demos or passages of users.
        **options: Models, limits and everything else that runs share; see `RunOptions`. `min_n` is
            the number of new questions that must decide. A round has no `benchmark`, and cannot be
            resumed or replayed.

    Raises:
        UserError: An argument does not fit, another process improves the model, or the alias was
            moved meanwhile.
        EndpointError: A model cannot be reached.
        BrokenRunError: Too many questions failed.
    """
    _refuse_options(options, UNAVAILABLE_OPTIONS["improve"], "improve")
    all_options: RunOptions = {**options, "benchmark": "jsonl"}
    inputs = _inputs_for(improve, all_options, Questions(metric=metric))
    compile_config = make_compilation(optimizer, optimizer_set, stage, max_prompt_growth)
    config = ImproveConfig(store, tenant, min_users, allow_user_text)
    if not options.get("progress", True):
        return run_improve(address, inputs, compile_config, config)
    with run_progress(inputs.config.limits) as (start_phase, meter):
        return run_improve(address, inputs, compile_config, config, start_phase, meter)


def plan(
    program: object,
    *,
    trainset: Examples | None = None,
    valset: Examples | None = None,
    testset: Examples | None = None,
    metric: Metric | None = None,
    optimizer: str | Optimizer | None = "bootstrap",
    optimizer_set: Mapping[str, Any] | None = None,
    stage: Stage = "all",
    max_prompt_growth: float | None = None,
    max_context_tokens: int | None = None,
    split: Part = "all",
    **options: Unpack[RunOptions],
) -> Plan:
    """Estimate the calls, tokens and cost of a compile before anything is paid for.

    Args:
        program: As `compile` takes it, and so are the other arguments.
        trainset: As for `compile`.
        valset: As for `compile`.
        testset: As for `compile`, or for `evaluate`.
        metric: As for `compile`.
        optimizer: As for `compile`; None plans an evaluation.
        optimizer_set: As for `compile`.
        stage: As for `compile`.
        max_prompt_growth: As for `compile`; the plan does not depend on it.
        max_context_tokens: As for `compile`; the plan does not depend on it.
        split: As for `evaluate`.
        **options: See `RunOptions`.

    Raises:
        UserError: What the program takes cannot be known in advance.
    """
    if optimizer is not None:
        _refuse_options(options, UNAVAILABLE_OPTIONS["compile"], "compile")
    else:
        _refuse_options(options, UNAVAILABLE_OPTIONS["evaluate"], "evaluate")
    questions = Questions(trainset, valset, testset, metric)
    inputs = _inputs_for(plan, options, questions)
    if optimizer is None:
        estimate = plan_evaluate(program, inputs, split)
        part = split
    else:
        compile_config = make_compilation(
            optimizer, optimizer_set, stage, max_prompt_growth, max_context_tokens
        )
        estimate = plan_compile(program, inputs, compile_config)
        part = None

    # Only now: if an argument does not fit, its error is the only line that is printed.
    if options.get("progress", True):
        announce(inputs, program, part)
    return estimate


def plan_training(
    program: object = "memory-r2",
    *,
    trainset: Examples | None = None,
    valset: Examples | None = None,
    testset: Examples | None = None,
    metric: Metric | None = None,
    optimizer: str = "logo-grpo",
    train_set: Mapping[str, Any] | None = None,
    trainer: str | None = None,
    **options: Unpack[RunOptions],
) -> Plan:
    """Estimate the calls, tokens and hours of a training before anything is paid for.

    Args:
        program: As `train` takes it, and so are the other arguments.
        trainset: As for `train`: examples to learn from.
        valset: As for `train`.
        testset: As for `train`.
        metric: As for `train`.
        optimizer: As for `train`.
        train_set: As for `train`: settings of the training, no questions.
        trainer: As for `train`.
        **options: See `RunOptions`.

    Raises:
        UserError: The model cannot be trained in this process, or an argument does not fit.
    """
    questions = Questions(trainset, valset, testset, metric)
    inputs = _inputs_for(plan_training, options, questions)
    training = make_training(inputs.config, optimizer, train_set, trainer, options.get("threads"))
    estimate = plan_train(program, inputs, training)
    # Only now: if an argument does not fit, its error is the only line that is printed.
    if options.get("progress", True):
        announce(inputs, program)
    return estimate


def benchmark(name: str, data: str | Path | None = None, **options: object) -> Benchmark:
    """Load a benchmark; `train`, `dev`, `test` and `metric` are its parts.

    Args:
        name: One of `mempiler list benchmarks`, or `module:Class` of your own.
        data: The genuine file; None takes the bundled sample.
        **options: Options of the benchmark, such as `metric` and `categories`.

    Raises:
        UnknownNameError: There is no such benchmark or option.
        DataError: The file is not what the benchmark reads.
    """
    return load_benchmark(name, None if data is None else Path(data), **options)


def make_compilation(
    optimizer: str | Optimizer | TeleprompterFactory,
    settings: Mapping[str, Any] | None = None,
    stage: Stage = "all",
    max_prompt_growth: float | None = None,
    max_context_tokens: int | None = None,
) -> CompileConfig:
    """Return how a program is to be tuned.

    Args:
        optimizer: As `compile` takes it.
        settings: Settings of an optimizer that is named.
        stage: Which prompts are tuned.
        max_prompt_growth: How many times as long as the start's the prompts may become.
        max_context_tokens: Most tokens that may be recalled for a question. It decides over the
            setting of this name, which only the optimizer "settings" has.

    Raises:
        UserError: The optimizer is of no known form, there are settings beside an object, the
            growth is no finite number of 1 or more, or the optimizer cannot limit the tokens.
        UnknownNameError: There is no such stage.
    """
    if stage not in get_args(Stage):
        raise UnknownNameError("stage", stage, get_args(Stage))
    _check_growth(max_prompt_growth)
    compile_config = _compile_config(optimizer, settings, stage)
    if max_context_tokens is not None:
        compile_config = _with_context_limit(compile_config, max_context_tokens)
    return replace(compile_config, max_prompt_growth=max_prompt_growth)


def _check_growth(max_prompt_growth: object) -> None:
    """Raise a UserError if a growth is neither None nor a finite number of 1 or more."""
    if max_prompt_growth is None:
        return
    is_allowed = False
    if isinstance(max_prompt_growth, int | float) and not isinstance(max_prompt_growth, bool):
        # JSON knows no infinity, and the run's record is JSON.
        is_allowed = 1 <= max_prompt_growth <= sys.float_info.max
    if not is_allowed:
        raise UserError(
            f"max_prompt_growth: got {max_prompt_growth!r}; expected a finite number of 1 or"
            " more, such as 1.5: how many times as long as the start's the prompts may become"
        )


def _compile_config(
    optimizer: str | Optimizer | TeleprompterFactory,
    settings: Mapping[str, Any] | None,
    stage: Stage,
) -> CompileConfig:
    """Return the configuration for an optimizer in any form in which `compile` takes it."""
    if isinstance(optimizer, str):
        return CompileConfig(optimizer, stage, settings=settings)
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        # A class can be called, too, and would be taken for a function.
        class_name = optimizer.__name__
        if optimizer in OPTIMIZERS.values():
            class_name = f"mempiler.optimizers.{class_name}"
        raise UserError(f"optimizer: got a class, not an object of it; write {class_name}()")
    if settings:
        raise UserError(
            "optimizer_set is for an optimizer that is given by name;"
            " put the settings into the object"
        )
    if isinstance(optimizer, Optimizer):
        return CompileConfig.of_object(optimizer, stage)
    if callable(optimizer):
        name = getattr(optimizer, "__name__", type(optimizer).__name__)
        return CompileConfig(name, stage, make_teleprompter=optimizer)
    raise UserError(
        f"optimizer: got {type(optimizer).__name__}; expected a name, mempiler.optimizers settings,"
        " or a function from a metric to a teleprompter"
    )


def _with_context_limit(config: CompileConfig, max_context_tokens: int) -> CompileConfig:
    """Return a configuration of the optimizer `settings` with a limit for what is recalled.

    Raises:
        UserError: It is the configuration of another optimizer.
    """
    if isinstance(config.optimizer_object, SettingsSearch):
        limited = replace(config.optimizer_object, max_context_tokens=max_context_tokens)
        return CompileConfig.of_object(limited, config.stage)

    is_named = config.optimizer_object is None and config.make_teleprompter is None
    if is_named and config.optimizer == SettingsSearch.name:
        settings = {**(config.settings or {}), "max_context_tokens": max_context_tokens}
        return replace(config, settings=settings)

    raise UserError(
        f"max_context_tokens: {config.optimizer} does not limit what is recalled; take"
        " --optimizer settings (in Python: optimizer='settings')"
    )


def make_training(
    config: RunConfig,
    objective: str,
    settings: Mapping[str, Any] | None = None,
    trainer: str | None = None,
    threads: int | None = None,
) -> TrainingConfig:
    """Return how a model is to be trained: the defaults for the model, and what the user changes.

    A setting may be named twice: in `settings`, and by an argument or option of its own. Then
    `settings` decides the objective and the answering model. `trainer` and `threads` decide over
    `settings`.

    Args:
        config: Names the model to train, and the one that answers for rewards.
        objective: The optimizer, e.g. "logo-grpo".
        settings: As `train_set` of `train`.
        trainer: "local" or "trl"; None leaves it to the settings and the defaults.
        threads: Questions in flight; None leaves it to the settings and the defaults.

    Raises:
        UserError: A model among the settings is an object, or a setting does not fit.
    """
    changes = dict(settings or {})
    if isinstance(changes.get("answer_lm"), dspy.BaseLM):
        raise UserError(
            "train_set: answer_lm takes a name here;"
            " give the object as answer_lm=... of train itself"
        )

    changes.setdefault("objective", objective)
    answer = config.models.answer
    if answer.name is not None and "answer_lm" not in changes:
        # The address of the option belongs to the model of the option, so it is not combined with
        # an `answer_lm` of the settings.
        changes["answer_lm"] = answer.name
        changes.setdefault("answer_api_base", answer.api_base)

    if trainer is not None:
        changes["trainer"] = trainer
    if threads is not None:
        changes["threads"] = threads
    return TrainingConfig.for_model(config.models.task.name).changed(changes)


def _refuse_options(options: RunOptions, names: Sequence[str], command: str) -> None:
    """Refuse options of a run that a command does not have, so that none is silently ignored.

    Args:
        options: The options of the caller.
        names: The options that the command does not have.
        command: The name of the command, for the message.

    Raises:
        UserError: One of them is set.
    """
    for name in names:
        if options.get(name) is not None:
            raise UserError(f"{name}: {command} does not take it; leave it out")


def _inputs_for(
    function: Callable[..., object], options: RunOptions, questions: Questions
) -> RunInputs:
    """Check the keyword options of a public function, and return the inputs of its run.

    Args:
        function: The public function that the user called, e.g. `evaluate`.
        options: The options that it received as `**options`.
        questions: The user's own questions, if there are any.

    Raises:
        UserError: An option is unknown, or does not fit.
    """
    # A misspelled argument arrives among the options. With the names of the arguments, the error
    # can suggest the one that was meant.
    parameters = inspect.signature(function).parameters.values()
    argument_names = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return make_inputs(options, questions, argument_names)


@contextmanager
def _show_progress(
    options: RunOptions, inputs: RunInputs, program: object, part: Part | None = None
) -> Iterator[RunProgress]:
    """Show the progress of a run while the block runs, unless the options say otherwise.

    When the first phase begins, a line says which data and models the run uses.

    Args:
        options: `progress` says whether anything is shown.
        inputs: What the run is started with.
        program: What is compiled, scored or trained.
        part: Which questions an evaluation asks. None for a compile or a training, which needs the
            parts train, dev and test.

    Yields:
        What the run reports its progress to.
    """
    if not options.get("progress", True):
        yield RunProgress(_start_hidden_phase, Meter())
        return
    with run_progress(inputs.config.limits) as (start_phase, meter):
        start_announced_phase = _AnnouncedPhases(start_phase, inputs, program, part)
        yield RunProgress(start_announced_phase, meter)


class _AnnouncedPhases:
    """Starts the phases of a run, and announces the run when the first one begins.

    Not earlier: an argument that does not fit is noticed before, and its error is the only line.
    """

    def __init__(
        self, start_phase: StartPhase, inputs: RunInputs, program: object, part: Part | None
    ) -> None:
        self._start_phase = start_phase
        self._inputs = inputs
        self._program = program
        self._part: Part | None = part
        self._is_announced = False

    def __call__(self, phase: str) -> OnProgress:
        if not self._is_announced:
            self._is_announced = True
            announce(self._inputs, self._program, self._part)
        return self._start_phase(phase)


def _start_hidden_phase(phase: str) -> OnProgress:
    """Start a phase whose progress nobody sees."""
    return _ignore_progress


def _ignore_progress(done: int, total: int) -> None:
    """Do nothing with the progress of a phase."""
