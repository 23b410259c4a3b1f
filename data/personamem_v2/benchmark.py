"""PersonaMem v2: requests to an assistant that should know its user's preferences by now (arXiv:2512.06688).

The genuine file is `benchmark/text/benchmark.csv` of the hub set bowen-upenn/PersonaMem-v2, with the chat histories
that its link columns name (looked for from the CSV's folder upwards). Cells are Python dicts (`user_query`) or JSON
lists (`incorrect_answers`, `related_conversation_snippet`); either is read in either place. The sample that is bundled
is our own, in the same form.

As in the PGR paper, rows of the kind `ask_to_forget` and rows with `sensitive_info` are left out, and the score is
binary: whether a judge finds the row's preference acknowledged, explicitly or implicitly, in the hits of the retrieved
context (`data.acknowledgement`); the response is not read. `metric="mcq"` asks the official multiple-choice question
instead: one right and three wrong replies in an order that is drawn from the row's id.

An example holds `history`, `question`, `focus` (inputs, and `options` for mcq), `answer` (the right reply, or its
letter), `reference` (the preference, else the snippet), `category` (pref_type), `evidence` and `id` (labels).

Limits: notes of a context, such as a summary, are not judged, and an answer that was saved without its context
scores 0. The official order of options rests on Python's randomised hash and cannot be had again. A chat history
without further system messages is one long session.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ...errors import UnknownNameError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Scorer
from .reader import LENGTHS, read_personamem_v2
from .scorer import FinalLetter, PreferenceJudged


class PersonaMemV2(Benchmark):
    """PersonaMem v2 as the PGR paper uses it: whether what is recalled holds the user's preference."""

    name = "personamem-v2"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"recall": PreferenceJudged, "mcq": FinalLetter}

    @classmethod
    def read(cls, path: Path, note: Note, length: str = "32k") -> Reading:
        return read_personamem_v2(path, note, length)

    @classmethod
    def load(
        cls, path: str | Path | None = None, *, metric: str = "recall", length: str = "32k", **options: Any
    ) -> PersonaMemV2:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of benchmark.csv's form.
            metric: "recall" (judged), or "mcq" for a benchmark of the task multiple-choice.
            length: Which chat histories: "32k" or "128k".
            **options: None are known; any is refused.

        Raises:
            DataError: A file is not of this form; the message names line and column.
            UnknownNameError: A metric, a length or an option that does not exist.
        """
        cls.refuse_options(options, ("metric", "length"))
        for name, value, known in (("metric", metric, cls.metrics), ("length", length, LENGTHS)):
            if value not in known:
                raise UnknownNameError(name, value, known)
        kind = PersonaMemV2Choice if metric == "mcq" else PersonaMemV2
        # The sample as a folder: the chat histories must come along.
        with given_or_sample(path, "") as (where, sample):
            file = where / "personamem_v2.csv" if sample else where
            examples = kind.prepare(read_personamem_v2(file, refuse_fatal(file), length))
            return kind(examples, Source.of(file, sample), metric)

    @classmethod
    def prepare(cls, reading: Reading) -> list[dspy.Example]:
        """The examples as this benchmark asks them."""
        return list(reading.examples)

    def group(self, example: dspy.Example) -> str:
        """The persona."""
        return example.user


class PersonaMemV2Choice(PersonaMemV2):
    """PersonaMem v2 as multiple choice."""

    task = "multiple-choice"

    @classmethod
    def prepare(cls, reading: Reading) -> list[dspy.Example]:
        """The examples with options (a), (b), ..., and the letter of the right one as answer."""
        return [_with_options(example) for example in reading.examples]


def _with_options(example: dspy.Example) -> dspy.Example:
    replies = [example.answer, *example.wrong]
    random.Random(f"personamem-v2 {example.id}").shuffle(replies)
    options = [f"({letter}) {reply}" for letter, reply in zip("abcd", replies, strict=False)]
    letter = "abcd"[replies.index(example.answer)]
    changed = example.copy(options=options, answer=f"({letter})")
    return changed.with_inputs("history", "question", "options", "focus")
