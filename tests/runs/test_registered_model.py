"""A registered program behind MLflow's endpoint: rows in, answers with evidence out, nothing kept in between."""

import json
import warnings
from pathlib import Path

import pytest
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save
from mempiler.runs.manifest import Manifest
from mempiler.runs.publish import register
from mempiler.runs.registered_model import Served
from mempiler.runs.tracking import at_store
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
        ({"messages": [SAID]}, "row 2: task question-answering needs question"),
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


def test_a_registered_program_answers_behind_mlflow_s_interface(folder):
    address = register(folder, "served", "prod", force=True).address
    with at_store(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own type hints, and of those that a signature stands for
        from mlflow.pyfunc import load_model

        loaded = load_model(address)
    (found,) = loaded.predict([ROW])
    assert (found["answer"], found["sources"]) == ("I moved to Lisbon.", ["D1:1"])
