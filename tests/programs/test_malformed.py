"""Malformed answers: nothing crashes, no session is lost, and whatever else is lost is counted.

A method stores the sessions of a history in a memory. It asks a model by predictors, each of which
is one prompt with some output fields. The model may refuse, say nothing, or be cut off.

A session that cannot be written is searched as it was said. It is tried again in halves, and it is
written once the model answers well. The meter of a model counts calls, lost answers and faults.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError, Message
from mempiler import History, Store, build
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.memory.memory import stored_sources
from mempiler.memory.store.owner import Owner
from mempiler.programs.adapter import adapter
from mempiler.programs.threads import in_order
from mempiler.reading.failures import concerns_prompt

# Faults of answers, and an engine that has them

Outputs = tuple[str, ...]
"""The names of a predictor's output fields, by which the tests know it."""


@dataclass(frozen=True)
class Fault:
    """A way in which an answer is malformed, so that nobody could recover what it said."""

    name: str
    spoil: Callable[[str], str]
    """Returns the malformed answer, given the good one."""
    finish_reason: str = "stop"


def first_characters(text: str) -> str:
    """Return an answer up to two characters after its first header, "[[ ## facts ## ]]"."""
    end_of_header = text.index("## ]]\n") + len("## ]]\n")
    return text[: end_of_header + 2]


REFUSAL = Fault("refusal", spoil=lambda text: "I cannot help with that.")
EMPTY_ANSWER = Fault("empty answer", spoil=lambda text: " ")
CUT_ANSWER = Fault("cut", spoil=first_characters, finish_reason="length")
FAULTS = (REFUSAL, EMPTY_ANSWER, CUT_ANSWER)


class SpoiledEngine(OfflineEngine):
    """The offline engine, with a fault in the answers of one predictor.

    Args:
        fault: The fault; None for good answers. It may be changed between calls.
        outputs: The outputs of the predictor; all predictors get malformed answers if empty.
    """

    def __init__(self, fault: Fault | None = None, outputs: Outputs = ()) -> None:
        super().__init__()
        self.fault = fault
        self.outputs = outputs
        self.called_predictors: list[Outputs] = []
        """The outputs of every predictor that was called, in the order of their first calls."""

    def complete(self, request: Any) -> Any:
        response = super().complete(request)
        outputs = tuple(self.read_prompt(request).outputs)
        if outputs not in self.called_predictors:
            self.called_predictors.append(outputs)

        is_spoiled = not self.outputs or outputs == self.outputs
        if self.fault is None or not is_spoiled:
            return response
        return replace(
            response,
            message=Message.assistant(self.fault.spoil(response.message.text or "")),
            finish_reason=self.fault.finish_reason,
        )


# One predictor is spoiled at a time


@dataclass(frozen=True)
class MethodCase:
    """A method on a benchmark, with settings under which every prompt is soon asked."""

    benchmark: str
    items: int
    """How many items of a history it takes to ask every prompt."""
    quick_predictors: tuple[Outputs, ...]
    """The predictors that the quick test spoils, one at a time."""
    settings: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "pramem": MethodCase(
        benchmark="movielens",
        items=3,
        # Reviews reject all proposals of the offline engine anyway; a lost answer is seen.
        quick_predictors=(("groundedness",), ("answer",)),
        settings={"rounds": 3, "adjust_every": 3, "proposals": 3, "virtual_scenes": 2},
    ),
    "pgr": MethodCase(
        benchmark="personamem",
        items=3,
        quick_predictors=(("facts",),),
        settings={
            "every": 2,
            "merge_after": 1,
            "merge_score": 0.3,
            "augment": "rewrite",
            "augment_score": 0.1,
            "min_score": 0.0,
            "min_new": 1,
        },
    ),
    "memory-r2": MethodCase(
        benchmark="locomo",
        items=2,
        quick_predictors=(("operations",),),
    ),
    "h2memory": MethodCase(
        benchmark="palbench.select",
        items=4,
        quick_predictors=(("outlines",),),
        settings={"clusters": 1},
    ),
    "rgmem": MethodCase(
        benchmark="locomo",
        items=2,
        quick_predictors=(("fact", "conclusions"),),
        settings={"theta_inf": 1, "theta_sum": 1},
    ),
}

