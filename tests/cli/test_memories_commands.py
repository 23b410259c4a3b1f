"""Stored memories from the shell: add, ask, edit, list, show, move, forget and rebuild.

`memories add` stores a chat of a user, whose sessions are then queued. `memories rebuild` lets a
program write them into the user's memory. An entry is one text in that memory, here a turn.
"""

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Store, UserError
from mempiler.cli import main
from mempiler.engines.lm import language_model
from mempiler.memory.store.owner import Owner

from ..command_line import RunCommand, json_of, output_of
from ..conftest import read_only

CHAT = [
    # The session chat-1, with the turns chat-1:1 and chat-1:2.
    [
        {
            "role": "user",
            "name": "Ada",
            "content": "I moved to Lisbon last week.",
            "time": "2024-03-05",
        },
        {"role": "assistant", "content": "How do you like it so far?"},
    ],
    # The session chat-2, with the turn chat-2:1.
    [
        {
            "role": "user",
            "name": "Ada",
            "content": "My sister Grace visits me in June.",
            "time": "2024-04-02",
        },
    ],
]
"""A chat of Ada's in the file chat.json: she moved to Lisbon, and her sister Grace visits her."""
ADA = ("--user", "ada")


def listed_users(run_command: RunCommand, *options: str) -> list[dict[str, Any]]:
    """Return the users that `memories list` prints."""
    return json_of(run_command, "memories", "list", *options)


# --- one user ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two saved programs, a chat, and a results folder `filled`.

    In the results folder is a store, in which `program` has remembered the chat as Ada's.
    """
    folder = tmp_path_factory.mktemp("template")
    mempiler.save(mempiler.build("turn-rag"), folder / "program")
    mempiler.save(mempiler.build("session-rag"), folder / "other")
    (folder / "chat.json").write_text(json.dumps(CHAT))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MEMPILER_HOME", str(folder / "filled"))
        main(["memories", "add", "chat.json", "--user", "ada"])
        main(["memories", "rebuild", "program"])
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a copy of the template, with an empty results folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def run_command(folder: Path, cli: RunCommand) -> RunCommand:
    """Runs commands in the folder, with an empty store."""
    return cli


@pytest.fixture
def run_with_chat(folder: Path, cli: RunCommand) -> RunCommand:
    """Runs commands in the folder, with a store that remembers `CHAT` as Ada's."""
    (folder / "filled").rename(folder / "home")
    return cli


def test_a_chat_is_added_once(run_command: RunCommand) -> None:
    """The file chat.json has two sessions."""
    first_note = output_of(run_command, "memories", "add", "chat.json", *ADA)
    second_note = output_of(run_command, "memories", "add", "chat.json", *ADA)

    assert first_note == "2 new, 0 known\n"
    assert second_note == "0 new, 2 known\n"


def test_a_history_in_the_form_of_mempiler_is_added_once(
    run_command: RunCommand, folder: Path, make_history: Callable[..., Any]
) -> None:
    (folder / "history.json").write_text(make_history(sessions=2).model_dump_json())

    first_note = output_of(run_command, "memories", "add", "history.json", *ADA)
    second_note = output_of(run_command, "memories", "add", "history.json", *ADA)

    assert first_note == "2 new, 0 known\n"
    assert second_note == "0 new, 2 known\n"


def test_a_user_who_was_forgotten_before_a_rebuild_is_neither_written_nor_listed(
    run_command: RunCommand,
) -> None:
    """Bob and Ada have added the same chat, with two sessions. Bob is forgotten."""
    output_of(run_command, "memories", "add", "chat.json", "--user", "bob")
    output_of(run_command, "memories", "add", "chat.json", "--user", "ada")
    output_of(run_command, "memories", "forget", "--user", "bob")

    note = output_of(run_command, "memories", "rebuild", "program")

    assert note == "1 users, 2 sessions, 0 failures\n"
    assert [user["user"] for user in listed_users(run_command)] == ["ada"]


def test_list_counts_the_sessions_of_a_user(run_command: RunCommand) -> None:
    """Two sessions are added. They are queued until a rebuild has written them."""
    output_of(run_command, "memories", "add", "chat.json", *ADA)
    (before,) = listed_users(run_command)
    output_of(run_command, "memories", "rebuild", "program")
    (after,) = listed_users(run_command)

    assert before["sessions"] == 2
    assert before["queued"] == 2
    assert after["sessions"] == 2
    assert after["queued"] == 0


