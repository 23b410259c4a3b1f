"""Reproduce the tables of a paper: run its variants, and put our numbers beside its own.

    paper = read_paper("rgmem")
    reproduction = reproduce(paper, config, Selection(sections=("table2",), seeds=3))
    section = reproduction.sections[0]
    section.cells(section.rows[0])      # our cells of the first variant, with the paper's

Each variant is an ordinary evaluation for each seed, and perhaps a compile or a training before.
Each of these is a child run of the reproduction's run: it has a folder under `parts/`, which is
named after a digest of its settings, so that variants and sections with equal child runs share
them. Answers and memories of all child runs are in one store.

When a run is resumed, the child runs that are finished are read. One that was broken off goes on as
its own command would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from ...data.judge import PreferenceJudge
from ...engines.limits import BudgetGuard
from ...engines.local.memory import release_memory
from ...engines.meter import Meter
from ...engines.model_checks import endpoint_errors
from ...errors import BudgetError, EndpointError, MempilerError, RunInterrupted, UserError
from ...optimizers.compile import CompileConfig
from ...programs.adapter import adapter as make_adapter
from ...programs.cache import MemoryCache
from ...programs.identity import digest, jsonable
from ...records.atomic_file import atomic_write
from ...text import one_line
from ..compare import WinRate, judge_win_rate, load_run
from ..compile import run_compile
from ..config import RunConfig
from ..evaluate import ProgressFactory, no_progress, run_evaluate
from ..folder import RunFolder, file_name_of
from ..inputs import RunInputs
from ..manifest import read_manifest
from ..pages.facts import describe_evaluation
from ..repeating import resume_key
from ..results import Evaluation
from ..role_models import RoleModel, check_model, check_models
from ..run import Parent, Run
from ..scoring import Progress
from ..statistics import Difference
from ..tracking.tracker import Tracker, open_tracker
from ..train import check_processes, reward_answer_model, run_train
from .cells import Aggregate, Cell, VariantResult
from .paper import LOGO, Paper, PaperOnlyRow, PrintedCell, Section, Tuning
from .sections import (
    WHOLE_PAPER,
    ResolvedSection,
    ResolvedSections,
    Selection,
    repetitions,
    resolve_sections,
)
from .trainings import TrainingChoices

SUMMARY_FILE = "reproduced.json"
"""The file in the run's folder, and among MLflow's artifacts, that has the tables as JSON."""


@dataclass(frozen=True)
class SectionResult:
    """A table of ours: the variants of a section that were evaluated on all questions."""

    paper: Paper
    section: Section
    heading: str
    """What our numbers rest on: benchmark, LM, judge, and whether they are a smoke test."""
    rows: tuple[VariantResult, ...]
    failed: Mapping[str, str]
    """The message of the error, by the label of a variant that ended in one."""
    win_rates: Mapping[str, WinRate]
    """By the label of the comparison."""

    def cells(self, row: VariantResult) -> list[Cell]:
        """Return the cells of a variant with the paper's; shares are in points, from 0 to 100."""
        cells: list[Cell] = []
        for column in self.section.columns:
            printed = self.paper.printed_cells(self.section, row.label, column)
            cell = row.cell(column, printed)
            cells.append(cell.in_points() if column.is_share else cell)
        return cells

    def printed_cells(self, row: PaperOnlyRow) -> list[tuple[PrintedCell, ...]]:
        """Return what the paper prints in each column of a row that nothing here can run."""
        cells: list[tuple[PrintedCell, ...]] = []
        for column in self.section.columns:
            cells.append(self.paper.printed_cells(self.section, row.label, column))
        return cells

    def difference(self, row: VariantResult) -> Difference | None:
        """Return the scores of a variant minus those of the baseline, on shared questions.

        It is None for the baseline itself, and where the baseline was not evaluated.
        """
        if row.label == self.section.baseline:
            return None
        for baseline in self.rows:
            if baseline.label == self.section.baseline:
                return row.difference(baseline)
        return None

    @property
    def broken(self) -> tuple[str, ...]:
        """The labels of variants that lost so many calls that their scores say little."""
        labels: list[str] = []
        for row in self.rows:
            if any(evaluation.broken for evaluation in row.evaluations):
                labels.append(row.label)
        return tuple(labels)

    def summary(self) -> dict[str, object]:
        """Return the table as JSON data."""
        section = self.section
        tables = self.paper.tables(section)
        return {
            "section": section.name,
            "title": section.title,
            "heading": self.heading,
            "note": section.note,
            "printed": [table.model_dump(mode="json") for table in tables],
            "rows": [self._row_summary(row) for row in self.rows],
            "not_run": [self._paper_only_summary(row) for row in section.not_run],
            "failed": dict(self.failed),
            "broken": list(self.broken),
            "win_rates": {label: asdict(rate) for label, rate in self.win_rates.items()},
        }

    def _paper_only_summary(self, row: PaperOnlyRow) -> dict[str, object]:
        """Return a row that has the paper's cells alone as JSON data."""
        names = [column.name for column in self.section.columns]
        printed = dict(zip(names, self.printed_cells(row), strict=True))
        return {"label": row.label, "why": row.why, "printed": printed}

    def _row_summary(self, row: VariantResult) -> dict[str, object]:
        """Return the row of a variant as JSON data."""
        variant = self.paper.variants[row.label]

        # How the variant was compiled or trained, if it was.
        tuning = None
        if variant.tuned is not None:
            tuning = variant.tuned.model_dump(mode="json")

        # Each cell has our number and the one that the paper prints.
        cells: dict[str, object] = {}
        for column, cell in zip(self.section.columns, self.cells(row), strict=True):
            cells[column.name] = asdict(cell)

        difference = None
        difference_to_baseline = self.difference(row)
        if difference_to_baseline is not None:
            in_points = _difference_in_points(difference_to_baseline)
            difference = {"to": self.section.baseline, **in_points}

        return {
            "label": row.label,
            "program": variant.program,
            "settings": dict(variant.settings),
            "tuned": tuning,
            "runs": [path.name for path in row.runs],
            "n": row.evaluation.n,
            "cells": cells,
            "difference": difference,
            # Usage and search times are those of the first seed.
            "takes": asdict(row.evaluation.usage),
            "search_ms": row.evaluation.search_ms(),
            # Failures are summed up over all seeds; the failure rate is that of the worst seed.
            "failures": sum(evaluation.failures for evaluation in row.evaluations),
            "lost": max(evaluation.failure_rate for evaluation in row.evaluations),
        }


