"""Compiling a program from start to end, as one run.

    split ── start saved ── start on dev ── optimizer on train ── result on dev: promote? ── test ── save, log

Test questions are scored once, after the decision by the dev questions (`promotion`). The optimizer gets what is left
of the budget after the scoring that must follow is set aside (`reserve`).
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.dataset import Split
from ..engines.meter import Meter
from ..engines.models import endpoint_errors, keep
from ..engines.spending import Spending
from ..errors import BrokenRunError, UserError
from ..optimizers.compile import Compilation, compile_program, plan_job
from ..optimizers.history import Candidate, CandidateHistory
from ..optimizers.proposals import ATTEMPTS
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from .artifact import check_writable, save
from .experiment import Note, Scoring
from .manifest import Manifest, is_intact
from .mlflow_log import show
from .pages.html import keep_page
from .pages.page import difference_line, program_changes, run_page, spent_line, states
from .promotion import Promotion, promotion, reserve
from .registry import pinned
from .results import Evaluation, counts_of, difference, refuse_broken, totals
from .runtime import Parent, Runtime
from .setup import Setup, data_of, parameters, replayed_setup
from .statistics import Difference
from .tracking import Tracker

RETRY_COUNT = "troubled"
"""How often the optimizer of a run ended before its time or gave proposals up, in the run's record."""


@dataclass(frozen=True)
class OptimizerProblems:
    """What an optimizer went through that the run outlived."""

    optimizer: str
    ended: str | None
    """What ended it before its time; None where nothing did, or a limit."""
    unreadable: int
    """Answers of the prompt LM that could not be read."""
    given_up: int
    """Proposals that could not be read after the last attempt."""

    rescued: bool
    """Whether something was compiled by then, which goes on in place of a result."""
    notes: tuple[str, ...] = ()
    """What else there is to know of the demos, a line each."""

    def lines(self, run: str) -> list[str]:
        """What tables say of it, one line each; `run` can be resumed."""
        found, again = [], f"--resume {run} tries again"
        if self.ended is not None:
            taken = "the best candidate so far" if self.rescued else "the start"
            found.append(f"{self.optimizer} ended before its time ({self.ended}): {taken} goes on; {again}")
        if self.unreadable:
            rest = f", {self.given_up} proposals were given up; {again}" if self.given_up else ""
            found.append(f"{self.unreadable} answers of the prompt LM could not be read{rest}")
        return [*found, *self.notes]


@dataclass(frozen=True)
class Compiled:
    """What a compile gave."""

    before: Evaluation
    after: Evaluation
    """The kept program on the test questions; equal to `before` without a gain."""
    dev: tuple[Evaluation, Evaluation | None]
    """Start and compiled program on the dev questions, which decided; None if the budget did not suffice."""
    difference: Difference
    promoted: bool
    program: Path
    candidates: tuple[Candidate, ...]
    usage: dict[str, Any]
    """Calls by role, tokens and cost of the whole run, optimizer and all scoring included."""
    stopped: str | None
    """The limit that was reached, if any."""
    run: Path
    run_id: str
    model: str | None
    """The name of the model whose weights were trained, as --lm takes it; None where none were."""
    decided: Promotion
    """What the dev questions say of the compiled program."""
    troubles: OptimizerProblems

    @property
    def refused(self) -> str | None:
        """Why the start was kept; None where the compiled program was."""
        return None if self.promoted else self.decided.refused

    def refuse_broken(self) -> None:
        """Ends a compile that tells nothing, by its run's name.

        Raises:
            BrokenRunError: A scoring is broken, or the optimizer failed and left the start as it was.
        """
        for found in (self.dev[0], self.before, self.after):
            refuse_broken(found, self.run.name)
        told = self.troubles
        if told.ended is not None and not told.rescued:
            failed = f"{told.optimizer} failed ({told.ended}) and nothing was compiled"
            raise BrokenRunError(f"broken run: {failed}; --resume {self.run.name} tries again")

    def gate(self) -> dict[str, Any]:
        """What the kept program scored on the dev questions: what programs are compared by when one is registered.

        Scores are in the order of the split, groups are numbered: no id of a user leaves the run.
        """
        found = self.dev[1] if self.promoted and self.dev[1] is not None else self.dev[0]
        groups = list(dict.fromkeys(row.group for row in found.counted))
        return {
            **{name: getattr(found, name) for name in ("score", "n", "stopped", "lm", "judge")},
            "split": "dev",
            "min_n": self.difference.min_n,
            "scores": [row.score for row in found.counted],
            "groups": [groups.index(row.group) for row in found.counted],
        }

    def summary(self) -> dict[str, Any]:
        """The object `compile --json` prints."""
        return {
            "before": self.before.summary(),
            "after": self.after.summary(),
            "difference": self.difference.to_dict(),
            "dev": {"before": self.dev[0].score, "after": self.dev[1].score if self.dev[1] else None},
            "dev_difference": None if self.decided.gain is None else self.decided.gain.to_dict(),
            "program": str(self.program),
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "optimizer": asdict(self.troubles),
            "run": str(self.run),
            **{name: getattr(self, name) for name in ("promoted", "refused", "usage", "stopped", "run_id", "model")},
        }


