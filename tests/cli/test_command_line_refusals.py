"""A user's mistake is one line on standard error and exit code 2, whatever the mistake.

The commands try methods (programs with a memory, such as `turn-rag`) on benchmarks (conversations
and questions about them, such as `locomo`). Each test gives wrong command lines of one kind, and a
part of the message that should name the mistake.
"""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mempiler import build, save

from ..command_line import RunCommand

RefusalOf = Callable[[str], str]
"""A wrong command line -> the line in which it is refused; see the fixture `refusal_of`."""

EVALUATE = "evaluate turn-rag --benchmark locomo"
COMPILE = "compile turn-rag --benchmark locomo"

BROKEN_FILES = ("deep.json", "utf16.json", "empty", "nowhere")
"""Files and folders that no command can read. More of them are tried in tests/records."""


@pytest.fixture(scope="module")
def broken_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all sorts of wrong files, and a few right ones."""
    folder = tmp_path_factory.mktemp("broken-files")

    conversation = {
        "sample_id": "conv-1",
        "conversation": {"speaker_a": "Ann", "speaker_b": "Bob"},
        "qa": [{"question": "Where?"}],
    }
    (folder / "truncated.json").write_text(json.dumps([conversation])[:60])
    (folder / "empty.json").write_text("")
    (folder / "half.csv").write_text("human,judge\nA,A\nB,\n")
    (folder / "no_role.json").write_text('[{"content": "I moved."}]')
    (folder / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    (folder / "utf16.json").write_text("[]", encoding="utf-16")

    question = {
        "user": "ann",
        "messages": [{"role": "user", "content": "I moved."}],
        "question": "What?",
        "answer": "moved",
    }
    (folder / "ok.jsonl").write_text(json.dumps(question))
    (folder / "history.json").write_text('[{"role": "user", "content": "I moved to Lisbon."}]')

    (folder / "empty").mkdir()
    (folder / "folder").mkdir()
    (folder / "folder/notes.txt").write_text("mine")
    return folder


@pytest.fixture
def current_folder(broken_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `broken_files`, which is the current one. There is no key of OpenAI."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(broken_files)
    return broken_files


@pytest.fixture
def refusal_of(current_folder: Path, cli: RunCommand) -> RefusalOf:
    """A function that runs a wrong command line, and returns the line in which it is refused.

    It checks that the command ends with exit code 2 and with this one line.
    """

    def run(command: str) -> str:
        code, out, err = cli(*shlex.split(command))

        assert code == 2
        assert "Traceback" not in out
        assert err.startswith("mempiler: ")
        assert err.count("\n") == 1
        assert len(err) <= 1600
        return err

    return run


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("push", "No such command 'push'"),
        ("memories undo", "No such command 'undo'"),
        ("list things", "'things'"),
        ("list methods gepa", "settings are listed of optimizers alone"),
        ("reproduce nosuch", "unknown paper 'nosuch'"),
        ("fetch nosuch", "'nosuch'"),
        ("fetch system:mem1", "unknown system 'mem1'; did you mean 'mem0'?"),
    ],
)
def test_an_unknown_command_or_name_is_refused(
    refusal_of: RefusalOf, command: str, message: str
) -> None:
    assert message in refusal_of(command)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--out here", "--out and --sha256 are for data files"),
        ("--from wheel", "--from is for weights"),
    ],
)
def test_an_option_that_a_memory_system_does_not_need_is_refused(
    refusal_of: RefusalOf, option: str, message: str
) -> None:
    """`mempiler fetch` fetches data files, weights of models, and memory systems such as mem0."""
    assert message in refusal_of(f"fetch system:mem0 {option}")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("turn-rga", "did you mean 'turn-rag'"),
        ("folder", "no saved program here (manifest.json is missing)"),
        ("no.such.module:Thing", "cannot be imported"),
        ("os:path", "'os:path' is not a subclass of mempiler.Method"),
        ("''", "unknown method ''"),
        (":", "':': cannot be imported"),
    ],
)
def test_a_wrong_method_is_refused(refusal_of: RefusalOf, method: str, message: str) -> None:
    assert message in refusal_of(f"evaluate {method} --benchmark locomo")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("prg+turn-rag", "did you mean 'pgr'"),
        ("pgr+json:JSONDecoder", "is not a subclass"),
        ("pgr+", "unknown method ''"),
        pytest.param(
            "logs+" * 2000 + "turn-rag",
            "2,000 policies before a method; at most 8",
            id="2000 policies",
        ),
    ],
)
def test_a_wrong_policy_before_a_method_is_refused(
    refusal_of: RefusalOf, method: str, message: str
) -> None:
    """A policy, such as `pgr`, stands before the method that it uses: `pgr+turn-rag`."""
    assert message in refusal_of(f"evaluate {method} --benchmark locomo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "--benchmark"),
        ("--benchmark lokomo", "did you mean 'locomo'"),
        ("--benchmark locomo --categories 9", "unknown category of locomo '9'"),
        ("--benchmark jsonl", "no sample; give the path"),
        ("--benchmark jsonl --data ok.jsonl --metric f2", "unknown metric 'f2'"),
        ("--benchmark mempiler.data.jsonl:Quiz", "AttributeError: "),
        ("--benchmark mempiler.data.jsonl:Combined", "is not a subclass of mempiler.data.bench"),
        ("--benchmark longmemeval --test 1", "--judge-lm, or take --benchmark-set metric=f1"),
    ],
)
def test_a_wrong_benchmark_is_refused(refusal_of: RefusalOf, options: str, message: str) -> None:
    """Some benchmarks have a sample of their data, and others need a file (--data)."""
    assert message in refusal_of(f"evaluate turn-rag {options}")


@pytest.mark.parametrize(
    ("benchmark", "setting"),
    [
        ("memory-env", "users=x"),
        ("memory-env", "users=[1]"),
        ("memory-env", "users=1e400"),
        ("memory-env", "users=3"),
        ("memory-env", "sessions=NaN"),
        ("memory-env", "seed=-1"),
        ("memory-env", "nothing=1"),
        ("movielens", "min_ratings=x"),
        ("movielens", "questions=0"),
        ("movielens", "metric=f1"),
        ("omnibehavior", "detail=NaN"),
        ("omnibehavior", "last_day=maybe"),
        ("omnibehavior", "history=2025-13-01..2025-14-01"),
        ("omnibehavior", "categories=cinema"),
        ("beam", "size=2M"),
        ("beam", "categories=riddle"),
        ("beam", "metric=f1"),
        ("longmemeval", "size=xl"),
        ("longmemeval", "limit=true"),
        ("longmemeval", "categories=riddle"),
        ("palbench.dialogue", "tie_margin=NaN"),
        ("palbench.dialogue", "lang=zh"),
        ("locomo", "nothing=1"),
    ],
)
def test_a_wrong_setting_of_a_benchmark_is_refused_with_its_name_or_value(
    refusal_of: RefusalOf, benchmark: str, setting: str
) -> None:
    """Each setting has a wrong value, or a name that its benchmark does not know."""
    message = refusal_of(f"evaluate turn-rag --benchmark {benchmark} --benchmark-set {setting}")

    name, _, value = setting.partition("=")
    assert name in message or value in message


def test_a_setting_of_a_benchmark_without_a_value_is_refused(refusal_of: RefusalOf) -> None:
    assert "'nothing' is not NAME=VALUE" in refusal_of(f"{EVALUATE} --benchmark-set nothing")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("'\udc80'", id="command"),
        pytest.param("evaluate 'a\udcff' --benchmark locomo", id="method"),
        pytest.param(f"{EVALUATE} --data '\udcff.json'", id="file"),
        pytest.param("ask folder 'W\ud800?' --history history.json", id="question"),
    ],
)
def test_an_argument_that_is_no_text_is_refused(refusal_of: RefusalOf, command: str) -> None:
    r"""Python makes characters such as \udc80 of bytes that are no UTF-8."""
    assert "is no UTF-8 text" in refusal_of(command)


# --- files and runs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            "--data truncated.json", "truncated.json: not valid JSON at line 1", id="half a file"
        ),
        pytest.param("--data missing.json", "missing.json: no such file", id="missing"),
        pytest.param(
            "--data /dev/zero",
            "/dev/zero: cannot be read: it is a pipe or a device",
            id="a device that never ends",
        ),
        pytest.param(
            "--config /dev/zero",
            "/dev/zero: cannot be read: it is a pipe or a device",
            id="a device as the configuration",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    refusal_of: RefusalOf, options: str, message: str
) -> None:
    assert message in refusal_of(f"{EVALUATE} {options}")


@pytest.mark.parametrize("file", BROKEN_FILES)
@pytest.mark.parametrize("benchmark", ["locomo", "omnibehavior", "memoryquest", "jsonl"])
def test_a_broken_data_file_is_refused_by_every_benchmark(
    refusal_of: RefusalOf, benchmark: str, file: str
) -> None:
    """A file nested too deeply, one in UTF-16, an empty folder, and a name where nothing is."""
    message = refusal_of(f"evaluate turn-rag --benchmark {benchmark} --data {file}")

    assert file in message


@pytest.mark.parametrize("file", BROKEN_FILES)
@pytest.mark.parametrize(
    "command", ["ask folder 'Where?' --history {file}", "memories add {file} --user ann"]
)
def test_a_broken_history_is_refused(refusal_of: RefusalOf, command: str, file: str) -> None:
    """A file nested too deeply, one in UTF-16, an empty folder, and a name where nothing is."""
    assert file in refusal_of(command.format(file=file))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("ok.jsonl", id="questions"),
        pytest.param("deep.json", id="nested too deeply"),
        pytest.param("utf16.json", id="UTF-16"),
        pytest.param("empty", id="folder"),
        pytest.param("empty.json", id="empty file"),
    ],
)
def test_a_file_that_is_no_export_of_memories_is_not_imported(
    refusal_of: RefusalOf, file: str
) -> None:
    assert file in refusal_of(f"memories import {file}")


@pytest.mark.parametrize("file", ["nowhere", "empty", "empty.json"])
def test_a_token_file_without_tokens_is_refused(refusal_of: RefusalOf, file: str) -> None:
    """The tokens are those of the clients that may use the service."""
    assert file in refusal_of(f"serve folder --token-file {file}")


@pytest.mark.parametrize("run", ["nowhere", "empty", "''"])
@pytest.mark.parametrize("command", ["show {run} --failed", EVALUATE + " --resume {run}"])
def test_a_run_that_is_not_there_is_refused(refusal_of: RefusalOf, command: str, run: str) -> None:
    """`empty` is a folder without a run."""
    message = refusal_of(command.format(run=run))

    assert message.startswith("mempiler: ")


def test_a_name_that_is_too_long_for_a_run_is_refused(refusal_of: RefusalOf) -> None:
    message = refusal_of("show " + "x" * 5000)

    assert "no file or run can have the name 'xxx" in message


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compare nowhere empty", "no run 'nowhere' in "),
        ("compare a", "one run is nothing to compare"),
        ("compare a b --gate --min-n 0", "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_comparison_is_refused(refusal_of: RefusalOf, command: str, message: str) -> None:
    assert message in refusal_of(command)


# --- numbers and settings of an evaluation ----------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "--max-usd nan",
        "--max-usd inf",
        "--max-usd -1",
        "--max-usd x",
        "--max-failure-rate nan",
        "--max-failure-rate 1.1",
        "--timeout nan",
        "--timeout 0",
        "--timeout 1e300",
        "--max-calls nan",
        "--max-calls -1",
        "--max-calls 1.5",
        "--train -1",
        "--train x",
        "--retries -1",
        "--retries 1e9",
        "--seed x",
        "--seed 1.5",
        pytest.param("--seed " + "9" * 5000, id="--seed with 5000 digits"),
        "--workers 0",
        "--workers -1",
        "--traces some",
        "--traces -1",
    ],
)
def test_a_number_that_an_evaluation_does_not_take_is_refused_with_its_option(
    refusal_of: RefusalOf, option: str
) -> None:
    """No number may be infinite, "not a number", negative, or a text.

    A message writes the option as on the command line, or as in Python: "max-usd" or "max_usd".
    """
    name = option.split()[0].removeprefix("--")

    message = refusal_of(f"{EVALUATE} {option}")

    assert name in message.replace("_", "-")


def test_a_number_that_reproduce_does_not_take_is_refused(refusal_of: RefusalOf) -> None:
    """`reproduce rgmem` repeats the tables of a paper."""
    assert "max_usd = nan" in refusal_of("reproduce rgmem --max-usd nan")


def test_an_unknown_adapter_is_refused(refusal_of: RefusalOf) -> None:
    """An adapter decides the form of prompts and answers."""
    assert "unknown adapter 'yaml'" in refusal_of(f"{EVALUATE} --adapter yaml")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("k", "'k' is not NAME=VALUE"),
        ("k=-1", "k = -1: input should be greater than or equal to 1"),
        ("k=1000000000", "k = 1000000000: input should be less than or equal to 1000"),
        ("k=abc", "k = 'abc'"),
        ("k=NaN", "k = "),
        ("k=[1]", "k = [1]"),
        ("k=", "k = "),
        ("k=1e400", "k = "),
        ("=5", "has no setting ''"),
        ("min_score=0", "has no setting 'min_score'"),
    ],
)
def test_a_wrong_setting_of_a_method_is_refused(
    refusal_of: RefusalOf, setting: str, message: str
) -> None:
    """`k`, the number of recalled turns, is a whole number from 1 to 1000."""
    assert message in refusal_of(f"{EVALUATE} --set {setting}")


# --- language models --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nosuch", "nosuch/model", "openai/", "/"])
@pytest.mark.parametrize("command", [f"{EVALUATE} --lm", f"{COMPILE} --prompt-lm"])
def test_a_name_of_no_language_model_is_refused(
    refusal_of: RefusalOf, command: str, name: str
) -> None:
    """The name of a model begins with its provider. The provider `nosuch` does not exist."""
    assert f"'{name}'" in refusal_of(f"{command} {name}")


def test_an_empty_name_of_a_language_model_is_refused(refusal_of: RefusalOf) -> None:
    assert "language model ''" in refusal_of(f"{EVALUATE} --lm ''")


@pytest.mark.parametrize(
    "command", [f"{EVALUATE} --test 3", "compile memory-r2 --benchmark locomo"]
)
def test_a_model_without_a_key_is_refused_before_the_run_begins(
    refusal_of: RefusalOf, command: str
) -> None:
    assert "there is no key; set OPENAI_API_KEY" in refusal_of(f"{command} --lm openai/gpt-x")


@pytest.mark.parametrize("setting", ["temperature=11", "top_p=x", "n=2", "model=x"])
def test_a_wrong_setting_of_a_model_is_refused_before_its_server_is_asked(
    refusal_of: RefusalOf, setting: str
) -> None:
    """There is no server at this address."""
    message = refusal_of(f"{EVALUATE} --lm openai/own --api-base http://own/v1 --lm-set {setting}")

    name, _, _ = setting.partition("=")
    assert f"--lm-set {name}" in message


@pytest.mark.parametrize("setting", ["top_p=.5", "min_p=.5", "temperature=nan", "temperature"])
def test_a_setting_that_the_offline_engine_does_not_take_is_refused(
    refusal_of: RefusalOf, setting: str
) -> None:
    """Without --lm the offline engine answers. It is no model, and copies text from the prompt."""
    name, _, _ = setting.partition("=")

    assert name in refusal_of(f"{EVALUATE} --lm-set {setting}")


# --- compile ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--optimizer bootstrp", "did you mean 'bootstrap'"),
        ("--stage write", "no prompt to tune in stage 'write'"),
        ("--out folder", "folder: exists and is no saved program"),
        ("--out ok.jsonl/program", "cannot be written"),
    ],
)
def test_a_wrong_option_of_compile_is_refused(
    refusal_of: RefusalOf, options: str, message: str
) -> None:
    assert message in refusal_of(f"{COMPILE} {options}")


@pytest.mark.parametrize(
    ("optimizer", "setting", "message"),
    [
        ("bootstrap", "rounds=2", "no setting 'rounds'"),
        ("bootstrap", "max_rounds=two", "max_rounds = 'two': Input should be a valid integer"),
        ("bootstrap", "max_labeled_demos=-1", "max_labeled_demos = -1: it is 0 or more"),
        ("bootstrap-random", "max_bootstrapped_demos=0", "each set of demos has 1 or more"),
        ("mipro", "max_bootstrapped_demos=0", "each set of demos has 1 or more"),
        ("copro", "breadth=1", "breadth = 1: it is 2 or more; its default is 4"),
        ("gepa", "max_metric_calls=0", "max_metric_calls = 0: it is 1 or more"),
    ],
)
def test_a_wrong_setting_of_an_optimizer_is_refused(
    refusal_of: RefusalOf, optimizer: str, setting: str, message: str
) -> None:
    """Demos are examples for the model, which some optimizers put into prompts."""
    refusal = refusal_of(f"{COMPILE} --optimizer {optimizer} --optimizer-set {setting}")

    assert message in refusal


def test_two_settings_of_an_optimizer_that_exclude_each_other_are_refused(
    refusal_of: RefusalOf,
) -> None:
    settings = "--optimizer-set auto=light --optimizer-set max_metric_calls=9"

    message = refusal_of(f"{COMPILE} --optimizer gepa {settings}")

    assert "gepa takes one of auto, max_metric_calls; leave out the others" in message


# --- ask and memories -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ask folder 'Where?'", "--history"),
        ("ask folder 'Where?' --history no_role.json", "has no role"),
        ("ask folder 'Where?' --history history.json", "no saved program here"),
        ("ask models:/nobody@p 'Where?' --history history.json", "models:/nobody@p"),
        ("memories rebuild models:/nobody@p", "models:/nobody@p"),
    ],
)
def test_a_wrong_program_or_history_is_refused(
    refusal_of: RefusalOf, command: str, message: str
) -> None:
    """`folder` holds no program, and the registry none with the name `nobody`."""
    assert message in refusal_of(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param(
            "memories list --store " + "x" * 5000, "no memories here", id="list a long name"
        ),
        pytest.param(
            f"memories add history.json --user ann --store {'x' * 300}/m.sqlite",
            "File name too long",
            id="add to a long name",
        ),
        pytest.param(
            "memories add history.json --user ann --store no://x",
            "no is not supported",
            id="unknown kind of database",
        ),
    ],
)
def test_a_wrong_name_of_a_store_is_refused(
    refusal_of: RefusalOf, command: str, message: str
) -> None:
    assert message in refusal_of(command)


# --- serve and ui -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--host 0.0.0.0", "give --token-file"),
        ("--lm-deadline 60", "--lm-deadline 60 must be less than --timeout 60"),
        ("--timeout nan", "--timeout"),
        ("--grace inf", "--grace"),
        ("--session-gap nan", "--session-gap"),
        ("--lm-timeout nan", "lm_timeout = nan"),
        ("--port 70000", "--port"),
        ("--log-level x", "--log-level"),
    ],
)
def test_a_wrong_option_of_serve_is_refused(
    refusal_of: RefusalOf, options: str, message: str
) -> None:
    """A service that others can reach must ask for a token."""
    assert message in refusal_of(f"serve folder {options}")


@pytest.mark.parametrize("port", ["-1", "0", "70000"])
def test_a_wrong_port_of_ui_is_refused(refusal_of: RefusalOf, port: str) -> None:
    assert "is not in the range" in refusal_of(f"ui --port {port}")


# --- the check of a judge ---------------------------------------------------------------------


@pytest.mark.parametrize("file", ["nowhere.jsonl", "half.csv", "deep.json", "empty", "ok.jsonl"])
def test_a_file_without_labelled_answers_is_no_check_of_a_judge(
    refusal_of: RefusalOf, file: str
) -> None:
    """A judge is a model that scores answers. It is checked by answers that people have labelled.

    `half.csv` is a table in the form CSV, and `ok.jsonl` has questions without answers to judge.
    """
    assert file in refusal_of(f"evaluate judge --benchmark judge-check --data {file}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--adapter morse", "morse"),
        ("--plan", "--plan, --resume and --replay are for runs"),
        ("--resume x", "--resume and --replay are for runs"),
        ("--max-calls 3", "budget reached: max-calls 3"),
        ("--judge-lm nosuch", "nosuch"),
        (
            "--judge-lm openai/x --judge-api-base 'javascript:alert(1)'",
            "is no address; give one such as",
        ),
    ],
)
def test_a_wrong_option_of_the_check_of_a_judge_is_refused(
    refusal_of: RefusalOf, options: str, message: str
) -> None:
    assert message in refusal_of(f"evaluate judge --benchmark judge-check {options}")


# --- train ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--lm offline", "cannot be trained in this process; use --lm local:NAME"),
        ("--lm local:x --optimizer ppo", "--optimizer 'ppo': choose one of grpo, grpo-session, "),
        ("--lm local:x --lm-set temperature=0", "temperature: Input should be greater than 0"),
    ],
)
def test_a_wrong_option_of_train_is_refused(
    refusal_of: RefusalOf, options: str, message: str
) -> None:
    """Only a model on this machine ("local:...") can be trained."""
    assert message in refusal_of(f"train memory-r2 --benchmark memory-env {options}")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("answer_lm=openai/x", "language model 'openai/x': there is no key"),
        ("session_reward=fair", "session_reward: Input should be 'session', "),
        ("metric=bleu", "metric: Input should be 'benchmark' or 'released'"),
        ("samples=0", "samples: Input should be greater than 0"),
        ("tokens=0", "tokens: Input should be greater than 0"),
        ("questions=0", "questions: Input should be greater than 0"),
        ("local_fraction=0", "local_fraction: Input should be greater than 0"),
        ("local_fraction=nan", "local_fraction"),
        ("lora=0", "lora: Input should be greater than 0"),
        ("num_rollouts=1", "num_rollouts = 1"),
        ("local_n=1", "local_n = 1"),
        ("horizons=8,x", "horizons: Input should be a valid tuple"),
        ("horizons=[8,4]", "growing numbers of sessions"),
        ("steps=null", "nothing ends the training; give steps, tokens or both"),
        ("compression=-1", "compression: Input should be greater than or equal to 0"),
    ],
)
def test_a_wrong_setting_of_a_training_is_refused_before_the_model_is_loaded(
    refusal_of: RefusalOf, setting: str, message: str
) -> None:
    """There is no model "local:x"."""
    refusal = refusal_of(
        f"train memory-r2 --benchmark memory-env --lm local:x --train-set {setting}"
    )

    assert message in refusal


# --- what is wrong outside of the command line ------------------------------------------------


class Pauses:
    """Stands in for `asyncio.sleep`: it notes the seconds, and returns at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """The pauses of a command, by `asyncio.sleep`; they take no time."""
    replacement = Pauses()
    monkeypatch.setattr(asyncio, "sleep", replacement)
    return replacement


