"""Labelled demos: what the answering predictor is asked for a training question, and its answer.

    question -> recall a context -> does it hold the evidence? -> shorten it -> inputs of the task
                                                                                + gold answer

A demo whose context lacks the evidence would teach a model to guess. So questions are chosen whose
evidence was recalled in full, or by half where no question has more. If a task asks several
predictors in a row, the first has the demos.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dspy

from ..errors import MempilerError, ProgramError
from ..programs.call_recorder import PredictorCall
from ..programs.field_values import dump_values, load_values
from ..programs.predictor import DEMO_PREDICTOR_KEY
from ..programs.recording import recording
from ..programs.state import signature_of
from ..programs.tasks.behavior import newest_actions
from ..records import Context, Query, estimate_tokens
from .demo_lengths import prompt_tokens_of_window, tokens_of_demo, tokens_of_fields
from .demo_limits import DemoLimits
from .job import OptimizerJob
from .shortened_context import shorten_context

MIN_EVIDENCE_SHARE = 0.5
"""The smallest share of a question's evidence that a demo may hold."""


class DemoExample(dspy.Example):
    """A demo that is also the training question it was made from.

    DSPy takes training questions for demos and reads their fields, so these are the demo's fields.
    Its inputs, with which DSPy runs a program, are those of the question.
    """

    def __init__(
        self, base: Any = None, *, question: dspy.Example | None = None, **fields: Any
    ) -> None:
        super().__init__(base, **fields)
        if question is None:
            question = getattr(base, "_question", None)
        self._question: Any = question

    def inputs(self) -> dspy.Example:
        return self._question.inputs()

    def __deepcopy__(self, memo: dict[int, Any]) -> DemoExample:
        # Optimizers copy programs with their demos; the histories in the questions need no copies.
        return self.copy()


def question_of(example: dspy.Example) -> dspy.Example:
    """Return the training question that a demo was made from; any other example as it is."""
    return example._question if isinstance(example, DemoExample) else example


def without_question(demo: Any) -> Any:
    """Return a demo without the training question it was made from."""
    return dspy.Example(dict(demo.items())) if isinstance(demo, DemoExample) else demo


@dataclass(frozen=True)
class _TaskInputs:
    """What a task is run with."""

    context: Context
    query: Query


@dataclass(frozen=True)
class _Request:
    """What the answering predictor is asked for a training question."""

    short_call: PredictorCall
    """The call with shortened inputs, which the demo shows."""
    full_tokens: int
    """Tokens of the inputs of the call with the whole context."""
    evidence_share: float
    """The share of the question's evidence that the shortened inputs hold."""


@dataclass(frozen=True)
class _Candidate:
    """A demo, and the share of its question's evidence that it holds."""

    demo: DemoExample
    evidence_share: float

    @property
    def is_complete(self) -> bool:
        """Whether the demo holds all evidence of its question."""
        return self.evidence_share == 1


@dataclass(frozen=True)
class _DemoBudget:
    """How many tokens all demos of a prompt may have, and what sets that limit."""

    tokens: int
    reason: str


