"""BEAM: both forms of its files, what is odd in them, and two rules over the same replies."""

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

from .forms import FORMS, Change, lines, put, write

CHAT, ASKED = "100K/7/chat.json", "100K/7/probing_questions/probing_questions.json"
BATCHES, QUESTIONS = FORMS["beam"][CHAT], FORMS["beam"][ASKED]
FLAT = [[message for turn in batch["turns"] for message in turn] for batch in BATCHES]


def test_a_size_is_a_folder_and_answers_may_be_unsaid(tmp_path: Path) -> None:
    loaded = benchmark("beam", write(tmp_path, FORMS["beam"]).parents[2], size="100K")
    assert loaded.has_unanswerable is True
    assert set(loaded.source.files) == {CHAT, ASKED}
    with pytest.raises(DataError, match="no chat of the size 10M"):
        benchmark("beam", tmp_path, size="10M")


@pytest.mark.parametrize("form", ["100K-0.parquet", "100K.jsonl", "100K.json"])
def test_the_hubs_rows_are_the_same_chat(tmp_path: Path, form: str) -> None:
    nulls = {"index": None, "question_type": None, "time_anchor": None}
    chat = [[{**nulls, **message} for message in batch] for batch in FLAT]
    row = {
        "conversation_id": "7",
        "chat": chat,
        "probing_questions": repr(QUESTIONS),
        "narratives": "x",
    }
    if form.endswith("parquet"):
        write_table(Table.from_pylist([row]), tmp_path / form)
    else:
        write(tmp_path, {form: [row]})
    here, there = (
        benchmark("beam", tmp_path / form),
        benchmark("beam", write(tmp_path / "f", FORMS["beam"])),
    )
    assert [each.toDict() for each in here.examples] == [each.toDict() for each in there.examples]


@pytest.mark.parametrize("form", ["joined", "hub", "folders"])
def test_plans_are_joined_and_evidence_counts_through_all_of_them(
    tmp_path: Path, form: str
) -> None:
    second = copy.deepcopy(BATCHES)
    for message in (message for batch in second for turn in batch["turns"] for message in turn):
        message["id"] += 8 if form == "joined" else 0
    asked = {"information_extraction": [{"question": "?", "rubric": ["x"], "source_chat_ids": [9]}]}
    nulls = {} if form == "joined" else {"plan-3": None}
    files: dict[str, Any] = {
        "10M/1/chat.json": [{"plan-1": BATCHES, **nulls}, {**nulls, "plan-2": second}]
    }
    if form == "folders":
        files = {f"10M/1/plan-{n}/chat.json": plan for n, plan in enumerate((BATCHES, second))}
    write(tmp_path, {**files, "10M/1/probing_questions/probing_questions.json": asked})
    (example,) = benchmark("beam", tmp_path, size="10M").examples
    assert example.evidence_ids == ("D4:2",)
    assert len(example.history) == 6
    assert lines(example)[9] == "[D4:2] assistant: Water it."


