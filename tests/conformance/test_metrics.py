"""LongMemEval, LoCoMo, ImplexConv and PersonaMem: metrics and replies agree with released code.

These are benchmarks of questions about long conversations. Some score the words of an answer, some
ask a model (the judge) whether it is right, and some count how much evidence was found.

A case (of a file `.jsonl`) was made by running the released code: it has an input, and the expected
result. `assert_matches_authors_code` compares our result with it; see `conftest.py`.

At the end: every case of this folder is tested, and the table of deviations is right.
"""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

from .conftest import AssertMatches, Case, deviations, vectors

# LongMemEval.


def without_depth(metrics: dict[str, float]) -> dict[str, float]:
    """Return metrics by the released names: "ndcg" instead of "ndcg@10"."""
    return {name.partition("@")[0]: value for name, value in metrics.items()}


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "retrieval-[!r]*")
def test_retrieval_metrics_of_sessions_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Recall of any gold session, recall of all, and NDCG among the first k of a ranking.

    Example of a case:
        input     {"ranked": ["s5"], "gold": ["s5", "s1"], "sessions": ["s0", "s1", "s2",
                  "s3", "s4", "s5", "s6", "s7"], "k": 1}
        expected  {"recall_any": 1.0, "recall_all": 0.0, "ndcg": 1.0}
    """
    inputs = case["input"]

    metrics = retrieval_metrics(
        ranked_sessions=inputs["ranked"],
        gold=inputs["gold"],
        all_sessions=inputs["sessions"],
        k=inputs["k"],
    )

    assert_matches_authors_code(without_depth(metrics))


def sessions_of_turns(turn_ids: list[str]) -> list[str]:
    """Return the session of each turn: "s1" for "s1_2"."""
    return [turn_id.partition("_")[0] for turn_id in turn_ids]


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "turn2session-*")
def test_retrieval_metrics_of_turns_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Single turns were ranked here. The turn "s1_1" counts for its session, s1.

    Example of a case:
        input     {"ranked_turns": ["s1_1", "s0_1", "s2_1", "s3_1", "s0_2", "s0_3", "s1_2"],
                  "gold_turns": ["s1_2"], "k": 1}
        expected  {"recall_any": 1.0, "recall_all": 1.0, "ndcg": 1.0}
    """
    inputs = case["input"]

    metrics = turn_retrieval_metrics(
        sessions_of_hits=sessions_of_turns(inputs["ranked_turns"]),
        gold=sessions_of_turns(inputs["gold_turns"]),
        sessions_of_turns=sessions_of_turns(inputs["turns"]),
        k=inputs["k"],
    )

    assert_matches_authors_code(without_depth(metrics))


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "dcg-*")
def test_dcg_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """DCG adds the relevances of the first k results. Those behind the second place count less.

    Example of a case:
        input     {"relevances": [0, 1, 0], "k": 3}
        expected  1.0
    """
    assert_matches_authors_code(dcg(case["input"]["relevances"], case["input"]["k"]))


WORDS_OF_JUDGE_PROMPTS = {
    "cannot be answered": "abstention",
    "rubric": "rubric",
    "newest state": "update",
    "off by one": "time",
    # The prompt about time says this as well, so it stands behind that one.
    "intermediate steps": "plain",
}
"""Words of our prompt for each kind of question, and the released name of the kind."""


def kind_of_judge_prompt(prompt: str) -> str:
    """Return which of the released kinds of judge prompts this prompt is."""
    for phrase, kind in WORDS_OF_JUDGE_PROMPTS.items():
        if phrase in prompt:
            return kind
    raise AssertionError(f"no prompt of a known kind: {prompt}")


