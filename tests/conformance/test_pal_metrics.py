"""PAL-Bench and PraMem: metrics, selections and predictions agree with the released code.

PAL-Bench asks what a user needs (restatements, scored by BLEU or by a judge's points), for a
solution (generation), for the best two of eight solutions (selection), and for a dialogue. PraMem
predicts how a user reacts to a record, such as a video, by answering Yes or No to questions about
fields.

A case (of a file `.jsonl`) was made by running the released code: it has an input, and the expected
result. `assert_matches_authors_code` compares our result with it; see `conftest.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.catalog import benchmark
from mempiler.data.confusion import Confusion
from mempiler.data.omnibehavior.benchmark import OPTIONS, FieldAccuracy
from mempiler.data.omnibehavior.records import QUESTIONS, TABLE_NAMES
from mempiler.data.palbench.benchmark import (
    GenerationBleu,
    NeedPoints,
    NeedsJudge,
    RestatementBleu,
    SelectionPoints,
)
from mempiler.data.palbench.dialogue import NeedUnderstandingJudge, compare
from mempiler.data.palbench.topics import Candidate, Topic
from mempiler.programs.adapter import adapter
from mempiler.reading.answer import read_answer
from mempiler.reading.repairs import UnreadableError
from mempiler.records import Failure
from mempiler.runs.rows import Row
from mempiler.signatures.behavior import chosen_option
from mempiler.signatures.pal import SelectSolutions

from tests.runs.evaluations import row

from .conftest import AssertMatches, Case

# PAL-Bench.


def question_about_topic(**topic_fields: Any) -> Example:
    """Return a question about a topic of which little but these fields is known."""
    fields = {"user_query": "?", "needs": ("rest", "quiet"), "requirement": "", **topic_fields}
    topic = Topic.model_construct(**fields)
    return Example(asked=SimpleNamespace(topic=topic), answer=["S1"])


def rows_with_parts(parts_of_rows: Iterable[Mapping[str, float]]) -> list[Any]:
    """Return scored questions as the sums over questions need them."""
    return [SimpleNamespace(parts=parts, failure=None) for parts in parts_of_rows]


def with_released_names(columns: Mapping[str, float]) -> dict[str, float]:
    """Return columns of our table by the released names: "bleu-1", from 0 to 1, for "BLEU-1"."""
    return {name.lower(): value / 100 for name, value in columns.items()}


def mean_bleu_of_restatements(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return the mean BLEU of pairs of a reference and a restatement."""
    scorer = RestatementBleu("bleu1")
    parts = [
        scorer.score(question_about_topic(requirement=gold), Prediction(answer=answer)).parts
        for gold, answer in pairs
    ]
    return with_released_names(scorer.aggregate(rows_with_parts(parts)))


@pytest.mark.cases_from_authors_code("pal_metrics", "bleu-*")
def test_bleu_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """BLEU compares groups of words, or of Chinese characters, in two texts.

    Example of a case:
        input     {"reference": "用户需要改善睡眠", "candidate": "改善睡眠"}
        expected  {"bleu-1": 0.36787944117144233, "bleu-2": 0.36787944117144233,
                  "bleu-3": 0.1720701423929801, "bleu-4": 0.11633369384516798}
    """
    pair = (case["input"]["reference"], case["input"]["candidate"])

    assert_matches_authors_code(mean_bleu_of_restatements([pair]))


