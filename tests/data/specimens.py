"""Small files of every form that is read, each with the function that reads and uses it, and changes of such files."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from hypothesis import strategies as st
from mempiler.data.samples import sample
from mempiler.errors import MempilerError, UserError

from tests.data.forms import FORMS, PREPARED, Files, encoded, load

SAID = [
    {"role": "user", "content": "I moved to Lisbon.", "name": "Ann", "time": "2024-05-01T10:00:00Z"},
    {"role": "assistant", "content": [{"type": "text", "text": "How nice!"}]},
]
ROW = {"user": "ann", "id": "q1", "question": "Where?", "answer": "Lisbon", "category": "places"}


@dataclass(frozen=True)
class Specimen:
    """A file or folder that is read.

    Args:
        files: What is changed, by the path below the folder.
        read: Reads the folder and uses what it holds; raises a MempilerError for what it refuses.
    """

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path], object]

    def write(self, folder: Path) -> None:
        """Puts its files into a folder."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def specimens(folder: Path) -> list[Specimen]:
    """All of them; some are made in an empty folder."""
    return [*_benchmarks(), *_histories(folder), *_judging(), *_stored(folder)]


MOVIELENS = {
    "ratings.dat": "".join(f"1::{n % 2 + 1}::{n % 5 + 1}::{978300760 + n}\n" for n in range(9)),
    "users.dat": "1::F::25::20::48067\n",
    "movies.dat": "1::Amélie: Le Film (2001)::Comedy|Romance\n2::Odd::Title (1999)::Drama\n",
}


def _benchmarks() -> Iterator[Specimen]:
    for name, files in FORMS.items():
        yield _benchmark(name, files)
    yield _benchmark("personamem-v2", FORMS["personamem-v2"], metric="mcq")
    yield _benchmark("movielens", MOVIELENS, min_ratings=3, questions=2)
    yield _benchmark("omnibehavior", PREPARED)
    for part in ("generate", "select"):
        yield _benchmark(f"palbench.{part}", FORMS["palbench.restate"])


def _histories(folder: Path) -> Iterator[Specimen]:
    past = load(folder / "past", "omnibehavior").examples[0].history.model_dump(mode="json")
    yield _benchmark("jsonl", {"own.jsonl": [{**ROW, "history": past, "evidence": ["D1:1"]}]})
    yield Specimen("sessions", {"history.json": json.dumps([SAID] * 2).encode()}, _history)


def _judging() -> Iterator[Specimen]:
    from mempiler.data.judge_check import read_labelled

    with sample("judge_check.jsonl") as file:
        head = b"".join(file.read_bytes().splitlines(keepends=True)[:4])
        yield Specimen("labelled", {"labelled.jsonl": head}, lambda at: read_labelled(at / "labelled.jsonl"))