class DemoBuilder:
    """Makes the labelled demos of a job, and keeps all demos within their limits."""

    def __init__(self, job: OptimizerJob, limits: DemoLimits) -> None:
        self._job = job
        self._limits = limits

        self._task: Any = copy.deepcopy(job.student.task)
        # The task runs here without a model, to see what its predictors are asked. A model that an
        # earlier optimizer has bound to them would answer.
        self._task.set_lm(None)
        for predictor in self._task.predictors():
            predictor.demos = []

        tunable_names = {name for name, _ in job.student.named_predictors()}
        self._predictors: dict[str, Any] = {}
        for predictor in self._task.predictors():
            path = getattr(predictor, "path", "")
            if path in tunable_names:
                self._predictors[path] = predictor

        # Threads only append, and only the maximum is read, so the order does not matter.
        self._request_tokens: list[int] = []

    def build_demos(self, num_demos: int, max_tries: int | None = None) -> list[DemoExample]:
        """Return demos of the first training questions that make one, spread over the categories.

        Questions of all categories take turns, first to be tried, and then to be returned.

        Args:
            num_demos: How many demos are wanted.
            max_tries: How many questions are tried at most; None tries all.
        """
        if num_demos < 1:
            return []

        usable = [example for example in self._job.train if self._has_gold_answer(example)]
        questions = self._spread_over_categories(usable)
        if max_tries:
            questions = questions[:max_tries]
        candidates = self._try_questions(questions, num_demos)

        demos = [candidate.demo for candidate in candidates if candidate.is_complete]
        if candidates and not demos:
            # Demos with a part of the evidence serve only where none has all of it: those with the
            # most evidence first, which holds within each category until the end. The smallest
            # part is `MIN_EVIDENCE_SHARE`.
            candidates.sort(key=lambda candidate: candidate.evidence_share, reverse=True)
            demos = [candidate.demo for candidate in candidates]
            self._job.on_note(
                "labelled demos: no question was recalled with all of its evidence; "
                "they hold half or more"
            )

        if questions and not demos:
            reason = "none could be recalled"
            if questions[0].get("evidence_ids"):
                reason = "none was recalled with half of its evidence"
            self._job.on_note(f"no labelled demos: of {len(questions)} training questions {reason}")

        # Some questions made no demo, so the categories no longer take turns evenly.
        return self._spread_over_categories(demos)[:num_demos]

    def _try_questions(self, questions: Sequence[dspy.Example], num_demos: int) -> list[_Candidate]:
        """Build demos of the questions, until `num_demos` of them hold all of their evidence.

        The result may have more demos than that: the others hold a part of their evidence.
        """
        candidates: list[_Candidate] = []
        complete_count = 0
        pool = ThreadPoolExecutor(max(1, self._job.threads))
        try:
            # As many questions are tried at a time as demos are wanted. To try all of them at once
            # would be faster, but recalling may cost calls, and the first may be enough.
            for start in range(0, len(questions), num_demos):
                futures = []
                for question in questions[start : start + num_demos]:
                    # DSPy's settings are context variables, which threads do not inherit.
                    context = contextvars.copy_context()
                    futures.append(pool.submit(context.run, self._build_demo, question))

                for future in futures:
                    candidate = future.result()
                    if candidate is None:
                        continue
                    candidates.append(candidate)
                    if candidate.is_complete:
                        complete_count += 1
                if complete_count >= num_demos:
                    break
        finally:
            pool.shutdown(cancel_futures=True)
        return candidates

    def count_fitting(
        self, demos: Sequence[DemoExample], wanted: int, num_bootstrapped: int = 0
    ) -> int:
        """Return how many demos fit a prompt beside the request, whichever DSPy chooses.

        DSPy decides later how many demos of a prompt are bootstrapped and how many are labelled.
        The prompt is longest either if none is bootstrapped, or if as many as possible are: every
        bootstrapped demo in place of a labelled one changes the length by the same amount. So the
        number is returned that fits in both cases.

        Args:
            demos: The labelled demos that were built.
            wanted: How many demos a prompt shall have, bootstrapped ones included.
            num_bootstrapped: How many of them may be bootstrapped: inputs and outputs of real
                calls.
        """
        if not demos:
            # All demos will be bootstrapped, and these are shortened so that they fit.
            return wanted

        budget = self._demo_budget()
        longest_labeled = max(tokens_of_demo(demo) for demo in demos)
        fitting_if_all_labeled = budget.tokens // longest_labeled

        # A bootstrapped demo is a real call, so it is taken to be as long as the longest request
        # of the training questions. It is not longer than its share of the budget, since longer
        # ones get shortened (`shorten_trace`).
        share_of_budget = budget.tokens // max(1, num_bootstrapped)
        longest_bootstrapped = min(max(self._request_tokens), share_of_budget)
        tokens_beside_bootstrapped = budget.tokens - num_bootstrapped * longest_bootstrapped
        fitting_beside_bootstrapped = tokens_beside_bootstrapped // longest_labeled
        fitting_if_mixed = num_bootstrapped + fitting_beside_bootstrapped

        fitting = min(wanted, fitting_if_all_labeled, fitting_if_mixed)
        if fitting < wanted:
            self._job.on_note(
                f"{fitting} of {wanted} demos fit a prompt: "
                f"they may have {budget.tokens:,} tokens ({budget.reason})"
            )
        return fitting

    def shortening_metric(
        self, metric: Callable[..., Any], num_bootstrapped: int
    ) -> Callable[..., Any]:
        """Return a metric that also shortens the calls which become bootstrapped demos.

        DSPy makes demos of the calls in the trace of a good answer. There is no place in between to
        shorten them, but before, DSPy passes the trace to the metric. So the metric changes it.

        Args:
            metric: Scores the answers; one of `MetricViews`.
            num_bootstrapped: How many bootstrapped demos a prompt may have.
        """

        def shortening_metric(example: dspy.Example, prediction: Any, trace: Any = None) -> Any:
            question = question_of(example)
            # The metric sees the calls as they were.
            score = metric(question, prediction, trace)
            if trace:
                self.shorten_trace(trace, question, prediction, num_bootstrapped)
            return score

        return shortening_metric

    def shorten_trace(
        self,
        trace: list[Any],
        example: dspy.Example,
        prediction: Any,
        num_bootstrapped: int,
    ) -> None:
        """Shorten in `trace` what the answering predictors were shown, where it is too long.

        A call that is longer than its share of the demos' budget gets the inputs that the predictor
        would be shown with a shortened context. That these fit is not checked again: they may have
        `demo_context_tokens`, and demos that exceed a model's window are removed at the end
        (`drop_demos_beyond_window`).

        Args:
            trace: Predictors with their inputs and outputs, as DSPy records them; it is changed.
            example: The question.
            prediction: The program's prediction, with its context.
            num_bootstrapped: How many bootstrapped demos a prompt may have.
        """
        context = prediction.get("context") if prediction else None
        if context is None:
            return

        # All bootstrapped demos share the budget of a prompt equally.
        max_tokens = self._demo_budget().tokens // max(1, num_bootstrapped)
        for position, (predictor, inputs, outputs) in enumerate(trace):
            path = getattr(predictor, "path", "")
            is_answering = path in self._predictors
            if not is_answering or tokens_of_fields(inputs) <= max_tokens:
                continue

            full_inputs = _TaskInputs(context, self._job.student.query_of(example))
            short_call = self._record_request(self._shorten(example, full_inputs))
            if short_call is not None and short_call.predictor.path == path:
                trace[position] = (predictor, {**inputs, **short_call.inputs}, outputs)

    def _demo_budget(self) -> _DemoBudget:
        """Return the tokens that the demos of a prompt may have, by the settings and the model."""
        max_tokens = self._limits.max_demo_tokens
        window = getattr(self._job.task_lm, "window", None)
        if window is None:
            # Only models in this process tell their window, which is how long a prompt may be.
            return _DemoBudget(max_tokens, "max_demo_tokens")

        # The demos have what is left beside the longest instructions and the longest request.
        instruction_tokens = 0
        for predictor in self._predictors.values():
            # The name of the field is of no importance: only its text and its heading are counted.
            instructions = {"instructions": signature_of(predictor).instructions}
            instruction_tokens = max(instruction_tokens, tokens_of_fields(instructions))
        request_tokens = max(self._request_tokens, default=0)
        free_tokens = prompt_tokens_of_window(window) - instruction_tokens - request_tokens
        if free_tokens >= max_tokens:
            return _DemoBudget(max_tokens, "max_demo_tokens")
        return _DemoBudget(max(0, free_tokens), f"the model's window of {window:,}")

    def _spread_over_categories(self, examples: Sequence[Any]) -> list[Any]:
        """Order examples so that each category has its turn; within one the order stays."""
        by_category: dict[str, list[Any]] = {}
        for example in examples:
            category = self._job.category(question_of(example))
            by_category.setdefault(category, []).append(example)

        longest = max((len(group) for group in by_category.values()), default=0)
        spread: list[Any] = []
        for position in range(longest):
            for _, group in sorted(by_category.items()):
                if position < len(group):
                    spread.append(group[position])
        return spread

    def _has_gold_answer(self, example: dspy.Example) -> bool:
        return any(_gold_outputs(predictor, example) for predictor in self._predictors.values())

    def _build_demo(self, example: dspy.Example) -> _Candidate | None:
        """Return the demo of a question; None if the question is not fit for one.

        Raises:
            MempilerError: No further question can be tried, e.g. because a limit was reached.
        """
        try:
            request = self._request_for(example)
        except MempilerError:
            raise
        except Exception:
            # The program fails on this question, perhaps not on the others.
            return None
        if request is None:
            return None

        # `_demo_budget` needs the longest request. This one counts even if it becomes no demo: the
        # program may be asked questions as long as this.
        self._request_tokens.append(request.full_tokens)
        demo = self._demo_of_call(example, request.short_call)
        return None if demo is None else _Candidate(demo, request.evidence_share)

    def _demo_of_call(self, example: dspy.Example, call: PredictorCall) -> DemoExample | None:
        """Return the demo that shows a call with the gold answer of its question.

        The result is None if the demo could not be saved together with the answer, or if it is too
        long for a prompt.
        """
        predictor: Any = call.predictor
        signature = signature_of(predictor)
        fields = {**call.inputs, **_gold_outputs(predictor, example)}
        try:
            # A compiled program is saved and loaded. The demo has the fields as they come back from
            # that, so that the optimizer learns from what will be shown later.
            loaded_fields = load_values(signature, dump_values(signature, fields), predictor.path)
        except ProgramError:
            # Some values, such as images, cannot be saved in a demo.
            return None

        if not _gold_outputs(predictor, loaded_fields):
            return None
        if tokens_of_fields(loaded_fields.toDict()) > self._limits.max_demo_tokens:
            return None
        demo_fields = {**dict(loaded_fields.items()), DEMO_PREDICTOR_KEY: predictor.path}
        return DemoExample(demo_fields, question=example)

    def _request_for(self, example: dspy.Example) -> _Request | None:
        """Return the request that the program sends to answer a question, for a demo.

        A demo has to be short, so it shows the request with a shortened context. The length of the
        request with the whole context is returned, too: it decides how much room a prompt has for
        demos.

        Returns:
            The request. None if the shortened context holds too little of the question's evidence,
            or if no predictor that the optimizer may change is asked.
        """
        program = self._job.student
        with dspy.context(trace=None, adapter=program.current_adapter()):
            recalled = program.recall_for(example)

        full_inputs = _TaskInputs(recalled.context, recalled.query)
        short_inputs = self._shorten(example, full_inputs)
        evidence_share = _evidence_share(example, short_inputs)
        if evidence_share < MIN_EVIDENCE_SHARE:
            return None

        short_call = self._record_request(short_inputs)
        full_call = self._record_request(full_inputs)
        if short_call is None or full_call is None:
            return None
        return _Request(
            short_call=short_call,
            full_tokens=tokens_of_fields(full_call.inputs),
            evidence_share=evidence_share,
        )

    def _shorten(self, example: dspy.Example, task_inputs: _TaskInputs) -> _TaskInputs:
        """Return the inputs of a task with a shorter context and fewer shown items.

        The context and the items may have `demo_context_tokens` each. They are measured as prompts
        show them: there the words of relative dates have the date beside them.
        """
        max_tokens = self._limits.demo_context_tokens

        # The context keeps the evidence of the question.
        evidence_ids = tuple(example.get("evidence_ids") or ())
        context = self._task.context_as_shown(task_inputs.context)
        short_context = shorten_context(context, evidence_ids, max_tokens)

        # Some tasks, such as those about behavior, show a user's latest actions beside the context.
        # They are the items of the query, and the newest of them stay.
        query = task_inputs.query
        items = self._task.items_as_shown(query.shown_items)
        item_tokens = 0
        for item in items:
            for line in item.lines():
                item_tokens += estimate_tokens(line)
        if item_tokens > max_tokens:
            items = newest_actions(items, max_tokens)

        short_query = query.model_copy(update={"shown_items": tuple(items)})
        return _TaskInputs(short_context, short_query)

    def _record_request(self, task_inputs: _TaskInputs) -> PredictorCall | None:
        """Return the call of the answering predictor, recorded without calling a model.

        The result is None if the task asks no predictor that the optimizer may change.
        """
        # The task is run without a model, to see what it asks. It fails at its first predictor, but
        # by then the call is recorded, and the error is of no interest.
        without_model = dspy.context(lm=None, trace=None, callbacks=[])
        with recording() as recorder, without_model, suppress(Exception):
            self._task(context=task_inputs.context, query=task_inputs.query)

        # A user's task may catch the error of one predictor and ask another.
        for call in recorder.calls:
            if getattr(call.predictor, "path", "") in self._predictors:
                return call
        return None


def _evidence_share(example: dspy.Example, task_inputs: _TaskInputs) -> float:
    """Return the share of a question's evidence that a task is shown; 1 for one without evidence.

    The evidence of a question is the turns that hold its answer. A task is shown the turns behind
    the hits of its context, and those in the items of its query.
    """
    evidence_ids = set(example.get("evidence_ids") or ())
    if not evidence_ids:
        return 1.0

    context = task_inputs.context
    if any(hit.is_evidence for hit in context.hits):
        recalled_ids = context.evidence
    else:
        # All hits are summaries and the like, which rest on many turns. Such a hit is no proof that
        # its turns were found, so it counts only where there is no better one.
        recalled_ids = context.sources
    shown_ids = {*recalled_ids, *task_inputs.query.shown_turn_ids}
    return len(evidence_ids & shown_ids) / len(evidence_ids)


def _gold_outputs(predictor: Any, example: Any) -> dict[str, Any]:
    """Return the outputs of a predictor that an example has, without empty ones."""
    outputs: dict[str, Any] = {}
    for name in signature_of(predictor).output_fields:
        if name in example and example[name] not in (None, "", [], ()):
            outputs[name] = example[name]
    return outputs
