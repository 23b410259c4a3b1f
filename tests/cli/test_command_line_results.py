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

from ..command_line import CommandLine, RunCommand, json_of, output_of, run_cli
from ..conftest import within
from ..run_inputs import run_inputs
from ..scripted_engine import chat_fields

EVALUATE = ("evaluate", "turn-rag", "--benchmark", "locomo", "--test", "6", "--split", "test")
"""A command that scores a method on six questions."""
COMPILE = (
    *("compile", "turn-rag"),
    *("--benchmark", "locomo"),
    *("--optimizer", "labeled"),
    *("--train", "12"),
    *("--dev", "4"),
    *("--test", "6"),
)
"""A command that compiles a program in a second."""
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
"""Fields of the JSON of every evaluation."""


def text_in_one_line(text: str) -> str:
    """Return a text without the line breaks that a narrow console puts into it."""
    return " ".join(text.split())


# --- evaluate and compile -------------------------------------------------------------------


def test_evaluate_prints_one_json_object(cli: RunCommand) -> None:
    evaluation = json_of(cli, *EVALUATE)

    assert set(evaluation) >= EVALUATION_FIELDS
    assert evaluation["program"] == "turn-rag"
    assert evaluation["benchmark"] == "locomo"
    assert evaluation["lm"] == "offline"
    assert set(evaluation["retrieval"]) == {"shown", "recall@5", "recall@20"}


def test_evaluate_counts_calls_by_role_and_questions_by_category(cli: RunCommand) -> None:
    """The task LM answers, the prompt LM proposes prompts, and the judge scores answers."""
    evaluation = json_of(cli, *EVALUATE)

    assert evaluation["calls"] == {"task": 6, "prompt": 0, "judge": 0, "cached": 0}
    assert sum(category["n"] for category in evaluation["by"].values()) == 6


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


def test_compile_prints_one_json_object(cli: RunCommand) -> None:
    """`before` and `after` are the evaluations of the program before and after the compile."""
    result = json_of(cli, *COMPILE)

    assert set(result) >= {"before", "after", "difference", "promoted", "program", "run_id"}
    assert set(result["before"]) >= EVALUATION_FIELDS
    assert set(result["after"]) >= EVALUATION_FIELDS
    assert set(result["difference"]) >= {"mean", "interval"}
    assert result["before"]["run_id"] == result["run_id"]


def test_compile_saves_the_program_in_the_folder_that_the_user_named(
    cli: RunCommand, tmp_path: Path
) -> None:
    folder = tmp_path / "out"

    result = json_of(cli, *COMPILE, "--out", folder)

    assert result["program"] == str(folder)
    assert load(folder).name == "turn-rag"


def test_compile_notes_that_a_verdict_needs_more_dev_questions(cli: RunCommand) -> None:
    """It needs 20 of them, and there are 4."""
    _, _, err = cli(*COMPILE)

    data_line, note = err.splitlines()
    assert "(12 train, 4 dev, 6 test questions)" in data_line
    assert note.startswith("note: dev: too small for a verdict: 4 questions count")


def test_the_first_line_says_what_the_scores_rest_on(cli: RunCommand) -> None:
    """It stands on standard error, so that standard output has only the result."""
    _, _, err = cli(*EVALUATE)

    (line,) = err.splitlines()
    assert "bundled sample" in line
    assert "(6 questions)" in line
    assert "LM: offline engine" in line
    assert "embedder: offline" in line
    assert "adapter: chat" in line
    assert "not comparable" in line


@pytest.mark.usefixtures("mlflow_tracking")
def test_the_result_of_the_offline_engine_is_called_a_smoke_test(cli: RunCommand) -> None:
    """The last lines say where MLflow shows the run."""
    output = output_of(cli, *EVALUATE)

    assert "smoke test, not comparable" in output
    assert "MLflow run" in output


