"""PersonaMem, both versions: contexts and histories, sessions, files of a release, rows left out, scores and judge."""

import json

import dspy
import pytest
from mempiler import Context, DataError, Hit, UnknownNameError, UserError, build
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.personamem import SKILLS, PersonaMem
from mempiler.data.personamem_v2 import PersonaMemV2
from mempiler.runs.scoring import score_questions

from .conftest import fixed_levels
from .forms import FORMS, encoded, load, write

FORM = FORMS["personamem"]
((ROW,), (CONTEXT,)) = FORM.values()


def loaded(folder, *changes, **options):
    rows = [{**ROW, "question_id": f"q{n}", **change} for n, change in enumerate(changes)]
    return benchmark("personamem", write(folder, {**FORM, "questions_32k.csv": rows}), **options)


def test_longer_histories_share_the_sessions_of_shorter_ones(tmp_path):
    found = loaded(tmp_path, *({"end_index_in_shared_context": end} for end in ("4", "6", "6")))
    short, long, same = (example.history for example in found.examples)
    assert list(short.turns) == ["D1:1", "D1:2", "D1:3", "D2:1"]
    assert long is same
    assert long.prefixes[:1] == short.prefixes[:1]
    assert long.items[0] is short.items[0]


def test_only_the_contexts_that_are_needed_are_parsed(tmp_path):
    """A broken line of another context, and all that follows the last one needed, is never looked at."""
    contexts = ['{"other": [{"role"', CONTEXT, "not even JSON"]
    assert benchmark(
        "personamem", write(tmp_path, {**FORM, "shared_contexts_32k.jsonl": contexts})
    ).examples


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ('{"c1": [{"role"', "shared_contexts_32k.jsonl, line 1, column"),
        (
            {"c1": "text"},
            "shared_contexts_32k.jsonl, line 1, field 'messages': is 'text', expected a valid list",
        ),
        ({"c1": []}, "holds no message with text before the question"),
    ],
)
def test_a_broken_context_is_refused(tmp_path, context, message):
    with pytest.raises(DataError, match=message):
        benchmark("personamem", write(tmp_path, {**FORM, "shared_contexts_32k.jsonl": [context]}))
    (tmp_path / "shared_contexts_32k.jsonl").unlink()
    with pytest.raises(DataError, match=r"shared_contexts_32k\.jsonl is not beside it"):
        PersonaMem.load(tmp_path / "questions_32k.csv")


def test_categories_keep_skills_and_an_absent_one_is_counted_zero(tmp_path):
    found = ({}, {"question_type": "recalling_facts_mentioned_by_the_user"})
    kept = loaded(tmp_path, *found, categories="recall_user_shared_facts")
    assert [example.id for example in kept.examples] == ["q1"]
    counts = check("personamem", tmp_path / "questions_32k.csv").counts
    assert {counts[f"category {skill}"] for skill in SKILLS} == {0, 1}


def test_the_length_chooses_the_file_of_a_folder(tmp_path):
    for length in ("32k", "128k"):
        write(tmp_path, {name.replace("32k", length): value for name, value in FORM.items()})
    assert PersonaMem.load(tmp_path, length="128k").source.name == "questions_128k.csv"
    assert (
        PersonaMem.load(tmp_path / "questions_32k.csv", length="128k").source.name
        == "questions_128k.csv"
    )
    assert check("personamem", tmp_path, length="128k").ok
    with pytest.raises(UnknownNameError, match="option of locomo"):
        check("locomo", tmp_path, length="128k")
    with pytest.raises(DataError, match="choose with --benchmark-set length="):
        PersonaMem.load(tmp_path)
    with pytest.raises(DataError, match=r"holds no questions_1M\.csv"):
        PersonaMem.load(tmp_path, length="1M")
    with pytest.raises(UserError, match="length = '64k'"):
        PersonaMem.load(tmp_path, length="64k")


def test_a_skill_without_a_question_is_listed_with_none(scripted):
    found, lm = (
        PersonaMem.load(categories="suggest_new_ideas"),
        scripted(lambda *call: {"answer": "(a)"}),
    )
    with dspy.context(lm=lm):
        by = score_questions(
            build("no-memory", task=found.task), found, found.examples[:1], lm.meter
        ).by_category()
    latest = by["acknowledge_latest_user_preferences"]
    assert latest["n"] == 0
    assert latest["score"] is None
    assert latest["context_tokens"] is None
    assert len(by) == 7
    assert by["suggest_new_ideas"]["n"] == 1


@pytest.mark.parametrize(
    ("answer", "value"), [("(b)", 1.0), ("(a)", 0.0), ("", 0.0), ("I do not know", 0.0)]
)
def test_a_score_says_which_option_is_right(tmp_path, answer, value):
    found = load(tmp_path, "personamem")
    score = found.score(found.examples[0], dspy.Prediction(answer=answer))
    assert score.value == value
    assert score.parts == {"accuracy": value}
    assert ("(b) It's silence." in score.feedback) is not bool(value)


SECOND = FORMS["personamem-v2"]
CSV, TALK = SECOND
(ASKED,) = SECOND[CSV]


def rows_of(folder, *changes, **options):
    rows = [{**ASKED, **change} for change in changes]
    return benchmark("personamem-v2", write(folder, {**SECOND, CSV: rows}), **options)


