"""MSC: questions about a handful of earlier chats of two strangers (Xu et al. 2022; questions by Packer et al. 2023).

The genuine file is `msc_self_instruct.jsonl` of the hub set MemGPT/MSC-Self-Instruct (`mempiler fetch msc`): 500
conversations of up to five sessions, one question each. `reader` says how it is read; the sample that is bundled
is our own, in the same form.

An example holds `history`, `question`, `focus` (inputs; there is no evidence, so it is empty), `answer`, `category`
("all") and `id` (labels).

Limits: the questions and answers were written by a model and say "you" without saying who asks whom. There is no
evidence, hence no recall. The published tables of this set use ROUGE-L and a judge (MemGPT) or token F1, BLEU-1 and a
judge (Memory-R2); here the score is SQuAD's token F1 with BLEU-1 beside it, or `metric="judge"`. The set calls no
split: conversations are shuffled by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Bleu1, Combined, Judged, Scorer, TokenF1
from .reader import read_msc


class Msc(Benchmark):
    """MSC-Self-Instruct's questions: token F1 or a judge."""

    name = "msc"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(), Bleu1()),
        "judge": lambda: Combined(Judged(), TokenF1(), Bleu1()),
    }

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_msc(path, note)

    @classmethod
    def load(cls, path: str | Path | None = None, *, metric: str = "f1", **options: Any) -> Msc:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of msc_self_instruct.jsonl's form.
            metric: "f1" or "judge".
            **options: None are known; any is refused.

        Raises:
            DataError: The file is not of this form; the message names the line and the column.
            UnknownNameError: A metric or an option that does not exist.
        """
        cls.refuse_options(options, ("metric",))
        with given_or_sample(path, "msc.jsonl") as (file, sample):
            return cls(read_msc(file, refuse_fatal(file)).examples, Source.of(file, sample), metric)
