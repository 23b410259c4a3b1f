"""What `compare` and `show` print and refuse, and the exit codes they end with.

`compare` compares runs question by question. Its verdict says whether the second run is better or
worse than the first, with an interval of 95 percent, and p, the probability of such a difference by
chance. `show` looks into one run: its failures, its wrong answers, one question in full. Most runs
here are made by hand, and no model is asked.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
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

from ..command_line import RunCommand, json_of, output_of, run_cli
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

    output = output_of(run_command, "compare", first, second)

    difference = "+0.250 [+0.083, +0.417], p = .031, n = 24"
    assert f"B against A: {difference}: better (scope: {SCOPE})\n" in output


def table_cells(output: str) -> dict[str, list[str]]:
    """Return the cells of each line of a printed table, by the first word of the line."""
    cells_by_name: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.strip():
            name, *cells = line.split()
            cells_by_name[name] = cells
    return cells_by_name


def test_compare_prints_scores_by_category(run_command: RunCommand) -> None:
    """Questions with even numbers are of the category "[multi]", those with odd ones "temporal"."""
    first = save_scores([1.0, 0.0] * 12)
    second = save_scores([1.0, 1.0] * 12)

    output = output_of(run_command, "compare", first, second)

    question_count, score_of_first, *_ = table_cells(output)["temporal"]
    assert question_count == "12"
    assert score_of_first == "0.000"


def test_compare_prints_a_category_that_looks_like_markup(run_command: RunCommand) -> None:
    """Names in brackets are styles to Rich, the library that prints the tables."""
    first = save_scores([1.0, 0.0] * 12)

    output = output_of(run_command, "compare", first, first)

    assert "[multi]" in output


def test_compare_compares_every_further_run_with_the_first(run_command: RunCommand) -> None:
    """The second run has six more right answers than the first, and the third eight fewer."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)
    third = save_scores(EIGHT_FEWER_RIGHT)

    result = json_of(run_command, "compare", first, second, third)

    verdicts = []
    for comparison in result["comparisons"]:
        verdicts.append(comparison["overall"]["difference"]["verdict"])
    assert verdicts == ["better", "worse"]


def test_compare_describes_the_runs_as_json(run_command: RunCommand) -> None:
    """Every evaluation that is made here says that it cost half a dollar."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)

    result = json_of(run_command, "compare", first, second)

    assert [run["run"] for run in result["runs"]] == [first, second]
    assert [run["cost"] for run in result["runs"]] == [0.5, 0.5]
    assert result["gate"] is None


def test_compare_gives_no_verdict_on_two_questions(run_command: RunCommand) -> None:
    """By default a verdict needs 20 questions."""
    first = save_scores([1.0, 0.0])
    second = save_scores([0.0, 0.0])

    output = output_of(run_command, "compare", first, second)

    assert f"n = 2: too few to tell (scope: {SCOPE})\n" in output


def test_compare_says_how_many_questions_the_runs_have_in_common(run_command: RunCommand) -> None:
    of_24_questions = save_scores([1.0] * 24)
    of_2_questions = save_scores([1.0, 0.0])

    output = output_of(run_command, "compare", of_24_questions, of_2_questions)

    assert "compared on the 2 questions that all were asked, of 24 and 2" in output


def test_compare_gives_a_verdict_on_two_questions_if_the_user_wants_it(
    run_command: RunCommand,
) -> None:
    """By default a verdict needs 20 questions."""
    first = save_scores([1.0, 0.0])
    second = save_scores([0.0, 0.0])

    output = output_of(run_command, "compare", first, second, "--min-n", "2")

    assert ": not told apart (scope: " in output


def gate_line(output: str) -> str:
    """Return the last line of what `compare --gate` prints."""
    line = output.splitlines()[-1]
    assert line.startswith("gate: ")
    return line


def test_gate_ends_with_code_zero_if_the_second_run_is_better(run_command: RunCommand) -> None:
    """With --gate, a script can let the exit code decide whether a version may replace another."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)

    code, out, _ = run_command("compare", first, second, "--gate")

    assert code == 0
    assert gate_line(out).startswith("gate: nothing worse than")


def test_gate_ends_with_code_one_if_the_second_run_is_worse(run_command: RunCommand) -> None:
    """With --gate, a script can let the exit code decide whether a version may replace another."""
    first = save_scores(HALF_RIGHT)
    second = save_scores(EIGHT_FEWER_RIGHT)

    code, out, _ = run_command("compare", first, second, "--gate")

    assert code == 1
    assert "worse (-0.333 [-0.542, -0.167], p = " in gate_line(out)


