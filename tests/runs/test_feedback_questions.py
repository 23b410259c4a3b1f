"""Questions from feedback: which rows come out, with which past, answer and evidence.

Answers come from turn RAG with the offline engine, which copies the sentence that fits best. "a:1"
is the first turn of the session "a".
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import QuestionsExport, Store, UserError, UserMemory, build, export_questions
from mempiler.memory.incoming_items import utc_now


def memory_of(store: Store, user: str = "ada", tenant: str = "default") -> UserMemory:
    """Return the memory of a user, answered by turn RAG, with feedback allowed."""
    return build("turn-rag").memory(store, user, tenant, lm="offline", feedback=True)


def say(memory: UserMemory, text: str, session: str) -> None:
    """Store a session of one turn, and write it into the memory.

    The id of the turn is that of the session and 1, e.g. "a:1".
    """
    memory.add([{"role": "user", "name": "Ada", "content": text}], id=session)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def texts_of_past(row: dict[str, Any]) -> list[str]:
    """Return what was said before the question of a row."""
    return [turn["text"] for item in row["history"]["items"] for turn in item["turns"]]


@pytest.fixture
def ada(store: Store) -> UserMemory:
    """The empty memory of the user "ada"."""
    return memory_of(store)


@pytest.fixture
def export_rows(store: Store, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """A function that exports the feedback of the store, and returns the rows."""

    def export(**options: Any) -> list[dict[str, Any]]:
        path = tmp_path / "questions.jsonl"
        export_questions(store, path, **options)
        return read_rows(path)

    return export


@pytest.fixture
def after_a_minute(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after whose call feedback is dated a minute later."""

    def set_clock() -> None:
        later = utc_now() + timedelta(minutes=1)
        monkeypatch.setattr("mempiler.serving.memories.user_answers.utc_now", lambda: later)

    return set_clock


# Rows.


def test_an_answer_that_the_user_called_right_is_exported_as_the_gold_answer(
    ada: UserMemory, export_rows: Any
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    answer = ada.ask("Where did Ada move?")
    assert answer.answer == "I moved to Lisbon."
    ada.feedback(answer.answer_id, right=True, useful_entries=["a:1"])

    (row,) = export_rows()

    assert row["id"] == answer.answer_id
    assert row["user"] == "ada"
    assert row["question"] == "Where did Ada move?"
    assert row["answer"] == "I moved to Lisbon."
    assert row["evidence"] == ["a:1"]
    assert row["category"] == "right"
    assert texts_of_past(row) == ["I moved to Lisbon."]


def test_a_correction_by_the_user_is_exported_as_the_gold_answer(
    ada: UserMemory, export_rows: Any
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, correction=" Lisbon ")

    (row,) = export_rows()

    assert row["answer"] == "Lisbon"
    assert row["category"] == "corrected"
    assert row["evidence"] == []


@pytest.mark.parametrize("feedback", [{"right": False}, {"useful_entries": ["a:1"]}])
def test_feedback_that_tells_no_right_answer_is_counted_but_not_exported(
    ada: UserMemory, store: Store, tmp_path: Path, feedback: dict[str, Any]
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, **feedback)

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export == QuestionsExport(tmp_path / "questions.jsonl", without_answer=1)
    assert read_rows(export.path) == []


def test_a_question_before_which_nothing_was_said_is_counted_but_not_exported(
    store: Store, tmp_path: Path
) -> None:
    memory = memory_of(store)
    (question,) = memory.say("chat", [{"role": "user", "content": "Who am I?"}])
    answer_id = memory.ask("Who am I?", asked=[question.id]).answer_id
    memory.feedback(answer_id, correction="Ada")

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export.questions == 0
    assert export.without_history == 1


def test_exported_questions_can_be_evaluated_as_a_benchmark(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, right=True, useful_entries=["a:1"])
    path = export_questions(store, tmp_path / "questions.jsonl").path

    result = mempiler.evaluate("turn-rag", benchmark="jsonl", data=path, lm="offline")

    (row,) = result.rows
    assert row.score == 1.0
    assert row.recall["shown"] == 1.0


# The past as it was when the question was asked.


def test_what_was_said_after_a_question_is_not_exported_with_it(
    ada: UserMemory, export_rows: Any
) -> None:
    """The right answer was "Lisbon" when the user asked, and "Porto" later."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where does Ada live?").answer_id
    say(ada, "I moved to Porto.", session="b")
    ada.feedback(answer_id, correction="Lisbon")

    (row,) = export_rows()

    assert texts_of_past(row) == ["I moved to Lisbon."]


def test_questions_are_exported_in_the_order_in_which_they_were_asked(
    ada: UserMemory, export_rows: Any
) -> None:
    """The order in which the user gave feedback plays no part."""
    say(ada, "I moved to Lisbon.", session="a")
    first_answer_id = ada.ask("Where does Ada live?").answer_id
    second_answer_id = ada.ask("Where does Ada live?").answer_id
    ada.feedback(second_answer_id, right=True)
    ada.feedback(first_answer_id, right=True)

    rows = export_rows()

    assert [row["id"] for row in rows] == [first_answer_id, second_answer_id]


@pytest.mark.parametrize("ends", [False, True], ids=["still open", "ended later"])
def test_a_question_in_an_open_session_is_exported_with_the_turns_before_it(
    ada: UserMemory, export_rows: Any, ends: bool
) -> None:
    """Neither the question itself nor the answer to it is part of what was said before."""
    say(ada, "I moved to Lisbon.", session="a")
    ada.say("chat", [{"role": "user", "content": "I like tea."}])
    (question,) = ada.say("chat", [{"role": "user", "content": "What do I like?"}])
    answer_id = ada.ask("What do I like?", asked=[question.id]).answer_id
    ada.say("chat", [{"role": "assistant", "content": "Tea."}])
    if ends:
        ada.end("chat")
    ada.feedback(answer_id, right=True)

    (row,) = export_rows()

    assert texts_of_past(row) == ["I moved to Lisbon.", "I like tea."]


def test_evidence_that_was_said_after_the_question_is_left_out(
    ada: UserMemory, export_rows: Any
) -> None:
    """The user names two useful entries, and "b:1" was not yet there when the question came."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where does Ada live?").answer_id
    say(ada, "I moved to Porto.", session="b")
    ada.feedback(answer_id, correction="Porto", useful_entries=["b:1", "a:1"])

    (row,) = export_rows()

    assert row["evidence"] == ["a:1"]


