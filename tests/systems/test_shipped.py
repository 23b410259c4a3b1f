"""Workers of other people's memory systems: well-behaved ones, hostile ones, and their models.

Mempiler compares its methods with published memory systems, such as mem0. Each is installed in its
own environment and runs in a worker process, since its code may do anything: print, crash or hang.
It stores sessions by `add` and finds texts by `search`. It gets no key of the user: it asks models
at a local endpoint, which asks the model of the run.

In these tests the system is the plain one of `conftest.py`, which keeps texts and lists them all,
with some methods changed: `start("def add(self, session): ...")`.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import httpx
import numpy as np
import openai
import pytest
from mempiler.engines.call_context import measure_usage
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.errors import BudgetError, EndpointError, UserError
from mempiler.records import Session
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.results import Evaluation
from mempiler.systems import environment
from mempiler.systems.catalog import SYSTEMS, ShippedSystem, factory, isolated
from mempiler.systems.environment import STAMP, Environment
from mempiler.systems.process import LOG, System, SystemFailedError
from mempiler.systems.proxy import Proxy

from ..conftest import within
from ..run_inputs import run_inputs
from .conftest import Start, session_of_ann, write_system

# One system.


def test_a_system_finds_an_added_session(start: Start) -> None:
    """The plain system, which `start` runs in a worker process, returns all texts that it has."""
    system = start()

    system.add(session_of_ann("I moved to Lisbon."))

    assert system.search("Where does Ann live?", k=5) == [
        {"text": "I moved to Lisbon.", "ids": ["D1:1"]}
    ]


PRINTING = """
    def add(self, session):
        print('{}')
        os.system('echo noise')
        print('more', file=sys.stderr)
        super().add(session)
"""


def test_what_a_system_prints_goes_to_its_log_alone(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    """The worker answers in JSON, so printed text must neither be taken for an answer nor be shown.

    The system prints "greetings" and "garbage" when it starts, and "{}", "noise" and "more" when a
    session is added: by Python, by a child process and into the standard error.
    """
    system = start(PRINTING)
    system.add(session_of_ann("I moved to Lisbon."))
    entries = system.search("Where does Ann live?", k=5)
    system.close()

    assert entries == [{"text": "I moved to Lisbon.", "ids": ["D1:1"]}]
    shown_output, shown_errors = capfd.readouterr()
    assert shown_output == ""
    assert shown_errors == ""
    log = (system.folder / LOG).read_text()
    for printed in ("greetings", "garbage", "{}", "noise", "more"):
        assert printed in log


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        pytest.param(
            "raise ValueError('no room')",
            r"ValueError: no room \(\w+\.py:\d+\)$",
            id="an exception",
        ),
        pytest.param(
            "return object()",
            "TypeError: object is no entry, and not JSON serializable",
            id="a result of the wrong type",
        ),
        # Beyond the limits of a worker process
        pytest.param(
            "(self.folder / 'big').open('wb').truncate(3 << 30)",
            "OSError: .*too large",
            id="a file of three GB",
        ),
        pytest.param("bytearray(9 << 30)", "MemoryError", id="nine GB of memory"),
    ],
)
def test_an_error_of_a_system_fails_one_call_alone(
    start: Start, statement: str, reason: str
) -> None:
    """A system runs in a worker process, which goes on after an error in the code of the system."""
    system = start(f"def add(self, session): {statement}")

    with pytest.raises(SystemFailedError, match=f"^scripted: add: {reason}"):
        system.add(session_of_ann("I moved to Lisbon."))

    # The next call works; nothing was added.
    assert system.search("x", k=1) == []


# It writes to the sockets of the worker, and answers nothing.
WRITING_GARBAGE = """
    def add(self, session):
        for number in range(3, 999):
            with contextlib.suppress(OSError):
                os.write(number, bytes([255]) * 12)
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        pytest.param(
            "def add(self, session): os._exit(3)",
            "ended by itself, status 3; last said: .*garbage",
            id="exit",
        ),
        pytest.param(
            "def add(self, session): os.kill(os.getpid(), signal.SIGKILL)",
            "ended by SIGKILL",
            id="kill",
        ),
        pytest.param(WRITING_GARBAGE, "gave no answer that can be read", id="garbage"),
    ],
)
def test_a_crash_fails_the_call_and_every_call_after_it_with_one_reason(
    start: Start, methods: str, reason: str
) -> None:
    """The worker is gone, or says nothing that can be read, so it is not asked again."""
    system = start(methods)

    with pytest.raises(SystemFailedError, match=f"^scripted: .*{reason}"):
        system.add(session_of_ann("I moved to Lisbon."))
    with pytest.raises(SystemFailedError, match=reason):
        system.search("x", k=1)


