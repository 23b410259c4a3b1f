"""PersonaMem v1: histories and contexts, categories, the length of a file, and scores.

PersonaMem asks which of four replies suits a user best, after long chats. A context is a list of
messages that many questions share; it stands in a file beside the questions. A category is a skill,
such as "suggest_new_ideas"; there are seven. Files have three lengths: contexts of about 32k, 128k
or 1M tokens.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import DataError, UnknownNameError, UserError, build
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.personamem import PersonaMem
from mempiler.runs.scoring import score_questions

from .forms import EXAMPLE_FILES, load, write_files

QUESTIONS_FILE = "questions_32k.csv"
CONTEXTS_FILE = "shared_contexts_32k.jsonl"
FILES = EXAMPLE_FILES["personamem"]
[QUESTION] = FILES[QUESTIONS_FILE]
[CONTEXT] = FILES[CONTEXTS_FILE]


def load_questions(folder: Path, *changes: dict[str, str], **options: Any) -> Benchmark:
    """Load one question, called q0, q1 and so on, for each change of the example."""
    rows = [
        {**QUESTION, "question_id": f"q{number}", **change} for number, change in enumerate(changes)
    ]
    return benchmark("personamem", write_files(folder, {**FILES, QUESTIONS_FILE: rows}), **options)


def write_contexts(folder: Path, *contexts: Any) -> Path:
    """Write the example with other contexts, and return the file to load."""
    return write_files(folder, {**FILES, CONTEXTS_FILE: list(contexts)})


def histories_with_messages(folder: Path, *counts: int) -> list[Any]:
    """Return the histories of questions that are asked after so many messages of a context."""
    changes = [{"end_index_in_shared_context": str(count)} for count in counts]
    return [example.history for example in load_questions(folder, *changes).examples]


def test_a_history_ends_with_the_message_that_its_question_names(tmp_path: Path) -> None:
    """A context is a list of messages that many questions share. D1 is its first session."""
    [history] = histories_with_messages(tmp_path, 4)
    assert list(history.turns) == ["D1:1", "D1:2", "D1:3", "D2:1"]


def test_histories_of_one_context_share_their_sessions(tmp_path: Path) -> None:
    """The memory of a longer history is made by going on with the memory of a shorter one."""
    short, long, same = histories_with_messages(tmp_path, 4, 6, 6)
    assert same is long
    assert long.items[0] is short.items[0]
    assert long.prefixes[:1] == short.prefixes[:1]


def test_only_the_contexts_that_are_needed_are_parsed(tmp_path: Path) -> None:
    """The file of contexts is large. A line of it begins with the id of its context.

    The question needs the second line. The first one is cut short, and the third is no JSON.
    """
    unneeded_context = '{"other": [{"role"'
    path = write_contexts(tmp_path, unneeded_context, CONTEXT, "not even JSON")
    assert benchmark("personamem", path).examples


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ('{"c1": [{"role"', "shared_contexts_32k.jsonl, line 1, column"),
        (
            {"c1": "text"},
            "shared_contexts_32k.jsonl, line 1, field 'messages': is 'text', expected a valid list",
        ),
        ({"c1": []}, "holds no message with text before the question"),
    ],
)
def test_a_broken_context_is_refused(tmp_path: Path, context: Any, problem: str) -> None:
    """A context is a list of messages that many questions share, in a file of its own."""
    with pytest.raises(DataError, match=problem):
        benchmark("personamem", write_contexts(tmp_path, context))


def test_a_missing_file_of_contexts_is_refused(tmp_path: Path) -> None:
    """The contexts are the chats; they stand in a file beside that of the questions."""
    path = write_files(tmp_path, FILES)
    (tmp_path / CONTEXTS_FILE).unlink()
    with pytest.raises(DataError, match=r"shared_contexts_32k\.jsonl is not beside it"):
        PersonaMem.load(path)


def test_categories_choose_skills(tmp_path: Path) -> None:
    loaded = load_questions(
        tmp_path,
        {"question_type": "suggest_new_ideas"},
        {"question_type": "recall_user_shared_facts"},
        categories="recall_user_shared_facts",
    )
    assert [example.category for example in loaded.examples] == ["recall_user_shared_facts"]


def test_a_skill_is_known_by_the_other_name_that_files_have_for_it(tmp_path: Path) -> None:
    loaded = load_questions(tmp_path, {"question_type": "recalling_facts_mentioned_by_the_user"})
    assert [example.category for example in loaded.examples] == ["recall_user_shared_facts"]


@pytest.fixture
def folder_of_32k_and_128k(tmp_path: Path) -> Path:
    """A folder with the files of two lengths, 32k and 128k tokens."""
    for length in ("32k", "128k"):
        files = {name.replace("32k", length): content for name, content in FILES.items()}
        write_files(tmp_path, files)
    return tmp_path


@pytest.mark.parametrize("name", ["", "questions_32k.csv"], ids=["a folder", "another file"])
def test_the_length_chooses_the_file(folder_of_32k_and_128k: Path, name: str) -> None:
    """The length decides even if the user names the file of another length."""
    loaded = PersonaMem.load(folder_of_32k_and_128k / name, length="128k")
    assert loaded.source.name == "questions_128k.csv"


def test_a_check_refuses_the_option_of_another_benchmark(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="option of locomo"):
        check("locomo", tmp_path, length="128k")


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({}, DataError, "choose with --benchmark-set length="),
        ({"length": "1M"}, DataError, r"holds no questions_1M\.csv"),
        ({"length": "64k"}, UserError, "length = '64k'"),
    ],
)
def test_a_missing_or_unknown_length_is_refused(
    folder_of_32k_and_128k: Path, options: dict[str, str], error: type[Exception], problem: str
) -> None:
    """Where a folder has files of several lengths, the user has to choose one of them."""
    with pytest.raises(error, match=problem):
        PersonaMem.load(folder_of_32k_and_128k, **options)


def test_a_skill_without_a_question_is_listed_without_figures(model_that_replies: Any) -> None:
    """One question of one skill is scored; the table has a row for each of the seven skills."""
    loaded = PersonaMem.load(categories="suggest_new_ideas")
    program = build("no-memory", task=loaded.task)
    lm = model_that_replies({"answer": "(a)"})

    with dspy.context(lm=lm):
        evaluation = score_questions(program, loaded, loaded.examples[:1], lm.meter)

    figures = evaluation.by_category()
    assert len(figures) == 7
    assert figures["suggest_new_ideas"]["n"] == 1
    absent_skill = figures["acknowledge_latest_user_preferences"]
    assert absent_skill["n"] == 0
    assert absent_skill["score"] is None
    assert absent_skill["context_tokens"] is None


def test_the_feedback_on_a_wrong_answer_names_the_right_option(tmp_path: Path) -> None:
    """The right option of the example is (b), "It's silence."."""
    loaded = load(tmp_path, "personamem")
    [example] = loaded.examples

    wrong = loaded.score(example, dspy.Prediction(answer="(a)"))
    assert "(b) It's silence." in wrong.feedback

    right = loaded.score(example, dspy.Prediction(answer="(b)"))
    assert "(b) It's silence." not in right.feedback