def test_ask_answers_from_the_store_with_sources(run_with_chat: RunCommand) -> None:
    """Ada said in her second session, of 2 April: "My sister Grace visits me in June."."""
    result = json_of(run_with_chat, "ask", "program", "When does Grace visit?", *ADA)

    assert result["answer"] == "My sister Grace visits me in June."
    first_reason = result["why"][0]
    assert first_reason["sources"][0]["line"].startswith(
        "[chat-2:1] (2 April 2024, Tuesday) Ada: My sister"
    )


HOSTILE_TEXT = "red [bold]x[/bold] \x1b[31m bell \x07 title \x9b2J \x7f end \u202eturned\u2066"
"""It would turn letters red, ring the bell, clear the screen, and turn the text around.

`[bold]` is markup of the library that prints tables.
"""


@pytest.fixture
def run_with_hostile_text(run_command: RunCommand, folder: Path) -> RunCommand:
    """Runs commands in the folder, with a store that remembers `HOSTILE_TEXT` as Ada's."""
    message = {"role": "user", "name": "Ada", "content": HOSTILE_TEXT}
    (folder / "hostile.json").write_text(json.dumps([message]))
    output_of(run_command, "memories", "add", "hostile.json", *ADA)
    output_of(run_command, "memories", "rebuild", "program")
    return run_command


def control_characters_in(text: str) -> list[str]:
    """Return the characters of a text, but for line breaks, that a terminal does not print."""
    return [character for character in text if character != "\n" and not character.isprintable()]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "command",
    [["memories", "show", *ADA], ["ask", "program", "red bell title?", *ADA]],
    ids=["show", "ask"],
)
def test_texts_of_users_cannot_send_control_characters_to_the_terminal(
    run_with_hostile_text: RunCommand, command: list[str], options: list[str]
) -> None:
    """Ada's text would turn the terminal red, ring its bell, and clear it."""
    output = output_of(run_with_hostile_text, *command, *options)

    assert control_characters_in(output) == []
    # Markup of the library that prints tables is printed as it is.
    assert "[bold]x[/bold] " in output


def test_an_export_shows_control_characters_as_escapes(
    run_with_hostile_text: RunCommand,
) -> None:
    """Ada's text would turn a terminal red, ring its bell, and clear it."""
    export = output_of(run_with_hostile_text, "memories", "export", "-")

    assert control_characters_in(export) == []


def test_a_text_with_control_characters_is_the_same_after_export_and_import(
    run_with_hostile_text: RunCommand,
) -> None:
    other_store = ("--store", "other.sqlite")
    run_with_hostile_text("memories", "export", "export.jsonl")
    output_of(run_with_hostile_text, "memories", "import", "export.jsonl", *other_store)

    original = output_of(run_with_hostile_text, "memories", "show", *ADA)
    imported = output_of(run_with_hostile_text, "memories", "show", *ADA, *other_store)

    assert imported == original


def test_an_export_moves_to_another_store(run_with_chat: RunCommand) -> None:
    """The store remembers Ada alone. `updated` is the time of the last write."""
    other_store = ("--store", "new/other.sqlite")

    _, _, export_note = run_with_chat("memories", "export", "all.jsonl")
    import_note = output_of(run_with_chat, "memories", "import", "all.jsonl", *other_store)

    assert export_note == "1 users\n"
    assert import_note == "1 users\n"
    (original,) = listed_users(run_with_chat)
    (imported,) = listed_users(run_with_chat, *other_store)
    del original["updated"]
    del imported["updated"]
    assert imported == original


def test_show_prints_sessions_and_turns(run_with_chat: RunCommand) -> None:
    """The chat has two sessions, with two turns and one turn."""
    result = json_of(run_with_chat, "memories", "show", *ADA)

    states = [session["state"] for session in result["sessions"]]
    assert states == ["remembered", "remembered"]
    assert len(result["memory"]["turns"]) == 3


