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

    There a store remembers the chat as Ada's.
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


def test_a_file_is_added_once(run_command: RunCommand) -> None:
    """The file chat.json has two sessions."""
    add = ("memories", "add", "chat.json", *ADA)

    first_note = output_of(run_command, *add)
    second_note = output_of(run_command, *add)

    assert first_note == "2 new, 0 known\n"
    assert second_note == "0 new, 2 known\n"


def test_a_history_of_mempiler_is_added_once(
    run_command: RunCommand, folder: Path, make_history: Callable[..., Any]
) -> None:
    """The history has two sessions."""
    (folder / "history.json").write_text(make_history(sessions=2).model_dump_json())
    add = ("memories", "add", "history.json", "--user", "own")

    first_note = output_of(run_command, *add)
    second_note = output_of(run_command, *add)

    assert first_note == "2 new, 0 known\n"
    assert second_note == "0 new, 2 known\n"


def test_a_forgotten_user_is_neither_written_nor_listed(
    run_command: RunCommand, folder: Path, make_history: Callable[..., Any]
) -> None:
    """The user "own" is added and forgotten, and then Ada is added, with two sessions."""
    (folder / "history.json").write_text(make_history(2).model_dump_json())
    output_of(run_command, "memories", "add", "history.json", "--user", "own")
    output_of(run_command, "memories", "forget", "--user", "own")
    output_of(run_command, "memories", "add", "chat.json", *ADA)

    written = output_of(run_command, "memories", "rebuild", "program")
    users = listed_users(run_command)

    assert written == "1 users, 2 sessions, 0 failures\n"
    assert len(users) == 1
    assert users[0]["user"] == "ada"
    assert users[0]["sessions"] == 2
    assert users[0]["queued"] == 0
    assert users[0]["position"] == 2


def test_ask_answers_from_the_store_with_sources(run_with_chat: RunCommand) -> None:
    """Ada said in her second session, of 2 April: "My sister Grace visits me in June."."""
    result = json_of(run_with_chat, "ask", "program", "When does Grace visit?", *ADA)

    assert result["answer"] == "My sister Grace visits me in June."
    first_source = result["why"][0]["sources"][0]
    expected_beginning = "[chat-2:1] (2 April 2024, Tuesday) Ada: My sister"
    assert first_source["line"].startswith(expected_beginning)


# Characters that turn letters red, ring the bell, clear the screen, or turn the text around.
HOSTILE_TEXT = "red [bold]x[/bold] \x1b[31m bell \x07 title \x9b2J \x7f end \u202eturned\u2066"


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
    [
        ["memories", "show", *ADA],
        ["ask", "program", "red bell title?", *ADA],
    ],
    ids=["show", "ask"],
)
def test_texts_of_users_cannot_send_control_characters_to_the_terminal(
    run_with_hostile_text: RunCommand, command: list[str], options: list[str]
) -> None:
    """`HOSTILE_TEXT` would turn the terminal red, ring its bell, and clear it."""
    out = output_of(run_with_hostile_text, *command, *options)

    assert control_characters_in(out) == []
    # Marks of the library that prints tables are printed as they are.
    assert "[bold]x[/bold] " in out


def test_an_export_keeps_control_characters_in_a_printable_form(
    run_with_hostile_text: RunCommand, folder: Path
) -> None:
    """The text is the same after an import, although the file shows such characters as escapes."""
    export = output_of(run_with_hostile_text, "memories", "export", "-")
    (folder / "export.jsonl").write_text(export)
    output_of(
        run_with_hostile_text, "memories", "import", "export.jsonl", "--store", "other.sqlite"
    )

    original = output_of(run_with_hostile_text, "memories", "show", *ADA)
    imported = output_of(run_with_hostile_text, "memories", "show", *ADA, "--store", "other.sqlite")

    assert control_characters_in(export) == []
    assert imported == original


