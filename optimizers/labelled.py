"""Labelled demos: what the answering predictor is shown for a training question, with the gold answer.

    question ── remember, recall ──> context ── holds the evidence? ── shortened around it ──> inputs of the task
                                                 └ no: another question                        + gold answer

An answer out of nothing teaches guessing: evidence has to be recalled, all of it, or half where no question has all. A
task that asks several predictors in a row has demos for the first alone. Lengths are estimates.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate
from typing import Any

import dspy

from ..errors import MempilerError, ProgramError
from ..programs.call_recorder import PredictorCall
from ..programs.field_values import dump_values, load_values
from ..programs.predictor import DEMO_PREDICTOR_KEY
from ..programs.program import MemoryProgram
from ..programs.recording import recording
from ..programs.state import signature_of
from ..programs.tasks.behavior import newest_actions
from ..records import Context, Hit, Query, estimate_tokens
from .job import OptimizerJob

MOST_HITS = 6
"""Entries of a demo's context, those that hold evidence not counted."""
MIN_EVIDENCE_SHARE = 0.5
"""The share of a question's evidence that a demo holds at least."""
ANSWER_TOKENS = 1024
"""Tokens of a model's window that are kept for the answer."""
MAX_WINDOW_SHARE = 0.75
"""The share of a model's window that prompts may fill: lengths are estimates."""
FIELD = 12
"""Tokens of the marks around a field."""


class TaskExample(dspy.Example):
    """A training question whose fields are those of a demo, which DSPy takes it for; its inputs are the program's."""

    def __init__(self, base: Any = None, *, asked: dspy.Example | None = None, **fields: Any) -> None:
        super().__init__(base, **fields)
        self._question: Any = asked if asked is not None else getattr(base, "_question", None)

    def inputs(self) -> dspy.Example:
        return self._question.inputs()

    def __deepcopy__(self, memo: dict[int, Any]) -> TaskExample:
        # Optimizers copy programs with their demos; whole histories need no copies.
        return self.copy()


def question_of(example: dspy.Example) -> dspy.Example:
    """The training question itself."""
    return example._question if isinstance(example, TaskExample) else example


def plain(demo: Any) -> Any:
    """A demo without the question it was made of."""
    return dspy.Example(dict(demo.items())) if isinstance(demo, TaskExample) else demo


