"""Data sets are written by a command, which goes on where it was stopped and pays nothing twice."""

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

from tests.data import test_make_memoryquest as quest
from tests.data.conftest import good, made_palset, profiles

from ..conftest import chat_fields, within

Cli = Callable[..., tuple[int, str, str]]
Reply = Callable[[str, str, int], Any]

__all__ = ["made_palset", "profiles"]


@pytest.fixture
def writer(stub: Callable[..., Any]) -> Callable[[Reply], Any]:
    """Starts a server whose model answers by a function of the first output field and the prompt."""

    def start(reply: Reply) -> Any:
        def answer(body: dict[str, Any]) -> str:
            system = body["messages"][0]["content"]
            text = "\n".join(each["content"] for each in body["messages"] if each["role"] == "user")
            kind = re.search(r"Your output fields are:\s*1\. `(\w+)`", system)
            assert kind is not None
            return chat_fields(**reply(kind.group(1), text, 1))

        return stub(None, answer=answer)

    return start


def model(server: Any) -> list[str]:
    return ["--lm", server.model, "--api-base", server.url, "--retries", "0"]


class UsableNear(quest.Near):
    """An embedder of tests with what a command asks of embedders."""

    account = None

    def check(self) -> None:
        """It is here."""


PALSET = ("synthesize", "palset", "--months", "2", "--reviews", "0", "--seed", "3")


def test_a_palset_is_written_and_read_by_the_benchmark(cli: Cli, writer: Any, tmp_path: Path) -> None:
    server = writer(good)
    out = tmp_path / "pal"
    code, printed, err = cli(*PALSET, *model(server), "--out", out, "--users", "2", "--json")
    assert code == 0, err
    result = json.loads(printed)
    assert result["files"][0] == str(out / "input_en.json")
    assert len(result["files"]) == 9
    assert result["steps"][0] == {"name": "people", "calls": 1, "outcomes": {"accepted": 1}}
    assert sum(step["calls"] for step in result["steps"]) == len(server.texts)
    assert result["calls"]["task"] == len(server.texts)
    assert result["cost"] is None, "the price of this model is not known"
    assert "0000: 1 + 3 dialogues, 160 log entries" in err

    record = json.loads((out / "synthesis.json").read_text())
    assert record["made_by"] == "mempiler synthesize palset"
    assert record["settings"]["seed"] == 3
    assert record["reviews"] == 0
    assert record["rejections"] == []
    assert len(mempiler.benchmark("palbench.restate", data=str(out)).examples) > 0


def test_a_stopped_command_goes_on_and_pays_nothing_twice(cli: Cli, writer: Any, tmp_path: Path) -> None:
    server = writer(good)
    command = (*PALSET, *model(server), "--out", tmp_path / "pal")
    code, printed, _ = cli(*command, "--max-calls", "12")
    assert code == 0
    assert "stopped by a limit: max-calls 12; the same command with a higher limit goes on" in " ".join(printed.split())
    assert len(server.texts) == 12
    record = tmp_path / "pal" / "synthesis.json"
    assert "reviews" not in json.loads(record.read_text()), "not all records were reviewed"

    code, printed, err = cli(*command, "--json")
    assert code == 0, err
    assert json.loads(printed)["stopped"] is None
    assert json.loads(record.read_text())["reviews"] == 0
    assert len(server.texts) == len(set(server.texts)) > 12
    before = len(server.texts)
    files = {path: path.read_bytes() for path in (tmp_path / "pal").glob("*_en.json")}

    code, printed, _ = cli(*command, "--json")
    assert (code, len(server.texts), json.loads(printed)["calls"]["task"]) == (0, before, 0)
    assert files == {path: path.read_bytes() for path in (tmp_path / "pal").glob("*_en.json")}


def test_reviews_of_a_whole_data_set_are_recorded_until_others_begin(cli: Cli, writer: Any, tmp_path: Path) -> None:
    server = writer(good)
    command = (*PALSET, *model(server), "--out", tmp_path / "pal")
    record = tmp_path / "pal" / "synthesis.json"
    assert cli(*command)[0] == 0

    assert cli(*command, "--max-calls", "1")[0] == 0
    assert json.loads(record.read_text())["reviews"] == 0, "this data set is whole"

    assert cli(*command, "--reviews", "1", "--max-calls", "1")[0] == 0
    assert "reviews" not in json.loads(record.read_text()), "some records were reviewed again, and some were not"