def run_compile(
    method: str,
    setup: Setup,
    how: Compilation | None = None,
    out: str | Path | None = None,
    force: bool = False,
    note: Note = lambda phase: None,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> Compiled:
    """Compiles a program against a benchmark's metric, scores it before and after, saves and logs it.

    Args:
        method: A method name, `module:Class`, or a saved program to start from: its folder, or `models:/NAME@ALIAS`.
        setup: Data, models and the method's settings; its seed and threads are those of the optimizer, too.
        how: Optimizer, stage and settings.
        out: Folder for the program; one in the run's folder if None. It holds a loadable program from the first
            moment on, unless the run is broken.
        force: Keeps the compiled program even without a significant gain on the dev questions, or in a broken run.
        note: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        BrokenRunError: Too many questions failed; there is no program then, unless it is forced.
    """
    setup = replayed_setup(setup)
    how = replace(how or Compilation(), seed=setup.seed, threads=setup.threads)
    if setup.dev == 0 and not force:
        raise UserError("without dev questions nothing can show a gain; raise --dev, or keep the result with --force")
    method, benchmark = pinned(method), setup.load(compiling=True)
    split = setup.split(benchmark)
    chosen = {"optimizer": how.optimizer, "stage": how.stage, "settings": dict(how.settings or {}), "force": force}
    runtime = Runtime.start(setup, "compile", method, chosen, meter, parent)
    with runtime.folder.recording():
        benchmark = runtime.judged(benchmark)
        start = runtime.program(method, benchmark)
        with runtime.context(start):
            plan_job(start, benchmark, split.train, how, runtime.model("prompt"))
        folder = Path(out) if out else runtime.folder.program
        lms = {"task": setup.lm, "prompt": setup.prompt_lm or setup.lm}
        made = {"benchmark": data_of(benchmark, split), "lms": lms, "lm_settings": dict(setup.lm_settings)}
        manifest = Manifest(method=start.name, task=benchmark.task, **made)
        check_writable(folder)
        older = is_intact(folder)
        if not older:
            save(start, folder, manifest)
        scoring = Scoring(runtime, benchmark, note, method)
        try:
            with closing(start.method):
                outcome = _Compile(scoring, start, split, how, force, folder, manifest).run()
        except BrokenRunError:
            if not older:
                shutil.rmtree(folder)
            raise
    runtime.folder.keep_rows("before", outcome.before.rows)
    runtime.folder.keep_rows("after", outcome.after.rows)
    ended = outcome.stopped or outcome.troubles.ended
    runtime.folder.update(status="stopped" if ended else "finished", result=outcome.summary())
    return outcome


@dataclass(frozen=True)
class _Compile:
    scoring: Scoring
    start: MemoryProgram
    split: Split
    how: Compilation
    force: bool
    folder: Path
    manifest: Manifest

    def run(self) -> Compiled:
        runtime, benchmark, how = self.scoring.runtime, self.scoring.benchmark, self.how
        chosen = {"name": how.optimizer, "stage": how.stage, "seed": how.seed, "settings": dict(how.settings or {})}
        logged = parameters(self.start, runtime.setup, benchmark)
        logged |= {f"optimizer.{key}": value for key, value in chosen.items()}
        with runtime.tracked("compile", f"{self.start.name}-{benchmark.name}-{how.optimizer}", logged) as tracker:
            with runtime.context(self.start), endpoint_errors():
                outcome, kept = self._outcome(tracker.run_id)
            scores = {name: outcome.summary()[name] for name in ("before", "after", "difference", "dev", "promoted")}
            made = {"scores": {**scores, "gate": outcome.gate()}, "optimizer": chosen if outcome.promoted else {}}
            # A program whose weights were trained is asked with them from here on.
            if outcome.promoted and outcome.model:
                made["lms"] = {**self.manifest.lms, "task": outcome.model}
            save(kept, self.folder, self.manifest.model_copy(update=made))
            _log(tracker, outcome)
            self._keep_page(tracker, outcome, kept)
            with runtime.context(self.start):
                # The alias `best` moves only to a program that was kept for its gain.
                best = ((kept, "best"),) if outcome.promoted else ()
                shown = ((self.start, "start"), *best)
                show(tracker, benchmark, outcome.after, shown, "after", runtime.setup.traces)
        return outcome

    def _outcome(self, run_id: str) -> tuple[Compiled, MemoryProgram]:
        """Everything between setting up and saving: what came of it, and the program to keep."""
        start, how, split, score = self.start, self.how, self.split, self.scoring
        runtime, guard = score.runtime, score.runtime.guard
        first = score(start, split.dev, "dev", "dev questions, before")
        self._check(first)
        kept_back = reserve(first, _first_spent(runtime), split, rewrites=how.stage != "read")
        # Proposals are sampled more often where an earlier go had to give some up: what was sampled then is read from
        # the run's answers, so a resumed run asks what it has not asked before.
        attempts, told = ATTEMPTS * (1 + _retry_count(runtime)), score.note(f"compiling with {how.optimizer}")
        history, compiled = CandidateHistory(runtime.meter, attempts, told), None
        if guard.limit_hit is None:
            with guard.phase(kept_back):
                model = runtime.model("prompt")
                compiled = compile_program(start, score.benchmark, split.train, how, model, history)
            if history.ended is not None or history.proposals.given_up:
                runtime.folder.update(**{RETRY_COUNT: 1 + _retry_count(runtime)})
        changed = compiled is not None and program_digest(compiled) != program_digest(start)
        trained = None if history.trained is None else keep(history.trained, runtime.folder.path / "model")
        with dspy.context(lm=history.trained or dspy.settings.lm):
            second = None if compiled is None else score(compiled, split.dev, "dev", "dev questions, after")
        decided = promotion(first, second, guard.limit_hit, runtime.setup.min_n)
        kept = compiled if compiled is not None and (self.force or decided.refused is None) else None
        before = after = score(start, split.test, "test", "test questions, before")
        if kept is not None:
            with dspy.context(lm=history.trained or dspy.settings.lm):
                after = score(kept, split.test, "test", "test questions, after")
        for found in (before, after):
            self._check(found)
        outcome = Compiled(
            before=before.model_copy(update={"run_id": run_id}),
            after=after.model_copy(update={"run_id": run_id}),
            dev=(first, second),
            difference=difference(before.counted, after.counted, runtime.setup.min_n),
            promoted=kept is not None,
            program=self.folder,
            candidates=tuple(history.candidates),
            usage=dict(counts_of(runtime.meter.read())),
            stopped=guard.limit_hit or before.stopped or after.stopped,
            run=runtime.folder.path,
            run_id=run_id,
            model=trained,
            decided=decided,
            troubles=OptimizerProblems(
                how.optimizer,
                history.ended,
                history.proposals.unreadable,
                history.proposals.given_up,
                rescued=history.ended is not None and (trained is not None or changed),
                notes=tuple(history.notes),
            ),
        )
        return outcome, kept or start

    def _keep_page(self, tracker: Tracker, outcome: Compiled, kept: MemoryProgram) -> None:
        how, shown = self.how, outcome.program
        if shown.is_absolute() and shown.is_relative_to(outcome.run):
            shown = shown.relative_to(outcome.run)
        self.scoring.keep_page(
            tracker,
            {"with": how.optimizer, "stage": how.stage, "optimizer_set": dict(how.settings or {})},
            kept,
            {"before": outcome.before} | ({"after": outcome.after} if outcome.promoted else {}),
            "test questions",
            [("Program", str(shown)), ("LM calls, whole run", spent_line(outcome.usage))],
            notes=outcome.troubles.lines(outcome.run.name),
            verdict=difference_line(outcome.difference, outcome.refused),
            changes=program_changes(states(self.start), states(kept)),
            candidates=outcome.candidates,
            min_n=outcome.difference.min_n,
        )

    def _check(self, found: Evaluation) -> None:
        """Ends a compile whose score is broken, unless it is forced; `show --failed` reads what is kept here."""
        folder = self.scoring.runtime.folder
        if found.broken and not self.force:
            keep_page(folder.path, run_page("compile", folder.path.name, {"before": found}))
            refuse_broken(found, folder.path.name, "; no program was saved (--force saves one)")


def _first_spent(runtime: Runtime) -> Spending:
    """What the first scoring took; a resumed run, which finds it in its journal, remembers it from the first time."""
    before = Spending(**runtime.folder.read().get("first_spending", {}))
    now = runtime.guard.spent()
    if now.calls > before.calls:
        runtime.folder.update(first_spending=asdict(now))
        return now
    return before


def _retry_count(runtime: Runtime) -> int:
    return runtime.folder.read().get(RETRY_COUNT, 0)


def _log(tracker: Tracker, outcome: Compiled) -> None:
    found = {"before": outcome.before, "after": outcome.after}
    for name, each in {**found, "dev_before": outcome.dev[0], "dev_after": outcome.dev[1]}.items():
        if each is not None:
            tracker.evaluation(name, each)
    tracker.difference(outcome.difference)
    tracker.metrics({"promoted": float(outcome.promoted), **totals(outcome.usage)})
    candidates = [asdict(candidate) for candidate in outcome.candidates]
    tracker.steps("candidate", candidates, "number")
    if candidates:
        tracker.data("candidates.jsonl", candidates)
    tracker.data("outcome.json", outcome.summary())
    tracker.files(outcome.program, "program")
