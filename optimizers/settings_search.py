"""The optimizer `settings`: searches for better values of a method's numbers, switches and choices.

    mempiler.compile("turn-rag", benchmark="locomo", optimizer="settings",
                     optimizer_set={"objective": "evidence_recall"})

Optuna proposes the values: with its sampler TPE if only the score counts, with NSGA-II if costs
count as well. At the end, every change that gains nothing is undone.

Sources: TPE, Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011);
NSGA-II, Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (2002).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from ..errors import UserError
from .call_bounds import NOTHING, CallBounds, Range
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from ..programs.tunable import TunableSetting
    from .job import OptimizerJob

Objective = Literal["metric", "evidence_recall", "support"]
"""What to maximize: the benchmark's metric, the share of the gold evidence that is recalled, or the
share of the gold answer's words that are in what is recalled."""
Cost = Literal["context_tokens", "search_milliseconds"]
"""What to minimize: the tokens of what is recalled, or the time of a search."""


@dataclass(frozen=True, kw_only=True)
class SettingsSearch(Optimizer):
    """Search for better values of a method's settings."""

    name: ClassVar[str] = "settings"
    changes_in_program: ClassVar[str] = (
        "settings of the method: its numbers, switches and choices, such as k and the weights of "
        "a search"
    )
    cost_description: ClassVar[str] = (
        "num_trials (100) passes over the training questions; with objective=evidence_recall or "
        "support no question is answered, so with turn-rag and other methods that recall without "
        "a model there are no calls"
    )
    tunes_prompts: ClassVar[bool] = False
    smallest_values: ClassVar = {"num_trials": 1, "max_context_tokens": 1}

    num_trials: int = 100
    """How many sets of values are proposed."""
    objective: Objective = "metric"
    """What to maximize."""
    costs: Sequence[Cost] = ()
    """What to minimize at the same time; the search then looks for the best trade-offs."""
    names: Sequence[str] = field(default_factory=tuple[str, ...])
    """The settings to tune; by default all settings of the reader."""
    max_context_tokens: int | None = None
    """Most tokens that may be recalled for a question, as a mean over the training questions; by
    default as many as with the starting settings."""

    def check_requirements(self, job: OptimizerJob) -> None:
        from .trial_scores import AnswerScorer, make_scorer

        self._chosen_settings(job)
        scorer = make_scorer(job, self.objective)
        # A resumed run must repeat the same trials, since the calls of other trials are paid again.
        if isinstance(scorer, AnswerScorer) and "search_milliseconds" in self.costs:
            raise UserError(
                "costs = 'search_milliseconds': the time of a search is never the same twice, and "
                "objective = 'metric' asks a model; choose 'evidence_recall' or 'support'"
            )

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return bounds of the number of calls.

        The lower bound holds if all trials are equal, since equal prompts are sent once. The upper
        bound holds if all trials differ, and each change is also tried without.
        """
        from .trial_scores import AnswerScorer, make_scorer

        chosen = self._chosen_settings(job)
        # The starting settings, the proposals, and a trial for each setting that is set back.
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
            scorer=make_scorer(job, self.objective),
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
            UserError: There is none, or `names` has a setting that cannot be tuned.
        """
        from ..programs.tunable import tunable_settings

        tunable = tunable_settings(job.student.method)
        if not self.names:
            reader_settings = {
                name: setting for name, setting in tunable.items() if not setting.is_of_writer
            }
            if not reader_settings:
                raise _no_reader_settings_error(job.student.name, writer_settings=list(tunable))
            return reader_settings

        for name in self.names:
            if name not in tunable:
                known_names = ", ".join(tunable) or "none"
                raise UserError(
                    f"names: {name!r} is no setting of {job.student.name} that can be tuned; "
                    f"these can: {known_names}"
                )
        return {name: tunable[name] for name in self.names}


def _no_reader_settings_error(program_name: str, writer_settings: Sequence[str]) -> UserError:
    """Return an error for a program that has no settings of its reader.

    Args:
        program_name: The name of the program.
        writer_settings: Its settings that change how memories are written. They are tuned only if
            the user names them, since memories are then written again for each value.
    """
    if not writer_settings:
        return UserError(f"{program_name} has no setting that can be tuned; choose another method")
    return UserError(
        f"{program_name} has only settings that change how memories are written "
        f"({', '.join(writer_settings)}), and each value of them writes all memories again; "
        f"to tune them anyway, name them, as in names=[{writer_settings[0]!r}]"
    )
