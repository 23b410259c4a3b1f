"""What people are told of a run, page and lines: every question, however bad its text, and what numbers rest on."""

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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
from mempiler.runs.results import Evaluation
from mempiler.runs.question_trace import (
    MAX_PROMPT_LENGTH,
    Clock,
    Entry,
    LMCall,
    QuestionTrace,
    make_question_trace,
)
from mempiler.runs.rows import Row
from rich.console import Console

from ..evaluations import evaluation as made
from ..evaluations import row as a_row

HOSTILE = {
    "an element": "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>",
    "the end of the data": "</script><script>document.title = 'broken'</script><!--<script>",
    "100,000 characters": "long " * 20_000,
    "right to left": "\u202eabc\u202c שלום עולם",
    "half a character": "cut \ud83d here \ude00",
    "line ends of scripts": "one\u2028two\u2029three\x00four",
    "a template": "{{ 7 * 7 }}{% raw %}",
}


UNREPORTED = QuestionTrace(
    evidence={"D1:1": "[D1:1] Ann: Where?", "D4:2": "[D4:2] Ann: There."}, in_prompts=("D1:1",)
)
"""Of a program that does not report what it recalled."""


def row(n: int = 0, text: str = "Where?", score: float = 1.0, **changes: Any) -> Row:
    seen = QuestionTrace(
        entries=(
            Entry(line=f"[D1:1] Ann: {text}"[:600], kind="turn", sources=("D1:1",)),
            Entry(line="[D1:2] Bob: Yes.", kind="turn", sources=("D1:2",)),
        ),
        evidence={"D1:1": f"[D1:1] Ann: {text}"[:600], "D4:2": "[D4:2] Ann: Elsewhere."},
        calls=(
            LMCall(
                predictor="task.answer",
                outcome="ok",
                messages=(("user", "What?\n[D1:2] Bob: Yes."),),
                answer="A",
            ),
        ),
    )
    texts = dict.fromkeys(("question", "gold", "answer"), text)
    about: dict[str, Any] = {
        "category": "1",
        "recall": {"shown": 0.5},
        "sources": ("D1:1", "D1:2"),
        "trace": seen,
    }
    return a_row(**{"id": f"q{n}", "score": score, **about, **texts, **changes})


def evaluation(*rows: Row, **changes: Any) -> Evaluation:
    """An evaluation that lost two of twelve answers."""
    return made(rows, **{"call_outcomes": {"task.answer": {"ok": 10, "lost": 2}}, **changes})


@pytest.mark.parametrize(
    ("changes", "why", "hit"),
    [
        ({}, "right", "part"),
        ({"score": 0.5}, "right", "part"),
        ({"score": 0.49}, "part", "part"),
        ({"score": 0.0, "recall": {"shown": 0.0}}, "missed", "none"),
        ({"score": 0.0, "recall": {"shown": 1.0}}, "read", "all"),
        ({"score": 0.0, "recall": {"recall@20": 1.0}}, "read", "all"),
        ({"score": 0.0, "recall": {}}, "wrong", ""),
        ({"score": 0.0, "trace": UNREPORTED}, "unknown", ""),
        (
            {"score": 0.0, "trace": UNREPORTED.model_copy(update={"in_prompts": ("D1:1", "D4:2")})},
            "prompted",
            "",
        ),
        ({"score": 1.0, "trace": UNREPORTED}, "right", ""),
        (
            {"score": 0.0, "failure": Failure(kind="parse", where="x", message="y")},
            "failed",
            "part",
        ),
    ],
)
def test_a_question_says_where_it_went_wrong(changes: dict[str, Any], why: str, hit: str) -> None:
    shown = row(**changes)
    assert shown.reason == why
    assert shown.recall_extent == hit
    assert shown.right == (why == "right")