@pytest.mark.cases_from_authors_code(
    "longmemeval_metrics",
    "judge-single-*",
    "judge-multi-*",
    "judge-temporal-*",
    "judge-knowledge-*",
)
def test_the_prompt_of_a_question_is_of_the_same_kind_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, tmp_path: Path, scripted: Any
) -> None:
    """Questions of different types are judged by different prompts.

    Words of the prompt show of which kind it is.

    Example of a case:
        input     {"question_type": "multi-session", "question_id": "q1"}
        expected  "plain"
    """
    lm = scripted(lambda *call: {"verdict": "yes"})
    questions = load(tmp_path, "longmemeval", lambda question: question.update(case["input"]))
    questions = questions.with_judges(lambda judge_class: judge_class(lm, adapter()))

    questions.score(questions.examples[0], Prediction(answer="In May."))

    assert lm.engine.calls.total() == 1
    assert_matches_authors_code(kind_of_judge_prompt(lm.engine.system))


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "judge-unknown-*")
def test_an_unknown_type_of_question_is_refused(case: Case, tmp_path: Path) -> None:
    """The released code fails for such a type, and our benchmark refuses to load it.

    Example of a case:
        input     {"question_type": "unknown", "question_id": "q1"}
        expected  {"error": "NotImplementedError"}
    """
    with pytest.raises(DataError, match="question_type"):
        load(tmp_path, "longmemeval", lambda question: question.update(case["input"]))

    assert "error" in case["expected"]


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "judge-reply-*")
def test_the_verdict_of_a_reply_is_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    """A judge replies whether an answer is right. None stands for a reply that cannot be read.

    Example of a case:
        input     {"reply": "YES."}
        expected  true
    """
    completion = f"[[ ## verdict ## ]]\n{case['input']['reply']}"
    judge = LongMemEvalJudge(scripted(lambda *call: completion), adapter())

    try:
        verdict = judge("multi-session", "How many?", "3", "Three.").correct
    except AdapterParseError:
        verdict = None

    assert_matches_authors_code(verdict)


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "sums-*")
def test_sums_over_questions_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The accuracy over all questions is expected, its mean over the types, and that of each type.

    In a case, every question has its type, and whether it was answered correctly:
        {"question_id": "q0", "question_type": "single-session-user", "correct": true}
    """
    rows: list[Any] = []
    for question in case["input"]["rows"]:
        score = float(question["correct"])
        rows.append(
            row(
                question["question_id"],
                score,
                category=question["question_type"],
                parts={"accuracy": score},
            )
        )

    sums = LongMemEval.load().scorer.aggregate(rows)
    types = evaluation(rows, expected=TYPES).by_category()

    assert_matches_authors_code(
        {
            "task_averaged": sums["task-averaged accuracy"],
            "overall": sums["overall accuracy"],
            "abstention": sums.get("abstention accuracy"),
            "by_type": {name: sums_of_type["score"] for name, sums_of_type in types.items()},
        }
    )


@pytest.mark.cases_from_authors_code("longmemeval_metrics", "retrieval-report-*")
def test_the_mean_of_a_retrieval_metric_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The mean is taken over all questions.

    Example of a case:
        input     {"recall_all_at_5": [{"question_id": "a", "value": 1.0},
                  {"question_id": "b", "value": 0.0}]}
        expected  0.5
    """
    rows = [
        row(question["question_id"], recall={"recall_all@5": question["value"]})
        for question in case["input"]["recall_all_at_5"]
    ]

    assert_matches_authors_code(evaluation(rows).retrieval()["recall_all@5"])


# LoCoMo.


@pytest.mark.cases_from_authors_code("locomo_metrics", "answer-*")
def test_answers_are_scored_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The score is the F1 of the words, by rules that depend on the category of the question.

    Example of a case:
        input     {"category": 1, "gold": "May 2023", "answer": "She moved in May 2023"}
        expected  0.5714285714285715
    """
    category = str(case["input"]["category"])
    gold = str(case["input"]["gold"])
    example = dspy.Example(category=category, answer=gold, evidence=())

    score = LocomoF1().score(example, dspy.Prediction(answer=case["input"]["answer"]))

    assert_matches_authors_code(score.value)


@pytest.mark.cases_from_authors_code("locomo_metrics", "normalise-*")
def test_texts_are_cut_into_the_words_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Articles, "and" and punctuation are removed from a text before it is cut.

    Example of a case:
        input     {"text": "The Cat and a Dog"}
        expected  "cat dog"
    """
    assert_matches_authors_code(" ".join(words(case["input"]["text"])))


@pytest.mark.cases_from_authors_code("locomo_metrics", "exact-*")
def test_exact_match_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """An answer matches only if it has the same words.

    Example of a case:
        input     {"answer": "apple", "gold": "apple pie"}
        expected  false
    """
    assert_matches_authors_code(bool(exact_match(case["input"]["answer"], case["input"]["gold"])))


