"""Exported folders: what is in them, what they refuse, and that their rewards are those of training here.

The package for `verifiers` is only looked at; docs/training_elsewhere.md tells how it was run, with TRL's trainer.
"""

import importlib.util
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.cli import main
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.reward import answer, penalty, reward
from mempiler.optimizers.logo_grpo.rollout import rerun, single_attempt
from mempiler.runs.exports.environment import Environment

SAMPLE = next((Path(mempiler.__file__).parent / "data" / "samples").glob("locomo*.json"))
ENV = ["--on", "memory-env", "--option", "users=10", "--option", "sessions=2"]


def export(folder: Path, kind: str, *options: str, method: str = "memory-r2") -> Path:
    main(["export", kind, method, *(options or ENV), "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def trl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and a reward function of memory-env."""
    return export(tmp_path_factory.mktemp("trl") / "out", "trl")


def loaded(folder: Path) -> Any:
    """The reward module of a folder."""
    spec = importlib.util.spec_from_file_location("exported_reward", folder / "reward.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_row_is_a_call_of_the_writer_with_the_memory_before_its_session(trl: Path) -> None:
    rows, environment = rows_of(trl), Environment.open(trl / "export.json")
    assert {row["role"] for row in rows} == {"extract", "manage"}
    assert {row["history"] for row in rows} == set(environment.histories)
    for row in rows:
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert len(row["said"]) < 8
    later = [row for row in rows if row["session"] == 1]
    assert later
    for row in later:
        assert json.loads(row["memory"])["facts"]


def test_the_reward_of_a_row_is_that_of_a_rerun_of_its_session(trl: Path) -> None:
    """As LoGo-GRPO rewards a local group; TRL gives completions as messages, and columns as lists."""
    environment, memory, checked = Environment.open(trl / "export.json"), loaded(trl).memory, 0
    own, rows = environment.rewarded, rows_of(trl)
    for id in list(environment.histories)[:2]:
        taken = own.write(environment.past(id), environment.model)
        for t in range(2):
            with dspy.context(lm=environment.model, adapter=single_attempt(environment.program)):
                again = rerun(environment.program.method.writer, taken, t, "local")
                asked = own.questions(environment.histories[id], t + 1)
                answered = answer(environment.program, again.history, again.memory, asked, own.metric)
            value = reward(answered, again, own.settings)
            group = [row for row in rows if (row["history"], row["session"]) == (id, t)]
            said = [call.completions[0].text for call in again.calls]
            columns = {name: [row[name] for row in group] for name in group[0] if name != "prompt"}
            told = memory(
                [row["prompt"] for row in group], [[{"role": "assistant", "content": s}] for s in said], **columns
            )
            assert told == [value - penalty(call, True, own.settings) for call in again.calls]
            checked += len(told)
    assert checked > 8


def test_an_unreadable_completion_costs_more_than_the_row_s_own(trl: Path) -> None:
    memory, rows = loaded(trl).memory, rows_of(trl)
    row, own = rows[0], rows[1]["said"][0]
    columns = {name: [value] * 2 for name, value in row.items() if name != "prompt"}
    good, bad = memory([row["prompt"]] * 2, [own, "I would rather not."], **columns)
    assert good - bad > 0.4


def test_the_package_for_verifiers_names_what_it_needs(tmp_path: Path) -> None:
    folder = export(tmp_path / "out", "verifiers")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mempiler-memory-r2-memory-env"
    assert "mempiler" in project["dependencies"]
    package = folder / "mempiler_memory_r2_memory_env"
    assert {path.name for path in package.iterdir()} == {"__init__.py", "export.json"}
    compile((package / "__init__.py").read_text(), "__init__.py", "exec")
    environment = Environment.open(package / "export.json")
    assert len(environment.histories) == 6
    worth = environment.worth(next(iter(environment.histories)), [])
    assert worth.reward == worth.value - 0.5


def test_a_file_of_one_s_own_is_named_and_not_copied(tmp_path: Path) -> None:
    data = tmp_path / "mine.json"
    shutil.copy(SAMPLE, data)
    folder = export(tmp_path / "out", "trl", "--on", "locomo", "--data", str(data), "--sessions", "1")
    assert not (folder / "rows.jsonl").exists()
    turn = next(iter(Environment.open(folder / "export.json").histories.values())).items[0].turns[0]
    assert all(turn.content not in path.read_text(encoding="utf-8") for path in folder.iterdir())
    data.write_text(data.read_text().replace(turn.content, "Something else."))
    with pytest.raises(mempiler.DataError, match=r"mine.json: is not the data that was exported"):
        Environment.open(folder / "export.json")


def test_another_prompt_than_the_exported_one_is_refused(trl: Path, tmp_path: Path) -> None:
    told = json.loads((trl / "export.json").read_text())
    (tmp_path / "export.json").write_text(json.dumps({**told, "config": {"chunk_turns": 2}}))
    with pytest.raises(mempiler.ProgramError, match="memory-r2 has other prompts or settings than were exported"):
        Environment.open(tmp_path / "export.json")
    (tmp_path / "export.json").write_text(json.dumps({**told, "more": 1}))
    with pytest.raises(mempiler.ProgramError, match="is no export"):
        Environment.open(tmp_path / "export.json")


def test_a_saved_program_is_exported_with_its_own_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mempiler.save(mempiler.build("memory-r2", "memory-lookup", adapter="json"), tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    folder = export(tmp_path / "out", "trl", method="saved")
    monkeypatch.chdir("/")
    environment = Environment.open(folder / "export.json")
    assert environment.program.adapter == "json"
    assert "JSON object" in rows_of(folder)[0]["prompt"][0]["content"]


def test_the_commands_of_the_page_export(tmp_path: Path) -> None:
    page = (Path(mempiler.__file__).parent / "docs" / "training_elsewhere.md").read_text(encoding="utf-8")
    lines = re.findall(r"^mempiler (export .*?) +#", page, re.MULTILINE)
    assert len(lines) == 2
    for n, line in enumerate(lines):
        words = line.replace("locomo10.json", str(SAMPLE)).split()
        main([*words[:-1], str(tmp_path / str(n))])
    assert "mempiler-memory-r2-memory-env" in page
    assert (tmp_path / "0" / "mempiler_memory_r2_memory_env").is_dir()


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        (["--on", "memoryquest"], "memory-r2", "memoryquest is scored by a judge"),
        (ENV, "turn-rag", "turn-rag writes without a language model"),
        (["--on", "palbench.dialogue"], "memory-r2", "palbench.dialogue is a simulated conversation"),
        ([*ENV, "--adapter", "auto"], "memory-r2", "--adapter auto asks an endpoint"),
        ([*ENV, "--plan"], "memory-r2", "--plan says nothing to an export; leave it out"),
        ([*ENV, "--max-usd", "1"], "memory-r2", "--max-usd says nothing to an export; leave it out"),
        ([*ENV, "--reward-set", "depth=1"], "memory-r2", "--reward-set: .*compression"),
        ([*ENV, "--reward-set", "compression=-1"], "memory-r2", "compression = -1 is negative"),
        (["--on", "nowhere"], "memory-r2", "unknown benchmark 'nowhere'"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    options: list[str], method: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        export(tmp_path / "out", "verifiers", *options, method=method)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit):
        export(tmp_path, "trl")
    assert "is not empty; choose another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_rows_that_break_off_leave_no_file_that_could_be_trained_on(tmp_path: Path) -> None:
    from mempiler.runs.exports.rows import write_rows

    class Breaks:
        def rows(self) -> Any:
            yield {"prompt": []}
            raise OSError("no space left")

    with pytest.raises(UserError, match=r"rows\.jsonl: cannot be written: no space"):
        write_rows(Breaks(), tmp_path / "rows.jsonl")  # pyright: ignore[reportArgumentType]
    assert list(tmp_path.iterdir()) == []
