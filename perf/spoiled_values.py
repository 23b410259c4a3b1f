"""Mutants of data files: values of another type, keys twice, numbers that nothing holds, bytes that are no text.

    mutant(name, content, rng) ──> what was done, and the bytes after it

How a file is changed goes by its ending: JSON and JSON lines value by value, CSV and .dat cell by cell, and any of them
by its bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

_MARK = "\x02mark\x02"

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    3.5,
    10**17,
    10**40,
    -(10**40),
    "",
    " ",
    "x",
    "9" * 400,
    "0",
    "-5",
    [],
    [[]],
    [None],
    ["x"],
    {},
    {"a": 1},
    {"content": {}},
    "a\x00b",
    "line\nbreak",
    "\u2028",
    "x" * 100_000,
    "\ufeff",
    "../../etc/passwd",
    "/etc/passwd",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "1000000-01-01",
    "0001-01-01",
    "1700000000",
    "2024-02-30",
    "999999 years 999999 years 999999 years ago",
    "D1:1",
    "\u0663",
    "\u00b2",
)
RAW = (
    '"\\ud800"',
    '"\\udfff\\ud800"',
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "9" * 5000,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    '"\\u0000"',
    '{"a": 1, "a": 2}',
    "tru",
    "'x'",
    "0x10",
    "1e5",
    "",
)
"""What a JSON text may hold in the place of a value, beside `VALUES`."""


def mutant(name: str, content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Changes a file.

    Args:
        name: Its name, whose ending says what it is.
        content: What it holds.
        rng: Chooses.

    Returns:
        What was done, in words, and the new content.
    """
    ways: list[Callable[[str, random.Random], tuple[str, str]]] = _WAYS.get(PurePath(name).suffix, [_lines])
    if rng.random() < 0.15:
        return _bytes(content, rng)
    try:
        told, text = rng.choice(ways)(content.decode(), rng)
    except (ValueError, IndexError):
        return _bytes(content, rng)
    return told, text.encode("utf-8", "surrogatepass")


def _json(text: str, rng: random.Random) -> tuple[str, str]:
    value = json.loads(text)
    told, value, raw = _changed(value, rng)
    dumped = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    for quoted in (json.dumps(_MARK), json.dumps(_MARK, ensure_ascii=False)):
        dumped = dumped.replace(quoted, raw)
    return told, dumped


def _json_lines(text: str, rng: random.Random) -> tuple[str, str]:
    lines = text.split("\n")
    number = rng.choice([n for n, line in enumerate(lines) if line.strip()])
    told, lines[number] = _json(lines[number], rng)
    return f"line {number + 1}: {told}", "\n".join(lines)


def _changed(value: Any, rng: random.Random) -> tuple[str, Any, str]:
    """One change of a parsed value: in words, the value after it, and what takes the mark's place in its JSON."""
    places = list(_places(value, ()))
    # Short paths are few and matter most: half of the changes are near the top.
    near = [place for place in places if len(place) <= 3]
    path = rng.choice(near if near and rng.random() < 0.5 else places or [()])
    where = "/".join(map(str, path)) or "top"
    if not path:
        return f"{where} replaced", rng.choice([*VALUES, _MARK]), rng.choice(RAW)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    last, act = path[-1], rng.randrange(8)
    if act == 0:
        del holder[last]
        return f"{where} deleted", value, ""
    if act == 1 and isinstance(holder, list):
        holder.insert(last, holder[last])
        return f"{where} doubled", value, ""
    if act == 1:
        raw = f"{json.dumps(holder[last])}, {json.dumps(last)}: {json.dumps(rng.choice(VALUES))}"
        holder[last] = _MARK
        return f"{where} given twice", value, raw
    if act == 2 and isinstance(holder, dict):
        holder[rng.choice(["", "x", "\ud800", "9" * 5000, "session_1", "turn_\u00b2", f"{last} "])] = holder.pop(last)
        return f"{where} renamed", value, ""
    if act == 3:
        holder[last] = _MARK
        return f"{where} as raw text", value, rng.choice(RAW)
    new = rng.choice(VALUES)
    told = f"{where} = {json.dumps(new)[:40]}"
    holder[last] = new
    return told, value, ""


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in found:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _csv(text: str, rng: random.Random) -> tuple[str, str]:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[row]))
    act = rng.randrange(4)
    if act == 0:
        del rows[row][column]
    elif act == 1:
        rows.insert(row, list(rows[row]))
    elif act == 2 and rows[row][column][:1] in "[{":
        told = (
            "['\\ud800', 'b']",
            "[1, 2]",
            "[[" * 500,
            "{'content': 5}",
            "[nan, 'x']",
            "{1, 2}",
            "[" + "9" * 5000 + "]",
            "b'x'",
        )
        rows[row][column] = rng.choice(told)
    else:
        new = rng.choice(VALUES)
        rows[row][column] = new if isinstance(new, str) else json.dumps(new)
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return f"row {row + 1}, column {column + 1}, act {act}", out.getvalue()


def _cells(text: str, rng: random.Random) -> tuple[str, str]:
    lines = text.split("\n")
    number = rng.randrange(len(lines))
    parts = lines[number].split("::")
    place = rng.randrange(len(parts))
    new = rng.choice(["", "x", "-1", "0", "1e9", "9" * 30, "9" * 5000, "\u0663", "::", "5", "99999999999", "\x00"])
    parts[place] = new
    lines[number] = "::".join(parts)
    return f"line {number + 1}, cell {place + 1} = {new[:20]!r}", "\n".join(lines)


def _lines(text: str, rng: random.Random) -> tuple[str, str]:
    lines = text.split("\n")
    number, act = rng.randrange(len(lines)), rng.randrange(4)
    if act == 0:
        del lines[number]
    elif act == 1:
        lines.insert(number, lines[number])
    elif act == 2:
        lines[number] = lines[number][: rng.randrange(len(lines[number]) + 1)]
    else:
        rng.shuffle(lines)
    return f"line {number + 1}, act {act}", "\n".join(lines)


def _bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    at = rng.randrange(len(content) + 1)
    flipped = bytearray(content)
    for _ in range(rng.choice((1, 3, 30))):
        if flipped:
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    ways = {
        "cut": content[:at],
        "bits flipped": bytes(flipped),
        "byte-order mark": b"\xef\xbb\xbf" + content,
        "two byte-order marks": b"\xef\xbb\xbf" * 2 + content,
        "UTF-16": content.decode("utf-8", "replace").encode("utf-16"),
        "gzip": gzip.compress(content[:2000]),
        "cut gzip": gzip.compress(content[:2000])[:30],
        "NUL inside": content[:at] + b"\x00" + content[at:],
        "no UTF-8 inside": content[:at] + b"\xff\xed\xa0\x80" + content[at:],
        "empty": b"",
        "blank": b" \n\n",
        "random": rng.randbytes(200),
        "twice": content + content,
        "CRLF": content.replace(b"\n", b"\r\n"),
        "deep": b"[" * 100_000,
    }
    return rng.choice(list(ways.items()))


_WAYS: dict[str, Any] = {
    ".json": [_json],
    ".jsonl": [_json_lines, _json_lines, _json_lines, _lines],
    ".csv": [_csv, _csv, _csv, _lines],
    ".dat": [_cells, _cells, _lines],
    "": [_lines],
}
