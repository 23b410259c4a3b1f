"""Your own questions: forms of a line, shared histories, a metric of one's own; judges of answers and pairs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError, LMError
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.check import check
from mempiler.data.jsonl import JsonlBenchmark
from mempiler.data.judge import (
    AcknowledgementJudge,
    GenerousJudge,
    Judge,
    Preference,
    PreferenceJudge,
    ReferenceVerdict,
    StrictAcknowledgementJudge,
    Verdict,
    preference,
    with_user_facts,
)
from mempiler.errors import DataError, UserError
from mempiler.programs.adapter import adapter
from mempiler.signatures.judges import Acknowledgement, JudgeAcknowledgement, judge_hash
from pydantic import Field

from .conftest import Fixed
from .forms import CHAT, FORMS, load, write

OWN = {"items": [{"id": "D1", "turns": [{"id": "D1:1", "speaker": "user", "text": "I like tea."}]}]}
ROW = FORMS["jsonl"]["own.jsonl"][0]


def rows(folder, *changes):
    found = [{key: value for key, value in {**ROW, **change}.items() if value is not ...} for change in changes]
    return JsonlBenchmark.load(write(folder, {"own.jsonl": found}))


@pytest.mark.parametrize(
    ("columns", "turns"),
    [
        ({}, ["D1:1", "D1:2"]),
        ({"messages": [CHAT, CHAT]}, ["D1:1", "D1:2", "D2:1", "D2:2"]),
        ({"messages": ..., "history": OWN}, ["D1:1"]),
        ({"messages": ..., "history": CHAT}, ["D1:1", "D1:2"]),
    ],
)
def test_a_past_is_read_in_every_form_that_it_may_have(tmp_path, columns, turns):
    assert list(rows(tmp_path, columns).examples[0].history.turns) == turns


def test_a_row_may_have_all_columns_or_the_required_ones_only(tmp_path):
    full, bare = rows(
        tmp_path, {"evidence": ["D1:1"], "category": "taste", "id": 7, "user": "ada", "answer": "a\u2028b"}, {}
    ).examples
    assert set(full.inputs().keys()) == {"history", "question", "evidence_ids"}
    # A line separator inside a text does not cut the line.
    assert full.id == "7"
    assert full.category == "taste"
    assert full.answer == "a\u2028b"
    assert full.history.id == "ada"
    assert full.evidence_ids == ("D1:1",)
    assert full.evidence == ("D1:1",)
    assert bare.id == f"{bare.history.digest[:12]}:2"
    assert bare.category == "all"
    assert bare.evidence_ids == ()


def test_equal_pasts_are_one_history_and_pasts_of_one_user_one_conversation(tmp_path):
    short = {"messages": CHAT[:1]}
    examples = rows(tmp_path, short, {"messages": ..., "history": OWN}, {}).examples
    assert examples[0].history is examples[1].history
    assert examples[0].history is not examples[2].history
    benchmark = rows(tmp_path, {"user": "ada"}, {"user": "ada", **short}, {"user": "bo"})
    assert [benchmark.group(example) for example in benchmark.examples] == ["ada", "ada", "bo"]


def test_unknown_evidence_is_reported_in_the_order_of_the_line(tmp_path):
    evidence = ["D9:9", "D1:1", "D8:1", "D7:7", "D6:1", "D5:5"]
    path = write(tmp_path, {"own.jsonl": [{**ROW, "evidence": evidence}]})
    told = [row.message.partition(" ")[0] for row in check("jsonl", path).findings]
    assert told == ["'D9:9'", "'D8:1'", "'D7:7'", "'D6:1'", "'D5:5'"]


def test_a_right_chinese_answer_with_a_full_stop_is_right(tmp_path):
    benchmark = rows(tmp_path, {"question": "我住在哪里？", "answer": "里斯本"})
    score = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="里斯本。"))
    assert score.value == 1.0
    assert dict(score.parts) == {"f1": 1.0, "exact": 1.0}


METRICS = """
from dspy.utils.exceptions import LMRateLimitError

