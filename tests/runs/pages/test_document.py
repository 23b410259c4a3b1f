"""The page of a run and its lines in the terminal: every question is shown, whatever its text.

The page is an HTML file without a server. It shows for every question its answer, what was recalled
for it (its entries), and the prompt. The gold evidence are the turns that hold the answer.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.usage import Usage
from mempiler.programs.call_recorder import Completion, PredictorCall
from mempiler.programs.state import PredictorState
from mempiler.records import Failure
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.facts import SMOKE_TEST, usage_facts
from mempiler.runs.pages.html import json_for_script, render_page, save_page
from mempiler.runs.pages.page import Page, open_page, prompt_changes, run_page
from mempiler.runs.pages.text import page_lines
from mempiler.runs.question_trace import (
    MAX_PROMPT_LENGTH,
    Clock,
    Entry,
    LMCall,
    QuestionTrace,
    make_question_trace,
)
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row
from rich.console import Console

from ..evaluations import evaluation as plain_evaluation
from ..evaluations import row as plain_row

HOSTILE = {
    "an element": "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>",
    "the end of the data": "</script><script>document.title = 'broken'</script><!--<script>",
    "100,000 characters": "long " * 20_000,
    "right to left": "\u202eabc\u202c שלום עולם",
    "half a character": "cut \ud83d here \ude00",
    "line ends of scripts": "one\u2028two\u2029three\x00four",
    "a template": "{{ 7 * 7 }}{% raw %}",
}
"""Texts that models and users may write, by what may go wrong with them."""

RECALL_UNREPORTED = QuestionTrace(
    evidence={"D1:1": "[D1:1] Ann: Where?", "D4:2": "[D4:2] Ann: There."}, in_prompts=("D1:1",)
)
"""The trace of a program that does not report what it recalled.

Of the evidence D1:1 and D4:2, only D1:1 stood in its prompts.
"""


def row(number: int = 0, text: str = "Where?", score: float = 1.0, **changes: Any) -> Row:
    """Return a question with its trace: of the evidence D1:1 and D4:2, only D1:1 was recalled.

    `text` is the question, the answer, and a part of the evidence; `changes` gives other fields.
    """
    line = f"[D1:1] Ann: {text}"[:600]
    call = LMCall(
        predictor="task.answer",
        outcome="ok",
        messages=(("user", "What?\n[D1:2] Bob: Yes."),),
        answer="A",
    )
    trace = QuestionTrace(
        entries=(
            Entry(line=line, kind="turn", sources=("D1:1",)),
            Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",)),
        ),
        evidence={"D1:1": line, "D4:2": "[D4:2] Ann: Elsewhere."},
        calls=(call,),
    )
    fields: dict[str, Any] = {
        "category": "1",
        "question": text,
        "gold": text,
        "answer": text,
        "recall": {"shown": 0.5},
        "sources": ("D1:1", "D1:2"),
        "trace": trace,
    }
    return plain_row(f"q{number}", score, **{**fields, **changes})


def evaluation(*rows: Row, **changes: Any) -> Evaluation:
    """Return an evaluation that lost two of twelve answers."""
    outcomes = {"task.answer": {"ok": 10, "lost": 2}}
    return plain_evaluation(rows, **{"call_outcomes": outcomes, **changes})


def page_html(*rows: Row) -> str:
    """Return the HTML of the page of an evaluation."""
    return render_page(run_page("evaluate", "run", {"score": evaluation(*rows)}))


EVIDENCE_IN_PROMPTS = RECALL_UNREPORTED.model_copy(update={"in_prompts": ("D1:1", "D4:2")})
"""The same, but both pieces of evidence stood in its prompts."""


@pytest.mark.parametrize("score", [1.0, 0.5])
def test_an_answer_with_at_least_half_of_the_score_counts_as_right(score: float) -> None:
    question = row(score=score)

    assert question.right
    assert question.reason == "right"


@pytest.mark.parametrize(
    ("recall", "extent", "reason"),
    [
        pytest.param({"shown": 0.0}, "none", "missed", id="no evidence in the prompt"),
        pytest.param({"shown": 0.5}, "part", "part", id="half of the evidence in the prompt"),
        pytest.param({"shown": 1.0}, "all", "read", id="all evidence in the prompt"),
        pytest.param({"recall@20": 1.0}, "all", "read", id="all evidence among 20 hits"),
        pytest.param({}, "", "wrong", id="a question without evidence"),
    ],
)
def test_the_reason_of_a_wrong_answer_says_how_much_of_the_evidence_was_recalled(
    recall: dict[str, float], extent: str, reason: str
) -> None:
    """The evidence of a question is the turns that hold its answer.

    "read" means that the model was shown all of them, and answered wrongly all the same.
    """
    question = row(score=0.49, recall=recall)

    assert not question.right
    assert question.recall_extent == extent
    assert question.reason == reason


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        pytest.param(RECALL_UNREPORTED, "unknown", id="some evidence in the prompts"),
        pytest.param(EVIDENCE_IN_PROMPTS, "prompted", id="all evidence in the prompts"),
    ],
)
def test_the_reason_of_a_wrong_answer_rests_on_the_prompts_if_no_recall_is_reported(
    trace: QuestionTrace, reason: str
) -> None:
    """A user's own program need not report what it recalled."""
    question = row(score=0.0, trace=trace)

    assert question.reason == reason
    assert question.recall_extent == ""


