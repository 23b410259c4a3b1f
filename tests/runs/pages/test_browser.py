"""The page of a run in a browser: how a reader gets to a question, its prompt and its evidence.

The elements of the page are named by CSS selectors. `#list` has the questions that the filters let
through, `#count` says how many they are, and `#detail` shows the question that was clicked.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mempiler.optimizers.frontier import FrontierPoint
from mempiler.optimizers.history import Candidate
from mempiler.runs.pages.html import render_page
from mempiler.runs.pages.page import Page, PromptChange, run_page
from mempiler.runs.rows import Row

from tests.browser import CHROMIUM, Browser, serious_faults
from tests.runs.pages.test_document import HOSTILE, RECALL_UNREPORTED, evaluation, row

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


def compiled_rows() -> tuple[list[Row], list[Row]]:
    """Return four questions before and after a compile, by which question 2 became right.

    Questions 0 and 2 have the category 0, and questions 1 and 3 the category 1.
    """
    before = []
    for number in range(4):
        category = str(number % 2)
        before.append(row(number, f"Question {number}?", score=0.0, category=category))
    after = list(before)
    after[2] = before[2].model_copy(update={"score": 1.0, "recall": {"shown": 1.0}})
    return before, after


@pytest.fixture(scope="module")
def compile_page() -> Page:
    """The page of a compile with four questions, of which question 2 became right.

    It has all parts that a page can have.
    """
    before, after = compiled_rows()
    candidates = [
        Candidate(number=1, score=1 / 3, n=5, calls=10, cost=0.0),
        Candidate(number=2, score=2 / 3, n=4, calls=20, cost=0.0),
        Candidate(number=3, score=1.0, n=5, calls=30, cost=0.0),
    ]
    frontier = [
        FrontierPoint(
            number=number,
            parents=() if number == 0 else (0,),
            instructions={"p": f"Instruction <b>{number}</b>"},
            score=number / 3,
            n=4,
            prompt_tokens=100.0 + number,
            on_frontier=True,
        )
        for number in range(3)
    ]
    page = run_page(
        "compile",
        "a-run",
        {"before": evaluation(*before), "after": evaluation(*after)},
        facts=[("Command", "mempiler compile")],
        notes=["A note."],
        verdict="better",
        changes=[PromptChange(predictor="p", diff=("-Short.", "+Long."))],
        candidates=candidates,
        frontier=frontier,
    )
    return page.model_copy(update={"warning": "smoke test"})


def open_page(browser: Browser, page: Page, folder: Path) -> None:
    """Open the page of a run as a file."""
    file = folder / "report.html"
    file.write_text(render_page(page), encoding="utf-8")
    browser.open(file)


@pytest.fixture
def opened_compile(browser: Browser, compile_page: Page, tmp_path: Path) -> Browser:
    """The browser with the page of a compile: of four questions, question 2 became right."""
    open_page(browser, compile_page, tmp_path)
    return browser


def texts(browser: Browser, selector: str) -> list[str]:
    """Return the visible text of each element that a CSS selector names."""
    elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return browser.evaluate(f"{elements}.map((element) => element.innerText)")


def visible_ids(browser: Browser, selector: str) -> list[str]:
    """Return the ids of those elements that take room on the page."""
    elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return browser.evaluate(
        f"{elements}.filter((element) => element.offsetHeight).map((element) => element.id)"
    )


def click(browser: Browser, selector: str) -> None:
    """Click on the first element that a CSS selector names."""
    element = f"document.querySelector({json.dumps(selector)})"
    # `click()` is a method of HTML elements, and drawings have none.
    browser.evaluate(f"{element}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


def wait(browser: Browser, milliseconds: int) -> None:
    """Let the page do what it does a moment after an event."""
    browser.evaluate(f"new Promise((done) => setTimeout(done, {milliseconds}))")


def set_filter(browser: Browser, field: str, value: str) -> None:
    """Put a value into a field of the filters, as a reader does."""
    element = f"document.querySelector({json.dumps(f'#f-{field}')})"
    browser.evaluate(f"{element}.value = {json.dumps(value)}")
    browser.evaluate(f"{element}.dispatchEvent(new Event('input'))")


def test_a_click_on_a_point_of_the_chart_shows_the_prompt_of_the_candidate(
    opened_compile: Browser,
) -> None:
    """GEPA tries programs, the candidates. The page draws them by score and length of prompt."""
    assert visible_ids(opened_compile, ".candidate") == []

    click(opened_compile, 'svg a[href="#candidate-1"] circle')

    assert visible_ids(opened_compile, ".candidate") == ["candidate-1"]
    assert texts(opened_compile, "#candidate-1 .diff") == ["Instruction <b>1</b>"]


def test_a_click_on_a_question_shows_its_evidence(opened_compile: Browser) -> None:
    """Question 2 has the evidence D1:1, which was recalled, and D4:2, which was not."""
    set_filter(opened_compile, "change", "better")

    click(opened_compile, "#list button")

    assert texts(opened_compile, "#detail > h3") == ["Question 2?"]
    assert texts(opened_compile, "#detail > div .entries li.gold") == [
        "[D4:2] Ann: Elsewhere.",
        "[D1:1] Ann: Question 2? gold evidence",
    ]


def test_a_click_on_prompt_shows_the_prompt_of_a_question(opened_compile: Browser) -> None:
    click(opened_compile, "#list button")

    click(opened_compile, "#detail > div details > summary")
    wait(opened_compile, milliseconds=50)

    assert "[D1:2] Bob: Yes." in texts(opened_compile, "#detail > div .prompt code")


def test_the_page_fetches_nothing_but_itself(opened_compile: Browser) -> None:
    click(opened_compile, "#list button")

    (address,) = opened_compile.requests
    assert address.startswith("file:")
    assert opened_compile.errors == []


def test_the_page_of_a_program_that_reports_no_recall_looks_for_evidence_in_its_prompts(
    browser: Browser, tmp_path: Path
) -> None:
    """Of the evidence D1:1 and D4:2, only D1:1 stood in the prompts.

    D4:2 may have been recalled in other words, so the page must not say that it was not recalled.
    """
    unreported = row(score=0.0, trace=RECALL_UNREPORTED)
    page = run_page("evaluate", "a-run", {"score": evaluation(unreported)})
    open_page(browser, page, tmp_path)

    click(browser, "#list button")

    (detail,) = texts(browser, "#detail")
    assert "1 of 2 pieces of gold evidence found in the prompts" in detail
    assert "Gold evidence not found in the prompts\n[D4:2] Ann: There." in detail
    assert "not recalled" not in detail
    assert "Nothing was recalled" not in detail


@pytest.mark.parametrize(
    ("field", "value", "questions"),
    [
        pytest.param("change", "better", ["Question 2?"], id="became better"),
        pytest.param("category", "1", ["Question 1?", "Question 3?"], id="category 1"),
        pytest.param(
            "why", "!right", ["Question 0?", "Question 1?", "Question 3?"], id="not right"
        ),
        pytest.param("hit", "all", ["Question 2?"], id="all evidence recalled"),
        pytest.param("words", "question 3", ["Question 3?"], id="words of a question"),
        pytest.param("words", "nowhere", [], id="words of no question"),
    ],
)
def test_a_filter_shows_only_its_questions_until_it_is_reset(
    opened_compile: Browser, field: str, value: str, questions: list[str]
) -> None:
    """Question 2 became right by the compile, and all its evidence was recalled.

    Questions 1 and 3 have category 1.
    """
    set_filter(opened_compile, field, value)
    assert texts(opened_compile, "#list .asked") == questions
    assert texts(opened_compile, "#count") == [f"{len(questions)} of 4 questions"]

    opened_compile.evaluate("document.querySelector('#filters').reset()")
    wait(opened_compile, milliseconds=20)
    assert texts(opened_compile, "#count") == ["4 questions"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readers_with_disabilities_can_use_the_page(opened_compile: Browser, scheme: str) -> None:
    """The checker axe-core finds faults such as buttons without names and too little contrast."""
    opened_compile.media(prefers_color_scheme=scheme)
    opened_compile.evaluate(
        "document.querySelectorAll('details').forEach((part) => { part.open = true; })"
    )
    faults = serious_faults(opened_compile)
    opened_compile.media()  # as before, for the next test

    assert faults == []


def test_hostile_texts_of_questions_neither_run_nor_break_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    """Some texts would set the title, or load an image, if they were taken for HTML."""
    rows = []
    for number, text in enumerate(HOSTILE.values()):
        rows.append(row(number, text=text, answer=text, id=f"{number} {text}"))
    page = run_page("evaluate", "a-run", {"score": evaluation(*rows)})

    open_page(browser, page, tmp_path)

    assert browser.evaluate("document.title") == "turn-rag on locomo · a-run"
    assert browser.evaluate("document.images.length") == 0
    assert len(browser.requests) == 1
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert texts(browser, "#count") == [f"{len(HOSTILE)} questions"]
