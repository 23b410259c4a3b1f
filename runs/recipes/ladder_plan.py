"""What climbing a ladder takes, before it is climbed: scoring of every rung, runs of its optimizers, its training.

    dev and test questions, greedy, and test questions sampled     of the start and of every rung
    few-shot, GEPA, SFT                                            `optimizers.effort`, as for a compile
    LoGo-GRPO                                                      its steps, or its budget of generated tokens

Limits: a rung that changes nothing asks nothing again, so the least is the start alone. A step of a training takes a
trajectory per member of its groups; a budget says nothing of steps. What training weights takes beyond the rollouts,
and how much memory, is not counted.
"""

from __future__ import annotations

from typing import Any

from ...optimizers.catalog import optimizer as entry
from ...optimizers.effort import effort
from ...optimizers.plan import NOTHING, Plan, Range, Size, compile_plan, evaluation_plan, measure, price
from ..planning import start_program
from ..setup import Setup
from .reinforced import course
from .rungs import LOGO, Ladder, Rung

_AROUND = Range(0.8, 1.25)
"""What was measured on a few items, for others."""


def plan_ladder(ladder: Ladder, method: str, setup: Setup) -> tuple[Plan, tuple[str, ...]]:
    """The plan of a climb, a phase per rung and one of scoring, and what it says of the training in words.

    Args:
        ladder: What will be climbed.
        method: What it tunes.
        setup: Data and model.

    Raises:
        UserError: A setting does not fit.
    """
    benchmark = setup.load(compiling=True)
    split = setup.split(benchmark)
    program = start_program(method, setup, benchmark, None)
    size = measure(program, benchmark, split.train)
    learned = [example for example in split.train if benchmark.counts(example)]
    # Test questions are asked twice: greedy, and of memories written at temperature 1.
    scored = [evaluation_plan(size, part, setup.lm).calls for part in (split.dev, split.test, split.test)]
    once = scored[0] + scored[1] + scored[2]
    calls = {"scoring": Range(once.low, once.high * (1 + len(ladder.rungs)))}
    told: list[str] = []
    sessions = max((len(example.history) for example in learned), default=0)
    for rung in ladder.rungs:
        if rung.optimizer == LOGO:
            calls[rung.label], said = _training(rung, setup, size, sessions)
            told.append(f"{rung.label}: {said}")
        else:
            shown = benchmark.interleave(learned)[: rung.questions]
            calls[rung.label] = _tuning(rung, setup, size, shown, len(program.named_predictors()))
    total = NOTHING
    for part in calls.values():
        total = total + part
    each = (size.read_tokens + size.write_tokens) / max(1.0, size.read_calls + size.write_calls)
    tokens = Range(total.low * each * 0.7, total.high * each * 4)
    rounded = Range(int(total.low), int(total.high + 0.999))
    return Plan(rounded, tokens, price(setup.lm, tokens, size.output_share), calls), tuple(told)


def _tuning(rung: Rung, setup: Setup, size: Size, shown: list[Any], predictors: int) -> Range:
    """Calls of one optimizer on the questions it is shown."""
    chosen = entry(rung.optimizer)
    held = len(shown) // 3 if chosen.validates else 0
    settings = {**chosen.settings, **rung.settings}
    done = effort(rung.optimizer, settings, len(shown) - held, held, predictors)
    return compile_plan(size, done, shown, (), (), setup.lm, rewrites=True).calls


def _training(rung: Rung, setup: Setup, size: Size, sessions: int) -> tuple[Range, str]:
    """Calls of the rollouts, and what ends the training."""
    settings = course(setup.lm, rung.settings, setup.seed).settings
    stages = settings.curriculum.stages(max(1, sessions))
    both = settings.num_rollouts + settings.local_n * settings.local_fraction
    a_session = settings.histories * both * size.write_calls
    steps, tokens = settings.curriculum.steps, settings.curriculum.tokens
    if steps is not None:
        calls = _AROUND.times(steps * sum(stages) * a_session)
        budget = "" if tokens is None else f", and at most {tokens:,} generated tokens"
        return Range(0 if tokens else calls.low, calls.high), f"{steps * len(stages)} steps{budget}"
    out = size.output_share * (size.read_tokens + size.write_tokens) / max(1.0, size.read_calls + size.write_calls)
    # A step that has begun is ended.
    most = (tokens or 0) / max(1.0, out) + stages[-1] * a_session
    return Range(0, most), f"about {tokens or 0:,} generated tokens"
