r"""ImplexConv: questions whose answer depends on an earlier statement that seems unrelated (MIT licence).

The genuine files are `ImplexConv_opposed.json` and `ImplexConv_supportive.json` of the hub sets Kaylee0501/ImplexConv:
of each conversation a text per session, "Speaker1: ...\n\nAssistant: ..." after a preamble, and questions with the text
of their gold sessions. The form is taken from its documentation (card and released code); the sample is our own. Card
and code spell the key of the reasoning differently: any key with "opposed" and "reason" in it counts.

Limits: written by a model, and undated. The judges' prompts are those of PGR and our own, not those of ImplexConv's
paper. Under "recall" the answer is not scored, and a row without reasoning asks much of the context: its answer is
advice not yet given. In ROUGE-L, which is own code, case and punctuation count, but for full stops, which end
sentences; an empty text scores 0.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import dspy
from pydantic import ConfigDict

from ..errors import DataError
from ..records import History, Session, Turn, read_json
from .benchmark import Benchmark
from .common_scorers import Combined, JudgeScorer
from .dataset import Dataset, FindingListener
from .judge import ReferenceVerdict, StrictAcknowledgementJudge
from .judged_recall import JudgedRecall
from .field_types import Text
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of
from .text_metrics import explain, sentence_bleu, squad_f1, squad_words
from .word_splitting import SQUAD

_SMALL = 1e-8
_SPEAKER = re.compile(r"^[ \t*]*(Speaker ?\d+|Assistant|User)[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE)
_LEAST_WORDS = 4


class WordsAndSessions(Scorer):
    """Token F1, BLEU-1 to 3 and ROUGE-L of the answer, and the share of the evidence's sessions that was recalled."""

    title = "token F1"
    splitter = SQUAD

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = squad_f1(answer, example.answer)
        one, two, three = bleu(answer, example.answer)
        parts = {"f1": value, "bleu1": one, "bleu2": two, "bleu3": three, "rouge_l": rouge_l(answer, example.answer)}
        context = prediction.get("context")
        found = None if context is None else session_recall(example.evidence, context.without_fallback().sources)
        if found is not None:
            parts["evidence"] = found
        return Score(value, _feedback(example, answer, value), parts)


class AnswerJudgeScorer(JudgeScorer):
    """A judge of the answer, who knows the reason as well as the gold answer."""

    def gold(self, example: dspy.Example) -> str:
        return example.reference

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        return _feedback(example, answer, value)


class ReasoningRecall(JudgedRecall):
    """A judge of the retrieved context: does it acknowledge the reasoning that the question hangs on?"""

    def references(self, example: dspy.Example) -> list[str]:
        return [_wanted(example)]

    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        (verdict,) = verdicts
        reason = f" The judge says: {verdict.reason}" if verdict.reason else ""
        if verdict.present:
            return f"Right: what was retrieved acknowledges it.{reason}"
        missing = f"What was retrieved does not acknowledge: {_wanted(example)}"
        return f"{missing} Search for what may stand in the way or help.{reason}"


def _wanted(example: dspy.Example) -> str:
    """Return what the context of a question should acknowledge."""
    return example.reasoning or example.answer


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    return explain(answer, example.reference, value, example.evidence, split=squad_words)


def session_recall(evidence: Sequence[str], recalled: Sequence[str]) -> float | None:
    """The share of the evidence's sessions of which at least one turn was recalled; None without evidence."""
    wanted = {turn.partition(":")[0] for turn in evidence}
    return len(wanted & {turn.partition(":")[0] for turn in recalled}) / len(wanted) if wanted else None


def bleu(answer: str, gold: str) -> tuple[float, float, float]:
    """BLEU-1 to BLEU-3 of an answer, 0 to 1."""
    one, two, three = (sentence_bleu(answer.split(), gold.split(), order) for order in (1, 2, 3))
    return one, two, three


def rouge_l(answer: str, gold: str) -> float:
    """ROUGE-L's F, 0 to 1, over different words: those in a longest common subsequence of two sentences are shared."""
    said, wanted = _sentences(answer), _sentences(gold)
    shared = {word for one in wanted for other in said for word in _common(one, other)}
    if not shared:
        return 0.0
    precision, recall = (len(shared) / len({word for words in text for word in words}) for text in (said, wanted))
    return 2 * precision * recall / (precision + recall + _SMALL)


