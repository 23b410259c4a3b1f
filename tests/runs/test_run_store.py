"""What a run keeps: memories and answers that a later process takes up where the first one stopped."""

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.errors import DataError
from mempiler.programs.catalog import build
from mempiler.programs.remember import MemoryCache
from mempiler.runs.run_store import RunStore


def program_of(store):
    return build("memory-r2", embedder=embedder(), cache=MemoryCache(store.nodes), chunk_turns=3)


def test_a_later_process_reads_memories_without_a_call(scripted, fact_replies, make_history, tmp_path):
    lm, history = scripted(fact_replies), make_history(3)
    with dspy.context(lm=lm):
        first = program_of(RunStore(tmp_path / "run.sqlite")).remember(history)
        written = sum(lm.engine.calls.values())
        second = program_of(RunStore(tmp_path / "run.sqlite")).remember(history)
        longer = program_of(RunStore(tmp_path / "run.sqlite"))
        longer.remember(make_history(4))
    assert second.memory == first.memory
    assert written == 12
    assert sum(lm.engine.calls.values()) == written + 4


def test_steps_read_from_disk_replay_like_fresh_ones(scripted, fact_replies, make_history, tmp_path):
    def traced(program):
        with dspy.context(trace=[]):
            program(history=make_history(2), question="Where?", focus=("D2:2",))
            return [(inputs, prediction.toDict()) for _, inputs, prediction in dspy.settings.trace]

    with dspy.context(lm=scripted(fact_replies)):
        fresh = traced(program_of(RunStore(tmp_path / "run.sqlite")))
        read = traced(program_of(RunStore(tmp_path / "run.sqlite")))
    assert read == fresh
    assert len(read) == 3


def test_a_memory_with_a_failure_is_not_kept_on_disk(scripted, fact_replies, make_history, tmp_path):
    broken = scripted(lambda kind, text, n: "no fields" if kind == "operations" else fact_replies(kind, text, n))
    whole = scripted(fact_replies)
    with dspy.context(lm=broken):
        assert program_of(RunStore(tmp_path / "run.sqlite")).remember(make_history(1)).failures
    with dspy.context(lm=whole):
        node = program_of(RunStore(tmp_path / "run.sqlite")).remember(make_history(1))
    assert not node.failures
    assert len(node.memory.facts) == 6


def metered(engine, store, cache):
    settings = {"engine": engine, "cache": cache, "temperature": 0.0}
    return MeteredLM("scripted/answers", Meter(), answers=store.answers, **settings)


@pytest.mark.parametrize(("cache", "paid"), [(True, 1), (False, 2)])
def test_equal_calls_share_an_answer_only_where_the_lm_cache_is_on(scripted, tmp_path, cache, paid):
    engine = scripted(lambda kind, text, n: f"answer {n}").engine
    first = metered(engine, RunStore(tmp_path / "run.sqlite"), cache)
    said = [first("same question"), first("same question")]
    resumed = metered(engine, RunStore(tmp_path / "run.sqlite"), cache)
    assert [resumed("same question"), resumed("same question")] == said
    assert len(engine.prompts) == paid
    dspy.cache.reset_memory_cache()


def test_a_file_that_is_no_store_is_one_line(tmp_path):
    (tmp_path / "run.sqlite").write_text("no database " * 100)
    with pytest.raises(DataError, match="is no file of a run"):
        RunStore(tmp_path / "run.sqlite")
