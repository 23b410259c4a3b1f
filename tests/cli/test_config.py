"""Where the settings of a command come from: the command line, a variable, a file.

A file of settings is named by --config. A variable is one of the environment, such as MEMPILER_TEST
for --test. `--plan` prints how many calls and tokens a run would take, and runs nothing.

A saved program names models, and only whoever runs it decides that they are used.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from click.testing import CliRunner
from mempiler.cli.config import CONFIG, FileOption
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import Manifest, read_manifest
from mempiler.runs.setting_pairs import parse_settings

from ..command_line import RunCommand, json_of, output_of

EVALUATE_BY_FILE = ("evaluate", "turn-rag", "--config", "run.toml")
PLAN_BY_FILE = ("evaluate", "turn-rag", "--config", "run.toml", "--plan")
FOUR_QUESTIONS = """\
[data]
benchmark = "locomo"
test = 4

[evaluation]
split = "test"
"""
"""A file of settings for an evaluation of four test questions."""


@pytest.fixture
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- files and variables ----------------------------------------------------------------------


def test_a_variable_overrides_the_file(
    cli: RunCommand, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is the number of test questions. Each takes one call, so the plan shows it."""
    (current_folder / "run.toml").write_text(FOUR_QUESTIONS)
    monkeypatch.setenv("MEMPILER_TEST", "3")

    plan = json_of(cli, *PLAN_BY_FILE)

    assert plan["calls"]["high"] == 3


