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
class _Request:
    """What the answering predictor is asked for a training question."""

    call: PredictorCall
    """The call, with a shortened context."""
    full_tokens: int
    """Tokens of the inputs with the whole context."""
    evidence_share: float
    """The share of the question's evidence that the shortened inputs hold."""


@dataclass(frozen=True)
class _Candidate:
    """A demo, and the share of its question's evidence that it holds."""

    demo: DemoExample
    evidence_share: float


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

        demos = [candidate.demo for candidate in candidates if candidate.evidence_share == 1]
        if candidates and not demos:
            # Demos with a part of the evidence serve only where none has all of it.
            candidates.sort(key=lambda candidate: -candidate.evidence_share)
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
        return self._spread_over_categories(demos)[:num_demos]

    def _try_questions(self, questions: Sequence[dspy.Example], num_demos: int) -> list[_Candidate]:
        """Build demos of the questions, until `num_demos` of them hold all of their evidence."""
        candidates: list[_Candidate] = []
        complete_count = 0
        pool = ThreadPoolExecutor(max(1, self._job.threads))
        try:
            # As many questions at a time as demos are wanted: recalling may cost calls.
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
                    if candidate.evidence_share == 1:
                        complete_count += 1
                if complete_count >= num_demos:
                    break
        finally:
            pool.shutdown(cancel_futures=True)
        return candidates

    def count_fitting(
        self, demos: Sequence[DemoExample], wanted: int, num_bootstrapped: int = 0
    ) -> int:
        """Return how many demos fit a prompt beside the request.

        Which demos a prompt gets is decided later. So that they fit in any case, two extremes are
        computed, and the lower number is returned: all demos are labelled, or as many as possible
        are bootstrapped.

        Args:
            demos: The labelled demos that were built.
            wanted: How many demos a prompt shall have, bootstrapped ones included.
            num_bootstrapped: How many of them may be bootstrapped: inputs and outputs of real
                calls.
        """
        if not demos:
            return wanted

        budget = self._demo_budget()
        longest_labeled = max(tokens_of_demo(demo) for demo in demos)
        fitting_if_all_labeled = budget.tokens // longest_labeled

        # A bootstrapped demo is a real call, so it is taken to be as long as the longest request
        # of the training questions. One that is longer than its share of the budget gets shortened
        # later (`shorten_trace`).
        share = budget.tokens // max(1, num_bootstrapped)
        longest_bootstrapped = min(max(self._request_tokens), share)
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
        self, view: Callable[..., Any], num_bootstrapped: int
    ) -> Callable[..., Any]:
        """Return a metric that also shortens the traces it is given.

        DSPy makes demos of the trace of a good answer, and passes the trace to the metric first.

        Args:
            view: The metric, one of `MetricViews`.
            num_bootstrapped: How many demos of this kind a prompt may have.
        """

        def metric(example: dspy.Example, prediction: Any, trace: Any = None) -> Any:
            question = question_of(example)
            value = view(question, prediction, trace)
            if trace:
                self.shorten_trace(trace, question, prediction, num_bootstrapped)
            return value

        return metric

    def shorten_trace(
        self,
        trace: list[Any],
        example: dspy.Example,
        prediction: Any,
        num_bootstrapped: int,
    ) -> None:
        """Replace inputs of the answering predictor in `trace` that exceed their share of a prompt.

        The new inputs are what the predictor would be asked with a shortened context.

        Args:
            trace: Predictors with their inputs and outputs, as DSPy records them; it is changed.
            example: The question.
            prediction: The program's prediction, with its context.
            num_bootstrapped: How many demos of this kind a prompt may have.
        """
        context = prediction.get("context") if prediction else None
        if context is None:
            return

        for position, (predictor, inputs, outputs) in enumerate(trace):
            path = getattr(predictor, "path", "")
            if path not in self._predictors:
                continue
            # All demos of this kind share the budget of a prompt equally.
            max_tokens = self._demo_budget().tokens // max(1, num_bootstrapped)
            if tokens_of_fields(inputs) <= max_tokens:
                continue

            query = self._job.student.query_of(example)
            short_context, short_query = self._shorten(example, context, query)
            call = self._record_request(short_context, short_query)
            if call is not None and call.predictor.path == path:
                trace[position] = (predictor, {**inputs, **call.inputs}, outputs)

    def _demo_budget(self) -> _DemoBudget:
        """Return the tokens that the demos of a prompt may have, by the settings and the model."""
        max_tokens = self._limits.max_demo_tokens
        # Only models in this process tell how long a prompt may be.
        window = getattr(self._job.task_lm, "window", None)
        if window is None:
            return _DemoBudget(max_tokens, "max_demo_tokens")

        # The demos have what is left beside the longest instructions and the longest request.
        instruction_tokens = 0
        for predictor in self._predictors.values():
            # Counted like one more field of the prompt.
            instructions = {"": signature_of(predictor).instructions}
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
        """Return the demo of a question; None if none can be made, whatever the reason."""
        try:
            request = self._request_for(example)
        except MempilerError:
            # A limit was reached, or the endpoint is dead.
            raise
        except Exception:
            # The program fails on this question, perhaps not on the others.
            return None
        if request is None:
            return None

        # The demos' budget depends on the longest request.
        self._request_tokens.append(request.full_tokens)
        predictor = request.call.predictor
        signature = signature_of(predictor)
        fields = {**request.call.inputs, **_gold_outputs(predictor, example)}
        try:
            # The fields as they come back from a saved program: what saving loses is no demo.
            values = load_values(signature, dump_values(signature, fields), "")
        except ProgramError:
            return None
        if not _gold_outputs(predictor, values):
            return None
        if tokens_of_fields(values.toDict()) > self._limits.max_demo_tokens:
            return None

        demo_fields = {**dict(values.items()), DEMO_PREDICTOR_KEY: predictor.path}
        return _Candidate(DemoExample(demo_fields, question=example), request.evidence_share)

    def _request_for(self, example: dspy.Example) -> _Request | None:
        """Return what the answering predictor is asked; None if too little evidence is recalled.

        The demo shows the request with a shortened context. The request with the whole context is
        made as well, because its length decides how much room a prompt has for demos.
        """
        program = self._job.student
        with dspy.context(trace=None, adapter=program.current_adapter()):
            query, context, _ = program.recall_for(example)

        short_context, short_query = self._shorten(example, context, query)
        evidence_share = _evidence_share(example, short_context, short_query)
        if evidence_share < MIN_EVIDENCE_SHARE:
            return None

        short_call = self._record_request(short_context, short_query)
        full_call = self._record_request(context, query)
        if short_call is None or full_call is None:
            return None
        return _Request(short_call, tokens_of_fields(full_call.inputs), evidence_share)

    def _shorten(
        self, example: dspy.Example, context: Context, query: Query
    ) -> tuple[Context, Query]:
        """Return context and query, each shortened to the tokens of a demo's context.

        The context is shortened around its evidence. Of the actions that a query shows, as in
        tasks about behavior, the newest stay.
        """
        max_tokens = self._limits.demo_context_tokens

        # Both are measured as the task shows them: resolved dates make lines longer.
        items = self._task.items_as_shown(query.shown_items)
        item_tokens = 0
        for item in items:
            for line in item.lines():
                item_tokens += estimate_tokens(line)
        if item_tokens > max_tokens:
            items = newest_actions(items, max_tokens)

        evidence_ids = tuple(example.get("evidence_ids") or ())
        shown_context = self._task.context_as_shown(context)
        short_context = shorten_context(shown_context, evidence_ids, max_tokens)
        return short_context, query.model_copy(update={"shown_items": tuple(items)})

    def _record_request(self, context: Context, query: Query) -> PredictorCall | None:
        """Return what the answering predictor would be asked; no model is called.

        None if the task does not ask one of the predictors that the optimizer may change.
        """
        without_model = dspy.context(lm=None, trace=None, callbacks=[])
        # Without a model, the task fails at its first predictor. Its call is recorded by then, and
        # the error is of no interest.
        with recording() as recorder, without_model, suppress(Exception):
            self._task(context=context, query=query)
        for call in recorder.calls:
            if getattr(call.predictor, "path", "") in self._predictors:
                return call
        return None


def _evidence_share(example: dspy.Example, context: Context, query: Query) -> float:
    """Return the share of a question's evidence that context and query show; 1 without evidence."""
    evidence_ids = set(example.get("evidence_ids") or ())
    if not evidence_ids:
        return 1.0

    # Hits such as summaries do not rest on particular turns. So the turns that they name count
    # only where no other hit was recalled.
    has_evidence_hits = any(hit.is_evidence for hit in context.hits)
    recalled_ids = context.evidence if has_evidence_hits else context.sources
    shown_ids = {*recalled_ids, *query.shown_turn_ids}
    return len(evidence_ids & shown_ids) / len(evidence_ids)


def _gold_outputs(predictor: Any, example: Any) -> dict[str, Any]:
    """Return the outputs of a predictor that an example has, without empty ones."""
    outputs: dict[str, Any] = {}
    for name in signature_of(predictor).output_fields:
        if name in example and example[name] not in (None, "", [], ()):
            outputs[name] = example[name]
    return outputs
