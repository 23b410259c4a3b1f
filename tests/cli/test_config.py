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

from ..command_line import RunCommand, json_of

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


@pytest.mark.parametrize(
    ("variable", "options", "expected_questions"),
    [
        pytest.param(None, [], 4, id="the file"),
        pytest.param("3", [], 3, id="a variable before the file"),
        pytest.param("3", ["--test", "2"], 2, id="the command line before a variable"),
    ],
)
def test_the_command_line_overrides_a_variable_and_a_variable_overrides_the_file(
    cli: RunCommand,
    current_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    options: list[str],
    expected_questions: int,
) -> None:
    """The setting is the number of test questions. Each takes one call, so the plan shows it.

    The file says four.
    """
    settings = '[data]\nbenchmark = "locomo"\ntest = 4\n[evaluation]\nsplit = "test"\n'
    (current_folder / "run.toml").write_text(settings)
    if variable is not None:
        monkeypatch.setenv("MEMPILER_TEST", variable)

    plan = json_of(cli, *PLAN_BY_FILE, *options)

    assert plan["calls"]["high"] == expected_questions


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
    ("settings", "options", "expected_name"),
    [
        pytest.param("[models.task.settings]\nmy-field = 1", [], "my-field", id="table"),
        pytest.param('[models.task]\nsettings = ["my-field=1"]', [], "my-field", id="list"),
        pytest.param("", ["--lm-set", "my-field=1"], "my_field", id="command line"),
    ],
)
def test_names_lose_their_hyphens_on_the_command_line_but_not_in_a_file(
    cli: RunCommand, current_folder: Path, settings: str, options: list[str], expected_name: str
) -> None:
    """The offline engine takes no such setting, and the error names it as it was understood."""
    (current_folder / "run.toml").write_text(f"{FOUR_QUESTIONS}\n{settings}\n")

    _, _, err = cli(*EVALUATE_BY_FILE, *options)

    assert f"--lm-set {expected_name}: offline does not take it" in err


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

    code, _, err = cli(
        *EVALUATE_BY_FILE, "--replay", original["run_id"], "--lm-set", "temperature=1"
    )

    assert code == 2
    assert "ran with --lm-set {'temperature': 0}, not {'temperature': 1}" in err


