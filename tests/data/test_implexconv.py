"""ImplexConv: sessions out of one text, opposed and supportive, gold sessions found again, its scores."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, DataError, Hit, UnknownNameError
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.implexconv import session_recall, turns_of
from mempiler.data.judge import Level, Verdict

from .conftest import Fixed, fixed_levels
from .forms import FORMS, changed, load, put, write

OTHER, GOLD = FORMS["implexconv"]["implex.json"][0]["conversation"]
UNREASONED = put("qa", 0, "opposed reasoning")
WORDS = ("f1", "bleu1", "bleu2", "bleu3", "rouge_l")


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("Here it is:\n\nSpeaker1: Hi.\n\nAssistant: Hello.", [("Speaker1", "Hi."), ("Assistant", "Hello.")]),
        ("**Speaker1:** Hi.\n**Assistant:** Two\nlines.", [("Speaker1", "Hi."), ("Assistant", "Two\nlines.")]),
        ("Speaker1: I said Assistant: twice.", [("Speaker1", "I said Assistant: twice.")]),
        ("Speaker1:\n\nAssistant: Hello.", [("Assistant", "Hello.")]),
    ],
)
def test_a_session_is_cut_at_its_speakers(text: str, turns: list[tuple[str, str]]) -> None:
    assert turns_of(text) == turns


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = load(tmp_path, "implexconv").examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.id, example.question, example.answer) == ("item-0:0", "Which sport?", "Archery.")
    assert (example.category, example.reference) == ("opposed", "Archery. (The reason: The ankle is torn.)")
    assert example.focus == ("D2:1", "D2:2")
    assert [session.id for session in example.history] == ["D1", "D2"]


@pytest.mark.parametrize(("name", "kind"), [("ImplexConv_opposed", "opposed"), ("x", "supportive")])
def test_without_a_reasoning_the_name_of_the_file_decides(tmp_path: Path, name: str, kind: str) -> None:
    files = {f"{name}.json": changed("implexconv", UNREASONED)["implex.json"]}
    assert load_benchmark("implexconv", write(tmp_path, files)).examples[0].category == kind


@pytest.mark.parametrize(
    ("gold", "focus"),
    [
        ([GOLD, OTHER], ("D2:1", "D2:2", "D1:1", "D1:2")),
        (["My ankle is torn and in plaster."], ("D2:1",)),
        ("my ankle", ()),
        ("words of another conversation", ()),
    ],
)
def test_gold_sessions_are_found_again(tmp_path: Path, gold: Any, focus: tuple[str, ...]) -> None:
    assert load(tmp_path, "implexconv", put("qa", 0, "retrieved_conv", value=gold)).examples[0].focus == focus


def test_a_kind_is_kept_and_numbers_stay_where_a_session_is_passed_over(tmp_path: Path) -> None:
    found = load(tmp_path, "implexconv", put("conversation", 0, value="nobody"))
    assert [session.id for session in found.examples[0].history] == ["D2"]

    def both(row: Any) -> None:
        row["qa"].append({**row["qa"][0], "opposed reasoning": ""})

    assert [each.id for each in load(tmp_path, "implexconv", both, categories="supportive").examples] == ["item-0:1"]
    with pytest.raises(DataError, match="no question of the category supportive"):
        load(tmp_path, "implexconv", categories="supportive")
    with pytest.raises(UnknownNameError, match="category of implexconv 'neutral'"):
        load(tmp_path, "implexconv", categories="neutral")


CONTEXT = Context(hits=(Hit(id="D2:1", text="torn", sources=("D2:1",)),), notes={"summary": "A summary."})


def test_the_judge_sees_the_answer_and_its_reason(tmp_path: Path) -> None:
    judge = Fixed(Verdict(True, "why not"))
    benchmark = load(tmp_path, "implexconv", metric="answer").bound(lambda kind: judge)
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Golf.", context=CONTEXT))
    assert judge.asked == [("Which sport?", "Archery. (The reason: The ankle is torn.)", "Golf.")]
    assert (found.value, found.parts) == (1.0, {**dict.fromkeys(WORDS, 0.0), "evidence": 1.0, "judge": 1.0})
    # Evidence is counted by session.
    assert session_recall(("D1:1", "D1:2", "D2:1"), CONTEXT.sources) == 0.5


@pytest.mark.parametrize(
    ("level", "value", "explicit"), [("not", 0.0, 0.0), ("implicitly", 1.0, 0.0), ("explicitly", 1.0, 1.0)]
)
def test_the_retrieved_context_is_judged_yes_or_no(tmp_path: Path, level: Level, value: float, explicit: float) -> None:
    judge = fixed_levels(level)
    benchmark = load(tmp_path, "implexconv").bound(lambda kind: judge)
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Archery.", context=CONTEXT))
    assert judge.asked == [("Which sport?", ["The ankle is torn."], "[D2:1] torn")]
    assert (found.value, found.parts["judge"], found.parts["explicit"]) == (value, value, explicit)
    # One word: all of it is shared; of pairs and triples there are none.
    assert [found.parts[name] for name in WORDS] == pytest.approx([1.0, 1.0, 0.1**0.5, 0.1**0.66, 1.0])
    assert ("does not acknowledge: The ankle is torn." in found.feedback) is (level == "not")


def test_without_a_reasoning_the_answer_is_what_is_to_be_acknowledged(tmp_path: Path) -> None:
    judge = fixed_levels("not")
    unreasoned = load(tmp_path, "implexconv", UNREASONED).bound(lambda kind: judge)
    assert "evidence" not in unreasoned.score(unreasoned.examples[0], dspy.Prediction(answer="Archery.")).parts
    assert judge.asked == [("Which sport?", ["Archery."], "")]
