"""Imports of a file of sessions: each line stored or refused by number, and once if repeated."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store
from mempiler.cli import main
from mempiler.errors import UserError
from mempiler.serving import importing
from mempiler.serving.importing import import_lines


def session(n: int, user: str = "ada", text: str = "") -> dict[str, Any]:
    return {
        "user": user,
        "id": f"s{n}",
        "messages": [{"role": "user", "content": text or f"Note {n} is on the fridge."}],
    }


def lines(*sessions: Any) -> bytes:
    return b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in sessions)


def test_lines_are_stored_or_refused_by_number_and_reason(store: Store) -> None:
    no_id = {name: value for name, value in session(5).items() if name != "id"}
    sent = lines(
        session(1),
        b"",
        session(2, "ben"),
        b"{not json",
        b"[]",
        no_id,
        session(6, "../x"),
        session(1, text="Something else."),
        {**session(9), "messages": []},
        b'{"user": "a", "id": "b", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"\xff\xfe",
        session(1),
        {**session(12, "cleo"), "metadata": {"channel": "mail"}},
        {**session(13), "metadata": {"a b": 1}},
    )
    found = import_lines(store, "acme", io.BytesIO(sent))
    expected = {
        4: "no JSON: ",
        5: "expected a JSON object",
        6: "id: Field required",
        7: "user: ",
        8: "session 's1' of user 'ada' is stored with other content",
        9: "messages: ",
        10: "",
        11: "",
        14: "metadata",
    }
    assert (found.stored, found.known, list(found.refused)) == (3, 1, list(expected))
    assert all(found.refused[line].startswith(start) for line, start in expected.items()), found.refused
    assert [one.owner.user for one in store.users("acme")] == ["ada", "ben", "cleo"]
    again = import_lines(store, "acme", io.BytesIO(sent))
    assert (again.stored, again.known, len(again.refused)) == (0, 4, 9)


def test_a_line_that_is_too_long_ends_the_import_behind_those_before_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MOST_LINE", 500)
    with pytest.raises(UserError, match="line 2 has more than 500 bytes"):
        import_lines(store, "acme", io.BytesIO(lines(session(1), session(2, "ben", "x" * 600), session(3, "cleo"))))
    assert [one.owner.user for one in store.users("acme")] == ["ada"]


def test_the_command_adds_a_file_of_lines(tmp_path: Path, capsys: Any) -> None:
    path, url = tmp_path / "chats.jsonl", str(tmp_path / "memories.sqlite")
    path.write_bytes(lines(session(1), session(2, "ben"), {"user": "x"}))
    with pytest.raises(SystemExit) as ended:
        main(["memories", "add", str(path), "--store", url, "--json"])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert json.loads(told.out) == {"new": 2, "known": 0, "refused": 1}
    assert f"{path}: line 3: id: Field required" in told.err
    with Store(url) as store:
        assert [one.owner.user for one in store.users("default")] == ["ada", "ben"]