def test_recalled_entries_and_prompts_are_named_by_their_lines() -> None:
    html = render_page(run_page("evaluate", "run", {"score": evaluation(row(), row(1))}))
    data = json.loads(
        html.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    )
    (first,), (second,) = (each["shown"] for each in data["questions"])
    lines, said = data["lines"], first["calls"][0]["messages"][0]["content"]
    assert [lines[entry["line"]] for entry in first["entries"]] == [
        "[D1:1] Ann: Where?",
        "[D1:2] Bob: Yes.",
    ]
    assert [entry["gold"] for entry in first["entries"]] == [True, False]
    assert first["found"] == ["D1:1"]
    assert [lines[n] for n in said] == ["What?", "[D1:2] Bob: Yes."]
    # Lines that recur are there once, and a prompt names the very line of an entry.
    assert len(set(lines)) == len(lines)
    assert said[1] == first["entries"][1]["line"]
    assert second["entries"] == first["entries"]


def test_a_changed_prompt_is_shown_as_a_diff() -> None:
    a = PredictorState(instructions="Answer.\nShort.", fields=[], demos=[])
    b = PredictorState(
        instructions="Answer.\nLong.", fields=[], demos=[], config={"temperature": 0.5}
    )
    changed, same = prompt_changes({"p": a, "q": a}, {"p": b, "q": a})
    assert [line for line in changed.diff if line[:1] in "+-"] == [
        *("-Short.", "+Long."),
        *("+", "+Settings: temperature = 0.5"),
    ]
    assert changed.changed is True
    assert same.changed is False
    assert {" Answer.", " Short."} <= set(same.diff)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_is_more_than_text(text: str, tmp_path: Path) -> None:
    whole = evaluation(
        row(text=text, answer=text, category=text[:80].encode("utf-8", "replace").decode())
    )
    page = run_page(
        "evaluate", "run", {"score": whole}, facts=[("Said", text[:200])], notes=[text[:200]]
    )
    html = save_page(tmp_path, page).read_text(encoding="utf-8")
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert "onerror=alert(1)>" not in html
    assert len(html) < 150_000
    assert open_page(RunFolder(tmp_path)).name == "run"


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_embedded_text_comes_back_whole_or_mended(text: str) -> None:
    found = json_for_script({"said": text})
    assert not set("<>&\u2028\u2029") & set(found)
    assert json.loads(found)["said"] == text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    ) or any("\ud800" <= char <= "\udfff" for char in text)


def test_policy_lets_only_the_page_s_own_scripts_run() -> None:
    html = render_page(run_page("evaluate", "run", {"score": evaluation(row())}))
    policy = html.split('Content-Security-Policy" content="')[1].split('"')[0].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in html.replace('"http-equiv', "").replace("<meta http-equiv", "")
    assert " onclick" not in html
    assert " style=" not in html


@pytest.mark.parametrize(
    ("lengths", "whole"),
    [
        ((1000, 2000), [True, True]),
        # The middle of a long question is left out, the short instructions before it are not.
        ((1000, 100_000), [True, False]),
        # Demos make room for the question's own message, and the instructions are shorter than their share.
        ((400, *(3000 for _ in range(20)), 5000), [True, *(False for _ in range(20)), True]),
    ],
)
def test_a_prompt_of_any_length_is_bounded(lengths: tuple[int, ...], whole: list[bool]) -> None:
    messages = tuple({"role": "user", "content": "x" * length} for length in lengths)
    call = PredictorCall(None, {}, completions=[Completion(messages, "yes")])
    (asked,) = make_question_trace(
        dspy.Example(history=(), evidence_ids=()), None, [call], "", Clock()
    ).calls
    assert [
        text == "x" * length for (_, text), length in zip(asked.messages, lengths, strict=True)
    ] == whole
    assert sum(len(text) for _, text in asked.messages) < MAX_PROMPT_LENGTH + 50 * len(lengths)
    assert all(
        kept or "characters left out" in text
        for (_, text), kept in zip(asked.messages, whole, strict=True)
    )


