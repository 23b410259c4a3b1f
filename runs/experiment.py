"""The main jobs from start to end: evaluate a program, compile one. What the command line and notebooks call.

    compile:  split ── start saved ── start on dev ── optimizer on train ── result on dev: promote? ── test ── save, log

Test questions are scored once, after the decision. The compiled program is kept only if it is significantly better than
its start on the dev questions (`promotion`). The optimizer gets what is left of the budget after the scoring that must
follow is set aside. Everything is logged to one MLflow run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy

from ..data.benchmark import Benchmark
from ..data.dataset import Split
from ..engines.guard import Guard
from ..engines.meter import Meter
from ..engines.models import endpoint_errors, keep
from ..errors import BrokenRunError, UserError
from ..optimizers.compile import Compilation, compile_program, plan_job
from ..optimizers.history import CandidateHistory
from ..optimizers.proposals import ATTEMPTS
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from .answers import ANSWERS, Answers
from .artifact import check_writable, save, versions
from .compare import keep_rows
from .evaluate import Progress, evaluate
from .external import name_in_tables
from .folder import RunFolder
from .lineage import show_compile, show_evaluation
from .manifest import Manifest, is_intact, read_manifest
from .outcome import Compiled, Troubles
from .pages.changes import program_changes, states
from .pages.html import keep_page
from .pages.page import Page, known_facts, run_page
from .promotion import promotion
from .registry import pinned
from .report import difference_line, spent_line
from .reserve import first_spent, reserve
from .results import Evaluation, counts_of, difference, refuse_broken
from .setup import Runtime, Setup, parameters, replayed_setup
from .shards import Sharing
from .tracking import Tracker

Part = Literal["all", "train", "dev", "test"]
TROUBLED = "troubled"
"""How often the optimizer of a run ended before its time or gave proposals up, in the run's record."""
Note = Callable[[str], Progress | None]
"""Called with the name of each phase; may return a progress callback for it."""


def run_evaluate(
    name: str | Any,
    setup: Setup,
    part: Part = "all",
    config: Mapping[str, Any] | None = None,
    note: Note = lambda phase: None,
    allow_code: bool = False,
    meter: Meter | None = None,
    cache: MemoryCache | None = None,
    guard: Guard | None = None,
    tags: Mapping[str, str] | None = None,
    folder: RunFolder | None = None,
) -> Evaluation:
    """Scores a method or a saved program, logged as one MLflow run.

    Args:
        name: A method name, `module:Class`, or a saved program: its folder, or `models:/NAME@ALIAS`. Or what else can
            be scored (`external`), by its name or itself: a callable, a module, a class with `add` and `search`.
        setup: Data and models.
        part: Which questions: all, or a part of the split that compile uses.
        config: Constructor arguments of the method.
        note: Called with the name of each phase.
        allow_code: Whether a saved `module:Class` method may be imported.
        meter: Counts the calls; a new one if None.
        cache: Memories to share with other evaluations; one that the run keeps on disk if None.
        guard: Limits to share with other evaluations; the setup's own if None.
        tags: Labels of the MLflow run, e.g. `nested_in(parent)`.
        folder: Where it is kept, as a part of a larger run, and resumed with that; a new one, or the setup's, if None.
    """
    setup = replayed_setup(setup)
    thing = pinned(name) if isinstance(name, str) else name
    if isinstance(thing, str) and thing.endswith(ANSWERS):
        thing = Answers(thing)
    name, benchmark = name_in_tables(thing), setup.load()
    examples = chosen_examples(setup, benchmark, part)
    if isinstance(thing, Answers):
        examples = thing.given(benchmark, examples)
    chosen = {"part": part, "config": dict(config or {})}
    runtime = Runtime.start(setup, "evaluate", name, chosen, meter, guard, folder)
    with runtime.folder.recording():
        benchmark = runtime.judged(benchmark)
        program = runtime.program(thing, benchmark, config, allow_code, cache)
        benchmark = runtime.company(benchmark, program, allow_code)
        sharing = _sharing(runtime, thing, config, allow_code)
        with closing(program.method):
            found = _evaluate(runtime, program, benchmark, examples, part, note, tags, sharing)
    keep_rows(runtime.folder, "evaluation", found)
    runtime.folder.update(status="stopped" if found.stopped else "finished", result=found.summary())
    return found


