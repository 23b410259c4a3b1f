"""`mempiler questions`: feedback of a store as a file of questions, or as a page to review.

A store keeps what users asked, and whether they called the answer right. A right answer makes a
question with a gold answer, on which programs can be compiled.
"""

import json
from pathlib import Path

from mempiler import Store, build

from ..command_line import RunCommand, json_of, output_of


def store_with_feedback(folder: Path, feedback: dict[str, bool]) -> Path:
    """Write a store in which Ada asked questions; return its path.

    She said that she moved to Lisbon, which is the answer to each question. `feedback` says whether
    she called the answer right.
    """
    path = folder / "memories.sqlite"
    with Store(path) as store:
        memory = build("turn-rag").memory(store, "ada", lm="offline", feedback=True)
        memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
        for question, is_right in feedback.items():
            memory.feedback(memory.ask(question).answer_id, right=is_right)
    return path


def test_right_answers_are_written_as_questions_and_wrong_ones_are_left_out(
    cli: RunCommand, tmp_path: Path
) -> None:
    """Ada called the first answer right, "I moved to Lisbon.", and the second one wrong."""
    feedback = {"Where did Ada move?": True, "When did Ada move?": False}
    store = store_with_feedback(tmp_path, feedback)
    questions_file = tmp_path / "questions.jsonl"

    output = output_of(cli, "questions", store, "--out", questions_file)

    assert "questions: 1 (right: 1, corrected: 0), users: 1" in output
    assert "1 left out: the right answer is not known" in output
    assert json.loads(questions_file.read_text())["answer"] == "I moved to Lisbon."


def test_the_numbers_of_questions_are_printed_as_json(cli: RunCommand, tmp_path: Path) -> None:
    """Ada called the first answer right and the second one wrong."""
    feedback = {"Where did Ada move?": True, "When did Ada move?": False}
    store = store_with_feedback(tmp_path, feedback)
    questions_file = tmp_path / "questions.jsonl"

    counts = json_of(cli, "questions", store, "--out", questions_file)

    assert counts["questions"] == 1
    assert counts["without_answer"] == 1
    assert counts["path"] == str(questions_file)


def test_with_review_a_page_is_written_in_place_of_the_file(
    cli: RunCommand, tmp_path: Path
) -> None:
    """On the page somebody can look at the feedback before it is used."""
    store = store_with_feedback(tmp_path, {"Where did Ada move?": True})
    questions_file = tmp_path / "questions.jsonl"
    page = tmp_path / "review.html"

    output = output_of(cli, "questions", store, "--out", questions_file, "--review", page)

    assert f"open {page} in a browser" in output
    assert page.exists()
    assert not questions_file.exists()


def test_a_tenant_without_feedback_gives_an_empty_file(cli: RunCommand, tmp_path: Path) -> None:
    """Ada is of no tenant, and there is nobody of the tenant acme."""
    store = store_with_feedback(tmp_path, {"Where did Ada move?": True})
    questions_file = tmp_path / "questions.jsonl"

    output = output_of(cli, "questions", store, "--out", questions_file, "--tenant", "acme")

    assert "questions: 0 (right: 0, corrected: 0), users: 0" in output
    assert questions_file.read_text() == ""


def test_a_store_that_is_not_there_is_refused(cli: RunCommand, tmp_path: Path) -> None:
    code, _, err = cli("questions", tmp_path / "typo.sqlite", "--out", tmp_path / "q.jsonl")

    assert code == 2
    assert "no memories here" in err


def test_a_file_that_mempiler_did_not_write_is_not_overwritten(
    cli: RunCommand, tmp_path: Path
) -> None:
    store = store_with_feedback(tmp_path, {"Where did Ada move?": True})
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")

    code, _, err = cli("questions", store, "--out", notes)

    assert code == 2
    assert "give --force" in err
    assert notes.read_text() == "mine"


def test_force_overwrites_a_file_that_mempiler_did_not_write(
    cli: RunCommand, tmp_path: Path
) -> None:
    store = store_with_feedback(tmp_path, {"Where did Ada move?": True})
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")

    output_of(cli, "questions", store, "--out", notes, "--force")

    assert json.loads(notes.read_text())["question"] == "Where did Ada move?"
