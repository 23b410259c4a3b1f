"""What `compare` and `show` print and refuse, and the exit codes they end with.

`compare` compares runs question by question. Its verdict says whether the second run is better or
worse than the first, with an interval of 95 percent, and p, the probability of such a difference by
chance. `show` looks into one run: its failures, its wrong answers, one question in full. Most runs
here are made by hand, and no model is asked.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mempiler import build, save
from mempiler.records import Failure
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import save_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.question_trace import Entry, QuestionTrace
from mempiler.runs.results import Evaluation

from ..command_line import RunCommand
from ..runs.evaluations import evaluation as make_evaluation
from ..runs.evaluations import row as make_row
from ..runs.pages.test_document import evaluation as make_traced_evaluation
from ..runs.pages.test_document import row as make_traced_row

SCOPE = "other questions about these conversations"
"""What a verdict speaks of. With six conversations or more it would be other conversations."""


@pytest.fixture
def run_command(cli: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs a command that prints lines of 160 characters."""
    monkeypatch.setenv("COLUMNS", "160")
    return cli


UNREACHABLE = Failure(kind="endpoint", where="", message="connection refused")
"""The failure of a question whose model could not be asked."""
UNREADABLE = Failure(kind="parse", where="", message="no JSON")
"""The failure of a question whose answer could not be read."""


def evaluation_of_scores(
    scores: Sequence[float | Failure], id_prefix: str = "q", failed_writes: int = 0
) -> Evaluation:
    """Return an evaluation with these scores of the questions q0, q1 and so on.

    Questions with even numbers are of the category "[multi]", those with odd ones of "temporal".

    Args:
        scores: The score of each question, or why it failed.
        id_prefix: The beginning of the ids of the questions.
        failed_writes: The number of memory updates that failed.
    """
    rows = []
    for number, score in enumerate(scores):
        failure = score if isinstance(score, Failure) else None
        row = make_row(
            f"{id_prefix}{number}",
            0.0 if isinstance(score, Failure) else score,
            category="2" if number % 2 else "1",
            question=f"What of [{number}]?",
            failure=failure,
        )
        rows.append(row)

    write_failures = []
    for number in range(failed_writes):
        where = f"ann, item D{number}, extract"
        write_failures.append(Failure(kind="parse", where=where, message="garbled"))
    return make_evaluation(
        rows,
        write_failures=failed_writes,
        failed_writes=tuple(write_failures),
        names={"1": "[multi]", "2": "temporal"},
    )


def save_run(command: str, evaluations: dict[str, Evaluation]) -> str:
    """Save a run with evaluations by phase, as a command leaves it; return its name.

    The command `evaluate` has the one phase "score". The command `compile` optimizes a program, and
    evaluates it in the phases "before" and "after".
    """
    folder = RunFolder.create(f"{command}-x", {"command": command})
    save_page(folder.path, run_page(command, folder.path.name, evaluations))
    folder.update(status="finished", parameters={"lm": "openai/x"})
    return folder.path.name


def save_evaluation(evaluation: Evaluation) -> str:
    """Save a finished evaluation; return the name of its run."""
    return save_run("evaluate", {"score": evaluation})


# --- compare --------------------------------------------------------------------------------


def save_scores(scores: Sequence[float], id_prefix: str = "q") -> str:
    """Save an evaluation with these scores of the questions q0, q1, ...; return its run's name."""
    return save_evaluation(evaluation_of_scores(scores, id_prefix))


# Scores of the same 24 questions. The first has twelve right answers: of q0, q2, q4 and so on.
HALF_RIGHT = [1.0, 0.0] * 12
SIX_MORE_RIGHT = [1.0, 0.0] * 6 + [1.0, 1.0] * 6
EIGHT_FEWER_RIGHT = [1.0, 0.0] * 4 + [0.0, 0.0] * 8


