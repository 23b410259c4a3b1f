"""One training from start to end: score the start, train its model, score it again, save.

    result = run_train("memory-r2", inputs, TrainingConfig("logo-grpo"))
    result.model                    # "local:.../training/model", as `--lm` takes it

    score before -> train (LoGoGRPO) -> score after -> save program -> log to MLflow

Both scorings ask the same test questions, of users that nothing is learned from. Checkpoints and
the trained model are in the run's folder under `training/`: a killed run goes on from the last
checkpoint, and questions that were scored already are read from the run's store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dspy
from pydantic_core import to_jsonable_python

from ..data.dataset import Split
from ..data.memory_env import MemoryEnv
from ..engines.local.processes import started_processes
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.model_checks import endpoint_errors
from ..engines.model_names import LOCAL, is_local
from ..engines.usage import Role
from ..errors import UserError
from ..optimizers.logo_grpo.journal import Progress, Row
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
from .recorded_config import changed_training_settings
from .repeating import python_objects
from .results import Evaluation, difference
from .role_models import RoleModel, check_model, with_shared_address
from .run import Parent, Run
from .run_description import describe_data, parameters
from .run_programs import refuse_unknown_method
from .statistics import Difference, Verdict
from .tables import ResultTable
from .tracking.tracker import Tracker

if TYPE_CHECKING:
    import pandas as pd

Phase = Literal["before", "after"]
"""When the test questions are scored: before or after the training."""

FREE_ON_RESUME = frozenset(
    {
        "answer_api_base",
        "usd_per_hour",
        "train_gpus",
        "sampling_gpus",
        "reader_gpus",
        "gpu_memory",
    }
)
"""Fields of a training's configuration that a resumed run may change."""

_REWARD_ROLE: Role = "judge"
"""The role of the model that answers questions for rewards.

These answers serve to judge a memory, and nobody reads them. So its calls are counted with those of
judges.
"""


@dataclass(frozen=True)
class TrainResult:
    """What a training gave."""

    program: MemoryProgram
    before: Evaluation
    after: Evaluation
    """With the trained weights, on the same test questions."""
    difference: Difference
    training: Mapping[str, Any]
    """Generated tokens, steps, the kept step with its validation score, seconds, and notes."""
    model: str
    """The name of the trained model, as `lm` takes it."""
    folder: Path
    """Where the program is saved."""
    run: Path
    """The folder of the run."""
    run_id: str
    """The id of the run: that of its MLflow run, unless `tracking` was "off"."""

    @property
    def verdict(self) -> Verdict:
        """How the trained model did against the start.

        "better", "worse", "not told apart" or "too few to tell".
        """
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
    method: object,
    inputs: RunInputs,
    training: TrainingConfig | None = None,
    out: str | Path | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> TrainResult:
    """Train the language model behind a method, score it, and save and log model and program.

    Args:
        method: A method name, `module:Class`, or the folder of a saved program.
        inputs: Data, models and the method's settings; their seed is that of the training too.
        training: How to train.
        out: Folder for the program; one in the run's folder if None.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        UserError: The model cannot be trained in this process, or a setting does not fit.
    """
    refuse_unknown_method(method)
    training = _with_run_settings(training or TrainingConfig(), inputs.config)
    check_trainable(inputs)
    inputs = _with_default_adapter(inputs)
    benchmark = inputs.benchmark
    inputs.refuse_as_reward()
    check_reward_answer_model(inputs, reward_answer_model(inputs.config, training))
    check_processes(training)

    decisive = _decisive_settings(training)
    run = Run.start(inputs, "train", name_in_tables(method), decisive, meter, parent)
    with run.folder.recording():
        run.record_python_objects(python_objects(inputs, method))
        program = run.program(method, benchmark)
        folder = Path(out) if out else run.folder.program
        check_writable(folder)
        evaluator = Evaluator(_scoring_run(run, training), benchmark, progress, method)
        job = _TrainingJob(run, evaluator, program, inputs.split(), training)
        result = job.train_and_save(folder)
    run.folder.update(status="finished", result=result.to_dict())
    return result


def _with_run_settings(training: TrainingConfig, config: RunConfig) -> TrainingConfig:
    """Return the configuration of a training, with the temperature and the seed of the run."""
    temperature = config.models.task.settings.get("temperature")
    if temperature is not None:
        training = training.changed({"temperature": temperature})
    return replace(training, settings=training.training(config.data.seed))


def check_trainable(inputs: RunInputs) -> None:
    """Refuse a model whose weights are not in this process.

    Raises:
        UserError: The model is an object, or is not named `local:NAME`.
    """
    name = inputs.config.models.task.name
    if "task" in inputs.user_models:
        raise UserError(
            f"lm: {name} is an object; a model that is trained here is named, as in lm='local:NAME'"
        )
    if not is_local(name):
        raise UserError(
            f"{name} cannot be trained in this process; use --lm local:NAME, or LoGoGRPO with a"
            " provider that trains elsewhere (docs/training.md)"
        )


