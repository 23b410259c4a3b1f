"""What the commands print: one JSON object, or tables that say what they rest on.

`evaluate` scores a method on a benchmark, and `compile` improves its prompts first. Without a model
(--lm) the offline engine answers, which copies text from the prompt. Without a file (--data) the
questions are those of a small bundled sample. Scores are then called a smoke test.
"""

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
from mempiler.runs.manifest import Manifest
from mempiler.runs.progress import spending_line
from mempiler.signatures.judges import JudgeAnswer, judge_hash
from rich.console import Console

from ..command_line import CommandLine, RunCommand
from ..conftest import within
from ..run_inputs import run_inputs
from ..scripted_engine import chat_fields

EVALUATION_FIELDS = {
    "program",
    "benchmark",
    "lm",
    "n",
    "score",
    "interval",
    "metrics",
    "by",
    "retrieval",
    "calls",
    "run_id",
}
SMALL = ("--train", "12", "--dev", "4", "--test", "6")
"""Sizes of a compile that takes a second."""


def text_in_one_line(text: str) -> str:
    """Return a text without the line breaks that a narrow console puts into it."""
    return " ".join(text.split())


# --- evaluate and compile -------------------------------------------------------------------


def test_evaluate_prints_one_json_object(cli: RunCommand) -> None:
    options = ("--benchmark", "locomo", "--test", "6", "--split", "test")

    code, out, err = cli("evaluate", "turn-rag", *options, "--json")
    evaluation = json.loads(out)

    assert code == 0
    # What the scores rest on stands on standard error.
    assert "bundled sample" in err
    assert "offline engine" in err
    assert set(evaluation) >= EVALUATION_FIELDS
    assert evaluation["program"] == "turn-rag"
    assert evaluation["benchmark"] == "locomo"
    assert evaluation["lm"] == "offline"
    assert set(evaluation["retrieval"]) == {"shown", "recall@5", "recall@20"}


def test_evaluate_counts_calls_and_questions(cli: RunCommand) -> None:
    """Each of the six questions takes one call of the model for the task. `by` is by category."""
    options = ("--benchmark", "locomo", "--test", "6", "--split", "test")

    _, out, _ = cli("evaluate", "turn-rag", *options, "--json")
    evaluation = json.loads(out)

    assert set(evaluation["calls"]) == {"task", "prompt", "judge", "cached"}
    assert evaluation["calls"]["task"] == 6
    assert sum(category["n"] for category in evaluation["by"].values()) == 6
    for category in evaluation["by"].values():
        assert {"n", "score"} <= set(category)


def test_share_of_cached_prompt_tokens_is_shown_if_the_endpoint_reports_it(
    stub: Any, mempiler_cli: CommandLine
) -> None:
    """`reused` is the share of prompt tokens that the server says it had in its cache."""
    server = stub(reused=0.5)

    result = mempiler_cli(server, "evaluate", "turn-rag", "--split", "test")

    assert result.printed_json["cached_share"] == pytest.approx(0.5, abs=0.01)


def test_share_of_cached_prompt_tokens_is_unknown_if_the_endpoint_reports_none(
    stub: Any, mempiler_cli: CommandLine
) -> None:
    """Such a server counts the tokens of a prompt, but not those that it had in its cache."""
    server = stub(reused=None)

    result = mempiler_cli(server, "evaluate", "turn-rag", "--split", "test")

    assert result.printed_json["cached_share"] is None
    assert result.printed_json["prompt_tokens"] > 0


def test_compile_prints_one_json_object_and_saves_the_program(
    cli: RunCommand, tmp_path: Path
) -> None:
    """`before` and `after` are the evaluations of the program before and after the compile."""
    folder = str(tmp_path / "out")
    options = ("--benchmark", "locomo", "--optimizer", "labeled", *SMALL, "--out", folder)

    code, out, _ = cli("compile", "turn-rag", *options, "--json")
    result = json.loads(out)

    assert code == 0
    assert set(result) >= {"before", "after", "difference", "promoted", "program", "run_id"}
    assert set(result["before"]) >= EVALUATION_FIELDS
    assert set(result["after"]) >= EVALUATION_FIELDS
    assert set(result["difference"]) >= {"mean", "interval"}
    assert result["before"]["run_id"] == result["run_id"]
    assert result["program"] == folder
    assert load(folder).name == "turn-rag"