def _sentences(text: str) -> list[list[str]]:
    return [words for part in text.split(".") if (words := part.split())]


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several the one that the released code takes."""
    rows = [[0] * (len(other) + 1)]
    for word in one:
        row = [0]
        for n, against in enumerate(other):
            row.append(rows[-1][n] + 1 if word == against else max(rows[-1][n + 1], row[-1]))
        rows.append(row)
    found: list[str] = []
    i, j = len(one), len(other)
    while i and j:
        if one[i - 1] == other[j - 1]:
            found.append(one[i - 1])
            i, j = i - 1, j - 1
        elif rows[i - 1][j] > rows[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


class _Item(Row):
    conversation: tuple[str, ...]
    qa: tuple[Any, ...]


class _Question(Row):
    model_config = ConfigDict(extra="allow")

    question: Text
    answer: Text
    retrieved_conv: Any = None

    @property
    def reasoning(self) -> str:
        """Why the answer is as it is; "" where the row does not tell."""
        more = self.model_extra or {}
        keys = [key for key in more if "opposed" in key.lower() and "reason" in key.lower()]
        return " ".join(str(more[key]).strip() for key in keys if more[key])


class ImplexConv(Benchmark):
    """ImplexConv's implicit reasoning, answered with a response to the user, as in the PGR paper.

    Metrics: "recall" (a judge of the retrieved context, yes or no), "recall_strict" (a judge that demands more),
    "answer" (a judge of the answer) or "f1" (token F1 of the answer, for runs without a judge).
    """

    name = "implexconv"
    task = "personal-response"
    sample = "implexconv.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "recall": lambda: Combined(ReasoningRecall(), WordsAndSessions()),
        "recall_strict": lambda: Combined(ReasoningRecall(StrictAcknowledgementJudge), WordsAndSessions()),
        "answer": lambda: Combined(AnswerJudgeScorer(), WordsAndSessions()),
        "f1": WordsAndSessions,
    }
    categories: ClassVar[Mapping[str, str]] = {"opposed": "opposed", "supportive": "supportive"}

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        raw = read_json(path)
        if not isinstance(raw, list) or not raw:
            raise DataError(f"{path}: expected a list of {{conversation, qa}}, got {reprlib.repr(raw)}")
        named = next((kind for kind in cls.categories if kind in path.stem.lower()), "supportive")
        histories: list[History] = []
        examples: list[dspy.Example] = []
        for number, value in enumerate(raw):
            place = Location(on_finding, f"item {number}")
            row = place.validate(_Item, value)
            history = History(id=f"item-{number}", items=tuple(_sessions(row, place)) if row else ())
            if row and not history.items:
                place.reject("no sessions", "holds no session with words")
            elif row:
                histories.append(history)
                examples.extend(_examples(history, row.qa, named, on_finding))
        return Dataset(tuple(histories), tuple(examples))


def turns_of(text: str) -> list[tuple[str, str]]:
    """The speakers and words of a session; text before the first speaker is dropped."""
    marks = list(_SPEAKER.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    said = [(mark[1], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    return [(speaker, words) for speaker, words in said if words]


def _sessions(row: _Item, place: Location) -> Iterator[Session]:
    for n, talk in enumerate(row.conversation, 1):
        said = turns_of(talk)
        if said:
            turns = (Turn(id=f"D{n}:{k}", speaker=speaker, text=words) for k, (speaker, words) in enumerate(said, 1))
            yield Session(id=f"D{n}", turns=tuple(turns))
        else:
            place.at(f"session {n}").warn("empty session", "names no speaker such as 'Speaker1:'; passed over")


def _examples(history: History, rows: Sequence[Any], named: str, on_finding: FindingListener) -> Iterator[dspy.Example]:
    plain = {item.id: {turn.id: _plain(turn.text) for turn in item.turns} for item in history.items}
    for number, value in enumerate(rows):
        place = Location(on_finding, f"{history.id}:{number}")
        row = place.validate(_Question, value)
        if row is None:
            continue
        if named == "opposed" and not row.reasoning:
            place.warn("no reasoning", "has no 'opposed reasoning'; the file's name says that it is opposed")
        evidence = _evidence(row, plain, place)
        yield dspy.Example(
            id=place.where,
            history=history,
            question=row.question,
            answer=row.answer,
            reference=f"{row.answer} (The reason: {row.reasoning})" if row.reasoning else row.answer,
            reasoning=row.reasoning,
            category="opposed" if row.reasoning else named,
            evidence_ids=evidence,
            evidence=evidence,
        ).with_inputs("history", "question", "evidence_ids")


def _evidence(row: _Question, plain: Mapping[str, Mapping[str, str]], place: Location) -> tuple[str, ...]:
    """The turns of the gold sessions; those a gold text quotes, where it quotes only a part."""
    gold = row.retrieved_conv or ()
    found: list[str] = []
    for part in gold if isinstance(gold, list) else [gold] if gold else ():
        turns = _quoted(_plain(str(part)), plain)
        if not turns:
            place.warn("dangling evidence", f"{reprlib.repr(part)} is in no session; dropped")
        found += turns
    if not gold:
        place.warn("empty evidence", "has no 'retrieved_conv'; the question has no recall")
    return tuple(dict.fromkeys(found))


def _quoted(gold: str, plain: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The turns that a text quotes, of the session of which it quotes most; a few short words are not enough."""
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
