"""Choose between methods: `run_choose` asks all of them a few questions, and the best ones more.

    choice = run_choose(["turn-rag", "session-rag", "fact-store"], inputs)
    choice.winner          # "session-rag", or None if the best two are not told apart

Who is asked how much, `halving.py` decides. Here the programs are opened, scored and logged. Every
method is an evaluation of its own, in a part of the run's folder and as an MLflow run below that of
the choice. All share the limits, the models and the memories of the run. Rows are kept as they
come, so a run that was stopped goes on with `--resume`.
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
"""What the rows of every method are filed under."""
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
    """Find the best of several methods, logged as one MLflow run with one below it for each.

    Args:
        targets: What is chosen from, each as `run_evaluate` takes it; two or more.
        inputs: Data, models, limits, and the settings of the methods.
        share: The share of all answers, each method on each question, that is asked for at most.
        split: Which questions: all, or a part of the split that compile uses.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.

    Raises:
        UserError: Fewer than two methods are named, one twice, or one that cannot be asked; or the
            share is out of range.
        EndpointError: A model cannot be reached; the message says how to resume.
    """
    entrants = entrants_of(targets)
    check_share(share)
    questions = questions_that_count(inputs, split)

    names = [entrant.label for entrant in entrants]
    settings = {"part": split, "share": share}
    run = Run.start(inputs, "choose", " ".join(names), settings, meter)
    usage_before = run.meter.read()
    with run.folder.recording(), ExitStack() as open_methods:
        run.record_python_objects(_python_objects(inputs, targets))
        # The programs first: a wrong name makes no MLflow run.
        opening = _Opening(run, split, progress)
        candidates: list[_Candidate] = []
        for entrant in entrants:
            candidate = opening.open(entrant)
            open_methods.enter_context(closing(candidate.program.method))
            candidates.append(candidate)

        writes_with_model = any(candidate.writes_with_model for candidate in candidates)
        contest = _Contest(candidates, in_order(inputs, questions, writes_with_model))
        min_n = inputs.config.execution.min_n
        logged = {**_parameters(names, inputs), **settings}
        with run.tracked("choose", inputs.benchmark.name, logged) as tracker:
            result = halve(contest.score_questions, contest.groups, len(candidates), share, min_n)
            for candidate in candidates:
                candidate.log(tracker, split)

            usage = run.meter.read() - usage_before
            notes = _notes(contest, share, min_n)
            choice = _make_choice(run, tracker, contest, result, usage, notes)
            _keep_result(run, tracker, choice, min_n)
    return choice


def check_share(share: float) -> None:
    """Raise a UserError if a share is not above 0 and up to 1."""
    check_number("share", share, 0, 1)
    if share == 0:
        raise UserError("share = 0: no question would be asked; give e.g. 0.3")


@dataclass(frozen=True)
class Entrant:
    """A method as the user named it."""

    number: int
    """Its place among the methods, from 1."""
    label: str
    """Its name in tables, which no other one has."""
    target: object


def entrants_of(targets: Sequence[object]) -> list[Entrant]:
    """Return the methods with names by which tables tell them apart.

    Raises:
        UserError: There are fewer than two, a name stands there twice, or one is a file of answers.
    """
    if len(targets) < 2:
        names = ", ".join(name_in_tables(target) for target in targets) or "none"
        raise UserError(f"there is nothing to choose from: {names}; name two methods or more")

    counts: Counter[str] = Counter()
    entrants: list[Entrant] = []
    for number, target in enumerate(targets, 1):
        name = name_in_tables(target)
        if isinstance(target, str) and target.endswith(ANSWER_FILE_ENDINGS):
            raise UserError(
                f"{target}: the answers of a file are there already; `mempiler evaluate` scores"
                " them, and `mempiler compare` compares"
            )
        counts[name] += 1
        if isinstance(target, str) and counts[name] > 1:
            raise UserError(f"{name}: is named twice; name each method once")
        # Two objects of one class have the same name.
        label = name if counts[name] == 1 else f"{name} #{counts[name]}"
        entrants.append(Entrant(number, label, target))
    return entrants


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
    """Return what of the run is an object of the caller's, see `repeating.python_objects`."""
    objects: set[str] = set()
    for target in targets:
        objects.update(python_objects(inputs, target))
    return sorted(objects)


