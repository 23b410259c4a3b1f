"""Evaluations with `--workers`: result, budget and calls are the same as with one process.

Workers are processes that answer a part of the questions each. The library Ray starts them on this
machine, or in a cluster, whose address a user gives in place of the number of workers.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

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
def kill_one_worker_after(ray: Any) -> Callable[[int], Script]:
    """A function that returns a script for a stub server: it kills a worker after some requests.

    Only one worker is killed, the oldest.
    """
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


Work = Literal["make a mistake of the user", "lose the endpoint", "succeed slowly"]


def do_work(work: Work) -> Iterator[str]:
    """Fail at once, or yield two outputs, of which the second takes a while."""
    if work == "make a mistake of the user":
        raise UnknownNameError("method", "no-such", ["turn-rag"])
    if work == "lose the endpoint":
        raise EndpointError("the endpoint is gone")
    yield "begun"
    time.sleep(1.5)
    yield "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing_work", "error", "message"),
    [
        ("make a mistake of the user", UserError, "no-such"),
        ("lose the endpoint", EndpointError, "is gone"),
    ],
)
def test_an_error_of_a_worker_is_raised_after_the_others_have_finished(
    failing_work: Work, error: type[Exception], message: str, ray: Any
) -> None:
    """One worker fails at once, while the other still has something to do."""
    outputs: list[str] = []
    works: list[Work] = ["succeed slowly", failing_work]

    def collect_outputs() -> None:
        for output in run_in_processes(do_work, works, workers=2):
            outputs.append(output.value)

    with pytest.raises(error, match=message):
        collect_outputs()
    assert outputs == ["begun", "finished"]


@pytest.mark.parametrize("workers", [0, -1, "two", "ray"])
@pytest.mark.usefixtures("ray")
def test_workers_that_are_neither_a_number_nor_an_address_are_refused(workers: Any) -> None:
    with pytest.raises(UserError, match="give a number of processes, or HOST:PORT"):
        run_inputs("locomo", workers=workers)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        pytest.param({"lm": "gguf:qwen"}, "--api-base", id="a model of this process"),
        pytest.param({"judge_lm": "local:model"}, "--api-base", id="a judge of this process"),
        pytest.param({"replay": "run"}, "--replay", id="a replay"),
    ],
)
@pytest.mark.usefixtures("ray")
def test_options_that_do_not_go_with_workers_are_refused(
    option: dict[str, Any], advice: str
) -> None:
    with pytest.raises(UserError, match=advice):
        run_inputs("locomo", workers=2, **option)


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_a_model_that_cannot_be_sent_to_another_process_is_refused_in_one_line() -> None:
    """An object is sent by pickling it, and a lock cannot be pickled."""
    lm = dspy.LM("own/model", engine=OfflineEngine())
    lm.lock = threading.Lock()

    with pytest.raises(UserError) as refused:
        mempiler.evaluate("turn-rag", benchmark="locomo", test=6, lm=lm, workers=2, progress=False)

    message = str(refused.value)
    assert "--workers: a model or metric of your own cannot be sent" in message
    assert "\n" not in message


class Unpicklable:
    """An object that raises an error with two lines when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not\nme")


@pytest.mark.usefixtures("ray")
def test_any_error_of_pickling_is_reported_in_one_line() -> None:
    inputs: Any = [Unpicklable()]

    with pytest.raises(UserError) as refused:
        list(run_in_processes(do_work, inputs, workers=2))

    assert "cannot be sent to another process" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_workers_without_ray_are_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To Python, a module that is None is one that is not installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"^ray is not installed; run: pip install '\.\[ray\]'$"

    with pytest.raises(MissingDependencyError, match=message):
        run_inputs("locomo", workers=2)


@pytest.mark.parametrize("part_count", [1, 2, 3, 100])
def test_every_question_is_in_one_part(part_count: int) -> None:
    """A worker gets one part at a time."""
    locomo = benchmark("locomo")
    all_ids = sorted(str(example.id) for example in locomo.examples)

    parts = split_by_conversation(locomo, locomo.examples, part_count)

    assert sorted(str(example.id) for part in parts for example in part) == all_ids


@pytest.mark.parametrize("part_count", [1, 2, 3, 100])
def test_all_questions_about_a_conversation_are_in_the_same_part(part_count: int) -> None:
    """So only one worker writes the memory of a conversation."""
    locomo = benchmark("locomo")
    conversations = {locomo.group(example) for example in locomo.examples}

    parts = split_by_conversation(locomo, locomo.examples, part_count)

    conversations_in_parts: list[str] = []
    for part in parts:
        conversations_in_parts.extend({locomo.group(example) for example in part})
    # If a conversation were in two parts, it would occur twice.
    assert sorted(conversations_in_parts) == sorted(conversations)


@pytest.mark.parametrize("part_count", [1, 2, 3, 100])
def test_parts_differ_in_size_by_the_largest_conversation_at_most(part_count: int) -> None:
    locomo = benchmark("locomo")
    question_counts = Counter(locomo.group(example) for example in locomo.examples)

    parts = split_by_conversation(locomo, locomo.examples, part_count)

    assert len(parts) <= part_count
    part_sizes = [len(part) for part in parts]
    assert min(part_sizes) > 0
    assert max(part_sizes) - min(part_sizes) <= max(question_counts.values())


