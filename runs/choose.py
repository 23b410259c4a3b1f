"""Choose between methods: `run_choose` asks all of them a few questions, and the best ones more.

    choice = run_choose(["turn-rag", "session-rag", "fact-store"], inputs)
    choice.winner          # "session-rag", or None if the best two are not told apart

`halving.py` decides which method is asked how many questions. Here the programs are opened, scored
and logged. Each method has an evaluation of its own, with its own folder inside that of the run and
its own MLflow run inside that of the choice. All share the limits, the models and the memories of
the run. Every answer is saved at once, so a stopped run can be resumed with `--resume`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import dspy

from ..engines.meter import Meter
from ..engines.model_names import display_name
from ..engines.usage import UsageReport
from ..errors import UserError
from ..programs.cache import MemoryCache
from ..programs.program import MemoryProgram
from ..validation import check_number
from .choice import Choice, ChoiceRow
from .compare import compare_runs, load_run
from .evaluate import (
    Evaluator,
    Part,
    ProgressFactory,
    chosen_examples,
    log_evaluation,
    no_progress,
)
from .external import ANSWER_FILE_ENDINGS, name_in_tables
from .folder import RunFolder, file_name_of
from .halving import DEFAULT_SHARE, HalvingResult, first_round_size, halve
from .inputs import RunInputs
from .metered_usage import metered_usage
from .pages.html import save_page
from .program_address import pin_address
from .repeating import python_objects, resume_key
from .results import Evaluation
from .run import Parent, Run
from .run_description import parameters
from .tracking.tracker import Tracker

_PHASE = "choose"
"""The name under which the answers of every method are saved in the run's store."""
RESULT_FILE = "choice.json"
"""The file with the result, among the artifacts of the MLflow run."""


def run_choose(
    targets: Sequence[object],
    inputs: RunInputs,
    share: float = DEFAULT_SHARE,
    split: Part = "all",
    progress: ProgressFactory = no_progress,
    meter: Meter | None = None,
) -> Choice:
    """Find the best of several methods, logged as an MLflow run that has one inside it for each.

    Args:
        targets: What is chosen from, each as `run_evaluate` takes it; two or more.
        inputs: Data, models, limits, and the settings of the methods.
        share: How much may be asked at most, as a part of what it would take to ask every method
            every question: above 0, up to 1.
        split: Which questions: all, or those of train, dev or test as compile splits them.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.

    Raises:
        UserError: Fewer than two methods are named, one twice, or one that cannot be asked; or the
            share is out of range.
        EndpointError: A model cannot be reached; the message says how to resume.
    """
    methods = named_methods(targets)
    check_share(share)
    questions = questions_that_count(inputs, split)

    names = [method.label for method in methods]
    # All commands record --split as "part".
    settings = {"part": split, "share": share}
    run = Run.start(inputs, "choose", " ".join(names), settings, meter)
    usage_before = run.meter.read()
    with run.folder.recording(), ExitStack() as open_methods:
        run.record_python_objects(_python_objects(inputs, targets))
        # The programs first: a wrong name makes no MLflow run.
        opening = _Opening(run, split, progress)
        candidates: list[_Candidate] = []
        for method in methods:
            candidate = opening.open(method)
            open_methods.enter_context(closing(candidate.program.method))
            candidates.append(candidate)

        writes_with_model = any(candidate.writes_with_model for candidate in candidates)
        scorer = _CandidateScorer(candidates, in_order(inputs, questions, writes_with_model))
        min_n = inputs.config.execution.min_n
        shared_parameters = {**_shared_parameters(names, inputs), **settings}
        with run.tracked("choose", inputs.benchmark.name, shared_parameters) as tracker:
            result = halve(scorer.score_questions, scorer.groups, len(candidates), share, min_n)
            for candidate in candidates:
                candidate.log(tracker, split)

            usage = run.meter.read() - usage_before
            notes = _small_round_notes(scorer, share, min_n)
            choice = _make_choice(run, tracker, scorer, result, usage, notes)
            _save_result(run, tracker, choice, min_n)
    return choice


def check_share(share: float) -> None:
    """Raise a UserError unless a share is above 0 and at most 1."""
    check_number("share", share, 0, 1)
    if share == 0:
        raise UserError("share = 0: no question would be asked; give e.g. 0.3")


