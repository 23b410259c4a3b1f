"""Compiling a program from start to end, as one run.

    split ── start saved ── start on dev ── optimizer on train ── result on dev: promote? ── test ── save, log

Start and result are scored on the test questions once, after the decision by the dev questions (`promotion`): a result
that was refused is scored, too, but not promoted for it. The optimizer gets what is left of the budget after the
scoring that must follow is set aside (`promotion.estimate_remaining_usage`).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dspy

from ..data.dataset import Split
from ..engines.lm import save_model
from ..engines.meter import Meter
from ..engines.model_checks import endpoint_errors
from ..engines.usage import Usage
from ..errors import BrokenRunError, UserError
from ..optimizers.compile import CompileConfig, compile_program, plan_job
from ..optimizers.history import Candidate, CandidateHistory
from ..optimizers.proposals import ATTEMPTS, UnreadableAnswer
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from .artifact import save
from .destination import Destination
from .evaluate import Evaluator, ProgressFactory, no_progress
from .external import name_in_tables
from .folder import RunFolder
from .inputs import RunInputs
from .manifest import Manifest, read_manifest
from .metered_usage import metered_usage, usage_totals
from .pages.facts import Fact, difference_line, usage_line
from .pages.html import HTML, save_page
from .pages.page import open_page, predictor_states, prompt_changes, run_page
from .pages.text import page_table
from .program_address import pin_address
from .promotion import Promotion, decide_promotion, estimate_remaining_usage
from .repeating import with_replayed_models
from .results import Evaluation, difference, raise_if_unanswered, refuse_broken
from .run import Parent, Run
from .run_description import describe_data, parameters
from .statistics import Difference, Verdict
from .tables import ResultTable
from .tracking.details import log_details
from .tracking.prompts import ProgramPrompts
from .tracking.tracker import Tracker

if TYPE_CHECKING:
    import pandas as pd

QuestionPart = Literal["test", "dev"]

RETRY_COUNT = "troubled"
"""How often the optimizer of a run ended before its time or gave proposals up, in the run's record."""
PROPOSAL_ATTEMPTS = "proposal_attempts"
"""How often a proposal that could not be read was sampled when the run was made or resumed last, in its record."""


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
    examples: tuple[UnreadableAnswer, ...]
    """The first of the unreadable answers."""

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
            look = f"; `mempiler show {run} --failed` shows some"
            found.append(f"{self.unreadable} answers of the prompt LM could not be read{rest}{look}")
        return [*found, *self.notes]


