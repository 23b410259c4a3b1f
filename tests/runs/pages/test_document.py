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

UNREPORTED = QuestionTrace(
    evidence={"D1:1": "[D1:1] Ann: Where?", "D4:2": "[D4:2] Ann: There."}, in_prompts=("D1:1",)
)
"""The trace of a program that does not report what it recalled; D1:1 stood in its prompts."""


def row(number: int = 0, text: str = "Where?", score: float = 1.0, **changes: Any) -> Row:
    """Return a question with its trace: one of two pieces of evidence, D1:1, was recalled.

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


ALL_IN_PROMPTS = UNREPORTED.model_copy(update={"in_prompts": ("D1:1", "D4:2")})
"""The same, but both pieces of evidence stood in its prompts."""
PARSE_FAILURE = Failure(kind="parse", where="x", message="y")


@pytest.mark.parametrize(
    ("changes", "reason", "recall_extent"),
    [
        pytest.param({}, "right", "part", id="right"),
        pytest.param({"score": 0.5}, "right", "part", id="half right"),
        pytest.param({"score": 0.49}, "part", "part", id="less than half right"),
        pytest.param(
            {"score": 0.0, "recall": {"shown": 0.0}}, "missed", "none", id="nothing recalled"
        ),
        pytest.param({"score": 0.0, "recall": {"shown": 1.0}}, "read", "all", id="all recalled"),
        pytest.param(
            {"score": 0.0, "recall": {"recall@20": 1.0}}, "read", "all", id="all among the hits"
        ),
        pytest.param({"score": 0.0, "recall": {}}, "wrong", "", id="no evidence labels"),
        pytest.param({"score": 0.0, "trace": UNREPORTED}, "unknown", "", id="recall unreported"),
        pytest.param(
            {"score": 0.0, "trace": ALL_IN_PROMPTS}, "prompted", "", id="all in the prompts"
        ),
        pytest.param(
            {"score": 1.0, "trace": UNREPORTED}, "right", "", id="right, recall unreported"
        ),
        pytest.param({"score": 0.0, "failure": PARSE_FAILURE}, "failed", "part", id="failed"),
    ],
)
def test_a_question_says_where_it_went_wrong(
    changes: dict[str, Any], reason: str, recall_extent: str
) -> None:
    """By default the answer is right, and of two pieces of evidence one was recalled.

    A wrong answer has a reason. "missed" and "part": evidence was not recalled. "read": it was
    recalled, but the model answered wrongly all the same. "prompted": nothing was reported as
    recalled, but the evidence stood in the prompts.
    """
    question = row(**changes)

    assert question.reason == reason
    assert question.recall_extent == recall_extent
    assert question.right == (reason == "right")


def script_data(*rows: Row) -> dict[str, Any]:
    """Return the data that the script of the page of these questions reads."""
    html = page_html(*rows)
    _, _, after_start_tag = html.partition('<script type="application/json" id="data">')
    data, _, _ = after_start_tag.partition("</script>")
    return json.loads(data)


def test_recalled_entries_are_named_by_the_numbers_of_their_lines() -> None:
    """Lines of prompts recur in many questions, so the page holds each once, in one list."""
    trace = QuestionTrace(
        entries=(
            Entry(line="[D1:1] Ann: Where?", kind="turn", sources=("D1:1",)),
            Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",)),
        )
    )

    data = script_data(plain_row("q0", trace=trace), plain_row("q1", trace=trace))

    # A page of one evaluation has one phase; that of a compile has those before and after.
    (first_phase,) = data["questions"][0]["shown"]
    (second_phase,) = data["questions"][1]["shown"]
    lines = [data["lines"][entry["line"]] for entry in first_phase["entries"]]
    assert lines == ["[D1:1] Ann: Where?", "[D1:2] Bob: Yes."]
    assert second_phase["entries"] == first_phase["entries"]


def test_recalled_evidence_is_marked() -> None:
    trace = QuestionTrace(
        entries=(
            Entry(line="[D1:1] Ann: Where?", kind="turn", sources=("D1:1",)),
            Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",)),
        ),
        evidence={"D1:1": "[D1:1] Ann: Where?", "D4:2": "[D4:2] Ann: Elsewhere."},
    )

    data = script_data(plain_row(trace=trace))

    (phase,) = data["questions"][0]["shown"]
    assert [entry["gold"] for entry in phase["entries"]] == [True, False]
    assert phase["found"] == ["D1:1"]


def test_a_prompt_and_a_recalled_entry_share_the_number_of_their_line() -> None:
    call = LMCall(
        predictor="task.answer",
        outcome="ok",
        messages=(("user", "What?\n[D1:2] Bob: Yes."),),
        answer="A",
    )
    entry = Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",))
    trace = QuestionTrace(entries=(entry,), calls=(call,))

    data = script_data(plain_row(trace=trace))

    (phase,) = data["questions"][0]["shown"]
    line_numbers = phase["calls"][0]["messages"][0]["content"]
    assert [data["lines"][number] for number in line_numbers] == ["What?", "[D1:2] Bob: Yes."]
    assert line_numbers[1] == phase["entries"][0]["line"]
    # Lines that recur are there once.
    assert len(set(data["lines"])) == len(data["lines"])


def test_a_changed_prompt_is_shown_as_a_diff() -> None:
    short = PredictorState(instructions="Answer.\nShort.", fields=[], demos=[])
    long = PredictorState(
        instructions="Answer.\nLong.", fields=[], demos=[], config={"temperature": 0.5}
    )

    changed, unchanged = prompt_changes(
        {"first": short, "second": short}, {"first": long, "second": short}
    )

    assert changed.changed is True
    marked_lines = [line for line in changed.diff if line.startswith(("+", "-"))]
    assert marked_lines == ["-Short.", "+Long.", "+", "+Settings: temperature = 0.5"]
    assert unchanged.changed is False
    assert " Answer." in unchanged.diff
    assert " Short." in unchanged.diff


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_shown_as_text(text: str, tmp_path: Path) -> None:
    # A category is a name in the settings of the data, which has to be valid text.
    category = text[:80].encode("utf-8", "replace").decode()
    scored = evaluation(row(text=text, answer=text, category=category))
    page = run_page(
        "evaluate", "run", {"score": scored}, facts=[("Said", text[:200])], notes=[text[:200]]
    )

    file = save_page(tmp_path, page)

    assert file is not None
    html = file.read_text(encoding="utf-8")
    # The page has two scripts: its data and its code.
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert "onerror=alert(1)>" not in html
    assert len(html) < 150_000
    assert open_page(RunFolder(tmp_path)).name == "run"


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_any_text_can_be_embedded_in_a_page_and_read_back(text: str) -> None:
    """A page holds its data as JSON within a <script> element.

    A plain "</script>" in a text would end it.
    """
    embedded = json_for_script({"text": text})

    for character in "<>&\u2028\u2029":
        assert character not in embedded
    # Halves of characters, which no UTF-8 file can hold, are replaced.
    expected = re.sub("[\ud800-\udfff]", "?", text)
    assert json.loads(embedded)["text"] == expected


def test_the_security_policy_of_a_page_allows_only_its_own_scripts() -> None:
    """A browser runs and loads only what the Content-Security-Policy of a page allows."""
    html = page_html(row())
    _, _, after_name = html.partition('Content-Security-Policy" content="')
    escaped_policy, _, _ = after_name.partition('"')
    policy = escaped_policy.replace("&#39;", "'")

    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_a_page_has_no_addresses_and_no_code_in_its_elements() -> None:
    html = page_html(row())
    # The only "http" is in the name of an attribute.
    without_attribute = html.replace("<meta http-equiv", "<meta").replace('"http-equiv', "")

    assert "http" not in without_attribute
    assert " onclick" not in html
    assert " style=" not in html


@pytest.mark.parametrize(
    ("lengths", "is_shown_completely"),
    [
        pytest.param([1000, 2000], [True, True], id="short messages"),
        pytest.param(
            [1000, 100_000],
            [True, False],
            id="the middle of a long question is left out, the instructions before it are not",
        ),
        pytest.param(
            [400, *[3000] * 20, 5000],
            [True, *[False] * 20, True],
            id="demos make room for the question",
        ),
    ],
)
def test_a_prompt_of_any_length_is_shown_at_a_bounded_length(
    lengths: list[int], is_shown_completely: list[bool]
) -> None:
    """The parameters are the lengths of a prompt's messages, and which of them are shown whole.

    The first message has the instructions and the last one the question; between them are demos,
    which are examples.
    """
    contents = ["x" * length for length in lengths]
    messages = tuple({"role": "user", "content": content} for content in contents)
    call = PredictorCall(None, {}, completions=[Completion(messages, "yes")])
    example = dspy.Example(history=(), evidence_ids=())

    trace = make_question_trace(example, None, [call], "", Clock())

    (shown_call,) = trace.calls
    shown_texts = [text for _, text in shown_call.messages]
    # A note on what is left out takes some characters itself.
    assert sum(len(text) for text in shown_texts) < MAX_PROMPT_LENGTH + 50 * len(lengths)
    for text, content, is_complete in zip(shown_texts, contents, is_shown_completely, strict=True):
        assert (text == content) is is_complete
        assert ("characters left out" in text) is not is_complete


class UndrawablePage(Page):
    """A page whose scores cannot be shown."""

    @property
    def total(self) -> Any:
        raise ValueError("half of\na page")


def test_a_page_that_cannot_be_drawn_does_not_fail_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = UndrawablePage(command="evaluate", name="run", title="x")

    file = save_page(tmp_path, page)

    assert file is None
    (record,) = caplog.records
    assert record.message == f"no page of {tmp_path.name}: half of a page"
    # Its data are saved, so it can be drawn later.
    assert [path.name for path in tmp_path.iterdir()] == ["report.json.gz"]
    assert open_page(RunFolder(tmp_path)).name == "run"


def scored(scores_by_category: dict[str, list[float]], **changes: Any) -> Evaluation:
    """Return an evaluation with these scores; a question with a score of 0 failed."""
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


def test_the_terminal_shows_categories_and_what_their_scores_rest_on() -> None:
    """Category 1 has two questions, and category 5, which is not in the score, has one."""
    lines = terminal_lines(scored({"1": [0.5, 0.25], "5": [1.0]}))

    # Columns may be wider than their cells.
    rows = [" ".join(line.split()) for line in lines]
    # Category, questions, score with its interval, F1, and failures. One question has no interval.
    assert "1 2 0.375 [0.250, 0.500] 0.375 0" in rows
    assert "5 (not in score) 1 1.000 1.000 0" in rows
    assert "score 2 0.375 [0.250, 0.500] 0.375 0" in rows
    assert "95 % intervals, resampled by question" in lines


@pytest.mark.parametrize("comparable", [True, False])
def test_the_first_line_says_if_scores_are_a_smoke_test_only(comparable: bool) -> None:
    """Scores with the offline engine in place of a model can be compared with nothing."""
    long_name = "a-very-long-method-name-" * 4
    lines = terminal_lines(scored({"1": [0.5]}, comparable=comparable, program=long_name))

    assert (SMOKE_TEST in lines[0]) is not comparable


@pytest.mark.parametrize(
    ("changes", "usage"),
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
def test_usage_is_one_line(changes: dict[str, Any], usage: str) -> None:
    facts = usage_facts({"score": scored({"1": [0.5]}, **changes)})

    assert facts == [("LM calls", usage)]


def evaluation_with_four_calls(metered_calls: int) -> Evaluation:
    """Return an evaluation that reports four calls: three wrote the memory, and one answered.

    The meter of the run counts calls of our models alone, here `metered_calls`.
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


