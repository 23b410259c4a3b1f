"""Runs the sections of a paper: each variant once a seed, an ordinary evaluation, compile or training of its own.

Each is a part of the reproduction's run, with a folder under `parts/`; their answers and memories are in one store. A
part that is finished is read when the run is resumed; one that was broken off goes on as its own command would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from ..statistics import Difference
from ..tracking.tracker import Tracker
from ..train import check_processes, reward_reader, run_train
from .cells import Aggregate, Cell, VariantResult
from .paper import LOGO, NotRun, Paper, Section, Tuning
from .paper import Cell as PrintedCell
from .sections import ResolvedSection, repeated, resolve_sections, settings_of
from .trainings import TrainingChoices


@dataclass(frozen=True)
class SectionResult:
    """The variants of a section that were evaluated whole."""

    paper: Paper
    section: Section
    heading: str
    """What our numbers rest on: benchmark, LM, judge, and whether they are a smoke test."""
    rows: tuple[VariantResult, ...]
    failed: Mapping[str, str]
    """Variants that ended in an error, with its words."""
    win_rates: Mapping[str, WinRate]
    """By the label of the comparison."""

    def cells(self, row: VariantResult) -> list[Cell]:
        """Return the cells of a variant, the paper's beside them; shares are in points, from 0 to 100."""
        cells: list[Cell] = []
        for column in self.section.columns:
            cell = row.cell(column, self.paper.printed_cells(self.section, row.label, column))
            cells.append(cell.in_points() if column.is_share else cell)
        return cells

    def printed_cells(self, row: NotRun) -> list[tuple[PrintedCell, ...]]:
        """Return what the paper prints in each column of a row that was not run."""
        return [self.paper.printed_cells(self.section, row.label, column) for column in self.section.columns]

    def difference(self, row: VariantResult) -> Difference | None:
        """Of a variant to the section's own one, on shared questions; None for the own one, or without it."""
        own = next((each for each in self.rows if each.label == self.section.baseline), None)
        return None if own is None or row is own else row.difference(own)

    @property
    def broken(self) -> tuple[str, ...]:
        """Variants of which so many calls were lost that their scores say little."""
        return tuple(row.label for row in self.rows if any(each.broken for each in row.evaluations))

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        section = self.section
        return {
            "section": section.name,
            "title": section.title,
            "heading": self.heading,
            "note": section.note,
            "printed": [table.model_dump(mode="json") for table in self.paper.tables(section)],
            "rows": [self._row(row) for row in self.rows],
            "not_run": [self._not_run(row) for row in section.not_run],
            "failed": dict(self.failed),
            "broken": list(self.broken),
            "win_rates": {label: asdict(found) for label, found in self.win_rates.items()},
        }

    def _not_run(self, row: NotRun) -> dict[str, Any]:
        names = [column.name for column in self.section.columns]
        printed = dict(zip(names, self.printed_cells(row), strict=True))
        return {"label": row.label, "why": row.why, "printed": printed}

    def _row(self, row: VariantResult) -> dict[str, Any]:
        variant, found = self.paper.variants[row.label], self.difference(row)
        names = [column.name for column in self.section.columns]
        return {
            "label": row.label,
            "program": variant.program,
            "settings": dict(variant.settings),
            "tuned": None if variant.tuned is None else variant.tuned.model_dump(mode="json"),
            "runs": [path.name for path in row.runs],
            "n": row.evaluation.n,
            "cells": {name: asdict(cell) for name, cell in zip(names, self.cells(row), strict=True)},
            "difference": None if found is None else {"to": self.section.baseline, **_in_points(found)},
            "takes": asdict(row.evaluation.usage),
            "search_ms": row.evaluation.search_ms(),
            "failures": sum(each.failures for each in row.evaluations),
            "lost": max(each.failure_rate for each in row.evaluations),
        }


def _in_points(difference: Difference) -> dict[str, Any]:
    """Return a difference as JSON data, in points, from -100 to 100, as the cells of its table."""
    data = difference.to_dict()
    if data["mean"] is not None:
        data["mean"] *= 100
    if data["interval"] is not None:
        data["interval"] = [100 * end for end in data["interval"]]
    return data


@dataclass(frozen=True)
class Reproduced:
    """What a paper gave."""

    paper: Paper
    sections: tuple[SectionResult, ...]
    run: Path
    run_id: str
    notes: tuple[str, ...]
    """What was left out, or smaller than in the paper."""
    stopped: str | None
    """The limit that ended it."""

    @property
    def failed(self) -> bool:
        """Whether a variant ended in an error, or its score is that of a broken run."""
        return any(each.failed or each.broken for each in self.sections)

    def summary(self) -> dict[str, Any]:
        """Plain JSON: our tables with the paper's beside them."""
        return {
            "paper": self.paper.name,
            "sections": [section.summary() for section in self.sections],
            "not_reproduced": [each.model_dump(mode="json") for each in self.paper.not_reproduced],
            "notes": list(self.notes),
            "stopped": self.stopped,
            "run": str(self.run),
            "run_id": self.run_id,
        }