@pytest.mark.parametrize(
    ("question", "embedder"),
    [
        ("我住在哪里？", "embedder: minilm (knows English alone; --embedder e5 knows"),
        ("Where do I live?", "embedder: minilm; adapter"),
    ],
    ids=["Chinese", "English"],
)
def test_the_first_line_warns_of_an_embedder_that_does_not_know_the_language(
    question: str, embedder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The embedder minilm was trained on English texts."""
    path = write_rows(tmp_path / "own.jsonl", [{**ROW, "question": question}])
    inputs = run_inputs("jsonl", data=str(path), embedder="minilm")

    announce(inputs, part="all")

    assert embedder in text_in_one_line(capsys.readouterr().err)


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
    main([*COMPILE, "--force", "--json", "--out", str(path)])
    return path


def test_a_hint_says_how_to_leave_out_the_questions_that_a_program_was_trained_on(
    cli: RunCommand, program: Path
) -> None:
    """Without --split, they are scored, too."""
    _, _, err = cli("evaluate", program, "--benchmark", "locomo", "--categories", "4")

    assert "--split test leaves its training questions out" in err


# --- ask and publish ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a session of Ann and Bob, of 3 May 2024.

    In the turn D1:1 Ann says "I moved to [b]Lisbon[/b] :smile:". The library Rich, which prints the
    output, would take these words for markup.
    """
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
    """Ann said "I moved to [b]Lisbon[/b] :smile:". What looks like markup is printed as it is."""
    output = output_of(cli, "ask", program, "Where did Ann move to?", "--history", history, "--why")

    answer, *reasons = output.splitlines()
    assert answer != ""
    assert any("[D1:1]" in line and "[b]Lisbon[/b] :smile:" in line for line in reasons)


def test_ask_prints_one_json_object(cli: RunCommand, program: Path, history: Path) -> None:
    """In the turn D1:1, of 3 May 2024, Ann says that she moved to Lisbon."""
    result = json_of(cli, "ask", program, "Where did Ann move to?", "--history", history)

    assert set(result) == {"answer", "lm", "why"}
    assert result["lm"] == "offline"
    first_reason = result["why"][0]
    assert first_reason["sources"][0]["line"].startswith("[D1:1] (3 May 2024, Friday) Ann: I moved")


@pytest.mark.parametrize("name", ["api_base", "cache", "guard", "timeout"])
def test_ask_refuses_model_settings_that_have_options_of_their_own(
    cli: RunCommand, program: Path, history: Path, name: str
) -> None:
    """The address of a server, for example, is given by --api-base."""
    options = ("--history", history, "--lm-set", f"{name}=1")

    code, _, err = cli("ask", program, "Where did Ann move to?", *options)

    assert code == 2
    assert err.startswith(f"mempiler: --lm-set {name}: ")


PUBLISHED = "models:/cli-published@prod"
"""The address of a program in the registry of MLflow: its name, and an alias of its version."""


@pytest.fixture(scope="module")
def publish_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `mempiler publish` printed of the program at the address `PUBLISHED`.

    A program is published only with a score on dev questions, which the gate looks at.
    """
    dev_score = {
        "split": "dev",
        "score": 0.5,
        "n": 20,
        "stopped": None,
        "lm": "offline",
        "judge": None,
    }
    manifest = Manifest(method="", task="", scores={"gate": dev_score}, lms={"task": "offline"})
    folder = tmp_path_factory.mktemp("published") / "program"
    save(build("turn-rag"), folder, manifest)
    return output_of(run_cli, "publish", folder, PUBLISHED)


def test_publish_prints_the_address_the_gate_and_how_to_serve_the_program(
    publish_output: str,
) -> None:
    assert f"version 1 of cli-published: {PUBLISHED}" in publish_output
    assert "gate: dev 0.500 (n = 20, offline), nothing to compare with" in publish_output
    assert f"mlflow models serve -m {PUBLISHED} --env-manager local" in publish_output


@pytest.mark.usefixtures("publish_output")
def test_a_published_program_is_asked_by_its_address(cli: RunCommand, history: Path) -> None:
    result = json_of(cli, "ask", PUBLISHED, "Where did Ann move to?", "--history", history)

    assert result["answer"].startswith("I moved to")


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
def test_list_has_a_summary_for_every_name(cli: RunCommand, kind: str, name: str) -> None:
    summaries = json_of(cli, "list")[kind]

    assert name in summaries
    assert all(summaries.values())


def test_list_prints_every_name_that_the_json_has(cli: RunCommand) -> None:
    output = output_of(cli, "list")

    for summaries in json_of(cli, "list").values():
        for name in summaries:
            assert name in output


def test_list_of_one_kind_has_no_other(cli: RunCommand) -> None:
    assert set(json_of(cli, "list", "weights")) == {"weights"}


def test_list_has_the_settings_of_an_optimizer_with_their_defaults(cli: RunCommand) -> None:
    """They are those of Mempiler's optimizer `gepa`, and those of DSPy's GEPA, which it runs."""
    settings = json_of(cli, "list", "optimizers", "gepa")

    assert "max_metric_calls" in settings
    assert settings["reflection_minibatch_size"] == 3
    assert settings["use_merge"] is True


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
    """Return the words of a command that checks a user's file of questions, and scores nothing."""
    return ("evaluate", "turn-rag", "--check", "--benchmark", "jsonl", "--data", path)


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        pytest.param(ROW, "nothing wrong found", id="right"),
        # A remark, since the question can be answered all the same.
        pytest.param({**ROW, "evidence": ["D9:9"]}, "0 errors, 1 remarks", id="unknown evidence"),
    ],
)
def test_check_ends_with_code_zero_if_the_file_can_be_used(
    cli: RunCommand, tmp_path: Path, row: dict[str, Any], finding: str
) -> None:
    path = write_rows(tmp_path / "questions.jsonl", [row])

    code, out, _ = cli(*check_command(path))

    assert code == 0
    assert finding in out


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        pytest.param(
            [ROW, {**ROW, "question": ""}], "ERROR: line 2, field 'question'", id="no question"
        ),
        pytest.param([], "cannot be used as it is", id="empty"),
    ],
)
def test_check_ends_with_code_one_if_the_file_cannot_be_used(
    cli: RunCommand, tmp_path: Path, rows: list[dict[str, Any]], finding: str
) -> None:
    path = write_rows(tmp_path / "questions.jsonl", rows)

    code, out, _ = cli(*check_command(path))

    assert code == 1
    assert finding in out