@pytest.mark.slow
def test_the_questions_of_a_killed_worker_are_asked_again(
    kill_one_worker_after: Any, stub: Any, mempiler_cli: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has the result of a run with one process.

    At most the two calls that the killed worker had in flight are made twice.
    """
    one_process = mempiler_cli(stub(), *EVALUATE, train=24, threads=4).printed_json

    server = stub(kill_one_worker_after(8), delay=0.05)
    options = ["--workers", "2", "--max-calls", "200"]
    two_workers = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    for name in ("n", "score", "interval", "by", "retrieval", "failures", "stopped"):
        assert two_workers[name] == one_process[name], name
    assert len(server.texts) <= one_process["calls"]["task"] + 2
    warnings = [record for record in caplog.records if "worker" in record.message]
    assert len(warnings) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_two_workers_together_make_no_more_calls_than_the_limit(
    stub: Any, mempiler_cli: Any
) -> None:
    """The limit is 15 calls, too few for 24 questions."""
    server = stub(delay=0.05)
    options = ["--workers", "2", "--max-calls", "15"]

    evaluated = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    assert evaluated["stopped"] == "budget reached: max-calls 15"
    assert 0 < evaluated["n"] < 24
    assert evaluated["calls"]["task"] == 15
    assert len(server.texts) == 15


@pytest.mark.slow
def test_workers_make_no_more_calls_than_the_limit_even_if_one_is_killed(
    kill_one_worker_after: Any, stub: Any, mempiler_cli: Any
) -> None:
    """The limit is 15 calls. Nobody knows if the calls that were in flight at the kill were made.

    Each of the two threads of the killed worker may have had one. So up to two calls may be missing
    in the count, and up to two calls of the limit may not be used.
    """
    server = stub(kill_one_worker_after(4), delay=0.05)
    options = ["--workers", "2", "--max-calls", "15"]

    evaluated = mempiler_cli(server, *EVALUATE, *options, train=24, threads=4).printed_json

    assert evaluated["stopped"] == "budget reached: max-calls 15"
    request_count = len(server.texts)
    assert 15 - 2 <= request_count <= 15
    assert request_count - 2 <= evaluated["calls"]["task"] <= request_count


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_a_run_whose_key_was_refused_is_resumed_without_asking_a_question_twice(
    stub: Any, mempiler_cli: Any
) -> None:
    """The server refuses the key from the seventh request on, until the first run has ended.

    Answers take longer than refusals, so some answers are still on their way at the end, and paid.
    """
    key_is_refused = threading.Event()

    def refuse_key(request_number: int, prompt: str) -> str | None:
        return "401" if key_is_refused.is_set() and request_number > 6 else None

    server = stub(refuse_key, delay=0.5)
    command = [*EVALUATE, "--workers", "2"]

    key_is_refused.set()
    refused = mempiler_cli(server, *command, train=24, threads=4)
    assert refused.code == 2
    assert "refuses the key" in refused.error_line

    key_is_refused.clear()
    resumed = mempiler_cli(
        server, *command, "--resume", refused.resumable_run, train=24, threads=4
    ).printed_json
    # Questions of category 5, which cannot be answered, do not count.
    assert resumed["n"] + resumed["by"]["5"]["n"] == 24
    assert resumed["failures"] == 0
    assert server.answered == len(set(server.texts))


@pytest.mark.slow
def test_an_address_without_a_cluster_is_refused(ray: Any) -> None:
    ray.shutdown()
    works: list[Work] = ["succeed slowly"]

    with pytest.raises(UserError, match=r"--workers 127.0.0.1:1: no Ray cluster answers there"):
        list(run_in_processes(do_work, works, workers="127.0.0.1:1"))


def garble_some_facts(request_number: int, prompt: str) -> str | None:
    """Garble the answers to some prompts, whoever sends them and whenever."""
    return "garbled" if "[[ ## facts ## ]]" in prompt and "[D2:1]" in prompt else None


@pytest.fixture
def cluster_address(ray: Any) -> str:
    """The address of a Ray cluster with two processors, which is on this machine."""
    ray.shutdown()
    cluster = ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    return cluster.address_info["gcs_address"]


@pytest.mark.slow
def test_a_run_in_a_cluster_gives_the_result_of_one_process(
    cluster_address: str, stub: Any, mempiler_cli: Any
) -> None:
    """Some facts could not be written. These failures are the same, too."""
    command = ["evaluate", "fact-store", "--split", "train", "--adapter", "chat", "--workers"]

    one_process = mempiler_cli(stub(garble_some_facts), *command, "1", train=12, threads=4)
    cluster = mempiler_cli(stub(garble_some_facts), *command, cluster_address, train=12, threads=4)

    assert one_process.printed_json["write_failures"] > 1
    # Each stub server has a model name of its own.
    result_of_one_process = reproducible_part(one_process.printed_json, "lm", "model")
    result_of_cluster = reproducible_part(cluster.printed_json, "lm", "model")
    assert result_of_cluster == result_of_one_process