@dataclass(frozen=True)
class NamedMethod:
    """A method that the user named, and how tables call it."""

    number: int
    """Its place among the methods, from 1."""
    label: str
    """Its name in tables, which no other method has."""
    target: object
    """What the user gave: a name, an address, or a Python object."""


def named_methods(targets: Sequence[object]) -> list[NamedMethod]:
    """Return the methods, each with a name of its own for tables.

    Raises:
        UserError: There are fewer than two, a name is given twice, or one is a file of answers.
    """
    if len(targets) < 2:
        names = ", ".join(name_in_tables(target) for target in targets) or "none"
        raise UserError(f"there is nothing to choose from: {names}; name two methods or more")

    counts: Counter[str] = Counter()
    methods: list[NamedMethod] = []
    for number, target in enumerate(targets, 1):
        name = name_in_tables(target)
        if isinstance(target, str) and target.endswith(ANSWER_FILE_ENDINGS):
            raise UserError(
                f"{target}: the answers in this file were paid for already, so asking fewer saves"
                " nothing; score it with `mempiler evaluate`, then use `mempiler compare`"
            )
        counts[name] += 1
        if isinstance(target, str) and counts[name] > 1:
            raise UserError(f"{name}: is named twice; name each method once")
        # Two objects of one class have the same name.
        label = name if counts[name] == 1 else f"{name} #{counts[name]}"
        methods.append(NamedMethod(number, label, target))
    return methods


def questions_that_count(inputs: RunInputs, split: Part) -> list[dspy.Example]:
    """Return the questions that count for the score.

    Raises:
        UserError: No question counts.
    """
    benchmark = inputs.benchmark
    questions: list[dspy.Example] = []
    for example in chosen_examples(inputs, split):
        if benchmark.in_headline(example):
            questions.append(example)
    if not questions:
        raise UserError(
            f"{benchmark.name}: no question of these counts for the score;"
            " choose other --categories or another --split"
        )
    return questions


def _python_objects(inputs: RunInputs, targets: Sequence[object]) -> list[str]:
    """Return the names of the run's Python objects, without which it cannot be repeated."""
    objects: set[str] = set()
    for target in targets:
        objects.update(python_objects(inputs, target))
    return sorted(objects)


def _shared_parameters(method_names: Sequence[str], inputs: RunInputs) -> dict[str, Any]:
    """Return the parameters that are logged once for all methods, in the outer MLflow run.

    `_Candidate.log` logs the settings of each method in an MLflow run of its own.
    """
    data_source = inputs.benchmark.source
    config = inputs.config
    shared_parameters: dict[str, Any] = {
        "programs": ", ".join(method_names),
        "benchmark": inputs.benchmark.name,
        "data": data_source.path,
        "data_sha256": data_source.sha256,
        "lm": config.models.task.name,
        "seed": config.data.seed,
    }
    for limit_name, limit in config.limits.as_dict().items():
        shared_parameters[f"limit.{limit_name}"] = limit
    return shared_parameters