def _difference_in_points(difference: Difference) -> dict[str, object]:
    """Return a difference as JSON data, in points, from -100 to 100, as the cells of its table."""
    data = difference.to_dict()
    if data["mean"] is not None:
        data["mean"] *= 100
    if data["interval"] is not None:
        data["interval"] = [100 * bound for bound in data["interval"]]
    return data


@dataclass(frozen=True)
class Reproduction:
    """The tables of a paper, ours and its own."""

    paper: Paper
    sections: tuple[SectionResult, ...]
    run: Path
    """The folder of the run."""
    run_id: str
    """Its MLflow run."""
    notes: tuple[str, ...]
    """Sentences on what was left out, or is smaller than in the paper."""
    stopped: str | None
    """The limit that ended the run; None if none did."""

    @property
    def failed(self) -> bool:
        """Whether a variant ended in an error, or its score is that of a broken run."""
        return any(section.failed or section.broken for section in self.sections)

    def summary(self) -> dict[str, object]:
        """Return our tables with the paper's beside them as JSON data."""
        not_reproduced = [item.model_dump(mode="json") for item in self.paper.not_reproduced]
        return {
            "paper": self.paper.name,
            "sections": [section.summary() for section in self.sections],
            "not_reproduced": not_reproduced,
            "notes": list(self.notes),
            "stopped": self.stopped,
            "run": str(self.run),
            "run_id": self.run_id,
        }


