"""The main jobs from start to end: evaluate a program, compile one. What the command line and notebooks call.

    compile:  split ── start saved ── optimizer on train ── both on dev: promote? ── kept program on test ── save, log

Test questions are scored once, after the decision. The compiled program is kept only if it beats its start on the dev
questions. Everything is logged to one MLflow run.

Example:
    >>> setup = Setup(benchmark="locomo", lm="offline")
    >>> outcome = run_compile("turn-rag", setup, optimizer="bootstrap", out="my-program")
    >>> outcome.promoted, outcome.difference.mean
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dspy

from ..data.benchmark import Benchmark, Split
from ..data.catalog import benchmark as load_benchmark
from ..engines.embedders import embedder as make_embedder
from ..engines.meter import Meter, MeteredLM
from ..engines.models import language_model
from ..errors import UserError
from ..optimizers.catalog import optimizer as optimizer_entry
from ..optimizers.compile import compile_program
from ..programs.adapter import adapter as make_adapter
from ..programs.catalog import build, needs_embedder
from ..programs.program import MemoryProgram, Stage
from .artifact import MANIFEST, Manifest, load, read_manifest, save
from .evaluate import Progress, evaluate
from .home import new_run_folder
from .results import Evaluation, difference
from .statistics import Difference
from .tracking import Tracker

Part = Literal["all", "train", "dev", "test"]
Note = Callable[[str], Progress | None]
"""Told the name of each phase; may return a progress callback for it."""


@dataclass(frozen=True)
class Setup:
    """What a run rests on: data, models, sizes and seed."""

    benchmark: str
    data: str | None = None
    """The benchmark's file; None for the bundled sample."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark, e.g. {"categories": "2,4"}."""
    lm: str = "offline"
    api_base: str | None = None
    temperature: float | None = None
    embedder: str = "offline"
    embedder_api_base: str | None = None
    adapter: str | None = None
    """None: "chat", or what a saved program was compiled under."""
    train: int | None = None
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    threads: int = 8

    def load(self) -> Benchmark:
        """Reads the benchmark."""
        return load_benchmark(self.benchmark, self.data, **self.options)

    def split(self, benchmark: Benchmark) -> Split:
        """Cuts it as this setup says."""
        return benchmark.split(self.train, self.dev, self.test, self.seed)

    def model(self, meter: Meter) -> MeteredLM:
        """Makes the task LM."""
        return language_model(self.lm, meter, "task", self.api_base, self.temperature)


@dataclass(frozen=True)
class Compiled:
    """What a compile gave."""

    start: Evaluation
    result: Evaluation
    """The kept program on the test questions; equal to `start` where nothing was gained."""
    dev: tuple[float | None, float | None]
    """Dev scores of start and compiled program, which decided."""
    difference: Difference
    promoted: bool
    program: Path
    run_id: str

    def summary(self) -> dict[str, Any]:
        """The object `compile --json` prints."""
        found = self.difference.interval
        return {
            "start": self.start.summary(),
            "result": self.result.summary(),
            "difference": {
                "mean": self.difference.mean,
                "interval": None if found is None else [found.low, found.high],
                "interval_unit": None if found is None else found.unit,
                "p_sign": self.difference.p_sign,
            },
            "dev": {"start": self.dev[0], "result": self.dev[1]},
            "promoted": self.promoted,
            "program": str(self.program),
            "run_id": self.run_id,
        }


def program_for(
    name: str, setup: Setup, benchmark: Benchmark, config: Mapping[str, Any] | None = None, allow_code: bool = False
) -> MemoryProgram:
    """Builds a method's program for a benchmark, or loads a saved one.

    Args:
        name: A method name, `module:Class`, or the folder of a saved program.
        setup: Names the embedder and adapter.
        benchmark: Whose task the program is for.
        config: Constructor arguments of the method.
        allow_code: Whether a saved `module:Class` method may be imported.

    Raises:
        UserError: A saved program is for another task, or takes no `config`.
    """
    if Path(name).is_dir():
        program = load(name, allow_code)
        if program.task.name != benchmark.task:
            raise UserError(f"{name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}")
        if config:
            raise UserError(f"{name}: a saved program keeps its settings; compile a new one with --set instead")
        return program
    embedder = make_embedder(setup.embedder, setup.embedder_api_base) if needs_embedder(name) else None
    return build(name, benchmark.task, embedder, adapter=setup.adapter or "chat", **dict(config or {}))


def run_evaluate(
    name: str,
    setup: Setup,
    part: Part = "all",
    config: Mapping[str, Any] | None = None,
    note: Note = lambda phase: None,
    allow_code: bool = False,
) -> Evaluation:
    """Scores a method or a saved program, logged as one MLflow run.

    Args:
        name: A method name, `module:Class`, or the folder of a saved program.
        setup: Data and models.
        part: Which questions: all, or a part of the split that compile uses.
        config: Constructor arguments of the method.
        note: Told the phase.
        allow_code: Whether a saved `module:Class` method may be imported.
    """
    benchmark = setup.load()
    program = program_for(name, setup, benchmark, config, allow_code)
    examples = benchmark.interleave(benchmark.examples) if part == "all" else getattr(setup.split(benchmark), part)
    if part == "all" and setup.test is not None:
        examples = setup.split(benchmark).test
    meter = Meter()
    with Tracker(f"evaluate-{program.name}-{benchmark.name}", {"command": "evaluate"}) as tracker:
        tracker.params(_params(program, setup, benchmark) | {"part": part})
        with dspy.context(lm=setup.model(meter), adapter=make_adapter(setup.adapter or program.adapter)):
            found = evaluate(program, benchmark, examples, meter, setup.threads, note("evaluating"))
        found = found.model_copy(update={"run_id": tracker.run_id})
        tracker.evaluation("evaluation", found)
    return found


