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
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.scorer import Score
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
    """A folder of BEAM has a folder for each size of chats. The size 100K has one chat here: 7."""
    write_files(tmp_path, FILES)

    loaded = benchmark("beam", tmp_path, size="100K")

    assert set(loaded.source.files) == {
        "100K/7/chat.json",
        "100K/7/probing_questions/probing_questions.json",
    }


def test_a_size_without_a_chat_is_refused(tmp_path: Path) -> None:
    """The folder has a chat of the size 100K only."""
    write_files(tmp_path, FILES)
    with pytest.raises(DataError, match="no chat of the size 10M"):
        benchmark("beam", tmp_path, size="10M")


def test_beam_says_that_it_has_questions_which_cannot_be_answered(tmp_path: Path) -> None:
    """The right response to a question of the ability "abstention" is that the chat does not say.

    Programs for such a benchmark are allowed to decline.
    """
    loaded = benchmark("beam", write_files(tmp_path, FILES))

    assert "abstention" in {example.category for example in loaded.examples}
    assert loaded.has_unanswerable is True


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


# A batch is a list of turns, and a turn begins with a message of the user.
USER_MESSAGE = 0
ASSISTANT_MESSAGE = 1


def change_message(batch: int, message: int, **fields: Any) -> Change:
    """Return a change of a message in the first turn of a batch."""

    def change(files: Files) -> None:
        first_turn = files[CHAT_FILE][batch]["turns"][0]
        first_turn[message].update(fields)

    return change


def change_question(ability: str, **fields: Any) -> Change:
    """Return a change of the question that the example asks of an ability."""

    def change(files: Files) -> None:
        [question] = files[QUESTIONS_FILE][ability]
        question.update(fields)

    return change


def write_changed(folder: Path, change: Change) -> Path:
    """Write the example with its files changed, and return its folder."""
    files = copy.deepcopy(FILES)
    change(files)
    return write_files(folder, files).parent


def problems_of_readable_files(folder: Path, change: Change) -> set[str]:
    """Load changed files, and return the kinds of problems that a check of them reports."""
    path = write_changed(folder, change)
    assert benchmark("beam", path).examples

    report = check("beam", path)
    assert report.ok
    return set(report.kinds)


@pytest.mark.parametrize(
    ("batch", "date", "problem"),
    [
        (0, None, "batch without date"),
        (1, "Mai-11-2024", "malformed date"),
        # The first batch is of March 2024.
        (1, "May-11-2023", "dates out of order"),
    ],
)
def test_a_faulty_date_of_a_batch_is_reported(
    tmp_path: Path, batch: int, date: str | None, problem: str
) -> None:
    """The first message of a batch has its date, such as "May-11-2024"; a batch is a list of turns.

    The chat is read all the same.
    """
    change = change_message(batch, USER_MESSAGE, time_anchor=date)
    assert problem in problems_of_readable_files(tmp_path, change)


@pytest.mark.parametrize(
    ("message", "text", "problem"),
    [
        (ASSISTANT_MESSAGE, "Water it. ->-> 1,1", "arrow of an assistant"),
        (USER_MESSAGE, "I bought a fern. ->-> prose leaked", "odd arrow"),
        (USER_MESSAGE, "A ->-> 1,1\nfern", "arrow inside"),
        (ASSISTANT_MESSAGE, "Please respond only in English.", "leaked instruction"),
    ],
)
def test_what_the_authors_program_left_in_a_text_is_reported(
    tmp_path: Path, message: int, text: str, problem: str
) -> None:
    """The program that wrote the chats put a note such as "->-> 1,1" behind each user message.

    Elsewhere such a note is a mistake of the program, and so is an instruction to the model.
    """
    change = change_message(batch=0, message=message, content=text)
    assert problem in problems_of_readable_files(tmp_path, change)


@pytest.mark.parametrize(
    ("ability", "evidence", "problem"),
    [
        ("event_ordering", [[0], 4], "nested evidence"),
        ("event_ordering", ["--", 4], "malformed evidence"),
        ("knowledge_update", {"original_info": [0], "updated_info": []}, "half of the evidence"),
        ("instruction_following", [], "empty evidence"),
        ("instruction_following", [2, 2], "repeated evidence"),
        # The chat has the messages 0 to 7.
        ("instruction_following", [0, 99], "dangling evidence"),
    ],
)
def test_faulty_evidence_of_a_question_is_reported(
    tmp_path: Path, ability: str, evidence: Any, problem: str
) -> None:
    """Evidence is the ids of the messages that a question rests on. The question is still read."""
    change = change_question(ability, source_chat_ids=evidence)
    assert problem in problems_of_readable_files(tmp_path, change)


