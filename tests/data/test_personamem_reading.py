"""PersonaMem v1: columns by name, contexts by streaming, sessions, shared prefixes, what a broken row is told."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.blocks import Blocks
from mempiler.data.check import check
from mempiler.data.dataset import Finding
from mempiler.data.personamem.benchmark import PersonaMem
from mempiler.data.personamem.reader import SKILLS, read_contexts, read_personamem
from mempiler.errors import DataError, UnknownNameError

MESSAGES = [
    {"role": "system", "content": "Current user persona: Ann"},
    {"role": "user", "content": "I like jazz."},
    {"role": "assistant", "content": "Noted."},
    {"role": "system", "content": "Current user persona: Ann"},
    {"role": "user", "content": "I gave up jazz."},
    {"role": "user", "content": "It was too loud."},
]
ROW = {
    "persona_id": "7",
    "question_id": "q1",
    "question_type": "suggest_new_ideas",
    "topic": "music",
    "user_question_or_message": "What now?",
    "correct_answer": "(b)",
    "all_options": "['(a) Jazz.', \"(b) It's silence.\", '(c) Rock.', '(d) Pop.']",
    "shared_context_id": "c1",
    "end_index_in_shared_context": "6",
}
OLD_NAMES = {"user_question_or_message": "question", "all_options": "options", "shared_context_id": "context_id"}


def changed(**cells: str) -> dict[str, str]:
    return {**ROW, **cells}


def written(folder: Path, *rows: dict[str, str], contexts: Any = None) -> Path:
    path = folder / "questions_32k.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    contexts = [{"c1": MESSAGES}] if contexts is None else contexts
    lines = [line if isinstance(line, str) else json.dumps(line) for line in contexts]
    (folder / "shared_contexts_32k.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = PersonaMem.load(written(tmp_path, ROW)).examples
    assert set(example.inputs().keys()) == {"history", "question", "options", "focus"}
    assert (example.id, example.question, example.answer, example.topic) == ("q1", "What now?", "(b)", "music")
    assert example.options == ["(a) Jazz.", "(b) It's silence.", "(c) Rock.", "(d) Pop."]
    assert (example.category, example.user, example.focus) == ("suggest_new_ideas", "7", ())


def test_a_system_message_begins_a_session_and_stays_in_it(tmp_path: Path) -> None:
    (example,) = PersonaMem.load(written(tmp_path, ROW)).examples
    assert [[turn.line() for turn in session.turns] for session in example.history] == [
        ["[D1:1] system: Current user persona: Ann", "[D1:2] user: I like jazz.", "[D1:3] assistant: Noted."],
        ["[D2:1] system: Current user persona: Ann", "[D2:2] user: I gave up jazz.", "[D2:3] user: It was too loud."],
    ]


@pytest.mark.parametrize(
    ("end", "turns"), [("1", ["D1:1"]), ("2", ["D1:1", "D1:2"]), ("4", ["D1:1", "D1:2", "D1:3", "D2:1"])]
)
def test_the_end_index_is_exclusive(tmp_path: Path, end: str, turns: list[str]) -> None:
    (example,) = PersonaMem.load(written(tmp_path, changed(end_index_in_shared_context=end))).examples
    assert list(example.history.turns) == turns


def test_columns_are_found_by_older_names_and_in_any_order(tmp_path: Path) -> None:
    old = {OLD_NAMES.get(name, name): ROW[name] for name in reversed(ROW) if name not in ("persona_id", "question_id")}
    (example,) = PersonaMem.load(written(tmp_path, {"stereotypical": "no", **old})).examples
    assert (example.question, example.id, example.user) == ("What now?", "c1:2", "c1")


def test_equal_ends_share_one_history_and_longer_ones_its_prefix(tmp_path: Path) -> None:
    ends = ("3", "6", "6")
    rows = [changed(question_id=f"q{n}", end_index_in_shared_context=end) for n, end in enumerate(ends)]
    short, long, same = (example.history for example in PersonaMem.load(written(tmp_path, *rows)).examples)
    assert long is same
    assert long.prefixes[: len(short)] == short.prefixes
    assert long.items[0] is short.items[0]


@given(st.lists(st.sampled_from(["system", "user", "assistant"]), min_size=1, max_size=12), st.data())
def test_every_message_is_in_one_session_and_whole_sessions_do_not_depend_on_the_end(
    roles: list[str], data: Any
) -> None:
    blocks = Blocks([{"role": role, "content": f"m{n}"} for n, role in enumerate(roles)])
    end = data.draw(st.integers(1, len(roles)))
    cut, whole = blocks.until(end), blocks.until(len(roles))
    assert [turn.text for session in cut for turn in session.turns] == [f"m{n}" for n in range(end)]
    assert all(turn.speaker != "system" for session in whole for turn in session.turns[1:])
    assert cut[:-1] == whole[: len(cut) - 1]


def test_only_the_contexts_that_are_needed_are_parsed(tmp_path: Path) -> None:
    """A broken line of another context, and all that follows the last one needed, is never looked at."""
    path = tmp_path / "contexts.jsonl"
    path.write_text('{"other": [{"role"\n{"c1": []}\nnot even JSON\n', encoding="utf-8")
    seen: list[Finding] = []
    assert list(read_contexts(path, ["c1"], seen.append)) == ["c1"]
    assert seen == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"user_question_or_message": " "}, "line 2, column 'user_question_or_message': is empty"),
        ({"correct_answer": "(x)"}, "line 2, column 'correct_answer': '(x)' is no letter such as (c)"),
        ({"all_options": "(a) Jazz"}, "column 'all_options': '(a) Jazz' is no list of texts"),
        ({"all_options": "['(a) Jazz.', '(c) Rock.']"}, "no option begins with (b)"),
        ({"shared_context_id": "c2"}, "'c2' is not in the file of contexts"),
        ({"end_index_in_shared_context": "0"}, "'0' is no number of messages"),
    ],
)
def test_a_broken_row_is_refused_by_line_and_column(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    path = written(tmp_path, changed(**cells))
    with pytest.raises(DataError) as error:
        PersonaMem.load(path)
    assert message in str(error.value)
    report = check("personamem", path)
    assert (report.ok, [row.fatal for row in report.rows][:1]) == (False, [True])


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        (['{"c1": [{"role"'], "shared_contexts_32k.jsonl, line 1, column"),
        ([{"c1": "text"}], "expected {context id: [messages]}"),
        ([{"c1": []}], "holds no message with text before the question"),
    ],
)
def test_a_broken_context_is_refused(tmp_path: Path, contexts: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        PersonaMem.load(written(tmp_path, ROW, contexts=contexts))
    assert message in str(error.value)


def test_a_missing_column_a_missing_file_and_a_double_id_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no column 'correct_answer'"):
        PersonaMem.load(written(tmp_path, {name: cell for name, cell in ROW.items() if name != "correct_answer"}))
    with pytest.raises(DataError, match="'q1' is used twice"):
        PersonaMem.load(written(tmp_path, ROW, ROW))
    (tmp_path / "shared_contexts_32k.jsonl").unlink()
    with pytest.raises(DataError, match=r"shared_contexts_32k\.jsonl is not beside it"):
        PersonaMem.load(tmp_path / "questions_32k.csv")
    with pytest.raises(DataError, match="no such file"):
        PersonaMem.load(tmp_path / "nowhere.csv")


def test_an_end_past_the_context_is_told_and_coped_with(tmp_path: Path) -> None:
    seen: list[Finding] = []
    reading = read_personamem(written(tmp_path, changed(end_index_in_shared_context="99")), seen.append)
    assert [(finding.kind, finding.fatal) for finding in seen] == [("end past the context", False)]
    assert len(reading.examples[0].history.turns) == len(MESSAGES)


def test_categories_keep_skills_and_an_absent_one_is_counted_zero(tmp_path: Path) -> None:
    rows = [ROW, changed(question_id="q2", question_type="recalling_facts_mentioned_by_the_user")]
    path = written(tmp_path, *rows)
    assert [example.id for example in PersonaMem.load(path, categories="recall_user_shared_facts").examples] == ["q2"]
    with pytest.raises(UnknownNameError, match="PersonaMem skill"):
        PersonaMem.load(path, categories="telepathy")
    with pytest.raises(DataError, match="no question of the skill"):
        PersonaMem.load(path, categories="acknowledge_latest_user_preferences")
    counts = check("personamem", path).counts
    assert {counts[f"category {skill}"] for skill in SKILLS} == {0, 1}
    assert counts["category acknowledge_latest_user_preferences"] == 0


def test_questions_are_checked_without_their_contexts(tmp_path: Path) -> None:
    path = written(tmp_path, ROW, changed(question_id="q2", correct_answer="(e)"), changed(question_id="q3"))
    (tmp_path / "shared_contexts_32k.jsonl").unlink()
    report = check("personamem", path)
    assert [(row.kind, row.where) for row in report.rows] == [
        ("no contexts", "contexts"),
        ("malformed answer", "line 3, column 'correct_answer'"),
    ]
    assert (report.ok, report.counts["questions"], report.counts["conversations"]) == (False, 2, 0)
    assert report.counts["category suggest_new_ideas"] == 2