@pytest.mark.parametrize(("rows", "is_ok"), [([ROW], True), ([], False)], ids=["right", "empty"])
def test_check_says_in_json_whether_the_file_can_be_used(
    cli: RunCommand, tmp_path: Path, rows: list[dict[str, Any]], is_ok: bool
) -> None:
    path = write_rows(tmp_path / "questions.jsonl", rows)

    code, out, _ = cli(*check_command(path), "--json")

    assert json.loads(out)["ok"] is is_ok
    assert code == (0 if is_ok else 1)


def test_check_prints_one_json_object(cli: RunCommand, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "questions.jsonl", [ROW])

    assert set(json_of(cli, *check_command(path))) == {
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
        "split",
    }


def test_check_of_some_categories_reads_the_whole_file_and_splits_these_categories(
    cli: RunCommand,
) -> None:
    """The split says which questions are for training and which for the test."""
    with sample("locomo.json") as path:
        command = ("evaluate", "turn-rag", "--check", "--benchmark", "locomo", "--data", path)
        all_categories = json_of(cli, *command)
        two_categories = json_of(cli, *command, "--categories", "1,2")

    assert two_categories["counts"] == all_categories["counts"]
    assert two_categories["split"] != all_categories["split"]


@pytest.fixture
def questions_in_two_languages(tmp_path: Path) -> Path:
    """A file with a question in English and one in German."""
    german_row = {**ROW, "question": "Wann hat Ada Klavierunterricht?", "answer": "am Dienstag"}
    return write_rows(tmp_path / "questions.jsonl", [ROW, german_row])


def test_check_names_the_languages_of_the_questions(
    cli: RunCommand, questions_in_two_languages: Path
) -> None:
    output = output_of(cli, *check_command(questions_in_two_languages))

    assert "languages of the questions: English 1, German 1" in output.splitlines()


def test_check_advises_a_judge_if_comparing_words_is_unfair(
    cli: RunCommand, questions_in_two_languages: Path
) -> None:
    """One question is in German, whose words have many endings."""
    output = output_of(cli, *check_command(questions_in_two_languages))

    assert "metric: f1 (token F1); compares words between spaces" in output
    (advice,) = [line for line in output.splitlines() if line.startswith("advice: ")]
    assert "German" in advice
    assert "--metric judge" in advice


def test_check_gives_no_advice_if_a_judge_is_chosen(
    cli: RunCommand, questions_in_two_languages: Path
) -> None:
    """One question is in German. Without a judge, the command would advise one."""
    output = output_of(cli, *check_command(questions_in_two_languages), "--metric", "judge")

    assert "metric: judge (judged right)" in output.splitlines()
    assert "advice: " not in output


# --- evaluate judge -------------------------------------------------------------------------


