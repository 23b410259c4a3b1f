"""ImplexConv: how sessions are cut, where the gold stands, categories, metrics and judges.

A question of ImplexConv depends on something that the user said earlier in a session that seems
unrelated. That is the gold session. In the category "opposed" it changes the answer: someone with a
torn ankle should do archery, not football. In the category "supportive" it agrees with the answer.

A turn such as D2:1 is the first one of session 2. A metric such as "recall" asks a model, the
judge, whether the entries that a memory recalled tell the reason of the answer.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, DataError, Hit
from mempiler.data.catalog import benchmark
from mempiler.data.implexconv import session_recall, turns_of
from mempiler.data.judge import Verdict

from .conftest import FixedJudge, judge_of_references
from .forms import changed_files, load, put, remove, write_files


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        pytest.param(
            "Here it is:\n\nSpeaker1: Hi.\n\nAssistant: Hello.",
            [("Speaker1", "Hi."), ("Assistant", "Hello.")],
            id="an introduction",
        ),
        pytest.param(
            "**Speaker1:** Hi.\n**Assistant:** Two\nlines.",
            [("Speaker1", "Hi."), ("Assistant", "Two\nlines.")],
            id="names in bold",
        ),
        pytest.param(
            "Speaker1: I said Assistant: twice.",
            [("Speaker1", "I said Assistant: twice.")],
            id="a name inside a line",
        ),
        pytest.param(
            "Speaker1:\n\nAssistant: Hello.",
            [("Assistant", "Hello.")],
            id="an empty turn",
        ),
    ],
)
def test_a_session_is_cut_at_its_speakers(text: str, turns: list[tuple[str, str]]) -> None:
    """In the released file a session is one text, with the speaker's name before each turn."""
    assert turns_of(text) == turns


@pytest.mark.parametrize(
    ("file_name", "category"),
    [("ImplexConv_opposed.json", "opposed"), ("x.json", "supportive")],
)
def test_without_a_reasoning_the_name_of_the_file_decides_the_category(
    tmp_path: Path, file_name: str, category: str
) -> None:
    """A question with the field "opposed reasoning" is of the category "opposed" in any file."""
    change = remove("qa", 0, "opposed reasoning")
    content = changed_files("implexconv", change)["implex.json"]

    loaded = benchmark("implexconv", write_files(tmp_path, {file_name: content}))

    assert loaded.examples[0].category == category


FILM_SESSION = "Speaker1: Which film should I see?\n\nAssistant: The one about the cook."
ANKLE_SESSION = "Speaker1: My ankle is torn.\n\nAssistant: No jumping!"


@pytest.mark.parametrize(
    ("gold_texts", "evidence_ids"),
    [
        pytest.param(ANKLE_SESSION, ("D2:1", "D2:2"), id="a session"),
        pytest.param(
            [ANKLE_SESSION, FILM_SESSION], ("D2:1", "D2:2", "D1:1", "D1:2"), id="two sessions"
        ),
        pytest.param(["My ankle is torn."], ("D2:1",), id="one turn"),
        pytest.param("my ankle", (), id="a part of a turn"),
        pytest.param("words of another conversation", (), id="nothing of this conversation"),
    ],
)
def test_the_texts_that_a_question_rests_on_are_found_again_in_its_conversation(
    tmp_path: Path, gold_texts: Any, evidence_ids: tuple[str, ...]
) -> None:
    """The released file names no ids, but repeats the texts of sessions in "retrieved_conv".

    Session D1 is about films, and D2 about an ankle. D2:1 is the first turn of D2.
    """

    def change(row: Any) -> None:
        row["conversation"] = [FILM_SESSION, ANKLE_SESSION]
        row["qa"][0]["retrieved_conv"] = gold_texts

    [example] = load(tmp_path, "implexconv", change).examples

    assert example.evidence_ids == evidence_ids