def reproduce(
    paper: Paper,
    config: RunConfig,
    names: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    seeds: int | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    choices: TrainingChoices | None = None,
) -> Reproduced:
    """Runs sections of a paper, logged as one MLflow run with a nested one for each variant and seed.

    Args:
        paper: What to run.
        config: Models, sizes and limits; where it names a run to resume, what is finished there is read.
        names: Of the sections; all if empty.
        files: By benchmark; the configuration's own is that of the only benchmark.
        seeds: Repetitions; those of the paper if None.
        progress: Called with the name of each variant.
        meter: Counts the calls; a new one if None.
        choices: Settings of the trainings, beside those of the rows. Rewards are given by the model that answers in the
            tables, unless they name another.

    Raises:
        UserError: A name, a file or a setting fits nothing, or the run to resume was started with other settings.
        EndpointError: A model cannot be reached; the message says how to resume.
    """
    choices = (choices or TrainingChoices()).rewarded_by(config)
    resolved, notes = resolve_sections(paper, config.with_options(resume=None), names, files, seeds, choices)
    for each in resolved:
        check_models(RunInputs(each.config.with_options(resume=config.execution.resume)))
        for one in (each.config, *each.learning_configs.values()):
            # What is wrong with a file is found before anything is paid for.
            _ = RunInputs(one).benchmark
        _check_trainings(paper, each, config, choices)
    asked = _asked(paper, resolved, config, files or {}, choices)
    title = f"reproduce-{paper.name}"
    resumed = config.execution.resume and RunFolder.resume(config.execution.resume, asked)
    folder = resumed or RunFolder.create(title, asked)
    with folder.recording(), Tracker(title, {"command": "reproduce"}) as tracker:
        tracker.log_params(asked)
        folder.update(run_id=tracker.run_id)
        cache = MemoryCache(folder.store.memories)
        work = _Work(
            paper, folder, tracker.run_id, meter or Meter(), BudgetGuard(config.limits), progress, cache, choices
        )
        done = tuple(map(work.section, resolved))
        result = Reproduced(paper, done, folder.path, tracker.run_id, notes, work.guard.limit_hit)
        for each in done:
            tracker.log_metrics({f"{each.section.name}.{row.label}.score": row.evaluation.score for row in each.rows})
        summary = result.summary()
        tracker.log_json("reproduced.json", summary)
        with atomic_write(folder.path / "reproduced.json") as file:
            json.dump(summary, file, indent=1, ensure_ascii=False)
        folder.update(status="stopped" if result.stopped else "finished")
    return result


