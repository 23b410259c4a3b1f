"""Check a program against the one in use: score both on the same questions, and compare.

    subjects = Subjects("my-program", "models:/memory@prod")
    check = run_check(subjects, CheckModels.choose(...), inputs, floors={"recall@20": 0.7})
    check.passed

Every program with every model is an ordinary evaluation, and a part of one run. All parts share
one store, so a memory is written once, and a model that may be cached is asked once where two
programs have the same prompt. The folder of the run has a folder for each part under `parts/`.

When a run is resumed, the parts that are finished are read, and one that was broken off goes on.
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
from .tracking.tracker import Tracker

RESULT_FILE = "check.json"
"""The file in the run's folder, and among MLflow's artifacts, that has the result as JSON."""

AnyModel = str | dspy.BaseLM
"""The name of a language model, or the model itself."""


@dataclass(frozen=True)
class Subjects:
    """The program that is checked, and the one that it is compared with."""

    checked: object
    """By its name or itself, as `run_evaluate` takes it."""
    reference: object

    @classmethod
    def pinned(cls, checked: object, reference: object) -> Subjects:
        """Return both programs; an alias is replaced by the version that it names now."""
        return cls(_pinned(checked), _pinned(reference))

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


def _pinned(program: object) -> object:
    """Return a program; of an address, the version that it names now."""
    return pin_address(program) if isinstance(program, str) else program


@dataclass(frozen=True)
class CheckModels:
    """The language models of a check."""

    reference: AnyModel
    """The model in use."""
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
        in_use = reference_model
        if in_use is None:
            in_use = _compiled_model(reference_program, models)
        if in_use is None:
            in_use = models[0] if models else default

        names = [model_name(model) for model in models]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise UserError(f"--lm {name}: is given twice; name every model once")
        return cls(in_use, tuple(models) or (in_use,))

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
class _Cell:
    """A program that is scored with a model: a row of the table."""

    program: object
    model: AnyModel
    inputs: RunInputs
    """With the model, and the settings that are meant for the program."""
    is_decisive: bool

    @property
    def title(self) -> str:
        """The program and the model, for progress."""
        return f"{name_in_tables(self.program)} with {model_name(self.model)}"


def run_check(
    subjects: Subjects,
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
        subjects: The programs.
        models: The language models.
        inputs: Data, judge, limits, and the settings of the checked program.
        split: Which questions: all, or a part of the split that compile uses.
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
    cells = _cells(subjects, models, inputs)
    for cell in cells:
        check_models(cell.inputs)

    settings = _settings(subjects, models, inputs, split)
    title = f"check-{name_in_tables(subjects.checked)}-{inputs.config.data.benchmark}"
    resume = inputs.config.execution.resume
    if resume is None:
        folder = RunFolder.create(title, settings)
    else:
        folder = RunFolder.resume(resume, settings)

    with folder.recording(), Tracker(title, {"command": "check"}) as tracker:
        tracker.log_params(settings)
        folder.update(run_id=tracker.run_id)
        in_flight = max(IN_FLIGHT, inputs.config.execution.threads)
        guard = BudgetGuard(inputs.config.limits, in_flight)
        scorer = _Scorer(folder, tracker.run_id, split, meter or Meter(), guard, progress)
        rows = _score_cells(cells, scorer, floors, inputs.config.execution.min_n)
        check = Check(
            benchmark=inputs.config.data.benchmark,
            rows=rows,
            notes=tuple(_training_notes(subjects, inputs, split)),
            run=folder.path,
            run_id=tracker.run_id,
        )
        _save_result(check, folder, tracker)
    return check


def _cells(subjects: Subjects, models: CheckModels, inputs: RunInputs) -> list[_Cell]:
    """Return the rows of the table; the first one is the reference with the model in use.

    The reference is also scored with the other models: that tells the effect of a model from that
    of the program. If both programs are the same one, these rows would repeat others.
    """
    checked_settings = inputs.config.method.settings
    has_same_programs = subjects.is_same_program and not checked_settings
    reference_models = models.all[:1] if has_same_programs else models.all

    cells: list[_Cell] = []
    for model in reference_models:
        reference_inputs = _inputs_with(inputs, model, settings={})
        cells.append(_Cell(subjects.reference, model, reference_inputs, is_decisive=False))
    for model in models.checked:
        checked_inputs = _inputs_with(inputs, model, checked_settings)
        cells.append(_Cell(subjects.checked, model, checked_inputs, is_decisive=True))
    return cells


def _inputs_with(inputs: RunInputs, model: AnyModel, settings: Mapping[str, Any]) -> RunInputs:
    """Return inputs with another language model and other settings of the method."""
    user_models = dict(inputs.user_models)
    user_models.pop("task", None)
    if not isinstance(model, str):
        user_models["task"] = model
    config = inputs.config.with_options(lm=model_name(model), set=dict(settings))
    return replace(inputs, config=config, user_models=user_models)


def _settings(
    subjects: Subjects, models: CheckModels, inputs: RunInputs, split: Part
) -> dict[str, Any]:
    """Return the settings of the whole run that must be equal when it is resumed."""
    settings = {
        "command": "check",
        "program": name_in_tables(subjects.checked),
        "against": name_in_tables(subjects.reference),
        **resume_key(inputs),
        "lm": [model_name(model) for model in models.checked],
        "against_lm": model_name(models.reference),
        "part": split,
    }
    return _as_saved(settings)


def _as_saved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are read from a file: with lists in the place of tuples."""
    return json.loads(json.dumps(settings, default=jsonable))