def test_the_reason_of_a_question_that_failed_is_the_failure() -> None:
    failed = row(score=0.0, failure=Failure(kind="parse", where="x", message="y"))

    assert failed.reason == "failed"
    assert not failed.right


class Shown:
    """What the script of a page reads about the questions of an evaluation."""

    def __init__(self, *rows: Row) -> None:
        html = page_html(*rows)
        _, _, after_start_tag = html.partition('<script type="application/json" id="data">')
        data, _, _ = after_start_tag.partition("</script>")
        self._data = json.loads(data)

    @property
    def lines(self) -> list[str]:
        """All lines of prompts and entries; other parts name them by their numbers."""
        return self._data["lines"]

    def entries(self, question: int = 0) -> list[dict[str, Any]]:
        """Return the recalled entries of a question, with the numbers of their lines."""
        return self._phase(question)["entries"]

    def recalled_evidence(self, question: int = 0) -> list[str]:
        """Return the ids of the evidence that was recalled."""
        return self._phase(question)["found"]

    def _phase(self, question: int) -> dict[str, Any]:
        # A page of an evaluation has one phase; that of a compile has one before and one after.
        (phase,) = self._data["questions"][question]["shown"]
        return phase


def test_an_entry_that_was_recalled_for_two_questions_is_in_the_page_once() -> None:
    """A page may have thousands of questions. So it holds every line once, in a list."""
    entry = Entry(line="[D1:1] Ann: Where?", kind="turn", sources=("D1:1",))
    trace = QuestionTrace(entries=(entry,))

    shown = Shown(plain_row("q0", trace=trace), plain_row("q1", trace=trace))

    assert shown.lines.count("[D1:1] Ann: Where?") == 1
    (first_entry,) = shown.entries(question=0)
    (second_entry,) = shown.entries(question=1)
    assert shown.lines[first_entry["line"]] == "[D1:1] Ann: Where?"
    assert second_entry == first_entry


def test_recalled_evidence_is_marked() -> None:
    """Of the evidence D1:1 and D4:2, only D1:1 was recalled, and D1:2 beside it."""
    trace = QuestionTrace(
        entries=(
            Entry(line="[D1:1] Ann: Where?", kind="turn", sources=("D1:1",)),
            Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",)),
        ),
        evidence={"D1:1": "[D1:1] Ann: Where?", "D4:2": "[D4:2] Ann: Elsewhere."},
    )

    shown = Shown(plain_row(trace=trace))

    assert [entry["gold"] for entry in shown.entries()] == [True, False]
    assert shown.recalled_evidence() == ["D1:1"]


def test_a_changed_prompt_is_shown_as_a_diff() -> None:
    """Of two prompts of a program, the second one stays as it is."""
    short = PredictorState(instructions="Answer.\nShort.", fields=[], demos=[])
    long = PredictorState(
        instructions="Answer.\nLong.", fields=[], demos=[], config={"temperature": 0.5}
    )

    changed, unchanged = prompt_changes(
        before={"first": short, "second": short}, after={"first": long, "second": short}
    )

    marked_lines = [line for line in changed.diff if line.startswith(("+", "-"))]
    assert marked_lines == ["-Short.", "+Long.", "+", "+Settings: temperature = 0.5"]
    assert changed.changed is True
    assert unchanged.changed is False
    assert " Answer." in unchanged.diff
    assert " Short." in unchanged.diff


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_cannot_add_a_script_to_a_page_or_fill_it(text: str, tmp_path: Path) -> None:
    """The text is the question, the answer, the category, a fact and a note of the page.

    Some texts are scripts, and one has 100,000 characters.
    """
    # A category is a name in the settings of the data, which has to be valid text.
    category = text[:80].encode("utf-8", "replace").decode()
    scored = evaluation(row(text=text, answer=text, category=category))
    page = run_page(
        "evaluate", "run", {"score": scored}, facts=[("Said", text[:200])], notes=[text[:200]]
    )

    file = save_page(tmp_path, page)

    assert file is not None
    html = file.read_text(encoding="utf-8")
    # The page itself has two scripts: its data and its code.
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert "onerror=alert(1)>" not in html
    assert len(html) < 150_000
    assert open_page(RunFolder(tmp_path)).name == "run"


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_any_text_can_be_embedded_in_a_page_and_read_back(text: str) -> None:
    """A page holds its data as JSON within a <script> element, which a plain "</script>" would end.

    Halves of characters, which no UTF-8 file can hold, are replaced by "?".
    """
    embedded = json_for_script({"text": text})

    for character in "<>&\u2028\u2029":
        assert character not in embedded
    expected = re.sub("[\ud800-\udfff]", "?", text)
    assert json.loads(embedded)["text"] == expected


