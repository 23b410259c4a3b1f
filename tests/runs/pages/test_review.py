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


def open_review_page(browser: Browser, folder: Path, *questions: ReviewedQuestion) -> None:
    """Open the review page of some questions, which a person has not looked at yet."""
    file = folder / "review.html"
    file.write_text(render_review_page(questions, "questions.jsonl"), encoding="utf-8")
    browser.open(file)


def press(browser: Browser, button: str, question: int) -> None:
    """Press a button of a question: Accept, Drop or Undo."""
    browser.evaluate(
        f"[...document.querySelectorAll('li.question')[{question}].querySelectorAll('button')]"
        f".find((button) => button.textContent === '{button}').click()"
    )


def write_answer(browser: Browser, text: str, question: int) -> None:
    """Write another answer into the field of a question."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelectorAll('textarea')[{question}];"
        f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


def downloaded(browser: Browser) -> str:
    """Return what the button for the download puts into the file: a line for each row."""
    return browser.evaluate("document.body.reviewedLines()")


def can_download(browser: Browser) -> bool:
    """Return whether the button for the download can be pressed."""
    return not browser.evaluate("document.getElementById('download').disabled")


def name_of_download(browser: Browser) -> str:
    """Press the button for the download, and return the name of the file.

    The page makes a link and clicks on it. Here that click does nothing.
    """
    return browser.evaluate(
        "new Promise((done) => {"
        "HTMLAnchorElement.prototype.click = function () { done(this.download); };"
        "document.getElementById('download').click(); })"
    )


def test_only_accepted_questions_are_downloaded(browser: Browser, tmp_path: Path) -> None:
    """Question 0 is accepted, question 1 is dropped, and question 2 is left as it is."""
    open_review_page(browser, tmp_path, question(0), question(1), question(2))

    press(browser, "Accept", question=0)
    press(browser, "Drop", question=1)

    (line,) = downloaded(browser).splitlines()
    assert json.loads(line) == question(0).row


def test_a_reviewed_question_is_not_taken_for_one_that_nobody_has_reviewed(
    browser: Browser, tmp_path: Path
) -> None:
    """Every line that an export wrote without a review begins with `ROW_MARK`."""
    open_review_page(browser, tmp_path, question(0))

    press(browser, "Accept", question=0)

    assert downloaded(browser)
    assert not downloaded(browser).startswith(ROW_MARK)


def test_nothing_can_be_downloaded_before_a_question_was_accepted(
    browser: Browser, tmp_path: Path
) -> None:
    open_review_page(browser, tmp_path, question(0))
    assert not can_download(browser)

    press(browser, "Accept", question=0)

    assert can_download(browser)


def test_a_corrected_answer_is_downloaded(browser: Browser, tmp_path: Path) -> None:
    open_review_page(browser, tmp_path, question(0))

    write_answer(browser, " Porto ", question=0)
    press(browser, "Accept", question=0)

    row = json.loads(downloaded(browser))
    assert row["answer"] == "Porto"
    assert row["category"] == "corrected"


def test_a_question_whose_answer_was_emptied_is_not_downloaded(
    browser: Browser, tmp_path: Path
) -> None:
    open_review_page(browser, tmp_path, question(0))
    press(browser, "Accept", question=0)

    write_answer(browser, " ", question=0)

    assert downloaded(browser) == ""


def test_the_download_has_the_name_of_the_file_that_the_user_gave(
    browser: Browser, tmp_path: Path
) -> None:
    """The page was made for the file "questions.jsonl"."""
    open_review_page(browser, tmp_path, question(0))

    press(browser, "Accept", question=0)

    assert name_of_download(browser) == "questions.jsonl"


def test_hostile_texts_are_shown_as_text_and_do_not_run(browser: Browser, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror='document.title=1'><b>bold</b>"

    open_review_page(browser, tmp_path, question(0, question=hostile, answer=hostile, user=hostile))

    assert browser.evaluate("document.querySelector('h2').textContent") == hostile
    assert browser.evaluate("document.querySelectorAll('img, b').length") == 0
    assert browser.evaluate("document.title") == "Review of 1 questions"


def test_readers_with_disabilities_can_use_the_review_page(
    browser: Browser, tmp_path: Path
) -> None:
    """The checker axe-core finds faults such as buttons without names."""
    open_review_page(browser, tmp_path, question(0), question(1))

    assert serious_faults(browser) == []