def test_an_export_moves_to_another_store(run_with_chat: RunCommand, folder: Path) -> None:
    """The store remembers Ada alone. `updated` is the time of the last write."""
    other_store = ("--store", "new/other.sqlite")

    _, _, export_note = run_with_chat("memories", "export", "all.jsonl")
    import_note = output_of(run_with_chat, "memories", "import", "all.jsonl", *other_store)
    (original,) = listed_users(run_with_chat)
    (imported,) = listed_users(run_with_chat, *other_store)

    assert export_note == "1 users\n"
    assert import_note == "1 users\n"
    del original["updated"]
    del imported["updated"]
    assert imported == original
    assert not (folder / "all.jsonl.part").exists()


def test_an_export_to_standard_output_equals_an_export_to_a_file(
    run_with_chat: RunCommand, folder: Path
) -> None:
    """The name "-" stands for standard output."""
    run_with_chat("memories", "export", "all.jsonl")

    export = output_of(run_with_chat, "memories", "export", "-")

    assert export == (folder / "all.jsonl").read_text()


def test_show_prints_sessions_and_turns(run_with_chat: RunCommand) -> None:
    """The chat has two sessions, with two turns and one turn."""
    result = json_of(run_with_chat, "memories", "show", *ADA)

    states = [session["state"] for session in result["sessions"]]
    assert states == ["remembered", "remembered"]
    assert len(result["memory"]["turns"]) == 3


def test_a_forgotten_session_is_gone(run_with_chat: RunCommand) -> None:
    """Session chat-1 is about Lisbon, and chat-2 about Grace.

    chat-2 is queued anew, for a memory without the forgotten session.
    """
    forgotten = output_of(run_with_chat, "memories", "forget", *ADA, "--session", "chat-1")
    output_of(run_with_chat, "memories", "rebuild", "program")
    shown = output_of(run_with_chat, "memories", "show", *ADA)

    assert forgotten == "1 forgotten, 1 sessions, 2 turns, 1 queued anew\n"
    assert "Lisbon" not in shown
    assert "Grace" in shown


def test_a_forgotten_user_is_gone(run_with_chat: RunCommand) -> None:
    """The store remembers Ada alone."""
    output_of(run_with_chat, "memories", "forget", *ADA)

    assert listed_users(run_with_chat) == []


# --- entries ----------------------------------------------------------------------------------


def search(run_command: RunCommand, *words: str) -> str:
    """Search the memory of Ada; return what is printed."""
    return output_of(run_command, "memories", "search", "program", *words, *ADA)


def test_search_prints_the_entries_that_are_found(run_with_chat: RunCommand) -> None:
    """Ada said in her second session, of 2 April: "My sister Grace visits me in June."."""
    out = search(run_with_chat, "When does Grace visit?", "--k", "1")

    line = "[chat-2:1] (2 April 2024, Tuesday) Ada: My sister Grace visits me in June."
    assert out.endswith(f"  {line}\n")


def test_search_returns_the_entries_that_are_found_as_json(run_with_chat: RunCommand) -> None:
    """Ada speaks of Grace in the turn chat-2:1 alone."""
    result = json.loads(search(run_with_chat, "Grace", "--json"))

    assert [entry["id"] for entry in result["entries"]] == ["chat-2:1"]
    assert result["pending"] == []


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


def test_search_without_a_query_lists_no_entry_of_sessions_that_do_not_meet_a_condition(
    run_with_chat: RunCommand,
) -> None:
    """No session has the metadata that the condition asks for."""
    assert search(run_with_chat, "--where", '{"channel": "phone"}') == ""


EDIT_LISBON = ("memories", "edit", "program", "chat-1:1", *ADA)
"""The beginning of a command that edits the entry "I moved to Lisbon last week."."""


def test_an_updated_entry_is_found_by_its_new_text(run_with_chat: RunCommand) -> None:
    """The text was "I moved to Lisbon last week."."""
    note = output_of(run_with_chat, *EDIT_LISBON, "--text", "I moved to Porto.", "--by", "desk")

    assert note == "update of chat-1:1\n"
    assert "Ada: I moved to Porto." in search(run_with_chat, "Porto")


