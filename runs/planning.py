"""`--plan`: estimates a compile or an evaluation before any paid call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.embedders import embedder as make_embedder
from ..engines.models import language_model
from ..errors import UserError
from ..optimizers.compile import Compilation, plan_job
from ..optimizers.effort import effort
from ..optimizers.plan import Plan, Size, compile_plan, evaluation_plan, measure
from ..programs.catalog import answering, build, needs_embedder, preset
from ..programs.program import MemoryProgram
from .addresses import program_folder
from .experiment import Part, chosen_examples
from .external import plannable
from .setup import Setup


def plan_evaluate(
    name: str, setup: Setup, part: Part = "all", config: Mapping[str, Any] | None = None, allow_code: bool = False
) -> Plan:
    """The plan of an evaluation; arguments as `experiment.run_evaluate`."""
    benchmark = setup.load()
    examples = chosen_examples(setup, benchmark, part)
    program = start_program(name, setup, benchmark, config, allow_code)
    size = measure(program, benchmark, examples)
    return evaluation_plan(conversing(size, benchmark), examples, setup.lm)


def plan_compile(
    method: str,
    setup: Setup,
    how: Compilation,
    config: Mapping[str, Any] | None = None,
    allow_code: bool = False,
) -> Plan:
    """The plan of a compile; arguments as `experiment.run_compile`. Checks the optimizer's needs, too."""
    benchmark = setup.load(compiling=True)
    split = setup.split(benchmark)
    program = start_program(method, setup, benchmark, config, allow_code)
    with dspy.context(lm=language_model()):
        job = plan_job(program, benchmark, split.train, how)
    size = measure(program, benchmark, split.train)
    visible = {name for name, _ in job.student.named_predictors()}
    done = effort(how.optimizer, job.settings, len(job.train), len(job.val), len(visible))
    learned = [*job.train, *job.val]
    rewrites = bool(visible & program.writer_names()) and how.optimizer not in ("labeled", "knn")
    return compile_plan(size, done, learned, split.dev, split.test, setup.lm, rewrites)


def conversing(size: Size, benchmark: Benchmark) -> Size:
    """What a question takes where it is a conversation; plans leave out judges."""
    if benchmark.interaction is None:
        return size
    # Two assistants reply, and the user writes before each reply.
    turns = 2 * benchmark.interaction.replies
    return replace(size, read_calls=turns * (size.read_calls + 1), read_tokens=2 * turns * size.read_tokens)


def start_program(
    name: str,
    setup: Setup,
    benchmark: Benchmark,
    config: Mapping[str, Any] | None,
    allow_code: bool = False,
) -> MemoryProgram:
    """A method's program or a saved one as a run begins with it, without its models.

    Raises:
        UserError: The settings or the task do not fit.
    """
    folder = program_folder(name)
    if folder is not None:
        return answering(setup.saved(folder, allow_code), benchmark.task)
    if not plannable(name):
        raise UserError(f"{name}: what it takes is not known before; leave --plan out, and set --max-calls")
    # The offline embedder replaces a paid one: the recalled context has the same size.
    embedder = make_embedder() if needs_embedder(name) else None
    settings = {**preset(name, benchmark.name, benchmark.unsaid), **dict(config or {})}
    return build(name, benchmark.task, embedder, adapter=setup.default_adapter, **settings)
