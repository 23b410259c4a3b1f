"""What the released code of LoCoMo, LongMemEval, ImplexConv and PersonaMem gives for metrics and replies; the table."""

import ast
import fnmatch
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.implexconv import AnswerJudgeScorer, WordsAndSessions, rouge_l
from mempiler.data.locomo import LocomoF1
from mempiler.data.longmemeval import (
    TYPES,
    LongMemEval,
    LongMemEvalJudge,
    dcg,
    retrieval_metrics,
    turn_retrieval_metrics,
)
from mempiler.data.personamem import LetterAccuracy
from mempiler.data.personamem_v2 import FinalLetterAccuracy
from mempiler.data.text_metrics import evidence_recall, exact_match, words
from mempiler.errors import DataError
from mempiler.programs.adapter import adapter
from mempiler.reading.answer import read_answer
from mempiler.reading.repairs import UnreadableError
from mempiler.signatures.answering import ChooseFromContext

from tests.data.forms import load
from tests.runs.evaluations import evaluation, row

Agrees = Callable[..., None]
RULES = {
    "intermediate steps": "plain",
    "off by one": "time",
    "newest state": "update",
    "rubric": "rubric",
    "cannot be answered": "abstention",
}
"""What the prompt of each of the five says, and the released name of it."""


@pytest.mark.vectors("longmemeval_metrics", "retrieval-[!r]*")
def test_retrieval_metrics_of_sessions_are_the_released_ones(
    case: dict[str, Any], agrees: Agrees
) -> None:
    given = case["input"]
    found = retrieval_metrics(given["ranked"], given["gold"], given["sessions"], given["k"])
    agrees({name.partition("@")[0]: value for name, value in found.items()})


@pytest.mark.vectors("longmemeval_metrics", "turn2session-*")
def test_retrieval_metrics_of_turns_are_the_released_ones(
    case: dict[str, Any], agrees: Agrees
) -> None:
    given = case["input"]
    ranked, gold, turns = (
        [id.partition("_")[0] for id in given[name]]
        for name in ("ranked_turns", "gold_turns", "turns")
    )
    found = turn_retrieval_metrics(ranked, gold, turns, given["k"])
    agrees({name.partition("@")[0]: value for name, value in found.items()})


@pytest.mark.vectors("longmemeval_metrics", "dcg-*")
def test_dcg_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(dcg(case["input"]["relevances"], case["input"]["k"]))


@pytest.mark.vectors(
    "longmemeval_metrics",
    "judge-single-*",
    "judge-multi-*",
    "judge-temporal-*",
    "judge-knowledge-*",
)
def test_the_prompt_of_a_question(
    case: dict[str, Any], agrees: Agrees, tmp_path: Path, scripted: Any
) -> None:
    loaded = load(tmp_path, "longmemeval", lambda row: row.update(case["input"]))
    lm, systems = scripted(lambda *call: {"verdict": "yes"}), list[str]()
    complete = lm.engine.complete
    lm.engine.complete = lambda request: (systems.append(str(request.system)), complete(request))[1]
    loaded = loaded.with_judges(lambda kind: kind(lm, adapter()))
    loaded.score(loaded.examples[0], Prediction(answer="In May."))
    # The rule of time comes with that of every step.
    agrees(next(name for rule, name in reversed(RULES.items()) if rule in systems[0]))


@pytest.mark.vectors("longmemeval_metrics", "judge-unknown-*")
def test_an_unknown_type_is_refused(case: dict[str, Any], agrees: Agrees, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="question_type"):
        load(tmp_path, "longmemeval", lambda row: row.update(case["input"]))
    agrees(True, "error" in case["expected"])


