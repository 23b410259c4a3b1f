"""Compile a program from start to end, as one run.

    1. save the start                  so that there is a program to load, however the run ends
    2. score the start on dev
    3. let the optimizer work          on the train questions: it returns the compiled program
    4. score the compiled one on dev
    5. decide the promotion            by the dev questions alone (`promotion.py`)
    6. score both on test              a rejected program too, but it is not promoted for it
    7. save the kept program, log everything

`_CompileJob.compile` is steps 2 to 6. Steps 4 and 6 must be paid for, too. So the optimizer gets
what is left of the budget after their part is reserved (`promotion.estimate_remaining_usage`).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.dataset import Split
from ..engines.lm import save_model
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.model_checks import endpoint_errors
from ..engines.usage import Usage
from ..errors import BrokenRunError, UserError
from ..optimizers.compile import CompileConfig, compile_program, plan_job
from ..optimizers.history import CandidateHistory
from ..optimizers.proposals import ATTEMPTS
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from .compile_result import CompileResult, OptimizerProblems, QuestionPart, describe_questions
from .destination import Destination
from .evaluate import Evaluator, ProgressFactory, no_progress
from .external import name_in_tables
from .folder import RunFolder
from .inputs import RunInputs
from .manifest import Manifest
from .metered_usage import metered_usage, usage_totals
from .pages.facts import Fact, usage_line
from .pages.html import save_page
from .pages.page import predictor_states, prompt_changes, run_page
from .program_address import pin_address
from .promotion import Promotion, decide_promotion, estimate_remaining_usage
from .repeating import python_objects, with_replayed_models
from .results import Evaluation, difference, refuse_broken
from .run import Parent, Run
from .run_description import describe_data, parameters
from .tracking.details import log_details
from .tracking.prompts import ProgramPrompts
from .tracking.tracker import Tracker

# Names in `run.json`.
_RETRY_COUNT = "retry_count"
"""How often the optimizer of the run failed, or abandoned proposals."""
_PROPOSAL_ATTEMPTS = "proposal_attempts"
"""How often one request for a proposal was made at most, when the run was last started."""
_FIRST_SCORING_USAGE = "first_scoring_usage"
"""What the first scoring of the run took."""


@dataclass(frozen=True)
class KeepOptions:
    """Where the program of a compile is saved, and whether a compiled one must show a gain."""

    out: str | Path | None = None
    """The folder for the program; one in the run's folder if None.

    It holds a program from the first moment on, unless the run is broken. Only a compiled program
    replaces another one that is there.
    """
    force: bool = False
    """Whether the compiled program is kept without a significant gain, or in a broken run.

    A run that is resumed may be forced where it was not before, and asks nothing anew.
    """


def run_compile(
    program: object,
    inputs: RunInputs,
    compile_config: CompileConfig | None = None,
    keep: KeepOptions | None = None,
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> CompileResult:
    """Compile a program for a benchmark's metric, score it before and after, save and log it.

    Args:
        program: As `api.compile` takes it.
        inputs: Data, models and the method's settings. The optimizer takes their seed and threads.
        compile_config: Optimizer, stage and settings.
        keep: Where the program is saved, and whether a compiled one must show a gain.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.

    Raises:
        BrokenRunError: Too many questions failed. No program is saved then, unless it is forced.
    """
    keep = keep or KeepOptions()
    inputs = with_replayed_models(inputs)
    run_config = inputs.config
    compile_config = replace(
        compile_config or CompileConfig(),
        seed=run_config.data.seed,
        threads=run_config.execution.threads,
    )
    if run_config.data.dev == 0 and not keep.force:
        raise UserError(
            "without dev questions nothing can show a gain;"
            " raise --dev, or keep the result with --force"
        )

    # A wrong name or setting of the optimizer is refused before the run has a folder.
    compile_config.make_optimizer()

    if isinstance(program, str):
        program = pin_address(program)
    benchmark = inputs.benchmark_for_compiling()
    split = inputs.split()
    # `force` is no part of it, so that a rejected program can be kept by resuming its run.
    decisive_settings = {
        "optimizer": compile_config.optimizer,
        "stage": compile_config.stage,
        "settings": compile_config.recorded_settings(),
    }
    run = Run.start(inputs, "compile", name_in_tables(program), decisive_settings, meter, parent)

    objects = python_objects(inputs, program)
    if compile_config.has_python_objects:
        objects.append("optimizer")

    with run.folder.recording():
        run.record_python_objects(objects)
        benchmark = run.with_judges(benchmark)
        start = run.program(program, benchmark)
        with run.context(start):
            # Refuse what cannot work before anything is paid for.
            plan_job(start, benchmark, split.train, compile_config, run.model("prompt"))

        destination = Destination(run.folder, Path(keep.out) if keep.out else None)
        manifest = _start_manifest(run, start, benchmark, split)
        destination.save_start(start, manifest)
        job = _CompileJob(
            evaluator=Evaluator(run, benchmark, progress, program),
            start=start,
            split=split,
            config=compile_config,
            force=keep.force,
            destination=destination,
            manifest=manifest,
        )
        try:
            with closing(start.method):
                result = job.run_tracked()
        except BrokenRunError:
            destination.remove_start()
            raise

    _write_result(run.folder, result)
    return result


def _start_manifest(run: Run, start: MemoryProgram, benchmark: Benchmark, split: Split) -> Manifest:
    """Return the manifest of the start, which was compiled by nothing."""
    models = run.config.models
    return Manifest(
        method=start.name,
        task=benchmark.task,
        benchmark=describe_data(benchmark, split),
        lms={"task": models.task.name, "prompt": models.prompt.name or models.task.name},
        lm_settings=dict(models.task.settings),
    )


def _write_result(folder: RunFolder, result: CompileResult) -> None:
    """Write the scored questions and the result into the folder of the run."""
    folder.write_rows("before", result.before.rows)
    folder.write_rows("after", result.after.rows)
    if result.rejected_evaluation is not None:
        folder.write_rows("refused_candidate", result.rejected_evaluation.rows)

    ended_early = result.stopped or result.optimizer_problems.failure
    status = "stopped" if ended_early else "finished"
    folder.update(status=status, result=result.to_dict())


@dataclass(frozen=True)
class _CompiledProgram:
    """The program that the optimizer returned."""

    program: MemoryProgram
    trained_lm: MeteredLM | None
    """The LM with trained weights that the program needs; None if none were trained."""
    model_name: str | None
    """The name under which that LM is saved."""
    is_changed: bool
    """Whether the program can answer otherwise than the start."""


@dataclass(frozen=True)
class _Optimization:
    """What the optimizer achieved."""

    compiled: _CompiledProgram | None
    """None if a limit was reached before the optimizer began."""
    history: CandidateHistory
    """The candidates that it scored, and what went wrong."""

    def problems(self, optimizer: str) -> OptimizerProblems:
        """Return what went wrong in the optimizer of this name."""
        failure = self.history.failure
        proposals = self.history.proposals
        is_changed = self.compiled is not None and self.compiled.is_changed
        return OptimizerProblems(
            optimizer=optimizer,
            failure=failure,
            unreadable_answers=proposals.unreadable,
            abandoned_proposals=proposals.given_up,
            examples=tuple(proposals.examples),
            has_rescued_program=failure is not None and is_changed,
            notes=tuple(self.history.notes),
        )


@dataclass(frozen=True)
class _Decision:
    """Which program is kept, by the dev questions."""

    promotion: Promotion
    promoted: _CompiledProgram | None
    """The compiled program, if it is kept; None if the start is."""


@dataclass(frozen=True)
class _FinalScores:
    """The scores that the result reports."""

    before: Evaluation
    """The start."""
    after: Evaluation
    """The kept program; `before` if that is the start."""
    rejected: Evaluation | None = None
    """The compiled program, if it was not kept, but scored."""


@dataclass(frozen=True)
class _CompileJob:
    """The work of one run: it scores, optimizes, decides, saves and logs."""

    evaluator: Evaluator
    start: MemoryProgram
    """The program that is compiled; it stays as it is."""
    split: Split
    config: CompileConfig
    force: bool
    """Whether the compiled program is kept in any case."""
    destination: Destination
    manifest: Manifest
    """The manifest of the start."""

    @property
    def run(self) -> Run:
        """The run that the job belongs to."""
        return self.evaluator.run

    def run_tracked(self) -> CompileResult:
        """Compile the program, save it, and log everything as one MLflow run."""
        benchmark = self.evaluator.benchmark
        title = f"{self.start.name}-{benchmark.name}-{self.config.optimizer}"
        with self.run.tracked("compile", title, self._logged_parameters()) as tracker:
            with self.run.context(self.start), endpoint_errors():
                result = self.compile(tracker.run_id)

            result = self._save_program(result)
            _log_result(tracker, result)
            self._keep_page(tracker, result)
            with self.run.context(self.start):
                self._log_details(tracker, result)
        return result

    def compile(self, run_id: str) -> CompileResult:
        """Score, optimize, decide which program is kept, and score again.

        Args:
            run_id: The MLflow run.
        """
        start_on_dev = self.evaluator(self.start, self.split.dev, "dev", "dev questions, before")
        self._refuse_broken(start_on_dev)

        optimization = self._optimize(start_on_dev)
        compiled = optimization.compiled
        compiled_on_dev = None
        if compiled is not None:
            compiled_on_dev = self._score_compiled(compiled, "dev", "dev questions, after")

        decision = self._decide(start_on_dev, compiled, compiled_on_dev)
        if self.split.test:
            scores = self._score_on_test(decision, compiled)
        else:
            scores = self._scores_without_test(decision, start_on_dev, compiled_on_dev)

        dev = (start_on_dev, compiled_on_dev)
        return self._make_result(run_id, optimization, decision, dev, scores)

    def _make_result(
        self,
        run_id: str,
        optimization: _Optimization,
        decision: _Decision,
        dev: tuple[Evaluation, Evaluation | None],
        scores: _FinalScores,
    ) -> CompileResult:
        """Return the result of the compile, before its program is saved.

        Args:
            run_id: The MLflow run.
            optimization: What the optimizer achieved.
            decision: Which program is kept.
            dev: Start and compiled program on the dev questions.
            scores: The scores that the result reports.
        """
        run = self.run
        min_n = run.config.execution.min_n
        before = scores.before
        after = scores.after
        rejected = scores.rejected
        rejected_difference = None
        if rejected is not None:
            rejected_difference = difference(before.headline_rows, rejected.headline_rows, min_n)
            rejected = rejected.model_copy(update={"run_id": run_id})

        compiled = optimization.compiled
        return CompileResult(
            program=decision.promoted.program if decision.promoted else self.start,
            before=before.model_copy(update={"run_id": run_id}),
            after=after.model_copy(update={"run_id": run_id}),
            dev=dev,
            difference=difference(before.headline_rows, after.headline_rows, min_n),
            scored_on="test" if self.split.test else "dev",
            promoted=decision.promoted is not None,
            folder=self.destination.folder,
            candidates=tuple(optimization.history.candidates),
            usage=dict(metered_usage(run.meter.read())),
            stopped=run.guard.limit_hit or before.stopped or after.stopped,
            run=run.folder.path,
            run_id=run_id,
            model=None if compiled is None else compiled.model_name,
            promotion=decision.promotion,
            optimizer_problems=optimization.problems(self.config.optimizer),
            rejected_evaluation=rejected,
            rejected_difference=rejected_difference,
        )

    def _optimize(self, start_on_dev: Evaluation) -> _Optimization:
        """Let the optimizer work on the train questions, with what the budget leaves for it."""
        run = self.run
        reserved = estimate_remaining_usage(
            start_on_dev,
            _record_first_scoring_usage(run),
            self.split,
            writes_memories=self.config.stage != "read",
        )
        attempts = _ProposalAttempts.of(run.folder, self.force)
        attempts.record_limit()
        on_progress = self.evaluator.progress(f"compiling with {self.config.optimizer}")
        history = CandidateHistory(run.meter, attempts.limit, on_progress)
        if run.guard.limit_hit is not None:
            return _Optimization(None, history)

        with run.guard.phase(reserved):
            program = compile_program(
                self.start,
                self.evaluator.benchmark,
                self.split.train,
                self.config,
                run.model("prompt"),
                history,
            )
        has_problems = history.failure is not None or history.proposals.given_up > 0
        if has_problems:
            attempts.record_problems()
        return _Optimization(self._compiled_program(program, history.trained_lm), history)

    def _compiled_program(
        self, program: MemoryProgram, trained_lm: MeteredLM | None
    ) -> _CompiledProgram:
        """Return what the optimizer made; save the weights that it trained."""
        has_other_prompts = program_digest(program) != program_digest(self.start)
        model_name = None
        if trained_lm is not None:
            model_name = save_model(trained_lm, self.run.folder.path / "model")
        is_changed = has_other_prompts or model_name is not None
        return _CompiledProgram(program, trained_lm, model_name, is_changed)

    def _score_compiled(
        self, compiled: _CompiledProgram, part: QuestionPart, title: str
    ) -> Evaluation:
        """Score the compiled program on a part of the split."""
        examples = self.split.dev if part == "dev" else self.split.test
        with dspy.context(lm=compiled.trained_lm or dspy.settings.lm):
            return self.evaluator(compiled.program, examples, part, title)

    def _decide(
        self,
        start_on_dev: Evaluation,
        compiled: _CompiledProgram | None,
        compiled_on_dev: Evaluation | None,
    ) -> _Decision:
        """Decide which program is kept."""
        run = self.run
        min_n = run.config.execution.min_n
        promotion = decide_promotion(start_on_dev, compiled_on_dev, run.guard.limit_hit, min_n)
        is_promoted = self.force or promotion.rejection_reason is None
        return _Decision(promotion, compiled if is_promoted else None)

    def _score_on_test(
        self, decision: _Decision, compiled: _CompiledProgram | None
    ) -> _FinalScores:
        """Score the start and the compiled program on the test questions."""
        before = self.evaluator(self.start, self.split.test, "test", "test questions, before")
        self._refuse_broken(before)

        if decision.promoted is not None:
            after = self._score_compiled(decision.promoted, "test", "test questions, after")
            self._refuse_broken(after)
            return _FinalScores(before, after)

        # The scores of a program that equals the start, or was not compared with it, say nothing.
        was_compared = decision.promotion.gain is not None
        if compiled is None or not compiled.is_changed or not was_compared:
            return _FinalScores(before, before)
        rejected = self._score_compiled(compiled, "test", "test questions, not promoted")
        return _FinalScores(before, before, rejected)

    def _scores_without_test(
        self,
        decision: _Decision,
        start_on_dev: Evaluation,
        compiled_on_dev: Evaluation | None,
    ) -> _FinalScores:
        """Return the scores on the dev questions, because there are no test questions."""
        if decision.promoted is None or compiled_on_dev is None:
            return _FinalScores(start_on_dev, start_on_dev)
        self._refuse_broken(compiled_on_dev)
        return _FinalScores(start_on_dev, compiled_on_dev)

    def _refuse_broken(self, evaluation: Evaluation) -> None:
        """Raise an error if an evaluation is broken, unless the compile is forced.

        The page of the run is saved first: `mempiler show --failed` reads it.

        Raises:
            BrokenRunError: Too many questions failed.
        """
        if not evaluation.broken or self.force:
            return
        folder = self.run.folder.path
        save_page(folder, run_page("compile", folder.name, {"before": evaluation}))
        refuse_broken(evaluation, folder.name, "; no program was saved (--force saves one)")

    def _save_program(self, result: CompileResult) -> CompileResult:
        """Save the program that was kept, and return the result with its folder.

        A kept start does not replace another program in `--out`. Then the start is saved in the
        run's own folder, and the result names the folder of `--out` as `untouched_out`.
        """
        manifest = self._result_manifest(result)
        if result.promoted:
            folder = self.destination.save_compiled(result.program, manifest)
            return replace(result, folder=folder)

        out = self.destination.folder
        folder = self.destination.save_original(result.program, manifest)
        untouched_out = out if folder != out else None
        return replace(result, folder=folder, untouched_out=untouched_out)

    def _result_manifest(self, result: CompileResult) -> Manifest:
        """Return the manifest of the program that was kept, with its scores."""
        summary = result.to_dict()
        changes: dict[str, Any] = {
            "scores": {
                "before": summary["before"],
                "after": summary["after"],
                "difference": summary["difference"],
                "dev": summary["dev"],
                "promoted": summary["promoted"],
                "gate": result.gate(),
            },
            "optimizer": self._optimizer_description() if result.promoted else {},
        }
        # A program whose weights were trained is asked with them from here on.
        if result.promoted and result.model:
            changes["lms"] = {**self.manifest.lms, "task": result.model}
        return self.manifest.model_copy(update=changes)

    def _optimizer_description(self) -> dict[str, Any]:
        """Return the optimizer with its settings, as manifests and MLflow have them."""
        return {
            "name": self.config.optimizer,
            "stage": self.config.stage,
            "seed": self.config.seed,
            "settings": self.config.recorded_settings(),
        }

    def _logged_parameters(self) -> dict[str, Any]:
        """Return the parameters of the MLflow run."""
        logged = parameters(self.start, self.run.config, self.evaluator.benchmark)
        for name, value in self._optimizer_description().items():
            logged[f"optimizer.{name}"] = value
        return logged

    def _keep_page(self, tracker: Tracker, result: CompileResult) -> None:
        """Make the page of the run, keep it in the run's folder, and log it."""
        command_options = {
            "optimizer": self.config.optimizer,
            "stage": self.config.stage,
            "optimizer_set": self.config.recorded_settings(),
        }
        phases = {"before": result.before}
        if result.promoted:
            phases["after"] = result.after

        shown_folder = result.folder
        if shown_folder.is_absolute() and shown_folder.is_relative_to(result.run):
            shown_folder = shown_folder.relative_to(result.run)
        facts = [
            Fact("Program", str(shown_folder)),
            Fact("LM calls, whole run", usage_line(result.usage)),
        ]

        notes = result.optimizer_problems.lines(result.run.name)
        gain = result.promotion.gain
        if gain is not None and gain.warning:
            notes.append(f"dev questions: {gain.warning}")

        self.evaluator.keep_page(
            tracker,
            command_options,
            result.program,
            phases,
            describe_questions(result.scored_on),
            facts,
            notes=notes,
            verdict=result.statement(),
            changes=prompt_changes(predictor_states(self.start), predictor_states(result.program)),
            candidates=result.candidates,
            unreadable=result.optimizer_problems.examples,
            min_n=result.difference.min_n,
        )

    def _log_details(self, tracker: Tracker, result: CompileResult) -> None:
        """Log prompts, questions and traces."""
        programs = [ProgramPrompts(self.start, "start")]
        # The alias `best` moves only to a program that was kept for its gain.
        if result.promoted:
            programs.append(ProgramPrompts(result.program, "best"))
        traces = self.run.config.execution.traces
        log_details(tracker, self.evaluator.benchmark, result.after, programs, "after", traces)


