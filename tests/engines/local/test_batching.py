"""Batching: concurrent calls share runs, everybody gets the own result or the failure, nothing is left behind."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mempiler.engines.local.batching import Batcher


def together(batcher, rows, threads=16):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batcher.call, rows))


def test_concurrent_calls_share_batches_and_get_their_own_results():
    batches = []

    def run(rows):
        batches.append(rows)
        time.sleep(0.01)
        return [2 * row for row in rows]

    assert together(Batcher(run), range(64)) == [2 * row for row in range(64)]
    assert sorted(row for batch in batches for row in batch) == list(range(64))
    assert len(batches) < 20


def test_a_batch_has_at_most_so_many_rows():
    sizes = []
    together(Batcher(lambda rows: [sizes.append(len(rows)), *rows][1:], window=0.05, limit=4), range(16))
    assert max(sizes) == 4


def spaced(batcher, count, seconds):
    def late(row):
        time.sleep(row * seconds)
        return batcher.call(row)

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(late, range(count))) == list(range(count))


def test_a_batch_waits_as_long_as_others_come():
    sizes = []
    spaced(Batcher(lambda rows: [sizes.append(len(rows)), *rows][1:], window=0.5), 3, 0.3)
    assert sizes == [3]


def test_a_failure_reaches_every_call_of_its_batch_and_no_later_one():
    broken = threading.Event()
    broken.set()

    def run(rows):
        if broken.is_set():
            raise ValueError("no weights")
        return rows

    batcher = Batcher(run, window=0.05)

    def outcome(row):
        try:
            return batcher.call(row)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(outcome, range(8))) == {"no weights"}
    broken.clear()
    assert batcher.call(7) == 7


def test_a_batch_that_runs_out_of_memory_is_tried_in_halves():
    sizes = []

    def run(rows):
        sizes.append(len(rows))
        if len(rows) > 2:
            raise MemoryError
        return rows

    assert together(Batcher(run, window=0.2, limit=8), range(8), threads=8) == list(range(8))
    assert sizes == [8, 4, 2, 2, 4, 2, 2]


def test_a_single_row_that_runs_out_of_memory_fails():
    def run(rows):
        raise MemoryError

    with pytest.raises(MemoryError):
        Batcher(run).call(1)


def test_too_few_results_are_a_failure():
    with pytest.raises(RuntimeError, match="0 results for a batch of 1"):
        Batcher(lambda rows: []).call(1)


def test_an_interrupted_leader_leaves_the_others_able_to_go_on():
    first = threading.Event()

    def run(rows):
        if not first.is_set():
            first.set()
            raise KeyboardInterrupt
        return rows

    batcher = Batcher(run, window=0.0, limit=1)
    with pytest.raises(KeyboardInterrupt):
        batcher.call(1)
    assert together(batcher, range(8), threads=4) == list(range(8))


def test_no_thread_outlives_its_call():
    before = threading.active_count()
    together(Batcher(list), range(32))
    assert threading.active_count() == before