def run_compile(
    method: str,
    setup: Setup,
    how: Compilation | None = None,
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    force: bool = False,
    note: Note = lambda phase: None,
    allow_code: bool = False,
    meter: Meter | None = None,
    guard: Guard | None = None,
    tags: Mapping[str, str] | None = None,
    run: RunFolder | None = None,
) -> Compiled:
    """Compiles a program against a benchmark's metric, scores it before and after, saves and logs it.

    Args:
        method: A method name, `module:Class`, or a saved program to start from: its folder, or `models:/NAME@ALIAS`.
        setup: Data and models; its seed and threads are those of the optimizer, too.
        how: Optimizer, stage and settings.
        out: Folder for the program; one in the run's folder if None. It holds a loadable program from the first
            moment on, unless the run is broken.
        config: Constructor arguments of the method.
        force: Keeps the compiled program even without a significant gain on the dev questions, or in a broken run.
        note: Called with the name of each phase.
        allow_code: Whether a saved `module:Class` method may be imported.
        meter: Counts the calls; a new one if None.
        guard: Limits to share with other runs; the setup's own if None.
        tags: Labels of the MLflow run, e.g. `nested_in(parent)`.
        run: Where it is kept, as a part of a larger run, and resumed with that; a new one, or the setup's, if None.

    Raises:
        BrokenRunError: Too many questions failed; there is no program then, unless it is forced.
    """
    setup = replayed_setup(setup)
    how = replace(how or Compilation(), seed=setup.seed, threads=setup.threads)
    if setup.dev == 0 and not force:
        raise UserError("without dev questions nothing can show a gain; raise --dev, or keep the result with --force")
    method, benchmark = pinned(method), setup.load(compiling=True)
    split = setup.split(benchmark)
    chosen = {"optimizer": how.optimizer, "stage": how.stage, "settings": dict(how.settings or {})}
    decided = {**chosen, "config": dict(config or {}), "force": force}
    runtime = Runtime.start(setup, "compile", method, decided, meter, guard, run)
    with runtime.folder.recording():
        benchmark = runtime.judged(benchmark)
        start = runtime.program(method, benchmark, config, allow_code)
        with runtime.context(start):
            plan_job(start, benchmark, split.train, how, runtime.model("prompt"))
        folder = Path(out) if out else runtime.folder.program
        lms = {"task": setup.lm, "prompt": setup.prompt_lm or setup.lm}
        made = {"benchmark": _data(benchmark, split), "lms": lms, "lm_settings": dict(setup.lm_settings)}
        manifest = Manifest(method=start.name, task=benchmark.task, **made)
        check_writable(folder)
        older = is_intact(folder)
        if not older:
            save(start, folder, manifest)
        sharing = _sharing(runtime, method, config, allow_code)
        try:
            with closing(start.method):
                kept = folder, manifest
                outcome = _tracked(runtime, start, benchmark, split, how, force, note, *kept, sharing, tags)
        except BrokenRunError:
            if not older:
                shutil.rmtree(folder)
            raise
    keep_rows(runtime.folder, "start", outcome.start)
    keep_rows(runtime.folder, "result", outcome.result)
    ended = outcome.stopped or outcome.troubles.ended
    runtime.folder.update(status="stopped" if ended else "finished", result=outcome.summary())
    return outcome


def chosen_examples(setup: Setup, benchmark: Benchmark, part: Part) -> Sequence[dspy.Example]:
    """The questions an evaluation asks: all of them, or a part of the split; `--test N` alone means the test part."""
    if part == "all" and setup.test is None:
        return benchmark.interleave(benchmark.examples)
    return getattr(setup.split(benchmark), "test" if part == "all" else part)


def compiled_on(folder: str | Path, benchmark: Benchmark) -> bool:
    """Whether a saved program was compiled on the very file of a benchmark."""
    manifest = read_manifest(folder)
    return bool(manifest.optimizer) and manifest.benchmark.get("sha256") == benchmark.source.sha256


def _evaluate(
    runtime: Runtime,
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    part: Part,
    note: Note,
    tags: Mapping[str, str] | None,
    sharing: Sharing | None,
) -> Evaluation:
    """Scores in an MLflow run."""
    title = f"evaluate-{program.name}-{benchmark.name}-{runtime.folder.mark}"
    # The context first: a wrong name of a model or an adapter makes no run.
    with runtime.context(program), Tracker(title, {"command": "evaluate", **(tags or {})}) as tracker:
        logged = parameters(program, runtime.setup, benchmark) | {"part": part}
        runtime.folder.update(run_id=tracker.run_id, parameters=logged, versions=versions())
        tracker.params(logged)
        found = _scored(runtime, program, benchmark, examples, part, note, "evaluating", sharing)
        found = found.model_copy(update={"run_id": tracker.run_id})
        tracker.evaluation("evaluation", found)
        prompts = states(program)
        facts = [("Run", f"evaluate {program.name} on {benchmark.name}, asking {found.lm}")]
        facts += [("Data", f"{benchmark.source.name}, questions: {part}")]
        facts += known_facts(logged, program.identities.of_program(program))
        name, same = runtime.folder.path.name, program_changes(prompts, prompts)
        page = partial(run_page, "evaluate", name, {"score": found}, facts, changes=same)
        tracker.page(keep_page(runtime.folder.path, page))
        show_evaluation(tracker, program, benchmark, found, logged, runtime.setup.traces)
    return found