@pytest.mark.cases_from_authors_code("pal_metrics", "restate-batch-*")
def test_bleu_of_a_batch_of_restatements_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The figures are means over all topics, whatever user a topic belongs to.

    A row has the user, the topic, the requirement and its restatement.

    Example of a case:
        input     {"rows": [["0000", "topic-1", "用户需要改善睡眠", "改善睡眠"], ["0000", "topic-2",
                  "用户想去旅行", "用户想去旅行"], ["0001", "topic-1", "安排一次体检", "预约体检"]]}
        expected  {"bleu-1": 0.557048257009253}
    """
    pairs = [(gold, answer) for _user, _topic, gold, answer in case["input"]["rows"]]

    assert_matches_authors_code(mean_bleu_of_restatements(pairs))


@pytest.mark.cases_from_authors_code("pal_metrics", "generate-*")
def test_bleu_of_solutions_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A proposed solution is compared with all solutions that the user likes.

    Example of a case:
        input     {"generations": ["take a walk and sleep"],
                  "liked_references": [["take a walk", "walk and sleep well tonight"]]}
        expected  {"bleu-1": 0.7777777777777778}
    """
    generations = case["input"]["generations"]
    liked_references = case["input"]["liked_references"]
    scorer = GenerationBleu("bleu1")

    parts = [
        scorer.score(question_about_topic(positives=liked), Prediction(answer=solution)).parts
        for solution, liked in zip(generations, liked_references, strict=True)
    ]

    assert_matches_authors_code(with_released_names(scorer.aggregate(rows_with_parts(parts))))


def is_readable(ask_judge: Callable[[], Any]) -> bool:
    """Return whether the reply of a judge can be read."""
    try:
        ask_judge()
    except AdapterParseError:
        return False
    return True


@pytest.mark.cases_from_authors_code("pal_metrics", "needs-points-*")
def test_the_points_that_a_judge_of_needs_may_give_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    r"""For how well a need was understood, a judge gives 0, 0.5, 1, 1.5 or 2 points.

    Example of a case:
        input     {"reply": "{\"analysis\": \"x\", \"score\": 0.75}"}
        expected  {"accepted": false}
    """
    judge = NeedsJudge(scripted(lambda *call: case["input"]["reply"]), adapter())
    topic = question_about_topic().asked.topic

    is_accepted = is_readable(lambda: judge(topic, "to sleep well"))

    assert_matches_authors_code(is_accepted, case["expected"]["accepted"])


@pytest.mark.cases_from_authors_code("pal_metrics", "g-score-*")
def test_g_score_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    """The G-score is the mean of the judge's points, from 0 to 2, in percent.

    Example of a case:
        input     {"points_by_user": {"0": [2, 2, 2], "1": [0]}}
        expected  75.0
    """
    points: list[Any] = []
    for points_of_user in case["input"]["points_by_user"].values():
        points.extend(points_of_user)

    def reply(kind: str, text: str, number: int) -> str:
        return json.dumps({"analysis": "-", "score": points[number - 1]})

    judge = NeedsJudge(scripted(reply), adapter())
    scorer = NeedPoints().with_judges(lambda judge_class: judge)
    answer = Prediction(answer="to sleep well")
    parts = [scorer.score(question_about_topic(), answer).parts for _ in points]

    assert_matches_authors_code(scorer.aggregate(rows_with_parts(parts))["G-score"])


SOLUTIONS = [f"S{number}: solution {number}" for number in range(1, 9)]


def candidates_with_feedback(feedback: Iterable[Any]) -> tuple[Candidate, ...]:
    """Return candidates by what the user thinks of each: "pos", "neg" or "neu"."""
    return tuple(
        Candidate(solution=f"solution {number}", feedback=kind)
        for number, kind in enumerate(feedback, start=1)
    )


@pytest.mark.cases_from_authors_code("pal_metrics", "select-read-*")
def test_selections_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    r"""A reply selects two of eight solutions, which are called S1 to S8.

    None is expected where it cannot be read, or where the number of solutions is wrong.

    Example of a case:
        input     {"reply": "{\"analysis\": \"x\", \"selected_solutions\": [\"S8\",
                  \"S7\"]}"}
        expected  {"selected": ["S8", "S7"]}
    """
    try:
        answer = read_answer(SelectSolutions, case["input"]["reply"], {"options": SOLUTIONS})
        selection = answer.outputs["answer"]
    except UnreadableError:
        selection = []

    # A selection that can be read may still have too many solutions, or too few.
    question = question_about_topic(candidates=candidates_with_feedback(["pos"] * 8))
    parts = SelectionPoints().score(question, Prediction(answer=selection)).parts
    selected = selection if parts["valid"] else None

    assert_matches_authors_code({"selected": selected}, {"selected": case["expected"]["selected"]})