def test_a_forgotten_session_is_gone(run_with_chat: RunCommand) -> None:
    """Session chat-1, with two turns, is about Lisbon, and chat-2 about Grace.

    chat-2 is queued anew, for a memory without the forgotten session.
    """
    note = output_of(run_with_chat, "memories", "forget", *ADA, "--session", "chat-1")
    output_of(run_with_chat, "memories", "rebuild", "program")

    assert note == "1 forgotten, 1 sessions, 2 turns, 1 queued anew\n"
    shown = output_of(run_with_chat, "memories", "show", *ADA)
    assert "Lisbon" not in shown
    assert "Grace" in shown


# --- entries ----------------------------------------------------------------------------------


def search(run_command: RunCommand, *words: str) -> str:
    """Search the memory of Ada; return what is printed."""
    return output_of(run_command, "memories", "search", "program", *words, *ADA)


def test_search_prints_the_entries_that_are_found(run_with_chat: RunCommand) -> None:
    """Ada said in her second session, of 2 April: "My sister Grace visits me in June."."""
    output = search(run_with_chat, "When does Grace visit?", "--k", "1")

    assert output.endswith(
        "  [chat-2:1] (2 April 2024, Tuesday) Ada: My sister Grace visits me in June.\n"
    )


def test_search_without_a_query_lists_all_entries(run_with_chat: RunCommand) -> None:
    """With this method an entry is a turn, and the chat has three turns."""
    first, second, third = search(run_with_chat).splitlines()

    assert first.startswith("[chat-1:1] ")
    assert second.startswith("[chat-1:2] ")
    assert third == "[chat-2:1] (2024-04-02 00:00) Ada: My sister Grace visits me in June."


def test_search_without_a_query_lists_the_entries_of_a_time(run_with_chat: RunCommand) -> None:
    """The session chat-1 was in March, and chat-2 in April."""
    result = json.loads(search(run_with_chat, "--since", "2024-04-01", "--json"))

    assert [entry["id"] for entry in result["entries"]] == ["chat-2:1"]


def test_search_lists_no_entry_of_sessions_without_the_metadata_that_is_asked_for(
    run_with_chat: RunCommand,
) -> None:
    """The sessions of the chat have no metadata."""
    assert search(run_with_chat, "--where", '{"channel": "phone"}') == ""


EDIT_LISBON = ("memories", "edit", "program", "chat-1:1", *ADA)
"""The beginning of a command that edits the entry "I moved to Lisbon last week."."""


def test_an_updated_entry_is_found_by_its_new_text(run_with_chat: RunCommand) -> None:
    """The text was "I moved to Lisbon last week."."""
    note = output_of(run_with_chat, *EDIT_LISBON, "--text", "I moved to Porto.")

    assert note == "update of chat-1:1\n"
    assert "Ada: I moved to Porto." in search(run_with_chat, "Porto")


def test_a_deleted_entry_is_found_by_neither_of_its_texts(run_with_chat: RunCommand) -> None:
    """The text was "I moved to Lisbon last week." at first, and then "I moved to Porto."."""
    output_of(run_with_chat, *EDIT_LISBON, "--text", "I moved to Porto.")

    change = json_of(run_with_chat, *EDIT_LISBON, "--delete")

    assert change["what"] == "delete"
    assert change["new"] is None
    assert search(run_with_chat, "Lisbon") == ""
    assert search(run_with_chat, "Porto") == ""


SHOW = ("memories", "show", *ADA)


@pytest.fixture
def run_with_edits(run_with_chat: RunCommand) -> RunCommand:
    """Runs commands with Ada's memory, in which two entries are edited.

    "I moved to Lisbon last week." is deleted, and "My sister Grace visits me in June." has become
    "My sister visits me.".
    """
    output_of(run_with_chat, *EDIT_LISBON, "--delete", "--by", "desk")
    edit_grace = ("memories", "edit", "program", "chat-2:1", *ADA)
    output_of(run_with_chat, *edit_grace, "--text", "My sister visits me.")
    return run_with_chat


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_show_prints_no_words_that_were_edited_away(
    run_with_edits: RunCommand, options: list[str]
) -> None:
    """ "I moved to Lisbon last week." is deleted.

    "My sister Grace visits me in June." has become "My sister visits me.".
    """
    output = output_of(run_with_edits, *SHOW, "program", *options)

    assert "Lisbon" not in output
    assert "Grace" not in output
    assert "My sister visits me." in output


