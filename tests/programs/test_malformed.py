"""Malformed answers of one predictor: no crash, nothing lost silently, no session lost, whichever prompt gets them.

What cannot be written stays: searched as it was said, tried in halves, written once the model is well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

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

PGR = {"every": 2, "merge_after": 1, "merge_score": 0.3, "augment": "rewrite", "augment_score": 0.1}
METHODS: Mapping[str, tuple[str, int, dict[str, Any]]] = {
    "pramem": (
        "movielens",
        3,
        {"rounds": 3, "adjust_every": 3, "proposals": 3, "virtual_scenes": 2},
    ),
    "pgr": ("personamem", 3, {**PGR, "min_score": 0.0, "min_new": 1}),
    "memory-r2": ("locomo", 2, {}),
    "h2memory": ("palbench.select", 4, {"clusters": 1}),
    "rgmem": ("locomo", 2, {"theta_inf": 1, "theta_sum": 1}),
}
"""Benchmark, items of the history, and settings with which every prompt is asked soon."""
QUICK = {
    "pramem": ("groundedness",),
    "pgr": ("facts",),
    "memory-r2": ("operations",),
    "h2memory": ("outlines",),
    "rgmem": ("fact", "conclusions"),
}
"""The predictor that the quick test spoils, by its output fields."""
LEFT_OUT = {"unknown id", "null", "field", "element", "cut", "parse", "refused", "too-long"}
"""Faults that say that something is missing."""
Fields = tuple[str, ...]


def cut(text: str) -> str:
    """The beginning of an answer that had no more room."""
    return text[: text.index("## ]]\n") + 8]


LOST: Mapping[str, Callable[[str], str]] = {
    "refusal": lambda text: "I cannot help with that.",
    "empty answer": lambda text: " ",
    "cut": cut,
}
"""Kinds of which nobody could recover the content."""


class SpoiledEngine(OfflineEngine):
    """The offline engine, whose answers with these output fields, or with any, become what `change` makes of them."""

    def __init__(self, fields: Fields = (), change: Callable[[str], str] = str) -> None:
        super().__init__()
        self.fields, self.change = fields, change
        self.asked: dict[Fields, None] = {}
        """Output fields of every predictor that was asked, in order."""

    def complete(self, request: Any) -> Any:
        response, names = super().complete(request), tuple(self.read_prompt(request).outputs)
        self.asked[names] = None
        if self.fields and names != self.fields:
            return response
        reason = "length" if self.change is cut else "stop"
        return replace(
            response,
            message=Message.assistant(self.change(response.message.text or "")),
            finish_reason=reason,
        )


class Conversation:
    """One method over so many items of a history, else as many as make every prompt asked, and a question about it."""

    def __init__(self, method: str, items: int | None = None) -> None:
        name, most, self.settings = METHODS[method]
        loaded = benchmark(name)
        self.method, self.task, self.example = method, loaded.task, next(iter(loaded.examples))
        self.history = History(id="past", items=tuple(self.example.history.items)[: items or most])
        engine = SpoiledEngine()
        self.clean, _ = self.run(engine)
        self.predictors = list(engine.asked)

    def run(self, engine: SpoiledEngine) -> tuple[Any, Meter]:
        """Memory and answer, without counts, under an engine; no session may be lost."""
        meter = Meter()
        lm = MeteredLM(
            "offline/spoiled",
            Metering(meter),
            engine=engine,
            cache=False,
            temperature=0.0,
            num_retries=0,
        )
        program = build(self.method, self.task, embedder(), **self.settings)
        with dspy.context(lm=lm, adapter=adapter(), trace=None, disable_history=True), in_order():
            memory = program.remember(self.history).memory
            answered = self._answered(program, memory)
        kept = stored_sources(memory) | {
            turn.id for each in memory.failed_items for turn in each.item.turns
        }
        self.sessions = {
            item.id for item in self.history.items if kept & {turn.id for turn in item.turns}
        }
        return [_bare(memory.model_dump(mode="json")), answered], meter

    def _answered(self, program: Any, memory: Any) -> Any:
        query = program.query_of(self.example, self.history)
        try:
            # A query that is a dialogue is summed up first by methods that do so.
            program.method.reader.recall(memory, query.model_copy(update={"modality": "dialogue"}))
            said = program.answer(memory, query)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            return "lost"
        return json.loads(
            json.dumps(
                [said.answer, [(hit.id, hit.text) for hit in said.context.hits]], default=str
            )
        )


def _bare(value: Any) -> Any:
    """A memory as JSON without what it counts."""
    if isinstance(value, dict):
        return {
            key: _bare(part)
            for key, part in value.items()
            if key not in ("counts", "outcome", "levels")
        }
    return [_bare(part) for part in value] if isinstance(value, list) else value


def harmed(conversation: Conversation, predictor: Fields) -> dict[str, bool]:
    """Kinds of answers of a predictor that cost something, and whether that is counted."""
    found, sessions = {}, conversation.sessions
    for name, change in LOST.items():
        result, meter = conversation.run(SpoiledEngine(predictor, change))
        assert sessions <= conversation.sessions
        read = meter.read()
        counted = any(outcome == "lost" for _, outcome in read.answers) or any(
            kind in LEFT_OUT for _, kind in read.faults
        )
        found |= {name: counted} if result != conversation.clean else {}
    return found


@pytest.mark.parametrize("method", METHODS)
def test_no_kind_of_malformed_answer_loses_anything_silently(method: str) -> None:
    assert all(harmed(Conversation(method, 2), QUICK[method]).values())


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_prompt_loses_anything_silently(method: str) -> None:
    conversation = Conversation(method)
    found = {predictor: harmed(conversation, predictor) for predictor in conversation.predictors}
    assert len(found) > 2
    assert all(counted for kinds in found.values() for counted in kinds.values()), found


WRITERS = (
    "memory-r2",
    "pgr",
    "fact-store",
    "rgmem",
    "h2memory",
    "condition-mem",
    "recursive-summary",
)


def talk() -> History:
    said = (
        (
            "I moved to Lisbon with my dog Rex.",
            "How do you like it so far?",
            "The hills hurt my knee.",
        ),
        ("The dentist was fine after all.", "And the knee?", "I run again, in the light shoes."),
    )
    rows = [[{"role": "user", "name": "Ada", "content": text} for text in texts] for texts in said]
    return History.parse(rows, id="ada")


@pytest.fixture
def moody() -> Callable[[], MeteredLM]:
    """Makes a model that refuses to write until its engine changes nothing any more."""
    return lambda: MeteredLM(
        "moody/test", engine=SpoiledEngine(change=LOST["refusal"]), cache=False, temperature=0.0
    )


@pytest.mark.parametrize("name", WRITERS)
def test_failed_turns_are_searched_and_written_once_the_model_recovers(
    name: str, moody: Any, store: Store
) -> None:
    lm = moody()
    memory = build(name).memory(store, "ada", lm=lm)
    for session in talk():
        memory.add(session)
    assert [(each.item.id, each.state) for each in store.items.list_all(Owner("ada"))] == [
        ("D1", "partial"),
        ("D2", "partial"),
    ]
    assert "D1:1" in memory.recall("Where is Rex the dog?").sources
    lm.engine.change = str
    memory.retry()
    assert [each.state for each in store.items.list_all(Owner("ada"))] == [
        "remembered",
        "remembered",
    ]
    assert memory.read().failed_items == ()
    status = memory.status()
    assert status is not None
    assert status.partial == 0
    assert status.failed == 0
    assert status.queued == 0


def test_an_endless_loop_of_tries_costs_two_rounds_and_no_more(moody: Any) -> None:
    lm = moody()
    with dspy.context(lm=lm):
        memory = build("condition-mem").remember(talk()).memory
    # Each session as it came and in two halves, each asked twice.
    assert sum(lm.meter.read().calls.values()) == 2 * 3 * 2
    assert {each.attempts for each in memory.failed_items} == {2}


SAID = History.parse(
    [[{"role": "user", "name": "Ada", "content": f"I like {thing}."} for thing in ("jazz", "tea")]]
)


def facts(*texts: str) -> dict[str, Any]:
    return {"facts": [{"speaker": "Ada", "turn_id": "D1:1", "fact": text} for text in texts]}


REFUSALS = [
    ContextLengthError("too long"),
    # As llama.cpp, vLLM and an OpenAI-compatible gateway word it, without a code for it.
    InvalidRequestError(
        "request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it"
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal)[:20])
def test_turns_whose_prompt_is_too_long_are_taken_in_by_halves(
    scripted: Any, refusal: Exception
) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        asked = [
            f"Likes {thing}"
            for thing in ("jazz", "tea")
            if f"like {thing}" in text or f'"Likes {thing}"' in text
        ]
        if kind == "facts" and len(asked) == 2:
            raise refusal
        if kind == "facts":
            return facts(*asked)
        return {"operations": [{"op": "INSERT", "speaker": "Ada", "content": asked[-1]}]}

    lm = scripted(reply)
    with dspy.context(lm=lm):
        node = build("memory-r2", parts=1).remember(SAID)
    assert [fact.content for fact in node.memory.facts] == ["Likes jazz", "Likes tea"]
    assert lm.engine.calls == {"facts": 3, "operations": 2}
    assert node.memory.failed_items == ()
    assert {failure.kind for part in node.ancestors() for failure in part.failures} == {"too-long"}


def test_a_text_over_the_limit_is_dropped_and_counted(scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        if kind == "facts":
            return facts("Likes tea", "x" * 200_000)
        return {"operations": [{"op": "INSERT", "content": "Likes tea"}]}

    lm, program = scripted(reply), build("memory-r2", parts=1)
    with dspy.context(lm=lm):
        memory = program.remember(SAID).memory
    assert [fact.content for fact in memory.facts] == ["Likes tea"]
    assert lm.meter.read().faults["method.writer.extract_facts", "element"] == 1
