"""The review page in a browser: what a person accepts, corrects and drops, and what comes out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.feedback_questions import ROW_MARK
from mempiler.runs.pages.review import ReviewedQuestion, render_review_page

from tests.browser import CHROMIUM, Browser, serious_faults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with Browser() as started_browser:
        yield started_browser


def question(number: int, **fields: Any) -> ReviewedQuestion:
    """Return a question whose right answer is "Lisbon"."""
    turn = {"id": "a:1", "speaker": "Ada", "text": "I moved to Lisbon."}
    row = {
        "id": f"ans_{number:032x}",
        "user": "ada",
        "question": f"Question {number}?",
        "answer": "Lisbon",
        "evidence": ["a:1"],
        "category": "right",
        "history": {"id": "ada", "items": [{"id": "a", "turns": [turn], "kind": "session"}]},
        **fields,
    }
    return ReviewedQuestion(row, "Lisbon")


def open_page(browser: Browser, folder: Path, *questions: ReviewedQuestion) -> None:
    """Open the review page of some questions, which a person has not looked at yet."""
    file = folder / "review.html"
    file.write_text(render_review_page(questions, "questions.jsonl"), encoding="utf-8")
    browser.open(file)


def press(browser: Browser, number: int, button: str) -> None:
    """Press a button of a question: Accept, Drop or Undo."""
    browser.evaluate(
        f"[...document.querySelectorAll('li.question')[{number}].querySelectorAll('button')]"
        f".find((button) => button.textContent === '{button}').click()"
    )


def write_answer(browser: Browser, number: int, text: str) -> None:
    """Write another answer into the field of a question."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelectorAll('textarea')[{number}];"
        f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


def downloaded(browser: Browser) -> str:
    """Return what the button for the download puts into the file: a line for each row."""
    return browser.evaluate("document.body.reviewedLines()")


def test_accepted_questions_come_out_and_dropped_and_open_ones_do_not(
    browser: Browser, tmp_path: Path
) -> None:
    open_page(browser, tmp_path, question(0), question(1), question(2))

    press(browser, 0, "Accept")
    press(browser, 1, "Drop")

    (line,) = downloaded(browser).splitlines()
    assert json.loads(line) == question(0).row


def test_a_reviewed_row_is_told_from_a_row_of_an_export(browser: Browser, tmp_path: Path) -> None:
    """Every line that an export wrote begins with `ROW_MARK`."""
    open_page(browser, tmp_path, question(0))

    press(browser, 0, "Accept")

    assert not downloaded(browser).startswith(ROW_MARK)


def test_nothing_can_be_downloaded_before_a_question_was_accepted(
    browser: Browser, tmp_path: Path
) -> None:
    open_page(browser, tmp_path, question(0))
    assert browser.evaluate("document.getElementById('download').disabled")

    press(browser, 0, "Accept")

    assert not browser.evaluate("document.getElementById('download').disabled")


def test_a_corrected_answer_comes_out(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, question(0))

    write_answer(browser, 0, " Porto ")
    press(browser, 0, "Accept")

    row = json.loads(downloaded(browser))
    assert row["answer"] == "Porto"
    assert row["category"] == "corrected"


def test_a_question_without_an_answer_cannot_be_accepted(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, question(0))
    press(browser, 0, "Accept")

    write_answer(browser, 0, " ")

    assert downloaded(browser) == ""


def test_the_download_has_the_name_of_the_file(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, question(0))
    press(browser, 0, "Accept")

    # To download, the page makes a link and clicks on it.
    name = browser.evaluate(
        "new Promise((done) => {"
        "HTMLAnchorElement.prototype.click = function () { done(this.download); };"
        "document.getElementById('download').click(); })"
    )

    assert name == "questions.jsonl"


def test_hostile_texts_are_shown_and_nothing_of_them_runs(browser: Browser, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror='document.title=1'><b>bold</b>"

    open_page(browser, tmp_path, question(0, question=hostile, answer=hostile, user=hostile))

    assert browser.evaluate("document.querySelector('h2').textContent") == hostile
    assert browser.evaluate("document.querySelectorAll('img, b').length") == 0
    assert browser.evaluate("document.title") == "Review of 1 questions"


def test_the_page_can_be_used_without_a_mouse_and_has_no_serious_fault(
    browser: Browser, tmp_path: Path
) -> None:
    """The checker axe-core finds what readers with disabilities lack, such as names of buttons."""
    open_page(browser, tmp_path, question(0), question(1))

    assert serious_faults(browser) == []
