"""Check a program against the one in use: score both on the same questions, and compare.

    programs = CheckPrograms(checked="my-program", reference="models:/memory@prod")
    check = run_check(programs, CheckModels.choose(...), inputs, floors={"recall@20": 0.7})
    check.passed

Two words are used everywhere: the *checked* program is the new one, and the *reference* is the one
in use (`--against`). Each is scored with one model or more. Every such combination is an ordinary
evaluation, and has its own folder under `parts/` in the folder of the run. All share one store, so
a memory is written once, and a model that may be cached is asked once where two programs have the
same prompt.

When a run is resumed, finished evaluations are read, and one that was interrupted is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dspy

from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard
from ..engines.meter import Meter
from ..engines.model_names import is_offline
from ..errors import BrokenRunError, BudgetError, UserError
from ..programs.cache import MemoryCache
from ..programs.identity import digest, jsonable
from ..records.atomic_file import atomic_write
from .check_result import Check, CheckRow, compare_with_reference
from .compare import load_run
from .evaluate import Part, ProgressFactory, compiled_on, no_progress, run_evaluate
from .external import name_in_tables
from .floors import check_floor_values
from .folder import RunFolder, file_name_of
from .inputs import RunInputs
from .manifest import read_manifest
from .program_address import pin_address, program_folder
from .repeating import resume_key
from .results import Evaluation, refuse_broken
from .role_models import check_models
from .run import Parent
from .scoring import Progress
from .tracking.tracker import Tracker, open_tracker

RESULT_FILE = "check.json"
"""The file in the run's folder, and among MLflow's artifacts, that has the result as JSON."""

AnyModel = str | dspy.BaseLM
"""The name of a language model, or the model itself."""


@dataclass(frozen=True)
class CheckPrograms:
    """The two programs of a check; each is a name or an object, as `run_evaluate` takes it."""

    checked: object
    """The new program, which passes or fails."""
    reference: object
    """The program in use, which the checked one is compared with."""

    @classmethod
    def with_pinned_versions(cls, checked: object, reference: object) -> CheckPrograms:
        """Return both programs; an alias such as `@prod` becomes the version that it names now."""
        return cls(_pin_version(checked), _pin_version(reference))

    @property
    def names(self) -> list[str]:
        """The programs that are given by a name, each once."""
        names = [program for program in (self.checked, self.reference) if isinstance(program, str)]
        return list(dict.fromkeys(names))

    @property
    def is_same_program(self) -> bool:
        """Whether both are one object, or have one name."""
        if self.checked is self.reference:
            return True
        has_two_names = isinstance(self.checked, str) and isinstance(self.reference, str)
        return has_two_names and self.checked == self.reference


def _pin_version(program: object) -> object:
    """Return a program; an address is replaced by that of the version that it names now."""
    return pin_address(program) if isinstance(program, str) else program


@dataclass(frozen=True)
class CheckModels:
    """The language models of a check."""

    reference: AnyModel
    """The model in use: the first row of the table asks it."""
    checked: tuple[AnyModel, ...]
    """The models that the checked program is asked with; at least one."""

    @classmethod
    def choose(
        cls,
        reference_program: object,
        models: Sequence[AnyModel],
        reference_model: AnyModel | None,
        default: AnyModel,
    ) -> CheckModels:
        """Return the models of a check, of which a user may name any or none.

        The model in use is the one that the user names for it. Otherwise it is the one that the
        reference was compiled with, if that was a language model, and otherwise the first one.

        Args:
            reference_program: The program in use.
            models: The models that the user names for the checked program.
            reference_model: The model that the user names for the reference; None for no name.
            default: The model if nothing names one.

        Raises:
            UserError: A model is named twice.
        """
        reference = reference_model
        if reference is None:
            reference = _compiled_model(reference_program, models)
        if reference is None:
            reference = models[0] if models else default

        names = [model_name(model) for model in models]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise UserError(f"--lm {name}: is given twice; name every model once")
        return cls(reference, tuple(models) or (reference,))

    @property
    def all(self) -> tuple[AnyModel, ...]:
        """The model in use, and then the other ones."""
        others = [
            model for model in self.checked if model_name(model) != model_name(self.reference)
        ]
        return (self.reference, *others)


def model_name(model: AnyModel) -> str:
    """Return the name of a language model."""
    return model if isinstance(model, str) else model.model


def _compiled_model(program: object, models: Sequence[AnyModel]) -> AnyModel | None:
    """Return the model that a saved program was compiled with; None if that is not known.

    It is one of `models` if that has the same name: an object knows its address and its key.
    """
    if not isinstance(program, str):
        return None
    folder = program_folder(program)
    if folder is None:
        return None
    compiled_name = read_manifest(folder).lms.get("task")
    if compiled_name is None or is_offline(compiled_name):
        return None
    for model in models:
        if model_name(model) == compiled_name:
            return model
    return compiled_name


@dataclass(frozen=True)
class _Combination:
    """A program with a model: what one row of the table scores."""

    program: object
    model: AnyModel
    inputs: RunInputs
    """The data and limits of the check, with this model and the settings of this program."""
    is_decisive: bool
    """Whether its row can make the check fail, which only the checked program can."""

    @property
    def title(self) -> str:
        """The program and the model, for progress."""
        return f"{name_in_tables(self.program)} with {model_name(self.model)}"


def run_check(
    programs: CheckPrograms,
    models: CheckModels,
    inputs: RunInputs,
    split: Part = "all",
    floors: Mapping[str, float] | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
) -> Check:
    """Score programs with models on the same questions, and compare each with the reference.

    Settings of the method are meant for the checked program. The reference has its own, or the
    defaults of its method.

    Args:
        programs: The checked program and the reference.
        models: The language models.
        inputs: Data, judge, limits, and the settings of the checked program.
        split: Which questions: all, or those of train, dev or test as compile splits them.
        floors: The least value of figures of the checked program, by name.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.

    Raises:
        UserError: A program, a model, a floor or a file does not fit.
        BrokenRunError: A limit stopped the check, or the evaluation of the reference is broken.
        EndpointError: A model cannot be reached; the message says how to resume.
    """
    floors = floors or {}
    check_floor_values(floors)
    combinations = _combinations(programs, models, inputs)
    for combination in combinations:
        check_models(combination.inputs)

    settings = _settings_for_resume(programs, models, inputs, split)
    title = f"check-{name_in_tables(programs.checked)}-{inputs.config.data.benchmark}"
    resume = inputs.config.execution.resume
    if resume is None:
        folder = RunFolder.create(title, settings)
    else:
        folder = RunFolder.resume(resume, settings)

    tracking = inputs.config.execution.tracking
    with folder.recording(), open_tracker(tracking, title, {"command": "check"}) as tracker:
        tracker.log_params(settings)
        folder.update(run_id=tracker.run_id)
        in_flight = max(IN_FLIGHT, inputs.config.execution.threads)
        guard = BudgetGuard(inputs.config.limits, in_flight)
        scorer = _Scorer(folder, tracker.run_id, split, meter or Meter(), guard, progress)
        rows = _score_combinations(combinations, scorer, floors, inputs.config.execution.min_n)
        check = Check(
            benchmark=inputs.config.data.benchmark,
            rows=rows,
            notes=tuple(_training_notes(programs, inputs, split)),
            run=folder.path,
            run_id=tracker.run_id,
        )
        _save_result(check, folder, tracker)
    return check


def _combinations(
    programs: CheckPrograms, models: CheckModels, inputs: RunInputs
) -> list[_Combination]:
    """Return what is scored; the first combination is the reference with the model in use.

    The reference is also scored with the other models: that tells the effect of a model from that
    of the program. If both programs are the same one, these rows would repeat others.
    """
    checked_settings = inputs.config.method.settings
    has_same_programs = programs.is_same_program and not checked_settings
    reference_models = models.all[:1] if has_same_programs else models.all

    combinations: list[_Combination] = []
    for model in reference_models:
        reference_inputs = _inputs_with(inputs, model, settings={})
        combinations.append(
            _Combination(programs.reference, model, reference_inputs, is_decisive=False)
        )
    for model in models.checked:
        checked_inputs = _inputs_with(inputs, model, checked_settings)
        combinations.append(_Combination(programs.checked, model, checked_inputs, is_decisive=True))
    return combinations


def _inputs_with(inputs: RunInputs, model: AnyModel, settings: Mapping[str, Any]) -> RunInputs:
    """Return inputs in which `model` answers, and the method has these settings."""
    # A model that is an object is kept in `user_models`, and the config has its name alone. An
    # object is used whatever the config names. So that of another combination must not stay here.
    user_models = {role: lm for role, lm in inputs.user_models.items() if role != "task"}
    if isinstance(model, dspy.BaseLM):
        user_models["task"] = model
    config = inputs.config.with_options(lm=model_name(model), set=dict(settings))
    return replace(inputs, config=config, user_models=user_models)


def _settings_for_resume(
    programs: CheckPrograms, models: CheckModels, inputs: RunInputs, split: Part
) -> dict[str, Any]:
    """Return the settings of the check, by their names in `run.json`.

    They must be equal when the run is resumed, or answers to other questions would be mixed in.
    """
    settings = {
        "command": "check",
        "program": name_in_tables(programs.checked),
        "against": name_in_tables(programs.reference),
        **resume_key(inputs),
        "lm": [model_name(model) for model in models.checked],
        "against_lm": model_name(models.reference),
        # All commands record --split by this name.
        "part": split,
    }
    return _as_saved(settings)


def _as_saved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are read from a file: with lists instead of tuples."""
    return json.loads(json.dumps(settings, default=jsonable))


