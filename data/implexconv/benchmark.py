r"""ImplexConv: questions whose answer hangs on something said long ago that does not sound related (MIT licence).

The genuine files are `ImplexConv_opposed.json` and `ImplexConv_supportive.json` of the hub sets Kaylee0501/ImplexConv.
In the opposed ones an implicit fact speaks against what the user seems to want, in the supportive ones it backs it.

    [{"conversation": ["Speaker1: ...\n\nAssistant: ...", ...],                          (one string per session)
      "qa": [{"question", "answer", "retrieved_conv": ["session text"], "opposed reasoning": "why"}]}, ...]

A session may have a preamble before its first speaker, which is dropped. The key of the reasoning is spelled in
several ways; any key with "opposed" and "reason" in it counts, and a row that has one is opposed. `retrieved_conv` is
one text or several, or (in processed copies, `retrieved_conv_ids`) places in the list of sessions, counted from 0;
texts are found again in the sessions.

An example holds `history`, `question`, `focus` (inputs; the turns of the gold sessions), `answer`, `reference` (the
answer with its reasoning), `reasoning` ("" where a row has none), `category` ("opposed" or "supportive"), `evidence`
and `id` (labels).

Example:
    >>> benchmark = ImplexConv.load("ImplexConv_opposed.json", metric="f1")
    >>> benchmark.examples[0].category
    'opposed'

Metrics: "judge" asks whether the retrieved context (`prediction.context`) acknowledges the reasoning, in words or by
implication (`data.acknowledgement`; where a row has no reasoning, its answer): 1 or 0, and `parts["explicit"]` is 1
only for words. "answer" asks a judge whether the answer is right, given answer and reasoning; "f1" is token F1 of the
answer and asks nobody. `parts["evidence"]`, of every metric, is the share of gold sessions of which the recalled
context names a turn, and needs no judge.

Honest limits: written by a model, and undated. The judges' prompts are ours, not the paper's; BLEU-1 takes the place of
BLEU-1 to 3 and ROUGE-L. Under "judge" the answer earns nothing, and a row without reasoning asks much of the context:
its answer is advice that nobody gave yet. A memory of summaries names whole sessions as evidence. The form is taken
from the card and the released code, not from the files themselves. The sample is our own.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ...records import Context, History, Session, Turn, read_json
from ...signatures.judges import JudgeAcknowledgement, judge_hash
from ..acknowledgement import AcknowledgementJudge, ReferenceJudge
from ..benchmark import Benchmark, Finding, Note, Reading, Score, Source, refuse_fatal
from ..judge import AnyJudge
from ..samples import sample
from ..text_metrics import bleu1, explain, squad_f1, squad_words

KINDS = ("opposed", "supportive")
_METRICS = {"judge": "judged acknowledged", "answer": "judged right", "f1": "token F1"}
_SPEAKER = re.compile(r"^[ \t*]*(Speaker ?\d+|Assistant|User)[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE)
_GOLD_KEYS = ("retrieved_conv", "retrieved_conv_ids", "retrieved_conversation")
_LEAST_WORDS = 4


class ImplexConv(Benchmark):
    """ImplexConv's implicit reasoning.

    Args:
        examples: The questions.
        source: Where they came from.
        metric: "judge" (of the retrieved context), "answer" (a judge of the answer) or "f1" (token F1 of the answer,
            for runs without a judge).
    """

    name = "implexconv"
    judge_prompt = JudgeAcknowledgement

    def __init__(self, examples: Sequence[dspy.Example], source: Source, metric: str = "judge") -> None:
        super().__init__(examples, source)
        if metric not in _METRICS:
            raise UnknownNameError("metric", metric, _METRICS)
        self.metric = metric
        self.metric_name = _METRICS[metric]
        self.needs_judge = metric != "f1"
        self.acknowledges: ReferenceJudge | None = None
        """Who judges contexts; set by `set_judge`, or by hand."""

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
        if path is not None:
            return cls._read(Path(path), kind, metric, sample=False)
        with sample("implexconv.json") as file:
            return cls._read(file, kind, metric, sample=True)

    @classmethod
    def _read(cls, path: Path, kind: str | None, metric: str, sample: bool) -> ImplexConv:
        examples = read_implexconv(path, refuse_fatal(path)).examples
        kept = [example for example in examples if kind in (None, example.category)]
        if examples and not kept:
            raise DataError(f"{path}: no {kind} question; leave out kind, or take the other file")
        return cls(kept, Source.of(path, sample), metric)

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge of contexts, or of answers under "answer"."""
        if self.metric == "answer":
            super().set_judge(lm, adapter)
        else:
            self.acknowledges = AcknowledgementJudge(lm, adapter)

    @property
    def judging(self) -> AnyJudge | None:
        """The judge that the metric asks; None before one is set."""
        return self.judge if self.metric == "answer" else self.acknowledges

    @property
    def judge_hash(self) -> str | None:
        """Names the prompt of the metric's judge; None under "f1"."""
        if self.metric == "answer" and self.judge is None:
            return judge_hash(Benchmark.judge_prompt)
        return super().judge_hash

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores `prediction.context` ("judge") or `prediction.answer`; see the module for the metrics and `parts`.

        Raises:
            UserError: A judge is needed and none is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        answer = str(prediction.get("answer") or "")
        parts = {"f1": squad_f1(answer, example.answer), "bleu1": bleu1(answer, example.answer)}
        context = prediction.get("context")
        found = None if context is None else session_recall(example.evidence, context.sources)
        if found is not None:
            parts["evidence"] = found
        if self.metric == "judge":
            return self._acknowledged(example, context or Context(), parts)
        value, reason = parts["f1"], ""
        if self.needs_judge:
            value, reason = self.judged(example.copy(answer=example.reference), answer)
            parts["judge"] = value
        feedback = explain(answer, example.reference, value, example.evidence, cut=squad_words)
        return Score(value, feedback + reason, parts)

    def _acknowledged(self, example: dspy.Example, context: Context, parts: dict[str, float]) -> Score:
        if self.acknowledges is None:
            raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
        wanted = example.reasoning or example.answer
        shown = "\n".join(hit.line() for hit in context.hits)
        (found,) = self.acknowledges(example.question, [wanted], shown)
        value = float(found.level != "not")
        parts |= {"judge": value, "explicit": float(found.level == "explicitly")}
        feedback = f"Right: what was retrieved acknowledges it ({found.level})."
        if not value:
            feedback = (
                f"What was retrieved does not acknowledge: {wanted} Search for what may stand in the way or help."
            )
        return Score(value, feedback + (f" The judge says: {found.reason}" if found.reason else ""), parts)