def test_show_prints_which_entry_was_deleted_and_by_whom(run_with_edits: RunCommand) -> None:
    """The note ends with the time of the deletion."""
    output = output_of(run_with_edits, *SHOW, "program")

    assert "(deleted)" in output
    assert "delete of chat-1:1 (turn), 20" in output
    assert "by desk" in output


def test_show_needs_the_program_whose_entries_were_edited(run_with_edits: RunCommand) -> None:
    """Without the program the command could not hide the words that were edited."""
    code, out, err = run_with_edits(*SHOW)

    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "give PROGRAM" in err


def test_show_prints_all_words_after_the_edits_are_undone(run_with_edits: RunCommand) -> None:
    """Ada's sentence about Lisbon was deleted, and that about Grace was updated."""
    for entry in ("chat-1:1", "chat-2:1"):
        output_of(run_with_edits, "memories", "edit", "program", entry, "--undo", *ADA)

    output = output_of(run_with_edits, *SHOW)

    assert "Lisbon" in output
    assert "Grace" in output


# --- mistakes ---------------------------------------------------------------------------------


def refusal(run_command: RunCommand, command: str) -> str:
    """Run a command of `mempiler memories` that is refused; return the one line."""
    code, _, err = run_command("memories", *shlex.split(command))

    assert code == 2
    assert err.startswith("mempiler: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("list --store none.sqlite", "none.sqlite: no memories here"),
        ("list --store mysql://a/b", "mysql is not supported"),
        ("import chat.json", "chat.json: line 1"),
        ("import none.jsonl", "'none.jsonl': No such file or directory"),
        ("export no/folder/x.jsonl", "cannot be written"),
        ("edit none chat-1:1 --delete --user ada", "there is no such folder"),
    ],
)
def test_a_wrong_store_or_file_is_refused(
    run_with_chat: RunCommand, command: str, message: str
) -> None:
    assert message in refusal(run_with_chat, command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show --user bob", "no user 'bob'"),
        ("show --user ada --tenant acme", "no user 'ada'"),
        ("forget --user bob", "no user 'bob'"),
        ("rebuild program --user bob", "no user 'bob'"),
        ("add chat.json --user ''", "user '' must be a text"),
        ("search program", "Missing option '--user'"),
        ("forget --user ada --session x", "no session 'x' of user 'ada'"),
        ("edit program x --undo --user ada", "no entry 'x' of user 'ada', or nothing to undo"),
    ],
)
def test_a_user_session_or_entry_that_is_not_there_is_refused(
    run_with_chat: RunCommand, command: str, message: str
) -> None:
    """The store has Ada alone, who is of no tenant."""
    assert message in refusal(run_with_chat, command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("search program x --user ada --k 0", "k = 0: give a finite number, 1 to 1000"),
        ("search program --user ada --where '{'", "where: Invalid JSON"),
        ("search program --user ada --where '{\"a b\": 1}'", "the name 'a b'"),
        ("search program --user ada --since soon", "since: "),
        ("edit program chat-1:1 --text ' ' --user ada", "a text that is not empty"),
        (
            "rebuild program --failed --force",
            "--queued, --failed and --force each say what is written; give one of them",
        ),
    ],
)
def test_a_wrong_option_of_memories_is_refused(
    run_with_chat: RunCommand, command: str, message: str
) -> None:
    assert message in refusal(run_with_chat, command)


def test_an_entry_is_not_edited_by_a_program_that_has_not_written_the_memory(
    run_with_chat: RunCommand,
) -> None:
    """`program` has written Ada's memory, and `other` has not."""
    message = refusal(run_with_chat, "edit other chat-1:1 --delete --user ada")

    assert "run: mempiler memories rebuild" in message


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--user", "bob"], id="an unknown user"),
        pytest.param(["--user", "ada", "--history", "chat.json"], id="a user and a history"),
    ],
)
def test_ask_refuses_wrong_users(run_with_chat: RunCommand, options: list[str]) -> None:
    """A question is asked either of a stored user or of a history in a file."""
    code, _, err = run_with_chat("ask", "program", "Where?", *options)

    assert code == 2
    assert err.startswith("mempiler: ")


