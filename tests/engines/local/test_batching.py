"""Batching: concurrent calls share runs, everybody gets the own result or the failure."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mempiler.engines.local.batching import Batcher
from mempiler.errors import UserError


def together(batcher, rows, threads=16):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batcher.call, rows))


def test_concurrent_calls_share_batches_of_bounded_size_and_get_their_own_results():
    batches = []

    def run(rows):
        batches.append(rows)
        time.sleep(0.01)
        return [2 * row for row in rows]

    assert together(Batcher(run, limit=12), range(64)) == [2 * row for row in range(64)]
    assert sorted(row for batch in batches for row in batch) == list(range(64))
    assert len(batches) < 20
    assert max(map(len, batches)) <= 12


def test_a_batch_waits_as_long_as_others_come():
    sizes = []
    batcher = Batcher(lambda rows: [sizes.append(len(rows)), *rows][1:], window=0.5)

    def late(row):
        time.sleep(row * 0.3)
        return batcher.call(row)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(late, range(3))) == [0, 1, 2]
    assert sizes == [3]


@pytest.mark.parametrize("error", [ValueError("no weights"), KeyboardInterrupt("no weights")])
def test_a_failure_reaches_every_call_of_its_batch_and_no_later_one(error):
    broken = [True]

    def run(rows):
        if broken:
            raise error
        return rows

    batcher = Batcher(run, window=0.05)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(batcher.call, row) for row in range(8)]
    assert {str(call.exception()) for call in calls} == {"no weights"}
    broken.clear()
    assert batcher.call(7) == 7


def test_a_batch_that_runs_out_of_memory_is_tried_in_halves():
    sizes = []

    def run(rows, most=2):
        sizes.append(len(rows))
        if len(rows) > most:
            raise MemoryError
        return rows

    assert together(Batcher(run, window=5, limit=8), range(8), threads=8) == list(range(8))
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
    with pytest.raises(UserError, match="memory ran out at a single completion"):
        Batcher(lambda rows: run(rows, most=0)).call(1)