KINDS_OF_LOSS = {"unknown id", "null", "field", "element", "cut", "parse", "refused", "too-long"}
"""Faults in the counts of a meter which say that something is missing."""


@dataclass(frozen=True)
class RunResult:
    """What came of writing a history and answering a question under an engine."""

    memory: Any
    """The memory as JSON, without its counts."""
    answer: Any
    """The answer and its hits as JSON, or "lost" if a prompt failed."""
    session_ids: set[str]
    """Ids of the sessions of which something is in the memory or waits to be written."""
    losses: int
    """How often the meter counts that something was lost."""


class Conversation:
    """A method, the beginning of a history, and a question about it.

    Each run of it writes the history and answers the question anew, under another engine.

    Args:
        method: One of `CASES`.
        items: How many items of the history are written; None for as many as the case says.
    """

    def __init__(self, method: str, items: int | None = None) -> None:
        self._case = CASES[method]
        loaded_benchmark = benchmark(self._case.benchmark)
        self._method = method
        self._task = loaded_benchmark.task
        self._example = loaded_benchmark.examples[0]
        first_items = tuple(self._example.history.items)[: items or self._case.items]
        self._history = History(id="past", items=first_items)

        engine = SpoiledEngine()
        self.clean_result = self.run(engine)
        """What comes of good answers."""
        self.predictors = engine.called_predictors
        """The outputs of every predictor that the method has."""

    def run(self, engine: SpoiledEngine) -> RunResult:
        """Write the history and answer the question under an engine."""
        meter = Meter()
        lm = MeteredLM(
            "offline/spoiled",
            Metering(meter),
            engine=engine,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )
        program = build(self._method, self._task, embedder(), **self._case.settings)
        with dspy.context(lm=lm, adapter=adapter(), trace=None, disable_history=True), in_order():
            memory = program.remember(self._history).memory
            answer = self._answer(program, memory)

        return RunResult(
            memory=without_counts(memory.model_dump(mode="json")),
            answer=answer,
            session_ids=self._session_ids(memory),
            losses=count_losses(meter),
        )

    def _answer(self, program: Any, memory: Any) -> Any:
        query = program.query_of(self._example, self._history)
        try:
            # Some methods sum up a query first if it is a dialogue.
            program.method.reader.recall(memory, query.model_copy(update={"modality": "dialogue"}))
            prediction = program.answer(memory, query)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            return "lost"
        hits = [(hit.id, hit.text) for hit in prediction.context.hits]
        return json.loads(json.dumps([prediction.answer, hits], default=str))

    def _session_ids(self, memory: Any) -> set[str]:
        turn_ids = set(stored_sources(memory))
        for failed in memory.failed_items:
            turn_ids.update(turn.id for turn in failed.item.turns)
        session_ids: set[str] = set()
        for item in self._history.items:
            ids_of_item = {turn.id for turn in item.turns}
            if ids_of_item & turn_ids:
                session_ids.add(item.id)
        return session_ids


def count_losses(meter: Meter) -> int:
    """Return how many lost answers, and faults by which something is missing, a meter counts."""
    reading = meter.read()
    lost_answers = [count for (_, outcome), count in reading.answers.items() if outcome == "lost"]
    faults = [count for (_, kind), count in reading.faults.items() if kind in KINDS_OF_LOSS]
    return sum(lost_answers) + sum(faults)


def without_counts(value: Any) -> Any:
    """Return a memory as JSON without what it counts."""
    if isinstance(value, list):
        return [without_counts(part) for part in value]
    if isinstance(value, dict):
        return {
            key: without_counts(part)
            for key, part in value.items()
            if key not in ("counts", "outcome", "levels")
        }
    return value


