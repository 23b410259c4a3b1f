"""LongMemEval: questions about a user's many chats with an assistant, judged by type (Wu et al., ICLR 2025; MIT).

    longmemeval              all six types, the task "question-answering"
    longmemeval.preference   single-session-preference alone, the task "personal-response" (Mem-PAL, Table 4)

The genuine files are those of the hub sets xiaowu0162/longmemeval-cleaned and xiaowu0162/longmemeval, whose names alone
differ; the reader was checked against `oracle`. The sample is our own, in the same form. An id with `_abs` in it marks
a question whose answer is not in the sessions. Sessions are put in time order (those of `oracle` are not) and get ids
of their own: the file's begin with "answer" where the evidence is.

Source: src/evaluation/evaluate_qa.py, print_qa_metrics.py and src/retrieval/eval_utils.py of xiaowu0162/LongMemEval.
Limits: every question has a past of its own, so memories are written once per question. An `m` file takes some
gigabytes, unless `limit` or `categories` leaves most out. The released code ranks the turns of the user alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from math import log2
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import dspy
from pydantic import Field, model_validator

from ..records import History, Session, Turn, format_time
from ..signatures.judges import ABSTENTION, JUDGES, judges_hash
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .judge import JudgeRoles, PromptJudge, Verdict
from .field_types import Listed, Text, Words
from .json_list import stream_list
from .rows import Location, Row
from .scorer import Score, ScoredAnswer, Scorer, answer_of
from .text_metrics import explain, squad_f1, squad_words
from .word_splitting import SQUAD, WordSplitter

Type = Literal[
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "temporal-reasoning",
    "knowledge-update",
    "multi-session",
]
TYPES: tuple[str, ...] = Type.__args__
"""The six types of questions."""
PREFERENCE = "single-session-preference"
RETRIEVAL_AT = (5, 10)
REFUSALS = (
    *("not mention", "n't mention", "not mentioned", "no information", "no mention", "not enough information"),
    *("information is incomplete", "information provided is not", "don't know", "do not know", "not specified"),
    *("cannot be answered", "can't be answered", "not provided", "not known", "unknown", "no record"),
)
"""Phrases that the metric without a judge takes for declining to answer."""


class LongMemEvalJudge:
    """Asks the prompt of a question's type; made as every `PromptJudge`."""

    def __init__(self, lm: dspy.BaseLM, adapter: dspy.Adapter | None = None) -> None:
        self.lm = lm
        kinds = {
            kind: type(f"_{prompt.__name__}", (PromptJudge,), {"signature": prompt}) for kind, prompt in JUDGES.items()
        }
        self._prompts: dict[str, PromptJudge] = {kind: made(lm, adapter) for kind, made in kinds.items()}

    @classmethod
    def prompt_hash(cls) -> str:
        """Return the digest of all five prompts."""
        return judges_hash()

    @property
    def hash(self) -> str:
        """Return the digest of all five prompts."""
        return judges_hash()

    def __call__(self, kind: str, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges an answer by the gold one, the rubric of a preference, or why there is none, as its `kind` has it.

        An empty answer is wrong without a call.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        gold = {PREFERENCE: "rubric", ABSTENTION: "explanation"}.get(kind, "gold_answer")
        found = self._prompts[kind].ask(question=question, answer=answer, **{gold: gold_answer})
        return Verdict(found.verdict == "yes")


class LongMemEvalF1(Scorer):
    """Token F1; a question without an answer scores 1 for a phrase that declines, preferences are reported apart."""

    title = "token F1"
    splitter: WordSplitter | None = SQUAD
    retrieval_depth = 200
    part: ClassVar[str] = "f1"
    column: ClassVar[str] = "F1"

    def in_headline(self, example: dspy.Example) -> bool:
        """False for preferences: words of a rubric are not what a good response repeats."""
        return example.category != PREFERENCE or example.abstention

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = float(declines(answer)) if example.abstention else squad_f1(answer, example.answer)
        return Score(value, _feedback(example, answer, value), {"f1": value})

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """The mean over types, the mean over all questions, and that of questions that cannot be answered.

        A failed question counts 0; types are those among the questions that were asked.
        """
        by_type: dict[str, list[float]] = {}
        for row in rows:
            by_type.setdefault(row.category, []).append(row.parts.get(self.part, 0.0))
        if not rows:
            return {}
        found = {
            f"task-averaged {self.column}": _mean([_mean(values) for values in by_type.values()]),
            f"overall {self.column}": _mean([value for values in by_type.values() for value in values]),
        }
        unanswerable = [row.parts.get(self.part, 0.0) for row in rows if "_abs" in row.id]
        return {**found, f"abstention {self.column}": _mean(unanswerable)} if unanswerable else found

    def retrieval_metrics(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        """recall_any, recall_all and NDCG of the evidence sessions at 5 and 10; {} for questions without an answer.

        Where every hit is a turn of its own, a session may fill several places; otherwise each counts once.
        """
        if example.abstention or not example.answer_sessions:
            return {}
        turns = example.history.turns
        named = [list(dict.fromkeys(turns[id][1].id for id in sources if id in turns)) for sources in ranked]
        order = [session for sessions in named for session in sessions]
        # Facts rest on single turns too, but several on one: as turns they would score above the best order.
        of_turns = sum(map(len, ranked)) == len(ranked) == len({id for sources in ranked for id in sources})
        if of_turns:
            sessions = [session.id for _, session in turns.values()]
        else:
            order, sessions = list(dict.fromkeys(order)), [item.id for item in example.history]
        metrics = [retrieval_metrics(order, example.answer_sessions, sessions, k, of_turns) for k in RETRIEVAL_AT]
        return {name: value for found in metrics for name, value in found.items()}


class LongMemEvalJudgeScorer(LongMemEvalF1):
    """The official metric: one of five judging prompts a question, by its type."""

    title = "accuracy"
    splitter = None
    judge_roles: ClassVar[JudgeRoles] = {"judge": LongMemEvalJudge}
    part = "accuracy"
    column = "accuracy"

    def in_headline(self, example: dspy.Example) -> bool:
        """True: a judge reads preferences too."""
        return True

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        kind = ABSTENTION if example.abstention else example.category
        value = float(self.judge()(kind, example.question, example.answer, answer).correct)
        words = super().score(example, prediction).parts
        return Score(value, _feedback(example, answer, value), {**words, "accuracy": value})


def dcg(relevances: Sequence[float], k: int) -> float:
    """Discounted cumulative gain of the first k places; as released, the second is not discounted: log2(2) is 1."""
    return sum(value / (log2(place) if place > 1 else 1.0) for place, value in enumerate(relevances[:k], 1))


def retrieval_metrics(
    ranked: Sequence[str], gold: Collection[str], sessions: Sequence[str], k: int, turns: bool = False
) -> dict[str, float]:
    """One question: whether one, or all, of the evidence sessions are among the first k, and NDCG of these.

    Where hits are single turns, k grows until the first hits are of k sessions, and several turns of a session fill
    several places of NDCG, in the ranking as in the best order: as released.

    Args:
        ranked: Ids of sessions, best first: of each hit its session.
        gold: Ids of the evidence sessions.
        sessions: Ids of all sessions that could have been found: of every turn its session, where turns are ranked.
        k: How many sessions count.
        turns: Whether turns are ranked, so that a session may be there several times.
    """
    places = _places(ranked, len(sessions), k) if turns else k
    found, wanted = set(ranked[:places]), set(gold)
    ideal = dcg(sorted((float(id in wanted) for id in sessions), reverse=True), places)
    return {
        f"recall_any@{k}": float(bool(wanted & found)),
        f"recall_all@{k}": float(wanted <= found),
        f"ndcg@{k}": dcg([float(id in wanted) for id in ranked], places) / ideal if ideal else 0.0,
    }


def _places(ranked: Sequence[str], turns: int, k: int) -> int:
    """How many of the ranked turns it takes to have k different sessions, k at least; all where there are fewer."""
    seen: set[str] = set()
    for place, session in enumerate(ranked, 1):
        seen.add(session)
        if len(seen) == k:
            return place
    return max(k, turns + 1)


def declines(answer: str) -> bool:
    """Whether an answer states that it is not known."""
    text = " ".join(answer.lower().replace("\u2019", "'").split())
    return any(phrase in text for phrase in REFUSALS)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    if example.abstention:
        verdict = "Right: the answer sees that this is not known." if value else "Wrong: this is not known; say so."
        return f"{verdict} {example.answer}"
    if example.category == PREFERENCE:
        verdict = "Right: the response suits the user." if value >= 1 else "The response does not suit the user enough."
        return f"{verdict} {example.answer}"
    return explain(answer, example.answer, value, example.evidence, squad_words)


class _Message(Row):
    role: Words = ""
    content: Words = ""
    has_answer: bool = False


class _Row(Row):
    question_id: Text
    question_type: Type
    question: Text
    answer: Text
    question_date: Any = None
    haystack_session_ids: tuple[str, ...]
    haystack_dates: tuple[Any, ...]
    haystack_sessions: tuple[tuple[_Message, ...], ...]
    answer_session_ids: Listed[str] = ()

    @model_validator(mode="after")
    def _parallel(self) -> Self:
        if not len(self.haystack_session_ids) == len(self.haystack_dates) == len(self.haystack_sessions):
            raise ValueError("haystack_session_ids, haystack_dates and haystack_sessions must have one length")
        return self


class LongMemEval(Benchmark):
    """LongMemEval's question answering."""

    name = "longmemeval"
    sample = "longmemeval.json"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"judge": LongMemEvalJudgeScorer, "f1": LongMemEvalF1}
    categories: ClassVar[Mapping[str, str]] = {kind: kind for kind in TYPES}

    @property
    def has_unanswerable(self) -> bool:
        return any(example.abstention for example in self.examples)

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        categories: Collection[str] | None = None,
        limit: Annotated[int, Field(strict=True, ge=1)] | None = None,
    ) -> Dataset:
        """Reads a file.

        Args:
            path: The file: `oracle`, `s` or `m`.
            on_finding: What findings are told to.
            categories: The types of questions to keep; all when None.
            limit: Most questions of each type, the first ones; reading ends where all types have that many.
        """
        examples: dict[str, dspy.Example] = {}
        kept: Counter[str] = Counter()
        wanted, texts = categories or cls.categories, dict[str, str]()
        for number, value in enumerate(stream_list(path), 1):
            if limit is not None and all(kept[each] >= limit for each in wanted):
                break
            kind = value.get("question_type") if isinstance(value, dict) else None
            if kind in TYPES and (kind not in wanted or (limit is not None and kept[kind] >= limit)):
                continue
            place = Location(on_finding, f"entry {number}")
            row = place.validate(_Row, value)
            example = row and _example(row, place, texts)
            if example is not None and example.id in examples:
                place.reject("duplicate id", f"{example.id!r} is the id of two questions")
            elif example is not None:
                examples[example.id] = example
                kept[example.category] += 1
        return Dataset(tuple(each.history for each in examples.values()), tuple(examples.values()))


