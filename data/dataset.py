"""A dataset: examples with gold answers, where they came from, and how they are cut into train, dev and test.

An example is a `dspy.Example` whose inputs are `history`, the query fields of its task (`question`), and `focus` (ids
of the gold evidence turns: no predictor ever sees it, only traces are cut by it); its labels are `answer`, `category`
and `id`.
"""

from __future__ import annotations

import hashlib
import json
import random
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
    """True for the sample that ships with Mempiler: a wiring check, not comparable with published numbers."""

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
                while piece := file.read(1 << 20):
                    digest.update(piece)
        return cls(str(files[0] if len(files) == 1 else path), digest.hexdigest(), sample)


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


Note = Callable[[Finding], None]
"""Receives a reader's findings: `refuse_fatal` when loading, a list's `append` when checking."""


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file: every history, also those without a question, and the examples."""

    histories: tuple[History, ...]
    examples: tuple[dspy.Example, ...]
    files: tuple[Path, ...] = ()
    """The files that make the data set's digest; none if it is the file that was named."""


def refuse_fatal(path: Path) -> Note:
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


class Dataset:
    """Examples and how they are cut.

    Args:
        examples: All examples, in file order.
        source: Where they came from.

    Raises:
        DataError: There is no example.
    """

    def __init__(self, examples: Sequence[dspy.Example], source: Source) -> None:
        if not examples:
            raise DataError(f"{source.path}: holds no examples")
        self.examples = tuple(examples)
        self.source = source

    @property
    def english(self) -> bool:
        """Whether its questions are in English, or in another language that is written in its letters."""
        letters = [char for example in self.examples[:100] for char in str(example.question) if char.isalpha()]
        return sum(char.isascii() for char in letters) * 2 >= len(letters)

    def counts(self, example: dspy.Example) -> bool:
        """Whether the example is part of the headline score."""
        return True

    def category(self, example: dspy.Example) -> str:
        """The category an example is reported under."""
        return str(example.get("category") or "all")

    def group(self, example: dspy.Example) -> str:
        """The conversation or user of an example: the unit that splits and intervals respect."""
        return example.history.id

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Train, dev and test groups where the field has agreed on them, else None."""
        return None

    def split(self, train: int | None = None, dev: int | None = None, test: int | None = None, seed: int = 0) -> Split:
        """Cuts the examples by conversation, then takes as many questions as asked for (None: all there are).

        The split of conversations is the field's own where there is one; otherwise a seeded shuffle gives about
        half of the conversations to train and a quarter each to dev and test. With two conversations the first is
        train and the questions of the second are cut into dev (one third) and test; with one, all questions are
        cut in three. Which questions are taken is seeded, part by part: another size of train leaves the test
        questions as they were, and a larger part contains the smaller one. They are interleaved by conversation, so
        that parallel workers do not wait for one memory.

        Raises:
            DataError: A part that is asked for would be empty, or its size is negative.
        """
        groups = list(dict.fromkeys(self.group(example) for example in self.examples))
        parts = self._parts(groups, random.Random(seed))
        chosen = []
        for name, pool, size in zip(("train", "dev", "test"), parts, (train, dev, test), strict=True):
            if size is not None and size < 0:
                raise DataError(f"{name}={size}: the number of {name} questions cannot be negative")
            if size != 0 and not pool:
                counts = f"{len(self.examples)} questions in {len(groups)} conversations"
                raise DataError(f"{self.source.path}: {counts} leave none for {name}; add more, or ask for {name}=0")
            taken = pool if size is None else self._drawn(pool, random.Random(f"{seed} {name}"))[:size]
            chosen.append(tuple(self.interleave(taken)))
        return Split(*chosen)

    def interleave(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Orders examples round-robin over their conversations (stable within each)."""
        queues: dict[str, list[dspy.Example]] = {}
        for example in examples:
            queues.setdefault(self.group(example), []).append(example)
        rounds = max((len(queue) for queue in queues.values()), default=0)
        return [queue[n] for n in range(rounds) for queue in queues.values() if n < len(queue)]

    def _parts(self, groups: list[str], rng: random.Random) -> list[list[dspy.Example]]:
        fixed = self.fixed_split()
        if fixed is not None:
            return [self._of(part) for part in fixed]
        if len(groups) >= 3:
            order = rng.sample(groups, len(groups))
            held = max(1, len(groups) // 4)
            return [self._of(set(part)) for part in (order[2 * held :], order[:held], order[held : 2 * held])]
        if len(groups) == 2:
            held_out = rng.sample(self._of({groups[1]}), len(self._of({groups[1]})))
            third = len(held_out) // 3
            return [self._of({groups[0]}), held_out[:third], held_out[third:]]
        everything = rng.sample(list(self.examples), len(self.examples))
        third = len(everything) // 3
        return [everything[2 * third :], everything[:third], everything[third : 2 * third]]

    def _drawn(self, pool: list[dspy.Example], rng: random.Random) -> list[dspy.Example]:
        """A pool in seeded order, a question that counts first: the smallest part has a score too."""
        drawn = rng.sample(pool, len(pool))
        first = next((n for n, example in enumerate(drawn) if self.counts(example)), 0)
        return [*drawn[first : first + 1], *drawn[:first], *drawn[first + 1 :]]

    def _of(self, groups: set[str]) -> list[dspy.Example]:
        return [example for example in self.examples if self.group(example) in groups]


def askable(examples: Sequence[dspy.Example], whole: History, sessions: int) -> list[dspy.Example]:
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
        evidence = [turn for turn in example.get("focus") or () if turn in whole.turns]
        if all(turn in said for turn in evidence) if evidence else sessions >= len(whole):
            found.append(example)
    return found
