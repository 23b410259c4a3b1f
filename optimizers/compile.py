"""Compiles a program: one optimizer, one stage, and a result that can be saved.

    program ── staged copy ──> teleprompter ──> compiled copy ── its prompts ──> copy of the program, no LM bound

When the budget is exhausted while an optimizer runs, or the optimizer breaks after calls were made, the best candidate
that was scored in full is returned; when the endpoint dies, nothing is: DSPy's optimizers would hand back an untuned
program as compiled.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.limits import BudgetGuard
from ..engines.metered_lm import MeteredLM
from ..errors import BudgetError, EndpointError, MempilerError, UserError
from ..programs.program import MemoryProgram
from ..programs.staging import Stage
from ..programs.state import own_demos
from .catalog import Optimizer, optimizer
from .constructors import validate_settings
from .cost_estimate import EFFORTS, estimate_cost, few_proposals
from .custom import CustomOptimizer, TeleprompterFactory
from .history import CandidateHistory
from .job import MAX_ERRORS, OptimizerJob
from .labelled import fit_window, plain
from .metric_views import MetricViews
from .proposals import ProposingLM
from .runners import trained_lm

_log = logging.getLogger("mempiler")


@dataclass(frozen=True)
class CompileConfig:
    """How a program is to be tuned."""

    optimizer: str = "bootstrap"
    stage: Stage = "all"
    seed: int = 0
    threads: int = 8
    settings: Mapping[str, Any] | None = None
    """Overrides of the optimizer's settings."""
    threshold: float = 0.5
    """Least score of an answer to learn from."""
    make_teleprompter: TeleprompterFactory | None = None
    """Makes a teleprompter of the user's own, which then runs in the place of an optimizer of the catalog."""

    @property
    def entry(self) -> Optimizer | CustomOptimizer:
        """The optimizer that runs.

        Raises:
            UnknownNameError: There is none of this name.
        """
        if self.make_teleprompter is not None:
            return CustomOptimizer(self.optimizer, self.make_teleprompter, {})
        return optimizer(self.optimizer)


def plan_job(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    how: CompileConfig,
    prompt_lm: MeteredLM | None = None,
) -> OptimizerJob:
    """Makes the job of `compile_program` and checks the optimizer's needs, before any paid call.

    Raises:
        UserError: No training question counts, a setting is unknown, a need is not met.
    """
    chosen = how.entry
    settings = validate_settings(how.optimizer, chosen.settings, how.settings or {})
    examples = [example for example in trainset if benchmark.in_headline(example)]
    least = 3 if chosen.validates else 1
    if len(examples) < least:
        needs = f"{how.optimizer} needs at least {least} training questions that count for the score"
        raise UserError(f"{needs}, there are {len(examples)}; raise --train or widen --categories")
    held = len(examples) // 3 if chosen.validates else 0
    random.Random(how.seed).shuffle(examples)
    job = OptimizerJob(
        student=program.staged(how.stage),
        train=benchmark.interleave(examples[held:]),
        val=benchmark.interleave(examples[:held]),
        metric_views=MetricViews(benchmark, how.threshold, sorted(program.writer_names())),
        task_lm=dspy.settings.lm,
        prompt_lm=prompt_lm or dspy.settings.lm,
        settings=settings,
        seed=how.seed,
        threads=how.threads,
        category=benchmark.category,
    )
    chosen.check(job)
    return job


def compile_program(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    config: CompileConfig | None = None,
    prompt_lm: MeteredLM | None = None,
    history: CandidateHistory | None = None,
) -> MemoryProgram:
    """Tunes a program on training questions, under the LM of the current context.

    Args:
        program: What to tune; stays as it is.
        benchmark: Whose metric decides.
        trainset: Questions with answers.
        config: Optimizer, stage, seed and settings.
        prompt_lm: Writes proposals and reflections; the LM of the context if None.
        history: Collects the candidates, the LM whose weights were trained, what became of the proposals, and what
            ended the optimizer before its time; a new one if None.

    Returns:
        A compiled copy that shares the program's memory cache; a copy of the program itself where the budget ended, or
        the optimizer broke, before any candidate was scored.

    Raises:
        UserError: As `plan_job`.
        EndpointError: The endpoint died while the optimizer ran.
    """
    config = config or CompileConfig()
    lm = dspy.settings.lm
    guard: BudgetGuard = lm.guard if isinstance(lm, MeteredLM) else BudgetGuard()
    job = plan_job(program, benchmark, trainset, config, prompt_lm)
    history = history or CandidateHistory(lm.meter)
    if config.optimizer in EFFORTS:
        predictors = len(job.student.named_predictors())
        done = estimate_cost(config.optimizer, job.settings, len(job.train), len(job.val), predictors)
        history.most = math.ceil(done.runs.high + done.recalls.high)
        if few := few_proposals(config.optimizer, job, guard.remaining(1.0).max_calls):
            _log.warning(few)
            history.note(few)
    before = guard.refused_calls
    compiled = _run(config.entry, job, history, guard)
    if guard.fatal_error is not None:
        raise type(guard.fatal_error)(str(guard.fatal_error))
    if guard.refused_calls > before:
        history.ended = None  # whatever it made of refused calls, the limit ended it
    if guard.refused_calls > before or compiled is None:
        compiled = history.best() or compiled
    if compiled is not None:
        history.trained = trained_lm(compiled, lm)
    result = clean_program(compiled if compiled is not None else job.student, program)
    window = getattr(lm, "window", None)
    for line in fit_window(result, window) if window else ():
        history.note(line)
    return result


def clean_program(compiled: MemoryProgram, start: MemoryProgram) -> MemoryProgram:
    """Return a copy of the start with the prompts of what an optimizer made of it, fit to be saved.

    Nothing is frozen, no LM is bound, predictors keep only demos that a prompt shows, and whatever the optimizer hung
    onto its program (candidate programs, logs, scores) is left behind.
    """
    result = start.with_prompts_of(compiled)
    for predictor in result.all_predictors().values():
        predictor.demos = [plain(demo) for demo in own_demos(predictor)]
        predictor.lm = None
    return result


def _run(
    chosen: Optimizer | CustomOptimizer, job: OptimizerJob, history: CandidateHistory, guard: BudgetGuard
) -> MemoryProgram | None:
    """The optimizer's result; None where the budget ended it, or an error after calls were spent."""
    before, spent = guard.refused_calls, history.spent()
    # Optimizers get a copy, so that a rescue never sees a half changed student.
    student: Any = job.student.deepcopy()
    prompt_lm = ProposingLM.over(job.prompt_lm, history.proposals)
    work = replace(job, student=student, prompt_lm=prompt_lm, on_failure=history.end, on_note=history.note)
    callbacks = [*(dspy.settings.callbacks or []), history, history.proposals]
    # Without a trace of its own, plain calls inside an optimizer would fill the process-wide one.
    with dspy.context(trace=None, callbacks=callbacks, max_errors=MAX_ERRORS, disable_history=True):
        try:
            compiled = chosen.run(work)
        except (BudgetError, EndpointError):
            return None
        except MempilerError:
            raise
        except Exception as error:
            # An optimizer's exception may follow from refused calls; the guard knows why they were refused.
            if guard.fatal_error is None and guard.refused_calls == before and history.spent() == spent:
                raise
            history.end(error)
            return None
    for found in getattr(compiled, "trial_logs", {}).values():
        # SIMBA scores its winners without dspy.Evaluate, and keeps the scores only here.
        if isinstance(found, dict) and "train_score" in found:
            history.add(found["train_score"], len(job.train))
    return compiled
