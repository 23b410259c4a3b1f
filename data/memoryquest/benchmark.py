"""MemoryQuest: requests that need three to five things said long ago, in words unlike the request's (PGR, section 4).

The genuine files are `data/user{id}.json` of the hub set harshitachopra/MemoryQuest (CC BY 4.0): 50 users, 535 queries,
20 domains. `reader` says how they are read, and that they are unverified; the sample that is bundled is
our own, in the form that our generator writes.

What is scored is the retrieved context (`prediction.context`), not the response: which of the query's references a
judge finds acknowledged in its hits (`data.acknowledgement`). Two responses are compared by `data.preference`.

An example holds `history` (what was before the query's date), `question`, `date`, `focus` (inputs), `answer` (the
references, one per line), `references`, `category` (the domain, else "all"), `profile`, `facts` (what the references of
all queries say of the user up to the query's date, for the judge of pairs), `reasoning` and `id` (labels).
`focus` names the turns of the references; of a reference that only names its session, the turn that shares most words
with it.

Metrics: "recall" (the paper's Recall) and "recall_exact" ask the judge, and `parts` holds both with `recall_explicit`;
"evidence" (no judge): the share of references of whose turns (or session) a hit names one. It is in the parts of every
score where the file says where the references were said, and is stricter for a file that names turns.

Limits: notes of a context, such as a prospection summary, are not judged: the paper judges what was retrieved.
There is no response to imitate: a labelled demo shows the references as the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ...errors import DataError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Combined, Scorer
from .reader import files_of, read_memoryquest
from .scorer import EvidenceRecall, JudgedExactRecall, JudgedRecall


class MemoryQuest(Benchmark):
    """MemoryQuest's queries.

    Args:
        examples: The queries.
        source: Where they came from.
        metric: "recall", "recall_exact" or "evidence".
    """

    name = "memoryquest"
    task = "personal-response"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": lambda: Combined(JudgedRecall(), EvidenceRecall()),
        "recall_exact": lambda: Combined(JudgedExactRecall(), EvidenceRecall()),
        "evidence": EvidenceRecall,
    }

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str | None = None) -> None:
        super().__init__(examples, source, metric)
        if not any(map(self.counts, self.examples)):
            raise DataError(f"{source.path}: says of no reference in which session it was; use --metric recall")

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_memoryquest(path, note)

    @classmethod
    def load(cls, path: str | Path | None = None, *, metric: str = "recall", **options: Any) -> MemoryQuest:
        """Reads the genuine folder or file at `path`, or the bundled sample when it is None.

        Args:
            path: A folder of user*.json, or a JSON file with a list of users.
            metric: "recall", "recall_exact" (judged) or "evidence".
            **options: None are known; any is refused.

        Raises:
            DataError: The file is not of this form; the message names the user and the query.
            UnknownNameError: A metric or an option that does not exist.
        """
        cls.refuse_options(options, ("metric",))
        with given_or_sample(path, "memoryquest") as (folder, sample):
            examples = read_memoryquest(folder, refuse_fatal(folder)).examples
            contents = (file.read_bytes() for file in files_of(folder))
            return cls(examples, Source.of_all(folder, contents, sample), metric)