def _tracked(
    runtime: Runtime,
    start: MemoryProgram,
    benchmark: Benchmark,
    split: Split,
    how: Compilation,
    force: bool,
    note: Note,
    folder: Path,
    manifest: Manifest,
    sharing: Sharing | None,
    tags: Mapping[str, str] | None,
) -> Compiled:
    """Compiles in an MLflow run, saves what is kept, and logs it."""
    chosen = {"name": how.optimizer, "stage": how.stage, "seed": how.seed, "settings": dict(how.settings or {})}
    title = f"compile-{start.name}-{benchmark.name}-{how.optimizer}-{runtime.folder.mark}"
    with Tracker(title, {"command": "compile", **(tags or {})}) as tracker:
        logged = parameters(start, runtime.setup, benchmark)
        logged |= {f"optimizer.{key}": value for key, value in chosen.items()}
        runtime.folder.update(run_id=tracker.run_id, parameters=logged, versions=versions())
        tracker.params(logged)
        with runtime.context(start), endpoint_errors():
            outcome, kept = _compile(runtime, start, benchmark, split, how, force, note, sharing)
        outcome = replace(
            outcome,
            start=outcome.start.model_copy(update={"run_id": tracker.run_id}),
            result=outcome.result.model_copy(update={"run_id": tracker.run_id}),
            program=folder,
            run_id=tracker.run_id,
        )
        scores = {name: outcome.summary()[name] for name in ("start", "result", "difference", "dev", "promoted")}
        scores["gate"] = outcome.gate()
        made = chosen if outcome.promoted else {}
        # A program whose weights were trained is asked with them from here on.
        lms = {**manifest.lms, "task": outcome.model} if outcome.promoted and outcome.model else manifest.lms
        manifest = manifest.model_copy(update={"optimizer": made, "scores": scores, "lms": lms})
        save(kept, folder, manifest)
        _log(tracker, outcome)
        tracker.page(keep_page(runtime.folder.path, partial(_page, outcome, start, kept, benchmark, logged)))
        with runtime.context(start):
            show_compile(tracker, start, kept, benchmark, outcome, logged, runtime.setup.traces)
    return outcome


def _compile(
    runtime: Runtime,
    start: MemoryProgram,
    benchmark: Benchmark,
    split: Split,
    how: Compilation,
    force: bool,
    note: Note,
    sharing: Sharing | None,
) -> tuple[Compiled, MemoryProgram]:
    """Everything between setting up and saving: the outcome (its folders still unset) and the program to keep."""

    def score(program: MemoryProgram, part: Sequence[dspy.Example], phase: str) -> Evaluation:
        return _scored(runtime, program, benchmark, part, phase.split()[0], note, phase, sharing)

    guard = runtime.guard
    first = score(start, split.dev, "dev questions, before")
    _check(runtime, first, force)
    kept_back = reserve(first, first_spent(runtime), split, rewrites=how.stage != "read")
    history = _history(runtime, note(f"compiling with {how.optimizer}"))
    compiled = None
    if guard.struck is None:
        with guard.phase(kept_back):
            compiled = compile_program(start, benchmark, split.train, how, runtime.model("prompt"), history)
        _note_troubles(runtime, history)
    model = None if history.trained is None else keep(history.trained, runtime.folder.path / "model")
    with dspy.context(lm=history.trained or dspy.settings.lm):
        second = score(compiled, split.dev, "dev questions, after") if compiled is not None else None
    min_n = runtime.setup.min_n
    decided = promotion(first, second, guard.struck, min_n)
    promoted = compiled is not None and (force or decided.refused is None)
    before = score(start, split.test, "test questions, before")
    with dspy.context(lm=history.trained or dspy.settings.lm):
        after = score(compiled, split.test, "test questions, after") if promoted and compiled is not None else before
    for found in (before, after):
        _check(runtime, found, force)
    stopped = guard.struck or next((found.stopped for found in (before, after) if found.stopped), None)
    outcome = Compiled(
        before,
        after,
        (first, second),
        difference(before.counted, after.counted, min_n),
        promoted,
        Path(),
        tuple(history.candidates),
        dict(counts_of(runtime.meter.read())),
        stopped,
        runtime.folder.path,
        "",
        model,
        decided,
        _troubles(how.optimizer, history),
    )
    return outcome, compiled if promoted and compiled is not None else start