def test_compare_prints_the_difference_with_its_interval_and_verdict(
    run_command: RunCommand,
) -> None:
    """Six of 24 questions were gained: +0.25. By chance that has the probability 2 / 2^6 = .031."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)

    code, out, _ = run_command("compare", first, second)

    assert code == 0
    difference = "+0.250 [+0.083, +0.417], p = .031, n = 24"
    assert f"B against A: {difference}: better (scope: {SCOPE})\n" in out


def test_compare_prints_scores_by_category(run_command: RunCommand) -> None:
    """Questions with even numbers are of the category "[multi]", those with odd ones "temporal"."""
    first = save_scores([1.0, 0.0] * 12)
    second = save_scores([1.0, 1.0] * 12)

    _, out, _ = run_command("compare", first, second)

    cells_by_category: dict[str, list[str]] = {}
    for line in out.splitlines():
        if line.strip():
            category, *cells = line.split()
            cells_by_category[category] = cells
    # The number of questions, and the score of the first run.
    assert cells_by_category["[multi]"][:2] == ["12", "1.000"]
    assert cells_by_category["temporal"][:2] == ["12", "0.000"]


def test_compare_prints_the_cost_of_each_run(run_command: RunCommand) -> None:
    """Every evaluation that is made here says that it cost half a dollar."""
    first = save_scores([1.0, 0.0])
    second = save_scores([1.0, 1.0])

    _, out, _ = run_command("compare", first, second)

    assert out.count("$0.5000") == 2


def test_compare_compares_every_further_run_with_the_first(run_command: RunCommand) -> None:
    """Of 24 answers the second run has six more right ones than the first, the third eight less."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)
    third = save_scores(EIGHT_FEWER_RIGHT)

    _, out, _ = run_command("compare", first, second, third, "--json")
    comparisons = json.loads(out)["comparisons"]

    second_difference, third_difference = (each["overall"]["difference"] for each in comparisons)
    assert second_difference["mean"] == pytest.approx(6 / 24)
    assert second_difference["verdict"] == "better"
    assert third_difference["mean"] == pytest.approx(-8 / 24)
    assert third_difference["verdict"] == "worse"


def test_compare_describes_the_runs_as_json(run_command: RunCommand) -> None:
    """Every evaluation that is made here says that it cost half a dollar."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)

    _, out, _ = run_command("compare", first, second, "--json")
    result = json.loads(out)

    assert [run["run"] for run in result["runs"]] == [first, second]
    assert result["runs"][0]["cost"] == 0.5
    assert result["gate"] is None
    (comparison,) = result["comparisons"]
    assert comparison["overall"]["difference"]["scope"] == SCOPE


def test_compare_gives_no_verdict_on_too_few_questions(run_command: RunCommand) -> None:
    """By default a verdict needs 20 questions. The runs have q0 and q1 in common."""
    of_24_questions = save_scores([1.0] * 24)
    of_2_questions = save_scores([1.0, 0.0])

    _, out, _ = run_command("compare", of_24_questions, of_2_questions)

    assert f"p = 1, n = 2: too few to tell (scope: {SCOPE})\n" in out
    assert "compared on the 2 questions that all were asked, of 24 and 2" in out


def test_compare_gives_a_verdict_on_the_number_of_questions_that_the_user_wants(
    run_command: RunCommand,
) -> None:
    """By default a verdict needs 20 questions. The runs have two."""
    first = save_scores([1.0, 0.0])
    second = save_scores([0.0, 0.0])

    _, out, _ = run_command("compare", first, second, "--min-n", "2")

    assert ": not told apart (scope: " in out


GATE_CASES = [
    pytest.param(
        [HALF_RIGHT, SIX_MORE_RIGHT],
        [],
        0,
        "gate: nothing worse than",
        id="better",
    ),
    pytest.param(
        [HALF_RIGHT, EIGHT_FEWER_RIGHT],
        [],
        1,
        "worse (-0.333 [-0.542, -0.167], p = ",
        id="worse",
    ),
    pytest.param(
        [HALF_RIGHT, SIX_MORE_RIGHT, EIGHT_FEWER_RIGHT],
        [],
        1,
        "worse (",
        id="one of two is worse",
    ),
    pytest.param(
        [[1.0, 0.0], [0.0, 0.0]],
        [],
        1,
        "too few to tell (-0.500 [",
        id="two questions",
    ),
    pytest.param(
        [[1.0, 0.0], [0.0, 0.0]],
        ["--min-n", "2"],
        0,
        "gate: nothing worse than",
        id="two questions are enough",
    ),
]
"""The scores of the runs that are compared, options, the exit code, and words of the verdict."""


@pytest.mark.parametrize(
    ("scores_of_runs", "options", "expected_code", "expected_words"), GATE_CASES
)
def test_gate_ends_with_code_one_if_a_run_is_worse_or_has_too_few_questions(
    run_command: RunCommand,
    scores_of_runs: list[list[float]],
    options: list[str],
    expected_code: int,
    expected_words: str,
) -> None:
    """With --gate, a script can let the exit code decide whether a version may replace another."""
    runs = [save_scores(scores) for scores in scores_of_runs]

    code, out, _ = run_command("compare", *runs, "--gate", *options)

    assert code == expected_code
    last_line = out.splitlines()[-1]
    assert last_line.startswith("gate: ")
    assert expected_words in last_line


@pytest.mark.parametrize(
    ("second_scores", "expected_code"), [(SIX_MORE_RIGHT, 0), (EIGHT_FEWER_RIGHT, 1)]
)
def test_gate_has_the_same_exit_code_and_a_message_with_json(
    run_command: RunCommand, second_scores: list[float], expected_code: int
) -> None:
    """With --gate, a script can let the exit code decide whether a version may replace another."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(second_scores)

    code, out, _ = run_command("compare", first, second, "--gate", "--json")

    assert code == expected_code
    gate = json.loads(out)["gate"]
    assert gate["passed"] == (expected_code == 0)
    assert gate["scope"] == SCOPE
    assert f"; scope: {SCOPE})" in gate["message"]


