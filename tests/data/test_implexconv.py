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
from mempiler import Context, DataError, Hit, UnknownNameError
from mempiler.data.catalog import benchmark
from mempiler.data.implexconv import session_recall, turns_of
from mempiler.data.judge import Verdict

from .conftest import FixedJudge, reference_judge
from .forms import EXAMPLE_FILES, changed_files, load, put, remove, write_files

OTHER_SESSION, GOLD_SESSION = EXAMPLE_FILES["implexconv"]["implex.json"][0]["conversation"]
"""The sessions of the example: D1 about films, and D2 about a torn ankle, which decides."""

WORD_METRICS = ("f1", "bleu1", "bleu2", "bleu3", "rouge_l")


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
    ("name", "category"),
    [("ImplexConv_opposed.json", "opposed"), ("x.json", "supportive")],
)
def test_without_a_reasoning_the_name_of_the_file_decides_the_category(
    tmp_path: Path, name: str, category: str
) -> None:
    """Rows of the category "opposed" have a field for its reasoning, which is removed here."""
    change = remove("qa", 0, "opposed reasoning")
    content = changed_files("implexconv", change)["implex.json"]

    loaded = benchmark("implexconv", write_files(tmp_path, {name: content}))

    assert loaded.examples[0].category == category


@pytest.mark.parametrize(
    ("gold", "evidence_ids"),
    [
        pytest.param(
            [GOLD_SESSION, OTHER_SESSION],
            ("D2:1", "D2:2", "D1:1", "D1:2"),
            id="two sessions",
        ),
        pytest.param(["My ankle is torn and in plaster."], ("D2:1",), id="one turn"),
        pytest.param("my ankle", (), id="a part of a turn"),
        pytest.param("words of another conversation", (), id="nothing of this conversation"),
    ],
)
def test_the_gold_sessions_are_found_again_in_the_conversation(
    tmp_path: Path, gold: Any, evidence_ids: tuple[str, ...]
) -> None:
    """The released file repeats the texts of the gold sessions. D1 is about films, D2 decides."""
    change = put("qa", 0, "retrieved_conv", value=gold)
    [example] = load(tmp_path, "implexconv", change).examples
    assert example.evidence_ids == evidence_ids


def test_sessions_keep_their_numbers_where_one_has_no_turns(tmp_path: Path) -> None:
    """The text of the first session names no speaker, so it has no turns. The second stays D2."""
    loaded = load(tmp_path, "implexconv", put("conversation", 0, value="nobody"))
    assert [session.id for session in loaded.examples[0].history] == ["D2"]


def add_supportive_question(row: Any) -> None:
    """Add a question of the other category."""
    row["qa"].append({**row["qa"][0], "opposed reasoning": ""})


def test_a_category_is_chosen_and_questions_keep_their_numbers(tmp_path: Path) -> None:
    # The first question, number 0, is of the category "opposed".
    loaded = load(tmp_path, "implexconv", add_supportive_question, categories="supportive")
    assert [example.id for example in loaded.examples] == ["item-0:1"]


def test_a_category_without_questions_is_refused(tmp_path: Path) -> None:
    """The only question of the example is of the category "opposed"."""
    with pytest.raises(DataError, match="no question of the category supportive"):
        load(tmp_path, "implexconv", categories="supportive")


def test_an_unknown_category_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="category of implexconv 'neutral'"):
        load(tmp_path, "implexconv", categories="neutral")


def test_a_question_is_answered_with_a_response_to_the_user(tmp_path: Path) -> None:
    """The task decides how the model is asked to answer.

    "personal-response" asks for advice to this user, other tasks ask for a short answer.
    """
    assert load(tmp_path, "implexconv").task == "personal-response"


CONTEXT = Context(
    hits=(Hit(id="D2:1", text="torn", sources=("D2:1",)),),
    notes={"summary": "A summary."},
)


def test_the_judge_sees_the_gold_answer_with_its_reason_and_the_answer_of_the_program(
    tmp_path: Path,
) -> None:
    """The gold answer is archery, and the reason is the torn ankle; the program answers golf."""
    judge = FixedJudge(Verdict(True, "why not"))
    loaded = load(tmp_path, "implexconv", metric="answer")
    loaded = loaded.with_judges(lambda judge_class: judge)

    prediction = dspy.Prediction(answer="Golf.", context=CONTEXT)
    score = loaded.score(loaded.examples[0], prediction)

    gold = "Archery. (The reason: The ankle is torn.)"
    assert judge.calls == [("Which sport?", gold, "Golf.")]
    assert score.value == 1.0
    # "Golf." shares no word with the gold answer.
    assert score.parts == {**dict.fromkeys(WORD_METRICS, 0.0), "evidence": 1.0, "judge": 1.0}


def test_evidence_is_recalled_by_session() -> None:
    """One recalled turn is enough for its whole session."""
    # The evidence is in the sessions D1 and D2; an entry from D2 was recalled.
    assert session_recall(("D1:1", "D1:2", "D2:1"), CONTEXT.sources) == 0.5


@pytest.mark.parametrize(
    ("metric", "level", "value", "judged_parts"),
    [
        ("recall", "not", 0.0, {"recall": 0.0}),
        ("recall", "implicitly", 1.0, {"recall": 1.0}),
        ("recall_strict", "implicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 0.0}),
        ("recall_strict", "explicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 1.0}),
    ],
)
def test_the_recalled_entries_are_judged(
    tmp_path: Path, metric: str, level: str, value: float, judged_parts: dict[str, float]
) -> None:
    """The judge finds the reason in the recalled entries at a `level`.

    The strict metric tells besides whether it stands there explicitly. A summary is not judged.
    """
    judge = reference_judge(level)
    loaded = load(tmp_path, "implexconv", metric=metric).with_judges(lambda judge_class: judge)

    prediction = dspy.Prediction(answer="Archery.", context=CONTEXT)
    score = loaded.score(loaded.examples[0], prediction)

    assert judge.calls == [("Which sport?", ["The ankle is torn."], "[D2:1] torn")]
    assert score.value == value
    other_parts = {*WORD_METRICS, "evidence"}
    parts = {name: part for name, part in score.parts.items() if name not in other_parts}
    assert parts == judged_parts