@dataclass
class _Scorer:
    """Scores combinations, each in a folder of its own inside the folder of the check."""

    folder: RunFolder
    """The folder of the check."""
    run_id: str
    """The MLflow run of the check, which contains one run for each combination."""
    split: Part
    meter: Meter
    guard: BudgetGuard
    progress: ProgressFactory

    @cached_property
    def _memories(self) -> MemoryCache:
        """The memories that all combinations share."""
        return MemoryCache(self.folder.store.memories)

    def evaluate(self, combination: _Combination) -> Evaluation:
        """Score a combination; if a resumed run has scored it already, read the result.

        Raises:
            BrokenRunError: A limit stopped it before all questions were asked.
        """
        folder = self._folder_of(combination)
        if folder.is_finished:
            return load_run(str(folder.path)).evaluation

        def start_phase(phase: str) -> Progress | None:
            return self.progress(f"{combination.title}: {phase}")

        tags = {"mlflow.parentRunId": self.run_id, "part_of": "check"}
        try:
            evaluation = run_evaluate(
                combination.program,
                combination.inputs,
                self.split,
                progress=start_phase,
                meter=self.meter,
                parent=Parent(folder, self.guard, tags, self._memories),
            )
        except BudgetError as error:
            raise self._stopped(str(error)) from error
        if evaluation.stopped is not None:
            raise self._stopped(evaluation.stopped)
        return evaluation

    def _folder_of(self, combination: _Combination) -> RunFolder:
        """Return the folder of a combination; it is created unless it is there."""
        settings = {
            "command": "evaluate",
            # `mempiler show --config` writes no file for a part of a run.
            "part_of": "check",
            "program": name_in_tables(combination.program),
            **resume_key(combination.inputs),
            "part": self.split,
        }
        settings = _as_saved(settings)
        role = "checked" if combination.is_decisive else "reference"
        title = file_name_of(f"{role}-{model_name(combination.model)}")[:60]
        # A resumed run finds the folder again by the settings that decide the result.
        return self.folder.child(f"{title}-{digest(settings)[:12]}", settings)

    def _stopped(self, reason: str) -> BrokenRunError:
        """Return the error of a check that a limit stopped: half of a check says nothing."""
        self.folder.update(status="stopped")
        name = self.folder.path.name
        return BrokenRunError(
            f"nothing was decided: {reason}; resume with --resume {name} and a higher limit"
        )


