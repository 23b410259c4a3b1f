"""PersonaMem v2: cells that are Python or JSON, linked histories, rows left out, the judge, and multiple choice."""

import csv
import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.acknowledgement import Level
from mempiler.data.check import check
from mempiler.data.dataset import Finding
from mempiler.data.personamem_v2.benchmark import PersonaMemV2
from mempiler.data.personamem_v2.reader import read_personamem_v2
from mempiler.errors import DataError

from .conftest import FixedJudge

TALK = [
    {"role": "system", "content": "You talk to Ann."},
    {"role": "user", "content": "I sleep best in a tent."},
    {"role": "assistant", "content": "Noted."},
]
ROW = {
    "persona_id": "7",
    "chat_history_32k_link": "data/talk.json",
    "chat_history_128k_link": "data/long.json",
    "user_query": repr({"role": "user", "content": "Where should I stay? It's late."}),
    "correct_answer": "On the camp site.",
    "incorrect_answers": json.dumps(["In a hotel.", "At home.", "In a castle."]),
    "preference": "Prefers tents",
    "pref_type": "neutral_pref",
    "related_conversation_snippet": json.dumps([TALK[1]]),
    "sensitive_info": "False",
}


def changed(**cells: str) -> dict[str, str]:
    return {**ROW, **cells}


def written(folder: Path, *rows: dict[str, str], talk: Any = None) -> Path:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "benchmark" / "text").mkdir(parents=True, exist_ok=True)
    talk = {"metadata": {}, "chat_history": TALK} if talk is None else talk
    (folder / "data" / "talk.json").write_text(json.dumps(talk), encoding="utf-8")
    path = folder / "benchmark" / "text" / "benchmark.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = PersonaMemV2.load(written(tmp_path, ROW)).examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.question, example.answer) == ("Where should I stay? It's late.", "On the camp site.")
    assert (example.reference, example.category, example.user) == ("Prefers tents", "neutral_pref", "7")
    assert example.focus == ("D1:2",)
    assert [turn.speaker for turn, _ in example.history.turns.values()] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    "cell",
    [ROW["user_query"], json.dumps({"content": "Where should I stay? It's late."}), "Where should I stay? It's late."],
)
def test_a_query_is_a_python_dict_a_json_object_or_text(tmp_path: Path, cell: str) -> None:
    (example,) = PersonaMemV2.load(written(tmp_path, changed(user_query=cell))).examples
    assert example.question == "Where should I stay? It's late."


@pytest.mark.parametrize("talk", [{"chat_history": TALK}, {"conversations": TALK}, TALK])
def test_a_history_has_three_forms(tmp_path: Path, talk: Any) -> None:
    (example,) = PersonaMemV2.load(written(tmp_path, ROW, talk=talk)).examples
    assert len(example.history.turns) == 3


@pytest.mark.parametrize("cells", [{"pref_type": "ask_to_forget"}, {"sensitive_info": "True"}])
def test_rows_that_are_not_asked_are_left_out_and_told(tmp_path: Path, cells: dict[str, str]) -> None:
    path = written(tmp_path, ROW, changed(**cells))
    assert len(PersonaMemV2.load(path).examples) == 1
    report = check("personamem-v2", path)
    assert (report.ok, report.kinds) == (True, {"left out": 1})


