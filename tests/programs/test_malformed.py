"""Malformed answers: no crash, nothing lost silently, no session lost, whatever kind of answer whichever prompt gets.

The offline engine writes the beginning of a conversation of a bundled sample and answers; the answers of one predictor
are spoiled, its first one alone or every one. The result is compared with a run whose answers say the same in the form
that was asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy
import hypothesis
import pytest
from hypothesis import strategies as st
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.memory.provenance import stored_sources
from mempiler.programs.adapter import adapter
from mempiler.programs.catalog import build
from mempiler.programs.failing import concerns_prompt
from mempiler.programs.gather import in_order
from mempiler.records import History

from tests.programs.malformed import LOST, RECOVERABLE, Answer, Spoiled, SpoiledEngine, well_formed

PGR = {"every": 2, "merge_after": 1, "merge_score": 0.3, "augment": "rewrite", "augment_score": 0.1}
METHODS: Mapping[str, tuple[str, int, dict[str, Any]]] = {
    "pramem": ("movielens", 3, {"rounds": 3, "adjust_every": 3, "proposals": 3, "virtual_scenes": 2}),
    "pgr": ("personamem", 3, {**PGR, "min_score": 0.0, "min_new": 1}),
    "memory-r2": ("locomo", 2, {}),
    "h2memory": ("palbench.select", 4, {"clusters": 1}),
    "rgmem": ("locomo", 2, {"theta_inf": 1, "theta_sum": 1}),
}
"""Benchmark, items of the history, and settings with which every prompt is asked soon."""
QUICK = {
    "pramem": (2, ("groundedness",)),
    "pgr": (1, ("facts",)),
    "memory-r2": (1, ("operations",)),
    "h2memory": (2, ("outlines",)),
    "rgmem": (1, ("fact", "conclusions")),
}
"""Items of the history, and the predictor that the quick test spoils."""
KINDS = {**RECOVERABLE, **LOST}
LEFT_OUT = {"unknown id", "null", "field", "element", "cut", "parse", "refused", "too-long"}
"""Faults that say that something is missing."""
Fields = tuple[str, ...]
Change = Callable[[Answer], Spoiled | None]


@dataclass
class Outcome:
    """What came of one run."""

    result: Any = None
    """Memory and answers, without counts."""
    turns: frozenset[str] = frozenset()
    """Turns that the memory holds or that are unwritten."""
    faults: Counter[str] = field(default_factory=Counter[str])
    lost: int = 0
    crashed: str = ""

    def verdict(self, due: Outcome) -> str:
        """What a run lost beside the one that it ought to be."""
        if self.crashed:
            return f"crashed: {self.crashed}"
        if self.lost:
            return "answer lost"
        if self.result == due.result:
            return "unharmed"
        return "element lost" if set(self.faults - due.faults) & LEFT_OUT else f"silent: {dict(self.faults)}"


class Conversation:
    """One method over one small history, and a question about it."""

    def __init__(self, method: str, items: int | None = None) -> None:
        name, most, self.settings = METHODS[method]
        loaded = benchmark(name)
        self.example = next(iter(loaded.examples))
        self.method, self.task = method, loaded.task
        self.history = History(id="past", items=tuple(self.example.history.items)[: items or most])
        engine = SpoiledEngine()
        self.clean, self.asked = self.run(engine), engine.asked

    @property
    def predictors(self) -> list[Fields]:
        """The output fields of every predictor that is asked, in order."""
        return list(dict.fromkeys(names for names, *_ in self.asked))

    def run(self, engine: SpoiledEngine) -> Outcome:
        """Writes the history and answers, under an engine."""
        meter, found = Meter(), Outcome()
        lm = MeteredLM("offline/spoiled", meter, engine=engine, cache=False, temperature=0.0, num_retries=0)
        program = build(self.method, self.task, embedder(), **self.settings)
        try:
            with dspy.context(lm=lm, trace=None, disable_history=True), in_order():
                memory = program.remember(self.history).memory
                found.result = [_bare(memory.model_dump(mode="json")), self._answered(program, memory)]
            kept = {turn.id for each in memory.unwritten for turn in each.item.turns}
            found.turns = frozenset(stored_sources(memory) | kept)
        except Exception as error:
            if not concerns_prompt(error):
                found.crashed = f"{type(error).__name__}: {error}"[:200]
        read = meter.read()
        found.lost = sum(count for (_, outcome), count in read.answers.items() if outcome == "lost")
        for (_, fault), count in read.faults.items():
            found.faults[fault] += count
        return found

    def _answered(self, program: Any, memory: Any) -> Any:
        with dspy.context(adapter=adapter()):
            try:
                query = program.query_of(self.example, self.history)
                # A query that is a dialogue is summed up first by methods that do so.
                program.method.reader.recall(memory, query.model_copy(update={"modality": "dialogue"}))
                said = program.answer(memory, query)
            except Exception as error:
                if not concerns_prompt(error):
                    raise
                return "lost"
        hits = [(hit.id, hit.text) for hit in said.context.hits]
        shown = {name: said[name] for name in said.keys() if name not in ("memory", "context")}  # noqa: SIM118
        return json.loads(json.dumps([shown, hits, dict(said.context.notes)], default=str))

    def lost_sessions(self, found: Outcome, due: Outcome) -> int:
        """Sessions of which the one run holds turns, and the other none."""
        turns = [{turn.id for turn in item.turns} for item in self.history.items]
        return sum(bool(due.turns & each) and not found.turns & each for each in turns)

    def cell(self, predictor: Fields, change: Change, once: bool) -> str | None:
        """What becomes of a kind of answer, a predictor's first one or all of them; None where it cannot happen."""
        fits = [prompt for names, prompt, answer in self.asked if names == predictor and change(answer)]
        if not fits:
            return None
        only = fits[0] if once else None
        due, found = self._due(predictor, change, only), self.run(SpoiledEngine(predictor, change, only))
        verdict, sessions = found.verdict(due), 0 if found.crashed else self.lost_sessions(found, due)
        return f"{verdict}; {sessions} sessions lost" if sessions else verdict

    def _due(self, predictor: Fields, change: Change, only: str | None) -> Outcome:
        """The run whose answers say the same as the malformed ones, in the form that was asked for."""

        def meant(answer: Answer) -> Spoiled | None:
            found = change(answer)
            return Spoiled(well_formed(found.meant)) if found and found.meant is not None else None

        made = [(answer, change(answer)) for names, _, answer in self.asked if names == predictor]
        if all(found is None or found.meant in (None, answer.values) for answer, found in made):
            return self.clean
        return self.run(SpoiledEngine(predictor, meant, only))


