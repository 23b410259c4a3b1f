"""Imports of files that are damaged or made to harm: one line, and nothing of them in the store."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, Store
from mempiler.serving.transfer import import_users

HEADER = '{"mempiler": "memories", "schema": 1}'


def line(user: str = "ada", item: dict[str, Any] | None = None, **changes: Any) -> str:
    whole = {"position": 1, "state": "queued", "digest": "d", "item": {"id": "s", "turns": [turn(id=f"{user}:1")]}}
    return json.dumps({"tenant": "default", "user": user, "items": [{**whole, **(item or {})}], **changes})


def turn(**changes: Any) -> dict[str, Any]:
    return {"id": "t", "speaker": "a", "text": "hello", **changes}


def of_turn(**changes: Any) -> str:
    return line(item={"item": {"id": "s", "turns": [turn(**changes)]}})


DOCUMENT = {"memory": "[1]", "position": 0, "settled": None, "settled_position": 0, "speakers": [], "writer": "w"}
DOCUMENT |= {"program": "p", "embedder": "", "schema_version": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (of_turn(text="\ud83d"), "half of a surrogate pair"),
        (line(user="a" * 513), "has 513 characters; use at most 512"),
        ("[" * 100_000, "nested more than 100 levels deep"),
        (line().replace('"position": 1', f'"position": {"9" * 5000}'), "has 5000 digits"),
        (of_turn(time="0001-01-01T00:00:00+14:00"), "outside the calendar"),
        (line(item={"item": {"id": "s\u200b", "turns": []}}), "cannot be seen"),
        (line(open=[{"id": "s", "turns": [{"id": "x", "speaker": "a"}]}]), "is empty or there twice"),
        (line(document=DOCUMENT), "the memory is no JSON object"),
        (line(**{"a\nb": 1}), r"line 3: 'a\nb: Unexpected"),
        (line()[:40], "line 3: not valid JSON"),
        (line(item={"state": "remembered"}), "the memory ends at position 0"),
        (line(item={"position": 0}), "position: Input should be greater than or equal to 1"),
        ([], "the file is empty"),
        ([line()], "no memories of Mempiler"),
        (['{"mempiler": "memories", "schema": 99}', line()], "version 99"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_one_line_and_nothing_half_imported(tmp_path, monkeypatch, cli, bad, message) -> None:
    monkeypatch.chdir(tmp_path)
    lines, where = (bad, "") if isinstance(bad, list) else ([HEADER, line("bob"), bad], ": line 3")
    Path("all.jsonl").write_text("\n".join(lines))
    code, _, told = cli("memories", "import", "all.jsonl", "--store", "s.sqlite")
    assert (code, told.startswith(f"mempiler: all.jsonl{where}"), told.count("\n")) == (2, True, 1)
    assert message in told
    with Store("s.sqlite") as store:
        assert store.users() == []


def test_user_who_is_there_already_keeps_all_others_out_and_times_are_kept_in_utc(store: Store) -> None:
    import_users(store, [HEADER, of_turn(time="2024-03-05T10:00:00+02:00")], "file")
    with pytest.raises(ConflictError, match="user 'ada' is in"):
        import_users(store, [HEADER, line("bob"), line("ada")], "file")
    (found,) = store.users()
    assert str(store.items(found.owner)[0].item.turns[0].time) == "2024-03-05 08:00:00"