def _check(runtime: Runtime, found: Evaluation, force: bool) -> None:
    """Ends a compile whose score is broken, unless it is forced; `mempiler show --failed` reads what is kept here."""
    if found.broken and not force:
        for phase in ("start", "result"):
            keep_rows(runtime.folder, phase, found)
        told = found.summary()
        runtime.folder.update(result={"start": told, "result": told})
        refuse_broken(found, runtime.folder.path.name, "; no program was saved (--force saves one)")


def _history(runtime: Runtime, told: Progress | None) -> CandidateHistory:
    """A history whose proposals are sampled more often where an earlier go at the run had to give some up.

    What was sampled then is read from the run's answers, so a resumed run asks what it has not asked before.
    """
    return CandidateHistory(runtime.meter, ATTEMPTS * (1 + runtime.folder.read().get(TROUBLED, 0)), told)


def _troubles(optimizer: str, history: CandidateHistory) -> Troubles:
    proposals, rescued = history.proposals, history.ended is not None and history.best() is not None
    notes = tuple(history.notes)
    return Troubles(optimizer, history.ended, proposals.unreadable, proposals.given_up, rescued, notes)


def _note_troubles(runtime: Runtime, history: CandidateHistory) -> None:
    """Writes down that something is left for a resumed run to try again."""
    if history.ended is not None or history.proposals.given_up:
        runtime.folder.update(**{TROUBLED: 1 + runtime.folder.read().get(TROUBLED, 0)})


def _scored(
    runtime: Runtime,
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    phase: str,
    note: Note,
    told: str,
    sharing: Sharing | None,
) -> Evaluation:
    """Scores questions; `phase` is what their rows are filed under, `told` what people are told."""
    journal = runtime.folder.store.rows
    return evaluate(
        program,
        benchmark,
        examples,
        runtime.meter,
        runtime.setup.threads,
        note(told),
        journal,
        phase,
        runtime.setup.max_lost,
        sharing,
        lambda: note(f"{told}, sessions remembered"),
    )


def _sharing(runtime: Runtime, name: str | Any, config: Mapping[str, Any] | None, allow_code: bool) -> Sharing | None:
    """What gives the questions of a run to its workers; None where it has none."""
    if runtime.setup.workers == 1:
        return None
    if not isinstance(name, str):
        raise UserError(f"{name_in_tables(name)} is only in this process; leave --workers out, or name it module:thing")
    return Sharing(runtime, name, dict(config or {}), allow_code)


def _log(tracker: Tracker, outcome: Compiled) -> None:
    tracker.evaluation("start", outcome.start)
    tracker.evaluation("result", outcome.result)
    for name, found in zip(("dev_start", "dev_result"), outcome.dev, strict=True):
        if found is not None:
            tracker.child(name, found)
    tracker.metrics({"difference": outcome.difference.mean, "promoted": float(outcome.promoted)})
    tracker.candidates(outcome.candidates)
    tracker.json("outcome.json", outcome.summary())
    tracker.folder(outcome.program, "program")


def _page(
    outcome: Compiled, start: MemoryProgram, kept: MemoryProgram, benchmark: Benchmark, logged: Mapping[str, Any]
) -> Page:
    """The page of a compile: test questions before and after, or those of the start where it was kept."""
    before = {"before": outcome.start}
    phases = before | {"after": outcome.result} if outcome.promoted else {"start, kept": outcome.start}
    how = logged["optimizer.name"]
    facts = [("Run", f"compile {start.name} on {benchmark.name} with {how}, asking {outcome.start.lm}")]
    facts += [("Data", f"{benchmark.source.name}, test questions")]
    facts += known_facts(logged, kept.identities.of_program(kept))
    facts += [("Whole run", spent_line(outcome.usage))]
    notes = [*outcome.troubles.lines(outcome.run.name)]
    verdict = difference_line(outcome.difference, outcome.refused)
    changes = program_changes(states(start), states(kept))
    return run_page("compile", outcome.run.name, phases, facts, notes, verdict, changes, outcome.candidates)


def _data(benchmark: Benchmark, split: Split) -> dict[str, Any]:
    source = benchmark.source
    sizes = {"train": len(split.train), "dev": len(split.dev), "test": len(split.test)}
    where = {"name": benchmark.name, "file": source.name, "sha256": source.sha256, "sample": source.sample}
    where["metric"] = benchmark.scorer.title
    return {**where, "split_sha256": split.digest, "sizes": sizes}
