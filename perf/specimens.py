"""Small files of every form that Mempiler reads, each with the function that reads and uses it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROW = {
    "user": "ann",
    "id": "q1",
    "messages": [
        {"role": "user", "content": "I moved to Lisbon.", "name": "Ann", "time": "2024-05-01T10:00:00Z"},
        {"role": "assistant", "content": [{"type": "text", "text": "How nice!"}]},
    ],
    "question": "Where does Ann live?",
    "answer": "Lisbon",
    "evidence": ["D1:1"],
    "category": "places",
}
_HISTORY = {
    "id": "ann",
    "items": [
        {
            "kind": "session",
            "id": "D1",
            "time": "2024-05-01T10:00:00",
            "turns": [{"id": "D1:1", "speaker": "Ann", "text": "I moved.", "caption": "a house", "time": "2024-05-01"}],
        },
        {"kind": "logs", "id": "L2", "turns": [{"id": "L2:1", "speaker": "log", "text": "door opened"}]},
        {
            "kind": "behavior",
            "id": "B3",
            "time": "2024-05-02T10:00:00+02:00",
            "turns": [{"id": "a1", "speaker": "user", "text": "video; a film => liked"}],
            "actions": [{"id": "a1", "scene": "video", "situation": "a film", "action": "liked"}],
        },
    ],
}


@dataclass(frozen=True)
class Specimen:
    """A file or folder that is read.

    Args:
        name: What it is.
        files: What is changed, by the path below the folder.
        read: Reads the folder and uses what it holds; raises a MempilerError for what it refuses.
        changes_folder: Whether reading writes into the folder.
    """

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path], object]
    changes_folder: bool = False


def specimens(folder: Path) -> list[Specimen]:
    """All of them.

    Args:
        folder: An empty folder to make some in.
    """
    return [*_benchmarks(), *_histories(), *_judging(), *_stored(folder)]


def _benchmarks() -> Iterator[Specimen]:
    from mempiler.data.samples import sample

    with sample() as samples:
        whole: Any = lambda name: json.loads((samples / name).read_text(encoding="utf-8"))  # noqa: E731
        for name in ("locomo", "longmemeval", "implexconv"):
            files = {f"{name}.json": _dumped(whole(f"{name}.json"), 3)}
            yield Specimen(name, files, _loader(name, f"{name}.json"))
        yield Specimen("msc", {"msc.jsonl": _head(samples / "msc.jsonl", 3)}, _loader("msc", "msc.jsonl"))
        cleaned = [json.loads(line) for line in _head(samples / "msc.jsonl", 2).decode().splitlines()]
        yield Specimen("msc-list", {"msc.json": _dumped(cleaned, 4)}, _loader("msc", "msc.json"))
        questions = _csv_head(samples / "personamem_questions.csv", 6)
        contexts = _head(samples / "personamem_shared_contexts.jsonl", 9)
        files = {"questions_32k.csv": questions, "shared_contexts_32k.jsonl": contexts}
        yield Specimen("personamem", files, _loader("personamem", "questions_32k.csv"))
        files = {f"personamem_v2_{n}.json": (samples / f"personamem_v2_{n}.json").read_bytes() for n in range(2)}
        files["benchmark.csv"] = _csv_head(samples / "personamem_v2.csv", 4)
        yield Specimen("personamem-v2", files, _loader("personamem-v2", "benchmark.csv", metric="mcq"))
        files = {f"user{n}.json": _dumped(whole(f"memoryquest/user{n}.json"), 4) for n in (1, 2)}
        yield Specimen("memoryquest", files, _loader("memoryquest", ""))
        files = {name: _head(samples / "movielens" / name, 60) for name in ("movies.dat", "users.dat", "ratings.dat")}
        yield Specimen("movielens", files, _loader("movielens", "", min_ratings=3, questions=2))
        ((user, record),) = whole("omnibehavior/u01.json").items()
        raw = {user: {**record, "action_history": record["action_history"][::8]}}
        yield Specimen("omnibehavior", {"u01.json": _dumped(raw, 400)}, _loader("omnibehavior", ""))
        experiment = whole("omnibehavior_prepared/experiment_data.json")
        prepared = {"data.json": _dumped({**experiment, "users": experiment["users"][:1]}, 400)}
        yield Specimen("omnibehavior-prepared", prepared, _loader("omnibehavior", "data.json"))
        files = {
            f"{name}.json": _dumped(whole(f"palset/{name}.json"), 2)
            for name in ("input", "background", "preference", "requirement_framework", "situation")
        }
        yield Specimen("palbench", files, _palset)


def _histories() -> Iterator[Specimen]:
    yield Specimen(
        "jsonl",
        {"own.jsonl": f"{json.dumps(_ROW)}\n{json.dumps({**_ROW, 'id': 'q2'})}\n".encode()},
        _loader("jsonl", "own.jsonl"),
    )
    row = {**_ROW, "history": _HISTORY, "evidence": ["L2:1"]}
    del row["messages"]
    yield Specimen("jsonl-history", {"own.jsonl": json.dumps(row).encode()}, _loader("jsonl", "own.jsonl"))
    for name, value in (("history", _HISTORY), ("messages", _ROW["messages"]), ("sessions", [_ROW["messages"]] * 2)):
        yield Specimen(name, {"history.json": json.dumps(value).encode()}, _history, True)
    profile = {
        "demographics": {"user_id": "user0", "age": "30"},
        "interactions": {"food": "Likes soup."},
        "affinities": {"music": {"genre": ["jazz", "rock"]}},
    }
    yield Specimen("personalens", {"user0_profile.json": json.dumps(profile).encode()}, _profiles)


def _judging() -> Iterator[Specimen]:
    from mempiler.data.judge_check import read_agreement, read_labelled
    from mempiler.data.samples import sample

    with sample("judge_check.jsonl") as file:
        yield Specimen("labelled", {"labelled.jsonl": _head(file, 4)}, lambda at: read_labelled(at / "labelled.jsonl"))
    agreement = {"labels.csv": b"human,judge\nA,A\nB,A\ntie,B\n"}
    yield Specimen("agreement", agreement, lambda at: read_agreement(at / "labels.csv").to_dict())


def _stored(folder: Path) -> Iterator[Specimen]:
    from mempiler import Store, build
    from mempiler.memory.stored import Owner
    from mempiler.memory.transfer import export_users
    from mempiler.runs.artifact import save
    from mempiler.service.tokens import read_tokens

    save(build("turn-rag"), folder / "program")
    program = {path.name: path.read_bytes() for path in (folder / "program").iterdir()}
    yield Specimen("program", program, _program)
    yield Specimen("program-resealed", program, _resealed)
    yield Specimen("run", _run(folder / "run"), _recorded)
    with Store(folder / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ann")
        memory.add([{"role": "user", "content": "I moved to Lisbon."}])
        memory.remember()
        store.add(Owner("bob", "default"), *_incoming())
        lines = io.StringIO()
        export_users(store, lines)
    yield Specimen("memories", {"memories.jsonl": lines.getvalue().encode()}, _imported, changes_folder=True)
    tokens = b"# tokens\nacme a-long-random-token\nglobex sha256:" + hashlib.sha256(b"x").hexdigest().encode() + b"\n"
    yield Specimen("tokens", {"tokens": tokens}, lambda at: read_tokens(at / "tokens"))
    line = json.dumps({"key": "k", "step": "s", "id": "user0", "value": {"a": 1}})
    yield Specimen("journal", {"journal.jsonl": f"{line}\n{line}\n".encode()}, _journal, changes_folder=True)


def _loader(benchmark: str, file: str, **options: Any) -> Callable[[Path], object]:
    def read(at: Path) -> object:
        from mempiler.data.catalog import benchmark as load
        from mempiler.data.check import check

        # A check never raises; what it calls usable is what loads.
        report = check(benchmark, at / file)
        json.dumps(report.to_dict()).encode()
        return _used(load(benchmark, at / file, **options))

    return read


def _used(benchmark: Any) -> object:
    """A benchmark as a run uses it: split, rendered, hashed, scored by what needs no judge."""
    import dspy
    from mempiler.errors import MempilerError

    for example in benchmark.examples[:4]:
        _rendered(example.history)
        json.dumps({"id": example.id, "question": example.question}, ensure_ascii=False).encode()
        _ = benchmark.group(example), benchmark.category(example), benchmark.counts(example)
        with contextlib.suppress(MempilerError):
            benchmark.score(example, dspy.Prediction(answer="Lisbon"))
    with contextlib.suppress(MempilerError):
        benchmark.split()
    return benchmark


def _rendered(history: Any) -> str:
    return history.digest + "".join(line for item in history.items for line in item.lines())


def _palset(at: Path) -> None:
    from mempiler.data.palbench.statistics import statistics_of
    from mempiler.data.synthesis.palset.validate import validate
    from mempiler.errors import MempilerError

    with contextlib.suppress(MempilerError):
        validate(at / "input.json")
    with contextlib.suppress(MempilerError):
        statistics_of(at / "input.json")
    for part in ("restate", "generate", "select"):
        _loader(f"palbench.{part}", "input.json")(at)


def _history(at: Path) -> None:
    from mempiler import Store
    from mempiler.cli.memories import _sessions  # pyright: ignore[reportPrivateUsage]
    from mempiler.memory.incoming import incoming
    from mempiler.memory.stored import Owner
    from mempiler.records import History

    history = History.load(at / "history.json")
    _rendered(history)
    with Store(at / "store.sqlite") as store:
        for session in _sessions(str(at / "history.json")):
            store.add(Owner("ann", "default"), *incoming(*session))


def _profiles(at: Path) -> None:
    from mempiler.data.synthesis.personalens import read_profiles

    json.dumps([profile.domain_summaries for profile in read_profiles(at)], ensure_ascii=False).encode()


def _program(at: Path) -> None:
    from mempiler.runs.artifact import is_intact, load

    is_intact(at)
    load(at)


def _resealed(at: Path) -> None:
    """As who changes a program on purpose would: with the digests that belong to it."""
    with contextlib.suppress(Exception):
        manifest = json.loads((at / "manifest.json").read_text(encoding="utf-8"))
        manifest["state_sha256"] = hashlib.sha256((at / "state.json").read_bytes()).hexdigest()
        manifest.pop("manifest_sha256")
        text = json.dumps(manifest, sort_keys=True)
        manifest["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        (at / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    _program(at)


def _run(folder: Path) -> dict[str, bytes]:
    from mempiler.runs.compare import keep_rows
    from mempiler.runs.folder import RunFolder
    from mempiler.runs.results import Evaluation, Row

    row: dict[str, Any] = {"id": "q1", "group": "g", "category": "4", "question": "What?", "gold": "a", "answer": "a"}
    row |= {"score": 1.0, "parts": {"f1": 1.0}, "recall": {}, "counts": True, "seconds": 0.5, "sources": ()}
    told: dict[str, Any] = {"program": "turn-rag", "benchmark": "locomo", "lm": "offline", "embedder": None}
    told |= {"comparable": False, "calls": {"task": 2}, "tokens": {"input": 1, "output": 1}, "cost": None}
    rows = tuple(Row.model_validate({**row, "id": f"q{n}"}) for n in range(2))
    found = Evaluation(rows=rows, write_failures=0, seconds=1.0, names={"4": "single-hop"}, **told)
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.write({"settings": {"command": "evaluate", "options": {}}, "status": "finished", "result": found.summary()})
    keep_rows(run, "evaluation", found)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".png"}


def _recorded(at: Path) -> None:
    from mempiler.runs.compare import compare, recorded
    from mempiler.runs.folder import RunFolder

    found = recorded(str(at))
    json.dumps([compare(found, found).to_dict(), found.usage()]).encode()
    RunFolder.resume(str(at), {"command": "evaluate", "options": {}})


def _imported(at: Path) -> None:
    from mempiler import Store
    from mempiler.memory.transfer import import_users

    with (at / "memories.jsonl").open(encoding="utf-8") as lines, Store(at / "store.sqlite") as store:
        import_users(store, lines, "memories.jsonl")


def _incoming() -> tuple[Any, str]:
    from mempiler.memory.incoming import incoming

    return incoming([{"role": "user", "content": "I like tea.", "time": "2024-05-01T10:00:00"}], "s1")


def _journal(at: Path) -> None:
    from mempiler.data.synthesis.journal import Journal

    with Journal.open(at / "journal.jsonl", resume=True) as journal:
        assert len(journal) >= 0


def _dumped(value: Any, most: int) -> bytes:
    return json.dumps(_trimmed(value, most), ensure_ascii=False).encode()


def _trimmed(value: Any, most: int) -> Any:
    """The value with the first entries of each list."""
    if isinstance(value, list):
        return [_trimmed(each, most) for each in value[:most]]
    return {key: _trimmed(each, most) for key, each in value.items()} if isinstance(value, dict) else value


def _head(path: Path, count: int) -> bytes:
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])


def _csv_head(path: Path, count: int) -> bytes:
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))[: count + 1]
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()
