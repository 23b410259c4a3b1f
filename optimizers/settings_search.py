"""The optimizer `settings`: searches for better values of a method's numbers and switches.

    mempiler.compile("turn-rag", benchmark="locomo", optimizer="settings",
                     optimizer_set={"objective": "evidence_recall"})

Optuna proposes the values: by TPE where only the score counts, by NSGA-II where costs count beside
it. The search ends with a pass that undoes every change which gains nothing.

Sources: TPE, Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011);
NSGA-II, Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (2002).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..errors import UserError
from .call_bounds import NOTHING, CallBounds, Range
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from ..programs.tunable import TunableSetting
    from .job import OptimizerJob

Objective = Literal["metric", "evidence_recall", "support"]
"""What is to grow: the benchmark's metric, the share of the gold evidence that is recalled, or the
share of the gold answer's words that stand in what is recalled."""
Cost = Literal["context_tokens", "search_milliseconds"]
"""What is to shrink: tokens of what is recalled, or the time of a search."""


@dataclass(frozen=True, kw_only=True)
class SettingsSearch(Optimizer):
    """Search for better values of a method's settings."""

    name: ClassVar[str] = "settings"
    changes_in_program: ClassVar[str] = (
        "settings of the method: its numbers and switches, such as k and the weights of a search"
    )
    cost_description: ClassVar[str] = (
        "num_trials (100) passes over the training questions; with objective=evidence_recall or "
        "support no question is answered, so with turn-rag and other methods that recall without "
        "a model there are no calls"
    )
    tunes_prompts: ClassVar[bool] = False
    smallest_values: ClassVar = {"num_trials": 1, "max_context_tokens": 1}

    num_trials: int = 100
    """Sets of values that are proposed."""
    objective: Objective = "metric"
    """What is to grow."""
    costs: Sequence[Cost] = ()
    """What is to shrink beside it; then the best trade-offs are looked for."""
    names: Sequence[str] = field(default_factory=tuple[str, ...])
    """The settings to tune; all of the reader if there are none."""
    max_context_tokens: int | None = None
    """Most tokens that may be recalled for a question, as a mean over the training questions; as
    many as the start recalls if None."""

    def check_requirements(self, job: OptimizerJob) -> None:
        from .trial_scores import AnswerScorer, make_scorer

        self._chosen_settings(job)
        scorer = make_scorer(job, self.objective)
        # A run that is resumed must come to the same trials again, or it would pay for others.
        if isinstance(scorer, AnswerScorer) and "search_milliseconds" in self.costs:
            raise UserError(
                "costs = 'search_milliseconds': the time of a search is never the same twice, and "
                "objective = 'metric' asks a model; choose 'evidence_recall' or 'support'"
            )

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        At least: all trials are equal, so that prompts are sent once. At most: all of them differ,
        and every change is undone on trial.
        """
        from .trial_scores import AnswerScorer, make_scorer

        chosen = self._chosen_settings(job)
        most_trials = 1 + self.num_trials + len(chosen)
        questions = Range(len(job.train), most_trials * len(job.train))
        asks_for_answers = isinstance(make_scorer(job, self.objective), AnswerScorer)
        writes_memories = any(setting.is_of_writer for setting in chosen.values())
        return CallBounds(
            answers=questions if asks_for_answers else NOTHING,
            recalls=NOTHING if asks_for_answers else questions,
            memory_writings=Range(1, most_trials if writes_memories else 1),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with the best values that were found."""
        from .settings_trials import SettingsTrials
        from .trial_scores import make_scorer

        trials = SettingsTrials(
            job=job,
            settings=self._chosen_settings(job),
            scorer=make_scorer(
                job, self.objective, measures_time="search_milliseconds" in self.costs
            ),
            costs=self.costs,
            max_context_tokens=self.max_context_tokens,
        )
        changes = trials.search(self.num_trials)
        job.on_frontier(trials.frontier())
        job.on_note(trials.describe(changes))
        return job.student.with_settings(changes) if changes else job.student

    def _chosen_settings(self, job: OptimizerJob) -> Mapping[str, TunableSetting]:
        """Return the settings to tune, by name.

        Raises:
            UserError: There is none, or a name is not among those that can be tuned.
        """
        from ..programs.tunable import tunable_settings

        tunable = tunable_settings(job.student.method)
        if not self.names:
            of_reader = {
                name: setting for name, setting in tunable.items() if not setting.is_of_writer
            }
            if not of_reader:
                raise UserError(_nothing_to_tune(job.student.name, tunable))
            return of_reader

        for name in self.names:
            if name not in tunable:
                known_names = ", ".join(tunable) or "none"
                raise UserError(
                    f"names: {name!r} is no setting of {job.student.name} that can be tuned; "
                    f"these can: {known_names}"
                )
        return {name: tunable[name] for name in self.names}


def _nothing_to_tune(program_name: str, tunable: Mapping[str, Any]) -> str:
    """Return why no setting is tuned, with the settings that a user may name."""
    if not tunable:
        return f"{program_name} has no setting that can be tuned; choose another method"
    return (
        f"{program_name} has only settings that decide how memories are written, and they are "
        f"written anew for each value; name those to tune, as in names={list(tunable)[:1]!r}"
    )
