"""`mempiler keys`, `--trust`, `--sign-key`, and who chooses the model that a saved program is asked with."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler.cli import main
from mempiler.programs.catalog import build
from mempiler.runs.artifact import Manifest, read_manifest
from mempiler.runs.folder import RunFolder
from mempiler.runs.signing import SIGNATURE, make_keys, read_trust

CHAT = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon last week.", "time": "2024-03-05"}]
SIZES = ["--on", "locomo", "--train", "4", "--dev", "2", "--test", "2"]
STORE = ["--store", "memories.sqlite"]
SCORES = {"gate": {"split": "dev", "score": 0.5, "n": 20, "stopped": None, "lm": "offline", "judge": None}}
Run = Callable[..., tuple[int, str, list[str]]]

LOADING = {
    "ask": ["ask", "{program}", "Where did Ada move?", "--history", "chat.json"],
    "ask stored": ["ask", "{program}", "Where did Ada move?", "--user", "ada", *STORE],
    "remember": ["memories", "remember", "{program}", *STORE],
    "rebuild": ["rebuild", "{program}", *STORE],
    "register": ["register", "{program}", "--name", "trust-options"],
    "evaluate": ["evaluate", "{program}", *SIZES],
    "plan": ["evaluate", "{program}", *SIZES, "--plan"],
    "compile": ["compile", "{program}", *SIZES, "--with", "knn"],
    "compare": ["compare", "no-memory", "{program}", *SIZES],
    "serve": ["serve", "{program}", "--store", "serve.sqlite", "--host", "0.0.0.0"],
}
"""Every command that loads a saved program."""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder with a program, a chat and the keys of ada and bob."""
    monkeypatch.chdir(tmp_path)
    Path("chat.json").write_text(json.dumps(CHAT))
    for name in ("ada", "bob"):
        make_keys(name)
    save("program", "offline")

    def call(*words: str) -> tuple[int, str, list[str]]:
        code: Any = 0
        capsys.readouterr()
        try:
            main(list(words))
        except SystemExit as ended:
            code = ended.code
        captured = capsys.readouterr()
        return int(code or 0), captured.out, captured.err.splitlines()

    assert call("memories", "add", "chat.json", "--user", "ada", *STORE)[0] == 0
    return call


def save(folder: str, model: str, **options: Any) -> None:
    manifest = Manifest(method="", task="", lms={"task": model}, scores=SCORES)
    mempiler.save(build("turn-rag", k=3), folder, manifest, **options)


def words_of(command: str, program: str = "program") -> list[str]:
    return [word.format(program=program) for word in LOADING[command]]


def test_keys_are_made_and_sign(run):
    code, out, err = run("keys", "make", "eve")
    assert (code, err) == (0, [])
    assert "private key: eve (keep it to yourself)" in out
    assert list(read_trust("eve.pub").values()) == ["eve"]
    assert run("keys", "sign", "program", "--sign-key", "eve")[:2] == (0, "signed: program\n")
    code, _, err = run(*words_of("ask"), "--trust", "eve.pub")
    assert (code, len(err)) == (0, 1)
    assert err[0].startswith("program program: signed by eve (")
    assert json.loads(run("keys", "make", "zoe", "--json")[1])["trust"] == "zoe.pub"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["keys", "make", "ada"], "ada.pub: is there already"),
        (["keys", "sign", "program"], "give --sign-key"),
        (["keys", "sign", "program", "--sign-key", "none"], "none: the signing key cannot be read"),
        (["keys", "sign", "program", "--sign-key", "ada.pub"], "ada.pub: no PEM private key"),
        (["keys", "sign", "nothing", "--sign-key", "ada"], "nothing: no saved program here"),
        (["keys", "sign", "models:/a@b", "--sign-key", "ada"], "sign one with `mempiler register --sign-key`"),
    ],
)
def test_wrong_keys_are_one_line(run, words, told):
    code, out, err = run(*words)
    assert (code, out, len(err)) == (2, "", 1)
    assert told in err[0]


@pytest.mark.parametrize(
    ("command", "by"), [*((command, "option") for command in LOADING), ("ask", "variable"), ("evaluate", "variable")]
)
def test_an_unsigned_program_is_refused_wherever_it_is_loaded(run, monkeypatch, command, by):
    if by == "variable":
        monkeypatch.setenv("MEMPILER_TRUST", "ada.pub")
    if command == "serve":
        Path("tokens").write_text("acme token-of-the-acme-tenant\n")
        monkeypatch.setenv("MEMPILER_TOKEN_FILE", "tokens")
    code, _, err = run(*words_of(command), *(["--trust", "ada.pub"] if by == "option" else []))
    assert code == 2
    told = "program: is not signed, but --trust ada.pub asks for it; see `mempiler keys sign`"
    assert err[-1] == f"mempiler: {told}"


