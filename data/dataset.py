"""What a benchmark's file becomes: a `Dataset` of histories and examples, and a `Split` of them.

An example is a `dspy.Example`. Its inputs are

- `history`, the `History` that the question is about, one object for all its questions,
- the query fields of its task, e.g. `question`, and
- `evidence_ids`, the ids of the turns that hold the answer. No predictor ever sees them: recall is
  measured by them, and optimizers find by them the calls behind an answer.

Its labels are `answer`, `category` and `id`, which is unique, and whatever else its scorer reads.
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
from .empty_cells import is_blank


@dataclass(frozen=True)
class Source:
    """Where the examples came from, for manifests and tables."""

    path: str
    sha256: str
    sample: bool
    """True for the sample that ships with Mempiler; its scores are not comparable."""
    files: tuple[str, ...] = ()
    """What was read, from the folder of `path`, where a reader chooses among files."""

    @property
    def name(self) -> str:
        """Return the file's name without its folder, which is private."""
        return Path(self.path).name

    @classmethod
    def of(cls, path: Path, sample: bool = False, files: Sequence[Path] = ()) -> Source:
        """Describe a file, or the files that a reader chose.

        The digest of several files is that of their contents, one after the other.

        Args:
            path: What the user named: a file or a folder.
            sample: Whether it is a sample that ships with Mempiler.
            files: The files that were read, where a reader chose them; `path` itself if empty.
        """
        digest = hashlib.sha256()
        for content_path in files or (path,):
            with content_path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)

        # Where the folder lies is private, and differs between machines.
        folder = path.resolve() if path.is_dir() else path.resolve().parent
        names = [os.path.relpath(file.resolve(), folder) for file in files]
        # A single file says more than its folder.
        shown_path = files[0] if len(files) == 1 else path
        return cls(str(shown_path), digest.hexdigest(), sample, tuple(names))


@dataclass(frozen=True)
class Finding:
    """Something a reader noticed in a file."""

    kind: str
    """What sort of thing, so that findings can be counted, e.g. "dangling evidence"."""
    where: str
    """The row, as its author finds it, e.g. "conv-26:17" or "line 3, column 'answer'"."""
    message: str
    fatal: bool = False
    """True when the benchmark refuses to load the file because of it; else the reader copes."""


FindingListener = Callable[[Finding], None]
"""Receives a reader's findings.

`raise_on_fatal(path)` while a benchmark is loaded, the `append` of a list while a file is checked.
"""


@dataclass(frozen=True)
class Dataset:
    """What a reader made of a file."""

    histories: tuple[History, ...]
    """Every history, also one without a question."""
    examples: tuple[dspy.Example, ...]
    files: tuple[Path, ...] = ()
    """The files that make the data set's digest; none if it is the file that was named."""


def category_of(example: dspy.Example) -> str:
    """Return the label `category` of an example; "all" if it has none."""
    category = example.get("category")
    # Not every false value: 0 is a category.
    return "all" if is_blank(category) else str(category)


def raise_on_fatal(path: Path) -> FindingListener:
    """Return a listener that raises DataError for a fatal finding and ignores the others."""

    def on_finding(finding: Finding) -> None:
        if finding.fatal:
            raise DataError(f"{path}: {finding.where}: {finding.message}")

    return on_finding


@dataclass(frozen=True)
class Split:
    """Examples cut into train, dev and test.

    No conversation is in both train and another part, unless there is only one. No question is in
    two parts.
    """

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    test: tuple[dspy.Example, ...]

    @property
    def digest(self) -> str:
        """Return the sha256 of the example ids of the three parts."""
        ids: list[list[str]] = []
        for part in (self.train, self.dev, self.test):
            ids.append([str(example.id) for example in part])
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def questions_after(
    examples: Sequence[dspy.Example], whole: History, sessions: int
) -> list[dspy.Example]:
    """Return the questions that can be asked after so many sessions of a history.

    A question is due as soon as all its evidence has been said. Evidence that is no turn of the
    history is ignored. A question without other evidence is due at the end.

    Args:
        examples: Questions about the history.
        whole: All of its sessions.
        sessions: How many of them are past.
    """
    past_turn_ids: set[str] = set()
    for item in whole.items[:sessions]:
        past_turn_ids.update(turn.id for turn in item.turns)

    due: list[dspy.Example] = []
    for example in examples:
        evidence = example.get("evidence_ids") or ()
        known_evidence = {turn_id for turn_id in evidence if turn_id in whole.turns}
        is_over = sessions >= len(whole)
        if is_over or (known_evidence and known_evidence <= past_turn_ids):
            due.append(example)
    return due
