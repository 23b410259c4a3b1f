"""What the optimizers share that bootstrap demos.

To bootstrap is to run the program on training questions and to make demos of the calls behind good
answers. DSPy tries the questions one after another until it has enough demos.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .call_bounds import NOTHING, Range
from .demo_limits import DemoLimits

if TYPE_CHECKING:
    import dspy

    from .demos import DemoExample
    from .job import OptimizerJob


@dataclass(frozen=True, kw_only=True)
class BootstrapSettings(DemoLimits):
    """How many demos are bootstrapped, and from how many questions."""

    max_bootstrapped_demos: int = 4
    """Demos of one prompt that come from good answers of the program."""
    max_labeled_demos: int = 8
    """Demos of one prompt, with those that show a gold answer."""
    max_tries: int = 30
    """Training questions that are tried at most."""


@dataclass(frozen=True)
class BootstrapInputs:
    """What a teleprompter that bootstraps is given."""

    trainset: list[dspy.Example]
    """The training questions to try."""
    metric: Callable[..., Any]
    """The metric, which also shortens the traces that become demos."""
    max_labeled_demos: int
    """How many demos fit a prompt."""


def prepare_bootstrapping(
    job: OptimizerJob, settings: BootstrapSettings, view: Callable[..., Any]
) -> BootstrapInputs:
    """Choose the questions to try, and build the labelled demos among them.

    Questions that make a labelled demo come first. They come alone where they are enough, because
    DSPy draws its labelled demos from all questions that it is given.

    Args:
        job: What is to be compiled.
        settings: The settings of the optimizer.
        view: The form of the metric that the optimizer takes.
    """
    from .demos import DemoBuilder

    max_tries = settings.max_tries
    builder = DemoBuilder(job, settings)
    labeled_demos = min(settings.max_labeled_demos, max_tries)

    demos: list[DemoExample] = []
    max_labeled_demos = settings.max_labeled_demos
    if labeled_demos:
        demos = builder.build_demos(max_tries, 2 * max_tries)
        max_labeled_demos = builder.count_fitting(
            demos, settings.max_labeled_demos, settings.max_bootstrapped_demos
        )

    trainset: list[dspy.Example] = []
    trainset.extend(demos)
    if not demos or len(demos) < labeled_demos:
        trainset.extend(_questions_without_demo(job.train, demos))
        trainset = trainset[:max_tries]
    metric = builder.shortening_metric(view, settings.max_bootstrapped_demos)
    return BootstrapInputs(trainset, metric, max_labeled_demos)


def _questions_without_demo(
    examples: Sequence[dspy.Example], demos: Sequence[DemoExample]
) -> list[DemoExample]:
    """Return the training questions of which no demo was made, as questions to try."""
    from .demos import DemoExample, question_of

    ids_with_demo = {id(question_of(demo)) for demo in demos}
    questions: list[DemoExample] = []
    for example in examples:
        if id(example) not in ids_with_demo:
            # It has no output of a predictor, so that no prompt takes it for a labelled demo.
            fields = {"question": example.get("question")}
            questions.append(DemoExample(fields, question=example))
    return questions


def bounds_of_tries(job: OptimizerJob, settings: BootstrapSettings, rounds: int = 1) -> Range:
    """Return how many questions are answered to bootstrap one set of demos.

    A set is complete after as many good answers as demos are wanted. At most all questions are
    tried, in every round.
    """
    most = min(settings.max_tries, len(job.train))
    fewest = min(settings.max_bootstrapped_demos, most)
    if settings.max_labeled_demos:
        # There may be no more questions to try than labelled demos are wanted.
        fewest = min(fewest, settings.max_labeled_demos)
    return Range(fewest, most * rounds)


def bounds_of_recalls(job: OptimizerJob, settings: BootstrapSettings) -> Range:
    """Return how many questions are recalled to build the labelled demos."""
    if not settings.max_labeled_demos:
        return NOTHING
    questions = len(job.train)
    return Range(min(settings.max_tries, questions), min(2 * settings.max_tries, questions))