def _with_default_adapter(inputs: RunInputs) -> RunInputs:
    """Return the inputs with the compact adapter if the tiny model is trained and none is named."""
    config = inputs.config
    if config.models.task.name != TINY or config.method.adapter is not None:
        return inputs
    return replace(inputs, config=config.with_options(adapter="compact"))


def _decisive_settings(training: TrainingConfig) -> dict[str, Any]:
    """Return what decides the result: a resumed run is compared with what its folder holds."""
    decisive: dict[str, Any] = {}
    for name, value in to_jsonable_python(training).items():
        if name not in FREE_ON_RESUME:
            decisive[name] = value
    # How many threads work does not decide the result either. It is a field of a group.
    del decisive["settings"]["threads"]
    return decisive


def _scoring_run(run: Run, training: TrainingConfig) -> Run:
    """Return the run with the settings that score the test questions."""
    config = run.config.with_options(
        # A training may begin from a model whose answers cannot be read.
        max_failure_rate=1.0,
        threads=training.settings.threads,
        # The weights are in this process.
        workers=1,
    )
    return replace(run, inputs=replace(run.inputs, config=config))


def command_options(training: TrainingConfig, lm: str) -> dict[str, Any]:
    """Return the options of the command `train` itself that repeat the training of a model."""
    settings = changed_training_settings(_decisive_settings(training), lm)
    trainer = settings.pop("trainer", None)
    return {"optimizer": training.objective, "trainer": trainer, "train_set": settings}


def run_for_printed_command(run: Run) -> Run:
    """Return the run of a training without the options that `mempiler train` does not have.

    The page of the run prints the command that repeats it, with the options of this run.
    """
    config = run.config.with_options(
        # The command has `--train-set answer_lm=NAME` instead.
        answer_lm=None,
        # The default, which is not printed.
        workers=1,
    )
    return replace(run, inputs=replace(run.inputs, config=config))


def reward_answer_model(config: RunConfig, training: TrainingConfig) -> RoleModel:
    """Return name and address of the model that answers questions from a memory, for its reward.

    The training's setting `answer_lm` names the model. If it names none, the name in the result is
    None, and the model that is trained answers the questions itself.
    """
    # Errors tell the user to set the address by this.
    address_option = "--train-set answer_api_base=URL"
    return with_shared_address(config, training.answer_lm, training.answer_api_base, address_option)


def load_reward_answer_model(run: Run, training: TrainingConfig) -> MeteredLM | None:
    """Return the model that answers questions for rewards, at temperature 0.

    The result is None if no such model is set: the model that is trained answers then.
    """
    role_model = reward_answer_model(run.config, training)
    if role_model.name is None:
        return None
    # Python code may give the model as an object instead of a name.
    user_lm = run.models.user_model("answer", role_model.name)
    if user_lm is not None:
        return run.models.meter_user_model(user_lm, _REWARD_ROLE, temperature=0.0)
    return run.models.load_model(role_model.name, _REWARD_ROLE, role_model.address, temperature=0.0)


def check_reward_answer_model(inputs: RunInputs, model: RoleModel) -> None:
    """Check that the model that answers questions for rewards can be asked.

    Args:
        inputs: The inputs of the training.
        model: The name and the address of the model.

    Raises:
        UserError: The name has no known provider, the API key of the provider is not set, or the
            provider has no such model.
        EndpointError: The server of the model cannot be reached, and the run is not resumed.
    """
    user_lm = inputs.user_models.get("answer")
    is_object = user_lm is not None and user_lm.model == model.name
    if is_object:
        # `check_models` checks all models that Python code gave as objects.
        return

    # The training loads the model in the role `_REWARD_ROLE`, so it is checked in this role.
    is_resumed = inputs.config.execution.resume is not None
    check_model(_REWARD_ROLE, model, is_resumed)


def check_processes(config: TrainingConfig) -> None:
    """Refuse a training that was planned for another number of processes than torchrun started."""
    processes = started_processes()
    if config.train_gpus in (None, processes):
        return
    actual = "there is one process"
    if processes > 1:
        actual = f"torchrun started {processes} processes"
    raise UserError(
        f"train_gpus = {config.train_gpus}, but {actual}; "
        f"start it with torchrun --nproc-per-node {config.train_gpus} -m mempiler"
    )


