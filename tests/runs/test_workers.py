"""Evaluations with `--workers`: result, budget and calls are the same as with one process.

Workers are processes that answer a part of the questions each. The library Ray starts them on this
machine, or in a cluster, whose address a user gives in place of the number of workers.
"""

from __future__ import annotations

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

from ..run_inputs import run_inputs
from .evaluations import reproducible_part

EVALUATE = ["evaluate", "turn-rag", "--split", "train", "--adapter", "chat"]
"""Asks the training questions. Turn RAG makes one call for each."""

Script = Callable[[int, str], str | None]
"""What a stub server does with a request, by its number and its prompt."""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, which is shut down after the tests of this file."""
    ray_module = pytest.importorskip("ray")
    yield ray_module
    ray_module.shutdown()


@pytest.fixture
def kill_worker_after(ray: Any) -> Callable[[int], Script]:
    """A function that returns a script which kills the oldest worker after some requests, once."""
    first_kill = threading.Lock()

    def make_script(request_count: int) -> Script:
        def kill_one_worker(request_number: int, prompt: str) -> None:
            if request_number <= request_count:
                return
            if not first_kill.acquire(blocking=False):
                return
            workers = []
            for process in psutil.Process().children(recursive=True):
                if "ray::_run_task" in process.name():
                    workers.append(process)
            oldest = min(workers, key=lambda worker: worker.pid)
            oldest.kill()

        return kill_one_worker

    return make_script


# What `work` below is to do.
USER_ERROR = 0
ENDPOINT_ERROR = 1
SLOW_SUCCESS = 2


def work(kind: int) -> Iterator[str]:
    """Fail at once, or yield two outputs, of which the second takes a while."""
    if kind == USER_ERROR:
        raise UnknownNameError("method", "no-such", ["turn-rag"])
    if kind == ENDPOINT_ERROR:
        raise EndpointError("the endpoint is gone")
    yield "begun"
    time.sleep(1.5)
    yield "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing_work", "error", "message"),
    [
        (USER_ERROR, UserError, "no-such"),
        (ENDPOINT_ERROR, EndpointError, "is gone"),
    ],
)
def test_an_error_of_a_worker_is_raised_after_the_others_have_finished(
    failing_work: int, error: type[Exception], message: str, ray: Any
) -> None:
    """One worker fails at once, while the other still has something to do."""
    outputs: list[str] = []

    def collect_outputs() -> None:
        for output in run_in_processes(work, [SLOW_SUCCESS, failing_work], workers=2):
            outputs.append(output.value)

    with pytest.raises(error, match=message):
        collect_outputs()
    assert outputs == ["begun", "finished"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "give a number of processes, or HOST:PORT"),
        ({"workers": -1}, "give a number of processes, or HOST:PORT"),
        ({"workers": "two"}, "give a number of processes, or HOST:PORT"),
        ({"workers": "ray"}, "give a number of processes, or HOST:PORT"),
        ({"lm": "gguf:qwen"}, "--api-base"),
        ({"judge_lm": "local:model"}, "--api-base"),
        ({"replay": "run"}, "--replay"),
    ],
)
def test_options_that_do_not_go_with_workers_are_refused(
    options: dict[str, Any], message: str, ray: Any
) -> None:
    with pytest.raises(UserError, match=message):
        run_inputs(**{"benchmark": "locomo", "workers": 2, **options})


@pytest.mark.slow
def test_a_model_that_cannot_be_sent_to_another_process_is_refused_in_one_line(ray: Any) -> None:
    lm = dspy.LM("own/model", engine=OfflineEngine())
    lm.lock = threading.Lock()  # locks cannot be pickled

    with pytest.raises(UserError) as refused:
        mempiler.evaluate("turn-rag", benchmark="locomo", test=6, lm=lm, workers=2, progress=False)
    message = str(refused.value)
    assert "--workers: a model or metric of your own cannot be sent" in message
    assert "\n" not in message


class Unpicklable:
    """An object that raises an error of its own when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not\nme")


def test_any_error_of_pickling_is_one_line(ray: Any) -> None:
    inputs: Any = [Unpicklable()]

    with pytest.raises(UserError) as refused:
        list(run_in_processes(work, inputs, workers=2))
    assert "cannot be sent to another process" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is only installed if a user asks for it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"^ray is not installed; run: pip install '\.\[ray\]'$"

    with pytest.raises(MissingDependencyError, match=message):
        run_inputs("locomo", workers=2)


@pytest.mark.parametrize("part_count", [1, 2, 3, 100])
def test_all_questions_about_a_conversation_are_in_the_same_part(part_count: int) -> None:
    """A worker gets one part at a time, and writes the memories that its questions need."""
    locomo = benchmark("locomo")
    question_ids = sorted(str(example.id) for example in locomo.examples)
    conversations = {locomo.group(example) for example in locomo.examples}

    parts = split_by_conversation(locomo, locomo.examples, part_count)

    ids_in_parts = []
    conversations_in_parts = []
    for part in parts:
        assert part
        ids_in_parts.extend(str(example.id) for example in part)
        conversations_in_parts.extend({locomo.group(example) for example in part})
    assert sorted(ids_in_parts) == question_ids
    # Each conversation occurs once: it is in one part only.
    assert len(conversations_in_parts) == len(conversations)
    assert set(conversations_in_parts) == conversations


