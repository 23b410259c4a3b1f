"""Whoever runs a saved program chooses the model and the embedder that it is asked with; its folder does not."""

import json
import shlex
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.programs.catalog import build
from mempiler.runs.manifest import Manifest, read_manifest

CHAT = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon last week.", "time": "2024-03-05"}]
Run = Callable[..., tuple[int, str, str]]

LOADING = {
    "ask": 'ask {} "Where did Ada move?" --history chat.json',
    "ask stored": 'ask {} "Where did Ada move?" --user ada --store memories.sqlite',
    "queued": "memories rebuild {} --queued --store memories.sqlite",
    "rebuild": "memories rebuild {} --store memories.sqlite",
    "plan": "evaluate {} --on locomo --train 4 --dev 2 --test 2 --plan",
    "serve": "serve {} --store serve.sqlite --host 127.0.0.1",
}
"""Commands that load a saved program."""


@pytest.fixture
def run(tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder with a program and a chat."""
    monkeypatch.chdir(tmp_path)
    Path("chat.json").write_text(json.dumps(CHAT))
    save("program", "offline")

    assert cli("memories", "add", "chat.json", "--user", "ada", "--store", "memories.sqlite")[0] == 0
    return cli


def save(folder: str, model: str) -> None:
    mempiler.save(build("turn-rag", k=3), folder, Manifest(method="", task="", lms={"task": model}))


def words_of(command: str, program: str = "program") -> list[str]:
    return shlex.split(LOADING[command].format(program))


def test_the_folder_does_not_choose_the_model(run):
    for command, name in product(
        ("ask", "ask stored", "queued", "rebuild", "serve"), ("huggingface/https://evil", "local:x")
    ):
        save("program", name)
        told = f"program: was compiled with '{name}'; give --lm {name} (or MEMPILER_LM)"
        code, _, err = run(*words_of(command))
        assert (code, f"mempiler: {told}" in err) == (2, True)


def test_the_operator_chooses_the_model(run, stub, monkeypatch):
    server = stub()
    save("program", server.model)
    given = [*words_of("ask"), "--api-base", server.url, "--json"]
    assert json.loads(run(*given, "--lm", server.model)[1])["lm"] == server.model
    monkeypatch.setenv("MEMPILER_LM", server.model)
    assert json.loads(run(*given)[1])["lm"] == server.model
    assert len(server.texts) == 1, "the cache has the second answer"


def test_the_operator_chooses_the_embedder(run, monkeypatch):
    program: Any = build("fact-store")
    monkeypatch.setattr(program.method.embedder, "name", "openai/far")
    mempiler.save(program, "facts", Manifest(method="", task="", lms={"task": "offline"}))
    assert read_manifest("facts").embedder == "openai/far"
    code, _, err = run(*words_of("queued", "facts"))
    assert (code, "facts: was made with the embedder 'openai/far'; give --embedder" in err) == (2, True)
    assert run(*words_of("queued", "facts"), "--embedder", "openai/far")[0] == 0
    code, _, err = run(*words_of("plan", "facts"))
    assert (code, "give --embedder" in err) == (2, True)
    code, _, err = run(*words_of("plan", "facts"), "--embedder", "openai/far")
    assert "embedder 'openai/far' needs a key" in err
