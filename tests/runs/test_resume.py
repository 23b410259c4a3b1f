"""Runs that are resumed after a stop or a kill, and runs that are replayed without a server."""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mempiler.programs.names import METHODS
from mempiler.runs.evaluate import run_evaluate

from ..optimizers.conftest import SMALL_SETTINGS, setting_options
from ..recordings import make
from ..run_inputs import run_inputs
from .evaluations import table as reproducible_part

KILLED_AFTER = 11
"""Number of answers after which a run is killed: in the middle of every optimizer's work."""


def command_of(name: str) -> list[str]:
    """Return the command that evaluates, or that compiles with the optimizer of a name."""
    if name == "evaluate":
        return ["evaluate", "turn-rag", "--split", "train"]
    settings = setting_options(SMALL_SETTINGS[name])
    return ["compile", "turn-rag", "--optimizer", name, *settings]


def evaluation_outcome(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return what of an evaluation must not depend on where a run was broken off."""
    return {name: evaluation[name] for name in ("n", "score", "by", "failures")}


def outcome_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return what of the result of a command must not depend on where a run was broken off."""
    if "before" not in result:
        return evaluation_outcome(result)

    candidates = [(candidate["score"], candidate["n"]) for candidate in result["candidates"]]
    program_state = json.loads((Path(result["program"]) / "state.json").read_text())
    return {
        "before": evaluation_outcome(result["before"]),
        "after": evaluation_outcome(result["after"]),
        "dev": result["dev"],
        "difference": result["difference"],
        "promoted": result["promoted"],
        "stopped": result["stopped"],
        "candidates": candidates,
        "program": program_state,
    }


def run_folder_of(server: Any) -> Path:
    """Return the folder of the run that asked a stub server."""
    folders: list[Path] = []
    for record_file in Path(os.environ["MEMPILER_HOME"]).glob("*/run.json"):
        settings = json.loads(record_file.read_text())["settings"]
        if settings.get("lm") == server.model:
            folders.append(record_file.parent)
    (folder,) = folders
    return folder


def with_model_of(server: Any, other: Any) -> Any:
    """Let a stub server have the same model as another, so that it can take its place."""
    server.model = other.model
    return server


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("bootstrap", 1),
        ("evaluate", 4),
        *(
            pytest.param(name, 1, marks=pytest.mark.slow)
            for name in SMALL_SETTINGS
            if name != "bootstrap"
        ),
    ],
)
def test_a_killed_run_continues_where_it_was(stub, mempiler_cli, forks, tmp_path, name, threads):
    command = command_of(name)
    full_server = stub()
    uninterrupted = mempiler_cli(full_server, *command, train=16, threads=threads)
    assert uninterrupted.code == 0

    # Another run is killed, and resumed with another server.
    first_server = stub(delay=0.01)
    arguments = mempiler_cli.arguments(first_server, *command, train=16, threads=threads)
    forks.start(arguments, tmp_path / "home")
    killed_run = forks.kill(first_server, KILLED_AFTER)
    second_server = with_model_of(stub(), first_server)
    resumed = mempiler_cli(
        second_server, *command, "--resume", killed_run, train=16, threads=threads
    )
    assert resumed.code == 0

    assert outcome_of(resumed.found) == outcome_of(uninterrupted.found)
    prompts_of_both = {*first_server.texts, *second_server.texts}
    assert prompts_of_both == set(full_server.texts)
    assert 0 < len(second_server.texts) < len(full_server.texts)
    # Only calls that were in flight when it was killed are made twice. Each thread has one.
    call_count = len(first_server.texts) + len(second_server.texts)
    repeated_calls = call_count - len(full_server.texts)
    assert 0 <= repeated_calls <= threads


