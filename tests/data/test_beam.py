"""BEAM: both forms of its files, what is odd or broken in them, and its two rules of scoring.

BEAM asks questions about very long chats of a user with an assistant. There are ten kinds of
questions, which are called abilities. The right answer is given as a rubric: a list of items that
an answer has to hold. A model, the judge, scores each item with 0, 0.5 or 1. For "event_ordering"
the order of the events counts as well.

A chat is a list of batches. A batch is a list of turns, and each turn (a question of the user and
what follows it) becomes a session of our history. The data stand in folders of files, or in rows of
the Hugging Face hub.
"""

import copy
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.beam.benchmark import Beam
from mempiler.data.beam.reader import ABILITIES
from mempiler.data.beam.scorer import Grade
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.judge_check import judge_of
from mempiler.errors import DataError
from pyarrow import Table
from pyarrow.parquet import write_table

from .forms import EXAMPLE_FILES, Change, Files, history_lines, put, unchanged, write_files

CHAT_FILE = "100K/7/chat.json"
QUESTIONS_FILE = "100K/7/probing_questions/probing_questions.json"
FILES = EXAMPLE_FILES["beam"]
BATCHES = FILES[CHAT_FILE]
QUESTIONS = FILES[QUESTIONS_FILE]


def test_the_size_chooses_a_folder(tmp_path: Path) -> None:
    """Chats have several sizes, with a folder for each. The example is chat 7 of the size 100K."""
    write_files(tmp_path, FILES)

    loaded = benchmark("beam", tmp_path, size="100K")

    assert set(loaded.source.files) == {
        "100K/7/chat.json",
        "100K/7/probing_questions/probing_questions.json",
    }


def test_a_size_without_a_chat_is_refused(tmp_path: Path) -> None:
    """The example is a chat of the size 100K."""
    write_files(tmp_path, FILES)
    with pytest.raises(DataError, match="no chat of the size 10M"):
        benchmark("beam", tmp_path, size="10M")


def test_some_questions_cannot_be_answered(tmp_path: Path) -> None:
    """These are the questions of the ability "abstention"."""
    assert benchmark("beam", write_files(tmp_path, FILES)).has_unanswerable is True


def hub_row() -> dict[str, Any]:
    """Return the chat as a row of the hub: batches are flat, and absent fields are null."""
    absent_fields = {"index": None, "question_type": None, "time_anchor": None}
    chat: list[list[dict[str, Any]]] = []
    for batch in BATCHES:
        messages: list[dict[str, Any]] = []
        for turn in batch["turns"]:
            messages.extend({**absent_fields, **message} for message in turn)
        chat.append(messages)
    return {
        "conversation_id": "7",
        "chat": chat,
        "probing_questions": repr(QUESTIONS),
        "narratives": "x",
    }


@pytest.mark.parametrize("name", ["100K-0.parquet", "100K.jsonl", "100K.json"])
def test_a_row_of_the_hub_is_the_same_chat(tmp_path: Path, name: str) -> None:
    """The hub has the same data as tables. `hub_row` writes the chat of `FILES` as a row."""
    if name.endswith("parquet"):
        write_table(Table.from_pylist([hub_row()]), tmp_path / name)
    else:
        write_files(tmp_path, {name: [hub_row()]})

    from_hub = benchmark("beam", tmp_path / name)
    from_folder = benchmark("beam", write_files(tmp_path / "folder", FILES))

    hub_examples = [example.toDict() for example in from_hub.examples]
    assert hub_examples == [example.toDict() for example in from_folder.examples]


def with_ids_from(first_id: int) -> list[dict[str, Any]]:
    """Return the batches of the chat, whose message ids begin at another number than 0."""
    batches = copy.deepcopy(BATCHES)
    for batch in batches:
        for turn in batch["turns"]:
            for message in turn:
                message["id"] += first_id
    return batches


# The message 9 is the second one of the second plan: the first plan has 8 messages.
QUESTION_ABOUT_MESSAGE_9 = {
    "information_extraction": [{"question": "?", "rubric": ["x"], "source_chat_ids": [9]}]
}