def _parameters(names: Sequence[str], inputs: RunInputs) -> dict[str, Any]:
    """Return the settings of the choice as MLflow logs them; each method has its own beside."""
    source = inputs.benchmark.source
    config = inputs.config
    logged: dict[str, Any] = {
        "programs": ", ".join(names),
        "benchmark": inputs.benchmark.name,
        "data": source.path,
        "data_sha256": source.sha256,
        "lm": config.models.task.name,
        "seed": config.data.seed,
    }
    for name, limit in config.limits.as_dict().items():
        logged[f"limit.{name}"] = limit
    return logged


@dataclass
class _Candidate:
    """One of the methods: its program, and its scores on the questions so far."""

    label: str
    run: Run
    """Its part of the run."""
    parent: Parent
    """What it shares with the others."""
    program: MemoryProgram
    evaluator: Evaluator
    evaluation: Evaluation | None = None
    """Its scores on all questions so far; None before the first one."""
    _metered: UsageReport = field(default_factory=UsageReport)
    """What its evaluations took, without the answers that were there before."""
    _seconds: float = 0.0

    @property
    def writes_with_model(self) -> bool:
        """Whether writing its memories takes calls of a model, or another system."""
        return self.program.method.writer.calls_model

    def score(self, questions: Sequence[dspy.Example], title: str) -> Evaluation:
        """Score the program on questions; rows of earlier rounds are in the run's store.

        Args:
            questions: Those of earlier rounds, and the new ones.
            title: What people are shown as the name of the phase.
        """
        usage_before = self.run.meter.read()
        with self.run.context(self.program):
            evaluation = self.evaluator(self.program, questions, _PHASE, title)

        # The meter counted this round alone, and the evaluation is about all rounds.
        self._metered += self.run.meter.read() - usage_before
        self._seconds += evaluation.seconds
        metered = metered_usage(self._metered)
        evaluation = evaluation.model_copy(update={**metered, "seconds": self._seconds})
        self.evaluation = evaluation
        return evaluation

    def log(self, choice_tracker: Tracker, split: Part) -> None:
        """Log the scores as an MLflow run, and keep rows and page in the folder of this part.

        Args:
            choice_tracker: The MLflow run of the choice, below which this one stands.
            split: Which questions the methods were chosen by.
        """
        if self.evaluation is None:
            return
        name = f"{self.program.name}-{self.evaluator.benchmark.name}"
        settings = parameters(self.program, self.run.config, self.evaluator.benchmark)
        logged = {**settings, "part": split}
        note = f"asked {len(self.evaluation.rows)} questions, as one of the methods of a choice"
        tags = {"mlflow.parentRunId": choice_tracker.run_id, "variant": self.label}
        run = replace(self.run, parent=replace(self.parent, tags=tags))
        with run.context(self.program), run.tracked("evaluate", name, logged) as tracker:
            self.evaluation = log_evaluation(
                self.evaluator, tracker, self.program, self.evaluation, split, [note]
            )

        folder = self.run.folder
        folder.write_rows("evaluation", self.evaluation.rows)
        status = "stopped" if self.evaluation.stopped else "finished"
        folder.update(status=status, result=self.evaluation.to_dict())