# What was forgotten, deleted or reworded.


def test_questions_of_a_forgotten_user_are_not_exported(
    store: Store, ada: UserMemory, export_rows: Any
) -> None:
    bob = memory_of(store, "bob")
    for memory in (ada, bob):
        say(memory, "I moved to Lisbon.", session="a")
        memory.feedback(memory.ask("Where?").answer_id, right=True)

    bob.forget()

    assert [row["user"] for row in export_rows()] == ["ada"]


def test_questions_of_a_user_who_is_forgotten_during_the_export_are_not_exported(
    store: Store, ada: UserMemory, export_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is forgotten right after the export has read her turns from the store."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where?").answer_id
    ada.feedback(answer_id, right=True)
    dump = store.transfer.dump

    def dump_and_forget(owner: Any) -> Any:
        result = dump(owner)
        ada.forget()
        return result

    monkeypatch.setattr(store.transfer, "dump", dump_and_forget)

    assert export_rows() == []


def test_a_turn_that_was_deleted_before_the_question_is_not_exported_with_it(
    ada: UserMemory, export_rows: Any
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    say(ada, "I moved to Porto.", session="b")
    ada.entries.delete("b:1")
    answer_id = ada.ask("Where?").answer_id
    ada.feedback(answer_id, correction="Lisbon")

    (row,) = export_rows()

    assert texts_of_past(row) == ["I moved to Lisbon."]


def test_an_answer_is_not_exported_after_a_turn_that_it_rests_on_was_deleted(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    """The answer repeats the turn that the user wanted to be gone. There is another turn left."""
    say(ada, "I moved to Lisbon.", session="a")
    say(ada, "I like tea.", session="b")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, right=True)
    ada.entries.delete("a:1")

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export.questions == 0
    assert export.changed == 1


def test_a_correction_is_not_exported_after_a_turn_that_it_may_repeat_was_deleted(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    """The user wanted "Lisbon" to be gone, and the correction repeats it. Another turn is left."""
    say(ada, "I moved to Lisbon.", session="a")
    say(ada, "I like tea.", session="b")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, correction="Lisbon")
    ada.entries.delete("a:1")

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export.questions == 0
    assert export.changed == 1
    assert "Lisbon" not in export.path.read_text(encoding="utf-8")


def test_a_correction_is_not_exported_after_a_turn_that_it_may_repeat_was_reworded(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    """The user has replaced "Lisbon" by "Porto", and the correction repeats "Lisbon"."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, correction="Lisbon")
    ada.entries.update("a:1", "I moved to Porto.")

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export.questions == 0
    assert export.changed == 1
    assert "Lisbon" not in export.path.read_text(encoding="utf-8")


def test_a_correction_is_not_exported_after_a_turn_that_the_user_called_useful_was_deleted(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    """The answer could not rest on the turn "b:1", which came later. The correction can."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    say(ada, "I moved to Porto.", session="b")
    ada.feedback(answer_id, correction="Porto", useful_entries=["b:1"])
    ada.entries.delete("b:1")

    export = export_questions(store, tmp_path / "questions.jsonl")

    assert export.questions == 0
    assert export.changed == 1


def test_a_question_is_exported_again_after_the_deletion_was_undone(
    ada: UserMemory, export_rows: Any
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.feedback(answer_id, correction="Lisbon")
    ada.entries.delete("a:1")
    ada.entries.undo("a:1")

    (row,) = export_rows()

    assert row["answer"] == "Lisbon"


def test_a_correction_of_a_turn_and_of_the_answer_are_exported_together(
    ada: UserMemory, export_rows: Any, after_a_minute: Callable[[], None]
) -> None:
    """The feedback came after the turn was reworded, so it fits the new words."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.entries.update("a:1", "I moved to Porto.")
    after_a_minute()
    ada.feedback(answer_id, correction="Porto")

    (row,) = export_rows()

    assert texts_of_past(row) == ["I moved to Porto."]
    assert row["answer"] == "Porto"


# Tenants.


def give_feedback_in_tenant(store: Store, tenant: str) -> None:
    """Let the user "ada" of a tenant say where she works, ask a question, and give feedback."""
    memory = memory_of(store, user="ada", tenant=tenant)
    say(memory, f"I work for {tenant}.", session="a")
    memory.feedback(memory.ask("Where?").answer_id, right=True)


def test_two_tenants_users_with_the_same_name_are_exported_as_two_users(
    store: Store, export_rows: Any
) -> None:
    give_feedback_in_tenant(store, "acme")
    give_feedback_in_tenant(store, "globex")

    rows = export_rows()

    assert [row["user"] for row in rows] == ["acme/ada", "globex/ada"]


def test_the_export_of_one_tenant_has_nothing_of_another(store: Store, export_rows: Any) -> None:
    """Both tenants have a user "ada", who works for the tenant."""
    give_feedback_in_tenant(store, "acme")
    give_feedback_in_tenant(store, "globex")

    (row,) = export_rows(tenant="acme")

    assert row["user"] == "ada"
    assert texts_of_past(row) == ["I work for acme."]


# Files.


def test_an_export_overwrites_an_earlier_export(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "questions.jsonl"
    export_questions(store, path)
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where?").answer_id
    ada.feedback(answer_id, right=True)

    export_questions(store, path)

    assert len(read_rows(path)) == 1


def test_only_the_owner_of_an_exported_file_may_read_it(store: Store, tmp_path: Path) -> None:
    path = export_questions(store, tmp_path / "questions.jsonl").path

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_store_that_is_not_there_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no store here"):
        export_questions(tmp_path / "typo.sqlite", tmp_path / "questions.jsonl")

    assert not (tmp_path / "typo.sqlite").exists()


# The review page.


def data_of(page: str) -> dict[str, Any]:
    """Return the JSON that the script of a page reads."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])


def test_with_a_review_page_the_questions_are_written_into_the_page_and_not_yet_into_the_file(
    ada: UserMemory, store: Store, tmp_path: Path
) -> None:
    """A person looks at the questions in a browser, and downloads the file from the page."""
    say(ada, "I moved to Lisbon.", session="a")
    answer = ada.ask("Where?")
    ada.feedback(answer.answer_id, correction="Porto")
    path = tmp_path / "questions.jsonl"

    export = export_questions(store, path, review=tmp_path / "review.html")

    assert export.questions == 1
    assert not path.exists()
    assert export.review is not None
    data = data_of(export.review.read_text(encoding="utf-8"))
    assert data["file"] == "questions.jsonl"
    (question,) = data["questions"]
    assert question["given"] == answer.answer
    assert question["row"]["answer"] == "Porto"


def test_a_script_in_a_turn_or_in_the_file_name_is_only_data_of_a_review_page(
    store: Store, ada: UserMemory, tmp_path: Path
) -> None:
    say(ada, "I moved to Lisbon.", session="a")
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    say(ada, hostile, session="script")
    ada.feedback(ada.ask(hostile).answer_id, correction=hostile)

    export_questions(store, tmp_path / "<script.jsonl", review=tmp_path / "r.html")

    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    (question,) = data_of(page)["questions"]
    assert question["row"]["question"] == hostile


def test_a_review_page_does_not_show_an_answer_whose_turn_was_reworded_since(
    ada: UserMemory, store: Store, tmp_path: Path, after_a_minute: Callable[[], None]
) -> None:
    """The answer was "I moved to Lisbon.", and the user has replaced these words."""
    say(ada, "I moved to Lisbon.", session="a")
    answer_id = ada.ask("Where did Ada move?").answer_id
    ada.entries.update("a:1", "I moved to Porto.")
    after_a_minute()
    ada.feedback(answer_id, correction="Porto")

    export = export_questions(store, tmp_path / "q.jsonl", review=tmp_path / "review.html")

    assert export.questions == 1
    assert "Lisbon" not in (tmp_path / "review.html").read_text(encoding="utf-8")