@pytest.mark.cases_from_authors_code("locomo_metrics", "rouge-*")
def test_rouge_l_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """ROUGE-L compares the words of two texts; these have none in common.

    Example of a case:
        input     {"answer": "the", "gold": "apple"}
        expected  0.0
    """
    assert_matches_authors_code(rouge_l(case["input"]["answer"], case["input"]["gold"]))


@pytest.mark.cases_from_authors_code("locomo_metrics", "recall-*")
def test_recall_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Recall is the share of the evidence that is in the context, here one of two turns.

    Example of a case:
        input     {"evidence": ["D1:1", "D2:2"], "context": ["D1:1"]}
        expected  0.5
    """
    evidence = case["input"]["evidence"]
    sources: list[list[str]] = []
    for context_id in case["input"]["context"] or ():
        if context_id.startswith("S"):
            # "S3" is the whole of session 3. It rests on all its turns, among them the evidence.
            session_number = context_id.removeprefix("S")
            sources.append([turn for turn in evidence if turn.startswith(f"D{session_number}:")])
        else:
            sources.append([context_id])

    assert_matches_authors_code(evidence_recall(evidence, sources, len(sources)))


# ImplexConv.


def opposed_question(answer: str) -> Example:
    """Return a question of the category "opposed" with this reference."""
    return Example(
        question="Which sport?",
        answer=answer,
        reference=answer,
        evidence=(),
        category="opposed",
    )


@pytest.mark.cases_from_authors_code("implexconv_metrics", "text-*")
def test_scores_of_words_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A case expects BLEU-1 to BLEU-3, and the F1 of ROUGE-L.

    Example of a case:
        input     {"reference": "the knee hurts on stairs",
                  "response": "try swimming because the knee hurts"}
        expected  {"bleu": [0.5, 0.447213595499958, 0.3721003696282278],
                  "rouge_l_f": 0.5454545404958678}
    """
    example = opposed_question(case["input"]["reference"])

    parts = WordsAndSessions().score(example, Prediction(answer=case["input"]["response"])).parts

    assert_matches_authors_code(
        {
            "bleu": [parts["bleu1"], parts["bleu2"], parts["bleu3"]],
            "rouge_l_f": parts["rouge_l"],
        }
    )


@pytest.mark.cases_from_authors_code("implexconv_metrics", "judge-reply-*")
def test_the_verdict_of_an_acknowledgement_is_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    """A judge replies with the score of an answer. None stands for a reply that cannot be read.

    Example of a case:
        input     {"reply": "Score: 1"}
        expected  {"error": "ValueError"}
    """
    completion = f"[[ ## reasoning ## ]]\n-\n[[ ## verdict ## ]]\n{case['input']['reply']}"
    lm = scripted(lambda *call: completion)
    scorer = AnswerJudgeScorer().with_judges(lambda judge_class: judge_class(lm, adapter()))

    try:
        verdict = scorer.score(opposed_question("Archery."), Prediction(answer="Bowls.")).value
    except AdapterParseError:
        verdict = None

    # Where the released code fails, "expected" holds its error.
    expected = case["expected"]
    assert_matches_authors_code(verdict, None if isinstance(expected, dict) else expected)


# PersonaMem.

LETTERS = ["a", "b", "c", "d"]
OPTIONS = ["(a) a walk", "(b) a swim", "(c) a nap", "(d) a book"]


def is_right(scorer: LetterAccuracy, answer: str, gold: str) -> bool:
    """Return whether an answer is right if this is the gold letter, in brackets."""
    score = scorer.score(Example(options=OPTIONS, answer=gold), Prediction(answer=answer))
    return bool(score.value)


def letters_for_which_it_is_right(scorer: LetterAccuracy, answer: str) -> list[str]:
    """Return the gold letters, without brackets, for which an answer would be right."""
    return [letter for letter in LETTERS if is_right(scorer, answer, f"({letter})")]


def raw_answer(reply: str) -> str:
    """Return a reply as an external system passes it on: as it is."""
    return reply


def read_choice(reply: str) -> str:
    """Return the option that our programs read from a reply; "" if it is asked for again."""
    try:
        outputs = read_answer(
            ChooseFromContext, f"[[ ## answer ## ]]\n{reply}", {"options": OPTIONS}
        ).outputs
    except UnreadableError:
        return ""
    return outputs["answer"]


both_ways_to_answer = pytest.mark.parametrize("to_answer", [raw_answer, read_choice])