@pytest.mark.vectors("longmemeval_metrics", "judge-reply-*")
def test_the_verdict_of_a_reply(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    lm = scripted(lambda *call: f"[[ ## verdict ## ]]\n{case['input']['reply']}")
    try:
        verdict = LongMemEvalJudge(lm, adapter())(
            "multi-session", "How many?", "3", "Three."
        ).correct
    except AdapterParseError:
        verdict = None
    agrees(verdict)


@pytest.mark.vectors("longmemeval_metrics", "sums-*")
def test_sums_over_questions_are_the_released_ones(case: dict[str, Any], agrees: Agrees) -> None:
    rows = [
        row(one["question_id"], right, category=one["question_type"], parts={"accuracy": right})
        for one in case["input"]["rows"]
        for right in [float(one["correct"])]
    ]
    sums = LongMemEval.load().scorer.aggregate(rows)
    types = evaluation(rows, expected=TYPES).by_category()
    agrees(
        {
            "task_averaged": sums["task-averaged accuracy"],
            "overall": sums["overall accuracy"],
            "abstention": sums.get("abstention accuracy"),
            "by_type": {name: found["score"] for name, found in types.items()},
        }
    )


@pytest.mark.vectors("longmemeval_metrics", "retrieval-report-*")
def test_the_mean_of_a_retrieval_metric(case: dict[str, Any], agrees: Agrees) -> None:
    asked = case["input"]["recall_all_at_5"]
    rows = (row(one["question_id"], recall={"recall_all@5": one["value"]}) for one in asked)
    agrees(evaluation(rows).retrieval()["recall_all@5"])


@pytest.mark.vectors("locomo_metrics", "answer-*")
def test_answers_are_read_as_released(case: dict[str, Any], agrees: Agrees) -> None:
    given = case["input"]
    example = dspy.Example(category=str(given["category"]), answer=str(given["gold"]), evidence=())
    agrees(LocomoF1().score(example, dspy.Prediction(answer=given["answer"])).value)


@pytest.mark.vectors("locomo_metrics", "normalise-*")
def test_texts_are_cut_into_the_released_words(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(" ".join(words(case["input"]["text"])))


@pytest.mark.vectors("locomo_metrics", "exact-*")
def test_exact_match_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(bool(exact_match(case["input"]["answer"], case["input"]["gold"])))


@pytest.mark.vectors("locomo_metrics", "rouge-*")
def test_rouge_l_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(rouge_l(case["input"]["answer"], case["input"]["gold"]))


@pytest.mark.vectors("locomo_metrics", "recall-*")
def test_recall_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    evidence = case["input"]["evidence"]
    # A context of session 3 rests on all its turns, those of the evidence among them.
    sources = [
        [turn for turn in evidence if turn.startswith(f"D{id[1:]}:")]
        if id.startswith("S")
        else [id]
        for id in case["input"]["context"] or ()
    ]
    agrees(evidence_recall(evidence, sources, len(sources)))


def example(answer: str) -> Example:
    return Example(
        question="Which sport?", answer=answer, reference=answer, evidence=(), category="opposed"
    )


@pytest.mark.vectors("implexconv_metrics", "text-*")
def test_scores_of_words_are_the_released_ones(case: dict[str, Any], agrees: Agrees) -> None:
    found = WordsAndSessions().score(
        example(case["input"]["reference"]), Prediction(answer=case["input"]["response"])
    )
    agrees(
        {
            "bleu": [found.parts[f"bleu{order}"] for order in (1, 2, 3)],
            "rouge_l_f": found.parts["rouge_l"],
        }
    )


@pytest.mark.vectors("implexconv_metrics", "judge-reply-*")
def test_the_verdict_of_an_acknowledgement(
    case: dict[str, Any], agrees: Agrees, scripted: Any
) -> None:
    lm = scripted(
        lambda *call: f"[[ ## reasoning ## ]]\n-\n[[ ## verdict ## ]]\n{case['input']['reply']}"
    )
    scorer = AnswerJudgeScorer().with_judges(lambda kind: kind(lm, adapter()))
    try:
        verdict = scorer.score(example("Archery."), Prediction(answer="Bowls.")).value
    except AdapterParseError:
        verdict = None
    agrees(verdict, None if isinstance(case["expected"], dict) else case["expected"])


LETTERS = ["a", "b", "c", "d"]
OPTIONS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]


def right(scorer: LetterAccuracy, answer: str, gold: str) -> bool:
    """Whether an answer counts."""
    found = scorer.score(Example(options=OPTIONS, answer=gold), Prediction(answer=answer))
    return bool(found.value)


def read(reply: str) -> str:
    """What a program takes a reply for; "" where it is asked for again."""
    try:
        return read_answer(ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": OPTIONS})[
            0
        ]["answer"]
    except UnreadableError:
        return ""


def one(letters: list[str]) -> str | None:
    """The letter in upper case; None where there is none, or several."""
    return letters[0].upper() if len(letters) == 1 else None


@pytest.mark.parametrize("taken", [str, read], ids=["whole", "read"])
@pytest.mark.vectors("personamem_parse", "v1-[0-9]*")
def test_letters_of_v1_are_read_as_released(
    case: dict[str, Any], agrees: Agrees, taken: Callable[[str], str]
) -> None:
    answer = taken(case["input"]["response"])
    agrees(
        {
            "right_for": [
                letter for letter in LETTERS if right(LetterAccuracy(), answer, f"({letter})")
            ]
        }
    )


@pytest.mark.vectors("personamem_parse", "v1-gold-*")
def test_gold_letters_of_v1_are_the_released_ones(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(right(LetterAccuracy(), case["input"]["response"], case["input"]["gold"]))


@pytest.mark.parametrize("taken", [str, read], ids=["whole", "read"])
@pytest.mark.vectors("personamem_parse", "v2-[0-9]*")
def test_final_answers_of_v2_are_read_as_released(
    case: dict[str, Any], agrees: Agrees, taken: Callable[[str], str]
) -> None:
    answer = taken(case["input"]["response"])
    agrees(
        one([letter for letter in LETTERS if right(FinalLetterAccuracy(), answer, f"({letter})")])
    )


@pytest.mark.vectors("personamem_parse", "v2-boxed-*")
def test_boxed_letters_of_v2_are_read_as_released(case: dict[str, Any], agrees: Agrees) -> None:
    gold = case["input"]["gold"].partition(" ")[
        0
    ]  # there the text of the option follows its letter
    agrees(float(right(FinalLetterAccuracy(), read(case["input"]["response"]), gold)))


HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("*.jsonl"))


def _marks() -> Iterator[tuple[str, list[str]]]:
    """The files and patterns that the tests of this folder are marked with."""
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.vectors":
                name, *patterns = [ast.literal_eval(arg) for arg in node.args]
                yield name, patterns or ["*"]


@pytest.mark.parametrize("name", FILES)
def test_every_case_of_the_vectors_is_tested(name: str, conformance: Any) -> None:
    patterns = [pattern for marked, found in _marks() if marked == name for pattern in found]
    ids = [case["id"] for case in conformance.vectors(name)]
    assert [
        i for i in ids if not any(fnmatch.fnmatchcase(i, pattern) for pattern in patterns)
    ] == []


def test_the_table_names_cases_that_exist_with_a_reason(conformance: Any) -> None:
    table = conformance.deviations()
    assert table.keys() <= set(FILES)
    for name, rows in table.items():
        ids = [case["id"] for case in conformance.vectors(name)]
        idle = [pattern for pattern, _ in rows if not fnmatch.filter(ids, pattern)]
        assert idle == []
        assert [pattern for pattern, why in rows if len(why.split()) < 4] == []