@pytest.mark.parametrize("name", ["evaluate", "gepa"])
def test_a_finished_run_asks_nothing_when_it_is_resumed(stub, mempiler_cli, name):
    first_server = stub()
    first = mempiler_cli(first_server, *command_of(name))
    assert first.code == 0
    second_server = with_model_of(stub(), first_server)

    resumed = mempiler_cli(
        second_server, *command_of(name), "--resume", str(run_folder_of(first_server))
    )

    assert resumed.code == 0
    assert second_server.texts == []
    assert outcome_of(resumed.found) == outcome_of(first.found)


def test_a_new_run_asks_its_own_server_even_if_another_had_a_model_of_that_name(stub, mempiler_cli):
    first_server = stub()
    second_server = with_model_of(stub(), first_server)

    first = mempiler_cli(first_server, *command_of("evaluate"))
    second = mempiler_cli(second_server, *command_of("evaluate"))

    assert first.code == 0
    assert second.code == 0
    assert len(first_server.texts) > 0
    assert sorted(second_server.texts) == sorted(first_server.texts)


def test_no_file_of_a_run_says_where_its_server_is(stub, mempiler_cli):
    server = stub()
    command = mempiler_cli(server, *command_of("evaluate"))
    assert command.code == 0

    address = server.url.removeprefix("http://").removesuffix("/v1")
    files = [path for path in run_folder_of(server).rglob("*") if path.is_file()]
    assert len(files) > 1
    for path in files:
        assert address.encode() not in path.read_bytes(), path


def test_a_run_whose_endpoint_died_continues_when_it_is_back(stub, mempiler_cli):
    command = command_of("bootstrap")
    full_server = stub()
    uninterrupted = mempiler_cli(full_server, *command)

    dying_server = stub(lambda n, text: "dead" if n > 6 else None)
    stopped = mempiler_cli(dying_server, *command)
    assert stopped.code == 3
    assert stopped.resume  # the message says how

    next_server = with_model_of(stub(), dying_server)
    resumed = mempiler_cli(next_server, *command, "--resume", str(run_folder_of(dying_server)))
    assert resumed.code == 0
    assert outcome_of(resumed.found) == outcome_of(uninterrupted.found)
    assert dying_server.answered + next_server.answered == full_server.answered


def test_a_run_whose_budget_was_spent_continues_with_a_larger_one(stub, mempiler_cli):
    command = command_of("evaluate")
    full_server = stub()
    uninterrupted = mempiler_cli(full_server, *command)

    first_server = stub()
    stopped = mempiler_cli(first_server, *command, "--max-calls", "3")
    assert stopped.code == 0
    assert stopped.found["stopped"] == "budget reached: max-calls 3"

    second_server = with_model_of(stub(), first_server)
    resumed = mempiler_cli(second_server, *command, "--resume", str(run_folder_of(first_server)))
    assert resumed.code == 0
    assert outcome_of(resumed.found) == outcome_of(uninterrupted.found)
    assert first_server.answered + second_server.answered == full_server.answered


@pytest.mark.parametrize("name", ["evaluate", "bootstrap"])
def test_a_run_that_may_ask_nothing_says_that_nothing_was_evaluated(stub, mempiler_cli, name):
    server = stub()

    stopped = mempiler_cli(server, *command_of(name), "--max-calls", "0")

    assert stopped.code == 4
    assert server.texts == []
    assert "nothing was evaluated: " in stopped.line
    assert "max-calls 0; --resume " in stopped.line
    run_name = stopped.line.partition("--resume ")[2].split()[0]
    resumed = mempiler_cli(server, *command_of(name), "--resume", run_name)
    assert resumed.code == 0