@pytest.mark.cases_from_authors_code("pal_metrics", "s-score-*")
def test_s_score_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A solution that the user likes ("pos") gains points, a disliked one ("neg") loses some.

    "feedback" is about the solutions S1 to S8. The user likes one of the two selected ones.

    Example of a case:
        input     {"feedback": ["pos", "neg", "neu", "neu", "pos", "neg", "neu", "neu"],
                  "chosen_by_user": {"0": [["S1", "S3"]]}}
        expected  50.0
    """
    candidates = candidates_with_feedback(case["input"]["feedback"])
    question = question_about_topic(candidates=candidates)
    scorer = SelectionPoints()
    parts: list[Mapping[str, float]] = []

    for selections_of_user in case["input"]["chosen_by_user"].values():
        for selection in selections_of_user:
            parts.append(scorer.score(question, Prediction(answer=selection)).parts)

    assert_matches_authors_code(scorer.aggregate(rows_with_parts(parts))["S-score"])


def with_our_fields(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a released reply of a judge with our names of fields, in the same order."""
    fields: dict[str, Any] = {}
    for name, value in reply.items():
        if name == "analysis" and isinstance(value, Mapping):
            our_names = {
                "assistant-1": "analysis_1",
                "assistant-2": "analysis_2",
                "overall": "comparison",
            }
            for part, text in value.items():
                fields[our_names[part]] = text
        elif name == "scores":
            fields["scores"] = {key.replace("-", "_"): score for key, score in value.items()}
        else:
            fields[name] = value
    return fields


@pytest.fixture(scope="module")
def persona() -> Any:
    """A user of the sample of PAL-Bench: a judge reads who the user of a dialogue is."""
    return benchmark("palbench.restate").examples[0].asked.persona


@pytest.mark.cases_from_authors_code("pal_metrics", "dialogue-judge-*")
def test_the_scores_that_a_judge_of_dialogues_may_give_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any, persona: Any
) -> None:
    r"""A judge gives each of two dialogues a score from 1 to 10, so a score of 0 is refused.

    Example of a case:
        input     {"reply": "{\"analysis\": {\"assistant-1\": \"a\", \"assistant-2\": \"b\",
                  \"overall\": \"c\"}, \"scores\": {\"assistant-1\": 0,
                  \"assistant-2\": 8}}"}
        expected  {"accepted": false}
    """
    reply = json.dumps(with_our_fields(json.loads(case["input"]["reply"])))
    judge = NeedUnderstandingJudge(scripted(lambda *call: reply), adapter())

    is_accepted = is_readable(lambda: judge(persona, "USER: a", "USER: b", rollout=1))

    assert_matches_authors_code(is_accepted, case["expected"]["accepted"])


OUR_DIALOGUE = "ours"
BASELINE_DIALOGUE = "baseline"
JUDGEMENTS_PER_ORDER = 3
"""How often a judge sees our dialogue first, and how often the baseline's."""


class JudgeWithKnownScores:
    """A judge of our dialogue and the baseline's with given scores, in place of a model.

    Args:
        scores: Six pairs of our score and the baseline's: three for our dialogue shown first, then
            three for the baseline's shown first.
    """

    hash = "known"

    def __init__(self, scores: list[tuple[float, float]]) -> None:
        self.scores_if_ours_is_first = scores[:JUDGEMENTS_PER_ORDER]
        self.scores_if_baseline_is_first = scores[JUDGEMENTS_PER_ORDER:]

    def __call__(self, persona: Any, first: str, second: str, rollout: int) -> tuple[float, float]:
        """Return the scores of the first and of the second dialogue; `rollout` is 1, 2 or 3."""
        if first == OUR_DIALOGUE:
            return self.scores_if_ours_is_first[rollout - 1]
        our_score, baseline_score = self.scores_if_baseline_is_first[rollout - 1]
        return baseline_score, our_score