def test_a_deleted_entry_is_found_by_neither_of_its_texts(run_with_chat: RunCommand) -> None:
    """The text was "I moved to Lisbon last week." at first."""
    output_of(run_with_chat, *EDIT_LISBON, "--text", "I moved to Porto.")

    change = json_of(run_with_chat, *EDIT_LISBON, "--delete")

    assert change["what"] == "delete"
    assert change["new"] is None
    assert search(run_with_chat, "Lisbon") == ""
    assert search(run_with_chat, "Porto") == ""


def test_undo_brings_a_deleted_entry_back(run_with_chat: RunCommand) -> None:
    """The entry is updated and then deleted. Only the deletion is undone."""
    output_of(run_with_chat, *EDIT_LISBON, "--text", "I moved to Porto.")
    output_of(run_with_chat, *EDIT_LISBON, "--delete")

    note = output_of(run_with_chat, *EDIT_LISBON, "--undo")

    assert note == "undo of chat-1:1\n"
    assert "Porto" in search(run_with_chat, "Porto")


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
def test_show_prints_edits_without_the_words_that_they_replaced(
    run_with_edits: RunCommand, options: list[str]
) -> None:
    """ "I moved to Lisbon last week." is deleted.

    "My sister Grace visits me in June." has become "My sister visits me.".
    """
    out = output_of(run_with_edits, *SHOW, "program", *options)

    assert "Lisbon" not in out
    assert "Grace" not in out
    assert "(deleted)" in out
    assert "My sister visits me." in out
    assert "How do you like it" in out
    assert "delete of chat-1:1 (turn), 20" in out
    assert "by desk" in out


def test_show_needs_the_program_whose_entries_were_edited(run_with_edits: RunCommand) -> None:
    """Without the program the command could not hide the words that were edited."""
    code, out, err = run_with_edits(*SHOW)

    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "give PROGRAM" in err


def test_show_with_a_program_that_remembers_nothing_names_the_fix(
    run_with_edits: RunCommand,
) -> None:
    """`other` is another method, which has not written Ada's memory."""
    _, _, err = run_with_edits(*SHOW, "other")

    assert "run: mempiler memories rebuild" in err


def test_show_prints_all_words_after_the_edits_are_undone(run_with_edits: RunCommand) -> None:
    """Two entries are edited. The first one, "I moved to Lisbon last week.", is deleted."""
    for entry in ("chat-1:1", "chat-2:1"):
        output_of(run_with_edits, "memories", "edit", "program", entry, "--undo", *ADA)

    assert "Lisbon" in output_of(run_with_edits, *SHOW)


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("list --store none.sqlite", "none.sqlite: no memories here"),
        ("list --store mysql://a/b", "mysql is not supported"),
        ("show --user bob", "no user 'bob'"),
        ("show --user ada --tenant acme", "no user 'ada'"),
        ("forget --user bob", "no user 'bob'"),
        ("forget --user ada --session x", "no session 'x' of user 'ada'"),
        ("add chat.json --user ''", "user '' must be a text"),
        ("import chat.json", "chat.json: line 1"),
        ("import none.jsonl", "'none.jsonl': No such file or directory"),
        ("export no/folder/x.jsonl", "cannot be written"),
        ("rebuild program --user bob", "no user 'bob'"),
        (
            "rebuild program --failed --force",
            "--queued, --failed and --force each say what is written; give one of them",
        ),
        ("search program", "Missing option '--user'"),
        ("search program x --user ada --k 0", "k = 0: give a finite number, 1 to 1000"),
        ("search program --user ada --where '{'", "where: Invalid JSON"),
        ("search program --user ada --where '{\"a b\": 1}'", "the name 'a b'"),
        ("search program --user ada --since soon", "since: "),
        (
            "edit program x --undo --user ada",
            "no entry 'x' of user 'ada', or nothing to undo",
        ),
        ("edit program chat-1:1 --text ' ' --user ada", "a text that is not empty"),
        ("edit other chat-1:1 --delete --user ada", "run: mempiler memories rebuild"),
        ("edit none chat-1:1 --delete --user ada", "there is no such folder"),
    ],
)
def test_a_mistake_is_one_line(run_with_chat: RunCommand, command: str, expected: str) -> None:
    code, _, err = run_with_chat("memories", *shlex.split(command))

    assert code == 2
    assert err.startswith("mempiler: ")
    assert err.count("\n") == 1
    assert expected in err


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