def test_compile_notes_that_a_verdict_needs_more_dev_questions(cli: RunCommand) -> None:
    """It needs 20 of them."""
    sizes = ("--train", "12", "--dev", "4", "--test", "6")

    _, _, err = cli(
        "compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", *sizes
    )

    data_line, note = err.splitlines()
    assert "(12 train, 4 dev, 6 test questions)" in data_line
    assert note.startswith("note: dev: too small for a verdict: 4 questions count")


@pytest.mark.usefixtures("mlflow_tracking")
def test_first_line_says_what_the_scores_rest_on(cli: RunCommand) -> None:
    options = ("--benchmark", "locomo", "--test", "4", "--split", "test")

    code, out, err = cli("evaluate", "turn-rag", *options)

    assert code == 0
    assert err.count("\n") == 1
    assert "bundled sample" in err
    assert "(4 questions)" in err
    assert "LM: offline engine" in err
    assert "embedder: offline" in err
    assert "adapter: chat" in err
    assert "not comparable" in err
    assert "smoke test, not comparable" in out
    assert "MLflow run" in out


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("我住在哪里？", "embedder: minilm (knows English alone; --embedder e5 knows"),
        ("Where do I live?", "embedder: minilm; adapter"),
    ],
)
def test_first_line_warns_of_an_embedder_that_does_not_know_the_language(
    question: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The embedder minilm was trained on English texts, and one of the questions is in Chinese."""
    path = write_rows(tmp_path / "own.jsonl", [{**ROW, "question": question}])
    inputs = run_inputs("jsonl", data=str(path), embedder="minilm")

    announce(inputs, part="all")

    assert expected in text_in_one_line(capsys.readouterr().err)


def test_embedder_without_its_weights_is_refused(
    cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for weights of models is empty."""
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path))
    path = write_rows(tmp_path / "own.jsonl", [ROW])
    options = ("--benchmark", "jsonl", "--data", path, "--embedder", "minilm")

    code, _, err = cli("evaluate", "turn-rag", *options)

    assert code == 2
    assert "the weights of minilm are not in" in err


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that was compiled on the bundled sample."""
    path = tmp_path_factory.mktemp("compiled") / "program"
    options = ("--benchmark", "locomo", "--optimizer", "labeled", "--force", *SMALL)
    main(["compile", "turn-rag", *options, "--json", "--out", str(path)])
    return path


def test_evaluation_of_a_compiled_program_says_what_it_was_compiled_on(
    cli: RunCommand, program: Path
) -> None:
    """Without --split, questions that it was trained on are scored, too. A hint says so."""
    options = ("--benchmark", "locomo", "--categories", "4")

    code, out, err = cli("evaluate", program, *options, "--json")

    assert code == 0
    assert json.loads(out)["program"] == "turn-rag"
    assert "--split test leaves its training questions out" in err


# --- ask and publish ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a session of Ann and Bob. Rich would take some of its words for markup."""
    path = tmp_path_factory.mktemp("history") / "history.json"
    messages = [
        {
            "role": "user",
            "name": "Ann",
            "time": "2024-05-03",
            "content": "I moved to [b]Lisbon[/b] :smile:",
        },
        {"role": "assistant", "name": "Bob", "content": "My dog is called Rex."},
    ]
    path.write_text(json.dumps(messages))
    return path


def test_ask_prints_the_answer_and_the_turns_it_rests_on(
    cli: RunCommand, program: Path, history: Path
) -> None:
    """In the turn D1:1 Ann says "I moved to [b]Lisbon[/b] :smile:", which looks like markup."""
    code, out, err = cli("ask", program, "Where did Ann move to?", "--history", history, "--why")

    assert code == 0
    assert err == ""
    answer, *reasons = out.splitlines()
    assert answer != ""
    assert any("[D1:1]" in line and "[b]Lisbon[/b] :smile:" in line for line in reasons)