# It starts a child process, writes the numbers of both processes into a file, and hangs.
SPAWNING = """
    def add(self, session):
        child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
        numbers = self.folder / 'numbers.json'
        numbers.with_suffix('.new').write_text(json.dumps([os.getpid(), child.pid]))
        numbers.with_suffix('.new').rename(numbers)
        time.sleep(600)
"""


def process_numbers(system_folder: Path, seconds: float) -> list[int]:
    """Wait for the numbers of the worker and of its child that a `SPAWNING` system writes."""
    file = system_folder / "store" / "numbers.json"
    assert within(seconds, file.exists)
    return json.loads(file.read_text())


def is_running(process_number: int) -> bool:
    """Tell whether a process has not ended yet."""
    try:
        os.kill(process_number, 0)
    except ProcessLookupError:
        return False
    # A process that has ended, and that nobody waited for, still has its number.
    status = Path(f"/proc/{process_number}/stat").read_text()
    state = status.rpartition(")")[2].split()[0]
    return state != "Z"


def test_a_system_that_hangs_can_be_killed_together_with_the_processes_it_started(
    start: Start,
) -> None:
    """One thread waits for the system, and another kills it, as when its time is over.

    The system starts a child process, writes the numbers of both processes into a file, and hangs.
    """
    system = start(SPAWNING)

    def kill_when_it_hangs() -> None:
        process_numbers(system.folder, seconds=20)
        system.kill()

    killing_thread = threading.Thread(target=kill_when_it_hangs)
    killing_thread.start()
    with pytest.raises(SystemFailedError, match="ended"):
        system.add(session_of_ann("I moved to Lisbon."))
    killing_thread.join()

    worker_number, child_number = process_numbers(system.folder, seconds=0)
    assert not is_running(worker_number)
    assert within(20, lambda: not is_running(child_number))


# A program that asks a system which hangs; called with the file of the system and a folder.
ASK_A_SYSTEM = """
import sys
from pathlib import Path

from mempiler.engines.embedders import embedder
from mempiler.records import Session, Turn
from mempiler.systems.process import System

file, folder = Path(sys.argv[1]), Path(sys.argv[2])
system = System("scripted", Path(sys.executable), file, {}, folder, embedder())
system.add(Session(id="D1", turns=(Turn(id="D1:1", speaker="Ann", text="I moved."),)))
"""


@pytest.mark.slow
def test_a_system_that_hangs_ends_when_the_process_that_started_it_was_killed(
    tmp_path: Path,
) -> None:
    """A killed run leaves no process behind that would use the machine for ever.

    The system has started a child process, and hangs. Then the program that uses it is killed.
    """
    file = write_system(tmp_path / "system", SPAWNING)
    system_folder = tmp_path / "folder"
    command = [sys.executable, "-c", ASK_A_SYSTEM, str(file), str(system_folder)]
    program = subprocess.Popen(command)
    worker_number, child_number = process_numbers(system_folder, seconds=60)

    program.kill()
    program.wait()

    assert within(20, lambda: not is_running(worker_number))
    assert within(20, lambda: not is_running(child_number))


def test_a_system_gets_no_key_of_the_user(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a search returns the whole environment of the system."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mine-too")
    system = start("def search(self, query, k): return [json.dumps(dict(os.environ))]")

    [environment_of_system] = system.search("x", k=1)

    assert "sk-mine" not in environment_of_system
    # Its home is in its own folder, where it finds no files with keys.
    assert str(system.folder / "home") in environment_of_system


# Evaluations of a system.


@dataclass(frozen=True)
class ScriptedSystem(ShippedSystem):
    """A system of a test, in the place of one that this package ships."""

    file_of_system: Path
    pins: Path

    @property
    def file(self) -> Path:
        return self.file_of_system

    @property
    def environment(self) -> Environment:
        return Environment(self.name, self.pins)

    def install(self) -> None:
        """Make an environment whose interpreter is this one, instead of fetching packages."""
        python = self.environment.path / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        (self.environment.path / STAMP).touch()


