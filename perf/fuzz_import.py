"""Mutated exports: every one is imported whole, or refused in one line, with nothing of it in the store.

A small export is changed at random: bytes and characters cut, doubled and exchanged; values replaced by hostile ones
(half characters, numbers of thousands of digits, NaN, times outside the calendar, endless names, deep nesting); fields
dropped and doubled; lines joined, split and repeated. Each is imported into an empty store.

    imported    files that were taken; what was stored must be read, shown and exported again
    refused     one line, a `UserError`
    wrong       anything else: a traceback, a message of several lines, a store that is not as it was

The exit code is 1 if anything is wrong.

Usage:
    $ python perf/fuzz_import.py --count 2000
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mempiler import Session, Store, Turn, UserError
from mempiler.memory.stored import Owner
from mempiler.memory.transfer import export_users, import_users

HOSTILE: tuple[str, ...] = (
    '"\\ud83d"',
    '"\\u0000"',
    '"\\u202eada"',
    "9" * 5000,
    "-" + "9" * 400,
    "1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "[" * 100_000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    '"' + "a" * 100_000 + '"',
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59-14:00"',
    "253402300800000",
    "-99999999999999999999",
    "99999999999999999999999999",
    "null",
    "true",
    "[]",
    "{}",
    '""',
    "-1",
    "0",
    "2147483648",
    "1.5",
    '"{"',
    '"[1]"',
    '"NaN"',
)
"""JSON values, or what looks like them, in the place of good ones."""


def export() -> list[str]:
    """The lines of a small export: two users, sessions of every state, a memory, an open session."""
    said = [Turn(id="", speaker="Ada", text=f"I saw Lisbon {n} times.") for n in range(3)]
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
        for user in ("ada", "bob"):
            for n in range(2):
                store.add(
                    Owner(user, "acme"), Session.model_validate({"id": f"s{n}", "time": "2024-03-05", "turns": said})
                )
            store.append(Owner(user, "acme"), "open", said[:1])
        file = io.StringIO()
        export_users(store, file)
    head, ada, *rest = file.getvalue().splitlines()
    line = json.loads(ada)
    line["items"][0]["state"] = "remembered"
    about = {"writer": "w", "program": "p", "embedder": "", "schema_version": 2, "speakers": ["Ada"]}
    line["document"] = {"memory": "{}", "position": 1, "settled": None, "settled_position": 1, **about}
    return [head, json.dumps(line), *rest]


def mutations(lines: list[str], count: int, seed: int = 0) -> Iterator[list[str]]:
    """So many changed copies of an export, always the same ones for a seed."""
    chance = random.Random(seed)
    ways: list[Callable[[list[str], random.Random], list[str]]] = [_value, _value, _value, _field, _text, _lines]
    for _ in range(count):
        yield chance.choice(ways)(list(lines), chance)


def _value(lines: list[str], chance: random.Random) -> list[str]:
    """Puts something hostile in the place of a value."""
    n = chance.randrange(len(lines))
    found = json.loads(lines[n])
    holders = [(holder, key) for holder, key in _places(found)]
    holder, key = chance.choice(holders)
    holder[key] = "@@@"
    lines[n] = json.dumps(found).replace('"@@@"', chance.choice(HOSTILE), 1)
    return lines


def _field(lines: list[str], chance: random.Random) -> list[str]:
    """Drops a field, renames it, or says it twice."""
    n = chance.randrange(len(lines))
    found = json.loads(lines[n])
    holder, key = chance.choice([(holder, key) for holder, key in _places(found) if isinstance(holder, dict)])
    value = holder.pop(key)
    if chance.random() < 0.5:
        holder[chance.choice(["\ud83d", "\u202e", "x" * 5000, "a\nb", f"{key}2"])] = value
    lines[n] = json.dumps(found)
    return lines


def _text(lines: list[str], chance: random.Random) -> list[str]:
    """Cuts, doubles or exchanges characters."""
    n = chance.randrange(len(lines))
    line = lines[n]
    at, size = chance.randrange(len(line)), chance.choice([1, 1, 2, 50])
    new = chance.choice(["", "", line[at : at + size] * 2, '"', "{", "]", "\x00", "\ud83d", "\\u", ",", "é"])
    lines[n] = line[:at] + new + line[at + size :]
    return lines


def _lines(lines: list[str], chance: random.Random) -> list[str]:
    """Leaves lines out, repeats, joins or splits them."""
    n = chance.randrange(len(lines))
    change = chance.randrange(4)
    if change == 0:
        del lines[n]
    elif change == 1:
        lines.insert(chance.randrange(len(lines) + 1), lines[n])
    elif change == 2:
        lines[n : n + 2] = ["".join(lines[n : n + 2])]
    else:
        lines[n:n] = [chance.choice(HOSTILE), "[1]", '"text"'][: chance.randrange(1, 4)]
    return lines


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value: its holder, and the key or index there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield value, key
        yield from _places(part)


def outcome(lines: list[str], folder: Path) -> str:
    """`imported`, `refused`, or what is wrong with the import of a file."""
    path = folder / "s.sqlite"
    for file in folder.iterdir():
        file.unlink()
    with Store(path) as store:
        try:
            import_users(store, lines, "file")
        except UserError as error:
            message = str(error)
            wrong = "\n" in message or not message.isprintable() or len(message) > 500
            return f"message {message[:200]!r}" if wrong else "half imported" if store.users() else "refused"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        try:
            _used(store)
        except Exception as error:
            return f"cannot be used: {type(error).__name__}: {str(error)[:200]}"
    return "imported"


def _used(store: Store) -> None:
    """Reads everything that was imported, as `show`, `ask` and `export` would."""
    export_users(store, io.StringIO())
    for found in store.users():
        snapshot = store.read(found.owner)
        for item in (*(stored.item for stored in snapshot.waiting), *snapshot.open):
            "\n".join(item.lines()).encode()
        times = [item.time for item in snapshot.open if item.time]
        sorted(times)
        if snapshot.document is not None:
            json.loads(snapshot.document.memory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for lines in mutations(export(), options.count, options.seed):
            came = outcome(lines, Path(folder))
            found[came if came in ("imported", "refused") else "wrong"] += 1
            if came not in ("imported", "refused"):
                wrong.append(came)
    print(json.dumps({"files": options.count, **{name: found[name] for name in ("imported", "refused", "wrong")}}))
    for line in sorted(set(wrong)):
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
