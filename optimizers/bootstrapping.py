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

_RECALLS_PER_DEMO = 2
"""Training questions that are recalled at most for each labelled demo: some make none."""


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
    """Demos of one prompt, bootstrapped ones included: as many as are wanted and fit it."""


def prepare_bootstrapping(
    job: OptimizerJob, settings: BootstrapSettings, view: Callable[..., Any]
) -> BootstrapInputs:
    """Choose the questions to try, and build the labelled demos among them.

    Args:
        job: What is to be compiled.
        settings: The settings of the optimizer.
        view: The form of the metric that the optimizer takes.
    """
    from .demos import DemoBuilder

    builder = DemoBuilder(job, settings)
    max_tries = settings.max_tries
    demos: list[DemoExample] = []
    shown_demos = settings.max_labeled_demos
    if settings.max_labeled_demos and max_tries:
        # Every question that is tried may have a labelled demo, so more are built than are shown.
        demos = builder.build_demos(max_tries, _RECALLS_PER_DEMO * max_tries)
        shown_demos = builder.count_fitting(
            demos, settings.max_labeled_demos, settings.max_bootstrapped_demos
        )

    metric = builder.shortening_metric(view, settings.max_bootstrapped_demos)
    return BootstrapInputs(_questions_to_try(job, settings, demos), metric, shown_demos)


def _questions_to_try(
    job: OptimizerJob, settings: BootstrapSettings, demos: Sequence[DemoExample]
) -> list[dspy.Example]:
    """Return the training questions that DSPy tries, those with a labelled demo first.

    If there are too few labelled demos for a prompt, further questions are tried, up to
    `max_tries` in all: their answers may become bootstrapped demos.
    """
    # No more demos are built than questions may be tried.
    wanted_demos = min(settings.max_labeled_demos, settings.max_tries)
    has_enough_demos = len(demos) > 0 and len(demos) >= wanted_demos
    if has_enough_demos:
        # They come alone, because DSPy draws its labelled demos from all questions that it gets.
        return list(demos)
    questions = [*demos, *_questions_without_demo(job.train, demos)]
    return list(questions[: settings.max_tries])


def _questions_without_demo(
    examples: Sequence[dspy.Example], demos: Sequence[DemoExample]
) -> list[DemoExample]:
    """Return the training questions that no labelled demo was made from.

    DSPy takes whatever it tries for a labelled demo too. So each question is wrapped into an
    example that has the field `question` alone: without an answer, no prompt shows it as a demo.
    """
    from .demos import DemoExample, question_of

    ids_with_demo = {id(question_of(demo)) for demo in demos}
    questions: list[DemoExample] = []
    for example in examples:
        if id(example) not in ids_with_demo:
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
        # Where enough labelled demos could be built, only their questions are tried
        # (`_questions_to_try`), which may be as few as `max_labeled_demos`.
        fewest = min(fewest, settings.max_labeled_demos)
    return Range(fewest, most * rounds)


def bounds_of_recalls(job: OptimizerJob, settings: BootstrapSettings) -> Range:
    """Return how many questions are recalled to build the labelled demos."""
    if not settings.max_labeled_demos:
        return NOTHING
    questions = len(job.train)
    most = _RECALLS_PER_DEMO * settings.max_tries
    return Range(min(settings.max_tries, questions), min(most, questions))