def _record_first_scoring_usage(run: Run) -> Usage:
    """Return what the first scoring of the run takes of the limits, and record it in `run.json`.

    It is the most that any start of the run has spent on this scoring: a run that is resumed reads
    the answers from its store, and spends little or nothing.
    """
    earlier = Usage(**run.folder.read().get(_FIRST_SCORING_USAGE, {}))
    now = run.guard.spent()
    if now.calls <= earlier.calls:
        return earlier
    run.folder.update(**{_FIRST_SCORING_USAGE: asdict(now)})
    return now


@dataclass(frozen=True)
class _ProposalAttempts:
    """How often the optimizer of a run may make one request for a proposal.

    The prompt LM may answer so that no proposal can be read. A run that is resumed reads these
    answers from its store again, so it needs more attempts than the last time to get a new answer.

    With `--resume RUN --force` a user wants the very program that RUN rejected. The optimizer
    returns it again only if it gets the same answers, so the number of attempts stays as it was.
    """

    folder: RunFolder
    """The folder of the run."""
    limit: int
    """Attempts for one request. After the last one the proposal is given up."""
    retry_count: int
    """How many starts of the run had problems with proposals, or an optimizer that failed."""
    wants_rejected_program: bool
    """Whether the run rejected its compiled program, and is now resumed with --force."""

    @classmethod
    def of(cls, folder: RunFolder, force: bool) -> _ProposalAttempts:
        """Return the attempts for the present start of a run.

        Args:
            folder: The folder of the run.
            force: Whether `--force` was given.
        """
        record = folder.read()
        result = record.get("result")
        was_rejected = isinstance(result, dict) and result.get("promoted") is False
        wants_rejected_program = force and was_rejected

        retry_count = record.get(_RETRY_COUNT, 0)
        limit = ATTEMPTS * (1 + retry_count)
        if wants_rejected_program:
            # The start that rejected the program has recorded it.
            limit = record[_PROPOSAL_ATTEMPTS]
        return cls(folder, limit, retry_count, wants_rejected_program)

    def record_limit(self) -> None:
        """Record the limit in `run.json`, for a later start."""
        self.folder.update(**{_PROPOSAL_ATTEMPTS: self.limit})

    def record_problems(self) -> None:
        """Record that the optimizer had problems, so that the next start makes more attempts."""
        if self.wants_rejected_program:
            # No answer was new, so these problems were recorded by an earlier start.
            return
        self.folder.update(**{_RETRY_COUNT: self.retry_count + 1})


def _log_result(tracker: Tracker, result: CompileResult) -> None:
    """Log all scores, the difference, the candidates and the program."""
    start_on_dev, compiled_on_dev = result.dev
    evaluations = {
        "before": result.before,
        "after": result.after,
        "dev_before": start_on_dev,
        "dev_after": compiled_on_dev,
        "refused_candidate": result.rejected_evaluation,
    }
    for name, evaluation in evaluations.items():
        if evaluation is not None:
            tracker.log_evaluation(name, evaluation)

    tracker.log_difference(result.difference)
    tracker.log_metrics({"promoted": float(result.promoted), **usage_totals(result.usage)})
    candidates = [asdict(candidate) for candidate in result.candidates]
    tracker.log_steps("candidate", candidates, "number")
    if candidates:
        tracker.log_json_lines("candidates.jsonl", candidates)
    tracker.log_json("outcome.json", result.to_dict())
    tracker.log_folder(result.folder, "program")
