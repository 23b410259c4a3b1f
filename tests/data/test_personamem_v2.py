"""PersonaMem v2: cells of the CSV, linked histories, judged recall, and multiple choice.

PersonaMem v2 has requests to an assistant that knows its user's preferences, such as "Prefers
tents". The score says whether a memory recalls the preference; a model, the judge, decides that.
The metric "mcq" lets the program choose among four replies instead. A row of the CSV file holds a
request, and links to the file of the user's earlier chats.
"""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, DataError, Hit
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.personamem_v2 import PersonaMemV2

from .conftest import reference_judge
from .forms import EXAMPLE_FILES, encode_file, load, write_files

QUESTIONS_FILE = "benchmark/text/benchmark.csv"
HISTORY_FILE = "data/talk.json"
FILES = EXAMPLE_FILES["personamem-v2"]
[QUESTION] = FILES[QUESTIONS_FILE]


def load_questions(folder: Path, *changes: dict[str, str], **options: Any) -> Benchmark:
    """Load one question for each change of the example."""
    rows = [{**QUESTION, **change} for change in changes]
    path = write_files(folder, {**FILES, QUESTIONS_FILE: rows})
    return benchmark("personamem-v2", path, **options)


TENT_QUESTION = "Where should I stay? It's late."


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(repr({"content": TENT_QUESTION}), id="a Python dict"),
        pytest.param(json.dumps({"content": TENT_QUESTION}), id="JSON"),
        pytest.param(TENT_QUESTION, id="text"),
    ],
)
def test_the_cell_of_a_question_is_read_in_every_form(tmp_path: Path, cell: str) -> None:
    """In the released CSV file the cell has a Python dict, written as a text."""
    [example] = load_questions(tmp_path, {"user_query": cell}).examples
    assert example.question == TENT_QUESTION


@pytest.mark.parametrize(
    ("change", "reference"),
    [
        ({}, "Prefers tents"),
        ({"preference": ""}, "I sleep best in a tent."),
        ({"preference": "", "related_conversation_snippet": ""}, "On the camp site."),
    ],
)
def test_without_a_preference_the_snippet_or_the_right_reply_is_the_reference(
    tmp_path: Path, change: dict[str, str], reference: str
) -> None:
    """The reference is what a memory has to recall."""
    [example] = load_questions(tmp_path, change).examples
    assert example.reference == reference


def test_rows_that_are_left_out_are_reported(tmp_path: Path) -> None:
    """As in the paper on PGR, requests to forget something and sensitive rows are left out."""
    loaded = load_questions(
        tmp_path, {}, {"pref_type": "ask_to_forget"}, {"sensitive_info": "True"}
    )
    assert len(loaded.examples) == 1

    report = check("personamem-v2", tmp_path / QUESTIONS_FILE)
    assert report.ok is True
    assert report.kinds == {"left out": 2}


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (b"{", "unreadable history"),
        ({"chat_history": 3}, "wrong value"),
        ([], "empty history"),
    ],
)
def test_a_history_that_cannot_be_read_is_a_fatal_finding(
    tmp_path: Path, history: Any, kind: str
) -> None:
    """The file of a history holds the user's earlier chats: {"chat_history": [...]}."""
    path = write_files(tmp_path, {**FILES, HISTORY_FILE: history})
    report = check("personamem-v2", path)
    assert kind in [finding.kind for finding in report.findings if finding.fatal]


def test_a_symbolic_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Data from a stranger must not make the program read another file of this machine."""
    # The folder is so deep that the search for histories in the folders above does not reach
    # the file outside.
    folder = tmp_path / "a/b/c/d"
    path = write_files(folder, FILES)
    outside = tmp_path / "secret.json"
    (folder / HISTORY_FILE).rename(outside)
    (folder / HISTORY_FILE).symlink_to(outside)

    with pytest.raises(DataError, match=r"talk\.json' leads to a file outside; copy it there"):
        PersonaMemV2.load(path)


def test_the_cache_of_the_hub_where_all_files_are_links_is_read(tmp_path: Path) -> None:
    """The hub's package stores each file as a blob, and puts links to the blobs into a folder."""
    snapshot = tmp_path / "snapshots/rev"
    (tmp_path / "blobs").mkdir()
    for number, (name, content) in enumerate(FILES.items()):
        blob = tmp_path / "blobs" / str(number)
        blob.write_bytes(encode_file(name, content))
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)

    assert PersonaMemV2.load(snapshot / QUESTIONS_FILE).examples


