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
    demos_per_prompt: int
    """Demos of one prompt, bootstrapped ones included: as many as are wanted and fit it."""


def prepare_bootstrapping(
    job: OptimizerJob, settings: BootstrapSettings, metric: Callable[..., Any]
) -> BootstrapInputs:
    """Build labelled demos, and return the inputs of a teleprompter that bootstraps.

    DSPy gets one list of examples. It tries each of them to bootstrap a demo, and may show each of
    them as a labelled demo. So the labelled demos are built first, and decide what is in the list.

    Args:
        job: What is to be compiled.
        settings: The settings of the optimizer.
        metric: Judges the answers: the one of `MetricViews` that the teleprompter needs.
    """
    from .demos import DemoBuilder

    builder = DemoBuilder(job, settings)
    labeled_demos: list[DemoExample] = []
    demos_per_prompt = settings.max_labeled_demos
    if settings.max_labeled_demos and settings.max_tries:
        # A labelled demo is wanted for every question that DSPy may try, though one prompt shows
        # only `max_labeled_demos`: DSPy draws which of them a prompt shows.
        labeled_demos = builder.build_demos(
            num_demos=settings.max_tries, max_tries=_RECALLS_PER_DEMO * settings.max_tries
        )
        demos_per_prompt = builder.count_fitting(
            labeled_demos, settings.max_labeled_demos, settings.max_bootstrapped_demos
        )

    return BootstrapInputs(
        trainset=_questions_to_try(job, settings, labeled_demos),
        metric=builder.shortening_metric(metric, settings.max_bootstrapped_demos),
        demos_per_prompt=demos_per_prompt,
    )


def _questions_to_try(
    job: OptimizerJob, settings: BootstrapSettings, labeled_demos: Sequence[DemoExample]
) -> list[dspy.Example]:
    """Return the training questions that DSPy tries, those with a labelled demo first.

    A `DemoExample` is a labelled demo and also the training question that it was made from. So the
    demos themselves stand for their questions. If there are too few demos for a prompt, further
    questions are tried, up to `max_tries` in all: their answers may become bootstrapped demos.
    """
    # No more demos are built than questions may be tried.
    wanted_demos = min(settings.max_labeled_demos, settings.max_tries)
    # Where no labelled demos are wanted, none were built, and all questions may be tried.
    if labeled_demos and len(labeled_demos) >= wanted_demos:
        # No other question is tried. DSPy draws a prompt's labelled demos from all questions that
        # it gets, and one without a demo would take the place of a demo.
        return list(labeled_demos)

    other_questions = _questions_without_demo(job.train, labeled_demos)
    questions = [*labeled_demos, *other_questions]
    return list(questions[: settings.max_tries])


def _questions_without_demo(
    trainset: Sequence[dspy.Example], labeled_demos: Sequence[DemoExample]
) -> list[DemoExample]:
    """Return the training questions that no labelled demo was made from, with most fields hidden.

    DSPy may show every question that it tries as a labelled demo. These are not fit for one, since
    they hold no recalled context. So DSPy sees only their field `question`: without an answer, no
    prompt shows them as demos. A `DemoExample` hides the other fields, but still runs the program
    on the whole training question.
    """
    from .demos import DemoExample, question_of

    ids_with_demo = {id(question_of(demo)) for demo in labeled_demos}
    hidden_questions: list[DemoExample] = []
    for example in trainset:
        if id(example) not in ids_with_demo:
            visible_fields = {"question": example.get("question")}
            hidden_questions.append(DemoExample(visible_fields, question=example))
    return hidden_questions


def bounds_of_tries(job: OptimizerJob, settings: BootstrapSettings, rounds: int = 1) -> Range:
    """Return how many questions are answered to bootstrap one set of demos.

    DSPy tries one question after another until `max_bootstrapped_demos` answers were good. A
    question without a good answer is tried up to `rounds` times.
    """
    most_questions = min(settings.max_tries, len(job.train))

    # At least: every answer is good.
    fewest_tries = min(settings.max_bootstrapped_demos, most_questions)
    if settings.max_labeled_demos:
        # Fewer questions than that may be tried. If there are as many labelled demos as a prompt
        # shows, DSPy gets only the questions that these demos were made from.
        fewest_tries = min(fewest_tries, settings.max_labeled_demos)

    # At most: no answer is good, so every question is tried in every round.
    return Range(fewest_tries, most_questions * rounds)


def bounds_of_recalls(job: OptimizerJob, settings: BootstrapSettings) -> Range:
    """Return how many questions are recalled to build the labelled demos."""
    if not settings.max_labeled_demos:
        return NOTHING
    questions = len(job.train)
    most = _RECALLS_PER_DEMO * settings.max_tries
    return Range(min(settings.max_tries, questions), min(most, questions))
