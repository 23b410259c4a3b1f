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

from tests.browser import CHROMIUM, Browser, serious_faults
from tests.runs.pages.test_document import HOSTILE, UNREPORTED, evaluation, row

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


@pytest.fixture(scope="module")
def compile_page() -> Page:
    """The page of a compile with four questions, of which one became right; it shows all parts."""
    rows_before = []
    for number in range(4):
        category = str(number % 2)
        rows_before.append(row(number, f"Question {number}?", score=0.0, category=category))
    rows_after = list(rows_before)
    rows_after[2] = rows_before[2].model_copy(update={"score": 1.0, "recall": {"shown": 1.0}})
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
        {"before": evaluation(*rows_before), "after": evaluation(*rows_after)},
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
def opened(browser: Browser, compile_page: Page, tmp_path: Path) -> Browser:
    """The browser with the page of the compile."""
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


def test_a_click_on_a_point_of_the_frontier_shows_its_prompt(opened: Browser) -> None:
    """GEPA tries programs, the candidates. The page draws them by score and length of prompt."""
    assert visible_ids(opened, ".candidate") == []

    click(opened, 'svg a[href="#candidate-1"] circle')

    assert visible_ids(opened, ".candidate") == ["candidate-1"]
    assert texts(opened, "#candidate-1 .diff") == ["Instruction <b>1</b>"]


def test_a_filter_leaves_the_question_that_became_better(opened: Browser) -> None:
    """Of four questions, question 2 became right by the compile."""
    assert texts(opened, "#count") == ["4 questions"]

    set_filter(opened, "change", "better")

    assert texts(opened, "#count") == ["1 of 4 questions"]
    assert texts(opened, "#list .asked") == ["Question 2?"]


def test_a_click_on_a_question_shows_its_evidence(opened: Browser) -> None:
    """The prompt of question 2 had the evidence D1:1, and not D4:2."""
    set_filter(opened, "change", "better")

    click(opened, "#list button")

    assert texts(opened, "#detail > h3") == ["Question 2?"]
    assert texts(opened, "#detail > div .entries li.gold") == [
        "[D4:2] Ann: Elsewhere.",
        "[D1:1] Ann: Question 2? gold evidence",
    ]


def test_a_click_on_prompt_shows_the_prompt_of_a_question(opened: Browser) -> None:
    click(opened, "#list button")

    opened.evaluate("document.querySelector('#detail > div details > summary').click()")
    wait(opened, milliseconds=50)

    assert "[D1:2] Bob: Yes." in texts(opened, "#detail > div .prompt code")


def test_the_page_fetches_nothing_but_itself(opened: Browser) -> None:
    click(opened, "#list button")

    (address,) = opened.requests
    assert address.startswith("file:")
    assert opened.errors == []


def test_prompts_are_shown_of_a_program_that_reports_no_recall(
    browser: Browser, tmp_path: Path
) -> None:
    """Some programs do not say what they recalled.

    The page then says which evidence stood in their prompts: here D1:1, but not D4:2.
    """
    unreported = row(score=0.0, trace=UNREPORTED)
    page = run_page("evaluate", "a-run", {"score": evaluation(unreported)})
    open_page(browser, page, tmp_path)

    browser.evaluate("document.querySelector('#list button').click()")

    (detail,) = texts(browser, "#detail")
    assert "1 of 2 pieces of gold evidence found in the prompts" in detail
    assert "Gold evidence not found in the prompts\n[D4:2] Ann: There." in detail
    assert "not recalled" not in detail
    assert "Nothing was recalled" not in detail


@pytest.mark.parametrize(
    ("field", "value", "questions"),
    [
        ("category", "1", ["Question 1?", "Question 3?"]),
        ("why", "!right", ["Question 0?", "Question 1?", "Question 3?"]),
        ("hit", "all", ["Question 2?"]),
        ("words", "question 3", ["Question 3?"]),
        ("words", "nowhere", []),
    ],
)
def test_a_filter_shows_the_questions_it_names_until_it_is_reset(
    opened: Browser, field: str, value: str, questions: list[str]
) -> None:
    """Question 2 is right, and all its evidence was recalled; the others are wrong."""
    set_filter(opened, field, value)
    assert texts(opened, "#list .asked") == questions

    opened.evaluate("document.querySelector('#filters').reset()")
    wait(opened, milliseconds=20)
    assert texts(opened, "#count") == ["4 questions"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_fault_of_accessibility(opened: Browser, scheme: str) -> None:
    opened.media(prefers_color_scheme=scheme)
    opened.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    faults = serious_faults(opened)
    opened.media()  # as before, for the next test

    assert faults == []


def test_hostile_texts_neither_run_nor_break_the_page(browser: Browser, tmp_path: Path) -> None:
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