def test_gate_ends_with_code_one_if_one_of_two_runs_is_worse_than_the_first(
    run_command: RunCommand,
) -> None:
    first = save_scores(HALF_RIGHT)
    second = save_scores(SIX_MORE_RIGHT)
    third = save_scores(EIGHT_FEWER_RIGHT)

    code, out, _ = run_command("compare", first, second, third, "--gate")

    assert code == 1
    assert "worse (" in gate_line(out)


def test_gate_ends_with_code_one_if_there_are_too_few_questions(run_command: RunCommand) -> None:
    """By default a verdict needs 20 questions."""
    first = save_scores([1.0, 0.0])
    second = save_scores([1.0, 1.0])

    code, out, _ = run_command("compare", first, second, "--gate")

    assert code == 1
    assert "too few to tell (+0.500 [" in gate_line(out)


def test_gate_decides_on_two_questions_if_the_user_wants_it(run_command: RunCommand) -> None:
    first = save_scores([1.0, 0.0])
    second = save_scores([1.0, 1.0])

    code, out, _ = run_command("compare", first, second, "--gate", "--min-n", "2")

    assert code == 0
    assert gate_line(out).startswith("gate: nothing worse than")


@pytest.mark.parametrize(
    ("second_scores", "is_passed"), [(SIX_MORE_RIGHT, True), (EIGHT_FEWER_RIGHT, False)]
)
def test_gate_has_the_same_exit_code_and_a_message_with_json(
    run_command: RunCommand, second_scores: list[float], is_passed: bool
) -> None:
    first = save_scores(HALF_RIGHT)
    second = save_scores(second_scores)

    code, out, _ = run_command("compare", first, second, "--gate", "--json")

    assert code == (0 if is_passed else 1)
    gate = json.loads(out)["gate"]
    assert gate["passed"] is is_passed
    assert f"; scope: {SCOPE})" in gate["message"]


def test_compare_refuses_runs_without_a_common_question(run_command: RunCommand) -> None:
    of_q0_and_q1 = save_scores([1.0, 1.0], id_prefix="q")
    of_p0_and_p1 = save_scores([1.0, 1.0], id_prefix="p")

    code, _, err = run_command("compare", of_q0_and_q1, of_p0_and_p1)

    assert code == 2
    assert "have no question in common" in err.splitlines()[-1]


@dataclass(frozen=True)
class StartAndCompile:
    """A program was evaluated on six questions, and compiled and scored on the same ones."""

    start: dict[str, Any]
    """What `mempiler evaluate` printed of the program."""
    compilation: dict[str, Any]
    """What `mempiler compile` printed."""


@pytest.fixture(scope="module")
def start_and_compile() -> StartAndCompile:
    """The results of both commands."""
    options = ("--benchmark", "locomo", "--test", "6")
    start = json_of(run_cli, "evaluate", "turn-rag", "--split", "test", *options)
    compilation = json_of(
        run_cli,
        *("compile", "turn-rag"),
        *("--optimizer", "labeled"),
        *("--dev", "2"),
        "--force",
        *options,
    )
    return StartAndCompile(start, compilation)


def test_comparing_a_compile_with_its_start_gives_the_difference_of_the_compile(
    run_command: RunCommand, start_and_compile: StartAndCompile
) -> None:
    """A compile scores the program before and after, on the same questions."""
    start_run = start_and_compile.start["run_id"]
    compile_run = start_and_compile.compilation["run"]

    (comparison,) = json_of(run_command, "compare", start_run, compile_run)["comparisons"]

    assert comparison["shared"] == 6
    assert comparison["warnings"] == []
    assert comparison["overall"]["difference"] == start_and_compile.compilation["difference"]


def test_compare_exports_the_first_run_in_the_format_of_a_public_harness(
    run_command: RunCommand, start_and_compile: StartAndCompile, tmp_path: Path
) -> None:
    """The harness, in which others evaluate their memory systems, is called amb."""
    start_run = start_and_compile.start["run_id"]
    compile_run = start_and_compile.compilation["run"]
    amb_file = tmp_path / "amb.json"

    output_of(run_command, "compare", start_run, compile_run, "--export", "amb", amb_file)

    assert len(json.loads(amb_file.read_text())["results"]) == start_and_compile.start["n"]


def test_the_page_of_a_comparison_has_calls_and_recalled_entries_of_every_answer(
    run_command: RunCommand, start_and_compile: StartAndCompile, tmp_path: Path
) -> None:
    start_run = start_and_compile.start["run_id"]
    compile_run = start_and_compile.compilation["run"]
    page = tmp_path / "both.html"

    output_of(run_command, "compare", start_run, compile_run, "--page", page)

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
    """The answer to question 0 is right, that to 1 could not be read, and 2 could not be asked."""
    run = save_evaluation(evaluation_of_scores([1.0, UNREADABLE, UNREACHABLE]))

    output = output_of(run_command, "show", run, "--failed")

    assert "  question: What of [1]?\n" in output
    assert "  answer: parse: no JSON\n" in output
    assert "  question: What of [2]?\n" in output
    assert "  answer: endpoint: connection refused\n" in output
    assert "2 of 3 questions\n" in output


