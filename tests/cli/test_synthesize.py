"""Data sets are written by a command, which goes on where it was stopped and pays nothing twice.

`mempiler synthesize` lets a model write data for a benchmark. A PAL-Set has users with months of
device logs, and dialogues about what they need; MemoryQuest has requests that need what was said
long ago. Every step asks the model again if its answer breaks a rule (--attempts). Finished texts
can be reviewed and corrected (--reviews). The models here are scripted: `flawless_model` writes
well, and `useless_model` never does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import pytest

from ..command_line import RunCommand, json_of, output_of
from ..conftest import within
from ..data import scripted_memoryquest, scripted_palset
from ..data.conftest import made_palset, profiles
from ..scripted_engine import chat_fields

# The fixtures of tests/data that tests of this module take.
__all__ = ["made_palset", "profiles"]

Reply = Callable[[str, str, int], Any]
"""Name of the first output field, prompt, number of the call -> output fields by name."""
StartServer = Callable[[Reply], Any]
"""Starts a server whose model is a scripted one; see the fixture `start_server`."""

NOTHING_WRITTEN = 4
"""The exit code of a command whose model gave no usable answer."""


@pytest.fixture
def start_server(stub: Callable[..., Any]) -> StartServer:
    """A function that starts a server whose model answers by a scripted model of tests/data."""

    def start(reply: Reply) -> Any:
        def answer(body: dict[str, Any]) -> str:
            messages = body["messages"]
            prompt = "\n".join(
                message["content"] for message in messages if message["role"] == "user"
            )
            first_output = re.search(
                r"Your output fields are:\s*1\. `(\w+)`", messages[0]["content"]
            )
            assert first_output is not None
            return chat_fields(**reply(first_output.group(1), prompt, 1))

        return stub(None, answer=answer)

    return start


def useless_model(kind: str, prompt: str, number: int) -> dict[str, list[Any]]:
    """Answer with an empty list, which no step accepts."""
    return {kind: []}


def model_options(server: Any) -> list[str]:
    """Return the options that name the model of a server."""
    return ["--lm", server.model, "--api-base", server.url, "--retries", "0"]


# --- PAL-Set ----------------------------------------------------------------------------------


def palset_command(
    server: Any, folder: Path, *more_options: str, seed: int = 3, reviews: int = 0
) -> list[str]:
    """Return the words of a command that writes two months of one user, with a server's model."""
    return [
        *("synthesize", "palset", "--out", str(folder)),
        *("--months", "2"),
        *("--seed", str(seed)),
        *("--reviews", str(reviews)),
        *model_options(server),
        *more_options,
    ]


def read_record(folder: Path) -> dict[str, Any]:
    """Return the file of a data set that says how it was made."""
    return json.loads((folder / "synthesis.json").read_text())


