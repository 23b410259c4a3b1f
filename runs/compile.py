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
from .run_programs import refuse_unknown_method
from .tracking.details import log_details
from .tracking.prompts import ProgramPrompts
from .tracking.tracker import Tracker

# Names in `run.json`.
_STARTS_WITH_PROBLEMS = "retry_count"
"""In how many starts of the run the optimizer failed, or gave up proposals."""
_PROPOSAL_ATTEMPTS = "proposal_attempts"
"""How often the prompt LM was asked for one proposal at most, in the last start of the run."""
_FIRST_SCORING_USAGE = "first_scoring_usage"
"""What the first scoring of the run took of the limits."""


@dataclass(frozen=True)
class KeepOptions:
    """Where the program of a compile is saved, and whether dev decides which one it is."""

    out: str | Path | None = None
    """The folder for the program; one in the run's folder if None.

    It holds a program from the first moment on, unless the run is broken. Only a compiled program
    replaces another one that is there.
    """
    force: bool = False
    """Whether the compiled program is kept whatever dev shows, or in a broken run.

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
    refuse_unknown_method(program)
    benchmark = inputs.benchmark_for_compiling()
    split = inputs.split()
    # `force` is no part of it, so that a rejected program can be kept by resuming its run.
    decisive_settings = {
        "optimizer": compile_config.optimizer,
        "stage": compile_config.stage,
        "settings": compile_config.recorded_settings(),
    }
    if compile_config.max_prompt_growth is not None:
        decisive_settings["max_prompt_growth"] = compile_config.max_prompt_growth
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
        rules = self.history.rules
        is_changed = self.compiled is not None and self.compiled.is_changed
        return OptimizerProblems(
            optimizer=optimizer,
            failure=failure,
            unreadable_answers=proposals.unreadable,
            abandoned_proposals=proposals.given_up,
            refused_copies=0 if rules is None else rules.copies,
            refused_long=0 if rules is None else rules.too_long,
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
    """The program that was kept. If that is the start, it is the same evaluation as `before`."""
    rejected: Evaluation | None = None
    """The compiled program, if it was not kept, but scored."""

    @classmethod
    def of_kept_start(cls, start: Evaluation, rejected: Evaluation | None = None) -> _FinalScores:
        """Return the scores if the start was kept: before and after are the same program."""
        return cls(before=start, after=start, rejected=rejected)


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
            # All questions to models are asked in this block. If an endpoint fails in it, the error
            # says how to resume the run.
            with self.run.context(self.start), endpoint_errors():
                result = self.compile(tracker.run_id)

            # The log and the page name the folder of the program, so it is saved first.
            result = self._save_program(result)
            _log_result(tracker, result)
            self._keep_page(tracker, result)
            self._log_details(tracker, result)
        return result

    def compile(self, run_id: str) -> CompileResult:
        """Score, optimize, decide which program is kept, and score again.

        Args:
            run_id: The MLflow run.
        """
        spent_before = self.run.guard.spent()
        start_on_dev = self.evaluator(self.start, self.split.dev, "dev", "dev questions, before")
        self._refuse_broken(start_on_dev)
        spent_on_scoring = self.run.guard.spent() - spent_before
        first_scoring_usage = _record_first_scoring(self.run.folder, spent_on_scoring)

        optimization = self._optimize(start_on_dev, first_scoring_usage)
        compiled = optimization.compiled
        refusal = optimization.history.refusal
        compiled_on_dev = None
        # A refused program is not promoted, whatever its scores, so they are not paid for.
        if compiled is not None and (refusal is None or self.force):
            compiled_on_dev = self._score_compiled(compiled, "dev", "dev questions, after")

        decision = self._decide(start_on_dev, compiled, compiled_on_dev, refusal)
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
            frontier=tuple(optimization.history.frontier),
            usage=dict(metered_usage(run.meter.read())),
            stopped=run.guard.limit_hit or before.stopped or after.stopped,
            run=run.folder.path,
            run_id=run_id,
            model=None if compiled is None else compiled.model_name,
            promotion=decision.promotion,
            margin=run.config.execution.margin,
            optimizer_problems=optimization.problems(self.config.optimizer),
            rejected_evaluation=rejected,
            rejected_difference=rejected_difference,
            is_changed=compiled is not None and compiled.is_changed,
        )

    def _optimize(self, start_on_dev: Evaluation, first_scoring_usage: Usage) -> _Optimization:
        """Let the optimizer work on the train questions, with what the budget leaves for it.

        Args:
            start_on_dev: The start on the dev questions: the first scoring of the run.
            first_scoring_usage: What that scoring takes of the limits.
        """
        run = self.run

        # The prompt LM is asked again if a proposal cannot be read. A resumed run must know how
        # often it was, see `_ProposalAttempts`.
        attempts = _ProposalAttempts.of_this_start(run.folder, self.force)
        attempts.record_limit()

        on_progress = self.evaluator.progress(f"compiling with {self.config.optimizer}")
        history = CandidateHistory(run.meter, attempts.limit, on_progress)
        if run.guard.limit_hit is not None:
            # The first scoring has used up the budget.
            return _Optimization(None, history)

        # The programs are scored after the optimizer, and what that takes is kept from it.
        reserved = estimate_remaining_usage(
            start_on_dev,
            first_scoring_usage,
            self.split,
            writes_memories=self.config.stage != "read",
        )
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
        refusal: str | None,
    ) -> _Decision:
        """Decide which program is kept: the compiled one only by what dev shows, or by --force.

        Args:
            start_on_dev: The start on the dev questions.
            compiled: The compiled program; None if there is none.
            compiled_on_dev: The compiled program on the dev questions; None if it was not scored.
            refusal: Which rule the prompts of the compiled program break; None if none.
        """
        execution = self.run.config.execution
        if refusal is not None:
            promotion = Promotion(gain=None, rejection_reason=refusal)
        else:
            promotion = decide_promotion(
                start_on_dev,
                compiled_on_dev,
                self.run.guard.limit_hit,
                execution.min_n,
                execution.margin,
            )
        is_promoted = promotion.rejection_reason is None or self.force
        return _Decision(promotion, promoted=compiled if is_promoted else None)

    def _score_on_test(
        self, decision: _Decision, compiled: _CompiledProgram | None
    ) -> _FinalScores:
        """Score the start and the compiled program on the test questions.

        A compiled program that was not promoted is scored too, if its scores can say something.
        """
        before = self.evaluator(self.start, self.split.test, "test", "test questions, before")
        self._refuse_broken(before)

        if decision.promoted is not None:
            after = self._score_compiled(decision.promoted, "test", "test questions, after")
            self._refuse_broken(after)
            return _FinalScores(before, after)

        # A program that equals the start has the scores of the start.
        if compiled is None or not compiled.is_changed:
            return _FinalScores.of_kept_start(before)

        # Without a gain, not even the dev questions were all answered by both programs: a limit was
        # reached, or the endpoint failed. The test questions would fare no better.
        was_compared_on_dev = decision.promotion.gain is not None
        if not was_compared_on_dev:
            return _FinalScores.of_kept_start(before)

        rejected = self._score_compiled(compiled, "test", "test questions, not promoted")
        return _FinalScores.of_kept_start(before, rejected)

    def _scores_without_test(
        self,
        decision: _Decision,
        start_on_dev: Evaluation,
        compiled_on_dev: Evaluation | None,
    ) -> _FinalScores:
        """Return the scores on the dev questions, because there are no test questions."""
        was_kept = decision.promoted is not None
        if was_kept and compiled_on_dev is not None:
            self._refuse_broken(compiled_on_dev)
            return _FinalScores(before=start_on_dev, after=compiled_on_dev)
        return _FinalScores.of_kept_start(start_on_dev)

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

        A compiled program is saved in the folder of `--out`. If the start was kept, and another
        program is in that folder, the other program stays there. Then the start is saved in the
        run's own folder, and the result names the folder of `--out` as `untouched_out`.
        """
        manifest = self._result_manifest(result)
        if result.promoted:
            folder = self.destination.save_compiled(result.program, manifest)
            return replace(result, folder=folder)

        wanted_folder = self.destination.folder
        actual_folder = self.destination.save_original(result.program, manifest)
        untouched_out = None if actual_folder == wanted_folder else wanted_folder
        return replace(result, folder=actual_folder, untouched_out=untouched_out)

    def _result_manifest(self, result: CompileResult) -> Manifest:
        """Return the manifest of the program that was kept, with its scores."""
        summary = result.to_dict()
        changes: dict[str, Any] = {
            "scores": {
                "before": result.before.published_figures(),
                "after": result.after.published_figures(),
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
        description = {
            "name": self.config.optimizer,
            "stage": self.config.stage,
            "seed": self.config.seed,
            "settings": self.config.recorded_settings(),
        }
        if self.config.max_prompt_growth is not None:
            description["max_prompt_growth"] = self.config.max_prompt_growth
        return description

    def _logged_parameters(self) -> dict[str, Any]:
        """Return the parameters of the MLflow run."""
        logged = parameters(self.start, self.run.config, self.evaluator.benchmark)
        for name, value in self._optimizer_description().items():
            logged[f"optimizer.{name}"] = value
        return logged

    def _keep_page(self, tracker: Tracker, result: CompileResult) -> None:
        """Make the page of the run, keep it in the run's folder, and log it."""
        # What the page's command line says beside the options that all runs share.
        command_options = {
            "optimizer": self.config.optimizer,
            "stage": self.config.stage,
            "optimizer_set": self.config.recorded_settings(),
            "max_prompt_growth": self.config.max_prompt_growth,
        }
        # If the start was kept, `after` is the same evaluation as `before`, and shown once.
        phases = {"before": result.before}
        if result.promoted:
            phases["after"] = result.after

        # A page is passed on with the folder of its run. It names a program in there without the
        # path on this machine.
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

        states_before = predictor_states(self.start)
        states_after = predictor_states(result.program)
        self.evaluator.keep_page(
            tracker,
            command_options=command_options,
            program=result.program,
            phases=phases,
            question_title=describe_questions(result.scored_on),
            facts=facts,
            notes=notes,
            verdict=result.statement(),
            changes=prompt_changes(states_before, states_after),
            candidates=result.candidates,
            frontier=result.frontier,
            unreadable=result.optimizer_problems.examples,
            min_n=result.difference.min_n,
        )

    def _log_details(self, tracker: Tracker, result: CompileResult) -> None:
        """Log the prompts of the start and of the compiled program, and the questions with traces.

        Questions and traces are those of the program that was kept.
        """
        programs = [ProgramPrompts(self.start, alias="start")]
        # In MLflow, the alias `best` moves to these prompts. So it stays where it is if the
        # compiled program was not kept.
        if result.promoted:
            programs.append(ProgramPrompts(result.program, alias="best"))
        log_details(
            tracker,
            self.evaluator.benchmark,
            evaluation=result.after,
            programs=programs,
            phase="after",
            max_traces=self.run.config.execution.traces,
        )


def _record_first_scoring(folder: RunFolder, usage: Usage) -> Usage:
    """Record in `run.json` what the first scoring of a run took of the limits.

    A run that is resumed reads stored answers, and its first scoring takes little or nothing. So
    the usage of the start of the run that asked most is kept.

    Args:
        folder: The folder of the run.
        usage: What the first scoring took in this start of the run.

    Returns:
        The usage that is kept: what the scoring takes if no answer is stored yet.
    """
    recorded = Usage(**folder.read().get(_FIRST_SCORING_USAGE, {}))
    # More calls are more of everything: tokens, cost and time come with the calls.
    if usage.calls <= recorded.calls:
        return recorded
    folder.update(**{_FIRST_SCORING_USAGE: asdict(usage)})
    return usage


@dataclass(frozen=True)
class _ProposalAttempts:
    """How often the prompt LM may be asked for one proposal, such as a new instruction.

    An answer may be unreadable, and then the LM is asked again. A run may be started several times:
    first, and then with `--resume`. A later start gets the same answers from the store of the run
    before it asks for new ones. So after a start with problems, the next one may ask more often
    than that start did: `ATTEMPTS` times more for every such start.

    There is one exception. `--resume RUN --force` keeps the very program that RUN has rejected. The
    optimizer makes the same program again only from the same answers. So it may ask exactly as
    often as in the start that rejected the program, and no answer is new.
    """

    folder: RunFolder
    """The folder of the run."""
    limit: int
    """How often one proposal may be asked for in this start. Then it is given up."""
    starts_with_problems: int
    """In how many earlier starts the optimizer failed, or gave up proposals."""
    remakes_rejected_program: bool
    """Whether this start is the exception: `--force` for a program that the run rejected."""

    @classmethod
    def of_this_start(cls, folder: RunFolder, force: bool) -> _ProposalAttempts:
        """Return how often one proposal may be asked for in the start of a run that begins now.

        Args:
            folder: The folder of the run. Its `run.json` has what earlier starts recorded.
            force: Whether this start has the option `--force`.
        """
        record = folder.read()
        starts_with_problems = record.get(_STARTS_WITH_PROBLEMS, 0)

        earlier_result = record.get("result")
        was_rejected = isinstance(earlier_result, dict) and earlier_result.get("promoted") is False
        remakes_rejected_program = force and was_rejected
        if remakes_rejected_program:
            limit = record[_PROPOSAL_ATTEMPTS]
        else:
            limit = ATTEMPTS * (1 + starts_with_problems)
        return cls(folder, limit, starts_with_problems, remakes_rejected_program)

    def record_limit(self) -> None:
        """Record the limit in `run.json`, for a later start with `--force`."""
        self.folder.update(**{_PROPOSAL_ATTEMPTS: self.limit})

    def record_problems(self) -> None:
        """Record that the optimizer had problems, so that the next start may ask more often."""
        if self.remakes_rejected_program:
            # No answer was new, so an earlier start has recorded these problems already.
            return
        self.folder.update(**{_STARTS_WITH_PROBLEMS: self.starts_with_problems + 1})


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
    tracker.log_promotion(result.promotion)
    problems = result.optimizer_problems
    tracker.log_metrics(
        {
            "promoted": float(result.promoted),
            "refused_copies": float(problems.refused_copies),
            "refused_long": float(problems.refused_long),
            **usage_totals(result.usage),
        }
    )
    candidates = [asdict(candidate) for candidate in result.candidates]
    tracker.log_steps("candidate", candidates, "number")
    if candidates:
        tracker.log_json_lines("candidates.jsonl", candidates)
    if result.frontier:
        points = [asdict(point) for point in result.frontier]
        tracker.log_json_lines("frontier.jsonl", points)
    tracker.log_json("outcome.json", result.to_dict())
    tracker.log_folder(result.folder, "program")
