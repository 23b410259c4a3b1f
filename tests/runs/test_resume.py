"""Runs that are resumed after a stop or a kill, and runs that are replayed without a server.

A run keeps every answer of its model in its folder. To resume a run means to take these answers,
and to ask only for those that are missing. To replay a run means to take all answers from there.

The model is a stub server. It keeps the prompts that it was sent in `texts`, and counts in
`answered` how many it answered. All stub servers give the same answer to the same prompt.

A command ends with exit code 2 after a mistake of the user, with 3 if the server fails, and with 4
if nothing could be evaluated.
"""

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
from .evaluations import reproducible_part

KILLED_AFTER = 11
"""Number of answers after which a run is killed: in the middle of every optimizer's work."""


def command_of(task: str) -> list[str]:
    """Return the command of a task: "evaluate", or the name of an optimizer that compiles.

    The optimizers have settings with which they make few calls.
    """
    if task == "evaluate":
        return ["evaluate", "turn-rag", "--split", "train"]
    settings = setting_options(SMALL_SETTINGS[task])
    return ["compile", "turn-rag", "--optimizer", task, *settings]


def evaluation_outcome(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an evaluation that must not depend on where a run was broken off."""
    return {name: evaluation[name] for name in ("n", "score", "by", "failures")}


def outcome_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a command's result that must not depend on where it was broken off."""
    is_evaluation = "before" not in result
    if is_evaluation:
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


def with_model_of(server: Any, replaced_server: Any) -> Any:
    """Give a stub server the model name of another, so that a run can be resumed with it."""
    server.model = replaced_server.model
    return server


@pytest.mark.parametrize(
    ("task", "threads"),
    [
        ("bootstrap", 1),
        ("evaluate", 4),
        *(
            pytest.param(optimizer, 1, marks=pytest.mark.slow)
            for optimizer in SMALL_SETTINGS
            if optimizer != "bootstrap"
        ),
    ],
)
def test_a_killed_and_resumed_run_has_the_result_of_an_unbroken_one_and_pays_no_more(
    stub, mempiler_cli, forks, tmp_path, task, threads
):
    """Each thread may have had one call in flight at the kill; only these are made twice."""
    command = command_of(task)
    server_of_unbroken = stub()
    unbroken = mempiler_cli(server_of_unbroken, *command, train=16, threads=threads)
    assert unbroken.code == 0

    server_before_kill = stub(delay=0.01)
    arguments = mempiler_cli.arguments(server_before_kill, *command, train=16, threads=threads)
    forks.start(arguments, tmp_path / "home")
    killed_run = forks.kill(server_before_kill, answers=KILLED_AFTER)

    server_after_kill = with_model_of(stub(), server_before_kill)
    resumed = mempiler_cli(
        server_after_kill, *command, "--resume", killed_run, train=16, threads=threads
    )
    assert resumed.code == 0

    assert outcome_of(resumed.printed_json) == outcome_of(unbroken.printed_json)
    prompts = server_before_kill.texts + server_after_kill.texts
    assert set(prompts) == set(server_of_unbroken.texts)
    assert 0 < len(server_after_kill.texts) < len(server_of_unbroken.texts)
    repeated_calls = len(prompts) - len(server_of_unbroken.texts)
    assert 0 <= repeated_calls <= threads


@pytest.mark.parametrize("task", ["evaluate", "gepa"])
def test_a_finished_run_asks_nothing_when_it_is_resumed(stub, mempiler_cli, task):
    first_server = stub()
    first = mempiler_cli(first_server, *command_of(task))
    assert first.code == 0
    second_server = with_model_of(stub(), first_server)

    resumed = mempiler_cli(
        second_server, *command_of(task), "--resume", str(run_folder_of(first_server))
    )

    assert resumed.code == 0
    assert second_server.texts == []
    assert outcome_of(resumed.printed_json) == outcome_of(first.printed_json)


def test_a_new_run_takes_no_answers_of_an_older_run_with_the_same_model(stub, mempiler_cli):
    """Two servers may call different models by the same name, so runs share no answers."""
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

    evaluated = mempiler_cli(server, *command_of("evaluate"))

    assert evaluated.code == 0
    address = server.url.removeprefix("http://").removesuffix("/v1")
    files = [path for path in run_folder_of(server).rglob("*") if path.is_file()]
    assert len(files) > 1
    for path in files:
        assert address.encode() not in path.read_bytes(), path


def die_after_six_requests(request_number: int, prompt: str) -> str | None:
    """A script of a stub server that dies at its seventh request."""
    return "dead" if request_number > 6 else None


def test_a_run_whose_server_died_is_resumed_with_another_and_makes_no_call_twice(
    stub, mempiler_cli
):
    """It ends like a run whose server never failed, and takes as many calls."""
    command = command_of("bootstrap")
    reliable_server = stub()
    unbroken = mempiler_cli(reliable_server, *command)

    dying_server = stub(die_after_six_requests)
    stopped = mempiler_cli(dying_server, *command)
    assert stopped.code == 3

    next_server = with_model_of(stub(), dying_server)
    resumed = mempiler_cli(next_server, *command, "--resume", str(run_folder_of(dying_server)))

    assert resumed.code == 0
    assert outcome_of(resumed.printed_json) == outcome_of(unbroken.printed_json)
    assert dying_server.answered + next_server.answered == reliable_server.answered


def test_a_run_that_reached_its_limit_of_calls_is_resumed_without_the_limit(stub, mempiler_cli):
    """It ends like a run that never had a limit, and takes as many calls."""
    command = command_of("evaluate")
    server_of_unlimited = stub()
    unlimited = mempiler_cli(server_of_unlimited, *command)

    first_server = stub()
    stopped = mempiler_cli(first_server, *command, "--max-calls", "3")
    assert stopped.code == 0
    assert stopped.printed_json["stopped"] == "budget reached: max-calls 3"

    second_server = with_model_of(stub(), first_server)
    resumed = mempiler_cli(second_server, *command, "--resume", str(run_folder_of(first_server)))

    assert resumed.code == 0
    assert outcome_of(resumed.printed_json) == outcome_of(unlimited.printed_json)
    assert first_server.answered + second_server.answered == server_of_unlimited.answered


@pytest.mark.parametrize("task", ["evaluate", "bootstrap"])
def test_a_run_that_may_make_no_call_fails_and_can_be_resumed(stub, mempiler_cli, task):
    """The message ends with "; --resume RUN with a higher limit goes on"."""
    server = stub()

    stopped = mempiler_cli(server, *command_of(task), "--max-calls", "0")

    assert stopped.code == 4
    assert server.texts == []
    assert "nothing was evaluated: " in stopped.error_line

    _, _, end_of_message = stopped.error_line.partition("--resume ")
    run_name = end_of_message.split()[0]
    resumed = mempiler_cli(server, *command_of(task), "--resume", run_name)
    assert resumed.code == 0


@pytest.mark.parametrize(
    ("changed_options", "problem"),
    [
        (["--seed", "1"], "was started with seed = 0, not 1"),
        (["--lm-set", "top_k=5"], "was started with lm_settings = {}, not {'top_k': 5}"),
        (["--set", "k=3"], "was started with method_settings = {}, not {'k': 3}"),
        (["--test", "3"], "was started with test = 4, not 3"),
    ],
)
def test_a_run_is_not_resumed_with_an_option_that_changes_its_result(
    stub, mempiler_cli, changed_options, problem
):
    server = stub()
    mempiler_cli(server, *command_of("evaluate"))
    call_count = len(server.texts)
    resume = ["--resume", str(run_folder_of(server))]

    refused = mempiler_cli(server, *command_of("evaluate"), *resume, *changed_options)

    assert refused.code == 2
    assert problem in refused.error_line
    assert len(server.texts) == call_count


def test_a_run_may_be_resumed_with_other_limits_and_threads(stub, mempiler_cli):
    """These options do not change its result."""
    server = stub()
    mempiler_cli(server, *command_of("evaluate"), threads=1)
    resume = ["--resume", str(run_folder_of(server))]
    other_limits = [
        *("--timeout", "9"),
        *("--retries", "1"),
        *("--lm-deadline", "9"),
        *("--max-calls", "9"),
    ]

    resumed = mempiler_cli(server, *command_of("evaluate"), *resume, *other_limits, threads=3)

    assert resumed.code == 0


@pytest.mark.parametrize("task", ["evaluate", "bootstrap", "gepa"])
def test_a_run_whose_answers_cannot_be_stored_makes_no_more_calls(stub, mempiler_cli, task):
    """At the sixth request, the table for answers is taken away.

    An answer that is not stored would have to be paid for again.
    """

    def drop_table_at_sixth_request(request_number: int, prompt: str) -> None:
        if request_number == 6:
            store_file = run_folder_of(server) / "run.sqlite"
            with contextlib.closing(sqlite3.connect(store_file)) as database:
                database.execute("DROP TABLE answers")

    server = stub(drop_table_at_sixth_request)

    stopped = mempiler_cli(server, *command_of(task))

    assert stopped.code == 2
    assert "run.sqlite: cannot be written: no such table: answers" in stopped.error_line
    assert len(server.texts) == 6


EVALUATE = ["evaluate", "turn-rag", "--split", "test"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(EVALUATE, id="evaluate"),
        pytest.param(
            ["evaluate", "fact-store", "--split", "test"],
            id="evaluate a method that writes with a model",
        ),
        pytest.param(command_of("bootstrap"), id="bootstrap"),
        pytest.param(command_of("gepa"), id="gepa", marks=pytest.mark.slow),
    ],
)
def test_a_replay_gives_the_result_of_the_run_without_server_and_key(
    stub, mempiler_cli, monkeypatch, command
):
    server = stub()
    first = mempiler_cli(server, *command, threads=4)
    assert first.code == 0
    server.die()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    replayed = mempiler_cli(server, *command, "--replay", first.printed_json["run_id"], threads=1)

    assert replayed.code == 0, replayed.err
    assert reproducible_part(replayed.printed_json) == reproducible_part(first.printed_json)