def test_the_command_line_overrides_a_variable(
    cli: RunCommand, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is the number of test questions. Each takes one call, so the plan shows it."""
    (current_folder / "run.toml").write_text(FOUR_QUESTIONS)
    monkeypatch.setenv("MEMPILER_TEST", "3")

    plan = json_of(cli, *PLAN_BY_FILE, "--test", "2")

    assert plan["calls"]["high"] == 2


def test_settings_in_a_file_may_be_a_table_or_a_list(cli: RunCommand, current_folder: Path) -> None:
    """`k` is the number of turns in a prompt, so a larger `k` takes more tokens."""

    def planned_tokens(method_settings: str) -> int:
        (current_folder / "run.toml").write_text(f"{FOUR_QUESTIONS}\n{method_settings}\n")
        return json_of(cli, *PLAN_BY_FILE)["tokens"]["high"]

    tokens_of_one_turn = planned_tokens("[method.settings]\nk = 1")
    tokens_by_table = planned_tokens("[method.settings]\nk = 9")
    tokens_by_list = planned_tokens('[method]\nsettings = ["k=9"]')

    assert tokens_by_table > tokens_of_one_turn
    assert tokens_by_list == tokens_by_table


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("[models.task.settings]\nmy-field = 1", id="table"),
        pytest.param('[models.task]\nsettings = ["my-field=1"]', id="list"),
    ],
)
def test_names_keep_their_hyphens_in_a_file(
    cli: RunCommand, current_folder: Path, settings: str
) -> None:
    """The offline engine takes no such setting, and the error names it as it was understood."""
    (current_folder / "run.toml").write_text(f"{FOUR_QUESTIONS}\n{settings}\n")

    _, _, err = cli(*EVALUATE_BY_FILE)

    assert "--lm-set my-field: offline does not take it" in err


def test_names_lose_their_hyphens_on_the_command_line(
    cli: RunCommand, current_folder: Path
) -> None:
    """The offline engine takes no such setting, and the error names it as it was understood."""
    (current_folder / "run.toml").write_text(FOUR_QUESTIONS)

    _, _, err = cli(*EVALUATE_BY_FILE, "--lm-set", "my-field=1")

    assert "--lm-set my_field: offline does not take it" in err


def test_a_replay_takes_over_the_settings_of_the_model(
    cli: RunCommand, current_folder: Path
) -> None:
    """A replay repeats a run with the answers that the model gave then. No model is asked."""
    (current_folder / "run.toml").write_text(FOUR_QUESTIONS)
    original = json_of(cli, *EVALUATE_BY_FILE, "--lm-set", "temperature=0")

    replay = json_of(cli, *EVALUATE_BY_FILE, "--replay", original["run_id"])

    settings = RunFolder.open(replay["run_id"]).read()["settings"]
    assert settings["lm_settings"] == {"temperature": 0}


def test_a_replay_with_other_settings_of_the_model_is_refused(
    cli: RunCommand, current_folder: Path
) -> None:
    """A replay repeats a run with the answers that the model gave then."""
    (current_folder / "run.toml").write_text(FOUR_QUESTIONS)
    original = json_of(cli, *EVALUATE_BY_FILE, "--lm-set", "temperature=0")
    replay = (*EVALUATE_BY_FILE, "--replay", original["run_id"])

    code, _, err = cli(*replay, "--lm-set", "temperature=1")

    assert code == 2
    assert "ran with --lm-set {'temperature': 0}, not {'temperature': 1}" in err


@pytest.mark.parametrize("name", ["set", "lm-set", "benchmark-set", "optimizer-set", "train-set"])
def test_settings_of_the_command_line_are_added_to_those_of_the_file(
    name: str, current_folder: Path
) -> None:
    """The file sets `k` and `steps`, and the user sets `k` once more."""
    (current_folder / "run.toml").write_text("[group.settings]\nk = 1\nsteps = 2\n")
    command = command_with_settings(f"--{name}")

    result = CliRunner().invoke(command, ["--config", "run.toml", f"--{name}", "k=9"])

    assert json.loads(result.output) == {"k": 9, "steps": 2}


@pytest.mark.parametrize("name", ["set", "lm-set", "benchmark-set", "optimizer-set", "train-set"])
def test_settings_of_a_variable_are_added_to_those_of_the_file(
    name: str, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file sets `k` and `steps`, and the variable sets `k` once more."""
    (current_folder / "run.toml").write_text("[group.settings]\nk = 1\nsteps = 2\n")
    monkeypatch.setenv("SETTINGS", "k=9")
    command = command_with_settings(f"--{name}")

    result = CliRunner().invoke(command, ["--config", "run.toml"])

    assert json.loads(result.output) == {"k": 9, "steps": 2}


def command_with_settings(option: str) -> click.Command:
    """Return a command that prints its settings.

    They come from an option that is declared as those of the real commands are, from the variable
    SETTINGS, or from the table `group.settings` of a file.
    """

    @click.command()
    @click.option(
        option,
        "pairs",
        cls=FileOption,
        file_key="group.settings",
        multiple=True,
        envvar="SETTINGS",
    )
    @CONFIG
    def print_settings(pairs: tuple[str, ...]) -> None:
        click.echo(json.dumps(parse_settings(pairs)))

    return print_settings


TRAIN_BY_FILE = (
    *("train", "memory-r2"),
    *("--benchmark", "memory-env"),
    *("--lm", "local:x"),
    *("--config", "run.toml"),
)


def test_train_set_replaces_a_setting_of_the_file_and_leaves_the_others(
    cli: RunCommand, current_folder: Path
) -> None:
    """Both settings of the file are wrong, and the command line corrects one of them."""
    (current_folder / "run.toml").write_text("[training.settings]\ntokens = 0\nlora = 0\n")

    _, _, err = cli(*TRAIN_BY_FILE, "--train-set", "tokens=4")

    assert "tokens" not in err
    assert "lora: Input should be greater than 0" in err


def test_settings_of_a_training_in_a_file_may_hold_a_table(
    cli: RunCommand, current_folder: Path
) -> None:
    """The error shows that the table was read: trl, a library for trainings, is not used here."""
    (current_folder / "run.toml").write_text("[training.settings.trl]\nbf16 = true\n")

    _, _, err = cli(*TRAIN_BY_FILE, "--train-set", "steps=3")

    assert "settings of trl are for trainer = trl" in err


def refusal_of_file(cli: RunCommand, folder: Path, text: str) -> str:
    """Run `mempiler evaluate` with a file of settings that is refused; return the one line."""
    (folder / "run.toml").write_text(text, encoding="latin-1")

    code, out, err = cli(*PLAN_BY_FILE)

    assert code == 2
    assert out == ""
    assert err.startswith("mempiler: run.toml: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[data]\nseed = 1\nsead = 2\n",
            "line 3: data.sead is no setting of mempiler evaluate; did you mean ",
        ),
        (
            "seed = 1\n",
            "line 1: seed is no setting of mempiler evaluate; did you mean data.seed?",
        ),
        (
            '[models.judge]\nlm = "x"',
            "line 2: models.judge.lm is no setting of mempiler evaluate; did you mean models.task",
        ),
        (
            '[optimizer]\nname = "gepa"',
            "line 1: optimizer is no setting of mempiler evaluate",
        ),
    ],
)
def test_an_unknown_key_of_a_file_is_refused_with_its_line(
    cli: RunCommand, current_folder: Path, text: str, message: str
) -> None:
    assert message in refusal_of_file(cli, current_folder, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '\n[data]\ntest = "many"\n',
            "line 3: data.test: test = 'many': input should be a valid integer",
        ),
        (
            "[data]\ntest = true\n",
            "line 2: data.test: test = True: input should be a valid integer",
        ),
        (
            "[execution]\nmax_failure_rate = 2\n",
            "line 2: execution.max_failure_rate: max_failure_rate = 2: ",
        ),
        (
            "[limits]\nmax_usd = true\n",
            "line 2: limits.max_usd: max_usd = True: give a finite number",
        ),
        (
            "[limits]\nmax_calls = 2.5\n",
            "line 2: limits.max_calls: max_calls = 2.5: give a whole number",
        ),
        (
            "[models.task]\nname = 3\n",
            "line 2: models.task.name: lm = 3: input should be a valid string",
        ),
        (
            "[execution.threads]\nk = 3\n",
            "line 1: execution.threads: threads = {'k': 3}: ",
        ),
        (
            '[evaluation]\nsplit = "tset"\n',
            "line 2: evaluation.split: 'tset' is not one of",
        ),
        (
            "[method]\nsettings = 3\n",
            "line 2: method.settings: 3 is neither a table nor a list",
        ),
        (
            "[method.settings]\nsince = 2024-01-01\n",
            "line 1: method.settings: since = 2024-01-01: a date or time",
        ),
        (
            "[method.settings]\nat = [{ since = 2024-01-01T10:00:00 }]\n",
            "line 1: method.settings: at = ",
        ),
    ],
)
def test_a_wrong_value_in_a_file_is_refused_with_line_and_key(
    cli: RunCommand, current_folder: Path, text: str, message: str
) -> None:
    assert message in refusal_of_file(cli, current_folder, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "seed = \n", "cannot be read as TOML: Invalid value (at line 1", id="no value"
        ),
        pytest.param("\xff\xfe", "cannot be read as UTF-8 text: it is UTF-16", id="UTF-16"),
        pytest.param(
            "seed = " + "1" * 5_000,
            "cannot be read as TOML: Exceeds the limit",
            id="a number with 5,000 digits",
        ),
        pytest.param(
            "#" * 1_000_000 + "\nseed = 1",
            "has more than 1,000,000 characters; a file of options",
            id="a large file",
        ),
        pytest.param(
            "a = " + "[" * 100_000,
            "cannot be read as TOML: maximum recursion depth exceeded",
            id="100,000 brackets",
        ),
    ],
)
def test_a_file_that_is_no_toml_is_refused(
    cli: RunCommand, current_folder: Path, text: str, message: str
) -> None:
    assert message in refusal_of_file(cli, current_folder, text)