def test_a_store_that_is_no_database_ends_with_code_four(run_with_chat: RunCommand) -> None:
    """chat.json is a file of messages."""
    code, _, err = run_with_chat("memories", "list", "--store", "chat.json")

    assert code == 4
    assert "not a database" in err


def test_an_import_of_a_user_who_is_there_already_is_refused(run_with_chat: RunCommand) -> None:
    """The export has Ada, and so does the store."""
    run_with_chat("memories", "export", "all.jsonl")

    code, _, err = run_with_chat("memories", "import", "all.jsonl")

    assert code == 2
    assert "give --replace" in err
    assert [user["user"] for user in listed_users(run_with_chat)] == ["ada"]


def test_an_import_replaces_users_if_the_user_says_so(run_with_chat: RunCommand) -> None:
    """The export has Ada, and so does the store."""
    run_with_chat("memories", "export", "all.jsonl")

    code, _, _ = run_with_chat("memories", "import", "all.jsonl", "--replace")

    assert code == 0
    assert [user["user"] for user in listed_users(run_with_chat)] == ["ada"]


# --- several users ----------------------------------------------------------------------------

USERS = [
    Owner("ada", "acme"),
    Owner("bob", "acme"),
    Owner("ada"),
    Owner("eve"),
]


@pytest.fixture(scope="module")
def folder_of_four_users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and the programs `program` and `other`.

    `program` has remembered two sessions of each of `USERS`, such as "I am eve of ..., 0.".
    """
    folder = tmp_path_factory.mktemp("four-users")
    program = mempiler.build("recursive-summary")
    mempiler.save(program, folder / "program")
    mempiler.save(mempiler.build("recursive-summary", max_words=50), folder / "other")
    with Store(folder / "memories.sqlite") as store:
        for owner in USERS:
            memory = program.memory(store, owner.user, owner.tenant, language_model("offline"))
            for number in range(2):
                text = f"I am {owner.user} of {owner.tenant}, {number}."
                memory.add([{"role": "user", "content": text, "time": "2024-03-05"}])
    return folder


@pytest.fixture
def run_with_four_users(
    folder_of_four_users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: RunCommand
) -> RunCommand:
    """Runs commands in a copy of the folder, with its store."""
    shutil.copytree(folder_of_four_users, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        return cli(*words, "--store", "memories.sqlite")

    return run


def test_rebuild_writes_only_the_users_of_a_tenant(run_with_four_users: RunCommand) -> None:
    """Of four users with two sessions each, two users are of the tenant acme.

    `other` has remembered nothing yet. After the tenant, the other two users are left.
    """
    note = output_of(run_with_four_users, "memories", "rebuild", "other", "--tenant", "acme")
    note_of_rest = output_of(run_with_four_users, "memories", "rebuild", "other")

    assert note == "2 users, 4 sessions, 0 failures\n"
    assert note_of_rest == "4 users, 4 sessions, 0 failures\n"


def test_rebuild_writes_only_the_user_who_is_named(run_with_four_users: RunCommand) -> None:
    """There are four users with two sessions each, and `other` has remembered nothing yet."""
    user = ["--user", "ada", "--tenant", "acme"]

    note = output_of(run_with_four_users, "memories", "rebuild", "other", *user)

    assert note == "1 users, 2 sessions, 0 failures\n"


class Killed(BaseException):
    """A kill: nothing catches it, and nothing runs after it but what releases claims."""


class CountedWrites:
    """Stands in for the function that writes one session: counts its calls, and kills on the way.

    Args:
        write_item: The function.
    """

    def __init__(self, write_item: Callable[..., Any]) -> None:
        self._write_item = write_item
        self.texts: Counter[str] = Counter()
        """How often the session with this text was written."""
        self.kill_after: int | None = None
        """The number of writes, of all commands together, after which the next one kills."""

    def __call__(self, writer: Any, memory: Any, item: Any, extraction: Any) -> Any:
        if self.texts.total() == self.kill_after:
            raise Killed
        result = self._write_item(writer, memory, item, extraction)
        self.texts[item.turns[0].text] += 1
        return result


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedWrites]:
    """The writes of sessions during the test, one after another.

    A thread would outlive the command that is killed, and go on to write.
    """
    from mempiler.programs.threads import in_order
    from mempiler.serving.memories import queue_writer

    counted_writes = CountedWrites(queue_writer.write_item)
    monkeypatch.setattr(queue_writer, "write_item", counted_writes)
    with in_order():
        yield counted_writes


def test_a_rebuild_that_was_killed_twice_goes_on_and_writes_no_session_twice(
    run_with_four_users: RunCommand, writes: CountedWrites
) -> None:
    """There are eight sessions. With --force all are written anew; to go on, it is left out."""
    writes.kill_after = 3
    with pytest.raises(Killed):
        run_with_four_users("memories", "rebuild", "program", "--force")

    writes.kill_after = 6
    with pytest.raises(Killed):
        run_with_four_users("memories", "rebuild", "program")

    writes.kill_after = None
    note = output_of(run_with_four_users, "memories", "rebuild", "program")

    assert note == "4 users, 2 sessions, 0 failures\n"
    assert len(writes.texts) == 8
    assert set(writes.texts.values()) == {1}


def test_a_killed_rebuild_by_another_program_goes_on_and_writes_no_session_twice(
    run_with_four_users: RunCommand, writes: CountedWrites
) -> None:
    """There are eight sessions. `program` has remembered them, and `other` has not."""
    writes.kill_after = 3
    with pytest.raises(Killed):
        run_with_four_users("memories", "rebuild", "other")

    writes.kill_after = None
    note = output_of(run_with_four_users, "memories", "rebuild", "other")

    assert note == "4 users, 5 sessions, 0 failures\n"
    assert len(writes.texts) == 8
    assert set(writes.texts.values()) == {1}


@pytest.fixture
def run_with_queued_sessions(run_with_four_users: RunCommand) -> RunCommand:
    """Runs commands with a store in which one session of each of the four users is queued.

    The memories belong to `program`. Two users are called ada, one of them of the tenant acme; bob
    is of acme, too, and eve is of none.
    """
    with Store("memories.sqlite") as store:
        for owner in USERS:
            memory = mempiler.build("turn-rag").memory(store, owner.user, owner.tenant)
            memory.add([{"role": "user", "content": "I like tea."}], remember=False)
    return run_with_four_users


def rebuild_queued(run_command: RunCommand, *words: str) -> str:
    """Let a program write queued sessions; return the note."""
    return output_of(run_command, "memories", "rebuild", *words, "--queued")


def test_queued_sessions_are_written_only_by_the_program_of_the_memory(
    run_with_queued_sessions: RunCommand,
) -> None:
    """The memories belong to `program`. Two users are of the tenant acme."""
    note = rebuild_queued(run_with_queued_sessions, "other", "--tenant", "acme")

    assert note == ("2 users, 0 sessions, 0 failures, 2 still queued, 2 users of another program\n")


@pytest.mark.parametrize(
    ("scope", "note"),
    [
        pytest.param([], "4 users, 4 sessions, 0 failures\n", id="everybody"),
        pytest.param(["--user", "ada"], "2 users, 2 sessions, 0 failures\n", id="both named ada"),
        pytest.param(["--tenant", "acme"], "2 users, 2 sessions, 0 failures\n", id="a tenant"),
    ],
)
def test_queued_sessions_are_written_of_the_users_who_are_named(
    run_with_queued_sessions: RunCommand, scope: list[str], note: str
) -> None:
    """One session of each user is queued."""
    assert rebuild_queued(run_with_queued_sessions, "program", *scope) == note


# --- forgetting -------------------------------------------------------------------------------


@pytest.fixture
def open_reading_transaction(run_with_four_users: RunCommand) -> Iterator[sqlite3.Connection]:
    """A connection to the store that has begun to read: it sees what is deleted meanwhile."""
    with closing(sqlite3.connect("memories.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        yield connection


@pytest.mark.usefixtures("open_reading_transaction")
def test_forget_ends_with_code_four_while_somebody_reads_the_store(
    run_with_four_users: RunCommand,
) -> None:
    """A reader of the SQLite file still sees the deleted rows, so their bytes must stay."""
    code, out, err = run_with_four_users("memories", "forget", "--user", "eve")

    assert code == 4
    assert out == "1 forgotten, 2 sessions, 2 turns, 0 queued anew\n"
    assert err.startswith("mempiler: user 'eve' is forgotten, and the bytes are not gone yet")
    assert err.count("\n") == 1


def test_forget_removes_the_bytes_when_it_is_repeated_after_the_reader_has_ended(
    run_with_four_users: RunCommand,
    open_reading_transaction: sqlite3.Connection,
    tmp_path: Path,
) -> None:
    """Eve's sessions have texts such as "I am eve of ..., 0."."""
    run_with_four_users("memories", "forget", "--user", "eve")
    assert files_with("I am eve", [tmp_path]) != []
    open_reading_transaction.execute("COMMIT")

    note = output_of(run_with_four_users, "memories", "forget", "--user", "eve")

    assert note == "1 forgotten, 0 sessions, 0 turns, 0 queued anew\n"
    assert files_with("I am eve", [tmp_path]) == []


