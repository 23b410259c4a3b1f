"""PersonaMem v2: linked histories that stay in their folder, rows left out, the judge, and multiple choice."""

import json

import dspy
import pytest
from mempiler import Context, DataError, Hit
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.personamem_v2 import PersonaMemV2

from .conftest import fixed_levels
from .forms import FORMS, encoded, lines, load, write

FORM = FORMS["personamem-v2"]
CSV, TALK = FORM
(ROW,) = FORM[CSV]


def loaded(folder, *changes, **options):
    rows = [{**ROW, **change} for change in changes]
    return benchmark("personamem-v2", write(folder, {**FORM, CSV: rows}), **options)


def test_a_full_row(tmp_path):
    (example,) = load(tmp_path, "personamem-v2").examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.question, example.answer) == ("Where should I stay? It's late.", "On the camp site.")
    assert (example.reference, example.category, example.user) == ("Prefers tents", "neutral_pref", "7")
    assert example.focus == ("D1:2",)
    assert lines(example)[1] == "[D1:2] user: I sleep best in a tent."


def test_cells_may_be_a_python_dict_json_or_text_and_rows_that_are_not_asked_are_told(tmp_path):
    said = "Where should I stay? It's late."
    nothing = {"preference": "", "related_conversation_snippet": ""}
    asked = [
        {"user_query": repr({"content": said})},
        {"user_query": json.dumps({"content": said}), "preference": ""},
        {"user_query": said, **nothing},
    ]
    left_out = [{"pref_type": "ask_to_forget"}, {"sensitive_info": "True"}]
    examples = loaded(tmp_path, *asked, *left_out).examples
    assert [example.question for example in examples] == [said] * 3
    # Without a preference the snippet is the reference, or else the right reply.
    references = ["Prefers tents", "I sleep best in a tent.", "On the camp site."]
    assert [example.reference for example in examples] == references
    report = check("personamem-v2", tmp_path / CSV)
    assert (report.ok, report.kinds) == (True, {"left out": 2})


@pytest.mark.parametrize(
    ("talk", "kind"), [(b"{", "unreadable history"), ({"chat_history": 3}, "wrong value"), ([], "empty history")]
)
def test_a_history_that_cannot_be_read_is_a_finding(tmp_path, talk, kind):
    report = check("personamem-v2", write(tmp_path, {**FORM, TALK: talk}))
    assert kind in [row.kind for row in report.rows if row.fatal]


def test_a_symbolic_link_that_leads_out_is_refused(tmp_path):
    # As deep as the folders above that are searched.
    path = write(tmp_path / "a/b/c/d", FORM)
    outside = tmp_path / "secret.json"
    (tmp_path / "a/b/c/d" / TALK).rename(outside)
    (tmp_path / "a/b/c/d" / TALK).symlink_to(outside)
    with pytest.raises(DataError, match=r"talk\.json' leads to a file outside; copy it there"):
        PersonaMemV2.load(path)


def test_the_cache_of_the_hub_where_all_files_are_links_is_read(tmp_path):
    (tmp_path / "blobs").mkdir()
    for number, (name, value) in enumerate(FORM.items()):
        blob, link = tmp_path / "blobs" / str(number), tmp_path / "snapshots/rev" / name
        blob.write_bytes(encoded(name, value))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    assert PersonaMemV2.load(tmp_path / "snapshots/rev" / CSV).examples


@pytest.mark.parametrize(
    ("level", "recall", "explicit"), [("explicitly", 1.0, 1.0), ("implicitly", 1.0, 0.0), ("not", 0.0, 0.0)]
)
def test_the_judge_sees_the_retrieved_context_and_the_preference(tmp_path, level, recall, explicit):
    judge = fixed_levels(level)
    found = load(tmp_path, "personamem-v2").bound(lambda kind: judge)
    (example,) = found.examples
    context = Context(hits=(Hit(id="D1:2", text="user: I sleep best in a tent."),), notes={"summary": "unjudged"})
    score = found.score(example, dspy.Prediction(answer="In a hotel.", context=context))
    assert (score.value, score.parts) == (recall, {"recall": recall, "recall_explicit": explicit})
    assert judge.asked == [(example.question, ["Prefers tents"], "[D1:2] user: I sleep best in a tent.")]
    assert "Prefers tents (the judge: why not)" in score.feedback


def test_multiple_choice_has_all_replies_once_in_the_same_order_each_time(tmp_path):
    changes = [{}, *({"correct_answer": f"Reply {n}."} for n in range(30))]
    first, second = (loaded(tmp_path, *changes, metric="mcq") for _ in range(2))
    assert (first.task, bool(first.scorer.asked), first.scorer.title) == ("multiple-choice", False, "accuracy")
    assert [example.options for example in first.examples] == [example.options for example in second.examples]
    example = first.examples[0]
    assert set(example.inputs().keys()) == {"history", "question", "options", "focus"}
    replies = [*json.loads(ROW["incorrect_answers"]), ROW["correct_answer"]]
    assert sorted(option[4:] for option in example.options) == sorted(replies)
    for each, change in zip(first.examples[1:], changes[1:], strict=True):
        assert f"{each.answer} {change['correct_answer']}" in each.options
    assert {each.answer for each in first.examples} == {"(a)", "(b)", "(c)", "(d)"}


def test_the_length_chooses_the_link(tmp_path):
    with pytest.raises(DataError, match=r"chat_history_128k_link.*'data/long\.json'"):
        load(tmp_path, "personamem-v2", length="128k")
    write(tmp_path, {"data/long.json": FORM[TALK]["chat_history"] * 2})
    assert len(load(tmp_path, "personamem-v2", length="128k").examples[0].history.turns) == 6