@dataclass(frozen=True)
class CompileResult:
    """What a compile gave.

    Example:
        result = mempiler.compile("turn-rag", benchmark="locomo", optimizer="labeled")
        print(result)
        result.save("my-program")
    """

    program: MemoryProgram
    """The program that was kept: the compiled one, or the start."""
    before: Evaluation
    """The start on the test questions; on the dev questions where there are no others."""
    after: Evaluation
    """The kept program on the test questions; equal to `before` without a gain."""
    dev: tuple[Evaluation, Evaluation | None]
    """Start and compiled program on the dev questions, which decided; None if the budget did not suffice."""
    difference: Difference
    """The paired difference, after minus before."""
    scored_on: QuestionPart
    """The questions of `before` and `after`: "dev" only where there are no test questions."""
    promoted: bool
    """Whether the compiled program was kept."""
    folder: Path
    """Where the program is saved."""
    candidates: tuple[Candidate, ...]
    usage: dict[str, Any]
    """Calls by role, tokens and cost of the whole run, optimizer and all scoring included."""
    stopped: str | None
    """The limit that was reached, if any."""
    run: Path
    """The folder of the run, with its page `report.html`."""
    run_id: str
    """The MLflow run."""
    model: str | None
    """The name of the model whose weights were trained, as --lm takes it; None where none were."""
    promotion: Promotion
    """What the dev questions say of the compiled program."""
    troubles: OptimizerProblems
    rejected_evaluation: Evaluation | None = None
    """The compiled program on the test questions, where it was not kept; None where it was, or was not scored."""
    refused_difference: Difference | None = None
    """That program minus the start on the test questions."""
    untouched_out: Path | None = None
    """The folder of `--out`, where that holds another program, which the start did not replace."""

    @property
    def rejection_reason(self) -> str | None:
        """Why the start was kept; None where the compiled program was."""
        return None if self.promoted else self.promotion.rejection_reason

    @property
    def verdict(self) -> Verdict:
        """What can be said of the program that was kept against the start: "better", "not told apart", and so on."""
        return self.difference.verdict

    def save(self, folder: str | Path) -> None:
        """Save the program that was kept to another folder, with what the manifest says of it.

        Raises:
            UserError: The folder holds something that is no saved program, or cannot be written.
        """
        save(self.program, folder, read_manifest(self.folder))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question of `after`."""
        return self.after.to_pandas()

    def table(self) -> ResultTable:
        """Return the scores before and after by category, the verdict, the cost, and where everything is."""
        page = open_page(RunFolder(self.run))
        result = page_table(page, self.run / HTML)
        notes = [*result.notes, f"LM calls, whole run: {usage_line(self.usage)}", f"program: {self.folder}"]
        if self.stopped:
            notes.append(f"stopped by a limit: {self.stopped}; resume={self.run.name!r} goes on")
        return replace(result, notes=notes)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def statement(self) -> str:
        """Say which program was kept and why, and how to keep the other one."""
        tested = difference_line(self.difference, _question_words(self.scored_on))
        if self.promoted and self.promotion.rejection_reason is not None:
            return f"Kept by --force: {self.promotion.rejection_reason}; {tested}"
        if self.promoted and self.promotion.gain is not None:
            return f"dev questions, which decide: {self.promotion.gain.statement}; {tested}"

        return " ".join([f"{self.promotion.rejection_reason}. Kept the original program.", *self._about_refused()])

    def _about_refused(self) -> list[str]:
        """Return sentences about the compiled program that was not kept."""
        again = f"repeat the command with --resume {self.run.name} --force (in Python: resume=, force=True)"
        candidate, difference = self.rejected_evaluation, self.refused_difference
        if candidate is None or candidate.score is None or difference is None:
            compiled_on_dev = self.dev[1]
            return [] if compiled_on_dev is None else [f"To keep the compiled one all the same, {again}."]

        numbers = f"{difference}; scope: {difference.scope}"
        if candidate.broken:
            numbers += f"; {candidate.breakage}"
        return [
            f"Not promoted: the compiled program scored {candidate.score:.3f} on the test questions, "
            f"the original {self.before.score:.3f} ({numbers}).",
            "Test questions must not decide.",
            f"To keep the compiled one all the same, {again}; nothing is asked anew.",
        ]

    def refuse_broken(self) -> None:
        """Ends a compile that tells nothing, by its run's name.

        Raises:
            BrokenRunError: A scoring is broken, nothing was scored, or the optimizer failed and changed nothing.
        """
        for found in (self.dev[0], self.before, self.after):
            refuse_broken(found, self.run.name)
        raise_if_unanswered((self.dev[0], self.before), self.stopped, self.run.name)
        told = self.troubles
        if told.ended is not None and not told.rescued:
            failed = f"{told.optimizer} failed ({told.ended}) and nothing was compiled"
            raise BrokenRunError(f"broken run: {failed}; --resume {self.run.name} tries again")

    def gate(self) -> dict[str, Any]:
        """What the kept program scored on the dev questions: what programs are compared by when one is registered.

        Scores are in the order of the split, groups are numbered: no id of a user leaves the run.
        """
        found = self.dev[1] if self.promoted and self.dev[1] is not None else self.dev[0]
        groups = list(dict.fromkeys(row.group for row in found.headline_rows))
        return {
            **{name: getattr(found, name) for name in ("score", "n", "stopped", "lm", "judge")},
            "split": "dev",
            "min_n": self.difference.min_n,
            "scores": [row.score for row in found.headline_rows],
            "groups": [groups.index(row.group) for row in found.headline_rows],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler compile --json` prints."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "scored_on": self.scored_on,
            "difference": self.difference.to_dict(),
            "dev": {"before": self.dev[0].score, "after": self.dev[1].score if self.dev[1] else None},
            "dev_difference": None if self.promotion.gain is None else self.promotion.gain.to_dict(),
            "refused_candidate": self._refused_summary(),
            "program": str(self.folder),
            "untouched_out": None if self.untouched_out is None else str(self.untouched_out),
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "optimizer": asdict(self.troubles),
            "run": str(self.run),
            **{
                name: getattr(self, name)
                for name in ("promoted", "rejection_reason", "usage", "stopped", "run_id", "model")
            },
        }

    def _refused_summary(self) -> dict[str, Any] | None:
        """Plain JSON of the program that was not kept; None if there is none."""
        if self.rejected_evaluation is None or self.refused_difference is None:
            return None
        return {"test": self.rejected_evaluation.to_dict(), "difference": self.refused_difference.to_dict()}


def run_compile(
    program: Any,
    inputs: RunInputs,
    how: CompileConfig | None = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> CompileResult:
    """Compiles a program against a benchmark's metric, scores it before and after, saves and logs it.

    Args:
        program: As `api.compile` takes it.
        inputs: Data, models and the method's settings; their seed and threads are those of the optimizer, too.
        how: Optimizer, stage and settings.
        out: Folder for the program; one in the run's folder if None. It holds a loadable program from the first
            moment on, unless the run is broken. A program that is there is replaced by a compiled one alone.
        force: Keeps the compiled program even without a significant gain on the dev questions, or in a broken run. A
            run that is resumed may be forced where it was not before, and asks nothing anew.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        BrokenRunError: Too many questions failed; there is no program then, unless it is forced.
    """
    inputs = with_replayed_models(inputs)
    config = inputs.config
    how = replace(how or CompileConfig(), seed=config.data.seed, threads=config.execution.threads)
    if config.data.dev == 0 and not force:
        raise UserError("without dev questions nothing can show a gain; raise --dev, or keep the result with --force")
    if isinstance(program, str):
        program = pin_address(program)
    benchmark = inputs.benchmark_for_compiling()
    split = inputs.split()
    # Not `force`, so that a program that was refused can be kept by resuming its run.
    chosen = {"optimizer": how.optimizer, "stage": how.stage, "settings": how.recorded_settings()}
    run = Run.start(inputs, "compile", name_in_tables(program), chosen, meter, parent)
    with run.folder.recording():
        benchmark = run.with_judges(benchmark)
        start = run.program(program, benchmark)
        with run.context(start):
            plan_job(start, benchmark, split.train, how, run.model("prompt"))
        destination = Destination(run.folder, Path(out) if out else None)
        lms = {"task": config.models.task.name, "prompt": config.models.prompt.name or config.models.task.name}
        made = {"benchmark": describe_data(benchmark, split), "lms": lms, "lm_settings": dict(config.models.task.settings)}
        manifest = Manifest(method=start.name, task=benchmark.task, **made)
        destination.save_start(start, manifest)
        scoring = Evaluator(run, benchmark, progress, program)
        try:
            with closing(start.method):
                outcome = _Compile(scoring, start, split, how, force, destination, manifest).run()
        except BrokenRunError:
            destination.remove_start()
            raise
    run.folder.write_rows("before", outcome.before.rows)
    run.folder.write_rows("after", outcome.after.rows)
    if outcome.rejected_evaluation is not None:
        run.folder.write_rows("refused_candidate", outcome.rejected_evaluation.rows)
    ended = outcome.stopped or outcome.troubles.ended
    run.folder.update(status="stopped" if ended else "finished", result=outcome.to_dict())
    return outcome


@dataclass(frozen=True)
class _Attempt:
    """What the optimizer gave."""

    program: MemoryProgram | None
    """The compiled program; None where a limit left nothing for the optimizer."""
    history: CandidateHistory
    prompts_changed: bool
    model: str | None
    """The name of the model whose weights were trained; None where none were."""

    @property
    def is_changed(self) -> bool:
        """Whether the compiled program can answer otherwise than the start."""
        return self.prompts_changed or self.model is not None

    def problems(self, optimizer: str) -> OptimizerProblems:
        """Return what the optimizer went through."""
        proposals = self.history.proposals
        return OptimizerProblems(
            optimizer=optimizer,
            ended=self.history.failure,
            unreadable=proposals.unreadable,
            given_up=proposals.given_up,
            examples=tuple(proposals.examples),
            rescued=self.history.failure is not None and self.is_changed,
            notes=tuple(self.history.notes),
        )


@dataclass(frozen=True)
class _Compile:
    scoring: Evaluator
    start: MemoryProgram
    split: Split
    how: CompileConfig
    force: bool
    destination: Destination
    manifest: Manifest

    def run(self) -> CompileResult:
        run, benchmark, how = self.scoring.run, self.scoring.benchmark, self.how
        chosen = {"name": how.optimizer, "stage": how.stage, "seed": how.seed, "settings": how.recorded_settings()}
        logged = parameters(self.start, run.config, benchmark)
        logged |= {f"optimizer.{key}": value for key, value in chosen.items()}
        with run.tracked("compile", f"{self.start.name}-{benchmark.name}-{how.optimizer}", logged) as tracker:
            with run.context(self.start), endpoint_errors():
                outcome = self._outcome(tracker.run_id)
            kept = outcome.program
            scores = {name: outcome.to_dict()[name] for name in ("before", "after", "difference", "dev", "promoted")}
            made = {"scores": {**scores, "gate": outcome.gate()}, "optimizer": chosen if outcome.promoted else {}}
            # A program whose weights were trained is asked with them from here on.
            if outcome.promoted and outcome.model:
                made["lms"] = {**self.manifest.lms, "task": outcome.model}
            outcome = self._saved(outcome, kept, self.manifest.model_copy(update=made))
            _log(tracker, outcome)
            self._keep_page(tracker, outcome, kept)
            with run.context(self.start):
                # The alias `best` moves only to a program that was kept for its gain.
                programs = [ProgramPrompts(self.start, "start")]
                if outcome.promoted:
                    programs.append(ProgramPrompts(kept, "best"))
                traces = run.config.execution.traces
                log_details(tracker, benchmark, outcome.after, programs, "after", traces)
        return outcome

    def _saved(self, outcome: CompileResult, kept: MemoryProgram, manifest: Manifest) -> CompileResult:
        """Save the program that was kept, and return the outcome with its folder."""
        if outcome.promoted:
            return replace(outcome, folder=self.destination.save_compiled(kept, manifest))
        folder = self.destination.save_original(kept, manifest)
        untouched = None if folder == self.destination.folder else self.destination.folder
        return replace(outcome, folder=folder, untouched_out=untouched)

    def _outcome(self, run_id: str) -> CompileResult:
        """Score, optimize, decide, and score again."""
        split, score, run = self.split, self.scoring, self.scoring.run
        min_n = run.config.execution.min_n
        start_on_dev = score(self.start, split.dev, "dev", "dev questions, before")
        self._check(start_on_dev)

        attempt = self._optimize(start_on_dev)
        compiled_on_dev = self._score_compiled(attempt, "dev", "dev questions, after")
        decided = decide_promotion(start_on_dev, compiled_on_dev, run.guard.limit_hit, min_n)
        promoted = attempt.program is not None and (self.force or decided.rejection_reason is None)

        before = start_on_dev
        if split.test:
            before = score(self.start, split.test, "test", "test questions, before")
            self._check(before)
        after = before
        candidate = None
        compiled_on_test = None
        if not split.test:
            compiled_on_test = compiled_on_dev if promoted else None
        elif promoted or (decided.gain is not None and attempt.is_changed):
            phase = "after" if promoted else "not promoted"
            compiled_on_test = self._score_compiled(attempt, "test", f"test questions, {phase}")
        if promoted and compiled_on_test is not None:
            self._check(compiled_on_test)
            after = compiled_on_test
        else:
            candidate = compiled_on_test

        kept = attempt.program if promoted and attempt.program is not None else self.start
        return CompileResult(
            before=before.model_copy(update={"run_id": run_id}),
            after=after.model_copy(update={"run_id": run_id}),
            dev=(start_on_dev, compiled_on_dev),
            difference=difference(before.headline_rows, after.headline_rows, min_n),
            scored_on="test" if split.test else "dev",
            promoted=promoted,
            program=kept,
            folder=self.destination.folder,
            candidates=tuple(attempt.history.candidates),
            usage=dict(metered_usage(run.meter.read())),
            stopped=run.guard.limit_hit or before.stopped or after.stopped,
            run=run.folder.path,
            run_id=run_id,
            model=attempt.model,
            promotion=decided,
            troubles=attempt.problems(self.how.optimizer),
            rejected_evaluation=candidate and candidate.model_copy(update={"run_id": run_id}),
            refused_difference=candidate and difference(before.headline_rows, candidate.headline_rows, min_n),
        )

    def _optimize(self, start_on_dev: Evaluation) -> _Attempt:
        """Let the optimizer work on the train questions, with what the budget leaves for it."""
        score, how, run = self.scoring, self.how, self.scoring.run
        reserved = estimate_remaining_usage(
            start_on_dev, _first_spent(run), self.split, writes_memories=how.stage != "read"
        )
        keeps_refused = self.force and _was_refused(run)
        attempts = _proposal_attempts(run, same_as_before=keeps_refused)
        run.folder.update(**{PROPOSAL_ATTEMPTS: attempts})

        history = CandidateHistory(run.meter, attempts, score.progress(f"compiling with {how.optimizer}"))
        program = None
        if run.guard.limit_hit is None:
            with run.guard.phase(reserved):
                model = run.model("prompt")
                program = compile_program(self.start, score.benchmark, self.split.train, how, model, history)
            has_problems = history.failure is not None or history.proposals.given_up
            if has_problems and not keeps_refused:
                run.folder.update(**{RETRY_COUNT: 1 + _retry_count(run)})

        prompts_changed = program is not None and program_digest(program) != program_digest(self.start)
        model_name = None
        if history.trained_lm is not None:
            model_name = save_model(history.trained_lm, run.folder.path / "model")
        return _Attempt(program, history, prompts_changed, model_name)

    def _score_compiled(self, attempt: _Attempt, part: QuestionPart, told: str) -> Evaluation | None:
        """Score the compiled program on a part of the split; return None if nothing was compiled."""
        if attempt.program is None:
            return None
        examples = self.split.dev if part == "dev" else self.split.test
        with dspy.context(lm=attempt.history.trained_lm or dspy.settings.lm):
            return self.scoring(attempt.program, examples, part, told)

    def _keep_page(self, tracker: Tracker, outcome: CompileResult, kept: MemoryProgram) -> None:
        how, shown = self.how, outcome.folder
        if shown.is_absolute() and shown.is_relative_to(outcome.run):
            shown = shown.relative_to(outcome.run)
        self.scoring.keep_page(
            tracker,
            {"optimizer": how.optimizer, "stage": how.stage, "optimizer_set": how.recorded_settings()},
            kept,
            {"before": outcome.before} | ({"after": outcome.after} if outcome.promoted else {}),
            _question_words(outcome.scored_on),
            [Fact("Program", str(shown)), Fact("LM calls, whole run", usage_line(outcome.usage))],
            notes=[*outcome.troubles.lines(outcome.run.name), *_dev_warnings(outcome)],
            verdict=outcome.statement(),
            changes=prompt_changes(predictor_states(self.start), predictor_states(kept)),
            candidates=outcome.candidates,
            unreadable=outcome.troubles.examples,
            min_n=outcome.difference.min_n,
        )

    def _check(self, found: Evaluation) -> None:
        """Ends a compile whose score is broken, unless it is forced; `show --failed` reads what is kept here."""
        folder = self.scoring.run.folder
        if found.broken and not self.force:
            save_page(folder.path, run_page("compile", folder.path.name, {"before": found}))
            refuse_broken(found, folder.path.name, "; no program was saved (--force saves one)")


def _first_spent(run: Run) -> Usage:
    """What the first scoring took; a resumed run, which finds it in its journal, remembers it from the first time."""
    before = Usage(**run.folder.read().get("first_spending", {}))
    now = run.guard.spent()
    if now.calls > before.calls:
        run.folder.update(first_spending=asdict(now))
        return now
    return before


def _retry_count(run: Run) -> int:
    return run.folder.read().get(RETRY_COUNT, 0)


def _was_refused(run: Run) -> bool:
    """Whether the run that is resumed came to its end without keeping its compiled program."""
    result = run.folder.read().get("result")
    return isinstance(result, dict) and result.get("promoted") is False


def _proposal_attempts(run: Run, same_as_before: bool) -> int:
    """Return how often a proposal that cannot be read is sampled.

    Args:
        run: The run.
        same_as_before: Whether the compiled program of the last go is wanted, and nothing new is to be asked.
    """
    record = run.folder.read()
    if same_as_before and PROPOSAL_ATTEMPTS in record:
        return record[PROPOSAL_ATTEMPTS]
    # More often where an earlier go had to give some up. What was sampled then is read from the run's answers, so a
    # resumed run asks what it has not asked before.
    return ATTEMPTS * (1 + _retry_count(run))


def _question_words(part: QuestionPart) -> str:
    """Return what pages call the questions of a result's scores."""
    return "test questions" if part == "test" else "dev questions, which also decided"


def _dev_warnings(outcome: CompileResult) -> list[str]:
    """Return what there is to warn of in the difference on the dev questions, which decided."""
    gain = outcome.promotion.gain
    return [f"dev questions: {gain.warning}"] if gain is not None and gain.warning else []


def _log(tracker: Tracker, outcome: CompileResult) -> None:
    evaluations = {
        "before": outcome.before,
        "after": outcome.after,
        "dev_before": outcome.dev[0],
        "dev_after": outcome.dev[1],
        "refused_candidate": outcome.rejected_evaluation,
    }
    for name, evaluation in evaluations.items():
        if evaluation is not None:
            tracker.log_evaluation(name, evaluation)
    tracker.log_difference(outcome.difference)
    tracker.log_metrics({"promoted": float(outcome.promoted), **usage_totals(outcome.usage)})
    candidates = [asdict(candidate) for candidate in outcome.candidates]
    tracker.log_steps("candidate", candidates, "number")
    if candidates:
        tracker.log_json_lines("candidates.jsonl", candidates)
    tracker.log_json("outcome.json", outcome.to_dict())
    tracker.log_folder(outcome.folder, "program")