def security_policy(html: str) -> str:
    """Return the Content-Security-Policy of a page, which says what a browser may run and load."""
    _, _, after_name = html.partition('Content-Security-Policy" content="')
    policy, _, _ = after_name.partition('"')
    return policy.replace("&#39;", "'")


def test_the_security_policy_of_a_page_allows_only_its_own_scripts_and_styles() -> None:
    """A browser runs only those scripts and styles whose hash is in the policy."""
    policy = security_policy(page_html(row()))

    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_a_page_has_no_addresses_and_no_code_in_its_elements() -> None:
    """A page loads nothing from the network, and its security policy allows only its scripts."""
    html = page_html(row())
    # The only "http" is in the name of an attribute.
    without_attribute = html.replace("<meta http-equiv", "<meta").replace('"http-equiv', "")

    assert "http" not in without_attribute
    assert " onclick" not in html
    assert " style=" not in html


def shown_messages(contents: list[str]) -> list[str]:
    """Return what the trace of a question shows of a prompt with these messages."""
    messages = tuple({"role": "user", "content": content} for content in contents)
    call = PredictorCall(None, {}, completions=[Completion(messages, "yes")])
    example = dspy.Example(history=(), evidence_ids=())
    trace = make_question_trace(example, None, [call], "", Clock())
    (shown_call,) = trace.calls
    return [text for _, text in shown_call.messages]


def test_the_middle_of_a_long_question_is_left_out_and_the_instructions_are_shown() -> None:
    """The first message of a prompt has the instructions, and the last one the question."""
    instructions = "i" * 1000

    first, last = shown_messages([instructions, "q" * 100_000])

    assert first == instructions
    assert "characters left out" in last
    # A note on what is left out takes some characters itself.
    assert len(first) + len(last) < MAX_PROMPT_LENGTH + 100


def test_long_demos_make_room_for_the_question() -> None:
    """Demos are examples, which stand between the instructions and the question of a prompt."""
    instructions = "i" * 400
    demos = ["d" * 3000] * 20
    question = "q" * 5000

    first, *shown_demos, last = shown_messages([instructions, *demos, question])

    assert first == instructions
    assert last == question
    for demo in shown_demos:
        assert "characters left out" in demo
    # Each demo has a note on what is left out.
    total_length = len(first) + sum(len(demo) for demo in shown_demos) + len(last)
    assert total_length < MAX_PROMPT_LENGTH + 50 * len(demos)


class UndrawablePage(Page):
    """A page whose scores cannot be shown."""

    @property
    def total(self) -> Any:
        raise ValueError("half of\na page")