@pytest.fixture
def check_judge(cli: RunCommand, stub: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A function that shows a judge labelled answers, and returns what the command prints.

    The gold answer is always "Rome". People have labelled each answer as right or wrong. The judge
    calls every answer right but "It was Rome.". Its verdict on "What?" cannot be read, and the
    server refuses the call for "Too long.".
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

    def run(labels_by_answer: dict[str, str]) -> dict[str, Any]:
        rows = [
            {"question": "Where?", "gold_answer": "Rome", "answer": answer, "kind": label}
            for answer, label in labels_by_answer.items()
        ]
        path = write_rows(tmp_path / "labelled.jsonl", rows)
        return json_of(
            cli,
            *("evaluate", "judge"),
            *("--benchmark", "judge-check"),
            *("--data", path),
            *("--judge-lm", server.model),
            *("--judge-api-base", server.url),
        )

    return run


def test_check_of_a_judge_counts_what_it_accepts_by_label(
    check_judge: Callable[..., dict[str, Any]],
) -> None:
    """The judge calls every answer right but "It was Rome."."""
    result = check_judge(
        {
            "Rome": "right",
            "It was Rome.": "paraphrased-right",
            "A city.": "vague-wrong",
        }
    )

    rates = {label: counts["rate"] for label, counts in result["kinds"].items()}
    assert rates == {
        "right": 1.0,
        "paraphrased-right": 0.0,
        "vague-wrong": 1.0,
        "specific-wrong": None,  # there is no such answer
    }


def test_check_of_a_judge_counts_what_it_accepts_of_all_right_and_of_all_wrong_answers(
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

    assert result["right"]["n"] == 3
    assert result["right"]["accepted"] == 2
    assert result["wrong"]["rate"] == 1.0


def test_check_of_a_judge_names_the_prompt_of_the_judge(
    check_judge: Callable[..., dict[str, Any]],
) -> None:
    assert check_judge({"Rome": "right"})["judge_hash"] == judge_hash(JudgeAnswer)


def test_check_of_a_judge_counts_verdicts_that_could_not_be_read(
    check_judge: Callable[..., dict[str, Any]],
) -> None:
    """The verdict on "What?" cannot be read, and the call for "Too long." is refused.

    The rate is that of the verdict which could be read.
    """
    result = check_judge(
        {
            "A city.": "vague-wrong",
            "What?": "vague-wrong",
            "Too long.": "vague-wrong",
        }
    )

    counts = result["kinds"]["vague-wrong"]
    assert counts["n"] == 3
    assert counts["unreadable"] == 2
    assert counts["rate"] == 1.0


def test_check_of_the_offline_judge_is_called_a_smoke_test(cli: RunCommand) -> None:
    output = output_of(cli, "evaluate", "judge", "--benchmark", "judge-check")

    assert "smoke test" in output
    for label in ("right", "paraphrased-right", "vague-wrong", "specific-wrong", "all wrong"):
        assert label in output


# --- progress -------------------------------------------------------------------------------


def test_prints_and_logs_of_optimizers_are_hidden(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """DSPy's optimizers print a lot while they work. Afterwards printing is as before."""
    stdout_before = sys.stdout

    with progress():
        print("Bootstrapped 4 full traces")
        logging.getLogger("dspy.teleprompt").error("Failed to run or to evaluate an example")

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == ""
    assert caplog.records == []
    assert sys.stdout is stdout_before


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        pytest.param(None, "1,200 calls, $0.5000, 3 lost, 2 failed", id="without limits"),
        pytest.param(
            Limits(max_usd=5, max_calls=2000),
            "1,200 of 2,000 calls, $0.5000 of $5, 3 lost, 2 failed",
            id="with limits",
        ),
    ],
)
def test_usage_is_shown_beside_its_limit(limits: Limits | None, line: str) -> None:
    """Lost answers could not be read; failed calls had no answer."""
    usage = UsageReport(
        calls=Counter(task=1200),
        cost=0.5,
        failed=2,
        answers=Counter({("task.answer", "lost"): 3, ("task.answer", "ok"): 9}),
    )

    assert spending_line(usage, limits) == line


def test_limit_is_shown_before_the_first_call() -> None:
    line = spending_line(UsageReport(), Limits(max_tokens=9000))

    assert line == "0 calls, 0 of 9,000 tokens"


def test_progress_in_a_file_is_a_line_for_the_running_phase_now_and_then() -> None:
    """A terminal shows a bar, and a file gets lines.

    A phase that is over gets none, nor one that does not count. A report that comes late, as
    `report(0, 40)` here, does not count backwards.
    """
    output = io.StringIO()
    console = Console(file=output, width=80)

    with progress(console=console, seconds_between_lines=0.02) as (start_phase, _):
        start_phase("dev questions")(4, 4)
        start_phase("warming up")
        report = start_phase("test questions")
        report(1, 40)
        report(0, 40)
        assert within(20, lambda: "test questions" in output.getvalue())

    first_line, second_line, *_ = [line.split() for line in output.getvalue().splitlines()]
    assert first_line == ["test", "questions", "1/40"]
    assert second_line == ["0", "calls"]


class RecordedProgress:
    """Records what a run reports: pairs of done and total, by phase."""

    def __init__(self) -> None:
        self.reports: dict[str, list[tuple[int, int]]] = {}

    def __call__(self, phase: str) -> Callable[[int, int], None]:
        """Begin a phase; return the function that its progress is reported to."""

        def report(done: int, total: int) -> None:
            self.reports.setdefault(phase, []).append((done, total))

        return report


def test_progress_counts_the_sessions_that_are_written_into_memories() -> None:
    """The method memory-r2 writes all sessions before the questions are asked."""
    inputs = run_inputs(benchmark="locomo", test=6, embedder="offline", threads=2)
    histories = {example.history for example in inputs.split().test}
    session_count = sum(len(history.items) for history in histories)
    progress = RecordedProgress()

    run_evaluate("memory-r2", inputs, progress=progress)

    reports = progress.reports["evaluating, sessions remembered"]
    assert reports[0] == (0, session_count)
    assert sorted(reports) == [(done, session_count) for done in range(session_count + 1)]


def test_progress_counts_the_questions_that_are_answered() -> None:
    inputs = run_inputs(benchmark="locomo", test=6, embedder="offline", threads=2)
    progress = RecordedProgress()

    run_evaluate("turn-rag", inputs, progress=progress)

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
            main([*EVALUATE])
            (new_run,) = folder.glob("2*/run.json")
            new_run.parent.rename(folder / name)
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
def test_a_file_of_the_user_is_overwritten_by_force(
    run: RunCommand, command: tuple[str, ...]
) -> None:
    notes = Path("notes")
    notes.write_text("my notes on mempiler")

    code, _, _ = run(*command, "notes", "--force")

    assert code == 0
    assert notes.read_text() != "my notes on mempiler"
    # No temporary file is left.
    assert list(Path().iterdir()) == [notes]


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_a_file_of_the_user_is_not_overwritten(run: RunCommand, command: tuple[str, ...]) -> None:
    notes = Path("notes")
    notes.write_text("my notes on mempiler")

    code, _, err = run(*command, "notes")

    assert code == 2
    assert notes.read_text() == "my notes on mempiler"
    assert "notes: is there already and was not written by Mempiler" in err
    assert "choose another name, or give --force" in err


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_a_file_that_the_same_command_has_written_is_overwritten(
    run: RunCommand, command: tuple[str, ...]
) -> None:
    run(*command, "out")
    first_text = Path("out").read_text()

    code, _, _ = run(*command, "out")

    assert code == 0
    assert Path("out").read_text() == first_text


@pytest.mark.parametrize(
    ("first_command", "second_command"), [("export", "compare"), ("compare", "export")]
)
def test_a_file_that_another_command_has_written_is_not_overwritten(
    run: RunCommand, first_command: str, second_command: str
) -> None:
    """`memories export` writes JSON lines, and `compare --page` a page of HTML."""
    run(*WRITES_A_FILE[first_command], "out")

    code, _, _ = run(*WRITES_A_FILE[second_command], "out")

    assert code == 2


@pytest.mark.parametrize("command", WRITES_A_FILE.values(), ids=WRITES_A_FILE)
def test_a_link_to_a_device_is_not_replaced_even_by_force(
    run: RunCommand, command: tuple[str, ...], tmp_path: Path
) -> None:
    device = tmp_path / "null"
    device.symlink_to("/dev/null")

    code, _, err = run(*command, "null", "--force")

    assert code == 2
    assert "was not written by Mempiler; choose another name" in err
    assert device.is_symlink()


@pytest.mark.parametrize("command", WRITES_A_FOLDER.values(), ids=WRITES_A_FOLDER)
def test_a_folder_of_the_user_is_left_alone(run: RunCommand, command: tuple[str, ...]) -> None:
    """Its files have the names of those of a saved program, but another content."""
    folder = Path("site")
    folder.mkdir()
    files = {"index.html": "my page", "manifest.json": "{}", "state.json": "{}"}
    for name, text in files.items():
        (folder / name).write_text(text)

    code, _, err = run(*command, "site")

    assert code == 2
    assert err.splitlines()[-1].startswith("mempiler: ")
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