def test_compare_refuses_runs_without_a_common_question(run_command: RunCommand) -> None:
    of_q0_and_q1 = save_scores([1.0, 1.0], id_prefix="q")
    of_p0_and_p1 = save_scores([1.0, 1.0], id_prefix="p")

    code, _, err = run_command("compare", of_q0_and_q1, of_p0_and_p1)

    assert code == 2
    assert "have no question in common" in err.splitlines()[-1]


def test_compiled_program_is_compared_with_the_original_one_on_the_same_questions(
    run_command: RunCommand, tmp_path: Path
) -> None:
    """A compile scores the program before and after.

    Here its start is evaluated once more, and the difference is the same. amb is a public benchmark
    harness, whose format can be exported.
    """
    options = ("--benchmark", "locomo", "--test", 6, "--json")
    compile_options = ("--optimizer", "labeled", "--dev", 2, "--force", *options)
    _, compile_out, _ = run_command("compile", "turn-rag", *compile_options)
    compilation = json.loads(compile_out)
    _, start_out, _ = run_command("evaluate", "turn-rag", "--split", "test", *options)
    start = json.loads(start_out)

    page = tmp_path / "both.html"
    amb_file = tmp_path / "amb.json"
    files = ("--page", page, "--export", "amb", amb_file)
    _, out, _ = run_command("compare", start["run_id"], compilation["run"], *files, "--json")
    comparison = json.loads(out)["comparisons"][0]

    assert comparison["shared"] == 6
    assert comparison["warnings"] == []
    assert comparison["overall"]["difference"] == compilation["difference"]
    assert len(json.loads(amb_file.read_text())["results"]) == start["n"]

    page_data = data_of_page(page)
    assert page_data["phases"] == ["A", "B"]
    assert len(page_data["questions"]) == 6
    for question in page_data["questions"]:
        for answer in question["shown"]:
            assert answer["calls"]
            assert answer["entries"]


def data_of_page(path: Path) -> dict[str, Any]:
    """Return the data that a page of a run draws."""
    html = path.read_text(encoding="utf-8")
    after_start = html.partition('<script type="application/json" id="data">')[2]
    return json.loads(after_start.partition("</script>")[0])


# --- show --failed --------------------------------------------------------------------------