@dataclass
class _Candidate:
    """One of the methods: its program, and its scores on the questions so far."""

    label: str
    run: Run
    """Its own part of the run, with a folder of its own."""
    parent: Parent
    """What it shares with the other candidates."""
    program: MemoryProgram
    evaluator: Evaluator
    evaluation: Evaluation | None = None
    """Its scores on all questions so far; None before the first round."""
    _usage: UsageReport = field(default_factory=UsageReport)
    """Calls and tokens of all rounds. Answers that a resumed run had already are not in it."""
    _seconds: float = 0.0
    """How long all rounds took together."""

    @property
    def writes_with_model(self) -> bool:
        """Whether writing its memories takes calls of a model, or another system."""
        return self.program.method.writer.calls_model

    def score(self, questions: Sequence[dspy.Example], title: str) -> Evaluation:
        """Score the program on the questions of all rounds so far.

        Questions of earlier rounds are not asked again: their answers are in the run's store.

        Args:
            questions: Those of earlier rounds, and then those of this round.
            title: The name of the phase, for the progress bar.
        """
        usage_before = self.run.meter.read()
        with self.run.context(self.program):
            evaluation = self.evaluator(self.program, questions, _PHASE, title)

        # The evaluation has the scores of all rounds, but calls and seconds of this round alone.
        # So those of the rounds before are added.
        self._usage += self.run.meter.read() - usage_before
        self._seconds += evaluation.seconds
        totals = {**metered_usage(self._usage), "seconds": self._seconds}
        self.evaluation = evaluation.model_copy(update=totals)
        return self.evaluation

    def log(self, choice_tracker: Tracker, split: Part) -> None:
        """Log the scores as an MLflow run, and write them into the candidate's own folder.

        Args:
            choice_tracker: The MLflow run of the choice, which will contain this one.
            split: The part of the questions that all methods are asked.
        """
        if self.evaluation is None:
            return
        name = f"{self.program.name}-{self.evaluator.benchmark.name}"
        settings = parameters(self.program, self.run.config, self.evaluator.benchmark)
        settings["part"] = split
        note = f"asked {len(self.evaluation.rows)} questions, as one of the methods of a choice"
        tags = {"mlflow.parentRunId": choice_tracker.run_id, "variant": self.label}
        run = replace(self.run, parent=replace(self.parent, tags=tags))
        with run.context(self.program), run.tracked("evaluate", name, settings) as tracker:
            self.evaluation = log_evaluation(
                self.evaluator, tracker, self.program, self.evaluation, split, [note]
            )

        folder = self.run.folder
        folder.write_rows("evaluation", self.evaluation.rows)
        status = "stopped" if self.evaluation.stopped else "finished"
        folder.update(status=status, result=self.evaluation.to_dict())


class _Opening:
    """Opens the programs of a choice, which asks no model yet.

    Args:
        run: The whole run.
        split: Which questions are asked.
        progress: Called with the name of each phase.
    """

    def __init__(self, run: Run, split: Part, progress: ProgressFactory) -> None:
        self._run = run
        self._split: Part = split
        self._progress = progress
        # Methods that write alike share their memories.
        self._memories = MemoryCache(run.folder.store.memories)

    def open(self, method: NamedMethod) -> _Candidate:
        """Return the program of a method, with a part of the run for its evaluation.

        Raises:
            UserError: There is no such method, or the settings do not fit it.
        """
        target = method.target
        if isinstance(target, str):
            target = pin_address(target)
        folder = self._folder(method)
        parent = Parent(folder, self._run.guard, tags={}, cache=self._memories)
        # The parts also share the meter, and models that are loaded into this process.
        run = replace(self._run, folder=folder, parent=parent)
        program, benchmark = run.load_target(target)
        evaluator = Evaluator(run, benchmark, self._progress, target)
        return _Candidate(method.label, run, parent, program, evaluator)

    def _folder(self, method: NamedMethod) -> RunFolder:
        """Return the folder for the evaluation of a method; a resumed run has it already."""
        settings = {
            "command": "evaluate",
            # Such a run cannot be repeated by itself, so `mempiler show` writes no file for it.
            "part_of": "choose",
            "program": method.label,
            **resume_key(self._run.inputs),
            "part": self._split,
        }
        short_name = file_name_of(method.label)[:60]
        # The name of the whole run ends with a random mark. With it, its parts are not
        # mistaken for those of another run.
        run_mark = self._run.folder.path.name.rpartition("-")[2]
        # The number tells methods apart whose names begin alike.
        return self._run.folder.child(f"{short_name}-{run_mark}-{method.number}", settings)


def in_order(
    inputs: RunInputs, questions: Sequence[dspy.Example], writes_with_model: bool
) -> list[dspy.Example]:
    """Return the questions in the order in which they are asked; the seed decides it.

    Where no method asks a model to write its memories, the order goes round the conversations: one
    question about each, then a second one about each. So the first questions cover as many
    conversations as possible. Otherwise all questions about one conversation come before those
    about the next. Its memory must be written, and paid for, before its first question; the further
    questions about it then cost little.

    Args:
        inputs: The benchmark and the seed.
        questions: The questions that count.
        writes_with_model: Whether any of the methods asks a model to write.
    """
    benchmark = inputs.benchmark
    shuffled = list(questions)
    random.Random(inputs.config.data.seed).shuffle(shuffled)
    if not writes_with_model:
        return benchmark.interleave(shuffled)

    by_conversation: dict[str, list[dspy.Example]] = {}
    for question in shuffled:
        by_conversation.setdefault(benchmark.group(question), []).append(question)
    return list(chain.from_iterable(by_conversation.values()))