def test_a_replay_can_be_replayed(stub, mempiler_cli):
    server = stub()
    first = mempiler_cli(server, *EVALUATE)
    server.die()
    replayed = mempiler_cli(server, *EVALUATE, "--replay", first.printed_json["run_id"])

    replayed_twice = mempiler_cli(server, *EVALUATE, "--replay", replayed.printed_json["run_id"])

    assert reproducible_part(replayed_twice.printed_json) == reproducible_part(first.printed_json)


def test_a_run_whose_server_refused_json_schemas_can_be_replayed(stub, mempiler_cli):
    """A run first asks for answers by a JSON schema, and after a refusal without one.

    A replay makes the same requests, so it has to know of the refusals, too.
    """
    server = stub(schemas="refuse")
    first = mempiler_cli(server, *EVALUATE)
    assert first.code == 0
    requests_without_schema = server.formats.count(None)
    assert 0 < requests_without_schema < len(server.formats)
    server.die()

    replayed = mempiler_cli(server, *EVALUATE, "--replay", first.printed_json["run_id"])

    assert replayed.code == 0, replayed.err
    assert reproducible_part(replayed.printed_json) == reproducible_part(first.printed_json)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*EVALUATE, "--test", "5"], id="five test questions instead of four"),
        pytest.param([*EVALUATE, "--set", "k=1"], id="shorter prompts"),
        pytest.param(command_of("bootstrap"), id="compile instead of evaluate"),
    ],
)
def test_a_replay_that_needs_an_answer_which_the_run_does_not_have_is_refused(
    stub, mempiler_cli, command
):
    """A replay asks no model: it has only the answers of the run."""
    server = stub()
    first = mempiler_cli(server, *EVALUATE)
    call_count = len(server.texts)

    refused = mempiler_cli(server, *command, "--replay", first.printed_json["run_id"])

    assert refused.code == 2
    assert "task model was not asked: '" in refused.error_line
    assert len(server.texts) == call_count
    # The advice of other errors, to resume the run, would not help.
    assert "--resume" not in refused.error_line


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        # RUN_ID stands for the id of a finished run.
        (["--replay", "nothing"], "no run 'nothing'"),
        (["--replay", "RUN_ID", "--lm", "openai/other"], "ran with --lm "),
        (["--replay", "RUN_ID", "--resume", "RUN_ID"], "--replay does not go with --resume"),
        (["--replay", "RUN_ID", "--workers", "2"], "--workers does not go with --replay"),
    ],
)
def test_a_replay_with_options_that_do_not_fit_is_refused(
    stub, mempiler_cli, cli, options, problem
):
    run_id = mempiler_cli(stub(), *EVALUATE).printed_json["run_id"]
    options = [option.replace("RUN_ID", run_id) for option in options]
    question_counts = ["--train", "8", "--dev", "4", "--test", "4"]

    exit_code, _, stderr = cli(*EVALUATE, "--benchmark", "locomo", *question_counts, *options)

    assert exit_code == 2
    assert problem in stderr


