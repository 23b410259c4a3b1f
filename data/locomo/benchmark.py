"""LoCoMo: questions about ten very long conversations, scored by token F1 or a judge (Maharana et al., ACL 2024).

The genuine file is `data/locomo10.json` of github.com/snap-research/locomo (CC BY-NC 4.0, so it is not bundled;
the sample that is bundled is our own, in the same format). It has oddities, and this reader copes with all of
them: dates without sessions, answers that are numbers, evidence that is malformed or names turns that are not
there, repeated questions, image turns. `mempiler evaluate --check` lists them row by row.

One History per conversation is shared by all of its examples. An example holds `history`, `question`, `focus`
(inputs), `answer`, `evidence`, `category` ("1" to "5"), `id` ("conv-26:17" is row 17, counted from
0, of its conversation) and, where the file has one, `adversarial_answer` (labels).

`metric="judge"` is what RGMem, Mem0 and others print: a model labels each answer, with good will (`GenerousJudge`), and
category 5 is left out, since it has no gold answer.

Limits: about 6 % of the gold answers are known to be wrong (snap-research/locomo#23), and token F1 rewards
wording. Where this differs from the official task_eval/evaluation.py: category 5 is not asked as a two-way choice
and is reported apart; evidence ids are repaired; a question without evidence has no recall instead of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Combined, Scorer
from .reader import CATEGORIES, read_locomo
from .scorer import LocomoF1, LocomoJudge

_TRAIN = frozenset({"conv-43", "conv-47"})
_DEV = frozenset({"conv-44"})
_TEST = frozenset({"conv-26", "conv-30", "conv-41", "conv-42", "conv-48", "conv-49", "conv-50"})


class Locomo(Benchmark):
    """LoCoMo's question answering.

    Args:
        examples: The questions.
        source: Where they came from.
        conversations: Ids of all conversations of the file (default: those of the examples).
        metric: "f1" (the official token F1) or "judge".
    """

    name = "locomo"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": LocomoF1,
        "judge": lambda: Combined(LocomoJudge(), LocomoF1()),
    }
    categories = CATEGORIES

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        source: Source,
        conversations: Iterable[str] | None = None,
        metric: str = "f1",
    ) -> None:
        super().__init__(examples, source, metric)
        groups = map(self.group, self.examples) if conversations is None else conversations
        self.conversations = frozenset(groups)

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_locomo(path, note)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        categories: str | Iterable[str | int] | None = None,
        metric: str = "f1",
        **options: Any,
    ) -> Locomo:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of locomo10.json's form.
            categories: The categories to keep, e.g. ["1", "4"] or "1,4"; all five when None, 1 to 4 for a judge.
            metric: "f1" or "judge".
            **options: None are known; any is refused.

        Raises:
            DataError: The file is not of this form, or holds no question of these categories.
            UnknownNameError: A category, a metric or an option that does not exist.
            UserError: A judge is asked for category 5.
        """
        cls.refuse_options(options, ("categories", "metric"))
        cls.scored_by(metric)
        kept = _kept(categories)
        if metric == "judge":
            if categories is not None and "5" in kept:
                raise UserError("category 5 has no gold answer to judge by; leave it out, or take --metric f1")
            kept -= {"5"}
        with given_or_sample(path, "locomo.json") as (file, sample):
            return cls._read(file, kept, metric, sample)

    @classmethod
    def _read(cls, path: Path, categories: frozenset[str], metric: str, sample: bool) -> Locomo:
        reading = read_locomo(path, refuse_fatal(path))
        examples = [example for example in reading.examples if example.category in categories]
        if reading.examples and not examples:
            raise DataError(f"{path}: no question of category {', '.join(sorted(categories))}; choose others")
        return cls(examples, Source.of(path, sample), [history.id for history in reading.histories], metric)

    @property
    def unsaid(self) -> bool:
        return any(example.category == "5" for example in self.examples)

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Memory-R2's split (train conv-43 and conv-47, dev conv-44) when exactly the ten conversations are there.

        Most of that paper's released scripts train on conv-43 alone; the paper's text says two, which is followed.
        """
        if self.conversations != _TRAIN | _DEV | _TEST:
            return None
        return set(_TRAIN), set(_DEV), set(_TEST)


def _kept(categories: str | Iterable[str | int] | None) -> frozenset[str]:
    if categories is None:
        return frozenset(CATEGORIES)
    parts = categories.split(",") if isinstance(categories, str) else categories
    kept = frozenset(str(part).strip() for part in parts)
    for category in sorted(kept - CATEGORIES.keys()):
        raise UnknownNameError("LoCoMo category", category, CATEGORIES)
    return kept
