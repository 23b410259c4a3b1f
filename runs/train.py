"""Training from start to end, as one run: start scored, model trained, scored again on held-out users, program saved.

A training's checkpoints and its model are in the run's folder under `training/`: a killed run goes on from the last
checkpoint, and what was scored is read from the run's store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy
from pydantic_core import to_jsonable_python

from ..data.dataset import Split
from ..data.memory_env import MemoryEnv
from ..engines.local.processes import started_processes
from ..engines.meter import Meter
from ..engines.model_checks import endpoint_errors
from ..engines.model_names import LOCAL, is_local
from ..errors import UserError
from ..optimizers.logo_grpo.journal import Progress
from ..optimizers.logo_grpo.teleprompter import LoGoGRPO
from ..optimizers.logo_grpo.training_config import TINY, TrainingConfig
from ..optimizers.metric_views import MetricViews
from ..programs.memory_r2.method import MemoryR2
from ..programs.program import MemoryProgram
from .artifact import check_writable, save
from .config import RunConfig
from .evaluate import Evaluator, ProgressFactory, no_progress
from .external import name_in_tables
from .folder import RunFolder
from .inputs import RunInputs
from .manifest import Manifest, read_manifest
from .pages.facts import Fact, difference_line
from .pages.html import HTML
from .pages.page import open_page
from .pages.text import page_table
from .results import Evaluation, difference
from .run import Parent, Run
from .role_models import RoleModel, check_model, role_model
from .run_description import describe_data, parameters
from .statistics import Difference, Verdict
from .tables import ResultTable

if TYPE_CHECKING:
    import pandas as pd

_FILED = {"before": "start", "after": "result"}
"""What the rows of a phase are filed under: runs of earlier versions are resumed, too."""
FREE_ON_RESUME = frozenset(
    {"answer_api_base", "usd_per_hour", "train_gpus", "sampling_gpus", "reader_gpus", "gpu_memory"}
)
"""Fields of a course that a resumed run may change."""


@dataclass(frozen=True)
class TrainResult:
    """What a training gave."""

    program: MemoryProgram
    before: Evaluation
    after: Evaluation
    """With the trained weights, on the same test questions."""
    difference: Difference
    training: Mapping[str, Any]
    """Tokens generated, steps, the step that was kept and its validation score, seconds, and notes on it."""
    model: str
    """The name of the trained model, as `lm` takes it."""
    folder: Path
    """Where the program is saved."""
    run: Path
    """The folder of the run."""
    run_id: str
    """The MLflow run."""

    @property
    def verdict(self) -> Verdict:
        """What can be said of the trained model: "better", "worse", "not told apart" or "too few to tell"."""
        return self.difference.verdict

    def save(self, folder: str | Path) -> None:
        """Save the program to another folder; the weights stay where `model` says."""
        manifest = read_manifest(self.folder)
        save(self.program, folder, manifest)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler train --json` prints."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "difference": self.difference.to_dict(),
            "training": dict(self.training),
            "model": self.model,
            "program": str(self.folder),
            "run": str(self.run),
            "run_id": self.run_id,
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each test question, scored with the trained weights."""
        return self.after.to_pandas()

    def table(self) -> ResultTable:
        """Return scores before and after, with the difference and the verdict."""
        page = open_page(RunFolder(self.run))
        return page_table(page, self.run / HTML)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def run_train(
    method: Any,
    inputs: RunInputs,
    training: TrainingConfig | None = None,
    out: str | Path | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> TrainResult:
    """Trains the language model behind a method, scores it on held-out users, saves and logs model and program.

    Args:
        method: A method name, `module:Class`, or the folder of a saved program.
        inputs: Data, models and the method's settings; their seed is that of the training, too.
        training: How to train.
        out: Folder for the program; one in the run's folder if None.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        UserError: The model cannot be trained in this process, or a setting does not fit.
    """
    config = inputs.config
    training = training or TrainingConfig()
    if config.models.task.settings.get("temperature") is not None:
        training = training.changed({"temperature": config.models.task.settings["temperature"]})
    training = replace(training, settings=training.training(config.data.seed))
    if "task" in inputs.user_models:
        raise UserError(
            f"lm: {config.models.task.name} is an object; a model that is trained here is named, as in lm='local:NAME'"
        )
    if not is_local(config.models.task.name):
        raise UserError(
            f"{config.models.task.name} cannot be trained in this process; use --lm local:NAME, or LoGoGRPO with a provider that "
            "trains elsewhere (docs/training.md)"
        )
    if config.models.task.name == TINY and config.method.adapter is None:
        config = config.with_options(adapter="compact")
        inputs = replace(inputs, config=config)
    benchmark = inputs.benchmark
    if benchmark.scorer.required_judges:
        raise UserError(f"{benchmark.name} is scored by a judge, which is no reward to train on; choose a metric")
    # What decides the result: a resumed run is compared with what its folder holds.
    decisive = {name: value for name, value in to_jsonable_python(training).items() if name not in FREE_ON_RESUME}
    del decisive["settings"]["threads"]
    check_reader(inputs, reward_reader(config, training))
    check_processes(training)
    run = Run.start(inputs, "train", name_in_tables(method), decisive, meter, parent)
    with run.folder.recording():
        program = run.program(method, benchmark)
        folder = Path(out) if out else run.folder.program
        check_writable(folder)
        # A training may begin from a model whose answers cannot be read.
        threads = training.settings.threads
        scoring_config = config.with_options(max_failure_rate=1.0, threads=threads, workers=1)
        asking = replace(run, inputs=replace(inputs, config=scoring_config))
        job = _Job(run, Evaluator(asking, benchmark, progress, method), program, inputs.split(), training)
        outcome = job.tracked(folder)
    run.folder.update(status="finished", result=outcome.to_dict())
    return outcome


def reward_reader(config: RunConfig, training: TrainingConfig) -> RoleModel:
    """Return the model that answers the questions that rewards come from, where it is not the trained one."""
    return role_model(
        config, training.answer_lm, training.answer_api_base, "--train-set answer_api_base=URL"
    )


def check_reader(inputs: RunInputs, reader: RoleModel) -> None:
    """Refuse an answering model that could not be asked; an object of the user's is checked by `check_models`.

    Raises:
        UserError: As `check_model`.
        EndpointError: As `check_model`.
    """
    user_lm = inputs.user_models.get("answer")
    if user_lm is None or user_lm.model != reader.name:
        is_resumed = inputs.config.execution.resume is not None
        check_model("judge", reader, is_resumed)


def check_processes(config: TrainingConfig) -> None:
    """Refuse a training that was planned for another number of processes than torchrun started."""
    processes = started_processes()
    if config.train_gpus not in (None, processes):
        started = f"torchrun started {processes} processes" if processes > 1 else "there is one process"
        raise UserError(
            f"train_gpus = {config.train_gpus}, but {started}; "
            f"start it with torchrun --nproc-per-node {config.train_gpus} -m mempiler"
        )


@dataclass
class _Job:
    run: Run
    scoring: Evaluator
    program: MemoryProgram
    split: Split
    course: TrainingConfig

    def tracked(self, folder: Path) -> TrainResult:
        run, course, benchmark = self.run, self.course, self.scoring.benchmark
        logged = parameters(self.program, run.config, benchmark)
        logged |= {f"train.{name}": value for name, value in asdict(course).items()}
        title = f"{self.program.name}-{benchmark.name}-{course.objective}"
        with run.tracked("train", title, logged) as tracker:
            lm, model = self._lm(), run.folder.path.absolute() / "training"
            before = self._scored(lm, "before")
            progress, training = self._train(lm, model)
            after = self._scored(lm, "after")
            name = f"{LOCAL}{model / 'model'}"
            outcome = TrainResult(
                program=self.program,
                before=before.model_copy(update={"run_id": tracker.run_id}),
                after=after.model_copy(update={"run_id": tracker.run_id}),
                difference=difference(before.headline_rows, after.headline_rows, run.config.execution.min_n),
                training=training,
                model=name,
                folder=folder,
                run=run.folder.path,
                run_id=tracker.run_id,
            )
            optimizer = {"name": course.objective, "seed": run.config.data.seed, "settings": to_jsonable_python(course)}
            scores = {key: outcome.to_dict()[key] for key in ("before", "after", "difference")}
            made = {"benchmark": describe_data(benchmark, self.split), "optimizer": optimizer, "scores": scores}
            save(self.program, folder, Manifest(method="", task="", lms={"task": name}, **made))
            tracker.log_steps("training", progress.rows)
            tracker.log_evaluation("before", before)
            tracker.log_evaluation("after", after)
            tracker.log_difference(outcome.difference)
            tracker.log_json("outcome.json", outcome.to_dict())
            told = ((key.replace("_", " "), value) for key, value in training.items() if key != "notes")
            self.scoring.keep_page(
                tracker,
                {"optimizer": course.objective},
                self.program,
                {"before": before, "after": after},
                "test questions",
                [Fact("Program", folder.name), Fact("Training", ", ".join(f"{key} {value}" for key, value in told))],
                notes=training["notes"],
                verdict=difference_line(outcome.difference),
            )
            tracker.log_folder(folder, "program")
            tracker.log_folder(model / "model", "model")
        return outcome

    def _lm(self) -> Any:
        from ..engines.local.model import LocalModel

        config, course, start = self.run.config, self.course, self.run.config.models.task.name.removeprefix(LOCAL)
        if config.models.task.name == TINY:
            from ..optimizers.demonstrations import tiny_folder

            method = self.program.method
            if not isinstance(method, MemoryR2) or not isinstance(self.scoring.benchmark, MemoryEnv):
                known = "local:tiny knows nothing but memory-r2 on memory-env"
                raise UserError(f"{known}; take these, or a model that has read something: --lm local:NAME")
            self.scoring.progress("warm-up")
            start = str(tiny_folder(config.data.seed, method))
        lora = {"r": course.lora} if course.lora else None
        loaded = LocalModel.load(start, lora=lora, seed=config.data.seed, dtype=course.dtype)
        self.run.loaded.local[f"{LOCAL}{start}"] = loaded
        return self.run.load_model(
            f"{LOCAL}{start}", "task", None, max_tokens=course.answer_tokens, seed=config.data.seed
        )

    def _reader(self) -> Any:
        model = reward_reader(self.run.config, self.course)
        if model.name is None:
            return None
        user_lm = self.run.user_model("answer", model.name)
        if user_lm is not None:
            return self.run.meter_user_model(user_lm, "judge", temperature=0.0)
        return self.run.load_model(model.name, "judge", model.address, temperature=0.0)

    def _train(self, lm: Any, folder: Path) -> tuple[Progress, dict[str, Any]]:
        settings, began, spent = self.course.settings, time.perf_counter(), 0.0
        told, budget = self.scoring.progress(self.course.objective), settings.curriculum.tokens
        benchmark = self.scoring.benchmark

        def on_row(row: Mapping[str, Any]) -> None:
            nonlocal spent
            spent += row.get("tokens", 0.0)
            if told and budget:
                told(min(int(spent), budget), budget)

        kwargs = {"seed": settings.seed, **self.course.trainer_settings}
        teleprompter = LoGoGRPO(
            MetricViews(benchmark).score,
            settings,
            kwargs,
            questions_after=benchmark.questions_after,
            reader=self._reader(),
            folder=folder,
            on_row=on_row,
            in_headline=benchmark.in_headline,
        )
        with dspy.context(lm=lm, **self._context()), endpoint_errors():
            teleprompter.compile(self.program, trainset=self.split.train, valset=self.split.dev)
        progress = teleprompter.progress
        found = {"tokens": progress.tokens, "steps": progress.step}
        if progress.best is not None:
            found |= {"kept_step": progress.best.step, "validation": progress.best.score}
        return progress, {**found, "seconds": round(time.perf_counter() - began), "notes": progress.notes}

    def _scored(self, lm: Any, phase: str) -> Evaluation:
        """The greedy answers to the test questions; where a reader answers, the model writes the memories alone."""
        program, reader = self.program, self._reader()
        with dspy.context(lm=lm, **self._context()), endpoint_errors():
            if reader is not None and program.all_predictors().keys() - program.writer_names():
                program = program.staged("read")
            with dspy.context(lm=reader or lm):
                return self.scoring(program, self.split.test, _FILED[phase], f"test questions, {phase}")

    def _context(self) -> dict[str, Any]:
        adapter = self.run.adapter(self.run.config.method.adapter or self.program.adapter)
        return {"adapter": adapter, "warn_on_type_mismatch": False}