@pytest.mark.parametrize(
    ("options", "sizes", "problem"),
    [
        (["--seed", "1"], {}, "was started with seed = 0, not 1"),
        (["--lm-set", "top_k=5"], {}, "was started with lm_settings = {}, not {'top_k': 5}"),
        (["--set", "k=3"], {}, "was started with method_settings = {}, not {'k': 3}"),
        ([], {"test": 3}, "was started with test = 4, not 3"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings_of_its_result(
    stub, mempiler_cli, options, sizes, problem
):
    server = stub()
    mempiler_cli(server, *command_of("evaluate"))
    call_count = len(server.texts)
    resume = ["--resume", str(run_folder_of(server))]

    refused = mempiler_cli(server, *command_of("evaluate"), *resume, *options, **sizes)

    assert refused.code == 2, refused.line
    assert refused.out == ""
    assert problem in refused.line
    assert len(server.texts) == call_count


def test_a_run_is_resumed_with_other_limits(stub, mempiler_cli):
    server = stub()
    mempiler_cli(server, *command_of("evaluate"))
    call_count = len(server.texts)
    limits = [
        *("--timeout", "9"),
        *("--retries", "1"),
        *("--lm-deadline", "9"),
        *("--max-calls", "9"),
    ]
    resume = ["--resume", str(run_folder_of(server))]

    resumed = mempiler_cli(server, *command_of("evaluate"), *resume, *limits, threads=3)

    assert resumed.code == 0
    assert len(server.texts) == call_count


@pytest.mark.parametrize("name", ["evaluate", "bootstrap", "gepa"])
def test_a_store_that_fails_midway_stops_the_run_before_more_is_paid(stub, mempiler_cli, name):
    def break_store_at_sixth_request(n: int, text: str) -> None:
        if n == 6:
            store_file = run_folder_of(server) / "run.sqlite"
            with contextlib.closing(sqlite3.connect(store_file)) as database:
                database.execute("DROP TABLE answers")

    server = stub(break_store_at_sixth_request)

    stopped = mempiler_cli(server, *command_of(name))

    assert stopped.code == 2
    assert stopped.out == ""
    assert "run.sqlite: cannot be written: no such table: answers" in stopped.line
    assert len(server.texts) == 6


EVALUATE = ["evaluate", "turn-rag", "--split", "test"]
REPLAYED_COMMANDS = {
    "evaluate": EVALUATE,
    "evaluate-writing": ["evaluate", "fact-store", "--split", "test"],
    "bootstrap": command_of("bootstrap"),
    "gepa": command_of("gepa"),
}


@pytest.mark.parametrize(
    "name",
    [
        "evaluate",
        "evaluate-writing",
        "bootstrap",
        pytest.param("gepa", marks=pytest.mark.slow),
    ],
)
def test_a_replay_gives_the_table_of_the_run_without_a_server(
    stub, mempiler_cli, monkeypatch, name
):
    command = REPLAYED_COMMANDS[name]
    server = stub()
    first = mempiler_cli(server, *command)
    assert first.code == 0
    assert len(server.texts) >= 4

    # A replay needs neither the server nor a key.
    server.die()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    replayed = mempiler_cli(server, *command, "--replay", first.found["run_id"], threads=1)
    assert replayed.code == 0, replayed.line
    assert "mempiler:" not in replayed.err
    assert reproducible_part(replayed.found) == reproducible_part(first.found)

    # A replay can be replayed.
    replayed_twice = mempiler_cli(server, *command, "--replay", replayed.found["run_id"], threads=4)
    assert reproducible_part(replayed_twice.found) == reproducible_part(first.found)


def test_a_replay_knows_which_schemas_were_refused(stub, mempiler_cli):
    server = stub(schemas="refuse")
    first = mempiler_cli(server, *EVALUATE)
    assert first.code == 0
    # The first requests had a schema; once it was refused, the others had none.
    requests_without_schema = server.formats.count(None)
    assert 0 < requests_without_schema < len(server.formats)
    server.die()

    replayed = mempiler_cli(server, *EVALUATE, "--replay", first.found["run_id"])

    assert replayed.code == 0, replayed.line
    assert reproducible_part(replayed.found) == reproducible_part(first.found)


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        pytest.param(EVALUATE, {"test": 5}, id="one more question"),
        pytest.param([*EVALUATE, "--set", "k=1"], {}, id="other prompts"),
        pytest.param(REPLAYED_COMMANDS["bootstrap"], {}, id="other command"),
    ],
)
def test_a_replay_of_a_call_that_was_not_made_is_refused_and_asks_nothing(
    stub, mempiler_cli, command, sizes
):
    server = stub()
    first = mempiler_cli(server, *EVALUATE)
    call_count = len(server.texts)

    refused = mempiler_cli(server, *command, "--replay", first.found["run_id"], **sizes)

    assert refused.code == 2
    assert refused.out == ""
    assert len(server.texts) == call_count
    assert "task model was not asked: '" in refused.line
    # To resume it would not help.
    assert "--resume" not in refused.line


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--replay", "nothing"], "no run 'nothing'"),
        (["--replay", "RUN", "--lm", "openai/other"], "ran with --lm "),
        (["--replay", "RUN", "--resume", "RUN"], "--replay does not go with --resume"),
        (["--replay", "RUN", "--workers", "2"], "--workers does not go with --replay"),
    ],
)
def test_a_replay_with_options_that_do_not_fit_is_refused(
    stub, mempiler_cli, cli, options, problem
):
    first = mempiler_cli(stub(), *EVALUATE)
    run_id = first.found["run_id"]
    options = [run_id if word == "RUN" else word for word in options]
    sizes = ["--train", "8", "--dev", "4", "--test", "4"]

    exit_code, _, stderr = cli(*EVALUATE, "--benchmark", "locomo", *sizes, *options)

    assert exit_code == 2
    assert problem in stderr