def test_ask_prints_one_json_object(cli: RunCommand, program: Path, history: Path) -> None:
    """In the turn D1:1, of 3 May 2024, Ann says that she moved to Lisbon."""
    _, out, _ = cli("ask", program, "Where did Ann move to?", "--history", history, "--json")
    result = json.loads(out)

    assert set(result) == {"answer", "lm", "why"}
    assert result["lm"] == "offline"
    source = result["why"][0]["sources"][0]
    assert source["line"].startswith("[D1:1] (3 May 2024, Friday) Ann: I moved")


@pytest.mark.parametrize("name", ["api_base", "cache", "guard", "timeout"])
def test_ask_refuses_model_settings_that_have_options_of_their_own(
    cli: RunCommand, program: Path, history: Path, name: str
) -> None:
    """The address of a server, for example, is given by --api-base."""
    options = ("--history", history, "--lm-set", f"{name}=1")

    code, _, err = cli("ask", program, "Where did Ann move to?", *options)

    assert code == 2
    assert err.startswith(f"mempiler: --lm-set {name}: ")


def test_published_program_is_asked_by_its_address(cli: RunCommand, tmp_path: Path) -> None:
    """The registry of MLflow keeps published programs.

    A program is published only with a score on dev questions (the gate). `cli-published` is its
    name, and `prod` an alias for the version.
    """
    gate = {
        "split": "dev",
        "score": 0.5,
        "n": 20,
        "stopped": None,
        "lm": "offline",
        "judge": None,
    }
    manifest = Manifest(method="", task="", scores={"gate": gate}, lms={"task": "offline"})
    save(build("turn-rag"), tmp_path / "program", manifest)
    history = tmp_path / "chat.json"
    history.write_text(json.dumps([{"role": "user", "content": "I moved to Lisbon."}]))
    address = "models:/cli-published@prod"

    code, out, _ = cli("publish", tmp_path / "program", address)
    _, answer, _ = cli("ask", address, "Where did I move?", "--history", history, "--json")

    assert code == 0
    assert f"version 1 of cli-published: {address}" in out
    assert "gate: dev 0.500 (n = 20, offline), nothing to compare with" in out
    assert f"mlflow models serve -m {address} --env-manager local" in out
    assert "Lisbon" in json.loads(answer)["answer"]


# --- list and --help ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("methods", "turn-rag"),
        ("benchmarks", "locomo"),
        ("optimizers", "bootstrap"),
        ("adapters", "chat"),
    ],
)
def test_list_has_every_kind_with_summaries(cli: RunCommand, kind: str, name: str) -> None:
    _, out, _ = cli("list", "--json")
    summaries = json.loads(out)[kind]

    assert name in summaries
    assert all(summaries.values())


def test_list_prints_every_name(cli: RunCommand) -> None:
    _, json_out, _ = cli("list", "--json")
    _, out, _ = cli("list")

    for summaries in json.loads(json_out).values():
        for name in summaries:
            assert name in out


def test_list_of_one_kind_has_no_other(cli: RunCommand) -> None:
    _, out, _ = cli("list", "weights", "--json")

    assert set(json.loads(out)) == {"weights"}


def test_list_has_the_settings_of_an_optimizer_and_of_its_teleprompter(cli: RunCommand) -> None:
    """A teleprompter is DSPy's optimizer, which does the work behind the optimizer of this name."""
    _, json_out, _ = cli("list", "optimizers", "gepa", "--json")
    _, out, _ = cli("list", "optimizers", "gepa")
    settings = json.loads(json_out)

    assert "max_metric_calls" in settings
    assert settings["reflection_minibatch_size"] == 3
    assert settings["use_merge"] is True
    assert settings["sampling_strategy"] is None
    assert "reflection_minibatch_size" in out