@pytest.mark.cases_from_authors_code("pal_metrics", "win-tie-lose-*")
def test_dialogues_win_tie_or_lose_against_a_baseline_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, persona: Any
) -> None:
    """A judge scores our dialogue and a baseline's six times. The higher mean wins.

    Example of a case:
        input     {"scores_test_baseline": {"x": [[8, 7], [8, 7], [8, 7], [8, 7], [8, 7],
                  [8, 7]]}}
        expected  {"counts": {"win": 1, "tie": 0, "lose": 0}, "means": {"x": [8.0, 7.0]}}
    """
    counts = {"win": 0, "tie": 0, "lose": 0}
    means: dict[str, list[float]] = {}

    for dialogue_name, scores in case["input"]["scores_test_baseline"].items():
        judge = JudgeWithKnownScores(scores)
        comparison = compare(judge, persona, own=OUR_DIALOGUE, other=BASELINE_DIALOGUE)
        counts[comparison.outcome] += 1
        means[dialogue_name] = [comparison.own, comparison.other]

    assert_matches_authors_code({"counts": counts, "means": means})


# PraMem.


def yes_or_no(value: Any) -> str:
    """Return the option "Yes" for a true value, and "No" otherwise."""
    yes, no = OPTIONS
    return yes if value else no


def row_of_question(question: dict[str, Any], number: int, has_failed: bool = False) -> Row:
    """Return a question of a released report as a scored question."""
    probability = question["predicted_value"]
    answer = "hard to tell"
    if probability is not None:
        # A probability of a half or more is the answer Yes, as released.
        answer = yes_or_no(probability >= 0.5)
    failure = None
    if has_failed:
        failure = Failure(kind="error", where="answer", message="no answer")
    return row(
        str(number),
        category=question["field"],
        gold=yes_or_no(question["true_value"]),
        answer=answer,
        parts={},
        failure=failure,
    )


RELEASED_METRICS = {"Accuracy": "ACC", "F1": "F1"}
"""Our names of metrics by the released ones."""


def released_table(sums: Mapping[str, float]) -> dict[str, float | None]:
    """Return the means over scenes in percent, by the names of the released table."""
    our_scene_names = {**TABLE_NAMES, "avg": "Overall"}
    table: dict[str, float | None] = {}
    for scene, our_scene in our_scene_names.items():
        for metric, our_metric in RELEASED_METRICS.items():
            mean = sums.get(f"{our_scene} {our_metric}")
            table[f"{scene}_{metric}"] = None if mean is None else 100 * mean
    return table