def test_a_replay_asks_no_embedder_and_takes_the_vectors_of_the_run(stub) -> None:
    """The server has only the embedder. The model that answers is the offline engine."""
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

    assert [row.sources for row in replayed.rows] == [row.sources for row in first.rows]
    assert [row.answer for row in replayed.rows] == [row.answer for row in first.rows]


RECORDINGS_FOLDER = Path(__file__).parents[1] / "recordings"
"""Runs with a small model, each with the table that its replay must give; see its README."""


def test_every_recorded_command_has_its_run_and_its_table() -> None:
    run_names = {path.parent.name for path in RECORDINGS_FOLDER.glob("*/run.sqlite")}
    table_names = {path.stem for path in RECORDINGS_FOLDER.glob("*.json")}
    # This file is no table: it has the questions of one of the commands.
    table_names.remove("palset_en")

    assert run_names == set(make.RECORDINGS)
    assert table_names == set(make.RECORDINGS)


def folder_of_paper(method: str) -> str:
    """Return the folder of `mempiler/programs` with the methods of the same paper.

    The baselines, which are from no paper, have a folder, too.
    """
    _, _, path_in_programs = METHODS[method].path.partition(".programs.")
    return path_in_programs.split(".")[0]


def test_at_least_one_method_of_every_paper_is_recorded() -> None:
    """A recording is a run with a small model. Its replay shows if prompts still work."""
    recorded_papers = set()
    for name in make.RECORDINGS:
        _, program, *_ = make.command(name)
        if program in METHODS:
            recorded_papers.add(folder_of_paper(program))

    assert recorded_papers == {folder_of_paper(method) for method in METHODS}


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_of_a_recorded_run_gives_its_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a prompt has changed since the recording, the replay has no answer to it, and fails."""
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