def write_scripted_system(folder: Path, methods: str) -> ScriptedSystem:
    """Write the files of a system into a new folder; `methods` are as in `evaluate_system`."""
    file = write_system(folder, methods)
    # Names the packages that the system needs, with their versions: none.
    pins = folder / "pins.txt"
    pins.touch()
    return ScriptedSystem("scripted", "a system of the tests", file_of_system=file, pins=pins)


Evaluate = Callable[..., Evaluation]
"""The type of the fixture `evaluate_system`."""


@pytest.fixture
def evaluate_system(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Evaluate:
    """A function that installs a system, and evaluates it on six questions of LoCoMo.

    Its arguments are:
        methods: Python code of the methods that differ from those of the plain system.
        **options: Further options of the run, such as `max_calls=2`.
    """

    def evaluate(methods: str = "", **options: Any) -> Evaluation:
        folder = tmp_path_factory.mktemp("system")
        system = write_scripted_system(folder / "source", methods)
        # The system is installed into this folder, and found by its name in the catalog `SYSTEMS`.
        monkeypatch.setenv("MEMPILER_SYSTEMS", str(folder / "installed"))
        monkeypatch.setitem(SYSTEMS, "scripted", system)
        system.install()

        inputs = run_inputs("locomo", test=6, threads=1, **options)
        return run_evaluate("system:scripted", inputs, split="test")

    return evaluate


def test_an_evaluation_scores_the_answers_of_a_system_and_what_it_found(
    evaluate_system: Evaluate,
) -> None:
    evaluation = evaluate_system()

    assert evaluation.program == "system:scripted"
    assert len(evaluation.rows) == 6
    assert not evaluation.failures
    # The plain system returns everything, so it finds the turns that answer each question.
    assert all(row.hits > 0 for row in evaluation.rows)


def assert_all_questions_failed(evaluation: Evaluation, reason: str) -> None:
    """Assert that an evaluation has a score of 0, and says why for each of its six questions."""
    assert len(evaluation.rows) == 6
    for row in evaluation.rows:
        assert row.failure is not None
        assert reason in row.failure.message
    assert evaluation.score == 0


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        pytest.param(
            "raise ImportError('no such thing')",
            "ImportError: no such thing (scripted.py:",
            id="raises an error",
        ),
        pytest.param(
            "os._exit(9)", 'status 9; last said: {"result": "garbage"}', id="ends its process"
        ),
    ],
)
def test_all_questions_of_a_system_that_breaks_fail_with_a_reason(
    evaluate_system: Evaluate, statement: str, reason: str
) -> None:
    evaluation = evaluate_system(f"def add(self, session): {statement}")

    assert_all_questions_failed(evaluation, reason)


@pytest.mark.slow
def test_all_questions_of_a_system_that_hangs_fail_when_its_time_is_over(
    evaluate_system: Evaluate,
) -> None:
    evaluation = evaluate_system("def add(self, session): time.sleep(600)", set={"timeout": 2.0})

    assert_all_questions_failed(evaluation, reason="no answer within 2 s")


# It asks the model about every session, and stores the answer at once.
ADD_THAT_ASKS_AND_STORES = """
    def add(self, session):
        super().add(session)
        message = {'role': 'user', 'content': session['turns'][0]['text']}
        answer = ask('/chat/completions', messages=[message])
        self.texts.append(['x', json.dumps(answer)])
        self.close()
"""


@pytest.mark.slow
def test_a_resumed_run_writes_anew_what_was_half_written_and_asks_no_model_again(
    evaluate_system: Evaluate,
) -> None:
    """A run that was stopped and resumed ends like one that was not, and costs as much.

    The system asks the model about each session. The run stops after two calls, by its limit, while
    the system has stored a part of the history. The answers to these two calls are in the journal.
    """
    undisturbed_run = evaluate_system(ADD_THAT_ASKS_AND_STORES)
    stopped_run = evaluate_system(ADD_THAT_ASKS_AND_STORES, max_calls=2)
    assert stopped_run.stopped

    stopped_folder = RunFolder.open(str(stopped_run.run_id)).path
    resumed_run = evaluate_system(ADD_THAT_ASKS_AND_STORES, resume=str(stopped_folder))

    assert [row.answer for row in resumed_run.rows] == [row.answer for row in undisturbed_run.rows]
    assert [row.hits for row in resumed_run.rows] == [row.hits for row in undisturbed_run.rows]
    calls_of_both_parts = stopped_run.calls["task"] + resumed_run.calls["task"]
    assert calls_of_both_parts == undisturbed_run.calls["task"]