@pytest.mark.parametrize("by_variable", [False, True], ids=["command line", "variable"])
@pytest.mark.parametrize("name", ["set", "lm-set", "benchmark-set", "optimizer-set", "train-set"])
def test_settings_are_added_to_those_of_the_file(
    name: str, by_variable: bool, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test has a command of its own, with one option that is declared as the real ones are.

    The file sets `k` and `steps`, and the user sets only `k`.
    """

    @click.command()
    @click.option(
        f"--{name}",
        "pairs",
        cls=FileOption,
        file_key="group.settings",
        multiple=True,
        envvar="PAIRS",
    )
    @CONFIG
    def print_settings(pairs: tuple[str, ...]) -> None:
        click.echo(json.dumps(parse_settings(pairs)))

    (current_folder / "run.toml").write_text("[group.settings]\nk = 1\nsteps = 2\n")
    words = ["--config", "run.toml"]
    if by_variable:
        monkeypatch.setenv("PAIRS", "k=9")
    else:
        words.extend([f"--{name}", "k=9"])

    result = CliRunner().invoke(print_settings, words)

    assert json.loads(result.output) == {"k": 9, "steps": 2}


TRAIN_BY_FILE = (
    *("train", "memory-r2"),
    *("--benchmark", "memory-env"),
    *("--lm", "local:x"),
    *("--config", "run.toml"),
)


def test_a_wrong_setting_of_a_training_in_the_file_is_refused(
    cli: RunCommand, current_folder: Path
) -> None:
    """`tokens` is the number of tokens after which a training ends."""
    (current_folder / "run.toml").write_text("[training.settings]\ntokens = 0\n")

    _, _, err = cli(*TRAIN_BY_FILE)

    assert "tokens: Input should be greater than 0" in err


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
    """The error shows that the table was read.

    trl is a library for trainings, which is not used here.
    """
    (current_folder / "run.toml").write_text("[training.settings.trl]\nbf16 = true\n")

    _, _, err = cli(*TRAIN_BY_FILE, "--train-set", "steps=3")

    assert "settings of trl are for trainer = trl" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Keys that the command does not know.
        (
            "[data]\nseed = 1\nsead = 2\n",
            "run.toml: line 3: data.sead is no setting of mempiler evaluate; did you mean ",
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
        # Values of a wrong kind or size.
        (
            "[execution]\nmax_failure_rate = 2\n",
            "run.toml: line 2: execution.max_failure_rate: max_failure_rate = 2: ",
        ),
        (
            '\n[data]\ntest = "many"\n',
            "line 3: data.test: test = 'many': input should be a valid integer",
        ),
        (
            "[data]\ntest = true\n",
            "line 2: data.test: test = True: input should be a valid integer",
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
        # Files that are no TOML.
        (
            "seed = \n",
            "run.toml: cannot be read as TOML: Invalid value (at line 1",
        ),
        (
            "\xff\xfe",
            "run.toml: cannot be read as UTF-8 text: it is UTF-16",
        ),
        pytest.param(
            "seed = " + "1" * 5_000,
            "run.toml: cannot be read as TOML: Exceeds the limit",
            id="a number with 5,000 digits",
        ),
        pytest.param(
            "#" * 1_000_000 + "\nseed = 1",
            "run.toml: has more than 1,000,000 characters; a file of options",
            id="a large file",
        ),
        pytest.param(
            "a = " + "[" * 100_000,
            "run.toml: cannot be read as TOML: maximum recursion depth exceeded",
            id="100,000 brackets",
        ),
    ],
)
def test_a_mistake_in_the_file_names_line_and_key(
    cli: RunCommand, current_folder: Path, text: str, expected: str
) -> None:
    """The file is one for `mempiler evaluate`."""
    (current_folder / "run.toml").write_text(text, encoding="latin-1")

    code, out, err = cli(*PLAN_BY_FILE)

    assert code == 2
    assert out == ""
    assert err.startswith("mempiler: run.toml: ")
    assert err.count("\n") == 1
    assert expected in err


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


def test_environment_variables_name_no_user_and_set_no_flag(
    cli: RunCommand, current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a forgotten variable would decide whose memory is deleted."""
    (current_folder / "chat.json").write_text('[{"role": "user", "content": "I moved."}]')
    store = ("--store", "memories.sqlite")
    added_code, _, _ = cli("memories", "add", "chat.json", "--user", "ada", *store)
    monkeypatch.setenv("MEMPILER_USER", "ada")
    monkeypatch.setenv("MEMPILER_FORCE", "1")
    monkeypatch.setenv("MEMPILER_REPLACE", "1")

    forget_code, _, _ = cli("memories", "forget", *store)
    _, users, _ = cli("memories", "list", *store, "--json")

    assert added_code == 0
    assert forget_code == 2
    assert users.count("ada") == 1


# --- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [(), ("memories",)], ids=["mempiler", "memories"])
def test_a_group_alone_prints_its_help(cli: RunCommand, group: tuple[str, ...]) -> None:
    code, out, err = cli(*group)

    assert "Commands" in out
    assert (code, out, err) == cli(*group, "--help")


def options_of_help(page: str) -> set[str]:
    """Return the options that a page of help lists, without `-h`."""
    first_words = [line.split()[0] for line in page.splitlines() if line.startswith("  -")]
    return set(first_words) - {"-h,"}


@pytest.mark.parametrize(
    "option", ["--history", "--embedder-api-base", "--reranker", "--allow-code"]
)
def test_a_command_that_takes_no_config_file_hides_no_option(cli: RunCommand, option: str) -> None:
    """Other commands do not show options that are seldom used, as a file can set them."""
    _, page, _ = cli("ask", "--help")

    assert "--config" not in page
    assert option in page


def test_help_shows_the_options_that_are_often_used(cli: RunCommand) -> None:
    _, page, _ = cli("compile", "--help")

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
    """`list settings` prints the options that are seldom used, with their keys in a file."""
    _, page, _ = cli("compile", "--help")

    settings = json_of(cli, "list", "settings")["settings"]

    threads = "questions in flight [default: 8]; in a file: execution.threads"
    assert settings["threads"] == threads
    assert "default" not in settings["categories"]
    answer_address = settings["answer-api-base"]
    assert answer_address.endswith("in a file: models.answer.api_base (evaluate)")
    listed_options = {f"--{name}" for name in settings}
    assert listed_options.isdisjoint(options_of_help(page))


# --- the models of a saved program ------------------------------------------------------------

LOADING_COMMANDS = {
    "ask": "ask program 'Where did Ada move?' --history chat.json",
    "ask stored": "ask program 'Where did Ada move?' --user ada --store memories.sqlite",
    "queued": "memories rebuild program --queued --store memories.sqlite",
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
    code, _, err = cli("memories", "add", path, "--user", "ada", "--store", "memories.sqlite")
    assert code == 0, err
    return path


@pytest.mark.parametrize("model", ["huggingface/https://evil", "local:x"])
@pytest.mark.parametrize("command", LOADING_COMMANDS.values(), ids=LOADING_COMMANDS)
def test_the_folder_of_a_program_does_not_choose_the_model(
    cli: RunCommand, chat_of_ada: Path, command: str, model: str
) -> None:
    """Somebody may have got the folder from a stranger.

    A model that its file names must not be asked unless the user names it, too.
    """
    save_program("program", model)

    code, _, err = cli(*shlex.split(command))

    assert code == 2
    fix = f"give --lm {model} (or MEMPILER_LM)"
    assert f"mempiler: program: was compiled with {model!r}; {fix}" in err


def test_whoever_runs_a_program_chooses_the_model(
    cli: RunCommand, chat_of_ada: Path, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved program names the model of the server. By --lm the user names it, too."""
    server = stub()
    save_program("program", server.model)
    ask = ["ask", "program", "Where?", "--history", "chat.json", "--api-base", server.url]

    answer_by_option = json_of(cli, *ask, "--lm", server.model)
    monkeypatch.setenv("MEMPILER_LM", server.model)
    answer_by_variable = json_of(cli, *ask)

    assert answer_by_option["lm"] == server.model
    assert answer_by_variable["lm"] == server.model
    # The cache has the second answer.
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


def test_the_folder_of_a_program_does_not_choose_the_embedder(
    cli: RunCommand, program_with_far_embedder: Path
) -> None:
    """All texts would be sent to whoever runs the embedder."""
    code, _, err = cli("memories", "rebuild", "facts", "--store", "memories.sqlite")

    assert code == 2
    assert "facts: was made with the embedder 'openai/far'; give --embedder" in err


def test_whoever_runs_a_program_chooses_the_embedder(
    cli: RunCommand, program_with_far_embedder: Path
) -> None:
    """The program is told by name which embedder to use. With `--queued` nothing is written."""
    store = ("--store", "memories.sqlite")

    code, _, err = cli(
        "memories", "rebuild", "facts", "--queued", *store, "--embedder", "openai/far"
    )

    assert code == 0, err


def test_an_evaluation_does_not_take_the_embedder_from_the_folder(
    cli: RunCommand, program_with_far_embedder: Path
) -> None:
    code, _, err = cli("evaluate", "facts", "--benchmark", "locomo", "--test", "2", "--plan")

    assert code == 2
    assert "give --embedder" in err


def test_an_evaluation_takes_the_embedder_of_the_command_line(
    cli: RunCommand, program_with_far_embedder: Path
) -> None:
    """That it is taken is seen by the error: there is no key for it."""
    plan = ("evaluate", "facts", "--benchmark", "locomo", "--test", "2", "--plan")

    _, _, err = cli(*plan, "--embedder", "openai/far")

    assert "embedder 'openai/far' needs a key" in err