def test_show_lists_failed_writes_before_the_failed_questions(run_command: RunCommand) -> None:
    """A write updates the memory of a user, here of Ann, with a session, such as D0."""
    run = save_evaluation(evaluation_of_scores([1.0, UNREADABLE], failed_writes=2))

    output = output_of(run_command, "show", run, "--failed")

    assert output.splitlines()[:2] == [
        "score, writing ann, item D0, extract: parse: garbled",
        "score, writing ann, item D1, extract: parse: garbled",
    ]


def test_show_prints_failures_as_json(run_command: RunCommand) -> None:
    """Two questions failed, and one update of Ann's memory with session D0."""
    scores = [1.0, UNREADABLE, UNREACHABLE]
    run = save_evaluation(evaluation_of_scores(scores, failed_writes=1))

    result = json_of(run_command, "show", run, "--failed")

    failures = {}
    for question in result["questions"]:
        failures[question["id"]] = question["phases"]["score"]["failure"]
    assert failures == {"q1": "parse: no JSON", "q2": "endpoint: connection refused"}
    assert [write["where"] for write in result["writes"]] == ["ann, item D0, extract"]


def test_show_lists_failures_of_a_compile_by_phase(run_command: RunCommand) -> None:
    """A compile optimizes a program, and asks it two questions before and after.

    Question 0 failed before, and question 1 after. The other two answers are the text "answer".
    """
    before = evaluation_of_scores([UNREACHABLE, 1.0])
    after = evaluation_of_scores([1.0, UNREADABLE])
    run = save_run("compile", {"before": before, "after": after})

    output = output_of(run_command, "show", run, "--failed")

    assert output.splitlines()[:10] == [
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
    """Then there is no phase "after"."""
    before = evaluation_of_scores([UNREACHABLE, 1.0])
    run = save_run("compile", {"before": before})

    output = output_of(run_command, "show", run, "--failed")

    assert "1 of 2 questions\n" in output


# --- show, --wrong and --question -----------------------------------------------------------


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A results folder without runs."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))


@pytest.fixture
def run_with_wrong_answer(empty_home: None) -> str:
    """The only run: an evaluation of q0, q1 and q2, in which q1 is answered "red", not "blue".

    Nothing of its evidence was recalled. The text of q1, "What \\x1b[31mcolour?", would turn a
    terminal red.
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


def test_show_without_a_name_shows_the_latest_run(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """One of its three answers is wrong."""
    output = output_of(run_command, "show")

    assert "turn-rag on locomo" in output
    assert f"{run_with_wrong_answer}/report.html" in output
    assert f"mempiler show {run_with_wrong_answer} --wrong: the wrong answers (1)" in output


def test_show_counts_answers_that_could_not_be_read(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """The evaluation says that two answers of the predictor `task.answer` were lost."""
    output = output_of(run_command, "show", run_with_wrong_answer)

    assert "task.answer, score: 2 lost, 0 retried" in output


def test_show_lists_wrong_answers_with_what_went_wrong(
    run_command: RunCommand, run_with_wrong_answer: str
) -> None:
    """The question q1 is answered "red" and not "blue". None of its evidence was recalled."""
    output = output_of(run_command, "show", run_with_wrong_answer, "--wrong")

    assert output.splitlines() == [
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
    """The evidence are the turns D1:1, which was recalled, and D4:2, which was not.

    The prompt is a short one, made for these tests. The model answered "A".
    """
    output = output_of(run_command, "show", run_with_wrong_answer, "--question", "q1")

    assert "* [D1:1] Ann: " in output
    assert "gold evidence that was not recalled:\n  [D4:2] Ann: Elsewhere." in output
    prompt = "--- user\nWhat?\n[D1:2] Bob: Yes.\n--- answer\nA"
    assert f"prompt of task.answer (ok):\n{prompt}" in output


@pytest.mark.parametrize("options", [["--wrong"], ["--question", "q1"]])
def test_control_characters_of_a_question_do_not_reach_the_terminal(
    run_command: RunCommand, run_with_wrong_answer: str, options: list[str]
) -> None:
    """The question q1 is "What \\x1b[31mcolour?", which would turn the text red."""
    output = output_of(run_command, "show", run_with_wrong_answer, *options)

    assert "colour?" in output
    assert "\x1b" not in output


@pytest.fixture
def run_without_sources(empty_home: None) -> str:
    """The only run: somebody's own program, which does not say what its memory recalled.

    The evidence of question q1 is the turns D1:1 and D4:2. Only D1:1 stood in a prompt.
    """
    trace = QuestionTrace(
        evidence={"D1:1": "[D1:1] Ann: Here.", "D4:2": "[D4:2] Ann: Elsewhere."},
        in_prompts=("D1:1",),
    )
    row = make_traced_row(1, score=0.0, recall={"shown": 0.0}, sources=(), trace=trace)
    return save_evaluation(make_traced_evaluation(row))


def test_show_says_that_a_program_does_not_report_what_it_recalled(
    run_command: RunCommand, run_without_sources: str
) -> None:
    output = output_of(run_command, "show", run_without_sources, "--wrong")

    assert "wrong; the program does not report which evidence it recalled" in output


def test_show_says_which_evidence_stood_in_prompts_if_nobody_knows_what_was_recalled(
    run_command: RunCommand, run_without_sources: str
) -> None:
    """The evidence D1:1 stood in a prompt, and D4:2 did not."""
    output = output_of(run_command, "show", run_without_sources, "--question", "q1")

    assert "gold evidence that stood in the prompts:\n  [D1:1] Ann: Here.\n" in output
    assert "does not report whether it recalled it:\n  [D4:2] Ann: Elsewhere.\n" in output
    assert "not recalled" not in output


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


def test_show_marks_entries_that_no_search_found(
    run_command: RunCommand, run_with_fallback: str
) -> None:
    """A search found nothing for q1, so the newest turn, D9:9, was shown to the model."""
    output = output_of(run_command, "show", run_with_fallback, "--question", "q1")

    legend = "(* gold evidence, ~ shown because nothing was found)"
    assert f"recalled, 1 entries {legend}:\n~ [D9:9] Ann: Good night." in output


def test_show_prints_in_json_which_entries_no_search_found(
    run_command: RunCommand, run_with_fallback: str
) -> None:
    """A search found nothing for q1, so the newest turn was shown: it is a `fallback`."""
    question = json_of(run_command, "show", run_with_fallback, "--question", "q1")

    (entry,) = question["phases"]["score"]["entries"]
    assert entry["fallback"] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--question", "q9"], "has no question 'q9'", id="unknown id"),
        pytest.param(["--question", "q"], "has 3 questions 'q'", id="beginning of three ids"),
        pytest.param(["--category", "nine"], "category of", id="unknown category"),
    ],
)
def test_show_refuses_a_question_that_the_run_does_not_have(
    run_command: RunCommand, run_with_wrong_answer: str, options: list[str], message: str
) -> None:
    """The run has the questions q0, q1 and q2."""
    code, out, err = run_command("show", run_with_wrong_answer, *options)

    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


# --- show --prompts -------------------------------------------------------------------------


def test_show_prints_the_prompts_of_a_program_as_plain_text(
    cli: RunCommand, tmp_path: Path
) -> None:
    save(build("turn-rag"), tmp_path / "program")

    output = output_of(cli, "show", tmp_path / "program", "--prompts")

    assert output.splitlines()[:2] == ["task.answer", "==========="]


def test_show_refuses_to_print_the_prompts_of_a_folder_without_a_program(
    cli: RunCommand, tmp_path: Path
) -> None:
    code, _, _ = cli("show", tmp_path, "--prompts")

    assert code == 2


def test_show_refuses_to_print_the_prompts_of_an_evaluation(cli: RunCommand) -> None:
    """It makes no program. Only a compile does."""
    options = ("--benchmark", "locomo", "--split", "test", "--test", "1")
    run = json_of(cli, "evaluate", "turn-rag", *options)["run_id"]

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


def test_show_prints_the_prompts_of_the_program_of_a_compile(
    cli: RunCommand, compile_folder: RunFolder
) -> None:
    """A run is given by its name or by its folder."""
    by_name = output_of(cli, "show", compile_folder.path.name, "--prompts")
    by_folder = output_of(cli, "show", compile_folder.path, "--prompts")

    assert by_name.startswith("task.answer\n")
    assert by_folder == by_name


def test_show_prints_the_prompts_of_a_program_that_was_saved_elsewhere(
    cli: RunCommand, compile_folder: RunFolder, tmp_path: Path
) -> None:
    """The record of the run names the folder of its program."""
    compile_folder.program.rename(tmp_path / "program")
    compile_folder.update(result={"program": str(tmp_path / "program")})

    output = output_of(cli, "show", compile_folder.path, "--prompts")

    assert output.startswith("task.answer\n")


def test_show_refuses_to_print_the_prompts_of_a_program_that_was_not_saved(
    cli: RunCommand, compile_folder: RunFolder, tmp_path: Path
) -> None:
    """The run kept its original program, the method `turn-rag`, which is in no folder."""
    compile_folder.program.rename(tmp_path / "program")
    compile_folder.update(result={"program": "turn-rag"})

    code, _, _ = cli("show", compile_folder.path, "--prompts")

    assert code == 2