def test_the_calls_that_the_meter_of_the_run_counted_are_shown() -> None:
    scored_here = evaluation_with_four_calls(metered_calls=1)

    assert scored_here.metered_usage["calls"] == {"task": 1}


def test_reported_calls_are_shown_as_made_elsewhere_if_the_meter_counted_none() -> None:
    """A system of the user's may report calls that it made without our models."""
    scored_elsewhere = evaluation_with_four_calls(metered_calls=0)

    calls, retrieval = usage_facts({"score": scored_elsewhere})

    assert scored_elsewhere.metered_usage["calls"] == {"elsewhere": 4}
    # 600 tokens wrote and 90 + 10 answered, for 1 and 0.25 dollars.
    assert calls[1].startswith("4 elsewhere; 690 prompt + 10 answer tokens; $1.2500")
    assert retrieval == ("Retrieval", "p50 2.0 ms, p95 2.0 ms, CPU 1.5 ms")


def test_a_page_whose_phases_are_replaced_shows_the_questions_of_the_new_ones() -> None:
    """A page keeps what it has computed of its evaluations; a copy must not take that over."""
    first_run = evaluation(row(0, score=1.0))
    second_run = evaluation(row(0, score=0.0))
    page = run_page("compare", "a-run", {"a": first_run, "b": second_run}, facts=[])
    assert len(page.questions[0].rows) == 2

    page_of_first_run = page.model_copy(update={"phases": {"a": first_run}})

    assert len(page_of_first_run.questions[0].rows) == 1


def test_a_page_whose_phases_are_removed_has_no_total() -> None:
    page = run_page("evaluate", "a-run", {"score": evaluation(row())}, facts=[])
    assert page.total is not None

    page_without_phases = page.model_copy(update={"phases": {}})

    assert page_without_phases.total is None
