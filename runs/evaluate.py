"""One evaluation from start to end, and `Evaluator`, which scores the questions of any run.

`run_evaluate` is what the command line and `mempiler.evaluate` call. `run_compile` and `run_train`
score their programs by an `Evaluator` too, once for each phase:

    evaluator = Evaluator(run, benchmark, progress, "turn-rag")
    before = evaluator(start, split.dev, "dev", "dev questions, before")
    after = evaluator(compiled, split.dev, "dev", "dev questions, after")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict, Unpack, get_args

import dspy

from ..data.benchmark import Benchmark
from ..engines.meter import Meter
from ..errors import UnknownNameError, UserError
from ..optimizers.frontier import FrontierPoint
from ..optimizers.history import Candidate
from ..optimizers.proposals import UnreadableAnswer
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from .external import ANSWER_FILE_ENDINGS, RecordedAnswers, name_in_tables
from .inputs import RunInputs
from .manifest import read_manifest
from .pages.facts import Fact, setting_facts
from .pages.html import save_page
from .pages.page import PromptChange, predictor_states, prompt_changes, run_page
from .program_address import pin_address
from .repeating import command_line, python_objects, with_replayed_models
from .results import Evaluation
from .rows import Row
from .run import Parent, Run
from .run_description import parameters
from .run_programs import refuse_unknown_method
from .scoring import Progress, score_questions
from .tracking.details import log_details
from .tracking.prompts import ProgramPrompts
from .tracking.tracker import Tracker
from .workers import evaluate_remotely
from .write_results import WriteResult

Part = Literal["all", "train", "dev", "test"]
ProgressFactory = Callable[[str], Progress | None]
"""Called with the name of each phase, e.g. "dev questions, before"; may return a callback."""


def no_progress(phase: str) -> Progress | None:
    """Return no callback: nobody watches."""
    return None


def run_evaluate(
    target: object,
    inputs: RunInputs,
    split: Part = "all",
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> Evaluation:
    """Score a method, a saved program or an external system, logged as one MLflow run.

    Args:
        target: What is scored, by its name or itself (see `external`).
        inputs: Data, models, and the method's settings.
        split: Which questions: all, or a part of the split that compile uses.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.
    """
    inputs = with_replayed_models(inputs)
    objects = python_objects(inputs, target)
    if isinstance(target, str):
        target = pin_address(target)
    if isinstance(target, str) and target.endswith(ANSWER_FILE_ENDINGS):
        target = RecordedAnswers(target)
    refuse_unknown_method(target)

    name = name_in_tables(target)
    benchmark = inputs.benchmark
    examples = chosen_examples(inputs, split)
    if isinstance(target, RecordedAnswers):
        examples = target.attach_answers(benchmark, examples)

    run = Run.start(inputs, "evaluate", name, {"part": split}, meter, parent)
    with run.folder.recording():
        run.record_python_objects(objects)
        program, benchmark = run.load_target(target)
        with closing(program.method):
            evaluator = Evaluator(run, benchmark, progress, target)
            evaluation = _evaluate_tracked(evaluator, program, examples, split)

    run.folder.write_rows("evaluation", evaluation.rows)
    status = "stopped" if evaluation.stopped else "finished"
    run.folder.update(status=status, result=evaluation.to_dict())
    return evaluation


def resolve_part(inputs: RunInputs, split: Part) -> Part:
    """Return the part of the split that an evaluation asks; "all" for every question of the file.

    A user who sets the size of the test part (`--test N`) without `--split` means the test part.
    """
    has_test_size = inputs.config.data.test is not None
    if split == "all" and has_test_size:
        return "test"
    return split


def chosen_examples(inputs: RunInputs, split: Part) -> Sequence[dspy.Example]:
    """Return the questions that an evaluation asks, see `resolve_part`.

    Raises:
        UnknownNameError: There is no such part.
        UserError: The size of the part is set to 0.
    """
    if split not in get_args(Part):
        raise UnknownNameError("split", split, get_args(Part))
    part = resolve_part(inputs, split)
    if part == "all":
        benchmark = inputs.benchmark
        return benchmark.interleave(benchmark.examples)

    data = inputs.config.data
    sizes = {"train": data.train, "dev": data.dev, "test": data.test}
    if sizes[part] == 0:
        raise UserError(f"{part} = 0: no question would be asked; give 1 or more, or leave it out")

    questions = inputs.split()
    questions_by_part = {
        "train": questions.train,
        "dev": questions.dev,
        "test": questions.test,
    }
    return questions_by_part[part]


def compiled_on(folder: str | Path, benchmark: Benchmark) -> bool:
    """Return whether a saved program was compiled on the very file of a benchmark."""
    manifest = read_manifest(folder)
    is_compiled = bool(manifest.optimizer)
    return is_compiled and manifest.benchmark.get("sha256") == benchmark.source.sha256


class PageContent(TypedDict, total=False):
    """What a page may show beside the evaluations and the settings; see `run_page`."""

    notes: Sequence[str]
    verdict: str
    changes: Sequence[PromptChange]
    candidates: Sequence[Candidate]
    frontier: Sequence[FrontierPoint]
    unreadable: Sequence[UnreadableAnswer]
    min_n: int


@dataclass(frozen=True)
class Evaluator:
    """Scores questions for one run: with its models and limits, kept in its folder.

    Raises:
        UserError: The run has workers, and what it scores, or started from, has no name.
    """

    run: Run
    benchmark: Benchmark
    """Has its judges."""
    progress: ProgressFactory
    target: object
    """What the run scores or starts from, by its name or itself, as `Run.program` takes it."""

    def __post_init__(self) -> None:
        has_workers = self.run.config.execution.workers != 1
        if has_workers and not isinstance(self.target, str):
            name = name_in_tables(self.target)
            raise UserError(
                f"{name} is only in this process; leave --workers out, or name it module:thing"
            )

    def __call__(
        self,
        program: MemoryProgram,
        examples: Sequence[dspy.Example],
        phase: str,
        title: str = "",
    ) -> Evaluation:
        """Score a program on questions.

        Args:
            program: What answers.
            examples: The questions.
            phase: What the rows are filed under: a resumed run finds them by it.
            title: What people are shown as the name of the phase; `phase` if empty.
        """
        run = self.run
        shown_title = title or phase
        has_workers = run.config.execution.workers != 1
        return score_questions(
            program,
            self.benchmark,
            examples,
            run.meter,
            threads=run.config.execution.threads,
            progress=self.progress(shown_title),
            journal=run.folder.store.rows,
            phase=phase,
            max_failure_rate=run.config.execution.max_failure_rate,
            remote=self._ask_workers if has_workers else None,
            writing_progress=partial(self.progress, f"{shown_title}, sessions remembered"),
        )

    def _ask_workers(
        self,
        program: MemoryProgram,
        benchmark: Benchmark,
        examples: Sequence[dspy.Example],
        on_row: Callable[[Row], None],
    ) -> Mapping[str, WriteResult]:
        """Ask questions in the worker processes of the run.

        `score_questions` calls this method if the run has workers; its type there is
        `scoring.RemoteEvaluator`.
        """
        assert isinstance(self.target, str)  # `__post_init__` has refused anything else
        return evaluate_remotely(self.run, self.target, program, benchmark, examples, on_row)

    def keep_page(
        self,
        tracker: Tracker,
        command_options: Mapping[str, object],
        program: MemoryProgram,
        phases: Mapping[str, Evaluation],
        question_title: str,
        facts: Sequence[Fact] = (),
        **content: Unpack[PageContent],
    ) -> None:
        """Make the page of the run, keep it in the run's folder, and log it.

        Args:
            tracker: The MLflow run.
            command_options: The options of the run's own command, e.g. {"split": "test"}.
            program: What the run ends with.
            phases: The evaluations, by what the page calls them.
            question_title: What the page calls the questions that were asked, e.g. "test
                questions".
            facts: Further facts for the page, each a name and a value.
            **content: What else the page shows, e.g. `notes`.
        """
        # `Run.tracked` has set this tag: "evaluate", "compile" or "train".
        command = tracker.tags["command"]
        folder = self.run.folder.path
        name = name_in_tables(self.target)
        all_facts = [
            Fact("Command", command_line(self.run.inputs, command, name, command_options)),
            Fact("Date", f"{datetime.now():%Y-%m-%d %H:%M}"),
            Fact("MLflow run", tracker.address or "none: --tracking off"),
            Fact("Data", f"{self.benchmark.source.name}, {question_title}"),
            *setting_facts(tracker.parameters, program_digest(program)),
            *facts,
        ]
        page = run_page(command, folder.name, phases, all_facts, **content)
        html = save_page(folder, page)
        if html is not None:
            tracker.log_file(html)


def _evaluate_tracked(
    evaluator: Evaluator, program: MemoryProgram, examples: Sequence[dspy.Example], part: Part
) -> Evaluation:
    """Score the questions of an evaluation, and log everything as one MLflow run."""
    run = evaluator.run
    benchmark = evaluator.benchmark
    name = f"{program.name}-{benchmark.name}"
    logged = {**parameters(program, run.config, benchmark), "part": part}

    # The context first: a wrong name of a model or an adapter makes no MLflow run.
    with run.context(program), run.tracked("evaluate", name, logged) as tracker:
        evaluation = evaluator(program, examples, part, "evaluating")
        target = evaluator.target
        notes = target.notes if isinstance(target, RecordedAnswers) else []
        return log_evaluation(evaluator, tracker, program, evaluation, part, notes)


def log_evaluation(
    evaluator: Evaluator,
    tracker: Tracker,
    program: MemoryProgram,
    evaluation: Evaluation,
    part: Part,
    notes: Sequence[str] = (),
) -> Evaluation:
    """Log an evaluation as one MLflow run, and keep its page in the run's folder.

    Args:
        evaluator: Has scored the program.
        tracker: The MLflow run.
        program: What was scored.
        evaluation: Its scores.
        part: Which questions they are about.
        notes: Lines that the page shows.

    Returns:
        The evaluation, with the id of the MLflow run.
    """
    evaluation = evaluation.model_copy(update={"run_id": tracker.run_id})
    tracker.log_evaluation("evaluation", evaluation)

    _keep_evaluation_page(evaluator, tracker, program, evaluation, part, notes)
    programs = [ProgramPrompts(program)]
    traces = evaluator.run.config.execution.traces
    log_details(tracker, evaluator.benchmark, evaluation, programs, "evaluation", traces)
    return evaluation


def _keep_evaluation_page(
    evaluator: Evaluator,
    tracker: Tracker,
    program: MemoryProgram,
    evaluation: Evaluation,
    part: Part,
    notes: Sequence[str],
) -> None:
    """Make the page of an evaluation (`report.html`), keep it in the run's folder, and log it.

    `Evaluator.keep_page` does this for any run; here is what only the page of an evaluation shows.
    """
    # The page shows prompts as a comparison of two states. An evaluation changes no prompt, so both
    # states are the same, and the page shows the prompts without marks.
    prompts = predictor_states(program)
    evaluator.keep_page(
        tracker,
        command_options={"split": part},
        program=program,
        phases={"score": evaluation},
        question_title=f"questions: {part}",
        notes=notes,
        changes=prompt_changes(before=prompts, after=prompts),
    )