def test_cells_may_be_a_python_dict_json_or_text_and_skipped_rows_are_reported(tmp_path):
    said = "Where should I stay? It's late."
    nothing = {"preference": "", "related_conversation_snippet": ""}
    asked = [
        {"user_query": repr({"content": said})},
        {"user_query": json.dumps({"content": said}), "preference": ""},
        {"user_query": said, **nothing},
    ]
    left_out = [{"pref_type": "ask_to_forget"}, {"sensitive_info": "True"}]
    examples = rows_of(tmp_path, *asked, *left_out).examples
    assert [example.question for example in examples] == [said] * 3
    # Without a preference the snippet is the reference, or else the right reply.
    references = ["Prefers tents", "I sleep best in a tent.", "On the camp site."]
    assert [example.reference for example in examples] == references
    report = check("personamem-v2", tmp_path / CSV)
    assert report.ok is True
    assert report.kinds == {"left out": 2}


@pytest.mark.parametrize(
    ("talk", "kind"),
    [(b"{", "unreadable history"), ({"chat_history": 3}, "wrong value"), ([], "empty history")],
)
def test_a_history_that_cannot_be_read_is_a_finding(tmp_path, talk, kind):
    report = check("personamem-v2", write(tmp_path, {**SECOND, TALK: talk}))
    assert kind in [row.kind for row in report.findings if row.fatal]


def test_a_symbolic_link_that_leads_out_is_refused(tmp_path):
    # As deep as the folders above that are searched.
    path = write(tmp_path / "a/b/c/d", SECOND)
    outside = tmp_path / "secret.json"
    (tmp_path / "a/b/c/d" / TALK).rename(outside)
    (tmp_path / "a/b/c/d" / TALK).symlink_to(outside)
    with pytest.raises(DataError, match=r"talk\.json' leads to a file outside; copy it there"):
        PersonaMemV2.load(path)


def test_the_cache_of_the_hub_where_all_files_are_links_is_read(tmp_path):
    (tmp_path / "blobs").mkdir()
    for number, (name, value) in enumerate(SECOND.items()):
        blob, link = tmp_path / "blobs" / str(number), tmp_path / "snapshots/rev" / name
        blob.write_bytes(encoded(name, value))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    assert PersonaMemV2.load(tmp_path / "snapshots/rev" / CSV).examples


@pytest.mark.parametrize(
    ("metric", "level", "recall", "parts"),
    [
        ("recall", "implicitly", 1.0, {"recall": 1.0}),
        ("recall", "not", 0.0, {"recall": 0.0}),
        ("recall_strict", "explicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 1.0}),
        ("recall_strict", "implicitly", 1.0, {"recall_strict": 1.0, "recall_explicit": 0.0}),
        ("recall_strict", "not", 0.0, {"recall_strict": 0.0, "recall_explicit": 0.0}),
    ],
)
def test_the_judge_sees_the_retrieved_context_and_the_preference(
    tmp_path, metric, level, recall, parts
):
    judge = fixed_levels(level)
    found = load(tmp_path, "personamem-v2", metric=metric).with_judges(lambda kind: judge)
    (example,) = found.examples
    context = Context(
        hits=(Hit(id="D1:2", text="user: I sleep best in a tent."),), notes={"summary": "unjudged"}
    )
    score = found.score(example, dspy.Prediction(answer="In a hotel.", context=context))
    assert score.value == recall
    assert score.parts == parts
    assert judge.asked == [
        (example.question, ["Prefers tents"], "[D1:2] user: I sleep best in a tent.")
    ]
    assert "Prefers tents (the judge: why not)" in score.feedback


def test_a_request_is_answered_with_a_response_to_the_user(tmp_path):
    assert load(tmp_path, "personamem-v2").task == "personal-response"


def test_multiple_choice_has_all_replies_once_in_the_same_order_each_time(tmp_path):
    changes = [{}, *({"correct_answer": f"Reply {n}."} for n in range(30))]
    first, second = (rows_of(tmp_path, *changes, metric="mcq") for _ in range(2))
    assert first.task == "multiple-choice"
    assert not first.scorer.required_judges
    assert first.scorer.title == "accuracy"
    assert [example.options for example in first.examples] == [
        example.options for example in second.examples
    ]
    example = first.examples[0]
    assert set(example.inputs().keys()) == {"history", "question", "options", "evidence_ids"}
    replies = [*json.loads(ASKED["incorrect_answers"]), ASKED["correct_answer"]]
    assert sorted(option[4:] for option in example.options) == sorted(replies)
    for each, change in zip(first.examples[1:], changes[1:], strict=True):
        assert f"{each.answer} {change['correct_answer']}" in each.options
    assert {each.answer for each in first.examples} == {"(a)", "(b)", "(c)", "(d)"}


def test_the_length_chooses_the_link(tmp_path):
    with pytest.raises(DataError, match=r"chat_history_128k_link.*'data/long\.json'"):
        load(tmp_path, "personamem-v2", length="128k")
    write(tmp_path, {"data/long.json": SECOND[TALK]["chat_history"] * 2})
    assert len(load(tmp_path, "personamem-v2", length="128k").examples[0].history.turns) == 6