def test_users_are_there_after_a_refused_import(run_with_chat: RunCommand) -> None:
    """An import refuses a user who is in the store already, here Ada."""
    run_with_chat("memories", "export", "all.jsonl")

    code, _, err = run_with_chat("memories", "import", "all.jsonl")

    assert code == 2
    assert "give --replace" in err
    assert len(listed_users(run_with_chat)) == 1
    rebuilt = output_of(run_with_chat, "memories", "rebuild", "program", "--failed")
    assert rebuilt == "1 users, 0 sessions, 0 failures\n"


def test_an_import_replaces_users_if_it_is_told_to(run_with_chat: RunCommand) -> None:
    """The export has Ada, who is in the store already."""
    run_with_chat("memories", "export", "all.jsonl")

    code, _, _ = run_with_chat("memories", "import", "all.jsonl", "--replace")

    assert code == 0
    assert len(listed_users(run_with_chat)) == 1


# --- several users ----------------------------------------------------------------------------

USERS = [
    Owner("ada", "acme"),
    Owner("bob", "acme"),
    Owner("ada"),
    Owner("eve"),
]


@pytest.fixture(scope="module")
def folder_of_four_users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two programs and a store.

    The first program has remembered two sessions of each of `USERS`.
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


@pytest.mark.parametrize(
    ("scope", "written_inside", "written_outside"),
    [
        (
            ["--tenant", "acme"],
            "2 users, 4 sessions, 0 failures\n",
            "4 users, 4 sessions, 0 failures\n",
        ),
        (
            ["--user", "ada", "--tenant", "acme"],
            "1 users, 2 sessions, 0 failures\n",
            "4 users, 6 sessions, 0 failures\n",
        ),
    ],
    ids=["a tenant", "a user"],
)
def test_rebuild_writes_only_the_users_in_its_scope(
    run_with_four_users: RunCommand, scope: list[str], written_inside: str, written_outside: str
) -> None:
    """There are four users with two sessions each.

    `other` first writes those in the scope, and then it writes only those that are left.
    """
    assert output_of(run_with_four_users, "memories", "rebuild", "other", *scope) == written_inside
    assert output_of(run_with_four_users, "memories", "rebuild", "other") == written_outside


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


@pytest.mark.parametrize(
    ("program", "kills", "rest"),
    [
        pytest.param("program", [3, 6], "2 sessions", id="the same program, killed twice"),
        pytest.param("other", [3], "5 sessions", id="another program, killed once"),
    ],
)
def test_a_killed_rebuild_goes_on_and_writes_no_session_twice(
    run_with_four_users: RunCommand,
    writes: CountedWrites,
    program: str,
    kills: list[int],
    rest: str,
) -> None:
    """There are eight sessions.

    With --force the rebuild begins anew. It is killed after three writes, and once more after six,
    so that two are left; or after three, so that five are left.
    """
    options = ["--force"]
    for number_of_writes in kills:
        writes.kill_after = number_of_writes
        with pytest.raises(Killed):
            run_with_four_users("memories", "rebuild", program, *options)
        # To go on, a user repeats the command without --force.
        options = []

    writes.kill_after = None
    written = output_of(run_with_four_users, "memories", "rebuild", program)

    assert written == f"4 users, {rest}, 0 failures\n"
    assert len(writes.texts) == 8
    assert set(writes.texts.values()) == {1}