@dataclass(frozen=True)
class _CandidateScorer:
    """Scores candidates on the questions, as `halve` asks for it."""

    candidates: Sequence[_Candidate]
    questions: Sequence[dspy.Example]
    """In the order in which they are asked."""

    @property
    def groups(self) -> list[str]:
        """The conversation or user of each question."""
        benchmark = self.candidates[0].evaluator.benchmark
        return [benchmark.group(question) for question in self.questions]

    def score_questions(self, candidate: int, start: int, stop: int) -> list[float]:
        """Return the scores of a candidate on the questions from `start` up to before `stop`.

        There are fewer scores if a limit was reached.
        """
        scored_candidate = self.candidates[candidate]
        questions = self.questions[:stop]
        title = f"{scored_candidate.label}, {stop} of {len(self.questions)} questions"
        evaluation = scored_candidate.score(questions, title)
        return _scores_before_limit(questions, evaluation)[start:]


def _scores_before_limit(questions: Sequence[dspy.Example], evaluation: Evaluation) -> list[float]:
    """Return the scores of the questions before the first one that was not asked.

    With several threads, a limit may stop a question while a later one is still answered.
    """
    scores: list[float] = []
    # The rows are in the order of the questions, without those that were not asked.
    for question, row in zip(questions, evaluation.rows, strict=False):
        if row.id != str(question.id):
            break
        scores.append(row.score)
    return scores


def _make_choice(
    run: Run,
    tracker: Tracker,
    scorer: _CandidateScorer,
    result: HalvingResult,
    usage: UsageReport,
    notes: tuple[str, ...],
) -> Choice:
    """Return the result that users see."""
    rows: list[ChoiceRow] = []
    for standing in result.standings:
        candidate = scorer.candidates[standing.candidate]
        row = ChoiceRow(
            program=candidate.label,
            run=candidate.run.folder.path,
            evaluation=candidate.evaluation,
            dropout=standing.dropout,
            difference=standing.difference,
        )
        rows.append(row)

    evaluations = [row.evaluation for row in rows if row.evaluation is not None]
    return Choice(
        rows=tuple(rows),
        difference=result.difference,
        benchmark=run.inputs.benchmark.name,
        lm=display_name(run.config.models.task.name),
        comparable=all(evaluation.comparable for evaluation in evaluations),
        question_count=len(scorer.questions),
        usage=metered_usage(usage),
        run=run.folder.path,
        run_id=tracker.run_id,
        stopped=run.guard.limit_hit,
        notes=notes,
    )


def _small_round_notes(scorer: _CandidateScorer, share: float, min_n: int) -> tuple[str, ...]:
    """Return a note if the first round has fewer questions than a verdict needs, else none."""
    size = first_round_size(len(scorer.candidates), len(scorer.questions), share)
    if size >= min_n or share == 1:
        return ()
    return (
        f"the first round asked only {size} questions, so a good method may look bad by chance;"
        " give more questions, or a larger --share (up to 1)",
    )


def _save_result(run: Run, tracker: Tracker, choice: Choice, min_n: int) -> None:
    """Write the result into the run's folder and into MLflow, with a page of the best two."""
    tracker.log_difference(choice.difference)
    scores: dict[str, float | None] = {}
    for row in choice.rows:
        scores[f"{file_name_of(row.program)}.score"] = row.score
    tracker.log_metrics(scores)
    tracker.log_json(RESULT_FILE, choice.to_dict())

    best_two = choice.rows[:2]
    if choice.difference.n > 0:
        # The page shows the second run minus the first. The leader comes second, so that it shows
        # the same difference as the result: leader minus runner-up.
        finished_runs = [load_run(str(row.run)) for row in reversed(best_two)]
        page = compare_runs(finished_runs, min_n)
        page_file = save_page(run.folder.path, page)
        if page_file is not None:
            tracker.log_file(page_file)

    status = "finished" if choice.stopped is None else "stopped"
    run.folder.update(status=status, result=choice.to_dict())