@pytest.mark.parametrize("command", ["ask", "ask stored", "remember", "rebuild", "plan"])
def test_a_signed_program_is_taken_and_named_once(run, command):
    save("program", "offline", sign_key="ada")
    code, _, err = run(*words_of(command), "--trust", "ada.pub")
    assert code == 0, err
    assert [line.split(" (")[0] for line in err if "signed" in line] == ["program program: signed by ada"]


@pytest.mark.parametrize("command", ["ask", "remember"])
def test_standard_output_stays_one_json_object(run, command):
    code, out, err = run(*words_of(command), "--json")
    assert code == 0, err
    assert json.loads(out)
    assert [line for line in err if "signed" in line] == ["program program: unsigned"]


@pytest.mark.parametrize("content", ["", "\ufeffx", "ada\n"])
def test_a_wrong_trust_file_is_one_line(run, content):
    Path("trust").write_text(content, encoding="utf-8")
    code, _, err = run(*words_of("ask"), "--trust", "trust")
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith("mempiler: trust: ")


def test_a_signature_of_another_program_is_refused_without_a_trust_file(run):
    save("program", "offline", sign_key="ada")
    text = Path("program", SIGNATURE).read_text()
    save("program", "openai/x")
    Path("program", SIGNATURE).write_text(text)
    code, _, err = run(*words_of("ask"))
    assert (code, len(err)) == (2, 1)
    assert "the signature is not of this program" in err[0]


def test_a_compile_signs_what_it_keeps(run):
    code, out, err = run("compile", "turn-rag", *SIZES, "--with", "knn", "--out", "made", "--sign-key", "ada", "--json")
    assert code == 0, err
    assert run(*words_of("ask", "made"), "--trust", "ada.pub")[0] == 0
    assert run(*words_of("ask", "made"), "--trust", "bob.pub")[0] == 2
    settings = RunFolder(Path(json.loads(out)["run"])).read()["settings"]
    assert not {"trust", "sign_key"} & set(settings)


def test_a_wrong_key_stops_a_compile_before_its_first_call(run):
    code, _, err = run("compile", "turn-rag", *SIZES, "--with", "knn", "--out", "made", "--sign-key", "bob.pub")
    assert code == 2
    assert "bob.pub: no PEM private key" in err[-1]
    assert not Path("made").exists()


def test_register_signs_a_version(run):
    address = json.loads(run(*words_of("register"), "--sign-key", "ada", "--json")[1])["address"]
    code, _, err = run(*words_of("ask", address), "--trust", "ada.pub")
    assert code == 0, err
    assert run(*words_of("ask", address), "--trust", "bob.pub")[0] == 2


@pytest.mark.parametrize("command", ["ask", "ask stored", "remember", "rebuild", "serve"])
def test_the_folder_does_not_choose_the_model(run, command):
    save("program", "huggingface/https://evil")
    code, _, err = run(*words_of(command), *(["--host", "127.0.0.1"] if command == "serve" else []))
    assert code == 2
    told = "program: was compiled with 'huggingface/https://evil'; give --lm huggingface/https://evil (or MEMPILER_LM)"
    assert err[-1].startswith(f"mempiler: {told}")


@pytest.mark.parametrize("by", ["option", "variable", "signer"])
def test_the_operator_chooses_the_model(run, stub, monkeypatch, by):
    server = stub()
    save("program", server.model, sign_key="ada")
    given = ["--api-base", server.url]
    if by == "option":
        given += ["--lm", server.model]
    elif by == "variable":
        monkeypatch.setenv("MEMPILER_LM", server.model)
    else:
        given += ["--trust", "ada.pub"]
    code, out, err = run(*words_of("ask"), *given, "--json")
    assert code == 0, err
    assert json.loads(out)["lm"] == server.model
    assert len(server.texts) == 1


def test_the_operator_chooses_the_embedder(run, monkeypatch):
    program: Any = build("fact-store")
    monkeypatch.setattr(program.method.embedder, "name", "openai/far")
    mempiler.save(program, "facts", Manifest(method="", task="", lms={"task": "offline"}))
    assert read_manifest("facts").embedder == "openai/far"
    code, _, err = run(*words_of("remember", "facts"))
    assert (code, err[-1].startswith("mempiler: facts: was made with the embedder 'openai/far'; give --embedder")) == (
        2,
        True,
    )
    assert run(*words_of("remember", "facts"), "--embedder", "openai/far")[0] == 0
    code, _, err = run(*words_of("plan", "facts"))
    assert (code, "give --embedder" in err[-1]) == (2, True)
    code, _, err = run(*words_of("plan", "facts"), "--embedder", "openai/far")
    assert "embedder 'openai/far' needs a key" in err[-1]


def test_the_service_logs_who_signed(run, tmp_path):
    save("program", "offline", sign_key="ada")
    command = [sys.executable, "-m", "mempiler", "serve", "program", "--port", "0", "--trust", "ada.pub"]
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as lines:
        try:
            first = json.loads(next(lines))
            assert json.loads(next(lines))["event"]
        finally:
            process.kill()
    assert first["event"].startswith("program program: signed by ada (")