def _bare(value: Any) -> Any:
    """A memory as JSON without what it counts."""
    if isinstance(value, dict):
        return {key: _bare(part) for key, part in value.items() if key not in ("counts", "outcome", "levels")}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def cells(conversation: Conversation, predictor: Fields, start: int = 0) -> dict[str, str]:
    """What becomes of every kind: once and always in turn."""
    found = {
        name: conversation.cell(predictor, change, once=number % 2 == 0)
        for number, (name, change) in enumerate(KINDS.items(), start)
    }
    return {name: cell for name, cell in found.items() if cell is not None}


def wrong(found: Mapping[str, str]) -> list[str]:
    good = ("unharmed", "element lost", "answer lost")
    return [f"{name}: {cell}" for name, cell in found.items() if cell not in good]


@pytest.mark.parametrize("method", METHODS)
def test_no_kind_of_malformed_answer_loses_anything_silently(method: str) -> None:
    items, predictor = QUICK[method]
    found = cells(Conversation(method, items), predictor)
    assert len(found) > 12
    assert wrong(found) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_prompt_loses_more_than_the_broken_element(method: str) -> None:
    conversation = Conversation(method)
    found = {predictor: cells(conversation, predictor, n) for n, predictor in enumerate(conversation.predictors)}
    assert {predictor: wrong(each) for predictor, each in found.items() if wrong(each)} == {}
    whole = [each[name] != "answer lost" for each in found.values() for name in RECOVERABLE if name in each]
    assert sum(whole) > 0.99 * len(whole) > 60


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_an_answer_of_any_text_crashes_nothing_and_loses_no_session(method: str) -> None:
    conversation = Conversation(method, QUICK[method][0])

    @hypothesis.settings(max_examples=25)
    @hypothesis.given(st.sampled_from(conversation.predictors), st.text(max_size=60))
    def holds(predictor: Fields, text: str) -> None:
        found = conversation.run(SpoiledEngine(predictor, lambda answer: Spoiled(text)))
        assert (found.crashed, conversation.lost_sessions(found, conversation.clean)) == ("", 0)

    holds()