@dataclass(frozen=True)
class _TrainingRecord:
    """What is known of a training that has ended."""

    progress: Progress
    """The numbers of every step and validation."""
    seconds: int

    def figures(self) -> dict[str, float]:
        """Return its figures by name."""
        figures: dict[str, float] = {
            "tokens": self.progress.tokens,
            "steps": self.progress.step,
        }
        if self.progress.best is not None:
            figures["kept_step"] = self.progress.best.step
            figures["validation"] = self.progress.best.score
        figures["seconds"] = self.seconds
        return figures


@dataclass
class _TokenProgress:
    """Shows how much of the budget of tokens a training has generated."""

    show: Callable[[int, int], None] | None
    """Called with the tokens so far, and the budget."""
    budget: int | None
    tokens: float = 0.0

    def add_row(self, row: Row) -> None:
        """Count the tokens of a step; the row of a validation has none."""
        self.tokens += row.get("tokens", 0.0)
        if self.show is not None and self.budget:
            self.show(min(int(self.tokens), self.budget), self.budget)


@dataclass(frozen=True)
class _TrainingJob:
    """Everything that a training needs, between the checks and the result."""

    run: Run
    evaluator: Evaluator
    program: MemoryProgram
    split: Split
    training_config: TrainingConfig

    def train_and_save(self, folder: Path) -> TrainResult:
        """Score, train and score again; save the program to the folder, and log everything."""
        name = (
            f"{self.program.name}-{self.evaluator.benchmark.name}-{self.training_config.objective}"
        )
        with self.run.tracked("train", name, self._logged_parameters()) as tracker:
            lm = self._load_start_model()
            before = self._score(lm, "before")
            record = self._train(lm)
            after = self._score(lm, "after")

            run_id = tracker.run_id
            min_n = self.run.config.execution.min_n
            # The result says which MLflow run the scores are from. What is logged in that run does
            # not have to say so.
            result = TrainResult(
                program=self.program,
                before=before.model_copy(update={"run_id": run_id}),
                after=after.model_copy(update={"run_id": run_id}),
                difference=difference(before.headline_rows, after.headline_rows, min_n),
                training={**record.figures(), "notes": record.progress.notes},
                model=f"{LOCAL}{self._training_folder / 'model'}",
                folder=folder,
                run=self.run.folder.path,
                run_id=run_id,
            )
            save(self.program, folder, self._manifest(result))

            tracker.log_steps("training", record.progress.rows)
            tracker.log_evaluation("before", before)
            tracker.log_evaluation("after", after)
            tracker.log_difference(result.difference)
            tracker.log_json("outcome.json", result.to_dict())
            self._keep_page(tracker, {"before": before, "after": after}, result, record)
            tracker.log_folder(folder, "program")
            tracker.log_folder(self._training_folder / "model", "model")
        return result

    @property
    def _training_folder(self) -> Path:
        """The folder of the checkpoints and of the trained model."""
        return self.run.folder.path.absolute() / "training"

    def _logged_parameters(self) -> dict[str, Any]:
        """Return what MLflow logs of the settings."""
        logged = parameters(self.program, self.run.config, self.evaluator.benchmark)
        for name, value in asdict(self.training_config).items():
            logged[f"train.{name}"] = value
        return logged

    def _load_start_model(self) -> MeteredLM:
        """Load the weights that the training begins from, and return them as the task's model."""
        # `LocalModel` needs PyTorch, which is slow to import. Other commands do without it.
        from ..engines.local.model import LocalModel

        config = self.run.config
        path = self._start_model_path(config.models.task.name)
        lora = {"r": self.training_config.lora} if self.training_config.lora else None
        seed = config.data.seed
        model = LocalModel.load(path, lora=lora, seed=seed, dtype=self.training_config.dtype)
        # `load_model` finds these weights by their name, instead of loading them again.
        loaded_name = f"{LOCAL}{path}"
        self.run.loaded.local[loaded_name] = model
        return self.run.models.load_model(
            loaded_name,
            "task",
            api_base=None,
            max_tokens=self.training_config.answer_tokens,
            seed=seed,
        )

    def _start_model_path(self, model_name: str) -> str:
        """Return the folder of the weights of a local model, or its name on Hugging Face."""
        if model_name == TINY:
            return self._tiny_model_folder()
        return model_name.removeprefix(LOCAL)

    def _tiny_model_folder(self) -> str:
        """Return the folder of the tiny model; train the model first if it is not there.

        Raises:
            UserError: The method or the benchmark is not the one that the model was made for.
        """
        from ..optimizers.demonstrations import tiny_folder

        method = self.program.method
        is_memory_env = isinstance(self.evaluator.benchmark, MemoryEnv)
        if not isinstance(method, MemoryR2) or not is_memory_env:
            raise UserError(
                "local:tiny knows nothing but memory-r2 on memory-env; take these, or a model that"
                " has read something: --lm local:NAME"
            )
        # Training the tiny model takes a minute or two, in which nothing else would be shown.
        self.evaluator.progress("warm-up")
        return str(tiny_folder(self.run.config.data.seed, method))

    def _train(self, lm: MeteredLM) -> _TrainingRecord:
        """Train the model; `lm` has the trained weights afterwards.

        If the training folder has a checkpoint of a training that was stopped, this one goes on
        from there.
        """
        started = time.perf_counter()
        settings = self.training_config.settings
        benchmark = self.evaluator.benchmark

        # The bar shows how much of the budget of generated tokens is used; without a budget, none.
        show_progress = self.evaluator.progress(self.training_config.objective)
        token_budget = settings.curriculum.tokens
        token_progress = _TokenProgress(show_progress, token_budget)

        teleprompter = LoGoGRPO(
            metric=MetricViews(benchmark).score,
            settings=settings,
            # For TRL's trainer. A seed among its own settings replaces that of the run.
            train_kwargs={"seed": settings.seed, **self.training_config.trainer_settings},
            # After a session, a memory is asked only what can be known by then.
            questions_after=benchmark.questions_after,
            reader=load_reward_answer_model(self.run, self.training_config),
            folder=self._training_folder,
            on_row=token_progress.add_row,
            # Questions that do not count for the score give no reward either.
            in_headline=benchmark.in_headline,
        )
        with self._asking(lm):
            teleprompter.compile(self.program, trainset=self.split.train, valset=self.split.dev)
        seconds = round(time.perf_counter() - started)
        return _TrainingRecord(teleprompter.progress, seconds)

    def _score(self, lm: MeteredLM, phase: Phase) -> Evaluation:
        """Score the greedy answers to the test questions.

        If another model answers the questions of rewards, it answers these too, and the trained
        model only writes the memories.
        """
        program = self.program
        bar_title = f"test questions, {phase}"
        answer_lm = load_reward_answer_model(self.run, self.training_config)
        with self._asking(lm):
            if answer_lm is None:
                return self.evaluator(program, self.split.test, phase, bar_title)

            reading_predictors = program.all_predictors().keys() - program.writer_names()
            if reading_predictors:
                # A program that is staged for "read" goes on writing its memories with the present
                # model, here the trained one, whatever model is set later.
                program = program.staged("read")
            with dspy.context(lm=answer_lm):
                return self.evaluator(program, self.split.test, phase, bar_title)

    @contextmanager
    def _asking(self, lm: MeteredLM) -> Iterator[None]:
        """Set DSPy's model and adapter for the block: `lm`, and that of the run or the program."""
        adapter = self.run.adapter(self.run.config.method.adapter or self.program.adapter)
        with (
            dspy.context(lm=lm, adapter=adapter, warn_on_type_mismatch=False),
            endpoint_errors(),
        ):
            yield

    def _manifest(self, result: TrainResult) -> Manifest:
        """Return the manifest to save with the program: its model, data, training and scores."""
        return Manifest(
            # `save` fills these two in, from the program.
            method="",
            task="",
            lms={"task": result.model},
            benchmark=describe_data(self.evaluator.benchmark, self.split),
            optimizer={
                "name": self.training_config.objective,
                "seed": self.run.config.data.seed,
                "settings": to_jsonable_python(self.training_config),
            },
            scores={
                "before": result.before.to_dict(),
                "after": result.after.to_dict(),
                "difference": result.difference.to_dict(),
            },
        )

    def _keep_page(
        self,
        tracker: Tracker,
        evaluations: Mapping[str, Evaluation],
        result: TrainResult,
        record: _TrainingRecord,
    ) -> None:
        """Make the page that shows the result of the run, save it, and log it to MLflow.

        Args:
            tracker: The MLflow run.
            evaluations: The evaluations before and after the training.
            result: The result of the training.
            record: The numbers and the notes of the training.
        """
        # Each fact is a line of the page, e.g. "Training" with "steps 40, seconds 812".
        figures: list[str] = []
        for name, value in record.figures().items():
            figures.append(f"{name.replace('_', ' ')} {value}")
        facts = [
            Fact("Program", result.folder.name),
            Fact("Training", ", ".join(figures)),
        ]

        # The page prints the command that repeats the run, with the options of the evaluator's run.
        # Some of these were changed for the scoring (`_scoring_run`). So the evaluator gets a run
        # with the options of the training.
        evaluator = replace(self.evaluator, run=run_for_printed_command(self.run))
        trained_model = self.run.config.models.task.name
        evaluator.keep_page(
            tracker,
            command_options=command_options(self.training_config, trained_model),
            program=self.program,
            phases=evaluations,
            question_title="test questions",
            facts=facts,
            notes=record.progress.notes,
            verdict=difference_line(result.difference),
        )