def right(example, prediction):
    return example.answer in prediction.answer

def coached(example, prediction):
    return 0.25, "Name the drink."

def broken(example, prediction):
    return prediction.no_such_field

def unreachable(example, prediction):
    raise LMRateLimitError("slow down")

class Returns:
    nan = staticmethod(lambda example, prediction: float("nan"))
    no_feedback = staticmethod(lambda example, prediction: (0.5, 3))

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Loads a benchmark with a metric of `own_metrics`, which is forgotten afterwards; scores an answer."""
    (tmp_path / "own_metrics.py").write_text(METRICS)
    (tmp_path / "own_broken.py").write_text("raise OSError('no\\ndisk')")
    monkeypatch.syspath_prepend(tmp_path)

    def score(metric, answer="coffee"):
        benchmark = load(tmp_path, "jsonl", metric=metric)
        assert benchmark.scorer.title == metric
        assert benchmark.scorer.judge_hash is None
        return benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))

    yield score
    for name in ("own_metrics", "own_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "answer", "value", "feedback"),
    [("right", "coffee", 0.0, "Wrong: the gold answer is 'tea'."), ("coached", "coffee", 0.25, "Name the drink.")],
)
def test_a_function_of_the_user_scores(own, name, answer, value, feedback):
    found = own(f"own_metrics:{name}", answer)
    assert found.value == value
    assert found.feedback == feedback
    assert set(found.parts) == {"f1", "exact", name.rpartition(".")[2]}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("no_such_module:city", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'$"),
        ("own_broken:city", "cannot be imported: OSError: no disk \\(own_broken.py:"),
        ("own_metrics:number", "is 3, not a function"),
        ("own_metrics:Returns.nan", "returned nan"),
        ("own_metrics:Returns.no_feedback", r"returned \(0.5, 3\)"),
        ("own_metrics:broken", "failed on '.*': AttributeError"),
    ],
)
def test_a_metric_that_cannot_be_had_or_gives_no_score_is_refused_in_one_line(own, metric, message):
    with pytest.raises(UserError, match=message) as refusal:
        own(metric)
    assert metric in str(refusal.value)


def test_an_endpoint_failure_inside_a_metric_stays_one(own):
    with pytest.raises(LMError):
        own("own_metrics:unreachable")


EXAMPLE = dspy.Example(question="Plan my week", answer="Has a bad knee")


def test_the_judge_that_was_set_decides(tmp_path: Path) -> None:
    judge = Fixed(Verdict(False, "Another drink."))
    benchmark = load(tmp_path, "jsonl", metric="judge").with_judges(lambda kind: judge)
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="tea"))
    assert found.value == 0.0
    assert dict(found.parts) == {"f1": 1.0, "exact": 1.0, "judge": 0.0}
    assert found.feedback == "Wrong: the gold answer is 'tea'. The judge says: Another drink."
    assert judge.asked == [("What does the user like?", "tea", "tea")]
    assert benchmark.scorer.judge_hash == "fixed"


def test_a_judge_asks_its_own_model_outside_the_trace_once_more_if_it_must_and_not_about_nothing(scripted: Any) -> None:
    task, said = scripted(lambda *call: {}), ["yes!", "CORRECT", "WRONG"]
    model = scripted(lambda *call: {"reasoning": "The same\ncity.", "verdict": said.pop(0)})
    judge = Judge(model, adapter())
    with dspy.context(lm=task, trace=[]):
        assert judge("Where?", "Lisbon", "In Lisbon") == Verdict(True, "The same city.")
        assert judge("Where?", "Lisbon", "In Rome") == Verdict(False, "The same city.")
        assert judge("Where?", "Lisbon", " ").correct is False
        assert dspy.settings.trace == []
    generous = GenerousJudge(scripted(lambda kind, text, n: {"label": "CORRECT" if n == 1 else "WRONG"}), adapter())
    assert [generous("Where?", "Lisbon", "By the sea").correct for _ in range(2)] == [True, False]
    assert len(task.engine.prompts) == 0
    assert len(model.engine.prompts) == 3
    assert "In Lisbon" in model.engine.prompts[0][1]


def acknowledging(scripted: Any, key: str, *said: tuple[int, str]) -> Any:
    """A model that judges references; `key` names the field of an entry that holds its verdict."""
    entries = [{"number": number, "reason": "r", key: verdict} for number, verdict in said]
    return scripted(lambda *call: {"acknowledgements": entries})


@pytest.mark.parametrize(
    "numbers", [((1, 0), (2, 1)), ((2, 1), (1, 0)), ((7, 0), (7, 1))], ids=["in order", "by number", "misnumbered"]
)
@pytest.mark.parametrize(
    ("judge_class", "key", "words", "first"),
    [
        (AcknowledgementJudge, "verdict", ("Yes", "No"), ReferenceVerdict(present=True, reason="r")),
        (StrictAcknowledgementJudge, "found", ("implicitly", "not"), ReferenceVerdict(present=True, reason="r")),
        (
            StrictAcknowledgementJudge,
            "found",
            ("explicitly", "not"),
            ReferenceVerdict(present=True, explicit=True, reason="r"),
        ),
    ],
)
def test_verdicts_are_those_of_the_references(scripted: Any, judge_class, key, words, first, numbers) -> None:
    model = acknowledging(scripted, key, *[(number, words[place]) for number, place in numbers])
    verdicts = judge_class(model, adapter())("Plan", ["Bad knee", "Works\nat night"], "[f0] my knee")
    assert verdicts == (first, ReferenceVerdict(present=False, reason="r"))
    assert "1. Bad knee\n2. Works at night" in model.engine.prompts[0][1]


@pytest.mark.parametrize("count", [1, 3])
def test_a_reply_about_another_number_of_references_is_unreadable_and_an_empty_context_needs_none(scripted, count):
    model = acknowledging(scripted, "verdict", *[(n + 1, "yes") for n in range(count)])
    judge = AcknowledgementJudge(model, adapter())
    assert [verdict.present for verdict in judge("Plan", ["A", "B"], " ")] == [False, False]
    assert model.engine.prompts == []
    with pytest.raises(AdapterParseError, match=f"2 references, but the judge speaks of {count}"):
        judge("Plan", ["A", "B"], "context")


def test_preference_is_the_mean_of_both_orders_and_equal_responses_tie_without_a_call() -> None:
    asked, sides = list[tuple[str, str]](), ["first", "tie"]

    def judge(example: dspy.Example, first: str, second: str) -> Any:
        asked.append((first, second))
        return sides[len(asked) - 1]

    assert preference(cast("Any", judge), EXAMPLE, "Rest.", "Rest. ") == Preference(0.0, 0.0)
    assert preference(cast("Any", judge), EXAMPLE, "A", "B") == Preference(0.5, 0.0)
    assert asked == [("A", "B"), ("B", "A")]


@pytest.mark.parametrize(("choice", "side"), [("w3k8", "first"), ("t5n1", "second"), ("tie", "tie")])
def test_the_judge_of_pairs_sees_neutral_labels(scripted: Any, choice: str, side: str) -> None:
    model = scripted(lambda *call: {"reasoning": "Better.", "choice": choice})
    assert PreferenceJudge(model, adapter())(EXAMPLE, "Swim.", "Run.") == side
    (_, text) = model.engine.prompts[0]
    assert text.index("w3k8") < text.index("Swim.") < text.index("t5n1") < text.index("Run.")


@pytest.mark.parametrize("name", ["memoryquest", "personamem-v2", "implexconv"])
def test_the_judge_of_pairs_knows_all_that_is_said_of_the_user(scripted: Any, name: str) -> None:
    found = load_benchmark(name)
    examples = with_user_facts(found.examples, found.group)
    mine = [each for each in examples if found.group(each) == found.group(examples[0])]
    references = {line for each in mine for line in str(each.get("reference") or each.answer).splitlines()}
    last = max(mine, key=lambda each: len(each.facts))
    assert 1 < len(last.facts.splitlines()) == len(references & set(last.facts.splitlines()))
    model = scripted(lambda *call: {"reasoning": "Better.", "choice": "tie"})
    PreferenceJudge(model, adapter())(last, "Swim.", "Run.")
    assert f"[[ ## facts ## ]]\n{last.facts}\n" in model.engine.prompts[0][1]
    assert f"[[ ## references ## ]]\n{last.get('reference') or last.answer}\n" in model.engine.prompts[0][1]


def test_the_hash_of_a_judge_changes_with_all_of_its_prompt() -> None:
    class Other(Acknowledgement):
        reason: str = Field(default="", description="at length")

    Other.__name__ = Other.__qualname__ = Acknowledgement.__name__
    others = [
        JudgeAcknowledgement,
        JudgeAcknowledgement.with_updated_fields("acknowledgements", type_=list[Other]),
        JudgeAcknowledgement.with_instructions(JudgeAcknowledgement.instructions + " Be kind."),
        JudgeAcknowledgement.with_updated_fields("context", desc="what was said"),
    ]
    assert len({judge_hash(each) for each in others}) == 4


def json_lines(folder, text, name="own.jsonl"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_json_array_is_refused_in_one_line_and_the_command_it_names_converts_it(tmp_path):
    path = json_lines(tmp_path, json.dumps([ROW] * 40, indent=1), "array.json")
    report = check("jsonl", path)
    assert [row.where for row in report.findings] == ["whole file"]
    with pytest.raises(DataError, match="is a JSON array; expected JSON lines, one object per line") as refusal:
        JsonlBenchmark.load(path)
    command = str(refusal.value).partition("convert it: ")[2].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True)
    assert len(JsonlBenchmark.load(tmp_path / "array.converted.jsonl").examples) == 40


def test_a_csv_file_is_refused_in_one_line_and_the_command_it_names_converts_it(tmp_path):
    path = json_lines(tmp_path, 'question,answer\n"Where, now?",Lisbon\n' * 20, "rows.jsonl")
    with pytest.raises(DataError, match=r"is a CSV file \(its first line: question, answer\)") as refusal:
        JsonlBenchmark.load(path)
    assert len(check("jsonl", path).findings) == 1
    command = str(refusal.value).partition("convert it: ")[2].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True)
    first_line = (tmp_path / "rows.converted.jsonl").read_text().splitlines()[0]
    assert json.loads(first_line) == {"question": "Where, now?", "answer": "Lisbon"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"question": "query", "answer": "gold"}, "line 1: found: query, gold; expected: question, answer"),
        ({"messages": "chat"}, "line 1: found: chat; expected: history or messages"),
        (
            {"messages": "chat", "question": "query", "answer": "gold"},
            "line 1: found: query, gold, chat; expected: question, answer, history or messages",
        ),
        ({"question": None}, "line 1, field 'question': is missing"),
    ],
)
def test_misnamed_fields_are_named_at_once(tmp_path, names, message):
    row = {}
    for name in ("question", "answer", "messages"):
        new_name = names.get(name, name)
        if new_name is not None:
            row[new_name] = ROW[name]
    with pytest.raises(DataError, match=f"{re.escape(message)}$"):
        JsonlBenchmark.load(json_lines(tmp_path, json.dumps(row)))


def test_lines_that_are_lists_are_reported_line_by_line(tmp_path):
    report = check("jsonl", json_lines(tmp_path, "[1]\n[2]\n"))
    assert [row.where for row in report.findings][:2] == ["line 1", "line 2"]