class FaultEffect(NamedTuple):
    """What came of one fault in all answers of one predictor."""

    predictor: Outputs
    fault: str
    lost_sessions: set[str]
    """Sessions of which nothing is in the memory, and which do not wait to be written either."""
    is_costly: bool
    """Whether the memory or the answer is another one than without the fault."""
    is_counted: bool
    """Whether the meter counts more losses than without the fault."""


def effects_of_faults(
    conversation: Conversation, predictors: Sequence[Outputs]
) -> list[FaultEffect]:
    """Run the conversation with every fault in the answers of each predictor, one at a time."""
    clean_result = conversation.clean_result
    effects: list[FaultEffect] = []
    for predictor, fault in itertools.product(predictors, FAULTS):
        result = conversation.run(SpoiledEngine(fault, predictor))
        is_same_memory = result.memory == clean_result.memory
        is_same_answer = result.answer == clean_result.answer
        effect = FaultEffect(
            predictor,
            fault.name,
            lost_sessions=clean_result.session_ids - result.session_ids,
            is_costly=not (is_same_memory and is_same_answer),
            # Good answers of the offline engine have some faults, too.
            is_counted=result.losses > clean_result.losses,
        )
        effects.append(effect)
    return effects


@pytest.mark.parametrize("method", CASES)
def test_a_malformed_answer_of_one_predictor_loses_nothing_silently(method: str) -> None:
    """No session vanishes, and whatever an unreadable answer costs is counted by the meter.

    A conversation is written and asked about several times. Each time one predictor, which is a
    prompt of the method, gets nothing but refusals, empty answers or cut answers. A fault is costly
    if the memory or the answer then differs from what comes of good answers.
    """
    conversation = Conversation(method, items=2)

    effects = effects_of_faults(conversation, CASES[method].quick_predictors)

    assert [effect for effect in effects if effect.lost_sessions] == []
    costly_effects = [effect for effect in effects if effect.is_costly]
    assert costly_effects, "no fault costs anything, so this checks nothing"
    assert [effect for effect in costly_effects if not effect.is_counted] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", CASES)
def test_a_malformed_answer_of_any_predictor_loses_nothing_silently(method: str) -> None:
    """No session vanishes, and whatever an unreadable answer costs is counted by the meter.

    A conversation is written and asked about again and again. Each time another predictor, which is
    a prompt of the method, gets nothing but refusals, empty answers or cut answers. A fault is
    costly if the memory or the answer then differs from what comes of good answers.
    """
    conversation = Conversation(method)
    assert len(conversation.predictors) > 2

    effects = effects_of_faults(conversation, conversation.predictors)

    assert [effect for effect in effects if effect.lost_sessions] == []
    costly_effects = [effect for effect in effects if effect.is_costly]
    assert [effect for effect in costly_effects if not effect.is_counted] == []


# A model that recovers


def two_sessions() -> History:
    """Return a conversation of two sessions in which Ada speaks all turns."""
    first_session = [
        "I moved to Lisbon with my dog Rex.",
        "How do you like it so far?",
        "The hills hurt my knee.",
    ]
    second_session = [
        "The dentist was fine after all.",
        "And the knee?",
        "I run again, in the light shoes.",
    ]
    return History.parse([messages_of_ada(first_session), messages_of_ada(second_session)], "ada")


