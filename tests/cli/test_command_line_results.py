"""What commands print: one JSON object, or tables that say what they rest on; and where they write nothing."""

import io
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import build, load, save
from mempiler.cli import COMMANDS, main
from mempiler.cli.progress import progress
from mempiler.data.samples import sample
from mempiler.engines.limits import Limits
from mempiler.engines.usage import UsageReport
from mempiler.optimizers.compile import CompileConfig
from mempiler.runs.announce import announce
from mempiler.runs.compile import run_compile
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.inputs import RunInputs
from mempiler.runs.manifest import Manifest
from mempiler.runs.progress import spending_line
from mempiler.signatures.judges import JudgeAnswer, judge_hash
from rich.console import Console

from ..conftest import chat_fields, within
from ..run_inputs import run_inputs

EVALUATION = {"program", "benchmark", "lm", "n", "score", "interval", "metrics", "by", "retrieval", "calls", "run_id"}
COMPILATION = {"before", "after", "difference", "promoted", "program", "run_id"}
SMALL = ["--train", "12", "--dev", "4", "--test", "6"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program compiled on the bundled sample, and a history beside it."""
    folder = tmp_path_factory.mktemp("compiled")
    arguments = ["compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", "--force", "--json", *SMALL]
    main([*arguments, "--out", str(folder / "program")])
    said = {"role": "user", "content": "I moved to [b]Lisbon[/b] :smile:", "name": "Ann", "time": "2024-05-03"}
    answered = {"role": "assistant", "content": "My dog is called Rex.", "name": "Bob"}
    (folder / "history.json").write_text(json.dumps([said, answered]))
    return folder / "program"


def test_evaluate_prints_one_json_object(cli):
    code, out, err = cli("evaluate", "turn-rag", "--benchmark", "locomo", "--json", "--test", "6", "--split", "test")
    found = json.loads(out)
    assert code == 0
    assert set(found) >= EVALUATION
    assert found["program"] == "turn-rag"
    assert found["benchmark"] == "locomo"
    assert found["lm"] == "offline"
    assert set(found["retrieval"]) == {"shown", "recall@5", "recall@20"}
    assert set(found["calls"]) == {"task", "prompt", "judge", "cached"}
    assert all({"n", "score"} <= set(part) for part in found["by"].values())
    assert sum(part["n"] for part in found["by"].values()) == found["calls"]["task"] == 6
    assert "bundled sample" in err
    assert "offline engine" in err


@pytest.mark.parametrize(("reused", "share"), [(0.5, pytest.approx(0.5, abs=0.01)), (None, None)])
def test_the_share_of_cached_prompt_tokens_is_shown_where_it_is_known(stub, mempiler_cli, reused, share):
    ran = mempiler_cli(stub(reused=reused), "evaluate", "turn-rag", "--split", "test")
    assert ran.found["cached_share"] == share
    assert ran.found["prompt_tokens"] > 0


def test_compile_prints_one_json_object_and_saves(cli, tmp_path):
    arguments = ["compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", "--json", *SMALL]
    code, out, err = cli(*arguments, "--out", str(tmp_path / "out"))
    found = json.loads(out)
    assert code == 0
    assert set(found) >= COMPILATION
    assert set(found["before"]) >= EVALUATION
    assert set(found["after"]) >= EVALUATION
    assert {"mean", "interval"} <= set(found["difference"])
    assert found["program"] == str(tmp_path / "out")
    assert load(found["program"]).name == "turn-rag"
    assert found["before"]["run_id"] == found["run_id"]
    first, note = err.splitlines()
    assert "(12 train, 4 dev, 6 test questions)" in first
    assert note.startswith("note: dev: too small for a verdict: 4 questions count")


def test_the_first_line_says_what_the_numbers_rest_on(cli):
    code, out, err = cli("evaluate", "turn-rag", "--test", "4", "--benchmark", "locomo", "--split", "test")
    assert code == 0
    (first,) = err.splitlines()
    told = "bundled sample", "(4 questions)", "LM: offline engine", "embedder: offline", "adapter: chat"
    assert all(words in first for words in (*told, "not comparable"))
    assert "smoke test, not comparable" in out
    assert "MLflow run" in out


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("我住在哪里？", "embedder: minilm (knows English alone; --embedder e5 knows"),
        ("Where do I live?", "embedder: minilm; adapter"),
    ],
)
def test_the_first_line_prefers_an_embedder_that_knows_the_language_of_the_questions(
    cli, tmp_path, monkeypatch, capsys, question, said
):
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path))
    row = {"messages": [{"role": "user", "content": "里斯本"}], "question": question, "answer": "里斯本"}
    (tmp_path / "own.jsonl").write_text(json.dumps(row))
    words = ["--benchmark", "jsonl", "--data", tmp_path / "own.jsonl", "--embedder", "minilm"]
    code, _, err = cli("evaluate", "turn-rag", *words)
    assert code == 2
    assert "the weights of minilm are not in" in err
    announce(run_inputs("jsonl", data=str(tmp_path / "own.jsonl"), embedder="minilm"), part="all")
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_saved_program_is_evaluated_with_a_note_on_what_it_was_compiled_on(cli, program):
    code, out, err = cli("evaluate", str(program), "--benchmark", "locomo", "--json", "--categories", "4")
    assert code == 0
    assert json.loads(out)["program"] == "turn-rag"
    assert "--split test leaves its training questions out" in err


def test_ask_answers_and_shows_why(cli, program):
    asked = "ask", str(program), "Where did Ann move to?", "--history", f"{program.parent}/history.json"
    code, out, err = cli(*asked, "--why")
    answer, *rest = out.splitlines()
    assert code == 0
    assert err == ""
    assert answer
    # Words of users are printed as they are: rich would take them for markup.
    assert any("[D1:1]" in line and "[b]Lisbon[/b] :smile:" in line for line in rest)
    found = json.loads(cli(*asked, "--json")[1])
    assert set(found) == {"answer", "lm", "why"}
    assert found["lm"] == "offline"
    assert found["why"][0]["sources"][0]["line"].startswith("[D1:1] (3 May 2024, Friday) Ann: I moved")


@pytest.mark.parametrize("name", ["api_base", "cache", "guard", "timeout"])
def test_ask_refuses_a_setting_of_requests_that_is_named_like_an_argument_of_ours(cli, program, name):
    asked = "ask", str(program), "Where did Ann move to?", "--history", f"{program.parent}/history.json"
    code, _, err = cli(*asked, "--lm-set", f"{name}=1")
    assert code == 2
    assert err.startswith(f"mempiler: --lm-set {name}: ")


def test_list_names_everything_with_a_summary(cli):
    listed = json.loads(cli("list", "--json")[1])
    known = {"methods": "turn-rag", "benchmarks": "locomo", "optimizers": "bootstrap", "adapters": "chat"}
    assert all(listed[kind].values() and listed[kind][name] for kind, name in known.items())
    shown = cli("list")[1]
    assert all(name in shown for names in listed.values() for name in names)
    assert set(json.loads(cli("list", "weights", "--json")[1])) == {"weights"}


def test_the_settings_of_an_optimizer_are_listed_with_those_of_its_constructors(cli):
    found = json.loads(cli("list", "optimizers", "gepa", "--json")[1])
    assert list(found).count("max_metric_calls") == 1
    assert found["reflection_minibatch_size"] == 3
    assert found["use_merge"] is True
    assert found["sampling_strategy"] is None
    assert "reflection_minibatch_size" in cli("list", "optimizers", "gepa")[1]
    assert cli("list", "methods", "gepa")[0] == 2


GOOD = {"user": "ann", "messages": [{"role": "user", "content": "I moved."}], "question": "What?", "answer": "moved"}


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        ([GOOD], 0, "nothing wrong found"),
        ([{**GOOD, "evidence": ["D9:9"]}], 0, "0 errors, 1 remarks"),
        ([GOOD, {**GOOD, "question": ""}], 1, "ERROR: line 2, field 'question'"),
        ([], 1, "cannot be used as it is"),
    ],
)
def test_data_check_ends_with_one_if_the_file_cannot_be_used(cli, tmp_path, rows, code, words):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    asked = "evaluate", "turn-rag", "--check", "--benchmark", "jsonl", "--data", path
    ended, out, _ = cli(*asked)
    assert ended == code
    assert words in out
    ended, out, _ = cli(*asked, "--json")
    assert ended == code
    assert json.loads(out)["ok"] == (code == 0)
    about_words = {"languages", "metric", "splitter_description", "advice"}
    split = {"split"} if code == 0 else set()
    assert set(json.loads(out)) == {"path", "benchmark", "counts", "findings", "ok", "kinds"} | about_words | split


def test_data_check_of_some_categories_reads_the_whole_file(cli):
    with sample("locomo.json") as path:
        asked = "evaluate", "turn-rag", "--check", "--benchmark", "locomo", "--data", path
        whole = json.loads(cli(*asked, "--json")[1])
        code, out, _ = cli(*asked, "--categories", "1,2", "--json")
    assert code == 0
    some = json.loads(out)
    assert some["counts"] == whole["counts"]
    assert some["split"] != whole["split"]


def test_data_check_names_languages_and_the_metric_and_advises_a_judge_in_one_line(cli, tmp_path):
    german = {**GOOD, "question": "Wann hat Ada Klavierunterricht?", "answer": "am Dienstag"}
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (GOOD, german)))
    asked = "evaluate", "turn-rag", "--check", "--benchmark", "jsonl", "--data", path
    code, out, _ = cli(*asked)
    lines = out.splitlines()
    assert code == 0
    assert "languages of the questions: English 1, German 1" in lines
    assert any(line.startswith("metric: f1 (token F1); compares words between spaces; Chinese in") for line in lines)
    [advice] = [line for line in lines if line.startswith("advice: ")]
    assert "German" in advice
    assert advice.endswith("choose --metric judge with --judge-lm MODEL")
    code, out, _ = cli(*asked, "--metric", "judge")
    assert code == 0
    assert "metric: judge (judged right)" in out.splitlines()
    assert "advice" not in out


def test_every_command_explains_itself(cli):
    for command in [[], *([name] for name in COMMANDS), ["memories", "rebuild"]]:
        code, out, err = cli(*command, "--help")
        assert code == 0
        assert err == ""
        assert out.startswith(f"Usage: mempiler{''.join(f' {word}' for word in command)}")


def test_a_judge_that_accepts_short_answers_only_is_counted_by_kind(cli, stub, tmp_path):
    rows = [("Rome", "right"), ("It was Rome.", "paraphrased-right"), ("A city.", "vague-wrong"), ("Oslo", "right")]
    rows += [("What?", "vague-wrong"), ("Too long.", "vague-wrong")]
    lines = [{"question": "Where?", "gold_answer": "Rome", "answer": text, "kind": kind} for text, kind in rows]
    (tmp_path / "labelled.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def answer(body):
        asked = str(body["messages"])
        said = chat_fields(reasoning="So.", verdict="WRONG" if "It was Rome." in asked else "CORRECT")
        return "no fields" if "What?" in asked else said

    def refuse(n, text):
        return "400" if "Too long." in text else None

    server, check = stub(refuse, answer=answer), ("evaluate", "judge", "--benchmark", "judge-check")
    model = ["--judge-lm", server.model, "--judge-api-base", server.url]
    code, out, _ = cli(*check, *model, "--data", tmp_path / "labelled.jsonl", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["judge_lm"] == server.model
    assert found["judge_hash"] == judge_hash(JudgeAnswer)
    rates = {"right": 1.0, "paraphrased-right": 0.0, "vague-wrong": 1.0, "specific-wrong": None}
    assert {kind: each["rate"] for kind, each in found["kinds"].items()} == rates
    assert found["right"]["accepted"] == 2
    assert found["right"]["n"] == 3
    assert found["wrong"]["rate"] == 1.0
    assert found["kinds"]["vague-wrong"]["n"] == 3
    assert found["kinds"]["vague-wrong"]["unreadable"] == 2
    told = f"prompt {judge_hash(JudgeAnswer)[:12]}", "smoke test", *rates, "all wrong"
    assert all(words in cli(*check)[1] for words in told)


def test_a_published_program_is_asked_by_its_address(cli, tmp_path):
    gate = {"split": "dev", "score": 0.5, "n": 20, "stopped": None, "lm": "offline", "judge": None}
    made = Manifest(method="", task="", scores={"gate": gate}, lms={"task": "offline"})
    save(build("turn-rag"), tmp_path / "program", made)
    address = "models:/cli-published@prod"
    code, out, _ = cli("publish", tmp_path / "program", address)
    assert code == 0
    assert f"version 1 of cli-published: {address}" in out
    assert "gate: dev 0.500 (n = 20, offline), nothing to compare with" in out
    assert f"mlflow models serve -m {address} --env-manager local" in out
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "I moved to Lisbon."}]))
    asked = cli("ask", address, "Where did I move?", "--history", tmp_path / "chat.json", "--json")
    assert "Lisbon" in json.loads(asked[1])["answer"]


def test_prints_and_logs_of_optimizers_are_not_shown(capsys, caplog):
    before, logger = sys.stdout, logging.getLogger("dspy.teleprompt")
    with progress():
        print("Bootstrapped 4 full traces")
        logger.error("Failed to run or to evaluate an example")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""
    assert caplog.records == []
    assert sys.stdout is before
    assert logger.isEnabledFor(logging.ERROR)


def test_usage_is_shown_beside_its_limit() -> None:
    usage = UsageReport(
        calls=Counter(task=1200), cost=0.5, failed=2, answers=Counter({("p", "lost"): 3, ("p", "ok"): 9})
    )
    assert spending_line(usage, None) == "1,200 calls, $0.5000, 3 lost, 2 failed"
    assert (
        spending_line(usage, Limits(max_usd=5, max_calls=2000))
        == "1,200 of 2,000 calls, $0.5000 of $5, 3 lost, 2 failed"
    )
    assert spending_line(UsageReport(), Limits(max_tokens=9000)) == "0 calls, 0 of 9,000 tokens"


def test_a_file_has_a_line_a_phase_now_and_then() -> None:
    said = io.StringIO()
    with progress(console=Console(file=said, width=80), seconds_between_lines=0.02) as (note, _):
        note("dev questions")(4, 4)
        note("warming up")
        told = note("test questions")
        told(1, 40)
        told(0, 40)
        assert within(20, lambda: "test questions" in said.getvalue())
    lines = [line.split() for line in said.getvalue().splitlines()]
    assert lines[:2] == [["test", "questions", "1/40"], ["0", "calls"]]


def heard(inputs: RunInputs, run: Any) -> dict[str, list[tuple[int, int]]]:
    """What a run tells, by phase."""
    told: dict[str, list[tuple[int, int]]] = {}
    run(lambda phase: lambda done, total: told.setdefault(phase, []).append((done, total)))
    return told


def test_sessions_are_counted_while_memories_are_written() -> None:
    inputs = run_inputs(benchmark="locomo", test=6, embedder="offline", threads=2)
    told = heard(inputs, lambda note: run_evaluate("memory-r2", inputs, progress=note))
    sessions = told["evaluating, sessions remembered"]
    total = sessions[0][1]
    assert sessions[0] == (0, total)
    assert sorted(sessions) == [(n, total) for n in range(total + 1)]
    histories = {example.history for example in inputs.split().test}
    assert total == sum(len(history.items) for history in histories)
    assert sorted(told["evaluating"])[-1] == (6, 6)


def test_an_optimizer_says_how_many_questions_it_has_asked() -> None:
    inputs = run_inputs(benchmark="locomo", train=8, dev=2, test=2, embedder="offline", threads=1)
    told = heard(inputs, lambda note: run_compile("turn-rag", inputs, CompileConfig("bootstrap"), progress=note))
    asked = told["compiling with bootstrap"]
    assert [done for done, _ in asked] == sorted(done for done, _ in asked)
    assert 0 < asked[-1][0] <= asked[-1][1]


Run = Callable[..., tuple[int, str, str]]
CHAT = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
FILES = {"export": ("memories", "export"), "compare": ("compare", "one", "two", "--page")}
"""The commands that write a file, up to its name."""
FOLDERS = {
    "compile": ("compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", "--out"),
    "export": ("export", "verifiers", "memory-r2", "--benchmark", "locomo", "--out"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with a memory of Ada's and two runs."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "chat.json").write_text(json.dumps(CHAT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_HOME", str(folder))
        main(["memories", "add", str(folder / "chat.json"), "--user", "ada"])
        for name in ("one", "two"):
            main(["evaluate", "turn-rag", "--benchmark", "locomo", "--test", "2", "--split", "test"])
            (run,) = (path.parent for path in folder.glob("2*/run.json"))
            run.rename(folder / name)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> Run:
    monkeypatch.setenv("MEMPILER_HOME", str(made))
    monkeypatch.chdir(tmp_path)
    return cli


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_ours_is_overwritten_by_force_alone(run: Run, name: str) -> None:
    notes, command = Path("notes"), FILES[name]
    notes.write_text("my notes on mempiler")
    code, _, err = run(*command, "notes")
    assert code == 2
    assert notes.read_text() == "my notes on mempiler"
    assert "notes: is there already and was not written by Mempiler; choose another name, or give --force\n" in err
    assert run(*command, "notes", "--force")[0] == 0
    first = notes.read_text()
    assert run(*command, "notes")[0] == 0, "ours by now"
    assert notes.read_text() == first != "my notes on mempiler"
    other = next(command for each, command in FILES.items() if each != name)
    assert run(*other, "notes")[0] == 2, "ours, and of another kind"
    assert [path.name for path in Path().iterdir()] == ["notes"], "nothing is left beside it"


@pytest.mark.parametrize("name", FILES)
def test_only_a_file_is_ever_replaced(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    code, _, err = run(*FILES[name], "null", "--force")
    assert code == 2
    assert "was not written by Mempiler; choose another name" in err
    assert (tmp_path / "null").is_symlink()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_not_ours_is_left_alone(run: Run, name: str) -> None:
    mine = {"index.html": "my page", "manifest.json": "{}", "state.json": "{}"}
    Path("site").mkdir()
    for file, text in mine.items():
        Path("site", file).write_text(text)
    code, _, err = run(*FOLDERS[name], "site")
    assert code == 2
    assert err.splitlines()[-1].partition(" ")[0] == "mempiler:"
    assert {path.name: path.read_text() for path in Path("site").iterdir()} == mine