@pytest.mark.usefixtures("current_folder")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(f"{EVALUATE} --test 8", id="evaluate"),
        pytest.param("ask program 'Where?' --history history.json", id="ask"),
    ],
)
def test_a_server_that_is_not_there_is_reported_in_one_line_after_less_than_ten_seconds(
    cli: RunCommand, pauses: Pauses, command: str
) -> None:
    """A call that fails is tried again after a pause."""
    save(build("turn-rag"), "program")
    dead_server = ["--lm", "openai/x", "--api-base", "http://127.0.0.1:9/v1"]

    code, _, err = cli(*shlex.split(command), *dead_server)

    assert code == 3
    (line,) = [line for line in err.splitlines() if not line.startswith("data: ")]
    assert line.startswith("mempiler: ")
    assert "127.0.0.1:9" in line
    assert sum(pauses.seconds) < 10


def test_output_that_the_disk_does_not_take_is_reported_in_one_line_and_code_four() -> None:
    """/dev/full is a device of Linux that takes nothing, as a full disk."""
    command = [sys.executable, "-m", "mempiler", "list", "--json"]

    with Path("/dev/full").open("w") as full_disk:
        process = subprocess.run(
            command, stdout=full_disk, stderr=subprocess.PIPE, text=True, timeout=60
        )

    assert process.returncode == 4
    assert process.stderr.count("\n") == 1
    assert "No space left on device; free space on that disk" in process.stderr
