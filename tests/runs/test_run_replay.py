"""Runs are replayed without any server: the same table, or one line that says which call is missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.programs.names import METHODS
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.setup import Setup

from ..recordings import make
from .evaluations import table

EVALUATE = ["evaluate", "turn-rag", "--part", "test"]
COMMANDS = {
    "evaluate": EVALUATE,
    "evaluate-writing": ["evaluate", "fact-store", "--part", "test"],
    "bootstrap": ["compile", "turn-rag", "--with", "bootstrap", "--optimizer-set", "max_tries=4"],
    "gepa": ["compile", "turn-rag", "--with", "gepa", "--optimizer-set", "max_metric_calls=10"],
}


@pytest.mark.parametrize("name", [*list(COMMANDS)[:3], pytest.param("gepa", marks=pytest.mark.slow)])
def test_a_replay_gives_the_table_of_the_run_without_a_server(stub, mempiler_cli, monkeypatch, name):
    server = stub()
    made = mempiler_cli(server, *COMMANDS[name])
    assert (made.code, len(server.texts) >= 4) == (0, True)
    server.die()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    played = mempiler_cli(server, *COMMANDS[name], "--replay", made.found["run_id"], threads=1)
    assert (played.code, played.err.count("mempiler:")) == (0, 0), played.line
    assert table(played.found) == table(made.found)
    again = mempiler_cli(server, *COMMANDS[name], "--replay", played.found["run_id"], threads=4)
    assert table(again.found) == table(made.found)


def test_a_replay_knows_which_schemas_were_refused(stub, mempiler_cli):
    server = stub(schemas="refuse")
    made = mempiler_cli(server, *EVALUATE)
    assert made.code == 0
    assert 0 < server.formats.count(None) < len(server.formats)
    server.die()
    played = mempiler_cli(server, *EVALUATE, "--replay", made.found["run_id"])
    assert (played.code, table(played.found)) == (0, table(made.found)), played.line


@pytest.mark.parametrize(
    ("words", "sizes"), [(EVALUATE, {"test": 5}), ([*EVALUATE, "--set", "k=1"], {}), (COMMANDS["bootstrap"], {})]
)
def test_a_missing_call_is_one_line_and_nothing_is_asked(stub, mempiler_cli, words, sizes):
    server = stub()
    made = mempiler_cli(server, *EVALUATE)
    asked = len(server.texts)
    ran = mempiler_cli(server, *words, "--replay", made.found["run_id"], **sizes)
    assert (ran.code, ran.out, len(server.texts)) == (2, "", asked)
    assert "task model was not asked: '" in ran.line
    assert "--resume" not in ran.line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--replay", "nothing"], "no run 'nothing'"),
        (["--replay", "last", "--lm", "openai/other"], "ran with --lm "),
        (["--replay", "last", "--resume", "last"], "--replay does not go with --resume"),
        (["--replay", "last", "--workers", "2"], "--workers does not go with --replay"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(stub, mempiler_cli, cli, words, line):
    made = mempiler_cli(stub(), *EVALUATE)
    words = [made.found["run_id"] if word == "last" else word for word in words]
    code, _, err = cli(*EVALUATE, "--on", "locomo", "--train", "8", "--dev", "4", "--test", "4", *words)
    assert (code, line in err) == (2, True)


def test_vectors_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def compute(texts: Any) -> np.ndarray:
        asked.extend(texts)
        return np.array([[len(text), text.count("a"), text.count("e") + 1] for text in texts], np.float32)

    monkeypatch.setattr(
        "mempiler.runs.runtime.make_embedder", lambda name, *_: TextEmbedder(name, compute, query="q: ")
    )
    sizes = {"train": 4, "dev": 4, "test": 4}
    made = run_evaluate("turn-rag", Setup("locomo", embedder="openai/e", **sizes))
    assert asked
    asked.clear()
    played = run_evaluate("turn-rag", Setup("locomo", embedder="openai/e", replay=made.run_id, **sizes))
    assert asked == []
    same = {"id", "answer", "score", "sources"}
    assert [row.model_dump(include=same) for row in played.rows] == [row.model_dump(include=same) for row in made.rows]


FOLDER = Path(__file__).parents[1] / "recordings"


def test_every_command_has_its_run_and_its_table_and_every_method_of_a_paper_is_recorded() -> None:
    runs = {path.parent.name for path in FOLDER.glob("*/run.sqlite")}
    assert runs == {path.stem for path in FOLDER.glob("*.json")} - {"palset_en"} == set(make.RECORDINGS)
    folders = {entry.path.split(".programs.")[1].split(".")[0] for entry in METHODS.values()}
    recorded = {METHODS[made[1]].path for made in map(make.command, make.RECORDINGS) if made[1] in METHODS}
    assert {path.split(".programs.")[1].split(".")[0] for path in recorded} == folders


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_gives_the_table_of_the_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = f"if its prompts were changed on purpose: python tests/recordings/make.py {name!r}"
    ran = shutil.copytree(FOLDER / name, tmp_path / "run")
    try:
        found = make.run([*make.command(name), "--threads", "2", "--replay", str(ran)])
    except SystemExit:
        pytest.fail(f"{capsys.readouterr().err.splitlines()[-1]}; {again}")
    assert found == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), again
