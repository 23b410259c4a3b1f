"""`--plan` of a choice: the calls and tokens that it takes at least and at most.

At least, all methods are asked the questions of the first round, and then one is left. At most, the
whole budget of answers is spent, and after the first round by the method that takes most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from ..optimizers.call_bounds import Range
from ..programs.program import MemoryProgram
from .choose import check_share, in_order, named_methods, questions_that_count
from .evaluate import Part
from .halving import DEFAULT_SHARE, answer_budget, first_round_size, most_questions
from .inputs import RunInputs
from .plan_sizes import MeanWork, Work, estimate_writing, measure_program
from .planning import TOKENS_OF_EVALUATION, WRITING_SPREAD, Plan, make_plan, start_program


@dataclass(frozen=True)
class _Method:
    """One of the methods, and what it takes on average."""

    program: MemoryProgram
    mean_work: MeanWork

    def writing(self, questions: Sequence[dspy.Example]) -> Work:
        """Return what writing the memories of some questions takes."""
        return estimate_writing(self.program, questions, self.mean_work)


def plan_choice(
    targets: Sequence[object],
    inputs: RunInputs,
    share: float = DEFAULT_SHARE,
    split: Part = "all",
) -> Plan:
    """Return the plan of a choice.

    Args:
        targets: The methods, as `run_choose` takes them.
        inputs: Data, models, and the settings of the methods.
        share: The share of all answers that is asked for at most.
        split: Which questions are asked.

    Raises:
        UserError: As `run_choose`; or what a method takes is not known before it runs.
    """
    named = named_methods(targets)
    check_share(share)
    benchmark = inputs.benchmark
    programs = [start_program(method.target, inputs, benchmark) for method in named]
    writes_with_model = any(program.method.writer.calls_model for program in programs)
    questions = in_order(inputs, questions_that_count(inputs, split), writes_with_model)
    methods: list[_Method] = []
    for program in programs:
        methods.append(_Method(program, measure_program(program, benchmark, questions)))

    count = len(methods)
    first_count = first_round_size(count, len(questions), share)
    later_count = answer_budget(count, len(questions), share) - first_count * count
    first_questions = questions[:first_count]
    most_asked = questions[: most_questions(count, len(questions), share)]

    first_round = _sum([method.mean_work.answering.times(first_count) for method in methods])
    later_calls = max(method.mean_work.answering.calls for method in methods) * later_count
    later_tokens = max(method.mean_work.answering.tokens for method in methods) * later_count
    least_writing = _sum([method.writing(first_questions) for method in methods])
    most_writing = _sum([method.writing(most_asked) for method in methods])

    phases = {
        f"first round, {first_count} questions": Range(first_round.calls, first_round.calls),
        "further rounds": Range(0, later_calls),
        "writing memories": Range(
            least_writing.calls * WRITING_SPREAD.low, most_writing.calls * WRITING_SPREAD.high
        ),
    }
    tokens = Range(
        (first_round.tokens + least_writing.tokens) * TOKENS_OF_EVALUATION.low,
        (first_round.tokens + later_tokens + most_writing.tokens) * TOKENS_OF_EVALUATION.high,
    )
    # The price of output counts as with the method that takes most tokens.
    costliest = max(methods, key=lambda method: method.mean_work.answering.tokens)
    return make_plan(phases, tokens, costliest.mean_work, inputs.config)


def _sum(works: Sequence[Work]) -> Work:
    """Return what all of it takes together."""
    total = Work(0, 0)
    for work in works:
        total += work
    return total