def test_a_page_that_cannot_be_drawn_costs_the_run_nothing(tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setattr(
        "mempiler.runs.pages.html.render_page", Mock(side_effect=ValueError("half of\na page"))
    )
    assert save_page(tmp_path, Page(command="evaluate", name="run", title="x")) is None
    assert [record.message for record in caplog.records] == [
        f"no page of {tmp_path.name}: half of a page"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json.gz"]
    assert open_page(RunFolder(tmp_path)).name == "run"


def scored(scores: dict[str, list[float]], **changes: Any) -> Evaluation:
    """An evaluation with the given scores by category."""
    failed = Failure(kind="error", where="x", message="y")
    rows = [
        a_row(
            f"{category}:{n}",
            score,
            category=category,
            recall={"recall@5": 1.0},
            failure=None if score else failed,
        )
        for category, values in scores.items()
        for n, score in enumerate(values)
    ]
    calls, tokens = (
        {"task": 12, "prompt": 0, "judge": 2, "cached": 0},
        {"input": 1234, "output": 56},
    )
    return made(
        rows, **{"calls": calls, "tokens": tokens, "cost": None, "seconds": 1.25, **changes}
    )


def shown(**phases: Evaluation) -> list[str]:
    """What the terminal shows of evaluations, line by line."""
    console = Console(file=io.StringIO(), width=120, soft_wrap=True)
    for line in page_lines(run_page("evaluate", "a-run", phases)):
        console.print(line)
    return console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


def test_an_evaluation_shows_categories_and_what_they_rest_on():
    lines = shown(score=scored({"1": [0.5, 0.25], "5": [1.0]}))
    rows = [line.split() for line in lines]
    assert ["1", "2", "0.375", "[0.250,", "0.500]", "0.375", "0"] in rows
    assert ["5", "(not", "in", "score)", "1", "1.000", "1.000", "0"] in rows
    assert ["score", "2", "0.375", "[0.250,", "0.500]", "0.375", "0"] in rows
    assert "95 % intervals, resampled by question" in lines


@pytest.mark.parametrize("comparable", [True, False])
def test_a_wiring_check_is_headed_so_on_one_line(comparable):
    long = scored({"1": [0.5]}, comparable=comparable, program="a-very-long-method-name-" * 4)
    assert (SMOKE_TEST in shown(score=long)[0]) is not comparable


@pytest.mark.parametrize(
    ("changes", "cached", "cost"),
    [
        ({}, "", "no price known"),
        ({"cost": 0.5}, "", "$0.5000"),
        (
            {"prompt_cache": {"told": 200, "reused": 150}},
            " (75% of the prompts from the server's cache)",
            "no price known",
        ),
    ],
)
def test_usage_is_one_line(changes, cached, cost):
    found = usage_facts({"score": scored({"1": [0.5]}, **changes)})
    assert found == [
        ("LM calls", f"12 task, 2 judge; 1,234 prompt + 56 answer tokens{cached}; {cost}; 1.2 s")
    ]


def test_calls_that_were_made_elsewhere_are_marked():
    """Four calls: three wrote the memory, of which an endpoint tells that it paid for them."""
    writing = Usage(3, 600, 0, 1.0, seconds=2.0)
    taken = {"calls": 1, "prompt_tokens": 90, "output_tokens": 10, "cost": 0.25, "answering": 0.5}
    taken |= {"search": 2.0, "search_cpu": 1.5}
    here = made([a_row(**taken)], construction=writing, cost=None)
    assert here.metered_usage["calls"]["task"] == 1
    away = here.model_copy(update={"calls": {"task": 0}, "tokens": {"input": 0, "output": 0}})
    assert away.metered_usage["calls"] == {"elsewhere": 4}
    calls, retrieval = usage_facts({"score": away})
    assert calls[1].startswith("4 elsewhere; 690 prompt + 10 answer tokens; $1.2500")
    assert retrieval == ("Retrieval", "p50 2.0 ms, p95 2.0 ms, CPU 1.5 ms")


def test_a_page_with_other_phases_counts_those():
    page = run_page(
        "compare", "a-run", {"a": evaluation(row(0)), "b": evaluation(row(0, score=0.0))}, []
    )
    assert page.total is not None
    assert len(page.questions[0].rows) == 2
    alone = page.model_copy(update={"phases": {"a": page.phases["a"]}})
    assert len(alone.questions[0].rows) == 1
    assert page.model_copy(update={"phases": {}}).total is None