def test_a_refused_answer_counts_among_the_calls_of_its_step(cli: Cli, writer: Any, tmp_path: Path) -> None:
    server = writer(lambda kind, text, n: {kind: []})
    code, printed, _ = cli(*PALSET, *model(server), "--out", tmp_path / "pal", "--attempts", "2", "--json")
    assert code == 4
    expected = {"name": "people", "calls": 2, "outcomes": {"retried": 1, "given up": 1}}
    assert json.loads(printed)["steps"][0] == expected
    assert "reviews" not in json.loads((tmp_path / "pal" / "synthesis.json").read_text()), "there is no data"


def test_a_folder_of_another_data_set_or_of_somebody_else_is_left_alone(
    cli: Cli, writer: Any, tmp_path: Path
) -> None:
    server = writer(lambda kind, text, n: {kind: []})
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    code, _, err = cli(*PALSET, *model(server), "--out", mine)
    assert (code, err) == (2, f"mempiler: {mine}: is there already and was not written by Mempiler; choose another name\n")

    out = tmp_path / "pal"
    code, printed, err = cli(*PALSET, *model(server), "--out", out, "--attempts", "2")
    assert code == 4
    assert "no user came through all steps" in err
    assert "people" in printed
    code, _, err = cli(*PALSET, *model(server), "--out", out, "--seed", "4")
    assert (code, err) == (2, f"mempiler: {out}: was begun with seed = 3, not 4; give the same, or another folder\n")