# Models that a system asks. It finds an endpoint in its environment, which asks the run's model.

CHAT = {"messages": [{"role": "user", "content": "Ann moved to Lisbon. Where did Ann move?"}]}
# Asks the model this for each session, and keeps the answer as a text.
ADD_THAT_ASKS = f"""
    def add(self, session):
        answer = ask('/chat/completions', **{json.dumps(CHAT)})
        self.texts.append(['x', json.dumps(answer)])
"""


class ModelAnswer(NamedTuple):
    """What a system got for a request to its model."""

    text: str
    """The words of the model; the whole answer if it was a refusal."""
    input_tokens: int
    status: int
    """The HTTP status."""


def answers_of_model(system: System) -> list[ModelAnswer]:
    """Return what a system with `ADD_THAT_ASKS` got for its requests, which it keeps as texts."""
    answers: list[ModelAnswer] = []
    for entry in system.search("x", k=9):
        answer = json.loads(entry["text"])
        if "choices" in answer:
            text = answer["choices"][0]["message"]["content"]
            answers.append(ModelAnswer(text, answer["usage"]["prompt_tokens"], status=200))
        else:
            answers.append(ModelAnswer(entry["text"], input_tokens=0, status=answer["status"]))
    return answers


def test_a_system_that_asks_a_model_gets_an_answer_of_the_model_of_the_run(start: Start) -> None:
    """For each session that is added, the system asks "Ann moved to Lisbon. Where did Ann move?".

    The offline model answers with a sentence of the prompt.
    """
    system = start(ADD_THAT_ASKS)

    with dspy.context(lm=language_model("offline")):
        system.add(session_of_ann("I moved to Lisbon."))

    [answer] = answers_of_model(system)
    assert answer.text == "Ann moved to Lisbon."


def test_a_model_call_of_a_system_is_counted_by_the_meter_of_the_run(start: Start) -> None:
    """A user sees what a system costs. The system asks the model once for each added session."""
    meter = Meter()
    system = start(ADD_THAT_ASKS)

    with dspy.context(lm=language_model("offline", meter=meter)):
        system.add(session_of_ann("I moved to Lisbon."))

    usage_of_run = meter.read()
    assert usage_of_run.calls["task"] == 1
    [answer] = answers_of_model(system)
    assert usage_of_run.input_tokens == answer.input_tokens > 0


def test_a_model_call_of_a_system_is_part_of_the_usage_of_the_block_that_asks_it(
    start: Start,
) -> None:
    """`measure_usage` measures the model calls that a block of code makes.

    The system runs in another process, but `add` waits for it, so its calls are made by the block.
    """
    system = start(ADD_THAT_ASKS)

    with dspy.context(lm=language_model("offline")), measure_usage() as measurement:
        system.add(session_of_ann("I moved to Lisbon."))

    assert measurement.usage.calls == 1
    [answer] = answers_of_model(system)
    assert measurement.usage.input_tokens == answer.input_tokens > 0


def test_a_system_whose_run_is_out_of_calls_gets_a_refusal_and_the_run_ends(start: Start) -> None:
    """The limit is one call. The system asks once for each session that is added."""
    system = start(ADD_THAT_ASKS)
    guard = BudgetGuard(Limits(max_calls=1))

    with dspy.context(lm=language_model("offline", guard=guard)):
        system.add(session_of_ann("I moved to Lisbon."))
        with pytest.raises(BudgetError, match="max-calls 1"):
            system.add(session_of_ann("I moved to Lisbon."))

    # The system itself got a refusal, and went on.
    _, second_answer = answers_of_model(system)
    assert second_answer.status == 400


def test_a_system_that_asks_without_a_model_is_told_that_there_is_none(start: Start) -> None:
    system = start(ADD_THAT_ASKS)

    system.add(session_of_ann("I moved to Lisbon."))

    [answer] = answers_of_model(system)
    assert "no language model was given" in answer.text