@pytest.mark.parametrize("part_count", [1, 2, 3, 100])
def test_parts_differ_in_size_by_one_conversation_at_most(part_count: int) -> None:
    locomo = benchmark("locomo")
    conversation_sizes: dict[str, int] = {}
    for example in locomo.examples:
        conversation = locomo.group(example)
        conversation_sizes[conversation] = conversation_sizes.get(conversation, 0) + 1

    parts = split_by_conversation(locomo, locomo.examples, part_count)

    assert len(parts) <= part_count
    part_sizes = [len(part) for part in parts]
    assert max(part_sizes) - min(part_sizes) <= max(conversation_sizes.values())


@pytest.mark.slow
def test_the_questions_of_a_killed_worker_are_asked_again(
    kill_worker_after: Any, stub: Any, mempiler_cli: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result_of_one_process = mempiler_cli(stub(), *EVALUATE, train=24, threads=4).printed_json

    server = stub(kill_worker_after(8), delay=0.05)
    options = ["--workers", "2", "--max-calls", "200"]
    result_of_workers = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    for name in ("n", "score", "interval", "by", "retrieval", "failures", "stopped"):
        assert result_of_workers[name] == result_of_one_process[name], name
    warnings = [record for record in caplog.records if "worker" in record.message]
    assert len(warnings) == 1
    # At most the two calls that the killed worker had in flight are made twice.
    assert len(server.texts) <= result_of_one_process["calls"]["task"] + 2


@pytest.mark.slow
def test_a_budget_holds_over_all_processes(ray: Any, stub: Any, mempiler_cli: Any) -> None:
    """Both workers together may make 15 calls, too few for 24 questions."""
    server = stub(delay=0.05)
    options = ["--workers", "2", "--max-calls", "15"]
    evaluated = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    assert evaluated["stopped"] == "budget reached: max-calls 15"
    assert 0 < evaluated["n"] < 24
    assert evaluated["calls"]["task"] == 15
    assert len(server.texts) == 15


@pytest.mark.slow
def test_a_budget_holds_where_a_worker_is_killed(
    kill_worker_after: Any, stub: Any, mempiler_cli: Any
) -> None:
    """Both workers together may make 15 calls, too few for 24 questions."""
    server = stub(kill_worker_after(4), delay=0.05)
    options = ["--workers", "2", "--max-calls", "15"]
    evaluated = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    assert evaluated["stopped"] == "budget reached: max-calls 15"
    assert 0 < evaluated["n"] < 24
    # The budget of the killed worker comes back, less the calls that its two threads may have had
    # in flight: nobody knows if these were made.
    request_count = len(server.texts)
    assert 15 - 2 <= request_count <= 15
    assert request_count - 2 <= evaluated["calls"]["task"] <= request_count


@pytest.mark.slow
def test_a_refused_key_ends_the_run_and_a_resumed_one_asks_the_rest(
    ray: Any, stub: Any, mempiler_cli: Any
) -> None:
    """The server refuses the key from the seventh request on, until the run has ended."""
    key_is_refused = threading.Event()

    def refuse_key(request_number: int, prompt: str) -> str | None:
        return "401" if key_is_refused.is_set() and request_number > 6 else None

    # Answers take longer than refusals: some are in flight when the run ends, and paid.
    server = stub(refuse_key, delay=0.5)
    command = [*EVALUATE, "--workers", "2"]

    key_is_refused.set()
    broken = mempiler_cli(server, *command, train=24, threads=4)
    assert broken.code == 2
    assert "refuses the key" in broken.error_line

    key_is_refused.clear()
    resumed = mempiler_cli(
        server, *command, "--resume", broken.resumable_run, train=24, threads=4
    ).printed_json
    unanswerable = resumed["by"]["5"]["n"]
    assert resumed["n"] == 24 - unanswerable
    assert resumed["failures"] == 0
    # No question was answered twice.
    assert server.answered == len(set(server.texts))


@pytest.mark.slow
def test_an_address_without_a_cluster_is_refused_in_one_line(ray: Any) -> None:
    ray.shutdown()
    message = r"--workers 127.0.0.1:1: no Ray cluster answers there"

    with pytest.raises(UserError, match=message):
        list(run_in_processes(work, [SLOW_SUCCESS], workers="127.0.0.1:1"))


def garble_some_facts(request_number: int, prompt: str) -> str | None:
    """Garble the answers to some prompts, whoever sends them and whenever."""
    return "garbled" if "[[ ## facts ## ]]" in prompt and "[D2:1]" in prompt else None


@pytest.mark.slow
def test_a_run_in_a_cluster_gives_the_result_of_one_process(
    ray: Any, stub: Any, mempiler_cli: Any
) -> None:
    ray.shutdown()
    cluster = ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    address = cluster.address_info["gcs_address"]
    command = ["evaluate", "fact-store", "--split", "train", "--adapter", "chat", "--workers"]

    one_process = mempiler_cli(stub(garble_some_facts), *command, "1", train=12, threads=4)
    in_cluster = mempiler_cli(stub(garble_some_facts), *command, address, train=12, threads=4)

    assert one_process.printed_json["write_failures"] > 1
    # Each server has a model name of its own.
    result_of_one_process = reproducible_part(one_process.printed_json, "lm", "model")
    result_of_cluster = reproducible_part(in_cluster.printed_json, "lm", "model")
    assert result_of_cluster == result_of_one_process