def test_a_session_without_turns_is_left_out_and_the_others_keep_their_numbers(
    tmp_path: Path,
) -> None:
    """The text of the first session, D1, names no speaker, so it has no turns."""
    sessions = ["a text without speakers", ANKLE_SESSION]
    loaded = load(tmp_path, "implexconv", put("conversation", value=sessions))
    assert [session.id for session in loaded.examples[0].history] == ["D2"]


def test_questions_of_a_chosen_category_keep_their_ids(tmp_path: Path) -> None:
    """The questions of the first conversation ("item") are item-0:0 and item-0:1."""

    def ask_about_both_categories(row: Any) -> None:
        opposed = {**row["qa"][0], "opposed reasoning": "The ankle is torn."}
        supportive = {**row["qa"][0], "opposed reasoning": ""}
        row["qa"] = [opposed, supportive]

    loaded = load(tmp_path, "implexconv", ask_about_both_categories, categories="supportive")

    assert [example.id for example in loaded.examples] == ["item-0:1"]


def test_a_category_without_questions_is_refused(tmp_path: Path) -> None:
    """The only question of the example is of the category "opposed"."""
    with pytest.raises(DataError, match="no question of the category supportive"):
        load(tmp_path, "implexconv", categories="supportive")


def prediction_with_recalled_ankle(answer: str) -> dspy.Prediction:
    """Return an answer for which the turn D2:1 about the torn ankle was recalled, and a summary."""
    entry = Hit(id="D2:1", text="torn", sources=("D2:1",))
    context = Context(hits=(entry,), notes={"summary": "A summary."})
    return dspy.Prediction(answer=answer, context=context)


def test_the_judge_sees_the_gold_answer_with_its_reason_and_the_answer_of_the_program(
    tmp_path: Path,
) -> None:
    """The gold answer is archery, and the reason is a torn ankle. The program answers golf."""
    judge = FixedJudge(Verdict(True, "why not"))
    loaded = load(tmp_path, "implexconv", metric="answer")
    loaded = loaded.with_judges(lambda judge_class: judge)

    loaded.score(loaded.examples[0], prediction_with_recalled_ankle(answer="Golf."))

    gold = "Archery. (The reason: The ankle is torn.)"
    assert judge.calls == [("Which sport?", gold, "Golf.")]


def test_the_judge_decides_the_score_and_other_metrics_are_parts_of_it(tmp_path: Path) -> None:
    """The judge calls "Golf." right, although it shares no word with the gold answer "Archery."."""
    judge = FixedJudge(Verdict(True, "why not"))
    loaded = load(tmp_path, "implexconv", metric="answer")
    loaded = loaded.with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], prediction_with_recalled_ankle(answer="Golf."))

    assert score.value == 1.0
    assert score.parts == {
        "judge": 1.0,
        "evidence": 1.0,
        "f1": 0.0,
        "bleu1": 0.0,
        "bleu2": 0.0,
        "bleu3": 0.0,
        "rouge_l": 0.0,
    }


def test_evidence_is_recalled_by_session() -> None:
    """One recalled turn is enough for its whole session.

    The evidence is in the sessions D1 and D2, and one turn of D2 was recalled.
    """
    recall = session_recall(evidence=["D1:1", "D1:2", "D2:1", "D2:2"], recalled=["D2:1"])
    assert recall == 1 / 2


@pytest.mark.parametrize("metric", ["recall", "recall_strict"])
@pytest.mark.parametrize(
    ("verdict", "recall"), [("absent", 0.0), ("implicit", 1.0), ("explicit", 1.0)]
)
def test_the_judge_says_whether_the_recalled_entries_tell_the_reason_of_the_answer(
    tmp_path: Path, metric: str, verdict: str, recall: float
) -> None:
    """The reason is the torn ankle. The judge sees the recalled entries, and not the summary.

    An implicit mention of the ankle counts as well as an explicit one.
    """
    judge = judge_of_references(verdict)
    loaded = load(tmp_path, "implexconv", metric=metric).with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], prediction_with_recalled_ankle(answer="Archery."))

    assert judge.calls == [("Which sport?", ["The ankle is torn."], "[D2:1] torn")]
    assert score.value == recall
    assert score.parts[metric] == recall
