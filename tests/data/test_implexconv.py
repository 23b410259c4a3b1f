"""ImplexConv: sessions out of one text, opposed and supportive, gold sessions found again, its scores, our sample."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.acknowledgement import Level
from mempiler.data.check import check
from mempiler.data.dataset import Finding
from mempiler.data.implexconv.benchmark import ImplexConv
from mempiler.data.implexconv.reader import read_implexconv, turns_of
from mempiler.data.implexconv.scorer import session_recall
from mempiler.data.judge import Verdict
from mempiler.errors import DataError, UnknownNameError, UserError

from .conftest import FixedJudge, FixedVerdict

GOLD = "Speaker1: My ankle is torn and in plaster.\n\nAssistant: No jumping, then, until the plaster is off."
OTHER = "Speaker1: Which film should I see?\n\nAssistant: The one about the cook."
QA = {
    "question": "Which sport?",
    "answer": "Archery.",
    "retrieved_conv": GOLD,
    "opposed reasoning": "The ankle is torn.",
}


WORDS = ("f1", "bleu1", "bleu2", "bleu3", "rouge_l")


def item(*rows: dict[str, Any], talks: Any = (OTHER, GOLD)) -> dict[str, Any]:
    return {"conversation": list(talks), "qa": list(rows or (QA,))}


def changed(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in {**QA, **keys}.items() if value is not ...}


def written(folder: Path, *items: Any, name: str = "implex.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(list(items)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("Speaker1: Hi.\n\nAssistant: Hello.", [("Speaker1", "Hi."), ("Assistant", "Hello.")]),
        ("Here it is:\n\nSpeaker1: Hi.\n\nAssistant: Hello.", [("Speaker1", "Hi."), ("Assistant", "Hello.")]),
        ("**Speaker1:** Hi.\n**Assistant:** Two\nlines.", [("Speaker1", "Hi."), ("Assistant", "Two\nlines.")]),
        ("Speaker1: I said Assistant: twice.", [("Speaker1", "I said Assistant: twice.")]),
        ("Speaker1:\n\nAssistant: Hello.", [("Assistant", "Hello.")]),
    ],
)
def test_a_session_is_cut_at_its_speakers(text: str, turns: list[tuple[str, str]]) -> None:
    assert turns_of(text) == turns


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = ImplexConv.load(written(tmp_path, item())).examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.id, example.question, example.answer) == ("item-0:0", "Which sport?", "Archery.")
    assert (example.category, example.reference) == ("opposed", "Archery. (The reason: The ankle is torn.)")
    assert example.focus == ("D2:1", "D2:2")
    assert [session.id for session in example.history] == ["D1", "D2"]


@pytest.mark.parametrize(
    ("name", "kind", "findings"),
    [
        ("ImplexConv_opposed.json", "opposed", ["no reasoning"]),
        ("ImplexConv_supportive.json", "supportive", []),
        ("x.json", "supportive", []),
    ],
)
def test_without_a_reasoning_the_name_of_the_file_decides(
    tmp_path: Path, name: str, kind: str, findings: list[str]
) -> None:
    path = written(tmp_path, item(changed(**{"opposed reasoning": ...})), name=name)
    assert ImplexConv.load(path).examples[0].category == kind
    assert list(check("implexconv", path).kinds) == findings


@pytest.mark.parametrize(
    ("gold", "focus"),
    [
        (GOLD, ("D2:1", "D2:2")),
        ([GOLD, OTHER], ("D2:1", "D2:2", "D1:1", "D1:2")),
        (["My ankle is torn and in plaster."], ("D2:1",)),
        ([1], ("D2:1", "D2:2")),
        ("my ankle", ()),
        ("words of another conversation", ()),
        ([], ()),
    ],
)
def test_gold_sessions_are_found_again(tmp_path: Path, gold: Any, focus: tuple[str, ...]) -> None:
    path = written(tmp_path, item(changed(retrieved_conv=gold)))
    assert ImplexConv.load(path).examples[0].focus == focus
    assert bool(check("implexconv", path).rows) is not bool(focus)


def test_processed_copies_name_places(tmp_path: Path) -> None:
    row = changed(retrieved_conv=..., retrieved_conv_ids=[0])
    assert ImplexConv.load(written(tmp_path, item(row))).examples[0].focus == ("D1:1", "D1:2")


def test_an_empty_session_is_passed_over_and_numbers_stay(tmp_path: Path) -> None:
    path = written(tmp_path, item(talks=("nobody", GOLD)))
    assert [session.id for session in ImplexConv.load(path).examples[0].history] == ["D2"]
    assert check("implexconv", path).kinds == {"empty session": 1}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"qa": []}, "item 0: lacks the lists 'conversation' and 'qa'"),
        (item(talks=("nobody",)), "item 0: holds no session with words"),
        (item(talks=(GOLD, 3)), "item 0, session 2: expected a text, got 3"),
        (item(changed(question="")), "item-0:0: expected an object with texts"),
    ],
)
def test_a_broken_part_is_refused_and_named(tmp_path: Path, broken: Any, message: str) -> None:
    path = written(tmp_path, broken, item())
    with pytest.raises(DataError) as error:
        ImplexConv.load(path)
    assert message in str(error.value)
    seen: list[Finding] = []
    assert len(read_implexconv(path, seen.append).examples) >= 1
    assert any(finding.fatal for finding in seen)


@pytest.mark.parametrize("option", ["kind", "categories"])
def test_the_kind_is_kept(tmp_path: Path, option: str) -> None:
    path = written(tmp_path, item(QA, changed(**{"opposed reasoning": ...})))
    assert [example.id for example in ImplexConv.load(path, **{option: "supportive"}).examples] == ["item-0:1"]
    with pytest.raises(DataError, match="no supportive question"):
        ImplexConv.load(written(tmp_path, item()), **{option: "supportive"})
    with pytest.raises(UnknownNameError, match="kind of implexconv 'neutral'"):
        ImplexConv.load(path, **{option: "neutral"})


@pytest.mark.parametrize(
    ("recalled", "share"), [((), 0.0), (("D2:2",), 0.5), (("D2:1", "D2:2"), 0.5), (("D1:9", "D2:1", "D3:1"), 1.0)]
)
def test_evidence_is_counted_by_session(recalled: tuple[str, ...], share: float) -> None:
    assert session_recall(("D1:1", "D1:2", "D2:1"), recalled) == share
    assert session_recall((), recalled) is None


def test_the_judge_sees_the_answer_and_its_reason(tmp_path: Path) -> None:
    benchmark = ImplexConv.load(written(tmp_path, item()), metric="answer")
    with pytest.raises(UserError, match="--judge-lm"):
        benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Golf."))
    judge = FixedVerdict(Verdict(True, "why not"))
    benchmark = benchmark.bound(lambda kind: judge)
    context = Context(hits=(Hit(id="D2:1", text="...", sources=("D2:1",)),))
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Golf.", context=context))
    assert judge.asked == [("Which sport?", "Archery. (The reason: The ankle is torn.)", "Golf.")]
    assert (found.value, found.parts) == (1.0, {**dict.fromkeys(WORDS, 0.0), "evidence": 1.0, "judge": 1.0})


@pytest.mark.parametrize(
    ("level", "value", "explicit"), [("not", 0.0, 0.0), ("implicitly", 1.0, 0.0), ("explicitly", 1.0, 1.0)]
)
def test_the_retrieved_context_is_judged_yes_or_no(tmp_path: Path, level: Level, value: float, explicit: float) -> None:
    benchmark = ImplexConv.load(written(tmp_path, item()))
    with pytest.raises(UserError, match="--judge-lm"):
        benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Golf."))
    judge = FixedJudge(level)
    benchmark = benchmark.bound(lambda kind: judge)
    context = Context(hits=(Hit(id="D2:1", text="torn", sources=("D2:1",)),), notes={"summary": "A summary."})
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Archery.", context=context))
    assert judge.asked == [("Which sport?", ["The ankle is torn."], "[D2:1] torn")]
    assert found.value == value
    assert {name: found.parts[name] for name in ("judge", "explicit")} == {"judge": value, "explicit": explicit}
    # One word: all of it is shared; of pairs and triples there are none.
    assert [found.parts[name] for name in WORDS] == pytest.approx([1.0, 1.0, 0.1**0.5, 0.1**0.66, 1.0])
    assert ("does not acknowledge: The ankle is torn." in found.feedback) is (level == "not")


def test_without_a_reasoning_the_answer_is_what_is_to_be_acknowledged(tmp_path: Path) -> None:
    benchmark = ImplexConv.load(written(tmp_path, item(changed(**{"opposed reasoning": ...}))))
    judge = FixedJudge("not")
    benchmark = benchmark.bound(lambda kind: judge)
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Archery."))
    assert judge.asked == [("Which sport?", ["Archery."], "")]
    assert "evidence" not in found.parts