def reproduce(
    paper: Paper,
    config: RunConfig,
    selection: Selection = WHOLE_PAPER,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
) -> Reproduction:
    """Run sections of a paper, logged as one MLflow run with one inside for each child run.

    Rewards of trainings are given by the model that answers in the tables, unless the selection
    names another one.

    Args:
        paper: The paper.
        config: Models, sizes and limits. If it names a run to resume, what that run finished is
            read.
        selection: What of the paper is run.
        progress: Called with the name of each variant and phase.
        meter: Counts the calls; a new one if None.

    Raises:
        UserError: A name, a file or a setting fits nothing, or the run to resume was started with
            other settings.
        EndpointError: A model cannot be reached; the message says how to resume.
    """
    selection = selection.with_reward_model(config)
    resolved = resolve_sections(paper, config.with_options(resume=None), selection)
    _check_before_paying(paper, resolved, config, selection.trainings)

    settings = _run_settings(paper, resolved, config, selection)
    title = f"reproduce-{paper.name}"
    if config.execution.resume:
        folder = RunFolder.resume(config.execution.resume, settings)
    else:
        folder = RunFolder.create(title, settings)

    tracking = config.execution.tracking
    with folder.recording(), open_tracker(tracking, title, {"command": "reproduce"}) as tracker:
        tracker.log_params(settings)
        folder.update(run_id=tracker.run_id)
        runner = _Runner(
            paper=paper,
            trainings=selection.trainings,
            folder=folder,
            run_id=tracker.run_id,
            meter=meter or Meter(),
            guard=BudgetGuard(config.limits),
            progress=progress,
        )
        sections = tuple(runner.run_section(section) for section in resolved.sections)
        reproduction = Reproduction(
            paper=paper,
            sections=sections,
            run=folder.path,
            run_id=tracker.run_id,
            notes=resolved.notes,
            stopped=runner.guard.limit_hit,
        )
        _save_result(reproduction, folder, tracker)
    return reproduction


def _check_before_paying(
    paper: Paper, resolved: ResolvedSections, config: RunConfig, choices: TrainingChoices
) -> None:
    """Refuse models, files and trainings that a section could not be run with.

    Args:
        paper: The paper.
        resolved: Its sections.
        config: Names the run that is resumed, if one is.
        choices: Settings of the trainings.

    Raises:
        UserError: A model could not be asked, or a file or a training does not fit.
        EndpointError: A model cannot be reached.
    """
    resume = config.execution.resume
    for section in resolved.sections:
        check_models(RunInputs(section.config.with_options(resume=resume)))
        for benchmark_config in (section.config, *section.learning_configs.values()):
            # Reading the benchmark checks its file.
            _ = RunInputs(benchmark_config).benchmark
        _check_trainings(paper, section, choices, is_resumed=resume is not None)


def _check_trainings(
    paper: Paper, resolved: ResolvedSection, choices: TrainingChoices, is_resumed: bool
) -> None:
    """Check the trainings of a section before it runs.

    The reward of a memory is computed from answers to questions about it. A training may name a
    model that gives these answers.

    Raises:
        UserError: A training wants another number of processes than torchrun started. Or the model
            for its rewards has no key, or does not exist.
        EndpointError: That model cannot be reached.
    """
    # Trainings may share the model, which is checked once.
    reward_models: list[RoleModel] = []
    for label in resolved.labels:
        tuning = paper.variants[label].tuned
        # `LOGO` is the only optimizer that is run as a training.
        if tuning is None or tuning.optimizer != LOGO:
            continue
        training = choices.training_config(tuning, resolved.config.models.task.name)
        check_processes(training)
        reward_model = reward_answer_model(resolved.config, training)
        if reward_model not in reward_models:
            reward_models.append(reward_model)

    for reward_model in reward_models:
        # In a training its calls are counted as those of a judge.
        check_model("judge", reward_model, is_resumed=is_resumed)


def _run_settings(
    paper: Paper, resolved: ResolvedSections, config: RunConfig, selection: Selection
) -> dict[str, object]:
    """Return the settings of the whole run that must be equal when it is resumed.

    The run's folder keeps them, and `--resume` compares.
    """
    section_names = [section.section.name for section in resolved.sections]
    # The settings of single sections follow from these, and are compared with their child runs.
    settings = _settings_that_must_match(
        "reproduce", paper.name, config, {"sections": section_names}
    )
    settings["seeds"] = [section.seeds for section in resolved.sections]
    if selection.trainings.result_settings:
        settings["training"] = selection.trainings.result_settings
    for name, path in selection.files.items():
        settings[f"data.{name}"] = str(Path(path).absolute())
    return settings