@contextmanager
def serving(lm: Any) -> Iterator[Proxy]:
    """Serve a model, and the offline embedder, as an endpoint for systems."""
    with dspy.context(lm=lm), closing(Proxy(embedder())) as proxy:
        proxy.serve_here()
        yield proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """An endpoint with the offline model."""
    with serving(language_model("offline")) as offline_proxy:
        yield offline_proxy


@pytest.fixture
def openai_client(proxy: Proxy) -> Iterator[openai.OpenAI]:
    """A client of OpenAI's library, for the endpoint."""
    with openai.OpenAI(base_url=proxy.url, api_key=proxy.key) as client:
        yield client


def test_a_client_of_openai_gets_embeddings(openai_client: openai.OpenAI) -> None:
    texts = ["Ann moved", "", "Bob likes jazz"]

    response = openai_client.embeddings.create(model="any", input=texts)

    vectors = [row.embedding for row in response.data]
    np.testing.assert_allclose(vectors, embedder().embed(texts), atol=1e-6)


def test_a_client_of_openai_gets_a_chat_completion(openai_client: openai.OpenAI) -> None:
    question = "Ann moved to Lisbon. Where did Ann move?"

    response = openai_client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": question}],
        temperature=0.1,
        max_tokens=9,
    )

    [choice] = response.choices
    assert "Lisbon" in str(choice.message.content)
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("content", ["", None])
def test_an_answer_that_was_cut_before_its_first_word_has_the_finish_reason_length(
    stub: Any, content: str | None
) -> None:
    """The empty text alone would not tell the system that the answer was cut.

    Some model servers give an empty text, and others null.
    """
    server = stub(answer=lambda body: {"finish_reason": "length", "content": content})
    lm = language_model(server.model, api_base=server.url)

    with serving(lm) as proxy_of_server:
        [choice] = proxy_of_server.answer("chat/completions", CHAT)["choices"]

    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/embeddings", {"input": [[1, 2]]}, "a text or a list of texts"),
        ("/embeddings", {"input": "x", "dimensions": 7}, "384 numbers, not 7"),
        ("/chat/completions", {**CHAT, "stream": True}, "stream"),
        ("/chat/completions", ["x"], "valid dictionary"),
        ("/audio", {}, "there is no audio"),
    ],
)
def test_requests_that_the_endpoint_cannot_answer_are_refused(
    proxy: Proxy, path: str, body: Any, reason: str
) -> None:
    headers = {"Authorization": f"Bearer {proxy.key}"}

    response = httpx.post(proxy.url + path, json=body, headers=headers)

    assert 400 <= response.status_code < 500
    assert reason in response.text


def test_requests_with_another_key_are_refused(proxy: Proxy) -> None:
    headers = {"Authorization": "Bearer another"}

    response = httpx.post(f"{proxy.url}/embeddings", json={"input": ["x"]}, headers=headers)

    assert response.status_code == 400
    assert "the API key is not the one of this endpoint" in response.text