@dataclass
class _Scorer:
    """Scores the cells of a check, each as a part of one run."""

    folder: RunFolder
    """The folder of the whole run."""
    run_id: str
    """The MLflow run that those of the parts are inside."""
    split: Part
    meter: Meter
    guard: BudgetGuard
    progress: ProgressFactory

    @cached_property
    def _memories(self) -> MemoryCache:
        """The memories that the parts share."""
        return MemoryCache(self.folder.store.memories)

    def evaluate(self, cell: _Cell) -> Evaluation:
        """Return the evaluation of a cell; one that is finished is read.

        Raises:
            BrokenRunError: A limit stopped it before all questions were asked.
        """
        folder = self._part_folder(cell)
        if folder.is_finished:
            return load_run(str(folder.path)).evaluation

        def start_phase(phase: str) -> Progress | None:
            return self.progress(f"{cell.title}: {phase}")

        tags = {"mlflow.parentRunId": self.run_id, "part_of": "check"}
        try:
            evaluation = run_evaluate(
                cell.program,
                cell.inputs,
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

    def _part_folder(self, cell: _Cell) -> RunFolder:
        """Return the folder of a cell; it is created unless it is there."""
        settings = {
            "command": "evaluate",
            # `mempiler show --config` writes no file for a part of a run.
            "part_of": "check",
            "program": name_in_tables(cell.program),
            **resume_key(cell.inputs),
            "part": self.split,
        }
        settings = _as_saved(settings)
        role = "checked" if cell.is_decisive else "reference"
        title = file_name_of(f"{role}-{model_name(cell.model)}")[:60]
        # A part is found again by the settings that decide its result.
        return self.folder.child(f"{title}-{digest(settings)[:12]}", settings)

    def _stopped(self, reason: str) -> BrokenRunError:
        """Return the error of a check that a limit stopped: half of a check says nothing."""
        self.folder.update(status="stopped")
        name = self.folder.path.name
        return BrokenRunError(
            f"nothing was decided: {reason}; --resume {name} with a higher limit goes on"
        )


def _score_cells(
    cells: Sequence[_Cell], scorer: _Scorer, floors: Mapping[str, float], min_n: int
) -> tuple[CheckRow, ...]:
    """Score all cells, and compare each with the first one.

    Args:
        cells: The reference, and the others.
        scorer: Scores a cell.
        floors: The floors of decisive rows.
        min_n: With fewer questions there is no verdict.

    Raises:
        BrokenRunError: The evaluation of the reference is broken, or a limit was reached.
    """
    reference_cell, *other_cells = cells
    reference = scorer.evaluate(reference_cell)
    # There is nothing to compare with: no need to pay for the others.
    refuse_broken(reference, reference.run_id)

    rows = [_row(reference_cell, reference)]
    for cell in other_cells:
        row = _row(cell, scorer.evaluate(cell))
        row_floors = floors if cell.is_decisive else {}
        rows.append(compare_with_reference(row, reference, row_floors, min_n))
    return tuple(rows)


def _row(cell: _Cell, evaluation: Evaluation) -> CheckRow:
    """Return the row of a cell, which is compared with nothing yet."""
    return CheckRow(
        program=name_in_tables(cell.program),
        lm=model_name(cell.model),
        evaluation=evaluation,
        is_decisive=cell.is_decisive,
    )


def _training_notes(subjects: Subjects, inputs: RunInputs, split: Part) -> list[str]:
    """Return a note on each program that was compiled on questions of the same file."""
    if split != "all":
        return []
    notes: list[str] = []
    for program in subjects.names:
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