def _stored(folder: Path) -> Iterator[Specimen]:
    from mempiler import Store, Turn, build, save
    from mempiler.memory.stored import Owner
    from mempiler.memory.transfer import export_users
    from mempiler.runs.artifact import load
    from mempiler.serving.auth import read_tokens

    save(build("turn-rag"), folder / "program")
    program = {path.name: path.read_bytes() for path in (folder / "program").iterdir()}
    yield Specimen("program", program, load)
    yield Specimen("program-resealed", program, _resealed)
    with Store(folder / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ann")
        memory.add(SAID[:1])
        memory.remember()
        store.append(Owner("bob"), "open", [Turn(id="", speaker="Bob", text="I like tea.")])
        lines = io.StringIO()
        export_users(store, lines)
    yield Specimen("memories", {"memories.jsonl": lines.getvalue().encode()}, _imported)
    tokens = b"# tokens\nacme a-long-random-token\nglobex sha256:" + hashlib.sha256(b"x").hexdigest().encode() + b"\n"
    yield Specimen("tokens", {"tokens": tokens}, lambda at: read_tokens(at / "tokens"))


def _benchmark(name: str, files: Files, **options: Any) -> Specimen:
    """Files of a benchmark, of which the first is named, or the folder where they are tables."""
    main = next(iter(files))
    path = "" if main.endswith(".dat") else main

    def read(at: Path) -> None:
        from mempiler.data.catalog import benchmark
        from mempiler.data.check import check

        # A check never raises; what it calls usable is what loads.
        json.dumps(check(name, at / path).to_dict()).encode()
        _used(benchmark(name, at / path, **options))

    return Specimen(name, {each: encoded(each, value) for each, value in files.items()}, read)


def _used(loaded: Any) -> None:
    """A benchmark as a run uses it: split, rendered, hashed, scored by what needs no judge."""
    import dspy

    for example in loaded.examples[:4]:
        _rendered(example.history)
        json.dumps({"id": example.id, "question": example.question}, ensure_ascii=False).encode()
        _ = loaded.group(example), loaded.category(example), loaded.counts(example)
        with contextlib.suppress(MempilerError):
            loaded.score(example, dspy.Prediction(answer="Lisbon"))
    with contextlib.suppress(MempilerError):
        loaded.split()


def _rendered(history: Any) -> str:
    return history.digest + "".join(line for item in history.items for line in item.lines())


def _history(at: Path) -> None:
    from mempiler.records import History

    _rendered(History.load(at / "history.json"))


def _resealed(at: Path) -> None:
    """As who changes a program on purpose would: with the digests that belong to it."""
    from mempiler.runs.artifact import load

    with contextlib.suppress(Exception):
        manifest = json.loads((at / "manifest.json").read_text(encoding="utf-8"))
        manifest["state_sha256"] = hashlib.sha256((at / "state.json").read_bytes()).hexdigest()
        manifest.pop("manifest_sha256")
        # A field that came later is part of the digest where it holds something.
        kept = {name: value for name, value in manifest.items() if value or name != "lm_settings"}
        text = json.dumps(kept, sort_keys=True)
        manifest["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        (at / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    load(at)


def _imported(at: Path) -> None:
    """An export is imported whole, and can be read and exported again; or nothing of it is in the store."""
    from mempiler import Store
    from mempiler.memory.transfer import export_users, import_users

    with (at / "memories.jsonl").open(encoding="utf-8") as lines, Store(at / "store.sqlite") as store:
        try:
            import_users(store, lines, "memories.jsonl")
        except UserError:
            assert store.users() == []
            raise
        export_users(store, io.StringIO())
        for found in store.users():
            snapshot = store.read(found.owner)
            for item in (*(stored.item for stored in snapshot.waiting), *snapshot.open):
                "\n".join(item.lines()).encode()


MARK = "\x02mark\x02"
TEXTS = ("", " ", "x", "9" * 400, "-5", "a\x00b", "line\nbreak", "\u2028", "x" * 100_000, "\ufeff", "../../etc/passwd")
TIMES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1000000-01-01", "2024-02-30", "1700000000")
VALUES: tuple[Any, ...] = (None, True, 0, -1, 3.5, 10**17, -(10**40), [], [None], {}, {"content": {}}, *TEXTS, *TIMES)
RAW = (
    *('"\\ud800"', '"\\u0000"', "NaN", "-Infinity", "1e400", "9" * 5000, "[" * 100_000 + "]" * 100_000),
    *('{"a":' * 2000 + "1" + "}" * 2000, '{"a": 1, "a": 2}', "tru", "'x'", "0x10", ""),
)
"""What a JSON text may hold in the place of a value, beside `VALUES`."""
CELLS = (*TEXTS, *TIMES, "[" * 500, "['\\ud800', 'b']", "[" + "9" * 5000 + "]", "::", "1e9", "\u0663")


def changed(draw: Callable[..., Any], name: str, content: bytes) -> bytes:
    """A file with one change: a value, a cell, a line or bytes, as its ending suggests.

    Args:
        draw: Chooses, as Hypothesis' `data.draw` does.
        name: Its name.
        content: What it holds.
    """
    ways = {".json": [_value], ".jsonl": [_line_value, _lines], ".csv": [_cell, _lines], ".dat": [_cell, _lines]}
    way = draw(st.sampled_from([*ways.get(PurePath(name).suffix, [_lines]), None]))
    text = content.decode(errors="surrogateescape")
    return way(draw, text).encode(errors="surrogateescape") if way and text.strip() else _bytes(draw, content)


def _value(draw: Callable[..., Any], text: str) -> str:
    value, raw = json.loads(text), draw(st.sampled_from(RAW))
    place = draw(st.sampled_from([*_places(value), None]))
    if place is None:
        return draw(st.sampled_from([json.dumps(each) for each in VALUES] + list(RAW)))
    (holder, key), act = place, draw(st.sampled_from(("delete", "replace", "raw", "rename", "double")))
    if act == "delete":
        del holder[key]
    elif act == "rename" and isinstance(holder, dict):
        holder[draw(st.sampled_from(["", "\ud800", "9" * 5000, "turn_\u00b2", f"{key} "]))] = holder.pop(key)
    elif act == "double" and isinstance(holder, dict):
        holder[key], raw = MARK, f"{json.dumps(holder[key])}, {json.dumps(key)}: {raw}"
    elif act == "double":
        holder.insert(key, holder[key])
    else:
        holder[key] = MARK if act == "raw" else draw(st.sampled_from(VALUES))
    return json.dumps(value).replace(json.dumps(MARK), raw)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, those near the top first: its holder, and the key or index there."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    yield from ((value, key) for key, _ in inside)
    for _, part in inside:
        yield from _places(part)


def _line_value(draw: Callable[..., Any], text: str) -> str:
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    return "\n".join([*lines[:at], _value(draw, lines[at]), *lines[at + 1 :]])


def _cell(draw: Callable[..., Any], text: str) -> str:
    """A cell between commas or double colons."""
    parts = re.split("(,|::|\n)", text)
    at = draw(st.integers(0, len(parts) // 2)) * 2
    parts[at : at + 1] = draw(st.sampled_from([[], *([each] for each in CELLS)]))
    return "".join(parts)


def _lines(draw: Callable[..., Any], text: str) -> str:
    lines = text.split("\n")
    at, line = draw(st.integers(0, len(lines) - 1)), lines[draw(st.integers(0, len(lines) - 1))]
    new = draw(st.sampled_from([[], [line, line], [line[: len(line) // 2]], ["[1]", *RAW[:1]]]))
    return "\n".join([*lines[:at], *new, *lines[at + 1 :]])


def _bytes(draw: Callable[..., Any], content: bytes) -> bytes:
    at = draw(st.integers(0, len(content)))
    ways = [content[:at], content[:at] + b"\x00" + content[at:], content[:at] + b"\xff\xed\xa0\x80" + content[at:]]
    ways += [b"\xef\xbb\xbf" * 2 + content, content.decode("utf-8", "replace").encode("utf-16"), content + content]
    ways += [gzip.compress(content[:2000])[:-30], b"", b" \n\n", content.replace(b"\n", b"\r\n"), b"[" * 100_000]
    return draw(st.one_of(st.sampled_from(ways), st.binary(max_size=200)))