@pytest.mark.parametrize(
    "chat_files",
    [
        pytest.param(
            {"10M/1/chat.json": [{"plan-1": BATCHES}, {"plan-2": with_ids_from(8)}]},
            id="ids count through all plans",
        ),
        pytest.param(
            {
                "10M/1/chat.json": [
                    {"plan-1": BATCHES, "plan-3": None},
                    {"plan-3": None, "plan-2": BATCHES},
                ]
            },
            id="ids begin anew, and absent plans are null, as in the hub",
        ),
        pytest.param(
            {"10M/1/plan-0/chat.json": BATCHES, "10M/1/plan-1/chat.json": BATCHES},
            id="a folder for each plan",
        ),
    ],
)
def test_plans_are_joined_and_evidence_counts_through_all_of_them(
    tmp_path: Path, chat_files: Files
) -> None:
    """A chat of ten million tokens comes in several plans, which make one history.

    Each plan has three sessions and eight messages. The question rests on message 9, the second one
    of the second plan.
    """
    questions_file = "10M/1/probing_questions/probing_questions.json"
    write_files(tmp_path, {**chat_files, questions_file: QUESTION_ABOUT_MESSAGE_9})

    [example] = benchmark("beam", tmp_path, size="10M").examples

    assert len(example.history) == 3 + 3
    assert example.evidence_ids == ("D4:2",)
    assert history_lines(example)[9] == "[D4:2] assistant: Water it."


# The first turn of both batches.
FIRST_TURN = (CHAT_FILE, 0, "turns", 0)
LATER_TURN = (CHAT_FILE, 1, "turns", 0)


def add_truncated_chat(files: Files) -> None:
    """Add the shortened copy that the release has beside a chat."""
    files["100K/7/chat_trunecated.json"] = files[CHAT_FILE][:1]


def write_changed(folder: Path, change: Change) -> Path:
    """Write the example with its files changed, and return its folder."""
    files = copy.deepcopy(FILES)
    change(files)
    return write_files(folder, files).parent


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (add_truncated_chat, "truncated chat"),
        (put(*FIRST_TURN, 0, "time_anchor", value=None), "batch without date"),
        (put(*LATER_TURN, 0, "time_anchor", value="Mai-11-2024"), "malformed date"),
        (put(*LATER_TURN, 0, "time_anchor", value="May-11-2023"), "dates out of order"),
        (put(*FIRST_TURN, 1, "content", value="Water it. ->-> 1,1"), "arrow of an assistant"),
        (
            put(*FIRST_TURN, 0, "content", value="I bought a fern. ->-> prose leaked"),
            "odd arrow",
        ),
        (put(*FIRST_TURN, 0, "content", value="A ->-> 1,1\nfern"), "arrow inside"),
        (
            put(*FIRST_TURN, 1, "content", value="Please respond only in English."),
            "leaked instruction",
        ),
        (put(*LATER_TURN, 0, "id", value=0), "repeated message id"),
        (
            put(QUESTIONS_FILE, "event_ordering", 0, "source_chat_ids", value=[[0], 4]),
            "nested evidence",
        ),
        (
            put(QUESTIONS_FILE, "event_ordering", 0, "source_chat_ids", value=["--", 4]),
            "malformed evidence",
        ),
        (
            put(QUESTIONS_FILE, "event_ordering", 0, "total_mentions", value=3),
            "length of the rubric",
        ),
        (
            put(
                QUESTIONS_FILE,
                "knowledge_update",
                0,
                "source_chat_ids",
                value={"original_info": [0], "updated_info": []},
            ),
            "half of the evidence",
        ),
        (
            put(QUESTIONS_FILE, "instruction_following", 0, "source_chat_ids", value=[]),
            "empty evidence",
        ),
        (
            put(QUESTIONS_FILE, "instruction_following", 0, "source_chat_ids", value=[2, 2]),
            "repeated evidence",
        ),
        (
            put(QUESTIONS_FILE, "instruction_following", 0, "source_chat_ids", value=[0, 99]),
            "dangling evidence",
        ),
        (unchanged, "missing ability"),
    ],
)
def test_an_odd_file_is_read_and_reported(tmp_path: Path, change: Change, kind: str) -> None:
    """The released files have many oddities. They are left out or repaired, and a check lists them.

    An arrow, as in "->-> 1,1", is a note that the program which made the data left behind.
    """
    path = write_changed(tmp_path, change)

    assert benchmark("beam", path).examples

    report = check("beam", path)
    assert report.ok
    assert kind in report.kinds


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            put(QUESTIONS_FILE, "abstention", 0, "rubric", value=[]),
            "probing_questions.json, field 'abstention.0.rubric': ",
        ),
        (
            put(QUESTIONS_FILE, "abstention", 0, "question", value=" "),
            "field 'abstention.0.question': is empty",
        ),
        (
            put(QUESTIONS_FILE, "cooking", value=[]),
            "field 'cooking.[key]': is 'cooking', expected 'abstention'",
        ),
        (
            put(*FIRST_TURN, 0, "role", value="system"),
            "100K/7, entry 1, field 'turns.0.0.role': is 'system'",
        ),
        (
            put(CHAT_FILE, 0, value={"plan-1": 3}),
            "entry 1, field 'plan-1': is no list of batches",
        ),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, change: Change, problem: str) -> None:
    """Each case changes one value in the example files."""
    path = write_changed(tmp_path, change)

    with pytest.raises(DataError) as refusal:
        benchmark("beam", path)

    message = str(refusal.value)
    assert problem in message
    assert "\n" not in message
    assert not check("beam", path).ok