def test_a_data_set_that_another_process_began_a_moment_ago_is_left_alone(
    cli: Cli, writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mempiler.runs import synthesis

    server = writer(lambda kind, text, n: {kind: []})
    other, out = tmp_path / "other", tmp_path / "pal"
    cli(*PALSET, *model(server), "--out", other, "--seed", "4")
    record = (other / "synthesis.json").read_bytes()

    class LateLock(synthesis.FileLock):
        """Waits, as it were, for a process that writes another data set into the folder."""

        def acquire(self, *args: Any, **kwargs: Any) -> Any:
            (out / "synthesis.json").write_bytes(record)
            return super().acquire(*args, **kwargs)

    monkeypatch.setattr(synthesis, "FileLock", LateLock)
    code, _, err = cli(*PALSET, *model(server), "--out", out)
    assert (code, err) == (2, f"mempiler: {out}: was begun with seed = 4, not 3; give the same, or another folder\n")
    assert (out / "synthesis.json").read_bytes() == record


def test_a_model_that_fails_and_a_user_who_stops_it_lose_no_answer(
    cli: Cli, writer: Any, stub: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pal"
    goes_on = f"answers are kept in {out}, the same command goes on"
    server = stub(lambda n, text: "500")
    code, _, err = cli(*PALSET, *model(server), "--out", out)
    assert (code, len(err.splitlines())) == (3, 1)
    assert err.endswith(f"; {goes_on}\n")

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mempiler.runs.synthesis.make_palset", stop)
    code, _, err = cli(*PALSET, *model(server), "--out", out)
    assert (code, err) == (130, f"mempiler: stopped; answers are kept in {out}; the same command goes on\n")


@pytest.mark.slow
def test_a_killed_process_pays_again_for_calls_in_flight_alone(cli: Cli, writer: Any, tmp_path: Path) -> None:
    server = writer(good)
    server.delay = 0.05
    command = [*PALSET, *model(server), "--out", str(tmp_path / "pal"), "--threads", "2"]
    process = subprocess.Popen([sys.executable, "-m", "mempiler", *command], stdout=-3, stderr=-3)
    assert within(60, lambda: len(server.texts) > 15)
    process.kill()
    process.wait(timeout=30)
    code, _, err = cli(*command)
    assert code == 0, err
    assert len(server.texts) - len(set(server.texts)) <= 2


def test_memoryquest_is_written_from_profiles(
    cli: Cli, writer: Any, tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempiler.runs.synthesis.make_embedder", lambda name, address: UsableNear(name))
    server = writer(quest.good)
    out = tmp_path / "quest"
    command = ("synthesize", "memoryquest", profiles, "--out", out, *model(server))
    code, printed, err = cli(*command, "--users", "1", "--json")
    assert code == 0, err
    assert [Path(path).name for path in json.loads(printed)["files"]] == ["user2.json"]
    assert json.loads(printed)["steps"] == [
        {"name": name, "calls": n, "outcomes": {"accepted": n}} for name, n in [("queries", 3), ("timeline", 6), ("dialogue", 30)]
    ]
    code, printed, err = cli(*command)
    assert code == 0, err
    assert "2 files in" in printed
    assert len(mempiler.benchmark("memoryquest", data=str(out)).examples) == 12


def test_a_memoryquest_is_not_mixed_from_different_profiles(
    cli: Cli, writer: Any, tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempiler.runs.synthesis.make_embedder", lambda name, address: UsableNear(name))
    server = writer(lambda kind, text, n: {kind: []})
    out = tmp_path / "quest"
    command = ("synthesize", "memoryquest", profiles, "--out", out, "--attempts", "1", *model(server))
    nothing_written = 4
    assert cli(*command, "--users", "1")[0] == nothing_written
    record = json.loads((out / "synthesis.json").read_text())
    assert "seed" not in record["settings"], "nothing is drawn"
    assert list(record["profiles"]) == ["user2", "user10"]

    path = profiles / "user2_profile.json"
    content = path.read_text()
    (profiles / "user3_profile.json").write_text(content.replace('"user2"', '"user3"'))
    assert cli(*command)[0] == nothing_written, "a profile was added"

    expected = f"mempiler: {out}: the profile of 'user2' that it was begun with has changed or is missing; give the same profiles, or another folder\n"
    path.write_text(content.replace("2 years old", "3 years old"))
    code, _, err = cli(*command)
    assert (code, err) == (2, expected)
    path.unlink()
    code, _, err = cli(*command)
    assert (code, err) == (2, expected)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["palset", "--out", "pal"], "the offline engine cannot write data; name a language model with --lm"),
        (["palset", "--out", "pal", "--months", "1"], "1 is not in the range x>=2"),
        (["palset", "--lm", "openai/x"], "Missing option '--out'"),
        (["memoryquest", "lens", "--lm", "openai/x"], "Missing option '--out'"),
        (["palset", "--out", "pal", "--lm", "openai/gpt-x"], "OPENAI_API_KEY"),
        (["memoryquest", "nowhere", "--out", "quest"], "nowhere: no such folder, or none with a user's profile.json"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("synthesize", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert problem in err
    assert list(tmp_path.iterdir()) == []


def test_the_offline_embedder_is_refused(cli: Cli, writer: Any, tmp_path: Path, profiles: Path) -> None:
    server = writer(quest.good)
    words = ("memoryquest", profiles, "--out", tmp_path / "quest", "--embedder", "offline")
    code, _, err = cli("synthesize", *words, *model(server))
    assert (code, "compares spelling" in err) == (2, True)
    assert not (tmp_path / "quest").exists()


@pytest.mark.parametrize(
    ("words", "low", "high"),
    [
        (["palset", "--users", "2", "--months", "8", "--reviews", "0"], 221, 797),
        (["memoryquest", "lens"], 6, 336),
        (["palset", "--out", "pal", "--users", "2", "--months", "8", "--reviews", "0"], 221, 797),
    ],
)
def test_a_plan_counts_calls_and_makes_nothing(
    cli: Cli, tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], low: int, high: int
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("synthesize", *words, "--plan", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert plan["calls"] == {"low": low, "high": high}
    assert sum(calls["high"] for calls in plan["phases"].values()) == high
    assert [path.name for path in tmp_path.iterdir()] == [profiles.name]


def test_a_plan_holds_what_a_data_set_takes(made_palset: Any) -> None:
    from mempiler.runs.synthesis_plan import plan_palset

    _, report, calls = made_palset(good, users=2, months=3, reviews=1)
    assert report.rejections == []
    plan = plan_palset(2, 3, 1)
    reviews = {"review of log types", "review against the persona", "review of actions"}
    for step, accepted in report.accepted.items():
        if step not in reviews:
            assert plan[step].low <= accepted <= plan[step].high, step
    assert plan["reviews"].low <= sum(report.accepted[step] for step in reviews) <= plan["reviews"].high
    assert sum(calls.values()) == sum(report.accepted.values())