def test_a_replay_takes_the_vectors_of_the_run(stub) -> None:
    server = stub()
    options = {
        "embedder": server.model,
        "embedder_api_base": server.url,
        "train": 4,
        "dev": 4,
        "test": 4,
    }
    first = run_evaluate("turn-rag", run_inputs("locomo", **options))
    assert len(server.requests) > 0
    server.die()

    replayed = run_evaluate("turn-rag", run_inputs("locomo", replay=first.run_id, **options))

    assert len(replayed.rows) == len(first.rows)
    for replayed_row, first_row in zip(replayed.rows, first.rows, strict=True):
        assert replayed_row.id == first_row.id
        assert replayed_row.answer == first_row.answer
        assert replayed_row.score == first_row.score
        assert replayed_row.sources == first_row.sources


RECORDINGS_FOLDER = Path(__file__).parents[1] / "recordings"
"""Runs with a small model, each with the table that its replay must give; see its README."""


def test_every_recorded_command_has_its_run_and_its_table() -> None:
    runs = {path.parent.name for path in RECORDINGS_FOLDER.glob("*/run.sqlite")}
    tables = {path.stem for path in RECORDINGS_FOLDER.glob("*.json")}
    # These are the questions of one of the commands.
    tables.remove("palset_en")

    assert runs == set(make.RECORDINGS)
    assert tables == set(make.RECORDINGS)


def programs_folder(method: str) -> str:
    """Return in which folder of `mempiler/programs` the class of a method is."""
    _, _, path = METHODS[method].path.partition(".programs.")
    return path.split(".")[0]


def test_a_method_of_every_folder_is_recorded() -> None:
    # A folder has the methods of one paper, or the baselines.
    recorded_methods = [make.command(name)[1] for name in make.RECORDINGS]
    recorded_folders = {programs_folder(method) for method in recorded_methods if method in METHODS}

    assert recorded_folders == {programs_folder(method) for method in METHODS}


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_of_a_recording_gives_its_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = f"if its prompts were changed on purpose: python tests/recordings/make.py {name!r}"
    run_folder = shutil.copytree(RECORDINGS_FOLDER / name, tmp_path / "run")
    recorded_table = json.loads((RECORDINGS_FOLDER / f"{name}.json").read_text(encoding="utf-8"))

    try:
        replayed_table = make.run(
            [*make.command(name), "--threads", "2", "--replay", str(run_folder)]
        )
    except SystemExit:
        error_line = capsys.readouterr().err.splitlines()[-1]
        pytest.fail(f"{error_line}; {advice}")

    assert replayed_table == recorded_table, advice
