"""`mempiler memories import` of files with one bad line.

Nothing of the file is stored, and the error, which is one line, names the bad one. Each line of a
file is one user with all that is stored of this user, as JSON; the first line is a header.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mempiler import Store
from mempiler.memory.store.owner import Owner

HEADER = '{"mempiler": "memories", "schema": 1}'
HUNDRED_MILLION = 100_000_000


def user_line(user: str, text: str = "I moved to Lisbon.", tenant: str = "acme") -> str:
    """Return the line of a user with one session of one turn."""
    session = {"id": "s", "turns": [{"id": "s:1", "speaker": "Ada", "text": text}]}
    item = {"position": 1, "state": "queued", "digest": "d", "item": session}
    return json.dumps({"tenant": tenant, "user": user, "items": [item]}, ensure_ascii=False)


class ImportResult(NamedTuple):
    """How an import ended."""

    exit_code: int
    error_output: str


Import = Callable[..., ImportResult]


@pytest.fixture
def import_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> Import:
    """A function that runs the command over a file of a header and the given lines.

        import_lines(user_line("ada"), user_line("bob"), options=("--replace",))

    The lines of this file have the numbers 2 and 3, because the header is line 1.
    """
    monkeypatch.chdir(tmp_path)

    def run_import(*lines: str | bytes, options: tuple[str, ...] = ()) -> ImportResult:
        encoded_lines = [HEADER.encode()]
        for line in lines:
            encoded_lines.append(line if isinstance(line, bytes) else line.encode())
        Path("all.jsonl").write_bytes(b"\n".join(encoded_lines))

        exit_code, _output, error_output = cli(
            "memories", "import", "all.jsonl", "--store", "store.sqlite", *options
        )
        return ImportResult(exit_code, error_output)

    return run_import


def stored_texts() -> dict[tuple[str, str], list[str]]:
    """Return what each user of the store said, by tenant and name."""
    texts: dict[tuple[str, str], list[str]] = {}
    with Store("store.sqlite") as store:
        for status in store.users.list_all():
            owner = status.owner
            texts[owner.tenant, owner.user] = texts_of_user(store, owner)
    return texts


def texts_of_user(store: Store, owner: Owner) -> list[str]:
    """Return all that one user said."""
    return [turn.text for stored in store.items.list_all(owner) for turn in stored.item.turns]


HOSTILE_LINES = {
    "cut in a text": (user_line("bob")[:90], "not valid JSON"),
    "cut before its end": (user_line("bob")[:-1], "not valid JSON"),
    "two users on one line": (user_line("bob") + user_line("cleo"), "not valid JSON"),
    "a list": ('["bob"]', "is no JSON object"),
    "a zero byte": (user_line("bob", "half").replace("half", "a\0b"), "not valid JSON"),
    "a zero byte in a name": (user_line("b\0b"), "user 'b\\x00b' holds a control character"),
    "a line end in a tenant": (
        user_line("bob", tenant="a\nb"),
        "tenant 'a\\nb' holds a control character",
    ),
    "no tenant": (
        user_line("bob").replace('"acme"', "null"),
        "owner.tenant: Input should be a valid string",
    ),
    "half a character": (
        user_line("bob", "half").replace("half", "\\ud83d"),
        "half of a surrogate pair",
    ),
    "the user of an earlier line": (
        user_line("ada", "I never moved."),
        "user 'ada' of tenant 'acme' is in line 2 too",
    ),
}
"""Lines that no import takes, and what the error says of each."""


@pytest.mark.parametrize("hostile", HOSTILE_LINES)
def test_a_file_with_a_hostile_line_is_refused_and_the_error_names_the_line(
    import_lines: Import, hostile: str
) -> None:
    """The hostile line is line 3, behind the header and the line of Ada."""
    hostile_line, reason = HOSTILE_LINES[hostile]

    result = import_lines(user_line("ada"), hostile_line, user_line("zoe"))

    assert result.exit_code == 2
    assert result.error_output.startswith("mempiler: all.jsonl: line 3: ")
    assert reason in result.error_output
    assert result.error_output.count("\n") == 1
    assert stored_texts() == {}


def test_a_file_with_a_hostile_line_replaces_no_user(import_lines: Import) -> None:
    """With `--replace` an import puts the users of the file in the place of stored ones."""
    assert import_lines(user_line("ada", "I moved to Lisbon.")).exit_code == 0

    new_line_of_ada = user_line("ada", "I never moved.")
    cut_line = user_line("bob")[:-1]
    result = import_lines(new_line_of_ada, cut_line, options=("--replace",))

    assert result.exit_code == 2
    assert stored_texts() == {("acme", "ada"): ["I moved to Lisbon."]}


def test_a_file_that_is_not_utf_8_is_refused(import_lines: Import) -> None:
    line_with_half_a_character = b'{"user": "\xed\xa0\xbd"}'

    result = import_lines(user_line("ada"), line_with_half_a_character)

    assert result.exit_code == 2
    assert result.error_output.startswith("mempiler: all.jsonl: is no UTF-8 text")
    assert stored_texts() == {}


def test_users_of_two_tenants_with_the_same_name_are_kept_apart(import_lines: Import) -> None:
    ada_of_acme = user_line("ada", "I moved to Lisbon.", tenant="acme")
    ada_of_globex = user_line("ada", "I stayed in Oslo.", tenant="globex")

    result = import_lines(ada_of_acme, ada_of_globex)

    assert result.exit_code == 0
    assert stored_texts() == {
        ("acme", "ada"): ["I moved to Lisbon."],
        ("globex", "ada"): ["I stayed in Oslo."],
    }


def test_a_text_with_an_escaped_zero_byte_is_imported(import_lines: Import) -> None:
    """A store holds such a text, and an export writes its zero byte as `\\u0000`."""
    result = import_lines(user_line("ada", "a\0b"))

    assert result.exit_code == 0
    assert stored_texts() == {("acme", "ada"): ["a\0b"]}


def test_a_hundred_megabytes_of_brackets_are_refused_soon(import_lines: Import) -> None:
    started = time.monotonic()
    result = import_lines(user_line("ada"), b"[" * HUNDRED_MILLION)
    seconds = time.monotonic() - started

    assert seconds < 20
    assert result.exit_code == 2
    assert result.error_output.startswith("mempiler: all.jsonl: line 3: ")
    assert "nested more than 100 levels deep; make it flatter" in result.error_output
    assert result.error_output.count("\n") == 1
    assert stored_texts() == {}
