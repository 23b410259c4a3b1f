r"""ImplexConv: questions whose answer depends on an earlier statement that seems unrelated (MIT licence).

The genuine files are `ImplexConv_opposed.json` and `ImplexConv_supportive.json` of the hub sets Kaylee0501/ImplexConv.
In the opposed ones an implicit fact contradicts what the user seems to want, in the supportive ones it supports it.

    [{"conversation": ["Speaker1: ...\n\nAssistant: ...", ...],                          (one string per session)
      "qa": [{"question", "answer", "retrieved_conv": ["session text"], "opposed reasoning": "why"}]}, ...]

A session may have a preamble before its first speaker, which is dropped. The key of the reasoning is spelled in
several ways; any key with "opposed" and "reason" in it counts, and a row that has one is opposed. `retrieved_conv` is
one text or several, or (in processed copies, `retrieved_conv_ids`) places in the list of sessions, counted from 0;
texts are found again in the sessions.

An example holds `history`, `question`, `focus` (inputs; the turns of the gold sessions), `answer`, `reference` (the
answer with its reasoning), `reasoning` ("" where a row has none), `category` ("opposed" or "supportive"), `evidence`
and `id` (labels).

Metrics: "judge" asks whether the retrieved context (`prediction.context`) acknowledges the reasoning, in words or by
implication (`data.acknowledgement`; where a row has no reasoning, its answer): 1 or 0, and `parts["explicit"]` is 1
only for words. "answer" asks a judge whether the answer is right, given answer and reasoning; "f1" is token F1 of the
answer and calls no judge. The parts of every metric need no judge: `bleu1` to `bleu3` and `rouge_l` of the answer, as
released (`metrics`), and `evidence`, the share of gold sessions of which the recalled context names a turn.

Limits: written by a model, and undated. The judges' prompts are ours, not the paper's. Under "judge" the answer is not
scored, and a row without reasoning asks much of the context: its answer is advice not yet given. A memory of summaries
names whole sessions as evidence. The form is taken from the card and the released code, not from the files themselves.
The sample is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DataError, UnknownNameError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Combined, Scorer
from .reader import KINDS, read_implexconv
from .scorer import AnswerJudged, ContextJudged, WordsAndSessions


class ImplexConv(Benchmark):
    """ImplexConv's implicit reasoning.

    Metrics: "judge" (of the retrieved context), "answer" (a judge of the answer) or "f1" (token F1 of the answer, for
    runs without a judge).
    """

    name = "implexconv"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "judge": lambda: Combined(ContextJudged(), WordsAndSessions()),
        "answer": lambda: Combined(AnswerJudged(), WordsAndSessions()),
        "f1": WordsAndSessions,
    }

    categories: ClassVar[Mapping[str, str]] = {kind: kind for kind in KINDS}

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_implexconv(path, note)

    @classmethod
    def load(
        cls, path: str | Path | None = None, *, kind: str | None = None, metric: str = "judge", **options: Any
    ) -> ImplexConv:
        """Reads the genuine file at `path`, or the bundled sample when it is None.

        Args:
            path: A file of ImplexConv_opposed.json's form.
            kind: Keeps only "opposed" or "supportive" questions; what each is, is read from the file.
            metric: "judge", "answer" or "f1".
            **options: `categories` is another name of `kind`; any other is refused.

        Raises:
            DataError: The file is not of this form, or holds no question of this kind.
            UnknownNameError: A kind, a metric or an option that does not exist.
        """
        cls.refuse_options(options, ("kind", "metric", "categories"))
        kind = kind or options.get("categories")
        if kind is not None and kind not in KINDS:
            raise UnknownNameError("kind of implexconv", kind, KINDS)
        with given_or_sample(path, "implexconv.json") as (file, sample):
            examples = read_implexconv(file, refuse_fatal(file)).examples
            kept = [example for example in examples if kind in (None, example.category)]
            if examples and not kept:
                raise DataError(f"{file}: no {kind} question; leave out kind, or take the other file")
            return cls(kept, Source.of(file, sample), metric)