FIRST, LATER = (CHAT, 0, "turns", 0), (CHAT, 1, "turns", 0)
ODD: list[tuple[Change, str]] = [
    (
        lambda files: files.update({CHAT.replace("chat", "chat_trunecated"): files[CHAT][:1]}),
        "truncated chat",
    ),
    (put(*FIRST, 0, "time_anchor", value=None), "batch without date"),
    (put(*LATER, 0, "time_anchor", value="Mai-11-2024"), "malformed date"),
    (put(*LATER, 0, "time_anchor", value="May-11-2023"), "dates out of order"),
    (put(*FIRST, 1, "content", value="Water it. ->-> 1,1"), "arrow of an assistant"),
    (put(*FIRST, 0, "content", value="I bought a fern. ->-> prose leaked"), "odd arrow"),
    (put(*FIRST, 0, "content", value="A ->-> 1,1\nfern"), "arrow inside"),
    (put(*FIRST, 1, "content", value="Please respond only in English."), "leaked instruction"),
    (put(*LATER, 0, "id", value=0), "repeated message id"),
    (put(ASKED, "event_ordering", 0, "source_chat_ids", value=[[0], 4]), "nested evidence"),
    (put(ASKED, "event_ordering", 0, "source_chat_ids", value=["--", 4]), "malformed evidence"),
    (put(ASKED, "event_ordering", 0, "total_mentions", value=3), "length of the rubric"),
    (
        put(
            ASKED,
            "knowledge_update",
            0,
            "source_chat_ids",
            value={"original_info": [0], "updated_info": []},
        ),
        "half of the evidence",
    ),
    (put(ASKED, "instruction_following", 0, "source_chat_ids", value=[]), "empty evidence"),
    (put(ASKED, "instruction_following", 0, "source_chat_ids", value=[2, 2]), "repeated evidence"),
    (put(ASKED, "instruction_following", 0, "source_chat_ids", value=[0, 99]), "dangling evidence"),
    (lambda files: None, "missing ability"),
    (
        put(ASKED, "abstention", 0, "rubric", value=[]),
        "probing_questions.json, field 'abstention.0.rubric': ",
    ),
    (put(ASKED, "abstention", 0, "question", value=" "), "field 'abstention.0.question': is empty"),
    (
        lambda files: files[ASKED].update(cooking=[]),
        "field 'cooking.[key]': is 'cooking', expected 'abstention'",
    ),
    (
        put(*FIRST, 0, "role", value="system"),
        "100K/7, entry 1, field 'turns.0.0.role': is 'system'",
    ),
    (put(CHAT, 0, value={"plan-1": 3}), "entry 1, field 'plan-1': is no list of batches"),
]
"""Changes, and the kind of what is told of them, or what is refused."""


@pytest.mark.parametrize(("change", "told"), ODD)
def test_an_odd_file_is_reported_and_a_broken_one_refused_in_one_line(
    tmp_path, change, told
) -> None:
    files = copy.deepcopy(FORMS["beam"])
    change(files)
    path = write(tmp_path, files).parent
    report = check("beam", path)
    if report.ok:
        assert told in report.kinds
        return
    with pytest.raises(DataError, match=r"^[^\n]+$") as error:
        benchmark("beam", path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("ability", "answer", "fixed", "official"),
    [
        ("summarization", "An answer.", 0.75, 0.5),
        ("event_ordering", "a fern\n\na cat", 1.0, 2 / 3),
        ("event_ordering", "a cat\na fern", 0.0, 0.0),
    ],
)
def test_two_rules_score_the_same_replies(
    ability: str, answer: str, fixed: float, official: float
) -> None:
    replies = {"A fern": Grade(True, "", 1.0), "A cat": Grade(False, "No name.", 0.5)}
    judges: dict[str, Any] = {"SameEventJudge": lambda event, line: event.lower() == line}
    example = dspy.Example(
        question="?", rubric=("A fern", "A cat"), category=ability, evidence=("D1:1",)
    )
    for metric, value in (("fixed", fixed), ("official", official)):
        scorer: Any = Beam.make_scorer(metric)
        scorer = scorer.with_judges(
            lambda kind: judges.get(kind.__name__, lambda _, item, __: replies[item])
        )
        found = scorer.score(example, dspy.Prediction(answer=answer))
        assert found.value == pytest.approx(value)
        assert [found.parts[name] for name in scorer.names] == pytest.approx([fixed, official])
        assert found.feedback.startswith(
            "1 of 2 items of the rubric are not fully met: A cat (No name.). The answer"
        )


def test_the_sample_has_all_abilities_and_evidence_is_measured_by_ability_without_a_judge() -> None:
    loaded = benchmark("beam", metric="evidence")
    assert [sum(each.category == name for each in loaded.examples) for name in ABILITIES] == [
        4
    ] * 10
    assert {loaded.group(each) for each in loaded.examples} == {"100K/1", "100K/2"}
    assert judge_of("beam").__name__ == "RubricJudge"
    example = loaded.examples[2]
    hits = (Hit(id="f", text="t", sources=example.evidence_ids[:1]),)
    assert (
        loaded.score(example, dspy.Prediction(answer="", context=Context(hits=hits))).value == 0.5
    )
    assert loaded.scorer.retrieval_metrics(example, [example.evidence_ids]) == {
        "recall@10 contradiction_resolution": 1.0
    }