def test_list_refuses_a_name_of_another_kind(cli: RunCommand) -> None:
    code, _, _ = cli("list", "methods", "gepa")

    assert code == 2


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["memories", "rebuild"]])
def test_every_command_has_help(cli: RunCommand, words: list[str]) -> None:
    code, out, err = cli(*words, "--help")

    assert code == 0
    assert err == ""
    assert out.startswith(" ".join(["Usage: mempiler", *words]))


# --- evaluate --check -----------------------------------------------------------------------

ROW = {
    "user": "ann",
    "messages": [{"role": "user", "content": "I moved."}],
    "question": "What?",
    "answer": "moved",
}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON lines; return the path."""
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def check_command(path: Path) -> tuple[object, ...]:
    """Return the words of a command that checks a file of own questions."""
    return ("evaluate", "turn-rag", "--check", "--benchmark", "jsonl", "--data", path)


@pytest.mark.parametrize(
    ("rows", "expected_code", "expected_text"),
    [
        pytest.param([ROW], 0, "nothing wrong found", id="good"),
        pytest.param(
            [{**ROW, "evidence": ["D9:9"]}], 0, "0 errors, 1 remarks", id="unknown evidence"
        ),
        pytest.param(
            [ROW, {**ROW, "question": ""}], 1, "ERROR: line 2, field 'question'", id="no question"
        ),
        pytest.param([], 1, "cannot be used as it is", id="empty"),
    ],
)
def test_check_ends_with_code_one_if_the_file_cannot_be_used(
    cli: RunCommand,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    expected_code: int,
    expected_text: str,
) -> None:
    """`--check` reads a user's file of questions and scores nothing.

    Evidence that names an unknown turn is a remark and no error.
    """
    path = write_rows(tmp_path / "questions.jsonl", rows)

    code, out, _ = cli(*check_command(path))
    json_code, json_out, _ = cli(*check_command(path), "--json")

    assert code == expected_code
    assert json_code == expected_code
    assert expected_text in out
    assert json.loads(json_out)["ok"] == (expected_code == 0)


@pytest.mark.parametrize(("rows", "has_split"), [([ROW], True), ([], False)])
def test_check_prints_one_json_object(
    cli: RunCommand, tmp_path: Path, rows: list[dict[str, Any]], has_split: bool
) -> None:
    """The split of the questions into train, dev and test is there if there are questions."""
    path = write_rows(tmp_path / "questions.jsonl", rows)

    _, out, _ = cli(*check_command(path), "--json")

    fields = {
        "path",
        "benchmark",
        "counts",
        "findings",
        "ok",
        "kinds",
        "languages",
        "metric",
        "splitter_description",
        "advice",
    }
    if has_split:
        fields.add("split")
    assert set(json.loads(out)) == fields


def test_check_of_some_categories_reads_the_whole_file(cli: RunCommand) -> None:
    """The split says which questions are for training and which for the test.

    It is made of the chosen categories alone.
    """
    with sample("locomo.json") as path:
        command = ("evaluate", "turn-rag", "--check", "--benchmark", "locomo", "--data", path)
        _, out_for_all, _ = cli(*command, "--json")
        code, out_for_two, _ = cli(*command, "--categories", "1,2", "--json")
    all_categories = json.loads(out_for_all)
    two_categories = json.loads(out_for_two)

    assert code == 0
    assert two_categories["counts"] == all_categories["counts"]
    assert two_categories["split"] != all_categories["split"]


@pytest.fixture
def questions_in_two_languages(tmp_path: Path) -> Path:
    """A file with a question in English and one in German."""
    german_row = {**ROW, "question": "Wann hat Ada Klavierunterricht?", "answer": "am Dienstag"}
    return write_rows(tmp_path / "questions.jsonl", [ROW, german_row])


def test_check_names_languages_and_metric_and_advises_a_judge(
    cli: RunCommand, questions_in_two_languages: Path
) -> None:
    """Comparing words is unfair to German, whose words have many endings. So a judge is advised."""
    code, out, _ = cli(*check_command(questions_in_two_languages))
    lines = out.splitlines()
    metric_lines = [line for line in lines if line.startswith("metric: ")]
    advice_lines = [line for line in lines if line.startswith("advice: ")]

    assert code == 0
    assert "languages of the questions: English 1, German 1" in lines
    assert len(metric_lines) == 1
    assert "f1 (token F1); compares words between spaces" in metric_lines[0]
    assert len(advice_lines) == 1
    assert "German" in advice_lines[0]
    assert "--metric judge" in advice_lines[0]


def test_check_gives_no_advice_if_a_judge_is_chosen(
    cli: RunCommand, questions_in_two_languages: Path
) -> None:
    """One question is in German. Without a judge, the command would advise one."""
    code, out, _ = cli(*check_command(questions_in_two_languages), "--metric", "judge")

    assert code == 0
    assert "metric: judge (judged right)" in out.splitlines()
    assert "advice: " not in out


# --- evaluate judge -------------------------------------------------------------------------


@pytest.fixture
def check_judge(cli: RunCommand, stub: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A function that shows a judge labelled answers, and returns what the command prints.

    The gold answer is always "Rome". The label, `kind`, says whether an answer is right in truth.
    The judge calls every answer right but "It was Rome.". Its verdict on "What?" cannot be read,
    and the server refuses the call for "Too long.".
    """

    def judge(body: dict[str, Any]) -> str:
        prompt = str(body["messages"])
        if "What?" in prompt:
            return "no fields"
        verdict = "WRONG" if "It was Rome." in prompt else "CORRECT"
        return chat_fields(reasoning="So.", verdict=verdict)

    def refuse_long_answer(number: int, text: str) -> str | None:
        return "400" if "Too long." in text else None

    server = stub(refuse_long_answer, answer=judge)

    def run(kinds_by_answer: dict[str, str]) -> dict[str, Any]:
        rows = [
            {"question": "Where?", "gold_answer": "Rome", "answer": answer, "kind": kind}
            for answer, kind in kinds_by_answer.items()
        ]
        path = write_rows(tmp_path / "labelled.jsonl", rows)
        command = ("evaluate", "judge", "--benchmark", "judge-check", "--data", path, "--json")
        code, out, err = cli(*command, "--judge-lm", server.model, "--judge-api-base", server.url)
        assert code == 0, err
        return json.loads(out)

    return run


