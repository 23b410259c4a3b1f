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

from ..command_line import RunCommand
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
    """A PAL-Set of two users and two months. `server.texts` are the prompts of all calls."""
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    command = palset_command(server, folder, "--users", "2", "--json")
    code, out, progress = cli(*command)

    assert code == 0, progress
    assert_printed_result_counts_all_calls(json.loads(out), calls=len(server.texts))
    # The model divides each of two months into four situations, with 20 log entries each.
    assert "0000: 1 + 3 dialogues, 160 log entries" in progress

    record = read_record(folder)
    assert record["made_by"] == "mempiler synthesize palset"
    assert record["settings"]["seed"] == 3
    assert record["reviews"] == 0
    assert record["rejections"] == []

    benchmark = mempiler.benchmark("palbench.restate", data=str(folder))
    assert len(benchmark.examples) > 0


def assert_printed_result_counts_all_calls(result: dict[str, Any], calls: int) -> None:
    """Check what the command prints: all calls by step, and no price, since it is not known."""
    assert result["steps"][0] == {"name": "people", "calls": 1, "outcomes": {"accepted": 1}}
    assert sum(step["calls"] for step in result["steps"]) == calls
    assert result["calls"]["task"] == calls
    assert result["cost"] is None
    assert len(result["files"]) == 9
    assert Path(result["files"][0]).name == "input_en.json"