def session_recall(evidence: Sequence[str], recalled: Sequence[str]) -> float | None:
    """The share of the evidence's sessions of which at least one turn was recalled; None without evidence."""
    wanted = {turn.partition(":")[0] for turn in evidence}
    return len(wanted & {turn.partition(":")[0] for turn in recalled}) / len(wanted) if wanted else None


def read_implexconv(path: Path, note: Note) -> Reading:
    """Reads a file of ImplexConv's form, telling `note` everything that is odd about it.

    A part with a fatal finding is left out if `note` does not raise.

    Raises:
        DataError: The file is no JSON list of objects with `conversation` and `qa`.
    """
    raw = read_json(path)
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path}: expected a list of {{conversation, qa}}, got {reprlib.repr(raw)}")
    named = next((kind for kind in KINDS if kind in path.stem.lower()), None)
    histories: list[History] = []
    examples: list[dspy.Example] = []
    for number, item in enumerate(raw):
        parts = item if isinstance(item, dict) else {}
        talks, rows = parts.get("conversation"), parts.get("qa")
        if not isinstance(talks, list) or not isinstance(rows, list):
            note(Finding("malformed item", f"item {number}", "lacks the lists 'conversation' and 'qa'", fatal=True))
            continue
        history = History(id=f"item-{number}", items=tuple(_sessions(talks, number, note)))
        if not history.items:
            note(Finding("no sessions", f"item {number}", "holds no session with words", fatal=True))
            continue
        histories.append(history)
        examples.extend(_examples(history, talks, rows, named, note))
    return Reading(tuple(histories), tuple(examples))