def test_check_of_a_judge_counts_what_it_accepts_by_kind_of_answer(
    check_judge: Callable[..., dict[str, Any]],
) -> None:
    """The judge calls every answer right but "It was Rome."."""
    result = check_judge(
        {
            "Rome": "right",
            "Roma": "right",
            "It was Rome.": "paraphrased-right",
            "A city.": "vague-wrong",
        }
    )

    assert result["judge_hash"] == judge_hash(JudgeAnswer)
    assert result["kinds"]["right"]["rate"] == 1.0
    assert result["kinds"]["paraphrased-right"]["rate"] == 0.0
    assert result["kinds"]["vague-wrong"]["rate"] == 1.0
    # There is no answer of this kind.
    assert result["kinds"]["specific-wrong"]["rate"] is None
    # Of all kinds of right answers together.
    assert result["right"]["accepted"] == 2
    assert result["right"]["n"] == 3


def test_check_of_a_judge_counts_verdicts_that_could_not_be_read(
    check_judge: Callable[..., dict[str, Any]],
) -> None:
    """The verdict on "What?" cannot be read, and the call for "Too long." is refused."""
    result = check_judge(
        {
            "A city.": "vague-wrong",
            "What?": "vague-wrong",
            "Too long.": "vague-wrong",
        }
    )

    vague = result["kinds"]["vague-wrong"]
    assert vague["n"] == 3
    assert vague["unreadable"] == 2
    # Of the verdicts that could be read.
    assert vague["rate"] == 1.0
    assert result["wrong"]["rate"] == 1.0


def test_check_of_the_offline_judge_is_called_a_smoke_test(cli: RunCommand) -> None:
    _, out, _ = cli("evaluate", "judge", "--benchmark", "judge-check")

    assert f"prompt {judge_hash(JudgeAnswer)[:12]}" in out
    assert "smoke test" in out
    for kind in ("right", "paraphrased-right", "vague-wrong", "specific-wrong", "all wrong"):
        assert kind in out