@pytest.mark.parametrize(
    ("preference", "snippet", "reference"),
    [("", ROW["related_conversation_snippet"], TALK[1]["content"]), ("", "", "On the camp site.")],
)
def test_without_a_preference_the_snippet_is_the_reference(
    tmp_path: Path, preference: str, snippet: str, reference: str
) -> None:
    row = changed(preference=preference, related_conversation_snippet=snippet)
    assert PersonaMemV2.load(written(tmp_path, row)).examples[0].reference == reference


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"user_query": ""}, "line 2, column 'user_query': is empty"),
        ({"incorrect_answers": "none"}, "'none' is no list of one to three texts"),
        ({"chat_history_32k_link": "data/gone.json"}, "'data/gone.json' is no file below the CSV's folder"),
    ],
)
def test_a_broken_row_is_refused_by_line_and_column(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    with pytest.raises(DataError) as error:
        PersonaMemV2.load(written(tmp_path, changed(**cells)))
    assert message in str(error.value)


def test_a_history_that_is_no_json_is_a_finding(tmp_path: Path) -> None:
    path = written(tmp_path, ROW)
    (tmp_path / "data" / "talk.json").write_text("{", encoding="utf-8")
    seen: list[Finding] = []
    assert read_personamem_v2(path, seen.append).examples == ()
    assert [(finding.kind, finding.fatal) for finding in seen] == [("unreadable history", True)]


@pytest.mark.parametrize(
    ("level", "parts"),
    [
        ("explicitly", {"recall": 1.0, "recall_explicit": 1.0}),
        ("implicitly", {"recall": 1.0, "recall_explicit": 0.0}),
        ("not", {"recall": 0.0, "recall_explicit": 0.0}),
    ],
)
def test_the_judge_sees_the_retrieved_context_and_the_preference(
    tmp_path: Path, level: Level, parts: dict[str, float]
) -> None:
    benchmark = PersonaMemV2.load(written(tmp_path, ROW))
    judge = FixedJudge(level)
    benchmark = benchmark.bound(lambda kind: judge)
    (example,) = benchmark.examples
    context = Context(hits=(Hit(id="D1:2", text="user: I sleep best in a tent."),), notes={"summary": "unjudged"})
    found = benchmark.score(example, dspy.Prediction(answer="In a hotel.", context=context))
    assert (found.value, found.parts) == (parts["recall"], parts)
    assert judge.asked == [(example.question, ["Prefers tents"], "[D1:2] user: I sleep best in a tent.")]
    assert "Prefers tents" in found.feedback
    assert "why not" in found.feedback


@pytest.mark.parametrize("prediction", [{"answer": "In a tent."}, {"answer": "In a tent.", "context": Context()}])
def test_an_answer_without_a_context_is_not_recall(tmp_path: Path, prediction: dict[str, Any]) -> None:
    benchmark = PersonaMemV2.load(written(tmp_path, ROW))
    judge = FixedJudge("not")
    benchmark.bound(lambda kind: judge).score(benchmark.examples[0], dspy.Prediction(**prediction))
    assert [context for _, _, context in judge.asked] == [""]


def test_multiple_choice_has_all_replies_once_in_the_same_order_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, ROW, *(changed(correct_answer=f"Reply {n}.") for n in range(30)))
    first, second = (PersonaMemV2.load(path, metric="mcq") for _ in range(2))
    assert (first.task, bool(first.scorer.asked), first.scorer.title) == ("multiple-choice", False, "accuracy")
    assert [example.options for example in first.examples] == [example.options for example in second.examples]
    example = first.examples[0]
    assert set(example.inputs().keys()) == {"history", "question", "options", "focus"}
    assert sorted(option[4:] for option in example.options) == [
        "At home.",
        "In a castle.",
        "In a hotel.",
        "On the camp site.",
    ]
    replies = ["On the camp site.", *(f"Reply {n}." for n in range(30))]
    for each, reply in zip(first.examples, replies, strict=True):
        assert f"{each.answer} {reply}" in each.options
    assert {each.answer for each in first.examples} == {"(a)", "(b)", "(c)", "(d)"}


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("{gold}", True),
        ("Final Answer: {gold}", True),
        ("A good reply, and b is not. Final Answer: {letter}", True),
        ("none", False),
    ],
)
def test_a_choice_is_scored_by_its_letter(said: str, right: bool) -> None:
    benchmark = PersonaMemV2.load(metric="mcq")
    example = benchmark.examples[0]
    answer = said.format(gold=example.answer, letter=example.answer[1].upper())
    assert benchmark.score(example, dspy.Prediction(answer=answer)).value == float(right)


def test_the_length_chooses_the_link(tmp_path: Path) -> None:
    path = written(tmp_path, ROW)
    with pytest.raises(DataError, match=r"chat_history_128k_link.*'data/long\.json'"):
        PersonaMemV2.load(path, length="128k")
    (tmp_path / "data" / "long.json").write_text(json.dumps(TALK * 2), encoding="utf-8")
    assert len(PersonaMemV2.load(path, length="128k").examples[0].history.turns) == 6