@pytest.mark.parametrize(
    ("metric", "level", "value", "parts"),
    [
        ("recall", "implicitly", 1.0, {"recall": 1.0}),
        ("recall", "not", 0.0, {"recall": 0.0}),
        ("recall_strict", "explicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 1.0}),
        ("recall_strict", "implicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 0.0}),
        ("recall_strict", "not", 0.0, {"recall_strict": 0.0, "recall_explicit": 0.0}),
    ],
)
def test_the_judge_sees_the_recalled_entries_and_the_preference(
    tmp_path: Path, metric: str, level: str, value: float, parts: dict[str, float]
) -> None:
    """It sees no summary and not the answer. It says at which `level` the preference is recalled.

    The strict metric tells besides whether it stands there explicitly.
    """
    judge = reference_judge(level)
    loaded = load(tmp_path, "personamem-v2", metric=metric).with_judges(lambda judge_class: judge)
    [example] = loaded.examples
    context = Context(
        hits=(Hit(id="D1:2", text="user: I sleep best in a tent."),),
        notes={"summary": "Summaries are not judged."},
    )

    score = loaded.score(example, dspy.Prediction(answer="In a hotel.", context=context))

    assert score.value == value
    assert score.parts == parts
    assert "Prefers tents (the judge: why not)" in score.feedback
    entries = "[D1:2] user: I sleep best in a tent."
    assert judge.calls == [(example.question, ["Prefers tents"], entries)]


def test_a_request_is_answered_with_a_response_to_the_user(tmp_path: Path) -> None:
    """The task decides how the model is asked to answer.

    "personal-response" asks for advice to this user, other tasks ask for a short answer.
    """
    assert load(tmp_path, "personamem-v2").task == "personal-response"


def test_multiple_choice_needs_no_judge(tmp_path: Path) -> None:
    """With the metric "mcq" the program chooses among four replies."""
    loaded = load_questions(tmp_path, {}, metric="mcq")
    assert loaded.task == "multiple-choice"
    assert loaded.scorer.title == "accuracy"
    assert not loaded.scorer.required_judges


def test_the_options_of_multiple_choice_are_all_replies(tmp_path: Path) -> None:
    [example] = load_questions(tmp_path, {}, metric="mcq").examples

    assert set(example.inputs().keys()) == {"history", "question", "options", "evidence_ids"}
    # An option is a letter in brackets, a space, and a reply.
    replies = [option[4:] for option in example.options]
    assert sorted(replies) == ["At home.", "In a castle.", "In a hotel.", "On the camp site."]


def test_the_right_option_of_multiple_choice_stands_at_any_place(tmp_path: Path) -> None:
    """The order of the options is drawn for each row. The right reply is `correct_answer`."""
    changes = [{"correct_answer": f"Reply {number}."} for number in range(30)]

    examples = load_questions(tmp_path, *changes, metric="mcq").examples

    for number, example in enumerate(examples):
        assert f"{example.answer} Reply {number}." in example.options
    assert {example.answer for example in examples} == {"(a)", "(b)", "(c)", "(d)"}


def test_the_options_of_multiple_choice_have_the_same_order_each_time(tmp_path: Path) -> None:
    changes = [{"correct_answer": f"Reply {number}."} for number in range(30)]

    first = load_questions(tmp_path, *changes, metric="mcq")
    second = load_questions(tmp_path, *changes, metric="mcq")

    first_options = [example.options for example in first.examples]
    assert [example.options for example in second.examples] == first_options


def test_the_length_chooses_the_link(tmp_path: Path) -> None:
    """A row links to a history of each length. The link for 128k is data/long.json."""
    with pytest.raises(DataError, match=r"chat_history_128k_link.*'data/long\.json'"):
        load(tmp_path, "personamem-v2", length="128k")

    long_history = FILES[HISTORY_FILE]["chat_history"] * 2
    write_files(tmp_path, {"data/long.json": long_history})

    # The long history is the short one of three turns, twice.
    [example] = load(tmp_path, "personamem-v2", length="128k").examples
    assert len(example.history.turns) == 6