def test_a_user_of_whom_nothing_is_left_cannot_be_forgotten(
    run_with_four_users: RunCommand,
) -> None:
    output_of(run_with_four_users, "memories", "forget", "--user", "eve")

    code, _, err = run_with_four_users("memories", "forget", "--user", "eve")

    assert code == UserError.exit_code
    assert "no user 'eve'" in err


def files_with(text: str, folders: list[Path]) -> list[str]:
    """Return the files below some folders that hold a text.

    `grep` reads them, which is another process: if this one closed a database that it has open, the
    locks on it would be gone.
    """
    existing_folders = [folder for folder in folders if folder.exists()]
    process = subprocess.run(
        ["grep", "-rlF", text, *existing_folders], capture_output=True, text=True
    )
    assert process.returncode in (0, 1), process.stderr
    assert process.stderr == ""
    return process.stdout.splitlines()


def test_no_file_has_the_text_of_a_forgotten_user(
    run_with_four_users: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pat tells a PIN, and asks about it. The file of the chat is the user's own, and stays.

    The files are the store, those of the results folder, and those of DSPy's cache.
    """
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    pin = "82716354"
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": f"My PIN is {pin}."}]))
    output_of(run_with_four_users, "memories", "add", "chat.json", "--user", "pat")
    output_of(run_with_four_users, "memories", "rebuild", "program", "--queued")
    output_of(run_with_four_users, "ask", "program", f"Is my PIN {pin}?", "--user", "pat")
    assert pin in output_of(run_with_four_users, "memories", "export", "-")

    output_of(run_with_four_users, "memories", "forget", "--user", "pat")

    assert pin not in output_of(run_with_four_users, "memories", "export", "-")
    folders = [tmp_path, Path(os.environ["DSPY_CACHEDIR"])]
    assert files_with(pin, folders) == [str(chat)]


# --- a folder that cannot be written ----------------------------------------------------------


@pytest.fixture
def folder_with_store(template: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a program and a store that remembers `CHAT` as Ada's.

    Any user of this machine can reach it.
    """
    shutil.copytree(template / "program", open_folder / "program")
    shutil.copy(template / "filled" / "memories.sqlite", open_folder)
    monkeypatch.chdir(open_folder)
    return open_folder


@pytest.mark.parametrize(
    ("command", "shown_text"),
    [
        ("search program 'Where does Ada live?' --user ada", "Lisbon"),
        ("list --json", "ada"),
        ("show --user ada", "Lisbon"),
        ("export -", "Lisbon"),
    ],
)
def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(
    folder_with_store: Path, cli: RunCommand, command: str, shown_text: str
) -> None:
    words = ["memories", *shlex.split(command), "--store", "memories.sqlite"]
    # This also imports what the command needs, before the process becomes another user.
    output = output_of(cli, *words)

    with read_only(folder_with_store):
        output_in_read_only_folder = output_of(cli, *words)

    assert output_in_read_only_folder == output
    assert shown_text in output


def test_nobody_is_forgotten_in_a_folder_that_cannot_be_written(
    folder_with_store: Path, cli: RunCommand
) -> None:
    store = ("--store", "memories.sqlite")
    # This imports what the command needs, before the process becomes another user.
    cli("memories", "list", *store)

    with read_only(folder_with_store):
        code, _, err = cli("memories", "forget", *ADA, *store)

    assert code == 4
    assert "readonly database" in err
