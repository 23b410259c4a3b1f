"""A registered program behind MLflow's endpoint: rows in, answers with evidence out, nothing kept in between."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save
from mempiler.runs.manifest import Manifest
from mempiler.runs.publish import register
from mempiler.runs.registered_model import Served
from mempiler.runs.tracking import tracking_uri
from mlflow.exceptions import MlflowException

SAID = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
ROW = {"question": "Where did Ada move?", "messages": [SAID]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(build("turn-rag", k=3), tmp_path / "program", Manifest(method="", task="", lms={"task": "offline"}))
    return tmp_path / "program"


@pytest.fixture
def served(folder: Path) -> Served:
    return Served(folder)


def test_a_row_is_answered_with_its_evidence(served):
    (found,) = served.predict([ROW])
    assert found["answer"] == "I moved to Lisbon."
    assert (found["sources"], found["failure"]) == (["D1:1"], None)
    assert [hit["sources"] for hit in found["evidence"]] == [["D1:1"]]
    json.dumps(found)


@pytest.mark.parametrize(
    "past",
    [
        {"messages": [[SAID], [SAID]]},
        {"messages": [SAID], "history": float("nan")},
        {
            "history": {
                "items": [{"kind": "session", "id": "D1", "turns": [{"id": "D1:1", "speaker": "A", "text": "Hi"}]}]
            }
        },
    ],
)
def test_a_past_has_any_form_that_a_history_file_has(served, past):
    (found,) = served.predict([{"question": "Where did Ada move?", **past}])
    assert found["answer"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"question": "Where?"}, "row 2: give one of history and messages, not neither"),
        (ROW | {"history": []}, "row 2: give one of history and messages, not history and messages"),
        ({"messages": [SAID]}, "row 2: question is missing"),
        (ROW | {"question": 3}, "row 2: question is int, not text"),
        (ROW | {"messages": "hello"}, "row 2: history 'row-2': expected {items: [...]} or a list of messages, got str"),
        (ROW | {"messages": [{"content": "hello"}]}, "row 2: message 1 of session 1 has no role"),
    ],
)
def test_a_wrong_row_is_named_before_any_model_is_asked(served, monkeypatch, row, told):
    monkeypatch.setattr(served.program, "forward", lambda **query: pytest.fail("asked"))
    with pytest.raises(MlflowException, match="row") as caught:
        served.predict([ROW, row])
    assert told in str(caught.value)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_the_environment_names_the_model(folder, monkeypatch, stub):
    server = stub(answer=lambda body: "[[ ## answer ## ]]\nPorto\n\n[[ ## completed ## ]]")
    monkeypatch.setenv("MEMPILER_LM", server.model)
    monkeypatch.setenv("MEMPILER_API_BASE", server.url)
    served = Served(folder)
    assert [served.predict([ROW])[0]["answer"] for _ in range(2)] == ["Porto", "Porto"]
    assert len(server.texts) == 2, "an answer came from DSPy's cache, where what users say must not lie"


def test_an_unreadable_answer_fails_its_row_alone(folder, monkeypatch, stub):
    good = "[[ ## answer ## ]]\nPorto\n\n[[ ## completed ## ]]"
    server = stub(answer=lambda body: good if "did Ada" in str(body["messages"]) else "")
    monkeypatch.setenv("MEMPILER_LM", server.model)
    monkeypatch.setenv("MEMPILER_API_BASE", server.url)
    first, second = Served(folder).predict([ROW, ROW | {"question": "Where did Bob go?"}])
    assert (first["answer"], first["failure"]) == ("Porto", None)
    assert (second["answer"], second["failure"]["kind"]) == (None, "parse")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`mlflow models serve` over a program that was registered, in a process of its own."""
    folder = tmp_path_factory.mktemp("served") / "program"
    save(build("turn-rag", k=3), folder, Manifest(method="", task="", lms={"task": "offline"}))
    address = register(folder, "served", "prod", force=True).address
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", address, "--env-manager", "local"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": tracking_uri()}
    log = (folder.parent / "log").open("wb")
    process = subprocess.Popen(
        [*command, "--port", port], env=environment, cwd=folder.parent, stdout=log, stderr=log, start_new_session=True
    )
    try:
        _wait(f"http://127.0.0.1:{port}/ping", process, lambda: (folder.parent / "log").read_text())
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        # MLflow starts the server as a child of its own; the group is theirs alone.
        os.killpg(process.pid, 15)
        process.wait(20)
        log.close()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Callable[[], str]) -> None:
    for _ in range(300):
        assert process.poll() is None, log()
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the server did not come up: {log()}")


def _post(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.slow
def test_mlflow_serves_a_registered_program(server):
    status, found = _post(server, {"inputs": [ROW, {"question": "Where is Bob?", "history": {"items": []}}]})
    assert status == 200
    first, second = found["predictions"]
    assert (first["answer"], first["sources"]) == ("I moved to Lisbon.", ["D1:1"])
    assert second["sources"] == []
    assert _post(server, {"dataframe_records": [ROW]})[1]["predictions"] == [first]
