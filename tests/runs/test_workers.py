"""Evaluations with `--workers`: table, budget and meter are those of one process, also where a worker is killed."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import dspy
import mempiler
import psutil
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.errors import EndpointError, MissingDependencyError, UnknownNameError, UserError
from mempiler.runs.ray_tasks import run_in_processes
from mempiler.runs.workers import split_by_conversation

from .evaluations import table
from ..run_inputs import run_inputs

EVALUATE = ["evaluate", "turn-rag", "--split", "train", "--adapter", "chat"]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, which ends with the tests of this file."""
    found = pytest.importorskip("ray")
    yield found
    found.shutdown()


@pytest.fixture
def kill_worker(ray: Any) -> Callable[[int], Callable[[int, str], None]]:
    """What a stub server does: `kill_worker(8)` kills the first worker after eight requests."""
    once = threading.Lock()

    def killing(after: int) -> Callable[[int, str], None]:
        def script(n: int, text: str) -> None:
            if n > after and once.acquire(blocking=False):
                below = psutil.Process().children(recursive=True)
                min(
                    (one for one in below if "ray::_run_task" in one.name()),
                    key=lambda one: one.pid,
                ).kill()

        return script

    return killing


def fail(n: int) -> Iterator[Any]:
    if n == 0:
        raise UnknownNameError("method", "no-such", ["turn-rag"])
    if n == 1:
        raise EndpointError("the endpoint is gone")
    yield "begun"
    time.sleep(1.5)
    yield "through"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "kind", "said"), [(0, UserError, "no-such"), (1, EndpointError, "is gone")]
)
def test_an_error_of_ours_ends_all_after_what_was_begun(
    n: int, kind: Any, said: str, ray: Any
) -> None:
    found: list[Any] = []
    with pytest.raises(kind, match=said):
        found.extend(output.value for output in run_in_processes(fail, [2, n], 2))
    assert found == ["begun", "through"]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        *(
            ({"workers": each}, "give a number of processes, or HOST:PORT")
            for each in (0, -1, "two", "ray")
        ),
        ({"lm": "gguf:qwen"}, "--api-base"),
        ({"judge_lm": "local:model"}, "--api-base"),
        ({"replay": "run"}, "--replay"),
    ],
)
def test_options_that_do_not_go_with_workers_are_refused(
    about: dict[str, Any], said: str, ray: Any
) -> None:
    with pytest.raises(UserError, match=said):
        run_inputs(**{"benchmark": "locomo", "workers": 2, **about})


def test_a_model_that_no_other_process_can_have_is_one_line(ray: Any) -> None:
    lm = dspy.LM("own/model", engine=OfflineEngine())
    lm.lock = threading.Lock()
    with pytest.raises(
        UserError, match="--workers: a model or metric of your own cannot be sent"
    ) as error:
        mempiler.evaluate("turn-rag", benchmark="locomo", test=6, lm=lm, workers=2, progress=False)
    assert "\n" not in str(error.value)


class Unpicklable:
    """An object with an error of its own when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not\nme")


def test_any_error_of_pickling_is_one_line(ray: Any) -> None:
    inputs: Any = [Unpicklable()]
    with pytest.raises(UserError, match="cannot be sent to another process") as error:
        list(run_in_processes(fail, inputs, 2))
    assert "\n" not in str(error.value)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingDependencyError, match=r"^ray is not installed; run: pip install '\.\[ray\]'$"
    ):
        run_inputs("locomo", workers=2)


def test_a_conversation_is_in_one_part_and_parts_are_of_one_size() -> None:
    known = benchmark("locomo")
    for parts in (1, 2, 3, 100):
        found = split_by_conversation(known, known.examples, parts)
        groups = [{known.group(example) for example in part} for part in found]
        assert sum(map(len, groups)) == len(set().union(*groups)) >= len(found)
        assert sorted(str(e.id) for part in found for e in part) == sorted(
            str(e.id) for e in known.examples
        )
        sizes = sorted(map(len, found))
        assert sizes[0] > 0
        assert sizes[-1] - sizes[0] <= max(
            sum(known.group(example) == group for example in known.examples)
            for group in set().union(*groups)
        )


def odd(n: int, text: str) -> str | None:
    """What some prompts meet, whoever sends them, and whenever."""
    return "garbled" if "[[ ## facts ## ]]" in text and "[D2:1]" in text else None


@pytest.mark.slow
def test_a_killed_workers_questions_are_asked_again(
    kill_worker, stub, mempiler_cli, caplog
) -> None:
    server = stub(kill_worker(8), delay=0.05)
    alone = mempiler_cli(stub(), *EVALUATE, train=24, threads=4).found
    together = mempiler_cli(
        server, *EVALUATE, "--workers", "2", "--max-calls", "200", train=24, threads=4
    ).found
    same = ("n", "score", "interval", "by", "retrieval", "failures", "stopped")
    assert {name: together[name] for name in same} == {name: alone[name] for name in same}
    assert len([record for record in caplog.records if "worker" in record.message]) == 1
    # Of the worker that was killed, at most what it had in flight is asked twice.
    assert len(server.texts) <= alone["calls"]["task"] + 2


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_budget_holds_over_all_processes(
    killed: bool, kill_worker: Any, stub: Any, mempiler_cli: Any
) -> None:
    words = [*EVALUATE, "--workers", "2", "--max-calls"]
    server = stub(kill_worker(4) if killed else None, delay=0.05)
    ran = mempiler_cli(server, *words, "15", train=24, threads=4)
    assert ran.found["stopped"] == "budget reached: max-calls 15"
    assert 0 < ran.found["n"] < 24
    assert len(server.texts) <= 15
    if killed:
        # Its part comes back, less the calls that its two threads may have had in flight.
        assert len(server.texts) >= 13
        assert len(server.texts) - 2 <= ran.found["calls"]["task"] <= len(server.texts)
    else:
        assert ran.found["calls"]["task"] == len(server.texts) == 15


@pytest.mark.slow
def test_a_refused_key_ends_the_run_and_a_resumed_one_asks_the_rest(
    ray: Any, stub: Any, mempiler_cli: Any
) -> None:
    refused = threading.Event()
    refused.set()
    # Answers take longer than refusals: some are in flight when the run ends, and paid.
    server = stub(lambda n, text: "401" if refused.is_set() and n > 6 else None, delay=0.5)
    broken = mempiler_cli(server, *EVALUATE, "--workers", "2", train=24, threads=4)
    assert broken.code == 2
    assert "refuses the key" in broken.line
    refused.clear()
    whole = mempiler_cli(
        server, *EVALUATE, "--workers", "2", "--resume", broken.resume, train=24, threads=4
    ).found
    assert whole["n"] == 24 - whole["by"]["5"]["n"]
    assert whole["failures"] == 0
    assert server.answered == len(set(server.texts))


@pytest.mark.slow
def test_an_address_is_that_of_a_cluster_or_refused_in_one_line(
    ray: Any, stub: Any, mempiler_cli: Any
) -> None:
    words = ["evaluate", "fact-store", "--split", "train", "--adapter", "chat"]
    ray.shutdown()
    with pytest.raises(UserError, match=r"--workers 127.0.0.1:1: no Ray cluster answers there"):
        list(run_in_processes(fail, [2], "127.0.0.1:1"))
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    address = ray.init("local", num_cpus=2, **quiet).address_info["gcs_address"]
    alone, together = [
        mempiler_cli(stub(odd), *words, "--workers", workers, train=12, threads=4).found
        for workers in ("1", address)
    ]
    assert table(together, "lm", "model") == table(alone, "lm", "model")
    assert alone["write_failures"] > 1
