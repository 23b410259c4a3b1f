"""`mempiler questions`: feedback of a store as a file of questions, or as a page to review."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mempiler import Store, build

RunCommand = Callable[..., tuple[int, str, str]]
"""Words of a command -> its exit code, standard output and standard error."""


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A store in which Ada called an answer right, and another one wrong."""
    path = tmp_path / "memories.sqlite"
    with Store(path) as store:
        memory = build("turn-rag").memory(store, "ada", lm="offline", feedback=True)
        memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
        memory.feedback(memory.ask("Where did Ada move?").answer_id, right=True)
        memory.feedback(memory.ask("When did Ada move?").answer_id, right=False)
    return path


def test_questions_are_written_and_counted(
    cli: RunCommand, store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "questions.jsonl"

    code, output, _ = cli("questions", store_path, "--out", out)

    assert code == 0
    assert "questions: 1 (right: 1, corrected: 0), users: 1" in output
    assert "1 left out: the right answer is not known" in output
    assert json.loads(out.read_text())["answer"] == "I moved to Lisbon."


def test_counts_come_as_json(cli: RunCommand, store_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "questions.jsonl"

    code, output, _ = cli("questions", store_path, "--out", out, "--json")

    assert code == 0
    counts = json.loads(output)
    assert (counts["questions"], counts["without_answer"]) == (1, 1)
    assert counts["path"] == str(out)


def test_a_review_page_is_written_in_place_of_the_file(
    cli: RunCommand, store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "questions.jsonl"
    page = tmp_path / "review.html"

    code, output, _ = cli("questions", store_path, "--out", out, "--review", page)

    assert code == 0
    assert f"open {page} in a browser" in output
    assert page.exists()
    assert not out.exists()


def test_a_tenant_without_feedback_gives_an_empty_file(
    cli: RunCommand, store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "questions.jsonl"

    code, output, _ = cli("questions", store_path, "--out", out, "--tenant", "acme")

    assert code == 0
    assert "questions: 0 (right: 0, corrected: 0), users: 0" in output
    assert out.read_text() == ""


def test_a_store_that_is_not_there_is_refused(cli: RunCommand, tmp_path: Path) -> None:
    code, _, errors = cli("questions", tmp_path / "typo.sqlite", "--out", tmp_path / "q.jsonl")

    assert code == 2
    assert "no memories here" in errors
    assert "Traceback" not in errors


def test_a_file_of_somebody_else_is_not_overwritten(
    cli: RunCommand, store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "questions.jsonl"
    out.write_text("mine")

    code, _, errors = cli("questions", store_path, "--out", out)
    assert code == 2
    assert "give --force" in errors
    assert out.read_text() == "mine"

    code, _, _ = cli("questions", store_path, "--out", out, "--force")
    assert code == 0
