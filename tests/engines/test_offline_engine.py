"""The offline engine as an engine of dspy.LM: determinism, variety, copies, saving, streams, usage."""

from __future__ import annotations

import asyncio
import pickle
import time
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, Message, Request
from mempiler.engines.models import language_model
from mempiler.engines.offline.engine import OfflineEngine

CONTEXT = (
    "[D1:1] (8 May 2023) Ann: I joined a pottery class yesterday. It was fun, and I met Bob there!\n"
    "[D1:2] (8 May 2023) Bob: Pottery is fun. I like the class too, because of the people.\n"
    "[D2:1] (9 May 2023) Ann: The class was moved. We meet in the old mill now."
)
DEMOS = [
    {"question": "Where is Joe?", "answer": "in the garden"},
    {"question": "Where is Eve?", "answer": "at home now"},
]


def make_lm(engine: OfflineEngine, temperature: float = 0.0) -> dspy.LM:
    return dspy.LM(
        "offline/extractive-1",
        engine=engine,
        temperature=temperature,
        cache=False,
    )


def answers(engine: OfflineEngine, temperature: float, times: int, demos: list[dict[str, str]] = DEMOS) -> list[str]:
    predict = dspy.Predict("context, question -> answer")
    predict.demos = demos
    with dspy.context(lm=make_lm(engine, temperature)):
        return [predict(context=CONTEXT, question="Where is the pottery class?").answer for _ in range(times)]


def request(text: str, **config: Any) -> Request:
    return Request(model="extractive-1", messages=(Message.user(text),), config=Config(**config))


def test_at_temperature_zero_the_answer_is_a_function_of_the_prompt() -> None:
    engine = OfflineEngine()
    assert len({*answers(engine, 0.0, 3), *answers(OfflineEngine(), 0.0, 3)}) == 1


@pytest.mark.parametrize("demos", [[], DEMOS], ids=["sentences", "spans"])
def test_with_temperature_repeated_prompts_differ(demos: list[dict[str, str]]) -> None:
    assert len(set(answers(OfflineEngine(), 1.0, 8, demos))) >= 4


def test_with_temperature_the_sequence_of_answers_repeats() -> None:
    assert answers(OfflineEngine(), 1.0, 8) == answers(OfflineEngine(), 1.0, 8)


def test_a_seed_takes_the_place_of_the_occurrence() -> None:
    engine = OfflineEngine()
    seeded = [engine.complete(request(CONTEXT, temperature=1.0, seed=7)).message.text for _ in range(4)]
    assert len(set(seeded)) == 1


def test_the_engine_is_pickled_without_its_counts_and_locks() -> None:
    engine = OfflineEngine()
    first = answers(engine, 1.0, 2)
    assert answers(pickle.loads(pickle.dumps(engine)), 1.0, 2) == first


def test_a_saved_program_brings_its_engine_back(tmp_path: Path) -> None:
    predict = dspy.Predict("context, question -> answer")
    predict.set_lm(make_lm(OfflineEngine()))
    predict.save(tmp_path / "program.json")
    loaded = dspy.Predict("context, question -> answer")
    loaded.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert loaded(context=CONTEXT, question="Who met Bob?").answer == "It was fun, and I met Bob there!"


def test_async_calls_give_the_same_answer() -> None:
    async def ask() -> str:
        with dspy.context(lm=language_model("offline")):
            prediction = await dspy.Predict("context, question -> answer").acall(
                context=CONTEXT, question="Where is the pottery class?"
            )
            return prediction.answer

    assert asyncio.run(ask()) == answers(OfflineEngine(), 0.0, 1, demos=[])[0]


def test_a_stream_adds_up_to_the_response() -> None:
    asked = request("Ann: I moved.\nBob: Where to?\n\nWhere did Ann move?")
    start, *deltas, end = OfflineEngine().stream(asked)
    whole = OfflineEngine().complete(asked)
    assert (start.type, end.type) == ("start", "end")
    assert "".join(event.delta.text for event in deltas) == whole.message.text
    assert end.usage == whole.usage


def test_a_bracket_that_nobody_closes_is_read_at_once() -> None:
    started = time.process_time()
    OfflineEngine().complete(request("[D1:1] (" + "2019 " * 16_000 + "\nWhere did Ann move?"))
    # The head of a line took the square of its length.
    assert time.process_time() - started < 2
