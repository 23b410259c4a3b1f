"""What is in a benchmark file and what is wrong with it, row by row, before any money is spent on it.

The checks are the readers themselves, told to go on instead of stopping: what a check calls fatal is exactly what
`load` refuses, and what it calls odd is exactly what `load` copes with.

Example:
    >>> report = check_locomo("locomo10.json")
    >>> report.ok, report.counts["conversations"]
    (True, 10)

Honest limits: only the form is checked, not whether a gold answer is right. Counts leave out what could not be read.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import DataError, UnknownNameError
from .benchmark import Finding, Note, Reading
from .implexconv.benchmark import KINDS, read_implexconv
from .jsonl.benchmark import read_jsonl
from .locomo.reader import CATEGORIES, read_locomo
from .longmemeval.reader import TYPES, file_of, read_longmemeval
from .memoryquest.reader import read_memoryquest
from .movielens.reader import FIELD, read_movielens
from .msc.reader import read_msc
from .omnibehavior.reader import read_omnibehavior
from .omnibehavior.scenes import QUESTIONS
from .palbench.benchmark import read_for_check
from .palbench.reader import files_of
from .personamem.reader import SKILLS, read_personamem
from .personamem.release import questions_of
from .personamem_v2.benchmark import read_personamem_v2
from .synthesis.palset.validate import validate


@dataclass(frozen=True)
class Report:
    """What a check found."""

    path: str
    benchmark: str
    """The benchmark that the file was read as."""
    counts: Mapping[str, int]
    """How many conversations, sessions, turns, image turns, questions, and questions of each category."""
    rows: tuple[Finding, ...]
    """Everything odd or wrong, in file order."""

    @property
    def ok(self) -> bool:
        """Whether the benchmark would load the file."""
        return not any(row.fatal for row in self.rows)

    @property
    def kinds(self) -> dict[str, int]:
        """How many rows there are of each kind, most frequent first."""
        return dict(Counter(row.kind for row in self.rows).most_common())

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        rows = [asdict(row) for row in self.rows]
        return {**vars(self), "counts": dict(self.counts), "ok": self.ok, "kinds": self.kinds, "rows": rows}


def check_locomo(path: str | Path) -> Report:
    """Checks a file of LoCoMo's form; categories are counted as e.g. "category 1 multi-hop".

    Never raises for what is in the file: one that cannot be read at all is a report with one fatal row.
    """
    return _check(Path(path), "locomo", read_locomo, CATEGORIES)


def check_jsonl(path: str | Path) -> Report:
    """Checks a JSON-lines file; see `check_locomo`."""
    return _check(Path(path), "jsonl", read_jsonl, {})


def check_longmemeval(path: str | Path, size: str | None = None) -> Report:
    """Checks a file of LongMemEval's form, or that of a size in a folder; a type that is absent is counted 0."""

    def read(path: Path, note: Note) -> Reading:
        return read_longmemeval(file_of(path, size), note)

    return _check(Path(path), "longmemeval", read, dict.fromkeys(TYPES, ""))


def check_memoryquest(path: str | Path) -> Report:
    """Checks a file or folder of MemoryQuest's form; see `check_locomo`."""
    return _check(Path(path), "memoryquest", read_memoryquest, {})


def check_msc(path: str | Path) -> Report:
    """Checks a file of MSC-Self-Instruct's form; see `check_locomo`."""
    return _check(Path(path), "msc", read_msc, {})


def check_palbench(path: str | Path, strict: bool = False) -> Report:
    """Checks PAL-Set's files; a folder's Chinese and English ones both. Counted are all parts' topics once.

    Args:
        path: A data file, or a folder of them.
        strict: Whether everything is remarked on that the released form does not have, also what readers cope with.
    """

    def read(path: Path, note: Note) -> Reading:
        for file in files_of(path, "all") if strict else ():
            for fault in validate(file):
                note(fault)
        return read_for_check(path, note)

    return _check(Path(path), "palbench", read, {})