def test_queued_sessions_are_written_within_the_scope_and_by_their_program_only(
    run_with_four_users: RunCommand,
) -> None:
    """One session of each of the four users is queued.

    The memories belong to `program`, so `other` writes none. Two users are called ada, one of acme;
    bob is of acme, too.
    """
    with Store("memories.sqlite") as store:
        for owner in USERS:
            memory = mempiler.build("turn-rag").memory(store, owner.user, owner.tenant)
            memory.add([{"role": "user", "content": "I like tea."}], remember=False)

    def write_queued(*scope: str) -> str:
        return output_of(run_with_four_users, "memories", "rebuild", *scope, "--queued")

    assert write_queued("other", "--tenant", "acme") == (
        "2 users, 0 sessions, 0 failures, 2 still queued, 2 users of another program\n"
    )
    assert write_queued("program", "--user", "ada") == "2 users, 2 sessions, 0 failures\n"
    assert write_queued("program", "--tenant", "acme") == "2 users, 1 sessions, 0 failures\n"
    assert write_queued("program") == "4 users, 1 sessions, 0 failures\n"


# --- forgetting -------------------------------------------------------------------------------


@pytest.fixture
def reader(run_with_four_users: RunCommand) -> Iterator[sqlite3.Connection]:
    """A connection to the store that has begun to read: it sees what is deleted meanwhile."""
    with closing(sqlite3.connect("memories.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        yield connection


@pytest.mark.usefixtures("reader")
def test_forget_ends_with_code_four_while_somebody_holds_the_bytes(
    run_with_four_users: RunCommand,
) -> None:
    """A reader of the SQLite file still sees the deleted rows, so their bytes must stay."""
    code, out, err = run_with_four_users("memories", "forget", "--user", "eve")

    assert code == 4
    assert out == "1 forgotten, 2 sessions, 2 turns, 0 queued anew\n"
    assert err.startswith("mempiler: user 'eve' is forgotten, and the bytes are not gone yet")
    assert err.count("\n") == 1


def test_forget_removes_bytes_that_somebody_held_when_it_is_repeated(
    run_with_four_users: RunCommand, reader: sqlite3.Connection, tmp_path: Path
) -> None:
    """Eve's sessions have texts such as "I am eve of ..., 0."."""
    run_with_four_users("memories", "forget", "--user", "eve")
    assert files_with("I am eve", [tmp_path]) != []
    reader.execute("COMMIT")  # it has read to the end

    out = output_of(run_with_four_users, "memories", "forget", "--user", "eve")

    assert out == "1 forgotten, 0 sessions, 0 turns, 0 queued anew\n"
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

    Another process reads them: who closes a database that this process has open takes its locks
    away.
    """
    existing_folders = [folder for folder in folders if folder.exists()]
    process = subprocess.run(
        ["grep", "-rlF", text, *existing_folders], capture_output=True, text=True
    )
    assert process.returncode in (0, 1), process.stderr
    assert process.stderr == ""
    return process.stdout.splitlines()


def test_commands_leave_nothing_of_a_forgotten_user(
    run_with_four_users: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pat tells a PIN, and asks about it. The file of the chat is the user's, and stays."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    pin = "82716354"
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": f"My PIN is {pin}."}]))
    # The store, the results folder with its MLflow database, and DSPy's cache.
    folders = [tmp_path, Path(os.environ["DSPY_CACHEDIR"])]

    output_of(run_with_four_users, "memories", "add", "chat.json", "--user", "pat")
    output_of(run_with_four_users, "memories", "rebuild", "program", "--queued")
    output_of(run_with_four_users, "ask", "program", f"Is my PIN {pin}?", "--user", "pat")
    export_before = output_of(run_with_four_users, "memories", "export", "-")
    output_of(run_with_four_users, "memories", "forget", "--user", "pat")
    export_after = output_of(run_with_four_users, "memories", "export", "-")

    assert pin in export_before
    assert pin not in export_after
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
    ("command", "expected"),
    [
        ("search program 'Where does Ada live?' --user ada", "Lisbon"),
        ("list --json", "ada"),
        ("show --user ada", "Lisbon"),
        ("export -", "Lisbon"),
    ],
)
def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(
    folder_with_store: Path, cli: RunCommand, command: str, expected: str
) -> None:
    words = ["memories", *shlex.split(command), "--store", "memories.sqlite"]
    # This also imports what the command needs, before the process becomes another user.
    result = cli(*words)

    with read_only(folder_with_store):
        read_only_result = cli(*words)

    assert read_only_result == result
    code, out, _ = read_only_result
    assert code == 0
    assert expected in out


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