@both_ways_to_answer
@pytest.mark.cases_from_authors_code("personamem_parse", "v1-[0-9]*")
def test_letters_of_version_1_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, to_answer: Callable[[str], str]
) -> None:
    """A reply chooses one of the options a to d. "a or b" is right for none of them.

    An answer is the reply as it is, or the option that our programs read from it: `to_answer`.

    Example of a case:
        input     {"response": "(b)"}
        expected  {"right_for": ["b"]}
    """
    answer = to_answer(case["input"]["response"])

    assert_matches_authors_code(
        {"right_for": letters_for_which_it_is_right(LetterAccuracy(), answer)}
    )


@pytest.mark.cases_from_authors_code("personamem_parse", "v1-gold-*")
def test_gold_letters_of_version_1_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The gold letter is that of the right option. A reply is wrong where it is missing.

    Example of a case:
        input     {"response": "(a)", "gold": "(A)"}
        expected  true
    """
    assert_matches_authors_code(
        is_right(LetterAccuracy(), case["input"]["response"], case["input"]["gold"])
    )


@both_ways_to_answer
@pytest.mark.cases_from_authors_code("personamem_parse", "v2-[0-9]*")
def test_final_answers_of_version_2_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, to_answer: Callable[[str], str]
) -> None:
    """None is expected for a reply that names no single letter.

    An answer is the reply as it is, or the option that our programs read from it: `to_answer`.

    Example of a case:
        input     {"response": "final answer: b"}
        expected  "B"
    """
    answer = to_answer(case["input"]["response"])
    letters = letters_for_which_it_is_right(FinalLetterAccuracy(), answer)

    assert_matches_authors_code(letters[0].upper() if len(letters) == 1 else None)


@pytest.mark.cases_from_authors_code("personamem_parse", "v2-boxed-*")
def test_boxed_letters_of_version_2_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    r"""The score is 1 if the letter in the box is that of the gold option, "(a) x".

    Example of a case:
        input     {"response": "\\boxed{a}", "gold": "(a) x"}
        expected  1.0
    """
    reply = case["input"]["response"]
    gold_letter, _, _ = case["input"]["gold"].partition(" ")

    chosen_option = read_choice(reply)
    score = 1.0 if is_right(FinalLetterAccuracy(), chosen_option, gold_letter) else 0.0

    assert_matches_authors_code(score)


# The cases, and the table of deviations.

HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("*.jsonl"))
MARKER = "pytest.mark.cases_from_authors_code"


class CasesMarker(NamedTuple):
    """The arguments of `@pytest.mark.cases_from_authors_code(...)`."""

    file: str
    patterns: list[str]


def markers_in(test_file: Path) -> list[CasesMarker]:
    """Return the markers in the source of a test file."""
    markers: list[CasesMarker] = []
    for node in ast.walk(ast.parse(test_file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARKER:
            file, *patterns = [ast.literal_eval(argument) for argument in node.args]
            markers.append(CasesMarker(file, patterns or ["*"]))
    return markers


@pytest.fixture(scope="module")
def all_markers() -> list[CasesMarker]:
    """The markers of all tests in this folder."""
    markers: list[CasesMarker] = []
    for test_file in HERE.glob("test_*.py"):
        markers.extend(markers_in(test_file))
    return markers


@pytest.mark.parametrize("file", FILES)
def test_every_case_of_a_file_is_tested(file: str, all_markers: list[CasesMarker]) -> None:
    """The markers `@pytest.mark.cases_from_authors_code` of all tests name each case of a file."""
    untested_ids = {case["id"] for case in vectors(file)}
    assert untested_ids

    for marker in all_markers:
        if marker.file == file:
            for pattern in marker.patterns:
                untested_ids -= set(fnmatch.filter(untested_ids, pattern))

    assert untested_ids == set()


def test_the_table_of_deviations_names_files_of_cases() -> None:
    """A table in docs/coverage.md lists the cases in which our result differs on purpose."""
    assert deviations()
    assert deviations().keys() <= set(FILES)


@pytest.mark.parametrize("file", sorted(deviations()))
def test_the_table_of_deviations_names_cases_that_exist_with_a_reason(file: str) -> None:
    case_ids = [case["id"] for case in vectors(file)]

    for deviation in deviations()[file]:
        assert fnmatch.filter(case_ids, deviation.pattern), deviation.pattern
        assert len(deviation.reason.split()) >= 4, deviation.pattern
