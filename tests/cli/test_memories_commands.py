"""Stored memories from the shell: add, ask, edit, list, show, move, forget; and rebuild, which goes on after a kill."""

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Store, UserError
from mempiler.cli import main
from mempiler.engines.lm import language_model
from mempiler.memory.store.owner import Owner

from ..conftest import read_only

CHAT = [
    [
        {"role": "user", "name": "Ada", "content": "I moved to Lisbon last week.", "time": "2024-03-05"},
        {"role": "assistant", "content": "How do you like it so far?"},
    ],
    [{"role": "user", "name": "Ada", "content": "My sister Grace visits me in June.", "time": "2024-04-02"}],
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two saved programs, a chat, and a store (`filled`) in which Ada's chat is remembered."""
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
    """A copy of the template, with a results folder of its own that is empty."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def run(folder: Path, cli: Run) -> Run:
    return cli


@pytest.fixture
def filled(run: Run, folder: Path) -> Run:
    """The command line with a store in which Ada's chat is remembered."""
    (folder / "filled").rename(folder / "home")
    return run


def listed(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(run("memories", "list", "--json", *arguments)[1])


def test_a_file_is_added_once_and_remembered(run: Run, folder: Path, make_history: Any) -> None:
    (folder / "history.json").write_text(make_history(2).model_dump_json())
    added = [run("memories", "add", "history.json", "--user", "own")[1] for _ in range(2)]
    assert added == ["2 new, 0 known\n", "0 new, 2 known\n"]
    assert run("memories", "forget", "--user", "own")[0] == 0
    assert run("memories", "add", "chat.json", "--user", "ada")[1] == "2 new, 0 known\n"
    assert run("memories", "add", "chat.json", "--user", "ada")[1] == "0 new, 2 known\n"
    assert run("memories", "rebuild", "program")[1] == "1 users, 2 sessions, 0 failures\n"
    (found,) = listed(run)
    assert found["user"] == "ada"
    assert found["sessions"] == 2
    assert found["queued"] == 0
    assert found["position"] == 2


def test_ask_answers_from_the_store_with_sources(filled: Run) -> None:
    found = json.loads(filled("ask", "program", "When does Grace visit?", "--user", "ada", "--json")[1])
    assert found["answer"] == "My sister Grace visits me in June."
    assert found["why"][0]["sources"][0]["line"].startswith("[chat-2:1] (2 April 2024, Tuesday) Ada: My sister")


def test_texts_of_users_cannot_send_control_characters_to_the_terminal(run: Run, folder: Path) -> None:
    said = "red [bold]x[/bold] \x1b[31m bell \x07 title \x9b2J \x7f end \u202eturned\u2066"
    (folder / "hostile.json").write_text(json.dumps([{"role": "user", "name": "Ada", "content": said}]))
    assert run("memories", "add", "hostile.json", "--user", "ada")[0] == 0
    assert run("memories", "rebuild", "program")[0] == 0
    for command in (["memories", "show", "--user", "ada"], ["ask", "program", "red bell title?", "--user", "ada"]):
        for form in ([], ["--json"]):
            code, out, _ = run(*command, *form)
            assert code == 0
            assert not [char for char in out if char != "\n" and not char.isprintable()]
            assert "[bold]x[/bold] " in out
    exported = run("memories", "export", "-")[1]
    assert not [char for char in exported if char != "\n" and not char.isprintable()]
    (folder / "exported.jsonl").write_text(exported)
    assert run("memories", "import", "exported.jsonl", "--store", "other.sqlite")[0] == 0
    assert run("memories", "show", "--user", "ada", "--store", "other.sqlite") == run(
        "memories", "show", "--user", "ada"
    )


def test_export_moves_to_another_store(filled: Run, folder: Path) -> None:
    assert filled("memories", "export", "all.jsonl")[2] == "1 users\n"
    assert filled("memories", "import", "all.jsonl", "--store", "new/other.sqlite")[1] == "1 users\n"
    assert listed(filled, "--store", "new/other.sqlite") == [
        {**listed(filled)[0], "updated": listed(filled, "--store", "new/other.sqlite")[0]["updated"]}
    ]
    assert filled("memories", "export", "-")[1] == (folder / "all.jsonl").read_text()
    assert not (folder / "all.jsonl.part").exists()


def test_a_forgotten_session_and_then_its_user_are_gone(filled: Run) -> None:
    found = json.loads(filled("memories", "show", "--user", "ada", "--json")[1])
    assert [session["state"] for session in found["sessions"]] == ["remembered", "remembered"]
    assert len(found["memory"]["turns"]) == 3
    forgotten = filled("memories", "forget", "--user", "ada", "--session", "chat-1")[1]
    assert forgotten == "1 forgotten, 1 sessions, 2 turns, 1 queued anew\n"
    filled("memories", "rebuild", "program")
    assert "Lisbon" not in filled("memories", "show", "--user", "ada")[1]
    assert filled("memories", "forget", "--user", "ada")[0] == 0
    assert listed(filled) == []


ADA = ("--user", "ada")


def test_entries_are_found_listed_and_read(filled: Run) -> None:
    out = filled("memories", "search", "program", "When does Grace visit?", *ADA, "--k", "1")[1]
    assert out.endswith("  [chat-2:1] (2 April 2024, Tuesday) Ada: My sister Grace visits me in June.\n")
    found = json.loads(filled("memories", "search", "program", "Grace", *ADA, "--json")[1])
    assert [hit["id"] for hit in found["entries"]] == ["chat-2:1"]
    assert found["pending"] == []

    lines = filled("memories", "search", "program", *ADA)[1].splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["[chat-1:1]", "[chat-1:2]", "[chat-2:1]"]
    assert lines[-1] == "[chat-2:1] (2024-04-02 00:00) Ada: My sister Grace visits me in June."
    page = json.loads(filled("memories", "search", "program", *ADA, "--since", "2024-04-01", "--json")[1])
    assert [entry["id"] for entry in page["entries"]] == ["chat-2:1"]
    assert filled("memories", "search", "program", *ADA, "--where", '{"channel": "phone"}')[1] == ""


def test_an_entry_is_changed_deleted_and_brought_back(filled: Run) -> None:
    edit = ["memories", "edit", "program", "chat-1:1", *ADA]
    assert filled(*edit, "--text", "I moved to Porto.", "--by", "desk")[1] == "update of chat-1:1\n"
    assert "Ada: I moved to Porto." in filled("memories", "search", "program", "Porto", *ADA)[1]
    deleted = json.loads(filled(*edit, "--delete", "--json")[1])
    assert deleted["what"] == "delete"
    assert deleted["new"] is None
    for word in ("Lisbon", "Porto"):
        assert filled("memories", "search", "program", word, *ADA)[1] == ""
    assert filled(*edit, "--undo")[1] == "undo of chat-1:1\n"
    assert "Porto" in filled("memories", "search", "program", "Porto", *ADA)[1]


def test_deleted_words_are_not_shown(filled: Run) -> None:
    filled("memories", "edit", "program", "chat-1:1", "--delete", *ADA, "--by", "desk")
    filled("memories", "edit", "program", "chat-2:1", "--text", "My sister visits me.", *ADA)
    show = ["memories", "show", *ADA]
    for form in ([], ["--json"]):
        shown = filled(*show, "program", *form)[1]
        assert not any(word in shown for word in ("Lisbon", "Grace"))
        told = "(deleted)", "My sister visits me.", "How do you like it", "delete of chat-1:1 (turn), 20", "by desk"
        assert all(text in shown for text in told)
    code, out, err = filled(*show)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "give PROGRAM" in err
    assert "run: mempiler memories rebuild" in filled(*show, "other")[2]
    for entry in ("chat-1:1", "chat-2:1"):
        filled("memories", "edit", "program", entry, "--undo", *ADA)
    assert "Lisbon" in filled(*show)[1]


MISTAKES = {
    "list --store none.sqlite": "none.sqlite: no memories here",
    "list --store mysql://a/b": "mysql is not supported",
    "show --user bob": "no user 'bob'",
    "show --user ada --tenant acme": "no user 'ada'",
    "forget --user bob": "no user 'bob'",
    "forget --user ada --session x": "no session 'x' of user 'ada'",
    "add chat.json --user ''": "user '' must be a text",
    "import chat.json": "chat.json: line 1",
    "import none.jsonl": "'none.jsonl': No such file or directory",
    "export no/folder/x.jsonl": "cannot be written",
    "rebuild program --user bob": "no user 'bob'",
    "rebuild program --failed --force": "--queued, --failed and --force each say what is written; give one of them",
    "search program x --user ada --k 0": "k = 0: give a finite number, 1 to 1000",
    "search program": "Missing option '--user'",
    "search program --user ada --where '{'": "where: Invalid JSON",
    "search program --user ada --where '{\"a b\": 1}'": "the name 'a b'",
    "search program --user ada --since soon": "since: ",
    "edit program x --undo --user ada": "no entry 'x' of user 'ada', or nothing to undo",
    "edit program chat-1:1 --text ' ' --user ada": "a text that is not empty",
    "edit other chat-1:1 --delete --user ada": "run: mempiler memories rebuild",
    "edit none chat-1:1 --delete --user ada": "there is no such folder",
}


def test_mistakes_are_one_line(filled: Run) -> None:
    for arguments, message in MISTAKES.items():
        code, _, err = filled("memories", *shlex.split(arguments))
        assert code == 2
        assert err.startswith("mempiler: ")
        assert err.count("\n") == 1
        assert message in err
    for more in (("--user", "bob"), ("--user", "ada", "--history", "chat.json")):
        assert filled("ask", "program", "Where?", *more)[0] == 2
    code, _, err = filled("memories", "list", "--store", "chat.json")
    assert code == 4
    assert "not a database" in err


def test_users_are_there_after_a_refused_import(filled: Run) -> None:
    filled("memories", "export", "all.jsonl")
    code, _, err = filled("memories", "import", "all.jsonl")
    assert code == 2
    assert "give --replace" in err
    assert len(listed(filled)) == 1
    assert filled("memories", "rebuild", "program", "--failed")[1] == "1 users, 0 sessions, 0 failures\n"
    assert filled("memories", "import", "all.jsonl", "--replace")[0] == 0


USERS = [Owner("ada", "acme"), Owner("bob", "acme"), Owner("ada"), Owner("eve")]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, and a store in which the first remembered two sessions of four users of two tenants."""
    folder = tmp_path_factory.mktemp("tenants")
    program = mempiler.build("recursive-summary")
    mempiler.save(program, folder / "program")
    mempiler.save(mempiler.build("recursive-summary", max_words=50), folder / "other")
    with Store(folder / "s.sqlite") as store:
        for owner in USERS:
            memory = program.memory(store, owner.user, owner.tenant, language_model("offline"))
            for n in range(2):
                text = f"I am {owner.user} of {owner.tenant}, {n}."
                memory.add([{"role": "user", "content": text, "time": "2024-03-05"}])
    return folder


@pytest.fixture
def command(tenants: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> Run:
    shutil.copytree(tenants, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli(*words, "--store", "s.sqlite")


class Killed(BaseException):
    """A kill: nothing catches it, and nothing runs after it but what releases claims."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was written how often, and how many writes are let through before a kill."""
    from mempiler.serving.memories import queue_writer

    counted: Counter[str] = Counter()
    most, real, lock = [10**9], queue_writer.write_item, threading.Lock()

    def write_item(writer: Any, memory: Any, item: Any, prepared: Any) -> Any:
        with lock:  # users are written at the same time
            if sum(counted.values()) >= most[0]:
                raise Killed
            done = real(writer, memory, item, prepared)
            counted[item.turns[0].text] += 1
            return done

    monkeypatch.setattr(queue_writer, "write_item", write_item)
    return counted, most


@pytest.mark.parametrize(("scope", "users"), [("--tenant acme", 2), ("--user ada --tenant acme", 1)])
def test_rebuild_keeps_to_its_scope(command: Run, scope: str, users: int) -> None:
    assert (
        command("memories", "rebuild", "other", *scope.split())[1]
        == f"{users} users, {2 * users} sessions, 0 failures\n"
    )
    assert command("memories", "rebuild", "other")[1] == f"4 users, {8 - 2 * users} sessions, 0 failures\n"


@pytest.mark.parametrize(("program", "kills"), [("program", [3, 6]), ("other", [3])])
def test_a_rebuild_goes_on_after_a_kill(command: Run, written: Any, program: str, kills: list[int]) -> None:
    counted, most = written
    for most[0] in kills:
        with pytest.raises(Killed):
            command("memories", "rebuild", program, *(["--force"] if most[0] == kills[0] else []))
    most[0] = 10**9
    assert command("memories", "rebuild", program)[1] == f"4 users, {8 - kills[-1]} sessions, 0 failures\n"
    assert set(counted.values()) == {1}
    assert len(counted) == 8


def test_queued_sessions_are_written_within_the_scope_and_by_their_program_only(command: Run) -> None:
    with Store("s.sqlite") as store:
        for owner in USERS:
            text = {"role": "user", "content": "I like tea."}
            mempiler.build("turn-rag").memory(store, owner.user, owner.tenant).add([text], remember=False)
    for words, said in (
        ("other --tenant acme", "2 users, 0 sessions, 0 failures, 2 still queued, 2 users of another program"),
        ("program --user ada", "2 users, 2 sessions, 0 failures"),
        ("program --tenant acme", "2 users, 1 sessions, 0 failures"),
        ("program", "4 users, 1 sessions, 0 failures"),
    ):
        assert command("memories", "rebuild", *words.split(), "--queued")[1] == f"{said}\n"


def test_exit_code_says_that_somebody_holds_the_bytes(command: Run) -> None:
    with closing(sqlite3.connect("s.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        code, out, told = command("memories", "forget", "--user", "eve")
        assert code == 4
        assert out == "1 forgotten, 2 sessions, 2 turns, 0 queued anew\n"
        assert told.startswith("mempiler: user 'eve' is forgotten, and the bytes are not gone yet: somebody reads")
        assert told.count("\n") == 1
        reader.execute("COMMIT")
    code, out, _ = command("memories", "forget", "--user", "eve")
    assert code == 0
    assert out == "1 forgotten, 0 sessions, 0 turns, 0 queued anew\n"
    assert command("memories", "forget", "--user", "eve")[0] == UserError.exit_code
    assert b"I am eve" not in Path("s.sqlite").read_bytes()


def test_commands_leave_nothing_of_a_forgotten_user(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the store, nor in the results folder with its MLflow database, nor in DSPy's cache."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "My PIN is 82716354."}]))
    assert command("memories", "add", "chat.json", "--user", "pat")[0] == 0
    assert command("memories", "rebuild", "program", "--queued")[0] == 0
    assert command("ask", "program", "Is my PIN 82716354?", "--user", "pat")[0] == 0
    assert command("memories", "export", "-")[1].count("82716354") > 0
    assert command("memories", "forget", "--user", "pat")[0] == 0
    assert "82716354" not in command("memories", "export", "-")[1]
    (tmp_path / "chat.json").unlink()
    # By another process: who closes a database that this one has open takes its locks away.
    places = [place for place in (tmp_path, Path(os.environ["DSPY_CACHEDIR"])) if place.exists()]
    found = subprocess.run(["grep", "-rlF", "82716354", *places], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stdout == ""
    assert found.stderr == ""


def test_a_store_in_a_folder_that_cannot_be_written_is_listed_searched_shown_and_exported(
    template: Path, open_folder: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(template / "program", open_folder / "program")
    shutil.copy(template / "filled" / "memories.sqlite", open_folder)
    monkeypatch.chdir(open_folder)
    store = ("--store", "memories.sqlite")
    commands = (
        ("list", *store, "--json"),
        ("search", "program", "Where does Ada live?", "--user", "ada", *store),
        ("show", "--user", "ada", *store),
        ("export", "-", *store),
    )
    expected = [cli("memories", *words) for words in commands]
    with read_only(open_folder):
        found = [cli("memories", *words) for words in commands]
        added = cli("memories", "forget", "--user", "ada", *store)
    assert found == expected
    assert [code for code, _, _ in found] == [0, 0, 0, 0]
    assert "Lisbon" in found[1][1]
    assert added[0] == 4
    assert "readonly database" in added[2]
