"""What settings of a command hold: the line, a variable, a file; and whoever runs a program, not its folder."""

import json
import shlex
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from click.testing import CliRunner
from mempiler.cli.config import CONFIG, FileOption
from mempiler.programs.catalog import build
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import Manifest, read_manifest
from mempiler.runs.setting_pairs import parse_settings

EVALUATE = ("evaluate", "turn-rag", "--config", "run.toml", "--plan", "--json")
FILE = '[data]\nbenchmark = "locomo"\ntest = 4\n[evaluation]\nsplit = "test"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(cli: Any, what: str, *words: str) -> float:
    code, out, err = cli(*EVALUATE, *words)
    assert code == 0, err
    return json.loads(out)[what]["high"]


@pytest.mark.parametrize(
    ("variable", "words", "expected"),
    [("", [], 4), ("3", [], 3), ("3", ["--test", "2"], 2)],
    ids=["file", "env", "line"],
)
def test_the_line_is_asked_before_a_variable_and_that_before_the_file(
    cli: Any, here: Path, monkeypatch: pytest.MonkeyPatch, variable: str, words: list[str], expected: int
) -> None:
    (here / "run.toml").write_text(FILE)
    if variable:
        monkeypatch.setenv("MEMPILER_TEST", variable)
    assert planned(cli, "calls", *words) == expected


def test_settings_are_a_table_or_a_list(cli: Any, here: Path) -> None:
    tokens = list[float]()
    for settings in ("[method.settings]\nk = 1", "[method.settings]\nk = 9", '[method]\nsettings = ["k=9"]'):
        (here / "run.toml").write_text(f"{FILE}{settings}\n")
        tokens.append(planned(cli, "tokens"))
    assert tokens[0] < tokens[1] == tokens[2]


def test_names_lose_their_hyphens_on_the_command_line_but_not_in_a_file(cli: Any, here: Path) -> None:
    (here / "table.toml").write_text(f"{FILE}[models.task.settings]\nmy-field = 1\n")
    (here / "list.toml").write_text(f'{FILE}[models.task]\nsettings = ["my-field=1"]\n')
    (here / "none.toml").write_text(FILE)
    for words, name in (
        (["table.toml"], "my-field"),
        (["list.toml"], "my-field"),
        (["none.toml", "--lm-set", "my-field=1"], "my_field"),
    ):
        err = cli("evaluate", "turn-rag", "--json", "--config", *words)[2]
        assert f"--lm-set {name}: offline does not take it" in err


def test_a_replay_of_a_run_with_settings_of_its_model_takes_them_over(cli: Any, here: Path) -> None:
    (here / "run.toml").write_text(FILE)
    words = ("evaluate", "turn-rag", "--config", "run.toml", "--json")
    code, out, err = cli(*words, "--lm-set", "temperature=0")
    assert code == 0, err
    run = json.loads(out)["run_id"]
    code, out, err = cli(*words, "--replay", run)
    assert code == 0, err
    settings = RunFolder.open(json.loads(out)["run_id"]).read()["settings"]
    assert settings["lm_settings"] == {"temperature": 0}
    code, out, err = cli(*words, "--replay", run, "--lm-set", "temperature=1")
    assert code == 2
    assert "ran with --lm-set {'temperature': 0}, not {'temperature': 1}" in err


