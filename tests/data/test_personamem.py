"""PersonaMem v1: contexts by streaming, sessions, shared prefixes, which file of a release is read, and its score."""

import dspy
import pytest
from mempiler import DataError, UnknownNameError, UserError, build
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.data.personamem import SKILLS, PersonaMem
from mempiler.runs.evaluate import evaluate

from .forms import FORMS, lines, load, write

FORM = FORMS["personamem"]
((ROW,), (CONTEXT,)) = FORM.values()


def loaded(folder, *changes, **options):
    rows = [{**ROW, "question_id": f"q{n}", **change} for n, change in enumerate(changes)]
    return benchmark("personamem", write(folder, {**FORM, "questions_32k.csv": rows}), **options)


def test_a_full_row_and_a_system_message_that_begins_a_session(tmp_path):
    (example,) = load(tmp_path, "personamem").examples
    assert set(example.inputs().keys()) == {"history", "question", "options", "focus"}
    assert (example.id, example.question, example.answer, example.topic) == ("q1", "What now?", "(b)", "music")
    assert example.options == ["(a) Jazz.", "(b) It's silence.", "(c) Rock.", "(d) Pop."]
    assert (example.category, example.user, example.focus) == ("suggest_new_ideas", "7", ())
    assert lines(example) == [
        "[D1:1] system: Current user persona: Ann",
        "[D1:2] user: I like jazz.",
        "[D1:3] assistant: Noted.",
        "[D2:1] system: Current user persona: Ann",
        "[D2:2] user: I gave up jazz.",
        "[D2:3] user: It was too loud.",
    ]


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
    assert benchmark("personamem", write(tmp_path, {**FORM, "shared_contexts_32k.jsonl": contexts})).examples


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ('{"c1": [{"role"', "shared_contexts_32k.jsonl, line 1, column"),
        ({"c1": "text"}, "shared_contexts_32k.jsonl, line 1, field 'messages': is 'text', expected a valid list"),
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
    assert PersonaMem.load(tmp_path / "questions_32k.csv", length="128k").source.name == "questions_128k.csv"
    assert check("personamem", tmp_path, length="128k").ok
    with pytest.raises(UnknownNameError, match="option of locomo"):
        check("locomo", tmp_path, length="128k")
    with pytest.raises(DataError, match="choose with --option length="):
        PersonaMem.load(tmp_path)
    with pytest.raises(DataError, match=r"holds no questions_1M\.csv"):
        PersonaMem.load(tmp_path, length="1M")
    with pytest.raises(UserError, match="length = '64k'"):
        PersonaMem.load(tmp_path, length="64k")


def test_a_skill_without_a_question_is_listed_with_none(scripted):
    found, lm = PersonaMem.load(categories="suggest_new_ideas"), scripted(lambda *call: {"answer": "(a)"})
    with dspy.context(lm=lm):
        by = evaluate(build("no-memory", task=found.task), found, found.examples[:1], lm.meter).by_category()
    latest = by["acknowledge_latest_user_preferences"]
    assert (latest["n"], latest["score"], latest["context_tokens"]) == (0, None, None)
    assert (len(by), by["suggest_new_ideas"]["n"]) == (7, 1)


@pytest.mark.parametrize(("answer", "value"), [("(b)", 1.0), ("(a)", 0.0), ("", 0.0), ("I do not know", 0.0)])
def test_a_score_says_which_option_is_right(tmp_path, answer, value):
    found = load(tmp_path, "personamem")
    score = found.score(found.examples[0], dspy.Prediction(answer=answer))
    assert (score.value, score.parts) == (value, {"accuracy": value})
    assert ("(b) It's silence." in score.feedback) is not bool(value)