def messages_of_ada(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": "user", "name": "Ada", "content": text} for text in texts]


@pytest.fixture
def refusing_lm() -> MeteredLM:
    """A model that refuses every answer until the fault of its engine is None."""
    engine = SpoiledEngine(REFUSAL)
    return MeteredLM("moody/test", engine=engine, cache=False, temperature=0.0)


@pytest.mark.parametrize(
    "method",
    [
        "memory-r2",
        "pgr",
        "fact-store",
        "rgmem",
        "h2memory",
        "condition-mem",
        "recursive-summary",
    ],
)
def test_failed_turns_are_searched_and_written_once_the_model_recovers(
    method: str, refusing_lm: Any, store: Store
) -> None:
    """A user can search for what was said while the model is out of order, and loses nothing later.

    A session that could not be written has the state "partial". It is written by `retry`, once the
    model answers. The first turn, D1:1, is "I moved to Lisbon with my dog Rex."
    """
    memory = build(method).memory(store, "ada", lm=refusing_lm)
    for session in two_sessions():
        memory.add(session)

    # Nothing could be written, but the search finds the turn as it was said.
    stored_items = store.items.list_all(Owner("ada"))
    assert [stored.state for stored in stored_items] == ["partial", "partial"]
    assert "D1:1" in memory.recall("Where is Rex the dog?").sources

    # Once the model answers, both sessions are written, and nothing is left to try.
    refusing_lm.engine.fault = None
    memory.retry()

    stored_items = store.items.list_all(Owner("ada"))
    assert [stored.state for stored in stored_items] == ["remembered", "remembered"]
    assert memory.read().failed_items == ()


def test_a_session_that_always_fails_is_tried_twice(refusing_lm: Any) -> None:
    """A session that a model always refuses must not be paid for again and again.

    The first attempt writes the whole session, and the second attempt writes its two halves.
    """
    history = History.parse([messages_of_ada(["I like jazz.", "I like tea."])])

    with dspy.context(lm=refusing_lm):
        memory = build("condition-mem").remember(history).memory

    assert {failed.attempts for failed in memory.failed_items} == {2}
    prompts = ["whole session", "first half", "second half"]
    # An unreadable answer is asked for once more.
    calls_of_a_prompt = 2
    assert sum(refusing_lm.meter.read().calls.values()) == calls_of_a_prompt * len(prompts)


# Answers and prompts that are too long


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(ContextLengthError("too long"), id="with-a-code"),
        # As llama.cpp, vLLM and an OpenAI-compatible gateway word it, without a code for it.
        pytest.param(
            InvalidRequestError(
                "request (9031 tokens) exceeds the available context size (8192 tokens), "
                "try increasing it"
            ),
            id="in-words-only",
        ),
    ],
)
def test_a_session_whose_prompt_is_too_long_is_written_in_halves(
    scripted: Any, fact_replies: Any, refusal: Exception
) -> None:
    """A prompt over the model's context fails every time, so smaller prompts are tried.

    The model refuses a prompt with both turns of the session, and makes a fact of each turn that it
    is shown alone. With `parts=1` Memory-R2 first tries one prompt for the whole session.
    """
    session = messages_of_ada(["I like jazz.", "I like tea."])

    def refuse_both_turns_at_once(kind: str, text: str, n: int) -> Any:
        if kind == "facts" and "I like jazz." in text and "I like tea." in text:
            raise refusal
        return fact_replies(kind, text, n)

    with dspy.context(lm=scripted(refuse_both_turns_at_once)):
        cached_memory = build("memory-r2", parts=1).remember(History.parse([session]))

    memory = cached_memory.memory
    assert [fact.content for fact in memory.facts] == ["I like jazz.", "I like tea."]
    assert memory.failed_items == ()
    failures = [failure for part in cached_memory.ancestors() for failure in part.failures]
    assert {failure.kind for failure in failures} == {"too-long"}


def test_a_text_over_the_limit_is_dropped_and_counted(scripted: Any) -> None:
    """A model that repeats itself without end must not fill the memory.

    A text that a model writes for a memory may have 4,000 characters. The second fact has 200,000.
    """
    short_fact = {"speaker": "Ada", "turn_id": "D1:1", "fact": "Likes tea"}
    endless_fact = {"speaker": "Ada", "turn_id": "D1:1", "fact": "x" * 200_000}

    def reply_with_both_facts(kind: str, text: str, n: int) -> Any:
        if kind == "facts":
            return {"facts": [short_fact, endless_fact]}
        return {"operations": [{"op": "INSERT", "content": "Likes tea"}]}

    lm = scripted(reply_with_both_facts)
    history = History.parse([messages_of_ada(["I like tea."])])
    with dspy.context(lm=lm):
        memory = build("memory-r2", parts=1).remember(history).memory

    assert [fact.content for fact in memory.facts] == ["Likes tea"]
    assert lm.meter.read().faults["method.writer.extract_facts", "element"] == 1
