"""What depends on the inside of DSPy: these tests fail if a new version of DSPy changes it.

A `MeteredLM` is a model of DSPy whose meter counts the calls and tokens. It finds cached answers
itself, and writes the history of calls as DSPy does.
"""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Request, Response, Usage
from mempiler.engines.dspy_internals import async_engine_of
from mempiler.engines.metered_lm import MeteredLM


class CountingEngine:
    """Answers with the number of the call, and reports two tokens of input and two of output."""

    def __init__(self) -> None:
        self.calls = 0

    def complete(self, request: Request) -> Response:
        self.calls += 1
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(f"answer {self.calls}"),
            finish_reason="stop",
            usage=Usage(input_tokens=2, output_tokens=2, total_tokens=4),
        )


@pytest.fixture
def own_dspy_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DSPy has an empty cache of this test, in memory."""
    cache = dspy.clients.Cache(
        enable_disk_cache=False,
        enable_memory_cache=True,
        disk_cache_dir=str(tmp_path),
        disk_size_limit_bytes=0,
        memory_max_entries=1000,
    )
    monkeypatch.setattr(dspy, "cache", cache)


@pytest.mark.usefixtures("own_dspy_cache")
def test_a_metered_model_finds_the_answer_that_a_model_of_dspy_cached() -> None:
    engine = CountingEngine()
    dspy_lm = dspy.LM("test/counting", engine=engine, temperature=0.5)
    metered_lm = MeteredLM("test/counting", engine=engine, temperature=0.5)

    assert dspy_lm("Hi") == ["answer 1"]
    assert metered_lm("Hi") == ["answer 1"]
    assert metered_lm.meter.read().cached == 1


@pytest.mark.usefixtures("own_dspy_cache")
def test_a_cached_answer_has_the_entry_in_the_history_that_dspy_would_make() -> None:
    lm = MeteredLM("test/counting", engine=CountingEngine(), temperature=0.5)
    lm("Hi")  # DSPy makes the entry of a call
    lm("Hi")  # ours is the entry of a cached answer
    entry_of_dspy, entry_of_ours = lm.history

    # Only the details of the cost may be missing.
    assert entry_of_ours.keys() | {"cost_details"} == entry_of_dspy.keys()
    same_fields = ("prompt", "messages", "outputs", "cost", "model", "response_model", "model_type")
    for field in same_fields:
        assert entry_of_ours[field] == entry_of_dspy[field]
    assert entry_of_ours["response"].message == entry_of_dspy["response"].message
    # It was paid for before.
    assert entry_of_ours["usage"] == {}


def test_the_usage_of_a_call_is_read_from_the_entry_of_dspy() -> None:
    lm = MeteredLM("test/counting", engine=CountingEngine(), cache=False)

    lm("Hi", n=2, temperature=0.5)  # asks for two answers

    # The engine reports two tokens of input and two of output for each answer.
    usage = lm.meter.read()
    assert usage.calls == {"task": 2}
    assert usage.input_tokens == 4
    assert usage.output_tokens == 4


def test_the_engine_of_a_model_for_asyncio_is_found() -> None:
    """A model of DSPy may have a second engine, which is awaited; DSPy keeps it in private."""

    class AsyncEngine:
        async def complete(self, request: Request) -> Response: ...

    async_engine = AsyncEngine()
    lm_for_asyncio = dspy.LM("a/b", engine=CountingEngine(), async_engine=async_engine)
    other_lm = dspy.LM("a/b", engine=CountingEngine())

    assert async_engine_of(lm_for_asyncio) is async_engine
    assert async_engine_of(other_lm) is None
