"""A run's page in a browser: from a filter to a question, its prompt and its evidence; by keyboard, without network."""

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
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def compiled() -> Page:
    """A compile with everything that a page shows."""
    rows = [row(n, f"Question {n}?", score=0.0, category=str(n % 2)) for n in range(4)]
    after = [
        *rows[:2],
        rows[2].model_copy(update={"score": 1.0, "recall": {"shown": 1.0}}),
        rows[3],
    ]
    phases = {"before": evaluation(*rows), "after": evaluation(*after)}
    change = PromptChange(predictor="p", diff=("-Short.", "+Long."))
    found = run_page(
        "compile",
        "a-run",
        phases,
        [("Command", "mempiler compile")],
        ["A note."],
        "better",
        [change],
    )
    points = tuple(
        Candidate(number=n, score=n / 3, n=4 + n % 2, calls=10 * n, cost=0.0) for n in range(1, 4)
    )
    frontier = tuple(
        FrontierPoint(
            n,
            (0,) if n else (),
            {"p": f"Instruction <b>{n}</b>"},
            n / 3,
            4,
            100.0 + n,
            on_frontier=True,
        )
        for n in range(3)
    )
    return found.model_copy(
        update={"history": points, "frontier": frontier, "warning": "smoke test"}
    )


@pytest.fixture
def opened(browser: Browser, compiled: Page, tmp_path: Path) -> Browser:
    (tmp_path / "report.html").write_text(render_page(compiled), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    return browser


def text(browser: Browser, selector: str) -> list[str]:
    return browser.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
    )


def choose(browser: Browser, field: str, value: str) -> None:
    name = json.dumps(f"#f-{field}")
    browser.evaluate(f"document.querySelector({name}).value = {json.dumps(value)}")
    browser.evaluate(f"document.querySelector({name}).dispatchEvent(new Event('input'))")


def test_a_click_on_a_point_of_the_frontier_shows_its_prompt(opened: Browser) -> None:
    shown = "[...document.querySelectorAll('.candidate')].filter((each) => each.offsetHeight).map((each) => each.id)"
    assert opened.evaluate(shown) == []
    click = "document.querySelector('svg a[href=\"#candidate-1\"] circle').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    opened.evaluate(click)
    assert opened.evaluate(shown) == ["candidate-1"]
    assert text(opened, "#candidate-1 .diff") == ["Instruction <b>1</b>"]


def test_from_a_filter_to_a_question_its_prompt_and_its_evidence(opened: Browser) -> None:
    assert text(opened, "#count") == ["4 questions"]
    choose(opened, "change", "better")
    assert text(opened, "#count") == ["1 of 4 questions"]
    assert text(opened, "#list .asked") == ["Question 2?"]
    opened.evaluate("document.querySelector('#list button').click()")
    assert text(opened, "#detail > h3") == ["Question 2?"]
    assert text(opened, "#detail > div .entries li.gold") == [
        "[D4:2] Ann: Elsewhere.",
        "[D1:1] Ann: Question 2? gold evidence",
    ]
    opened.evaluate("document.querySelector('#detail > div details > summary').click()")
    opened.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert "[D1:2] Bob: Yes." in text(opened, "#detail > div .prompt code")
    assert [url for url in opened.requests if not url.startswith("file:")] == []
    assert len(opened.requests) == 1
    assert opened.errors == []


def test_prompts_are_shown_of_a_program_that_reports_no_recall(
    browser: Browser, tmp_path: Path
) -> None:
    unreported = row(score=0.0, trace=UNREPORTED)
    page = run_page("evaluate", "a-run", {"score": evaluation(unreported)})
    (tmp_path / "report.html").write_text(render_page(page), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    browser.evaluate("document.querySelector('#list button').click()")
    (shown,) = text(browser, "#detail")
    assert "1 of 2 pieces of gold evidence found in the prompts" in shown
    assert "Gold evidence not found in the prompts\n[D4:2] Ann: There." in shown
    assert "not recalled" not in shown
    assert "Nothing was recalled" not in shown


def test_filters_leave_what_they_name(opened: Browser) -> None:
    for field, value, left in (
        ("category", "1", ["Question 1?", "Question 3?"]),
        ("why", "!right", ["Question 0?", "Question 1?", "Question 3?"]),
        ("hit", "all", ["Question 2?"]),
        ("words", "question 3", ["Question 3?"]),
        ("words", "nowhere", []),
    ):
        choose(opened, field, value)
        assert text(opened, "#list .asked") == left
        opened.evaluate("document.querySelector('#filters').reset()")
        opened.evaluate("new Promise((done) => setTimeout(done, 20))")
        assert text(opened, "#count") == ["4 questions"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(opened: Browser, scheme: str) -> None:
    opened.media(prefers_color_scheme=scheme)
    opened.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = serious_faults(opened)
    opened.media()
    assert found == []


def test_no_text_does_anything(browser: Browser, tmp_path: Path) -> None:
    rows = [
        row(n, text=said, answer=said, id=f"{n} {said}") for n, said in enumerate(HOSTILE.values())
    ]
    page = run_page("evaluate", "a-run", {"score": evaluation(*rows)})
    (tmp_path / "report.html").write_text(render_page(page), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    assert browser.evaluate("document.title") == "turn-rag on locomo · a-run"
    assert browser.evaluate("document.images.length") == 0
    assert len(browser.requests) == 1
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert text(browser, "#count") == [f"{len(HOSTILE)} questions"]