def _score_combinations(
    combinations: Sequence[_Combination],
    scorer: _Scorer,
    floors: Mapping[str, float],
    min_n: int,
) -> tuple[CheckRow, ...]:
    """Score all combinations, and compare each with the first one.

    Args:
        combinations: The reference with the model in use, and the others.
        scorer: Scores a combination.
        floors: The floors of the checked program.
        min_n: With fewer questions there is no verdict.

    Raises:
        BrokenRunError: The evaluation of the reference is broken, or a limit was reached.
    """
    reference_combination, *others = combinations
    reference = scorer.evaluate(reference_combination)
    # There is nothing to compare with: no need to pay for the others.
    refuse_broken(reference, reference.run_id)

    rows = [_row(reference_combination, reference)]
    for combination in others:
        row = _row(combination, scorer.evaluate(combination))
        row_floors = floors if combination.is_decisive else {}
        rows.append(compare_with_reference(row, reference, row_floors, min_n))
    return tuple(rows)


def _row(combination: _Combination, evaluation: Evaluation) -> CheckRow:
    """Return the row of a combination, which is compared with nothing yet."""
    return CheckRow(
        program=name_in_tables(combination.program),
        lm=model_name(combination.model),
        evaluation=evaluation,
        is_decisive=combination.is_decisive,
    )


def _training_notes(programs: CheckPrograms, inputs: RunInputs, split: Part) -> list[str]:
    """Return a note on each program that was compiled on questions of the same file."""
    if split != "all":
        return []
    notes: list[str] = []
    for program in programs.names:
        folder = program_folder(program)
        if folder is not None and compiled_on(folder, inputs.benchmark):
            notes.append(
                f"{program} was compiled on this file;"
                " --split test leaves its training questions out"
            )
    return notes


def _save_result(check: Check, folder: RunFolder, tracker: Tracker) -> None:
    """Write the result into the run's folder and into MLflow."""
    metrics: dict[str, float | None] = {"passed": float(check.passed)}
    for position, row in enumerate(check.rows):
        metrics[f"row{position}.score"] = row.evaluation.score
        if row.difference is not None and row.difference.n:
            metrics[f"row{position}.difference"] = row.difference.mean
    tracker.log_metrics(metrics)

    result = check.to_dict()
    tracker.log_json(RESULT_FILE, result)
    with atomic_write(folder.path / RESULT_FILE) as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
    folder.update(status="finished")
