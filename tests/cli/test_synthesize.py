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
ServerOf = Callable[[Reply], Any]
"""Starts a server; see the fixture `server_of`."""

NOTHING_WRITTEN = 4
"""The exit code of a command whose model gave no usable answer."""


@pytest.fixture
def server_of(stub: Callable[..., Any]) -> ServerOf:
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


def model(server: Any) -> list[str]:
    """Return the options that name the model of a server."""
    return ["--lm", server.model, "--api-base", server.url, "--retries", "0"]


# --- PAL-Set ----------------------------------------------------------------------------------

PALSET = ("synthesize", "palset", "--months", "2", "--reviews", "0", "--seed", "3")


def read_record(folder: Path) -> dict[str, Any]:
    """Return what the folder of a data set says of how it was made."""
    return json.loads((folder / "synthesis.json").read_text())


def test_a_palset_is_written_and_read_by_the_benchmark(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    server = server_of(scripted_palset.flawless_model)
    folder = tmp_path / "pal"

    code, out, err = cli(*PALSET, *model(server), "--out", folder, "--users", "2", "--json")
    assert code == 0, err
    result = json.loads(out)

    # What the command prints.
    assert result["files"][0] == str(folder / "input_en.json")
    assert len(result["files"]) == 9
    assert result["steps"][0] == {"name": "people", "calls": 1, "outcomes": {"accepted": 1}}
    assert sum(step["calls"] for step in result["steps"]) == len(server.texts)
    assert result["calls"]["task"] == len(server.texts)
    # The price of this model is not known.
    assert result["cost"] is None
    # The model divides each of two months into four situations, with 20 log entries each.
    assert "0000: 1 + 3 dialogues, 160 log entries" in err

    # What it writes.
    record = read_record(folder)
    assert record["made_by"] == "mempiler synthesize palset"
    assert record["settings"]["seed"] == 3
    assert record["reviews"] == 0
    assert record["rejections"] == []
    benchmark = mempiler.benchmark("palbench.restate", data=str(folder))
    assert len(benchmark.examples) > 0


def test_a_stopped_command_goes_on_and_pays_nothing_twice(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    server = server_of(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    command = (*PALSET, *model(server), "--out", folder)

    # A limit stops it.
    code, out, _ = cli(*command, "--max-calls", "12")
    assert code == 0
    stop_note = "stopped by a limit: max-calls 12; the same command with a higher limit goes on"
    assert stop_note in " ".join(out.split())
    assert len(server.texts) == 12
    # Not all records were reviewed.
    assert "reviews" not in read_record(folder)

    # The same command goes on.
    code, out, err = cli(*command, "--json")
    assert code == 0, err
    assert json.loads(out)["stopped"] is None
    assert read_record(folder)["reviews"] == 0
    prompts = list(server.texts)
    assert len(prompts) > 12
    assert len(set(prompts)) == len(prompts)
    files = {path: path.read_bytes() for path in folder.glob("*_en.json")}
    assert files

    # There is nothing more to do.
    code, out, _ = cli(*command, "--json")
    assert code == 0
    assert json.loads(out)["calls"]["task"] == 0
    assert server.texts == prompts
    assert {path: path.read_bytes() for path in folder.glob("*_en.json")} == files


def test_reviews_of_a_whole_data_set_stay_recorded_if_a_limit_stops_the_same_command(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    """The data set is complete. A limit of one call does not make it less so."""
    server = server_of(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    command = (*PALSET, *model(server), "--out", folder)
    cli(*command)

    code, _, _ = cli(*command, "--max-calls", "1")

    assert code == 0
    assert read_record(folder)["reviews"] == 0


def test_reviews_are_not_recorded_while_other_reviews_are_under_way(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    """The record of a data set says how often its texts were reviewed: 0 at first.

    The second command wants one review, and is stopped on the way.
    """
    server = server_of(scripted_palset.flawless_model)
    folder = tmp_path / "pal"
    command = (*PALSET, *model(server), "--out", folder)
    cli(*command)
    assert read_record(folder)["reviews"] == 0

    code, _, _ = cli(*command, "--reviews", "1", "--max-calls", "1")

    # Some records were reviewed once more, and some were not.
    assert code == 0
    assert "reviews" not in read_record(folder)


def test_a_refused_answer_counts_among_the_calls_of_its_step(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    """The model gets two attempts to invent people, and both answers are empty."""
    server = server_of(useless_model)
    folder = tmp_path / "pal"

    code, out, _ = cli(*PALSET, *model(server), "--out", folder, "--attempts", "2", "--json")

    assert code == NOTHING_WRITTEN
    assert json.loads(out)["steps"][0] == {
        "name": "people",
        "calls": 2,
        "outcomes": {"retried": 1, "given up": 1},
    }
    # There is no data that could have been reviewed.
    assert "reviews" not in read_record(folder)


def test_a_model_without_usable_answers_is_one_line_and_a_table(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    server = server_of(useless_model)

    code, out, err = cli(*PALSET, *model(server), "--out", tmp_path / "pal", "--attempts", "2")

    assert code == NOTHING_WRITTEN
    assert "no user came through all steps" in err
    assert "people" in out


def test_a_folder_of_somebody_else_is_left_alone(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    server = server_of(useless_model)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")

    code, _, err = cli(*PALSET, *model(server), "--out", folder)

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: is there already and was not written by Mempiler")
    assert err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_the_folder_of_another_data_set_is_left_alone(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    """Another seed makes another data set."""
    server = server_of(useless_model)
    folder = tmp_path / "pal"
    command = (*PALSET, *model(server), "--out", folder)
    cli(*command, "--attempts", "2")

    code, _, err = cli(*command, "--seed", "4")

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: was begun with seed = 3, not 4; give the same")
    assert err.count("\n") == 1


def test_a_data_set_that_another_process_began_a_moment_ago_is_left_alone(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command finds an empty folder, and waits for its lock.

    Meanwhile another process begins a data set of seed 4 there.
    """
    from mempiler.runs import synthesis

    server = server_of(useless_model)
    folder = tmp_path / "pal"
    other_folder = tmp_path / "other"
    cli(*PALSET, *model(server), "--out", other_folder, "--seed", "4")
    other_record = (other_folder / "synthesis.json").read_bytes()

    class LateLock(synthesis.FileLock):
        """A lock that is free only after another process has begun a data set in the folder."""

        def acquire(self, *args: Any, **kwargs: Any) -> Any:
            (folder / "synthesis.json").write_bytes(other_record)
            return super().acquire(*args, **kwargs)

    monkeypatch.setattr(synthesis, "FileLock", LateLock)

    code, _, err = cli(*PALSET, *model(server), "--out", folder)

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: was begun with seed = 4, not 3; give the same")
    assert err.count("\n") == 1
    assert (folder / "synthesis.json").read_bytes() == other_record


def test_a_failing_model_is_one_line_that_says_where_the_answers_are(
    cli: RunCommand, stub: Callable[..., Any], tmp_path: Path
) -> None:
    server = stub(lambda number, text: "500")
    folder = tmp_path / "pal"

    code, _, err = cli(*PALSET, *model(server), "--out", folder)

    assert code == 3
    assert err.count("\n") == 1
    assert err.endswith(f"; answers are kept in {folder}, the same command goes on\n")


def test_a_user_who_stops_the_command_reads_where_the_answers_are(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press_ctrl_c(*arguments: Any) -> None:
        raise KeyboardInterrupt

    server = server_of(useless_model)
    folder = tmp_path / "pal"
    monkeypatch.setattr("mempiler.runs.synthesis.make_palset", press_ctrl_c)

    code, _, err = cli(*PALSET, *model(server), "--out", folder)

    assert code == 130
    assert err == (f"mempiler: stopped; answers are kept in {folder}; the same command goes on\n")


@pytest.mark.slow
def test_after_a_kill_only_the_calls_in_flight_are_paid_again(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path
) -> None:
    """Answers are kept as they come. A call is in flight until its answer is there."""
    server = server_of(scripted_palset.flawless_model)
    server.delay = 0.05
    words = [*PALSET, *model(server), "--out", str(tmp_path / "pal"), "--threads", "2"]

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


def memoryquest_command(profiles: Path, folder: Path, server: Any) -> list[str]:
    """Return the words of a command that writes a MemoryQuest, with a server for both models."""
    embedder = ["--embedder", "openai/stub", "--embedder-api-base", server.url]
    return [
        "synthesize",
        "memoryquest",
        str(profiles),
        *("--out", str(folder)),
        *model(server),
        *embedder,
    ]


def test_memoryquest_is_written_from_profiles(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, profiles: Path
) -> None:
    """The model writes two requests in each of three rounds.

    Each of the six requests gets a timeline of five events, and each event a dialogue: 30. Two
    users have twelve requests.
    """
    server = server_of(scripted_memoryquest.flawless_model)
    folder = tmp_path / "quest"
    command = memoryquest_command(profiles, folder, server)

    # One of the two users.
    code, out, err = cli(*command, "--users", "1", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["files"] == [str(folder / "user2.json")]
    assert result["steps"] == [
        {"name": "queries", "calls": 3, "outcomes": {"accepted": 3}},
        {"name": "timeline", "calls": 6, "outcomes": {"accepted": 6}},
        {"name": "dialogue", "calls": 30, "outcomes": {"accepted": 30}},
    ]

    # All users.
    code, out, err = cli(*command)
    assert code == 0, err
    assert "2 files in" in out
    assert len(mempiler.benchmark("memoryquest", data=str(folder)).examples) == 12


def test_the_record_of_a_memoryquest_names_its_profiles(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, profiles: Path
) -> None:
    """The fixture `profiles` has two users, `user2` and `user10`."""
    folder = tmp_path / "quest"
    command = memoryquest_command(profiles, folder, server_of(useless_model))

    code, _, _ = cli(*command, "--attempts", "1", "--users", "1")
    record = read_record(folder)

    assert code == NOTHING_WRITTEN
    assert list(record["profiles"]) == ["user2", "user10"]
    # Nothing is drawn.
    assert "seed" not in record["settings"]


def test_a_memoryquest_goes_on_after_a_profile_was_added(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, profiles: Path
) -> None:
    command = memoryquest_command(profiles, tmp_path / "quest", server_of(useless_model))
    cli(*command, "--attempts", "1", "--users", "1")
    profile = (profiles / "user2_profile.json").read_text()
    (profiles / "user3_profile.json").write_text(profile.replace('"user2"', '"user3"'))

    code, _, err = cli(*command, "--attempts", "1")

    assert code == NOTHING_WRITTEN
    assert "no user came through all steps" in err


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_a_memoryquest_does_not_go_on_after_a_profile_was_changed_or_removed(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, profiles: Path, change: str
) -> None:
    folder = tmp_path / "quest"
    command = memoryquest_command(profiles, folder, server_of(useless_model))
    cli(*command, "--attempts", "1")
    path = profiles / "user2_profile.json"
    if change == "edit":
        path.write_text(path.read_text().replace("2 years old", "3 years old"))
    else:
        path.unlink()

    code, _, err = cli(*command, "--attempts", "1")

    assert code == 2
    assert err.startswith(f"mempiler: {folder}: the profile of 'user2' ")
    assert "has changed or is missing; give the same profiles, or another folder" in err
    assert err.count("\n") == 1


def test_the_offline_embedder_is_refused(
    cli: RunCommand, server_of: ServerOf, tmp_path: Path, profiles: Path
) -> None:
    """An embedder has to tell requests of the same meaning. The offline one compares spelling."""
    server = server_of(scripted_memoryquest.flawless_model)
    folder = tmp_path / "quest"
    words = ("synthesize", "memoryquest", profiles, "--out", folder, "--embedder", "offline")

    code, _, err = cli(*words, *model(server))

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


# Two users have 16 months of 4 to 6 situations, of which a fourth at least gets a dialogue. Each
# situation takes 2 calls, and each dialogue 4 to 6: 2 * 64 + 4 * 16 + 29 = 221 at least, and
# 2 * 96 + 6 * 96 + 29 = 797 at most. 29 calls are for people and months.
PALSET_OF_EIGHT_MONTHS = ("palset", "--users", "2", "--months", "8", "--reviews", "0")


@pytest.mark.parametrize(
    ("words", "low", "high"),
    [
        (PALSET_OF_EIGHT_MONTHS, 221, 797),
        ((*PALSET_OF_EIGHT_MONTHS, "--out", "pal"), 221, 797),
        # Two users: 3 calls each at least, and at most 15 timelines of 10 events as well.
        (("memoryquest", "lens"), 6, 336),
    ],
)
def test_a_plan_counts_calls_and_writes_nothing(
    cli: RunCommand,
    tmp_path: Path,
    profiles: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    low: int,
    high: int,
) -> None:
    monkeypatch.chdir(tmp_path)

    code, out, err = cli("synthesize", *words, "--plan", "--json")
    assert code == 0, err
    plan = json.loads(out)

    assert plan["calls"] == {"low": low, "high": high}
    assert sum(calls["high"] for calls in plan["phases"].values()) == high
    assert list(tmp_path.iterdir()) == [profiles]


def test_a_data_set_takes_as_many_calls_as_its_plan_says(made_palset: Any) -> None:
    """The plan is for two users, three months of each, and one round of reviews."""
    from mempiler.runs.synthesis_plan import plan_palset

    plan = plan_palset(2, 3, 1)
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