def run_compile(
    method: str,
    setup: Setup,
    optimizer: str = "bootstrap",
    stage: Stage = "all",
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    force: bool = False,
    note: Note = lambda phase: None,
    allow_code: bool = False,
) -> Compiled:
    """Compiles a program against a benchmark's metric, scores it before and after, saves and logs it.

    Args:
        method: A method name, `module:Class`, or the folder of a saved program to start from.
        setup: Data and models.
        optimizer: A name of the optimizer catalog.
        stage: Which predictors may change.
        out: Folder for the program; a new one under the results folder if None. It holds a loadable program from
            the first moment on.
        settings: Settings of the optimizer.
        config: Constructor arguments of the method.
        force: Keeps the compiled program even without a gain on the dev questions.
        note: Told the phases.
        allow_code: Whether a saved `module:Class` method may be imported.
    """
    optimizer_entry(optimizer)
    benchmark = setup.load()
    split = setup.split(benchmark)
    start = program_for(method, setup, benchmark, config, allow_code)
    folder = Path(out) if out else new_run_folder(f"compile-{method}-{benchmark.name}-{optimizer}") / "program"
    chosen = {"name": optimizer, "stage": stage, "seed": setup.seed, "settings": dict(settings or {})}
    manifest = Manifest(
        method=start.name, task=benchmark.task, benchmark=_data(benchmark, split), lms={"task": setup.lm}
    )
    if not (folder / MANIFEST).is_file():
        save(start, folder, manifest)
    meter = Meter()
    with Tracker(f"compile-{start.name}-{benchmark.name}-{optimizer}", {"command": "compile"}) as tracker:
        tracker.params(_params(start, setup, benchmark) | {f"optimizer.{key}": value for key, value in chosen.items()})
        with dspy.context(lm=setup.model(meter), adapter=make_adapter(setup.adapter or start.adapter)):
            note("compiling")
            compiled = compile_program(start, benchmark, split.train, optimizer, stage, setup.seed, settings)
            scored = [
                evaluate(program, benchmark, split.dev, meter, setup.threads, note(f"dev questions, {name}"))
                for name, program in (("before", start), ("after", compiled))
            ]
            gained = (scored[1].score or 0.0) > (scored[0].score or 0.0)
            promoted = force or gained
            before = evaluate(start, benchmark, split.test, meter, setup.threads, note("test questions, before"))
            after = before
            if promoted:
                after = evaluate(compiled, benchmark, split.test, meter, setup.threads, note("test questions, after"))
        before, after = (found.model_copy(update={"run_id": tracker.run_id}) for found in (before, after))
        found = difference(before, after)
        outcome = Compiled(before, after, (scored[0].score, scored[1].score), found, promoted, folder, tracker.run_id)
        scores = {key: value for key, value in outcome.summary().items() if key not in ("program", "run_id")}
        kept = manifest.model_copy(update={"optimizer": chosen if promoted else {}, "scores": scores})
        save(compiled if promoted else start, folder, kept)
        _log(tracker, outcome)
    return outcome


def compiled_on(folder: str | Path, benchmark: Benchmark) -> bool:
    """Whether a saved program was compiled on the very file of a benchmark."""
    manifest = read_manifest(folder)
    return bool(manifest.optimizer) and manifest.benchmark.get("sha256") == benchmark.source.sha256


def _log(tracker: Tracker, outcome: Compiled) -> None:
    from .report import comparison_picture

    tracker.evaluation("start", outcome.start)
    tracker.evaluation("result", outcome.result)
    tracker.metrics({"difference": outcome.difference.mean, "promoted": float(outcome.promoted)})
    tracker.metrics({"dev.start": outcome.dev[0], "dev.result": outcome.dev[1]})
    tracker.json("outcome.json", outcome.summary())
    tracker.picture(comparison_picture(outcome.start, outcome.result), "scores.png")
    tracker.folder(outcome.program, "program")


def _params(program: MemoryProgram, setup: Setup, benchmark: Benchmark) -> dict[str, Any]:
    source = benchmark.source
    return {
        "program": program.name,
        "task": program.task.name,
        "benchmark": benchmark.name,
        "data": source.path,
        "data_sha256": source.sha256,
        "sample": source.sample,
        "lm": setup.lm,
        "temperature": setup.temperature,
        "embedder": program.method.embedder.name if program.method.embedder else None,
        "adapter": setup.adapter or program.adapter,
        "seed": setup.seed,
        "threads": setup.threads,
        **{f"method.{key}": value for key, value in program.method.config.items()},
    }


def _data(benchmark: Benchmark, split: Split) -> dict[str, Any]:
    source = benchmark.source
    sizes = {"train": len(split.train), "dev": len(split.dev), "test": len(split.test)}
    where = {"name": benchmark.name, "path": source.path, "sha256": source.sha256, "sample": source.sample}
    return {**where, "split_sha256": split.digest, "sizes": sizes}