def test_a_palset_is_written_and_read_by_the_benchmark(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    output_of(cli, *palset_command(server, folder))

    benchmark = mempiler.benchmark("palbench.restate", data=str(folder))
    assert len(benchmark.examples) > 0


def test_the_record_of_a_palset_says_how_it_was_made(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    output_of(cli, *palset_command(server, folder, seed=3, reviews=0))

    record = read_record(folder)
    assert record["made_by"] == "mempiler synthesize palset"
    assert record["settings"]["seed"] == 3
    assert record["reviews"] == 0
    assert record["rejections"] == []


def test_the_calls_of_a_palset_are_counted_by_step(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The first step invents the people."""
    server = start_server(scripted_palset.flawless_model)

    result = json_of(cli, *palset_command(server, tmp_path / "pal"))

    assert result["steps"][0] == {"name": "people", "calls": 1, "outcomes": {"accepted": 1}}
    calls = len(server.texts)
    assert sum(step["calls"] for step in result["steps"]) == calls
    assert result["calls"]["task"] == calls
    # Nobody knows the prices of the model.
    assert result["cost"] is None


def test_a_command_that_a_limit_stopped_goes_on_and_pays_nothing_twice(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """`server.texts` are the prompts that were paid for."""
    server = start_server(scripted_palset.flawless_model)
    command = palset_command(server, tmp_path / "pal")

    stopped = json_of(cli, *command, "--max-calls", "12")
    assert stopped["stopped"] == "max-calls 12"
    assert len(server.texts) == 12

    finished = json_of(cli, *command)
    assert finished["stopped"] is None
    assert len(server.texts) > 12
    assert len(set(server.texts)) == len(server.texts)


def test_a_command_that_a_limit_stopped_says_how_to_go_on(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)

    output = output_of(cli, *palset_command(server, tmp_path / "pal"), "--max-calls", "1")

    output_in_one_line = " ".join(output.split())
    advice = "max-calls 1; the same command with a higher limit goes on"
    assert f"stopped by a limit: {advice}" in output_in_one_line


def test_a_command_whose_data_set_is_finished_asks_nothing(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)
    command = palset_command(server, tmp_path / "pal")
    output_of(cli, *command)

    assert json_of(cli, *command)["calls"]["task"] == 0


def test_the_record_names_no_number_of_reviews_before_all_texts_are_written(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """Here a limit stops the command after one call."""
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    cli(*palset_command(server, folder, "--max-calls", "1"))

    assert "reviews" not in read_record(folder)


def test_a_finished_data_set_stays_as_it_is_if_the_command_is_repeated_with_a_limit(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    command = palset_command(server, folder, reviews=0)
    cli(*command)
    files = {path: path.read_bytes() for path in folder.glob("*_en.json")}
    assert files

    cli(*command, "--max-calls", "1")

    assert {path: path.read_bytes() for path in folder.glob("*_en.json")} == files
    assert read_record(folder)["reviews"] == 0


def test_the_record_names_no_number_of_reviews_while_only_some_texts_have_had_one(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The first command makes no review. The second one is to make one, and is stopped early."""
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    cli(*palset_command(server, folder, reviews=0))
    assert read_record(folder)["reviews"] == 0

    cli(*palset_command(server, folder, "--max-calls", "1", reviews=1))

    assert "reviews" not in read_record(folder)


def test_a_refused_answer_counts_among_the_calls_of_its_step(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The model gets two attempts to invent people, and both answers are empty."""
    server = start_server(useless_model)

    _, out, _ = cli(*palset_command(server, tmp_path / "pal", "--attempts", "2", "--json"))

    first_step = json.loads(out)["steps"][0]
    assert first_step == {
        "name": "people",
        "calls": 2,
        "outcomes": {"retried": 1, "given up": 1},
    }


def test_without_a_usable_answer_the_command_prints_an_error_and_its_steps(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """`people` is the first step."""
    server = start_server(useless_model)

    code, out, err = cli(*palset_command(server, tmp_path / "pal", "--attempts", "2"))

    assert code == NOTHING_WRITTEN
    assert "no user came through all steps" in err
    assert "people" in out


def test_a_folder_of_somebody_else_is_left_alone(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """A folder that Mempiler wrote would have a file synthesis.json."""
    server = start_server(useless_model)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")

    code, _, err = cli(*palset_command(server, folder))

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: is there already and was not written by Mempiler")
    assert err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_the_folder_of_another_data_set_is_left_alone(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """Another seed makes another data set."""
    server = start_server(useless_model)
    folder = tmp_path / "pal"
    cli(*palset_command(server, folder, "--attempts", "2", seed=3))

    code, _, err = cli(*palset_command(server, folder, seed=4))

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: was begun with seed = 3, not 4; give the same")
    assert err.count("\n") == 1


def test_a_data_set_that_another_process_began_a_moment_ago_is_left_alone(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command, with seed 3, finds an empty folder, and waits for its lock.

    Meanwhile another process begins a data set with seed 4 there.
    """
    from mempiler.runs import synthesis

    server = start_server(useless_model)
    folder = tmp_path / "pal"
    other_folder = tmp_path / "other"
    cli(*palset_command(server, other_folder, seed=4))
    other_record = (other_folder / "synthesis.json").read_bytes()

    class LateLock(synthesis.FileLock):
        """A lock that is free only after another process has begun a data set in the folder."""

        def acquire(self, *args: Any, **kwargs: Any) -> Any:
            (folder / "synthesis.json").write_bytes(other_record)
            return super().acquire(*args, **kwargs)

    monkeypatch.setattr(synthesis, "FileLock", LateLock)

    code, _, err = cli(*palset_command(server, folder, seed=3))

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: was begun with seed = 4, not 3; give the same")
    assert (folder / "synthesis.json").read_bytes() == other_record


def test_a_failing_model_is_one_line_that_says_where_the_answers_are(
    cli: RunCommand, stub: Callable[..., Any], tmp_path: Path
) -> None:
    """The server answers every call with the HTTP status 500."""
    server = stub(lambda number, text: "500")
    folder = tmp_path / "pal"

    code, _, err = cli(*palset_command(server, folder))

    assert code == 3
    assert err.count("\n") == 1
    assert err.endswith(f"; answers are kept in {folder}, the same command goes on\n")


def test_a_user_who_stops_the_command_reads_where_the_answers_are(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user presses Ctrl-C while the data set is made."""

    def press_ctrl_c(*arguments: Any) -> None:
        raise KeyboardInterrupt

    server = start_server(useless_model)
    folder = tmp_path / "pal"
    monkeypatch.setattr("mempiler.runs.synthesis.make_palset", press_ctrl_c)

    code, _, err = cli(*palset_command(server, folder))

    assert code == 130
    assert err == (f"mempiler: stopped; answers are kept in {folder}; the same command goes on\n")


@pytest.mark.slow
def test_after_a_kill_only_the_calls_in_flight_are_paid_again(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """Answers are kept as they come. Each of the two threads may have one call in flight."""
    server = start_server(scripted_palset.flawless_model)
    server.delay = 0.05
    words = palset_command(server, tmp_path / "pal", "--threads", "2")

    process = subprocess.Popen(
        [sys.executable, "-m", "mempiler", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert within(60, lambda: len(server.texts) > 15)
    process.kill()
    process.wait(timeout=30)
    output_of(cli, *words)

    repeated_calls = len(server.texts) - len(set(server.texts))
    assert repeated_calls <= 2


# --- MemoryQuest ------------------------------------------------------------------------------


def memoryquest_command(server: Any, profiles: Path, folder: Path, *more_options: str) -> list[str]:
    """Return the words of a command that writes a MemoryQuest for the users in `profiles`.

    A server answers as the language model and as the embedder.
    """
    embedder = ["--embedder", "openai/stub", "--embedder-api-base", server.url]
    return [
        "synthesize",
        "memoryquest",
        str(profiles),
        *("--out", str(folder)),
        *model_options(server),
        *embedder,
        *more_options,
    ]


def test_a_memoryquest_is_written_and_read_by_the_benchmark(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The folder has the profiles of two users. The model writes six requests for each."""
    server = start_server(scripted_memoryquest.flawless_model)
    folder = tmp_path / "quest"

    output = output_of(cli, *memoryquest_command(server, profiles, folder))

    assert "2 files in" in output
    assert len(mempiler.benchmark("memoryquest", data=str(folder)).examples) == 2 * 6


def test_the_calls_of_a_memoryquest_are_counted_by_step(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The model writes two requests in each of three rounds.

    Each of the six requests gets a timeline of five events, and each event a dialogue.
    """
    server = start_server(scripted_memoryquest.flawless_model)

    result = json_of(
        cli, *memoryquest_command(server, profiles, tmp_path / "quest", "--users", "1")
    )

    calls = {step["name"]: step["calls"] for step in result["steps"]}
    assert calls == {"queries": 3, "timeline": 6, "dialogue": 6 * 5}
    # Of the profiles of two users, the first one is taken.
    assert [Path(file).name for file in result["files"]] == ["user2.json"]


def test_the_record_of_a_memoryquest_names_its_profiles_and_no_seed(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The profiles are those of the users `user2` and `user10`. Nothing is drawn at random."""
    server = start_server(useless_model)
    folder = tmp_path / "quest"

    cli(*memoryquest_command(server, profiles, folder, "--attempts", "1", "--users", "1"))

    record = read_record(folder)
    assert list(record["profiles"]) == ["user2", "user10"]
    assert "seed" not in record["settings"]


def test_a_memoryquest_goes_on_after_a_profile_was_added(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The model writes nothing that can be used. Both commands try, and neither is refused."""
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, tmp_path / "quest", "--attempts", "1")
    cli(*command, "--users", "1")
    profile = (profiles / "user2_profile.json").read_text()
    (profiles / "user3_profile.json").write_text(profile.replace('"user2"', '"user3"'))

    code, _, err = cli(*command)

    assert code == NOTHING_WRITTEN
    assert "no user came through all steps" in err


def test_a_memoryquest_does_not_go_on_after_a_profile_was_changed(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The first command has begun the data set, although the model wrote nothing of use."""
    folder = tmp_path / "quest"
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, folder, "--attempts", "1")
    cli(*command)
    profile = profiles / "user2_profile.json"
    profile.write_text(profile.read_text().replace("2 years old", "3 years old"))

    code, _, err = cli(*command)

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: the profile of 'user2' ")
    assert "has changed or is missing; give the same profiles, or another folder" in err


def test_a_memoryquest_does_not_go_on_after_a_profile_was_removed(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The first command has begun the data set, although the model wrote nothing of use."""
    folder = tmp_path / "quest"
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, folder, "--attempts", "1")
    cli(*command)
    (profiles / "user2_profile.json").unlink()

    code, _, err = cli(*command)

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: the profile of 'user2' ")
    assert "has changed or is missing; give the same profiles, or another folder" in err


def test_the_offline_embedder_is_refused(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """An embedder has to tell requests of the same meaning. The offline one compares spelling."""
    server = start_server(scripted_memoryquest.flawless_model)
    folder = tmp_path / "quest"
    command = ("synthesize", "memoryquest", profiles, "--out", folder, *model_options(server))

    code, _, err = cli(*command, "--embedder", "offline")

    assert code == 2
    assert "compares spelling" in err
    assert not folder.exists()


# --- mistakes and plans -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["palset", "--out", "pal"],
            "the offline engine cannot write data; name a language model with --lm",
            id="no model",
        ),
        pytest.param(["palset", "--out", "pal", "--lm", "openai/x"], "OPENAI_API_KEY", id="no key"),
        pytest.param(
            ["palset", "--out", "pal", "--months", "1"],
            "1 is not in the range x>=2",
            id="one month",
        ),
        pytest.param(
            ["palset", "--lm", "openai/x"], "Missing option '--out'", id="no folder for a palset"
        ),
        pytest.param(
            ["memoryquest", "lens", "--lm", "openai/x"],
            "Missing option '--out'",
            id="no folder for a memoryquest",
        ),
        pytest.param(
            ["memoryquest", "nowhere", "--out", "quest"],
            "nowhere: no such folder, or none with a user's profile.json",
            id="no profiles",
        ),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    cli: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)

    code, _, err = cli("synthesize", *words)

    assert code == 2
    (line,) = err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out_option", [[], ["--out", "pal"]])
def test_a_plan_of_a_palset_writes_nothing(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_option: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    output_of(cli, "synthesize", "palset", "--plan", *out_option)

    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_palset_counts_the_calls_of_each_step(cli: RunCommand) -> None:
    """A month has 4 to 6 situations, each of which takes 2 calls.

    A dialogue takes 4 to 6 calls. At least a fourth of the situations has one, at most all of them.
    """
    options = ("--users", "2", "--months", "8", "--reviews", "0")

    plan = json_of(cli, "synthesize", "palset", *options, "--plan")

    months = 2 * 8
    people_and_months = 29
    assert plan["calls"]["low"] == people_and_months + months * 4 * 2 + months * 1 * 4
    assert plan["calls"]["high"] == people_and_months + months * 6 * 2 + months * 6 * 6
    assert sum(phase["high"] for phase in plan["phases"].values()) == plan["calls"]["high"]


def test_a_plan_of_a_memoryquest_writes_nothing(
    cli: RunCommand, tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    output_of(cli, "synthesize", "memoryquest", profiles, "--plan")

    assert list(tmp_path.iterdir()) == [profiles]


def test_a_plan_of_a_memoryquest_counts_the_calls_of_each_step(
    cli: RunCommand, profiles: Path
) -> None:
    """A user takes three calls for requests, and at most 15 timelines with 10 dialogues each.

    There are the profiles of two users.
    """
    plan = json_of(cli, "synthesize", "memoryquest", profiles, "--plan")

    assert plan["calls"] == {"low": 2 * 3, "high": 2 * (3 + 15 + 15 * 10)}
    assert sum(phase["high"] for phase in plan["phases"].values()) == plan["calls"]["high"]


def test_the_steps_of_a_palset_take_as_many_calls_as_were_planned(made_palset: Any) -> None:
    from mempiler.runs.synthesis_plan import plan_palset

    plan = plan_palset(users=2, months=3, reviews=0)
    palset = made_palset(scripted_palset.flawless_model, users=2, months=3, reviews=0)

    assert palset.report.accepted
    for step, calls in palset.report.accepted.items():
        assert plan[step].low <= calls <= plan[step].high, step


def test_the_reviews_of_a_palset_take_as_many_calls_as_were_planned(made_palset: Any) -> None:
    """There are three kinds of reviews, which the plan counts together."""
    from mempiler.runs.synthesis_plan import plan_palset

    plan = plan_palset(users=2, months=3, reviews=1)
    palset = made_palset(scripted_palset.flawless_model, users=2, months=3, reviews=1)

    reviews = 0
    for step in ("review of log types", "review against the persona", "review of actions"):
        reviews += palset.report.accepted[step]
    assert plan["reviews"].low <= reviews <= plan["reviews"].high
