"""`mempiler memories import` of files with one bad row: nothing of it is stored, and one line says which."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store
from mempiler.memory.store.owner import Owner

HEADER = '{"mempiler": "memories", "schema": 1}'
NESTED = 100_000_000
"""Brackets of the largest row."""


def row(user: str, text: str = "I moved to Lisbon.", tenant: str = "acme") -> str:
    """The line of a user with one session of one turn."""
    session = {"id": "s", "turns": [{"id": "s:1", "speaker": "Ada", "text": text}]}
    item = {"position": 1, "state": "queued", "digest": "d", "item": session}
    return json.dumps({"tenant": tenant, "user": user, "items": [item]}, ensure_ascii=False)


Import = Callable[..., tuple[int, str]]


@pytest.fixture
def import_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> Import:
    """Import these rows behind a header, and return the exit code and what is told."""
    monkeypatch.chdir(tmp_path)

    def run(*rows: str | bytes, options: tuple[str, ...] = ()) -> tuple[int, str]:
        lines = [line if isinstance(line, bytes) else line.encode() for line in (HEADER, *rows)]
        Path("all.jsonl").write_bytes(b"\n".join(lines))
        code, _, told = cli("memories", "import", "all.jsonl", "--store", "store.sqlite", *options)
        return code, told

    return run


def texts() -> dict[tuple[str, str], list[str]]:
    """What each user of the store said, by tenant and name."""
    with Store("store.sqlite") as store:
        owners = [found.owner for found in store.users.list_all()]
        return {(owner.tenant, owner.user): texts_of(store, owner) for owner in owners}


def texts_of(store: Store, owner: Owner) -> list[str]:
    return [turn.text for stored in store.items.list_all(owner) for turn in stored.item.turns]


SURROGATE = row("bob", "half").replace("half", "\\ud83d")
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "cut in a text": (row("bob")[:90], "not valid JSON"),
    "cut before its end": (row("bob")[:-1], "not valid JSON"),
    "two on one line": (row("bob") + row("cleo"), "not valid JSON"),
    "no object": ('["bob"]', "is no JSON object"),
    "a zero byte": (row("bob", "half").replace("half", "a\0b"), "not valid JSON"),
    "a zero byte in a name": (row("b\0b"), "user 'b\\x00b' holds a control character"),
    "a line end in a tenant": (
        row("bob", tenant="a\nb"),
        "tenant 'a\\nb' holds a control character",
    ),
    "no tenant": (
        row("bob").replace('"acme"', "null"),
        "owner.tenant: Input should be a valid string",
    ),
    "half a character": (SURROGATE, "half of a surrogate pair"),
    "a user of a row before": (
        row("ada", "I never moved."),
        "user 'ada' of tenant 'acme' is in line 2 too",
    ),
}


@pytest.mark.parametrize("options", [(), ("--replace",)], ids=["", "replacing"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_row_keeps_the_whole_file_out_and_one_line_names_it(
    import_rows: Import, kind: str, options: tuple[str, ...]
) -> None:
    hostile, reason = HOSTILE[kind]
    code, told = import_rows(row("ada"), hostile, row("zoe"), options=options)
    assert code == 2
    assert told.startswith("mempiler: all.jsonl: line 3: ")
    assert reason in told
    assert told.count("\n") == 1
    assert texts() == {}


def test_a_hostile_row_leaves_users_who_were_to_be_replaced_as_they_were(
    import_rows: Import,
) -> None:
    assert import_rows(row("ada"))[0] == 0
    code, _ = import_rows(row("ada", "I never moved."), row("bob")[:-1], options=("--replace",))
    assert code == 2
    assert texts() == {("acme", "ada"): ["I moved to Lisbon."]}


def test_bytes_that_are_no_utf_8_keep_the_whole_file_out(import_rows: Import) -> None:
    code, told = import_rows(row("ada"), b'{"user": "\xed\xa0\xbd"}')
    assert code == 2
    assert told.startswith("mempiler: all.jsonl: is no UTF-8 text")
    assert texts() == {}


def test_a_user_of_another_tenant_is_stored_under_that_tenant_alone(import_rows: Import) -> None:
    code, _ = import_rows(row("ada"), row("ada", "I stayed in Oslo.", tenant="globex"))
    assert code == 0
    assert texts() == {
        ("acme", "ada"): ["I moved to Lisbon."],
        ("globex", "ada"): ["I stayed in Oslo."],
    }


def test_a_zero_byte_that_json_escapes_is_text_like_any_other(import_rows: Import) -> None:
    assert import_rows(row("ada", "a\0b"))[0] == 0
    assert texts() == {("acme", "ada"): ["a\0b"]}


def test_a_hundred_megabytes_of_brackets_are_refused_soon(import_rows: Import) -> None:
    began = time.monotonic()
    code, told = import_rows(row("ada"), b"[" * NESTED)
    assert time.monotonic() - began < 20
    assert code == 2
    assert told == (
        "mempiler: all.jsonl: line 3: lists and objects are nested more than 100 levels deep; make it flatter\n"
    )
    assert texts() == {}