@pytest.mark.parametrize("by_variable", [False, True])
@pytest.mark.parametrize("name", ["set", "lm-set", "benchmark-set", "optimizer-set", "train-set"])
def test_settings_of_the_line_are_added_to_those_of_the_file(
    name: str, by_variable: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    @click.option(f"--{name}", "pairs", cls=FileOption, file_key="group.settings", multiple=True, envvar="PAIRS")
    @CONFIG
    def show(pairs: tuple[str, ...]) -> None:
        click.echo(json.dumps(parse_settings(pairs)))

    (here / "run.toml").write_text("[group.settings]\nk = 1\nsteps = 2\n")
    words = ["--config", "run.toml"]
    if by_variable:
        monkeypatch.setenv("PAIRS", "k=9")
    else:
        words += [f"--{name}", "k=9"]
    assert json.loads(CliRunner().invoke(show, words).output) == {"k": 9, "steps": 2}


def test_train_set_is_added_to_the_settings_of_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    planned_with: list[Any] = []

    def plan_training(program: str, **options: Any) -> Any:
        planned_with.append(options["train_set"])
        raise mempiler.UserError("enough")

    monkeypatch.setattr("mempiler.runs.api.plan_training", plan_training)
    (here / "run.toml").write_text("[training.settings]\nsteps = 2\nlora = 4\n[training.settings.trl]\nbf16 = true\n")
    cli("train", "memory-r2", "--benchmark", "memory-env", "--config", "run.toml", "--train-set", "steps=3", "--plan")
    assert planned_with == [{"steps": 3, "lora": 4, "trl": {"bf16": True}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[data]\nseed = 1\nsead = 2\n", "run.toml: line 3: data.sead is no setting of mempiler evaluate; did you mean "),
        ("seed = 1\n", "run.toml: line 1: seed is no setting of mempiler evaluate; did you mean data.seed?"),
        ('[models.judge]\nlm = "x"', "line 2: models.judge.lm is no setting of mempiler evaluate; did you mean models.task"),
        ('[optimizer]\nname = "gepa"', "line 1: optimizer is no setting of mempiler evaluate"),
        ("[execution]\nmax_failure_rate = 2\n", "run.toml: line 2: execution.max_failure_rate: max_failure_rate = 2: "),
        ('\n[data]\ntest = "many"\n', "run.toml: line 3: data.test: test = 'many': input should be a valid integer"),
        ("[data]\ntest = true\n", "run.toml: line 2: data.test: test = True: input should be a valid integer"),
        ("[limits]\nmax_usd = true\n", "run.toml: line 2: limits.max_usd: max_usd = True: give a finite number"),
        ("[models.task]\nname = 3\n", "run.toml: line 2: models.task.name: lm = 3: input should be a valid string"),
        ("[execution.threads]\nk = 3\n", "run.toml: line 1: execution.threads: threads = {'k': 3}: "),
        ("[method]\nsettings = 3\n", "run.toml: line 2: method.settings: 3 is neither a table nor a list"),
        ("[method.settings]\nsince = 2024-01-01\n", "run.toml: line 1: method.settings: since = 2024-01-01: a date or time"),
        ("[method.settings]\nat = [{ since = 2024-01-01T10:00:00 }]\n", "run.toml: line 1: method.settings: at = "),
        ("[limits]\nmax_calls = 2.5\n", "run.toml: line 2: limits.max_calls: max_calls = 2.5: give a whole number"),
        ('[evaluation]\nsplit = "tset"\n', "run.toml: line 2: evaluation.split: 'tset' is not one of"),
        ("seed = \n", "run.toml: cannot be read as TOML: Invalid value (at line 1"),
        ("\xff\xfe", "run.toml: cannot be read as UTF-8 text: it is UTF-16"),
        ("seed = " + "1" * 5_000, "run.toml: cannot be read as TOML: Exceeds the limit"),
        ("#" * 1_000_000 + "\nseed = 1", "run.toml: has more than 1,000,000 characters; a file of options"),
        ("a = " + "[" * 100_000, "run.toml: cannot be read as TOML: maximum recursion depth exceeded"),
    ],
)
def test_a_mistake_names_line_and_key(cli: Any, here: Path, text: str, said: str) -> None:
    (here / "run.toml").write_bytes(text.encode("latin-1"))
    code, out, err = cli(*EVALUATE)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_a_variable_names_no_user_and_sets_no_flag(cli: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "chat.json").write_text('[{"role": "user", "content": "I moved."}]')
    store = ("--store", here / "s.sqlite")
    assert cli("memories", "add", "chat.json", "--user", "ada", *store)[0] == 0
    for name, value in (("USER", "ada"), ("FORCE", "1"), ("REPLACE", "1")):
        monkeypatch.setenv(f"MEMPILER_{name}", value)
    assert cli("memories", "forget", *store)[0] == 2
    assert cli("memories", "list", *store, "--json")[1].count("ada") == 1


@pytest.mark.parametrize("group", [(), ("memories",)])
def test_a_group_alone_prints_its_help(cli: Any, group: tuple[str, ...]) -> None:
    assert cli(*group) == cli(*group, "--help")


def test_a_command_that_takes_no_config_file_hides_no_option(cli: Any) -> None:
    page = cli("ask", "--help")[1]
    assert "--config" not in page
    assert all(name in page for name in ("--history", "--embedder-api-base", "--reranker", "--allow-code"))


def test_help_shows_what_is_often_used_and_the_list_the_rest(cli: Any) -> None:
    shown = [line.split()[0] for line in cli("compile", "--help")[1].splitlines() if line.startswith("  -")]
    listed = json.loads(cli("list", "settings", "--json")[1])["settings"]
    assert len(set(shown) - {"-h,"}) <= 25
    assert {"--max-usd", "--max-calls", "--max-tokens", "--max-minutes", "--min-n", "--force", "--resume"} <= set(shown)
    assert listed["threads"] == "questions in flight [default: 8]; in a file: execution.threads"
    assert "default" not in listed["categories"]
    assert listed["answer-api-base"].endswith("in a file: models.answer.api_base (evaluate)")
    assert not {f"--{name}" for name in listed} & set(shown)


CHAT = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon last week.", "time": "2024-03-05"}]
Run = Callable[..., tuple[int, str, str]]

LOADING = {
    "ask": 'ask {} "Where did Ada move?" --history chat.json',
    "ask stored": 'ask {} "Where did Ada move?" --user ada --store memories.sqlite',
    "queued": "memories rebuild {} --queued --store memories.sqlite",
    "rebuild": "memories rebuild {} --store memories.sqlite",
    "plan": "evaluate {} --benchmark locomo --train 4 --dev 2 --test 2 --plan",
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
        assert code == 2
        assert f"mempiler: {told}" in err


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
    assert code == 2
    assert "facts: was made with the embedder 'openai/far'; give --embedder" in err
    assert run(*words_of("queued", "facts"), "--embedder", "openai/far")[0] == 0
    code, _, err = run(*words_of("plan", "facts"))
    assert code == 2
    assert "give --embedder" in err
    code, _, err = run(*words_of("plan", "facts"), "--embedder", "openai/far")
    assert "embedder 'openai/far' needs a key" in err


def test_a_file_of_another_command_is_refused_with_the_name_of_that_command(cli: Any, here: Path) -> None:
    (here / "run.toml").write_text('[data]\nbenchmark = "locomo"\n[optimizer]\nname = "knn"\n')
    code, _, err = cli("evaluate", "turn-rag", "--config", "run.toml")
    assert code == 2
    assert "the file is for mempiler compile" in err