def add_shortened_copy(files: Files) -> None:
    """Add a copy of a chat under the name that such copies have in the release."""
    files["100K/7/chat_trunecated.json"] = files[CHAT_FILE][:1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        # The first message of all has this id, too.
        (change_message(batch=1, message=USER_MESSAGE, id=0), "repeated message id"),
        # The rubric lists two events.
        (change_question("event_ordering", total_mentions=3), "length of the rubric"),
        (add_shortened_copy, "truncated chat"),
        # The example has questions of five of the ten abilities.
        (unchanged, "missing ability"),
    ],
)
def test_other_oddities_of_the_release_are_reported(
    tmp_path: Path, change: Change, problem: str
) -> None:
    assert problem in problems_of_readable_files(tmp_path, change)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            change_question("abstention", rubric=[]),
            "probing_questions.json, field 'abstention.0.rubric': ",
        ),
        (
            change_question("abstention", question=" "),
            "field 'abstention.0.question': is empty",
        ),
        (
            put(QUESTIONS_FILE, "cooking", value=[]),
            "field 'cooking.[key]': is 'cooking', expected 'abstention'",
        ),
        (
            change_message(batch=0, message=USER_MESSAGE, role="system"),
            "100K/7, entry 1, field 'turns.0.0.role': is 'system'",
        ),
        (
            put(CHAT_FILE, 0, value={"plan-1": 3}),
            "entry 1, field 'plan-1': is no list of batches",
        ),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, change: Change, problem: str) -> None:
    """The line names the place of the fault: a file, and a field or an entry in it."""
    path = write_changed(tmp_path, change)

    with pytest.raises(DataError) as refusal:
        benchmark("beam", path)

    message = str(refusal.value)
    assert problem in message
    assert "\n" not in message
    assert not check("beam", path).ok


def grade_fern_full_and_cat_half(question: str, item: str, answer: str) -> Grade:
    """Grade an item of a rubric: "A fern" with 1 point, anything else with half a point."""
    if item == "A fern":
        return Grade(True, "", score=1.0)
    return Grade(False, "No name.", score=0.5)


def is_same_event(event: str, line: str) -> bool:
    """Compare an event of a rubric with a line of an answer."""
    return event.lower() == line


def scripted_judge(judge_class: type) -> Any:
    """Return the function that plays a class of judges."""
    if judge_class.__name__ == "SameEventJudge":
        return is_same_event
    return grade_fern_full_and_cat_half


def score_fern_and_cat(metric: str, ability: str, answer: str) -> Score:
    """Score an answer by the rubric "A fern", "A cat" with the judges above."""
    example = dspy.Example(
        question="?", rubric=("A fern", "A cat"), category=ability, evidence=("D1:1",)
    )
    scorer = Beam.make_scorer(metric).with_judges(scripted_judge)
    return scorer.score(example, dspy.Prediction(answer=answer))


@pytest.mark.parametrize(("metric", "expected"), [("fixed", 0.75), ("official", 0.5)])
def test_the_official_rule_cuts_half_points_to_nothing(metric: str, expected: float) -> None:
    """A judge gives 1 point for the fern, and half a point for the cat.

    The metric "official" scores as the released code does, "fixed" without its mistakes.
    """
    score = score_fern_and_cat(metric, ability="summarization", answer="An answer.")
    assert score.value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "answer", "expected"),
    [
        ("fixed", "a fern\n\na cat", 1.0),
        ("fixed", "a cat\na fern", 0.0),
        ("official", "a fern\n\na cat", 2 / 3),
        ("official", "a cat\na fern", 0.0),
    ],
)
def test_the_official_rule_counts_a_blank_line_as_a_wrong_event(
    metric: str, answer: str, expected: float
) -> None:
    """The question asks for the order of two events: the fern was first, and then the cat.

    The metric "official" scores as the released code does, "fixed" without its mistakes.
    """
    score = score_fern_and_cat(metric, ability="event_ordering", answer=answer)
    assert score.value == pytest.approx(expected)


def test_the_figures_of_both_rules_stand_beside_each_other() -> None:
    """Each metric gives the figure of the other rule as a further part of the score."""
    by_fixed_rule = score_fern_and_cat("fixed", ability="summarization", answer="An answer.")
    by_official_rule = score_fern_and_cat("official", ability="summarization", answer="An answer.")

    assert by_fixed_rule.parts["fixed"] == 0.75
    assert by_fixed_rule.parts["official_with_question"] == 0.5
    assert by_official_rule.parts["fixed_without_question"] == 0.75
    assert by_official_rule.parts["official"] == 0.5


def test_feedback_names_the_items_of_a_rubric_that_are_not_fully_met() -> None:
    """The judge gives half a point for the cat, for the reason "No name."."""
    score = score_fern_and_cat("fixed", ability="summarization", answer="An answer.")
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


def contradiction_question(loaded: Benchmark) -> dspy.Example:
    """Return the first question about a contradiction. It rests on two turns of the chat."""
    for example in loaded.examples:
        if example.category == "contradiction_resolution":
            assert len(example.evidence_ids) == 2
            return example
    raise AssertionError("the sample has no such question")


def test_the_share_of_the_evidence_is_measured_without_a_judge() -> None:
    """The question rests on two turns, and an entry that comes from one of them is recalled."""
    loaded = benchmark("beam", metric="evidence")
    example = contradiction_question(loaded)
    first_turn, _second_turn = example.evidence_ids
    recalled_entry = Hit(id="f", text="t", sources=(first_turn,))
    prediction = dspy.Prediction(answer="", context=Context(hits=(recalled_entry,)))

    score = loaded.score(example, prediction)

    assert score.value == 1 / 2


def test_retrieval_is_measured_by_ability() -> None:
    """A search finds one entry, which comes from both turns that the question rests on."""
    loaded = benchmark("beam", metric="evidence")
    example = contradiction_question(loaded)

    sources_of_hits = [example.evidence_ids]
    metrics = loaded.scorer.retrieval_metrics(example, sources_of_hits)

    assert metrics == {"recall@10 contradiction_resolution": 1.0}