@dataclass
class _Work:
    paper: Paper
    folder: RunFolder
    parent: str
    """MLflow run that the others are nested in."""
    meter: Meter
    guard: BudgetGuard
    note: ProgressFactory
    cache: MemoryCache
    choices: TrainingChoices

    def section(self, resolved: ResolvedSection) -> SectionResult:
        """Evaluates the variants of a section; after a limit, those that are finished are read."""
        section, found, failed = resolved.section, dict[str, VariantResult](), dict[str, str]()
        aggregate = RunInputs(resolved.config).benchmark.scorer.aggregate
        for label in resolved.labels:
            try:
                result = self._variant(label, resolved, aggregate)
            except (EndpointError, RunInterrupted):
                raise
            except BudgetError:
                continue
            except MempilerError as error:
                if self.guard.fatal_error is not None:
                    raise
                failed[label] = one_line(error)
                continue
            # Scores over a part of the questions are not compared.
            if result is not None and not any(each.stopped for each in result.evaluations):
                found[label] = result
        rows = tuple(found.values())
        first = describe_evaluation(rows[0].evaluation).partition(" on ")[2] if rows else ""
        if first and section.needs == "answers":
            first = f"{first}; answers by {resolved.config.models.answer.name}"
        return SectionResult(self.paper, section, first, rows, failed, self._win_rates(resolved, found))

    def _variant(self, label: str, resolved: ResolvedSection, aggregate: Aggregate) -> VariantResult | None:
        variant, found, runs = self.paper.variants[label], list[Evaluation](), list[Path]()
        for config in repeated(variant, resolved):
            program, config = variant.program, config.with_options(set=settings_of(variant, config))
            settings = _settings("evaluate", program, config, part=resolved.part)
            if variant.tuned is not None:
                tuned = self._tuned(label, resolved)
                if tuned is None:
                    return None
                settings |= {"tuned": tuned.path.name}
                program = str(tuned.program)
                config = _config_of_saved_program(config, program)
            folder = self._part(variant.program, settings)
            if folder is None:
                return None
            if not folder.is_finished:
                run_evaluate(program, RunInputs(config), resolved.part, *self._shared(label, resolved, folder, self.cache))
            found.append(load_run(str(folder.path)).evaluation)
            runs.append(folder.path)
        return VariantResult(label, tuple(found), tuple(runs), aggregate)

    def _tuned(self, label: str, resolved: ResolvedSection) -> RunFolder | None:
        variant = self.paper.variants[label]
        how, program = variant.tuned or Tuning(optimizer=""), variant.program
        config = resolved.learning(variant)
        config = config if how.train is None else config.with_options(train=how.train)
        command = "train" if how.optimizer == LOGO else "compile"
        chosen = {"training": self.choices.decisive} if command == "train" and self.choices.decisive else {}
        settings = _settings(command, program, config, tuned=how.model_dump(exclude={"on"}), **chosen)
        if how.start:
            begun = self._tuned(how.start, resolved)
            if begun is None:
                return None
            settings |= {"begun": begun.path.name}
            program = str(begun.program)
            config = _config_of_saved_program(config, program)
        folder = self._part(f"{how.optimizer}-{variant.program}", settings)
        if folder is None or folder.is_finished:
            return folder
        shared = self._shared(label, resolved, folder)
        if command == "train":
            run_train(program, RunInputs(config), self.choices.config(how, config.models.task.name), None, *shared)
            release_memory()
        else:
            compilation = CompileConfig(how.optimizer, how.stage, settings=dict(how.settings))
            run_compile(program, RunInputs(config), compilation, None, *shared)
        if folder.is_finished or self.guard.limit_hit is not None:
            return folder if folder.is_finished else None
        raise UserError(f"its optimizer ended before its time; --resume {self.folder.path.name} goes on with it")

    def _shared(
        self, label: str, resolved: ResolvedSection, folder: RunFolder, cache: MemoryCache | None = None
    ) -> tuple[ProgressFactory, Meter, Parent]:
        told = f"{resolved.section.name}/{label}"
        tags = {"mlflow.parentRunId": self.parent, "variant": told}
        return lambda phase: self.note(f"{told}: {phase}"), self.meter, Parent(folder, self.guard, tags, cache)

    def _part(self, name: str, settings: dict[str, Any]) -> RunFolder | None:
        name = f"{file_name_of(name)[:60]}-{digest(settings)[:12]}"
        if self.guard.limit_hit is not None and not (
            self.folder.has_child(name) and self.folder.child(name, settings).is_finished
        ):
            return None
        return self.folder.child(name, settings)

    def _win_rates(self, resolved: ResolvedSection, found: Mapping[str, VariantResult]) -> dict[str, WinRate]:
        config, rates = resolved.config, dict[str, WinRate]()
        pairs = [pair for pair in resolved.section.comparisons if {pair.one, pair.other} <= found.keys()]
        if not config.models.judge.name or not pairs or self.guard.limit_hit is not None:
            return rates
        model = Run(RunInputs(config), self.meter, self.guard, self.folder).model("judge")
        judge = PreferenceJudge(model, make_adapter(config.method.adapter or "chat"))
        for pair in pairs:
            ends = [load_run(str(found[label].runs[0])) for label in (pair.other, pair.one)]
            try:
                with endpoint_errors():
                    rates[pair.label] = judge_win_rate(ends[0], ends[1], judge, config.execution.threads)
            except BudgetError:
                break
        return rates


def _config_of_saved_program(config: RunConfig, folder: str) -> RunConfig:
    """Return the configuration for a saved program, which has its settings, and perhaps a model."""
    lm = read_manifest(folder).lms.get("task", config.models.task.name)
    return config.with_options(set={}, lm=lm)


def _settings(command: str, program: str, config: RunConfig, **values: Any) -> dict[str, Any]:
    """What decides a part, as its folder keeps it: tuples are lists then."""
    asked = {"command": command, "part_of": "reproduce", "program": program, **resume_key(RunInputs(config)), **values}
    return json.loads(json.dumps(asked, default=jsonable))


def _check_trainings(paper: Paper, resolved: ResolvedSection, config: RunConfig, choices: TrainingChoices) -> None:
    """Refuse, before anything is paid for, what a training would refuse: its reader, and the number of processes."""
    readers: list[RoleModel] = []
    for label in resolved.labels:
        tuning = paper.variants[label].tuned
        if tuning is None or tuning.optimizer != LOGO:
            continue
        course = choices.config(tuning, resolved.config.models.task.name)
        check_processes(course)
        reader = reward_reader(resolved.config, course)
        if reader not in readers:
            readers.append(reader)

    for reader in readers:
        check_model("judge", reader, is_resumed=config.execution.resume is not None)


def _asked(
    paper: Paper,
    resolved: Sequence[ResolvedSection],
    config: RunConfig,
    files: Mapping[str, str],
    choices: TrainingChoices,
) -> dict[str, Any]:
    """Return what decides the run, as its folder keeps it: one that is resumed has the same."""
    asked = _settings("reproduce", paper.name, config, sections=[each.section.name for each in resolved])
    asked |= {"seeds": [each.seeds for each in resolved]}
    if choices.decisive:
        asked["training"] = choices.decisive
    return asked | {f"data.{name}": str(Path(path).absolute()) for name, path in files.items()}
