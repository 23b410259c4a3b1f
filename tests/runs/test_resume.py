"""Runs go on where they were, or are replayed without any server: the same table, or one line that says why not."""

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

from ..optimizers.test_compile import OPTIMIZERS as COMPILES
from ..recordings import make
from .evaluations import table
from ..run_inputs import run_inputs

KILLED_AFTER = 11
"""Answers after which a run is killed: in the middle of every optimizer's work."""


def words_of(name: str) -> list[str]:
    if name == "evaluate":
        return ["evaluate", "turn-rag", "--split", "train"]
    settings = [word for setting in COMPILES[name] for word in ("--optimizer-set", setting)]
    return ["compile", "turn-rag", "--optimizer", name, *settings]


def outcome(found: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on where a run was broken off."""
    if "before" not in found:
        return {name: found[name] for name in ("n", "score", "by", "failures")}
    kept = {name: found[name] for name in ("dev", "difference", "promoted", "stopped")}
    scores = {part: outcome(found[part]) for part in ("before", "after")}
    tried = [(candidate["score"], candidate["n"]) for candidate in found["candidates"]]
    program = json.loads((Path(found["program"]) / "state.json").read_text())
    return {**kept, **scores, "candidates": tried, "program": program}


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("bootstrap", 1),
        ("evaluate", 4),
        *(
            pytest.param(name, 1, marks=pytest.mark.slow)
            for name in COMPILES
            if name != "bootstrap"
        ),
    ],
)
def test_a_killed_run_goes_on_where_it_was(stub, mempiler_cli, forks, tmp_path, name, threads):
    broken, home = stub(delay=0.01), tmp_path / "home"
    unbroken = stub()
    whole = mempiler_cli(unbroken, *words_of(name), train=16, threads=threads)
    forks.start(mempiler_cli.arguments(broken, *words_of(name), train=16, threads=threads), home)
    run = forks.kill(broken, KILLED_AFTER)
    rest = stub()
    rest.model = broken.model
    resumed = mempiler_cli(rest, *words_of(name), "--resume", run, train=16, threads=threads)
    assert whole.code == 0
    assert resumed.code == 0
    assert outcome(resumed.found) == outcome(whole.found)
    assert set(broken.texts) | set(rest.texts) == set(unbroken.texts)
    # Only calls that were in flight when it was killed are made twice, and each question asks one call at a time.
    assert 0 < len(rest.texts) < len(unbroken.texts)
    assert 0 <= len(broken.texts) + len(rest.texts) - len(unbroken.texts) <= threads


@pytest.mark.parametrize("name", ["evaluate", "gepa"])
def test_a_finished_run_asks_nothing_when_it_is_resumed(stub, mempiler_cli, name):
    first, again = stub(), stub()
    again.model = first.model
    whole = mempiler_cli(first, *words_of(name))
    resumed = mempiler_cli(again, *words_of(name), "--resume", str(run_of(first)))
    assert whole.code == 0
    assert resumed.code == 0
    assert again.texts == []
    assert outcome(resumed.found) == outcome(whole.found)


def test_a_new_run_asks_the_server_that_it_names_though_another_has_a_model_of_that_name(
    stub, mempiler_cli
):
    first, second = stub(), stub()
    second.model = first.model
    before, after = (mempiler_cli(server, *words_of("evaluate")) for server in (first, second))
    assert before.code == 0
    assert after.code == 0
    assert sorted(second.texts) == sorted(first.texts) != []


def test_no_file_of_a_run_says_where_its_server_is(stub, mempiler_cli):
    server = stub()
    assert mempiler_cli(server, *words_of("evaluate")).code == 0
    address = server.url.removeprefix("http://").removesuffix("/v1")
    files = [path for path in run_of(server).rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not [path for path in files if address.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("name", "script", "limit", "code"),
    [
        ("bootstrap", lambda n, text: "dead" if n > 6 else None, [], 3),
        ("evaluate", None, ["--max-calls", "3"], 0),
    ],
    ids=["its endpoint is back", "a larger budget"],
)
def test_a_run_that_was_stopped_goes_on(stub, mempiler_cli, name, script, limit, code):
    first, healthy, more = stub(script), stub(), stub()
    more.model = first.model
    ended = mempiler_cli(first, *words_of(name), *limit)
    whole = mempiler_cli(healthy, *words_of(name))
    resumed = mempiler_cli(more, *words_of(name), "--resume", str(run_of(first)))
    assert ended.code == code
    assert resumed.code == 0
    if limit:
        assert ended.found["stopped"] == "budget reached: max-calls 3"
    else:
        assert ended.resume
    assert outcome(resumed.found) == outcome(whole.found)
    assert first.answered + more.answered == healthy.answered


@pytest.mark.parametrize("name", ["evaluate", "bootstrap"])
def test_a_run_that_may_ask_nothing_says_that_nothing_was_evaluated(stub, mempiler_cli, name):
    server = stub()
    ended = mempiler_cli(server, *words_of(name), "--max-calls", "0")
    assert ended.code == 4
    assert server.texts == []
    assert "nothing was evaluated: " in ended.line
    assert "max-calls 0; --resume " in ended.line
    run = ended.line.partition("--resume ")[2].split()[0]
    assert mempiler_cli(server, *words_of(name), "--resume", run).code == 0


def run_of(server: Any) -> Path:
    """The folder of the run that asked a server."""
    runs = Path(os.environ["MEMPILER_HOME"]).glob("*/run.json")
    (found,) = [
        path for path in runs if json.loads(path.read_text())["settings"].get("lm") == server.model
    ]
    return found.parent


def test_a_run_is_resumed_with_what_decided_it_and_with_other_limits(stub, mempiler_cli):
    server = stub()
    mempiler_cli(server, *words_of("evaluate"))
    asked, resumed = len(server.texts), (*words_of("evaluate"), "--resume", str(run_of(server)))
    for words, sizes, said in (
        (["--seed", "1"], {}, "was started with seed = 0, not 1"),
        (["--lm-set", "top_k=5"], {}, "was started with lm_settings = {}, not {'top_k': 5}"),
        (["--set", "k=3"], {}, "was started with method_settings = {}, not {'k': 3}"),
        ([], {"test": 3}, "was started with test = 4, not 3"),
    ):
        ran = mempiler_cli(server, *resumed, *words, **sizes)
        assert ran.code == 2, ran.line
        assert ran.out == "", ran.line
        assert said in ran.line, ran.line
    free = ["--timeout", "9", "--retries", "1", "--lm-deadline", "9", "--max-calls", "9"]
    assert mempiler_cli(server, *resumed, *free, threads=3).code == 0
    assert len(server.texts) == asked


@pytest.mark.parametrize("name", ["evaluate", "bootstrap", "gepa"])
def test_a_store_that_fails_midway_stops_the_run_before_more_is_paid(stub, mempiler_cli, name):
    def script(n: int, text: str) -> None:
        if n == 6:
            with contextlib.closing(sqlite3.connect(run_of(server) / "run.sqlite")) as database:
                database.execute("DROP TABLE answers")

    server = stub(script)
    ran = mempiler_cli(server, *words_of(name))
    assert ran.code == 2
    assert ran.out == ""
    assert "run.sqlite: cannot be written: no such table: answers" in ran.line
    assert len(server.texts) == 6


EVALUATE = ["evaluate", "turn-rag", "--split", "test"]
COMMANDS = {
    "evaluate": EVALUATE,
    "evaluate-writing": ["evaluate", "fact-store", "--split", "test"],
    "bootstrap": [
        "compile",
        "turn-rag",
        "--optimizer",
        "bootstrap",
        "--optimizer-set",
        "max_tries=4",
    ],
    "gepa": [
        "compile",
        "turn-rag",
        "--optimizer",
        "gepa",
        "--optimizer-set",
        "max_metric_calls=10",
    ],
}


@pytest.mark.parametrize(
    "name", [*list(COMMANDS)[:3], pytest.param("gepa", marks=pytest.mark.slow)]
)
def test_a_replay_gives_the_table_of_the_run_without_a_server(
    stub, mempiler_cli, monkeypatch, name
):
    server = stub()
    made = mempiler_cli(server, *COMMANDS[name])
    assert made.code == 0
    assert len(server.texts) >= 4
    server.die()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    played = mempiler_cli(server, *COMMANDS[name], "--replay", made.found["run_id"], threads=1)
    assert played.code == 0, played.line
    assert played.err.count("mempiler:") == 0, played.line
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
    assert played.code == 0, played.line
    assert table(played.found) == table(made.found), played.line


@pytest.mark.parametrize(
    ("words", "sizes"),
    [(EVALUATE, {"test": 5}), ([*EVALUATE, "--set", "k=1"], {}), (COMMANDS["bootstrap"], {})],
)
def test_a_missing_call_is_one_line_and_nothing_is_asked(stub, mempiler_cli, words, sizes):
    server = stub()
    made = mempiler_cli(server, *EVALUATE)
    asked = len(server.texts)
    ran = mempiler_cli(server, *words, "--replay", made.found["run_id"], **sizes)
    assert ran.code == 2
    assert ran.out == ""
    assert len(server.texts) == asked
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
def test_a_replay_with_options_that_do_not_fit_is_refused_in_one_line(
    stub, mempiler_cli, cli, words, line
):
    made = mempiler_cli(stub(), *EVALUATE)
    words = [made.found["run_id"] if word == "last" else word for word in words]
    code, _, err = cli(
        *EVALUATE, "--benchmark", "locomo", "--train", "8", "--dev", "4", "--test", "4", *words
    )
    assert code == 2
    assert line in err


def test_a_replay_takes_the_vectors_of_the_run(stub) -> None:
    server = stub()
    options = {
        "embedder": server.model,
        "embedder_api_base": server.url,
        "train": 4,
        "dev": 4,
        "test": 4,
    }
    made = run_evaluate("turn-rag", run_inputs("locomo", **options))
    assert len(server.requests) > 0
    server.die()
    played = run_evaluate("turn-rag", run_inputs("locomo", replay=made.run_id, **options))
    same = {"id", "answer", "score", "sources"}
    assert [row.model_dump(include=same) for row in played.rows] == [
        row.model_dump(include=same) for row in made.rows
    ]


FOLDER = Path(__file__).parents[1] / "recordings"


def test_every_command_has_its_run_and_its_table_and_every_method_of_a_paper_is_recorded() -> None:
    runs = {path.parent.name for path in FOLDER.glob("*/run.sqlite")}
    assert (
        runs
        == {path.stem for path in FOLDER.glob("*.json")} - {"palset_en"}
        == set(make.RECORDINGS)
    )
    folders = {entry.path.split(".programs.")[1].split(".")[0] for entry in METHODS.values()}
    recorded = {
        METHODS[made[1]].path for made in map(make.command, make.RECORDINGS) if made[1] in METHODS
    }
    assert {path.split(".programs.")[1].split(".")[0] for path in recorded} == folders


@pytest.mark.parametrize("name", make.RECORDINGS)
def test_a_replay_gives_the_table_of_the_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = f"if its prompts were changed on purpose: python tests/recordings/make.py {name!r}"
    ran = shutil.copytree(FOLDER / name, tmp_path / "run")
    try:
        found = make.run([*make.command(name), "--threads", "2", "--replay", str(ran)])
    except SystemExit:
        pytest.fail(f"{capsys.readouterr().err.splitlines()[-1]}; {again}")
    assert found == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), again