def _settings_that_must_match(
    command: str, program: str, config: RunConfig, further_settings: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings that identify a reproduction, or one of the runs that it consists of.

    They are saved with the run. A run can only be resumed with equal settings. Within a
    reproduction, two variants with equal settings share one run instead of repeating it.

    Args:
        command: The command of the run: "reproduce", "evaluate", "compile" or "train".
        program: What is run.
        config: The configuration of the run.
        further_settings: Other settings that decide the result.
    """
    settings = {
        "command": command,
        # This marks the run as belonging to a paper. Such a run cannot be repeated with a file for
        # `--config`, so `mempiler show` writes none for it.
        "part_of": "reproduce",
        "program": program,
        **resume_key(RunInputs(config)),
        **further_settings,
    }
    # The settings are compared with saved ones, which were read from JSON. Converting them to JSON
    # and back makes both alike: tuples become lists, for example.
    return json.loads(json.dumps(settings, default=jsonable))


def _save_result(reproduction: Reproduction, folder: RunFolder, tracker: Tracker) -> None:
    """Write the tables into the run's folder and into MLflow."""
    for section in reproduction.sections:
        scores: dict[str, float | None] = {}
        for row in section.rows:
            scores[f"{section.section.name}.{row.label}.score"] = row.evaluation.score
        tracker.log_metrics(scores)

    summary = reproduction.summary()
    tracker.log_json(SUMMARY_FILE, summary)
    with atomic_write(folder.path / SUMMARY_FILE) as file:
        json.dump(summary, file, indent=1, ensure_ascii=False)
    folder.update(status="stopped" if reproduction.stopped else "finished")


@dataclass(frozen=True)
class _ChildRun:
    """What a child run is started with: how it shows progress, and what it shares with others."""

    progress: ProgressFactory
    parent: Parent


@dataclass
class _Runner:
    """Runs the variants of the sections of a paper, as child runs of one run."""

    paper: Paper
    trainings: TrainingChoices
    folder: RunFolder
    """The folder of the whole run."""
    run_id: str
    """The MLflow run that those of the child runs are inside."""
    meter: Meter
    guard: BudgetGuard
    progress: ProgressFactory

    @cached_property
    def _memories(self) -> MemoryCache:
        """The memories that the evaluations share."""
        return MemoryCache(self.folder.store.memories)

    def run_section(self, resolved: ResolvedSection) -> SectionResult:
        """Evaluate the variants of a section.

        A variant that ends in an error does not keep the others from being evaluated. After a limit
        was reached, only the variants that are finished are in the result.

        Raises:
            EndpointError: A model cannot be reached.
            RunInterrupted: The run was interrupted.
            MempilerError: All further calls would fail, e.g. because the key is refused.
        """
        results: dict[str, VariantResult] = {}
        errors: dict[str, str] = {}
        # A scorer may have metrics of all answers together, such as macro-F1.
        scorer = RunInputs(resolved.config).benchmark.scorer
        for label in resolved.labels:
            try:
                result = self._evaluate_variant(label, resolved, scorer.aggregate)
            except (EndpointError, RunInterrupted):
                raise
            except BudgetError:
                # A limit was reached. Later variants may be finished by an earlier run, so go on.
                continue
            except MempilerError as error:
                if self.guard.fatal_error is not None:
                    raise
                errors[label] = one_line(error)
                continue
            # A variant that was asked only some of the questions is left out: its score could not
            # be compared with those of the others.
            if result is not None and not _is_stopped(result):
                results[label] = result

        rows = tuple(results.values())
        return SectionResult(
            paper=self.paper,
            section=resolved.section,
            heading=_heading(resolved, rows),
            rows=rows,
            failed=errors,
            win_rates=self._judge_comparisons(resolved, results),
        )

    def _evaluate_variant(
        self, label: str, resolved: ResolvedSection, aggregate: Aggregate
    ) -> VariantResult | None:
        """Tune a variant if it is to be tuned, and evaluate it for each seed.

        Args:
            label: The variant.
            resolved: The section that is run.
            aggregate: Computes the metrics of all answers together.

        Returns:
            The evaluations. None if a limit was reached before the last of them had begun.
        """
        variant = self.paper.variants[label]
        evaluations: list[Evaluation] = []
        runs: list[Path] = []
        for config in repetitions(variant, resolved):
            folder = self._evaluate_repetition(label, resolved, config)
            if folder is None:
                return None
            evaluations.append(load_run(str(folder.path)).evaluation)
            runs.append(folder.path)
        return VariantResult(label, tuple(evaluations), tuple(runs), aggregate)

    def _evaluate_repetition(
        self, label: str, resolved: ResolvedSection, config: RunConfig
    ) -> RunFolder | None:
        """Evaluate a variant for one seed, unless that is finished already.

        A variant with a tuning is tuned before, and the tuned program is evaluated.

        Args:
            label: The variant.
            resolved: The section that is run.
            config: With the settings of the variant and of the repetition.

        Returns:
            The folder of the child run. None if a limit was reached before it could begin.
        """
        variant = self.paper.variants[label]
        settings = _settings_that_must_match(
            "evaluate", variant.program, config, {"part": resolved.part}
        )
        program_to_evaluate = variant.program
        evaluation_config = config
        if variant.tuned is not None:
            tuned_folder = self._tune(label, resolved)
            if tuned_folder is None:
                return None
            settings["tuned"] = tuned_folder.path.name
            program_to_evaluate = str(tuned_folder.program)
            evaluation_config = _config_of_saved_program(config, program_to_evaluate)

        # The folder is named after the method: a tuned program is only known by a path.
        folder = self._open_child_folder(variant.program, settings)
        if folder is None or folder.is_finished:
            return folder
        child_run = self._child_run(label, resolved, folder, self._memories)
        run_evaluate(
            program_to_evaluate,
            RunInputs(evaluation_config),
            resolved.part,
            progress=child_run.progress,
            meter=self.meter,
            parent=child_run.parent,
        )
        return folder

    def _tune(self, label: str, resolved: ResolvedSection) -> RunFolder | None:
        """Compile or train a variant, unless that is finished already.

        If it begins from another variant, tune that first.

        Returns:
            The folder of the child run, which has the program. None if a limit was reached before
            it was finished.

        Raises:
            UserError: The optimizer ended before its time, and the run can be resumed; or the
                variant is not one that is tuned.
        """
        variant = self.paper.variants[label]
        tuning = variant.tuned
        if tuning is None:
            raise UserError(f"{label} is neither compiled nor trained; nothing can begin from it")
        config = resolved.learning_config(variant)
        if tuning.train is not None:
            config = config.with_options(train=tuning.train)

        is_training = tuning.optimizer == LOGO
        command = "train" if is_training else "compile"
        # `on` is left out, because the configuration names the benchmark, too. So variants that
        # learn the same on the same benchmark share the child run, whatever they are evaluated on.
        further_settings: dict[str, object] = {"tuned": tuning.model_dump(exclude={"on"})}
        if is_training and self.trainings.result_settings:
            further_settings["training"] = self.trainings.result_settings
        program = variant.program
        settings = _settings_that_must_match(command, program, config, further_settings)

        if tuning.start:
            start_folder = self._tune(tuning.start, resolved)
            if start_folder is None:
                return None
            settings["begun"] = start_folder.path.name
            program = str(start_folder.program)
            config = _config_of_saved_program(config, program)

        folder = self._open_child_folder(f"{tuning.optimizer}-{variant.program}", settings)
        if folder is None or folder.is_finished:
            return folder
        child_run = self._child_run(label, resolved, folder)
        if is_training:
            self._train(program, config, tuning, child_run)
        else:
            self._compile(program, config, tuning, child_run)

        if folder.is_finished:
            return folder
        if self.guard.limit_hit is not None:
            return None
        raise UserError(
            f"its optimizer ended before its time; --resume {self.folder.path.name} goes on with it"
        )

    def _train(self, program: str, config: RunConfig, tuning: Tuning, child: _ChildRun) -> None:
        """Train the model of a program."""
        training = self.trainings.training_config(tuning, config.models.task.name)
        run_train(
            program,
            RunInputs(config),
            training,
            progress=child.progress,
            meter=self.meter,
            parent=child.parent,
        )
        release_memory()

    def _compile(self, program: str, config: RunConfig, tuning: Tuning, child: _ChildRun) -> None:
        """Compile a program."""
        compilation = CompileConfig(tuning.optimizer, tuning.stage, settings=dict(tuning.settings))
        run_compile(
            program,
            RunInputs(config),
            compilation,
            progress=child.progress,
            meter=self.meter,
            parent=child.parent,
        )

    def _child_run(
        self,
        label: str,
        resolved: ResolvedSection,
        folder: RunFolder,
        memories: MemoryCache | None = None,
    ) -> _ChildRun:
        """Return what a child run is started with.

        Args:
            label: The variant that is run.
            resolved: The section of the variant.
            folder: The folder of the child run.
            memories: Memories that it shares with other child runs; None if it has its own.
        """
        name = f"{resolved.section.name}/{label}"

        def start_phase(phase: str) -> Progress | None:
            return self.progress(f"{name}: {phase}")

        tags = {"mlflow.parentRunId": self.run_id, "variant": name}
        return _ChildRun(start_phase, Parent(folder, self.guard, tags, memories))

    def _open_child_folder(self, title: str, settings: dict[str, object]) -> RunFolder | None:
        """Return the folder of a child run, and create it if it is new.

        After a limit was reached, only the folder of a child run that is finished is returned: it
        can be read without a call. For others the result is None.

        Args:
            title: What the folder is named after.
            settings: What decides the result; child runs with equal settings are one.
        """
        name = f"{file_name_of(title)[:60]}-{digest(settings)[:12]}"
        if self.guard.limit_hit is not None:
            # `child` would create a folder that is not there.
            if not self.folder.has_child(name):
                return None
            if not self.folder.child(name, settings).is_finished:
                return None
        return self.folder.child(name, settings)

    def _judge_comparisons(
        self, resolved: ResolvedSection, results: Mapping[str, VariantResult]
    ) -> dict[str, WinRate]:
        """Let the judge compare the answers of pairs of variants.

        Returns:
            The win rates by the label of the comparison. There are none without a judge, and only
            the first ones if a limit is reached.
        """
        config = resolved.config
        comparisons = [
            comparison
            for comparison in resolved.section.comparisons
            if comparison.one in results and comparison.other in results
        ]
        if not config.models.judge.name or not comparisons or self.guard.limit_hit is not None:
            return {}

        model = Run(RunInputs(config), self.meter, self.guard, self.folder).model("judge")
        judge = PreferenceJudge(model, make_adapter(config.method.adapter or "chat"))
        win_rates: dict[str, WinRate] = {}
        for comparison in comparisons:
            # Of several seeds the first ones are compared.
            baseline = load_run(str(results[comparison.other].runs[0]))
            run = load_run(str(results[comparison.one].runs[0]))
            try:
                with endpoint_errors():
                    win_rates[comparison.label] = judge_win_rate(
                        baseline, run, judge, config.execution.threads
                    )
            except BudgetError:
                break
        return win_rates


def _is_stopped(result: VariantResult) -> bool:
    """Tell whether an evaluation of a variant ended before all questions were asked."""
    return any(evaluation.stopped for evaluation in result.evaluations)


def _heading(resolved: ResolvedSection, rows: Sequence[VariantResult]) -> str:
    """Return the benchmark and the models of a section, to head its table; "" without rows."""
    if not rows:
        return ""
    # A description is e.g. "turn-rag on locomo, LM openai/gpt-4.1-mini". Its beginning is left out:
    # it names the program, and each row of the table has another one.
    heading = describe_evaluation(rows[0].evaluation).partition(" on ")[2]
    # In such a section another model answers than the one that the description names.
    if heading and resolved.section.needs == "answers":
        heading += f"; answers by {resolved.config.models.answer.name}"
    return heading


def _config_of_saved_program(config: RunConfig, folder: str) -> RunConfig:
    """Return the configuration for a saved program, which has its own settings.

    If the program names its language model, as a trained one does, the configuration has that.
    """
    lm = read_manifest(folder).lms.get("task", config.models.task.name)
    return config.with_options(set={}, lm=lm)