def judge_rubric(question: str, item: str, answer: str) -> Grade:
    """Grade the items of a rubric: "A fern" is met, "A cat" half."""
    if item == "A fern":
        return Grade(True, "", score=1.0)
    return Grade(False, "No name.", score=0.5)


def judge_same_event(event: str, line: str) -> bool:
    """Compare an event with a line of an answer."""
    return event.lower() == line


def choose_judge(judge_class: type) -> Any:
    """Return the judge that plays a class of judges."""
    return judge_same_event if judge_class.__name__ == "SameEventJudge" else judge_rubric


@pytest.mark.parametrize("metric", ["fixed", "official"])
@pytest.mark.parametrize(
    ("ability", "answer", "values"),
    [
        # The official rule cuts the half point to nothing.
        ("summarization", "An answer.", {"fixed": 0.75, "official": 0.5}),
        # The right order. The official rule counts the blank line as a wrong one.
        ("event_ordering", "a fern\n\na cat", {"fixed": 1.0, "official": 2 / 3}),
        ("event_ordering", "a cat\na fern", {"fixed": 0.0, "official": 0.0}),
    ],
)
def test_the_official_and_the_fixed_rule_score_the_same_replies(
    metric: str, ability: str, answer: str, values: dict[str, float]
) -> None:
    """The metric "official" scores as the released code does, "fixed" without its mistakes."""
    example = dspy.Example(
        question="?", rubric=("A fern", "A cat"), category=ability, evidence=("D1:1",)
    )
    # "A fern" is met, "A cat" only half.
    scorer: Any = Beam.make_scorer(metric).with_judges(choose_judge)

    score = scorer.score(example, dspy.Prediction(answer=answer))

    assert score.value == pytest.approx(values[metric])
    parts = [score.parts[name] for name in scorer.names]
    assert parts == pytest.approx([values["fixed"], values["official"]])
    assert score.feedback.startswith(
        "1 of 2 items of the rubric are not fully met: A cat (No name.). The answer"
    )


def test_the_sample_has_four_questions_of_each_ability_about_two_chats() -> None:
    """The sample is read if the user names no file. An ability is a kind of questions."""
    loaded = benchmark("beam")

    categories = [example.category for example in loaded.examples]
    assert len(ABILITIES) == 10
    for ability in ABILITIES:
        assert categories.count(ability) == 4
    assert {loaded.group(example) for example in loaded.examples} == {"100K/1", "100K/2"}


def test_the_judge_of_beam_scores_items_of_a_rubric() -> None:
    """`judge_of` returns the class of judges that a benchmark uses. In BEAM they score rubrics."""
    assert judge_of("beam").__name__ == "RubricJudge"


def test_the_share_of_the_evidence_is_measured_without_a_judge() -> None:
    """The question rests on two turns, and one of them is recalled."""
    loaded = benchmark("beam", metric="evidence")
    example = loaded.examples[2]
    first_turn, _ = example.evidence_ids
    recalled_entry = Hit(id="f", text="t", sources=(first_turn,))
    prediction = dspy.Prediction(answer="", context=Context(hits=(recalled_entry,)))

    score = loaded.score(example, prediction)

    assert score.value == 1 / 2


def test_retrieval_is_measured_by_ability() -> None:
    """Here all evidence of the question is found among the first ten entries."""
    loaded = benchmark("beam", metric="evidence")
    example = loaded.examples[2]
    assert example.category == "contradiction_resolution"

    metrics = loaded.scorer.retrieval_metrics(example, [example.evidence_ids])

    assert metrics == {"recall@10 contradiction_resolution": 1.0}
