"""The arena: finished runs side by side, whatever was scored, each row with what it rests on and what it took.

    run folders ── entries ──> Entry per run ──> arena.json, and one page (`arena_page`)

A run that failed is a row with its reason. Rows are told apart by what they rest on: benchmark, data, metric, model,
judge; scores of different ones are not comparable, and the page says which. `junk`, `right` and the costs are those of
`results.Evaluation`. The view without wrong golds leaves out questions whose gold answer is known to be wrong, by a
file of the user's; it stands beside the official score, never in its place.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..errors import DataError, UserError
from ..records.json_input import decode, read_text
from ..records.whole_file import refuse_foreign, replacing
from .compare import Recorded, recorded
from .folder import RUN, RunFolder
from .home import make_folder
from .leniency import leniency
from .results import SHOWN, Evaluation, Expense, Row
from .statistics import interval

NO_ERROR_OF_THE_GOLD = frozenset({"WRONG_CITATION"})
"""Kinds of findings of audits that leave the gold answer right."""
FLAGS = {
    "data": "--data",
    "lm": "--lm",
    "temperature": "--temperature",
    "judge_lm": "--judge-lm",
    "embedder": "--embedder",
    "adapter": "--adapter",
    "train": "--train",
    "dev": "--dev",
    "test": "--test",
    "seed": "--seed",
    "part": "--part",
}
"""Settings of a run that its command line names."""


class View(BaseModel):
    """A score with its interval."""

    model_config = ConfigDict(frozen=True)

    n: int
    score: float | None
    low: float | None
    high: float | None
    unit: str | None
    """What was resampled: groups or questions."""


class Entry(BaseModel):
    """One row of the arena."""

    model_config = ConfigDict(frozen=True)

    run: str
    """Name of the run's folder."""
    hash: str
    """sha256 of the run's settings and scored questions."""
    command: str
    """What makes it again, but for where data and servers are."""
    versions: dict[str, str]
    program: str
    basis: dict[str, Any]
    """What the score rests on: benchmark, data, metric, models."""
    official: View | None = None
    corrected: View | None = None
    """Without the questions whose gold answer is known to be wrong."""
    judge: str | None = None
    leniency: float | None = None
    """Share of wrong answers that the judge accepts, where it was checked."""
    comparable: bool = False
    recall: float | None = None
    """Evidence recall of what was shown."""
    failures: int = 0
    reason: str = ""
    """What the run, or most of its failed questions, failed of."""
    writing: Expense | None = None
    answering: Expense | None = None
    taken: Expense | None = None
    disk: int | None = None
    right: int = 0
    cost_per_right: float | None = None
    tokens_per_right: float | None = None
    junk: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of writing and answering, in and out."""
        return self.taken.input_tokens + self.taken.output_tokens if self.taken else 0


@dataclass(frozen=True)
class WrongGolds:
    """Questions whose gold answer is known to be wrong."""

    ids: frozenset[str]
    questions: frozenset[str]

    def names(self, row: Row) -> bool:
        """Whether a question is among them, by its id or its words."""
        return row.id in self.ids or _plain(row.question) in self.questions


def entries(names: Sequence[str], wrong: WrongGolds | None = None) -> list[Entry]:
    """The rows of runs, best first within what they rest on.

    Args:
        names: Runs, or folders with runs in them.
        wrong: Questions to leave out of a second view.

    Raises:
        UserError: There is no such run.
        DataError: Its files are not what a run writes.
    """
    found = [_entry(name, wrong) for name in _runs(names)]
    return sorted(found, key=lambda each: (json.dumps(each.basis, sort_keys=True), -_score(each), each.run))


def write(found: Sequence[Entry], folder: Path) -> tuple[Path, Path]:
    """Writes `index.html` and `arena.json` into a folder.

    Raises:
        UserError: It cannot be written, or holds something else.
    """
    from .arena_page import page

    make_folder(folder)
    html, data = folder / "index.html", folder / "arena.json"
    refuse_foreign(folder, '"entries"', data.name)
    with replacing(html) as file:
        file.write(page(found))
    with replacing(data) as file:
        json.dump({"entries": [each.model_dump(mode="json") for each in found]}, file, indent=1, ensure_ascii=False)
    return html, data


def read_wrong_golds(paths: Sequence[str | Path]) -> WrongGolds | None:
    """Reads files of wrong golds; None where they name none.

    Args:
        paths: JSON lists, or JSON lines, of objects with `id` or `question`. Other fields, such as the right answer,
            are for people; of an audit's findings (`error_type`), those of citations alone do not count.

    Raises:
        DataError: One is no such file.
    """
    ids, questions = set[str](), set[str]()
    for path in map(Path, paths):
        for row in _objects(path):
            if row.get("error_type") in NO_ERROR_OF_THE_GOLD:
                continue
            named = [row[key] for key in ("id", "question") if isinstance(row.get(key), str)]
            if not named:
                raise DataError(f"{path}: an entry has neither a text `id` nor `question`")
            if isinstance(row.get("id"), str):
                ids.add(row["id"])
            else:
                questions.add(_plain(row["question"]))
    return WrongGolds(frozenset(ids), frozenset(questions)) if ids or questions else None


def _objects(path: Path) -> list[dict[str, Any]]:
    text = read_text(path)
    try:
        whole = text.lstrip().startswith("[")
        found = decode(text) if whole else [decode(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        raise DataError(f"{path}: is neither a JSON list nor JSON lines: {error}") from None
    if not all(isinstance(row, dict) for row in found):
        raise DataError(f"{path}: holds what is no object; expected {{id}} or {{question}}")
    return found


def _runs(names: Sequence[str]) -> list[str]:
    """Every run that is named, or is in a folder that is."""
    found: list[str] = []
    for name in names:
        folder = Path(name)
        inside = [] if (folder / RUN).is_file() else sorted(folder.glob(f"*/{RUN}"))
        if folder.is_dir() and not inside and not (folder / RUN).is_file():
            raise UserError(f"{name}: holds no run; name a run's folder, or the folder of runs")
        found += [str(path.parent) for path in inside] or [name]
    return list(dict.fromkeys(found))


def _entry(name: str, wrong: WrongGolds | None) -> Entry:
    folder = RunFolder.open(name)
    record = folder.read()
    settings = record["settings"]
    about: dict[str, Any] = {
        "run": folder.path.resolve().name,
        "command": _command(settings),
        "versions": record.get("versions") or {},
    }
    if not isinstance(record.get("result"), dict):
        reason = str(record.get("error") or f"has no result (status {record.get('status')})")
        basis = {"benchmark": settings.get("benchmark")}
        return Entry(**about, hash=_hash([settings]), program=str(settings.get("program")), basis=basis, reason=reason)
    return _scored(recorded(str(folder.path)), about, wrong)


def _scored(run: Recorded, about: Mapping[str, Any], wrong: WrongGolds | None) -> Entry:
    found = run.evaluation
    taken, right = found.taken, found.right
    tokens = taken.input_tokens + taken.output_tokens
    kept = [row for row in found.counted if wrong is None or not wrong.names(row)]
    return Entry(
        **about,
        hash=_hash([run.settings, *(row.model_dump(mode="json") for row in found.rows)]),
        program=found.program,
        basis={**run.basis, "benchmark": found.benchmark},
        official=_view(found.counted),
        corrected=_view(kept) if len(kept) < found.n else None,
        judge=found.judge,
        leniency=leniency(found.judge),
        comparable=found.comparable,
        recall=found.retrieval().get(SHOWN),
        failures=found.failures,
        reason=_reason(found),
        writing=found.construction,
        answering=found.answering,
        taken=taken,
        disk=found.disk,
        right=right,
        cost_per_right=taken.cost / right if right and taken.cost is not None else None,
        tokens_per_right=tokens / right if right else None,
        junk=found.junk,
    )


def _view(rows: Sequence[Row]) -> View:
    scores = [row.score for row in rows]
    span = interval(scores, [row.group for row in rows])
    low, high, unit = (span.low, span.high, span.unit) if span else (None, None, None)
    return View(n=len(rows), score=sum(scores) / len(scores) if scores else None, low=low, high=high, unit=unit)


def _reason(found: Evaluation) -> str:
    """Why there is less than a score: what stopped the run, or what most of its failed questions failed of."""
    if found.stopped:
        return found.stopped
    counts = Counter(row.failure.message for row in found.rows if row.failure)
    if not counts:
        return ""
    (message, count), *_ = counts.most_common(1)
    return f"{count} of {len(found.rows)} questions: {message}"


def _command(settings: Mapping[str, Any]) -> str:
    words = ["mempiler", str(settings.get("command")), str(settings.get("program"))]
    words += ["--on", str(settings.get("benchmark"))]
    for key, flag in FLAGS.items():
        value = settings.get(key)
        if value not in (None, "all"):
            words += [flag, Path(value).name if key == "data" else str(value)]
    for key, value in (settings.get("options") or {}).items():
        words += ["--option", f"{key}={value}"]
    for key, value in (settings.get("config") or {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    if settings.get("command") == "compile":
        words += ["--with", str(settings.get("optimizer"))]
    return shlex.join(words)


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _score(entry: Entry) -> float:
    return entry.official.score if entry.official and entry.official.score is not None else -1.0


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
