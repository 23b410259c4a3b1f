"""Training from start to end: a model, its training by one or several objectives, scores on held-out users, a program.

All objectives begin from the same weights and may generate the same number of tokens. Finished work is in the run's
folder (`start/`, and for each objective and seed checkpoints, `model/` and `row.json`): a killed run continues where
its last checkpoint was.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.dataset import Split
from ..data.memory_env import MemoryEnv
from ..engines.meter import Meter
from ..engines.models import endpoint_errors, is_local
from ..errors import UserError, one_line
from ..optimizers.logo_grpo.policy import score_policy
from ..optimizers.logo_grpo.reward import Asked
from ..optimizers.logo_grpo.teleprompter import LoGoGRPO
from ..programs.identity import program_digest
from ..programs.memory_r2.method import MemoryR2
from ..programs.program import MemoryProgram
from ..records.whole_file import replacing
from .artifact import check_writable, save
from .course import TINY, Course
from .experiment import Note
from .manifest import Manifest
from .pages.html import keep_page
from .runtime import Parent, Runtime
from .setup import Setup, data_of, parameters
from .trained import Trained, TrainedRow, answered_row, measured

ROW = "row.json"
_NOT_DECISIVE = {"answer_api_base"}
"""Fields of a course that a resumed run may change."""


def run_train(
    method: str,
    setup: Setup,
    course: Course | None = None,
    out: str | Path | None = None,
    note: Note = lambda phase: None,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> Trained:
    """Trains the language model behind a method, scores it on held-out users, saves and logs model and program.

    Args:
        method: A method name, `module:Class`, or the folder of a saved program.
        setup: Data, models and the method's settings; its seed is the first one.
        course: How to train.
        out: Folder for the program; one in the run's folder if None.
        note: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        UserError: The model cannot be trained in this process, or a setting does not fit.
    """
    course = course or Course()
    if setup.temperature is not None:
        course = replace(course, settings=replace(course.settings, temperature=setup.temperature))
    names = course.names()
    if not is_local(setup.lm):
        raise UserError(
            f"{setup.lm} cannot be trained in this process; use --lm local:NAME, or LoGoGRPO with a provider that "
            "trains elsewhere (docs/training.md)"
        )
    if setup.lm == TINY and setup.adapter is None:
        setup = replace(setup, adapter="compact")
    benchmark = setup.load()
    if benchmark.scorer.asked:
        raise UserError(f"{benchmark.name} is scored by a judge, which is no reward to train on; choose a metric")
    runtime = Runtime.start(setup, "train", method, _decisive(course), meter, parent)
    with runtime.folder.recording():
        program = runtime.program(method, benchmark)
        folder = Path(out) if out else runtime.folder.program
        check_writable(folder)
        job = _Job(runtime, program, benchmark, setup.split(benchmark), course, note)
        outcome = job.tracked(names, folder)
    runtime.folder.update(status="finished", result=outcome.summary())
    return outcome


def _decisive(course: Course) -> dict[str, Any]:
    """What decides the result, as JSON, which knows no tuples: a resumed run is compared with what its folder holds."""
    found = {name: value for name, value in asdict(course).items() if name not in _NOT_DECISIVE}
    del found["settings"]["threads"]
    return _plain(found)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values))


@dataclass
class _Job:
    runtime: Runtime
    program: MemoryProgram
    benchmark: Benchmark
    split: Split
    course: Course
    note: Note

    @property
    def path(self) -> Path:
        return self.runtime.folder.path.absolute()

    def tracked(self, names: list[str], folder: Path) -> Trained:
        """Trains objectives in an MLflow run, saves what the asked one gave, and logs it."""
        setup, course, benchmark = self.runtime.setup, self.course, self.benchmark
        logged = parameters(self.program, setup, benchmark)
        logged |= {f"train.{name}": value for name, value in asdict(course).items()}
        title = f"{self.program.name}-{benchmark.name}-{course.objective}"
        with self.runtime.tracked("train", title, logged) as tracker:
            start = self._start()
            rows = [_kept(self.path / "start.json", lambda: self._row("start", None, self._lm(start), start))]
            work = [(name, seed) for seed in range(setup.seed, setup.seed + course.seeds) for name in names]
            for name, seed in work:
                made = self.path / f"{name}-{seed}"
                rows.append(_kept(made / ROW, partial(self._trained, name, seed, start, made)))
                tracker.steps(rows[-1].label, rows[-1].steps)
            run = self.path, tracker.run_id
            outcome = Trained(tuple(rows), course.objective, folder, *run, benchmark.name, course.quick)
            manifest = Manifest(
                method=self.program.name,
                task=benchmark.task,
                benchmark=data_of(benchmark, self.split),
                lms={"task": f"local:{outcome.kept.model}"},
                optimizer={"name": course.objective, "seed": outcome.kept.seed, "settings": _plain(asdict(course))},
                scores={"rows": [row.summary() for row in rows]},
            )
            save(self.program, folder, manifest)
            for row in rows:
                tracker.metrics({f"{row.label}.{key}": value for key, value in row.numbers().items()})
            tracker.json("outcome.json", outcome.summary())
            identity = program_digest(self.program)
            tracker.page(keep_page(self.path, outcome.page(logged, identity)))
            tracker.folder(folder, "program")
            tracker.folder(Path(outcome.kept.model), "model")
        return outcome

    def _start(self) -> str:
        if self.runtime.setup.lm != TINY:
            return self.runtime.setup.lm.removeprefix("local:")
        folder = self.path / "start"
        if not (folder / "config.json").is_file():
            from .tiny import tiny_folder

            method = self.program.method
            if not isinstance(method, MemoryR2) or not isinstance(self.benchmark, MemoryEnv):
                known = "local:tiny knows nothing but memory-r2 on memory-env"
                raise UserError(f"{known}; take these, or a model that has read something: --lm local:NAME")
            self.note("warm-up")
            # Under another name until it is whole: a killed run must not begin from half a model.
            partial = folder.with_name("start.partial")
            try:
                shutil.copytree(tiny_folder(self.runtime.setup.seed, method), partial, dirs_exist_ok=True)
                partial.rename(folder)
            except OSError as error:
                raise UserError(f"{partial}: cannot be written: {one_line(error, 200)}; free some space") from error
        return str(folder)

    def _lm(self, model: str) -> Any:
        from ..engines.local.engine import local_lm
        from ..engines.local.model import LocalModel

        seed = self.runtime.setup.seed
        lora = {"r": self.course.lora} if self.course.lora else None
        loaded = LocalModel.load(model, lora=lora, seed=seed, dtype=self.course.dtype)
        return local_lm(loaded, self.runtime.meter, 0.0, self.course.answer_tokens, seed, guard=self.runtime.guard)

    def _reader(self) -> Any:
        if self.course.answer_lm is None:
            return None
        return self.runtime.named(self.course.answer_lm, "judge", self.course.answer_api_base, temperature=0.0)

    def _trained(self, name: str, seed: int, start: str, folder: Path) -> TrainedRow:
        settings, lm, began = self.course.shaped(name, seed), self._lm(start), time.perf_counter()
        told, budget = self.note(f"{name} {seed}"), settings.curriculum.tokens
        spent = 0.0

        def heard(row: Mapping[str, Any]) -> None:
            nonlocal spent
            spent += row.get("tokens", 0.0)
            if told and budget:
                told(min(int(spent), budget), budget)

        kwargs = {"seed": settings.seed, **self.course.train_kwargs}
        given = self.benchmark.questions_after, self._reader(), folder, heard
        teleprompter = LoGoGRPO(self._metric, settings, kwargs, *given, counts=self.benchmark.counts)
        with dspy.context(lm=lm, **self._context()), endpoint_errors():
            teleprompter.compile(self.program, trainset=self.split.train, valset=self.split.dev)
        progress, seconds = teleprompter.progress, time.perf_counter() - began
        best = progress.best
        return self._row(name, seed, lm, str(folder / "model")).model_copy(
            update={
                "tokens": progress.tokens,
                "steps": progress.rows,
                "trained_steps": progress.step,
                "best_step": best and best.step,
                "validation": best and best.score,
                "remarks": progress.remarks,
                "seconds": seconds,
            }
        )

    def _row(self, name: str, seed: int | None, lm: Any, model: str) -> TrainedRow:
        counted, settings = [each for each in self.split.test if self.benchmark.counts(each)], self.course.settings
        score = partial(score_policy, self.program, counted, self._metric, lm, name="test", reader=self._reader())
        score = partial(score, threads=settings.threads)
        heard: list[Asked] = []
        with dspy.context(**self._context()), endpoint_errors():
            greedy = score(0.0, heard=heard.append)
            sampled = score(settings.temperature, samples=settings.samples)
        rows = {str(each.example.id): answered_row(self.program, self.benchmark, each) for each in heard}
        return measured(name, seed, model, greedy, sampled, rows, self.benchmark)

    def _context(self) -> dict[str, Any]:
        from ..programs.adapter import adapter

        return {"adapter": adapter(self.runtime.setup.adapter or self.program.adapter), "warn_on_type_mismatch": False}

    def _metric(self, example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(self.benchmark.score(example, prediction).value)


def _kept(path: Path, make: Callable[[], TrainedRow]) -> TrainedRow:
    """The row of a file, which is made where it is not there."""
    if path.is_file():
        return TrainedRow.model_validate_json(path.read_text(encoding="utf-8"))
    row = make()
    with replacing(path) as file:
        file.write(row.model_dump_json())
    return row
