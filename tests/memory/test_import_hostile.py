"""Imports of files that are damaged or made to harm: one line, and nothing of them in the store."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, DataError, Store
from mempiler.cli import main
from mempiler.memory.transfer import import_users

HEADER = '{"mempiler": "memories", "schema": 1}'


def line(user: str = "ada", item: dict[str, Any] | None = None, **changes: Any) -> str:
    turn = {"id": f"{user}:1", "speaker": "a", "text": "hello"}
    whole = {"position": 1, "state": "queued", "digest": "d", "item": {"id": "s", "turns": [turn]}}
    return json.dumps({"tenant": "default", "user": user, "items": [{**whole, **(item or {})}], **changes})


def of_turn(**changes: Any) -> str:
    turn = {"id": "t", "speaker": "a", "text": "hello", **changes}
    return line(item={"item": {"id": "s", "turns": [turn]}})


DOCUMENT = {"memory": "{}", "position": 0, "settled": None, "settled_position": 0, "speakers": [], "writer": "w"}
DOCUMENT |= {"program": "p", "embedder": "", "schema_version": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (of_turn(text="\ud83d"), "half of a surrogate pair"),
        (line(user="a" * 513), "has 513 characters; use at most 512"),
        ("[" * 100_000, "nested more than 100 levels deep"),
        (line().replace('"position": 1', f'"position": {"9" * 5000}'), "has 5000 digits"),
        (line().replace('"position": 1', '"position": NaN'), "NaN is no JSON number"),
        (line().replace('"position": 1', '"position": Infinity'), "Infinity is no JSON number"),
        (line(item={"position": 10**30}), "position"),
        (line(item={"position": 2**31}), "position"),
        (of_turn(time="0001-01-01T00:00:00+14:00"), "outside the calendar"),
        (of_turn(time=10**30), "time"),
        (line(item={"item": {"id": "s\u200b", "turns": []}}), "cannot be seen"),
        (line(item={"item": {"id": "", "turns": []}}), "is empty or there twice"),
        (line(open=[{"id": "s", "turns": [{"id": "x", "speaker": "a"}]}]), "'s' is empty or there twice"),
        (line(document={**DOCUMENT, "memory": "no JSON"}), "document"),
        (line(document={**DOCUMENT, "memory": "[1]"}), "the memory is no JSON object"),
        (line(**{"a\nb": 1}), "line 3: a\ufffdb: Unexpected"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_one_line_and_nothing_half_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bad: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all.jsonl").write_text("\n".join([HEADER, line("bob"), bad]))
    with pytest.raises(SystemExit) as ended:
        main(["memories", "import", "all.jsonl", "--store", "s.sqlite"])
    told = capsys.readouterr().err.strip()
    assert (ended.value.code, told.startswith("mempiler: all.jsonl: line 3"), "\n" in told) == (2, True, False)
    assert message in told
    with Store("s.sqlite") as store:
        assert store.users() == []


def test_user_who_is_there_already_keeps_all_others_out(store: Store) -> None:
    import_users(store, [HEADER, line("bob")], "file")
    with pytest.raises(ConflictError, match="user 'bob' is in"):
        import_users(store, [HEADER, line("ada"), line("bob")], "file")
    assert [found.owner.user for found in store.users()] == ["bob"]


def test_file_that_is_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all.jsonl").write_bytes(f"{HEADER}\n".encode() + b"\xff\xfe")
    with pytest.raises(SystemExit) as ended:
        main(["memories", "import", str(tmp_path / "all.jsonl"), "--store", str(tmp_path / "s.sqlite")])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_times_with_a_zone_are_kept_in_utc(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        import_users(store, [HEADER, of_turn(time="2024-03-05T10:00:00+02:00")], "file")
        (stored,) = store.items(store.users()[0].owner)
        assert str(stored.item.turns[0].time) == "2024-03-05 08:00:00"


def test_error_type_of_a_refused_line(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(DataError, match=r"^file: line 2"):
        import_users(store, [HEADER, "[" * 100_000], "file")