def turns_of(text: str) -> list[tuple[str, str]]:
    """The speakers and words of a session; what stands before the first speaker is dropped."""
    marks = list(_SPEAKER.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    said = [(mark[1], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    return [(speaker, words) for speaker, words in said if words]


def _sessions(talks: Sequence[Any], number: int, note: Note) -> Iterator[Session]:
    for n, talk in enumerate(talks, 1):
        where = f"item {number}, session {n}"
        if not isinstance(talk, str):
            note(Finding("malformed session", where, f"expected a text, got {reprlib.repr(talk)}", fatal=True))
            continue
        said = turns_of(talk)
        if not said:
            note(Finding("empty session", where, "names no speaker such as 'Speaker1:'; passed over"))
            continue
        turns = (Turn(id=f"D{n}:{k}", speaker=speaker, text=words) for k, (speaker, words) in enumerate(said, 1))
        yield Session(id=f"D{n}", turns=tuple(turns))


def _examples(
    history: History, talks: Sequence[Any], rows: Sequence[Any], named: str | None, note: Note
) -> Iterator[dspy.Example]:
    plain = {item.id: {turn.id: _plain(turn.text) for turn in item.turns} for item in history.items}
    for number, row in enumerate(rows):
        id = f"{history.id}:{number}"
        row = row if isinstance(row, dict) else {}
        question, answer = (str(row.get(key) or "").strip() for key in ("question", "answer"))
        if not question or not answer:
            note(Finding("missing text", id, "expected an object with texts 'question' and 'answer'", fatal=True))
            continue
        reasoning = _reasoning(row)
        kind = "opposed" if reasoning else named or "supportive"
        if kind == "opposed" and not reasoning:
            note(Finding("no reasoning", id, "has no 'opposed reasoning'; the file's name says that it is opposed"))
        evidence = _evidence(row, plain, len(talks), id, note)
        yield dspy.Example(
            id=id,
            history=history,
            question=question,
            answer=answer,
            reference=f"{answer} (The reason: {reasoning})" if reasoning else answer,
            reasoning=reasoning,
            category=kind,
            focus=evidence,
            evidence=evidence,
        ).with_inputs("history", "question", "focus")


def _reasoning(row: Mapping[str, Any]) -> str:
    keys = [key for key in row if "opposed" in key.lower() and "reason" in key.lower()]
    return " ".join(str(row[key]).strip() for key in keys if row[key])


def _evidence(
    row: Mapping[str, Any], plain: Mapping[str, Mapping[str, str]], sessions: int, id: str, note: Note
) -> tuple[str, ...]:
    """The turns of the gold sessions; those a gold text quotes, where it quotes only a part."""
    gold = next((row[key] for key in _GOLD_KEYS if row.get(key) not in (None, "", [])), [])
    found: list[str] = []
    for part in gold if isinstance(gold, list) else [gold]:
        if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < sessions:
            turns = list(plain.get(f"D{part + 1}", ()))
        else:
            turns = _quoted(_plain(str(part)), plain)
        if not turns:
            note(Finding("dangling evidence", id, f"{reprlib.repr(part)} is in no session; dropped"))
        found += turns
    if gold == []:
        note(Finding("empty evidence", id, "has no 'retrieved_conv'; the question has no recall"))
    return tuple(dict.fromkeys(found))


def _quoted(gold: str, plain: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The turns that a text quotes, of the session of which it quotes most; a few short words prove nothing."""
    best: list[str] = []
    most = _LEAST_WORDS - 1
    for turns in plain.values():
        inside = {id: said for id, said in turns.items() if said and f" {said} " in f" {gold} "}
        inside = inside or {id: gold for id, said in turns.items() if gold and f" {gold} " in f" {said} "}
        words = sum(len(said.split()) for said in inside.values())
        if words > most:
            best, most = list(inside), words
    return best


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\W+", " ", text.lower()).split())
