"""`mempiler publish` and the commands that take what it made."""

import json
from pathlib import Path

import pytest
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save
from mempiler.runs.manifest import Manifest

SCORED = {"split": "dev", "score": 0.5, "n": 20, "stopped": None, "lm": "offline", "judge": None}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"cli-{request.node.name.split('[')[0]}"


def saved(folder: Path, score: float | None = 0.5, method: str = "turn-rag") -> str:
    scores = {"gate": SCORED | {"score": score}} if score is not None else {}
    save(build(method), folder, Manifest(method="", task="", scores=scores, lms={"task": "offline"}))
    return str(folder)


def test_what_is_registered_is_asked_evaluated_and_compared(tmp_path, name, cli):
    code, out, _ = cli("publish", saved(tmp_path / "program"), f"models:/{name}@prod")
    assert code == 0
    assert f"version 1 of {name}: models:/{name}@prod" in out
    assert "gate: dev 0.500 (n = 20, offline), nothing to compare with" in out
    assert f"mlflow models serve -m models:/{name}@prod --env-manager local" in out

    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]))
    asked = cli("ask", f"models:/{name}@prod", "Where did Ada move?", "--history", str(chat), "--json")
    assert "Lisbon" in json.loads(asked[1])["answer"]

    sizes = ["--train", "4", "--dev", "2", "--test", "2"]
    address, *common = f"models:/{name}/1", "--on", "locomo", "--part", "test", "--json", *sizes
    evaluated = cli("evaluate", address, *common)
    assert json.loads(evaluated[1])["program"] == "turn-rag"
    planned = cli("evaluate", address, "--on", "locomo", "--plan", "--json", *sizes)
    assert planned[0] == 0, planned[2]

    store = str(tmp_path / "memories.sqlite")
    assert cli("memories", "add", str(chat), "--user", "ada", "--store", store)[0] == 0
    assert cli("memories", "rebuild", f"models:/{name}@prod", "--store", store)[0] == 0


def test_an_address_that_is_not_there_is_one_line(tmp_path, cli):
    (tmp_path / "chat.json").write_text("[]")
    for words in (
        ["ask", "models:/nobody@p", "Where?", "--history", tmp_path / "chat.json"],
        ["memories", "rebuild", "models:/nobody@p"],
    ):
        code, _, err = cli(*words)
        assert (code, err.splitlines()[-1].startswith("mempiler: models:/nobody@p")) == (2, True)