class LongMemEvalPreference(LongMemEval):
    """The questions whose answer is a response that suits the user, by the task that writes such responses."""

    name = "longmemeval.preference"
    task = "personal-response"
    categories: ClassVar[Mapping[str, str]] = {PREFERENCE: PREFERENCE}


def parse_date(text: Any) -> datetime | None:
    """Reads LongMemEval's dates, `2023/04/10 (Mon) 23:07`; None when it is none."""
    parts = str(text).split()
    if len(parts) == 3 and parts[1].startswith("("):
        parts = [parts[0], parts[2]]
    try:
        return datetime.strptime(" ".join(parts), "%Y/%m/%d %H:%M")
    except ValueError:
        return None


def _example(row: _Row, place: Location, texts: dict[str, str]) -> dspy.Example | None:
    sessions: list[Session] = []
    names: dict[str, list[str]] = {}
    marked: set[str] = set()
    for n, (time, name, talk) in enumerate(_in_order(row, place), 1):
        said = [(f"D{n}:{k}", each) for k, each in enumerate(talk, 1) if each.content]
        if not said:
            place.warn("empty session", f"session {name} has no words; passed over")
            continue
        marked.update(id for id, one in said if one.has_answer)
        shared = [(id, one.role or "user", texts.setdefault(one.content, one.content)) for id, one in said]
        turns = tuple(Turn(id=id, speaker=role, text=text) for id, role, text in shared)
        sessions.append(Session(id=f"D{n}", time=time, turns=turns))
        names.setdefault(name, []).append(f"D{n}")
    if not sessions:
        place.reject("no sessions", "holds no session with words")
        return None
    asked, abstains = parse_date(row.question_date), "_abs" in row.question_id
    if asked is None:
        place.field("question_date").warn("malformed date", f"{row.question_date!r} is passed over")
    gold = tuple(dict.fromkeys(id for name in row.answer_session_ids for id in names.get(name, ())))
    if not abstains and (not gold or set(row.answer_session_ids) - names.keys()):
        place.field("answer_session_ids").warn("dangling evidence", "names no session, or one that is not there")
    turns = [turn.id for session in sessions if session.id in gold for turn in session.turns]
    # The turns that are marked, or all of the evidence sessions where none is.
    evidence_ids = () if abstains else tuple(id for id in turns if id in marked) or tuple(turns)
    return dspy.Example(
        id=row.question_id,
        history=History(id=row.question_id, items=tuple(sessions)),
        question=row.question,
        date=format_time(asked) if asked else "",
        evidence_ids=evidence_ids,
        answer=row.answer,
        category=row.question_type,
        evidence=evidence_ids,
        answer_sessions=gold,
        abstention=abstains,
    ).with_inputs("history", "question", "date", "evidence_ids")


def _in_order(row: _Row, place: Location) -> list[tuple[datetime | None, str, tuple[_Message, ...]]]:
    """The sessions by time; those of one time, and an undated one after its neighbour, as in the file."""
    rows, last = [], datetime.min
    columns = zip(row.haystack_session_ids, row.haystack_dates, row.haystack_sessions, strict=True)
    for n, (name, date, talk) in enumerate(columns):
        time = parse_date(date)
        if time is None:
            place.field(f"haystack_dates.{n}").warn("malformed date", f"{date!r} is no date; it stays undated")
        last = time or last
        rows.append((last, n, time, name, talk))
    return [(time, name, talk) for _, _, time, name, talk in sorted(rows, key=lambda each: each[:2])]
