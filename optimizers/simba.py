"""The optimizer `simba`: advice and demos, learned from contrasts between good and bad answers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .call_bounds import CallBounds, Range
from .demo_limits import DemoLimits
from .extra_settings import ExtraSettings
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .demos import DemoBuilder
    from .job import OptimizerJob
    from .prompt_rules import PromptRules


def _constructor() -> type:
    import dspy

    return dspy.SIMBA


_CONSTRUCTOR_SETTINGS = ExtraSettings(
    _constructor,
    ("demo_input_field_maxlen", "temperature_for_sampling", "temperature_for_candidates"),
)


@dataclass(frozen=True, kw_only=True)
class Simba(DemoLimits, Optimizer):
    """Learn advice and demos from contrasts between good and bad runs."""

    name: ClassVar[str] = "simba"
    changes_in_program: ClassVar[str] = (
        "instructions (advice) and demos, from the differences between good and bad runs"
    )
    cost_description: ClassVar[str] = (
        "about 8 batches (bsize) per step, and 5 passes over the training questions at the end"
    )
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS,)
    smallest_values: ClassVar = {
        "bsize": 1,
        "num_candidates": 1,
        "temperature_for_sampling": 0.001,
    }

    bsize: int = 32
    """Training questions of one step."""
    num_candidates: int = 4
    """Samples of each question, and new programs, of one step."""
    max_steps: int = 4
    """Steps."""
    max_demos: int = 4
    """Demos of one prompt."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        Each step works on a batch of questions, in two phases. It answers the batch
        `num_candidates` times. Then it makes new programs from the good and the bad answers, at
        most `num_candidates + 1`, and each of them answers the batch once.

        After the last step, the start and the best program of each step answer all questions.
        """
        questions = len(job.train)
        batch_size = min(self.bsize, questions)

        # At most: every step makes as many new programs as it can.
        most_new_programs_per_step = self.num_candidates + 1
        most_batches_per_step = self.num_candidates + most_new_programs_per_step
        most_batches = self.max_steps * most_batches_per_step
        most_final_programs = 1 + self.max_steps
        most_answers = most_batches * batch_size + most_final_programs * questions

        # At least: no step makes a new program, and all steps draw the same batch. Then the later
        # steps send the same prompts as the first one, and get their answers from the cache. In the
        # end there is only the start to score.
        fewest_paid_steps = min(1, self.max_steps)
        fewest_batches = fewest_paid_steps * self.num_candidates
        fewest_answers = fewest_batches * batch_size + questions

        # SIMBA asks the prompt model for advice to make a new program, or adds a demo without it.
        most_proposals = self.max_steps * most_new_programs_per_step
        return CallBounds(
            answers=Range(fewest_answers, most_answers),
            memory_writings=Range(fewest_paid_steps, most_batches),
            proposals=Range(0, most_proposals),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program that SIMBA scores best on the training questions."""
        import dspy

        from .demos import DemoBuilder

        # DSPy's annotation is wrong: it says that a metric gets the prediction as a dictionary.
        metric: Any = job.metric_views.score
        teleprompter = dspy.SIMBA(
            metric=metric,
            prompt_model=job.prompt_lm,
            num_threads=job.threads,
            bsize=min(self.bsize, len(job.train)),
            num_candidates=self.num_candidates,
            max_steps=self.max_steps,
            max_demos=self.max_demos,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )

        if self.max_demos > 0:
            # If demos are allowed, the first of SIMBA's strategies makes them. It copies the calls
            # behind the best answer to a question. These may be too long for a demo, so they are
            # shortened before.
            builder = DemoBuilder(job, self)
            demo_strategy, *other_strategies = teleprompter.strategies
            short_demo_strategy = self._with_short_traces(demo_strategy, builder)
            teleprompter.strategies = [short_demo_strategy, *other_strategies]

        # SIMBA does not score with `dspy.Evaluate`, where other candidates are checked.
        if job.rules is not None:
            strategies = teleprompter.strategies
            teleprompter.strategies = [_within_rules(each, job.rules) for each in strategies]

        compiled: Any = teleprompter.compile(job.student, trainset=list(job.train), seed=job.seed)
        return compiled

    def _with_short_traces(
        self, strategy: Callable[..., Any], builder: DemoBuilder
    ) -> Callable[..., Any]:
        """Return a strategy of SIMBA that shortens the trace of the best answer before it runs."""

        # SIMBA logs the name of a strategy.
        @functools.wraps(strategy)
        def strategy_with_short_traces(
            answers: list[dict[str, Any]], program: Any, **kwargs: Any
        ) -> Any:
            # SIMBA sorts the answers to a question by their score, the best first.
            best = answers[0]
            builder.shorten_trace(
                best["trace"], best["example"], best["prediction"], self.max_demos
            )
            return strategy(answers, program, **kwargs)

        return strategy_with_short_traces


def _within_rules(strategy: Callable[..., Any], rules: PromptRules) -> Callable[..., Any]:
    """Return a strategy of SIMBA that fails if the program that it made breaks a rule."""
    from ..programs.program import PromptsRefusedError

    # SIMBA logs the name of a strategy.
    @functools.wraps(strategy)
    def strategy_within_rules(answers: list[dict[str, Any]], program: Any, **kwargs: Any) -> Any:
        result = strategy(answers, program, **kwargs)
        refusal = rules.refuse_program(program)
        if refusal is not None:
            # SIMBA goes on without the program.
            raise PromptsRefusedError(refusal)
        return result

    return strategy_within_rules