# --- progress -------------------------------------------------------------------------------


def test_prints_and_logs_of_optimizers_are_hidden(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """DSPy's optimizers print a lot while they work.

    Afterwards printing and logging are as before.
    """
    stdout_before = sys.stdout
    logger = logging.getLogger("dspy.teleprompt")

    with progress():
        print("Bootstrapped 4 full traces")
        logger.error("Failed to run or to evaluate an example")
    output = capsys.readouterr()

    assert output.out == ""
    assert output.err == ""
    assert caplog.records == []
    assert sys.stdout is stdout_before
    assert logger.isEnabledFor(logging.ERROR)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (None, "1,200 calls, $0.5000, 3 lost, 2 failed"),
        (
            Limits(max_usd=5, max_calls=2000),
            "1,200 of 2,000 calls, $0.5000 of $5, 3 lost, 2 failed",
        ),
    ],
)
def test_usage_is_shown_beside_its_limit(limits: Limits | None, expected: str) -> None:
    """Lost answers could not be read; failed calls had no answer."""
    usage = UsageReport(
        calls=Counter(task=1200),
        cost=0.5,
        failed=2,
        answers=Counter({("task.answer", "lost"): 3, ("task.answer", "ok"): 9}),
    )

    assert spending_line(usage, limits) == expected


def test_limit_is_shown_before_the_first_call() -> None:
    line = spending_line(UsageReport(), Limits(max_tokens=9000))

    assert line == "0 calls, 0 of 9,000 tokens"


def test_progress_in_a_file_is_a_line_for_the_running_phase_now_and_then() -> None:
    """A terminal shows a bar, and a file gets lines.

    Phases that are over, or have no count, get none.
    """
    output = io.StringIO()
    console = Console(file=output, width=80)

    with progress(console=console, seconds_between_lines=0.02) as (start_phase, _):
        start_phase("dev questions")(4, 4)
        start_phase("warming up")
        report = start_phase("test questions")
        report(1, 40)
        report(0, 40)  # a report that comes late does not count backwards
        assert within(20, lambda: "test questions" in output.getvalue())

    lines = [line.split() for line in output.getvalue().splitlines()]
    assert lines[0] == ["test", "questions", "1/40"]
    assert lines[1] == ["0", "calls"]


class RecordedProgress:
    """Records what a run reports: pairs of done and total, by phase."""

    def __init__(self) -> None:
        self.reports: dict[str, list[tuple[int, int]]] = {}

    def __call__(self, phase: str) -> Callable[[int, int], None]:
        """Begin a phase; return the function that its progress is reported to."""

        def report(done: int, total: int) -> None:
            self.reports.setdefault(phase, []).append((done, total))

        return report


def test_progress_counts_the_sessions_of_which_memories_are_written() -> None:
    """The method memory-r2 writes a memory of all sessions before the six questions are asked."""
    inputs = run_inputs(benchmark="locomo", test=6, embedder="offline", threads=2)
    histories = {example.history for example in inputs.split().test}
    num_sessions = sum(len(history.items) for history in histories)
    progress = RecordedProgress()

    run_evaluate("memory-r2", inputs, progress=progress)

    sessions = progress.reports["evaluating, sessions remembered"]
    assert sessions[0] == (0, num_sessions)
    assert sorted(sessions) == [(done, num_sessions) for done in range(num_sessions + 1)]
    assert max(progress.reports["evaluating"]) == (6, 6)


def test_progress_counts_the_questions_that_an_optimizer_has_asked() -> None:
    inputs = run_inputs(benchmark="locomo", train=8, dev=2, test=2, embedder="offline", threads=1)
    progress = RecordedProgress()

    run_compile("turn-rag", inputs, CompileConfig("bootstrap"), progress=progress)

    reports = progress.reports["compiling with bootstrap"]
    done_counts = [done for done, _ in reports]
    assert done_counts == sorted(done_counts)
    assert 0 < reports[-1][0] <= reports[-1][1]