def test_a_page_that_cannot_be_drawn_is_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The data of the page are saved all the same, so it can be drawn later."""
    page = UndrawablePage(command="evaluate", name="run", title="x")

    file = save_page(tmp_path, page)

    assert file is None
    (record,) = caplog.records
    assert record.message == f"no page of {tmp_path.name}: half of a page"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json.gz"]
    assert open_page(RunFolder(tmp_path)).name == "run"


def scored(scores_by_category: dict[str, list[float]], **changes: Any) -> Evaluation:
    """Return an evaluation with these scores; a question with a score of 0 failed.

    It took 12 calls to answer and 2 to judge, 1,234 prompt tokens, 56 answer tokens and 1.25 s.
    """
    failed = Failure(kind="error", where="x", message="y")
    rows = []
    for category, scores in scores_by_category.items():
        for number, score in enumerate(scores):
            rows.append(
                plain_row(
                    f"{category}:{number}",
                    score,
                    category=category,
                    recall={"recall@5": 1.0},
                    failure=None if score else failed,
                )
            )
    fields: dict[str, Any] = {
        "calls": {"task": 12, "prompt": 0, "judge": 2, "cached": 0},
        "tokens": {"input": 1234, "output": 56},
        "cost": None,
        "seconds": 1.25,
    }
    return plain_evaluation(rows, **{**fields, **changes})


def terminal_lines(shown: Evaluation) -> list[str]:
    """Return what the terminal shows of an evaluation, line by line."""
    output = io.StringIO()
    console = Console(file=output, width=120, soft_wrap=True)
    for line in page_lines(run_page("evaluate", "a-run", {"score": shown})):
        console.print(line)
    return output.getvalue().splitlines()


def test_the_terminal_shows_a_line_for_each_category_with_its_score() -> None:
    """A line has category, questions, score with its interval, F1, and failures.

    Category 5 is not in the score. It has a single question, so it has no interval.
    """
    lines = terminal_lines(scored({"1": [0.5, 0.25], "5": [1.0]}))

    rows = [" ".join(line.split()) for line in lines]
    assert "1 2 0.375 [0.250, 0.500] 0.375 0" in rows
    assert "5 (not in score) 1 1.000 1.000 0" in rows
    assert "score 2 0.375 [0.250, 0.500] 0.375 0" in rows
    assert "95 % intervals, resampled by question" in lines


@pytest.mark.parametrize("comparable", [True, False])
def test_the_first_line_says_if_the_scores_are_only_a_smoke_test(comparable: bool) -> None:
    """Scores with the offline engine in place of a model can be compared with nothing.

    The name of the method is long, so the line might be cut.
    """
    long_name = "a-very-long-method-name-" * 4

    lines = terminal_lines(scored({"1": [0.5]}, comparable=comparable, program=long_name))

    assert (SMOKE_TEST in lines[0]) is not comparable


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {},
            "12 task, 2 judge; 1,234 prompt + 56 answer tokens; no price known; 1.2 s",
            id="no price",
        ),
        pytest.param(
            {"cost": 0.5},
            "12 task, 2 judge; 1,234 prompt + 56 answer tokens; $0.5000; 1.2 s",
            id="a price",
        ),
        pytest.param(
            {"prompt_cache": {"told": 200, "reused": 150}},
            "12 task, 2 judge; 1,234 prompt + 56 answer tokens"
            " (75% of the prompts from the server's cache); no price known; 1.2 s",
            id="a cache",
        ),
    ],
)
def test_the_calls_tokens_costs_and_seconds_of_a_run_are_shown_in_one_line(
    changes: dict[str, Any], line: str
) -> None:
    facts = usage_facts({"score": scored({"1": [0.5]}, **changes)})

    assert facts == [("LM calls", line)]


def evaluation_with_reported_calls(metered_calls: int) -> Evaluation:
    """Return an evaluation that reports four calls: three wrote the memory, and one answered.

    Writing took 600 tokens and 1 dollar, answering 90 + 10 tokens and 0.25 dollars.

    Args:
        metered_calls: How many of the calls went through our models, whose calls a meter counts.
    """
    writing = Usage(calls=3, input_tokens=600, output_tokens=0, cost=1.0, seconds=2.0)
    answered = plain_row(
        calls=1,
        prompt_tokens=90,
        output_tokens=10,
        cost=0.25,
        answering=0.5,
        search=2.0,
        search_cpu=1.5,
    )
    return plain_evaluation(
        [answered],
        construction=writing,
        cost=None,
        calls={"task": metered_calls},
        tokens={"input": 0, "output": 0},
    )


def test_calls_that_a_program_reports_are_ignored_if_the_meter_has_counted_calls() -> None:
    """The program reports four calls, and the meter of the run has counted one."""
    metered = evaluation_with_reported_calls(metered_calls=1)

    assert metered.metered_usage["calls"] == {"task": 1}


def test_calls_that_a_program_reports_are_shown_as_made_elsewhere_if_the_meter_counted_none() -> (
    None
):
    """A system of the user's may make its calls without our models, and report them."""
    unmetered = evaluation_with_reported_calls(metered_calls=0)

    (_, usage), retrieval = usage_facts({"score": unmetered})

    assert unmetered.metered_usage["calls"] == {"elsewhere": 4}
    prompt_tokens = 600 + 90
    assert usage.startswith(f"4 elsewhere; {prompt_tokens} prompt + 10 answer tokens; $1.2500")
    assert retrieval == ("Retrieval", "p50 2.0 ms, p95 2.0 ms, CPU 1.5 ms")


def test_a_copy_of_a_page_with_other_evaluations_shows_the_questions_of_these() -> None:
    """A page keeps what it has computed of its evaluations; a copy must not take that over."""
    first_run = evaluation(row(0, score=1.0))
    second_run = evaluation(row(0, score=0.0))
    page = run_page("compare", "a-run", {"a": first_run, "b": second_run}, facts=[])
    assert len(page.questions[0].rows) == 2
    assert page.total is not None

    page_of_first_run = page.model_copy(update={"phases": {"a": first_run}})
    page_of_nothing = page.model_copy(update={"phases": {}})

    assert len(page_of_first_run.questions[0].rows) == 1
    assert page_of_nothing.total is None
