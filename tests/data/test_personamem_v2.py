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

from .conftest import judge_of_references
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
    """In the released CSV file the cell of a question has a Python dict, written as a text."""
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
    """The reference is what a memory has to recall. Some rows lack the user's preference."""
    [example] = load_questions(tmp_path, change).examples
    assert example.reference == reference


def test_requests_to_forget_and_sensitive_rows_are_left_out_and_reported(tmp_path: Path) -> None:
    """The paper on PGR, a method that is compared on this benchmark, leaves them out too."""
    loaded = load_questions(
        tmp_path,
        {"pref_type": "neutral_pref"},
        {"pref_type": "ask_to_forget"},
        {"sensitive_info": "True"},
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
    """Data from a stranger must not make the program read another file of this machine.

    A row names the file data/talk.json, which is a link to a secret file here.
    """
    # Histories are also looked for in the folders above, but not so far up.
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


def prediction_with_recalled_tent(answer: str) -> dspy.Prediction:
    """Return an answer for which an entry about a tent was recalled, and a summary."""
    entry = Hit(id="D1:2", text="user: I sleep best in a tent.")
    context = Context(hits=(entry,), notes={"summary": "Summaries are not judged."})
    return dspy.Prediction(answer=answer, context=context)


@pytest.mark.parametrize("metric", ["recall", "recall_strict"])
def test_the_judge_sees_the_recalled_entries_and_the_preference_but_no_answer(
    tmp_path: Path, metric: str
) -> None:
    judge = judge_of_references("implicit")
    loaded = load(tmp_path, "personamem-v2", metric=metric).with_judges(lambda judge_class: judge)
    [example] = loaded.examples

    loaded.score(example, prediction_with_recalled_tent(answer="In a hotel."))

    entries = "[D1:2] user: I sleep best in a tent."
    assert judge.calls == [(example.question, ["Prefers tents"], entries)]


@pytest.mark.parametrize("metric", ["recall", "recall_strict"])
@pytest.mark.parametrize(
    ("verdict", "recall"), [("absent", 0.0), ("implicit", 1.0), ("explicit", 1.0)]
)
def test_the_score_says_whether_the_judge_finds_the_preference_in_the_recalled_entries(
    tmp_path: Path, metric: str, verdict: str, recall: float
) -> None:
    """The user prefers tents, and the judge gives the reason "why not" for its verdict."""
    judge = judge_of_references(verdict)
    loaded = load(tmp_path, "personamem-v2", metric=metric).with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], prediction_with_recalled_tent(answer="In a hotel."))

    assert score.value == recall
    assert score.parts[metric] == recall
    assert "Prefers tents (the judge: why not)" in score.feedback


def test_multiple_choice_needs_no_judge(tmp_path: Path) -> None:
    """With the metric "mcq" the program chooses among four replies."""
    loaded = load(tmp_path, "personamem-v2", metric="mcq")
    assert loaded.task == "multiple-choice"
    assert loaded.scorer.title == "accuracy"
    assert not loaded.scorer.required_judges


def test_the_options_of_multiple_choice_are_all_replies(tmp_path: Path) -> None:
    """An option has a letter in brackets before the reply. The order is drawn at random."""
    [example] = load(tmp_path, "personamem-v2", metric="mcq").examples

    assert "options" in example.inputs()
    replies = [option.partition(") ")[2] for option in example.options]
    assert sorted(replies) == ["At home.", "In a castle.", "In a hotel.", "On the camp site."]


def load_thirty_choices(folder: Path) -> tuple[dspy.Example, ...]:
    """Load thirty questions whose right replies are "Reply 0.", "Reply 1." and so on."""
    changes = [{"correct_answer": f"Reply {number}."} for number in range(30)]
    return load_questions(folder, *changes, metric="mcq").examples


def test_the_right_option_of_multiple_choice_stands_at_a_fixed_random_place(
    tmp_path: Path,
) -> None:
    """The place is drawn for each question, and is the same whenever the file is read."""
    examples = load_thirty_choices(tmp_path)
    examples_again = load_thirty_choices(tmp_path)

    for number, example in enumerate(examples):
        assert f"{example.answer} Reply {number}." in example.options
    assert {example.answer for example in examples} == {"(a)", "(b)", "(c)", "(d)"}
    answers_again = [example.answer for example in examples_again]
    assert answers_again == [example.answer for example in examples]


def test_the_length_chooses_the_file_with_the_history(tmp_path: Path) -> None:
    """A row links to a chat of each length. That of 128k tokens is in data/long.json."""
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    path = write_files(tmp_path, {**FILES, "data/long.json": messages})

    [example] = PersonaMemV2.load(path, length="128k").examples

    assert [turn.text for turn, _ in example.history.turns.values()] == ["Hi.", "Hello."]


def test_a_history_of_the_wanted_length_has_to_be_there(tmp_path: Path) -> None:
    """The example has the file of 32k tokens only."""
    with pytest.raises(DataError, match=r"chat_history_128k_link.*'data/long\.json'"):
        load(tmp_path, "personamem-v2", length="128k")