def metrics_by_field(sums: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the metrics of every field that was asked, by the released names."""
    metrics: dict[str, dict[str, float]] = {}
    for field in QUESTIONS:
        our_field = field.replace("_", " ")
        if f"{our_field} ACC" in sums:
            metrics[field] = {
                metric: sums[f"{our_field} {our_metric}"]
                for metric, our_metric in RELEASED_METRICS.items()
            }
    return metrics


def rows_of_records(records: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the questions of all records that are not filtered out, as scored questions."""
    rows: list[Row] = []
    for number, record in enumerate(records):
        if record.get("filtered"):
            continue
        for question in record["questions"]:
            rows.append(row_of_question(question, number, has_failed=not record["success"]))
    return rows


@pytest.mark.cases_from_authors_code("behavior_metrics", "aggregate-*")
def test_metrics_of_fields_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A record has questions about fields, with their true values and the predicted ones.

    Example of a case, whose one question is answered Yes, which is right:
        input     {"records": [{"success": true, "questions": [{"field": "live_followed",
                  "true_value": 1, "predicted_value": 1.0}]}]}
        expected  {"fields": {"live_followed": {"Accuracy": 1.0, "F1": 1.0}}}
    """
    sums = FieldAccuracy().aggregate(rows_of_records(case["input"]["records"]))

    # We do not ask fields outside the scenes of the table, or report precision and recall.
    released_metrics: dict[str, dict[str, float]] = {}
    for field, metrics in case["expected"]["fields"].items():
        if field in QUESTIONS:
            released_metrics[field] = {metric: metrics[metric] for metric in RELEASED_METRICS}
    assert_matches_authors_code(metrics_by_field(sums), released_metrics)


@pytest.mark.cases_from_authors_code("behavior_metrics", "aggregate-*")
def test_the_table_of_scenes_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The table has the means over the fields of each scene, and over all scenes ("avg").

    Example of a case, whose one question is about a live stream:
        input     {"records": [{"success": true, "questions": [{"field": "live_followed",
                  "true_value": 1, "predicted_value": 1.0}]}]}
        expected  {"table_percent": {"video_Accuracy": null, "live_Accuracy": 100.0,
                  "avg_Accuracy": 100.0}}
    """
    sums = FieldAccuracy().aggregate(rows_of_records(case["input"]["records"]))

    # The released table is made of rounded metrics.
    assert_matches_authors_code(
        released_table(sums), case["expected"]["table_percent"], tolerance=0.006
    )


@pytest.mark.cases_from_authors_code("behavior_metrics", "field-*")
def test_the_metrics_of_a_field_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A field is a question that is answered yes or no, here 1 or 0.

    Example of a case:
        input     {"gold": [1, 0, 1], "predicted": [1, 1, 1]}
        expected  {"Accuracy": 0.6666666666666666, "F1": 0.8}
    """
    gold = [yes_or_no(value) for value in case["input"]["gold"]]
    predicted = [yes_or_no(value) for value in case["input"]["predicted"]]

    confusion = Confusion.of(OPTIONS, zip(gold, predicted, strict=True))

    ours = {"Accuracy": confusion.accuracy, "F1": confusion.f1("Yes")}
    assert_matches_authors_code(ours, {metric: case["expected"][metric] for metric in ours})


def rows_with_accuracy(field: str, percent: float) -> list[Row]:
    """Return scored questions about a field that have an accuracy of 100 % or of 50 %."""
    right_no = (0, 0.0)
    right_yes = (1, 1.0)
    wrong_yes = (0, 1.0)
    # With the right Yes the F1 is 100 %, too. Without one it is 0.
    values = [right_no, right_yes if math.isclose(percent, 100) else wrong_yes]

    rows: list[Row] = []
    for number, (gold, predicted) in enumerate(values):
        question = {"field": field, "true_value": gold, "predicted_value": predicted}
        rows.append(row_of_question(question, number))
    return rows


@pytest.mark.cases_from_authors_code("behavior_metrics", "table-*")
def test_an_empty_and_a_sparse_table_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A scene without any question, here "ad", does not count for the mean ("avg").

    Answers that have the metrics of the case are made up first.

    Example of a case:
        input     {"binary_metrics": {"video_liked": {"Accuracy": 50.0, "F1": 0.0},
                  "live_liked": {"Accuracy": 100.0, "F1": 100.0}}}
        expected  {"video_Accuracy": 50.0, "live_Accuracy": 100.0, "ad_Accuracy": null,
                  "avg_Accuracy": 75.0}
    """
    rows: list[Row] = []
    for field, metrics in case["input"]["binary_metrics"].items():
        rows.extend(rows_with_accuracy(field, metrics["Accuracy"]))

    sums = FieldAccuracy().aggregate(rows)

    assert_matches_authors_code(released_table(sums), tolerance=0.006)


@pytest.mark.cases_from_authors_code("behavior_metrics", "read-*")
def test_a_reply_is_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A reply is read as "Yes" or "No". None is expected for a reply such as "false".

    Example of a case:
        input     {"reply": "yes"}
        expected  "Yes"
    """
    assert_matches_authors_code(chosen_option(case["input"]["reply"], OPTIONS))
