"""The source file of a benchmark, and its split into train, dev and test.

An example is a `dspy.Example` whose inputs are `history`, the query fields of its task (`question`), and `evidence_ids` (ids
of the gold evidence turns: no predictor ever sees it, only traces are cut by it); its labels are `answer`, `category`
and `id`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dspy

from ..errors import DataError
from ..records import History


@dataclass(frozen=True)
class Source:
    """Where the examples came from, for manifests and tables."""

    path: str
    sha256: str
    sample: bool
    """True for the sample that ships with Mempiler: a smoke test, not comparable with published numbers."""
    files: tuple[str, ...] = ()
    """What was read, from the folder of `path`, where a reader chooses among files."""

    @property
    def name(self) -> str:
        """The file's name without its folder, which is private; the digest identifies the file."""
        return Path(self.path).name

    @classmethod
    def of(cls, path: Path, sample: bool = False, files: Sequence[Path] = ()) -> Source:
        """Describes the file at `path`, or several by what they hold, one after the other."""
        digest = hashlib.sha256()
        for each in files or (path,):
            with each.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        home = path.resolve() if path.is_dir() else path.resolve().parent
        names = tuple(os.path.relpath(each.resolve(), home) for each in files)
        return cls(str(files[0] if len(files) == 1 else path), digest.hexdigest(), sample, names)


@dataclass(frozen=True)
class Finding:
    """Something a reader noticed in a file."""

    kind: str
    """What sort of thing, for counting, e.g. "dangling evidence"."""
    where: str
    """The row, as its author finds it, e.g. "conv-26:17" or "line 3, column 'answer'"."""
    message: str
    fatal: bool = False
    """True when the benchmark refuses to load the file because of it; else the reader copes."""


FindingListener = Callable[[Finding], None]
"""Receives a reader's findings: `raise_on_fatal` when loading, a list's `append` when checking."""


@dataclass(frozen=True)
class Dataset:
    """What a reader made of a file: every history, also those without a question, and the examples."""

    histories: tuple[History, ...]
    examples: tuple[dspy.Example, ...]
    files: tuple[Path, ...] = ()
    """The files that make the data set's digest; none if it is the file that was named."""


def raise_on_fatal(path: Path) -> FindingListener:
    """A `Note` that raises a DataError for the first fatal finding and passes over the others."""

    def note(finding: Finding) -> None:
        if finding.fatal:
            raise DataError(f"{path}: {finding.where}: {finding.message}")

    return note


@dataclass(frozen=True)
class Split:
    """Examples cut into train, dev and test.

    No conversation is in both train and the others, unless there is only one; no question is in two parts.
    """

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    test: tuple[dspy.Example, ...]

    @property
    def digest(self) -> str:
        """sha256 over the example ids of the three parts."""
        ids = [[str(example.id) for example in part] for part in (self.train, self.dev, self.test)]
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def questions_after(examples: Sequence[dspy.Example], whole: History, sessions: int) -> list[dspy.Example]:
    """The questions that can be asked after so many sessions of a history.

    A question is asked as soon as all its evidence has been said; one without evidence at the end alone.

    Args:
        examples: Questions about the history.
        whole: All of its sessions.
        sessions: How many of them are past.
    """
    said = {turn.id for item in whole.items[:sessions] for turn in item.turns}
    found = []
    for example in examples:
        evidence = [turn for turn in example.get("evidence_ids") or () if turn in whole.turns]
        if all(turn in said for turn in evidence) if evidence else sessions >= len(whole):
            found.append(example)
    return found