def test_a_stopped_command_goes_on_and_pays_nothing_twice(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """`--max-calls 12` stops the command. `server.texts` are the prompts that were paid for."""
    server = start_server(scripted_palset.flawless_model)
    command = palset_command(server, tmp_path / "pal", "--json")

    _, out, _ = cli(*command, "--max-calls", "12")
    assert json.loads(out)["stopped"] == "max-calls 12"
    assert len(server.texts) == 12

    _, out, _ = cli(*command)
    assert json.loads(out)["stopped"] is None
    assert len(server.texts) > 12
    assert len(set(server.texts)) == len(server.texts)

    # All is written, so the same command once more asks nothing.
    _, out, _ = cli(*command)
    assert json.loads(out)["calls"]["task"] == 0


def test_a_command_that_a_limit_stopped_says_how_to_go_on(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(scripted_palset.flawless_model)

    code, out, _ = cli(*palset_command(server, tmp_path / "pal"), "--max-calls", "1")

    assert code == 0
    printed = " ".join(out.split())
    assert (
        "stopped by a limit: max-calls 1; the same command with a higher limit goes on" in printed
    )


def test_reviews_are_not_recorded_before_all_texts_are_written(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The record of a data set says how often its texts were reviewed. Here a limit stops it."""
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    cli(*palset_command(server, folder, "--max-calls", "1"))

    assert "reviews" not in read_record(folder)


def test_a_finished_data_set_stays_as_it_is_if_a_limit_stops_the_same_command(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The first command writes everything. The second one, the same, has a limit of one call."""
    server = start_server(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    command = palset_command(server, folder, reviews=0)
    cli(*command)
    files = {path: path.read_bytes() for path in folder.glob("*_en.json")}

    cli(*command, "--max-calls", "1")

    assert files != {}
    assert {path: path.read_bytes() for path in folder.glob("*_en.json")} == files
    assert read_record(folder)["reviews"] == 0


def test_reviews_are_not_recorded_while_other_reviews_are_under_way(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """The record of a data set says how often its texts were reviewed.

    The second command wants one review, and is stopped when some texts have had it.
    """
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
    folder = tmp_path / "pal"

    _, out, _ = cli(*palset_command(server, folder, "--attempts", "2", "--json"))

    assert json.loads(out)["steps"][0] == {
        "name": "people",
        "calls": 2,
        "outcomes": {"retried": 1, "given up": 1},
    }
    # There is no data that could have been reviewed.
    assert "reviews" not in read_record(folder)


def test_a_model_without_usable_answers_is_one_line_and_a_table(
    cli: RunCommand, start_server: StartServer, tmp_path: Path
) -> None:
    """`people` is the first step, and the first row of the table."""
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
    """The command, of seed 3, finds an empty folder, and waits for its lock.

    Meanwhile another process begins a data set of seed 4 there.
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
    assert err.count("\n") == 1
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
    """Answers are kept as they come. A call is in flight until its answer is there."""
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
    code, _, err = cli(*words)

    assert code == 0, err
    repeated_calls = len(server.texts) - len(set(server.texts))
    # As many as there are threads.
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


def test_memoryquest_is_written_from_profiles(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The folder has the profiles of two users; `--users 1` writes the first one.

    The model writes two requests in each of three rounds. Each of the six requests gets a timeline
    of five events, and each event a dialogue: 30.
    """
    server = start_server(scripted_memoryquest.flawless_model)
    folder = tmp_path / "quest"
    command = memoryquest_command(server, profiles, folder)

    _, out, _ = cli(*command, "--users", "1", "--json")
    result = json.loads(out)
    assert result["files"] == [str(folder / "user2.json")]
    assert result["steps"] == [
        {"name": "queries", "calls": 3, "outcomes": {"accepted": 3}},
        {"name": "timeline", "calls": 6, "outcomes": {"accepted": 6}},
        {"name": "dialogue", "calls": 30, "outcomes": {"accepted": 30}},
    ]

    code, out, err = cli(*command)
    assert code == 0, err
    assert "2 files in" in out
    # Two users with six requests each.
    assert len(mempiler.benchmark("memoryquest", data=str(folder)).examples) == 12


def test_the_record_of_a_memoryquest_names_its_profiles(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The profiles are those of the users `user2` and `user10`. Nothing is drawn: no seed."""
    server = start_server(useless_model)
    folder = tmp_path / "quest"

    cli(*memoryquest_command(server, profiles, folder, "--attempts", "1", "--users", "1"))

    record = read_record(folder)
    assert list(record["profiles"]) == ["user2", "user10"]
    assert "seed" not in record["settings"]


def test_a_memoryquest_goes_on_after_a_profile_was_added(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The model writes nothing that can be used, but the command begins: the folder is its own."""
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, tmp_path / "quest", "--attempts", "1")
    cli(*command, "--users", "1")

    profile = (profiles / "user2_profile.json").read_text()
    (profiles / "user3_profile.json").write_text(profile.replace('"user2"', '"user3"'))
    code, _, err = cli(*command)

    assert code == NOTHING_WRITTEN
    assert "no user came through all steps" in err


def assert_changed_profiles_are_refused(code: int, err: str, folder: Path) -> None:
    assert code == 2
    assert err.startswith(f"mempiler: {folder}: the profile of 'user2' ")
    assert "has changed or is missing; give the same profiles, or another folder" in err
    assert err.count("\n") == 1


def test_a_memoryquest_does_not_go_on_after_a_profile_was_changed(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The command begins, although the model writes nothing that can be used."""
    folder = tmp_path / "quest"
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, folder, "--attempts", "1")
    cli(*command)

    profile = profiles / "user2_profile.json"
    profile.write_text(profile.read_text().replace("2 years old", "3 years old"))
    code, _, err = cli(*command)

    assert_changed_profiles_are_refused(code, err, folder)


def test_a_memoryquest_does_not_go_on_after_a_profile_was_removed(
    cli: RunCommand, start_server: StartServer, tmp_path: Path, profiles: Path
) -> None:
    """The command begins, although the model writes nothing that can be used."""
    folder = tmp_path / "quest"
    server = start_server(useless_model)
    command = memoryquest_command(server, profiles, folder, "--attempts", "1")
    cli(*command)

    (profiles / "user2_profile.json").unlink()
    code, _, err = cli(*command)

    assert_changed_profiles_are_refused(code, err, folder)


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
    ("words", "expected"),
    [
        (
            ["palset", "--out", "pal"],
            "the offline engine cannot write data; name a language model with --lm",
        ),
        (["palset", "--out", "pal", "--months", "1"], "1 is not in the range x>=2"),
        (["palset", "--out", "pal", "--lm", "openai/gpt-x"], "OPENAI_API_KEY"),
        (["palset", "--lm", "openai/x"], "Missing option '--out'"),
        (["memoryquest", "lens", "--lm", "openai/x"], "Missing option '--out'"),
        (
            ["memoryquest", "nowhere", "--out", "quest"],
            "nowhere: no such folder, or none with a user's profile.json",
        ),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    cli: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    expected: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)

    code, out, err = cli("synthesize", *words)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert expected in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out_option", [[], ["--out", "pal"]])
def test_a_plan_of_a_palset_counts_calls_and_writes_nothing(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_option: list[str]
) -> None:
    """A month has 4 to 6 situations, of which a fourth at least gets a dialogue.

    A situation takes 2 calls, and a dialogue 4 to 6. People and months take 29 calls.
    """
    monkeypatch.chdir(tmp_path)
    command = ("synthesize", "palset", "--users", "2", "--months", "8", "--reviews", "0")

    code, out, err = cli(*command, *out_option, "--plan", "--json")

    assert code == 0, err
    plan = json.loads(out)
    # Two users have 16 months.
    assert plan["calls"]["low"] == 2 * 16 * 4 + 4 * 16 + 29
    assert plan["calls"]["high"] == 2 * 16 * 6 + 6 * 16 * 6 + 29
    assert sum(phase["high"] for phase in plan["phases"].values()) == plan["calls"]["high"]
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_memoryquest_counts_calls_and_writes_nothing(
    cli: RunCommand, tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user takes 3 calls at least, and at most 15 timelines of 10 events as well."""
    monkeypatch.chdir(tmp_path)

    code, out, err = cli("synthesize", "memoryquest", profiles, "--plan", "--json")

    assert code == 0, err
    plan = json.loads(out)
    # There are the profiles of two users.
    assert plan["calls"] == {"low": 2 * 3, "high": 2 * (3 + 15 + 15 * 10)}
    assert sum(phase["high"] for phase in plan["phases"].values()) == plan["calls"]["high"]
    assert list(tmp_path.iterdir()) == [profiles]


def test_a_data_set_takes_as_many_calls_as_its_plan_says(made_palset: Any) -> None:
    """A plan says for each step how many calls it takes at least and at most."""
    from mempiler.runs.synthesis_plan import plan_palset

    plan = plan_palset(users=2, months=3, reviews=1)
    palset = made_palset(scripted_palset.flawless_model, users=2, months=3, reviews=1)
    accepted = palset.report.accepted

    assert palset.report.rejections == []
    review_steps = {"review of log types", "review against the persona", "review of actions"}
    writing_steps = accepted.keys() - review_steps
    assert writing_steps
    for step in writing_steps:
        assert plan[step].low <= accepted[step] <= plan[step].high, step
    reviews = sum(accepted[step] for step in review_steps)
    assert plan["reviews"].low <= reviews <= plan["reviews"].high
    assert palset.calls.total() == accepted.total()