class DemoBuilder:
    """Makes the labelled demos of a job, and keeps all demos within its `demo_context_tokens` and `max_demo_tokens`."""

    def __init__(self, job: OptimizerJob) -> None:
        self._job = job
        self._task: Any = copy.deepcopy(job.student.task)
        # An LM that an earlier step has bound would answer; here the predictors are only seen to be asked.
        self._task.set_lm(None)
        for predictor in self._task.predictors():
            predictor.demos = []
        visible = {name for name, _ in job.student.named_predictors()}
        self._own = {p.path: p for p in self._task.predictors() if getattr(p, "path", "") in visible}
        self._context: int = job.settings["demo_context_tokens"]
        self._lengths: list[int] = []
        """Tokens of the requests that were seen. Threads only append: what is read is the longest, in any order."""

    def demos(self, num_demos: int, max_tries: int | None = None) -> list[TaskExample]:
        """Return demos of the first training questions that make one, spread over the categories.

        At most `max_tries` questions are tried, or all.
        """
        if num_demos < 1:
            return []
        asked = self._spread([example for example in self._job.train if self._answers(example)])
        found: list[TaskExample] = []
        partly: list[tuple[float, TaskExample]] = []
        pool = ThreadPoolExecutor(max(1, self._job.threads))
        try:
            for at in range(0, min(len(asked), max_tries or len(asked)), max(1, num_demos)):
                futures = [
                    pool.submit(contextvars.copy_context().run, self._demo, e) for e in asked[at : at + num_demos]
                ]
                for share, demo in filter(None, [future.result() for future in futures]):
                    found += [demo] if share == 1 else []
                    partly += [(share, demo)] if share < 1 else []
                if len(found) >= num_demos:
                    break
        finally:
            pool.shutdown(cancel_futures=True)
        if partly and not found:
            found = [demo for _, demo in sorted(partly, key=lambda each: -each[0])]
            self._job.on_note(
                "labelled demos: no question was recalled with all of its evidence; they hold half or more"
            )
        if asked and not found:
            why = (
                "none was recalled with half of its evidence"
                if asked[0].get("evidence_ids")
                else "none could be recalled"
            )
            self._job.on_note(
                f"no labelled demos: of {min(len(asked), max_tries or len(asked))} training questions {why}"
            )
        return self._spread(found)[:num_demos]

    def fitting(self, demos: Sequence[TaskExample], wanted: int, num_bootstrapped: int = 0) -> int:
        """How many of the wanted demos fit a prompt, beside the request; `num_bootstrapped` of them are made of answers."""
        if not demos:
            return wanted
        budget, reason = self._budget()
        each = max(map(tokens, demos))
        beside = num_bootstrapped * min(max(self._lengths), budget // max(1, num_bootstrapped))
        fits = min(wanted, budget // each, num_bootstrapped + (budget - beside) // each)
        if fits < wanted:
            self._job.on_note(f"{fits} of {wanted} demos fit a prompt: they may have {budget:,} tokens ({reason})")
        return fits

    def metric(self, view: Callable[..., Any], num_bootstrapped: int) -> Callable[..., Any]:
        """A metric for optimizers that make demos of the trace it is given, of which a prompt may have `num_bootstrapped`."""

        def metric(example: dspy.Example, prediction: Any, trace: Any = None) -> Any:
            value = view(question_of(example), prediction, trace)
            if trace:
                self.shorten(trace, question_of(example), prediction, num_bootstrapped)
            return value

        return metric

    def shorten(self, trace: list[Any], example: dspy.Example, prediction: Any, num_bootstrapped: int) -> None:
        """Replaces inputs of the answering predictor in a trace that overflow their share of a prompt."""
        context = prediction.get("context") if prediction else None
        for n, (predictor, inputs, outputs) in enumerate(trace):
            path = getattr(predictor, "path", "")
            if (
                path not in self._own
                or context is None
                or _tokens(inputs) <= self._budget()[0] // max(1, num_bootstrapped)
            ):
                continue
            call = self._asked(*self._shortened(example, context, self._job.student.query_of(example)))
            if call is not None and call.predictor.path == path:
                trace[n] = (predictor, {**inputs, **call.inputs}, outputs)

    def _budget(self) -> tuple[int, str]:
        """Tokens that the demos of a prompt may have, and why."""
        budget, window = self._job.settings["max_demo_tokens"], getattr(self._job.task_lm, "window", None)
        instructions = max((_tokens({"": signature_of(p).instructions}) for p in self._own.values()), default=0)
        left = int((window or 0) * MAX_WINDOW_SHARE) - ANSWER_TOKENS - instructions - max(self._lengths, default=0)
        if window is None or left >= budget:
            return budget, "max_demo_tokens"
        return max(0, left), f"the model's window of {window:,}"

    def _spread(self, examples: Sequence[Any]) -> list[Any]:
        """Round-robin over the categories, stable within each."""
        queues: dict[str, list[Any]] = {}
        for example in examples:
            queues.setdefault(self._job.category(question_of(example)), []).append(example)
        rounds = max(map(len, queues.values()), default=0)
        return [queue[n] for n in range(rounds) for _, queue in sorted(queues.items()) if n < len(queue)]

    def _answers(self, example: dspy.Example) -> bool:
        return any(_gold(predictor, example) for predictor in self._own.values())

    def _demo(self, example: dspy.Example) -> tuple[float, TaskExample] | None:
        """The share of its evidence that a demo of a question holds, and the demo; None where there can be none."""
        try:
            call, length, share = self._recalled(example)
        except MempilerError:
            raise  # a limit, or the end of the endpoint
        except Exception:
            return None
        if call is None:
            return None
        self._lengths.append(length)
        signature, path = signature_of(call.predictor), call.predictor.path
        try:
            # As it will be loaded: what does not survive being saved is no demo.
            values = load_values(
                signature, dump_values(signature, {**call.inputs, **_gold(call.predictor, example)}), ""
            )
        except ProgramError:
            return None
        if not _gold(call.predictor, values) or _tokens(values.toDict()) > self._job.settings["max_demo_tokens"]:
            return None
        return share, TaskExample({**dict(values.items()), DEMO_PREDICTOR_KEY: path}, asked=example)

    def _recalled(self, example: dspy.Example) -> tuple[PredictorCall | None, int, float]:
        """What the answering predictor is asked, shortened; the whole request's length; the share of evidence held."""
        program = self._job.student
        with dspy.context(trace=None, adapter=program.current_adapter()):
            query, context, _ = program.recall_for(example)
        whole = self._asked(context, query)
        short, query = self._shortened(example, context, query)
        held = short.evidence if any(hit.is_evidence for hit in short.hits) else short.sources
        evidence_ids = set(example.get("evidence_ids") or ())
        share = len(evidence_ids & {*held, *query.shown_turn_ids}) / len(evidence_ids) if evidence_ids else 1.0
        if whole is None or share < MIN_EVIDENCE_SHARE:
            return None, 0, 0.0
        return self._asked(short, query), _tokens(whole.inputs), share

    def _shortened(self, example: dspy.Example, context: Context, query: Query) -> tuple[Context, Query]:
        # Measured as the task shows them: resolved dates make lines longer.
        shown = self._task.items_as_shown(query.shown_items)
        if sum(estimate_tokens(line) for item in shown for line in item.lines()) > self._context:
            shown = newest_actions(shown, self._context)
        evidence = tuple(example.get("evidence_ids") or ())
        short = shortened(self._task.context_as_shown(context), evidence, self._context)
        return short, query.model_copy(update={"shown_items": tuple(shown)})

    def _asked(self, context: Context, query: Query) -> PredictorCall | None:
        """The call of the answering predictor, which is not made."""
        with recording() as record, dspy.context(lm=None, trace=None, callbacks=[]), suppress(Exception):
            self._task(context=context, query=query)
        return next((call for call in record.calls if getattr(call.predictor, "path", "") in self._own), None)


def shortened(context: Context, evidence: Sequence[str], most_tokens: int, most_hits: int = MOST_HITS) -> Context:
    """A context of the entries that hold the evidence, and of the others those nearest to them in rank that fit.

    The best entry of each turn of evidence stays, whatever its length; without any, the first entry. Notes stay if they
    fit beside it.
    """
    hits = context.hits
    if len(hits) <= most_hits and estimate_tokens(context.text()) <= most_tokens:
        return context
    kept = {found for turn in evidence if (found := _best(hits, turn)) is not None} or ({0} if hits else set[int]())
    room = most_tokens - sum(_length(hits[n]) for n in kept)
    notes = estimate_tokens(Context(notes=context.notes).text())
    noted = notes <= room
    room -= notes if noted else 0
    for n in sorted(set(range(len(hits))) - kept, key=lambda n: (min(abs(n - at) for at in kept), n)):
        if len(kept) < most_hits and _length(hits[n]) <= room:
            room -= _length(hits[n])
            kept.add(n)
    return Context(hits=tuple(hits[n] for n in sorted(kept)), notes=context.notes if noted else {})


def fit_window(program: MemoryProgram, window: int) -> list[str]:
    """Leaves out the last demos of predictors whose prompts would not fit a model; a line for each says so."""
    told: list[str] = []
    for name, predictor in program.all_predictors().items():
        lengths = [tokens(demo) for demo in predictor.demos]
        if not lengths or getattr(predictor, "nearest", None) is not None:
            continue
        room = (
            int(window * MAX_WINDOW_SHARE)
            - ANSWER_TOKENS
            - estimate_tokens(signature_of(predictor).instructions)
            - max(lengths)
        )
        fits = sum(total <= room for total in accumulate(lengths))
        if fits < len(lengths):
            told.append(f"{name}: {fits} of {len(lengths)} demos fit the model's window of {window:,} tokens")
            predictor.demos = predictor.demos[:fits]
    return told


def tokens(demo: Any) -> int:
    """The length of a demo in a prompt."""
    return _tokens(dict(demo.items()))


def _best(hits: Sequence[Hit], turn: str) -> int | None:
    """The first entry that holds a turn; one that is no evidence only where no other holds it."""
    holding = [n for n, hit in enumerate(hits) if turn in hit.sources]
    return min(holding, key=lambda n: (not hits[n].is_evidence, n), default=None)


def _length(hit: Hit) -> int:
    return estimate_tokens(hit.line()) + 1


def _tokens(values: dict[str, Any]) -> int:
    return sum(estimate_tokens(str(value)) + FIELD for value in values.values())


def _gold(predictor: Any, example: Any) -> dict[str, Any]:
    names = signature_of(predictor).output_fields
    return {name: example[name] for name in names if name in example and example[name] not in (None, "", [], ())}
