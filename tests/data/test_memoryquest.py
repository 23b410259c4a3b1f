"""MemoryQuest and ImplexConv: sessions, gold that is found again, recall on what was retrieved, judges and scores."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, DataError, Hit, UnknownNameError
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.implexconv import session_recall, turns_of
from mempiler.data.judge import ReferenceVerdict, Verdict
from mempiler.data.memoryquest import MemoryQuest

from .conftest import Fixed, fixed_levels
from .forms import FORMS, changed, lines, load, put, write

USER = FORMS["memoryquest"]["user1.json"]


def retrieved(*sources: str, **notes: str) -> dspy.Prediction:
    hits = tuple(
        Hit(id=f"f{n}", text=f"fact {n}", sources=(source,)) for n, source in enumerate(sources)
    )
    return dspy.Prediction(answer="Rest.", context=Context(hits=hits, notes=notes))


def test_sessions_come_in_the_order_of_their_dates(tmp_path: Path) -> None:
    (example,) = load(tmp_path, "memoryquest", lambda row: row["sessions"].reverse()).examples
    assert [turn[:6] for turn in lines(example)] == ["[D1:1]", "[D1:2]", "[D1:3]", "[D2:1]"]
    assert lines(example)[-1].endswith("I work at night.")


@pytest.mark.parametrize(
    ("date", "sessions"),
    [
        ("2024-03-04", 0),
        ("2024-03-05", 1),
        ("2024-06-05T08:00", 3),
        ("2024-04-04T23:59", 1),
        (None, 3),
        ("soon", 3),
    ],
)
def test_a_history_ends_with_the_day_of_its_query(
    tmp_path: Path, date: str | None, sessions: int
) -> None:
    (example,) = load(tmp_path, "memoryquest", put("queries", 0, "date", value=date)).examples
    assert len(example.history.items) == sessions


def test_the_facts_of_a_query_are_all_references_of_its_user_up_to_its_date(tmp_path: Path) -> None:
    said = [
        {"text": "Runs", "date": "2024-01-05"},
        {"text": "Moved", "date": "2024-09-01"},
        {"text": "Sings"},
    ]
    other = {
        "query": "Where?",
        "date": "2024-12-01",
        "references": [*said, {"text": "Runs", "date": "2024-01-05"}],
    }
    first = {"query": "What?", "date": "2024-06-01", "references": [{"text": "Cooks"}]}
    earlier, later = load(tmp_path, "memoryquest", put("queries", value=[first, other])).examples
    assert earlier.facts.split("\n") == ["Cooks", "(5 January 2024, Friday) Runs", "Sings"]
    assert later.facts.count("\n") == 3
    assert "facts" not in earlier.inputs()


def test_a_reference_that_names_only_its_session_rests_on_all_of_it_and_focuses_one_turn(
    tmp_path: Path,
) -> None:
    references = [{"text": "Her knee hurts", "session_id": "a"}]
    (example,) = load(
        tmp_path, "memoryquest", put("queries", 0, "references", value=references)
    ).examples
    assert example.references[0].turns == ("D1:1", "D1:2", "D1:3")
    assert example.evidence_ids == ("D1:3",)


@pytest.mark.parametrize(
    ("sources", "parts"),
    [
        (("D1:1",), {"evidence": 0.0, "evidence_exact": 0.0}),
        (("D2:1", "D1:3"), {"evidence": 1.0, "evidence_exact": 1.0}),
    ],
)
def test_evidence_recall_needs_no_judge(
    tmp_path: Path, sources: tuple[str, ...], parts: dict[str, float]
) -> None:
    loaded = load(tmp_path, "memoryquest", metric="evidence")
    found = loaded.score(loaded.examples[0], retrieved(*sources))
    assert dict(found.parts) == parts
    assert found.value == parts["evidence"]
    assert loaded.scorer.judge_hash is None


@pytest.mark.parametrize(
    ("levels", "recall", "exact", "explicit"),
    [
        (("not", "not"), 0.0, 0.0, 0.0),
        (("implicitly", "not"), 0.5, 0.0, 0.0),
        (("explicitly", "not"), 0.5, 0.0, 0.5),
        (("implicitly", "explicitly"), 1.0, 1.0, 0.5),
    ],
)
def test_judged_recall_of_two_references(tmp_path, levels, recall, exact, explicit) -> None:
    plain = {"recall": recall, "recall_exact": exact}
    strict = {"recall_strict": recall, "recall_strict_exact": exact, "recall_explicit": explicit}
    for metric, value, judged in (
        ("recall", recall, plain),
        ("recall_exact", exact, plain),
        ("recall_strict", recall, strict),
    ):
        loaded = load(tmp_path, "memoryquest", metric=metric)
        judge = fixed_levels(*levels)
        loaded = loaded.with_judges(lambda kind, judge=judge: judge)
        found = loaded.score(loaded.examples[0], retrieved("D1:3", summary="Notes are not judged."))
        assert judge.asked == [
            ("Plan my week", loaded.examples[0].answer.splitlines(), "[f0] fact 0")
        ]
        assert dict(found.parts) == {"evidence": 0.5, "evidence_exact": 0.0, **judged}
        assert found.value == value
        assert ("Has a bad knee" in found.feedback) == (levels[0] == "not")


def test_users_come_as_a_folder_in_the_order_of_their_numbers_or_alone(tmp_path: Path) -> None:
    write(tmp_path / "data", {f"user{n}.json": {**USER, "user_id": f"u{n}"} for n in (10, 2)})
    assert [example.history.id for example in MemoryQuest.load(tmp_path / "data").examples] == [
        "u2",
        "u10",
    ]
    assert [
        example.history.id for example in MemoryQuest.load(tmp_path / "data/user2.json").examples
    ] == ["u2"]
    with pytest.raises(DataError, match=r"holds no user\*\.json"):
        MemoryQuest.load(tmp_path)


def test_evidence_recall_needs_references_that_say_in_which_session_they_were(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="says of no reference in which session it was"):
        load(
            tmp_path,
            "memoryquest",
            put("queries", 0, "references", value=[{"text": "A"}]),
            metric="evidence",
        )


OTHER, GOLD = FORMS["implexconv"]["implex.json"][0]["conversation"]
UNREASONED = put("qa", 0, "opposed reasoning")
WORDS = ("f1", "bleu1", "bleu2", "bleu3", "rouge_l")


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        (
            "Here it is:\n\nSpeaker1: Hi.\n\nAssistant: Hello.",
            [("Speaker1", "Hi."), ("Assistant", "Hello.")],
        ),
        (
            "**Speaker1:** Hi.\n**Assistant:** Two\nlines.",
            [("Speaker1", "Hi."), ("Assistant", "Two\nlines.")],
        ),
        ("Speaker1: I said Assistant: twice.", [("Speaker1", "I said Assistant: twice.")]),
        ("Speaker1:\n\nAssistant: Hello.", [("Assistant", "Hello.")]),
    ],
)
def test_a_session_is_cut_at_its_speakers(text: str, turns: list[tuple[str, str]]) -> None:
    assert turns_of(text) == turns


@pytest.mark.parametrize(("name", "kind"), [("ImplexConv_opposed", "opposed"), ("x", "supportive")])
def test_without_a_reasoning_the_name_of_the_file_decides(
    tmp_path: Path, name: str, kind: str
) -> None:
    files = {f"{name}.json": changed("implexconv", UNREASONED)["implex.json"]}
    assert load_benchmark("implexconv", write(tmp_path, files)).examples[0].category == kind


@pytest.mark.parametrize(
    ("gold", "evidence_ids"),
    [
        ([GOLD, OTHER], ("D2:1", "D2:2", "D1:1", "D1:2")),
        (["My ankle is torn and in plaster."], ("D2:1",)),
        ("my ankle", ()),
        ("words of another conversation", ()),
    ],
)
def test_gold_sessions_are_found_again(
    tmp_path: Path, gold: Any, evidence_ids: tuple[str, ...]
) -> None:
    assert (
        load(tmp_path, "implexconv", put("qa", 0, "retrieved_conv", value=gold))
        .examples[0]
        .evidence_ids
        == evidence_ids
    )


def test_a_kind_is_kept_and_numbers_stay_where_a_session_is_passed_over(tmp_path: Path) -> None:
    found = load(tmp_path, "implexconv", put("conversation", 0, value="nobody"))
    assert [session.id for session in found.examples[0].history] == ["D2"]

    def both(row: Any) -> None:
        row["qa"].append({**row["qa"][0], "opposed reasoning": ""})

    assert [
        each.id for each in load(tmp_path, "implexconv", both, categories="supportive").examples
    ] == ["item-0:1"]
    with pytest.raises(DataError, match="no question of the category supportive"):
        load(tmp_path, "implexconv", categories="supportive")
    with pytest.raises(UnknownNameError, match="category of implexconv 'neutral'"):
        load(tmp_path, "implexconv", categories="neutral")


CONTEXT = Context(
    hits=(Hit(id="D2:1", text="torn", sources=("D2:1",)),), notes={"summary": "A summary."}
)


def test_the_judge_sees_the_answer_and_its_reason(tmp_path: Path) -> None:
    judge = Fixed(Verdict(True, "why not"))
    benchmark = load(tmp_path, "implexconv", metric="answer").with_judges(lambda kind: judge)
    found = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="Golf.", context=CONTEXT))
    assert judge.asked == [("Which sport?", "Archery. (The reason: The ankle is torn.)", "Golf.")]
    assert found.value == 1.0
    assert found.parts == {**dict.fromkeys(WORDS, 0.0), "evidence": 1.0, "judge": 1.0}
    # Evidence is counted by session.
    assert session_recall(("D1:1", "D1:2", "D2:1"), CONTEXT.sources) == 0.5


def test_a_question_of_implexconv_is_answered_with_a_response_to_the_user(tmp_path: Path) -> None:
    assert load(tmp_path, "implexconv").task == "personal-response"


@pytest.mark.parametrize(
    ("metric", "level", "value", "judged"),
    [
        ("recall", "not", 0.0, {"recall": 0.0}),
        ("recall", "implicitly", 1.0, {"recall": 1.0}),
        ("recall_strict", "implicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 0.0}),
        ("recall_strict", "explicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 1.0}),
    ],
)
def test_the_retrieved_context_is_judged(
    tmp_path: Path, metric: str, level: str, value: float, judged: dict[str, float]
) -> None:
    judge = fixed_levels(level)
    benchmark = load(tmp_path, "implexconv", metric=metric).with_judges(lambda kind: judge)
    found = benchmark.score(
        benchmark.examples[0], dspy.Prediction(answer="Archery.", context=CONTEXT)
    )
    assert judge.asked == [("Which sport?", ["The ankle is torn."], "[D2:1] torn")]
    assert found.value == value
    assert {
        name: part for name, part in found.parts.items() if name not in (*WORDS, "evidence")
    } == judged
    # One word: all of it is shared; of pairs and triples there are none.
    assert [found.parts[name] for name in WORDS] == pytest.approx(
        [1.0, 1.0, 0.1**0.5, 0.1**0.66, 1.0]
    )
    assert ("does not acknowledge: The ankle is torn." in found.feedback) is (level == "not")


def test_without_a_reasoning_the_answer_is_what_is_to_be_acknowledged(tmp_path: Path) -> None:
    judge = fixed_levels("not")
    unreasoned = load(tmp_path, "implexconv", UNREASONED).with_judges(lambda kind: judge)
    assert (
        "evidence"
        not in unreasoned.score(unreasoned.examples[0], dspy.Prediction(answer="Archery.")).parts
    )
    assert judge.asked == [("Which sport?", ["Archery."], "")]


@pytest.mark.parametrize(
    ("name", "metric", "part"),
    [
        ("memoryquest", "evidence", "evidence"),
        ("memoryquest", "recall", "recall"),
        ("implexconv", "f1", "evidence"),
        ("implexconv", "recall", "recall"),
        ("personamem-v2", "recall", "recall"),
        ("beam", "evidence", "evidence"),
    ],
)
def test_turns_shown_because_nothing_was_found_count_in_no_recall(
    name: str, metric: str, part: str
) -> None:
    loaded = load_benchmark(name, metric=metric)
    example = next(example for example in loaded.examples if loaded.scorer.in_headline(example))
    every_turn = tuple(example.history.turns)

    class FindsWhatIsThere:
        """Acknowledges every reference wherever there is a context."""

        def __call__(self, question: str, references: Any, context: str) -> Any:
            return tuple(ReferenceVerdict(present=bool(context)) for _ in references)

    scorer = loaded.scorer.with_judges(lambda kind: FindsWhatIsThere())
    values = {}
    for fallback in (False, True):
        hit = Hit(id="f1", text="something", sources=every_turn, fallback=fallback)
        prediction = dspy.Prediction(answer="Rest.", context=Context(hits=(hit,)))
        values[fallback] = scorer.score(example, prediction).parts[part]
    assert values == {False: 1.0, True: 0.0}