def test_show_lists_failures_with_question_and_message(run_command: RunCommand) -> None:
    """The question q0 is right; of the other three, two could not be read."""
    scores = [1.0, UNREADABLE, UNREACHABLE, UNREADABLE]
    run = save_evaluation(evaluation_of_scores(scores))

    code, out, _ = run_command("show", run, "--failed")

    assert code == 0
    assert "3 of 4 questions\n" in out
    # The questions with the numbers 1 and 2.
    assert "  question: What of [1]?\n" in out
    assert "  answer: parse: no JSON\n" in out
    assert "  question: What of [2]?\n" in out
    assert "  answer: endpoint: connection refused\n" in out


def test_show_lists_failed_writes_before_the_failed_questions(run_command: RunCommand) -> None:
    """A write is an update of a memory by a session."""
    run = save_evaluation(evaluation_of_scores([1.0, UNREADABLE], failed_writes=2))

    _, out, _ = run_command("show", run, "--failed")

    assert out.splitlines()[:2] == [
        "score, writing ann, item D0, extract: parse: garbled",
        "score, writing ann, item D1, extract: parse: garbled",
    ]


def test_show_prints_failures_as_json(run_command: RunCommand) -> None:
    """The question q0 is right, and q1 and q2 failed. Two updates of a memory failed, too."""
    scores = [1.0, UNREADABLE, UNREACHABLE]
    run = save_evaluation(evaluation_of_scores(scores, failed_writes=2))

    _, out, _ = run_command("show", run, "--failed", "--json")
    result = json.loads(out)

    first, second = result["questions"]
    assert first["id"] == "q1"
    assert first["phases"]["score"]["failure"] == "parse: no JSON"
    assert second["id"] == "q2"
    places = [write["where"] for write in result["writes"]]
    assert places == ["ann, item D0, extract", "ann, item D1, extract"]


def test_show_lists_failures_of_a_compile_by_phase(run_command: RunCommand) -> None:
    """A compile optimizes a program, and asks it two questions before and after.

    Here the first question failed before, and the second one after.
    """
    before = evaluation_of_scores([UNREACHABLE, 1.0])
    after = evaluation_of_scores([1.0, UNREADABLE])
    run = save_run("compile", {"before": before, "after": after})

    _, out, _ = run_command("show", run, "--failed")

    # The other two answers, which were read, are the text "answer".
    assert out.splitlines()[:-2] == [
        "q0 ([multi]) 1.000: right",
        "  question: What of [0]?",
        "  gold: gold",
        "  answer before: endpoint: connection refused",
        "  answer after: answer",
        "q1 (temporal) 0.000: failed: no answer",
        "  question: What of [1]?",
        "  gold: gold",
        "  answer before: answer",
        "  answer after: parse: no JSON",
    ]


def test_show_counts_a_failure_once_if_compile_kept_the_original_program(
    run_command: RunCommand,
) -> None:
    """If compiling did not help, the original program is kept, and there is no phase "after"."""
    before = evaluation_of_scores([UNREACHABLE, 1.0])
    run = save_run("compile", {"before": before})

    _, out, _ = run_command("show", run, "--failed")

    assert "1 of 2 questions\n" in out


# --- show, --wrong and --question -----------------------------------------------------------


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A results folder without runs."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))


@pytest.fixture
def run_with_wrong_answer(empty_home: None) -> str:
    """The only run: an evaluation of q0, q1 and q2. The question q1 is answered "red", not "blue".

    Its text has characters that would turn a terminal red. Nothing of its evidence was recalled.
    """
    wrong_row = make_traced_row(
        1,
        "What \x1b[31mcolour?",
        0.0,
        category="2",
        recall={"shown": 0.0},
        answer="red",
        gold="blue",
    )
    evaluation = make_traced_evaluation(make_traced_row(0), wrong_row, make_traced_row(2))
    return save_evaluation(evaluation)