# --- files of the user ----------------------------------------------------------------------

WRITES_A_FILE = {
    "export": ("memories", "export"),
    "compare": ("compare", "one", "two", "--page"),
}
"""Commands that write a file, without its name at the end."""
WRITES_A_FOLDER = {
    "compile": ("compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "labeled", "--out"),
    "export": ("export", "verifiers", "memory-r2", "--benchmark", "locomo", "--out"),
}
"""Commands that write a folder, without its name at the end."""


@pytest.fixture(scope="module")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with a memory of Ada, and with the runs `one` and `two`."""
    folder = tmp_path_factory.mktemp("home")
    history = folder / "chat.json"
    message = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
    history.write_text(json.dumps([message]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMPILER_HOME", str(folder))
        main(["memories", "add", str(history), "--user", "ada"])
        for name in ("one", "two"):
            options = ["--benchmark", "locomo", "--test", "2", "--split", "test"]
            main(["evaluate", "turn-rag", *options])
            new_runs = list(folder.glob("2*/run.json"))
            assert len(new_runs) == 1
            new_runs[0].parent.rename(folder / name)
    return folder


@pytest.fixture
def run(
    results_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: RunCommand
) -> RunCommand:
    """Runs a command with that results folder, in an empty current folder."""
    monkeypatch.setenv("MEMPILER_HOME", str(results_folder))
    monkeypatch.chdir(tmp_path)
    return cli


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_file_of_the_user_is_overwritten_by_force(
    run: RunCommand, command: tuple[str, ...]
) -> None:
    notes = Path("notes")
    notes.write_text("my notes on mempiler")

    code, _, _ = run(*command, "notes", "--force")

    assert code == 0
    assert notes.read_text() != "my notes on mempiler"
    # Temporary files are gone.
    assert list(Path().iterdir()) == [notes]


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_file_of_the_user_is_not_overwritten(run: RunCommand, command: tuple[str, ...]) -> None:
    notes = Path("notes")
    notes.write_text("my notes on mempiler")

    code, _, err = run(*command, "notes")

    assert code == 2
    assert notes.read_text() == "my notes on mempiler"
    assert "notes: is there already and was not written by Mempiler" in err
    assert "choose another name, or give --force" in err


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_file_that_the_command_has_written_is_overwritten(
    run: RunCommand, command: tuple[str, ...]
) -> None:
    run(*command, "notes")
    first_text = Path("notes").read_text()

    code, _, _ = run(*command, "notes")

    assert code == 0
    assert Path("notes").read_text() == first_text


@pytest.mark.parametrize(("name", "other"), [("export", "compare"), ("compare", "export")])
def test_file_that_another_command_has_written_is_not_overwritten(
    run: RunCommand, name: str, other: str
) -> None:
    """`memories export` writes JSON lines, and `compare --page` a page of HTML."""
    run(*WRITES_A_FILE[name], "notes")

    code, _, _ = run(*WRITES_A_FILE[other], "notes")

    assert code == 2


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_only_a_regular_file_is_ever_replaced(
    run: RunCommand, command: tuple[str, ...], tmp_path: Path
) -> None:
    """A link to a device is no regular file, and --force does not replace it."""
    device = tmp_path / "null"
    device.symlink_to("/dev/null")

    code, _, err = run(*command, "null", "--force")

    assert code == 2
    assert "was not written by Mempiler; choose another name" in err
    assert device.is_symlink()


@pytest.mark.parametrize("command", WRITES_A_FOLDER.values(), ids=WRITES_A_FOLDER)
def test_folder_of_the_user_is_left_alone(run: RunCommand, command: tuple[str, ...]) -> None:
    """A saved program, too, has files called manifest.json and state.json."""
    folder = Path("site")
    folder.mkdir()
    files = {"index.html": "my page", "manifest.json": "{}", "state.json": "{}"}
    for name, text in files.items():
        (folder / name).write_text(text)

    code, _, err = run(*command, "site")

    assert code == 2
    assert err.splitlines()[-1].startswith("mempiler: ")
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