def test_a_file_for_another_command_is_refused_with_the_name_of_that_command(
    cli: RunCommand, current_folder: Path
) -> None:
    """`evaluate` has no optimizer; `compile` has."""
    (current_folder / "run.toml").write_text(
        '[data]\nbenchmark = "locomo"\n[optimizer]\nname = "knn"\n'
    )

    code, _, err = cli("evaluate", "turn-rag", "--config", "run.toml")

    assert code == 2
    assert "the file is for mempiler compile" in err


def test_an_environment_variable_does_not_name_the_user_to_forget(
    cli: RunCommand, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a forgotten variable would decide whose memory is deleted."""
    (current_folder / "chat.json").write_text('[{"role": "user", "content": "I moved."}]')
    store = ("--store", "memories.sqlite")
    output_of(cli, "memories", "add", "chat.json", "--user", "ada", *store)
    monkeypatch.setenv("MEMPILER_USER", "ada")

    code, _, _ = cli("memories", "forget", *store)

    assert code == 2
    assert [user["user"] for user in json_of(cli, "memories", "list", *store)] == ["ada"]


def test_an_environment_variable_does_not_let_an_import_replace_users(
    cli: RunCommand, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --replace, an import refuses a user who is in the store already."""
    (current_folder / "chat.json").write_text('[{"role": "user", "content": "I moved."}]')
    store = ("--store", "memories.sqlite")
    output_of(cli, "memories", "add", "chat.json", "--user", "ada", *store)
    output_of(cli, "memories", "export", "all.jsonl", *store)
    monkeypatch.setenv("MEMPILER_REPLACE", "1")

    code, _, err = cli("memories", "import", "all.jsonl", *store)

    assert code == 2
    assert "give --replace" in err


# --- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [(), ("memories",)], ids=["mempiler", "memories"])
def test_a_group_of_commands_alone_prints_its_help(cli: RunCommand, group: tuple[str, ...]) -> None:
    result = cli(*group)

    assert result == cli(*group, "--help")
    _, out, _ = result
    assert "Commands" in out


def options_of_help(page: str) -> set[str]:
    """Return the options that a page of help lists, without `-h`."""
    first_words = [line.split()[0] for line in page.splitlines() if line.startswith("  -")]
    return set(first_words) - {"-h,"}


@pytest.mark.parametrize(
    "option", ["--history", "--embedder-api-base", "--reranker", "--allow-code"]
)
def test_a_command_that_takes_no_config_file_hides_no_option(cli: RunCommand, option: str) -> None:
    """Other commands do not show options that are seldom used, as a file can set them."""
    page = output_of(cli, "ask", "--help")

    assert "--config" not in page
    assert option in page


def test_help_shows_the_options_that_are_often_used(cli: RunCommand) -> None:
    page = output_of(cli, "compile", "--help")

    shown_options = options_of_help(page)
    assert len(shown_options) <= 25
    assert shown_options >= {
        "--max-usd",
        "--max-calls",
        "--max-tokens",
        "--max-minutes",
        "--min-n",
        "--force",
        "--resume",
    }


def test_the_list_of_settings_has_the_options_that_help_does_not_show(cli: RunCommand) -> None:
    shown_options = options_of_help(output_of(cli, "compile", "--help"))

    settings = json_of(cli, "list", "settings")["settings"]

    assert settings
    assert {f"--{name}" for name in settings}.isdisjoint(shown_options)


def test_the_list_of_settings_has_the_default_and_the_key_in_a_file(cli: RunCommand) -> None:
    settings = json_of(cli, "list", "settings")["settings"]

    assert settings["threads"] == "questions in flight [default: 8]; in a file: execution.threads"
    # This option belongs to `evaluate` alone.
    answer_address = settings["answer-api-base"]
    assert answer_address.endswith("in a file: models.answer.api_base (evaluate)")
    # This one has no default.
    assert "default" not in settings["categories"]


# --- the models of a saved program ------------------------------------------------------------

LOADING_COMMANDS = {
    "ask a history": "ask program 'Where did Ada move?' --history chat.json",
    "ask a stored user": "ask program 'Where did Ada move?' --user ada --store memories.sqlite",
    "write queued sessions": "memories rebuild program --queued --store memories.sqlite",
    "rebuild": "memories rebuild program --store memories.sqlite",
    "serve": "serve program --store serve.sqlite --host 127.0.0.1",
}
"""Commands that load the saved program in the folder `program`."""


def save_program(folder: str, model: str) -> None:
    """Save a program whose manifest names a language model."""
    mempiler.save(build("turn-rag", k=3), folder, Manifest(method="", task="", lms={"task": model}))


@pytest.fixture
def chat_of_ada(current_folder: Path, cli: RunCommand) -> Path:
    """The file of a chat in the current folder. A store remembers it as Ada's."""
    turn = {
        "role": "user",
        "name": "Ada",
        "content": "I moved to Lisbon last week.",
        "time": "2024-03-05",
    }
    path = current_folder / "chat.json"
    path.write_text(json.dumps([turn]))
    output_of(cli, "memories", "add", path, "--user", "ada", "--store", "memories.sqlite")
    return path


@pytest.mark.usefixtures("chat_of_ada")
@pytest.mark.parametrize("model", ["huggingface/https://evil", "local:x"])
@pytest.mark.parametrize("command", LOADING_COMMANDS.values(), ids=LOADING_COMMANDS)
def test_the_folder_of_a_program_does_not_choose_the_model(
    cli: RunCommand, command: str, model: str
) -> None:
    """Somebody may have got the folder from a stranger.

    A model that its file names must not be asked unless the user names it, too.
    """
    save_program("program", model)

    code, _, err = cli(*shlex.split(command))

    assert code == 2
    fix = f"give --lm {model} (or MEMPILER_LM)"
    assert f"mempiler: program: was compiled with {model!r}; {fix}" in err


@pytest.mark.usefixtures("chat_of_ada")
def test_the_model_of_a_saved_program_is_asked_if_the_user_names_it_by_an_option(
    cli: RunCommand, stub: Any
) -> None:
    server = stub()
    save_program("program", server.model)
    ask = ["ask", "program", "Where?", "--history", "chat.json", "--api-base", server.url]

    answer = json_of(cli, *ask, "--lm", server.model)

    assert answer["lm"] == server.model
    assert len(server.texts) == 1


@pytest.mark.usefixtures("chat_of_ada")
def test_the_model_of_a_saved_program_is_asked_if_the_user_names_it_by_a_variable(
    cli: RunCommand, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stub()
    save_program("program", server.model)
    monkeypatch.setenv("MEMPILER_LM", server.model)
    ask = ["ask", "program", "Where?", "--history", "chat.json", "--api-base", server.url]

    answer = json_of(cli, *ask)

    assert answer["lm"] == server.model
    assert len(server.texts) == 1


@pytest.fixture
def program_with_far_embedder(chat_of_ada: Path) -> Path:
    """The folder `facts` of a program whose manifest names an embedder that somebody sells."""
    far_embedder = embedder()
    far_embedder.name = "openai/far"
    program = build("fact-store", embedder=far_embedder)
    mempiler.save(program, "facts", Manifest(method="", task="", lms={"task": "offline"}))
    assert read_manifest("facts").embedder == "openai/far"
    return Path("facts")


@pytest.mark.usefixtures("program_with_far_embedder")
def test_the_folder_of_a_program_does_not_choose_the_embedder(cli: RunCommand) -> None:
    """The program in the folder `facts` names an embedder, and the user does not name it.

    Otherwise all texts would be sent to whoever runs the embedder.
    """
    code, _, err = cli("memories", "rebuild", "facts", "--store", "memories.sqlite")

    assert code == 2
    assert "facts: was made with the embedder 'openai/far'; give --embedder" in err


@pytest.mark.usefixtures("program_with_far_embedder")
def test_the_embedder_of_a_saved_program_is_taken_if_the_user_names_it(cli: RunCommand) -> None:
    """The program in the folder `facts` names the embedder "openai/far".

    With --queued there is nothing to write, so it is not asked.
    """
    output_of(
        cli,
        *("memories", "rebuild", "facts"),
        "--queued",
        *("--store", "memories.sqlite"),
        *("--embedder", "openai/far"),
    )


@pytest.mark.usefixtures("program_with_far_embedder")
def test_an_evaluation_does_not_take_the_embedder_from_the_folder(cli: RunCommand) -> None:
    """The program in the folder `facts` names an embedder, and the user does not name it."""
    code, _, err = cli("evaluate", "facts", "--benchmark", "locomo", "--test", "2", "--plan")

    assert code == 2
    assert "give --embedder" in err


@pytest.mark.usefixtures("program_with_far_embedder")
def test_an_evaluation_takes_the_embedder_that_the_user_names(cli: RunCommand) -> None:
    """The program in the folder `facts` names the embedder "openai/far".

    The error shows that it is taken: there is no key for it.
    """
    plan = ("evaluate", "facts", "--benchmark", "locomo", "--test", "2", "--plan")

    _, _, err = cli(*plan, "--embedder", "openai/far")

    assert "embedder 'openai/far' needs a key" in err