def test_show_says_how_many_answers_are_wrong_and_how_to_see_them(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """Without a name it shows the latest run, in which one of three answers is wrong."""
    code, out, _ = run_command("show")

    assert code == 0
    assert "turn-rag on locomo" in out
    assert f"mempiler show {run_with_wrong_answer} --wrong: the wrong answers (1)" in out
    assert "wrong: no gold evidence recalled" in out
    assert f"{run_with_wrong_answer}/report.html" in out


def test_show_counts_answers_that_could_not_be_read(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """The evaluation says that two answers of the predictor `task.answer` were lost."""
    _, out, _ = run_command("show", run_with_wrong_answer)

    assert "task.answer, score: 2 lost, 0 retried" in out


def test_show_lists_wrong_answers_with_what_went_wrong(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """The question q1 is answered "red" and not "blue"; none of its evidence was recalled."""
    _, out, _ = run_command("show", run_with_wrong_answer, "--wrong")

    assert out.splitlines() == [
        "q1 (2) 0.000: wrong: no gold evidence recalled",
        "  question: What \\u001b[31mcolour?",
        "  gold: blue",
        "  answer: red",
        "1 of 3 questions",
        f"mempiler show {run_with_wrong_answer} --question q1: one in full, with its prompts",
    ]


def test_show_prints_evidence_and_prompt_of_a_question(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """The evidence are the turns D1:1 and D4:2. The prompt is a short one, made for these tests."""
    _, out, _ = run_command("show", run_with_wrong_answer, "--question", "q1")

    assert "gold evidence that was not recalled:\n  [D4:2] Ann: Elsewhere." in out
    assert "* [D1:1] Ann: What \\u001b[31mcolour?" in out
    assert "prompt of task.answer (ok):\n--- user\nWhat?\n[D1:2] Bob: Yes.\n--- answer\nA" in out


@pytest.mark.parametrize("options", [["--wrong"], ["--question", "q1"]])
def test_control_characters_of_a_question_do_not_reach_the_terminal(
    run_command: RunCommand, run_with_wrong_answer: str, options: list[str]
) -> None:
    """The question q1 is "What \\x1b[31mcolour?", which would turn the text red."""
    _, out, _ = run_command("show", run_with_wrong_answer, *options)

    assert "colour?" in out
    assert "\x1b" not in out


@pytest.mark.usefixtures("empty_home")
def test_show_does_not_say_what_a_program_recalled_if_it_does_not_report_it(
    run_command: RunCommand,
) -> None:
    """The evidence is the turns that hold the answer, here D1:1 and D4:2.

    Only D1:1 stood in the prompts. Somebody's own program may not say what its memory recalled.
    """
    trace = QuestionTrace(
        evidence={"D1:1": "[D1:1] Ann: Here.", "D4:2": "[D4:2] Ann: Elsewhere."},
        in_prompts=("D1:1",),
    )
    row = make_traced_row(1, score=0.0, recall={"shown": 0.0}, sources=(), trace=trace)
    save_evaluation(make_traced_evaluation(row))

    _, list_of_wrong, _ = run_command("show", "last", "--wrong")
    _, question, _ = run_command("show", "last", "--question", "q1")

    assert "wrong; the program does not report which evidence it recalled" in list_of_wrong
    assert "gold evidence that stood in the prompts:\n  [D1:1] Ann: Here.\n" in question
    assert "does not report whether it recalled it:\n  [D4:2] Ann: Elsewhere.\n" in question
    assert "not recalled" not in question


@pytest.fixture
def run_with_fallback(empty_home: None) -> str:
    """A run with the questions q0 and q1. A search found nothing for q1.

    So the newest turn, D9:9, was shown to the model.
    """
    newest_turn = Entry(line="[D9:9] Ann: Good night.", kind="turn", sources=(), fallback=True)
    row = make_traced_row(1)
    assert row.trace is not None
    trace = row.trace.model_copy(update={"entries": (newest_turn,)})
    row_with_fallback = row.model_copy(update={"trace": trace})
    return save_evaluation(make_traced_evaluation(make_traced_row(0), row_with_fallback))


def test_show_marks_entries_that_were_not_found(
    run_command: RunCommand, run_with_fallback: str
) -> None:
    """A search found nothing for q1, so the newest turn, D9:9, was shown to the model."""
    _, out, _ = run_command("show", run_with_fallback, "--question", "q1")

    legend = "(* gold evidence, ~ shown because nothing was found)"
    assert f"recalled, 1 entries {legend}:\n~ [D9:9] Ann: Good night." in out


def test_show_explains_no_mark_that_is_not_used(
    run_command: RunCommand, run_with_fallback: str
) -> None:
    """For q0 something was found, so no entry has the mark `~`."""
    _, out, _ = run_command("show", run_with_fallback, "--question", "q0")

    assert "~" not in out


def test_show_prints_in_json_which_entries_were_not_found(
    run_command: RunCommand, run_with_fallback: str
) -> None:
    """A search found nothing for q1, so the newest turn was shown: it is a `fallback`."""
    _, out, _ = run_command("show", run_with_fallback, "--question", "q1", "--json")
    entries = json.loads(out)["phases"]["score"]["entries"]

    assert len(entries) == 1
    assert entries[0]["fallback"] is True


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--question", "q9"], "has no question 'q9'"),
        (["--question", "q"], "has 3 questions 'q'"),
        (["--category", "nine"], "category of"),
    ],
)
def test_show_refuses_a_question_that_the_run_does_not_have(
    run_command: RunCommand, run_with_wrong_answer: str, options: list[str], expected: str
) -> None:
    """The run has the questions q0, q1 and q2. The beginning of an id is enough if it is unique."""
    code, out, err = run_command("show", run_with_wrong_answer, *options)

    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert expected in err


# --- show --prompts -------------------------------------------------------------------------


def test_show_prints_the_prompts_of_a_program_as_plain_text(
    cli: RunCommand, tmp_path: Path
) -> None:
    save(build("turn-rag"), tmp_path / "program")

    code, out, _ = cli("show", tmp_path / "program", "--prompts")

    assert code == 0
    assert out.splitlines()[:2] == ["task.answer", "==========="]


def test_show_refuses_a_folder_without_a_program(cli: RunCommand, tmp_path: Path) -> None:
    code, _, _ = cli("show", tmp_path, "--prompts")

    assert code == 2


def test_show_refuses_to_print_prompts_of_an_evaluation(cli: RunCommand) -> None:
    options = ("--benchmark", "locomo", "--split", "test", "--test", "1", "--json")
    _, evaluate_out, _ = cli("evaluate", "turn-rag", *options)
    run = json.loads(evaluate_out)["run_id"]

    code, _, err = cli("show", run, "--prompts")

    assert code == 2
    assert "the run made no program whose prompts could be shown" in err
    assert err.count("\n") == 1


@pytest.fixture
def compile_folder() -> RunFolder:
    """The folder of a compile that saved its program in it."""
    folder = RunFolder.create("compile", {})
    save(build("turn-rag"), folder.program)
    return folder


@pytest.mark.parametrize("by_name", [True, False])
def test_show_prints_the_prompts_of_the_program_of_a_run(
    cli: RunCommand, compile_folder: RunFolder, by_name: bool
) -> None:
    run = compile_folder.path.name if by_name else compile_folder.path

    code, out, _ = cli("show", run, "--prompts")

    assert code == 0
    assert out.startswith("task.answer\n")


def test_show_prints_the_prompts_of_a_program_that_was_saved_elsewhere(
    cli: RunCommand, compile_folder: RunFolder, tmp_path: Path
) -> None:
    """The run names the folder of its program."""
    compile_folder.program.rename(tmp_path / "program")
    compile_folder.update(result={"program": str(tmp_path / "program")})

    code, out, _ = cli("show", compile_folder.path, "--prompts")

    assert code == 0
    assert out.startswith("task.answer\n")


def test_show_refuses_to_print_prompts_of_an_original_program_that_was_not_saved(
    cli: RunCommand, compile_folder: RunFolder, tmp_path: Path
) -> None:
    """The run kept its original program, which was named `turn-rag` and was no saved folder."""
    compile_folder.program.rename(tmp_path / "program")
    compile_folder.update(result={"program": "turn-rag"})

    code, _, _ = cli("show", compile_folder.path, "--prompts")

    assert code == 2
