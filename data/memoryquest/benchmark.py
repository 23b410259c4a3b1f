"""MemoryQuest: requests that need three to five things said long ago, in words unlike the request's (PGR, section 4).

The genuine files are `data/user{id}.json` of the hub set harshitachopra/MemoryQuest (CC BY 4.0): 50 users, 535 queries,
20 domains. `reader` says how they are read, and that they are unverified; the sample that is bundled is
our own, in the form that our generator writes.

What is scored is the retrieved context (`prediction.context`), not the response: which of the query's references a
judge finds acknowledged in its hits (`data.acknowledgement`). Two responses are compared by `data.preference`.

An example holds `history` (what was before the query's date), `question`, `date`, `focus` (inputs), `answer` (the
references, one per line), `references`, `category` (the domain, else "all"), `profile`, `reasoning` and `id` (labels).
`focus` names the turns of the references; of a reference that only names its session, the turn that shares most words
with it.

Example:
    >>> benchmark = MemoryQuest.load("MemoryQuest/data", metric="evidence")
    >>> benchmark.score(benchmark.examples[0], program(**benchmark.examples[0].inputs())).parts
    {"evidence": .75, "evidence_exact": 0.0}

Metrics: "recall" (the paper's Recall) and "recall_exact" ask the judge, and `parts` holds both with `recall_explicit`;
"evidence" asks nobody: the share of references of whose turns (or session) a hit names one. It is in the parts of every
score where the file says where the references were said, and is stricter for a file that names turns.

Honest limits: notes of a context, such as a prospection summary, are not judged: the paper judges what was retrieved.
There is no response to imitate: a labelled demo shows the references as the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ...records import Context
from ...signatures.judges import JudgeAcknowledgement
from ..acknowledgement import AcknowledgementJudge, Level, ReferenceJudge, evidence_parts, recall_parts
from ..benchmark import Benchmark, Score, Source, refuse_fatal
from ..samples import sample
from .reader import Reference, files_of, read_memoryquest

_METRICS = {"recall": "judged recall", "recall_exact": "judged exact recall", "evidence": "evidence recall"}
_SHOWN = 200


class MemoryQuest(Benchmark):
    """MemoryQuest's queries.

    Args:
        examples: The queries.
        source: Where they came from.
        metric: "recall", "recall_exact" or "evidence".
    """

    name = "memoryquest"
    task = "personal-response"
    judge_prompt = JudgeAcknowledgement

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str = "recall") -> None:
        super().__init__(tuple(examples), source)
        if metric not in _METRICS:
            raise UnknownNameError("metric", metric, _METRICS)
        self.metric = metric
        self.metric_name = _METRICS[metric]
        self.needs_judge = metric != "evidence"
        self.acknowledges: ReferenceJudge | None = None
        """Who judges contexts; set by `set_judge`, or by hand."""
        if not self.needs_judge and not any(map(self.counts, self.examples)):
            raise DataError(f"{source.path}: says of no reference in which session it was; use --metric recall")

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
        if path is not None:
            return cls._read(Path(path), metric, sample=False)
        with sample("memoryquest") as folder:
            return cls._read(folder, metric, sample=True)

    @classmethod
    def _read(cls, path: Path, metric: str, sample: bool) -> MemoryQuest:
        examples = read_memoryquest(path, refuse_fatal(path)).examples
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files_of(path))).hexdigest()
        return cls(examples, Source(str(path), digest, sample), metric)

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge of contexts."""
        self.acknowledges = AcknowledgementJudge(lm, adapter)

    @property
    def judging(self) -> ReferenceJudge | None:
        """The judge of contexts; None before one is set."""
        return self.acknowledges

    def counts(self, example: dspy.Example) -> bool:
        """False under "evidence" for a query without any: it says nothing about retrieval."""
        return self.needs_judge or any(reference.turns for reference in example.references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.context` by the chosen metric.

        Raises:
            UserError: A judge is needed and none is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        context = prediction.get("context") or Context()
        references: tuple[Reference, ...] = example.references
        parts = evidence_parts([reference.turns for reference in references], context.sources)
        if not self.needs_judge:
            recalled = set(context.sources)
            levels: list[Level] = ["not" if recalled.isdisjoint(each.turns) else "explicitly" for each in references]
            return Score(parts.get("evidence", 0.0), explain_levels(references, levels), parts)
        if self.acknowledges is None:
            raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
        shown = "\n".join(hit.line() for hit in context.hits)
        found = self.acknowledges(example.question, [reference.line() for reference in references], shown)
        levels = [each.level for each in found]
        parts |= recall_parts(levels)
        return Score(parts[self.metric], explain_levels(references, levels), parts)


def explain_levels(references: Sequence[Reference], levels: Sequence[Level]) -> str:
    """Says in words which references were not retrieved, and what would have found them."""
    missing = [reference.text[:_SHOWN] for reference, level in zip(references, levels, strict=True) if level == "not"]
    if not missing:
        return "Right: everything that bears on the request was retrieved."
    share = f"{len(missing)} of {len(references)} things that bear on the request were not retrieved"
    listed = "; ".join(missing)
    return f"{share}: {listed}. Think of what the user will meet on the way, and search for that as well."