class _Opening:
    """Opens the programs of a choice; nothing is paid for.

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

    def open(self, entrant: Entrant) -> _Candidate:
        """Return the program of a method, with a part of the run for its evaluation.

        Raises:
            UserError: There is no such method, or the settings do not fit it.
        """
        target = entrant.target
        if isinstance(target, str):
            target = pin_address(target)
        folder = self._folder(entrant)
        parent = Parent(folder, self._run.guard, tags={}, cache=self._memories)
        # The parts also share the meter, and models that are loaded into this process.
        run = replace(self._run, folder=folder, parent=parent)
        program, benchmark = run.load_target(target)
        evaluator = Evaluator(run, benchmark, self._progress, target)
        return _Candidate(entrant.label, run, parent, program, evaluator)

    def _folder(self, entrant: Entrant) -> RunFolder:
        """Return the folder for the evaluation of a method; it is there if the run is resumed."""
        settings = {
            "command": "evaluate",
            # Such a run cannot be repeated by itself, so `mempiler show` writes no file for it.
            "part_of": "choose",
            "program": entrant.label,
            **resume_key(self._run.inputs),
            "part": self._split,
        }
        # The number tells methods apart whose names begin alike, and the end of the run's own name
        # tells its parts from those of other runs.
        short_name = file_name_of(entrant.label)[:60]
        mark = self._run.folder.path.name.rpartition("-")[2]
        return self._run.folder.child(f"{short_name}-{mark}-{entrant.number}", settings)


def in_order(
    inputs: RunInputs, questions: Sequence[dspy.Example], writes_with_model: bool
) -> list[dspy.Example]:
    """Return the questions in the order in which they are asked; the seed decides it.

    Where no method asks a model to write, the first questions are about as many conversations as
    possible. Otherwise one conversation follows the other: the first question about one takes its
    whole memory, for every method, and the further ones cost little.

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
class _Contest:
    """The candidates and the questions, in the order in which these are asked."""

    candidates: Sequence[_Candidate]
    questions: Sequence[dspy.Example]

    @property
    def groups(self) -> list[str]:
        """The conversation or user of each question."""
        benchmark = self.candidates[0].evaluator.benchmark
        return [benchmark.group(question) for question in self.questions]

    def score_questions(self, candidate: int, start: int, stop: int) -> list[float]:
        """Return the scores of a candidate on some of the questions, as `halve` asks for them."""
        scored = self.candidates[candidate]
        questions = self.questions[:stop]
        title = f"{scored.label}, {stop} of {len(self.questions)} questions"
        evaluation = scored.score(questions, title)
        return _scores_before_gap(questions, evaluation)[start:]


def _scores_before_gap(questions: Sequence[dspy.Example], evaluation: Evaluation) -> list[float]:
    """Return the scores of questions, up to the first one that a limit kept from being asked."""
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
    contest: _Contest,
    result: HalvingResult,
    usage: UsageReport,
    notes: tuple[str, ...],
) -> Choice:
    """Return the result of a contest, whose candidates are logged."""
    rows: list[ChoiceRow] = []
    for standing in result.standings:
        candidate = contest.candidates[standing.candidate]
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
        question_count=len(contest.questions),
        usage=metered_usage(usage),
        run=run.folder.path,
        run_id=tracker.run_id,
        stopped=run.guard.limit_hit,
        notes=notes,
    )


def _notes(contest: _Contest, share: float, min_n: int) -> tuple[str, ...]:
    """Return a note if the first round is too small to tell methods apart."""
    size = first_round_size(len(contest.candidates), len(contest.questions), share)
    if size >= min_n or share == 1:
        return ()
    return (
        f"the first round asked only {size} questions, so a good method may have left by chance;"
        " --share 1 asks the most, and more questions help",
    )


def _keep_result(run: Run, tracker: Tracker, choice: Choice, min_n: int) -> None:
    """Write the result into the run's folder and into MLflow, with a page of the best two."""
    tracker.log_difference(choice.difference)
    scores: dict[str, float | None] = {}
    for row in choice.rows:
        scores[f"{file_name_of(row.program)}.score"] = row.score
    tracker.log_metrics(scores)
    tracker.log_json(RESULT_FILE, choice.to_dict())

    best_two = choice.rows[:2]
    if choice.difference.n > 0:
        # The leader comes second, so that the difference on the page is that of the result.
        finished_runs = [load_run(str(row.run)) for row in reversed(best_two)]
        page = compare_runs(finished_runs, min_n)
        page_file = save_page(run.folder.path, page)
        if page_file is not None:
            tracker.log_file(page_file)

    status = "finished" if choice.stopped is None else "stopped"
    run.folder.update(status=status, result=choice.to_dict())