@pytest.mark.slow
def test_a_connection_that_was_idle_can_still_be_used(proxy: Proxy) -> None:
    """Clients keep a connection for their next request. The server by itself would close it.

    It would do so after 5 seconds, and a client that sends a request just then gets an error.
    """
    address = httpx.URL(proxy.url)
    connection = http.client.HTTPConnection(str(address.host), address.port)
    headers = {"Authorization": f"Bearer {proxy.key}", "Content-Type": "application/json"}
    body = json.dumps({"input": "Ann moved"})

    with closing(connection):
        for idle_seconds in (0, 6):
            time.sleep(idle_seconds)
            connection.request("POST", f"{address.path}/embeddings", body, headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            # Otherwise the next request would silently open another connection.
            assert not response.will_close


class ModelReporter:
    """A store of a user's own, whose search finds how its model is asked."""

    def add(self, session: Session) -> None: ...

    def search(self, query: str, k: int) -> list[str]:
        lm: Any = dspy.settings.lm
        return [json.dumps({"retries": lm.num_retries, "timeout": lm.kwargs["timeout"]})]


def test_a_store_of_a_user_waits_for_the_model_of_the_run_and_asks_it_once(tmp_path: Path) -> None:
    """The model of the run has a time limit and retries of its own.

    So the model that the store of a user asks, which passes requests on, has none of its own.
    """
    make_system = isolated(f"{__name__}:ModelReporter", folder=False)

    with closing(make_system(tmp_path)) as system:
        [report] = system.search("x", k=1)

    settings_of_model = json.loads(report)
    one_day = 24 * 3600
    assert settings_of_model["retries"] == 0
    assert settings_of_model["timeout"] > one_day


# Environments.


@pytest.fixture
def systems_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that environments are installed in."""
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "systems"))
    return tmp_path / "systems"


@pytest.fixture
def no_packages(systems_folder: Path, tmp_path: Path) -> Environment:
    """An environment without packages, which is not installed yet."""
    pins = tmp_path / "none.txt"
    pins.write_text("")
    return Environment("none", pins)


@pytest.mark.slow
def test_a_half_installed_environment_is_installed_again(no_packages: Environment) -> None:
    """An installation that was killed leaves files, but not the stamp, which is written last."""
    leftover = no_packages.path / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.touch()

    no_packages.install()

    assert no_packages.is_installed
    assert no_packages.python().exists()
    assert not leftover.exists()


@pytest.mark.slow
def test_a_complete_environment_is_not_installed_again(no_packages: Environment) -> None:
    """The stamp is a file that is written at the end of an installation, here only once."""
    no_packages.install()
    stamp = no_packages.path / STAMP
    time_of_stamp = stamp.stat().st_mtime_ns

    no_packages.install()

    assert stamp.stat().st_mtime_ns == time_of_stamp


def test_a_system_with_other_package_versions_has_another_environment(
    systems_folder: Path, tmp_path: Path
) -> None:
    """Pins are the exact versions of the packages of a system; others may behave otherwise."""
    no_pins = tmp_path / "none.txt"
    no_pins.write_text("")
    other_pins = tmp_path / "other.txt"
    other_pins.write_text("six==1.17.0\n")

    assert Environment("none", other_pins).path != Environment("none", no_pins).path


@pytest.mark.slow
def test_an_environment_with_a_package_that_cannot_be_fetched_is_not_installed(
    systems_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    pins = tmp_path / "missing.txt"
    pins.write_text("no-such-package==1\n")

    with pytest.raises(EndpointError, match=r"missing cannot be installed: .*no-such-package==1"):
        Environment("missing", pins).install()

    assert not Environment("missing", pins).is_installed


@pytest.fixture
def unwritable_systems_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for environments that cannot be made, since it is below a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMPILER_SYSTEMS", str(tmp_path / "file" / "below"))


@pytest.mark.usefixtures("unwritable_systems_folder")
def test_the_error_for_a_missing_system_has_the_command_that_installs_it() -> None:
    with pytest.raises(UserError, match="mem0 is not installed; run: mempiler fetch system:mem0"):
        factory("mem0")


@pytest.mark.usefixtures("unwritable_systems_folder")
def test_the_error_for_a_folder_that_cannot_be_written_says_how_to_choose_another() -> None:
    with pytest.raises(UserError, match=r"cannot be written: .*set MEMPILER_SYSTEMS"):
        SYSTEMS["mem0"].environment.install()


# The catalog.

ROOT = Path(environment.__file__).parent
PAGE = (ROOT.parent / "docs" / "systems.md").read_text(encoding="utf-8")


def test_the_list_has_every_system_with_the_command_that_installs_it(cli: Any) -> None:
    _, out, _ = cli("list", "systems", "--json")

    listed = json.loads(out)["systems"]
    assert list(listed) == list(SYSTEMS)
    for name, description in listed.items():
        assert f"run: mempiler fetch system:{name}" in description


def pins_of(name: str) -> list[str]:
    pins_file = ROOT / "pins" / f"{name}.txt"
    return pins_file.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_package_of_a_system_is_pinned(name: str) -> None:
    assert pins_of(name)
    for line in pins_of(name):
        assert "==" in line


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_page_describes_every_system_and_names_packages_that_are_pinned(name: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `system:{name}` |")]
    _, description, packages, *_ = row.split(" | ")

    assert description == SYSTEMS[name].what
    # "graphiti-core[kuzu]" in the page is "graphiti-core" in the pins.
    named_packages = {package.partition("[")[0].lower() for package in packages.split(", ")}
    pinned_packages = {line.partition("==")[0].replace("_", "-").lower() for line in pins_of(name)}
    assert named_packages <= pinned_packages