def check_movielens(path: str | Path) -> Report:
    """Checks every row of MovieLens-1M; counted are the users and ratings that `load` takes by default."""
    return _check(Path(path), "movielens", read_movielens, {FIELD: ""})


def check_omnibehavior(path: str | Path) -> Report:
    """Checks OmniBehavior's raw files, or a prepared one; a field that is not asked is counted 0."""
    return _check(Path(path), "omnibehavior", read_omnibehavior, dict.fromkeys(QUESTIONS, ""))


def check_implexconv(path: str | Path) -> Report:
    """Checks a file of ImplexConv's form; see `check_locomo`."""
    return _check(Path(path), "implexconv", read_implexconv, dict.fromkeys(KINDS, ""))


def check_personamem(path: str | Path, contexts: str | Path | None = None, length: str | None = None) -> Report:
    """Checks PersonaMem v1's questions with their contexts; a skill that is absent is counted 0.

    Args:
        path: The questions, or the folder of the released files.
        contexts: The file of the contexts; the one beside the questions if None.
        length: "32k", "128k" or "1M", for a folder that holds several.
    """

    def read(path: Path, note: Note) -> Reading:
        return read_personamem(questions_of(path, length), note, Path(contexts) if contexts else None)

    return _check(Path(path), "personamem", read, dict.fromkeys(SKILLS, ""))


def check_personamem_v2(path: str | Path) -> Report:
    """Checks PersonaMem v2's questions with the 32k chat histories they link to; see `check_locomo`."""
    return _check(Path(path), "personamem-v2", read_personamem_v2, {})


CHECKS: Mapping[str, Callable[..., Report]] = MappingProxyType(
    {
        "implexconv": check_implexconv,
        "jsonl": check_jsonl,
        "locomo": check_locomo,
        "longmemeval": check_longmemeval,
        "memoryquest": check_memoryquest,
        "movielens": check_movielens,
        "msc": check_msc,
        "omnibehavior": check_omnibehavior,
        "palbench": check_palbench,
        "personamem": check_personamem,
        "personamem-v2": check_personamem_v2,
    }
)
"""The checks by the name of their benchmark; each takes the path, some take options of the benchmark."""


def check(benchmark: str, path: str | Path, **options: Any) -> Report:
    """Checks a file as a benchmark's, with options of its reader.

    Raises:
        UnknownNameError: No such benchmark, or no such option of its check.
    """
    if benchmark not in CHECKS:
        raise UnknownNameError("benchmark", benchmark, CHECKS)
    known = tuple(inspect.signature(CHECKS[benchmark]).parameters)[1:]
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of the check of {benchmark}", option, known)
    return CHECKS[benchmark](path, **options)


def _check(path: Path, name: str, read: Callable[[Path, Note], Reading], categories: Mapping[str, str]) -> Report:
    rows: list[Finding] = []
    reading = Reading((), ())
    try:
        reading = read(path, rows.append)
        if not reading.examples:
            rows.append(Finding("no questions", "whole file", "holds no question that can be read", fatal=True))
    except DataError as error:
        rows.append(Finding("unreadable file", "whole file", str(error).removeprefix(f"{path}: "), fatal=True))
    return Report(str(path), name, _counts(reading, categories), tuple(rows))


def _counts(reading: Reading, categories: Mapping[str, str]) -> dict[str, int]:
    sessions = [session for history in reading.histories for session in history.items]
    turns = [turn for session in sessions for turn in session.turns]
    asked = Counter(example.category for example in reading.examples)
    return {
        "conversations": len(reading.histories),
        "sessions": len(sessions),
        "turns": len(turns),
        "image turns": sum(turn.caption is not None for turn in turns),
        "questions": len(reading.examples),
        **{
            f"category {name} {categories.get(name, '')}".strip(): asked[name] for name in sorted({*asked, *categories})
        },
    }
